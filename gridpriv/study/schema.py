"""Tables of a study, whatever it runs, and its manifest: every entry, and who may see it."""

from __future__ import annotations

from dataclasses import replace

from gridpriv.core.tables import Column, Schema, TableSchema, by_name

RUN = Column(
    "run", "settings", "Run", "its identity in the study; its number where published", dtype="text"
)
CASE = Column("case", "settings", "Case", "name or path of the grid or data set", dtype="text")
ZONING = Column("zoning", "settings", "Zoning", "as given; empty for the case's own", dtype="text")
SEED = Column(
    "seed", "private", "Seed", "of the simulated noise; whoever has it can undo that", dtype="any"
)

IDENTITY = (
    RUN,
    Column("number", "settings", "Number", "position in the plan"),
    CASE,
    ZONING,
    Column("method", "settings", "Method", "name of the settings that are compared", dtype="text"),
    Column(
        "budget",
        "settings",
        "Budget",
        "of the noise; none: no noise; nothing: no release",
        dtype="text",
    ),
    Column(
        "configuration",
        "settings",
        "Configuration",
        "digest of the settings that a noise-free run has too",
        dtype="text",
    ),
    SEED,
)
STATUS = (
    Column(
        "status",
        "releases",
        "Status",
        "done, failed, or withheld (published without certified noise)",
        dtype="text",
    ),
    Column("finished_rounds", "releases", "Rounds finished", "before the end or a failure"),
    Column(
        "reason",
        "private",
        "Reason",
        "of a failure, or what to know of a finished run",
        dtype="text",
    ),
)
CERTIFICATE = (
    Column("releases_per_zone", "releases", "Releases per zone", "of the zone that made most"),
    Column(
        "releases_per_client", "releases", "Releases per client", "of the client that made most"
    ),
    Column("epsilon_claimed", "settings", "Claimed epsilon per release", "that the settings state"),
    Column(
        "epsilon_certified",
        "releases",
        "Certified epsilon per release",
        "of the worst release, under a proven sensitivity",
    ),
    Column("release_delta", "settings", "Delta per release", "at which those two are stated"),
    Column("total_pure", "releases", "Pure total epsilon", "by basic composition"),
    Column("total_epsilon", "releases", "Total epsilon", "of all releases, at the target delta"),
    Column("target_delta", "settings", "at delta", "at which totals are stated"),
    Column(
        "published_total",
        "settings",
        "Paper's theorem 4.6 (no certificate)",
        "the total that the paper states",
    ),
    Column(
        "protection", "settings", "Protected", "change of the data that noise hides", dtype="text"
    ),
)

CLAIMS = TableSchema(
    "claims",
    "one statement of a paper, checked",
    (
        Column(
            "claim", "settings", "What the paper states", "in its words or shorter", dtype="text"
        ),
        CASE,
        Column(
            "sensitivity",
            "settings",
            "Sensitivity bound",
            "of the noise in the compared runs",
            dtype="text",
        ),
    ),
    (
        Column("outcome", "private", "Outcome", "holds or does not hold", dtype="text"),
        Column("holding", "private", "Comparisons that hold", "how many"),
        Column("comparisons", "private", "Comparisons", "how many"),
        Column("detail", "private", "Where not, or how far", "the figures compared", dtype="text"),
        Column(
            "settled",
            "settings",
            "As settled",
            "the outcome when the figure was settled",
            dtype="text",
        ),
        Column("cause", "settings", "Cause", "of that: paper, data or ours", dtype="text"),
        Column("why", "settings", "Why", "the cause in words", dtype="text"),
    ),
)

GRIDS = TableSchema(
    "cases",
    "one case under one zone map",
    (CASE, ZONING),
    (
        Column("name", "settings", "Name", "of the case itself"),
        Column("source", "settings", "Zone map", "where it comes from"),
        Column("buses", "settings", "Buses", "how many"),
        Column("branches", "settings", "Branches", "how many"),
        Column("zones", "settings", "Zones", "how many"),
        Column("tie_lines", "settings", "Tie lines", "branches between zones"),
        Column("base_mva", "settings", "Base", "of per unit figures", "MVA"),
        Column("load_mw", "private", "Load", "active demand", "MW"),
        Column("fingerprint", "private", "Fingerprint", "SHA-256 of the case, its demand included"),
        Column("map", "settings", "Map", "zone of every bus"),
    ),
)
TOTALS = TableSchema(
    "totals",
    "what all noisy runs on one data set cost together",
    (CASE,),
    (
        Column("runs", "releases", "Runs", "noisy ones that released anything"),
        Column(
            "epsilon",
            "releases",
            "Total epsilon",
            "at delta; none where nothing is certified, or runs protect different things",
        ),
        Column("pure", "releases", "Pure total epsilon", "by basic composition"),
        Column("delta", "settings", "Delta", "the least of the runs' target deltas"),
        Column("unknown", "releases", "Unknown", "failed runs that left no record of releases"),
    ),
)
MANIFEST: dict[str, Schema] = {
    **by_name(
        Column("format", "settings", "Format", "of the folder"),
        Column("kind", "settings", "Kind", "what was run", dtype="text"),
        Column("title", "settings", "Title", "of the report"),
        Column("question", "settings", "Question", "that the report answers"),
    ),
    "study": by_name(
        *(
            Column(key, "settings", key.capitalize(), "of the plan")
            for key in (
                "title",
                "question",
                "cases",
                "zonings",
                "budgets",
                "local-updates",
                "load-scales",
                "reference",
                "settings",
                "methods",
                "dataset",
                "tuning",
                "client-rounds",
                "allow",
                "measure",
                "data-seed",
                "series",
                "steps",
            )
        ),
        replace(SEED, name="seeds"),
        Column("samples", "settings", "Samples", "of the training data"),
        Column("fingerprint", "private", "Fingerprint", "SHA-256 of the data"),
        Column("demand_sha256", "private", "Digest", "SHA-256 of the demand"),
    ),
    **by_name(
        replace(SEED, name="seeds"),
        GRIDS,
        TOTALS,
        Column("planned", "settings", "Planned", "runs of the plan"),
        Column("finished", "settings", "Finished", "whether all of them are there"),
        Column("tables", "private", "Tables", "rows and checksum of each"),
        Column("checksum", "private", "Checksum", "of the manifest"),
        Column("public", "settings", "Public", "whether private figures were left out"),
        Column("version", "settings", "Version", "of gridpriv"),
        Column("versions", "settings", "Versions", "of what figures depend on"),
        Column("machine", "private", "Machine", "system, processor"),
        Column("created", "private", "Created", "when the study began"),
        Column("repeat", "private", "To repeat", "the command, with its seed"),
    ),
}
CHARGES = TableSchema(
    "charges",
    "equal releases of one zone or client in one run",
    (RUN, Column("owner", "settings", "Zone or client", "whose data they protect", dtype="text")),
    (
        Column("kind", "settings", "Mechanism", "as the accountant knows it", dtype="text"),
        Column(
            "parameter",
            "releases",
            "Parameter",
            "noise over sensitivity, or epsilon or rho of mechanisms that state one",
        ),
        Column("second", "releases", "Second parameter", "sampling rate, or delta"),
        Column("count", "releases", "Count", "how many"),
    ),
)
TABLES = (CLAIMS, CHARGES)
