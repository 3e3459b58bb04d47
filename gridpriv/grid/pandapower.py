"""Read pandapower nets, from memory or from JSON.

pandapower's own conversion (``to_ppc``) resolves switches, tap changers, three-winding
transformers and unit systems; what it keeps beside MATPOWER's columns is brought into the
case here, exactly where it can be:

- iron losses and unequal shunts of a branch become shunts at its end buses (the balance of
  every bus and every voltage stay the same, :class:`PandapowerLink` knows what was moved);
- buses fused by closed switches are one bus, named after the smallest of them;
- limits and costs are read from the net's tables, because ``to_ppc`` leaves them out.

docs/readers.md lists every table.
"""

from __future__ import annotations

import copy
import logging
import re
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gridpriv.errors import InputError
from gridpriv.grid.case import PIECEWISE, POLYNOMIAL, Case, Floats
from gridpriv.grid.pandapower_checks import check_net, frame, in_service, open_json
from gridpriv.grid.pandapower_notes import net_notes
from gridpriv.grid.readreport import ReadReport
from gridpriv.grid.tables import MatpowerTables, case_from_tables

NO_LIMIT = 99999.0
"""Ratings from here on (kA or MVA) are the field's way to say none."""
NO_BAND = (0.5, 1.5)
"""Voltage band of a bus that has none: wide, but away from collapse, where solvers stall."""
DEFAULT_BASE = 1.0
"""pandapower's sn_mva where nobody chose one; see :func:`base_power`."""
BASES = (1.0, 10.0, 100.0)
SIDES = ("hv", "mv", "lv")


@dataclass(frozen=True)
class Element:
    """A row of a pandapower table; ``side`` is that of a three-winding transformer."""

    table: str
    index: int
    side: str = ""

    def __str__(self) -> str:
        return f"{self.table} {self.index}" + (f" ({self.side})" if self.side else "")


@dataclass(frozen=True, eq=False)
class PandapowerLink:
    """Which elements of a net the rows of its case stand for.

    Attributes
    ----------
    bus : dict of int to int
        Bus of the net to bus number (``Case.bus_id``); fused buses share one.
    branch, gen : tuple of Element
        By the case's ``branch_row - 1`` and ``gen_row - 1``: elements in service, counted
        through lines, trafos, trafo3w (by side), impedances and switches; through external
        grids, generators and dispatchable static generators.
    shunt_f, shunt_t : (rows,) complex
        Admittance (p.u.) at the ends of each branch row that the case holds as bus shunts.
    """

    bus: dict[int, int]
    branch: tuple[Element, ...]
    gen: tuple[Element, ...]
    shunt_f: NDArray[np.complex128]
    shunt_t: NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class Conversion:
    """A case, the report of its source, and the link back to the net."""

    case: Case
    report: ReadReport
    link: PandapowerLink


def case_from_pandapower(net: Any, name: str | None = None) -> Case:
    """Return the case of a pandapower net; :func:`convert_net` also reports and links back."""
    return convert_net(net, name).case


def load_pandapower(path: Path) -> tuple[Case, ReadReport]:
    """Read a net that ``pandapower.to_json`` wrote."""
    net = open_json(path)
    try:
        found = convert_net(net, path.stem)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return found.case, replace(found.report, source=path.name, format="pandapower JSON")


def convert_net(net: Any, name: str | None = None) -> Conversion:
    """Convert a pandapower net; the net itself is not changed.

    Parameters
    ----------
    net : pandapowerNet
    name : str, optional
        Of the case; the net's own name by default.

    Raises
    ------
    InputError
        Naming table, row and column.
    """
    check_net(net)
    label = name or str(net["name"] or "pandapower")
    flexible = flexible_sgens(net)
    work, ppc = _to_ppc(net, flexible)
    bus_of, ids = _bus_numbers(work, len(ppc["bus"]))
    branch = _branch_elements(work, ppc)
    gen = _gen_elements(net, flexible, bus_of)
    shunt_f, shunt_t = _moved_shunts(ppc, branch)
    tables = MatpowerTables(
        name=label,
        base_mva=float(work.sn_mva),
        bus=_bus_table(work, ppc, ids, bus_of, shunt_f, shunt_t),
        gen=_gen_table(net, gen, bus_of),
        branch=_branch_table(work, ppc, ids, branch),
        gencost=_costs(net, gen),
        first_bus=0,
    )
    case = _case(tables, branch, gen)
    notes = net_notes(net, case, bus_of, shunt_f, shunt_t)
    report = ReadReport(label, "pandapower net", notes)
    return Conversion(case, report, PandapowerLink(bus_of, branch, gen, shunt_f, shunt_t))


def base_power(net: Any) -> float:
    """Return the base of the per-unit system in MVA, from public name plates.

    ``sn_mva`` is a matter of computation to pandapower, and 1 MVA by default, on which a
    medium-voltage grid has admittances of 1e4 per unit and conic solvers fail. Where it was left
    at that, the base is 1, 10 or 100 MVA: enough for all transformers together or, without
    transformers, 100 MVA from 10 kV on. Demand plays no part: it is private.
    """
    given = float(net.sn_mva)
    if given != DEFAULT_BASE:
        return given
    total = float(_optional(frame(net, "trafo"), "sn_mva", 0.0).sum())
    total += float(_optional(frame(net, "trafo3w"), "sn_hv_mva", 0.0).sum())
    if total == 0.0 and float(net.bus.vn_kv.max()) >= 10.0:
        return BASES[-1]
    return next((base for base in BASES if base >= total), BASES[-1])


def flexible_sgens(net: Any) -> NDArray[np.bool_]:
    """Return which static generators may be dispatched: controllable, with limits of P."""
    rows = frame(net, "sgen")
    mask = in_service(net, "sgen")
    for column in ("min_p_mw", "max_p_mw"):
        mask = mask & np.isfinite(_optional(rows, column, np.nan))
    return mask & (_optional(rows, "controllable", 0.0) > 0)


def _to_ppc(net: Any, flexible: NDArray[np.bool_]) -> tuple[Any, dict[str, Any]]:
    """Return a copy of the net with pandapower's lookups, and its PYPOWER tables."""
    from pandapower.converter.pypower.to_ppc import to_ppc

    logging.getLogger("pandapower").setLevel(logging.ERROR)
    work = copy.deepcopy(net)
    work.sn_mva = base_power(net)
    if len(work.sgen):
        work.sgen = work.sgen.drop(columns=["min_q_mvar", "max_q_mvar"], errors="ignore")
        work.sgen["in_service"] = in_service(net, "sgen") & ~flexible
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ppc = to_ppc(work, mode="pf", init="flat", calculate_voltage_angles=True)
    except Exception as error:  # what an inconsistent net raises is pandapower's affair
        raise InputError(
            f"pandapower cannot convert the net ({type(error).__name__}: {error})"
        ) from error
    return work, ppc


def _bus_numbers(work: Any, n_ppc: int) -> tuple[dict[int, int], NDArray[np.int64]]:
    """Return net bus -> bus number, and the number of every PYPOWER bus.

    A group of fused buses has its smallest number, an auxiliary bus one beyond all of them.
    Buses out of service, or without a path to an external grid, have none.
    """
    lookup = work._pd2ppc_lookups["bus"]
    lookup = np.where(lookup < n_ppc, lookup, -1)
    ids = np.full(n_ppc, -1, dtype=np.int64)
    for bus in sorted(map(int, work.bus.index), reverse=True):
        if lookup[bus] >= 0:
            ids[lookup[bus]] = bus
    auxiliary = ids < 0
    ids[auxiliary] = int(work.bus.index.max()) + 1 + np.arange(auxiliary.sum())
    bus_of = {int(b): int(ids[lookup[b]]) for b in work.bus.index if lookup[b] >= 0}
    return bus_of, ids


def _branch_elements(work: Any, ppc: dict[str, Any]) -> tuple[Element, ...]:
    """Return the element behind every PYPOWER branch in service, in pandapower's order."""
    found: list[Element] = []
    for table, (first, last) in work._pd2ppc_lookups["branch"].items():
        if table == "switch":
            index = work.switch.index[work["_impedance_bb_switches"]]
            rows = [Element(table, int(i)) for i in index]
        elif table == "trafo3w":
            rows = [Element(table, int(i), side) for side in SIDES for i in work.trafo3w.index]
        else:
            rows = [Element(table, int(i)) for i in work[table].index]
        if len(rows) != last - first:
            raise InputError(f"net.{table}: {len(rows)} rows became {last - first} branches")
        found += rows
    running = ppc["internal"]["branch_is"]
    return tuple(element for element, on in zip(found, running, strict=True) if on)


def _gen_elements(
    net: Any, flexible: NDArray[np.bool_], bus_of: dict[int, int]
) -> tuple[Element, ...]:
    """Return the elements in service that are generators of the case."""
    found: list[Element] = []
    for table in ("ext_grid", "gen", "sgen"):
        mask = flexible if table == "sgen" else in_service(net, table)
        rows = frame(net, table)[mask]
        if len(rows):
            pairs = zip(rows.index.tolist(), rows["bus"].tolist(), strict=True)
            found += [Element(table, int(i)) for i, bus in pairs if int(bus) in bus_of]
    return tuple(found)


def _moved_shunts(
    ppc: dict[str, Any], elements: tuple[Element, ...]
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Return what of each end's shunt admittance the case's symmetric b does not hold."""
    ratio = np.real(ppc["branch"][:, 8])
    tap = np.where(ratio == 0, 1.0, ratio)
    r_skew, x_skew, g, g_skew, b_skew = (
        np.real(ppc.get(f"branch_{name}", np.zeros(len(tap))))
        for name in ("r_asym", "x_asym", "g", "g_asym", "b_asym")
    )
    skew = (r_skew != 0) | (x_skew != 0)
    if skew.any():
        raise InputError(
            f"net.{elements[int(np.argmax(skew))]}: impedances that differ by direction "
            "(rft/rtf, xft/xtf) cannot be represented"
        )
    at_from = (0.5 * g / tap**2).astype(np.complex128)
    return at_from, 0.5 * (g + g_skew + 1j * b_skew)


def _bus_table(
    net: Any,
    ppc: dict[str, Any],
    ids: NDArray[np.int64],
    bus_of: dict[int, int],
    shunt_f: NDArray[np.complex128],
    shunt_t: NDArray[np.complex128],
) -> Floats:
    table: Floats = np.real(ppc["bus"][:, :13]).astype(float)
    base = float(net.sn_mva)
    ends = np.real(ppc["branch"][:, :2]).astype(np.int64)
    for end, shunt in ((0, shunt_f), (1, shunt_t)):
        np.add.at(table[:, 4], ends[:, end], base * shunt.real)
        np.add.at(table[:, 5], ends[:, end], base * shunt.imag)
    low, high = np.full(len(ids), NO_BAND[0]), np.full(len(ids), NO_BAND[1])
    place = {int(number): row for row, number in enumerate(ids)}
    rows = np.array([place[bus_of[int(b)]] for b in net.bus.index if int(b) in bus_of])
    held = net.bus.loc[[b for b in net.bus.index if int(b) in bus_of]]
    np.maximum.at(low, rows, _optional(held, "min_vm_pu", NO_BAND[0]))
    np.minimum.at(high, rows, _optional(held, "max_vm_pu", NO_BAND[1]))
    table[:, 0], table[:, 6], table[:, 10] = ids, 1, 1
    table[:, 11], table[:, 12] = high, low
    solved = frame(net, "res_bus")
    if len(solved) and solved.index.equals(net.bus.index) and "va_degree" in solved:
        vm, va = (solved[c].reindex(held.index).to_numpy() for c in ("vm_pu", "va_degree"))
        known = np.isfinite(vm) & np.isfinite(va)
        table[rows[known], 7], table[rows[known], 8] = vm[known], va[known]
    return table


def _branch_table(
    work: Any, ppc: dict[str, Any], ids: NDArray[np.int64], elements: tuple[Element, ...]
) -> Floats:
    source = np.real(ppc["branch"])
    table = np.zeros((len(source), 13))
    if len(source) == 0:
        return table
    table[:, :11] = source[:, :11]
    ends = source[:, :2].astype(np.int64)
    table[:, 0], table[:, 1] = ids[ends[:, 0]], ids[ends[:, 1]]
    rates = _ratings(work)
    table[:, 5] = [rates.get(element, 0.0) for element in elements]
    table[:, 6:8] = 0.0
    table[:, 11], table[:, 12] = -360.0, 360.0
    return table


def _ratings(net: Any) -> dict[Element, float]:
    """Return the apparent power limits in MVA; an element without one is left out."""
    found: dict[Element, float] = {}
    lines = frame(net, "line")
    if len(lines):
        current = _optional(lines, "max_i_ka", np.inf)
        volts = net.bus.vn_kv.reindex(lines["from_bus"]).to_numpy(dtype=float)
        scale = np.sqrt(3.0) * volts * lines.df.to_numpy(float) * lines.parallel.to_numpy(float)
        _add(found, "line", lines, np.where(current < NO_LIMIT, current, np.inf) * scale)
    trafos = frame(net, "trafo")
    if len(trafos):
        power = trafos.sn_mva.to_numpy(float)
        scale = trafos.df.to_numpy(float) * trafos.parallel.to_numpy(float)
        _add(found, "trafo", trafos, np.where(power < NO_LIMIT, power, np.inf) * scale)
    triple = frame(net, "trafo3w")
    for side in SIDES if len(triple) else ():
        power = triple[f"sn_{side}_mva"].to_numpy(float)
        _add(found, "trafo3w", triple, np.where(power < NO_LIMIT, power, np.inf), side)
    return found


def _add(
    found: dict[Element, float], table: str, rows: pd.DataFrame, rating: Floats, side: str = ""
) -> None:
    loading = _optional(rows, "max_loading_percent", 100.0) / 100.0
    for index, value in zip(rows.index, rating * loading, strict=True):
        if np.isfinite(value) or value < 0:
            found[Element(table, int(index), side)] = float(value)


def _optional(rows: pd.DataFrame, column: str, missing: float) -> Floats:
    """Return a column as floats, ``missing`` where the net does not say."""
    if column not in rows:
        return np.full(len(rows), missing)
    values = pd.to_numeric(rows[column], errors="coerce").astype(float).to_numpy()
    return np.where(np.isnan(values), missing, values)


def _gen_table(net: Any, elements: tuple[Element, ...], bus_of: dict[int, int]) -> Floats:
    """Return the generators: external grids, generators, dispatchable static generators.

    Limits the net does not give mean: none for Q, and for P of an external grid or a slack; a
    generator that is not controllable, or has no limits, is held at its output.
    """
    table = np.zeros((len(elements), 10))
    for kind in ("ext_grid", "gen", "sgen"):
        at = [row for row, element in enumerate(elements) if element.table == kind]
        if not at:
            continue
        rows = net[kind].loc[[elements[row].index for row in at]]
        output = _optional(rows, "p_mw", 0.0) * _optional(rows, "scaling", 1.0)
        free = _optional(rows, "slack", 0.0) > 0 if kind == "gen" else kind == "ext_grid"
        held = (_optional(rows, "controllable", 1.0) == 0) & ~np.asarray(free)
        table[at, 0] = [bus_of[int(bus)] for bus in rows["bus"]]
        table[at, 1] = output
        table[at, 3], table[at, 4] = (
            _optional(rows, "max_q_mvar", np.inf), _optional(rows, "min_q_mvar", -np.inf),
        )  # fmt: skip
        table[at, 5], table[at, 6], table[at, 7] = _optional(rows, "vm_pu", 1.0), 1.0, 1
        for column, name, none in ((8, "max_p_mw", np.inf), (9, "min_p_mw", -np.inf)):
            limit = _optional(rows, name, np.nan)
            missing = np.where(free, none, output)
            table[at, column] = np.where(held, output, np.where(np.isnan(limit), missing, limit))
    return table


def _costs(net: Any, elements: tuple[Element, ...]) -> tuple[tuple[float, ...], ...]:
    """Return MATPOWER cost rows; a generator without a cost costs nothing."""
    curves: dict[Element, tuple[float, ...]] = {}
    for _, row in frame(net, "poly_cost").iterrows():
        key = Element(str(row["et"]), int(row["element"]))
        values = (row["cp2_eur_per_mw2"], row["cp1_eur_per_mw"], row["cp0_eur"])
        curves[key] = (POLYNOMIAL, 0.0, 0.0, 3, *(float(v) for v in values))
    for at, row in frame(net, "pwl_cost").iterrows():
        if str(row["power_type"]) == "p":
            curves[Element(str(row["et"]), int(row["element"]))] = _breakpoints(row["points"], at)
    if not any(element in curves for element in elements):
        return ()
    return tuple(curves.get(element, (POLYNOMIAL, 0.0, 0.0, 1, 0.0)) for element in elements)


def _breakpoints(areas: Any, row: object) -> tuple[float, ...]:
    """Return a piecewise linear cost row of pandapower's (from MW, to MW, slope) areas."""
    try:
        steps = [tuple(map(float, area)) for area in areas]
        points = [(steps[0][0], steps[0][0] * steps[0][2])]
        for low, high, slope in steps:
            if low != points[-1][0]:
                raise ValueError
            points.append((high, points[-1][1] + (high - low) * slope))
    except (TypeError, ValueError, IndexError):
        raise InputError(
            f"net.pwl_cost row {row}: points = {areas} is not allowed: consecutive areas "
            "[from MW, to MW, slope]"
        ) from None
    return (PIECEWISE, 0.0, 0.0, len(points), *(value for point in points for value in point))


_ROW = re.compile(r"^(?:mpc\.)?(branch|generator|gencost|gen)(?: row)? (\d+): ")


def _case(
    tables: MatpowerTables, branch: tuple[Element, ...], gen: tuple[Element, ...]
) -> Case:
    """Return the case; errors name the net's element instead of a row of the tables."""
    try:
        return case_from_tables(tables)
    except InputError as error:
        match = _ROW.match(str(error))
        if match is None:
            raise
        rows = branch if match[1] == "branch" else gen
        raise InputError(f"net.{rows[int(match[2]) - 1]}: {error}") from error
