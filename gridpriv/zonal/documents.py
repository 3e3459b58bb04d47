"""Documents of a run and of a series, ``--json``: every key, its unit, and who may see it."""

from __future__ import annotations

from gridpriv.core.tables import Column, Schema, TableSchema, by_name
from gridpriv.privacy.schema import PER_RELEASE, STATED, TOTAL
from gridpriv.zonal import schema as zonal

OUTSIDE = TableSchema(
    "violations", "one limit that the settled grid is outside of",
    (),
    (
        Column("kind", "private", "Kind", "generator P, generator Q, line, voltage or angle"),
        Column("element", "private", "Element", "generator row, branch row or bus number"),
        Column("at", "private", "At", "bus numbers"),
        Column("limit", "private", "Limit", "lower or upper"),
        Column("amount", "private", "Amount", "outside the limit"),
        Column("unit", "private", "Unit", "of the amount"),
    ),
)  # fmt: skip
INTERCHANGE = TableSchema(
    "interchange", "one zone: what its tie lines take from it, metered in their middle",
    (zonal.NAME_OF_ZONE,),
    (
        Column("scheduled_mw", "releases", "Scheduled", "by what zones sent last", "MW"),
        Column("actual_mw", "private", "Actual", "after settling", "MW"),
        Column("deviation_mw", "private", "Deviation", "actual less scheduled", "MW"),
        zonal.BALANCING, zonal.BALANCING_COST,
        Column("shed_mw", "private", "Not served", "active demand that is not served", "MW"),
    ),
)  # fmt: skip
PHYSICAL = by_name(
    zonal.CARRIED,
    Column("failure", "private", "Failure", "where the AC power flow fails, if it does"),
    zonal.FULL_COST, zonal.GENERATION_COST,
    Column("shed_mw", "private", "Shed", "active demand that is not served", "MW"),
    Column("dead_mw", "private", "Shed on islands",
           "the part of it on islands in which nothing generates", "MW"),
    Column("spill_mw", "private", "Spill", "generation that cannot be used", "MW"),
    zonal.BALANCING, zonal.BALANCING_COST, zonal.DEVIATION,
    Column("losses_mw", "private", "Losses", "of branches and shunts", "MW"),
    Column("regulation_mw", "private", "Regulation", zonal.AC_SLACK.meaning, "MW"),
    Column("fallback_zones", "private", "Fallback zones",
           "without an AC plan: they act as in the last round"),
    Column("replans", "private", "Replans", "how often zones planned again"),
    OUTSIDE, INTERCHANGE,
)  # fmt: skip

PRIVACY = by_name(
    *STATED,
    Column("beta", "settings", "Beta", "adjacency distance", "p.u."),
    Column("protects", "settings", "Protects", "which demand of a bus"),
    Column("releases_per_zone", "releases", "Releases per zone", "of the zone that made most"),
    PER_RELEASE,
    Column("noise_multiplier", "settings", "Noise multiplier",
           "noise scale over the sensitivity it is calibrated to"),
    Column("total_pure", "releases", "Pure total epsilon", "of the worst zone"),
    TableSchema("total", "all releases of the worst zone", (), TOTAL),
    Column("paper_total", "settings", "The paper's total",
           "Ryu and Kim's theorem 4.6; no certificate"),
)  # fmt: skip

RELEASED = TableSchema(
    "released", "one zone: what it releases of its demand", (zonal.NAME_OF_ZONE,),
    (
        Column("statistics", "settings", "Statistics", "of demand that carry the noise"),
        Column("expected_error_mw", "settings", "Expected error",
               "of what neighbours use, by public figures", "MW"),
    ),
)  # fmt: skip
RECOURSE = TableSchema(
    "recourse", "the dispatch after local recourse", (),
    (zonal.OBJECTIVE, zonal.SHED, zonal.SURPLUS, zonal.COST,
     Column("failed_zones", "private", "Failed zones", "without a recourse")),
)  # fmt: skip
AC = TableSchema(
    "ac", "the AC power flow of that dispatch", (),
    (
        Column("converged", "private", "Converged", "whether it has a solution"),
        Column("slack_mw", "private", "Regulation", zonal.AC_SLACK.meaning, "MW"),
        Column("vm_violations", "private", "Voltage violations", zonal.AC_VOLTAGES.meaning),
        Column("vm_worst_pu", "private", "Worst voltage", "distance outside the band", "p.u."),
        Column("loading_violations", "private", "Loading violations", zonal.AC_LOADINGS.meaning),
    ),
)  # fmt: skip
SOLVER = TableSchema(
    "solver", "the solver of the local problems", (),
    (
        Column("name", "settings", "Solver", "by name"),
        Column("version", "settings", "Solver's version", "as installed"),
        zonal.SOLVES,
        Column("failures", "private", "Failures", "solves that were tried again"),
        Column("seconds_per_solve", "private", "Time of a solve", "wall clock", "s"),
    ),
)  # fmt: skip

CASE = (zonal.CASE, Column("buses", "settings", "Buses", "of the case"))
RUN_DOCUMENT: dict[str, Schema] = {
    **by_name(
        *CASE, TableSchema("zones", "one zone", (zonal.NAME_OF_ZONE,), zonal.ZONE_SIZE), RELEASED,
        zonal.SETTINGS, zonal.ROUNDS,
        Column("ended", "releases", "Ended", "finished, or early"),
        Column("reason", "private", "Reason", "what ended the run early"),
    ),
    "final": {
        **by_name(
            *zonal.FIGURES, zonal.EXPLANATION, zonal.RESIDUAL, zonal.DISAGREEMENT, RECOURSE,
        ),
        "physical": PHYSICAL,
        **by_name(
            TableSchema("cost_of_privacy", "what noise cost", (), zonal.COST_OF_PRIVACY), AC
        ),
    },
    "privacy": PRIVACY | {"sensitivity": zonal.STATEMENTS},
    **by_name(
        SOLVER, zonal.TIMING, zonal.SEED, zonal.VERSION,
        Column("repeat", "private", "To repeat", "command line, with its paths"),
    ),
}  # fmt: skip

SERIES_DOCUMENT: dict[str, Schema] = {
    **by_name(
        *CASE,
        Column("series", "settings", "Series", "where the steps come from"),
        Column("planned", "settings", "Planned", "steps of the series"),
        Column("finished", "releases", "Finished", "steps that are run to their end"),
        zonal.SETTINGS, zonal.RELEASED_ONCE, zonal.STEPS,
    ),
    "privacy": PRIVACY | {"zones": zonal.STATEMENTS},
    **by_name(zonal.SEED, zonal.VERSION),
}  # fmt: skip
