"""What a plan, an audit or an attack of the same grid found, shown beside a study or run.

Each command writes a document (``plan.json``, ``audit.json``, ``attack.json``); a report takes it
from its own folder or from one of its name in it (``plan/``).
"""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from gridpriv.assurance.schema import ATTACK, AUDIT
from gridpriv.core.display import amount
from gridpriv.core.document import Json
from gridpriv.core.errors import InputError
from gridpriv.core.sealed import read_sealed
from gridpriv.privacy.adjacency import parse_beta
from gridpriv.privacy.budget import NOTHING, Budget
from gridpriv.report.schema import PLAN

SCHEMAS = {"plan": PLAN, "audit": AUDIT, "attack": ATTACK}
CAPTIONS = {
    "plan": "Expected of stand-ins for demand",
    "audit": "Epsilon, stated and measured",
    "attack": "Demand read from messages",
}
WORDS = {
    "plan": "gridpriv plan tried each way on stand-ins for demand, drawn from what is public. The "
    "true demand was not read, and may lie outside: ranges are no bounds.",
    "audit": "The audit runs the mechanism many times on neighbouring data. Measured is a lower "
    "bound on epsilon at the confidence of the audit: above the certified one it is a violation; "
    "below, it is no proof.",
    "attack": "The attack fits demand to the messages that cross the network. The prior is what "
    "is believed without them: an attack that does no better has learned nothing.",
}

CENTRAL = "central"
ENDS = ("least", "median", "most")
NOISE = {
    "mechanism", "calibration", "budget", "delta", "target_delta", "noise", "beta", "protects",
    "power_factor", "refresh",
}  # fmt: skip
"""Settings that a run reads for its noise only."""
IN_OTHER_WORDS = {"seed", "workers", "zoning", "coordination"}
"""What changes no expectation, or what a plan says by the zone map and by its rounds."""
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
    found = {}
    for name, rows in rows_of.items():
        for place in (folder / f"{name}.json", folder / name / f"{name}.json"):
            if place.is_file():
                try:
                    found[name] = table = rows(read_sealed(place))
                    if any(pd.api.types.is_list_like(cell) for cell in table.to_numpy().flat):
                        raise ValueError("a cell that holds a list")
                except (ValueError, KeyError, TypeError) as error:
                    raise InputError(f"{place} is no result of 'gridpriv {name}'") from error
                break
    return found


def measured(plan: pd.DataFrame, run: Json, digest: str) -> list[str]:
    """Return what a run came to beside what a plan expected of its way, if that is known.

    ``digest`` is that of the run's zone map.
    """
    over = (run["final"].get("cost_of_privacy") or {}).get("cost_over_optimum")
    if over is None:
        return []
    told = f"This run came to {amount(over, '$/h')} $/h beyond the AC optimum"
    way = _way(run) | {"map_sha256": digest}
    alike = plan[[all(row.get(name) == way[name] for name in way) for _, row in plan.iterrows()]]
    if alike.empty or alike["median"].isna().all():
        return [f"{told}; no way of the plan is its own."]
    least, median, most = (amount(alike[end].iloc[0], "$/h") for end in ENDS)
    return [
        f"{told}; its way on the plan's stand-ins to {least} to {most}, in the median {median}."
    ]


def _way(run: Json) -> Json:
    """Return what a plan calls the way of a run; of one that releases nothing, noise is none."""
    settings = run["settings"]
    apart = IN_OTHER_WORDS | (NOISE if settings["release"] == NOTHING else set())
    central = settings["coordination"] == CENTRAL
    rounds = {"rounds": CENTRAL if central else str(settings["rounds"])}
    stated = {name: str(value) for name, value in settings.items() if name not in apart}
    return {"case": run["case"]} | stated | rounds


def _plan_rows(document: Json) -> pd.DataFrame:
    grid = {
        "case": str(document["case"]), "beta": str(parse_beta(document["beta"])),
        "budget": str(Budget("total", float(document["total"]))),
        "map_sha256": str(document.get("map_sha256")),
    }  # fmt: skip
    grid |= {name: str(value) for name, value in document.get("settings", {}).items()}
    return pd.DataFrame(
        [
            grid
            | {name: str(way[name]) for name in ("release", "mechanism", "rounds")}
            | {"error_mw": float(way["error_mw"])}
            | {end: float((way["over_optimum"] or NOWHERE)[end]) for end in ENDS}
            for way in document["ways"]
        ]
    )


def _audit_rows(document: Json) -> pd.DataFrame:
    names = ("perturbation", "mechanism", "update")
    return pd.DataFrame(
        [
            row | {"configuration": " ".join(str(one["settings"][n]) for n in names)}
            for one in document.get("audits", [document])
            for row in one["statistical"]
        ]
    )


def _attack_rows(document: Json) -> pd.DataFrame:
    table = pd.DataFrame(document["summary"])
    table["recovered_pct"] = 100.0 * table["recovered"]
    table["of_prior_pct"] = 100.0 * table["of_prior"]
    return table
