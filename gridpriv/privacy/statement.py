"""Privacy cost of a run by zone: nominal and certified, per release and in total.

Neighbouring data differ in one zone, and the others see that zone only through its releases,
so a zone's loss is that of its own releases and a run's is that of its worst zone.
"""

from __future__ import annotations

from collections.abc import Mapping

from gridpriv.core.errors import InputError
from gridpriv.core.tables import key, known, released
from gridpriv.privacy.accounting import epsilon_of, total_epsilon, total_pure
from gridpriv.privacy.budget import NO_NOISE, NOTHING
from gridpriv.privacy.mechanism import Charge, has_secure_sampler
from gridpriv.privacy.release import Release
from gridpriv.privacy.rows import Bound
from gridpriv.privacy.sensitivity import Norm


class ZoneStatement(Bound, name="statements"):
    """The privacy of one zone in one run."""

    zone: str = key("Zone: name of the zone in the zone map")
    releases: int = released("Releases: number of releases of the zone")
    nominal: float = known("Nominal epsilon: epsilon of one release according to the settings")
    certified: float = released(
        "Certified epsilon: largest epsilon of a release under a proven sensitivity"
    )
    total_pure: float = released("Pure total epsilon: total epsilon (pure DP) by basic composition")
    total: float = released("Total epsilon: total epsilon of all releases at the target delta")
    norm: Norm = known("Norm: norm of the sensitivity")


NO_SAMPLER = "no secure sampler exists for {} noise"


def noise_caveat(drawn: str, noise: str, *mechanisms: str) -> str:
    """Return in words what the source of the noise means for privacy.

    ``drawn`` is what a run draws: noise of its budget, ``none``, or ``nothing``, for it releases
    nothing. ``mechanisms`` are those of the runs.
    """
    if drawn == NO_NOISE:
        return "no privacy: no noise"
    if drawn == NOTHING:
        return "nothing of demand is released"
    if noise == "simulated":
        lacking = [name for name in dict.fromkeys(mechanisms) if not has_secure_sampler(name)]
        without = NO_SAMPLER.format(" and ".join(lacking))
        if not lacking:
            advice = "use --noise secure"
        elif len(lacking) == len(set(mechanisms)):
            advice = without
        else:
            advice = f"use --noise secure; {without}"
        return f"simulated noise, no privacy: anyone with the seed can remove the noise ({advice})"
    return "secure noise: no seed"


def refuse_unprotected(mechanism: str) -> None:
    """Raise :class:`InputError` for a run whose messages would be published without noise."""
    if mechanism == "none":
        raise InputError(
            "public = True: must be left out with mechanism 'none': without noise every message is "
            "as private as the data; choose mechanism knorm, laplace or gaussian"
        )


def zone_statement(
    zone: str,
    releases: Mapping[Release, int],
    nominal: float,
    release_delta: float,
    target_delta: float,
) -> ZoneStatement:
    """Return the statement of a zone's releases."""
    charges: dict[Charge, int] = {}
    for release, count in releases.items():
        charge = release.certified
        charges[charge] = charges.get(charge, 0) + count
    worst = max(releases, key=lambda r: r.sensitivity.value / r.mechanism.scale)
    return ZoneStatement(
        zone=zone,
        releases=sum(releases.values()),
        nominal=nominal,
        certified=epsilon_of(worst.certified, release_delta),
        total_pure=total_pure(charges),
        total=total_epsilon(charges, target_delta),
        assumed=worst.assumed,
        sensitivity=worst.sensitivity.value,
        norm=worst.sensitivity.norm,
        ratio=worst.sensitivity.value / worst.assumed,
        scale=worst.mechanism.scale,
        bound_source=worst.sensitivity.bound_source,
    )
