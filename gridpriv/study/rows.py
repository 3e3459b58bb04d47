"""Rows of a study's tables, whatever it runs, and its manifest: every entry, and who may see it."""

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
)

SEED = "Seed: seed of simulated noise; the noise can be removed with it"


class OfData(Row):
    """One case."""

    case: Text = key("Case: name or path of the grid or data set")
    zoning: Text = key("Zoning: zone map of the run; empty for the shipped map of the case")


class Identity(OfData):
    """One run of a study."""

    run: Text = key("Run: identifier of the run in the study; a number in published tables")
    number: Number = key("Number: position of the run in the plan")
    method: Text = key("Method: name of the settings that are compared")
    budget: Text = key("Budget: privacy budget; none: noise-free; nothing: prior-only")
    configuration: Text = key("Configuration: digest of the settings that a noise-free run has too")
    seed: Any = private(SEED)


class Ending(Row):
    """End of a run."""

    status: Text = released("Status: done, failed, or withheld (published without certified noise)")
    finished_rounds: Number = released("Rounds finished: number of rounds finished")
    reason: Text = private("Reason: reason of a failure, or remark on a finished run")


class ClaimRow(Row, name="claims"):
    """One statement of a paper, checked."""

    claim: Text = key("Claim: claim of the paper")
    case: Text = like(OfData, "case")
    sensitivity: Text = key(
        "Sensitivity bound: sensitivity bound that sets the noise in the compared runs"
    )
    outcome: Text = private(
        "Outcome: outcome of the claim: holds, does not hold, or no information (near chance)"
    )
    holding: Number = private(
        "Comparisons that hold: number of comparisons for which the claim holds"
    )
    comparisons: Number = private("Comparisons: number of comparisons")
    detail: Text = private("Details: figures compared, and exceptions")
    ours: Any = known("Own question: true for a question of gridpriv's, not a paper's statement")
    settled: Text = known("Recorded outcome: outcome recorded with gridpriv's reference run")
    cause: Text = known("Cause: cause of the outcome: paper, data or gridpriv")
    why: Text = known("Why: explanation of the cause")


class GridRow(OfData, name="cases"):
    """One case under one zone map."""

    name: Text = known("Name: name of the case inside its file")
    source: Text = known("Zone map: source of the zone map")
    buses: Number = known("Buses: number of buses")
    branches: Number = known("Branches: number of branches")
    zones: Number = known("Zones: number of zones")
    tie_lines: Number = known("Tie lines: branches between zones")
    rated_branches: Number = known("Rated branches: number of branches with a rating")
    base_mva: Number = known("Base: base of per-unit figures")
    load_mw: Number = private("Load: total active demand")
    fingerprint: Text = private("Fingerprint: SHA-256 of the case, its demand included")
    map: Any = known("Map: zone of every bus")


class StudyTotal(Row, name="totals"):
    """Total of all noisy runs on one data set."""

    case: str = like(OfData, "case")
    runs: int = released("Runs: number of noisy runs with releases")
    epsilon: Number = released(
        "Total epsilon: total epsilon at the delta of the same row; none without a "
        "certificate, and for runs that protect different changes"
    )
    pure: Number = released("Pure total epsilon: total epsilon (pure DP) by basic composition")
    delta: float = known("Delta: smallest target delta of the runs")
    unknown: int = released("Unknown: failed runs without a record of releases")


class ChargeRow(Row, name="charges"):
    """Equal releases of one zone or client in one run."""

    run: Text = like(Identity, "run")
    owner: Text = key("Zone or client: zone or client that owns the protected data")
    kind: Text = known("Mechanism: mechanism in the accountant's terms")
    parameter: Number = released(
        "Parameter: noise over sensitivity, or epsilon or rho of mechanisms that state one"
    )
    second: Number = released("Second parameter: sampling rate, or delta")
    count: Number = released("Count: number of equal releases")


class Seeds(Row):
    """Seeds of the noise."""

    seeds: Any = private(SEED)


class Data(Seeds):
    """The plan of a study, and its data."""

    samples: Number = known("Samples: number of training samples")
    fingerprint: Text = private("Fingerprint: SHA-256 of the data")
    demand_sha256: Text = private("Digest: SHA-256 of the demand")


PLANNED = (
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
"""Keys of a study file."""
PLAN = TableSchema(
    "study",
    "the plan of a study",
    (),
    (
        *(Column(name, "settings", name.capitalize(), f"{name} of the plan") for name in PLANNED),
        *Data.table.figures,
    ),
)


class Manifest(Seeds, name="manifest"):
    """One study."""

    format: Number = known("Format: version of the folder format")
    kind: Text = known("Kind: kind of run")
    title: Text = known("Title: title of the report")
    question: Text = known("Question: question that the report answers")
    study: Any = part(PLAN)
    cases: list[GridRow] = part(GridRow)
    totals: list[StudyTotal] = part(StudyTotal)
    planned: Number = known("Planned: number of planned runs")
    finished: Flag = known("Finished: completeness of the planned runs")
    tables: Any = private("Tables: rows and checksum of each")
    checksum: Text = private("Checksum: checksum of the manifest")
    public: Flag = known("Public: flag of a folder without private figures")
    version: Text = known("Version: version of gridpriv")
    versions: Any = known("Versions: versions of the packages that figures depend on")
    machine: Any = private("Machine: system, processor")
    created: Text = private("Created: start time of the study")
    repeat: Text = private("To repeat: command that repeats the run, with its seed")
