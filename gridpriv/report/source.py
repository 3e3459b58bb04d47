"""Read a folder of the store for a report, and refuse tables that do not fit together.

The store's checksums find damage. Tables that somebody wrote and gave new checksums are not looked
at: where no report can be made of them, the folder is refused.

Messages of a study have codes; those of a run are in :mod:`gridpriv.zonal.messages`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.core.errors import GridprivError, InputError
from gridpriv.core.store import Study, read_study
from gridpriv.core.tables import publish
from gridpriv.core.text import Json, clean, make_message, read_templates
from gridpriv.study.record import publish_study
from gridpriv.study.run_folder import RUN, SERIES, run_document
from gridpriv.zonal.documents import RunDocument

TEMPLATES = read_templates(Path(__file__).with_name("messages.txt"))
message = partial(make_message, TEMPLATES)


def read_source(folder: str | Path, *, public: bool = False) -> Study:
    """Return the tables of a folder, each text on one line and without control characters.

    Parameters
    ----------
    public : bool
        Leave out every figure that is computed from private demand or noise.
    """
    study = read_study(folder)
    document = run_document(study.folder) if study.manifest.get("kind") == RUN else None
    if public:
        protected = document is not None and document["settings"]["mechanism"] != "none"
        document = document and publish(document, RunDocument.table, protected=protected)
        study = publish_study(study)
    tables = {name: table.map(_clean) for name, table in study.tables.items()}
    manifest = _clean(study.manifest | {"document": document})
    return Study(study.folder, manifest, tables)


def means_over(study: Study) -> str:
    """Return the word for the sample of a mean: seeds or steps."""
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
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Refuse a folder of which no report can be made, for what its tables or documents hold."""
    try:
        yield
    except GridprivError:
        raise
    except Exception as error:  # whatever pandas and Matplotlib raise of strange tables
        said = " ".join(str(error).split())[:80]
        raise InputError(
            f"{folder} cannot be reported: its tables do not fit together "
            f"({type(error).__name__}: {said}). If nobody changed them, gridpriv is at fault: "
            "please report it"
        ) from error
