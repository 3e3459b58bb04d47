"""Rows of the tables of a run on a grid: every figure, its unit, and who may see it."""

from __future__ import annotations

from typing import Any

from gridpriv.core.tables import (
    Column,
    Flag,
    Number,
    Row,
    TableSchema,
    Text,
    key,
    known,
    like,
    private,
    released,
    setting_columns,
)
from gridpriv.privacy.statement import ZoneCertificate
from gridpriv.zonal.settings import Settings

LIMIT = "Kind: generator P, generator Q, line, voltage or angle"
ELEMENT = "Element: generator row, branch row or bus number"


class OfZone(Row):
    """One zone."""

    zone: Text = key("Zone: name of the zone in the zone map")


class OfBus(Row):
    """One bus."""

    bus: Number = key("Bus: bus number in the case")


class OfBranch(Row):
    """One branch."""

    from_bus: Number = key("From bus: number of the branch's first end")
    to_bus: Number = key("To bus: number of the branch's second end")


class OfStep(Row):
    """One step of a series."""

    step: Text = key("Step: name of the step in the series")


class InUnit(Row):
    """A figure with its unit."""

    unit: Text = key("Unit: unit of the value in the same row")


class PlanBalance(Row):
    """Balance of the plan of the last round with true demand: not load shedding."""

    plan_shortage_mw: Number = private(
        "Shortage of the plan: active demand above the supply of the last round's plan, before "
        "redispatch; with noise above 0 even where no load is shed; negative at a bus with "
        "surplus",
        at="final.plan_shortage_mw",
    )
    plan_surplus_mw: Number = private(
        "Surplus of the plan: supply of the last round's plan above active demand, before "
        "redispatch",
        at="final.plan_surplus_mw",
    )
    plan_shortage_mvar: Number = private(
        "Reactive shortage of the plan: reactive demand above supply",
        at="final.plan_shortage_mvar",
    )
    plan_surplus_mvar: Number = private(
        "Reactive surplus of the plan: reactive supply above demand"
    )


class PlanCost(Row):
    """Objective of the plans of all zones in a round."""

    objective: Number = private(
        "Squared imbalance: squared imbalance at true demand, the objective of --objective "
        "imbalance",
        "p.u. squared",
        at="final.objective",
    )
    cost: Number = private("Cost of the plan: generation cost of the last round's plan", "$/h")


class Plans(PlanBalance, PlanCost):
    """Sum of the plans of all zones in a round."""


class Residuals(Row):
    """Residuals of the consensus."""

    consensus_residual: Number = released(
        "Residual: consensus residual (2-norm of w less what zones sent), or the largest AC "
        "mismatch of rounds on the AC equations",
        "p.u.",
        at="final.consensus_residual",
    )
    consensus_residual_max: Number = released(
        "Largest residual: largest consensus residual of one coupling variable", "p.u."
    )
    dual_residual: Number = released(
        "Dual residual: 2-norm of rho times the change of w, in multiples of the mean marginal "
        "cost; on the AC equations the largest component of the Lagrangian's gradient"
    )


class RoundRow(Residuals, Plans, name="rounds"):
    """One round of one run."""

    round: Number = key("Round: number of the round, from 1")
    noise_magnitude: Number = private("Noise magnitude: sum of |noise| over coordinates", "p.u.")
    penalty_min: Number = released("Least penalty: smallest rho of the round")
    penalty_max: Number = released("Largest penalty: largest rho of the round")
    solver_iterations: Number = private("Solver iterations: solver iterations, sum over zones")
    solver_retries: Number = private("Solver retries: solves tried again", at="solver.failures")
    seconds: Number = private("Time: wall-clock time")


class ZoneSize(OfZone, name="zones"):
    """One zone."""

    buses: Number = known("Buses: number of buses")
    variables: Number = known("Variables: number of variables of the zone's local problem")
    shared: Number = known("Shared: number of coupling variables")
    tie_lines: Number = known("Tie lines: branches with one end in the zone")
    generators: Number = known("Generators: number of generators")
    connected: Flag = known("Connected: connectedness of the zone's buses")
    share_of_mean: Number = known("Share of the mean size: number of buses over the zones' mean")
    capacity_mw: Number = known("Capacity: capacity of the zone's generators")


class ZoneRow(ZoneSize, PlanBalance, name="zones"):
    """One zone of one run, after the last round."""

    objective: Number = like(Plans, "objective")
    cost: Number = like(Plans, "cost")
    load_mw: Number = private("Load: total active demand")


class SettledFigures(Row):
    """The AC state after redispatch, in short."""

    ac_feasible: Flag = private(
        "AC-feasible: flag of an AC state without violated limits", at="final.physical.ac_feasible"
    )
    cost: Number = private(
        "Cost: cost of generation and load shedding (at voll), without payments for balancing "
        "power; none if the state is infeasible",
        "$/h",
        at="final.physical.cost",
    )
    balancing_mw: Number = private(
        "Balancing power: sum over zones of exports below, or imports above, the scheduled "
        "interchange; the deviations of the other zones have the same sum",
        at="final.physical.balancing_mw",
    )


class BusRow(OfBus, OfZone, name="buses"):
    """One bus of one run."""

    pd_mw: Number = private("Active demand: active demand of the bus")
    qd_mvar: Number = private("Reactive demand: reactive demand of the bus")
    plan_shortage_mw: Number = like(PlanBalance, "plan_shortage_mw")
    plan_shortage_mvar: Number = like(PlanBalance, "plan_shortage_mvar")
    vm_pu: Number = private("Voltage: voltage magnitude in the last round's plan")
    redispatch_shed_mw: Number = private(
        "Load shedding: active demand shed after AC redispatch",
        at="final.physical.shed_mw",
    )
    redispatch_shed_mvar: Number = private(
        "Reactive load shedding: reactive demand of the bus that is shed after zone redispatch"
    )


class BusPrice(OfBus, OfZone, name="zone_prices"):
    """One bus, in its zone's redispatch; no nodal price (LMP) of the grid."""

    p_price: Number = private(
        "Active price: change of the zone's redispatch cost per MW of active demand; includes the "
        "balancing price where the zone deviates from its schedule, so it is no nodal price (LMP)"
    )
    p_unit: Text = key("Unit: unit of the active price in the same row")
    q_price: Number = private("Reactive price: change of the redispatch cost per MVAr of demand")
    q_unit: Text = key("Reactive unit: unit of the reactive price in the same row")


class TiePrice(OfZone, OfBranch, InUnit, name="tie_prices"):
    """One flow on a tie line, as one zone prices it after the last round."""

    branch_row: Number = key("Branch: 1-based row of the source")
    flow: Text = key("Flow: direction and end of the flow: p_from, q_from, p_to or q_to")
    price: Number = released("Price: dual of the flow's consensus constraint")


class Limited(Row):
    """One limit of the settled grid."""

    kind: Text = private(LIMIT)
    element: Any = private(ELEMENT)
    limit: Text = private("Limit: side of the limit, lower or upper")
    at: Text = private("At: bus numbers of the element")
    amount: Number = private("Amount: amount beyond the limit; 0 at the limit")


class BindingLimit(InUnit, Limited, name="binding"):
    """One limit that the dispatch after local redispatch stands at."""

    value: Number = private("Value: value of the limited quantity")
    bound: Number = private("Bound: limit of the quantity")


class StateRow(Row):
    """State of the grid; signs and names are pandapower's."""

    index: Number = key("Index: bus number, or 1-based row of the source")


class ResBus(StateRow, name="res_bus"):
    """One bus: state of the dispatch; signs and names are pandapower's."""

    vm_pu: Number = private("Voltage: voltage magnitude")
    va_degree: Number = private("Angle: voltage angle of the bus")
    p_mw: Number = private("Active power: active power drawn from the grid by the bus")
    q_mvar: Number = private("Reactive power: reactive power drawn from the grid by the bus")


class ResLine(StateRow, OfBranch, name="res_line"):
    """One branch or transformer: state of the dispatch; signs and names are pandapower's."""

    p_from_mw: Number = private("Active flow, from: active power into the from end")
    q_from_mvar: Number = private("Reactive flow, from: reactive power into the from end")
    i_from_ka: Number = private("Current, from: current at this end; empty without base voltage")
    vm_from_pu: Number = private("Voltage, from: voltage magnitude at the from end")
    va_from_degree: Number = private("Angle, from: voltage angle at the from end")
    p_to_mw: Number = private("Active flow, to: active power into the to end")
    q_to_mvar: Number = private("Reactive flow, to: reactive power into the to end")
    i_to_ka: Number = private("Current, to: current at this end; empty without a base voltage")
    vm_to_pu: Number = private("Voltage, to: voltage magnitude at the to end")
    va_to_degree: Number = private("Angle, to: voltage angle at the to end")
    pl_mw: Number = private("Active loss: active power loss of the branch")
    ql_mvar: Number = private("Reactive loss: reactive power loss of the branch")
    i_ka: Number = private("Current: larger current of the two ends; empty without a base voltage")
    loading_percent: Number = private("Loading: apparent power over the rating")


class ResGen(StateRow, OfBus, name="res_gen"):
    """One generator: state of the dispatch; signs and names are pandapower's."""

    p_mw: Number = private("Active power: generated active power")
    q_mvar: Number = private("Reactive power: generated reactive power")
    va_degree: Number = private("Angle: voltage angle of the bus")
    vm_pu: Number = private("Voltage: voltage magnitude of the bus")


class ResShed(StateRow, name="res_shed"):
    """One bus: state of the dispatch; signs and names are pandapower's."""

    p_mw: Number = private("Active shed: active load shedding")
    q_mvar: Number = private("Reactive shed: reactive load shedding")


class Timing(Row, name="timing"):
    """Time of one run."""

    load: float = private("Reading: time to read case and settings", "s")
    build: float = private("Building: time to build the local problems", "s")
    solve: float = private("Solving: time of all rounds", "s")
    total: float = private("Total: time from reading to the last check", "s")


class StoredTiming(Timing, name="timing"):
    """Time of one run; differs in every repetition."""

    process: Number = private("Process: number of the process that ran it")


class Baselines(Row):
    """Figures of other runs of the same zones."""

    noise_free_cost: Number = private("Noise-free cost: cost of the noise-free baseline", "$/h")
    noise_free_shed_mw: Number = private("Noise-free load shedding: load shed without noise")
    noise_free_status: Text = private("Noise-free AC feasibility: status of the noise-free run")
    noise_free_residual: Number = private(
        "Noise-free residual: consensus residual of the noise-free baseline", "p.u."
    )
    prior_only_status: Text = private("Prior-only AC feasibility: status of the run at epsilon = 0")
    prior_only_cost: Number = private("Prior-only cost: cost of the run at epsilon = 0", "$/h")
    prior_only_shed_mw: Number = private("Prior-only load shedding: load shed at epsilon = 0")
    prior_only_balancing_mw: Number = private(
        "Prior-only balancing power: balancing power of the prior-only baseline (epsilon = 0)"
    )


class StepRow(OfStep, Baselines, SettledFigures, name="steps"):
    """One step of a series."""

    status: Text = private("AC state: feasible, marginal (within 0.1 % of the limit) or infeasible")
    violated: Text = private("Violated limits: largest violations, or the reason for no AC state")
    rounds: Number = released(
        "Rounds finished: number of finished rounds of the step, or of the plan that couples it "
        "with others"
    )
    consensus_residual: Number = like(Residuals, "consensus_residual")
    demand_mw: Number = private("Demand: active demand of the grid")
    objective: Number = like(Plans, "objective")
    plan_shortage_mw: Number = like(PlanBalance, "plan_shortage_mw")
    plan_surplus_mw: Number = like(PlanBalance, "plan_surplus_mw")
    redispatch_shed_mw: Number = like(BusRow, "redispatch_shed_mw")
    seconds: Number = like(RoundRow, "seconds")


class DrawRow(OfStep, OfZone, name="releases"):
    """Equal releases of one zone in one run or step."""

    early: Flag = released("Early: flag of a step that ended before it was stored")
    mechanism: Text = known("Mechanism: mechanism that drew the noise")
    scale: Number = released("Noise scale: noise scale of the mechanism")
    sensitivity: Number = released("Sensitivity: proven sensitivity")
    norm: Any = known("Norm: norm of the sensitivity")
    bound_source: Text = known("Source of the bound: derivation or page of the sensitivity")
    assumed: Number = known("Assumed sensitivity: sensitivity that sets the noise scale")
    share: Number = known("Largest share: larger part of the sensitivity, active or reactive")
    count: Number = released("Count: number of releases; an upper bound after an early end")


class LikelyDemand(OfStep, OfZone, OfBus, name="released"):
    """One bus: its likely demand after one release, as the mean of the steps or unscaled."""

    pd_pu: Number = released("Active demand: posterior mean of active demand after the release")
    qd_pu: Number = released("Reactive demand: posterior mean of reactive demand after the release")


class TemporalCoefficient(OfStep, OfZone, name="temporal_coefficients"):
    """One cosine of a zone's sum over the steps: what one release leaves likely."""

    cosine: Number = key("Cosine: number of half waves over all steps")
    p_pu: Number = released("Active coefficient: DCT coefficient of active demand, mean over steps")
    q_pu: Number = released(
        "Reactive coefficient: DCT coefficient of reactive demand, as a mean over steps"
    )


class OfGrid(Row):
    """One case."""

    case: Text = key("Case: name or path that was given")
    zoning: Text = key("Zoning: zone map of the run; empty for the shipped map of the case")


class NetworkBus(OfGrid, OfBus, name="network_buses"):
    """One bus, as maps draw it."""

    zone: Text = known("Zone: name of the zone in the zone map")
    x: Number = known("x: position in the drawing")
    y: Number = known("y: position in the drawing")
    generator: Flag = known("Generator: presence of a generator at the bus")


class NetworkBranch(OfGrid, name="network_branches"):
    """One branch, as maps draw it."""

    from_: Number = known("From bus: number of the branch's first end")
    to: Number = known("To bus: number of the branch's second end")
    tie: Flag = known("Tie: flag of a branch between two zones")


class RunFigures(SettledFigures):
    """Figures of a run in the table of runs, read from its document."""

    objective: Number = like(Plans, "objective")
    consensus_residual: Number = like(Residuals, "consensus_residual")
    plan_shortage_mw: Number = like(PlanBalance, "plan_shortage_mw")
    plan_surplus_mw: Number = like(PlanBalance, "plan_surplus_mw")
    imbalance_mw: Number = private("Imbalance of the convex model: plan's shortage plus surplus")
    plan_shortage_mvar: Number = like(PlanBalance, "plan_shortage_mvar")
    redispatch_shed_mw: Number = like(BusRow, "redispatch_shed_mw")
    noise_magnitude: Number = like(RoundRow, "noise_magnitude")
    interchange_deviation_mw: Number = private(
        "Largest interchange deviation: largest deviation of a zone from its scheduled interchange",
        at="final.physical.interchange_deviation_mw",
    )
    explanation: Text = private(
        "Explanation: load shedding, binding limits", at="final.explanation"
    )
    beta_pu: Number = known("Protected distance: adjacency distance beta", at="privacy.beta")
    solves: Number = released("Solves: zones' local updates in finished rounds", at="solver.solves")
    solver_retries: Number = like(RoundRow, "solver_retries")


ZONE_MAP = Column("zoning", "settings", "Zone map", "source of the zone map", dtype="text")
SETTINGS = TableSchema(
    "settings", "the settings of a run", (), (*setting_columns(Settings), ZONE_MAP)
)
TABLES = tuple(
    row.table
    for row in (
        RoundRow,
        ZoneRow,
        BusRow,
        BusPrice,
        TiePrice,
        BindingLimit,
        ResBus,
        ResLine,
        ResGen,
        ResShed,
        ZoneCertificate,
        StoredTiming,
        StepRow,
        DrawRow,
        LikelyDemand,
        TemporalCoefficient,
        NetworkBus,
        NetworkBranch,
    )
)
