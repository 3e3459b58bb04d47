"""The folder of a horizon: every finished step at once, tables over all steps at the end.

A step is one file in ``parts``, written beside and renamed: whatever ends a horizon, the steps
that were finished are there, and ``--resume`` runs the others. ``merge`` turns the parts into
one table each (CSV, a column ``step``), ``horizon.json`` and ``horizon.png``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.core.errors import InputError
from gridpriv.core.files import write_text
from gridpriv.core.tables import publish, publish_table
from gridpriv.core.text import frame_csv
from gridpriv.privacy.mechanism import Gaussian, Laplace, SecureGaussian, SecureLaplace
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity
from gridpriv.privacy.statement import noise_caveat, refuse_unprotected
from gridpriv.report.figures import draw_horizon
from gridpriv.zonal.checks import zone_statements
from gridpriv.zonal.horizon import Horizon, step_row, total_releases
from gridpriv.zonal.result import RunResult, json_ready
from gridpriv.zonal.schema import ROUNDS, SERIES_DOCUMENT, STEPS
from gridpriv.zonal.solution import solution_of_run
from gridpriv.zonal.tables import result_tables

MECHANISM_CLASSES = {c.__name__: c for c in (Laplace, Gaussian, SecureLaplace, SecureGaussian)}
PLAN, DOCUMENT = "series.json", "horizon.json"


class SeriesFolder:
    """Writes and reads the folder of one horizon.

    Parameters
    ----------
    folder : Path
    horizon : Horizon
    public : bool
        Leave out whatever is computed from private demand, and seeds.
    resume : bool
        Go on with the horizon that the folder holds.

    Raises
    ------
    InputError
        If the folder holds another horizon, or this one and ``resume`` is not set.
    """

    def __init__(self, folder: Path, horizon: Horizon, *, public: bool, resume: bool) -> None:
        if public:
            refuse_unprotected(horizon.settings.mechanism)
        self.folder, self.horizon, self.public = folder, horizon, public
        self.parts = folder / "parts"
        plan = self._plan()
        held = _read(folder / PLAN)
        if held is None:
            others = [path.name for path in folder.iterdir()] if folder.is_dir() else []
            if others:
                raise InputError(
                    f"out = {str(folder)!r} is not allowed: it holds other files "
                    f"({', '.join(sorted(others)[:3])}); name an empty or a new folder"
                )
        else:
            self._refuse_other(held, plan, resume)
        self.parts.mkdir(parents=True, exist_ok=True)
        if held is None:
            _write(folder / PLAN, plan, private=not public)

    def _plan(self) -> dict[str, Any]:
        """Return what makes two horizons the same."""
        horizon = self.horizon
        case = horizon.series.case
        demand = hashlib.sha256(
            np.ascontiguousarray([horizon.series.pd, horizon.series.qd]).tobytes()
        ).hexdigest()
        settings = {k: v for k, v in horizon.settings.as_dict().items() if k != "seed"}
        return {
            "case": case.name,
            "buses": case.n_bus,
            "zones": [horizon.zoning.names[z] for z in horizon.zoning.zone_of],
            "settings": settings,
            "series": horizon.series.source,
            "steps": list(horizon.series.steps),
            # digests of demand would let anybody test a guess of it
            **({} if self.public else {"case_sha256": case.fingerprint, "demand_sha256": demand,
                                       "seed": self._seed()}),
            "public": self.public,
        }  # fmt: skip

    def _seed(self) -> int | None:
        return None if self.horizon.settings.noise == "secure" else self.horizon.seed

    def _refuse_other(self, held: dict[str, Any], plan: dict[str, Any], resume: bool) -> None:
        ask = self.horizon.settings.seed is not None
        keys = [k for k in plan if held.get(k) != plan[k] and (k != "seed" or ask)]
        if keys:
            raise InputError(
                f"out = {str(self.folder)!r} is not allowed: it holds another horizon "
                f"(other {', '.join(keys)}); name another folder"
            )
        if not resume:
            raise InputError(
                f"out = {str(self.folder)!r} already holds {len(self.done())} of the "
                f"{len(plan['steps'])} steps of this horizon: add --resume to run the rest, or "
                "name another folder"
            )

    def done(self) -> list[int]:
        """Return the numbers of the finished steps."""
        return sorted(int(path.stem) for path in self.parts.glob("*.json"))

    def add(self, number: int, result: RunResult) -> None:
        """Store a finished step."""
        row = step_row(self.horizon.series.steps[number], result)
        rounds = result.rounds
        tables = {} if self.public else result_tables(solution_of_run(result))
        if self.public:
            row = {key: row[key] for key in STEPS.published(protected=True)}
            rounds = publish_table(rounds, ROUNDS)
        part = {
            "row": row,
            "releases": _told_releases(result.trace.releases),
            "tables": {
                name: table.rename_axis("index").reset_index().to_dict("list")
                for name, table in tables.items()
            }
            | {"rounds": rounds.to_dict("list")},
        }
        _write(self.parts / f"{number:06d}.json", part, private=not self.public)

    def add_unfinished(self, number: int, result: RunResult) -> None:
        """Store what a step released that ended early; the step is still to do."""
        earlier = len(list(self.parts.glob(f"{number:06d}-*.early")))
        releases = {"releases": _told_releases(result.trace.releases)}
        _write(self.parts / f"{number:06d}-{earlier + 1}.early", releases, private=not self.public)

    def merge(self) -> dict[str, Any]:
        """Write the tables over all finished steps; return the horizon's document."""
        parts = [_read(self.parts / f"{number:06d}.json") or {} for number in self.done()]
        rows = [part["row"] for part in parts]
        table = pd.DataFrame(rows, columns=list(rows[0]) if rows else ["step"])
        self._table("steps", table)
        for name in parts[0]["tables"] if parts else ():
            pieces = [
                pd.DataFrame(part["tables"][name]).assign(step=part["row"]["step"])
                for part in parts
            ]
            joined = pd.concat(pieces, ignore_index=True)
            self._table(name, joined[["step", *(c for c in joined if c != "step")]])
        early = [_read(path) or {} for path in sorted(self.parts.glob("*.early"))]
        released = [_releases(part["releases"]) for part in (*parts, *early)]
        document = self._document(rows, released)
        _write(self.folder / DOCUMENT, document, private=not self.public)
        if len(rows) > 1:
            draw_horizon(
                table, self.horizon.series.case.name, self.folder / "horizon.png",
                public=self.public,
            )  # fmt: skip
        return document

    def _document(
        self, rows: list[dict[str, Any]], releases: Iterable[Mapping[str, Counter[Release]]]
    ) -> dict[str, Any]:
        horizon = self.horizon
        rules = horizon.prepared(0).rules
        statements = zone_statements(total_releases(releases), horizon.settings, rules)
        seed = self._seed()
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
                "adjacency": f"{rules.adjacency}, in every step",
                "noise_multiplier": horizon.multiplier,
                "releases_per_zone": max((s.releases for s in statements), default=0),
                "total_pure": _largest(s.total_pure for s in statements),
                "total": {"epsilon": _largest(s.total for s in statements),
                          "delta": horizon.settings.target_delta},
                "zones": json_ready([vars(s) for s in statements]),
            },
            "seed": seed,
        }  # fmt: skip
        if self.public:
            document = publish(document, SERIES_DOCUMENT, protected=True)
        return document

    def _table(self, name: str, table: pd.DataFrame) -> None:
        path = self.folder / f"{name}.csv"
        write_text(path, frame_csv(table), private=not self.public)


def recorded_seed(folder: Path) -> int | None:
    """Return the seed that a folder's horizon was started with, or None where none is recorded."""
    seed = (_read(folder / PLAN) or {}).get("seed")
    return int(seed) if seed is not None else None


def _told_releases(releases: Mapping[str, Mapping[Release, int]]) -> list[dict[str, Any]]:
    return [
        {
            "zone": zone,
            "mechanism": type(release.mechanism).__name__,
            "scale": release.mechanism.scale,
            "sensitivity": vars(release.sensitivity),
            "assumed": release.assumed,
            "count": count,
        }
        for zone, counts in releases.items()
        for release, count in counts.items()
    ]


def _releases(told: list[dict[str, Any]]) -> dict[str, Counter[Release]]:
    found: dict[str, Counter[Release]] = {}
    for row in told:
        mechanism = MECHANISM_CLASSES[row["mechanism"]](row["scale"])
        release = Release(mechanism, Sensitivity(**row["sensitivity"]), row["assumed"])
        found.setdefault(row["zone"], Counter())[release] += row["count"]
    return found


def _largest(values: Iterable[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return max(known, default=None)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return held


def _write(path: Path, document: dict[str, Any], *, private: bool) -> None:
    text = json.dumps(json_ready(document), allow_nan=False) + "\n"
    write_text(path, text, private=private)
