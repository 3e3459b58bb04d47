"""Check a run's AC state, and the sentences that a run prints, by independent arithmetic.

It reads the case, the reported state (voltages, dispatch, shed load, curtailment) and the scheduled
interchange, and nothing else of gridpriv's. Admittances, balance, limits, interchange and costs are
computed in this file. Residuals are those that the rounds recorded, and Newton rounds
without noise are compared with Clarabel's optimum of the whole grid. ``STATEMENTS`` is the
table that maps sentences of ``gridpriv run`` to numbers; adapt it when wording changes.
``NOT_JUDGED`` names the messages without a statement on an AC state.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from gridpriv.core.errors import SolverError
from gridpriv.grid.case import Case
from gridpriv.grid.scenarios import branch_ends
from gridpriv.power.centralized import relax
from gridpriv.zonal.result import RunResult

ROUNDING = {"angle": 1.75e-4, "voltage": 1e-4}
ROUNDING_MVA, ROUNDING_SHARE = 0.01, 1e-4
"""Largest violation that counts as rounding: 0.0001 p.u. of voltage; 0.01 degree or 0.01 MVA, or
0.0001 of the element's limit where that is less."""
ROUNDING_PU = 1e-4
MARGINAL = 1e-3
"""Share of the element's rating, or of its voltage limit, up to which a violation is marginal."""
PIECEWISE = 1
MOST_RESIDUAL = 0.01
"""p.u.: consensus residual up to which rounds count as converged."""
MOST_COMPARED = 300
"""Buses up to which rounds are compared with the whole grid's optimum."""
NUMBER = r"(-?[\d.]+(?:e[+-]?\d+)?|under [\d.]+|-)"


@dataclass(frozen=True)
class State:
    """A reported AC state, per unit and rad.

    Attributes
    ----------
    vm, va, p_shed, q_shed, curtailment : (n,)
    pg, qg : (g,)
    zone_of : (n,) int
    scheduled : (zones,)
        Scheduled interchange, exports positive, in the order of the zone numbers in ``zone_of``.
    zone_names : tuple of str
    """

    vm: np.ndarray
    va: np.ndarray
    pg: np.ndarray
    qg: np.ndarray
    p_shed: np.ndarray
    q_shed: np.ndarray
    curtailment: np.ndarray
    zone_of: np.ndarray
    scheduled: np.ndarray
    zone_names: tuple[str, ...]


def reported_state(result: RunResult) -> State | None:
    """Return the AC state that a run reports; None where it has none."""
    redispatch = result.redispatch
    if redispatch is None or redispatch.state is None:
        return None
    state = redispatch.state
    zone_of = np.zeros(result.case.n_bus, dtype=int)
    for number, zone in enumerate(result.zone_models):
        zone_of[zone.own] = number
    names = tuple(zone.name for zone in result.zone_models)
    return State(
        state.vm,
        state.va,
        state.pg,
        state.qg,
        state.p_shed,
        state.q_shed,
        state.curtailment,
        zone_of,
        np.asarray(redispatch.scheduled),
        names,
    )


@dataclass(frozen=True)
class Violation:
    """One limit that is exceeded; ``amount`` and the element's ``rating`` in p.u. or rad."""

    kind: str
    at: str
    amount: float
    rating: float

    @property
    def share(self) -> float:
        """Amount as a share of the element's rating."""
        return self.amount / self.rating if self.rating > 0 else math.inf


def branch_matrices(case: Case) -> np.ndarray:
    """Return [y_ff y_ft; y_tf y_tt] of every branch, shape (m, 2, 2).

    From the chain (A B C D) parameters of an ideal transformer followed by a pi section.
    """
    z, half = case.r + 1j * case.x, 0.5j * case.b
    ratio = case.tap * np.exp(1j * case.shift)
    a, b = ratio * (1 + z * half), ratio * z
    c, d = half * (2 + z * half) / np.conj(ratio), (1 + z * half) / np.conj(ratio)
    return np.stack([d / b, c - d * a / b, -1 / b, a / b], axis=-1).reshape(-1, 2, 2)


def bus_admittance(case: Case) -> sparse.csr_matrix:
    """Return the bus admittance matrix, shape (n, n)."""
    y, f, t, n = branch_matrices(case), case.f_bus, case.t_bus, case.n_bus
    rows = np.concatenate([f, f, t, t, np.arange(n)])
    columns = np.concatenate([f, t, f, t, np.arange(n)])
    values = np.concatenate(
        [y[:, 0, 0], y[:, 0, 1], y[:, 1, 0], y[:, 1, 1], case.gs + 1j * case.bs]
    )
    return sparse.csr_matrix((values, (rows, columns)), shape=(n, n))


def output_cost(case: Case, pg: np.ndarray) -> float | None:
    """Return the cost of an output (p.u.) in $/h by MATPOWER's gencost; None without costs."""
    if not case.cost:
        return None
    total = 0.0
    for cost, p in zip(case.cost, case.base_mva * pg, strict=True):
        values = np.array(cost.values)
        if cost.model == PIECEWISE:
            x, y = values[::2], values[1::2]
            k = int(np.clip(np.searchsorted(x, p), 1, len(x) - 1))
            total += y[k - 1] + (y[k] - y[k - 1]) * (p - x[k - 1]) / (x[k] - x[k - 1])
        else:
            total += np.polyval(values, p)
    return float(total)


@dataclass(frozen=True, eq=False)
class Judgement:
    """An AC state, evaluated by independent arithmetic.

    Attributes
    ----------
    case : Case
        With the demand before load shedding.
    state : State
    voll : float
        $/MWh.
    """

    case: Case
    state: State
    voll: float

    @cached_property
    def voltage(self) -> np.ndarray:
        """Complex bus voltages."""
        return self.state.vm * np.exp(1j * self.state.va)

    @cached_property
    def deenergized(self) -> np.ndarray:
        """Buses of islands without a generator that can give active power, or of one that is off.

        A unit alone at a bus is off where the bus has no voltage.
        """
        case, island = self.case, self.island
        off = (np.bincount(island)[island] == 1) & (self.state.vm == 0.0)
        return off | ~np.isin(island, island[case.gen_bus[case.pmax > 0]])

    @cached_property
    def island(self) -> np.ndarray:
        """Number of every bus's island."""
        case, n = self.case, self.case.n_bus
        links = sparse.coo_array((np.ones(case.n_branch), (case.f_bus, case.t_bus)), shape=(n, n))
        return connected_components(links, directed=False)[1]

    @cached_property
    def short(self) -> np.ndarray:
        """Buses of energized islands that shed more than rounding."""
        shed = np.bincount(self.island, np.where(self.deenergized, 0.0, self.state.p_shed))
        return self.case.base_mva * shed[self.island] > ROUNDING_MVA

    @cached_property
    def flows(self) -> tuple[np.ndarray, np.ndarray]:
        """Complex power into every branch at its from and at its to end."""
        ends = np.stack([self.voltage[self.case.f_bus], self.voltage[self.case.t_bus]], axis=1)
        power = ends * np.conj(np.einsum("kij,kj->ki", branch_matrices(self.case), ends))
        return power[:, 0], power[:, 1]

    @cached_property
    def balance_mva(self) -> float:
        """Largest power mismatch of a bus."""
        case, state = self.case, self.state
        lack = self.voltage * np.conj(bus_admittance(case) @ self.voltage)
        lack += case.pd - state.p_shed + state.curtailment + 1j * (case.qd - state.q_shed)
        np.subtract.at(lack, case.gen_bus, state.pg + 1j * state.qg)
        return case.base_mva * float(np.abs(lack).max())

    @cached_property
    def violations(self) -> list[Violation]:
        """Limits exceeded by more than rounding."""
        return list(self._limits())

    def _limits(self) -> Iterator[Violation]:
        case, state = self.case, self.state
        ids, live = case.bus_id, ~self.deenergized
        at_gen = [str(ids[bus]) for bus in case.gen_bus]
        at_bus = [str(bus) for bus in ids]
        at_branch = [f"{ids[f]}-{ids[t]}" for f, t in zip(case.f_bus, case.t_bus, strict=True)]
        s_from, s_to = self.flows
        rated = np.where(case.rate > 0, case.rate, np.inf)
        turn = np.angle(self.voltage[case.f_bus] * np.conj(self.voltage[case.t_bus]))
        demand = np.maximum(case.pd, 0.0)
        factor = np.divide(case.qd, case.pd, out=np.zeros(case.n_bus), where=case.pd > 0)
        reach = demand + np.maximum(-case.pd, 0.0)
        np.add.at(reach, case.gen_bus, np.maximum(state.pg, 0.0))
        shed_q = np.abs(state.q_shed - factor * state.p_shed)
        on = live[case.gen_bus]
        p_range, q_range = (
            [np.where(on, limit, 0.0) for limit in limits]
            for limits in ((case.pmin, case.pmax), (case.qmin, case.qmax))
        )
        for kind, at, value, low, high in (
            ("generator P", at_gen, state.pg, *p_range),
            ("generator Q", at_gen, state.qg, *q_range),
            ("voltage", at_bus, state.vm, live * case.vmin, live * case.vmax),
            ("line", at_branch, np.maximum(abs(s_from), abs(s_to)), -rated, rated),
            ("angle", at_branch, turn, case.angmin, case.angmax),
            ("shed", at_bus, state.p_shed, 0 * demand, demand),
            ("shed power factor", at_bus, np.where(live, shed_q, 0.0), 0 * demand, 0 * demand),
            ("curtailment", at_bus, state.curtailment, 0 * demand, reach),
        ):
            over = np.maximum(low - value, value - high)
            rating = np.maximum(*(np.where(np.isfinite(x), np.abs(x), 0.0) for x in (low, high)))
            most = ROUNDING_MVA / case.base_mva
            rounding = np.full(len(over), ROUNDING.get(kind, most))
            if kind != "voltage":
                share = ROUNDING_SHARE * rating
                rounding = np.where(rating > 0, np.minimum(rounding, share), rounding)
            for k in np.flatnonzero(over > rounding).tolist():
                yield Violation(kind, at[k], float(over[k]), float(rating[k]))

    @cached_property
    def worst(self) -> Violation | None:
        """Violation that is farthest outside, relative to the element's rating."""
        return max(self.violations, key=lambda limit: limit.share, default=None)

    @property
    def status(self) -> str:
        """Status: feasible, marginal (within 0.1 % of every rating) or infeasible."""
        if self.balance_mva > 10 * ROUNDING_PU * self.case.base_mva:
            return "infeasible"
        if self.worst is None:
            return "feasible"
        return "marginal" if self.worst.share <= MARGINAL else "infeasible"

    @property
    def overloaded_generators(self) -> int:
        """Number of generators above one of their limits."""
        return len({v.at for v in self.violations if v.kind.startswith("generator")})

    @cached_property
    def interchange(self) -> np.ndarray:
        """Export of every zone in MW, metered in the middle of tie lines."""
        case, zone_of = self.case, self.state.zone_of
        middle = case.base_mva * 0.5 * (self.flows[0] - self.flows[1]).real
        out, into = zone_of[case.f_bus], zone_of[case.t_bus]
        middle = np.where(out == into, 0.0, middle)
        zones = len(self.state.scheduled)
        return np.bincount(out, middle, zones) - np.bincount(into, middle, zones)

    @cached_property
    def deviation(self) -> np.ndarray:
        """Actual less scheduled interchange of every zone, MW."""
        return self.interchange - self.case.base_mva * self.state.scheduled

    @cached_property
    def figures(self) -> dict[str, float | None]:
        """Values in MW and $/h by gridpriv's names."""
        case, state, base = self.case, self.state, self.case.base_mva
        generated, shed = output_cost(case, state.pg), base * float(state.p_shed.sum())
        lost = float((self.flows[0] + self.flows[1]).real.sum())  # of branches, without shunts
        return {
            "shed_mw": shed,
            "deenergized_mw": base
            * float(np.where(self.deenergized, np.maximum(case.pd, 0), 0).sum()),
            "curtailed_mw": base * float(state.curtailment.sum()),
            "losses_mw": base * lost,
            "generation_cost": generated,
            "cost": None if generated is None else generated + self.voll * shed,
            "balancing_mw": float(np.maximum(-self.deviation, 0.0).sum()),
            "interchange_deviation_mw": float(np.abs(self.deviation).max()),
        }

    @property
    def generation_mw(self) -> float:
        """Output of all generators."""
        return self.case.base_mva * float(self.state.pg.sum())


NAMES = {"curtailed_mw": ("curtailed_mw", "curtailed_mw")}
"""Names of a figure in a run's document, where there are several."""


def printed(physical: dict[str, Any], name: str) -> Any:
    """Return a value of a run's document."""
    return next((physical[key] for key in NAMES.get(name, (name,)) if key in physical), None)


def figure_difference(judgement: Judgement, physical: dict[str, Any]) -> tuple[float, str]:
    """Return the largest difference from a run's values, relative above 1 MW or 1 $/h."""
    worst = (0.0, "")
    for name, own in judgement.figures.items():
        printed_value = printed(physical, name)
        if printed_value is None and name.endswith("cost") and judgement.status == "infeasible":
            continue  # no cost is printed for a state outside its limits
        if (own is None) != (printed_value is None):
            return math.inf, name
        if own is not None:
            worst = max(worst, (abs(own - printed_value) / max(1.0, abs(own)), name))
    return worst


# --- statements --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Facts:
    """Reference values for printed sentences.

    Attributes
    ----------
    result : RunResult
    judgement : Judgement or None
        None where the run has no AC state.
    optimum : dict
        ``cost`` and ``shed_mw`` of the AC optimum, and ``least_shed_mw`` of the one that sheds
        least, where known.
    """

    result: RunResult
    judgement: Judgement | None
    optimum: dict[str, float | None] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float | None:
        return None if self.judgement is None else self.judgement.figures[name]

    @property
    def violations(self) -> list[Violation]:
        """Violations of the state; none without one."""
        return [] if self.judgement is None else self.judgement.violations

    @property
    def share_of_load(self) -> float | None:
        """Balancing power in percent of the load."""
        balancing, case = self["balancing_mw"], self.result.case
        load = case.base_mva * float(np.maximum(case.pd, 0.0).sum())
        return 100.0 * balancing / load if balancing is not None and load > 0 else None

    def excess(self, residual: float) -> str | None:
        """Return the fault of rounds whose objective is not the whole grid's optimum, by Clarabel.

        None where it is, and where noise or the size of a grid prevents the comparison. The dual
        residual is relative to the mean marginal cost, so costs differ by as much, relatively.
        """
        result, last = self.result, self.result.trace.rounds[-1]
        objective = result.network.objective
        if result.settings.mechanism != "none" or objective.kind != "cost":
            return None
        if result.case.n_bus > MOST_COMPARED:
            return None
        weight = objective.weight
        try:
            best = relax(result.case, "cost", imbalance_weight=weight).bound
        except SolverError:
            return None
        imbalance = objective.cost_unit * weight * last.metrics["objective"]
        own = last.metrics["cost"] + imbalance
        near = best is not None and abs(own - best) <= 10.0 * residual * max(
            objective.cost_unit, abs(best)
        )
        return None if near else f"the rounds end at {own:.8g}, the optimum is {best}"


Check = Callable[[re.Match[str], Facts], str | None]


def same(text: str, value: float | None, digits: int = 4, decimals: int = 3) -> str | None:
    """Return the fault of a printed number, None where it is the value as rounded."""
    if text == "-":
        return None if value is None else f"printed '-', is {value:.8g}"
    if value is None:
        return f"printed {text}, the judge has none"
    if text.startswith("under "):
        bound = float(text.removeprefix("under "))
        return None if abs(value) <= 1.01 * bound else f"printed {text}, is {value:.8g}"
    size = math.floor(math.log10(abs(value))) if value else 0
    room = 0.51 * max(10.0 ** (size - digits + 1), 10.0**-decimals) + 1e-6 * abs(value)
    return None if abs(float(text) - value) <= room else f"printed {text}, is {value:.8g}"


def equals(name: str, digits: int = 4, decimals: int = 3) -> Check:
    """Return the check that the first number of a sentence equals a value of the judgement."""
    return lambda match, facts: same(match[1], facts[name], digits, decimals)


STATUS = {
    "yes": "feasible",
    "AC-feasible": "feasible",
    "marginal": "marginal",
    "Marginal": "marginal",
    "Limits violated by at most 0.1 % (marginal)": "marginal",
    "no": "infeasible",
    "not AC-feasible": "infeasible",
    "Not AC-feasible": "infeasible",
}


def _status(match: re.Match[str], facts: Facts) -> str | None:
    stated = STATUS[match[1]]
    own = "infeasible" if facts.judgement is None else facts.judgement.status
    if stated == own:
        return None
    worst = None if facts.judgement is None else facts.judgement.worst
    by = f": {worst.kind} at {worst.at} by {worst.amount:.3g}" if worst else ""
    return f"stated {stated}, is {own}{by}"


def _failed(_: re.Match[str], facts: Facts) -> str | None:
    return None if facts.judgement is None else "said to have no power flow, but has a state"


def _count(match: re.Match[str], facts: Facts) -> str | None:
    own = len(facts.violations)
    return None if int(match[1]) == own else f"printed {match[1]} violations, are {own}"


LIMITED = {
    "rating of branch": "line",
    "angle difference of branch": "angle",
    "voltage at bus": "voltage",
    "active output at bus": "generator P",
    "reactive output at bus": "generator Q",
}
"""Kinds of limits by the words of their quantity."""


def _outside(match: re.Match[str], facts: Facts) -> str | None:
    case = facts.result.case
    units = {"p.u.": 1.0, "degree": math.pi / 180}
    amount = float(match[3]) * units.get(match[4], 1.0 / case.base_mva)
    near = [v for v in facts.violations if (v.kind, v.at) == (LIMITED[match[1]], match[2])]
    if any(abs(v.amount - amount) <= 6e-3 * amount for v in near):
        return None
    return f"not a violation: {match[0]}"


def _served(_: re.Match[str], facts: Facts) -> str | None:
    shed = facts["shed_mw"]
    least = ROUNDING_PU * facts.result.case.base_mva
    return None if shed is not None and shed <= max(least, 1e-9) else f"shed {shed} MW"


def _size(match: re.Match[str], facts: Facts) -> str | None:
    own = (facts.result.case.name, facts.result.case.n_bus, len(facts.result.zone_models))
    stated = (match[1], int(match[2]), int(match[3]))
    return None if stated == own else f"printed {stated}, is {own}"


def _noise(match: re.Match[str], facts: Facts) -> str | None:
    settings = facts.result.settings
    silent = settings.release == "nothing" and settings.perturbation == "demand"
    own = "no noise" if settings.mechanism == "none" else "no demand released" if silent else None
    stated = match[1] if match[1] in {"no noise", "no demand released"} else None
    return None if stated == own else f"printed {match[1]}, the mechanism is {settings.mechanism}"


def _zone_row(match: re.Match[str], facts: Facts) -> str | None:
    judgement = facts.judgement
    if judgement is None or match[1] not in judgement.state.zone_names:
        return f"no zone {match[1]}"
    z, base = judgement.state.zone_names.index(match[1]), judgement.case.base_mva
    own = judgement.state.zone_of == z
    values = (
        base * judgement.state.scheduled[z],
        judgement.interchange[z],
        judgement.deviation[z],
        base * judgement.state.p_shed[own].sum(),
    )
    faults = (same(match[k + 2], float(value)) for k, value in enumerate(values))
    return next((fault for fault in faults if fault), None)


def _exporters(match: re.Match[str], facts: Facts) -> str | None:
    judgement = facts.judgement
    if judgement is None:
        return "no AC state"
    names = match[1].split(", ")
    named = [judgement.state.zone_names.index(name) for name in names]
    shed = judgement.case.base_mva * judgement.state.p_shed[np.isin(judgement.state.zone_of, named)]
    home = [name for z, name in zip(named, names, strict=True) if judgement.interchange[z] <= 0]
    if home:
        return f"zones {home} do not export"
    unused = np.maximum(judgement.case.pmax - judgement.state.pg, 0.0)
    unused = unused[judgement.short[judgement.case.gen_bus]].sum()
    unused += judgement.state.curtailment[judgement.short].sum()
    return same(match[2], float(shed.sum())) or same(
        match[3], judgement.case.base_mva * float(unused)
    )


def _rounds(match: re.Match[str], facts: Facts) -> str | None:
    done = len(facts.result.trace.rounds)
    return None if int(match[1]) == done else f"printed {match[1]} rounds, were {done}"


def _on_ac(match: re.Match[str], facts: Facts) -> str | None:
    """Return the fault of rounds on the AC equations: their number, and their residual if given."""
    on_ac = facts.result.ac_rounds
    done = 0 if on_ac is None else len(on_ac.iterations)
    if on_ac is None or int(match[1]) != done:
        return f"printed {match[1]} rounds on the AC equations, were {done}"
    return same(match[2], on_ac.iterations[-1].primal, 4, 16) if match.lastindex == 2 else None


def _residual(match: re.Match[str], facts: Facts) -> str | None:
    on_ac, rounds = facts.result.ac_rounds, facts.result.trace.rounds
    converged = on_ac is not None and on_ac.schedule is not None
    last = on_ac.iterations[-1].primal if converged else rounds[-1].consensus_residual
    return same(match[1], last, 4, 16)


def _not_converged(match: re.Match[str], facts: Facts) -> str | None:
    """Return the fault of a residual that is printed as too large."""
    last = facts.result.trace.rounds[-1].consensus_residual
    if last <= MOST_RESIDUAL:
        return f"residual {last:.3g} p.u. counts as converged"
    return same(match[1], last, 4, 16)


def _noise_free_residual(match: re.Match[str], facts: Facts) -> str | None:
    return same(match[1], getattr(facts.result.reference, "noise_free_residual", None), 4, 16)


def _agree(match: re.Match[str], facts: Facts) -> str | None:
    last = facts.result.trace.rounds[-1].consensus_residual_max
    return None if last < float(match[1]) else f"a coupling variable differs by {last:.3g}"


def _optimality(match: re.Match[str], facts: Facts) -> str | None:
    """Return the fault of a printed residual of the optimality conditions."""
    last, bound = facts.result.trace.rounds[-1], float(match[1])
    if last.consensus_residual_max >= bound or last.dual_residual >= 10.0 * bound:
        return f"residuals are {last.consensus_residual_max:.3g} and {last.dual_residual:.3g}"
    return facts.excess(bound)


def _stalled(match: re.Match[str], facts: Facts) -> str | None:
    last = facts.result.trace.rounds[-1]
    return (
        _rounds(match, facts)
        or same(match[2], last.consensus_residual, 4, 16)
        or same(match[3], last.dual_residual, 4, 16)
    )


def _short(match: re.Match[str], facts: Facts) -> str | None:
    """Return the fault of a shortage: demand and losses where load is shed, less capacity there."""
    judgement = facts.judgement
    if judgement is None:
        return "no AC state"
    case, short, gens = judgement.case, judgement.short, judgement.short[judgement.case.gen_bus]
    losses = (judgement.flows[0] + judgement.flows[1]).real[short[case.f_bus]].sum()
    shunts = (case.gs * judgement.state.vm**2)[short].sum()
    need = case.base_mva * float(case.pd[short].sum() + losses + shunts - case.pmax[gens].sum())
    above = np.maximum(judgement.state.pg - case.pmax, 0.0).sum()  # within rounding, if feasible
    missed = case.n_bus * judgement.balance_mva + case.base_mva * float(above)
    faults = [same(match[1], need + off) for off in (0.0, -missed, missed)]
    return faults[0] if all(faults) else None


def _single_buses(match: re.Match[str], facts: Facts) -> str | None:
    own = {zone.name for zone in facts.result.zone_models if len(zone.own) == 1}
    return None if set(match[1].split(", ")) == own else f"zones of one bus are {sorted(own)}"


def _load_scale(match: re.Match[str], facts: Facts) -> str | None:
    own = f"{facts.result.settings.load_scale:g}"
    return None if match[1] == own else f"printed {match[1]}, is {own}"


def _objective(match: re.Match[str], facts: Facts) -> str | None:
    own = facts.result.network.objective.kind
    return None if match[1] == own != "cost" else f"the objective is {own}"


def _without_costs(_: re.Match[str], facts: Facts) -> str | None:
    case, kind = facts.result.case, facts.result.network.objective.kind
    convex = bool(case.cost) and all(
        _convex(cost.model, np.array(cost.values)) for cost in case.cost
    )
    return None if kind == "losses" and not convex else f"objective {kind}, convex costs: {convex}"


def _convex(model: int, values: np.ndarray) -> bool:
    """Return True if a cost is convex on [0, inf): increasing slopes, or c2 >= 0."""
    if model == PIECEWISE:
        slopes = np.diff(values[1::2]) / np.diff(values[::2])
        return bool((np.diff(slopes) >= -1e-9 * np.abs(slopes).max()).all())
    trimmed = np.trim_zeros(values, "f")
    return len(trimmed) <= 3 and (len(trimmed) < 3 or trimmed[0] >= 0)


def _loading(match: re.Match[str], facts: Facts) -> str | None:
    """Return the fault of the largest loading and its branch."""
    judgement = facts.judgement
    if judgement is None:
        return "no AC state"
    case = judgement.case
    rated = np.flatnonzero((case.rate > 0) & np.isfinite(case.rate))
    flow = np.maximum(*np.abs(judgement.flows))[rated]
    if match[1] is None or not len(rated):
        return None if match[1] is None and not len(rated) else "a branch has a rating"
    loading = 100.0 * flow / case.rate[rated]
    names = [branch_ends(case, k) for k in rated.tolist()]
    here = max((x for x, name in zip(loading, names, strict=True) if name == match[1]), default=0.0)
    return same(match[2], float(loading.max()), 3, 12) or same(match[2], float(here), 3, 12)


def _voltage(match: re.Match[str], facts: Facts) -> str | None:
    """Return the fault of the lowest or highest voltage and its bus."""
    judgement = facts.judgement
    if judgement is None:
        return "no AC state"
    live, vm = ~judgement.deenergized, judgement.state.vm
    extreme = vm[live].min() if match[1] == "lowest" else vm[live].max()
    here = vm[judgement.case.bus_id == int(match[2])]
    faults = (same(match[3], float(value), 4, 3) for value in (extreme, *here))
    return next((fault for fault in faults if fault), None)


def _balancing(match: re.Match[str], facts: Facts) -> str | None:
    """Return the fault of balancing power and its share of the demand."""
    fault, share = same(match[1], facts["balancing_mw"]), facts.share_of_load
    if share is not None and match[3] == "times":
        share /= 100.0
    return fault or (match[2] and same(match[2], share, 2, 12))


def _payment(match: re.Match[str], facts: Facts) -> str | None:
    """Return the fault of the price of balancing power, and of its value without and with it."""
    price, drawn = facts.result.settings.balancing_price, facts["balancing_mw"]
    prior = getattr(facts.result.reference, "prior_only_balancing_mw", None)

    def value(power: float | None) -> float | None:
        return None if power is None else price * float(f"{power:.4g}")

    return (
        same(match[1], price)
        or same(match[2], value(drawn), 3, 2)
        or (match[3] and same(match[3], value(prior), 3, 2))
    )


def _voll(match: re.Match[str], facts: Facts) -> str | None:
    return same(match[1], facts.result.settings.voll)


def _over_optimum(match: re.Match[str], facts: Facts) -> str | None:
    cost, best = facts["cost"], facts.optimum.get("cost")
    if cost is None or best is None:
        return None
    decimals = max(0, 2 - max(0, math.floor(math.log10(abs(cost) + 1)) - 4))
    return same(match[1], cost - best, 6, decimals) or _percent(match[2], cost - best, best)


def _percent(text: str | None, difference: float, base: float) -> str | None:
    """Return the fault of a difference in percent of its base; None where none is printed."""
    if text is None or abs(difference) < 1e-3 * abs(base):  # the difference's own rounding
        return None
    return same(text.lstrip("-"), 100.0 * abs(difference / base), 2, 12)


def reference(name: str, digits: int, decimals: int) -> Check:
    """Return the check that a number is a value of the run's baselines."""

    def check(match: re.Match[str], facts: Facts) -> str | None:
        return same(match[1], getattr(facts.result.reference, name, None), digits, decimals)

    return check


def _saved(match: re.Match[str], facts: Facts) -> str | None:
    cost, other = facts["cost"], facts.result.reference
    if cost is None or other is None or other.prior_only_cost is None:
        return f"printed {match[2]} without a cost to compare with"
    saved, base = other.prior_only_cost - cost, other.prior_only_cost
    if match[1] == "extra cost of":
        saved = -saved
    return same(match[2], saved, 6, 2) or _percent(match[3], saved, base)


def _cost_of_privacy(match: re.Match[str], facts: Facts) -> str | None:
    cost, other = facts["cost"], facts.result.reference
    if cost is None or other is None or other.noise_free_cost is None:
        return f"printed {match[1]} without a cost to compare with"
    price, base = cost - other.noise_free_cost, other.noise_free_cost
    return same(match[1], price, 6, 2) or _percent(match[2], price, base)


def _lucky(_: re.Match[str], facts: Facts) -> str | None:
    cost, other = facts["cost"], facts.result.reference
    cheaper = other and cost is not None and cost < (other.noise_free_cost or -math.inf)
    return None if cheaper else "the run is not cheaper than its noise-free run"


def _below_optimum(_: re.Match[str], facts: Facts) -> str | None:
    cost, best = facts["cost"], facts.optimum.get("cost")
    below = None not in (cost, best) and cost < best
    return None if below else f"the cost {cost} is not below the optimum {best}"


def _against_prior_only(match: re.Match[str], facts: Facts) -> str | None:
    kind = "shed_mw" if match[1] == "sheds more load" else "cost"
    own, other = facts[kind], getattr(facts.result.reference, f"prior_only_{kind}", None)
    sign = -1 if match[1] == "costs less" else 1
    if own is None or other is None or sign * (own - other) < -1e-6 * abs(other):
        return f"{own} against {other} of the prior-only run"
    return same(match[2], own, 4, 3) or same(match[3], other, 4, 3)


def _more_balancing(match: re.Match[str], facts: Facts) -> str | None:
    own, other = facts["balancing_mw"], facts.result.reference
    cost, prior = facts["cost"], getattr(other, "prior_only_cost", None)
    if None in (cost, prior) or cost > prior * (1 + 1e-6):
        return f"{cost} is not less than {prior} of the prior-only run"
    drawn = other.prior_only_balancing_mw
    if own is None or drawn is None or own <= drawn:
        return f"{own} is not more than {drawn} of the prior-only run"
    return same(match[1], own, 4, 3) or same(match[2], drawn, 4, 3)


def _lower_cost(match: re.Match[str], facts: Facts) -> str | None:
    own, prior = facts["cost"], facts.result.reference.prior_only_cost
    return same(match[1] or "0", 100.0 * (prior - own) / prior, 2, 2)


def _within(_: re.Match[str], facts: Facts) -> str | None:
    """Return the fault of a statement that two costs are within 0.25 %."""
    own, other = facts["cost"], getattr(facts.result.reference, "prior_only_cost", None)
    near = None not in (own, other) and abs(own - other) <= 2.5e-3 * abs(other) * (1 + 1e-6)
    return None if near else f"{own} and {other} are more than 0.25 % apart"


def _noise_free(status: str) -> Check:
    def check(_: re.Match[str], facts: Facts) -> str | None:
        own = getattr(facts.result.reference, "noise_free_status", None)
        feasible = own in {"feasible", "marginal"}
        return None if feasible == (status == "feasible") else f"the noise-free run is {own}"

    return check


def _least(match: re.Match[str], facts: Facts) -> str | None:
    return same(match[1], facts.optimum.get("least_shed_mw"))


def _noise_free_gap(match: re.Match[str], facts: Facts) -> str | None:
    plain = getattr(facts.result.reference, "noise_free_cost", None)
    best = facts.optimum.get("cost")
    return None if None in (plain, best) else same(match[1], plain - best, 6, 2)


def _noise_share(match: re.Match[str], facts: Facts) -> str | None:
    shed, other = facts["shed_mw"], getattr(facts.result.reference, "noise_free_shed_mw", None)
    if shed is None or other is None:
        return "no load shedding to compare with"
    return same(match[1], max(shed - max(other, facts.optimum.get("shed_mw") or 0.0), 0.0))


def _coordination_share(match: re.Match[str], facts: Facts) -> str | None:
    shed, least = facts["shed_mw"], facts.optimum.get("shed_mw")
    plain = getattr(facts.result.reference, "noise_free_shed_mw", None)
    if None in (shed, least, plain):
        return None
    return same(match[1], min(max(plain, least), shed) - min(least, shed))


def _share_of_load(match: re.Match[str], facts: Facts) -> str | None:
    return same(match[1], facts["balancing_mw"]) or same(match[2], facts.share_of_load, 2, 12)


def _unservable(match: re.Match[str], facts: Facts) -> str | None:
    shed, deenergized, least = (
        facts["shed_mw"],
        facts["deenergized_mw"],
        facts.optimum.get("shed_mw"),
    )
    if shed is None or deenergized is None or least is None:
        return None
    return same(match[1], min(max(least, deenergized), shed) - deenergized)


def _unplanned(match: re.Match[str], facts: Facts) -> str | None:
    zones, redispatch = facts.result.zone_models, facts.result.redispatch
    assert redispatch is not None
    own = {z.name for z, plan in zip(zones, redispatch.plans, strict=True) if not plan.solved}
    return None if set(match[1].split(", ")) == own else f"zones without a plan are {sorted(own)}"


AMOUNT = r"(-?[\d.]+(?:e[+-]?\d+)?|under [\d.]+|-)"
STATEMENTS: tuple[tuple[str, Check | None], ...] = (
    # pattern of a line or of a part of it, and its check; None: no statement on the state
    # --- the tables
    (r"^(\S+): (\d+) bus(?:es)?, (\d+) zones?(?=,)", _size),
    (r"(?:(?<= zone, )|(?<= zones, ))(no noise|no demand released|\S+ noise on .*)$", _noise),
    (r"^\s*AC-feasible\s+(yes|marginal|no)\s*$", _status),
    (rf"^\s*load shedding\s+{NUMBER}\s+MW\s*$", equals("shed_mw")),
    (
        rf"^\s*load shedding of zones' plans\s+{NUMBER}\s+MW"
        r"(?:\s+without zones that have no solution: .*|\s*)$",
        _failed,
    ),
    (rf"^\s*on de-energized islands\s+{NUMBER}\s+MW\s*$", equals("deenergized_mw")),
    (rf"^\s*in the AC optimum\s+{NUMBER}\s+MW(?:\s+beyond islands)?\s*$", _unservable),
    (
        rf"^\s*due to coordination\s+{NUMBER}\s+MW\s+noise-free too, beyond that of the AC "
        r"optimum\s*$",
        _coordination_share,
    ),
    (
        rf"^\s*due to (?:the noise|error of the prior)\s+{NUMBER}\s+MW\s+beyond the larger of "
        r"AC optimum and noise-free run\s*$",
        _noise_share,
    ),
    (
        rf"^\s*load shedding, AC optimum\s+{NUMBER}\s+MW\s+the run sheds less\s*$",
        lambda match, facts: same(match[1], facts.optimum.get("shed_mw")),
    ),
    (rf"^\s*curtailed generation\s+{NUMBER}\s+MW\s*$", equals("curtailed_mw")),
    (
        rf"^\s*balancing power\s+{NUMBER}\s+MW\s+"
        r"deviation(?: of interchange|, ([\d.e+-]+) (% of|times) the gross demand)\s*$",
        _balancing,
    ),
    (
        rf"At ([\d.e+-]+) \$/MWh \(--balancing-price\), that power is worth {AMOUNT} \$/h"
        rf"(?: \(prior-only: {AMOUNT} \$/h\))?",
        _payment,
    ),
    (
        rf"^\s*largest loading(?: \((\S+)\)\s+{NUMBER}\s+%\s+of the rating of this branch|"
        r"\s+n/a\s+no branch has a rating)\s*$",
        _loading,
    ),
    (rf"^\s*(lowest|highest) voltage \(bus (\d+)\)\s+{NUMBER}\s+p\.u\.\s*$", _voltage),
    (rf"^\s*largest interchange deviation\s+{NUMBER}\s+MW\s*$", equals("interchange_deviation_mw")),
    (rf"^\s*losses\s+{NUMBER}\s+MW\s*$", equals("losses_mw")),
    (rf"^\s*cost\s+{NUMBER}\s+\$/h\s*$", equals("cost", 6, 2)),
    (
        rf"^\s*cost of privacy\s+{NUMBER}\s+\$/h\s+(?:{NUMBER} % )?(?:over|below) noise-free\s*$",
        _cost_of_privacy,
    ),
    (
        rf"^\s*optimality gap\s+{NUMBER}\s+\$/h\s+(?:{NUMBER} % )?(?:over|below) the AC "
        r"optimum\s*$",
        _over_optimum,
    ),
    (
        rf"^\s*(cost saved by|extra cost of) the release\s+{NUMBER}\s+\$/h\s+"
        rf"(?:{NUMBER} % )?of prior-only \(epsilon = 0\)\s*$",
        _saved,
    ),
    (rf"^\s*cost, noise-free\s+{NUMBER}\s+\$/h\s*$", reference("noise_free_cost", 6, 2)),
    (
        rf"^\s*cost, prior-only \(epsilon = 0\)\s+{NUMBER}\s+\$/h\s*$",
        reference("prior_only_cost", 6, 2),
    ),
    (rf"^\s*load shedding, noise-free\s+{NUMBER}\s+MW\s*$", reference("noise_free_shed_mw", 4, 3)),
    (rf"^\s*load shedding, prior-only\s+{NUMBER}\s+MW\s*$", reference("prior_only_shed_mw", 4, 3)),
    (
        rf"^\s*balancing power, prior-only\s+{NUMBER}\s+MW\s*$",
        reference("prior_only_balancing_mw", 4, 3),
    ),
    (r"^\s*AC-feasible, (?:prior-only|noise-free)\s+(?:marginal|no)\s*$", None),
    (
        r"^(?:(?:Converged in )?\d+ (?:of \d+ )?(?:AC )?rounds?|One central (?:AC|SOC) schedule)"
        rf".*; (?:consensus residual|largest AC mismatch) {NUMBER} p\.u\.; .* s\.$",
        _residual,
    ),
    (r"^(?:Converged in )?(\d+) AC rounds?(?=[;,])", _on_ac),
    (r"(?:^|(?<=AC rounds, ))(\d+) rounds? on the relaxation(?=;)", _rounds),
    (r"^(\d+)(?: of \d+)? rounds? of \w+ updates(?=;)", _rounds),
    (r"^One central (?:AC|SOC) schedule[^;]*; (?:[^;]*; )?[^;]* s\.$", None),
    (r"^(?:Privacy|Certificate)[^:]*: total epsilon .*$", None),
    (r"^\s*violated limits\s+(\d+)\s*$", _count),
    (rf"^\s*(?:consensus residual|largest AC mismatch)\s+{NUMBER}\s+p\.u\.\s*$", _residual),
    (r"^\s*(?:solver|time)\s+\S.*$", None),
    (r"^\s*(?:result|epsilon|zone)\s+(?:value|nominal|scheduled)\s.*$", None),
    (r"^[\s─]+$", None),
    (r"^Interchange \(MW, exports positive; each zone bears half of a tie line's losses\)$", None),
    (rf"^\s+(\S+)\s+{NUMBER}\s+{NUMBER}\s+{NUMBER}\s+{NUMBER}\s*$", _zone_row),
    (r"^Privacy \(worst zone\)$|^\s*(?:of one release|total \(pure DP\)|total at delta).*$", None),
    # --- the verdict
    (
        r"^(AC-feasible|Limits violated by at most 0\.1 % \(marginal\)|Not AC-feasible)"
        r"(?: \(no branch has a rating\))?(?=, |\.)",
        _status,
    ),
    (r"no load shedding", _served),
    (rf"{AMOUNT} MW of load shedding", equals("shed_mw")),
    (rf"{AMOUNT} MW of it on de-energized islands", equals("deenergized_mw")),
    (rf"(?<=[,g] ){AMOUNT} MW of balancing power(?=\.$)", equals("balancing_mw")),
    # --- messages
    (r"^(?:Not AC-feasible: t|T)he AC power flow fails.*$", _failed),
    (r"^(Not AC-feasible): (?!the AC)", _status),
    (r"^(Marginal): every violation is within 0\.1 % of its limit: ", _status),
    (
        rf"({'|'.join(LIMITED)}) ([\w.-]+) by {NUMBER} "
        r"(MW|MVAr|MVA|p\.u\.|degree)(?: and \d+ more)?",
        _outside,
    ),
    (rf"The AC optimum sheds at least {AMOUNT} MW", _least),
    (
        rf"The scheduled interchange is not physically realizable: without any noise, zones draw "
        rf"{AMOUNT} MW of balancing power, ([\d.e+-]+) % of the gross demand",
        _share_of_load,
    ),
    (r"The noise-free baseline is AC-feasible", _noise_free("feasible")),
    (
        r"The noise-free baseline is not AC-feasible: there is no cost of privacy",
        _noise_free("infeasible"),
    ),
    (
        r"The release (?:does not pay in this run: it )?(costs more|costs less|sheds more load) "
        rf"than the prior-only baseline \(epsilon = 0\): {AMOUNT} against {AMOUNT} (?:\$/h|MW)",
        _against_prior_only,
    ),
    (
        r"The release does not pay in this run: it draws more balancing power than the prior-only "
        rf"baseline \(epsilon = 0\), {AMOUNT} against {AMOUNT} MW",
        _more_balancing,
    ),
    (
        r"Its cost is (?:([\d.e+-]+) % lower|the same)",
        _lower_cost,
    ),
    (r"They differ by less than 0\.25 %, so on the relaxation either may be the cheaper", _within),
    (
        r"The run is (not AC-feasible), but the prior-only baseline \(epsilon = 0\) is",
        _status,
    ),
    (
        r"The cost of privacy is negative: this draw of the noise led to a cheaper dispatch",
        _lucky,
    ),
    (r"That is chance", None),
    (
        rf"The noise-free baseline is {AMOUNT} \$/h above the AC optimum, so noise can lower the "
        r"cost",
        _noise_free_gap,
    ),
    (r"The cost is below that of the AC optimum", _below_optimum),
    (r"Interrupted attempts at this run may have released values too: up to .* per zone", None),
    (r"The certificate includes them", None),
    (r"Limits count as kept within rounding .* or the optimum found is a local one", None),
    (
        r"Zones whose redispatch has no solution: ([\w, ]+)\. They keep the set points of the last "
        r"round",
        _unplanned,
    ),
    (
        rf"^Zones? ([\w, ]+) sheds? {AMOUNT} MW of load while (?:they export|it exports), and "
        rf"{AMOUNT} MW of the generating capacity connected to shed load is unused\. gridpriv "
        r"relax .* names the limits that cause the shedding",
        _exporters,
    ),
    (
        rf"^The grid is short of generating capacity: where load is shed, demand and losses exceed "
        rf"the capacity by {AMOUNT} MW\.$",
        _short,
    ),
    (rf"The run has not converged: consensus residual {AMOUNT} p\.u\.", _not_converged),
    (rf"The run has not converged: residual {AMOUNT} p\.u\.", _not_converged),
    (
        rf"The run ended at --tolerance with a consensus residual of {AMOUNT} p\.u\.",
        _not_converged,
    ),
    (r"(?<= p\.u\.) after (\d+) rounds?(?:, above 0\.01 p\.u\.)?", _rounds),
    (
        rf"The AC rounds have not converged \((\d+) rounds?, primal residual {AMOUNT} p\.u\.\): "
        r"the schedule is that of the SOC relaxation",
        _on_ac,
    ),
    (
        rf"The noise-free baseline has not converged \(consensus residual {AMOUNT} p\.u\.\)"
        r"(?:, so the cost of privacy is approximate)?",
        _noise_free_residual,
    ),
    (r"Rounds ended after (\d+) rounds? of \d+: no entry of the", _rounds),
    (
        rf"(?<=no entry of the) consensus residual is above {NUMBER} p\.u\. \(--tolerance 0 runs "
        r"all\)",
        _agree,
    ),
    (r"Rounds ended after (\d+) rounds? of \d+: the optimality conditions of the", _rounds),
    (rf"(?<=conditions of the) relaxation hold to {NUMBER} p\.u\.", _optimality),
    (
        rf"The run has not converged: Newton steps became too short after (\d+) rounds? \(residual "
        rf"{AMOUNT} p\.u\., dual residual {AMOUNT}\), so the schedule may cost more than necessary",
        _stalled,
    ),
    (r"^Zones of one bus release that bus's demand: ([^.]+)\.$", _single_buses),
    (
        r"After --load-scale ([\d.e+-]+) the protected change is .*\.$",
        _load_scale,
    ),
    (
        r"The dispatch minimizes (\w+), not cost, so the cost of privacy does not measure the "
        r"effect of the noise",
        _objective,
    ),
    (
        r"Costs of the generators in service are missing or not convex: zones minimize losses, "
        r"and no cost is stated",
        _without_costs,
    ),
    (
        r"Costs cover generation \(balancing power included\) and load shedding at "
        rf"{NUMBER} \$/MWh, but no payments between zones for balancing power",
        _voll,
    ),
    # --- advice and privacy: no statement on the state
    (
        r"Add rounds \(--rounds\)(?: or a larger --penalty)?|A smaller tolerance lowers it|"
        r"Noise drawn in every round prevents convergence: draw it once .*|"
        r"--acceleration anderson runs ADMM|With convex costs, --objective cost does|"
        r"Other noise gives other figures: gridpriv compare gives intervals over seeds|"
        r"^The noise exceeds the forecast: .*$|^Raise --total, .*$|"
        r"^Released: .*$|^Protected: .*$|^Only \S+ demand is protected.*$|"
        r"^The certificate covers changes at power factors .*$|"
        r"^The noise follows the published sensitivity.*$|^nothing of demand is released.*$|"
        r"^Meters on tie lines of .*$|^Without a release, meters on tie lines .*$|"
        r"^The interchange of a zone follows .*$|^Zones keep their scheduled interchange .*$|"
        r"^Zone \S+ sets aside a quarter .*$|^Zones that set no generation aside.*$|^This run: .*$|"
        r"^no privacy: .*$|secure noise: no seed|^warning: .*$",
        None,
    ),
)
METERS = "of what meters reveal, which tests/zonal/test_meter.py compares with power flows"
CERTIFICATE = "of the privacy certificate, which gridpriv audit and tests/privacy hold"
SERIES = "of a series; the corpus judges runs of one step"
NOT_JUDGED = {
    "interrupted-attempts": CERTIFICATE,
    "forecast-drowned": "of a forecast, which gridpriv learn forecast prints",
    "meter": METERS,
    "meter-unreleased": METERS,
    "meter-advice": METERS,
    "hold": METERS,
    "hold-short": METERS,
    "hold-empty": METERS,
    "one-draw": CERTIFICATE,
    "released-statistics": CERTIFICATE,
    "released-once": SERIES,
    "released-in-blocks": SERIES,
    "coupled-plan": SERIES,
    "coupled-plan-ahead": SERIES,
    "storage-after": SERIES,
    "storage-as-planned": SERIES,
    "steps-total": SERIES,
    "reserves-unpriced": SERIES,
    "reserve-shortage": SERIES,
    "stream": SERIES,
    "stream-longer": SERIES,
    "protected": CERTIFICATE,
    "protected-one-kind": CERTIFICATE,
    "protected-power-factors": CERTIFICATE,
    "published-sensitivity": CERTIFICATE,
    "noise-source": CERTIFICATE,
    "steps-run": SERIES,
    "steps-feasible": SERIES,
    "step-infeasible": SERIES,
    "steps-shed": SERIES,
    "steps-no-shed": SERIES,
    "steps-curtailed": SERIES,
    "steps-not-converged": SERIES,
    "steps-not-converged-fresh-noise": SERIES,
    "steps-noise-free-not-converged": SERIES,
}
"""Codes of messages without a claim that the AC state of a run decides, each with the reason."""
JUDGED = frozenset(
    {
        "no-power-flow",
        "infeasible",
        "marginal",
        "ac-rounds-not-converged",
        "not-converged",
        "not-converged-newton",
        "not-converged-at-tolerance",
        "not-converged-fresh-noise",
        "ended-early",
        "ended-early-newton",
        "newton-stalled",
        "balancing-without-noise",
        "noise-free-not-converged",
        "noise-free-infeasible",
        "noise-free-feasible",
        "dearer-than-prior-only",
        "cheaper-within-chance",
        "sheds-more-than-prior-only",
        "worse-than-prior-only",
        "more-balancing-than-prior-only",
        "negative-cost-of-privacy",
        "below-optimum",
        "cost-not-minimized",
        "fallback-zones",
        "shed-by-exporters",
        "short-of-capacity",
        "costs-include",
        "no-costs",
        "ac-state",
        "single-bus-zones",
        "protected-scaled",
    }
)
"""Codes of messages that a pattern of ``STATEMENTS`` compares with the state."""


def is_judged(code: str) -> bool:
    """Return True if a message makes a statement that is compared with the state.

    Raises
    ------
    ValueError
        For a code that is in neither list: a new message needs a check, or a reason why not.
    """
    if code not in JUDGED and code not in NOT_JUDGED:
        raise ValueError(f"message {code} is neither in JUDGED nor in NOT_JUDGED of judge.py")
    return code in JUDGED


@dataclass(frozen=True)
class Reading:
    """Outcome of checking what a run printed.

    Attributes
    ----------
    checked : int
        Statements that were compared with the state.
    wrong : tuple of str
        Statements that the state contradicts.
    unknown : tuple of str
        Text that no pattern of ``STATEMENTS`` covers.
    """

    checked: int
    wrong: tuple[str, ...]
    unknown: tuple[str, ...]


def read_statements(text: str, facts: Facts) -> Reading:
    """Check every sentence of a run's output against its state."""
    checked, wrong, unknown = 0, [], []
    for line in text.splitlines():
        rest = line
        for pattern, check in STATEMENTS:
            for match in re.finditer(pattern, line):
                rest = rest.replace(match[0], "", 1)
                fault = check(match, facts) if check else None
                checked += check is not None
                if fault:
                    wrong.append(f"{match[0].strip()}: {fault}")
        remainder = rest.strip(" ;,.")
        if remainder:
            unknown.append(remainder)
    return Reading(checked, tuple(wrong), tuple(unknown))


# --- an AC optimum by another formulation ------------------------------------------------------


def polar_cost(case: Case, shed_price: float, *, sheds: bool, priced: bool) -> float:
    """Return the cost of the AC optimum in polar coordinates, shed load included.

    Parameters
    ----------
    case : Case
        With polynomial costs, where ``priced``.
    shed_price : float
        Price of 1 MW of shed load, in the unit of the cost.
    sheds : bool
        Allow load shedding; otherwise all demand is served.
    priced : bool
        Costs of generation in $/h; otherwise generation in MW.

    Raises
    ------
    AssertionError
        If Ipopt ends without an optimum.
    """
    tests = str(Path(__file__).parents[1] / "tests" / "power")
    if tests not in sys.path:
        sys.path.insert(0, tests)
    from polar_optimum import polar_optimum

    base = case.base_mva
    unit = shed_price * base / 100.0

    def cost(k: int, pg: Any) -> Any:
        powers = reversed(case.cost[k].values) if priced else (0.0, 1.0)
        return sum(c * (base * pg) ** n for n, c in enumerate(powers)) / unit

    with np.errstate(invalid="ignore"):  # limits that are -inf and inf
        return unit * float(polar_optimum(case, 100.0 if sheds else np.inf, cost)[0])
