"""Contingency analysis: the AC state after each outage with its violated limits, and a DC estimate.

After an outage, before any manual action:

- generators keep their voltage set points within their reactive limits;
- all generators of an island balance lost generation and the change of losses in proportion to
  their headroom (pmax - pg upwards, pg - pmin downwards), until none is left;
- a remaining deficit of an island, after its negative demand (fixed injections), is shed: the same
  share of the positive demand of each of its buses, at constant power factor. An island without
  generation or without demand is de-energized;
- branches are limited by their emergency ratings.

:func:`gridpriv.power.ac.flow.ac_flow` computes the state, from that before the outage.

DC estimate. Active flows after all outages use one factorization of the whole grid. With X the
inverse of the susceptance matrix B, an outage of the branches L is a change of the injections at
their ends: each of them carries, in the intact grid, exactly the injection at its ends, as if it
were removed:

    phi = (1 - b_L A_L X A_L')^-1 (p_L + b_L A_L X dp)        injected at the ends of L
    p_after = p + b A X (dp + A_L' phi)

with p the flows before and dp the change of injections by lost generators and those that replace
them. For one branch phi / p_L is 1 / (1 - PTDF), and b A X A_L' phi / p_L are its LODFs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from gridpriv.core.arrays import Bools, Floats, Ints, last_of_each
from gridpriv.grid.case import Case
from gridpriv.grid.network import (
    DcPowerFlow,
    islands,
    islands_by,
)
from gridpriv.grid.scenarios import Contingency, Rating, branch_ends, branch_rating
from gridpriv.power.ac.flow import (
    ac_flow,
)
from gridpriv.power.ac.newton import PowerFlowError
from gridpriv.power.ac.state import AcState, Dispatch, Limit

SPLIT = 1e-8
"""1 - PTDF below which an outage splits the grid, up to rounding."""


class DcOutages:
    """A grid's DC power flow around an AC state.

    Attributes
    ----------
    dc : DcPowerFlow or None
        None where reactances of both signs cancel; there is no estimate then.
    island : (n,) int
        The island of every bus.
    """

    def __init__(self, state: AcState) -> None:
        self.state, self.island = state, islands(state.case)
        self.dc: DcPowerFlow | None = None
        with suppress(RuntimeError):
            self.dc = DcPowerFlow.of(state.case)

    def after(self, branches: Ints, gens: Ints) -> Floats | None:
        """Return the estimated apparent power of every branch, p.u.; None if the grid splits.

        None also without a DC power flow.

        Active flows change by the DC power flow; reactive flows do not change.
        """
        case, state = self.state.case, self.state
        if self.dc is None or state.deenergized.any() or (change := self._replaced(gens)) is None:
            return None
        p, k = state.s_from.real, len(branches)
        ends = np.zeros((case.n_bus, k))
        ends[case.f_bus[branches], np.arange(k)] = 1.0
        ends[case.t_bus[branches], np.arange(k)] -= 1.0
        flows = self.dc.flows(np.column_stack([change, ends]))
        own = np.eye(k) - flows[branches, 1:]
        if k and np.linalg.cond(own) * SPLIT > 1.0:
            return None
        size = np.abs(own).max(initial=0.0)
        if k and size < SPLIT:
            return None
        phi = np.linalg.solve(own, p[branches] + flows[branches, 0])
        changed = flows[:, 0] + flows[:, 1:] @ phi
        after = np.maximum(np.abs(state.s_from + changed), np.abs(state.s_to - changed))
        after[branches] = 0.0
        return np.asarray(after)

    def _replaced(self, gens: Ints) -> Floats | None:
        """Return the change of injections by lost generators; None where headroom is short."""
        case, pg = self.state.case, self.state.pg
        change, island = np.zeros(case.n_bus), self.island[case.gen_bus]
        room = np.maximum(case.pmax - pg, 0.0)
        room[gens] = 0.0
        lost = np.bincount(island[gens], pg[gens], self.island.max() + 1)
        total = np.bincount(island, room, self.island.max() + 1)
        if (lost < 0).any() or (lost > total).any():
            return None
        share = np.where(total > 0, lost / np.where(total > 0, total, 1.0), 0.0)[island]
        replacement = np.where(np.isinf(total[island]), np.isinf(room) * lost[island], share * room)
        np.add.at(change, case.gen_bus, replacement)
        np.subtract.at(change, case.gen_bus[gens], pg[gens])
        return change


Status = Literal["converged", "diverged", "screened"]
MOST_SHEDDINGS = 20
"""Largest number of power flows for shedding an island's deficit."""
NORMAL_PERCENT = 100.0


@dataclass(frozen=True)
class PostContingency:
    """A contingency, and the grid after it.

    Attributes
    ----------
    status : {'converged', 'diverged', 'screened'}
        ``diverged``: no AC state was found. ``screened``: no AC state was computed, and the loading
        is the DC estimate.
    worst_loading_percent : float or None
        Largest apparent power over the rating; None without a rated branch or a state.
    worst_branch : str
        Its bus numbers; empty without one.
    violations : tuple of Limit
    islanded_mw : float
        Demand on buses that the outage separates from the largest part of their island with
        generation.
    shed_mw : float
        Additional load shedding.
    """

    contingency: Contingency
    status: Status
    worst_loading_percent: float | None
    worst_branch: str
    violations: tuple[Limit, ...]
    islanded_mw: float
    shed_mw: float

    @property
    def secure(self) -> bool | None:
        """True where no limit is violated and no demand is shed; None where it is not known.

        A screened contingency has no AC state, so voltages and reactive outputs are not known.
        """
        if self.status == "screened":
            return None
        result = self.status != "diverged" and not self.violations
        return result and self.shed_mw == 0.0

    @property
    def severity(self) -> tuple[float, ...]:
        """Sort key of the ranking, largest first.

        No AC state, loading above the rating, voltage outside its band, other violated limits, shed
        demand, marginal violations (within 0.1 % of a limit): number and voltage, islanded demand,
        loading.
        """
        loading = self.worst_loading_percent or 0.0
        clear = [limit for limit in self.violations if not limit.marginal]
        overload = any(limit.kind == "line" for limit in clear)
        voltage, near = (
            max((limit.amount for limit in limits if limit.kind == "voltage"), default=0.0)
            for limits in (clear, self.violations)
        )
        return (
            float(self.status == "diverged"),
            max(loading - NORMAL_PERCENT, 0.0) if overload else 0.0,
            voltage,
            float(len(clear)),
            self.shed_mw,
            float(len(self.violations)),
            near,
            self.islanded_mw,
            loading,
        )


@dataclass(frozen=True, eq=False)
class PreContingency:
    """A grid before an outage.

    Attributes
    ----------
    state : AcState
        Its AC state, of a case with normal ratings.
    case : Case
        The same case with the ratings after an outage.
    dispatch : Dispatch
        Its set points: the outputs of that state, and the original voltage set points.
    """

    state: AcState
    case: Case
    dispatch: Dispatch

    @cached_property
    def island(self) -> Ints:
        """The island of every bus."""
        return islands(self.case)

    @cached_property
    def screening(self) -> DcOutages:
        """Active flows after outages by the DC power flow."""
        return DcOutages(self.state)


def pre_contingency(case: Case, dispatch: Dispatch, rating: Rating = "C") -> PreContingency:
    """Return the AC state of a dispatch, from which outages are analysed.

    Raises
    ------
    PowerFlowError
        If the dispatch has no AC state.
    """
    state = ac_flow(case, dispatch)
    generating = np.isin(np.arange(case.n_bus), case.gen_bus)
    vm = np.where(generating | state.deenergized, dispatch.vm, state.vm)
    set_points = Dispatch(state.pg, vm, state.va, state.p_shed, state.q_shed, state.curtailment)
    return PreContingency(state, replace(case, rate=branch_rating(case, rating)), set_points)


class Outage:
    """Failing elements, and the grid without them.

    Attributes
    ----------
    in_service : (g,) bool
        Generators in service after the outage, on energized buses.
    case : Case
        The case with these generators and the other branches.
    island : (n,) int
        The island of every bus in it.
    separated, deenergized : (n,) bool
        Buses outside the largest part with generation of their former island; de-energized buses.
    """

    def __init__(self, before: PreContingency, contingency: Contingency) -> None:
        case, (branches, gens) = before.case, contingency.elements(before.case)
        in_service = np.isin(np.arange(case.n_gen), gens, invert=True)
        in_service_branches = np.isin(np.arange(case.n_branch), branches, invert=True)
        island = islands_by(case, in_service_branches) if len(branches) else before.island
        self.island = island
        source, held = np.zeros((2, island.max() + 1), dtype=bool)
        source[island[case.gen_bus[in_service & (case.pmax > 0)]]] = True
        held[island[case.gen_bus[in_service & case.forming]]] = True
        source &= held
        self.separated = _separated(before.island, island, source)
        demand = np.bincount(island, np.maximum(case.pd - before.state.p_shed, 0.0))
        without_demand = self.separated & (demand[island] == 0)
        self.deenergized = before.state.deenergized | ~source[island] | without_demand
        stopped = in_service & self.deenergized[case.gen_bus]
        rows = tuple(f"gen:{row}" for row in case.gen_row[stopped].tolist())
        self.case = case.without(contingency.outages + rows)
        self.in_service = in_service & ~stopped


def _separated(before: Ints, after: Ints, source: Bools) -> Bools:
    """Return the buses outside the largest part with a source of their former island."""
    size, former = np.bincount(after), np.zeros(after.max() + 1, dtype=np.int64)
    former[after] = before
    largest = last_of_each(former, before.max() + 1, size, source)
    return np.isin(after, largest, invert=True)


def post_contingency(before: PreContingency, outage: Outage) -> AcState:
    """Return the AC state after an outage, of the case without the failing elements.

    Raises
    ------
    PowerFlowError
        If no AC state is found.
    """
    dispatch = replace(before.dispatch, pg=before.dispatch.pg[outage.in_service])
    previous = replace(before.state, case=outage.case, pg=before.state.pg[outage.in_service])
    return _with_enough_generation(outage, dispatch, previous)


def _with_enough_generation(outage: Outage, dispatch: Dispatch, previous: AcState) -> AcState:
    """Return the AC state in which every island has shed its deficit.

    A generator whose set point is beyond its limit keeps it.
    """
    case, island = outage.case, outage.island
    gen_island, count = island[case.gen_bus], int(island.max()) + 1
    most = np.maximum(case.pmax, dispatch.pg)
    net = case.pd - dispatch.p_shed + dispatch.curtailment
    demand = np.where(outage.deenergized, 0.0, net)
    deficit = np.bincount(island, demand, count) - np.bincount(gen_island, most, count)
    for _ in range(MOST_SHEDDINGS):
        dispatch = _shed(case, dispatch, np.maximum(deficit, 0.0), island)
        state = ac_flow(case, dispatch, None, previous)
        deficit = np.bincount(gen_island, np.maximum(state.pg - most, 0.0), count)
        if case.base_mva * deficit.max(initial=0.0) <= 0.1 * state.negligible_mw:
            break
    return state


def _shed(case: Case, dispatch: Dispatch, deficit: Floats, island: Ints) -> Dispatch:
    """Return the dispatch with additional shedding in every island, by share of demand."""
    served = np.maximum(case.pd - dispatch.p_shed, 0.0)
    total = np.bincount(island, served, len(deficit))
    share = np.minimum(deficit / np.where(total > 0, total, 1.0), 1.0)[island]
    cut = np.where(served > 0, share, 0.0)
    return replace(
        dispatch,
        p_shed=dispatch.p_shed + cut * served,
        q_shed=dispatch.q_shed + cut * (case.qd - dispatch.q_shed),
    )


def assess(before: PreContingency, contingency: Contingency) -> PostContingency:
    """Return the loading, violations, islanded and shed demand after a contingency."""
    outage = Outage(before, contingency)
    served = np.maximum(before.case.pd - before.state.p_shed, 0.0)
    islanded_mw = before.case.base_mva * float(served[outage.separated].sum())
    try:
        state = post_contingency(before, outage)
    except PowerFlowError:
        return PostContingency(contingency, "diverged", None, "", (), islanded_mw, 0.0)
    loading, branch = worst_loading(state.case, state.limited_quantities.flow)
    shed_mw = state.shed_mw - before.state.shed_mw
    effects = islanded_mw, shed_mw if shed_mw > state.negligible_mw else 0.0
    return PostContingency(contingency, "converged", loading, branch, state.violations, *effects)


def worst_loading(case: Case, flow: Floats) -> tuple[float | None, str]:
    """Return the largest apparent power over its rating in percent, and the branch's buses.

    Parameters
    ----------
    flow : (m,)
        Apparent power of the more loaded end, p.u.
    """
    rated = np.flatnonzero(case.rate > 0)
    if not len(rated):
        return None, ""
    loading = flow[rated] / case.rate[rated]
    ends = branch_ends(case, int(rated[np.argmax(loading)]))
    return float(NORMAL_PERCENT * loading.max()), ends


def security_analysis(
    before: PreContingency,
    listed: Sequence[Contingency],
    screen: float = 0.0,
    watch: Callable[[PostContingency], object] = lambda _: None,
) -> tuple[PostContingency, ...]:
    """Return every contingency with the grid after it, in descending order of severity.

    Parameters
    ----------
    before : PreContingency
    listed : sequence of Contingency
    screen : float
        Percent of the rating. A contingency that splits nothing and whose largest loading by the
        DC power flow is below it is not solved, so it is not known to be secure.
    watch : callable
        Called after every contingency.
    """
    results = []
    for contingency in listed:
        estimate = _screened(before, contingency, screen) if screen > 0 else None
        results.append(estimate or assess(before, contingency))
        watch(results[-1])
    return tuple(sorted(results, key=lambda item: item.severity, reverse=True))


def _screened(
    before: PreContingency, contingency: Contingency, screen: float
) -> PostContingency | None:
    """Return a contingency whose DC estimate is below the threshold; None for any other."""
    flow = before.screening.after(*contingency.elements(before.case))
    if flow is None:
        return None
    loading, branch = worst_loading(before.case, flow)
    if loading is None or loading >= screen:
        return None
    return PostContingency(contingency, "screened", loading, branch, (), 0.0, 0.0)
