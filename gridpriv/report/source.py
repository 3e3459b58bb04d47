"""What a report is made of: a study's folder, or a single run's (``gridpriv run --out``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.core.errors import InputError
from gridpriv.core.sealed import check_files, read_json
from gridpriv.core.store import MANIFEST, TABLES, Study, read_study
from gridpriv.core.text import clean
from gridpriv.report.findings import read_findings
from gridpriv.report.folder import NETWORK
from gridpriv.report.publish import publish_study
from gridpriv.report.series_folder import KIND as SERIES
from gridpriv.study.record import FINALS, SETTINGS_SHOWN, finals

TAKEN = (
    "report takes a study of 'gridpriv compare' or 'gridpriv learn compare', or a run of "
    "'gridpriv run'"
)


def read_source(folder: str | Path, *, public: bool = False) -> Study:
    """Return the tables of a study's or a run's folder.

    Parameters
    ----------
    folder : path
    public : bool
        Leave out every figure that is computed from private demand or noise.
    """
    place = Path(folder)
    if (place / MANIFEST).is_file():
        study = read_study(place)
        if study.manifest["kind"] == SERIES:
            raise InputError(f"{place} holds a series ('gridpriv run --series'): {TAKEN}")
    elif (place / "run.json").is_file():
        study = _run_folder(place)
    else:
        raise InputError(
            f"{place} holds neither a study ({MANIFEST}) nor a run (run.json): {TAKEN}"
        )
    if public:
        return readable(publish_study(study))
    return readable(Study(study.folder, study.manifest, study.tables | read_findings(place)))


def readable(study: Study) -> Study:
    """Return the study with every text on one line, without control characters."""
    tables = {name: table.map(_clean) for name, table in study.tables.items()}
    return Study(study.folder, _clean(study.manifest), tables)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean(one) for one in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(one) for key, one in value.items()}
    return value


def _run_folder(place: Path) -> Study:
    """Return one run's folder in the shape of a study."""
    document = read_json(place / "run.json")
    if "dataset" in document:
        raise InputError(f"{place} holds a single learning run ('gridpriv learn run'): {TAKEN}")
    try:
        check_files(place)
    except FileNotFoundError:
        raise InputError(
            f"{place} holds a run that was not written to its end, or by an earlier version: "
            "make it again with the settings that settings.json holds"
        ) from None
    try:
        return _as_study(place, document)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{place / 'run.json'} or a CSV file beside it is not what 'gridpriv run' wrote: "
            f"{error!r}. {TAKEN}"
        ) from error


def _as_study(place: Path, document: dict[str, Any]) -> Study:
    name = "run"
    tables = {table: pd.DataFrame({"run": pd.Series(dtype=str)}) for table in TABLES}
    tables["runs"] = pd.DataFrame([_run_row(document, name)])
    tables["rounds"] = _csv(place / "rounds.csv", name)
    tables["buses"] = _csv(place / "buses.csv", name)
    zones = _csv(place / "zones.csv", name)
    tables["zones"] = zones if len(zones) else pd.DataFrame(document["zones"]).assign(run=name)
    tables["statements"] = pd.DataFrame(document["privacy"]["sensitivity"]).assign(run=name)
    tables["timing"] = pd.DataFrame([{"run": name, **document["timing"]}])
    tables |= _network(place, document)
    flows = _flows(place)
    if len(flows) == len(tables["network_branches"]) > 0:
        tables["flows"] = flows
    return Study(place, _run_manifest(document), tables)


def _flows(place: Path) -> pd.DataFrame:
    """Return MVA and loading of every branch after recourse; empty where not stored as CSV."""
    path = place / "res_line.csv"
    if not path.is_file():
        return pd.DataFrame()
    lines = pd.read_csv(path)
    ends = [np.hypot(lines[f"p_{end}_mw"], lines[f"q_{end}_mvar"]) for end in ("from", "to")]
    return pd.DataFrame({"mva": np.maximum(*ends), "loading_percent": lines.loading_percent})


def _run_row(document: dict[str, Any], name: str) -> dict[str, Any]:
    settings = document["settings"]
    quiet = settings["mechanism"] == "none"
    way = "no noise" if quiet else f"{settings['mechanism']}, {settings['perturbation']}"
    if settings.get("refresh"):
        way += f" per {settings['refresh']}"
    row = dict.fromkeys(FINALS) | {
        "run": name, "number": 0, "case": document["case"], "zoning": "", "scheme": way,
        "budget": "none" if quiet else settings["budget"], "seed": document["seed"],
        **{key: settings[key] for key in SETTINGS_SHOWN},
        **finals(document),
        "finished_rounds": len(document["rounds"]),
    }  # fmt: skip
    short = len(document["rounds"]) < settings["rounds"] and not settings["tolerance"]
    row["status"] = "failed" if short else "done"
    row["reason"] = "ended before its last round" if short else ""
    return row


def _run_manifest(document: dict[str, Any]) -> dict[str, Any]:
    case = document["case"]
    return {
        "title": f"A run of {case}",
        "question": f"What does this private run of {case} cost, and what does it protect?",
        "study": {"settings": {k: v for k, v in document["settings"].items() if k != "seed"}},
        "seeds": [document["seed"]] if document["seed"] is not None else [],
        "cases": [],
        "planned": 1,
        "public": document["final"]["objective"] is None and bool(document["rounds"]),
        "versions": {"gridpriv": document["version"],
                     document["solver"]["name"]: document["solver"]["version"]},
        "repeat": document.get("repeat"),
    }  # fmt: skip


def _network(place: Path, document: dict[str, Any]) -> dict[str, pd.DataFrame]:
    empty = {"network_buses": pd.DataFrame(), "network_branches": pd.DataFrame()}
    path = place / NETWORK
    if not path.is_file():
        return empty
    told = json.loads(path.read_text(encoding="utf-8"))
    at = {"case": document["case"], "zoning": ""}
    return {f"network_{k}": pd.DataFrame(told[k]).assign(**at) for k in ("buses", "branches")}


def _csv(path: Path, name: str) -> pd.DataFrame:
    if not path.is_file():
        return pd.DataFrame({"run": pd.Series(dtype=str)})
    return pd.read_csv(path).assign(run=name)
