"""Preventive security-constrained AC optimal power flow of zones.

Zones solve the joint AC optimal power flow of their released demand
(:mod:`gridpriv.power.ac.joint`). The AC state after every contingency is computed from its
solution; each violated limit becomes a cut, linear in the set points before the outage
(:mod:`gridpriv.power.corrective`). All cuts are linearized again and the zones solve again, until
no contingency violates a limit that a cut could prevent.

Cuts are priced, so a plan exists also where not every contingency can be prevented. A contingency
that no set points correct without load shedding (:mod:`gridpriv.power.corrective`) has no secure
preventive plan. It is left to corrective redispatch, and so is a contingency that violates a limit
in :data:`MOST_VIOLATED_PLANS` plans with cuts on it; their cuts are removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import SolverError
from gridpriv.grid.case import Case
from gridpriv.grid.network import deenergized_buses
from gridpriv.grid.scenarios import Contingency, Rating
from gridpriv.power.ac.block import Block, LocalBlocks
from gridpriv.power.ac.flow import LARGEST_STEP
from gridpriv.power.ac.interior import Border, iterate
from gridpriv.power.ac.joint import Cuts, TieEnds, ZoneBlock, joint_plan, tie_ends, zone_block
from gridpriv.power.ac.model import NOTIONAL_COST
from gridpriv.power.ac.newton import PowerFlowError
from gridpriv.power.ac.state import AcState, Limit
from gridpriv.power.corrective import Correction, StateDerivative, correct
from gridpriv.power.security import (
    Outage,
    PostContingency,
    PreContingency,
    post_contingency,
    pre_contingency,
    security_analysis,
)
from gridpriv.power.zone import Zone

MOST_PLANS, RELINEARIZED = 40, 6
"""Largest number of plans; number of plans after which all cuts are linearized again."""
TESTED_SHARE = 0.02
"""Relative violation above which a contingency is tested by redispatch after the first plan."""
MOST_VIOLATED_PLANS = 6
"""Plans with cuts on a limit that is still violated, before a contingency is left."""
MOST_PER_LIMIT = 2
"""Contingencies per plan that give cuts of a limit: those that violate it most."""
REMOVED = 0.1
"""Distance from a limit, as a share of it, at which its cut is removed."""
MOST_ROUNDS, ROUNDS_TOLERANCE = 200, 1e-7
BACK_OFF = 2e-4
"""Margin of cuts, as a share of the limit, against linearization errors."""
SLACK_PRICE = {"line": 0.5, "voltage": 5.0}
"""Price of a violation by 1 p.u., as a share of the value of lost load of 1 p.u."""

Place = tuple[str, str, int, str]
"""Of a cut: contingency, kind, element and side of a limit."""


@dataclass(frozen=True, eq=False)
class Cut:
    """One limit after a contingency, linear in the set points: by_pg pg + by_w w <= bound.

    Attributes
    ----------
    room : float
        Distance of the linearization point from the limit, p.u.
    regime : bytes
        Mask of buses at their voltage set point in the linearized state.
    """

    limit: Limit
    by_pg: Floats
    by_w: Floats
    bound: float
    price: float
    room: float
    regime: bytes

    def room_at(self, state: AcState) -> float:
        """Return the distance of set points from the limit by this linearization, p.u."""
        return self.bound - float(self.by_pg @ state.pg + self.by_w @ state.vm**2)


@dataclass(frozen=True, eq=False)
class SecurePlan:
    """A preventive plan, and the grid after each contingency.

    Attributes
    ----------
    before : PreContingency
        The grid in the plan.
    blocks : tuple of ZoneBlock
        The zones' blocks at the plan.
    contingencies : tuple of PostContingency
        The most severe first.
    cuts : int
        Number of cuts in the plan.
    plans, rounds : int
        Number of plans, and rounds of all plans together.
    corrective : frozenset of str
        Contingencies left to corrective redispatch.
    """

    before: PreContingency
    blocks: tuple[ZoneBlock, ...]
    contingencies: tuple[PostContingency, ...]
    cuts: int
    plans: int
    rounds: int
    corrective: frozenset[str] = frozenset()

    @property
    def sheds(self) -> bool:
        """True if load is shed before any outage."""
        return self.before.state.shed_mw > self.before.state.negligible_mw


@dataclass(frozen=True, eq=False)
class SecureProblem:
    """Inputs of a preventive plan: released demand of a case, prices, contingencies; public.

    Attributes
    ----------
    case : Case
        With the released demand of zones.
    voll : float
        Value of lost load in $/MWh.
    unit : float or None
        Of the objective in $/h per p.u.; None where losses are minimized.
    """

    case: Case
    zones: Sequence[Zone]
    listed: Sequence[Contingency]
    rating: Rating
    voll: float
    unit: float | None

    @property
    def shed_price(self) -> float:
        """Value of lost load of 1 p.u. in units of the zones' objective."""
        return self.voll / (NOTIONAL_COST if self.unit is None else self.unit / self.case.base_mva)

    def demand(self, zone: Zone) -> Floats:
        """Return the released demand of a zone, (2 own,)."""
        return np.concatenate([self.case.pd[zone.own], self.case.qd[zone.own]])

    def planned(self, cuts: Cuts | None, *, shed: bool = True) -> tuple[tuple[ZoneBlock, ...], int]:
        """Return the zones' blocks at the joint optimum within cuts, and its number of rounds.

        Parameters
        ----------
        shed : bool
            True if load may be shed.

        Raises
        ------
        SolverError
            If the rounds do not converge.
        """
        ends = tie_ends(self.case, self.zones)
        for estimated in (False, True):
            blocks, border = self._blocks(ends, cuts, estimated, shed)
            zones = [block for block in blocks if isinstance(block, ZoneBlock)]
            local = LocalBlocks([b.block if isinstance(b, ZoneBlock) else b for b in blocks])
            rounds = tuple(iterate(local, border, MOST_ROUNDS, ROUNDS_TOLERANCE))
            if rounds and rounds[-1].converged(10 * ROUNDS_TOLERANCE):
                return tuple(zones), len(rounds)
        raise SolverError(
            f"case {self.case.name}: the zones' AC rounds did not converge: "
            f"{MOST_ROUNDS} rounds ({'no' if cuts is None else len(cuts.bound)} security cuts)"
        )

    def _blocks(
        self, ends: TieEnds, cuts: Cuts | None, estimated: bool, shed: bool
    ) -> tuple[list[ZoneBlock | Block], Border]:
        """Return the zones' blocks, the coordinator's block of cuts, and their border."""
        count = 0 if cuts is None else len(cuts.bound)
        blocks: list[ZoneBlock | Block] = []
        at: list[Ints] = []
        deenergized = deenergized_buses(self.case)
        live = [z for z in self.zones if not deenergized[z.own].all()]
        for place, zone in enumerate(live):
            first = ends.size + place * count
            shared = None if cuts is None else (cuts, first + np.arange(count))
            settings: Any = {"estimated": estimated, "shed": shed, "cuts": shared}
            inputs = self.demand(zone), ends.of(zone), self.voll, self.unit
            block = zone_block(zone, *inputs, **settings)
            assert block is not None
            blocks.append(block)
            at.append(block.at)
        if cuts is not None:
            own, entries = cuts.block(len(live), ends.size)
            blocks.append(own)
            at.append(entries)
        return blocks, Border(ends.size + count * len(live), at)

    def corrected(self, before: PreContingency, contingency: Contingency) -> Correction:
        """Return the zones' corrective redispatch after a contingency."""
        owners = [(zone.name, zone.own) for zone in self.zones]
        return correct(before, contingency, owners, self.voll)

    def unpreventable(
        self, before: PreContingency, untested: Mapping[str, Contingency]
    ) -> frozenset[str]:
        """Return the contingencies that no set points can correct without load shedding."""
        tests = ((name, self.corrected(before, item)) for name, item in untested.items())
        return frozenset(name for name, correction in tests if not correction.secure)

    def before(self, blocks: Sequence[ZoneBlock]) -> PreContingency:
        """Return the grid in a plan, before any outage."""
        return pre_contingency(self.case, joint_plan(self.case, blocks), self.rating)


def secure_plan(
    problem: SecureProblem, watch: Callable[[PostContingency], object] = lambda _: None
) -> tuple[SecurePlan, SecurePlan]:
    """Return the zones' plan without contingencies, and the preventive plan.

    Parameters
    ----------
    watch : callable
        Called after every contingency of the first and the last plan.

    Raises
    ------
    SolverError
        If the joint plan or its AC state is not found.
    """
    cuts: dict[Place, list[Cut]] = {}
    corrective: frozenset[str] = frozenset()
    tested: set[str] = set()
    violated: Counter[str] = Counter()
    rounds, first, best = 0, None, None
    for number in range(1, MOST_PLANS + 1):
        try:
            blocks, used = problem.planned(_stacked(cuts), shed=first is None or first.sheds)
            before = problem.before(blocks)
        except SolverError:
            if best is None:
                raise
            break
        rounds += used
        analysed = security_analysis(before, problem.listed, watch=watch)
        violating = _violating(analysed, corrective)
        to_test = _violating(analysed, corrective, TESTED_SHARE) if number == 1 else violating
        untested = {name: item for name, item in to_test.items() if name not in tested}
        added = problem.unpreventable(before, untested)
        tested |= to_test.keys()
        violated.update({p[0] for p in _worst_limits(analysed, corrective) if p in cuts})
        corrective |= added | _repeatedly_violating(analysed, corrective | added, violated)
        total = sum(map(len, cuts.values()))
        plan = SecurePlan(before, blocks, analysed, total, number, rounds, corrective)
        first = first or plan
        if best is None or _total_violation(plan, corrective) <= _total_violation(best, corrective):
            best = plan
        worst_limits = _worst_limits(analysed, corrective)
        if not worst_limits and not violating.keys() & corrective:
            break
        cuts = {place: item for place, item in cuts.items() if place[0] not in corrective}
        states = _PostContingencyStates(problem, before)
        cuts = states.linearized(worst_limits, cuts, relinearize=number <= RELINEARIZED)
    assert first is not None and best is not None
    return first, replace(best, plans=number, rounds=rounds, corrective=corrective)


def _preventable(
    analysed: Sequence[PostContingency], corrective: frozenset[str]
) -> Iterator[tuple[PostContingency, list[Limit]]]:
    """Yield contingencies to be prevented, with the violations that a cut can prevent."""
    for c in analysed:
        if c.contingency.name not in corrective:
            yield c, [v for v in c.violations if v.kind in SLACK_PRICE]


def _violating(
    analysed: Sequence[PostContingency], corrective: frozenset[str], share: float = 0.0
) -> dict[str, Contingency]:
    """Return contingencies that violate a line or voltage limit by more than a share."""
    return {
        c.contingency.name: c.contingency
        for c, violations in _preventable(analysed, corrective)
        if c.status == "diverged" or any(v.amount > share * abs(v.bound) for v in violations)
    }


def _repeatedly_violating(
    analysed: Sequence[PostContingency], corrective: frozenset[str], violated: Counter[str]
) -> frozenset[str]:
    """Return the contingency that violates limits most, if one did so in MOST_VIOLATED_PLANS plans.

    Contingencies may be preventable separately but not together: the others get as many further
    plans without it.
    """
    if max(violated.values(), default=0) < MOST_VIOLATED_PLANS:
        return frozenset()
    violated.clear()
    amounts = {
        c.contingency.name: max((v.amount / abs(v.bound) for v in violations), default=np.inf)
        for c, violations in _preventable(analysed, corrective)
        if violations or c.status == "diverged"
    }
    return frozenset([max(amounts, key=amounts.__getitem__)] if amounts else [])


def _worst_limits(
    analysed: Sequence[PostContingency], corrective: frozenset[str]
) -> dict[Place, Limit]:
    """Return the violated limits, for each element in the contingencies that violate it most."""
    places: dict[tuple[str, int, str], list[tuple[float, Place, Limit]]] = {}
    for c, violations in _preventable(analysed, corrective):
        for v in () if collapsed(c) else violations:
            place = (c.contingency.name, v.kind, v.element, v.limit)
            places.setdefault(place[1:], []).append((-v.amount, place, v))
    worst = (item for ranked in places.values() for item in sorted(ranked)[:MOST_PER_LIMIT])
    return {place: limit for _, place, limit in worst}


def collapsed(after: PostContingency) -> bool:
    """Return True for a voltage so low that no set point before the outage can correct it."""
    return any(
        v.kind == "voltage" and v.limit == "lower" and v.amount > LARGEST_STEP
        for v in after.violations
    )


def _total_violation(plan: SecurePlan, corrective: frozenset[str]) -> float:
    """Return the sum of violations over all contingencies, as shares of the limits."""
    over = (v for _, of in _preventable(plan.contingencies, corrective) for v in of)
    return sum(v.amount / max(abs(v.bound), 1e-3) for v in over)


def _stacked(cuts: Mapping[Place, Sequence[Cut]]) -> Cuts | None:
    """Return all cuts as one set; None without any."""
    rows = [(c.by_pg, c.by_w, c.bound, c.price) for of_limit in cuts.values() for c in of_limit]
    return Cuts(*(np.array(values) for values in zip(*rows, strict=True))) if rows else None


class _PostContingencyStates:
    """The states after contingencies of a plan, and their derivatives, computed on demand."""

    def __init__(self, problem: SecureProblem, before: PreContingency) -> None:
        self.problem, self.before = problem, before
        self._names = {contingency.name: contingency for contingency in problem.listed}
        self._state = cache(self._computed)

    def _computed(self, name: str) -> tuple[Outage, StateDerivative] | None:
        outage = Outage(self.before, self._names[name])
        try:
            state = post_contingency(self.before, outage)
        except PowerFlowError:
            return None
        return outage, StateDerivative(state, self.before.dispatch.vm)

    def linearized(
        self,
        worst_limits: Mapping[Place, Limit],
        previous_cuts: Mapping[Place, list[Cut]],
        *,
        relinearize: bool,
    ) -> dict[Place, list[Cut]]:
        """Return the cuts of the next plan.

        A violated limit gets a cut around this plan. The cuts of other limits are linearized again
        while ``relinearize``, and removed where the limit is far; later they do not change. A
        limited quantity has a kink where a generator reaches a reactive limit: linearizations from
        both sides are kept, as the search could otherwise cycle.
        """
        cuts: dict[Place, list[Cut]] = {}
        for place in dict.fromkeys([*previous_cuts, *worst_limits]):
            old = list(previous_cuts.get(place, ()))
            if place in worst_limits or relinearize:
                limit = worst_limits[place] if place in worst_limits else old[-1].limit
                cut, far = self.cut(place[0], limit), REMOVED * abs(limit.bound)
                if cut is not None and cut.room > far:
                    continue
                if relinearize and cut is not None:
                    old = [c for c in old if c.regime != cut.regime]
                    old = [c for c in old if c.room_at(self.before.state) <= far]
                old += [] if cut is None else [cut]
            if old:
                cuts[place] = old
        return cuts

    def cut(self, name: str, limit: Limit) -> Cut | None:
        """Return the cut of a limit around the plan; None where the state does not have it."""
        state = self._state(name)
        value = None if state is None else _value(state[1].state, limit)
        if state is None or value is None:
            return None
        outage, derivative = state
        case, now = self.before.case, self.before.state
        by_gens_in_service, by_vm = derivative.of(limit)
        sign = 1.0 if limit.limit == "upper" else -1.0
        by_pg = np.zeros(case.n_gen)
        by_pg[outage.in_service] = sign * by_gens_in_service
        by_w = sign * by_vm / (2.0 * np.where(now.vm > 0, now.vm, 1.0))
        bound = limit.bound / (case.base_mva if limit.kind == "line" else 1.0)
        room = sign * (bound - value) - BACK_OFF * abs(bound)
        price = SLACK_PRICE[limit.kind] * self.problem.shed_price
        level = float(by_pg @ now.pg + by_w @ now.vm**2)
        regime = derivative.regulated.tobytes()
        return Cut(limit, by_pg, by_w, room + level, price, room, regime)


def _value(state: AcState, limit: Limit) -> float | None:
    """Return a limited quantity in a state, p.u.; None where the state does not have it."""
    if limit.kind == "voltage":
        k = int(np.flatnonzero(state.case.bus_id == limit.element)[0])
        return None if state.deenergized[k] else float(state.vm[k])
    k = int(np.flatnonzero(state.case.branch_row == limit.element)[0])
    return float(max(abs(state.s_from[k]), abs(state.s_to[k])))
