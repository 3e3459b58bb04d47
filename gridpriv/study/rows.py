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

SEED = "Seed: of the simulated noise; whoever has it can undo that"


class OfData(Row):
    """One case."""

    case: Text = key("Case: name or path of the grid or data set")
    zoning: Text = key("Zoning: as given; empty for the case's own")


class Identity(OfData):
    """One run of a study."""

    run: Text = key("Run: its identity in the study; its number where published")
    number: Number = key("Number: position in the plan")
    method: Text = key("Method: name of the settings that are compared")
    budget: Text = key("Budget: of the noise; none: no noise; nothing: no release")
    configuration: Text = key("Configuration: digest of the settings that a noise-free run has too")
    seed: Any = private(SEED)


class Ending(Row):
    """End of a run."""

    status: Text = released("Status: done, failed, or withheld (published without certified noise)")
    finished_rounds: Number = released("Rounds finished: before the end or a failure")
    reason: Text = private("Reason: of a failure, or what to know of a finished run")


class ClaimRow(Row, name="claims"):
    """One statement of a paper, checked."""

    claim: Text = key("What the paper states: in its words or shorter")
    case: Text = like(OfData, "case")
    sensitivity: Text = key("Sensitivity bound: of the noise in the compared runs")
    outcome: Text = private("Outcome: holds or does not hold")
    holding: Number = private("Comparisons that hold: how many")
    comparisons: Number = private("Comparisons: how many")
    detail: Text = private("Where not, or how far: the figures compared")
    settled: Text = known("As settled: the outcome when the figure was settled")
    cause: Text = known("Cause: of that: paper, data or ours")
    why: Text = known("Why: the cause in words")


class GridRow(OfData, name="cases"):
    """One case under one zone map."""

    name: Text = known("Name: of the case itself")
    source: Text = known("Zone map: where it comes from")
    buses: Number = known("Buses: how many")
    branches: Number = known("Branches: how many")
    zones: Number = known("Zones: how many")
    tie_lines: Number = known("Tie lines: branches between zones")
    base_mva: Number = known("Base: of per unit figures", "MVA")
    load_mw: Number = private("Load: active demand", "MW")
    fingerprint: Text = private("Fingerprint: SHA-256 of the case, its demand included")
    map: Any = known("Map: zone of every bus")


class StudyTotal(Row, name="totals"):
    """Total of all noisy runs on one data set."""

    case: str = like(OfData, "case")
    runs: int = released("Runs: noisy ones that released anything")
    epsilon: Number = released(
        "Total epsilon: at delta; none where nothing is certified, or runs protect different things"
    )
    pure: Number = released("Pure total epsilon: by basic composition")
    delta: float = known("Delta: the least of the runs' target deltas")
    unknown: int = released("Unknown: failed runs that left no record of releases")


class ChargeRow(Row, name="charges"):
    """Equal releases of one zone or client in one run."""

    run: Text = like(Identity, "run")
    owner: Text = key("Zone or client: whose data they protect")
    kind: Text = known("Mechanism: as the accountant knows it")
    parameter: Number = released(
        "Parameter: noise over sensitivity, or epsilon or rho of mechanisms that state one"
    )
    second: Number = released("Second parameter: sampling rate, or delta")
    count: Number = released("Count: how many")


class Seeds(Row):
    """Seeds of the noise."""

    seeds: Any = private(SEED)


class Data(Seeds):
    """The plan of a study, and its data."""

    samples: Number = known("Samples: of the training data")
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
        *(Column(name, "settings", name.capitalize(), "of the plan") for name in PLANNED),
        *Data.table.figures,
    ),
)


class Manifest(Seeds, name="manifest"):
    """One study."""

    format: Number = known("Format: of the folder")
    kind: Text = known("Kind: what was run")
    title: Text = known("Title: of the report")
    question: Text = known("Question: that the report answers")
    study: Any = part(PLAN)
    cases: list[GridRow] = part(GridRow)
    totals: list[StudyTotal] = part(StudyTotal)
    planned: Number = known("Planned: runs of the plan")
    finished: Flag = known("Finished: whether all of them are there")
    tables: Any = private("Tables: rows and checksum of each")
    checksum: Text = private("Checksum: of the manifest")
    public: Flag = known("Public: whether private figures were left out")
    version: Text = known("Version: of gridpriv")
    versions: Any = known("Versions: of what figures depend on")
    machine: Any = private("Machine: system, processor")
    created: Text = private("Created: when the study began")
    repeat: Text = private("To repeat: the command, with its seed")
