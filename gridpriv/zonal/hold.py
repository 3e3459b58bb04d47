r"""Scheduled interchange that zones keep themselves: ``--hold interchange``.

A schedule is planned on estimated demand; a zone that has no generation left to serve the rest
draws it from its neighbours, whose meters then show its demand. So every zone sets generation aside
before the schedule is made: as much as its total may be off, up and down, except with probability

    delta = P(|w'n + e| > band),     e ~ N(0, (1 - S'w)' C (1 - S'w)),

over the noise n of its release and the public prior of covariance C, with w the weights by which
the best linear estimate of the total reads the statistics S. All of it is public: no figure depends
on demand or on what is drawn. After the release the zone redispatches with all of its generation
and never plans another interchange.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.text import Json
from gridpriv.grid.case import Case
from gridpriv.power.zone import Zone
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.strategies.disclosure import DEVIATION, Disclosure

CHANCE = 1e-3
"""Chance of leaving the band that is aimed at."""
LOSSES = 1.05
"""Generation set aside per MW of demand: losses move with it."""
MOST_SHARE = 0.25
"""Largest part of a zone's generating range that is set aside in each direction."""
DRAWS, NUMBERS = 100_000, 6_000_000
"""Draws of the noise that a chance is estimated from, and how many numbers they have at most."""


@dataclass(frozen=True, eq=False)
class Hold:
    """Generation that zones set aside, and the chance that it is not enough; public.

    Attributes
    ----------
    zones : tuple of str
    band : (zones,)
        Error of a zone's estimated total that it serves itself, per unit.
    delta : (zones,)
        Chance of a larger one.
    reserve : (gens,)
        Set aside of every generator, up and down, per unit.
    """

    zones: tuple[str, ...]
    band: Floats
    delta: Floats
    reserve: Floats

    def narrowed(self, case: Case) -> Case:
        """Return the case with the reserve outside the limits of its generators."""
        return replace(case, pmin=case.pmin + self.reserve, pmax=case.pmax - self.reserve)

    def rows(self, base_mva: float) -> list[Json]:
        """Return a row per zone (:class:`gridpriv.zonal.documents.HeldZone`)."""
        result = zip(self.zones, base_mva * self.band, self.delta, strict=True)
        return [{"zone": z, "band_mw": float(b), "delta": float(d)} for z, b, d in result]


def make_hold(
    zones: Sequence[Zone],
    disclosures: Sequence[Disclosure | None],
    rule: NoiseRule | None,
    adjacency: DemandAdjacency,
) -> Hold:
    """Return the generation that the zones of a run set aside."""
    case = zones[0].network.case
    reserve, bands, chances = np.zeros(case.n_gen), [], []
    for zone, disclosure in zip(zones, disclosures, strict=True):
        errors = np.zeros(1)
        if disclosure is not None and rule is not None:
            errors = total_errors(disclosure, rule, adjacency)
        wide = case.pmax[zone.gens] - case.pmin[zone.gens]
        wanted = LOSSES * float(np.quantile(errors, 1.0 - CHANCE))
        if disclosure is not None and not len(disclosure.strategy.matrix):
            wanted = 0.0  # nothing is released: no reserve covers what the prior may be off
        aside = min(wanted, MOST_SHARE * float(wide.sum()))
        reserve[zone.gens] = aside * _shares(wide)
        bands.append(aside / LOSSES)
        chances.append(float((errors > bands[-1]).mean()))
    names = tuple(zone.name for zone in zones)
    return Hold(names, np.array(bands), np.array(chances), reserve)


def _shares(wide: Floats) -> Floats:
    """Return the shares of generators in a reserve: by range; one without a limit takes it all."""
    endless = np.isinf(wide)
    size = endless.astype(float) if endless.any() else wide
    return size / max(float(size.sum()), 1e-300)


def total_errors(disclosure: Disclosure, rule: NoiseRule, adjacency: DemandAdjacency) -> Floats:
    """Return draws of the size of a zone's estimation error of its total, per unit (public)."""
    matrix, belief = disclosure.strategy.matrix, disclosure.prior.active
    law = replace(rule, source="simulated").release(disclosure.sensitivity(adjacency, rule.norm))
    mechanism, count = law.mechanism, len(matrix)
    together = belief.spread**2 * np.outer(belief.shares, belief.shares)
    before: Floats = together + DEVIATION**2 * belief.deviations
    seen = matrix @ before
    weights = np.linalg.solve(
        seen @ matrix.T + mechanism.variance * np.eye(count), seen.sum(axis=1)
    )
    rest = np.ones(matrix.shape[1]) - matrix.T @ weights
    draws, generator = min(DRAWS, NUMBERS // max(count, 1)), np.random.default_rng(0)
    noise = mechanism.perturb(np.zeros(2 * count * draws), lambda: generator)
    missed = noise[: count * draws].reshape(draws, count) @ weights
    left = math.sqrt(max(float(rest @ before @ rest), 0.0))
    missed = missed + left * generator.standard_normal(draws)
    return np.asarray(disclosure.scale * np.abs(missed))


def unreserved(zone: Zone, case: Case) -> Zone:
    """Return a zone with the limits of its generators as they are."""
    return replace(zone, network=replace(zone.network, case=case))


def hold_messages(rows: Sequence[Json] | None) -> Iterator[tuple[str, Json]]:
    """Yield codes and values of the messages on held interchange.

    ``hold`` names the zone most likely to leave it; ``hold-short`` the zones whose generation is
    too little for the chance that is aimed at, ``hold-empty`` those that set none aside.
    """
    short = [row for row in rows or () if row["delta"] > CHANCE]
    empty = [row for row in short if row["band_mw"] == 0.0]
    if empty:
        yield "hold-empty", {"zones": ", ".join(row["zone"] for row in empty)}
    if rows and not short:
        yield "hold", _worst(rows)
    left = [row for row in short if row not in empty]
    if left:
        yield "hold-short", _worst(left)


def _worst(rows: Sequence[Json]) -> Json:
    """Return the values of the zone that most likely leaves its band."""
    row = max(rows, key=lambda row: (row["delta"], -row["band_mw"]))
    return {"zone": row["zone"], "band": f"{row['band_mw']:.3g}", "delta": f"{row['delta']:.2g}"}
