"""Convert a pandapower net to MATPOWER's tables: branches, generators, limits, costs, coordinates.

``to_ppc`` resolves switches, tap changers and unit systems. This module calls it on public data
only, and records which element each of its rows belongs to. Limits and costs are read from the
net's own tables, because ``to_ppc`` leaves them out.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gridpriv.core.arrays import Bools, Complexes, Floats
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.grid.case import PIECEWISE, POLYNOMIAL, Case
from gridpriv.grid.pandapower_json import Net, Ppc, column_of, frame, in_service, optional
from gridpriv.grid.tables import DC_COLUMNS, DC_FROM, DC_PF, DC_PT, DC_STATUS, DC_TO
from gridpriv.grid.zoning import place_auxiliary

DEFAULT_BASE = 1.0
"""pandapower's default sn_mva; see :func:`base_power`."""
BASES = (1.0, 10.0, 100.0)
SIDES = ("hv", "mv", "lv")
FIXING = ("bus", "vm_pu", "controllable")


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
    """Elements of a net by the rows of its case.

    Attributes
    ----------
    bus : dict of int to int
        Bus of the net to bus number (``Case.bus_id``); fused buses have the same.
    branch, gen : tuple of Element
        By the case's ``branch_row - 1`` and ``gen_row - 1``: elements in service, counted
        through lines, trafos, trafo3w (by side), impedances and switches; through external
        grids, generators and dispatchable static generators.
    shunts : (2, rows) complex
        Admittance (p.u.) at the from and the to end of each branch row that is a bus shunt in the
        case.
    """

    bus: dict[int, int]
    branch: tuple[Element, ...]
    gen: tuple[Element, ...]
    shunts: Complexes


def base_power(net: Net) -> float:
    """Return the base of the per-unit system in MVA, from public name plates.

    In pandapower ``sn_mva`` only affects computation and is 1 MVA by default, where a
    medium-voltage grid has admittances of 1e4 per unit and conic solvers fail. For the default the
    base is 1, 10 or 100 MVA: at least the sum of all transformers or, without transformers, 100 MVA
    from 10 kV on. Demand is not read, as it needs protection.
    """
    given = float(net.sn_mva)
    if given != DEFAULT_BASE:
        return given
    total = float(optional(frame(net, "trafo"), "sn_mva", 0.0).sum())
    total += float(optional(frame(net, "trafo3w"), "sn_hv_mva", 0.0).sum())
    if total == 0.0 and float(net.bus.vn_kv.max()) >= 10.0:
        return BASES[-1]
    return next((base for base in BASES if base >= total), BASES[-1])


def flexible_sgens(net: Net) -> NDArray[np.bool_]:
    """Return the dispatchable static generators: controllable, with limits of P."""
    rows = frame(net, "sgen")
    mask = in_service(net, "sgen")
    for column in ("min_p_mw", "max_p_mw"):
        mask = mask & np.isfinite(optional(rows, column, np.nan))
    return mask & (optional(rows, "controllable", 0.0) > 0)


def pypower_tables(net: Net, flexible: NDArray[np.bool_]) -> tuple[Net, Ppc]:
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
    except Exception as error:  # pandapower raises various errors for an inconsistent net
        raise InputError(
            f"pandapower cannot convert the net ({type(error).__name__}: {error})"
        ) from error
    return work, ppc


def bus_numbers(work: Net, n_ppc: int) -> tuple[dict[int, int], NDArray[np.int64]]:
    """Return net bus -> bus number, and the number of every PYPOWER bus.

    A group of fused buses has its smallest number, an auxiliary bus one beyond all of them.
    Buses out of service, or without a path to an external grid, have none.
    """
    buses = np.sort(work.bus.index.to_numpy())
    at = work._pd2ppc_lookups["bus"][buses]
    buses, at = buses[(at >= 0) & (at < n_ppc)], at[(at >= 0) & (at < n_ppc)]
    rows, smallest = np.unique(at, return_index=True)
    auxiliary = np.setdiff1d(np.arange(n_ppc), rows)
    ids = np.zeros(n_ppc, dtype=np.int64)
    ids[rows] = buses[smallest]
    ids[auxiliary] = int(work.bus.index.max()) + 1 + np.arange(len(auxiliary))
    return dict(zip(buses.tolist(), ids[at].tolist(), strict=True)), ids


def auxiliary_buses(case: Case, bus_of: dict[int, int]) -> Bools | None:
    """Return the buses of a case that no bus of the net has, (n,); None without any."""
    added = ~np.isin(case.bus_id, list(bus_of.values()))
    return added if added.any() else None


def branch_elements(work: Net, ppc: Ppc) -> tuple[Element, ...]:
    """Return the element behind every PYPOWER branch in service, in pandapower's order."""
    listed: list[Element] = []
    for table, (first, last) in work._pd2ppc_lookups["branch"].items():
        if table == "switch":
            index = work.switch.index[work["_impedance_bb_switches"]]
            rows = [Element(table, int(i)) for i in index]
        elif table == "trafo3w":
            rows = [Element(table, int(i), side) for side in SIDES for i in work.trafo3w.index]
        else:
            rows = [Element(table, int(i)) for i in work[table].index]
        if len(rows) != last - first:
            raise InputError(
                f"net.{table}: {len(rows)} rows became {last - first} branches"
                "; report this as a defect"
            )
        listed += rows
    running = ppc["internal"]["branch_is"]
    return tuple(element for element, on in zip(listed, running, strict=True) if on)


def gen_elements(
    net: Net, flexible: NDArray[np.bool_], bus_of: dict[int, int]
) -> tuple[Element, ...]:
    """Return the elements in service that are generators of the case."""
    masks = {table: in_service(net, table) for table in ("ext_grid", "gen")} | {"sgen": flexible}
    buses = {table: frame(net, table)[mask].get("bus", {}) for table, mask in masks.items()}
    return tuple(
        Element(table, int(index))
        for table, rows in buses.items()
        for index, bus in rows.items()
        if int(bus) in bus_of
    )


def end_shunts(ppc: Ppc, elements: tuple[Element, ...]) -> Complexes:
    """Return the shunt admittance of both ends beyond the case's symmetric b, (2, rows)."""
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
            "(rft/rtf, xft/xtf) cannot be represented; give equal values for both directions"
        )
    return np.stack([0.5 * g / tap**2 + 0j, 0.5 * (g + g_skew + 1j * b_skew)])


NO_LIMIT = 99999.0
"""Ratings from here on (kA or MVA) conventionally mean no limit."""
NO_BAND = (0.9, 1.1)
"""Voltage band of a bus without one: that of EN 50160 for medium and low voltage."""
LEAST_SHARE = 0.8
"""Share of buses with coordinates from which a net's own are used."""


def bus_table(
    net: Net, ppc: Ppc, ids: NDArray[np.int64], bus_of: dict[int, int], shunts: Complexes
) -> Floats:
    """Return the buses: bands, and the shunts of branches beyond their own b."""
    table: Floats = np.real(ppc["bus"][:, :13]).astype(float)
    base = float(net.sn_mva)
    ends = np.real(ppc["branch"][:, :2]).astype(np.int64)
    for end, shunt in zip(ends.T, shunts, strict=True):
        np.add.at(table[:, 4], end, base * shunt.real)
        np.add.at(table[:, 5], end, base * shunt.imag)
    low, high = voltage_bands(net, ids, bus_of)
    row_of = {int(number): row for row, number in enumerate(ids)}
    for _, bus, set_point in fixed_voltages(net):
        if bus in bus_of and low[row_of[bus_of[bus]]] <= high[row_of[bus_of[bus]]]:
            low[row_of[bus_of[bus]]] = high[row_of[bus_of[bus]]] = set_point
    table[:, 0], table[:, 6], table[:, 10] = ids, 1, 1
    table[:, 11], table[:, 12] = high, low
    solved = frame(net, "res_bus")
    if len(solved) and solved.index.equals(net.bus.index):
        buses = [bus for bus in net.bus.index if int(bus) in bus_of]
        solved, rows = solved.reindex(buses), np.array([row_of[bus_of[int(bus)]] for bus in buses])
        vm, va = (optional(solved, name, np.nan) for name in ("vm_pu", "va_degree"))
        known = np.isfinite(vm) & np.isfinite(va)
        table[rows[known], 7], table[rows[known], 8] = vm[known], va[known]
    return table


def voltage_bands(
    net: Net, ids: NDArray[np.int64], bus_of: dict[int, int], *, own: bool = False
) -> tuple[Floats, Floats]:
    """Return the voltage bands of bus numbers, (n,) each, before voltages are fixed.

    The band of a fused bus is the intersection of its buses' bands. A generator's ``min_vm_pu``
    and ``max_vm_pu`` narrow the band of its bus, as in pandapower's optimal power flow, except for
    the ``own`` band of a bus.
    """
    low, high = np.full(len(ids), -np.inf), np.full(len(ids), np.inf)
    row_of = {int(number): row for row, number in enumerate(ids)}

    def narrow(rows: pd.DataFrame, buses: list[int]) -> None:
        in_case = np.array([bus in bus_of for bus in buses], dtype=bool)
        at = np.array([row_of[bus_of[bus]] for bus in buses if bus in bus_of], dtype=np.int64)
        np.maximum.at(low, at, optional(rows, "min_vm_pu", -np.inf)[in_case])
        np.minimum.at(high, at, optional(rows, "max_vm_pu", np.inf)[in_case])

    narrow(net.bus, [int(bus) for bus in net.bus.index])
    gens = frame(net, "gen")[in_service(net, "gen")]
    if len(gens) and not own:
        narrow(gens, [int(bus) for bus in gens["bus"]])
    low = np.where(np.isfinite(low), low, np.minimum(NO_BAND[0], high))
    high = np.where(np.isfinite(high), high, np.maximum(NO_BAND[1], low))
    return low, high


def fixed_voltages(net: Net) -> list[tuple[Element, int, float]]:
    """Return the elements that fix the voltage of their bus, with that bus and the set point.

    As in pandapower's optimal power flow these are external grids and generators that are not
    controllable; by default external grids are not, and generators are.
    """
    return [
        (Element(table, int(at)), int(bus), float(vm))
        for table, default in (("ext_grid", 0.0), ("gen", 1.0))
        for rows in [frame(net, table)[in_service(net, table)].reindex(columns=FIXING)]
        for at, bus, vm, _ in rows[optional(rows, FIXING[-1], default) == 0].itertuples(name=None)
    ]


def bus_zones(net: Net, case: Case, bus_of: dict[int, int]) -> dict[str, tuple[str, ...]]:
    """Return ``bus.zone`` of the case's buses, empty unless each has one and there are several.

    Fused buses have the zone of the smallest of them that has one; an auxiliary bus (a star point,
    an open line end) has that of the first neighbour with one.
    """
    if "zone" not in net.bus:
        return {}
    named = sorted(net.bus["zone"].dropna().items(), reverse=True)
    here = [(case.index_of.get(bus_of.get(bus, -1)), str(name).strip()) for bus, name in named]
    zone_of = {index: name for index, name in here if index is not None}
    place_auxiliary(case, zone_of)
    zones = tuple(zone_of.get(index, "") for index in range(case.n_bus))
    return {"zone": zones} if all(zones) and len(set(zones)) > 1 else {}


def dc_table(net: Net, bus_of: dict[int, int]) -> Floats:
    """Return DC lines as MATPOWER's table: losses at the end that receives."""
    rows = frame(net, "dcline")
    if len(rows) == 0:
        return np.zeros((0, DC_COLUMNS))
    sent = rows.p_mw.to_numpy(float)
    lost = np.abs(sent) * rows.loss_percent.to_numpy(float) / 100 + rows.loss_mw.to_numpy(float)
    forward = sent > 0
    ends = np.array([[bus_of.get(int(bus), -1) for bus in rows[c]] for c in ("from_bus", "to_bus")])
    table = np.zeros((len(rows), DC_COLUMNS))
    table[:, DC_FROM], table[:, DC_TO] = ends
    table[:, DC_STATUS] = in_service(net, "dcline") & (ends >= 0).all(axis=0)
    table[:, DC_PF] = np.where(forward, sent, sent + lost)
    table[:, DC_PT] = np.where(forward, sent - lost, sent)
    return table[table[:, DC_STATUS] > 0]


def branch_table(
    work: Net, ppc: Ppc, ids: NDArray[np.int64], elements: tuple[Element, ...]
) -> Floats:
    """Return the branches in service, with the limits of the net's own tables."""
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


def _ratings(net: Net) -> dict[Element, float]:
    """Return the apparent power limits in MVA; an element without one is left out."""
    by_element: dict[Element, float] = {}
    lines = frame(net, "line")
    if len(lines):
        current = optional(lines, "max_i_ka", np.inf)
        volts = net.bus.vn_kv.reindex(lines["from_bus"]).to_numpy(dtype=float)
        scale = np.sqrt(3.0) * volts * lines.df.to_numpy(float) * lines.parallel.to_numpy(float)
        _add(by_element, "line", lines, np.where(current < NO_LIMIT, current, np.inf) * scale)
    trafos = frame(net, "trafo")
    if len(trafos):
        power = trafos.sn_mva.to_numpy(float)
        scale = trafos.df.to_numpy(float) * trafos.parallel.to_numpy(float)
        _add(by_element, "trafo", trafos, np.where(power < NO_LIMIT, power, np.inf) * scale)
    triple = frame(net, "trafo3w")
    for side in SIDES if len(triple) else ():
        power = triple[f"sn_{side}_mva"].to_numpy(float)
        _add(by_element, "trafo3w", triple, np.where(power < NO_LIMIT, power, np.inf), side)
    return by_element


def _add(
    by_element: dict[Element, float], table: str, rows: pd.DataFrame, rating: Floats, side: str = ""
) -> None:
    loading = optional(rows, "max_loading_percent", 100.0) / 100.0
    for index, value in zip(rows.index, rating * loading, strict=True):
        if np.isfinite(value) or value < 0:
            by_element[Element(table, int(index), side)] = float(value)


def gen_table(net: Net, elements: tuple[Element, ...], bus_of: dict[int, int]) -> Floats:
    """Return the generators: external grids, generators, dispatchable static generators.

    Without limits in the net there are none for Q, and for P of an external grid or a slack. The
    output of a generator that is not controllable, or has no limits, is fixed.
    """
    table = np.zeros((len(elements), 10))
    for kind in ("ext_grid", "gen", "sgen"):
        at = [row for row, element in enumerate(elements) if element.table == kind]
        if not at:
            continue
        rows = net[kind].loc[[elements[row].index for row in at]]
        output = optional(rows, "p_mw", 0.0) * optional(rows, "scaling", 1.0)
        free = optional(rows, "slack", 0.0) > 0 if kind == "gen" else kind == "ext_grid"
        at_output = (optional(rows, "controllable", 1.0) == 0) & ~np.asarray(free)
        table[at, 0] = [bus_of[int(bus)] for bus in rows["bus"]]
        table[at, 1] = output
        table[at, 3] = optional(rows, "max_q_mvar", np.inf)
        table[at, 4] = optional(rows, "min_q_mvar", -np.inf)
        table[at, 5], table[at, 6], table[at, 7] = optional(rows, "vm_pu", 1.0), 1.0, 1
        for column, name, none in ((8, "max_p_mw", np.inf), (9, "min_p_mw", -np.inf)):
            limit = optional(rows, name, np.nan)
            missing = np.where(free, none, output)
            table[at, column] = np.where(
                at_output, output, np.where(np.isnan(limit), missing, limit)
            )
    return table


def cost_rows(net: Net, elements: tuple[Element, ...]) -> tuple[tuple[float, ...], ...]:
    """Return MATPOWER cost rows; a generator without a cost row has cost 0."""
    curves: dict[Element, tuple[float, ...]] = {}
    terms = ("cp2_eur_per_mw2", "cp1_eur_per_mw", "cp0_eur")
    for _, kind, element, *values in _rows_of(net, "poly_cost", ("et", "element", *terms)):
        curves[Element(str(kind), int(element))] = (POLYNOMIAL, 0.0, 0.0, 3, *map(float, values))
    curve = ("et", "element", "points", "power_type")
    for at, kind, element, points, power in _rows_of(net, "pwl_cost", curve):
        if str(power) == "p":
            curves[Element(str(kind), int(element))] = _breakpoints(points, at)
    if not any(element in curves for element in elements):
        return ()
    return tuple(curves.get(element, (POLYNOMIAL, 0.0, 0.0, 1, 0.0)) for element in elements)


def _rows_of(net: Net, table: str, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the number of every row of a table and its values in some columns."""
    rows = frame(net, table)
    if len(rows):
        yield from zip(rows.index, *(column_of(rows, table, c) for c in columns), strict=True)


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
        allowed = "consecutive areas [from MW, to MW, slope]"
        raise not_allowed(f"net.pwl_cost row {row}: points", areas, allowed) from None
    return (PIECEWISE, 0.0, 0.0, len(points), *(value for point in points for value in point))


def bus_places(net: Net, case: Case, bus_of: dict[int, int]) -> Floats | None:
    """Return the buses' coordinates in the net, shape (n_bus, 2), or None.

    A group of fused buses has the coordinates of its smallest bus with any. A bus without any (the
    star point of a three-winding transformer) has the mean of its neighbours. None where fewer than
    eight of ten buses have coordinates, or all have the same: then a layout is clearer.
    """
    places = np.full((case.n_bus, 2), np.nan)
    coordinates = _geodata(net)
    for bus in sorted(coordinates, reverse=True):
        if bus_of.get(bus) in case.index_of:
            places[case.index_of[bus_of[bus]]] = coordinates[bus]
    known = np.isfinite(places).all(axis=1)
    if known.mean() < LEAST_SHARE or np.ptp(places[known], axis=0).max() == 0.0:
        return None
    return _filled(places, case)


def _geodata(net: Net) -> dict[int, tuple[float, float]]:
    """Return bus to (x, y): GeoJSON points of ``bus.geo``, or the older ``bus_geodata`` table."""
    old = frame(net, "bus_geodata")
    places: list[tuple[Any, Any]] = []
    if {"x", "y"} <= set(old):
        places += zip(old.index, zip(old["x"], old["y"], strict=True), strict=True)
    places += net.bus.geo.items() if "geo" in net.bus else ()
    points = ((int(bus), _point(place)) for bus, place in places)
    return {bus: point for bus, point in points if point is not None}


def _point(place: Any) -> tuple[float, float] | None:
    """Return a pair, or GeoJSON point, of finite numbers (a third is a height); None for others."""
    try:
        pair = place if isinstance(place, tuple) else json.loads(place)["coordinates"]
        x, y = float(pair[0]), float(pair[1])
    except (TypeError, ValueError, IndexError, KeyError):
        return None
    return (x, y) if np.isfinite([x, y]).all() else None


def _filled(places: Floats, case: Case) -> Floats | None:
    """Return the coordinates, with missing ones at the mean of their neighbours."""
    missing = np.isnan(places[:, 0])
    while missing.any():
        total, count = np.zeros_like(places), np.zeros(len(places))
        for ends, neighbours in ((case.f_bus, case.t_bus), (case.t_bus, case.f_bus)):
            located = ~missing[neighbours]
            np.add.at(total, ends[located], places[neighbours[located]])
            np.add.at(count, ends[located], 1.0)
        fillable = missing & (count > 0)
        if not fillable.any():  # an island without coordinates
            return None
        places[fillable] = total[fillable] / count[fillable, None]
        missing &= ~fillable
    return places
