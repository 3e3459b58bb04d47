"""A run's folder: settings, document and network as JSON, tables as CSV, figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridpriv.core.files import refuse_used, sweep, write_text
from gridpriv.core.lock import held
from gridpriv.core.sealed import seal_files
from gridpriv.core.tables import publish_table
from gridpriv.core.text import frame_csv
from gridpriv.drawing import write_drawing
from gridpriv.grid.case import Case
from gridpriv.grid.layout import network_tables
from gridpriv.grid.zoning import Zoning
from gridpriv.privacy.statement import refuse_unprotected
from gridpriv.report.figures import draw_convergence
from gridpriv.report.pictures import run_picture, zones_picture
from gridpriv.report.schema import STORED
from gridpriv.zonal.tables import result_tables, write_tables

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.zonal.result import RunResult

NETWORK = "network.json"


def write_run(
    result: RunResult, folder: Path, *, public: bool, tables: str = "csv", repeat: str = ""
) -> None:
    """Write a run's files; each is written beside and renamed, so none is ever half there.

    Parameters
    ----------
    result : RunResult
    folder : Path
    public : bool
        Write what may be published only (:mod:`gridpriv.core.tables`), into an empty folder.
    tables : {'csv', 'parquet', 'json'}
        Format of the result tables ``res_bus``, ``res_line``, ``res_gen`` and ``res_shed``.
    repeat : str
        The command that makes the same run again, for the report; it holds the seed.

    Raises
    ------
    InputError
        If what is published has no noise or would go beside other files.
    """
    if public:
        refuse_unprotected(result.settings.mechanism)
        refuse_used(folder)
    document = result.as_dict(public=public)
    if repeat and not public:
        document["repeat"] = repeat
    with held(folder):
        sweep(folder)
        private = not public
        write_text(folder / "settings.json", _json(document["settings"]), private=private)
        write_text(folder / "run.json", _json(document), private=private)
        write_text(folder / NETWORK, _json(network(result.case, result.zoning)), private=private)
        for name, table in run_tables(result).items():
            kept = publish_table(table, STORED[name]) if public else table
            if len(kept) or private:
                write_text(folder / f"{name}.csv", frame_csv(kept), private=private)
        write_drawing(
            zones_picture(result.case, result.zoning), folder / "zones.png", private=private
        )
        if result.trace.rounds:
            if private:
                write_tables(result_tables(result.solution), folder, tables)
                write_drawing(run_picture(result), folder / "network.png", private=True)
            draw_convergence(result, folder / "convergence.png", public=public)
        read = [
            "run.json",
            NETWORK,
            "res_line.csv",
            *(f"{name}.csv" for name in run_tables(result)),
        ]
        there = [name for name in read if (folder / name).exists()]
        seal_files(folder, there, private=private)


def run_tables(result: RunResult) -> dict[str, pd.DataFrame]:
    """Return a run's own tables by name."""
    found = {
        "rounds": result.rounds,
        "zones": result.zones,
        "buses": result.buses,
        "prices": result.prices,
        "binding": result.binding,
    }
    return found | ({"tie_prices": result.tie_prices} if result.trace.rounds else {})


def network(case: Case, zoning: Zoning) -> dict[str, list[dict[str, Any]]]:
    """Return a grid's buses, with position and zone, and branches, for JSON (public)."""
    buses, branches = network_tables(case, zoning)
    return {"buses": buses.to_dict("records"), "branches": branches.to_dict("records")}


def _json(document: Any) -> str:
    return json.dumps(document, indent=2) + "\n"
