"""The folder of a series: a store of which each step is a run, and copies for people.

Before a step draws its first noise, what it may release at most is on disk; what it did release
takes that place when it is stored or ends early. So a step that was killed counts as released.
Copies for people are one CSV file a table, ``horizon.json`` and ``horizon.png``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.core.errors import not_allowed
from gridpriv.core.store import MANIFEST, Rows, Store, open_store, read_manifest, read_study
from gridpriv.core.tables import publish, publish_table
from gridpriv.core.text import frame_csv
from gridpriv.privacy.mechanism import MECHANISMS
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity
from gridpriv.privacy.statement import noise_caveat, refuse_unprotected
from gridpriv.report.figures import draw_horizon
from gridpriv.zonal.checks import zone_statements
from gridpriv.zonal.horizon import Horizon, step_row
from gridpriv.zonal.result import RunResult, json_ready
from gridpriv.zonal.schema import ROUNDS, SERIES_DOCUMENT, STEPS
from gridpriv.zonal.tables import result_tables

MECHANISM_CLASSES = {c.__name__: c for c in MECHANISMS.values()}
KIND, DOCUMENT = "series", "horizon.json"

Released = Mapping[str, Mapping[Release, int]]


class SeriesFolder:
    """A series' folder that this process holds (:func:`open_series`).

    Parameters
    ----------
    store : Store
    horizon : Horizon
    repeats : bool
        Whether a step that is run again draws the same noise and is charged nowhere: then it
        releases nothing new.
    """

    def __init__(self, store: Store, horizon: Horizon, *, repeats: bool) -> None:
        self._store, self.horizon, self._repeats = store, horizon, repeats

    def done(self) -> list[int]:
        """Return the numbers of the finished steps."""
        return sorted(int(run) for run in self._store.stored())

    def begin(self, number: int, planned: Released) -> None:
        """Store what a step may release, before it does; it stands in the step's place."""
        if not self._repeats:
            self._store.set_aside(_run(number))
        self._note(number, planned)

    def add_early(self, number: int, result: RunResult) -> None:
        """Store what a step released that ended early; the step is still to do."""
        self._note(number, result.trace.releases)

    def add(self, number: int, result: RunResult) -> None:
        """Store a finished step."""
        run, name = _run(number), self.horizon.series.steps[number]
        row = step_row(name, result)
        seconds = row.pop("seconds")
        tables = {"rounds": result.rounds.drop(columns="seconds", errors="ignore")}
        if self._store.public:
            row = {key: row[key] for key in STEPS.published(protected=True) if key in row}
            tables = {"rounds": publish_table(tables["rounds"], ROUNDS)}
        else:
            found = result_tables(result.solution)
            tables |= {k: t.rename_axis("index").reset_index() for k, t in found.items()}
        rows: Rows = {
            "runs": [{"run": run, "number": number, "status": "done"}],
            "steps": [row],
            "releases": _told(name, result.trace.releases, early=False),
            **{k: table.assign(step=name).to_dict("records") for k, table in tables.items()},
        }
        if not self._store.public:
            rows["timing"] = [{"total": seconds}]
        self._store.add({k: [{"run": run} | one for one in more] for k, more in rows.items()})

    def finish(self) -> None:
        """Make the tables, once every step is there."""
        if len(self.done()) == len(self.horizon.series):
            self._store.finish()

    def export(self) -> dict[str, Any]:
        """Write the copies for people; return the series' document."""
        study = read_study(self._store.folder)
        tables = {name: table for name, table in study.tables.items() if "step" in table}
        steps = tables.get("steps", pd.DataFrame({"run": [], "step": []}))
        if len(timing := study.tables["timing"]):
            steps = steps.merge(timing.rename(columns={"total": "seconds"}), on="run")
        released = tables.pop("releases", pd.DataFrame())
        for name, table in (tables | {"steps": steps}).items():
            shown = ["step", *(c for c in table if c not in ("step", "run"))]
            self._store.text(f"{name}.csv", frame_csv(table[shown]))
        rows = steps.drop(columns="run").to_dict("records")
        document = self._document(rows, _releases(released.to_dict("records")))
        self._store.text(DOCUMENT, json.dumps(document, allow_nan=False) + "\n")
        if len(rows) > 1:
            place = self._store.folder / "horizon.png"
            draw_horizon(steps, self.horizon.series.case.name, place, public=study.public)
        return document

    def _note(self, number: int, releases: Released) -> None:
        told = _told(self.horizon.series.steps[number], releases, early=True)
        self._store.note(_run(number), {"releases": told})

    def _document(self, rows: list[dict[str, Any]], releases: Released) -> dict[str, Any]:
        horizon = self.horizon
        rules = horizon.prepared(0).rules
        statements = zone_statements(releases, horizon.settings, rules)
        seed, base_mva = _seed(horizon), horizon.series.case.base_mva
        document = {
            "case": horizon.series.case.name,
            "buses": horizon.series.case.n_bus,
            "series": horizon.series.source,
            "planned": len(horizon.series),
            "finished": len(rows),
            "settings": horizon.settings.as_dict() | {"zoning": horizon.zoning.source,
                                                      "seed": seed},
            "steps": json_ready(rows),
            "privacy": {
                "mechanism": horizon.settings.mechanism,
                "noise": horizon.settings.noise,
                "caveat": noise_caveat(horizon.settings.mechanism, horizon.settings.noise),
                "adjacency": f"{rules.adjacency.protection(base_mva)}, in every step",
                "noise_multiplier": horizon.multiplier,
                "releases_per_zone": max((s.releases for s in statements), default=0),
                "total_pure": _largest(s.total_pure for s in statements),
                "total": {"epsilon": _largest(s.total for s in statements),
                          "delta": horizon.settings.target_delta},
                "zones": json_ready([vars(s) for s in statements]),
            },
            "seed": seed,
        }  # fmt: skip
        if self._store.public:
            document = publish(document, SERIES_DOCUMENT, protected=True)
        return document


@contextmanager
def open_series(
    folder: Path, horizon: Horizon, *, public: bool, resume: bool, charged: bool
) -> Iterator[SeriesFolder]:
    """Hold a folder for a series; begin it, or go on with it.

    Parameters
    ----------
    folder : Path
    horizon : Horizon
    public : bool
        Leave out whatever is computed from private demand, and seeds.
    resume : bool
        Go on with the series that the folder holds.
    charged : bool
        Whether a ledger is charged, for every attempt at a step.

    Raises
    ------
    InputError
        If the folder holds something else, or this series and ``resume`` is not set.
    """
    if public:
        refuse_unprotected(horizon.settings.mechanism)
    manifest = _manifest(horizon, public=public)
    with open_store(folder, manifest, resume=resume) as store:
        recorded = store.manifest.get("seed")
        if recorded is not None and recorded != horizon.seed:
            raise not_allowed("seed", horizon.seed, f"{recorded}, with which the series was begun")
        repeats = recorded is not None and not charged
        yield SeriesFolder(store, horizon, repeats=repeats)


def _manifest(horizon: Horizon, *, public: bool) -> dict[str, Any]:
    """Return what a series is."""
    series, settings = horizon.series, horizon.settings
    demand = np.ascontiguousarray([series.pd, series.qd]).tobytes()
    # digests of demand would let anybody test a guess of it, and a seed undoes the noise
    private = {} if public else {
        "case_sha256": series.case.fingerprint, "demand_sha256": hashlib.sha256(demand).hexdigest(),
    }  # fmt: skip
    return {
        "kind": KIND,
        "title": f"{series.case.name}: {series.source}",
        "study": {
            "case": series.case.name,
            "buses": series.case.n_bus,
            "zones": [horizon.zoning.names[z] for z in horizon.zoning.zone_of],
            "settings": {k: v for k, v in settings.as_dict().items() if k != "seed"},
            "series": series.source,
            "steps": list(series.steps),
            **private,
        },
        "seed": None if public else _seed(horizon),
        "planned": len(series),
        "version": version("gridpriv"),
        "public": public,
    }


def recorded_seed(folder: Path) -> int | None:
    """Return the seed that a folder's series was begun with, or None where none is recorded."""
    if not (folder / MANIFEST).exists():
        return None
    seed = read_manifest(folder).get("seed")
    return None if seed is None else int(seed)


def _run(number: int) -> str:
    return f"{number:06d}"


def _seed(horizon: Horizon) -> int | None:
    return None if horizon.settings.noise == "secure" else horizon.seed


def _told(step: str, releases: Released, *, early: bool) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "early": early,
            "zone": zone,
            "mechanism": type(release.mechanism).__name__,
            "scale": release.mechanism.scale,
            "sensitivity": release.sensitivity.value,
            "norm": str(release.sensitivity.norm),
            "provenance": release.sensitivity.provenance,
            "assumed": release.assumed,
            "count": count,
        }
        for zone, counts in releases.items()
        for release, count in counts.items()
    ]


def _releases(told: Iterable[Mapping[str, Any]]) -> dict[str, Counter[Release]]:
    norms: dict[str, Any] = {"1": 1, "2": 2}
    found: dict[str, Counter[Release]] = {}
    for row in told:
        mechanism = MECHANISM_CLASSES[row["mechanism"]](row["scale"])
        norm = norms.get(row["norm"], row["norm"])
        sensitivity = Sensitivity(row["sensitivity"], norm, row["provenance"])
        release = Release(mechanism, sensitivity, row["assumed"])
        found.setdefault(row["zone"], Counter())[release] += row["count"]
    return found


def _largest(values: Iterable[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return max(known, default=None)
