"""A run's folder: settings.json, run.json, rounds.csv, buses.csv and two figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridpriv.errors import InputError
from gridpriv.report.figures import draw_convergence, draw_zones

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.result import RunResult

PUBLIC_ROUNDS = (
    "round", "consensus_residual", "penalty_min", "penalty_max", "solver_iterations",
    "solver_retries", "seconds",
)  # fmt: skip


def write_run(result: RunResult, folder: Path, *, public: bool) -> None:
    """Write a run's files; each is written beside and renamed, so none is ever half there.

    Parameters
    ----------
    result : RunResult
    folder : Path
    public : bool
        Leave out whatever is computed from private demand: ``buses.csv`` is not written and
        ``rounds.csv`` holds public columns only.
    """
    document = result.as_dict(public=public)
    try:
        _text(folder / "settings.json", json.dumps(document["settings"], indent=2))
        _text(folder / "run.json", json.dumps(document, indent=2))
        rounds = result.rounds
        if public and not rounds.empty:
            rounds = rounds[list(PUBLIC_ROUNDS)]
        _table(folder / "rounds.csv", rounds)
        if not public:
            _table(folder / "buses.csv", result.buses)
        draw_zones(result.case, result.zoning, folder / "zones.png")
        if not rounds.empty:
            draw_convergence(result, folder / "convergence.png", public=public)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from error


def _text(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(path)


def _table(path: Path, table: pd.DataFrame) -> None:
    part: Any = path.with_name(path.name + ".part")
    table.to_csv(part, index=False)
    part.replace(path)
