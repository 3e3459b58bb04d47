"""Every table that a folder may hold, and what of a study or run may be published.

Declared-public tables, columns and entries only: what nobody declared stays at home.
"""

from __future__ import annotations

import pandas as pd

from gridpriv.core.document import Json
from gridpriv.core.stored import Rows, Study
from gridpriv.core.tables import TableSchema, first_of_each, merged, publish, publish_table
from gridpriv.learning import rows as learning
from gridpriv.learning.rows import LearnFigures
from gridpriv.privacy.rows import Certificate
from gridpriv.study.record import SETTINGS_SHOWN
from gridpriv.study.rows import ChargeRow, ClaimRow, Ending, Identity, Manifest
from gridpriv.zonal import rows as zonal

RUNS = TableSchema(
    "runs",
    "one run of a study",
    Identity.table.keys,
    first_of_each(
        *Identity.table.figures,
        *(c for c in zonal.SETTINGS.figures if c.name in (*SETTINGS_SHOWN, "outage")),
        *zonal.RunFigures.table.figures,
        *LearnFigures.table.figures,
        *Certificate.table.figures,
        *Ending.table.figures,
    ),
)


def _stored() -> dict[str, TableSchema]:
    entries = {"runs": RUNS}
    for table in (*zonal.TABLES, ClaimRow.table, ChargeRow.table, *learning.TABLES):
        value = entries.get(table.name)
        entries[table.name] = table if value is None else merged(value, table)
    return entries


STORED = _stored()
"""Tables of folders by name; in a study's each has the column ``run``, in a series' ``step``."""

WITHHELD = "withheld"
"""Status of a published run whose messages are not certified: settings only."""


def publish_study(study: Study) -> Study:
    """Return the public part of a study.

    Undeclared tables, columns and entries of the manifest are left out, private ones too, and of
    runs whose messages are not certified whatever came from those. Runs are named by their number:
    their identity is a digest that covers the seed. (What was killed and left nothing but its
    releases is a step of a series, whose identity is its number.)
    """
    runs = study.runs
    named = dict(zip(runs["run"], runs["number"].astype(str), strict=True)) if len(runs) else {}
    bare = {named[run] for run in runs.loc[_uncertified(runs), "run"]} if named else set()
    tables = {}
    for name, schema in STORED.items():
        if name not in study.tables:
            continue
        table = study.tables[name]
        if "run" in table:
            table = table.assign(run=[named.get(run, run) for run in table["run"]])
        tables[name] = publish_table(table, schema, bare)
    if bare:
        tables["runs"].loc[tables["runs"]["run"].isin(bare), "status"] = WITHHELD
    return Study(study.folder, publish_manifest(study.manifest), tables)


def _uncertified(runs: pd.DataFrame) -> pd.Series[bool]:
    """Return the runs whose messages no certificate covers.

    Without noise messages are private data themselves. A learning paper's noise may be scaled to
    private data, or what is sent depend on more than releases.
    """
    mask = runs["mechanism"] == "none"
    if "adjacency" in runs:  # of learning
        mask |= runs["sensitivity"] == "published"
    return mask


def publish_manifest(manifest: Json) -> Json:
    """Return the public part of a manifest."""
    text: Json = publish(manifest, Manifest.table, protected=True)
    return {key: value for key, value in text.items() if value is not None} | {"public": True}


def publish_rows(rows: Rows) -> Rows:
    """Return the public part of one protected run's rows."""
    kept = {
        name: publish_table(pd.DataFrame(row), STORED[name]) for name, row in rows.items() if row
    }
    return {name: table.to_dict("records") for name, table in kept.items() if len(table)}
