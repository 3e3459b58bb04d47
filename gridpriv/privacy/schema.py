"""What the document of a run says of its privacy, whatever is run, and who may see it."""

from __future__ import annotations

from gridpriv.core.tables import Column, TableSchema

ADJACENCY = Column("adjacency", "settings", "Adjacency", "what is protected, in words")
STATED = (
    Column("mechanism", "settings", "Mechanism", "of the noise"),
    Column("perturbation", "settings", "Perturbation", "what carries the noise"),
    Column("calibration", "settings", "Calibration", "sound or the paper's"),
    Column("noise", "settings", "Noise", "simulated or secure"),
    Column("caveat", "settings", "Caveat", "what the noise's source means for privacy"),
    ADJACENCY,
)
PER_RELEASE = TableSchema(
    "per_release", "one release", (),
    (
        Column("claimed", "settings", "Claimed epsilon", "that the settings state"),
        Column("certified", "releases", "Certified epsilon", "under a proven sensitivity"),
        Column("delta", "settings", "Delta", "at which epsilon is stated"),
    ),
)  # fmt: skip
TOTAL = (
    Column("epsilon", "releases", "Total epsilon", "at delta"),
    Column("delta", "settings", "Delta", "the target delta"),
)
ASSUMED = Column("assumed", "releases", "Assumed sensitivity", "that the noise is calibrated to")
PROVENANCE = Column("provenance", "settings", "Provenance",
                    "where the proven sensitivity comes from")  # fmt: skip
RATIO = Column("ratio", "releases", "Sound over assumed sensitivity",
               "above 1, less privacy is delivered than stated")  # fmt: skip
