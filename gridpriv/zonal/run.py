"""One noisy zonal run, from case, zones and settings to a :class:`RunResult`, and its baselines.

Its baselines are other runs of the same zones, and the AC optimum of the whole grid. Every private
run has two baselines: *noise-free*, and *prior-only*, which has no release and plans on the public
prior (epsilon = 0). A release is useful where its run costs less than prior-only.

A comparison reads the demand of all zones, so it is for a study or a simulation. Every value is
local. A failure in a baseline only removes its values; the run, which has drawn by then, is kept.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gridpriv.consensus.coordinator import DUAL_TOLERANCE, Plan, State, Turn, orders_at, rounds
from gridpriv.consensus.messages import Order, Phase, Reply
from gridpriv.consensus.schedules import nonsmooth_step
from gridpriv.consensus.transport import (
    Connect,
    Transport,
    Workers,
    answers,
    call,
    exchange,
    in_process,
)
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivError, GridprivWarning, InputError
from gridpriv.core.text import Json
from gridpriv.core.threads import one_blas_thread
from gridpriv.grid.case import Case
from gridpriv.power.ac.grid_redispatch import (
    GridRedispatch,
    agreed_boundaries,
    redispatch_grid,
    scheduled_boundaries,
)
from gridpriv.power.ac.optimum import AcOptimum, acopf
from gridpriv.power.ac.state import AcState, negligible_mw
from gridpriv.power.ac.zone_redispatch import Boundary
from gridpriv.power.objective import AcObjective, generation_cost
from gridpriv.power.zone import flat_start
from gridpriv.power.zone_agent import ZoneAgent, ZoneAgentFactory, ZoneOutcome
from gridpriv.privacy.certificate import all_planned
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Charging, KeptReleases, Release
from gridpriv.zonal.documents import Baselines, Timing
from gridpriv.zonal.opening import (
    PublicInputs,
    RoundRecord,
    Trace,
    coordinate_units,
    initial_rounds,
    round_record,
    step_size,
)
from gridpriv.zonal.physical import Reference
from gridpriv.zonal.prepared import (
    Instance,
    Prepared,
    Zones,
    case_of,
    nominal_epsilon,
    prepare,
    settings_from,
    zone_certificates,
    zoning_for,
)
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.settings import PRIOR_ONLY, Settings

if TYPE_CHECKING:
    from gridpriv.power.ac.interior import Iteration
    from gridpriv.power.schedule import AcRounds, AcSchedule, CentralSchedule

Watch = Callable[[RoundRecord], None]
Leave = Callable[[RunResult], str | None]
Planned = Mapping[str, Mapping[Release, int]]
Admit = Callable[[Planned], None]


@dataclass(frozen=True, eq=False)
class Opening:
    """Start of the rounds; all of it is public.

    Attributes
    ----------
    releases : tuple of Release or None
        Release of one draw in the first round, per zone; None for a zone without noise.
    """

    state: State
    plan: Plan
    releases: tuple[Release | None, ...]


def run(
    case: Case | str | Path,
    zoning: Zones = None,
    settings: Settings | None = None,
    watch: Watch = lambda _: None,
    charge: Charging | None = None,
    *,
    zones: Zones = None,
    transport: Connect | None = None,
    **given: Any,
) -> RunResult:
    """Release, schedule and redispatch a case once; return the run.

    By default zones release their demand once with noise, and solve the AC optimal power flow of
    the released demand together, in rounds of an interior-point method. With ``planning="soc"``,
    and in the published methods, these are rounds of ADMM on the SOC relaxation.

    Parameters
    ----------
    case : Case, or a name or path
    zoning, zones : Zoning, int or str, optional
        A zone map, a number of zones, ``METHOD:K`` or a CSV file; by either name. Default: the map
        shipped with the case.
    settings : Settings, optional
    watch : callable
        Called after every round with its :class:`RoundRecord`.
    charge : Charging, optional
        Called with a zone's name and every release before it is drawn (a ledger).
    transport : callable, optional
        Function from the zones to their transport
        (:mod:`gridpriv.consensus.transport`). By default as many processes as
        ``settings.workers``.
    **given
        Settings by name, over ``settings``; ``budget=5`` is a total epsilon of 5.

    Returns
    -------
    RunResult

    Raises
    ------
    InputError
        For settings that this case or machine cannot have.
    SolverError
        Naming zone, round and status (:func:`run_prepared` passes on the result up to it).
    BudgetError
        If ``charge`` refuses.

    References
    ----------
    Ryu and Kim (2022), algorithm 3.1, as in docs/explanation/equations.md.

    Examples
    --------
    >>> result = run("case14", zones=3, budget=5, beta="1 MW", rounds=2, planning="soc", seed=1)
    >>> result.settings.budget
    Budget(scope='total', epsilon=5.0, delta=None)
    """
    if zoning is not None and zones is not None:
        raise InputError("Give zoning or zones, not both: they are the same argument.")
    own = case_of(case)
    with one_blas_thread():
        prepared = prepare(
            own,
            zoning_for(own, zones if zoning is None else zoning),
            settings_from(settings, given) if given or settings is None else settings,
        )
        return run_prepared(prepared, watch, charge, transport=transport)


def run_prepared(
    prepared: Prepared,
    watch: Watch = lambda _: None,
    charge: Charging | None = None,
    *,
    admit: Admit | None = None,
    leave: Leave = lambda _: None,
    transport: Connect | None = None,
    watch_ac: Callable[[Iteration], None] = lambda _: None,
    kept: KeptReleases | None = None,
) -> RunResult:
    """Run a prepared case.

    Every zone is compiled and warm-started on public data, and its sensitivity is computed, before
    the first charge and draw.

    Parameters
    ----------
    prepared, watch, charge, transport
        As of :func:`run`.
    admit : callable, optional
        Called once, before the first charge, with all planned releases by zone; it raises to stop
        the run there.
    leave : callable
        Called with the result so far if the run ends early after it may have drawn (a solver, a
        refusal, an interrupt, a defect), before the exception is raised again. It may return a
        sentence on all releases drawn so far, where the run is not the only one to draw.
    watch_ac : callable
        Called after each round on the AC equations.
    kept : KeptReleases, optional
        Store of the released values, of a run that draws once.
    """
    connect = transport or default_transport(prepared.settings.workers)
    began = time.perf_counter()
    with closing(connect(zone_agents(prepared, charge, kept))) as zones:
        opening = open_rounds(prepared, zones)
        run = _RunInProgress(prepared, zones, opening, began, time.perf_counter(), opening.state)
        if admit is not None:
            admit(run.planned_releases())
        names = [zone.name for zone in prepared.zones]
        try:
            before = time.perf_counter()
            central, run.ac_rounds = disclosed_schedule(prepared, zones, watch_ac)
            for turn in run_rounds(prepared, zones, opening, central, run.ac_rounds):
                seconds, run.state = time.perf_counter() - before, turn.state
                metrics = answers(zones, call(ZoneAgent.metrics))
                run.records.append(round_record(turn, names, metrics, seconds))
                watch(run.records[-1])
                before = time.perf_counter()
            planned = central or run.ac_rounds
            schedule = None if planned is None else planned.schedule
            return run.result(run.redispatched(schedule))
        except BaseException as error:
            unfinished = run.result(None, _reason(error))
            error.add_note(leave(unfinished) or unfinished.trace.drawn())
            raise


@dataclass
class _RunInProgress:
    """State of a run in progress."""

    prepared: Prepared
    zones: Transport
    opening: Opening
    began: float
    built: float
    state: State
    records: list[RoundRecord] = field(default_factory=list)
    ac_rounds: AcRounds | None = None

    def result(self, redispatch: GridRedispatch | None, early: str | None = None) -> RunResult:
        """Return the result so far; ``early`` is the reason of an early end."""
        solved, prepared = time.perf_counter(), self.prepared
        drawn = self._drawn()
        planned = self._planned(drawn)
        trace = Trace(tuple(self.records), drawn, self.state.sent, self.state.dual, planned)
        by_zone = {name: drawn[name] for name in prepared.zoning.names if name in drawn}
        build, solve = self.built - self.began, solved - self.built
        total = time.perf_counter() - self.began
        return RunResult(
            **{item.name: getattr(prepared, item.name) for item in fields(Instance)},
            zone_models=prepared.zones,
            consensus=prepared.consensus,
            trace=trace,
            outcomes=tuple(self._outcomes()),
            disclosures=prepared.disclosures,
            redispatch=redispatch,
            ac_rounds=self.ac_rounds,
            certificates=zone_certificates(by_zone, prepared.settings, prepared.rules, planned),
            timing=Timing(load=0.0, build=build, solve=solve, total=total),
            early=early,
        )

    def _planned(self, drawn: Mapping[str, Mapping[Release, int]]) -> dict[str, dict[Release, int]]:
        """Return the planned releases of every zone of a run that ended before its last round."""
        if not any(drawn.values()) or len(self.records) >= self.opening.plan.rounds:
            return {}
        try:
            return self.planned_releases()
        except GridprivError:  # a process was lost, and its planned releases are unknown
            most = self.prepared.settings.planned_releases()
            return {zone: all_planned(counts, most) for zone, counts in drawn.items()}

    def redispatched(self, schedule: AcSchedule | None) -> GridRedispatch:
        """Redispatch every zone around the schedule, and compute the AC state of the grid."""
        prepared, transport = self.prepared, self.zones
        boundaries = self._boundaries(schedule)
        if prepared.hold is not None:
            reserve = prepared.hold.reserve
            boundaries = tuple(
                replace(item, reserve=reserve[zone.gens])
                for zone, item in zip(prepared.zones, boundaries, strict=True)
            )
        starts = [boundaries]
        soft = prepared.soft_firmness
        if schedule is not None and soft < 1.0:
            starts.append(tuple(replace(b, valuation=None, firmness=soft) for b in boundaries))
        return redispatch_grid(
            prepared.case,
            prepared.zones,
            starts,
            lambda given: answers(transport, [call(ZoneAgent.plan, each) for each in given]),
            prepared.settings.balancing_price,
            schedule.shed if schedule is not None and prepared.plans_on_true_demand else None,
        )

    def _boundaries(self, schedule: AcSchedule | None) -> tuple[Boundary, ...]:
        """Return every zone's boundary: by an AC schedule, or by the last SOC round; public."""
        network, zones = self.prepared.network, self.prepared.zones
        if schedule is not None:
            firmness = self.prepared.firmness(schedule.price_level)
            inputs = schedule.voltage, schedule.slopes, firmness, schedule.output_prices
            return scheduled_boundaries(network, zones, *inputs)
        averages = [outcome.z for outcome in answers(self.zones, call(ZoneAgent.outcome))]
        return agreed_boundaries(network, zones, averages)

    def planned_releases(self) -> dict[str, dict[Release, int]]:
        """Return the releases of every zone in all rounds; public.

        Only output perturbation draws different releases in different rounds. Its noise is fresh in
        every round, so its penalties do not depend on residuals and are known.
        """
        rules, consensus, plan = self.prepared.rules, self.prepared.consensus, self.opening.plan
        planned = {zone.name: Counter[Release]() for zone in self.prepared.zones}
        state, releases = self.opening.state, self.opening.releases
        unread = np.zeros(consensus.size)
        for t in range(1, plan.rounds + 1):
            places = ((t, e) for e in range(1, rules.local_updates + 1))
            draws = sum(rules.perturbation.drawn_at(*place) == place for place in places)
            if rules.perturbation.target == "output" and t > 1:
                rho = plan.penalty.following(t - 1, state.rho, unread, unread)
                state = replace(state, rho=rho)
                releases = tuple(_releases(self.zones, orders_at(consensus, state, plan, t)))
            for zone, release in zip(self.prepared.zones, releases, strict=True):
                if draws and release is not None:
                    planned[zone.name][release] += draws
        return {name: counts for name, counts in planned.items() if counts}

    def _drawn(self) -> dict[str, dict[Release, int]]:
        """Return the releases of every zone so far.

        For a zone whose process was lost, all releases of the present round are included.
        """
        rules, entries = self.prepared.rules, {}
        most = rules.perturbation.releases(len(self.records) + 1, rules.local_updates)
        replies = self.zones.call_all(call(ZoneAgent.drawn))
        parts = zip(self.prepared.zones, replies, self.opening.releases, strict=True)
        for zone, drawn, release in parts:
            lost = {} if release is None else {release: most}
            entries[zone.name] = lost if isinstance(drawn, Exception) else drawn
        return entries

    def _outcomes(self) -> Iterator[ZoneOutcome]:
        """Yield every zone after its last round; NaN for one whose process was lost."""
        outcomes = self.zones.call_all(call(ZoneAgent.outcome))
        for zone, outcome in zip(self.prepared.zones, outcomes, strict=True):
            if isinstance(outcome, Exception):
                size, own = len(zone.coordinates), len(zone.own)
                yield ZoneOutcome(*(np.full(n, np.nan) for n in (size, own, own)))
            else:
                yield outcome


def zone_agents(
    prepared: Prepared, charge: Charging | None = None, kept: KeptReleases | None = None
) -> ZoneAgentFactory:
    """Return the zones of a run, for a transport."""
    return ZoneAgentFactory(
        prepared.zones,
        prepared.shared,
        prepared.rules,
        prepared.settings.solver,
        NoiseStreams(prepared.seed),
        prepared.disclosures,
        charge,
        prepared.settings,
        prepared.solver_tolerance,
        kept,
    )


def default_transport(workers: int) -> Connect:
    """Return the transport of this machine's processes."""
    if workers == 1:
        return in_process
    return partial(Workers, workers=workers)


def _reason(error: BaseException) -> str:
    """Return the reason a run ended early, for the user."""
    if isinstance(error, KeyboardInterrupt):
        return str(error.args[0]) if error.args else "interrupted"
    if isinstance(error, GridprivError):
        return str(error)
    return f"internal error, {type(error).__name__}: {error}"


OPENING: dict[Phase, Callable[[ZoneAgent, Order], Reply]] = {
    "ready": ZoneAgent.ready,
    "warm_start": ZoneAgent.warm_start,
}


def open_rounds(prepared: Prepared, transport: Transport) -> Opening:
    """Return the start of the rounds.

    Rounds on the relaxation start from public proxies of demand; others need a release only.
    """
    if prepared.posteriors is not None:
        calls = [call(ZoneAgent.reuse, earlier.demand) for earlier in prepared.posteriors]
        answers(transport, calls)
    if (
        prepared.settings.coordination == "central"
        or prepared.scheduled is not None
        or prepared.in_ac_rounds
        or prepared.in_conic_rounds
    ):
        return _open_release(prepared, transport)
    numbers = np.unique(np.concatenate([zone.coordinates[s] for zone, s in prepared.zone_coupling]))
    settings, start = prepared.settings, [flat_start(zone)[s] for zone, s in prepared.zone_coupling]
    units = coordinate_units(prepared.network, numbers, len(prepared.zones))

    def smooth() -> tuple[float, float]:
        largest = max(answers(transport, call(ZoneAgent.smoothness)))
        return largest, nominal_epsilon(settings, prepared.rules)

    inputs = PublicInputs(settings, prepared.consensus, start, units, step_size(settings, smooth))
    state, plan = initial_rounds(inputs, lambda phase: exchange(transport, OPENING[phase]))
    orders = orders_at(prepared.consensus, state, plan, 1)
    return Opening(state, plan, tuple(_releases(transport, orders)))


def disclosed_schedule(
    prepared: Prepared, transport: Transport, watch: Callable[[Iteration], None] = lambda _: None
) -> tuple[CentralSchedule | None, AcRounds | None]:
    """Disclose every zone's demand; return a central schedule, or rounds on the AC equations.

    Where the central search finds no AC optimum, rounds may find one: Ipopt ends infeasible on
    MATPOWER's case2848rte. The last is a central search with priced reactive slack. Neither is
    returned with rounds on the relaxation.
    """
    if prepared.scheduled is not None:
        return prepared.scheduled, None
    central = prepared.settings.coordination == "central"
    if not (central or prepared.in_ac_rounds):
        return None, None
    from gridpriv.power.schedule import central_schedule, schedule_in_rounds

    network, zones = prepared.network, prepared.zones
    demands, ac = answers(transport, call(ZoneAgent.disclose)), prepared.planning == "ac"
    inputs = network, zones, demands
    noisy = prepared.rules.noise is not None
    search = partial(central_schedule, *inputs, prepared.settings.voll, ac=ac, noisy=noisy)
    if central and (schedule := search(slack=False)) is not None:
        return schedule, None
    rounds = schedule_in_rounds(*inputs, transport, watch=watch, noisy=noisy)
    return (search(), None) if central and rounds.schedule is None else (None, rounds)


def run_rounds(
    prepared: Prepared,
    transport: Transport,
    opening: Opening,
    central: CentralSchedule | None = None,
    on_ac: AcRounds | None = None,
) -> Iterator[Turn]:
    """Run the rounds, or the one exchange of a schedule.

    Where AC rounds did not converge, rounds on the relaxation follow.
    """
    if central is not None:
        z = central.z
        calls = [call(ZoneAgent.set_iterate, z[zone.coordinates]) for zone in prepared.zones]
        answers(transport, calls)
        sent = [z[zone.coordinates[shared]] for zone, shared in prepared.zone_coupling]
        return _one_turn(prepared, opening.state, sent)
    if on_ac is not None:
        if on_ac.schedule is not None:
            return _one_turn(prepared, opening.state, answers(transport, call(ZoneAgent.ac_take)))
        acceleration = prepared.settings.effective_acceleration()
        settings = replace(prepared.settings, planning="soc", acceleration=acceleration)
        relaxed = replace(prepared, settings=settings)
        return run_rounds(relaxed, transport, open_rounds(relaxed, transport))
    if prepared.in_conic_rounds:
        return _conic_turns(prepared, transport, opening.state)
    return rounds(
        exchange(transport, ZoneAgent.round), prepared.consensus, opening.state, opening.plan
    )


def _open_release(prepared: Prepared, transport: Transport) -> Opening:
    """Return the start of the release for a schedule on the AC equations."""
    zones, none = prepared.zones, np.zeros(prepared.consensus.size)
    sent = prepared.consensus.stack(
        [flat_start(zone)[s] for zone, s in zip(zones, prepared.shared, strict=True)]
    )
    state = State(sent, np.zeros_like(sent), none)
    plan = Plan(1, nonsmooth_step(), prepared.settings.penalty)
    orders = orders_at(prepared.consensus, replace(state, rho=none + 1.0), plan, 1)
    exchange(transport, ZoneAgent.trial)(orders)
    return Opening(state, plan, tuple(_releases(transport, orders)))


def _one_turn(prepared: Prepared, state: State, parts: Sequence[Floats]) -> Iterator[Turn]:
    """Yield the one exchange of a schedule: the zones' coupling variables."""
    sent = prepared.consensus.stack(parts)
    yield Turn(
        1, prepared.consensus.average(sent), state.rho, 0.0, 0.0, 0.0, replace(state, sent=sent)
    )


def _conic_turns(prepared: Prepared, transport: Transport, state: State) -> Iterator[Turn]:
    """Yield the rounds of zones on the relaxation of released demand."""
    from gridpriv.power.schedule import conic_rounds

    answers(transport, call(ZoneAgent.disclose))
    coordinates = np.concatenate([zone.coordinates for zone in prepared.zones])
    number, holders = np.unique(coordinates, return_counts=True)
    products = number < prepared.network.offsets["p_from"]
    tolerance = prepared.settings.effective_tolerance()
    conic = conic_rounds(transport, number[products & (holders > 1)])
    for t, item in enumerate(islice(conic, prepared.settings.rounds), 1):
        sent = prepared.consensus.stack(answers(transport, call(ZoneAgent.take_block)))
        w, none = prepared.consensus.average(sent), np.zeros(prepared.consensus.size)
        state = replace(state, sent=sent)
        dual = max(item.dual_residual, item.gap)  # complementarity is an optimality condition too
        yield Turn(t, w, none, item.residual, item.farthest, dual, state)
        if item.below(tolerance, DUAL_TOLERANCE * tolerance):
            return


def _releases(transport: Transport, orders: Sequence[Order]) -> list[Release | None]:
    """Return the release of one draw of every zone under an order; public."""
    calls = [call(ZoneAgent.release, order.penalty, order.step) for order in orders]
    return answers(transport, calls)


BETTER = 1e-4
"""Relative: rounding of limits lets a state be better than an AC optimum by less."""
NO_NOISE: Json = {"mechanism": "none"}
PRIOR_ONLY_SETTINGS: Json = PRIOR_ONLY | {"noise": "simulated", "seed": 0}


def reference(result: RunResult, scale: float, zones: Connect | None = None) -> Reference:
    """Return the baselines of a run: two more runs where it has noise, and AC optima.

    ``scale`` is the public factor from the owner's demand to that of the run. ``zones`` has the
    run's own compiled zones (:class:`gridpriv.consensus.transport.ReusedAgents`); else they are
    compiled again.
    """
    noisy, own = result.settings.mechanism != "none", result.physical
    without = _baseline(result, scale, zones, NO_NOISE) if noisy else result
    noise_free = _values(without) if noisy else {name: own[name] for name in ("cost", "shed_mw")}
    prior = _baseline(result, scale, zones, PRIOR_ONLY_SETTINGS) if noisy else None
    prior_only = _values(prior)
    if prior_only.get("status") == "infeasible" and own["status"] != "infeasible":
        prior_only = {"status": "infeasible"}  # it is not a baseline of a feasible run
    kinds = {"noise_free": noise_free, "prior_only": prior_only}
    values = {f"{kind}_{k}": v for kind, current in kinds.items() for k, v in current.items()}
    sheds = own["status"] == "infeasible" or own["shed_mw"] > negligible_mw(own["load_mw"])
    known = [run.redispatch for run in (result, without) if run and run.redispatch]
    cheapest = _acopf(result, "cost", known)
    least = _acopf(result, "shed", known) if sheds else None
    least_shed = least.state.shed_mw if least else None if sheds else 0.0
    return Reference(
        optimum_cost=None if cheapest is None else cheapest.cost,
        optimum_shed_mw=least_shed if cheapest is None else cheapest.state.shed_mw,
        least_shed_mw=least_shed,
        **{name: values.get(name) for name in Baselines.table.names},
    )


def _baseline(
    result: RunResult, scale: float, zones: Connect | None, changes: Json
) -> RunResult | None:
    """Return the same zones' run with other noise settings; None if it fails."""
    # the result's case has its load scale and outages already
    kind = result.network.objective.kind  # a default may depend on the noise
    settings = replace(result.settings, objective=kind, load_scale=1.0, outage=(), **changes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridprivWarning)  # reported by the run
        try:
            prepared = prepare(result.case, result.zoning, settings, scale)
            return run_prepared(prepared, transport=zones)
        except GridprivError:
            return None


def _values(baseline: RunResult | None) -> Json:
    """Return the values of a baseline; empty if it failed."""
    if baseline is None:
        return {}
    # without a power flow the shed load is unknown
    served = () if baseline.physical["failure"] else ("shed_mw", "balancing_mw")
    values = {name: baseline.physical[name] for name in ("cost", "status", *served)}
    return values | {"residual": baseline.consensus_residual}


def _acopf(
    result: RunResult, objective: AcObjective, known: Sequence[GridRedispatch]
) -> AcOptimum | None:
    """Return an AC optimum of a run's grid; None where none is found, or costs are not convex.

    Ipopt finds local optima: a known feasible state that is better starts another search.
    """
    voll = result.settings.voll

    def value(state: AcState) -> float:
        if objective == "shed":
            return state.shed_mw
        return (generation_cost(state.case, state.pg) or 0.0) + voll * state.shed_mw

    best = None
    with suppress(GridprivError):
        best = acopf(result.case, objective, voll)
        for state in (each.state for each in known if each.status != "infeasible"):
            least = value(best.state)
            if state and value(state) < least - max(BETTER * abs(least), state.negligible_mw):
                other = acopf(result.case, objective, voll, near=state)
                best = min(best, other, key=lambda optimum: value(optimum.state))
    return best
