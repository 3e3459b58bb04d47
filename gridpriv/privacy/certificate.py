"""Privacy cost of a run by zone: nominal and certified, per release and in total.

Adjacent data differ in one zone, and others see that zone only through its releases. So the loss of
a zone is that of its own releases, and the loss of a run that of its worst zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from gridpriv.core.errors import InputError
from gridpriv.core.tables import Number, Row, Text, key, known, released
from gridpriv.privacy.accounting import epsilon_of, total_epsilon, total_pure
from gridpriv.privacy.mechanism import Charge, has_secure_sampler
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm
from gridpriv.privacy.settings import NO_NOISE, NOTHING


class NoiseBlock(Row):
    """The noise of a run and the data that it protects."""

    mechanism: Text = known("Mechanism: mechanism that draws the noise")
    perturbation: Text = known("Perturbation: perturbed quantity")
    sensitivity_bound: Text = known(
        "Sensitivity bound: kind of sensitivity bound, proven or published"
    )
    noise: Text = known("Noise: source of randomness, simulated or secure")
    caveat: Text = known("Caveat: consequence of the noise's source for privacy")
    adjacency: Text = known("Adjacency: description of the protected change")


class PerRelease(Row, name="per_release"):
    """One release."""

    nominal: Number = known("Nominal epsilon: epsilon of one release according to the settings")
    certified: Number = released("Certified epsilon: epsilon under a proven sensitivity")
    delta: Number = known("Delta: delta that goes with epsilon")


class TotalEpsilon(Row, name="total"):
    """All releases of the worst zone."""

    epsilon: Number = released("Total epsilon: total epsilon at the delta of the same row")
    delta: Number = known("Delta: target delta")


class Bound(Row):
    """A sensitivity and the noise of its calibration."""

    assumed: float = released("Assumed sensitivity: sensitivity that sets the noise scale")
    sensitivity: float = released("Sensitivity: largest proven sensitivity of a release")
    scale: float = released("Noise scale: noise scale of the release with the largest epsilon")
    bound_source: str = known("Source of the bound: derivation or page of the proven sensitivity")
    ratio: float = released(
        "Sensitivity ratio: proven sensitivity divided by the one that sets the noise scale; "
        "above 1 the nominal epsilon is not met"
    )


class Certificate(Row):
    """Epsilons of a run, nominal and certified: of its worst zone or client."""

    releases_per_zone: Number = released(
        "Releases per zone: largest number of releases of one zone", at="privacy.releases_per_zone"
    )
    releases_per_client: Number = released(
        "Releases per client: largest number of releases of one client",
        at="privacy.releases_per_client",
    )
    epsilon_nominal: Number = known(
        "Nominal epsilon per release: epsilon of one release according to the settings",
        at="privacy.per_release.nominal",
    )
    epsilon_certified: Number = released(
        "Certified epsilon per release: largest epsilon of a release under a proven sensitivity",
        at="privacy.per_release.certified",
    )
    release_delta: Number = known(
        "Delta per release: delta of the nominal and the certified epsilon per release",
        at="privacy.per_release.delta",
    )
    total_pure: Number = released(
        "Pure total epsilon: total epsilon (pure DP) by basic composition", at="privacy.total_pure"
    )
    total_epsilon: Number = released(
        "Total epsilon at target delta: total epsilon of all releases at the target delta",
        at="privacy.total.epsilon",
    )
    target_delta: Number = known(
        "Target delta: delta of the total epsilon", at="privacy.total.delta"
    )
    published_total: Number = known(
        "Ryu and Kim's theorem 4.6 (no certificate): total epsilon by this theorem",
        at="privacy.published_total",
    )
    protection: Text = known("Protected: change of the data that the noise hides")


class ZoneCertificate(Bound, name="certificates"):
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


def noise_caveat(
    noise_budget: str, noise: str, *mechanisms: str, secure: str = "use --noise secure"
) -> str:
    """Return a sentence on the source of the noise and its effect on privacy.

    ``noise_budget`` is the budget of the noise, ``none``, or ``nothing`` without releases.
    ``mechanisms`` are those of the runs. ``secure`` describes how secure noise is drawn.
    """
    if noise_budget == NO_NOISE:
        return "no privacy: no noise"
    if noise_budget == NOTHING:
        return "nothing of demand is released"
    if noise == "simulated":
        lacking = [name for name in dict.fromkeys(mechanisms) if not has_secure_sampler(name)]
        without = NO_SAMPLER.format(" and ".join(lacking))
        if not lacking:
            advice = secure
        elif len(lacking) == len(set(mechanisms)):
            advice = without
        else:
            advice = f"{secure}; {without}"
        return f"simulated noise, no privacy, even if the seed stays secret ({advice})"
    return "secure noise: no seed"


def certified_for(noise: str, *mechanisms: str) -> str:
    """Return a note that noise is simulated, in parentheses; empty for secure noise."""
    if noise == "secure":
        return ""
    lacking = [name for name in dict.fromkeys(mechanisms) if not has_secure_sampler(name)]
    if not lacking:
        return " (holds with --noise secure)"
    return f" (of the ideal mechanism: {NO_SAMPLER.format(' and '.join(lacking))})"


def refuse_unprotected(mechanism: str) -> None:
    """Raise :class:`InputError` for a run whose messages would be published without noise."""
    if mechanism == "none":
        raise InputError(
            "--public exports noisy releases only, but --mechanism is none. Choose knorm, "
            "laplace or gaussian, or drop --public."
        )


def charges_of(releases: Mapping[Release, int], factor: float = 1.0) -> Counter[Charge]:
    """Return the charges of releases at ``factor`` times the adjacency distance."""
    charges: Counter[Charge] = Counter()
    for release, count in releases.items():
        charges[release.certified_within(factor)] += count
    return charges


def all_planned(releases: Mapping[Release, int], planned: int) -> dict[Release, int]:
    """Return the releases of an owner, including planned ones that were not drawn.

    Each of these counts as the drawn release with the largest loss. A total at a delta holds for a
    number of releases that is fixed in advance, and an early end can depend on earlier releases or
    on the data. The drawn releases are a part of the planned ones, so the total of all planned
    releases holds.
    """
    undrawn = planned - sum(releases.values())
    if undrawn <= 0 or not releases:
        return dict(releases)
    worst = _worst(releases)
    return {**releases, worst: releases[worst] + undrawn}


def _worst(releases: Mapping[Release, int]) -> Release:
    return max(releases, key=lambda r: r.sensitivity.value / r.mechanism.scale)


def zone_certificate(
    zone: str,
    releases: Mapping[Release, int],
    nominal: float,
    release_delta: float,
    target_delta: float,
    planned: Mapping[Release, int] | None = None,
) -> ZoneCertificate:
    """Return the certificate of a zone's releases.

    Parameters
    ----------
    planned : mapping, optional
        All planned releases where some were not drawn (:func:`all_planned`): the total at a delta
        is that of all planned releases, or the sum of the pure epsilons of drawn ones if that is
        less: the sum bounds the loss of this outcome only (ex-post privacy).
    """
    charges, worst = charges_of(releases), _worst(releases)
    total = total_epsilon(charges, target_delta)
    if planned is not None and planned != releases:
        planned_total = total_epsilon(charges_of(planned), target_delta)
        total = min(max(total, planned_total), total_pure(charges))
    return ZoneCertificate(
        zone=zone,
        releases=sum(releases.values()),
        nominal=nominal,
        certified=epsilon_of(worst.certified, release_delta),
        total_pure=total_pure(charges),
        total=total,
        assumed=worst.assumed,
        sensitivity=worst.sensitivity.value,
        norm=worst.sensitivity.norm,
        ratio=worst.sensitivity.value / worst.assumed,
        scale=worst.mechanism.scale,
        bound_source=worst.sensitivity.bound_source,
    )
