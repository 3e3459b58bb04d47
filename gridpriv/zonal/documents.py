"""Documents of a run and of a series, ``--json``: every key, its unit, and who may see it."""

from __future__ import annotations

from gridpriv.core.tables import Column, Schema, TableSchema
from gridpriv.privacy.schema import PER_RELEASE, STATED, TOTAL
from gridpriv.zonal.schema import (
    AC_LOADINGS,
    AC_SLACK,
    AC_VOLTAGES,
    BALANCING,
    BALANCING_COST,
    CARRIED,
    CASE,
    COST,
    COST_OF_PRIVACY,
    DEVIATION,
    DISAGREEMENT,
    EXPLANATION,
    FIGURES,
    FULL_COST,
    GENERATION_COST,
    NAME_OF_ZONE,
    OBJECTIVE,
    RESIDUAL,
    ROUNDS,
    SEED,
    SETTINGS,
    SHED,
    SOLVES,
    STATEMENTS,
    STEPS,
    SURPLUS,
    TIMING,
    VERSION,
    ZONE_SIZE,
)

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
    (NAME_OF_ZONE,),
    (
        Column("scheduled_mw", "releases", "Scheduled", "by what zones sent last", "MW"),
        Column("actual_mw", "private", "Actual", "after settling", "MW"),
        Column("deviation_mw", "private", "Deviation", "actual less scheduled", "MW"),
        BALANCING, BALANCING_COST,
        Column("shed_mw", "private", "Not served", "active demand that is not served", "MW"),
    ),
)  # fmt: skip
PHYSICAL: dict[str, Schema] = {
    **{c.name: c for c in (
        CARRIED,
        Column("failure", "private", "Failure", "where the AC power flow fails, if it does"),
        FULL_COST, GENERATION_COST,
        Column("shed_mw", "private", "Shed", "active demand that is not served", "MW"),
        Column("dead_mw", "private", "Shed on islands",
               "the part of it on islands in which nothing generates", "MW"),
        Column("spill_mw", "private", "Spill", "generation that cannot be used", "MW"),
        BALANCING, BALANCING_COST,
        DEVIATION,
        Column("losses_mw", "private", "Losses", "of branches and shunts", "MW"),
        Column("regulation_mw", "private", "Regulation",
               "active power that generators add to their plans", "MW"),
        Column("fallback_zones", "private", "Fallback zones",
               "without an AC plan: they act as in the last round"),
        Column("replans", "private", "Replans", "how often zones planned again"),
    )},
    "violations": OUTSIDE,
    "interchange": INTERCHANGE,
}  # fmt: skip

PRIVACY: dict[str, Schema] = {
    **{c.name: c for c in STATED},
    "beta": Column("beta", "settings", "Beta", "adjacency distance", "p.u."),
    "protects": Column("protects", "settings", "Protects", "which demand of a bus"),
    "releases_per_zone": Column("releases_per_zone", "releases", "Releases per zone",
                                "of the zone that made most"),
    "per_release": PER_RELEASE,
    "noise_multiplier": Column("noise_multiplier", "settings", "Noise multiplier",
                               "noise scale over the sensitivity it is calibrated to"),
    "total_pure": Column("total_pure", "releases", "Pure total epsilon", "of the worst zone"),
    "total": TableSchema("total", "all releases of the worst zone", (), TOTAL),
    "paper_total": Column("paper_total", "settings", "The paper's total",
                          "Ryu and Kim's theorem 4.6; no certificate"),
    "sensitivity": STATEMENTS,
}  # fmt: skip

RUN_DOCUMENT: dict[str, Schema] = {
    "case": CASE,
    "buses": Column("buses", "settings", "Buses", "of the case"),
    "zones": TableSchema("zones", "one zone", (NAME_OF_ZONE,), ZONE_SIZE),
    "released": TableSchema(
        "released", "one zone: what it releases of its demand", (NAME_OF_ZONE,),
        (
            Column("statistics", "settings", "Statistics", "of demand that carry the noise"),
            Column("expected_error_mw", "settings", "Expected error",
                   "of what neighbours use, by public figures", "MW"),
        ),
    ),
    "settings": SETTINGS,
    "rounds": ROUNDS,
    "ended": Column("ended", "releases", "Ended", "finished, or early"),
    "reason": Column("reason", "private", "Reason", "what ended the run early"),
    "final": {
        **{c.name: c for c in (*FIGURES, EXPLANATION, RESIDUAL, DISAGREEMENT)},
        "recourse": TableSchema(
            "recourse", "the dispatch after local recourse", (),
            (OBJECTIVE, SHED, SURPLUS, COST,
             Column("failed_zones", "private", "Failed zones", "without a recourse")),
        ),
        "physical": PHYSICAL,
        "cost_of_privacy": TableSchema("cost_of_privacy", "what noise cost", (), COST_OF_PRIVACY),
        "ac": TableSchema(
            "ac", "the AC power flow of that dispatch", (),
            (
                Column("converged", "private", "Converged", "whether it has a solution"),
                Column("slack_mw", "private", "Regulation", AC_SLACK.meaning, "MW"),
                Column("vm_violations", "private", "Voltage violations", AC_VOLTAGES.meaning),
                Column("vm_worst_pu", "private", "Worst voltage", "distance outside the band",
                       "p.u."),
                Column("loading_violations", "private", "Loading violations", AC_LOADINGS.meaning),
            ),
        ),
    },
    "privacy": PRIVACY,
    "solver": TableSchema(
        "solver", "the solver of the local problems", (),
        (
            Column("name", "settings", "Solver", "by name"),
            Column("version", "settings", "Solver's version", "as installed"),
            SOLVES,
            Column("failures", "private", "Failures", "solves that were tried again"),
            Column("seconds_per_solve", "private", "Time of a solve", "wall clock", "s"),
        ),
    ),
    "timing": TIMING,
    "seed": SEED,
    "version": VERSION,
    "repeat": Column("repeat", "private", "To repeat", "command line, with its paths"),
}  # fmt: skip

SERIES_DOCUMENT: dict[str, Schema] = {
    "case": CASE,
    "buses": Column("buses", "settings", "Buses", "of the case"),
    "series": Column("series", "settings", "Series", "where the steps come from"),
    "planned": Column("planned", "settings", "Planned", "steps of the series"),
    "finished": Column("finished", "releases", "Finished", "steps that are stored"),
    "settings": SETTINGS,
    "steps": STEPS,
    "privacy": {key: PRIVACY[key] for key in PRIVACY if key != "sensitivity"}
    | {"zones": STATEMENTS},
    "seed": SEED,
    "version": VERSION,
}
