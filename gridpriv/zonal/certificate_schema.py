"""Document of the certificate of a published case: figures, units, visibility."""

from __future__ import annotations

from gridpriv.core.tables import Column, Schema, TableSchema, by_name
from gridpriv.privacy.schema import ADJACENCY, BOUND_SOURCE

RELEASES = TableSchema(
    "releases",
    "one release",
    (),
    (
        Column("quantity", "settings", "Quantity", "what carries the noise"),
        Column("mechanism", "settings", "Mechanism", "law of the noise"),
        Column("sensitivity", "releases", "Sensitivity", "largest change between neighbours"),
        Column("scale", "releases", "Scale", "of the noise"),
        Column("standard_deviation", "releases", "Noise", "standard deviation of one number"),
        Column("unit", "settings", "Unit", "of sensitivity, scale and noise"),
        Column("norm", "settings", "Norm", "of the sensitivity"),
        Column("epsilon", "releases", "Epsilon", "pure, of this release"),
        BOUND_SOURCE,
    ),
)
CERTIFICATE: dict[str, Schema] = {
    **by_name(
        Column("case", "settings", "Case", "name of the published case"),
        Column("source", "settings", "Source", "case that it is a protected copy of"),
        Column("buses", "settings", "Buses", "number of buses"),
    ),
    "protected": by_name(
        ADJACENCY,
        Column("beta_mw", "settings", "Beta", "protected change of one bus", "MW"),
        Column("protects", "settings", "Protects", "which demand of a bus"),
        Column("total_epsilon", "releases", "Total epsilon", "pure, of all releases"),
        Column("noise", "settings", "Noise", "simulated or secure"),
        Column("caveat", "settings", "Caveat", "what the noise's source means for privacy"),
        Column(
            "best_guess",
            "releases",
            "Best guess",
            "largest probability of telling two demands beta apart",
        ),
        Column(
            "inversion_error_mw",
            "releases",
            "Inversion error",
            "least mean absolute error of any estimate of one bus's demand, over two demands",
            "MW",
        ),
    ),
    **by_name(RELEASES),
    "demand": by_name(
        Column("total_mw", "releases", "Total", "published active demand", "MW"),
        Column(
            "expected_total_error_mw",
            "releases",
            "Expected error of the total",
            "standard deviation of the posterior",
            "MW",
        ),
        Column(
            "expected_bus_error_mw",
            "releases",
            "Expected error of a bus",
            "root mean square of posterior standard deviations",
            "MW",
        ),
        Column("projected_mw", "releases", "Projected", "sum of changes of active demand", "MW"),
        Column(
            "projected_mvar", "releases", "Projected", "sum of changes of reactive demand", "MVAr"
        ),
        Column("metric", "settings", "Metric", "distance that the projection minimises"),
        Column("margin", "releases", "Margin", "share by which limits were tightened"),
    ),
    "optimum": by_name(
        Column(
            "ac_feasible",
            "releases",
            "AC-feasible",
            "an AC optimum serves all published demand within all limits",
        ),
        Column(
            "cost", "releases", "Optimal cost", "of the published case; null without costs", "$/h"
        ),
        Column(
            "cost_range",
            "releases",
            "Cost range",
            "of the true case's optimal cost, 19 of 21 under the posterior; null without "
            "--fidelity cost",
            "$/h",
        ),
        Column("rated_branches", "settings", "Rated branches", "branches with a limit"),
    ),
    **by_name(
        TableSchema(
            "files",
            "one file",
            (),
            (
                Column("name", "settings", "Name", "of the file"),
                Column("sha256", "releases", "SHA-256", "of its content"),
            ),
        ),
        TableSchema(
            "ledger",
            "the ledger entry; null without a ledger",
            (),
            (Column("run", "releases", "Run", "identifier in the ledger"),),
        ),
        Column("public_data", "settings", "Public data", "declared public and left unchanged"),
        Column("version", "settings", "Version", "of gridpriv"),
    ),
}
