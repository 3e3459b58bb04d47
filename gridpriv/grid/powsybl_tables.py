"""MATPOWER's tables of a pypowsybl network, read from its per-unit data frames.

Buses are those of pypowsybl's bus view: switches are resolved. To them are added the star points of
three-winding transformers, and the boundary points of boundary lines; a tie line has a single one
for both halves. Parts of the IIDM model (powsybl.readthedocs.io, grid model) that MATPOWER's branch
lacks (losses, unequal charging, an open end) become shunts at the end buses: bus balances and
voltages do not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from gridpriv.core.arrays import Floats
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
NUMBERED = re.compile(r"(?:B|BUS-)([0-9]{1,9})")
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


@dataclass
class Bus:
    """A bus, or a point that is not in the bus view; per unit and rad.

    Attributes
    ----------
    same : int
        Place of the bus that it is merged into; its own place if it is not merged.
    """

    key: str
    level: str
    kv: float
    same: int
    label: str = ""
    vm: float = np.nan
    va: float = np.nan
    demand: complex = 0j
    shunt: complex = 0j


class Buses:
    """The buses: of the bus view first, then added points."""

    def __init__(self, network: PowsyblNetwork) -> None:
        self.network = network
        self.levels = network.get_voltage_levels(all_attributes=True)
        self.inner = network.get_bus_breaker_view_buses(all_attributes=True)
        self.every: list[Bus] = []
        self.at: dict[str, int] = {}
        for bus in network.get_buses(all_attributes=True).itertuples():
            level = bus.voltage_level_id
            at = self.add(bus.Index, level, self.levels["nominal_v"].get(level, np.nan))
            self.every[at].vm, self.every[at].va = bus.v_mag, bus.v_angle
        self.source_buses = len(self.every)
        slack = network.get_extensions("slackTerminal").get("bus_id", [])
        self.reference = {self.at[bus] for bus in slack if bus in self.at}

    def add(self, key: str, level: str, kv: float, label: str = "") -> int:
        """Return the place of a bus, added if it is missing."""
        if key not in self.at:
            self.at[key] = len(self.every)
            self.every.append(Bus(key, level, kv, len(self.every), label))
        return self.at[key]

    def root(self, bus: int) -> int:
        """Return the bus that a bus is merged into."""
        while self.every[bus].same != bus:
            bus = self.every[bus].same
        return bus

    def join(self, first: int, second: int) -> None:
        """Merge two buses."""
        low, high = sorted((self.root(first), self.root(second)))
        self.every[high].same = low

    def numbers(self) -> dict[int, int]:
        """Return the number of every bus that is not merged: the source's, or 1, 2, ..."""
        numbered: dict[int, list[int]] = {}
        for key, bus in zip(self.inner.index, self.inner["bus_id"], strict=True):
            match = NUMBERED.fullmatch(key)
            if bus in self.at and match:
                numbered.setdefault(self.root(self.at[bus]), []).append(int(match[1]))
        roots = [i for i, bus in enumerate(self.every) if bus.same == i]
        stated = {i: min(numbered[i]) for i in roots if i in numbered}
        complete = all(i in stated or i >= self.source_buses for i in roots)
        if not complete or len(set(stated.values())) < len(stated):
            stated = {}
        last = max(stated.values(), default=0)
        added = (i for i in roots if i not in stated)
        return stated | {i: last + n for n, i in enumerate(added, start=1)}

    def by_number(self, values: dict[int, list[str]]) -> dict[int, list[str]]:
        """Return lists by bus index as lists by bus number."""
        numbers = self.numbers()
        listed: dict[int, list[str]] = {}
        for bus, some in values.items():
            listed.setdefault(numbers[self.root(bus)], []).extend(some)
        return listed

    def named(self) -> dict[int, str]:
        """Return the name of every bus: of the bus-breaker view where that has one, or its key."""
        label: dict[int, str] = {}
        for key, name, bus in zip(
            self.inner.index, self.inner["name"], self.inner["bus_id"], strict=True
        ):
            if bus in self.at:
                label.setdefault(self.at[bus], " ".join(str(name or key).split()))
        return {
            number: self.every[i].label or label.get(i) or self.every[i].key
            for i, number in self.numbers().items()
        }

    def groups(self) -> dict[str, list[str]]:
        """Return country, area and substation of every bus that is not merged."""
        substation = self.levels["substation_id"]
        country = self.network.get_substations()["country"]
        listed = self.network.get_areas_voltage_levels().reset_index()
        kinds = self.network.get_areas()["area_type"]
        control = (
            "ControlArea" if (kinds == "ControlArea").any() else kinds.min() if len(kinds) else ""
        )
        pairs = zip(listed["id"], listed["voltage_level_id"], strict=True)
        area = {level: name for name, level in pairs if kinds.get(name) == control}
        levels = [self.every[i].level for i in self.numbers()]
        stations = [str(substation.get(level) or "") for level in levels]
        listed = {
            "country": [str(country.get(station) or "") for station in stations],
            "area": [area.get(level, "") for level in levels],
            "substation": stations,
        }
        return {kind: names for kind, names in listed.items() if any(names)}

    def table(self) -> Floats:
        """Return MATPOWER's bus table."""
        numbers = self.numbers()
        row_of = {i: row for row, i in enumerate(numbers)}
        table = np.zeros((len(numbers), mpc.BUS_COLUMNS))
        for i, bus in enumerate(self.every):
            powers = bus.demand.real, bus.demand.imag, bus.shunt.real, bus.shunt.imag
            columns = [mpc.PD, mpc.QD, mpc.GS, mpc.BS]
            table[row_of[self.root(i)], columns] += BASE_MVA * np.array(powers)
        references = set(map(self.root, self.reference))
        low, high = (self.levels[f"{side}_voltage_limit"].to_dict() for side in ("low", "high"))
        for i, row in zip(numbers, table, strict=True):
            bus = self.every[i]
            known = bus.vm > 0 and np.isfinite(bus.va)
            band = (low.get(bus.level, np.nan), high.get(bus.level, np.nan))
            row[mpc.BUS_I], row[mpc.BASE_KV] = numbers[i], bus.kv
            row[mpc.BUS_TYPE] = mpc.REFERENCE if i in references else 1
            row[[mpc.VM, mpc.VA]] = (bus.vm, np.rad2deg(bus.va)) if known else (1.0, 0.0)
            row[[mpc.VMIN, mpc.VMAX]] = [
                limit if limit >= 0 else default for limit, default in zip(band, BAND, strict=True)
            ]
        return table


NEGLIGIBLE = 1e-8
"""p.u.: the ends of a branch of smaller impedance are merged, as in PowSyBl's load flow."""
PERMANENT = -1


class Elements:
    """Rows of a table with the places of their buses (-1: none), and the elements' names."""

    def __init__(self, network: PowsyblNetwork, buses: Buses) -> None:
        self.network, self.buses = network, buses
        self.rows: list[Floats] = []
        self.at: list[tuple[int, ...]] = []
        self.names: list[str] = []
        self.ids: list[tuple[str, str]] = []

    def append(
        self, element: tuple[str, Any], row: Floats, at: tuple[int, ...], leg: str = ""
    ) -> None:
        """Add the row of an element (kind, source)."""
        kind, source = element
        self.rows.append(row)
        self.at.append(at)
        self.names.append(str(source.name or source.Index) + (f" ({leg})" if leg else ""))
        self.ids.append((kind, source.Index))

    def numbered(self, width: int, columns: tuple[int, ...]) -> Floats:
        """Return the table with bus numbers in some columns; without a bus that of the first."""
        numbers = self.buses.numbers()
        first = next(iter(numbers.values()), 0)
        table = np.array(self.rows).reshape(-1, width)
        for row, at in zip(table, self.at, strict=True):
            row[[*columns]] = [numbers[self.buses.root(a)] if a >= 0 else first for a in at]
        return table


class Branches(Elements):
    """Rows of the branch table, and shunts at the buses."""

    def __init__(self, network: PowsyblNetwork, buses: Buses) -> None:
        super().__init__(network, buses)
        self.joined = 0
        self.ratings = _ratings(network.get_loading_limits(all_attributes=True))
        for line in _lines(network, buses).itertuples():
            ends = _open(line, "1"), _open(line, "2")
            shunts = complex(line.g1, line.b1), complex(line.g2, line.b2)
            self._add(("line", line), ends, complex(line.r, line.x), shunts)
        for trafo in network.get_2_windings_transformers(all_attributes=True).itertuples():
            self._winding(("trafo", trafo), (_open(trafo, "1"), _open(trafo, "2")))
        for trafo in network.get_3_windings_transformers(all_attributes=True).itertuples():
            star, label = f"star of {trafo.Index}", f"{trafo.name or trafo.Index} (star)"
            buses.add(star, trafo.voltage_level1_id, trafo.rated_u0, label)
            for leg in "123":
                self._winding(("trafo3w", trafo), (_open(trafo, leg), star), leg)
        for line in network.get_boundary_lines(all_attributes=True).itertuples():
            point = f"boundary of {line.tie_line_id if line.paired else line.Index}"
            label, level = f"{line.name or line.Index} (boundary)", line.voltage_level_id
            buses.add(point, level, buses.levels.loc[level]["nominal_v"], label)
            ends, shunts = (_open(line, ""), point), (complex(line.g, line.b), 0j)
            self._add(("boundary line", line), ends, complex(line.r, line.x), shunts)

    def _winding(self, element: tuple[str, Any], ends: tuple[str, str], leg: str = "") -> None:
        """Add a transformer, or a leg of one, at its present tap position."""
        r, x, g, b = (getattr(element[1], f"{name}{leg}_at_current_tap") for name in "rxgb")
        rho, alpha = (getattr(element[1], f"{name}{leg}") for name in ("rho", "alpha"))
        ratio = rho * np.exp(1j * alpha)
        self._add(element, ends, complex(r, x), (complex(g, b), 0j), ratio, leg)

    def _add(
        self,
        element: tuple[str, Any],
        keys: tuple[str, str],
        z: complex,
        shunts: tuple[complex, complex],
        ratio: complex = 1.0,
        leg: str = "",
    ) -> None:
        """Add a branch: the ideal transformer at its near end, then a shunt, z, and a shunt.

        ``keys`` are those of the buses at its ends; empty where an end is open.
        """
        ends = self.buses.at.get(keys[0], -1), self.buses.at.get(keys[1], -1)
        (y_from, y_to), tap = shunts, 1.0 / abs(ratio)
        row = np.zeros(mpc.ANGMAX + 1)
        if min(ends) >= 0:
            negligible = abs(z) < NEGLIGIBLE
            if negligible and abs(ratio - 1.0) < NEGLIGIBLE:
                self.buses.join(*ends)
                self.joined += 1
            else:
                row[mpc.BR_STATUS] = 1.0
            z = 1j * NEGLIGIBLE if negligible else z
            b = 2.0 * y_to.imag
            row[[mpc.BR_R, mpc.BR_X, mpc.BR_B]] = z.real, z.imag, b * row[mpc.BR_STATUS]
            half = 0.5j * row[mpc.BR_B]
            self.buses.every[ends[0]].shunt += (y_from - half) / tap**2
            self.buses.every[ends[1]].shunt += y_to - half
        elif ends[0] >= 0:
            self.buses.every[ends[0]].shunt += (y_from + _behind(z, y_to)) / tap**2
        elif ends[1] >= 0:
            self.buses.every[ends[1]].shunt += y_to + _behind(z, y_from)
        row[mpc.TAP], row[mpc.SHIFT] = tap, -np.rad2deg(np.angle(ratio))
        row[mpc.RATE_A : mpc.RATE_C + 1] = self.ratings.get((element[1].Index, leg), (0.0,) * 3)
        self.append(element, row, ends, leg)

    def table(self) -> Floats:
        """Return MATPOWER's branch table; an open end is given the first bus, out of service."""
        table = self.numbered(mpc.ANGMAX + 1, (mpc.F_BUS, mpc.T_BUS))
        table[:, mpc.BR_STATUS] *= table[:, mpc.F_BUS] != table[:, mpc.T_BUS]
        return table


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


def _open(element: Any, side: str) -> str:
    """Return the bus of a branch end, empty where it is open."""
    connected = getattr(element, f"connected{side}")
    return str(getattr(element, f"bus{side}_id")) if connected else ""


def _behind(z: complex, y: complex) -> complex:
    """Return the admittance of a shunt behind a series impedance."""
    return y / (1.0 + z * y) if y else 0j


def _ratings(limits: pd.DataFrame) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Return permanent, longest temporary and largest rating in MVA by element and leg.

    A current limit is converted at nominal voltage, an active power limit is used as apparent
    power, and the smaller rating of two ends applies.
    """
    rows = limits.reset_index()
    if not len(rows):
        return {}
    rows = rows[rows["selected"] & (rows["value"].abs() < UNSET) & (rows["value"] > 0)]
    three = rows["element_type"] == "THREE_WINDINGS_TRANSFORMER"
    legs = rows["side"].map({"ONE": "1", "TWO": "2", "THREE": "3"}).where(three, "")
    rated: dict[tuple[str, str], list[float]] = {}
    for (element, leg, _, _), some in rows.groupby([rows["element_id"], legs, "side", "type"]):
        lasting = some["acceptable_duration"]
        steady = some.loc[lasting == PERMANENT, "value"].min()
        brief = some[lasting != PERMANENT].sort_values("acceptable_duration")["value"]
        values = [steady, brief.iloc[-1], brief.max()] if len(brief) else [steady] + [np.nan] * 2
        ratings = rated.setdefault((element, leg), [np.nan] * 3)
        ratings[:] = np.fmin(ratings, values)
    return {key: tuple(BASE_MVA * np.nan_to_num(ratings)) for key, ratings in rated.items()}


class Injections(Elements):
    """Rows of the generator table; demand and shunts are added to the buses."""

    def __init__(self, network: PowsyblNetwork, buses: Buses) -> None:
        super().__init__(network, buses)
        self.loads: dict[int, list[str]] = {}
        self.remote = 0
        self.voltage: pd.Series[float] | None = None
        for shunt in network.get_shunt_compensators(all_attributes=True).itertuples():
            if (bus := self._bus(shunt)) >= 0:
                buses.every[bus].shunt += shunt.g + 1j * shunt.b
        for load in network.get_loads(all_attributes=True).itertuples():
            if (bus := self._bus(load)) >= 0:
                self._demand(bus, load.p0, load.q0)
                self.loads.setdefault(bus, []).append(load.Index)
        for battery in network.get_batteries(all_attributes=True).itertuples():
            self._demand(self._bus(battery), -battery.target_p, -battery.target_q)
        self._generators()
        self._boundaries()
        self._hvdc()
        self._static_var()

    def _bus(self, element: Any) -> int:
        """Return the bus of an element; -1 where it is not connected."""
        return self.buses.at.get(element.bus_id, -1) if element.connected else -1

    def _demand(self, bus: int, p: float, q: float) -> None:
        if bus >= 0:
            self.buses.every[bus].demand += complex(p, q)

    def _add(
        self,
        element: tuple[str, Any],
        bus: int,
        p: tuple[float, float, float],
        q: tuple[float, float],
        vm: float,
    ) -> None:
        """Add a generator with its output and limits (p, least, most; least and most q)."""
        row = np.zeros(mpc.GEN_COLUMNS)
        power = [BASE_MVA * _endless(value) for value in (*p, *q)]
        row[[mpc.PG, mpc.PMIN, mpc.PMAX, mpc.QMIN, mpc.QMAX]] = power
        row[mpc.VG] = vm if vm > 0 else 1.0
        row[mpc.GEN_STATUS] = float(bus >= 0)
        self.append(element, row, (bus,))

    def _generators(self) -> None:
        for gen in self.network.get_generators(all_attributes=True).itertuples():
            bus = self._bus(gen)
            q = gen.min_q_at_target_p, gen.max_q_at_target_p
            vm = 1.0
            if gen.voltage_regulator_on and bus >= 0:
                vm = self._set_point(gen, bus)
            else:
                q = (_known(gen.target_q),) * 2
            self._add(("generator", gen), bus, (gen.target_p, gen.min_p, gen.max_p), q, vm)

    def _set_point(self, gen: Any, bus: int) -> float:
        """Return the voltage set point of a generator at its own bus.

        If it regulates another bus, it is the voltage of its own bus in PowSyBl's load flow.
        """
        if gen.regulated_bus_id in ("", self.buses.every[bus].key):
            return float(gen.target_v)
        self.remote += 1
        local = getattr(gen, "equivalent_local_target_v", np.nan)
        if local > 0:
            return float(local)
        if self.voltage is None:
            self.voltage = _solved(self.network)
        solved = self.voltage.get(self.buses.every[bus].key, np.nan)
        stated = self.buses.every[bus].vm
        return float(next((v for v in (solved, stated) if v > 0), gen.target_v))

    def _boundaries(self) -> None:
        """Add demand and generation at boundary points; a tie line has none."""
        generation = self.network.get_boundary_lines_generation(all_attributes=True)
        for line in self.network.get_boundary_lines(all_attributes=True).itertuples():
            bus = self.buses.at.get(f"boundary of {line.Index}", -1)
            if line.paired or not line.connected or bus < 0:
                continue
            self._demand(bus, line.p0, line.q0)
            if line.Index in generation.index:
                unit = generation.loc[line.Index]
                if unit["voltage_regulator_on"]:
                    p = unit["target_p"], unit["min_p"], unit["max_p"]
                    limits = -np.inf, np.inf
                    self._add(("boundary line", line), bus, p, limits, unit["target_v"])
                else:
                    self._demand(bus, -unit["target_p"], -_known(unit["target_q"]))

    def _hvdc(self) -> None:
        """Add converter stations: at their set points, with voltage control where they have it."""
        power = _converter_power(self.network)
        for station in self.network.get_vsc_converter_stations(all_attributes=True).itertuples():
            bus, p = self._bus(station), power.get(station.Index, 0.0)
            if station.voltage_regulator_on:
                q = station.min_q_at_target_p, station.max_q_at_target_p
                vm = self._set_point(station, bus) if bus >= 0 else 1.0
                self._add(("converter", station), bus, (-p, -p, -p), q, vm)
            else:
                self._demand(bus, p, -_known(station.target_q))
        for station in self.network.get_lcc_converter_stations(all_attributes=True).itertuples():
            p = power.get(station.Index, 0.0)
            factor = abs(station.power_factor) or 1.0
            self._demand(self._bus(station), p, abs(p) * np.sqrt(max(factor**-2 - 1.0, 0.0)))

    def _static_var(self) -> None:
        """Add static var compensators: with voltage control as a generator of reactive power."""
        frame = self.network.get_static_var_compensators(all_attributes=True)
        for svc in frame.itertuples():
            bus, running = self._bus(svc), svc.regulating
            if running and svc.regulation_mode == "VOLTAGE":
                vm = self._set_point(svc, bus) if bus >= 0 else 1.0
                q = svc.b_min * vm**2, svc.b_max * vm**2
                self._add(("svc", svc), bus, (0.0, 0.0, 0.0), q, vm)
            elif running:
                self._demand(bus, 0.0, -_known(svc.target_q))

    def table(self) -> Floats:
        """Return MATPOWER's generator table."""
        return self.numbered(mpc.GEN_COLUMNS, (mpc.GEN_BUS,))


def _endless(value: float) -> float:
    """Return a limit, infinite where PowSyBl has the largest double."""
    return float(np.copysign(np.inf, value)) if abs(value) >= UNSET else float(value)


def _known(value: float) -> float:
    return 0.0 if np.isnan(value) else float(value)


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
    base_mva: float = BASE_MVA


def network_tables(network: PowsyblNetwork) -> PowsyblTables:
    """Return the tables of a network, which is not changed."""
    with in_per_unit(network):
        buses = Buses(network)
        branches = Branches(network, buses)
        gens = Injections(network, buses)
        notes = network_notes(network, branches.joined, gens.remote)
        names, loads = buses.named(), buses.by_number(gens.loads)
        tables = buses.table(), branches.table(), gens.table()
        sources = SourceNames(names, tuple(branches.names), tuple(gens.names))
        ids = branches.ids, gens.ids
        return PowsyblTables(*tables, sources, buses.groups(), notes, *ids, loads)


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
