"""The SOC-relaxed model of a zone in Pyomo: the reference of ``compile_zone``.

It shares only the variables' order with the compiled program: ``test_program.py`` compares every
matrix with Pyomo's matrix of this model.

One small function per family, in the order of the equations of Ryu and Kim (2022), appendix
D. Their (D.2f)-(D.2i) print w^RI_ji + w^RI_ij where the power-flow equations have the
difference; the difference is used here, and a test compares it with AC power flows.

Symbols: ``w`` = |V_i|^2, ``wr`` and ``wi`` = real and imaginary part of V_i V_j* for each
connected pair i < j; ``p_from, q_from, p_to, q_to`` flows into each branch at its ends;
``pg, qg`` generation, ``pc`` a piecewise linear cost over c0. Per unit. Demand (``pd, qd``) is a
mutable parameter and appears in the objective only: the feasible set is public.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyomo.environ as pyo

from gridpriv.grid.network import branch_admittance
from gridpriv.power.objective import per_unit_polynomial, piecewise_lines
from gridpriv.power.zone import FLOWS, Zone


def zone_model(zone: Zone) -> pyo.ConcreteModel:
    """Return the Pyomo model of a zone: feasible set W_z and objective, at no demand."""
    m = pyo.ConcreteModel(name=f"zone {zone.name}")
    declare_voltage_products(m, zone)
    declare_flows(m, zone)
    declare_generation(m, zone)
    declare_piecewise_cost(m, zone)
    constrain_flows(m, zone)
    constrain_angles(m, zone)
    constrain_angle_envelope(m, zone)
    constrain_thermal(m, zone)
    constrain_soc(m, zone)
    declare_demand(m, zone)
    express_imbalance(m, zone)
    express_cost(m, zone)
    minimise(m, zone)
    return m


def variables(m: pyo.ConcreteModel) -> list[Any]:
    """Return the variables of a model in the order of :attr:`Zone.coordinates`."""
    families = ("w", "wr", "wi", *FLOWS, "pg", "qg", "pc")
    return [var for family in families for var in getattr(m, family).values()]


def declare_voltage_products(m: pyo.ConcreteModel, zone: Zone) -> None:
    """Declare w within (D.2d), and wr and wi within the bounds that voltages and angles imply."""
    case, network = zone.network.case, zone.network
    lower, upper = (case.vmin**2).tolist(), (case.vmax**2).tolist()
    m.buses = pyo.Set(initialize=zone.buses.tolist(), ordered=True)
    m.pairs = pyo.Set(initialize=zone.pairs.tolist(), ordered=True)
    m.w = pyo.Var(
        m.buses,
        bounds=lambda _, i: (lower[i], upper[i]),
        initialize=lambda _, i: min(max(1.0, lower[i]), upper[i]),
    )
    bounds = {k: _product_bounds(network, k) for k in zone.pairs.tolist()}
    m.wr = pyo.Var(
        m.pairs,
        bounds=lambda _, k: bounds[k][:2],
        initialize=lambda _, k: min(max(1.0, bounds[k][0]), bounds[k][1]),
    )
    m.wi = pyo.Var(
        m.pairs,
        bounds=lambda _, k: bounds[k][2:],
        initialize=lambda _, k: min(max(0.0, bounds[k][2]), bounds[k][3]),
    )


def _product_bounds(network: Any, k: int) -> tuple[float, float, float, float]:
    """Return bounds of wr and wi of a pair: |V_i||V_j| times the range of cosine and sine."""
    case = network.case
    i, j = int(network.pair_i[k]), int(network.pair_j[k])
    low, high = (float(limits[k]) for limits in network.angle_limits)
    least = float(case.vmin[i] * case.vmin[j])
    most = float(case.vmax[i] * case.vmax[j])
    if not (math.isfinite(low) and math.isfinite(high)):
        return -most, most, -most, most
    cos_low = math.cos(max(abs(low), abs(high)))
    cos_high = 1.0 if low <= 0.0 <= high else math.cos(min(abs(low), abs(high)))
    sin_low, sin_high = math.sin(low), math.sin(high)
    return (
        least * cos_low,
        most * cos_high,
        sin_low * (most if sin_low < 0 else least),
        sin_high * (most if sin_high > 0 else least),
    )


def declare_flows(m: pyo.ConcreteModel, zone: Zone) -> None:
    """Declare the four flows of each branch, free: (D.2f)-(D.2j) bound them."""
    m.branches = pyo.Set(initialize=zone.branches.tolist(), ordered=True)
    for family in FLOWS:
        setattr(m, family, pyo.Var(m.branches, initialize=0.0))


def declare_generation(m: pyo.ConcreteModel, zone: Zone) -> None:
    """Declare pg and qg within (D.2e)."""
    case = zone.network.case
    m.gens = pyo.Set(initialize=zone.gens.tolist(), ordered=True)
    m.pg = pyo.Var(m.gens, bounds=lambda _, g: _box(case.pmin[g], case.pmax[g]))
    m.qg = pyo.Var(m.gens, bounds=lambda _, g: _box(case.qmin[g], case.qmax[g]))


def declare_piecewise_cost(m: pyo.ConcreteModel, zone: Zone) -> None:
    """Declare pc above every line of a generator's piecewise linear cost over c0."""
    case, unit = zone.network.case, zone.network.objective.cost_unit
    m.priced = pyo.Set(initialize=zone.priced.tolist(), ordered=True)
    m.pc = pyo.Var(m.priced)
    m.piecewise_cost = pyo.ConstraintList()
    for g in m.priced:
        for slope, fixed in zip(*piecewise_lines(case.cost[g], case.base_mva), strict=True):
            m.piecewise_cost.add(m.pc[g] >= (float(slope) * m.pg[g] + float(fixed)) / unit)


def _box(low: Any, high: Any) -> tuple[float | None, float | None]:
    return (
        float(low) if np.isfinite(low) else None,
        float(high) if np.isfinite(high) else None,
    )


def constrain_flows(m: pyo.ConcreteModel, zone: Zone) -> None:
    """Ohm's law of each branch in voltage products, (D.2f)-(D.2i) with their sign corrected."""
    case, network = zone.network.case, zone.network
    y = branch_admittance(case)
    ff, ft, tf, tt = (a.tolist() for a in (y.ff, y.ft, y.tf, y.tt))
    f_bus, t_bus, pair = case.f_bus.tolist(), case.t_bus.tolist(), network.pair_of.tolist()
    # V_f V_t* = wr + j wi where the branch runs from i to j, its conjugate where it does not
    sign = np.where(network.forward, 1.0, -1.0).tolist()

    def p_from(m: Any, k: int) -> Any:
        wf, wr, wi = m.w[f_bus[k]], m.wr[pair[k]], sign[k] * m.wi[pair[k]]
        return m.p_from[k] == ff[k].real * wf + ft[k].real * wr + ft[k].imag * wi

    def q_from(m: Any, k: int) -> Any:
        wf, wr, wi = m.w[f_bus[k]], m.wr[pair[k]], sign[k] * m.wi[pair[k]]
        return m.q_from[k] == -ff[k].imag * wf - ft[k].imag * wr + ft[k].real * wi

    def p_to(m: Any, k: int) -> Any:
        wt, wr, wi = m.w[t_bus[k]], m.wr[pair[k]], sign[k] * m.wi[pair[k]]
        return m.p_to[k] == tt[k].real * wt + tf[k].real * wr - tf[k].imag * wi

    def q_to(m: Any, k: int) -> Any:
        wt, wr, wi = m.w[t_bus[k]], m.wr[pair[k]], sign[k] * m.wi[pair[k]]
        return m.q_to[k] == -tt[k].imag * wt - tf[k].imag * wr - tf[k].real * wi

    m.ohm_p_from = pyo.Constraint(m.branches, rule=p_from)
    m.ohm_q_from = pyo.Constraint(m.branches, rule=q_from)
    m.ohm_p_to = pyo.Constraint(m.branches, rule=p_to)
    m.ohm_q_to = pyo.Constraint(m.branches, rule=q_to)


def constrain_angles(m: pyo.ConcreteModel, zone: Zone) -> None:
    """Angle differences where limits are given, (D.2k): tan(min) wr <= wi <= tan(max) wr."""
    low, high = zone.network.angle_limits
    pairs = zone.pairs
    at_least = pairs[np.isfinite(low[pairs])].tolist()
    at_most = pairs[np.isfinite(high[pairs])].tolist()
    m.angle_min = pyo.Constraint(at_least, rule=lambda m, k: m.wi[k] >= math.tan(low[k]) * m.wr[k])
    m.angle_max = pyo.Constraint(at_most, rule=lambda m, k: m.wi[k] <= math.tan(high[k]) * m.wr[k])


def constrain_angle_envelope(m: pyo.ConcreteModel, zone: Zone) -> None:
    """Add the lifted nonlinear cuts on V_i V_j* from voltage and angle bounds.

    Coffrin, Hijazi and Van Hentenryck (arXiv:1512.04644), for pairs with both angle limits. They
    hold for every AC point within the bounds and tighten the cone where limits are narrow;
    PowerModels' SOC relaxation, which published bounds come from, has them.
    """
    case, network = zone.network.case, zone.network
    low, high = network.angle_limits
    limited = np.isfinite(low[zone.pairs]) & np.isfinite(high[zone.pairs])
    m.limited = pyo.Set(initialize=zone.pairs[limited].tolist(), ordered=True)

    def cut(m: Any, k: int, vi: float, vj: float, sign: float) -> Any:
        i, j = int(network.pair_i[k]), int(network.pair_j[k])
        middle, cosine = float(high[k] + low[k]) / 2, math.cos(float(high[k] - low[k]) / 2)
        sum_i, sum_j = float(case.vmin[i] + case.vmax[i]), float(case.vmin[j] + case.vmax[j])
        gap = float(case.vmin[i] * case.vmin[j] - case.vmax[i] * case.vmax[j])
        along = math.cos(middle) * m.wr[k] + math.sin(middle) * m.wi[k]
        value = vj * cosine * sum_j * m.w[i] + vi * cosine * sum_i * m.w[j]
        return sum_i * sum_j * along - value >= sign * vi * vj * cosine * gap

    def at_most(m: Any, k: int) -> Any:
        i, j = int(network.pair_i[k]), int(network.pair_j[k])
        return cut(m, k, float(case.vmax[i]), float(case.vmax[j]), 1.0)

    def at_least(m: Any, k: int) -> Any:
        i, j = int(network.pair_i[k]), int(network.pair_j[k])
        return cut(m, k, float(case.vmin[i]), float(case.vmin[j]), -1.0)

    m.envelope_above = pyo.Constraint(m.limited, rule=at_most)
    m.envelope_below = pyo.Constraint(m.limited, rule=at_least)


def constrain_thermal(m: pyo.ConcreteModel, zone: Zone) -> None:
    """Apparent power limits at both ends of rated branches, (D.2j)."""
    rate = zone.network.case.rate
    rated = [k for k in zone.branches.tolist() if 0 < rate[k] < np.inf]
    square = {k: float(rate[k]) ** 2 for k in rated}
    m.thermal_from = pyo.Constraint(
        rated, rule=lambda m, k: m.p_from[k] ** 2 + m.q_from[k] ** 2 <= square[k]
    )
    m.thermal_to = pyo.Constraint(
        rated, rule=lambda m, k: m.p_to[k] ** 2 + m.q_to[k] ** 2 <= square[k]
    )


def constrain_soc(m: pyo.ConcreteModel, zone: Zone) -> None:
    """Relax V_i V_j* of each pair to |V_i V_j*|^2 <= |V_i|^2 |V_j|^2 of each pair, (D.2l)."""
    i, j = zone.network.pair_i.tolist(), zone.network.pair_j.tolist()
    m.soc = pyo.Constraint(
        m.pairs, rule=lambda m, k: m.wr[k] ** 2 + m.wi[k] ** 2 <= m.w[i[k]] * m.w[j[k]]
    )


def declare_demand(m: pyo.ConcreteModel, zone: Zone) -> None:
    """Declare the zone's demand: mutable, zero until a solve sets it."""
    m.own = pyo.Set(initialize=zone.own.tolist(), ordered=True)
    m.pd = pyo.Param(m.own, initialize=0.0, mutable=True)
    m.qd = pyo.Param(m.own, initialize=0.0, mutable=True)


def express_imbalance(m: pyo.ConcreteModel, zone: Zone) -> None:
    """Imbalance of each own bus, (D.2b)-(D.2c): positive is demand that is not served."""
    case = zone.network.case
    leaving: dict[int, list[tuple[str, int]]] = {i: [] for i in zone.own.tolist()}
    for k in zone.branches.tolist():
        for end, bus in (("from", int(case.f_bus[k])), ("to", int(case.t_bus[k]))):
            if bus in leaving:
                leaving[bus].append((end, k))
    at: dict[int, list[int]] = {i: [] for i in zone.own.tolist()}
    for g in zone.gens.tolist():
        at[int(case.gen_bus[g])].append(g)
    gs, bs = case.gs.tolist(), case.bs.tolist()

    def p(m: Any, i: int) -> Any:
        flows = sum(getattr(m, f"p_{end}")[k] for end, k in leaving[i])
        return flows - sum(m.pg[g] for g in at[i]) + gs[i] * m.w[i] + m.pd[i]

    def q(m: Any, i: int) -> Any:
        flows = sum(getattr(m, f"q_{end}")[k] for end, k in leaving[i])
        return flows - sum(m.qg[g] for g in at[i]) - bs[i] * m.w[i] + m.qd[i]

    m.p_imbalance = pyo.Expression(m.own, rule=p)
    m.q_imbalance = pyo.Expression(m.own, rule=q)


def express_cost(m: pyo.ConcreteModel, zone: Zone) -> None:
    """Cost of generation over c0: polynomials of pg, and pc; for losses, all that is generated."""
    case, objective = zone.network.case, zone.network.objective
    total: Any = 0.0
    if objective.kind == "cost":
        for g in set(zone.gens.tolist()).difference(zone.priced.tolist()):
            square, slope, fixed = per_unit_polynomial(case.cost[g], case.base_mva)
            total += (square * m.pg[g] ** 2 + slope * m.pg[g] + fixed) / objective.cost_unit
        total += sum(m.pc.values())
    if objective.kind == "losses":
        total += sum(m.pg.values())
    m.cost = pyo.Expression(expr=total)


def minimise(m: pyo.ConcreteModel, zone: Zone) -> None:
    """Minimise cost and the weighted sum of squared imbalances, (D.2a)."""
    m.squared_imbalance = pyo.Expression(
        expr=sum(m.p_imbalance[i] ** 2 + m.q_imbalance[i] ** 2 for i in m.own)
    )
    weight = zone.network.objective.weight
    m.objective = pyo.Objective(expr=m.cost + weight * m.squared_imbalance)
