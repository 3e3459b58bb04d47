"""Account of a reader: every field of its source, read, ignored or unsupported.

*Read* reaches the :class:`~gridpriv.grid.case.Case`. *Ignored* has no bearing on the model
(names, areas, emergency ratings). *Unsupported* bears on the grid's operation and is not
modelled; where it is in service and the power balance may differ from the source's because of it,
``left_out`` is set and loading the case warns.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.document import Json
from gridpriv.core.errors import GridprivWarning
from gridpriv.grid import tables as mpc
from gridpriv.grid.case import POLYNOMIAL, Case
from gridpriv.grid.islands import islands
from gridpriv.grid.tables import MatpowerTables

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["read", "ignored", "unsupported"]
CONSTRAINING = ("A", "l", "u", "N", "fparm", "H", "Cw", "if", "reserves", "softlims", "userfcn")
"""MATPOWER fields that add constraints or costs to its own OPF."""


@dataclass(frozen=True)
class FieldNote:
    """One field of a source.

    Attributes
    ----------
    field : str
        Table and column, as the source names them.
    status : {'read', 'ignored', 'unsupported'}
    count : int
        Rows it concerns.
    note : str
        What was made of it.
    left_out : bool
        Whether the power balance of the case may differ from the source's because of it.
    """

    field: str
    status: Status
    count: int
    note: str = ""
    left_out: bool = False


@dataclass(frozen=True)
class ReadReport:
    """The account of one source."""

    source: str
    format: str
    notes: tuple[FieldNote, ...]

    def with_status(self, status: Status) -> tuple[FieldNote, ...]:
        """Return the notes of one status."""
        return tuple(note for note in self.notes if note.status == status)

    @property
    def unsupported(self) -> tuple[FieldNote, ...]:
        """Fields that bear on the grid's operation and are not modelled."""
        return self.with_status("unsupported")

    def table(self) -> pd.DataFrame:
        """Return one row per field: field, status, count, note, left_out."""
        import pandas as pd

        return pd.DataFrame([asdict(note) for note in self.notes])

    def as_dict(self) -> Json:
        """Return the report as JSON can hold it."""
        notes = [asdict(note) for note in self.notes]
        return {"source": self.source, "format": self.format, "fields": notes}

    def warn(self) -> None:
        """Warn (:class:`GridprivWarning`) of what was left out of the power balance."""
        for note in self.notes:
            if note.left_out:
                warnings.warn(
                    f"{self.source}: {note.field}: {note.note} ({note.count})",
                    GridprivWarning,
                    stacklevel=3,
                )


def report_tables(tables: MatpowerTables, case: Case, source: str, kind: str) -> ReadReport:
    """Return the report of a source that has MATPOWER's tables (.m, .mat, PYPOWER)."""
    notes = (
        *_bus_notes(tables, case),
        *_branch_notes(tables, case),
        *_gen_notes(tables, case),
        *_cost_notes(tables, case),
        *_other_notes(tables),
    )
    return ReadReport(source, kind, notes)


def grid_notes(case: Case) -> Iterator[FieldNote]:
    """Yield what is said of a case whatever its format: references, islands, generators."""
    reference = case.bus_id[case.reference].tolist()
    yield FieldNote(
        "reference bus",
        "read",
        len(reference),
        f"bus {', '.join(map(str, reference[:5]))}; used by the AC check, the relaxation needs none"
        if reference
        else "none given: the AC check takes the bus of the largest generator",
    )
    number = len(np.unique(islands(case)))
    yield from counted(
        "islands", "read", number * (number > 1), "the grid in service is not connected"
    )
    several = int((np.bincount(case.gen_bus, minlength=case.n_bus) > 1).sum())
    yield from counted(
        "several generators on a bus", "read", several, "each keeps its own limits and cost"
    )
    ends = np.sort(np.stack([case.f_bus, case.t_bus]), axis=0)
    extra = case.n_branch - len(np.unique(ends, axis=1).T)
    yield from counted("parallel branches", "read", extra, "each keeps its own flow and limit")


def _bus_notes(tables: MatpowerTables, case: Case) -> Iterator[FieldNote]:
    n = len(tables.bus)
    yield FieldNote("baseMVA", "read", 1, f"{tables.base_mva:g} MVA")
    yield FieldNote("bus: number, Pd, Qd, Gs, Bs, Vm, Va, baseKV, Vmax, Vmin", "read", n)
    isolated = int((np.asarray(tables.bus)[:, mpc.BUS_TYPE] == mpc.ISOLATED).sum())
    yield from counted("bus: type 4 (isolated)", "read", isolated, "left out, as the source says")
    yield from grid_notes(case)
    yield FieldNote("bus: area, zone", "read", n, "for zone maps only")


def _branch_notes(tables: MatpowerTables, case: Case) -> Iterator[FieldNote]:
    branch = _table(tables.branch)
    on = branch[branch[:, mpc.BR_STATUS] > 0]
    yield FieldNote("branch: ends, r, x, b, ratio, angle, status", "read", len(branch))
    limited = int((case.rate > 0).sum())
    yield FieldNote(
        "branch: rateA", "read", limited, f"{case.n_branch - limited} branches have no limit (0)"
    )
    yield from counted("branch: out of service", "read", len(branch) - len(on), "left out")
    bounded = np.isfinite(case.angmin) | np.isfinite(case.angmax)
    yield from counted(
        "branch: angmin, angmax", "read", int(bounded.sum()), "angle difference limits"
    )
    if branch.shape[1] > mpc.ANGMAX:
        given = (on[:, mpc.ANGMIN] != 0) | (on[:, mpc.ANGMAX] != 0)
        beyond = int(given.sum()) - int(bounded.sum())
        yield from counted(
            "branch: angmin, angmax at or beyond 90 degrees", "ignored", beyond, "mean no limit"
        )
    emergency = (on[:, mpc.RATE_A + 1 : mpc.RATE_A + 3] > 0).any(axis=1)
    yield from counted(
        "branch: rateB, rateC", "read", int(emergency.sum()), "for gridpriv security only"
    )


def _gen_notes(tables: MatpowerTables, case: Case) -> Iterator[FieldNote]:
    gen = _table(tables.gen)
    on = gen[gen[:, mpc.GEN_STATUS] > 0]
    yield FieldNote("gen: bus, Pg, Qmax, Qmin, Vg, status, Pmax, Pmin", "read", len(gen))
    yield FieldNote("gen: Qg, mBase", "ignored", len(gen), "results of an earlier solution")
    yield from counted("gen: out of service", "read", len(gen) - case.n_gen, "left out")
    demand = (on[:, mpc.PMIN] < 0) & (on[:, mpc.PMAX] == 0)
    fixed_factor = demand & ((on[:, mpc.QMIN] != 0) | (on[:, mpc.QMAX] != 0))
    yield from counted(
        "gen: dispatchable loads (Pmin < 0 = Pmax)",
        "read",
        int(demand.sum()),
        "generators of negative output: not part of the private demand",
    )
    yield from counted(
        "gen: power factor of dispatchable loads",
        "unsupported",
        int(fixed_factor.sum()),
        "P and Q move independently within their limits",
    )
    if on.shape[1] > 15:
        curves = (on[:, 10:16] != 0).any(axis=1)
        yield from counted(
            "gen: Pc1 to Qc2max (capability curve)",
            "unsupported",
            int(curves.sum()),
            "the box Qmin..Qmax is used",
        )
    if on.shape[1] > 20:
        ramps = (on[:, 16:21] != 0).any(axis=1)
        yield from counted("gen: ramp rates, apf", "ignored", int(ramps.sum()), "one period only")


def _cost_notes(tables: MatpowerTables, case: Case) -> Iterator[FieldNote]:
    if not tables.gencost:
        yield FieldNote("gencost", "read", 0, "absent: no generator has a cost")
        return
    polynomial = [cost for cost in case.cost if cost.model == POLYNOMIAL]
    high = sum(any(cost.values[:-3]) for cost in polynomial)
    yield FieldNote(
        "gencost: active power",
        "read",
        len(case.cost),
        f"{len(polynomial)} polynomial, {len(case.cost) - len(polynomial)} piecewise linear",
    )
    yield from counted("gencost: powers above 2", "unsupported", high, "objective cost refuses")
    rows = tables.gencost[: len(tables.gen)]
    starts = sum(any(row[1:3]) for row in rows)
    yield from counted("gencost: startup, shutdown", "ignored", starts, "no unit commitment")
    reactive = len(tables.gencost) - len(rows)
    yield from counted("gencost: reactive power", "unsupported", reactive, "not in the objective")


def _other_notes(tables: MatpowerTables) -> Iterator[FieldNote]:
    dcline = np.asarray(tables.dcline, dtype=float)
    if dcline.size:
        yield dc_note(int((dcline[:, mpc.DC_STATUS] > 0).sum()))
    for name, rows in tables.others:
        if name in CONSTRAINING:
            yield FieldNote(name, "unsupported", rows, "not part of the model")
        else:
            yield FieldNote(name, "ignored", rows)


def dc_note(running: int) -> FieldNote:
    """Return the note on DC lines."""
    text = "DC lines are fixed demand at both ends: their limits and voltage control are left out"
    return FieldNote("dcline", "unsupported", running, text, running > 0)


def counted(
    field: str, status: Status, count: int, note: str = "", *, left_out: bool = False
) -> Iterator[FieldNote]:
    """Yield the note on a field of so many rows; nothing of none."""
    if count > 0:
        yield FieldNote(field, status, count, note, left_out)


def _table(values: Floats) -> Floats:
    table = np.asarray(values, dtype=float)
    return table if table.size else np.zeros((0, 21))
