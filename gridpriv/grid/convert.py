"""Convert a case file into another format, list lost fields, and write MATPOWER files.

The list is measured: the new file is read again, and every value of the two cases is compared at
buses of the same number, or in the same order where a format renumbers its buses.

MATPOWER files are written as ``.m`` text (format version 2), or ``.mat``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, check_choice
from gridpriv.core.files import write_bytes
from gridpriv.core.tables import Flag, Number, Row, Text, key, known, part, private
from gridpriv.core.text import Json
from gridpriv.grid import tables as mpc
from gridpriv.grid.case import PIECEWISE, Case, GenCost
from gridpriv.grid.library import FORMATS, POWSYBL_FORMATS, ReadReport, read_case
from gridpriv.grid.powsybl import WRITTEN, need_powsybl, write_powsybl

NO_ANGLE, QG, MBASE = 360.0, 2, 6
REFERENCE, GENERATOR, LOAD = 3, 2, 1
DEMAND_DECIMALS, OUTPUT_DECIMALS, VOLTAGE_DECIMALS = 6, 4, 8
BUS_DECIMALS = {2: DEMAND_DECIMALS, 3: DEMAND_DECIMALS, 7: VOLTAGE_DECIMALS, 8: VOLTAGE_DECIMALS}
GENERATOR_DECIMALS = {1: OUTPUT_DECIMALS, 2: OUTPUT_DECIMALS, 5: VOLTAGE_DECIMALS}
"""By column of the rounded tables: MW and MVAr, p.u. and degrees."""


def matpower_text(
    case: Case, comments: Iterable[str] = (), qg: Floats | None = None, *, rounded: bool = False
) -> str:
    """Return a case as the text of a MATPOWER file.

    The file has the rows in service, in the case's order, and reads back as the case.

    Parameters
    ----------
    case : Case
    comments : iterable of str
        Lines below the header.
    qg : (g,) float, optional
        Reactive output, p.u.; 0 by default.
    rounded : bool
        Round demand, voltages and outputs to the accuracy of a solver: 1e-6 MW,
        1e-8 p.u. and degrees, 1e-4 MW. Outputs stay within their limits.
    """
    buses, generators = bus_rows(case), generator_rows(case, qg)
    if rounded:
        buses = _rounded(buses, BUS_DECIMALS)
        generators = _rounded(generators, GENERATOR_DECIMALS)
        for output, most, least in ((1, 8, 9), (2, 3, 4)):
            generators[:, output] = np.clip(
                generators[:, output], generators[:, least], generators[:, most]
            )
    lines = [f"function mpc = {function_name(case.name)}"]
    lines += [f"% {' '.join(comment.split())}" for comment in comments]
    if shift := bus_shift(case):
        lines.append(f"% Bus numbers are those of the source plus {shift}.")
    lines += ["", "mpc.version = '2';", f"mpc.baseMVA = {number(case.base_mva)};", ""]
    for name, header, rows in (
        ("bus", "bus_i type Pd Qd Gs Bs area Vm Va baseKV zone Vmax Vmin", buses),
        ("gen", "bus Pg Qg Qmax Qmin Vg mBase status Pmax Pmin", generators),
        (
            "branch",
            "fbus tbus r x b rateA rateB rateC ratio angle status angmin angmax",
            branch_rows(case),
        ),
        ("gencost", "model startup shutdown n values", cost_rows(case)),
    ):
        if len(rows) or name != "gencost":
            lines += [f"% {' '.join(header.split())}", f"mpc.{name} = [", *_rows(rows), "];", ""]
    return "\n".join(lines)


def matpower_bytes(case: Case, qg: Floats | None = None) -> bytes:
    """Return a case as a MATPOWER ``.mat`` file: the struct ``mpc`` in MATLAB's format 5."""
    from scipy.io import savemat

    tables = {
        "version": "2",
        "baseMVA": case.base_mva,
        "bus": bus_rows(case),
        "gen": generator_rows(case, qg),
        "branch": branch_rows(case),
    }
    costs = {"gencost": cost_rows(case)} if case.cost else {}
    file = io.BytesIO()
    savemat(file, {"mpc": tables | costs}, do_compression=True)
    return file.getvalue()


def function_name(name: str) -> str:
    """Return a name that MATLAB allows for a function."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if re.match(r"[A-Za-z]", plain) else f"case_{plain}"


def number(value: float) -> str:
    """Return the shortest text that reads back as the same number."""
    if np.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e15 else repr(float(value))


def bus_numbers(case: Case) -> Ints:
    """Return the numbers of buses in a MATPOWER file, which begin at 1; pandapower's begin at 0."""
    return np.asarray(case.bus_id + bus_shift(case))


def bus_shift(case: Case) -> int:
    """Return the difference of bus numbers in a MATPOWER file from those of the case."""
    return max(1 - int(case.bus_id.min()), 0)


def bus_rows(case: Case) -> Floats:
    """Return MATPOWER's bus table, in MW, MVAr and degrees."""
    kind = np.full(case.n_bus, LOAD)
    kind[case.gen_bus] = GENERATOR
    kind[case.reference] = REFERENCE
    if not case.reference.any() and case.n_gen:
        kind[case.gen_bus[0]] = REFERENCE
    table = mpc.table_of(case, "bus", case.n_bus, mpc.BUS_COLUMNS)
    table[:, mpc.BUS_I], table[:, mpc.BUS_TYPE] = bus_numbers(case), kind
    for group, column in (("area", mpc.AREA), ("zone", mpc.ZONE)):
        table[:, column] = _groups(case.groups.get(group, ()), case.n_bus)
    return table


def generator_rows(case: Case, qg: Floats | None = None) -> Floats:
    """Return MATPOWER's generator table; without ``qg`` no reactive output."""
    table = mpc.table_of(case, "gen", case.n_gen, 21)
    table[:, mpc.GEN_BUS] = bus_numbers(case)[case.gen_bus]
    table[:, QG] = 0.0 if qg is None else case.base_mva * qg
    table[:, MBASE], table[:, mpc.GEN_STATUS] = 100.0, 1.0
    return table


def branch_rows(case: Case) -> Floats:
    """Return MATPOWER's branch table; a transformer at its nominal ratio is a line."""
    table = mpc.table_of(case, "branch", case.n_branch, mpc.ANGMAX + 1)
    for end, column in ((case.f_bus, mpc.F_BUS), (case.t_bus, mpc.T_BUS)):
        table[:, column] = bus_numbers(case)[end]
    for rate, column in ((case.rate_b, mpc.RATE_B), (case.rate_c, mpc.RATE_C)):
        table[:, column] = 0.0 if rate is None else case.base_mva * rate
    line = (case.tap == 1.0) & (case.shift == 0.0)
    table[:, mpc.TAP], table[:, mpc.BR_STATUS] = np.where(line, 0.0, case.tap), 1.0
    for angle, column in ((case.angmin, mpc.ANGMIN), (case.angmax, mpc.ANGMAX)):
        degrees = np.rad2deg(angle)
        table[:, column] = np.where(np.isinf(angle), np.copysign(NO_ANGLE, angle), degrees)
    return table


def cost_rows(case: Case) -> Floats:
    """Return MATPOWER's cost table, rows filled up with zeros to one width."""
    rows = [[cost.model, 0.0, 0.0, _count(cost), *cost.values] for cost in case.cost]
    width = max(map(len, rows), default=0)
    return np.array([row + [0.0] * (width - len(row)) for row in rows]).reshape(len(rows), width)


def _count(cost: GenCost) -> int:
    return len(cost.values) // (2 if cost.model == PIECEWISE else 1)


def _groups(names: Sequence[str], count: int) -> Floats:
    """Return group numbers: the source's where all are numbers, else their order."""
    if not names:
        return np.ones(count)
    numbers = group_numbers(names)
    if numbers is None:
        return np.array([float(name) for name in names])
    return np.array([numbers[name] for name in names])


def group_numbers(names: Sequence[str]) -> dict[str, float] | None:
    """Return the numbers of groups that are named in the source; None where names are numbers."""
    if all(re.fullmatch(r"\d{1,9}", name) for name in names):
        return None
    return {name: place + 1.0 for place, name in enumerate(dict.fromkeys(names))}


def _rounded(table: Floats, decimals: Mapping[int, int]) -> Floats:
    """Return a table with rounded columns, without negative zeros."""
    table = table.copy()
    for column, places in decimals.items():
        table[:, column] = np.round(table[:, column], places) + 0.0
    return table


def _rows(table: Floats) -> Iterable[str]:
    return ("\t" + "\t".join(map(number, row)) + ";" for row in table.tolist())


Outcome = Literal["kept", "changed", "lost"]
TARGETS = tuple(row["ending"] for row in FORMATS if row["written"])
ROUNDING = 1e-9
"""Relative difference below which values are equal: formats print 10 digits and more."""
EXPORTED = re.compile(r"VL-?([0-9]+)_0")
"""Names of buses in PowSyBl's PSS/E export of a MATPOWER case."""


@dataclass(frozen=True, eq=False)
class Converted:
    """A conversion: both cases, the report of the source, and the losses of the new file."""

    before: Case
    after: Case
    source: ReadReport
    target: ReadReport
    differences: tuple[Difference, ...]

    def as_dict(self) -> Json:
        """Return the conversion as a JSON value."""
        return ConversionDocument(
            **case_size(self.before),
            source=CaseFile(file=self.source.source, format=self.source.format),
            target=CaseFile(file=self.target.source, format=self.target.format),
            differences=list(self.differences),
            unsupported=[FieldRow.of(note) for note in self.source.unsupported],
        ).as_dict()


def convert(source: str | Path, target: str | Path) -> Converted:
    """Write a case in another format, by the ending of the new file's name.

    Parameters
    ----------
    source : str or path
        As of :func:`gridpriv.load_case`.
    target : str or path
        ``.m``, ``.mat``, ``.json`` (pandapower), ``.xiidm``, ``.zip`` (CGMES), ``.uct``, ``.raw``.

    Returns
    -------
    Converted
        Kept, changed and lost values.

    Raises
    ------
    InputError
        If a format is not known, or has no place for the grid.
    """
    path = Path(target)
    check_target(path, source)
    before, report = read_case(source)
    if Path(source).suffix.lower() in POWSYBL_FORMATS and path.suffix.lower() in WRITTEN:
        write_powsybl(Path(source), path, private=False)
    else:
        write_case(before, path)
    after, written = read_case(path)
    return Converted(before, after, report, written, tuple(differences(before, after)))


def check_target(path: Path, source: str | Path) -> None:
    """Refuse a file that cannot be written, is the source, or has an unknown ending."""
    check_choice("ending of the file to write", path.suffix.lower(), TARGETS)
    if path.suffix.lower() in WRITTEN:
        need_powsybl(path)
    if not path.parent.is_dir():
        raise InputError(
            f"{path} cannot be written: its folder does not exist; make the folder, or name another"
        )
    if path.exists() and Path(source).exists() and path.samefile(source):
        raise InputError(f"{path} is the source itself. Give another file to write.")


def write_case(case: Case, path: Path, qg: Floats | None = None, *, private: bool = False) -> None:
    """Write a case as a file, by the ending of its name.

    Parameters
    ----------
    case : Case
    path : Path
    qg : (g,) float, optional
        Reactive output, p.u., where the format has a place for it.
    private : bool
        True if only its owner may read the file.
    """
    suffix = path.suffix.lower()
    if suffix == ".m":
        write_bytes(path, matpower_text(case, qg=qg).encode(), private=private)
    elif suffix == ".mat":
        write_bytes(path, matpower_bytes(case, qg), private=private)
    elif suffix == ".json":
        from pandapower import to_json

        from gridpriv.grid.pandapower_writer import write_net

        write_bytes(path, to_json(write_net(case)[0]).encode(), private=private)
    else:
        with TemporaryDirectory(prefix="gridpriv-") as folder:
            tables = Path(folder) / "case.mat"
            tables.write_bytes(matpower_bytes(case, qg))
            write_powsybl(tables, path, private=private, label=case.name)


def differences(before: Case, after: Case) -> Iterator[Difference]:
    """Yield every value of a case, and its difference in a case converted from it."""
    sizes = (("buses", "n_bus"), ("branches", "n_branch"), ("generators", "n_gen"))
    for label, name in sizes:
        change = getattr(after, name) - getattr(before, name)
        status: Outcome = "kept" if change == 0 else "lost" if change < 0 else "changed"
        yield _row(f"{label} in service", status, abs(change))
    if before.n_bus == after.n_bus:
        buses_before, buses_after = _places(before, after)
        renumbered = int((before.bus_id[buses_before] != after.bus_id[buses_after]).sum())
        yield _row("bus numbers", "changed" if renumbered else "kept", renumbered)
        yield from _compared_numbers(before, after, buses_before, buses_after)
    yield from _texts(before, after)


def _places(before: Case, after: Case) -> tuple[Ints, Ints]:
    """Return the buses of both cases in the same order.

    By number, by order, or by the number in the name that PSS/E's export gives every bus:
    whichever gives the most similar admittances.
    """
    order, by_number = np.arange(before.n_bus), np.argsort(before.bus_id)
    choices = [(by_number, np.argsort(after.bus_id)), (order, order)]
    matches = [EXPORTED.fullmatch(after.names.bus.get(i, "")) for i in after.bus_id.tolist()]
    if all(matches):
        choices.append((by_number, np.argsort([int(match[1]) for match in matches if match])))
    from gridpriv.grid.network import bus_admittance  # imports scipy

    old, new = bus_admittance(before), bus_admittance(after)
    distance = [float(np.abs(old[a][:, a] - new[b][:, b]).max()) for a, b in choices]
    return choices[int(np.argmin(distance))]


def _compared_numbers(
    before: Case, after: Case, buses_before: Ints, buses_after: Ints
) -> Iterator[Difference]:
    """Yield the differences of numbers, the buses of both cases in the same order."""
    yield from _compared("bus", before, after, buses_before, buses_after, before.bus_id)
    from gridpriv.grid.network import bus_admittance  # imports scipy

    old = before.base_mva * bus_admittance(before)[buses_before][:, buses_before]
    new = after.base_mva * bus_admittance(after)[buses_after][:, buses_after]
    change = np.abs(old - new)
    scale = float(np.abs(old).max()) or 1.0
    count = len(np.unique((change > ROUNDING * scale).nonzero()[0]))
    yield _outcome(
        "admittances (impedance, charging, taps, phase shifts)", count, float(change.max()) / scale
    )
    first, second = np.argsort(buses_before), np.argsort(buses_after)
    if before.n_branch == after.n_branch:
        orders = _branch_order(before, first), _branch_order(after, second)
        yield from _compared("branch", before, after, *orders, before.branch_row)
    if before.n_gen == after.n_gen:
        orders = _gen_order(before, first), _gen_order(after, second)
        yield from _compared("gen", before, after, *orders, before.gen_row)


def _compared(
    table: str, before: Case, after: Case, order_before: Ints, order_after: Ints, names: Ints
) -> Iterator[Difference]:
    """Yield the differences of the values of a table, with its elements in the given orders."""
    for row in mpc.CASE_VALUES:
        if row["table"] == table and row["label"]:
            old = _shown(before, row["field"], row["unit"], order_before)
            new = _shown(after, row["field"], row["unit"], order_after)
            label = "bus " if table == "bus" else f"{table}:"
            yield _difference(row["label"], old, new, (label, names[order_before]), row["unit"])


def _shown(case: Case, field: str, unit: str, order: Ints) -> Floats:
    """Return a column in its unit: MW, MVAr, MVA, degrees, or as it is in the case."""
    values = getattr(case, field)
    scale = case.base_mva if unit in mpc.POWERS else 1.0
    scale = float(np.degrees(1.0)) if unit == "degree" else scale
    return np.zeros(len(order)) if values is None else np.asarray(scale * values[order])


def _branch_order(case: Case, place: Ints) -> Ints:
    """Return the branches by their ends and impedances, whatever their direction."""
    ends = np.sort(np.stack([place[case.f_bus], place[case.t_bus]]), axis=0)
    size = np.round(np.abs(case.r + 1j * case.x), 6)
    return np.asarray(np.lexsort((case.rate, size, ends[1], ends[0])))


def _gen_order(case: Case, place: Ints) -> Ints:
    return np.asarray(np.lexsort((case.qmin, case.qmax, case.pmin, case.pmax, place[case.gen_bus])))


def _difference(
    label: str, old: Floats, new: Floats, elements: tuple[str, Ints], unit: str
) -> Difference:
    """Return the difference of two columns, relative to the largest number of the first."""
    finite = np.isfinite(old) & np.isfinite(new)
    scale = float(np.abs(old[np.isfinite(old)]).max(initial=0.0)) or 1.0
    known = np.where(finite, old, 0.0), np.where(finite, new, 0.0)
    change = np.where(finite, np.abs(known[0] - known[1]) / scale, old != new)
    all_lost = len(old) and not new[np.isfinite(new)].any() and old[np.isfinite(old)].any()
    unlimited = np.isinf(new).all() and np.isfinite(old).any()
    count, largest, example = int((change > ROUNDING).sum()), float(change.max(initial=0.0)), ""
    if count:
        at = int(np.argmax(change))
        kind, names = elements
        example = f"{kind}{names[at]}: {old[at]:.6g} to {new[at]:.6g} {unit}"
    if all_lost or unlimited:
        return _row(label, "lost", count, None, example)
    return _outcome(label, count, largest, example)


def _outcome(label: str, count: int, largest: float, example: str = "") -> Difference:
    status: Outcome = "kept" if largest <= ROUNDING else "changed"
    return _row(label, status, count, largest, example)


def _row(
    field: str, status: Outcome, count: int, largest: float | None = None, example: str = ""
) -> Difference:
    return Difference(field=field, status=status, count=count, largest=largest, example=example)


def _texts(before: Case, after: Case) -> Iterator[Difference]:
    """Yield costs, references, groups, names and coordinates."""
    texts = (
        ("generator costs", tuple(map(_curve, before.cost)), tuple(map(_curve, after.cost))),
        ("reference buses", before.reference.any(), after.reference.any()),
        ("bus names", before.names.bus, after.names.bus),
        ("branch names", before.names.branch, after.names.branch),
        ("generator names", before.names.gen, after.names.gen),
        ("coordinates", before.xy is not None, after.xy is not None),
        *(
            (f"groups: {kind}", names, after.groups.get(kind))
            for kind, names in before.groups.items()
        ),
    )
    for label, old, new in texts:
        if not old:
            continue
        count = len(old) if isinstance(old, tuple | dict) else 1
        if not new:
            yield _row(label, "lost", count)
        elif isinstance(old, np.bool_ | bool) or old == new:
            yield _row(label, "kept", 0)
        else:
            if isinstance(old, tuple) and isinstance(new, tuple) and len(new) == count:
                count = sum(a != b for a, b in zip(old, new, strict=True))
            yield _row(label, "changed", count)


def _curve(cost: GenCost) -> tuple[float, ...]:
    """Return a cost's model and values, a polynomial without leading zeros."""
    if cost.model == PIECEWISE:
        return cost.model, *cost.values
    return cost.model, *np.trim_zeros(np.array(cost.values), "f").tolist()


class CaseFile(Row):
    """A case file."""

    file: Text = known("File: name of the file")
    format: Text = known("Format: format of the file, and its reader")


class Difference(Row, name="differences"):
    """One value of the source in the new file."""

    field: Text = key("Figure: name of the figure")
    status: Text = private("Status: kept, changed or lost")
    count: Number = private("Elements: number of elements that differ")
    largest: Number = private("Difference: largest relative difference")
    example: Text = private("Example: element of that difference, its value before and after")


class FieldRow(Row, name="fields"):
    """One field of a case file."""

    field: Text = key("Field: table and column in the source")
    status: Text = known("Status: status of the field: read, ignored or unsupported")
    count: Number = known("Rows: number of rows")
    note: Text = known("Note: treatment of the field")
    left_out: Flag = known("Left out: power that the model leaves out of the balance")


class CaseSize(Row):
    """Size of a case."""

    case: Text = known("Case: name of the grid")
    buses: Number = known("Buses: number of buses in service")
    branches: Number = known("Branches: number of branches in service")
    generators: Number = known("Generators: number of generators in service")
    load_mw: Number = private("Demand: sum of active demand")


def case_size(case: Case) -> Json:
    """Return the values of :class:`CaseSize`."""
    load_mw = float(case.base_mva * case.pd.sum())
    counts = {"buses": case.n_bus, "branches": case.n_branch, "generators": case.n_gen}
    return {"case": case.name, **counts, "load_mw": load_mw}


class CasesDocument(CaseSize, name="cases"):
    """A case file: its size, and an account of its fields."""

    source: Text = known("Source: file name")
    format: Text = known("Format: of the file")
    fields: list[FieldRow] = part(FieldRow)


class ConversionDocument(CaseSize, name="conversion"):
    """A conversion of a case file."""

    source: CaseFile = part(CaseFile)
    target: CaseFile = part(CaseFile)
    differences: list[Difference] = part(Difference)
    unsupported: list[FieldRow] = part(FieldRow)
