"""Expected cost of protection, from public data only.

Demand scenarios are drawn from public data: the sum of a zone, and each bus's part of it, follow
Gamma distributions with the spreads of the public prior. A part of the sum's spread is common to
all zones. Scenarios that the grid serves with :data:`RESERVE` times as much load are kept. Each
scenario has a complete run, with noise and rounds, so costs include coordination error. Costs are
over the AC optimum and over the prior-only baseline of the same scenario. A further scenario is in
the range of n of them with probability (n - 1)/(n + 1); their mean is not an estimate.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import product

import numpy as np

from gridpriv.consensus.transport import Connect, ReusedAgents, in_process
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivWarning, SolverError
from gridpriv.core.text import Json
from gridpriv.grid.case import Case
from gridpriv.grid.zoning import Zoning
from gridpriv.power.ac.optimum import AcOptimum, acopf
from gridpriv.power.ac.state import TOLERANCE
from gridpriv.power.objective import has_convex_costs
from gridpriv.power.prior import PublicDemand, public_demand
from gridpriv.zonal.meter import total_noise
from gridpriv.zonal.prepared import Prepared, prepare
from gridpriv.zonal.run import run_prepared
from gridpriv.zonal.settings import Settings

SPREADS = (0.5, 1.5)
"""Range of the relative deviation of loads about their zone's share, drawn for each scenario. The
median of published grids is 1.5, but those are built around their loads."""
COMMON = 0.3
"""Part of the variance of a zone's sum that is common to all zones: 0.27^2 of 0.27^2 + 0.4^2, the
spreads of load over capacity and of zones over their equal shares (:mod:`gridpriv.power.prior`)."""
RESERVE = 1.05
"""Factor on load at which the grid must still serve a scenario."""
FULL_LOAD_TRIES, MOST_TRIES, LESS = 6, 18, 0.8
"""Draws at the expected load, draws in total, and the reduction of load per further draw."""
CENTRAL = "central"
SAME_COST = 1e-3
"""Methods whose costs differ by less, relative, count as the same."""

LEVEL = f"{100 * SAME_COST:g} %"
RULE = (
    "The recommendation has the fewest scenarios that are not AC-feasible. Among equal ones it has "
    "the lowest median cost over the AC optimum of the same scenario, then the lowest expected "
    "error. "
    f"Differences below {LEVEL} of the cost do not count, nor does balancing power. Without costs, "
    "load shedding and then balancing power replace cost."
)
"""Order in which methods are recommended."""

Watch = Callable[[str], None]


@dataclass(frozen=True)
class Range:
    """A value over scenarios: its least, median and largest."""

    least: float
    median: float
    most: float


@dataclass(frozen=True)
class Outcome:
    """Outcome of a strategy on a sampled demand; ``optimum``: cost of its AC optimum, $/h."""

    cost: float | None
    optimum: float | None
    shed_mw: float
    balancing_mw: float
    ac_feasible: bool = True

    @property
    def severity(self) -> tuple[float, ...]:
        """Values for comparing methods: feasibility, cost, or load shedding and balancing."""
        infeasible = float(not self.ac_feasible)
        if self.cost is not None:
            return infeasible, self.cost
        return infeasible, max(self.shed_mw, TOLERANCE["MW"]), self.balancing_mw


@dataclass(frozen=True)
class Expected:
    """Expected cost of one strategy; public.

    Attributes
    ----------
    release, mechanism : str
    rounds : str
        Their number, or ``central``.
    noise_mw : float
        Standard deviation of the noise on a zone's sum, of the zone where it is largest.
    cost, over_optimum, over_prior_only : Range or None
        In $/h: cost of generation and load shedding; cost over the AC optimum; cost over the
        cheapest prior-only method, on the same scenario. None for a case without costs, the last
        also for prior-only methods.
    shed_mw, balancing_mw : Range or None
    better, worse : int or None
        Scenarios on which the method is better or worse than prior-only, by more than
        :data:`SAME_COST`; None without a comparison.
    scenarios, ac_feasible, without_dispatch : int
        Number of scenarios, of those with an AC-feasible state, and of those without a dispatch.
        Costs are those of AC-feasible scenarios.
    expected_error_mw : float
        Expected error of the release in the zone where it is largest, as in a run.
    """

    release: str
    mechanism: str
    rounds: str
    noise_mw: float
    cost: Range | None
    over_optimum: Range | None
    over_prior_only: Range | None
    shed_mw: Range | None
    balancing_mw: Range | None
    better: int | None
    worse: int | None
    scenarios: int
    ac_feasible: int
    without_dispatch: int
    expected_error_mw: float

    def as_dict(self) -> Json:
        """Return the values as a JSON value."""
        return asdict(self)

    @property
    def severity(self) -> tuple[float, ...]:
        """Severity of a method: scenarios that are not AC-feasible, then medians.

        A cost is compared with the AC optimum of its own scenario: costs differ more between
        scenarios than between methods.
        """
        infeasible = self.scenarios - self.ac_feasible
        if (gap := self.over_optimum or self.cost) is not None:
            return infeasible, gap.median
        if self.shed_mw is None or self.balancing_mw is None:
            return infeasible, np.inf
        shed = max(self.shed_mw.median, TOLERANCE["MW"])
        return infeasible, shed, self.balancing_mw.median

    @property
    def indifference(self) -> tuple[float, ...]:
        """Differences of :attr:`severity` that count as 0."""
        scale = self.severity if self.cost is None else (self.severity[0], self.cost.median)
        return tuple(SAME_COST * abs(value) for value in scale)


def methods(
    releases: Sequence[str], mechanisms: Sequence[str], rounds: Sequence[str]
) -> Iterator[Json]:
    """Yield the settings of every method; without a release the mechanism has no effect."""
    for release, mechanism, number in product(releases, mechanisms, rounds):
        if release == "nothing" and mechanism != mechanisms[0]:
            continue
        schedule = {"coordination": CENTRAL} if number == CENTRAL else {"rounds": int(number)}
        yield {"release": release, "mechanism": mechanism, **schedule}


def forecast(
    case: Case,
    zoning: Zoning,
    settings: Settings,
    options: Sequence[Json],
    scenarios: int,
    watch: Watch = lambda _: None,
) -> tuple[list[Expected], int]:
    """Return the expected cost of every strategy, and the number of scenarios left out.

    Left out are sampled demands without an AC optimum, at their load or :data:`RESERVE` times it.

    Parameters
    ----------
    case : Case
        Its demand is not read.
    zoning : Zoning
    settings : Settings
        Of the methods, changed by ``options``; ``seed`` is that of the scenarios.
    options : sequence of dict
        As :func:`methods` yields them.
    scenarios : int
        Number of demand scenarios.
    watch : callable
        Called with a note after every run.
    """
    expected = public_demand(case, settings.public_demand)
    outcomes_by_draw: list[list[Outcome | None]] = []
    left_out = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridprivWarning)
        for draw in range(scenarios):
            generator = np.random.default_rng([settings.seed or 0, draw])
            grid, optimum, failed = scenario(case, zoning, expected, generator, settings.voll)
            left_out += failed
            chosen = [replace(settings, seed=draw, **method) for method in options]
            with closing(ReusedAgents(in_process)) as zones:
                outcomes = [
                    _outcome(prepare(grid, zoning, own), optimum, zones, watch) for own in chosen
                ]
            outcomes_by_draw.append(outcomes)
        by_method = [list(each) for each in zip(*outcomes_by_draw, strict=True)]
        runs = [prepare(grid, zoning, replace(settings, **method)) for method in options]
        tables = list(zip(runs, options, by_method, strict=True))
        without_release = [table for table in tables if table[1]["release"] == "nothing"]
        prior_only = (
            min(without_release, key=lambda table: _expected(*table).severity)[2]
            if without_release
            else None
        )
        return [
            _expected(run, method, own, None if method["release"] == "nothing" else prior_only)
            for run, method, own in tables
        ], left_out


def scenario(
    case: Case, zoning: Zoning, expected: PublicDemand, generator: np.random.Generator, voll: float
) -> tuple[Case, float | None, int]:
    """Return the case with demand sampled from the public prior, and its AC optimum in $/h.

    Last is the number of draws that were left out before.

    The expected demand may exceed what the grid can serve: after :data:`FULL_LOAD_TRIES` draws
    further ones have less load.

    Raises
    ------
    SolverError
        If the grid serves none of :data:`MOST_TRIES` draws.
    """
    for tried in range(MOST_TRIES):
        level = LESS ** max(tried + 1 - FULL_LOAD_TRIES, 0)
        pd, qd = level * drawn_demand(zoning, expected, generator)
        grid = replace(case, pd=pd, qd=qd)
        if _served(grid.scale_load(RESERVE), voll) is not None:
            best = _served(grid, voll)
            if best is not None:
                return grid, best.cost, tried
    raise SolverError(
        f"case {case.name}: none of {MOST_TRIES} sampled demands has an AC optimum at {RESERVE:g} "
        f"times its level (the last was {100 * level:.0f} % of the expected demand)"
    )


def drawn_demand(zoning: Zoning, expected: PublicDemand, generator: np.random.Generator) -> Floats:
    """Return demand (2, n_bus) sampled from the public prior, per unit."""

    def unit_mean(deviation: float, count: int) -> Floats:
        return generator.gamma(deviation**-2, deviation**2, count)

    common, own = np.sqrt([COMMON, 1.0 - COMMON]) * expected.spread
    zones = unit_mean(common, 1) * unit_mean(own, zoning.n_zone)
    spread = float(np.exp(generator.uniform(*np.log(SPREADS))))
    factors = unit_mean(spread, len(zoning.zone_of))
    for zone, members in zip(zones, zoning.members, strict=True):
        usual = np.abs(expected.mean[0, members])
        shared = usual @ factors[members]
        factors[members] *= zone * usual.sum() / shared if shared > 0.0 else zone
    return np.asarray(expected.mean * factors)


def _served(grid: Case, voll: float) -> AcOptimum | None:
    """Return the AC optimum if it serves all demand, else None."""
    try:
        best = acopf(grid, "cost" if has_convex_costs(grid) else "shed", voll)
    except SolverError:
        return None
    return best if best.state.shed_mw <= best.state.negligible_mw else None


def recommended(result: Sequence[Expected]) -> Expected:
    """Return the method of least median cost over the AC optimum (without costs: load shedding).

    It must be better than prior-only on more than half of the scenarios and in the median;
    otherwise prior-only is recommended. Among methods that scenarios cannot distinguish it has the
    least expected error of the release, then the least cost over the optimum. :data:`RULE` states
    it to the user.
    """
    nothing = [item for item in result if item.release == "nothing"]
    beneficial = [
        item
        for item in result
        if item.release != "nothing" and (item.better is None or 2 * item.better > item.scenarios)
    ]
    candidates = [*nothing, *beneficial]
    for place in range(max(len(item.severity) for item in candidates)):
        severities = [
            item.severity[place] if place < len(item.severity) else np.inf for item in candidates
        ]
        first = int(np.argmin(severities))
        margin = candidates[first].indifference
        most = severities[first] + (margin[place] if place < len(margin) else 0.0)
        candidates = [item for item, x in zip(candidates, severities, strict=True) if x <= most]
    prior_only = [item for item in candidates if item.release == "nothing"]
    if prior_only:
        return min(prior_only, key=lambda item: item.severity)
    return min(candidates, key=lambda item: (item.expected_error_mw, item.severity))


def _outcome(
    prepared: Prepared, optimum: float | None, zones: Connect, watch: Watch
) -> Outcome | None:
    """Return the outcome of a strategy; None without a dispatch."""
    try:
        physical = run_prepared(prepared, transport=zones).physical
    except SolverError:
        return None
    finally:
        watch(f"{prepared.settings.release}, {prepared.settings.mechanism}")
    shed, balancing = physical["shed_mw"], physical["balancing_mw"]
    if shed is None or balancing is None:  # without an AC power flow there is no balancing
        return None
    cost = physical["cost"] if has_convex_costs(prepared.case) else None
    return Outcome(cost, optimum, shed, balancing, bool(physical["ac_feasible"]))


def _expected(
    prepared: Prepared,
    method: Json,
    outcomes: Sequence[Outcome | None],
    nothing: Sequence[Outcome | None] | None = None,
) -> Expected:
    """Return the public values of a method and its ranges over scenarios.

    ``nothing`` are the outcomes of the prior-only baseline, scenario by scenario.
    """
    scheduled = [outcome for outcome in outcomes if outcome is not None]
    gaps = [o.cost - o.optimum for o in scheduled if o.cost is not None and o.optimum is not None]
    pairs = list(zip(outcomes, nothing or (), strict=nothing is not None))
    compared = [_compared(a, b) for a, b in pairs]
    costs = [(a.cost, b.cost) for a, b in pairs if a is not None and b is not None]
    return Expected(
        method["release"],
        method["mechanism"],
        str(method.get("rounds", CENTRAL)),
        noise_mw(prepared),
        _range([outcome.cost for outcome in scheduled if outcome.cost is not None]),
        _range(gaps),
        _range([a - b for a, b in costs if a is not None and b is not None]),
        _range([outcome.shed_mw for outcome in scheduled]),
        _range([outcome.balancing_mw for outcome in scheduled]),
        compared.count(1) if pairs else None,
        compared.count(-1) if pairs else None,
        len(outcomes),
        sum(outcome.ac_feasible for outcome in scheduled),
        len(outcomes) - len(scheduled),
        expected_error_mw(prepared),
    )


def _compared(item: Outcome | None, other: Outcome | None) -> int:
    """Return 1 where an outcome is better than another by more than :data:`SAME_COST`, -1 if worse.

    Otherwise 0.
    """
    if item is None or other is None:
        return (item is not None) - (other is not None)
    for value, reference in zip(item.severity, other.severity, strict=True):
        if value + SAME_COST * abs(value) < reference:
            return 1
        if reference + SAME_COST * abs(reference) < value:
            return -1
    return 0


def _range(values: Sequence[float]) -> Range | None:
    if not values:
        return None
    return Range(min(values), float(np.median(values)), max(values))


def noise_mw(prepared: Prepared) -> float:
    """Return the standard deviation of the noise on a zone's sum (MW), where it is largest.

    It is that of the estimate of the sum (:func:`gridpriv.zonal.meter.total_noise`).
    """
    rule, adjacency = prepared.rules.noise, prepared.rules.adjacency
    if rule is None:
        return 0.0
    noises = [
        total_noise(item, rule.release(item.sensitivity(adjacency, rule.norm)))
        for item in prepared.disclosures
        if item is not None and len(item.strategy.matrix)
    ]
    return prepared.case.base_mva * max(noises, default=0.0)


def expected_error_mw(prepared: Prepared) -> float:
    """Return the expected error of the release in the zone where it is largest."""
    result = (zone for zone in prepared.disclosures if zone is not None)
    return prepared.case.base_mva * max(
        (zone.scale * zone.expected for zone in result), default=0.0
    )
