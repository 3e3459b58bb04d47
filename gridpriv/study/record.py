"""From a run to rows of tables.

Every table has the column ``run`` (the task's identity). Whatever differs between two machines
or two attempts (seconds, process) stands in ``timing`` alone, so that the other tables of a
study are the same however it was run.
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

from pandas import DataFrame

from gridpriv.core.document import Json
from gridpriv.core.stored import Rows
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.release import Release
from gridpriv.privacy.rows import Certificate
from gridpriv.study.methods import BESIDE_GROUND
from gridpriv.study.plan import StudyTask
from gridpriv.study.total import charge_rows
from gridpriv.zonal.rows import RunFigures
from gridpriv.zonal.settings import Settings

if TYPE_CHECKING:
    from gridpriv.zonal.result import RunResult

OUT_OF_ORDER = ("seconds",)
FINALS = tuple(
    name
    for name in (*RunFigures.table.names, *Certificate.table.names)
    if name != "releases_per_client"
)
SETTINGS_SHOWN = (
    "mechanism",
    "perturbation",
    "noise_schedule",
    "sensitivity",
    "protects",
    "power_factor",
    "beta",
    "update",
    "consensus",
    "local_updates",
    "rounds",
    "tolerance",
    "penalty",
    "solver",
    "solver_tolerance",
    "load_scale",
    "noise",
)


def run_rows(identity_row: Json, result: RunResult, reason: str = "") -> Rows:
    """Return a finished run's rows, or those of what a failed one finished.

    ``identity_row`` is :func:`identity` of the run.
    """
    run, noise = identity_row["run"], [r.noise_magnitude for r in result.trace.rounds]
    rounds = result.rounds.drop(columns=list(OUT_OF_ORDER), errors="ignore")
    return {
        "runs": [
            identity_row
            | finals(result.as_dict())
            | {
                "noise_magnitude": float(sum(noise) / len(noise)) if noise else None,
                "status": "failed" if reason else "done",
                "reason": reason or _warning(result),
                "finished_rounds": len(result.rounds),
            }
        ],
        "rounds": with_run(run, rounds),
        "zones": with_run(run, result.zones),
        "buses": with_run(run, result.buses),
        "statements": [
            {"run": run} | statement.as_dict() | {"norm": str(statement.norm)}
            for statement in result.statements
        ],
        "charges": charge_rows(run, certified(result.trace.releases)),
        "timing": [{"run": run, "process": os.getpid(), **result.timing.as_dict()}],
    }


def certified(releases: Mapping[str, Mapping[Release, int]]) -> dict[str, Counter[Charge]]:
    """Return the charges of every zone for its releases."""
    entries: dict[str, Counter[Charge]] = {zone: Counter() for zone in releases}
    for zone, counts in releases.items():
        for release, count in counts.items():
            entries[zone][release.certified] += count
    return entries


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
    """Return the digest of the settings that a noise-free run has too.

    A run and its noise-free baseline have the same one: what lies between them is the noise.
    """
    noise_free = replace(settings, mechanism="none")  # some defaults depend on the noise
    own = {k: v for k, v in noise_free.as_dict().items() if k not in (*BESIDE_GROUND, "seed")}
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:8]


def settings_shown(settings: Settings) -> Json:
    """Return those of a run's settings that a row of the table of runs has."""
    text = settings.as_dict()
    return {name: text[name] for name in SETTINGS_SHOWN} | {"outage": " ".join(settings.outage)}


def finals(document: Json) -> Json:
    """Return a run's figures, from its document."""
    final, privacy = document["final"], document["privacy"]
    plan = (final["shed_mw"], final["surplus_mw"])
    return {
        **RunFigures.read(document),
        "imbalance_mw": None if None in plan else math.fsum(plan),
        **Certificate.read(document),
        "protection": None if privacy["mechanism"] == "none" else privacy["adjacency"],
    }


def _warning(result: RunResult) -> str:
    """Return the note on a finished run that moved away from consensus."""
    rounds = result.trace.rounds
    if len(rounds) > 1:
        first, last = rounds[0].consensus_residual, rounds[-1].consensus_residual
        if not math.isfinite(last) or last > max(first, 1e-6):
            return (
                f"did not converge: consensus residual {last:.3g} after round {len(rounds)}, "
                f"{first:.3g} after round 1"
            )
    if result.physical["fallback_zones"]:
        return f"no AC plan in zone {', '.join(result.physical['fallback_zones'])}"
    return ""


def with_run(run: str, table: DataFrame) -> list[Json]:
    """Return a table's rows, each with its run's identity."""
    return [{"run": run, **row} for row in table.to_dict("records")]
