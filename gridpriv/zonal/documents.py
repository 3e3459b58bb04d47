"""Documents of a run and of a series, ``--json``: every key, its unit, and who may see it."""

from __future__ import annotations

from gridpriv.core.tables import Column, Schema, TableSchema, by_name
from gridpriv.privacy.schema import PER_RELEASE, STATED, TOTAL
from gridpriv.zonal import schema as zonal
from gridpriv.zonal.meter import METER

OUTSIDE = TableSchema(
    "violations",
    "one limit that the settled grid is outside of",
    (),
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
        Column("at", "private", "At", "bus numbers", dtype="text"),
        Column("limit", "private", "Limit", "lower or upper", dtype="text"),
        Column("amount", "private", "Amount", "outside the limit"),
        Column("unit", "private", "Unit", "of the amount", dtype="text"),
    ),
)
INTERCHANGE = TableSchema(
    "interchange",
    "one zone: what its tie lines take from it, metered in their middle",
    (zonal.NAME_OF_ZONE,),
    (
        Column("scheduled_mw", "releases", "Scheduled", "by what zones sent last", "MW"),
        Column("actual_mw", "private", "Actual", "after settling", "MW"),
        Column("deviation_mw", "private", "Deviation", "actual less scheduled", "MW"),
        zonal.BALANCING,
        zonal.BALANCING_COST,
        Column("shed_mw", "private", "Load shedding", "active demand that is not served", "MW"),
    ),
)
PHYSICAL = by_name(
    zonal.STATUS,
    zonal.AC_FEASIBLE,
    Column("failure", "private", "Failure", "reason why the AC power flow fails, if it does"),
    Column("load_mw", "private", "Load", "sum of positive active demand", "MW"),
    zonal.FULL_COST,
    zonal.GENERATION_COST,
    zonal.OPTIMALITY_GAP,
    Column("shed_mw", "private", "Load shedding", "active demand that is not served", "MW"),
    Column(
        "deenergized_mw",
        "private",
        "Shed on de-energized islands",
        "load shedding on islands without generation",
        "MW",
    ),
    Column(
        "curtailed_mw", "private", "Curtailed generation", "generation that cannot be used", "MW"
    ),
    zonal.BALANCING,
    zonal.BALANCING_COST,
    zonal.DEVIATION,
    Column("losses_mw", "private", "Losses", "active power losses of branches", "MW"),
    Column("regulation_mw", "private", "Regulation", zonal.AC_SLACK.meaning, "MW"),
    Column(
        "fallback_zones",
        "private",
        "Fallback zones",
        "without an AC plan: they act as in the last round",
    ),
    Column("replans", "private", "Replans", "how often zones planned again"),
    OUTSIDE,
    INTERCHANGE,
)

PRIVACY = by_name(
    *STATED,
    Column("beta", "settings", "Beta", "adjacency distance", "p.u.", dtype="text"),
    Column("protects", "settings", "Protects", "which demand of a bus", dtype="text"),
    Column("releases_per_zone", "releases", "Releases per zone", "of the zone that made most"),
    PER_RELEASE,
    Column(
        "noise_multiplier",
        "settings",
        "Noise multiplier",
        "noise scale over the sensitivity it is calibrated to",
    ),
    Column("total_pure", "releases", "Pure total epsilon", "of the worst zone"),
    TableSchema("total", "all releases of the worst zone", (), TOTAL),
    Column(
        "published_total",
        "settings",
        "The paper's total",
        "Ryu and Kim's theorem 4.6; no certificate",
    ),
)

RELEASED = TableSchema(
    "released",
    "one zone: what it releases of its demand",
    (zonal.NAME_OF_ZONE,),
    (
        Column("statistics", "settings", "Statistics", "of demand that carry the noise"),
        Column(
            "expected_error_mw",
            "settings",
            "Expected error",
            "of what the objective counts of the demand, from public data",
            "MW",
        ),
    ),
)
REDISPATCH = TableSchema(
    "redispatch",
    "the dispatch after local redispatch",
    (),
    (
        zonal.OBJECTIVE,
        zonal.SHED,
        zonal.SURPLUS,
        zonal.COST,
        Column("failed_zones", "private", "Failed zones", "without a redispatch"),
    ),
)
AC = TableSchema(
    "ac",
    "the AC power flow of that dispatch",
    (),
    (
        Column("converged", "private", "Converged", "whether it has a solution"),
        Column("slack_mw", "private", "Regulation", zonal.AC_SLACK.meaning, "MW"),
        Column("vm_violations", "private", "Voltage violations", zonal.AC_VOLTAGES.meaning),
        Column("vm_worst_pu", "private", "Worst voltage", "distance outside the band", "p.u."),
        Column("loading_violations", "private", "Loading violations", zonal.AC_LOADINGS.meaning),
    ),
)
AC_ROUNDS = TableSchema(
    "ac_rounds",
    "rounds in which zones solve the AC optimal power flow of released demand",
    (),
    (
        Column("rounds", "releases", "AC rounds", "number of rounds"),
        Column("converged", "releases", "Converged", "optimality conditions hold to 1e-6"),
        Column(
            "primal_residual",
            "releases",
            "Primal residual",
            "largest residual of the AC equations in the last round",
            "p.u.",
        ),
        Column(
            "dual_residual",
            "releases",
            "Dual residual",
            "largest component of the Lagrangian's gradient in the last round",
        ),
    ),
)
SOLVER = TableSchema(
    "solver",
    "the solver of the local problems",
    (),
    (
        Column("name", "settings", "Solver", "by name"),
        Column("version", "settings", "Solver's version", "as installed"),
        zonal.SOLVES,
        Column("failures", "private", "Failures", "solves that were tried again"),
        Column("seconds_per_solve", "private", "Time of a solve", "wall clock", "s"),
    ),
)

CASE = (zonal.CASE, Column("buses", "settings", "Buses", "of the case"))
MESSAGES = TableSchema(
    "messages",
    "one message that changes how the figures are read",
    (),
    (
        Column("code", "private", "Code", "kind of message"),
        Column("severity", "private", "Severity", "warning or info"),
        Column("text", "private", "Text", "message in English"),
    ),
)
RUN_DOCUMENT: dict[str, Schema] = {
    **by_name(
        *CASE,
        TableSchema("zones", "one zone", (zonal.NAME_OF_ZONE,), zonal.ZONE_SIZE),
        RELEASED,
        zonal.SETTINGS,
        zonal.ROUNDS,
        Column("ended", "releases", "Ended", "finished, or early"),
        Column("reason", "private", "Reason", "what ended the run early", dtype="text"),
        MESSAGES,
    ),
    "final": {
        **by_name(
            *zonal.FIGURES,
            zonal.EXPLANATION,
            zonal.RESIDUAL,
            zonal.DISAGREEMENT,
            zonal.DUAL_RESIDUAL,
            AC_ROUNDS,
            REDISPATCH,
        ),
        "physical": PHYSICAL,
        "meter": METER,
        **by_name(TableSchema("cost_of_privacy", "what noise cost", (), zonal.COST_OF_PRIVACY), AC),
    },
    "privacy": PRIVACY | {"sensitivity": zonal.STATEMENTS},
    **by_name(
        SOLVER,
        zonal.TIMING,
        zonal.SEED,
        zonal.VERSION,
        Column("repeat", "private", "To repeat", "command line, with its paths"),
    ),
}

PASSED = TableSchema(
    "violations",
    "one limit that is passed",
    (),
    (
        Column(
            "kind",
            "releases",
            "Kind",
            "generator P, generator Q, line, voltage or angle",
            dtype="text",
        ),
        Column(
            "element", "releases", "Element", "generator row, branch row or bus number", dtype="any"
        ),
        Column("limit", "releases", "Limit", "lower or upper", dtype="text"),
        Column("at", "releases", "At", "bus numbers", dtype="text"),
        Column("value", "releases", "Value", "value of the limited quantity"),
        Column("bound", "releases", "Bound", "limit of the quantity"),
        Column("amount", "releases", "Amount", "distance of the value beyond the limit"),
        Column("unit", "releases", "Unit", "unit of value, bound and amount", dtype="text"),
    ),
)
AFTER_OUTAGE = by_name(
    Column(
        "status",
        "releases",
        "Status",
        "converged, diverged (no AC state) or screened",
        dtype="text",
    ),
    Column(
        "worst_loading_percent",
        "releases",
        "Worst loading",
        "largest apparent power over the rating",
        "%",
    ),
    Column("worst_branch", "releases", "Worst branch", "bus numbers of that branch"),
    PASSED,
    Column(
        "islanded_mw",
        "releases",
        "Islanded",
        "active demand separated from the largest part of its island",
        "MW",
    ),
    Column("shed_mw", "releases", "Shed", "active load shedding", "MW"),
)
CONTINGENCY = by_name(
    Column("name", "settings", "Contingency", "name in the list, or the element that fails"),
    Column("kind", "settings", "Kind", "branch, generator or multiple", dtype="text"),
    Column("outages", "settings", "Outages", "elements that fail"),
    Column("at", "settings", "At", "bus numbers of these elements", dtype="text"),
)
PREVENTION = by_name(
    Column("cost_before", "releases", "Cost before", "of the plan without contingencies", "$/h"),
    Column("cost", "releases", "Cost", "of the preventive plan; null without one", "$/h"),
    Column(
        "violations_before",
        "releases",
        "Violations before",
        "limits passed after all contingencies in the plan without them",
    ),
    Column("cuts", "releases", "Cuts", "limits after contingencies that the plan was held to"),
    Column("plans", "releases", "Plans", "plans until no limit was passed; 0 without --secure"),
    Column("rounds", "releases", "Rounds", "rounds of all plans together"),
    Column(
        "not_prevented",
        "releases",
        "Not prevented",
        "contingencies that still pass a limit or shed demand",
    ),
)
SECURITY_DOCUMENT: dict[str, Schema] = {
    **by_name(
        *CASE,
        Column("view", "settings", "View", "demand that the analysis takes"),
        Column("rating", "settings", "Rating", "branch rating after an outage: A, B or C"),
        Column("visibility", "settings", "Visibility", "public (by released demand) or local"),
        Column(
            "secure",
            "releases",
            "Secure",
            "no contingency passes a limit or sheds demand, nor does the grid before it",
        ),
    ),
    "base": AFTER_OUTAGE,
    "prevention": PREVENTION,
    "contingencies": CONTINGENCY | AFTER_OUTAGE,
    "privacy": PRIVACY | {"sensitivity": zonal.STATEMENTS},
    **by_name(
        Column("seconds", "private", "Time", "wall clock of the analysis", "s"), zonal.VERSION
    ),
}

STORAGE_FILE = "storage.csv"
STORAGE_STEP = by_name(
    Column("step", "settings", "Step", "name of the step"),
    Column("storage", "settings", "Storage", "name of the storage"),
    Column("bus", "settings", "Bus", "bus number"),
    Column("p_mw", "releases", "Output", "discharge less charge, as planned and as kept to", "MW"),
    Column("energy_mwh", "releases", "Energy", "energy after the step", "MWh"),
    Column("soc_percent", "releases", "State of charge", "energy over capacity", "%"),
)

ZONE_PAIR = (
    Column("from_zone", "settings", "From", "zone that sells, or that pays"),
    Column("to_zone", "settings", "To", "zone that buys, or that is paid"),
)
EXCHANGE_ZONE = TableSchema(
    "zones",
    "one zone",
    (zonal.NAME_OF_ZONE,),
    (
        Column("net_position_mw", "releases", "Net position", "export before a change", "MW"),
        Column("least_mw", "releases", "Least", "smallest net position in the domain", "MW"),
        Column("most_mw", "releases", "Most", "largest net position in the domain", "MW"),
        Column("market_cost", "releases", "Market cost", "generation without a network", "$/h"),
        Column("generation_cost", "releases", "Generation cost", "at the AC optimum", "$/h"),
        Column("redispatch_mw", "releases", "Redispatch", "upward changes of generators", "MW"),
        Column(
            "redispatch_cost",
            "releases",
            "Redispatch cost",
            "generation cost less market cost",
            "$/h",
        ),
        Column("tie_revenue", "releases", "Tie revenue", "received less paid at tie prices", "$/h"),
    ),
)
EXCHANGE_BRANCH = by_name(
    Column("branch", "settings", "Branch", "branch:N with N the row of the source"),
    Column("at", "settings", "At", "bus numbers of its ends"),
    Column("tie_line", "settings", "Tie line", "ends lie in two zones"),
    Column("rating_mva", "settings", "Rating", "permanent rating", "MVA"),
    Column("flow_mw", "releases", "Flow", "active flow from the first end", "MW"),
    Column("margin_mw", "releases", "Margin", "room for more flow", "MW"),
    Column("opposite_margin_mw", "releases", "Opposite margin", "room for less flow", "MW"),
    Column("largest_ptdf", "releases", "Largest PTDF", "largest difference between two zones"),
    TableSchema(
        "ptdf",
        "one zone",
        (zonal.NAME_OF_ZONE,),
        (Column("ptdf", "releases", "PTDF", "change of flow per net position"),),
    ),
)
EXCHANGE_PAIR = TableSchema(
    "exchanges",
    "one ordered pair of zones",
    ZONE_PAIR,
    (
        Column("most_mw", "releases", "Most", "largest exchange that no branch limits", "MW"),
        Column("limit", "releases", "Limit", "branch that limits it"),
        Column("limit_at", "releases", "At", "bus numbers of its ends"),
        Column("generation_mw", "releases", "Generation", "room of the generators of both", "MW"),
    ),
)
EXCHANGE_DOCUMENT: dict[str, Schema] = {
    **by_name(
        *CASE,
        Column("view", "settings", "View", "demand that the analysis takes"),
        Column("ptdf_model", "settings", "PTDF model", "dc or ac power flow"),
        Column("visibility", "settings", "Visibility", "public (by released demand) or local"),
        EXCHANGE_ZONE,
        EXCHANGE_PAIR,
    ),
    "branches": EXCHANGE_BRANCH,
    "domain": by_name(
        Column("first_zone", "settings", "First zone", "of the horizontal axis"),
        Column("second_zone", "settings", "Second zone", "of the vertical axis"),
        Column("balancing_zone", "settings", "Balancing zone", "takes the difference"),
        TableSchema(
            "corners",
            "one corner of the slice",
            (),
            (
                Column("first_mw", "releases", "First", "net position of the first zone", "MW"),
                Column("second_mw", "releases", "Second", "net position of the second zone", "MW"),
            ),
        ),
    ),
    **by_name(
        TableSchema(
            "payments",
            "one pair of zones",
            ZONE_PAIR,
            (
                Column("energy_mwh", "releases", "Energy", "sold in an hour", "MWh"),
                Column("amount", "releases", "Amount", "paid at tie prices", "$/h"),
            ),
        ),
    ),
    "privacy": PRIVACY | {"sensitivity": zonal.STATEMENTS},
    **by_name(
        Column("seconds", "private", "Time", "wall clock of the analysis", "s"), zonal.VERSION
    ),
}

STREAM = TableSchema(
    "stream",
    "budget of a stream",
    (),
    (
        Column("window_hours", "settings", "Window", "consecutive hours with one budget", "h"),
        Column("block_hours", "settings", "Block", "hours of one released mean", "h"),
        Column("releases_per_window", "settings", "Releases", "of a zone in a window"),
        Column("total_per_window", "settings", "Total of a window", "epsilon"),
        *(
            Column(
                f"total_per_{period}",
                "settings",
                f"Total of a {period}",
                f"epsilon of a bus that differs in every hour of a {period}; null where the "
                "noise has no pure epsilon",
            )
            for period in ("day", "week", "month", "year")
        ),
    ),
)
SERIES_DOCUMENT: dict[str, Schema] = {
    **by_name(
        *CASE,
        Column("series", "settings", "Series", "where the steps come from"),
        Column("planned", "settings", "Planned", "steps of the series"),
        Column("finished", "releases", "Finished", "steps that are run to their end"),
        zonal.SETTINGS,
        zonal.RELEASED_ONCE,
        zonal.STEPS,
    ),
    "storage": STORAGE_STEP,
    "privacy": PRIVACY | {"zones": zonal.STATEMENTS, "stream": STREAM},
    **by_name(zonal.SEED, zonal.VERSION),
}
