"""What a learning run costs: one tally per client, totals by dp_accounting.

Clients' data are disjoint and others see a client only through its releases, so a run's loss
is its worst client's. Four kinds of release occur:

- plain Laplace and Gaussian noise of known sensitivity: composed by
  :mod:`gridpriv.privacy.accounting`;
- Gaussian noise on a step over a *Poisson* sample that the client draws in secret: the PLD of
  the sampled Gaussian mechanism, under ``add-one`` adjacency only. Fixed-size batches and
  ``replace-one`` are charged without amplification: the event assumes neither. Participation
  of clients is known to whoever sees the messages, so it amplifies nothing;
- (epsilon, delta) mechanisms that are no additive noise (objective perturbation of an exact
  minimiser): the PLD that dominates every such mechanism;
- releases about which nothing is proved: then nothing is certified, and the total is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from gridpriv.core.document import Json
from gridpriv.learning.releases import MULTIPLIERS, ROUNDING, Tally
from gridpriv.learning.settings import LearnSettings
from gridpriv.privacy.accounting import (
    epsilon_of,
    gaussian_multiplier,
    paper_total,
    total_epsilon,
    total_pure,
)
from gridpriv.privacy.budget import noise_multiplier
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.release import Release

GAUSSIAN = ("gaussian", "sampled-gaussian")


def noise_rule(settings: LearnSettings, releases: int) -> NoiseRule | None:
    """Return how much noise the budget asks for in a number of plain releases, or None."""
    if settings.mechanism == "none":
        return None
    multiplier = noise_multiplier(
        settings.budget, settings.mechanism, settings.calibration, releases, settings.delta,
        settings.noise,
    )  # fmt: skip
    if settings.calibration == "sound":
        multiplier *= ROUNDING
    return NoiseRule(settings.mechanism, settings.noise, multiplier)


@cache
def sampled_multiplier(settings: LearnSettings, plain: float, rate: float) -> float:
    """Return the multiplier at which sampled releases cost what plain ones of ``plain`` do.

    ``plain`` is the multiplier of the budget without amplification: as many plain releases as
    its total allows are (sum 1/plain^2) of one, and as many sampled ones are calibrated by
    their PLD. A budget per release buys the noise it names, and amplification shows in the
    certificate alone.
    """
    budget = settings.budget
    if budget.scope == "per-release" or rate >= 1.0:
        return plain
    whole = gaussian_multiplier(budget.epsilon, budget.delta or 0.0, 1)
    releases = max(1, round((plain / whole) ** 2))

    def cost(multiplier: float) -> float:
        return total_epsilon(
            {Charge("sampled-gaussian", multiplier, rate): releases}, budget.delta or 0.0
        )

    # sampling at rate q lowers the noise by a factor of q at best (small epsilon, many releases)
    return ROUNDING * _smallest(cost, budget.epsilon, plain * max(rate / 2.0, 1e-3), plain)


def _smallest(cost: Callable[[float], float], epsilon: float, least: float, most: float) -> float:
    """Return a multiplier up to ``most`` whose cost is at most epsilon, the smallest to 0.5 %.

    Amplification only lowers the cost, so ``most`` (no amplification) is always enough; the
    search does not look below ``least``, where there is at most little to gain.
    """
    low, high = least, most
    while high / low > 1.005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if cost(middle) <= epsilon else (middle, high)
    return high


def classical_epsilon(multiplier: float, delta: float, mechanism: str) -> float:
    """Return the epsilon that the papers' step sizes and penalties read off the noise.

    sqrt(2 ln(1.25/delta)) / multiplier, or 1 / multiplier for Laplace; inf without noise. It
    states no privacy.
    """
    if multiplier == 0.0:
        return math.inf
    if mechanism == "laplace":
        return 1.0 / multiplier
    return math.sqrt(2.0 * math.log(1.25 / delta)) / multiplier


def zcdp_total(charges: Mapping[Charge, int]) -> float | None:
    """Return rho of zero-concentrated privacy, sum of 1/(2 m^2); None if not all are Gaussian.

    Sampled releases are charged without amplification (Bun and Steinke 2016, proposition 1.6).
    """
    if not charges or any(c.kind not in (*GAUSSIAN, "zcdp") for c in charges):
        return None
    return math.fsum(
        n * (0.5 / c.parameter**2 if c.kind in GAUSSIAN else c.parameter)
        for c, n in charges.items()
    )


def privacy_statement(
    settings: LearnSettings,
    multiplier: float,
    tally: Tally,
    adjacency: str,
    paper: Json | None,
) -> Json:
    """Return the ``privacy`` block of a run: every figure is its worst over clients.

    Parameters
    ----------
    multiplier : float
        Noise over sensitivity that the budget asks for; shown where nothing was released.
    paper : dict or None
        The total that the paper states, labelled as its own; it certifies nothing.
    """
    tallies = tally.distinct()
    releases = max((sum(t.values()) for t in tallies), default=0)
    charges = {c for one in tallies for c in one}
    delta, target = settings.release_delta, settings.target_delta
    pure = charges and all(c.kind == "laplace" for c in charges)
    return {
        "mechanism": settings.mechanism,
        "perturbation": settings.as_dict()["perturbation"],
        "calibration": settings.calibration,
        "noise": settings.noise,
        "adjacency": adjacency,
        "releases_per_client": releases,
        "per_release": {
            "claimed": _claimed(settings, "per-release"),
            "certified": max((epsilon_of(c, delta) for c in charges), default=None),
            "delta": delta if settings.mechanism == "gaussian" else 0.0,
        },
        "noise_multiplier": _least_multiplier(charges) or multiplier or None,
        "total_pure": max(map(total_pure, tallies)) if pure else None,
        "total": {
            "claimed": _claimed(settings, "total"),
            "epsilon": max((total_epsilon(t, target) for t in tallies), default=None),
            "delta": target,
        },
        "zcdp": _worst_rho(tallies),
        "paper_total": paper,
        "sensitivity": [_calibration(p, tally.last[p]) for p in sorted(tally.last)],
        "notes": tally.notes,
    }


def _calibration(client: int, release: Release) -> Json:
    """Return what a client's last release was calibrated to, and what is sound."""
    assumed, sound = release.assumed, release.sensitivity
    return {
        "client": client + 1, "assumed": assumed, "sensitivity": sound.value,
        "ratio": sound.value / assumed if assumed > 0 else None,
        "scale": release.mechanism.scale, "provenance": sound.provenance,
    }  # fmt: skip


def _worst_rho(tallies: list[Mapping[Charge, int]]) -> float | None:
    found = [zcdp_total(tally) for tally in tallies]
    rhos = [rho for rho in found if rho is not None]
    return max(rhos) if rhos and len(rhos) == len(found) else None


def _least_multiplier(charges: Iterable[Charge]) -> float | None:
    """Return the least noise over sensitivity that was drawn; None if no noise was added."""
    return min((c.parameter for c in charges if c.kind in MULTIPLIERS), default=None)


def _claimed(settings: LearnSettings, scope: str) -> float | None:
    """Return the epsilon that the budget states for one release, or for all."""
    budget = settings.budget
    return budget.epsilon if settings.mechanism != "none" and budget.scope == scope else None


def ryu_kim_total(settings: LearnSettings, releases: int) -> Json | None:
    """Return theorem 4.6 of Ryu and Kim under calibration ``paper``; no certificate."""
    budget = settings.budget
    if settings.calibration != "paper" or settings.mechanism != "gaussian":
        return None
    if budget.scope != "per-release":
        return None
    value = paper_total(budget.epsilon, settings.release_delta, releases, settings.target_delta)
    return {"epsilon": value, "formula": "Ryu and Kim, theorem 4.6 (a lower bound)"}
