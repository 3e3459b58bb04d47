"""A run's folder: settings, document and network as JSON, tables as CSV, figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridpriv.core.errors import InputError
from gridpriv.drawing import write_drawing
from gridpriv.grid.case import Case
from gridpriv.grid.zoning import Zoning
from gridpriv.report.figures import draw_convergence
from gridpriv.report.pictures import network_tables, run_picture, zones_picture
from gridpriv.zonal.result import PUBLIC_ROUND_COLUMNS
from gridpriv.zonal.solution import solution_of_run
from gridpriv.zonal.tables import result_tables, write_tables

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.zonal.result import RunResult

NETWORK = "network.json"


def write_run(result: RunResult, folder: Path, *, public: bool, tables: str = "csv") -> None:
    """Write a run's files; each is written beside and renamed, so none is ever half there.

    Parameters
    ----------
    result : RunResult
    folder : Path
    public : bool
        Leave out whatever is computed from private demand: ``buses.csv``, ``zones.csv``,
        ``prices.csv``, ``binding.csv``, the picture of shed and loading and the result tables are
        not written, and ``rounds.csv`` holds public columns only.
    tables : {'csv', 'parquet', 'json'}
        Format of the result tables ``res_bus``, ``res_line``, ``res_gen`` and ``res_shed``.
    """
    document = result.as_dict(public=public)
    try:
        _text(folder / "settings.json", json.dumps(document["settings"], indent=2))
        _text(folder / "run.json", json.dumps(document, indent=2))
        _text(folder / NETWORK, json.dumps(network(result.case, result.zoning)))
        rounds = result.rounds
        if public and not rounds.empty:
            rounds = rounds[list(PUBLIC_ROUND_COLUMNS)]
        _table(folder / "rounds.csv", rounds)
        if not rounds.empty:
            _table(folder / "tie_prices.csv", result.tie_prices)
        if not public:
            _table(folder / "zones.csv", result.zones)
            _table(folder / "buses.csv", result.buses)
            _table(folder / "prices.csv", result.prices)
            _table(folder / "binding.csv", result.binding)
            if not rounds.empty:
                write_tables(result_tables(solution_of_run(result)), folder, tables)
        write_drawing(zones_picture(result.case, result.zoning), folder / "zones.png")
        if not rounds.empty:
            if not public:
                write_drawing(run_picture(result), folder / "network.png")
            draw_convergence(result, folder / "convergence.png", public=public)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from error


def network(case: Case, zoning: Zoning) -> dict[str, list[dict[str, Any]]]:
    """Return a grid's buses, with position and zone, and branches, for JSON (public)."""
    buses, branches = network_tables(case, zoning)
    return {"buses": buses.to_dict("records"), "branches": branches.to_dict("records")}


def _text(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(path)


def _table(path: Path, table: pd.DataFrame) -> None:
    part: Any = path.with_name(path.name + ".part")
    table.to_csv(part, index=False)
    part.replace(path)
