"""One private zonal run: case, zones and settings in; a :class:`RunResult` out."""

from __future__ import annotations

import math
import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.agent import AgentRules
from gridpriv.consensus.coordinator import (
    Consensus,
    Plan,
    State,
    Turn,
    make_consensus,
    orders_at,
    rounds,
)
from gridpriv.consensus.in_process import in_process
from gridpriv.consensus.messages import Order
from gridpriv.consensus.schedules import nonsmooth_step
from gridpriv.consensus.transport import Carry, Transport, answers, exchange
from gridpriv.consensus.workers import Workers
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivError, GridprivWarning, not_allowed
from gridpriv.grid.case import Case
from gridpriv.grid.zoning import Zoning
from gridpriv.power.ac.service import check_service
from gridpriv.power.ac.settle import Settlement, agreed_boundaries, settle
from gridpriv.power.disclosure import disclose
from gridpriv.power.fleet import Fleet, ZoneOutcome, public_proxy
from gridpriv.power.prior import PublicDemand, public_demand, zone_prior
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.program import compile_zone
from gridpriv.power.schedule import central_schedule
from gridpriv.power.solvers import check_solver
from gridpriv.power.zone import Network, Zone, flat_start, make_network, make_zones
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.budget import noise_multiplier
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.release import Charging, Release
from gridpriv.privacy.statement import ZoneStatement
from gridpriv.privacy.strategies.disclosure import Disclosure
from gridpriv.zonal.checks import claimed_epsilon, zone_statements
from gridpriv.zonal.opening import Ground, coordinate_units, opened, step_size
from gridpriv.zonal.result import RunResult, Timing
from gridpriv.zonal.settings import Settings
from gridpriv.zonal.trace import RoundRecord, Trace, round_record

Watch = Callable[[RoundRecord], None]
Leave = Callable[[RunResult], None]
Planned = Mapping[str, Mapping[Release, int]]
Admit = Callable[[Planned], None]

PAPER_SENSITIVITY = {"objective": 2.0, "output": 1.0}  # times beta, RK section 6.1.1
SMALLEST_OUTPUT_BETA = 1e-4


@dataclass(frozen=True, eq=False)
class Prepared:
    """A run ready to start: everything public about it, and the zones.

    ``zones``, ``shared`` and ``problems`` are in the order of the zones' keys, which does not
    depend on how a zone map orders or names them. ``scale`` is by how much the demand was
    multiplied, ``expected`` what the public expects of it, where it is perturbed itself,
    ``known`` what an earlier release leaves likely of it, zone by zone: then nothing is drawn.
    """

    case: Case
    zoning: Zoning
    settings: Settings
    network: Network
    zones: tuple[Zone, ...]
    shared: tuple[NDArray[np.bool_], ...]
    seed: int
    rules: AgentRules
    scale: float
    expected: PublicDemand | None
    known: tuple[Floats | None, ...] | None = None

    @property
    def moved(self) -> DemandAdjacency:
        """How far the demand that is run moves between neighbours."""
        return self.settings.protected(self.case).scaled(self.scale)

    def disclosure(self, zone: Zone) -> Disclosure | None:
        """Return what a zone releases of its demand; None where demand is not perturbed."""
        expected, noise = self.expected, self.rules.noise
        if expected is None or noise is None:
            return None
        prior = zone_prior(zone, expected)
        found = disclose(zone, self.settings.release, prior, noise, self.rules.adjacency)
        return replace(found, scale=self.scale)

    @cached_property
    def disclosures(self) -> tuple[Disclosure | None, ...]:
        """What every zone releases of its demand; nothing where demand is not perturbed."""
        return tuple(self.disclosure(zone) for zone in self.zones)

    @cached_property
    def problems(self) -> tuple[ZoneProblem, ...]:
        """The zones' problems, compiled in this process."""
        return tuple(
            ZoneProblem(compile_zone(zone), self.settings.solver, disclosure)
            for zone, disclosure in zip(self.zones, self.disclosures, strict=True)
        )

    @cached_property
    def consensus(self) -> Consensus:
        """Which global variable each zone's shared coordinates are."""
        return make_consensus([zone.coordinates[s] for zone, s in _held(self)])


@dataclass(frozen=True, eq=False)
class Opening:
    """Where the private rounds start; all of it is public.

    Attributes
    ----------
    state : State
    plan : Plan
    releases : tuple of Release or None
        What one draw of the first round is, per zone; None where a zone draws nothing.
    """

    state: State
    plan: Plan
    releases: tuple[Release | None, ...]


def run(
    case: Case,
    zoning: Zoning,
    settings: Settings,
    watch: Watch = lambda _: None,
    load_seconds: float = 0.0,
    charge: Charging | None = None,
    *,
    transport: Carry | None = None,
) -> RunResult:
    """Run the consensus algorithm on a case.

    Parameters
    ----------
    case : Case
    zoning : Zoning
    settings : Settings
    watch : callable
        Called after every round with its :class:`RoundRecord`.
    load_seconds : float
        What reading the case took, for the timing table.
    charge : Charging, optional
        Called with a zone's name and every release before it is drawn (a ledger).
    transport : callable, optional
        Where the zones work: from the zones to the transport that holds them
        (:mod:`gridpriv.consensus.transport`). By default as many processes as
        ``settings.workers``.

    Returns
    -------
    RunResult

    Raises
    ------
    InputError
        For settings that this case or machine cannot have.
    SolverError
        Naming zone, round and status (:func:`run_prepared` hands over what was done before it).
    BudgetError
        If ``charge`` refuses.
    """
    prepared = prepare(case, zoning, settings)
    return run_prepared(prepared, watch, load_seconds, charge, transport=transport)


def run_prepared(
    prepared: Prepared,
    watch: Watch = lambda _: None,
    load_seconds: float = 0.0,
    charge: Charging | None = None,
    *,
    admit: Admit | None = None,
    leave: Leave = lambda _: None,
    transport: Carry | None = None,
) -> RunResult:
    """Run what :func:`prepare` returned.

    Every zone is compiled, solved once and rehearsed on public data, and its sensitivity is known,
    before anything is charged or drawn.

    Parameters
    ----------
    prepared, watch, load_seconds, charge, transport
        As of :func:`run`.
    admit : callable, optional
        Called once, before the first charge, with all releases that the run may draw, zone by
        zone; it raises to stop the run there.
    leave : callable
        Called with what was done if the run ends early once it may have drawn (a solver, a
        refusal, an interrupt, a defect), before the exception goes on.
    """
    settings = prepared.settings
    carry = transport or _own_transport(settings.workers)
    began = time.perf_counter()
    fleet = Fleet(
        prepared.zones, prepared.shared, prepared.rules, settings.solver,
        NoiseStreams(prepared.seed), prepared.disclosures, charge, settings,
    )  # fmt: skip
    with closing(carry(fleet)) as zones:
        if prepared.known is not None:
            answers(zones.ask("reuse", prepared.known))
        opening = open_rounds(prepared, zones)
        if admit is not None:
            admit(planned_releases(prepared, zones, opening))
        built = time.perf_counter()
        records: list[RoundRecord] = []
        state = opening.state

        def result(settled: Settlement | None, early: str | None = None) -> RunResult:
            solved = time.perf_counter()
            drawn = _drawn(prepared, zones, opening, len(records))
            trace = Trace(tuple(records), drawn, state.sent, state.dual)
            return RunResult(
                case=prepared.case,
                zoning=prepared.zoning,
                settings=settings,
                zone_models=prepared.zones,
                shared=prepared.shared,
                consensus=prepared.consensus,
                trace=trace,
                outcomes=tuple(_outcomes(prepared, zones)),
                disclosed=tuple(
                    None if isinstance(found, BaseException) else found
                    for found in zones.ask("disclosed")
                ),
                seed=prepared.seed,
                rules=prepared.rules,
                settlement=settled,
                statements=_statements(prepared, trace),
                timing=Timing(
                    load=load_seconds,
                    build=built - began,
                    solve=solved - built,
                    total=load_seconds + time.perf_counter() - began,
                ),
                early=early,
            )

        names = [zone.name for zone in prepared.zones]
        try:
            before = time.perf_counter()
            for turn in play_rounds(prepared, zones, opening):
                seconds, state = time.perf_counter() - before, turn.state
                records.append(round_record(turn, names, answers(zones.ask("figures")), seconds))
                watch(records[-1])
                before = time.perf_counter()
            return result(_settled(prepared, zones))
        except BaseException as error:
            done = result(None, _reason(error))
            error.add_note(done.trace.drawn())
            leave(done)
            raise


def _own_transport(workers: int) -> Carry:
    """Return how zones are held by this machine's processes."""
    return in_process if workers == 1 else partial(Workers, workers=workers)


def _reason(error: BaseException) -> str:
    """Return in words why a run ended early."""
    if isinstance(error, KeyboardInterrupt):
        return str(error.args[0]) if error.args else "interrupted"
    if isinstance(error, GridprivError):
        return str(error)
    return f"internal error, {type(error).__name__}: {error}"


def prepare(case: Case, zoning: Zoning, settings: Settings, scale: float = 1.0) -> Prepared:
    """Return everything a run needs before its zones are compiled.

    Neighbours differ by beta in the demand of its owner, of which ``case`` holds ``scale`` times
    and the run ``load_scale`` times that. Statistics of demand are released as the owner has it
    and scaled afterwards; what else is perturbed moves with the demand that is run.
    """
    scale = scale * settings.load_scale
    check_solver(settings.solver)
    case = case.scale_load(settings.load_scale).without(settings.outage)
    if settings.workers > zoning.n_zone:
        raise not_allowed(
            "workers", settings.workers, f"at most {zoning.n_zone}, the number of zones"
        )
    check_service(case, settings)
    network = make_network(case, settings.case_objective(case))
    zones = tuple(sorted(make_zones(network, zoning), key=lambda zone: zone.key))
    perturbation, owned = settings.effective_perturbation(), settings.adjacency(case)
    adjacency = owned if perturbation.target == "demand" else owned.scaled(scale)
    _refuse_without_minimiser(case, settings)
    _warn_of_large_delta(settings, 2 * case.n_bus)
    _warn_of_small_beta(settings, adjacency)
    rules = AgentRules(
        update=settings.update,
        local_updates=settings.local_updates,
        perturbation=perturbation,
        noise=noise_rule(settings, adjacency),
        adjacency=adjacency,
    )
    disclosed = rules.perturbation.target == "demand" and rules.noise is not None
    expected = public_demand(case, settings.public_demand) if disclosed else None
    return Prepared(
        case=case,
        zoning=zoning,
        settings=settings,
        network=network,
        zones=zones,
        shared=shared_coordinates(zones, settings.consensus),
        seed=secrets.randbits(64) if settings.seed is None else settings.seed,
        rules=rules,
        scale=scale,
        expected=expected,
    )


def _refuse_without_minimiser(case: Case, settings: Settings) -> None:
    """Refuse noise on an objective that is flat in a direction without end.

    Two generators of one bus that can go against each other for ever change no imbalance; a
    linear term in that direction, which is what the noise adds, has no minimum. Only an exact
    update without a penalty on generation is that flat.
    """
    exact = settings.update == "exact" and settings.consensus == "boundary"
    if not exact or settings.effective_perturbation().target != "objective":
        return
    for low, high in ((case.pmin, case.pmax), (case.qmin, case.qmax)):
        for bus in np.unique(case.gen_bus):
            here = case.gen_bus == bus
            up, down = np.isposinf(high[here]), np.isneginf(low[here])
            if here.sum() > 1 and up.any() and down.any() and (up | down).sum() > 1:
                raise not_allowed(
                    "perturbation",
                    "objective",
                    f"demand or output here: two generators of bus {case.bus_id[bus]} have no "
                    "limits against each other, so an objective with noise has no minimum",
                )


def _warn_of_large_delta(settings: Settings, entries: int) -> None:
    """Warn where a delta in use allows one demand entry in ``entries`` to be published as it is."""
    if settings.mechanism == "none":
        return
    in_use = {"target_delta": settings.target_delta}
    if settings.mechanism == "gaussian" and settings.budget.scope == "per-release":
        in_use["delta"] = settings.release_delta
    for name, delta in in_use.items():
        if delta >= 1.0 / entries:
            warnings.warn(
                f"{name} = {delta:g} is at least 1/{entries}, one over the number of demand "
                "entries: it would allow one entry to be published",
                GridprivWarning,
                stacklevel=3,
            )


def _warn_of_small_beta(settings: Settings, adjacency: DemandAdjacency) -> None:
    """Warn where a released minimiser moves less than the solver errs.

    The output sensitivity is that of the exact minimiser. A solver's error of 1e-6 to 1e-5 is
    far below it at usual distances; it is not at beta 1e-6.
    """
    noisy_output = settings.mechanism != "none" and settings.perturbation == "output"
    if noisy_output and adjacency.beta < SMALLEST_OUTPUT_BETA:
        warnings.warn(
            f"beta = {adjacency.beta:g} p.u. is so small that the solver's own error is not "
            "hidden by output perturbation; perturb the objective or the demand, whose "
            "guarantees do not rest on the solver",
            GridprivWarning,
            stacklevel=3,
        )


def shared_coordinates(zones: Sequence[Zone], consensus: str) -> tuple[NDArray[np.bool_], ...]:
    """Return a mask per zone: coordinates with two holders or more, or all of them."""
    if consensus == "all":
        return tuple(np.ones(len(zone.coordinates), dtype=bool) for zone in zones)
    holders = np.bincount(np.concatenate([zone.coordinates for zone in zones]))
    return tuple(holders[zone.coordinates] > 1 for zone in zones)


def open_rounds(prepared: Prepared, transport: Transport) -> Opening:
    """Try or rehearse every zone on its public proxy; return where the private rounds start."""
    if prepared.settings.coordination == "central":
        return _open_central(prepared, transport)
    ground = Ground(
        settings=prepared.settings,
        consensus=prepared.consensus,
        start=[flat_start(zone)[s] for zone, s in _held(prepared)],
        units=_penalty_units(prepared),
        step=step_size(prepared.settings, lambda: _smoothness(prepared, transport)),
    )
    state, plan = opened(ground, partial(exchange, transport))
    orders = orders_at(prepared.consensus, state, plan, 1)
    return Opening(state, plan, tuple(_releases(transport, orders)))


def play_rounds(prepared: Prepared, transport: Transport, opening: Opening) -> Iterator[Turn]:
    """Run the private rounds, or the one exchange that takes their place."""
    if prepared.settings.coordination == "central":
        return _central(prepared, transport, opening.state)
    return rounds(exchange(transport, "round"), prepared.consensus, opening.state, opening.plan)


def _open_central(prepared: Prepared, transport: Transport) -> Opening:
    """Schedule the grid for its zones' public proxies; return where the one release starts."""
    zones, none = prepared.zones, np.zeros(prepared.consensus.size)
    sent = _shared_parts(prepared, _scheduled(prepared, [public_proxy(zone) for zone in zones]))
    state = State(sent, np.zeros_like(sent), none)
    plan = Plan(1, nonsmooth_step(), prepared.settings.penalty)
    orders = orders_at(prepared.consensus, replace(state, rho=none + 1.0), plan, 1)
    return Opening(state, plan, tuple(_releases(transport, orders)))


def _central(prepared: Prepared, transport: Transport, state: State) -> Iterator[Turn]:
    """Let every zone disclose once; send back the schedule that is best for all that is known."""
    z = _scheduled(prepared, answers(transport.ask("disclose")))
    answers(transport.ask("adopt", [z[zone.coordinates] for zone in prepared.zones]))
    sent = _shared_parts(prepared, z)
    yield Turn(1, prepared.consensus.average(sent), state.rho, 0.0, replace(state, sent=sent))


def _scheduled(prepared: Prepared, demands: Sequence[Floats]) -> Floats:
    return central_schedule(prepared.network, prepared.zones, demands, prepared.settings.voll)


def _shared_parts(prepared: Prepared, z: Floats) -> Floats:
    """Return what every zone shares of the grid's variables, stacked."""
    return prepared.consensus.stack([z[zone.coordinates[s]] for zone, s in _held(prepared)])


def _releases(transport: Transport, orders: Sequence[Order]) -> list[Release | None]:
    """Return what one draw of every zone is under an order; public."""
    penalties, steps = [order.penalty for order in orders], [order.step for order in orders]
    return answers(transport.ask("release", penalties, steps))


def _held(prepared: Prepared) -> Iterator[tuple[Zone, NDArray[np.bool_]]]:
    """Return every zone with which of its coordinates it shares."""
    return zip(prepared.zones, prepared.shared, strict=True)


def _penalty_units(prepared: Prepared) -> Floats:
    """Return the units of rho of every global variable."""
    number = np.unique(np.concatenate([zone.coordinates[s] for zone, s in _held(prepared)]))
    return coordinate_units(prepared.network, number)


def _smoothness(prepared: Prepared, transport: Transport) -> tuple[float, float]:
    """Return the largest of the zones' L, and the epsilon of one release."""
    return max(answers(transport.ask("smoothness"))), release_epsilon(prepared)


def _settled(prepared: Prepared, transport: Transport) -> Settlement:
    """Let every zone act on what was agreed, and settle the grid."""
    averages = [outcome.z for outcome in answers(transport.ask("outcome"))]
    agreed = agreed_boundaries(prepared.network, prepared.zones, averages)
    return settle(
        prepared.network.case, prepared.zones, agreed,
        lambda boundaries: answers(transport.ask("plan", boundaries)),
    )  # fmt: skip


def _statements(prepared: Prepared, trace: Trace) -> tuple[ZoneStatement, ...]:
    """Return every zone's privacy loss, in the order of the zone map."""
    drawn = trace.releases
    releases = {name: drawn[name] for name in prepared.zoning.names if name in drawn}
    return zone_statements(releases, prepared.settings, prepared.rules)


def planned_releases(
    prepared: Prepared, transport: Transport, opening: Opening
) -> dict[str, dict[Release, int]]:
    """Return what every zone will draw if all rounds are run; public.

    Only output perturbation draws different releases in different rounds. Its noise is fresh in
    every round, so its penalties follow no residual and are known now.
    """
    perturbation, plan = prepared.rules.perturbation, opening.plan
    planned: dict[str, dict[Release, int]] = {zone.name: {} for zone in prepared.zones}
    state, releases, updates = opening.state, opening.releases, prepared.rules.local_updates
    unread = np.zeros(prepared.consensus.size)
    for t in range(1, plan.rounds + 1):
        draws = sum(perturbation.drawn_at(t, e) == (t, e) for e in range(1, updates + 1))
        if perturbation.target == "output" and t > 1:
            rho = plan.penalty.following(t - 1, state.rho, unread, unread)
            state = replace(state, rho=rho)
            orders = orders_at(prepared.consensus, state, plan, t)
            releases = tuple(_releases(transport, orders))
        for zone, release in zip(prepared.zones, releases, strict=True):
            if draws and release is not None:
                counts = planned[zone.name]
                counts[release] = counts.get(release, 0) + draws
    return {name: counts for name, counts in planned.items() if counts}


def _drawn(
    prepared: Prepared, transport: Transport, opening: Opening, finished: int
) -> dict[str, dict[Release, int]]:
    """Return what every zone has drawn.

    A zone whose process was lost cannot say; it may have drawn all of the round it was lost in.
    """
    most = prepared.rules.perturbation.releases(finished + 1, prepared.rules.local_updates)
    found = {}
    told = zip(prepared.zones, transport.ask("drawn"), opening.releases, strict=True)
    for zone, drawn, release in told:
        lost = {} if release is None else {release: most}
        found[zone.name] = lost if isinstance(drawn, BaseException) else drawn
    return found


def _outcomes(prepared: Prepared, transport: Transport) -> Iterator[ZoneOutcome]:
    """Yield every zone after its last round; NaN for one whose process was lost."""
    for zone, outcome in zip(prepared.zones, transport.ask("outcome"), strict=True):
        if isinstance(outcome, BaseException):
            size, own = len(zone.coordinates), len(zone.own)
            yield ZoneOutcome(*(np.full(n, np.nan) for n in (size, own, own)))
        else:
            yield outcome


def noise_rule(settings: Settings, adjacency: DemandAdjacency) -> NoiseRule | None:
    """Return how much noise the budget asks for, or None without a mechanism."""
    if settings.mechanism == "none":
        return None
    multiplier = noise_multiplier(
        settings.budget,
        settings.mechanism,
        settings.calibration,
        settings.planned_releases(),
        settings.delta,
        settings.noise,
    )
    assumed = None
    if settings.calibration == "paper":
        assumed = PAPER_SENSITIVITY[settings.perturbation] * adjacency.beta
    return NoiseRule(settings.mechanism, settings.noise, multiplier, assumed)


def release_epsilon(prepared: Prepared) -> float:
    """Return the epsilon of one release that the settings state; inf without noise."""
    if prepared.rules.noise is None:
        return math.inf
    return claimed_epsilon(prepared.settings, prepared.rules)
