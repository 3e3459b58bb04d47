"""Tables and documents of runs on a grid: every value, its unit, and who may see it."""

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
    part,
    private,
    released,
    setting_columns,
)
from gridpriv.privacy.certificate import (
    Bound,
    NoiseBlock,
    PerRelease,
    TotalEpsilon,
    ZoneCertificate,
)
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
    """A value with its unit."""

    unit: Text = key("Unit: unit of the value in the same row")


class PlanBalance(Row):
    """Balance of the schedule of the last round with true demand: not load shedding."""

    plan_shortage_mw: Number = private(
        "Shortage of the SOC relaxation: sum over buses of active demand above the supply in the "
        "last round, before redispatch; can exceed total demand, is not load shedding, and is "
        "negative at a bus with surplus",
        at="final.plan_shortage_mw",
    )
    plan_surplus_mw: Number = private(
        "Surplus of the SOC relaxation: sum over buses of supply above active demand in the last "
        "round, before redispatch",
        at="final.plan_surplus_mw",
    )
    plan_shortage_mvar: Number = private(
        "Reactive shortage of the SOC relaxation: reactive demand over supply",
        at="final.plan_shortage_mvar",
    )
    plan_surplus_mvar: Number = private(
        "Reactive surplus of the SOC relaxation: reactive supply over demand"
    )


class PlanCost(Row):
    """Objective of the schedules of all zones in a round."""

    objective: Number = private(
        "Squared imbalance: squared imbalance at true demand, the objective of --objective "
        "imbalance",
        "p.u.^2",
        at="final.objective",
    )
    cost: Number = private("Cost of the schedule: generation cost of the round's schedule", "$/h")


class Plans(PlanBalance, PlanCost):
    """Sum of the schedules of all zones in a round."""


class Residuals(Row):
    """Residuals of the consensus."""

    consensus_residual: Number = released(
        "Residual: consensus residual (2-norm of copies minus consensus variables), or the "
        "largest AC mismatch of AC rounds",
        "p.u.",
        at="final.consensus_residual",
    )
    consensus_residual_max: Number = released(
        "Largest residual: largest consensus residual of one coupling variable", "p.u."
    )
    dual_residual: Number = released(
        "Dual residual: 2-norm of rho times the change of consensus variables, in multiples of the "
        "mean marginal cost; in AC rounds the largest component of the Lagrangian's gradient"
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


class ZoneOnMap(OfZone):
    """One zone of a map."""

    buses: Number = known("Buses: number of buses")
    tie_lines: Number = known("Tie lines: branches with one end in the zone")
    generators: Number = known("Generators: number of generators")
    connected: Flag = known("Connected: connectedness of the zone's buses")
    share_of_mean: Number = known("Share of the mean size: number of buses over the zones' mean")
    capacity_mw: Number = known("Capacity: capacity of the zone's generators")


class ZoneSize(ZoneOnMap, name="zones"):
    """One zone."""

    variables: Number = known("Variables: number of variables of the zone's local problem")
    shared: Number = known("Shared: number of coupling variables")


class ZoneRow(ZoneSize, PlanBalance, name="zones"):
    """One zone of one run, after the last round."""

    objective: Number = like(Plans, "objective")
    cost: Number = like(Plans, "cost")
    load_mw: Number = private("Demand: total active demand")


class RedispatchSummary(Row):
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
    curtailed_mw: Number = private(
        "Curtailed generation: cut minimum output of generators and cut fixed injections",
        at="final.physical.curtailed_mw",
    )


class BusRow(OfBus, OfZone, name="buses"):
    """One bus of one run."""

    pd_mw: Number = private("Active demand: active demand of the bus")
    qd_mvar: Number = private("Reactive demand: reactive demand of the bus")
    plan_shortage_mw: Number = like(PlanBalance, "plan_shortage_mw")
    plan_shortage_mvar: Number = like(PlanBalance, "plan_shortage_mvar")
    vm_pu: Number = private("Voltage: voltage magnitude in the schedule of the last round")
    redispatch_shed_mw: Number = private(
        "Load shedding: active demand shed after AC redispatch", at="final.physical.shed_mw"
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
    """One zone's price of a flow on a tie line after the last round."""

    branch_row: Number = key("Branch: 1-based row of the source")
    flow: Text = key("Flow: direction and end of the flow: p_from, q_from, p_to or q_to")
    price: Number = released("Price: dual of the flow's consensus constraint")


class Limited(Row):
    """One limit of the grid after redispatch."""

    kind: Text = private(LIMIT)
    element: Any = private(ELEMENT)
    limit: Text = private("Limit: side of the limit, lower or upper")
    at: Text = private("At: bus numbers of the element")
    amount: Number = private("Amount: amount beyond the limit; 0 at the limit")


class BindingLimit(InUnit, Limited, name="binding"):
    """One binding limit of the dispatch after zone redispatch."""

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

    p_mw: Number = private("Active shed: active load shedding minus curtailed generation")
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
    """Values of other runs of the same zones."""

    noise_free_cost: Number = private("Noise-free cost: cost of the noise-free baseline", "$/h")
    noise_free_shed_mw: Number = private("Noise-free load shedding: load shed without noise")
    noise_free_status: Text = private("Noise-free AC feasibility: status of the noise-free run")
    noise_free_residual: Number = private("Noise-free residual: residual without noise", "p.u.")
    prior_only_status: Text = private("Prior-only AC feasibility: status of the run at epsilon = 0")
    prior_only_cost: Number = private("Prior-only cost: cost of the run at epsilon = 0", "$/h")
    prior_only_shed_mw: Number = private("Prior-only load shedding: load shed at epsilon = 0")
    prior_only_balancing_mw: Number = private(
        "Prior-only balancing power: balancing power of the prior-only baseline (epsilon = 0)"
    )


class StepRow(OfStep, Baselines, RedispatchSummary, name="steps"):
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
    planned: Number = released("Planned: number of planned releases")


class LikelyDemand(OfStep, OfZone, OfBus, name="released"):
    """One bus: its estimated demand after one release, as the mean of the steps or unscaled."""

    pd_pu: Number = released("Active demand: posterior mean of active demand after the release")
    qd_pu: Number = released("Reactive demand: posterior mean of reactive demand after the release")


class TemporalCoefficient(OfStep, OfZone, name="temporal_coefficients"):
    """One cosine coefficient of a zone's sum over the steps: its estimate from a release."""

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
    """One bus, for maps."""

    zone: Text = known("Zone: name of the zone in the zone map")
    x: Number = known("x: position in the drawing")
    y: Number = known("y: position in the drawing")
    generator: Flag = known("Generator: presence of a generator at the bus")


class NetworkBranch(OfGrid, name="network_branches"):
    """One branch, for maps."""

    from_: Number = known("From bus: number of the branch's first end")
    to: Number = known("To bus: number of the branch's second end")
    tie: Flag = known("Tie: flag of a branch between two zones")


class RunSummary(RedispatchSummary):
    """Values of a run in the table of runs, read from its document."""

    objective: Number = like(Plans, "objective")
    consensus_residual: Number = like(Residuals, "consensus_residual")
    plan_shortage_mw: Number = like(PlanBalance, "plan_shortage_mw")
    plan_surplus_mw: Number = like(PlanBalance, "plan_surplus_mw")
    imbalance_mw: Number = private("Imbalance of the SOC relaxation: shortage plus surplus")
    plan_shortage_mvar: Number = like(PlanBalance, "plan_shortage_mvar")
    redispatch_shed_mw: Number = like(BusRow, "redispatch_shed_mw")
    noise_magnitude: Number = like(RoundRow, "noise_magnitude")
    interchange_deviation_mw: Number = private(
        "Largest interchange deviation: largest deviation of a zone from its scheduled interchange",
        at="final.physical.interchange_deviation_mw",
    )
    explanation: Text = private("Explanation: shedding and binding limits", at="final.explanation")
    beta_pu: Number = known("Protected distance: beta, before --load-scale", at="privacy.beta")
    solves: Number = released("Solves: zones' local updates in finished rounds", at="solver.solves")
    solver_retries: Number = like(RoundRow, "solver_retries")


ZONE_MAP = Column("zoning", "settings", "Zone map", "source of the zone map", dtype="text")
SETTINGS = TableSchema(
    "settings", "the settings of a run", (), (*setting_columns(Settings), ZONE_MAP)
)
TABLES = tuple(
    row.table
    for row in (
        *(RoundRow, ZoneRow, BusRow, BusPrice, TiePrice, BindingLimit),
        *(ResBus, ResLine, ResGen, ResShed, ZoneCertificate, StoredTiming),
        *(StepRow, DrawRow, LikelyDemand, TemporalCoefficient, NetworkBus, NetworkBranch),
    )
)


class CaseDocument(Row):
    """One document."""

    case: Text = known("Case: name or path that was given")
    buses: Number = known("Buses: number of buses of the case")
    version: Text = known("Version: version of gridpriv")


class Seeded(Row):
    """A run with simulated noise."""

    seed: Any = private("Seed: seed of simulated noise, which protects nothing")


class Violation(Limited, name="violations"):
    """One violated limit of the grid after redispatch."""

    unit: Text = private("Unit: unit of the amount")


class Interchange(OfZone, name="interchange"):
    """One zone: net active power over its tie lines, each with half of its losses."""

    scheduled_mw: Number = released("Scheduled: interchange according to the last round")
    actual_mw: Number = private("Actual: interchange after AC redispatch")
    deviation_mw: Number = private("Deviation: actual less scheduled interchange")
    balancing_mw: Number = private(
        "Shortfall: exports below, or imports above, the scheduled interchange; 0 for zones that "
        "deviate the other way"
    )
    balancing_cost: Number = private(
        "Shortfall at the balancing price: no payment, since it is not settled between zones", "$/h"
    )
    shed_mw: Number = private("Load shedding: active load shedding")


class Physical(RedispatchSummary, name="physical"):
    """The AC state after redispatch; None for a run that ended before it."""

    status: Text = like(StepRow, "status")
    failure: Text = private("Failure: reason of a failed AC power flow")
    load_mw: Number = private("Gross demand: sum of positive active demand")
    generation_cost: Number = private("Generation cost: generation cost after AC redispatch", "$/h")
    optimality_gap: Number = private("Optimality gap: cost minus that of the AC optimum", "$/h")
    shed_mw: Number = like(Interchange, "shed_mw")
    deenergized_mw: Number = private("Shed on de-energized islands: demand of de-energized buses")
    balancing_cost: Number = like(Interchange, "balancing_cost")
    interchange_deviation_mw: Number = like(RunSummary, "interchange_deviation_mw")
    losses_mw: Number = private("Losses: active power losses of branches")
    regulation_mw: Number = private("Regulation: generation that the AC solution adds to dispatch")
    worst_loading_percent: Number = private("Largest loading: branch apparent power over rating")
    worst_branch: Text = private("Branch of largest loading: buses of that branch or transformer")
    lowest_vm_pu: Number = private("Lowest voltage: lowest voltage of an energized bus")
    lowest_vm_bus: Number = private("Bus of lowest voltage: number of that bus")
    highest_vm_pu: Number = private("Highest voltage: highest voltage of an energized bus")
    highest_vm_bus: Number = private("Bus of highest voltage: number of that bus")
    unused_capacity_mw: Number = private(
        "Unused capacity: upper limits minus generation that is not curtailed, on energized "
        "islands that shed load"
    )
    fallback_zones: Any = private("Fallback zones: zones that keep the schedule of the last round")
    replans: Number = private("Replans: number of repeated zone plans")
    violations: list[Violation] | None = part(Violation)
    interchange: list[Interchange] | None = part(Interchange)


class Meter(Row, name="meter"):
    """One zone: disclosure by its meters compared with its message."""

    zone: Text = private("Zone: name of the zone")
    interchange_mw_per_mw: Number = private(
        "Interchange: largest change of the interchange by the active demand of one bus", "MW/MW"
    )
    least_interchange_mw_per_mw: Number = private(
        "Least interchange: smallest change of the interchange by the active demand of one bus; 0 "
        "if buses change it in both directions",
        "MW/MW",
    )
    bus: Number = private("At bus: number of the bus of the largest change of the interchange")
    tie_mw_per_mw: Number = private("Tie flow: largest change of a tie flow by one bus", "MW/MW")
    tie: Text = private("On tie: bus numbers of that tie line")
    noise_mw: Number = private("Message noise: standard deviation of noise in the released total")
    meter_tells_more: Flag = private(
        "Meter shows more: flag of an interchange that, metered to 0.01 MW, reveals the total "
        "demand more precisely than the release"
    )


class HoldRow(Row, name="hold"):
    """One zone that keeps its scheduled interchange."""

    zone: Text = known("Zone: name of the zone")
    band_mw: Number = known("Band: error of the estimated total demand that the zone serves itself")
    probability: Number = known("Probability: probability of a larger error, over noise and prior")


class CostOfPrivacy(Baselines, name="cost_of_privacy"):
    """Cost of the noise over the baselines."""

    cost: Number = private("Cost of privacy: cost minus that of the noise-free baseline", "$/h")
    shed_mw: Number = private("Load shedding by privacy: load shedding beyond the noise-free run")
    optimality_gap: Number = like(Physical, "optimality_gap")
    optimum_shed_mw: Number = private(
        "Load shedding of the AC optimum: load shedding at least cost; without convex costs, the "
        "least load shedding"
    )
    least_shed_mw: Number = private("Least load shedding: least load shedding of an AC optimum")
    island_mw: Number = like(Physical, "deenergized_mw")
    unavoidable_mw: Number = private(
        "Load shedding in the AC optimum: load shedding of the AC optimum without de-energized "
        "islands, at most that of the run"
    )
    coordination_mw: Number = private(
        "Load shedding by coordination: load shedding of the noise-free baseline beyond the "
        "AC optimum, at most that of the run"
    )
    noise_mw: Number = private(
        "Load shedding by noise: load shedding of the run beyond the noise-free baseline and the "
        "AC optimum; without a release, by the error of the prior"
    )


class AcRoundsSummary(Row, name="ac_rounds"):
    """Rounds in which zones solve the AC optimal power flow of released demand."""

    rounds: Number = released("AC rounds: number of rounds in the search that is kept")
    converged: Flag = released("Converged: fulfilment of the optimality conditions to 1e-6")
    primal_residual: Number = released("Primal residual: largest residual of AC equations", "p.u.")
    dual_residual: Number = released("Dual residual: largest entry of the Lagrangian's gradient")


class Final(Residuals, Plans):
    """Values after the last round."""

    explanation: Text = like(RunSummary, "explanation")
    ac_rounds: AcRoundsSummary | None = part(AcRoundsSummary)
    physical: Physical = part(Physical)
    meter: list[Meter] | None = part(Meter)
    hold: list[HoldRow] | None = part(HoldRow)
    cost_of_privacy: CostOfPrivacy | None = part(CostOfPrivacy)


class PrivacyBlock(NoiseBlock):
    """Protection and certified totals of a run."""

    beta: Any = known("Beta: adjacency distance, before --load-scale", "p.u.")
    protects: Text = known("Protects: protected demand of a bus: active, reactive or both")
    releases_per_zone: Number = released("Releases per zone: largest number of releases of a zone")
    interrupted_releases_per_zone: Number = released(
        "Releases of interrupted attempts: largest number of a zone; the totals include them"
    )
    per_release: PerRelease = part(PerRelease)
    noise_multiplier: Number = known("Noise multiplier: noise scale over the assumed sensitivity")
    total_pure: Number = released("Pure total epsilon: largest total epsilon (pure DP) of a zone")
    total: TotalEpsilon = part(TotalEpsilon)
    published_total: Number = known("The paper's total: Ryu and Kim's theorem 4.6; no certificate")


class RunPrivacy(PrivacyBlock):
    """Protection and certified totals of a run, and of every zone."""

    sensitivity: list[ZoneCertificate] = part(ZoneCertificate)


class ReleasedStatistics(OfZone, name="released"):
    """One zone: its released statistics of demand."""

    statistics: Text = known("Statistics: statistics of demand that carry the noise")
    expected_error_mw: Number = known(
        "Expected error: expected error, from public data, of zone demand, tie-line flows and bus "
        "demand together (weights 1, 0.3, 0.15; root sum of squares); with objective "
        "imbalance of bus demand"
    )


class Solver(Row, name="solver"):
    """The solver of the local problems."""

    name: Text = known("Solver: name of the solver")
    version: Text = known("Solver's version: version of the solver")
    solves: Number = like(RunSummary, "solves")
    failures: Number = private("Failures: solves that were tried again")
    seconds_per_solve: Number = private("Time of a solve: wall-clock time of a solve", "s")


class Note(Row, name="messages"):
    """One message on the interpretation of values."""

    code: Text = private("Code: kind of message")
    severity: Text = private("Severity: warning or info")
    text: Text = private("Text: message in English")


class RunDocument(CaseDocument, Seeded, name="run"):
    """One run."""

    zones: list[ZoneSize] = part(ZoneSize)
    settings: Any = part(SETTINGS)
    rounds: list[RoundRow] = part(RoundRow)
    ended: Text = released("Ended: end of the run: finished or early")
    reason: Text = private("Reason: reason of an early end")
    messages: list[Note] = part(Note)
    final: Final = part(Final)
    privacy: RunPrivacy = part(RunPrivacy)
    solver: Solver = part(Solver)
    timing: Timing = part(Timing)
    repeat: Text = private("To repeat: command line that repeats the run")
    checksum: Text = private("Checksum: checksum of the stored document")
    released: list[ReleasedStatistics] = part(ReleasedStatistics)


class LimitPassed(Row, name="violations"):
    """One violated limit."""

    kind: Text = released(LIMIT)
    element: Any = released(ELEMENT)
    limit: Text = released("Limit: side of the limit, lower or upper")
    at: Text = released("At: bus numbers of the element")
    value: Number = released("Value: value of the limited quantity")
    bound: Number = released("Bound: limit of the quantity")
    amount: Number = released("Amount: distance of the value beyond the limit")
    unit: Text = released("Unit: unit of value, bound and amount")
    rating: Number = known("Rating: rating of the element, in the unit of the value")


class AfterOutage(Row):
    """The grid after an outage."""

    status: Text = released(
        "Status: converged, diverged (no AC state) or screened (DC loading only, not known to be "
        "secure)"
    )
    worst_loading_percent: Number = released("Worst loading: largest apparent power over rating")
    worst_branch: Text = released("Worst branch: buses of that branch or transformer")
    violations: list[LimitPassed] = part(LimitPassed)
    islanded_mw: Number = released(
        "Islanded: demand separated from the largest part of its island that has generation"
    )
    shed_mw: Number = released("Shed: active load shedding")


class ZoneCorrectionRow(OfZone, name="zones"):
    """One zone: its corrective redispatch after an outage."""

    up_mw: Number = released("Up: outputs raised")
    down_mw: Number = released("Down: outputs lowered")
    shed_mw: Number = released("Shed: load shedding of the zone after the outage")


class CorrectionRow(Row, name="corrective"):
    """Corrective redispatch after an outage; null where none is needed or requested."""

    status: Text = released("Status: corrected, limits left, or no state (no feasible set points)")
    shed_mw: Number = released("Shed: load shedding of all zones after the outage")
    violations: Number = released("Violations: limits that are still passed")
    zones: list[ZoneCorrectionRow] = part(ZoneCorrectionRow)


class ContingencyRow(AfterOutage):
    """One contingency."""

    name: Text = known("Contingency: name in the list, or the element that fails")
    kind: Text = known("Kind: branch, generator or multiple")
    outages: Any = known("Outages: elements that fail")
    at: Any = known("At: bus numbers of these elements")
    corrective: CorrectionRow | None = part(CorrectionRow)


class Prevention(Row):
    """A preventive plan of all zones, on their released demand."""

    cost_before: Number = released("Cost before: cost of the plan without contingencies", "$/h")
    cost: Number = released("Cost: cost of the preventive plan; null without one", "$/h")
    violations_before: Number = released(
        "Violations before: number of limits violated after contingencies in the plan without them"
    )
    outages_before: Number = released(
        "Outages before: contingencies that violate a limit or shed load in the plan without them"
    )
    loading_before: Number = released(
        "Loading before: largest branch loading after a contingency in the plan without them", "%"
    )
    cuts: Number = released("Cuts: number of post-contingency limits added to the plan")
    plans: Number = released("Plans: plans until no violation was removable; 0 without --secure")
    rounds: Number = released("Rounds: number of rounds of all plans")
    not_prevented: Any = released("Not prevented: contingencies still with violations or shed load")


class Analysis(CaseDocument):
    """An analysis of a run."""

    view: Text = known("View: demand that the analysis takes")
    visibility: Text = known("Visibility: public (by released demand) or local")
    privacy: RunPrivacy = part(RunPrivacy)
    seconds: Number = private("Time: wall-clock time of the analysis")


class SecurityDocument(Analysis, name="security"):
    """A contingency analysis."""

    rating: Text = known("Rating: branch rating after an outage: A, B or C")
    secure: Flag = released(
        "Secure: N-1 security: no violated limit and no load shedding before or after any "
        "contingency; null where screened contingencies leave it not known"
    )
    corrected: Flag = released(
        "Corrected: zones' redispatch leaves no limit violated after any contingency, load "
        "shedding counted in its row; null without --corrective or --secure"
    )
    base: AfterOutage = part(AfterOutage)
    prevention: Prevention = part(Prevention)
    contingencies: list[ContingencyRow] = part(ContingencyRow)


class ZonePair(Row):
    """One ordered pair of zones."""

    from_zone: Text = key("From: zone that sells, or that pays")
    to_zone: Text = key("To: zone that buys, or that is paid")


class ZoneExchange(OfZone, name="zones"):
    """One zone."""

    net_position_mw: Number = released("Net position: export before a change")
    least_mw: Number = released("Least: smallest net position in the domain")
    most_mw: Number = released("Most: largest net position in the domain")
    market_cost: Number = released("Market cost: generation without a network", "$/h")
    generation_cost: Number = released("Generation cost: generation cost at the AC optimum", "$/h")
    congestion_mw: Number = released("Congestion: generation above merit-order dispatch")
    congestion_cost: Number = released("Congestion cost: generation cost minus market cost", "$/h")
    tie_revenue: Number = released("Tie revenue: revenue minus payments at tie-line prices", "$/h")


class Ptdf(OfZone, name="ptdf"):
    """One zone."""

    ptdf: Number = released("PTDF: change of flow per net position")


class BranchExchange(Row):
    """One branch."""

    branch: Text = known("Branch: branch:N with N the row of the source")
    at: Text = known("At: bus numbers of its ends")
    tie_line: Flag = known("Tie line: flag of a branch between two zones")
    rating_mva: Number = known("Rating: permanent rating")
    flow_mw: Number = released("Flow: active flow from the first end")
    margin_mw: Number = released("Margin (RAM): additional active flow within the rating")
    opposite_margin_mw: Number = released("Opposite margin: the same in the other direction")
    largest_ptdf: Number = released("Largest PTDF: largest difference between two zones")
    ptdf: list[Ptdf] = part(Ptdf)


class PairExchange(ZonePair, name="exchanges"):
    """One ordered pair of zones."""

    most_mw: Number = released("Most: largest exchange that no branch limits")
    limit: Text = released("Limit: branch that limits it")
    limit_at: Text = released("At: bus numbers of its ends")
    generation_mw: Number = released(
        "Headroom: upward in the first or downward in the second zone, the smaller"
    )


class Corner(Row, name="corners"):
    """One corner of the slice."""

    first_mw: Number = released("First: net position of the first zone")
    second_mw: Number = released("Second: net position of the second zone")


class Domain(Row):
    """A slice of the flow-based domain."""

    first_zone: Text = known("First zone: zone on the horizontal axis")
    second_zone: Text = known("Second zone: zone on the vertical axis")
    balancing_zone: Text = known("Balancing zone: zone that balances the two")
    corners: list[Corner] = part(Corner)


class Payment(ZonePair, name="payments"):
    """One pair of zones."""

    energy_mwh: Number = released("Energy: energy sold in one hour")
    amount: Number = released("Amount: payment at tie-line prices", "$/h")


class ExchangeDocument(Analysis, name="exchange"):
    """Exchange between the zones of a run."""

    ptdf_model: Text = known("PTDF model: dc or ac power flow")
    zones: list[ZoneExchange] = part(ZoneExchange)
    exchanges: list[PairExchange] = part(PairExchange)
    branches: list[BranchExchange] = part(BranchExchange)
    domain: Domain = part(Domain)
    payments: list[Payment] = part(Payment)


SERIES_FILE, PLAN_FILE = "horizon.json", "joint_plan.json"


class StorageStep(Row, name="storage"):
    """One storage in one step."""

    step: Text = known("Step: name of the step")
    storage: Text = known("Storage: name of the storage")
    bus: Number = known("Bus: bus number")
    p_mw: Number = released("Planned output: discharge minus charge, so charging is negative")
    energy_mwh: Number = released("Planned energy: energy after the step")
    soc_percent: Number = released("State of charge: energy over the largest energy")


class ReserveStep(Row, name="reserves"):
    """Reserve of one generator in one step of a joint plan."""

    step: Text = known("Step: name of the step")
    gen: Number = known("Generator: 1-based row of the source")
    bus: Number = known("Bus: bus number")
    up_mw: Number = released("Reserve up: capacity held back below the upper limit")
    down_mw: Number = released("Reserve down: output held above the lower limit")


class CommitmentStep(Row, name="commitment"):
    """One generator that may be switched off, in one step of a joint plan."""

    step: Text = known("Step: name of the step")
    gen: Number = known("Generator: 1-based row of the source")
    bus: Number = known("Bus: bus number")
    running: Flag = released("Running: state of the generator in the step")
    start_cost: Number = released("Start cost: cost of a start in this step, once", "$")


LONGER = "epsilon of a bus that differs in every hour of a {0}; null without a pure epsilon"


class StreamBudget(Row, name="stream"):
    """Budget of a stream."""

    window_hours: Number = known("Window: consecutive hours with one budget")
    block_hours: Number = known("Block: hours of one released mean")
    releases_per_window: Number = known("Releases: number of releases of a zone in a window")
    total_per_window: Number = known("Total of a window: total epsilon of a window")
    delta_per_window: Number = known("Delta of a window: delta at which that total holds; 0: pure")
    total_per_day: Number = known(f"Total of a day: {LONGER.format('day')}")
    total_per_week: Number = known(f"Total of a week: {LONGER.format('week')}")
    total_per_month: Number = known(f"Total of a month: {LONGER.format('month')}")
    total_per_year: Number = known(f"Total of a year: {LONGER.format('year')}")


class ReleasedOnce(OfZone, name="released_once"):
    """One zone: what it releases of all steps at once."""

    statistics: Text = known("Statistics: statistics of mean demand that carry the noise")
    cosines: Number = known("Cosines: number of released cosine coefficients, besides the mean")
    weight: Number = known("Weight: weight of a cosine coefficient relative to the mean")
    expected_error_mw: Number = known(
        "Expected error: expected error, from public data, in a step at load scale 1, as of a "
        "single run; of a stream that of a zone's total"
    )


class SeriesPrivacy(PrivacyBlock):
    """Protection and certified totals of a series, and of every zone."""

    zones: list[ZoneCertificate] = part(ZoneCertificate)
    stream: StreamBudget | None = part(StreamBudget)


class SeriesDocument(CaseDocument, Seeded, name="series"):
    """One series."""

    series: Text = known("Series: source of the steps")
    planned: Number = known("Planned: number of planned steps")
    finished: Number = released("Finished: number of finished steps")
    settings: Any = part(SETTINGS)
    released_once: list[ReleasedOnce] = part(ReleasedOnce)
    steps: list[StepRow] = part(StepRow)
    step_hours: Number = known("Step length: hours of a step, where files couple the steps")
    coupled: Any = known("Coupling: inputs that couple steps, such as storage and ramps")
    storage: list[StorageStep] = part(StorageStep)
    reserves: list[ReserveStep] = part(ReserveStep)
    commitment: list[CommitmentStep] = part(CommitmentStep)
    reserve_shortage_mw: Number = released(
        "Reserve shortage: largest part of the required reserve, up or down, that the plan of a "
        "step does not hold; null without a plan of reserves"
    )
    privacy: SeriesPrivacy = part(SeriesPrivacy)


class PublishedProtection(Row):
    """Guarantee of a published case."""

    adjacency: Text = like(NoiseBlock, "adjacency")
    beta_mw: Number = known(
        "Beta: protected change of one bus (MVAr where only reactive demand is protected)"
    )
    protects: Text = known("Protects: protected demand of a bus: active, reactive or both")
    total_epsilon: Number = released("Total epsilon: total epsilon (pure DP) of all releases")
    noise: Text = known("Noise: source of randomness, simulated or secure")
    caveat: Text = known("Caveat: consequence of the noise's source for privacy")
    best_guess: Number = released(
        "Best guess: largest probability of a right guess between demands at distance beta"
    )
    inversion_error_mw: Number = released(
        "Inversion error: least expected absolute error of an estimate of a bus's demand, over two "
        "demands at distance beta (MVAr where only reactive demand is protected)"
    )


class PublishedRelease(Row, name="releases"):
    """One release."""

    quantity: Text = known("Quantity: perturbed quantity")
    mechanism: Text = known("Mechanism: distribution of the noise")
    sensitivity: Number = released("Sensitivity: largest change between adjacent demands")
    scale: Number = released("Scale: scale of the noise")
    standard_deviation: Number = released("Noise: standard deviation of one number (active)")
    reactive_weight: Number = released("Reactive weight: noise of active over reactive values")
    weights: Any = released(
        "Weights: factors of the total and of a bus before the noise, of a tree; else empty"
    )
    unit: Text = known("Unit: unit of sensitivity, scale and noise")
    norm: Text = known("Norm: norm of the sensitivity")
    epsilon: Number = released("Epsilon: epsilon (pure DP) of this release")
    bound_source: Text = like(Bound, "bound_source")


class PublishedDemand(Row):
    """Demand of a published case."""

    total_mw: Number = released("Total: published active demand")
    expected_total_error_mw: Number = released(
        "Expected error of the total: standard deviation of the posterior; of a series expected "
        "before the release, root mean square over the steps"
    )
    expected_bus_error_mw: Number = released(
        "Expected error of a bus: root mean square of standard deviations, as of the total"
    )
    negative_loads: Number = released("Negative demand: number of buses of negative active demand")
    projected_mw: Number = released("Moved: total active change to the nearest AC-feasible demand")
    projected_mvar: Number = released("Moved: total reactive change to the nearest feasible demand")
    metric: Text = known("Metric: distance to the nearest AC-feasible demand")
    margin: Number = released("Margin: share by which limits were tightened")
    factors: Any = known("Factors: public factors of the steps of a series; null without factors")


class PublishedOptimum(Row):
    """AC optimum of a published case."""

    ac_feasible: Flag = released("AC-feasible: AC optimum without load shedding or violated limit")
    cost: Number = released("Optimal cost: optimal cost of this case; null without costs", "$/h")
    cost_range: Any = released(
        "Cost range: range of the true case's optimal cost over 39 posterior draws, in which a "
        "further one lies with probability 38/40; null without --fidelity cost",
        "$/h",
    )
    rated_branches: Number = known("Rated branches: branches with a limit")


class PublishedFile(Row, name="files"):
    """One file."""

    name: Text = known("Name: name of the file")
    sha256: Text = released("SHA-256: SHA-256 digest of the file")


class LedgerEntry(Row, name="ledger"):
    """The ledger entry; null without a ledger."""

    run: Text = released("Run: identifier in the ledger")


class CertificateDocument(Row, name="certificate"):
    """A published case."""

    case: Text = known("Case: name of the published case")
    source: Text = known("Source: case whose demand was released")
    buses: Number = known("Buses: number of buses")
    bus_shift: Number = known("Bus shift: difference of bus numbers from those of the source")
    protected: PublishedProtection = part(PublishedProtection)
    releases: list[PublishedRelease] = part(PublishedRelease)
    demand: PublishedDemand = part(PublishedDemand)
    optimum: PublishedOptimum = part(PublishedOptimum)
    files: list[PublishedFile] = part(PublishedFile)
    ledger: LedgerEntry | None = part(LedgerEntry)
    public_data: Text = known("Public data: data declared public and left unchanged")
    version: Text = known("Version: version of gridpriv")
