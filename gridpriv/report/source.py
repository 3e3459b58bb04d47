"""Read a folder of the store for a report, and refuse inconsistent tables.

The store's checksums detect damage. Tables that were edited and given new checksums are not
checked; if no report can be made of them, the folder is refused.

A report also includes results of a plan, an audit or an attack of the same grid. Each command
writes a document (``plan.json``, ``audit.json``, ``attack.json``); a report takes it from its own
folder or from one of its name in it (``plan/``).

Messages of a study have codes; those of a run are in :mod:`gridpriv.zonal.messages`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.assurance import Attack, Audit
from gridpriv.core.errors import GridprivError, InputError
from gridpriv.core.files import read_sealed
from gridpriv.core.settings import names
from gridpriv.core.store import Study, read_study
from gridpriv.core.tables import publish
from gridpriv.core.text import Json, Message, amount, clean, make_message, read_templates
from gridpriv.privacy.settings import NOTHING, Privacy
from gridpriv.report.schema import PlannedMethod
from gridpriv.study.record import publish_study
from gridpriv.study.run_folder import RUN, SERIES, run_document
from gridpriv.zonal.documents import SERIES_FILE, RunDocument, SeriesDocument
from gridpriv.zonal.settings import Adjacency

SCHEMAS = {"plan": PlannedMethod.table, "audit": Audit.table, "attack": Attack.table}
CAPTIONS = {
    "plan": "Expected, on sampled demand scenarios",
    "audit": "Epsilon, stated and measured",
    "attack": "Demand read from messages",
}
CENTRAL = "central"
ENDS = ("least", "median", "most")
NOISE = {*names(Privacy), *names(Adjacency), "noise_schedule"} - {"perturbation"}
"""Settings that a run reads for its noise only."""
IN_OTHER_WORDS = {"seed", "workers", "zoning", "coordination"}
"""Settings that do not change expectations, or that a plan has as zone map and rounds."""
NOWHERE = dict.fromkeys(ENDS, math.nan)
"""Of a case without costs."""


def read_findings(folder: Path) -> dict[str, pd.DataFrame]:
    """Return the tables (:data:`SCHEMAS`) of such results in a folder.

    Raises
    ------
    InputError
        For a file that is not of such a command, or was changed since.
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
    """Return the optimality gap of a run and the plan's expectation of its method.

    ``digest`` is that of the run's zone map.
    """
    over = (run["final"].get("cost_of_privacy") or {}).get("optimality_gap")
    if over is None:
        return []
    gap = {"gap": amount(over, "$/h")}
    method = _method_of(run) | {"map_sha256": digest}
    same_method = plan[
        [all(row.get(k) == v for k, v in method.items()) for _, row in plan.iterrows()]
    ]
    if same_method.empty or same_method["median"].isna().all():
        return [message("plan-measured-other", gap)]
    ends = {end: amount(same_method[end].iloc[0], "$/h") for end in ENDS}
    return [message("plan-measured", gap | ends)]


def _method_of(run: Json) -> Json:
    """Return a run's method by the plan's name; without its noise for prior-only."""
    settings = run["settings"]
    difference = IN_OTHER_WORDS | (NOISE if settings["release"] == NOTHING else set())
    central = settings["coordination"] == CENTRAL
    rounds = {"rounds": CENTRAL if central else str(settings["rounds"])}
    stated = {name: str(value) for name, value in settings.items() if name not in difference}
    return {"case": run["case"]} | stated | rounds


def _plan_rows(document: Json) -> pd.DataFrame:
    grid = {"case": str(document["case"]), "map_sha256": str(document.get("map_sha256"))}
    grid |= {name: str(value) for name, value in document.get("settings", {}).items()}
    return pd.DataFrame(
        [
            grid
            | {name: str(method[name]) for name in ("release", "mechanism", "rounds")}
            | {"expected_error_mw": float(method["expected_error_mw"])}
            | {end: float((method["over_optimum"] or NOWHERE)[end]) for end in ENDS}
            for method in document["methods"]
        ]
    )


def _audit_rows(document: Json) -> pd.DataFrame:
    shown = ("perturbation", "mechanism", "update")
    return pd.DataFrame(
        [
            row | {"configuration": " ".join(str(document["settings"][n]) for n in shown)}
            for row in document["statistical"]
        ]
    )


def _attack_rows(document: Json) -> pd.DataFrame:
    table = pd.DataFrame(document["summary"])
    table["recovered_pct"] = 100.0 * table["recovered"]
    table["of_prior_pct"] = 100.0 * table["of_prior"]
    return table


TEMPLATES = read_templates(Path(__file__).with_name("messages.txt"))
message = partial(make_message, TEMPLATES)


def read_source(folder: str | Path, *, public: bool = False) -> Study:
    """Return the tables of a folder, each text on one line and without control characters.

    Parameters
    ----------
    public : bool
        Leave out every value computed from private demand or noise.
    """
    study = read_study(folder)
    document = run_document(study.folder) if study.manifest.get("kind") == RUN else None
    if public:
        protected = document is not None and document["settings"]["mechanism"] != "none"
        document = document and publish(document, RunDocument.table, protected=protected)
        study = publish_study(study)
    else:
        findings = read_findings(Path(folder))
        study = Study(study.folder, study.manifest, study.tables | findings)
    tables = {name: _clean_table(table) for name, table in study.tables.items()}
    manifest = _clean(study.manifest | {"document": document})
    return Study(study.folder, manifest, tables)


def means_over(study: Study) -> str:
    """Return the word for the sample of a mean: seeds or steps."""
    return "steps" if study.manifest.get("kind") == SERIES else "seeds"


def step_rows(study: Study) -> list[Json]:
    """Return the steps of a series, with None for unknown values."""
    steps = study.tables.get("steps", pd.DataFrame())
    rows: list[Json] = steps.replace({np.nan: None}).to_dict("records")
    return rows


def series_document(study: Study) -> Json | None:
    """Return the document of a series from its folder; None without one."""
    path = study.folder / SERIES_FILE
    if not path.is_file():
        return None
    document: Json = _clean(json.loads(path.read_text(encoding="utf-8")))
    if study.public:
        document = publish(document, SeriesDocument.table, protected=study.withheld.empty)
    return document


def _clean_table(table: pd.DataFrame) -> pd.DataFrame:
    texts = [name for name in table if table[name].dtype.kind not in "biuf"]
    return table.assign(**{name: table[name].map(_clean) for name in texts})


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Refuse a folder whose tables or documents allow no report."""
    try:
        yield
    except GridprivError:
        raise
    except Exception as error:  # pandas and Matplotlib may raise anything for invalid tables
        reason = " ".join(str(error).split())[:80]
        raise InputError(
            f"{folder} cannot be reported: its tables do not fit together "
            f"({type(error).__name__}: {reason}). If nobody changed them, gridpriv is at fault: "
            "please report it"
        ) from error
