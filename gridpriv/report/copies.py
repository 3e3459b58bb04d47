"""Copies for people of a run or series: CSV, JSON, pictures; made of its tables, never read back.

A folder that is published holds public tables only, so its copies are public as they stand.
"""

from __future__ import annotations

import json
from importlib.metadata import version

import pandas as pd

from gridpriv.core.stored import NETWORK_TABLES, Study, read_study
from gridpriv.core.tables import publish
from gridpriv.core.text import Json, frame_csv, json_ready
from gridpriv.privacy.statement import noise_caveat
from gridpriv.report.charts import convergence_figure, horizon_figure
from gridpriv.report.contents import plan_table
from gridpriv.report.figures import write_figure
from gridpriv.report.plots import flows_of, loading_map, zones_map
from gridpriv.study.record import STORED
from gridpriv.study.run_folder import RunFolder, run_document
from gridpriv.zonal.checks import zone_statements
from gridpriv.zonal.documents import RESERVE_FILE, STORAGE_FILE, SeriesDocument
from gridpriv.zonal.horizon import Horizon
from gridpriv.zonal.run_document import totals
from gridpriv.zonal.stream import Stream
from gridpriv.zonal.tables import frames_json

STATE = ("res_bus", "res_line", "res_gen", "res_shed")
COPIED = ("rounds", "zones", "buses", "prices", "tie_prices", "binding")


def write_run_copies(kept: RunFolder, tables: str = "csv") -> Json | None:
    """Write tables and pictures of a run; return its document, None without one.

    Parameters
    ----------
    tables : {'csv', 'parquet', 'json'}
        Of ``res_bus``, ``res_line``, ``res_gen`` and ``res_shed``; Parquet is what the store has.
    """
    study, document = read_study(kept.store.folder), run_document(kept.store.folder)
    if document is None:
        return None
    document.pop("repeat", None)  # of the folder alone
    _write_tables(kept, study, tables)
    place, private = study.folder, not study.public
    zones = zones_map(kept.runs.case, kept.runs.zoning)
    write_figure(zones, place / "zones.png", private=private)
    if len(study.rounds):
        item = study.runs.iloc[0]
        picture = convergence_figure(study.rounds, f"{item.case}: {item['update']}, {item.method}")
        write_figure(picture, place / "convergence.png", private=private)
    if "res_line" in study.tables:
        network = tuple(study.tables[name] for name in NETWORK_TABLES)
        shed = study.tables["res_shed"].set_index("index")["p_mw"].to_dict()
        loading = loading_map(kept.runs.case.name, network, shed, flows_of(study))
        write_figure(loading, place / "network.png", private=True)
    return document


def write_series_copies(kept: RunFolder, horizon: Horizon, tables: str = "csv") -> Json:
    """Write ``horizon.json``, tables and a picture of a series; return its document."""
    study = read_study(kept.store.folder)
    steps = study.tables.get("steps", pd.DataFrame({"run": [], "step": []}))
    if len(timing := study.tables["timing"]):
        seconds = timing[["run", "total"]].rename(columns={"total": "seconds"})
        steps = steps.merge(seconds, on="run")
    kept.store.text("steps.csv", frame_csv(_copied(steps)))
    _write_tables(kept, study, tables)
    document = _series_document(kept, horizon, _copied(steps).to_dict("records"))
    kept.store.text("horizon.json", json.dumps(document, allow_nan=False) + "\n")
    if len(steps) > 1:
        picture = horizon_figure(steps, horizon.series.case.name)
        write_figure(picture, study.folder / "horizon.png", private=not study.public)
    return document


def _write_tables(kept: RunFolder, study: Study, state: str) -> None:
    for name in (*COPIED, *(STATE if state == "csv" else ())):
        table = study.tables.get(name)
        if table is not None and len(table):
            kept.store.text(f"{name}.csv", frame_csv(_copied(table)))
        elif name in COPIED and not study.public:
            kept.store.text(f"{name}.csv", frame_csv(pd.DataFrame(columns=STORED[name].names)))
    if state == "json" and "res_bus" in study.tables:
        entries = {name: _copied(study.tables[name]) for name in STATE}
        kept.store.text("tables.json", frames_json(entries))


def _copied(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table as people want it: the step first, without the store's own identity."""
    first = [name for name in ("step",) if name in table]
    return table[[*first, *(name for name in table if name not in ("run", "step"))]]


def _planned(kept: RunFolder, name: str) -> list[Json]:
    """Return storage operation or reserves in every step of a joint plan; empty without one."""
    rows: list[Json] = json_ready(plan_table(kept.store.folder, name).to_dict("records"))
    return rows


def _series_document(kept: RunFolder, horizon: Horizon, rows: list[Json]) -> Json:
    prepared, settings = horizon.prepared(0), horizon.settings
    statements = zone_statements(kept.releases(), settings, prepared.rules)
    case, seed = horizon.series.case, kept.runs.known_seed
    document = {
        "case": case.name,
        "buses": case.n_bus,
        "series": horizon.series.source,
        "planned": len(horizon.series),
        "finished": len(rows),
        "settings": settings.told_of(prepared.case)
        | {"zoning": horizon.zoning.source, "seed": seed},
        "released_once": horizon.released_rows(),
        "steps": json_ready(rows),
        "step_hours": horizon.chronology.hours if horizon.chronology is not None else None,
        "storage": _planned(kept, STORAGE_FILE),
        "reserves": _planned(kept, RESERVE_FILE),
        "privacy": {
            "mechanism": settings.effective_mechanism(),
            "noise": settings.noise,
            "caveat": noise_caveat(settings.drawn, settings.noise, settings.effective_mechanism()),
            "adjacency": horizon.adjacency,
            "noise_multiplier": horizon.multiplier,
            "stream": horizon.costs if isinstance(horizon, Stream) else None,
            **json_ready(totals(settings, statements)),
            "zones": json_ready([s.as_dict() for s in statements]),
        },
        "seed": seed,
        "version": version("gridpriv"),
    }
    if kept.store.public:
        document = publish(document, SeriesDocument.table, protected=True)
    return document
