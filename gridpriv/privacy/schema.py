"""Privacy block of a run's document: fields and their visibility."""

from __future__ import annotations

from gridpriv.core.tables import Column, TableSchema

ADJACENCY = Column(
    "adjacency", "settings", "Adjacency", "what is protected, in words", dtype="text"
)
STATED = (
    Column("mechanism", "settings", "Mechanism", "of the noise", dtype="text"),
    Column("perturbation", "settings", "Perturbation", "what carries the noise", dtype="text"),
    Column("sensitivity_bound", "settings", "Sensitivity bound", "proven or published"),
    Column("noise", "settings", "Noise", "simulated or secure", dtype="text"),
    Column("caveat", "settings", "Caveat", "what the noise's source means for privacy"),
    ADJACENCY,
)
PER_RELEASE = TableSchema(
    "per_release",
    "one release",
    (),
    (
        Column(
            "nominal",
            "settings",
            "Nominal epsilon",
            "epsilon of one release according to the settings",
        ),
        Column("certified", "releases", "Certified epsilon", "under a proven sensitivity"),
        Column("delta", "settings", "Delta", "at which epsilon is stated"),
    ),
)
TOTAL = (
    Column("epsilon", "releases", "Total epsilon", "at delta"),
    Column("delta", "settings", "Delta", "the target delta"),
)
ASSUMED = Column("assumed", "releases", "Assumed sensitivity", "that the noise is calibrated to")
BOUND_SOURCE = Column(
    "bound_source",
    "settings",
    "Source of the bound",
    "where the proven sensitivity comes from",
    dtype="text",
)
RATIO = Column(
    "ratio",
    "releases",
    "Sound over assumed sensitivity",
    "above 1, less privacy is delivered than stated",
)
