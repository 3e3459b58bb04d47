"""Privacy cost of a run by zone: nominal and certified, per release and in total.

Neighbouring data differ in one zone, and the others see that zone only through its releases,
so a zone's loss is that of its own releases and a run's is that of its worst zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gridpriv.core.errors import InputError
from gridpriv.privacy.accounting import epsilon_of, total_epsilon, total_pure
from gridpriv.privacy.budget import NO_NOISE, NOTHING
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm


@dataclass(frozen=True)
class ZoneStatement:
    """One zone's privacy loss.

    Attributes
    ----------
    nominal, certified : float
        Epsilon of one release: as stated, and of the worst release under the sound
        sensitivity (at the release's delta where it is not pure).
    total_pure : float
        By basic composition; inf for Gaussian noise.
    total : float
        Epsilon of all releases at the target delta.
    assumed, sensitivity : float
        Calibrated to, and sound, of the worst release.
    norm : {1, 2, 'box'}
    scale : float
        Of the noise of the worst release.
    bound_source : str
        Where the sound sensitivity comes from.
    """

    zone: str
    releases: int
    nominal: float
    certified: float
    total_pure: float
    total: float
    assumed: float
    sensitivity: float
    norm: Norm
    scale: float
    bound_source: str

    @property
    def ratio(self) -> float:
        """Sound over assumed sensitivity: above 1, the stated epsilon is not what is delivered."""
        return self.sensitivity / self.assumed


def noise_caveat(drawn: str, noise: str) -> str:
    """Return in words what the source of the noise means for privacy.

    ``drawn`` is what a run draws: noise of its budget, ``none``, or ``nothing``, for it releases
    nothing.
    """
    if drawn == NO_NOISE:
        return "no privacy: no noise"
    if drawn == NOTHING:
        return "nothing of demand is released"
    if noise == "simulated":
        return (
            "no privacy: simulation, anyone with the seed can remove the noise (use --noise secure)"
        )
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
        scale=worst.mechanism.scale,
        bound_source=worst.sensitivity.bound_source,
    )
