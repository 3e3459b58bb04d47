"""What of a study or run may be published: declared-public tables, columns and entries only."""

from __future__ import annotations

from typing import Any

from gridpriv.core.store import Study
from gridpriv.core.tables import publish, publish_table
from gridpriv.report.schema import STORED
from gridpriv.study.schema import MANIFEST

WITHHELD = "withheld"
"""Status of a published run whose messages carry no noise: only its settings are told."""


def publish_study(study: Study) -> Study:
    """Return what of a study may be published.

    Undeclared tables, columns and entries of the manifest are left out, private ones too, and of
    runs without noise whatever came from messages, which are then private data themselves. Runs
    are named by their number: their identity is a digest that covers the seed.
    """
    runs = study.runs
    named = dict(zip(runs["run"], runs["number"].astype(str), strict=True)) if len(runs) else {}
    bare = {named[run] for run in runs.loc[runs["mechanism"] == "none", "run"]} if named else set()
    tables = {}
    for name, schema in STORED.items():
        if name not in study.tables:
            continue
        table = study.tables[name]
        if "run" in table:
            table = table.assign(run=table["run"].map(named))
        tables[name] = publish_table(table, schema, bare)
    if bare:
        tables["runs"].loc[tables["runs"]["run"].isin(bare), "status"] = WITHHELD
    manifest: dict[str, Any] = publish(study.manifest, MANIFEST, protected=True)
    kept = {key: value for key, value in manifest.items() if value is not None}
    return Study(study.folder, kept | {"public": True}, tables)
