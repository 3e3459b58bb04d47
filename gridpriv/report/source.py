"""What a report is made of: a folder of the store, whatever made it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.core.document import Json
from gridpriv.core.stored import Study, read_study
from gridpriv.core.text import clean
from gridpriv.report.findings import read_findings
from gridpriv.report.fit import check_tables
from gridpriv.study.publish import publish_study
from gridpriv.study.run_folder import RUN, SERIES


def read_source(folder: str | Path, *, public: bool = False) -> Study:
    """Return the tables of a folder, each text on one line and without control characters.

    Parameters
    ----------
    folder : path
    public : bool
        Leave out every figure that is computed from private demand or noise.
    """
    study = read_study(folder)
    check_tables(study)
    if public:
        study = publish_study(study)
    else:
        found = read_findings(Path(folder))
        study = Study(study.folder, study.manifest, study.tables | found)
    tables = {name: table.map(_clean) for name, table in study.tables.items()}
    return Study(study.folder, _clean(study.manifest), tables)


def run_document(study: Study) -> Json | None:
    """Return the document of a folder that is of one run, else None."""
    held = study.tables.get("documents")
    if study.manifest.get("kind") != RUN or held is None or held.empty:
        return None
    document: Json = _clean(json.loads(held["document"].iloc[0]))
    return document


def means_over(study: Study) -> str:
    """Return what means are taken over."""
    return "steps" if study.manifest.get("kind") == SERIES else "seeds"


def step_rows(study: Study) -> list[Json]:
    """Return the steps of a series; None for what is not known of one."""
    steps = study.tables.get("steps", pd.DataFrame())
    rows: list[Json] = steps.replace({np.nan: None}).to_dict("records")
    return rows


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean(one) for one in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(one) for key, one in value.items()}
    return value
