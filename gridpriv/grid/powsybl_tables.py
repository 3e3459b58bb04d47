"""MATPOWER's tables of a pypowsybl network, read from its per-unit data frames.

Buses are those of pypowsybl's bus view: switches are resolved. To them are added the star points of
three-winding transformers, and the boundary points of boundary lines; a tie line has a single one
for both halves. Parts of the IIDM model (powsybl.readthedocs.io, grid model) that MATPOWER's branch
lacks (losses, unequal charging, an open end) become shunts at the end buses: bus balances and
voltages do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gridpriv.core.arrays import Bools, Complexes, Floats, Ints
from gridpriv.grid import tables as mpc
from gridpriv.grid.case import SourceNames
from gridpriv.grid.library import FieldNote, known_fields, notes_of

PowsyblNetwork: TypeAlias = Any
"""pypowsybl's network, which has no static type: the package is optional."""
BASE_MVA = 100.0
UNSET = 1e300
"""PowSyBl represents a missing limit by the largest double."""
BAND = (0.9, 1.1)
"""p.u.: the band of a voltage level without one, as for pandapower (EN 50160)."""
NUMBERED = r"^(?:B|BUS-)([0-9]{1,9})\Z"
"""Patterns of PowSyBl's identifiers from bus numbers of IEEE CDF, PSS/E and MATPOWER."""


@contextmanager
def in_per_unit(network: PowsyblNetwork) -> Iterator[None]:
    """Set a network to per unit of :data:`BASE_MVA` within a context."""
    before = network.per_unit, network.nominal_apparent_power
    network.per_unit, network.nominal_apparent_power = True, BASE_MVA
    try:
        yield
    finally:
        network.per_unit, network.nominal_apparent_power = before


NEGLIGIBLE = 1e-8
"""p.u.: the ends of a branch of smaller impedance are merged, as in PowSyBl's load flow."""
PERMANENT = -1


class Buses:
    """The buses: of the bus view first, then star and boundary points; per unit and rad.

    Attributes
    ----------
    frame : DataFrame
        By key: ``level`` (voltage level), ``kv``, ``vm``, ``va``, and ``label`` of an added point.
    demand, shunt : (n,) complex
        Of every bus; both are added up.
    root : (n,) int
        Place of the bus that a bus is merged into; its own place if it is not merged.
    """

    def __init__(self, network: PowsyblNetwork) -> None:
        self.network = network
        self.levels = network.get_voltage_levels(all_attributes=True)
        self.inner = network.get_bus_breaker_view_buses(all_attributes=True)
        columns = {"voltage_level_id": "level", "v_mag": "vm", "v_angle": "va"}
        view = network.get_buses(all_attributes=True).rename(columns=columns)
        view["kv"] = view["level"].map(self.levels["nominal_v"])
        trafos = network.get_3_windings_transformers(all_attributes=True)
        stars = _points("star", trafos, trafos.index, trafos["voltage_level1_id"])
        stars["kv"] = trafos["rated_u0"].to_numpy()
        lines = network.get_boundary_lines(all_attributes=True)
        points = _points("boundary", lines, _boundary(lines), lines["voltage_level_id"])
        points["kv"] = points["level"].map(self.levels["nominal_v"])
        names = ["level", "kv", "vm", "va", "label"]
        frames = [frame.reindex(columns=names) for frame in (view, stars, points)]
        every = _stacked(frames)
        self.frame = every[~every.index.duplicated()]
        self.source_buses = len(view)
        self.root = np.arange(len(self.frame))
        self.demand, self.shunt = np.zeros((2, len(self.frame)), dtype=np.complex128)

    def at(self, keys: Any) -> Ints:
        """Return the places of buses; -1 for an unknown one."""
        return np.asarray(self.frame.index.get_indexer(pd.Index(keys)), dtype=np.int64)

    def connected(self, elements: pd.DataFrame, side: str = "") -> Ints:
        """Return the places of the buses of elements; -1 where an element is not connected."""
        on = elements[f"connected{side}"].to_numpy(dtype=bool)
        return np.where(on, self.at(elements[f"bus{side}_id"]), -1)

    def add(self, place: Ints, demand: Complexes) -> None:
        """Add demand at buses; none where the place is -1."""
        np.add.at(self.demand, place[place >= 0], demand[place >= 0])

    def join(self, first: Ints, second: Ints) -> None:
        """Merge pairs of buses."""
        pairs = coo_array((np.ones(len(first)), (first, second)), shape=(len(self.frame),) * 2)
        parts = connected_components(pairs, directed=False)[1]
        self.root = np.unique(parts, return_index=True)[1][parts]

    def numbers(self) -> pd.Series[int]:
        """Return the number of every bus that is not merged: the source's, or 1, 2, ..."""
        text = self.inner.index.to_series().str.extract(NUMBERED, expand=False)
        at = self.at(self.inner["bus_id"])
        named = ((at >= 0) & text.notna()).to_numpy()
        numbered = text[named].astype(int).groupby(self.root[at[named]]).min()
        roots = np.flatnonzero(self.root == np.arange(len(self.root)))
        own = pd.Index(roots[roots < self.source_buses])
        if not own.isin(numbered.index).all() or numbered.duplicated().any():
            numbered = numbered.iloc[:0]
        added = roots[~np.isin(roots, numbered.index)]
        last = int(numbered.max()) if len(numbered) else 0
        return pd.concat([numbered, pd.Series(last + 1 + np.arange(len(added)), added)]).astype(int)

    def auxiliary(self) -> list[bool]:
        """Return True for every bus that is not merged and can have no load.

        These are the star points, and the points between the halves of tie lines.
        """
        lines = self.network.get_tie_lines()
        inner = [f"star of {key}" for key in self.network.get_3_windings_transformers().index]
        inner += [f"boundary of {key}" for key in lines.index]
        loadable = np.bincount(self.root, ~self.frame.index.isin(inner), len(self.root)) > 0
        return [not loadable[at] for at in self.numbers().index]

    def named(self) -> dict[int, str]:
        """Return the name of every bus: of the bus-breaker view where that has one, or its key."""
        inner, numbers = self.inner[~self.inner["bus_id"].duplicated()], self.numbers()
        name = inner["name"].where(inner["name"].fillna("") != "", inner.index.to_series())
        label = pd.Series([" ".join(str(n).split()) for n in name], inner["bus_id"], dtype=object)
        frame = self.frame.iloc[numbers.index]
        names = frame["label"].fillna(frame.index.to_series().map(label))
        return dict(zip(numbers, names.fillna(frame.index.to_series()), strict=True))

    def groups(self) -> dict[str, list[str]]:
        """Return country, area and substation of every bus that is not merged."""
        level = self.frame["level"].iloc[self.numbers().index]
        station = level.map(self.levels["substation_id"]).fillna("")
        kinds = self.network.get_areas()["area_type"]
        control = "ControlArea" if (kinds == "ControlArea").any() else kinds.min()
        listed = self.network.get_areas_voltage_levels().reset_index()
        listed = listed[listed["id"].map(kinds) == control]
        area = listed.drop_duplicates("voltage_level_id", keep="last")
        groups = {
            "country": station.map(self.network.get_substations()["country"]),
            "area": level.map(area.set_index("voltage_level_id")["id"]),
            "substation": station,
        }
        listed_names = {kind: names.fillna("").tolist() for kind, names in groups.items()}
        return {kind: list(map(str, names)) for kind, names in listed_names.items() if any(names)}

    def table(self) -> Floats:
        """Return MATPOWER's bus table."""
        numbers = self.numbers()
        row_of = np.full(len(self.frame), -1)
        row_of[numbers.index] = np.arange(len(numbers))
        table = np.zeros((len(numbers), mpc.BUS_COLUMNS))
        sums = np.column_stack([self.demand, self.shunt]).view(float)
        for column, values in zip((mpc.PD, mpc.QD, mpc.GS, mpc.BS), sums.T, strict=True):
            np.add.at(table[:, column], row_of[self.root], BASE_MVA * values)
        frame = self.frame.iloc[numbers.index]
        slack = self.network.get_extensions("slackTerminal").get("bus_id", [])
        at = self.at(slack)
        reference = np.isin(numbers.index, self.root[at[at >= 0]])
        vm, va = (frame[name].to_numpy(dtype=float) for name in ("vm", "va"))
        known = (vm > 0) & np.isfinite(va)
        table[:, mpc.BUS_I], table[:, mpc.BASE_KV] = numbers, frame["kv"]
        table[:, mpc.BUS_TYPE] = np.where(reference, mpc.REFERENCE, 1)
        table[:, mpc.VM] = np.where(known, vm, 1.0)
        table[:, mpc.VA] = np.where(known, np.rad2deg(va), 0.0)
        for column, side, default in zip((mpc.VMIN, mpc.VMAX), ("low", "high"), BAND, strict=True):
            limit = frame["level"].map(self.levels[f"{side}_voltage_limit"])
            table[:, column] = limit.where(limit >= 0, default)
        return table


def _stacked(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Return frames one under the other; empty ones would change the kinds of columns."""
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1])


def _points(kind: str, elements: pd.DataFrame, names: pd.Index, level: Any) -> pd.DataFrame:
    """Return the points that elements add to the buses."""
    labels = [f"{label} ({kind})" for label in _labels(elements)]
    index = pd.Index([f"{kind} of {name}" for name in names], dtype=object)
    return pd.DataFrame({"level": level.to_numpy(), "label": labels}, index=index)


def _boundary(lines: pd.DataFrame) -> pd.Index:
    """Return the name of the boundary point of every boundary line: that of the tie line of two."""
    return pd.Index(np.where(lines["paired"].astype(bool), lines["tie_line_id"], lines.index))


def _labels(elements: pd.DataFrame) -> list[str]:
    """Return the names of elements, or their identifiers."""
    pairs = zip(elements["name"], elements.index, strict=True)
    return [str(name or key) for name, key in pairs]


def _elements(
    kind: str, source: pd.DataFrame, columns: dict[str, Any], leg: str = ""
) -> pd.DataFrame:
    """Return elements with their kind, identifier, leg and name, and with further columns."""
    name = [f"{label} ({leg})" if leg else label for label in _labels(source)]
    own = {"kind": kind, "id": source.index, "leg": leg, "name": name}
    return pd.DataFrame(own | {key: np.asarray(value) for key, value in columns.items()})


def _identified(elements: pd.DataFrame) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Return the names of elements, and their kinds and identifiers."""
    return tuple(elements["name"]), list(zip(elements["kind"], elements["id"], strict=True))


def _branches(network: PowsyblNetwork, buses: Buses) -> pd.DataFrame:
    """Return the branches in the source's order: an ideal transformer at the near end of each.

    Columns: places of the ends (-1: open), ``z``, ``y_from`` and ``y_to`` behind the transformer,
    and its ``ratio``.
    """
    lines = _lines(network, buses)
    shunts = {"y_from": lines["g1"] + 1j * lines["b1"], "y_to": lines["g2"] + 1j * lines["b2"]}
    z = {"z": lines["r"] + 1j * lines["x"], "ratio": np.ones(len(lines), complex)}
    two = network.get_2_windings_transformers(all_attributes=True)
    three = network.get_3_windings_transformers(all_attributes=True)
    star = buses.at([f"star of {key}" for key in three.index])
    legs = []
    for leg in "123":
        ends = {"f": buses.connected(three, leg), "t": star}
        legs.append(_elements("trafo3w", three, ends | _winding(three, leg), leg))
    halves = network.get_boundary_lines(all_attributes=True)
    none = np.zeros(len(halves), complex)
    half = {"z": halves["r"] + 1j * halves["x"], "y_from": halves["g"] + 1j * halves["b"]}
    half |= {"y_to": none, "ratio": none + 1.0, "f": buses.connected(halves)}
    half["t"] = buses.at([f"boundary of {name}" for name in _boundary(halves)])
    frames = [
        _elements("line", lines, _ends(lines, buses) | shunts | z),
        _elements("trafo", two, _ends(two, buses) | _winding(two)),
        pd.concat(legs).sort_index(kind="stable"),
        _elements("boundary line", halves, half),
    ]
    return _stacked(frames).reset_index(drop=True)


def _ends(branches: pd.DataFrame, buses: Buses) -> dict[str, Any]:
    """Return the places of both ends of branches."""
    return {"f": buses.connected(branches, "1"), "t": buses.connected(branches, "2")}


def _winding(trafos: pd.DataFrame, leg: str = "") -> dict[str, Any]:
    """Return the values of transformers, or of a leg of each, at their present tap positions."""
    r, x, g, b = (trafos[f"{name}{leg}_at_current_tap"] for name in "rxgb")
    ratio = trafos[f"rho{leg}"] * np.exp(1j * trafos[f"alpha{leg}"])
    return {"z": r + 1j * x, "y_from": g + 1j * b, "y_to": 0j * g, "ratio": ratio}


def _branch_table(
    branches: pd.DataFrame, buses: Buses, ratings: pd.DataFrame
) -> tuple[Floats, int]:
    """Return MATPOWER's branch table, and the number of merged pairs; add shunts to the buses.

    An open end is given the first bus, out of service.
    """
    f, t = (branches[end].to_numpy(dtype=np.int64) for end in "ft")
    z, y_from, y_to, ratio = (
        branches[name].to_numpy(dtype=np.complex128) for name in ("z", "y_from", "y_to", "ratio")
    )
    both, tap = (f >= 0) & (t >= 0), 1.0 / np.abs(ratio)
    negligible = both & (np.abs(z) < NEGLIGIBLE)
    merged: Bools = negligible & (np.abs(ratio - 1.0) < NEGLIGIBLE)
    z = np.where(negligible, 1j * NEGLIGIBLE, z)
    table = np.zeros((len(branches), mpc.ANGMAX + 1))
    table[:, mpc.BR_R], table[:, mpc.BR_X] = np.where(both, [z.real, z.imag], 0.0)
    table[:, mpc.BR_B] = 2.0 * y_to.imag * (both & ~merged)
    half = 0.5j * table[:, mpc.BR_B]
    near = (y_from + np.where(both, -half, y_to / (1.0 + z * y_to))) / tap**2
    far = y_to + np.where(both, -half, y_from / (1.0 + z * y_from))
    np.add.at(buses.shunt, f[f >= 0], near[f >= 0])
    np.add.at(buses.shunt, t[t >= 0], far[t >= 0])
    buses.join(f[merged], t[merged])
    numbers = buses.numbers()
    first = numbers.iloc[0] if len(numbers) else 0
    for end, column in ((f, mpc.F_BUS), (t, mpc.T_BUS)):
        table[:, column] = np.where(end >= 0, numbers.reindex(buses.root[end], fill_value=0), first)
    table[:, mpc.BR_STATUS] = both & ~merged & (table[:, mpc.F_BUS] != table[:, mpc.T_BUS])
    table[:, mpc.TAP], table[:, mpc.SHIFT] = tap, -np.rad2deg(np.angle(ratio))
    key = pd.MultiIndex.from_frame(branches[["id", "leg"]])
    table[:, mpc.RATE_A : mpc.RATE_C + 1] = ratings.reindex(key).fillna(0.0)
    return table, int(merged.sum())


def _lines(network: PowsyblNetwork, buses: Buses) -> pd.DataFrame:
    """Return the lines; pypowsybl has no per-unit shunts of a line without impedance."""
    lines = network.get_lines(all_attributes=True)
    bare = (lines["r"] == 0) & (lines["x"] == 0)
    if bare.any():
        network.per_unit = False
        unscaled = network.get_lines(all_attributes=True)[bare]
        network.per_unit = True
        for side in "12":
            volts = buses.levels["nominal_v"].loc[unscaled[f"voltage_level{side}_id"]].to_numpy()
            for name in (f"g{side}", f"b{side}"):
                lines.loc[bare, name] = unscaled[name] * volts**2 / BASE_MVA
    return lines


def _ratings(limits: pd.DataFrame) -> pd.DataFrame:
    """Return permanent, longest temporary and largest rating in MVA by element and leg.

    A current limit is converted at nominal voltage, an active power limit is used as apparent
    power, and the smaller rating of two ends applies.
    """
    rows = limits.reset_index().sort_values("acceptable_duration", kind="stable")
    rows = rows[rows["selected"] & (rows["value"].abs() < UNSET) & (rows["value"] > 0)]
    three = rows["element_type"] == "THREE_WINDINGS_TRANSFORMER"
    leg = rows["side"].map({"ONE": "1", "TWO": "2", "THREE": "3"}).where(three, "")
    steady = rows["acceptable_duration"] == PERMANENT
    rows = rows.assign(leg=leg, steady=rows["value"].where(steady))
    rows["brief"] = rows["value"].mask(steady)
    groups = rows.groupby(["element_id", "leg", "side", "type"])
    kinds = {"steady": ("steady", "min"), "brief": ("brief", "last"), "most": ("brief", "max")}
    return BASE_MVA * groups.agg(**kinds).groupby(level=[0, 1]).min().astype(float)


class Injections:
    """Generators of the model; demand and shunts are added to the buses."""

    def __init__(self, network: PowsyblNetwork, buses: Buses) -> None:
        self.network, self.buses, self.remote = network, buses, 0
        shunts = network.get_shunt_compensators(all_attributes=True)
        at = buses.connected(shunts)
        power = (shunts["g"] + 1j * shunts["b"]).to_numpy(dtype=np.complex128)
        np.add.at(buses.shunt, at[at >= 0], power[at >= 0])
        loads = network.get_loads(all_attributes=True)
        at = buses.connected(loads)
        buses.add(at, _complex(loads["p0"], loads["q0"]))
        self.loads = pd.Series(loads.index[at >= 0], at[at >= 0], dtype=object)
        batteries = network.get_batteries(all_attributes=True)
        power = -_complex(batteries["target_p"], batteries["target_q"])
        buses.add(buses.connected(batteries), power)
        frames = [self._generators(), self._boundaries(), self._hvdc(), self._static_var()]
        self.units = _stacked(frames)

    def _generators(self) -> pd.DataFrame:
        gens = self.network.get_generators(all_attributes=True)
        at = self.buses.connected(gens)
        controls = gens["voltage_regulator_on"].to_numpy(dtype=bool) & (at >= 0)
        q = [
            gens[f"{end}_q_at_target_p"].where(controls, gens["target_q"].fillna(0.0))
            for end in ENDS
        ]
        p = gens["target_p"], gens["min_p"], gens["max_p"]
        return _units("generator", gens, at, p, q, self._set_points(gens, at, controls))

    def _set_points(self, elements: pd.DataFrame, at: Ints, controls: Bools) -> Floats:
        """Return the voltage set points of elements at their own buses; 1 without control.

        Of one that regulates another bus it is the voltage of its own bus in PowSyBl's load flow.
        """
        own = self.buses.frame.iloc[np.maximum(at, 0)]
        regulated = elements["regulated_bus_id"].to_numpy()
        remote = controls & (regulated != "") & (regulated != own.index)
        self.remote += int(remote.sum())
        vm = pd.Series(elements["target_v"].to_numpy(dtype=float), own.index)
        if remote.any():
            local = elements.get("equivalent_local_target_v", vm * np.nan).to_numpy(dtype=float)
            own_vm = pd.Series(local, own.index)
            if not (local[remote] > 0).all():
                solved = _solved(self.network).reindex(own.index)
                own_vm = own_vm.where(own_vm > 0, solved)
            own_vm = own_vm.where(own_vm > 0, own["vm"])
            vm = vm.mask(remote & (own_vm > 0).to_numpy(), own_vm)
        return np.where(controls, vm, 1.0)

    def _boundaries(self) -> pd.DataFrame:
        """Add demand at boundary points, and return their generation; a tie line has none."""
        lines = self.network.get_boundary_lines(all_attributes=True)
        lines = lines[~lines["paired"].astype(bool) & lines["connected"].astype(bool)]
        at = self.buses.at([f"boundary of {key}" for key in lines.index])
        self.buses.add(at, _complex(lines["p0"], lines["q0"]))
        units = self.network.get_boundary_lines_generation(all_attributes=True)
        at, lines = at[lines.index.isin(units.index)], lines[lines.index.isin(units.index)]
        units = units.loc[lines.index]
        controls = units["voltage_regulator_on"].to_numpy(dtype=bool)
        fixed = -_complex(units["target_p"], units["target_q"].fillna(0.0))
        self.buses.add(np.where(controls, -1, at), fixed)
        own = units[controls]
        p = own["target_p"], own["min_p"], own["max_p"]
        endless = np.full(len(own), np.inf)
        q = -endless, endless
        return _units("boundary line", lines[controls], at[controls], p, q, own["target_v"])

    def _hvdc(self) -> pd.DataFrame:
        """Add LCC stations as demand, and VSC stations without voltage control; return the rest."""
        power = pd.Series(_converter_power(self.network), dtype=float)
        lcc = self.network.get_lcc_converter_stations(all_attributes=True)
        p = power.reindex(lcc.index, fill_value=0.0)
        factor = lcc["power_factor"].abs().replace(0.0, 1.0)
        q = p.abs() * np.sqrt(np.maximum(factor**-2.0 - 1.0, 0.0))
        self.buses.add(self.buses.connected(lcc), _complex(p, q))
        vsc = self.network.get_vsc_converter_stations(all_attributes=True)
        at, p = self.buses.connected(vsc), power.reindex(vsc.index, fill_value=0.0)
        controls = vsc["voltage_regulator_on"].to_numpy(dtype=bool)
        fixed = _complex(p, -vsc["target_q"].fillna(0.0))
        self.buses.add(np.where(controls, -1, at), fixed)
        vm = self._set_points(vsc, at, controls & (at >= 0))[controls]
        vsc, p = vsc[controls], p[controls]
        q = vsc["min_q_at_target_p"], vsc["max_q_at_target_p"]
        return _units("converter", vsc, at[controls], (-p, -p, -p), q, vm)

    def _static_var(self) -> pd.DataFrame:
        """Add compensators of reactive power as demand; return those with voltage control."""
        svc = self.network.get_static_var_compensators(all_attributes=True)
        at, running = self.buses.connected(svc), svc["regulating"].to_numpy(dtype=bool)
        controls = running & (svc["regulation_mode"] == "VOLTAGE").to_numpy()
        fixed = _complex(0.0 * svc["b_min"], -svc["target_q"].fillna(0.0))
        self.buses.add(np.where(running & ~controls, at, -1), fixed)
        vm = self._set_points(svc, at, controls & (at >= 0))[controls]
        svc, none = svc[controls], np.zeros(controls.sum())
        q = svc["b_min"] * vm**2, svc["b_max"] * vm**2
        return _units("svc", svc, at[controls], (none, none, none), q, vm)

    def table(self) -> Floats:
        """Return MATPOWER's generator table; a unit without a bus is given the first."""
        numbers, units = self.buses.numbers(), self.units
        at = units["at"].to_numpy(dtype=np.int64)
        first = numbers.iloc[0] if len(numbers) else 0
        table = np.zeros((len(units), mpc.GEN_COLUMNS))
        table[:, mpc.GEN_BUS] = first
        table[at >= 0, mpc.GEN_BUS] = numbers.loc[self.buses.root[at[at >= 0]]]
        power = units[["p", "pmin", "pmax", "qmin", "qmax"]].to_numpy(dtype=float)
        limited = np.where(np.abs(power) >= UNSET, np.copysign(np.inf, power), power)
        table[:, [mpc.PG, mpc.PMIN, mpc.PMAX, mpc.QMIN, mpc.QMAX]] = BASE_MVA * limited
        vm = units["vm"].to_numpy(dtype=float)
        table[:, mpc.VG], table[:, mpc.GEN_STATUS] = np.where(vm > 0, vm, 1.0), at >= 0
        return table


ENDS = ("min", "max")


def _units(kind: str, source: pd.DataFrame, at: Ints, p: Any, q: Any, vm: Any) -> pd.DataFrame:
    """Return generators: their places, p with its limits, limits of q, and voltages."""
    values = dict(zip(("p", "pmin", "pmax", "qmin", "qmax"), (*p, *q), strict=True))
    return _elements(kind, source, values | {"at": at, "vm": vm})


def _complex(p: Any, q: Any) -> Complexes:
    return np.asarray(p, dtype=float) + 1j * np.asarray(q, dtype=float)


def _converter_power(network: PowsyblNetwork) -> dict[str, float]:
    """Return the active power that converter stations of running lines draw, p.u."""
    loss = {
        station.Index: station.loss_factor / 100.0
        for frame in (network.get_vsc_converter_stations(), network.get_lcc_converter_stations())
        for station in frame.itertuples()
    }
    power: dict[str, float] = {}
    for line in network.get_hvdc_lines(all_attributes=True).itertuples():
        ends = line.converter_station1_id, line.converter_station2_id
        if not (line.connected1 and line.connected2):
            continue
        sender, receiver = ends if line.converters_mode.startswith("SIDE_1_REC") else ends[::-1]
        sent = line.target_p * (1.0 - loss.get(sender, 0.0))
        sent -= line.r * sent**2
        power[sender], power[receiver] = line.target_p, -sent * (1.0 - loss.get(receiver, 0.0))
    return power


def _solved(network: PowsyblNetwork) -> pd.Series[float]:
    """Return voltages by PowSyBl's load flow, of a copy, as it also writes into properties."""
    from pypowsybl import loadflow
    from pypowsybl.network import load_from_string

    copy = load_from_string("copy.xiidm", network.save_to_string())
    results = loadflow.run_ac(copy)
    with in_per_unit(copy):
        voltages = copy.get_buses()["v_mag"]
    converged = any(result.status.name == "CONVERGED" for result in results)
    return voltages if converged else voltages * np.nan


LIMITS = ("CURRENT", "APPARENT_POWER", "ACTIVE_POWER")


@dataclass(frozen=True, eq=False)
class PowsyblTables:
    """A network in MATPOWER's tables, with further data.

    Attributes
    ----------
    bus, branch, gen : 2-d arrays
        As in :class:`~gridpriv.grid.tables.MatpowerTables`; elements out of service have a row.
    names : SourceNames
    groups : dict of str to list of str
        ``country``, ``area`` and ``substation`` of every bus; empty if not given.
    notes : tuple of FieldNote
    branch_ids, gen_ids : list of (kind, identifier)
        Elements of the rows.
    loads : dict of int to list of str
        Identifiers of the loads in service at each bus.
    auxiliary : list of bool
        Buses that can have no load.
    """

    bus: Floats
    branch: Floats
    gen: Floats
    names: SourceNames
    groups: dict[str, list[str]]
    notes: tuple[FieldNote, ...]
    branch_ids: list[tuple[str, str]]
    gen_ids: list[tuple[str, str]]
    loads: dict[int, list[str]]
    auxiliary: list[bool]
    base_mva: float = BASE_MVA


def network_tables(network: PowsyblNetwork) -> PowsyblTables:
    """Return the tables of a network, which is not changed."""
    with in_per_unit(network):
        buses = Buses(network)
        branches = _branches(network, buses)
        limits = _ratings(network.get_loading_limits(all_attributes=True))
        branch, joined = _branch_table(branches, buses, limits)
        gens = Injections(network, buses)
        notes = network_notes(network, joined, gens.remote)
        (branch_names, branch_ids), (gen_names, gen_ids) = map(_identified, (branches, gens.units))
        sources = SourceNames(buses.named(), branch_names, gen_names)
        numbers, loads = buses.numbers(), dict[int, list[str]]()
        for at, key in gens.loads.items():
            loads.setdefault(int(numbers[buses.root[at]]), []).append(key)
        tables, ids = (buses.table(), branch, gens.table()), (branch_ids, gen_ids)
        groups, auxiliary = buses.groups(), buses.auxiliary()
        return PowsyblTables(*tables, sources, groups, notes, *ids, loads, auxiliary)


def network_notes(network: PowsyblNetwork, joined: int, remote: int) -> tuple[FieldNote, ...]:
    """Return the notes on a network.

    Parameters
    ----------
    joined : int
        Branches of negligible impedance, whose ends are one bus.
    remote : int
        Regulators of another bus's voltage.
    """
    kinds = {key for key, _, _ in known_fields("powsybl") if hasattr(network, f"get_{key}")}
    frames = {kind: getattr(network, f"get_{kind}")() for kind in kinds}
    counts = {kind: len(rows) for kind, rows in frames.items()}
    counts |= _limits(network) | _control(frames, network)
    levels = network.get_voltage_levels()
    banded = levels[["low_voltage_limit", "high_voltage_limit"]].notna().all(axis=1)
    counts |= {
        "retained": _true(frames["switches"], "retained"),
        "banded": banded.sum(),
        "unbanded": (~banded).sum(),
        "countries": (frames["substations"]["country"] != "").sum(),
        "joined": joined,
        "remote": remote,
    }
    return tuple(notes_of("powsybl", counts))


def _limits(network: PowsyblNetwork) -> dict[str, int]:
    """Return the number of permanent and temporary ratings of each kind, and of those unused."""
    rows = network.get_loading_limits(all_attributes=True).reset_index()
    steady = rows["acceptable_duration"] == -1
    counts = {"unselected": (~rows["selected"].astype(bool)).sum()}
    for kind in LIMITS:
        counts[f"{kind} steady"] = ((rows["type"] == kind) & steady).sum()
        counts[f"{kind} brief"] = ((rows["type"] == kind) & ~steady).sum()
    return counts


def _control(frames: dict[str, pd.DataFrame], network: PowsyblNetwork) -> dict[str, int]:
    """Return the number of elements whose control is fixed, or left out."""
    gens = frames["generators"]
    droop = network.get_extensions("hvdcAngleDroopActivePowerControl")
    return {
        "fixed reactive": (gens["connected"] & ~gens["voltage_regulator_on"].astype(bool)).sum(),
        "curves": (gens["reactive_limits_kind"] == "CURVE").sum(),
        "phase regulating": _true(frames["phase_tap_changers"], "regulating"),
        "ratio regulating": _true(frames["ratio_tap_changers"], "regulating"),
        "shunts regulating": _true(frames["shunt_compensators"], "voltage_regulation_on"),
        "emulated": _true(droop, "enabled"),
    }


def _true(rows: pd.DataFrame, column: str) -> int:
    return int(rows[column].astype(bool).sum()) if len(rows) else 0
