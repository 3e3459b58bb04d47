"""Documents that ``--json`` prints: every key, its unit, and who may see it."""

from __future__ import annotations

from typing import Any

from gridpriv.core.tables import (
    Flag,
    Number,
    Row,
    Text,
    key,
    known,
    like,
    part,
    private,
    released,
)
from gridpriv.privacy.statement import Bound, NoiseBlock, PerRelease, TotalEpsilon, ZoneCertificate
from gridpriv.zonal import rows
from gridpriv.zonal.rows import ELEMENT, LIMIT, SETTINGS, OfZone


class CaseDocument(Row):
    """One document."""

    case: Text = known("Case: name or path that was given")
    buses: Number = known("Buses: number of buses of the case")
    version: Text = known("Version: version of gridpriv")


class Seeded(Row):
    """A run with simulated noise."""

    seed: Any = private("Seed: seed of simulated noise; the noise can be removed with it")


class Violation(rows.Limited, name="violations"):
    """One limit that the settled grid is outside of."""

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
        "Shortfall at the balancing price: no payment, since it is not settled between zones",
        "$/h",
    )
    shed_mw: Number = private("Load shedding: active load shedding")


class Physical(rows.SettledFigures, name="physical"):
    """The AC state after redispatch; None where a run ended before it."""

    status: Text = like(rows.StepRow, "status")
    failure: Text = private("Failure: reason of a failed AC power flow")
    load_mw: Number = private("Load: sum of positive active demand")
    generation_cost: Number = private("Generation cost: generation cost after AC redispatch", "$/h")
    optimality_gap: Number = private(
        "Optimality gap: cost minus that of the grid's AC optimum", "$/h"
    )
    shed_mw: Number = like(Interchange, "shed_mw")
    deenergized_mw: Number = private("Shed on de-energized islands: load of de-energized buses")
    curtailed_mw: Number = private("Curtailed generation: curtailed active generation")
    balancing_cost: Number = like(Interchange, "balancing_cost")
    interchange_deviation_mw: Number = like(rows.RunFigures, "interchange_deviation_mw")
    losses_mw: Number = private("Losses: active power losses of branches")
    regulation_mw: Number = private("Regulation: generation that the AC solution adds to dispatch")
    worst_loading_percent: Number = private("Largest loading: branch apparent power over rating")
    worst_branch: Text = private("Branch of largest loading: bus numbers of that branch")
    lowest_vm_pu: Number = private("Lowest voltage: lowest voltage of an energized bus")
    lowest_vm_bus: Number = private("Bus of lowest voltage: number of that bus")
    highest_vm_pu: Number = private("Highest voltage: highest voltage of an energized bus")
    highest_vm_bus: Number = private("Bus of highest voltage: number of that bus")
    unused_capacity_mw: Number = private("Unused capacity: upper limits minus active generation")
    fallback_zones: Any = private("Fallback zones: zones that keep to the last round's plan")
    replans: Number = private("Replans: number of repeated zone plans")
    violations: list[Violation] | None = part(Violation)
    interchange: list[Interchange] | None = part(Interchange)


class Meter(Row, name="meter"):
    """One zone: its meters beside its message."""

    zone: Text = private("Zone: name of the zone")
    interchange_mw_per_mw: Number = private(
        "Interchange: largest change of the interchange by the active demand of one bus", "MW/MW"
    )
    bus: Number = private("At bus: number of that bus")
    tie_mw_per_mw: Number = private("Tie flow: largest change of a tie flow by one bus", "MW/MW")
    tie: Text = private("On tie: bus numbers of that tie line")
    noise_mw: Number = private("Message noise: standard deviation of noise in the released total")
    meter_tells_more: Flag = private(
        "Meter shows more: flag of an interchange that reveals the total demand more precisely "
        "than the message"
    )


class HeldZone(Row, name="hold"):
    """One zone that keeps its scheduled interchange."""

    zone: Text = known("Zone: name of the zone")
    band_mw: Number = known("Band: error of the estimated total demand that the zone serves itself")
    delta: Number = known("Delta: chance of a larger error over the noise, from public data")


class CostOfPrivacy(rows.Baselines, name="cost_of_privacy"):
    """Cost of the noise over the baselines."""

    cost: Number = private("Cost of privacy: cost minus that of the noise-free baseline", "$/h")
    shed_mw: Number = private("Load shedding by privacy: load shedding beyond the noise-free run")
    optimality_gap: Number = like(Physical, "optimality_gap")
    least_shed_mw: Number = private("Least load shedding: least load shedding of an AC optimum")
    island_mw: Number = like(Physical, "deenergized_mw")
    unavoidable_mw: Number = private(
        "Load shedding in the AC optimum: load shedding of the AC optimum that sheds least, "
        "without de-energized islands"
    )
    coordination_mw: Number = private(
        "Load shedding by coordination: load shedding of the noise-free baseline beyond the "
        "AC optimum"
    )
    noise_mw: Number = private(
        "Load shedding by noise: load shedding of the run beyond the noise-free baseline and the "
        "AC optimum"
    )


class AcRoundsFigures(Row, name="ac_rounds"):
    """Rounds in which zones solve the AC optimal power flow of released demand."""

    rounds: Number = released("AC rounds: number of rounds in the search that is kept")
    converged: Flag = released("Converged: fulfilment of the optimality conditions to 1e-6")
    primal_residual: Number = released("Primal residual: largest residual of AC equations", "p.u.")
    dual_residual: Number = released("Dual residual: largest entry of the Lagrangian's gradient")


class Final(rows.Residuals, rows.Plans):
    """Figures after the last round."""

    explanation: Text = like(rows.RunFigures, "explanation")
    ac_rounds: AcRoundsFigures | None = part(AcRoundsFigures)
    physical: Physical = part(Physical)
    meter: list[Meter] | None = part(Meter)
    hold: list[HeldZone] | None = part(HeldZone)
    cost_of_privacy: CostOfPrivacy | None = part(CostOfPrivacy)


class PrivacyBlock(NoiseBlock):
    """Protection and certified totals of a run."""

    beta: Any = known("Beta: adjacency distance", "p.u.")
    protects: Text = known("Protects: protected demand of a bus: active, reactive or both")
    releases_per_zone: Number = released("Releases per zone: largest number of releases of a zone")
    per_release: PerRelease = part(PerRelease)
    noise_multiplier: Number = known("Noise multiplier: noise scale over the assumed sensitivity")
    total_pure: Number = released("Pure total epsilon: largest total epsilon (pure DP) of a zone")
    total: TotalEpsilon = part(TotalEpsilon)
    published_total: Number = known("The paper's total: Ryu and Kim's theorem 4.6; no certificate")


class RunPrivacy(PrivacyBlock):
    """Protection and certified totals of a run, and of every zone."""

    sensitivity: list[ZoneCertificate] = part(ZoneCertificate)


class ReleasedStatistics(OfZone, name="released"):
    """One zone: what it releases of its demand."""

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
    solves: Number = like(rows.RunFigures, "solves")
    failures: Number = private("Failures: solves that were tried again")
    seconds_per_solve: Number = private("Time of a solve: wall-clock time of a solve", "s")


class Note(Row, name="messages"):
    """One message that changes how the figures are read."""

    code: Text = private("Code: kind of message")
    severity: Text = private("Severity: warning or info")
    text: Text = private("Text: message in English")


class RunDocument(CaseDocument, Seeded, name="run"):
    """One run."""

    zones: list[rows.ZoneSize] = part(rows.ZoneSize)
    settings: Any = part(SETTINGS)
    rounds: list[rows.RoundRow] = part(rows.RoundRow)
    ended: Text = released("Ended: end of the run: finished or early")
    reason: Text = private("Reason: reason of an early end")
    messages: list[Note] = part(Note)
    final: Final = part(Final)
    privacy: RunPrivacy = part(RunPrivacy)
    solver: Solver = part(Solver)
    timing: rows.Timing = part(rows.Timing)
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
    worst_branch: Text = released("Worst branch: bus numbers of that branch")
    violations: list[LimitPassed] = part(LimitPassed)
    islanded_mw: Number = released("Islanded: demand separated from the largest part of its island")
    shed_mw: Number = released("Shed: active load shedding")


class ZoneCorrectionRow(OfZone, name="zones"):
    """One zone: its corrective redispatch after an outage."""

    up_mw: Number = released("Up: outputs raised")
    down_mw: Number = released("Down: outputs lowered")
    shed_mw: Number = released("Shed: load shedding of the zone after the outage")


class CorrectionRow(Row, name="corrective"):
    """Corrective redispatch after an outage; null where none is needed or asked for."""

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
    margin_mw: Number = released("Margin: spare capacity for additional flow")
    opposite_margin_mw: Number = released("Opposite margin: spare capacity in the other direction")
    largest_ptdf: Number = released("Largest PTDF: largest difference between two zones")
    ptdf: list[Ptdf] = part(Ptdf)


class PairExchange(ZonePair, name="exchanges"):
    """One ordered pair of zones."""

    most_mw: Number = released("Most: largest exchange that no branch limits")
    limit: Text = released("Limit: branch that limits it")
    limit_at: Text = released("At: bus numbers of its ends")
    generation_mw: Number = released("Generation: spare capacity of the generators of both zones")


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


SERIES_FILE, STORAGE_FILE, RESERVE_FILE = "horizon.json", "storage.csv", "reserves.csv"


class StorageStep(Row, name="storage"):
    """One storage in one step."""

    step: Text = known("Step: name of the step")
    storage: Text = known("Storage: name of the storage")
    bus: Number = known("Bus: bus number")
    p_mw: Number = released("Output: discharge minus charge, so charging is negative")
    energy_mwh: Number = released("Energy: energy after the step")
    soc_percent: Number = released("State of charge: energy over capacity")


class ReserveStep(Row, name="reserves"):
    """Reserve that one generator holds in one step of a joint plan."""

    step: Text = known("Step: name of the step")
    gen: Number = known("Generator: 1-based row of the source")
    bus: Number = known("Bus: bus number")
    up_mw: Number = released("Reserve up: capacity held back below the upper limit")
    down_mw: Number = released("Reserve down: output held above the lower limit")


LONGER = "epsilon of a bus that differs in every hour of a {0}; null without a pure epsilon"


class StreamBudget(Row, name="stream"):
    """Budget of a stream."""

    window_hours: Number = known("Window: consecutive hours with one budget")
    block_hours: Number = known("Block: hours of one released mean")
    releases_per_window: Number = known("Releases: number of releases of a zone in a window")
    total_per_window: Number = known("Total of a window: total epsilon of a window")
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
    steps: list[rows.StepRow] = part(rows.StepRow)
    step_hours: Number = known("Step length: hours of a step, where files couple the steps")
    coupled: Any = known("Coupling: inputs that couple steps, such as storage and ramps")
    storage: list[StorageStep] = part(StorageStep)
    reserves: list[ReserveStep] = part(ReserveStep)
    privacy: SeriesPrivacy = part(SeriesPrivacy)


class PublishedProtection(Row):
    """Guarantee of a published case."""

    adjacency: Text = like(NoiseBlock, "adjacency")
    beta_mw: Number = known("Beta: protected change of one bus")
    protects: Text = known("Protects: protected demand of a bus: active, reactive or both")
    total_epsilon: Number = released("Total epsilon: total epsilon (pure DP) of all releases")
    noise: Text = known("Noise: source of randomness, simulated or secure")
    caveat: Text = known("Caveat: consequence of the noise's source for privacy")
    best_guess: Number = released("Best guess: largest chance of telling demands beta apart")
    inversion_error_mw: Number = released(
        "Inversion error: least mean absolute error of any estimate of one bus's demand, over two "
        "demands"
    )


class PublishedRelease(Row, name="releases"):
    """One release."""

    quantity: Text = known("Quantity: perturbed quantity")
    mechanism: Text = known("Mechanism: law of the noise")
    sensitivity: Number = released("Sensitivity: largest change between neighbours")
    scale: Number = released("Scale: scale of the noise")
    standard_deviation: Number = released("Noise: standard deviation of one number (active)")
    reactive_weight: Number = released(
        "Reactive weight: noise of active values over reactive noise"
    )
    unit: Text = known("Unit: unit of sensitivity, scale and noise")
    norm: Text = known("Norm: norm of the sensitivity")
    epsilon: Number = released("Epsilon: epsilon (pure DP) of this release")
    bound_source: Text = like(Bound, "bound_source")


class PublishedDemand(Row):
    """Demand of a published case."""

    total_mw: Number = released("Total: published active demand")
    expected_total_error_mw: Number = released(
        "Expected error of the total: standard deviation of the posterior"
    )
    expected_bus_error_mw: Number = released(
        "Expected error of a bus: root mean square of posterior standard deviations"
    )
    negative_loads: Number = released("Negative loads: number of buses of negative active demand")
    projected_mw: Number = released("Moved: total active change to the nearest AC-feasible demand")
    projected_mvar: Number = released("Moved: total reactive change to the nearest feasible demand")
    metric: Text = known("Metric: distance to the nearest AC-feasible demand")
    margin: Number = released("Margin: share by which limits were tightened")


class PublishedOptimum(Row):
    """AC optimum of a published case."""

    ac_feasible: Flag = released("AC-feasible: AC optimum without load shedding or violated limit")
    cost: Number = released(
        "Optimal cost: optimum of the published case; null without costs", "$/h"
    )
    cost_range: Any = released(
        "Cost range: range of the true case's optimal cost that holds 38 of 40 posterior "
        "draws; null without --fidelity cost",
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
    protected: PublishedProtection = part(PublishedProtection)
    releases: list[PublishedRelease] = part(PublishedRelease)
    demand: PublishedDemand = part(PublishedDemand)
    optimum: PublishedOptimum = part(PublishedOptimum)
    files: list[PublishedFile] = part(PublishedFile)
    ledger: LedgerEntry | None = part(LedgerEntry)
    public_data: Text = known("Public data: data declared public and left unchanged")
    version: Text = known("Version: version of gridpriv")
