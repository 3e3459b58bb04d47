"""Report of a reader: every field of its source, read, ignored or unsupported.

*Read* fields are in the :class:`~gridpriv.grid.case.Case`. *Ignored* fields do not affect the model
(names, areas, emergency ratings). *Unsupported* fields affect the grid's operation and are not
modelled; if the power balance may differ from the source's because of one in service, ``left_out``
is set and loading the case warns.

``fields.csv`` lists the fields of every source: key, name, status, note, and flags (``left out``;
``always``: also if no row has it).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivWarning
from gridpriv.core.text import Json
from gridpriv.grid import tables as mpc
from gridpriv.grid.case import POLYNOMIAL, Case
from gridpriv.grid.tables import MatpowerTables, shipped_rows

if TYPE_CHECKING:
    import pandas as pd

FORMATS = shipped_rows("formats.csv")
"""Endings of files' names, with the format's name, and module and function that read it."""
POWSYBL_FORMATS = {row["ending"]: row["name"] for row in FORMATS if "powsybl:" in row["reader"]}
"""PowSyBl's name of the format by the ending of a file's name."""
Status = Literal["read", "ignored", "unsupported"]
CONSTRAINING = ("A", "l", "u", "N", "fparm", "H", "Cw", "if", "reserves", "softlims", "userfcn")
"""MATPOWER fields that add constraints or costs to its own OPF."""


@dataclass(frozen=True)
class FieldNote:
    """One field of a source.

    Attributes
    ----------
    field : str
        Table and column, by the source's names.
    status : {'read', 'ignored', 'unsupported'}
    count : int
        Number of its rows.
    note : str
        Treatment of the field.
    left_out : bool
        True if the power balance of the case may differ from the source's because of it.
    """

    field: str
    status: Status
    count: int
    note: str = ""
    left_out: bool = False


@dataclass(frozen=True)
class ReadReport:
    """The report on one source."""

    source: str
    format: str
    notes: tuple[FieldNote, ...]

    @property
    def unsupported(self) -> tuple[FieldNote, ...]:
        """Fields that affect the grid's operation and are not modelled."""
        return tuple(note for note in self.notes if note.status == "unsupported")

    def table(self) -> pd.DataFrame:
        """Return one row per field: field, status, count, note, left_out."""
        import pandas as pd

        return pd.DataFrame([asdict(note) for note in self.notes])

    def as_dict(self) -> Json:
        """Return the report as a JSON value."""
        notes = [asdict(note) for note in self.notes]
        return {"source": self.source, "format": self.format, "fields": notes}

    def warn(self) -> None:
        """Warn (:class:`GridprivWarning`) of fields left out of the power balance."""
        for note in self.notes:
            if note.left_out:
                warnings.warn(
                    f"{self.source}: {note.field}: {note.note} ({note.count})",
                    GridprivWarning,
                    stacklevel=3,
                )


@cache
def known_fields(source: str) -> tuple[tuple[str, FieldNote, bool], ...]:
    """Return the fields of a source in ``fields.csv``: key, note, and True if always reported."""
    rows = [row for row in shipped_rows("fields.csv") if row["source"] == source]
    return tuple(
        (
            row["key"],
            FieldNote(
                row["field"],
                cast(Status, row["status"]),
                0,
                row["note"],
                "left out" in row["flags"],
            ),
            "always" in row["flags"],
        )
        for row in rows
    )


def notes_of(source: str, counts: Mapping[str, int], **values: Any) -> Iterator[FieldNote]:
    """Yield the notes on the fields of a source that some rows have.

    Parameters
    ----------
    source : {'grid', 'matpower', 'pandapower', 'powsybl'}
    counts : mapping
        Number of rows by the field's key.
    **words
        Values in the texts of the notes.
    """
    for key, field, always in known_fields(source):
        count = int(counts.get(key, 0))
        if count > 0 or (always and key in counts):
            note = field.note.format(**values) if "{" in field.note else field.note
            yield replace(field, count=count, note=note)


def report_tables(tables: MatpowerTables, case: Case, source: str, kind: str) -> ReadReport:
    """Return the report of a source that has MATPOWER's tables (.m, .mat, PYPOWER)."""
    polynomial = [cost for cost in case.cost if cost.model == POLYNOMIAL]
    values = {
        "base": tables.base_mva,
        "unlimited": int((case.rate <= 0).sum()),
        "polynomial": len(polynomial),
        "piecewise": len(case.cost) - len(polynomial),
    }
    counts = _counts(tables, case) | {"high": sum(any(cost.values[:-3]) for cost in polynomial)}
    notes = *grid_notes(case), *notes_of("matpower", counts, **values), *_other_notes(tables)
    return ReadReport(source, kind, notes)


def grid_notes(case: Case) -> Iterator[FieldNote]:
    """Yield the notes on a case of any format: references, islands, generators."""
    from gridpriv.grid.network import islands  # imports scipy

    at = case.bus_id[case.reference].tolist()
    numbers = ", ".join(map(str, at[:5]))
    reference = f"bus {numbers}; used by the AC check, the relaxation needs none"
    if not at:
        reference = "none given: the AC check takes the bus of the largest generator"
    number = len(np.unique(islands(case)))
    ends = np.sort(np.stack([case.f_bus, case.t_bus]), axis=0)
    counts = {
        "short": (np.hypot(case.r, case.x) <= mpc.LEAST_IMPEDANCE * np.sqrt(2.0)).sum(),
        "reference": len(at),
        "islands": number * (number > 1),
        "several": (np.bincount(case.gen_bus, minlength=case.n_bus) > 1).sum(),
        "parallel": case.n_branch - len(np.unique(ends, axis=1).T),
    }
    yield from notes_of("grid", counts, reference=reference)


def _counts(tables: MatpowerTables, case: Case) -> dict[str, int]:
    """Return the number of rows that have each of MATPOWER's fields."""
    branch, gen = _table(tables.branch), _table(tables.gen)
    on, running = branch[branch[:, mpc.BR_STATUS] > 0], gen[gen[:, mpc.GEN_STATUS] > 0]
    bounded = int((np.isfinite(case.angmin) | np.isfinite(case.angmax)).sum())
    angles = on[:, mpc.ANGMIN : mpc.ANGMAX + 1]
    demand = (running[:, mpc.PMIN] < 0) & (running[:, mpc.PMAX] == 0)
    reactive = (running[:, [mpc.QMIN, mpc.QMAX]] != 0).any(axis=1)
    costs = tables.gencost[: len(gen)]
    return {
        "base": 1,
        "bus": len(tables.bus),
        "isolated": (np.asarray(tables.bus)[:, mpc.BUS_TYPE] == mpc.ISOLATED).sum(),
        "branch": len(branch),
        "rated": (case.rate > 0).sum(),
        "branch off": len(branch) - len(on),
        "bounded": bounded,
        "beyond": (angles != 0).any(axis=1).sum() - bounded,
        "emergency": (on[:, mpc.RATE_A + 1 : mpc.RATE_C + 1] > 0).any(axis=1).sum(),
        "gen": len(gen),
        "gen off": len(gen) - case.n_gen,
        "demands": demand.sum(),
        "fixed factor": (demand & reactive).sum(),
        "curves": (running[:, 10:16] != 0).any(axis=1).sum(),
        "ramps": (running[:, 16:21] != 0).any(axis=1).sum(),
        "no cost": not tables.gencost,
        "costs": len(case.cost),
        "starts": sum(any(row[1:3]) for row in costs),
        "reactive cost": len(tables.gencost) - len(costs),
    }


def _other_notes(tables: MatpowerTables) -> Iterator[FieldNote]:
    dcline = np.asarray(tables.dcline, dtype=float)
    if dcline.size:
        yield dc_note(int((dcline[:, mpc.DC_STATUS] > 0).sum()))
    for name, rows in tables.other_fields:
        if name in CONSTRAINING:
            yield FieldNote(name, "unsupported", rows, "not part of the model")
        else:
            yield FieldNote(name, "ignored", rows)


def dc_note(running: int) -> FieldNote:
    """Return the note on DC lines."""
    text = "DC lines are fixed demand at both ends: their limits and voltage control are left out"
    return FieldNote("dcline", "unsupported", running, text, running > 0)


def _table(values: Floats) -> Floats:
    table = np.asarray(values, dtype=float)
    return table if table.size else np.zeros((0, 21))
