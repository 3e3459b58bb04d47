"""What protection will cost, from public data only: before anything private is touched.

Demand is stood in for by draws from what the public expects: each bus's expected demand times a
Gamma law of mean 1, less by a share until the grid can serve it, as grids can. On every stand-in
the grid is scheduled and settled as a run would, with noise, and held against the AC optimum.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from gridpriv.core.errors import GridprivWarning, SolverError
from gridpriv.grid.case import Case
from gridpriv.grid.zoning import Zoning
from gridpriv.power.ac.optimum import acopf
from gridpriv.power.objective import has_convex_costs
from gridpriv.power.prior import PublicDemand, public_demand
from gridpriv.power.shortage import SHED_TOLERANCE_MW
from gridpriv.privacy.mechanism import variance
from gridpriv.privacy.strategies.auto import expected_error
from gridpriv.zonal.prepared import Prepared, prepare
from gridpriv.zonal.run import run_prepared
from gridpriv.zonal.settings import Settings

SPREAD, LESS = 0.7, 0.8
"""Deviation of a stand-in's loads, relative; its share that is left where it cannot be served."""
MOST_TRIES = 12
CENTRAL = "central"
WORTH = 1e-3
"""Ways whose costs differ by less, relative, count as the same."""

Watch = Callable[[str], None]


@dataclass(frozen=True)
class Expected:
    """What one way of protecting is expected to cost; public.

    Attributes
    ----------
    release, mechanism : str
    rounds : str
        Their number, or ``central``.
    noise_mw : float
        Standard deviation of the noise on a zone's sum, of the zone where it is largest.
    error_mw : float
        Expected error of a zone's sum, root mean square over zones.
    cost, over_optimum : float or None
        In $/h: of generation and of demand that is not served, and beyond the AC optimum; means
        over stand-ins. None for a case without costs.
    shed_mw, balancing_mw : float or None
    without_dispatch : int
        Stand-ins on which the way ended without a dispatch; they are not in the means.
    """

    release: str
    mechanism: str
    rounds: str
    noise_mw: float
    error_mw: float
    cost: float | None
    over_optimum: float | None
    shed_mw: float | None
    balancing_mw: float | None
    without_dispatch: int

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON can hold them."""
        return asdict(self)


def ways(
    releases: Sequence[str], mechanisms: Sequence[str], rounds: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the settings of every way; without a release the mechanism does not matter."""
    for release, mechanism, number in product(releases, mechanisms, rounds):
        if release == "nothing" and mechanism != mechanisms[0]:
            continue
        schedule = {"coordination": CENTRAL} if number == CENTRAL else {"rounds": int(number)}
        yield {"release": release, "mechanism": mechanism, **schedule}


def forecast(
    case: Case,
    zoning: Zoning,
    settings: Settings,
    options: Sequence[dict[str, Any]],
    draws: int,
    watch: Watch = lambda _: None,
) -> list[Expected]:
    """Return what every way is expected to cost.

    Parameters
    ----------
    case : Case
        Its demand is not read.
    zoning : Zoning
    settings : Settings
        Of the ways, but for what ``options`` change; ``seed`` is that of the stand-ins.
    options : sequence of dict
        As :func:`ways` yields them.
    draws : int
        Stand-ins.
    watch : callable
        Called with a note after every run.
    """
    expected = public_demand(case, settings.public_demand)
    seed = settings.seed or 0
    generators = [np.random.default_rng([seed, k]) for k in range(draws)]
    grids = [stand_in(case, expected, generator, settings.voll) for generator in generators]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridprivWarning)
        return [_expected(grids, zoning, settings, way, watch) for way in options]


def stand_in(
    case: Case, expected: PublicDemand, generator: np.random.Generator, voll: float
) -> tuple[Case, float | None]:
    """Return the case with demand that the public could expect, and its AC optimum in $/h."""
    pd, qd = expected.mean * generator.gamma(SPREAD**-2, SPREAD**2, case.n_bus)
    grid = replace(case, pd=pd, qd=qd)
    for _ in range(MOST_TRIES):
        try:
            best = acopf(grid, "cost" if has_convex_costs(case) else "shed", voll)
        except SolverError:
            best = None
        if best is not None and best.state.shed_mw <= SHED_TOLERANCE_MW:
            return grid, best.cost
        grid = grid.scale_load(LESS)
    return grid, None


def recommended(found: Sequence[Expected]) -> Expected:
    """Return the way of least cost (without costs, of least unserved demand).

    Of ways that come as near as stand-ins can tell it is nothing released, or else the one with
    the least expected error.
    """
    best = min(map(_harm, found))
    near = [one for one in found if _harm(one) <= tuple(x * (1.0 + WORTH) for x in best)]
    return min(near, key=lambda one: (one.release != "nothing", one.error_mw, _harm(one)))


def _harm(one: Expected) -> tuple[float, ...]:
    """Return what ways are compared by: worst where one left a stand-in without a dispatch."""
    if one.without_dispatch or one.shed_mw is None or one.balancing_mw is None:
        return (np.inf, float(one.without_dispatch))
    return (one.shed_mw, one.balancing_mw) if one.cost is None else (one.cost,)


def _expected(
    grids: Sequence[tuple[Case, float | None]],
    zoning: Zoning,
    settings: Settings,
    way: dict[str, Any],
    watch: Watch,
) -> Expected:
    rows, noise, error = [], 0.0, 0.0
    for seed, (grid, bound) in enumerate(grids):
        prepared = prepare(grid, zoning, replace(settings, seed=seed, **way))
        noise, error = noise_mw(prepared), error_mw(prepared)
        try:
            figures = run_prepared(prepared).physical
        except SolverError:
            figures = {"cost": None, "shed_mw": None, "balancing_mw": None}
        if figures["balancing_mw"] is not None:  # without an AC power flow there is none
            beyond = None if bound is None or figures["cost"] is None else figures["cost"] - bound
            rows.append((figures["cost"], beyond, figures["shed_mw"], figures["balancing_mw"]))
        watch(f"{way['release']}, {way['mechanism']}")
    if not has_convex_costs(grids[0][0]):
        rows = [(None, None, shed, balancing) for _, _, shed, balancing in rows]
    cost, over, shed, balancing = (_mean([row[k] for row in rows]) for k in range(4))
    return Expected(
        way["release"], way["mechanism"], str(way.get("rounds", CENTRAL)), noise, error,
        cost, over, shed, balancing, len(grids) - len(rows),
    )  # fmt: skip


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def noise_mw(prepared: Prepared) -> float:
    """Return the standard deviation of the noise on a zone's sum, where it is largest."""
    return max((root for _, _, root in _sums(prepared)), default=0.0)


def error_mw(prepared: Prepared) -> float:
    """Return the expected error of a zone's sum, root mean square over zones."""
    errors = [error for _, error, _ in _sums(prepared)]
    return float(np.sqrt(np.mean(np.square(errors))))


def _sums(prepared: Prepared) -> Iterator[tuple[str, float, float]]:
    """Yield every zone with the expected error and the noise of its sum, in MW."""
    rule, base = prepared.rules.noise, prepared.case.base_mva
    for zone, held in zip(prepared.zones, prepared.disclosures, strict=True):
        if held is None or rule is None:
            continue
        matrix, ones = held.strategy.matrix, np.ones((1, len(zone.own)))
        drawn = variance(
            rule.release(held.sensitivity(prepared.rules.adjacency, rule.norm)).mechanism
        )
        # the combination of statistics that adds up to the sum with the least noise
        root = np.linalg.lstsq(matrix.T, ones[0], rcond=None)[0] if len(matrix) else np.zeros(0)
        error = expected_error(held.strategy, drawn, held.prior, ones)
        yield zone.name, base * error, base * float(np.sqrt(drawn * (root @ root)))
