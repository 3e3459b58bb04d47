"""Conversion of a run to rows of tables, the tables of a folder, and its public part.

Every table has the column ``run`` (the task's identity). Values that differ between two machines or
two attempts (seconds, process) are in ``timing`` only, so the other tables of a study do not depend
on its execution.

Only tables, columns and entries that are declared public are published.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
from pandas import DataFrame

from gridpriv.core.store import Study, Tables
from gridpriv.core.tables import TableSchema, first_of_each, merged, publish, publish_table
from gridpriv.core.text import Json
from gridpriv.learning import result as learning
from gridpriv.learning.result import LearnValues
from gridpriv.privacy.certificate import Certificate, charges_of
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.release import Release
from gridpriv.study.engine import ChargeRow, ClaimRow, Ending, Identity, Manifest, charge_rows
from gridpriv.study.plan import NOT_IN_BASELINE, StudyTask
from gridpriv.zonal import documents as zonal
from gridpriv.zonal.documents import RunSummary
from gridpriv.zonal.settings import Settings

if TYPE_CHECKING:
    from gridpriv.zonal.result import RunResult

SETTINGS_SHOWN = (
    *("mechanism", "perturbation", "noise_schedule", "sensitivity"),
    *("protects", "power_factor", "beta", "update", "consensus", "local_updates", "rounds"),
    *("tolerance", "penalty", "solver", "solver_tolerance", "load_scale", "noise"),
)
RUNS = TableSchema(
    "runs",
    "one run of a study",
    Identity.table.keys,
    first_of_each(
        *Identity.table.value_columns,
        *(c for c in zonal.SETTINGS.value_columns if c.name in (*SETTINGS_SHOWN, "outage")),
        *zonal.RunSummary.table.value_columns,
        *LearnValues.table.value_columns,
        *Certificate.table.value_columns,
        *Ending.table.value_columns,
    ),
)


def _stored() -> dict[str, TableSchema]:
    schemas = {"runs": RUNS}
    for table in (*zonal.TABLES, ClaimRow.table, ChargeRow.table, *learning.TABLES):
        value = schemas.get(table.name)
        schemas[table.name] = table if value is None else merged(value, table)
    return schemas


STORED = _stored()
"""Tables of folders by name; in a study's each has the column ``run``, in a series' ``step``."""

WITHHELD = "withheld"
"""Status of a published run whose messages are not certified: settings only."""


def publish_study(study: Study) -> Study:
    """Return the public part of a study.

    Undeclared and private tables, columns and entries of the manifest are left out, and also
    functions of messages that are not certified. Runs are named by their number, as their identity
    is a digest that includes the seed. (A killed run with only its releases is a step of a series,
    whose identity is its number.)
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
    """Return the runs whose messages are not covered by a certificate.

    Without noise messages are private data themselves. A learning paper's noise may be scaled to
    private data, or its messages depend on more than releases.
    """
    mask = runs["mechanism"] == "none"
    if "adjacency" in runs:  # of learning
        mask |= runs["sensitivity"] == "published"
    return mask


def publish_manifest(manifest: Json) -> Json:
    """Return the public part of a manifest."""
    text: Json = publish(manifest, Manifest.table, protected=True)
    return {key: value for key, value in text.items() if value is not None} | {"public": True}


def publish_tables(tables: Tables) -> Tables:
    """Return the public part of one protected run's tables."""
    return {name: publish_table(DataFrame(t), STORED[name]) for name, t in tables.items() if len(t)}


FINALS = tuple(
    name
    for name in (*RunSummary.table.names, *Certificate.table.names)
    if name != "releases_per_client"
)


def run_tables(identity_row: Json, result: RunResult, reason: str = "") -> Tables:
    """Return a finished run's tables, or those of the finished part of a failed run.

    ``identity_row`` is :func:`identity` of the run.
    """
    noise = [r.noise_magnitude for r in result.trace.rounds]
    rounds = result.rounds.drop(columns="seconds", errors="ignore")
    return {
        "runs": [
            identity_row
            | finals(result.outcome())
            | {
                "noise_magnitude": float(sum(noise) / len(noise)) if noise else None,
                "status": "failed" if reason else "done",
                "reason": reason or _warning(result),
                "finished_rounds": len(result.rounds),
            }
        ],
        "rounds": rounds,
        "zones": result.zones,
        "buses": result.buses,
        "certificates": [item.as_dict() | {"norm": str(item.norm)} for item in result.certificates],
        "charges": charge_rows(certified(result.trace.counted), certified(result.trace.releases)),
        "timing": [{"process": os.getpid(), **result.timing.as_dict()}],
    }


def certified(releases: Mapping[str, Mapping[Release, int]]) -> dict[str, Counter[Charge]]:
    """Return the charges of every zone for its releases."""
    return {zone: charges_of(counts) for zone, counts in releases.items()}


def identity(task: StudyTask) -> Json:
    """Return the identity of a run, as a row."""
    return {
        "run": task.id,
        "number": task.number,
        "case": task.case,
        "zoning": task.zoning,
        "method": task.method,
        "budget": task.budget,
        "configuration": configuration(task.settings),
        "seed": task.settings.seed,
    } | settings_shown(task.settings)


def configuration(settings: Settings) -> str:
    """Return the digest of the settings that a noise-free run has in common.

    A run and its noise-free baseline have the same digest: they differ in the noise only.
    """
    noise_free = replace(settings, mechanism="none")  # some defaults depend on the noise
    own = {k: v for k, v in noise_free.as_dict().items() if k not in (*NOT_IN_BASELINE, "seed")}
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:8]


def settings_shown(settings: Settings) -> Json:
    """Return the settings of a run that are in the table of runs."""
    text = settings.as_dict()
    return {name: text[name] for name in SETTINGS_SHOWN} | {"outage": " ".join(settings.outage)}


def finals(document: Json) -> Json:
    """Return a run's values, from its outcome."""
    final, privacy = document["final"], document["privacy"]
    plan = (final["plan_shortage_mw"], final["plan_surplus_mw"])
    return {
        **RunSummary.read(document),
        "imbalance_mw": None if None in plan else math.fsum(plan),
        **Certificate.read(document),
        "protection": None if privacy["mechanism"] == "none" else privacy["adjacency"],
    }


def _warning(result: RunResult) -> str:
    """Return the note on a finished run that has not converged or has no redispatch in a zone."""
    from gridpriv.zonal.opening import CONVERGED_RESIDUAL  # imports solvers

    rounds = result.trace.rounds
    if rounds and not rounds[-1].consensus_residual <= CONVERGED_RESIDUAL:  # infinite and NaN, too
        return (
            f"not converged: consensus residual {rounds[-1].consensus_residual:.3g} p.u. after "
            f"round {len(rounds)}, above {CONVERGED_RESIDUAL:g} p.u."
        )
    if result.physical["fallback_zones"]:
        return f"no redispatch in zone {', '.join(result.physical['fallback_zones'])}"
    return ""
