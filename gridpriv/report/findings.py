"""Results of a plan, an audit or an attack of the same grid, beside those of a study or run.

Each command writes a document (``plan.json``, ``audit.json``, ``attack.json``); a report takes it
from its own folder or from one of its name in it (``plan/``).
"""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from gridpriv.assurance.rows import Attack, Audit
from gridpriv.core.errors import InputError
from gridpriv.core.sealed import read_sealed
from gridpriv.core.text import Json, Message, amount
from gridpriv.privacy.settings import NOTHING
from gridpriv.report.messages import message
from gridpriv.report.schema import PlannedMethod

SCHEMAS = {"plan": PlannedMethod.table, "audit": Audit.table, "attack": Attack.table}
CAPTIONS = {
    "plan": "Expected, on sampled demand scenarios",
    "audit": "Epsilon, stated and measured",
    "attack": "Demand read from messages",
}
CENTRAL = "central"
ENDS = ("least", "median", "most")
NOISE = {
    "mechanism",
    "sensitivity",
    "budget",
    "delta",
    "target_delta",
    "noise",
    "beta",
    "protects",
    "power_factor",
    "noise_schedule",
}
"""Settings that a run reads for its noise only."""
IN_OTHER_WORDS = {"seed", "workers", "zoning", "coordination"}
"""Settings that change no expectation, or that a plan states by its zone map and rounds."""
NOWHERE = dict.fromkeys(ENDS, math.nan)
"""Of a case without costs."""


def read_findings(folder: Path) -> dict[str, pd.DataFrame]:
    """Return the tables (:data:`SCHEMAS`) of what a folder holds of such results.

    Raises
    ------
    InputError
        For a file that no such command wrote, or that was changed since.
    """
    rows_of = {"plan": _plan_rows, "audit": _audit_rows, "attack": _attack_rows}
    entries = {}
    for name, rows in rows_of.items():
        for place in (folder / f"{name}.json", folder / name / f"{name}.json"):
            if place.is_file():
                try:
                    entries[name] = table = rows(read_sealed(place))
                    if any(pd.api.types.is_list_like(cell) for cell in table.to_numpy().flat):
                        raise ValueError("a cell that holds a list")
                except (ValueError, KeyError, TypeError) as error:
                    raise InputError(
                        f"{place} is no result of 'gridpriv {name}'"
                        ": give the folder that the command wrote"
                    ) from error
                break
    return entries


def measured(plan: pd.DataFrame, run: Json, digest: str) -> list[Message]:
    """Return the optimality gap of a run beside the plan's expectation of its method.

    ``digest`` is that of the run's zone map.
    """
    over = (run["final"].get("cost_of_privacy") or {}).get("optimality_gap")
    if over is None:
        return []
    gap = {"gap": amount(over, "$/h")}
    method = _method_of(run) | {"map_sha256": digest}
    alike = plan[[all(row.get(k) == v for k, v in method.items()) for _, row in plan.iterrows()]]
    if alike.empty or alike["median"].isna().all():
        return [message("plan-measured-other", gap)]
    ends = {end: amount(alike[end].iloc[0], "$/h") for end in ENDS}
    return [message("plan-measured", gap | ends)]


def _method_of(run: Json) -> Json:
    """Return a run's method in a plan's words; of one that releases nothing without its noise."""
    settings = run["settings"]
    difference = IN_OTHER_WORDS | (NOISE if settings["release"] == NOTHING else set())
    central = settings["coordination"] == CENTRAL
    rounds = {"rounds": CENTRAL if central else str(settings["rounds"])}
    stated = {name: str(value) for name, value in settings.items() if name not in difference}
    return {"case": run["case"]} | stated | rounds


def _plan_rows(document: Json) -> pd.DataFrame:
    grid = {
        "case": str(document["case"]),
        "map_sha256": str(document.get("map_sha256")),
    }
    grid |= {name: str(value) for name, value in document.get("settings", {}).items()}
    return pd.DataFrame(
        [
            grid
            | {name: str(method[name]) for name in ("release", "mechanism", "rounds")}
            | {"interchange_error_mw": float(method["interchange_error_mw"])}
            | {end: float((method["over_optimum"] or NOWHERE)[end]) for end in ENDS}
            for method in document["methods"]
        ]
    )


def _audit_rows(document: Json) -> pd.DataFrame:
    names = ("perturbation", "mechanism", "update")
    return pd.DataFrame(
        [
            row | {"configuration": " ".join(str(item["settings"][n]) for n in names)}
            for item in document.get("audits", [document])
            for row in item["statistical"]
        ]
    )


def _attack_rows(document: Json) -> pd.DataFrame:
    table = pd.DataFrame(document["summary"])
    table["recovered_pct"] = 100.0 * table["recovered"]
    table["of_prior_pct"] = 100.0 * table["of_prior"]
    return table
