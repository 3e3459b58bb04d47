"""Tables of a run on a grid: every figure, its unit, and who may see it."""

from __future__ import annotations

from gridpriv.core.tables import Column, TableSchema, setting_columns
from gridpriv.privacy.schema import ASSUMED, BOUND_SOURCE, RATIO
from gridpriv.zonal.settings import Settings

LAST = "by the last round's plan"
AFTER = "after local redispatch"

NAME_OF_ZONE = Column("zone", "settings", "Zone", "name in the zone map", dtype="text")
BUS = Column("bus", "settings", "Bus", "number in the case")
ROUND = Column("round", "settings", "Round", "from 1")
CASE = Column("case", "settings", "Case", "name or path that was given", dtype="text")
ZONING = Column("zoning", "settings", "Zoning", "as given; empty for the case's own", dtype="text")
ENDS = (
    Column("from_bus", "settings", "From bus", "number of the branch's first end"),
    Column("to_bus", "settings", "To bus", "number of the branch's second end"),
)
UNIT = Column("unit", "settings", "Unit", "of the figure in the same row", dtype="text")

RESIDUAL = Column(
    "consensus_residual",
    "releases",
    "Consensus residual",
    "2-norm of w less what zones sent",
    "p.u.",
)
DISAGREEMENT = Column(
    "consensus_residual_max",
    "releases",
    "Largest disagreement",
    "of one shared variable: w less what a zone sent",
    "p.u.",
)
DUAL_RESIDUAL = Column(
    "dual_residual",
    "releases",
    "Dual residual",
    "2-norm of rho times the change of w, in multiples of the mean marginal cost",
)
OBJECTIVE = Column(
    "objective",
    "private",
    "Squared imbalance",
    "of true demand: what zones minimise with the objective imbalance",
    "p.u. squared",
)
COST = Column("cost", "private", "Cost", "of generation", "$/h")
NOISE = Column(
    "noise_magnitude", "private", "Noise magnitude", "sum of |noise| over coordinates", "p.u."
)
SHED = Column("shed_mw", "private", "Shed in the last round", f"active load shedding {LAST}", "MW")
SURPLUS = Column("surplus_mw", "private", "Surplus", f"active power without a taker {LAST}", "MW")
SHED_Q = Column("shed_mvar", "private", "Reactive shed", f"reactive load shedding {LAST}", "MVAr")
SURPLUS_Q = Column(
    "surplus_mvar", "private", "Reactive surplus", f"reactive power without a taker {LAST}", "MVAr"
)
IMBALANCE = Column("imbalance_mw", "private", "Imbalance", f"shed plus surplus {LAST}", "MW")
FIGURES = (OBJECTIVE, COST, SHED, SURPLUS, SHED_Q, SURPLUS_Q)

REDISPATCH_SHED = Column(
    "redispatch_shed_mw",
    "private",
    "Shed after redispatch",
    "load shedding when every zone plans with its true demand and the grid has settled",
    "MW",
)
LOAD = Column("load_mw", "private", "Load", "active demand", "MW")
DEMAND = Column("demand_mw", "private", "Demand", "active demand of the grid", "MW")
EXPLANATION = Column(
    "explanation", "private", "Explanation", "load shedding and binding limits", dtype="text"
)

AC_CONVERGED = Column(
    "ac_converged",
    "private",
    "AC power flow converged",
    "whether the dispatch has an AC solution",
    dtype="flag",
)
AC_SLACK = Column(
    "ac_slack_mw", "private", "Regulation", "active power that generators add to their plans", "MW"
)
AC_VOLTAGES = Column(
    "ac_vm_violations",
    "private",
    "Voltage violations",
    "buses outside their band by the AC solution",
)
AC_LOADINGS = Column(
    "ac_loading_violations",
    "private",
    "Loading violations",
    "branches above their rating by the AC solution",
)

STATUS = Column(
    "status",
    "private",
    "AC feasibility",
    "feasible, marginal (violations within 0.1 % of the limit) or infeasible",
    dtype="text",
)
AC_FEASIBLE = Column(
    "ac_feasible", "private", "AC-feasible", "true where no limit is violated", dtype="flag"
)
FULL_COST = Column(
    "cost",
    "private",
    "Cost",
    "generation and load shedding at voll, without payments between zones for "
    "balancing power; none where the state is infeasible",
    "$/h",
)
GENERATION_COST = Column(
    "generation_cost", "private", "Generation cost", "cost of generation after AC redispatch", "$/h"
)
BALANCING = Column(
    "balancing_mw",
    "private",
    "Balancing power",
    "interchange that zones lack of their schedule and draw from others' reserves",
    "MW",
)
DEVIATION = Column(
    "interchange_deviation_mw",
    "private",
    "Interchange deviation",
    "largest deviation of a zone from its scheduled interchange",
    "MW",
)
BALANCING_COST = Column(
    "balancing_cost",
    "private",
    "Balancing cost",
    "balancing power at the balancing price, paid between zones",
    "$/h",
)
OPTIMALITY_GAP = Column(
    "optimality_gap",
    "private",
    "Optimality gap",
    "cost less that of the AC optimum of the whole grid",
    "$/h",
)
COST_OF_PRIVACY = (
    Column(
        "cost", "private", "Cost of privacy", "cost less that of the noise-free baseline", "$/h"
    ),
    Column(
        "shed_mw",
        "private",
        "Load shedding by privacy",
        "load shedding less that of the noise-free baseline",
        "MW",
    ),
    OPTIMALITY_GAP,
    Column(
        "least_shed_mw",
        "private",
        "Least load shedding",
        "load shedding of the AC optimum that sheds least",
        "MW",
    ),
    Column(
        "noise_free_cost", "private", "Noise-free cost", "cost of the noise-free baseline", "$/h"
    ),
    Column(
        "noise_free_shed_mw",
        "private",
        "Noise-free load shedding",
        "load shedding of the noise-free baseline",
        "MW",
    ),
    Column(
        "noise_free_status",
        "private",
        "Noise-free AC feasibility",
        "status of the noise-free baseline",
        dtype="text",
    ),
    Column(
        "noise_free_residual",
        "private",
        "Noise-free residual",
        "consensus residual of the noise-free baseline",
        "p.u.",
    ),
    Column(
        "prior_only_status",
        "private",
        "Prior-only AC feasibility",
        "status of the prior-only baseline (epsilon = 0)",
        dtype="text",
    ),
    Column(
        "prior_only_cost",
        "private",
        "Prior-only cost",
        "cost of the prior-only baseline (epsilon = 0)",
        "$/h",
    ),
    Column(
        "prior_only_shed_mw",
        "private",
        "Prior-only load shedding",
        "load shedding of the prior-only baseline (epsilon = 0)",
        "MW",
    ),
    Column(
        "island_mw",
        "private",
        "Shed on de-energized islands",
        "load shedding on islands without generation",
        "MW",
    ),
    Column(
        "unavoidable_mw",
        "private",
        "Unavoidable load shedding",
        "load shedding of any dispatch of the rest of the grid",
        "MW",
    ),
    Column(
        "coordination_mw",
        "private",
        "Load shedding by coordination",
        "load shedding of the noise-free baseline beyond that",
        "MW",
    ),
    Column("noise_mw", "private", "Load shedding by noise", "the rest of the load shedding", "MW"),
)

PENALTIES = (
    Column("penalty_min", "releases", "Least penalty", "smallest rho of the round"),
    Column("penalty_max", "releases", "Largest penalty", "largest rho of the round"),
)
SOLVES = Column("solves", "releases", "Solves", "local updates of all zones in finished rounds")
RETRIES = Column("solver_retries", "private", "Solver retries", "solves that were tried again")
SECONDS = Column("seconds", "private", "Time", "wall clock", "s")
SEED = Column(
    "seed", "private", "Seed", "of the simulated noise; whoever has it can undo that", dtype="any"
)
VERSION = Column("version", "settings", "Version", "of gridpriv")

ROUNDS = TableSchema(
    "rounds",
    "one round of one run",
    (ROUND,),
    (
        OBJECTIVE,
        RESIDUAL,
        DISAGREEMENT,
        DUAL_RESIDUAL,
        NOISE,
        COST,
        SHED,
        SURPLUS,
        SHED_Q,
        SURPLUS_Q,
        *PENALTIES,
        Column("solver_iterations", "private", "Solver iterations", "of all zones"),
        RETRIES,
        SECONDS,
    ),
)

ZONE_SIZE = (
    Column("buses", "settings", "Buses", "how many"),
    Column("variables", "settings", "Variables", "of the zone's local problem"),
    Column("shared", "settings", "Shared", "variables that another holder has too"),
    Column("tie_lines", "settings", "Tie lines", "branches with one end in the zone"),
    Column("generators", "settings", "Generators", "how many"),
    Column("connected", "settings", "Connected", "whether its buses are", dtype="flag"),
    Column("share_of_mean", "settings", "Share of the mean size", "buses over the mean zone's"),
    Column("capacity_mw", "settings", "Capacity", "of its generators", "MW"),
)
ZONES = TableSchema(
    "zones",
    "one zone of one run, after the last round",
    (NAME_OF_ZONE,),
    (*ZONE_SIZE, LOAD, *FIGURES),
)

BUSES = TableSchema(
    "buses",
    "one bus of one run",
    (BUS, NAME_OF_ZONE),
    (
        Column("pd_mw", "private", "Active demand", "of the bus", "MW"),
        Column("qd_mvar", "private", "Reactive demand", "of the bus", "MVAr"),
        SHED,
        SHED_Q,
        Column("vm_pu", "private", "Voltage", f"magnitude {LAST}", "p.u."),
        REDISPATCH_SHED,
        Column(
            "redispatch_shed_mvar",
            "private",
            "Reactive shed after redispatch",
            f"reactive load shedding {AFTER}",
            "MVAr",
        ),
    ),
)

PRICES = TableSchema(
    "prices",
    f"one bus, {AFTER}",
    (BUS, NAME_OF_ZONE, UNIT),
    (
        Column("p_price", "private", "Active price", "of one more unit of active demand"),
        Column("q_price", "private", "Reactive price", "of one more unit of reactive demand"),
    ),
)
TIE_PRICES = TableSchema(
    "tie_prices",
    "one flow on a tie line, as one zone prices it after the last round",
    (
        NAME_OF_ZONE,
        Column("branch_row", "settings", "Branch", "1-based row of the source"),
        *ENDS,
        Column("flow", "settings", "Flow", "p_from, q_from, p_to or q_to", dtype="text"),
        UNIT,
    ),
    (Column("price", "releases", "Price", "dual of the flow's consensus constraint"),),
)
BINDING = TableSchema(
    "binding",
    f"one limit that the dispatch {AFTER} stands at",
    (UNIT,),
    (
        Column(
            "kind",
            "private",
            "Kind",
            "generator P, generator Q, line, voltage or angle",
            dtype="text",
        ),
        Column(
            "element", "private", "Element", "generator row, branch row or bus number", dtype="any"
        ),
        Column("limit", "private", "Limit", "lower or upper", dtype="text"),
        Column("at", "private", "At", "bus numbers", dtype="text"),
        Column("value", "private", "Value", "of the limited quantity"),
        Column("bound", "private", "Bound", "what it is limited to"),
        Column("amount", "private", "Amount", "by which the value is outside; 0 at the limit"),
    ),
)


def _end(end: str) -> tuple[Column, ...]:
    """Return the figures of one end of a branch, under pandapower's names."""
    at = f"at the {end} end"
    return (
        Column(f"p_{end}_mw", "private", f"Active flow, {end}", f"into the branch {at}", "MW"),
        Column(
            f"q_{end}_mvar", "private", f"Reactive flow, {end}", f"into the branch {at}", "MVAr"
        ),
        Column(f"i_{end}_ka", "private", f"Current, {end}", at, "kA"),
        Column(f"vm_{end}_pu", "private", f"Voltage, {end}", at, "p.u."),
        Column(f"va_{end}_degree", "private", f"Angle, {end}", at, "degree"),
    )


INDEX = Column("index", "settings", "Index", "bus number, or 1-based row of the source")
STATE = "what zones would dispatch; signs and names are pandapower's"
RES_BUS = TableSchema(
    "res_bus",
    f"one bus: {STATE}",
    (INDEX,),
    (
        Column("vm_pu", "private", "Voltage", "magnitude", "p.u."),
        Column("va_degree", "private", "Angle", "of the voltage", "degree"),
        Column("p_mw", "private", "Active power", "that the bus takes from the grid", "MW"),
        Column("q_mvar", "private", "Reactive power", "that the bus takes from the grid", "MVAr"),
    ),
)
RES_LINE = TableSchema(
    "res_line",
    f"one branch, transformers included: {STATE}",
    (INDEX, *ENDS),
    (
        *_end("from"),
        *_end("to"),
        Column("pl_mw", "private", "Active loss", "of the branch", "MW"),
        Column("ql_mvar", "private", "Reactive loss", "of the branch", "MVAr"),
        Column("i_ka", "private", "Current", "of the end that carries more", "kA"),
        Column("loading_percent", "private", "Loading", "apparent power over the rating", "%"),
    ),
)
RES_GEN = TableSchema(
    "res_gen",
    f"one generator: {STATE}",
    (INDEX, BUS),
    (
        Column("p_mw", "private", "Active power", "generated", "MW"),
        Column("q_mvar", "private", "Reactive power", "generated", "MVAr"),
        Column("va_degree", "private", "Angle", "of the bus's voltage", "degree"),
        Column("vm_pu", "private", "Voltage", "magnitude of the bus's voltage", "p.u."),
    ),
)
RES_SHED = TableSchema(
    "res_shed",
    f"one bus: {STATE}",
    (INDEX,),
    (
        Column("p_mw", "private", "Active shed", "active load shedding", "MW"),
        Column("q_mvar", "private", "Reactive shed", "reactive load shedding", "MVAr"),
    ),
)

RELEASES_OF_ZONE = Column("releases", "releases", "Releases", "of the zone")
SENSITIVITY = (
    Column("nominal", "settings", "Claimed epsilon", "that the settings state for one release"),
    Column(
        "certified",
        "releases",
        "Certified epsilon",
        "of the worst release, under a proven sensitivity",
    ),
    Column("total_pure", "releases", "Pure total epsilon", "by basic composition"),
    Column("total", "releases", "Total epsilon", "of all releases at the target delta"),
    ASSUMED,
    Column("sensitivity", "releases", "Sensitivity", "proven, of the worst release"),
    Column("norm", "settings", "Norm", "in which the sensitivity is measured", dtype="any"),
    Column("scale", "releases", "Noise scale", "of the worst release"),
    BOUND_SOURCE,
    RATIO,
)
STATEMENTS = TableSchema(
    "statements",
    "the privacy of one zone in one run",
    (NAME_OF_ZONE,),
    (RELEASES_OF_ZONE, *SENSITIVITY),
)

TIMING = TableSchema(
    "timing",
    "how long one run took; the only table that differs between two machines",
    (),
    (
        Column("process", "private", "Process", "number of the process that ran it"),
        Column("load", "private", "Reading", "of case and settings", "s"),
        Column("build", "private", "Building", "of the local problems", "s"),
        Column("solve", "private", "Solving", "of all rounds", "s"),
        Column("total", "private", "In all", "from reading to the last check", "s"),
    ),
)

BESIDE = (
    "noise_free_cost",
    "noise_free_shed_mw",
    "noise_free_status",
    "noise_free_residual",
    "prior_only_status",
    "prior_only_cost",
    "prior_only_shed_mw",
)
"""What other runs of the same zones come to."""

STEP = Column("step", "settings", "Step", "name in the series", dtype="text")
STEPS = TableSchema(
    "steps",
    "one step of a series",
    (STEP,),
    (
        Column("rounds", "releases", "Rounds finished", "of the step's run"),
        RESIDUAL,
        DEMAND,
        OBJECTIVE,
        SHED,
        SURPLUS,
        REDISPATCH_SHED,
        FULL_COST,
        BALANCING,
        STATUS,
        AC_FEASIBLE,
        *(column for column in COST_OF_PRIVACY if column.name in BESIDE),
        SECONDS,
    ),
)

RELEASES = TableSchema(
    "releases",
    "equal releases of one zone in one run or step",
    (STEP, NAME_OF_ZONE),
    (
        Column(
            "early",
            "releases",
            "Early",
            "whether the step ended before it could be stored",
            dtype="flag",
        ),
        Column("mechanism", "settings", "Mechanism", "that drew the noise", dtype="text"),
        Column("scale", "releases", "Noise scale", "of the mechanism"),
        Column("sensitivity", "releases", "Sensitivity", "proven"),
        Column("norm", "settings", "Norm", "in which the sensitivity is measured", dtype="any"),
        Column(
            "bound_source",
            "settings",
            "Provenance",
            "where the sensitivity comes from",
            dtype="text",
        ),
        Column("assumed", "settings", "Assumed sensitivity", "that the noise is calibrated to"),
        Column(
            "share",
            "settings",
            "Largest share",
            "larger part of the sensitivity, active or reactive",
        ),
        Column("count", "releases", "Count", "how many; of an early end that nobody saw, at most"),
    ),
)

DOCUMENTS_OF_RUNS = TableSchema(
    "documents",
    "one run",
    (),
    (Column("document", "private", "Document", "what run --json prints, as JSON", dtype="text"),),
)

RELEASED = TableSchema(
    "released",
    "one bus: the demand that one release leaves likely, in the mean of the steps "
    "or before they scale it",
    (STEP, NAME_OF_ZONE, BUS),
    (
        Column("pd_pu", "releases", "Active demand", "that the release leaves likely", "p.u."),
        Column("qd_pu", "releases", "Reactive demand", "that the release leaves likely", "p.u."),
    ),
)

TEMPORAL_COEFFICIENTS = TableSchema(
    "temporal_coefficients",
    "one cosine of a zone's sum over the steps: what one release leaves likely",
    (STEP, NAME_OF_ZONE, Column("cosine", "settings", "Cosine", "half waves over all steps")),
    (
        Column("p_pu", "releases", "Active swing", "its coefficient, as a mean over steps", "p.u."),
        Column(
            "q_pu", "releases", "Reactive swing", "its coefficient, as a mean over steps", "p.u."
        ),
    ),
)

RELEASED_ONCE = TableSchema(
    "released_once",
    "one zone: what it releases of all steps at once",
    (NAME_OF_ZONE,),
    (
        Column("statistics", "settings", "Statistics", "of mean demand that carry the noise"),
        Column("cosines", "settings", "Cosines", "of the sum over the steps, beside its mean"),
        Column("weight", "settings", "Weight", "of a cosine beside a sum's mean"),
        Column(
            "expected_error_mw",
            "settings",
            "Expected error",
            "of what the objective counts of a step (of factor 1), from public data",
            "MW",
        ),
    ),
)

FINALS = (
    OBJECTIVE,
    RESIDUAL,
    SHED,
    SURPLUS,
    IMBALANCE,
    SHED_Q,
    REDISPATCH_SHED,
    Column(
        "redispatch_surplus_mw",
        "private",
        "Surplus after redispatch",
        f"active power without a taker {AFTER}",
        "MW",
    ),
    Column(
        "redispatch_objective",
        "private",
        "Squared imbalance after redispatch",
        f"of true demand {AFTER}",
        "p.u. squared",
    ),
    NOISE,
    Column("redispatch_cost", "private", "Cost after redispatch", f"of generation {AFTER}", "$/h"),
    FULL_COST,
    BALANCING,
    DEVIATION,
    AC_FEASIBLE,
    EXPLANATION,
    AC_CONVERGED,
    AC_SLACK,
    AC_VOLTAGES,
    AC_LOADINGS,
    SOLVES,
    RETRIES,
)

SETTINGS = TableSchema(
    "settings",
    "the settings of a run",
    (),
    (
        *setting_columns(Settings),
        Column("zoning", "settings", "Zone map", "where it comes from", dtype="text"),
    ),
)

NETWORK_BUSES = TableSchema(
    "network_buses",
    "one bus, as maps draw it",
    (CASE, ZONING, BUS),
    (
        NAME_OF_ZONE,
        Column("x", "settings", "x", "position in the drawing"),
        Column("y", "settings", "y", "position in the drawing"),
        Column("generator", "settings", "Generator", "whether it has one", dtype="flag"),
    ),
)
NETWORK_BRANCHES = TableSchema(
    "network_branches",
    "one branch, as maps draw it",
    (CASE, ZONING),
    (
        Column("from", "settings", "From bus", "number of the branch's first end"),
        Column("to", "settings", "To bus", "number of the branch's second end"),
        Column("tie", "settings", "Tie", "whether it joins two zones", dtype="flag"),
    ),
)

TABLES = (
    ROUNDS,
    ZONES,
    BUSES,
    PRICES,
    TIE_PRICES,
    BINDING,
    RES_BUS,
    RES_LINE,
    RES_GEN,
    RES_SHED,
    STATEMENTS,
    TIMING,
    STEPS,
    RELEASES,
    RELEASED,
    TEMPORAL_COEFFICIENTS,
    DOCUMENTS_OF_RUNS,
    NETWORK_BUSES,
    NETWORK_BRANCHES,
)
