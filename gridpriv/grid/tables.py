"""Convert MATPOWER's tables (MW, degrees, source bus numbers) to a per-unit :class:`Case`.

All readers (.m, .mat, PYPOWER, pandapower) use this module, so units and conventions are converted
in one place. Column numbers are those of MATPOWER's ``idx_bus``, ``idx_brch`` and ``idx_gen``,
counted from 0. The module also reads users' CSV files row by row; errors name the line.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, excerpt, not_allowed, positive
from gridpriv.core.files import LARGEST, read_text
from gridpriv.core.text import UTC_OFFSETS
from gridpriv.grid.case import MOST_DEMAND_MW, PIECEWISE, POLYNOMIAL, Case, GenCost

LONGEST_NAME = 100
LOCAL_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d(:\d\d){0,2}")
"""A date and time without UTC offset: an hour is repeated when clocks are set back."""


def shipped_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a table in this package."""
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class CsvRows:
    """The rows of a UTF-8 CSV file as dictionaries, without blanks around cells and empty lines.

    Parameters
    ----------
    kind : str
        Name of the kind of file, for errors.
    shapes
        Allowed sets of columns: required ones, and others of which at least one is required.

    Raises
    ------
    InputError
        With the line: if the file cannot be read (:func:`~gridpriv.core.files.read_text`), has
        another header, a row of another length, or a cell of more than 131,072 characters.
    """

    def __init__(
        self, path: Path, kind: str, *shapes: tuple[tuple[str, ...], tuple[str, ...]]
    ) -> None:
        self.label = f"{kind} {path}"
        self._lines = self._read(read_text(path, kind, LARGEST))
        line, cells = next(self._lines, (1, []))
        self.header = [cell.lower() for cell in cells]
        columns = set(self.header)
        if len(columns) < len(self.header) or not any(
            set(required) <= columns <= {*required, *optional}
            and (not optional or columns & {*optional})
            for required, optional in shapes
        ):
            allowed = " or ".join(",".join((*required, *optional)) for required, optional in shapes)
            header_text = excerpt(",".join(self.header))
            raise InputError(f"{self.label}: line {line} is {header_text}; it must be {allowed}")

    def _read(self, text: str) -> Iterator[tuple[int, list[str]]]:
        rows = csv.reader(text.splitlines())
        try:
            for row in rows:
                if row:
                    yield rows.line_num, [cell.strip() for cell in row]
        except csv.Error as error:
            raise InputError(f"{self.label}, line {rows.line_num}: {error}") from error

    def __iter__(self) -> Iterator[CsvRow]:
        for line, cells in self._lines:
            row = CsvRow(zip(self.header, cells, strict=False))
            row.file, row.line = self.label, line
            if len(cells) != len(self.header):
                allowed = ",".join(self.header)
                raise InputError(f"{row.label}: {excerpt(','.join(cells))}; it must be {allowed}")
            yield row


class CsvRow(dict[str, str]):
    """A row of a CSV file: its cells by column."""

    file: str
    line: int

    @property
    def label(self) -> str:
        """File and line."""
        return f"{self.file}, line {self.line}"

    def error(self, column: str, allowed: str) -> InputError:
        """Return the error of a cell."""
        value = excerpt(self.get(column, ""))
        return InputError(f"{self.label}: {column} = {value}: must be {allowed}")

    def number(self, column: str, most: float = MOST_DEMAND_MW) -> float:
        """Return a number within the range of demand, or a factor."""
        text = self[column]
        try:
            value = float(text) if text.isascii() and "_" not in text else math.nan
        except ValueError:
            value = math.nan
        if not abs(value) <= most:  # also for NaN
            raise self.error(column, f"a finite number within +-{most:g}")
        return value

    def bus(self, case: Case) -> tuple[int, int]:
        """Return (index, number) of the row's bus; a joined bus has the index of its case's bus."""
        text = self["bus"]
        plain = len(text) <= 16 and text.isascii() and text.isdecimal()
        number = int(text) if plain else -1
        known = case.names.joined.get(number, number)
        if known not in case.index_of:
            raise self.error("bus", f"a bus in service of {case.name}")
        return case.index_of[known], number

    def name(self, column: str) -> str:
        """Return the name of a zone or a step."""
        if not is_name(self[column]):
            raise self.error(column, f"1 to {LONGEST_NAME} printable characters")
        return self[column]

    def once(self, first_line: dict[str, int], key: str, kind: str) -> None:
        """Refuse a second row for the same bus or step."""
        if key in first_line:
            clocks = LOCAL_TIME.fullmatch(self.get("step", ""))
            advice = f", or, if clocks change here, {UTC_OFFSETS}" if clocks else ""
            raise InputError(
                f"{self.label}: {kind} {key} is repeated (first on line {first_line[key]}); "
                f"leave one of the lines out{advice}"
            )
        first_line[key] = self.line


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the name of the file to an error on its content."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def is_name(text: str) -> bool:
    """Return True for a name of a zone or a step: printable, at most 100 characters."""
    return 0 < len(text) <= LONGEST_NAME and text.isprintable()


ISOLATED, REFERENCE = 4, 3
BUS_COLUMNS, BRANCH_COLUMNS, GEN_COLUMNS = 13, 11, 10
BUS_I, BUS_TYPE, PD, QD, GS, BS, VM, VA, BASE_KV, VMAX, VMIN = 0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12
F_BUS, T_BUS, BR_R, BR_X, BR_B, RATE_A, TAP, SHIFT, BR_STATUS = 0, 1, 2, 3, 4, 5, 8, 9, 10
RATE_B, RATE_C = 6, 7
ANGMIN, ANGMAX = 11, 12
AREA, ZONE = 6, 10
DC_FROM, DC_TO, DC_STATUS, DC_PF, DC_PT, DC_QF, DC_QT, DC_COLUMNS = 0, 1, 2, 3, 4, 5, 6, 7
GEN_BUS, PG, QMAX, QMIN, VG, GEN_STATUS, PMAX, PMIN = 0, 1, 3, 4, 5, 7, 8, 9
CASE_VALUES = shipped_rows("case_values.csv")
"""Values of a case: table, field of :class:`Case`, column of MATPOWER's table, unit, label."""
POWERS = ("MW", "MVAr", "MVA")
RIGHT_ANGLE_DEG = 90.0
READ_FIELDS = ("version", "baseMVA", "bus", "gen", "branch", "gencost", "dcline")
LARGEST_BUS = 2**53  # beyond it floats do not represent every whole number


@dataclass(frozen=True)
class MatpowerTables:
    """The tables of a MATPOWER case (version 2) as in the source.

    Attributes
    ----------
    gencost : tuple of rows
        Empty where the source has none.
    dcline : 2-d array
        Fixed injections at both ends.
    other_fields : tuple of (str, int)
        Names and numbers of rows of further fields.
    first_bus : int
        Smallest bus number allowed: 1, or 0 for sources that count from 0.
    """

    name: str
    base_mva: float
    bus: Floats
    gen: Floats
    branch: Floats
    gencost: tuple[tuple[float, ...], ...] = field(default=())
    dcline: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    other_fields: tuple[tuple[str, int], ...] = ()
    first_bus: int = 1


LEAST_IMPEDANCE = 1e-7
"""p.u.: a branch of smaller impedance (a coupler) counts as one of this reactance. Solvers satisfy
limits only to about 1e-8 p.u., which at 1e-10 p.u. is a flow of 100 p.u."""


def _raise_impedance(branch: Floats) -> None:
    """Increase the reactance of branches of less impedance, in place; 0 is refused later."""
    size = np.hypot(branch[:, BR_R], branch[:, BR_X])
    short = (size > 0.0) & (size < LEAST_IMPEDANCE)
    branch[short, BR_X] = np.copysign(LEAST_IMPEDANCE, branch[short, BR_X])


def case_from_tables(tables: MatpowerTables) -> Case:
    """Return the per-unit case of MATPOWER tables.

    Out-of-service branches and generators and isolated buses (type 4) are left out, with
    whatever is connected to them.
    """
    bus, bus_id, known = _buses(tables)
    gen = _columns(tables.gen, "gen", GEN_COLUMNS)
    branch = _columns(tables.branch, "branch", BRANCH_COLUMNS)
    base = float(tables.base_mva)
    positive("baseMVA", base)
    _finite(branch[:, BR_STATUS], "branch", "status")
    _finite(gen[:, GEN_STATUS], "gen", "status")
    dcline = _columns(tables.dcline, "dcline", DC_COLUMNS)
    bus[:, [PD, QD]] += _dc_demand(dcline, bus_id, known)
    dc_lines = int((dcline[:, DC_STATUS] > 0).sum())
    index = {int(b): i for i, b in enumerate(bus_id)}
    f_id = _known(branch[:, F_BUS], "branch", "fbus", known)
    t_id = _known(branch[:, T_BUS], "branch", "tbus", known)
    g_id = _known(gen[:, GEN_BUS], "gen", "bus", known)
    on = (branch[:, BR_STATUS] > 0) & np.isin(f_id, bus_id) & np.isin(t_id, bus_id)
    run = (gen[:, GEN_STATUS] > 0) & np.isin(g_id, bus_id)
    branch_row, gen_row = np.flatnonzero(on) + 1, np.flatnonzero(run) + 1
    branch, gen = branch[on], gen[run]
    _raise_impedance(branch)
    angmin, angmax = _angle_limits(branch)
    return Case(
        name=tables.name,
        base_mva=base,
        bus_id=bus_id,
        reference=bus[:, BUS_TYPE] == REFERENCE,
        f_bus=_indices(f_id[on], index),
        t_bus=_indices(t_id[on], index),
        tap=np.where(branch[:, TAP] == 0, 1.0, branch[:, TAP]),
        angmin=angmin,
        angmax=angmax,
        gen_bus=_indices(g_id[run], index),
        branch_row=branch_row.astype(np.int64),
        gen_row=gen_row.astype(np.int64),
        cost=_costs(tables.gencost, len(run), run),
        groups=_groups(bus),
        rate_b=_emergency(branch[:, RATE_B]) / base,
        rate_c=_emergency(branch[:, RATE_C]) / base,
        fixed={"DC line": dc_lines} if dc_lines else {},
        **_values("bus", bus, base),
        **_values("branch", branch, base),
        **_values("gen", gen, base),
    )


def _buses(tables: MatpowerTables) -> tuple[Floats, Ints, set[int]]:
    """Return the buses that are not isolated, their numbers, and the numbers of all buses."""
    bus = _columns(tables.bus, "bus", BUS_COLUMNS)
    kinds = bus[:, BUS_TYPE]
    _refuse(~np.isin(kinds, (1, 2, 3, 4)), kinds, "bus", "type", "one of (1, 2, 3, 4)")
    numbers = _integers(bus[:, BUS_I], "bus", "bus_i", tables.first_bus)
    ids, counts = np.unique(numbers, return_counts=True)
    if (counts > 1).any():
        raise InputError(f"bus {ids[counts > 1][0]} is listed more than once: leave one out")
    connected = kinds != ISOLATED
    return bus[connected], numbers[connected], {int(i) for i in numbers}


def _columns_of(name: str) -> Iterator[tuple[str, int, str]]:
    """Yield field, column and unit of the values of a table."""
    for row in CASE_VALUES:
        if row["table"] == name and row["column"]:
            yield row["field"], int(row["column"]), row["unit"]


def _values(name: str, table: Floats, base: float) -> dict[str, Any]:
    """Return the fields of a case in a table, per unit and in rad."""
    return {
        field: np.deg2rad(table[:, column]) if unit == "degree" else table[:, column] / scale
        for field, column, unit in _columns_of(name)
        for scale in [base if unit in POWERS else 1.0]
    }


def table_of(case: Case, name: str, rows: int, columns: int) -> Floats:
    """Return a MATPOWER table with the fields of a case, in MW, MVAr and degrees; the rest is 0."""
    table = np.zeros((rows, columns))
    for field_name, column, unit in _columns_of(name):
        values = getattr(case, field_name)
        scale = case.base_mva if unit in POWERS else 1.0
        table[:, column] = np.rad2deg(values) if unit == "degree" else scale * values
    return table


def _emergency(rates: Floats) -> Floats:
    """Return rateB or rateC; an invalid number counts as no rating."""
    return np.where(np.isfinite(rates) & (rates > 0), rates, 0.0)


def _dc_demand(dcline: Floats, bus_id: Ints, known: set[int]) -> Floats:
    """Return the power that DC lines in service draw at each bus, (n, 2) in MW and MVAr."""
    demand = np.zeros((len(bus_id), 2))
    _finite(dcline[:, DC_STATUS], "dcline", "status")
    for name, end, p, q in (("fbus", DC_FROM, DC_PF, DC_QF), ("tbus", DC_TO, DC_PT, DC_QT)):
        at = _known(dcline[:, end], "dcline", name, known)
        for power in (p, q):
            _finite(dcline[:, power], "dcline", "flow")
        sign = 1.0 if end == DC_FROM else -1.0
        for row in np.flatnonzero(dcline[:, DC_STATUS] > 0).tolist():
            demand[bus_id == at[row]] += (sign * dcline[row, p], -dcline[row, q])
    return demand


def _groups(bus: Floats) -> dict[str, tuple[str, ...]]:
    """Return areas and loss zones of the buses, each only if there are several."""
    columns = {"area": bus[:, AREA].tolist(), "zone": bus[:, ZONE].tolist()}
    return {
        kind: tuple(f"{number:g}" for number in numbers)
        for kind, numbers in columns.items()
        if len(set(numbers)) > 1
    }


def _columns(table: Floats, name: str, least: int) -> Floats:
    table = np.asarray(table, dtype=float)
    if table.size == 0:
        return np.zeros((0, least))
    if table.ndim != 2 or table.shape[1] < least:
        raise InputError(f"mpc.{name} has {table.shape[-1]} columns; at least {least} are needed")
    return table


def _integers(values: Floats, table: str, column: str, least: int) -> Ints:
    whole = np.isfinite(values) & (values == np.round(values))
    wrong = ~(whole & (values >= least) & (values < LARGEST_BUS))
    _refuse(wrong, values, table, column, f"a whole number, {least} or more (a bus number)")
    return values.astype(np.int64)


def _finite(values: Floats, table: str, column: str) -> None:
    _refuse(~np.isfinite(values), values, table, column, "a finite number")


def _refuse(
    wrong: NDArray[np.bool_], values: Floats, table: str, column: str, allowed: str
) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"mpc.{table} row {row + 1}: {column} = {values[row]:g}: must be {allowed}"
        )


def _known(values: Floats, table: str, column: str, known: set[int]) -> Ints:
    numbers = _integers(values, table, column, min(known, default=1))
    for row, bus in enumerate(numbers):
        if int(bus) not in known:
            where = f"mpc.{table} row {row + 1}: {column}"
            raise not_allowed(where, int(bus), "a bus of mpc.bus")
    return numbers


def _indices(numbers: Ints, index: dict[int, int]) -> Ints:
    return np.array([index[int(n)] for n in numbers], dtype=np.int64)


def _angle_limits(branch: Floats) -> tuple[Floats, Floats]:
    """Return (angmin, angmax) in rad; 0/0 and limits at or beyond 90 degrees mean none."""
    if branch.shape[1] <= ANGMAX:
        return np.full(len(branch), -np.inf), np.full(len(branch), np.inf)
    low, high = branch[:, ANGMIN], branch[:, ANGMAX]
    none = (low == 0) & (high == 0)
    angmin = np.where(none | (low <= -RIGHT_ANGLE_DEG), -np.inf, np.deg2rad(low))
    angmax = np.where(none | (high >= RIGHT_ANGLE_DEG), np.inf, np.deg2rad(high))
    return angmin, angmax


def _costs(
    rows: Sequence[Sequence[float]], n_gen: int, running: NDArray[np.bool_]
) -> tuple[GenCost, ...]:
    """Return active-power costs of the generators in service (reactive rows are ignored)."""
    if not rows:
        return ()
    if len(rows) not in (n_gen, 2 * n_gen):
        raise InputError(
            f"mpc.gencost has {len(rows)} rows for {n_gen} generators"
            ": give one or two rows per generator"
        )
    return tuple(
        _cost(row, number + 1)
        for number, (row, on) in enumerate(zip(rows[:n_gen], running, strict=True))
        if on
    )


def _cost(row: Sequence[float], number: int) -> GenCost:
    """Return one cost row: model, startup, shutdown, n, then n coefficients or n points."""
    model = row[0] if len(row) > 4 else None
    if model not in (POLYNOMIAL, PIECEWISE):
        models = "1 (piecewise linear) or 2 (polynomial)"
        raise not_allowed(f"mpc.gencost row {number}: model", model, models)
    least = 2 if model == PIECEWISE else 1
    n = row[3]
    if not (np.isfinite(n) and n == int(n) and least <= n <= len(row)):
        allowed = f"a whole number, {least} or more, with the numbers it counts"
        raise InputError(f"mpc.gencost row {number}: n = {n:g}: must be {allowed}")
    count = int(n) * (2 if model == PIECEWISE else 1)
    values = tuple(float(value) for value in row[4 : 4 + count])
    if len(values) < count or not np.isfinite(values).all():
        raise InputError(f"mpc.gencost row {number}: {count} finite numbers are needed after n")
    if model == PIECEWISE and not (np.diff(values[::2]) > 0).all():
        raise InputError(
            f"mpc.gencost row {number}: breakpoints {values[::2]} are not allowed: increasing MW"
        )
    return GenCost(int(model), values)
