"""Buses of a pypowsybl network: of the bus view, star points and boundary points."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.grid import tables as mpc

PowsyblNetwork: TypeAlias = Any
"""pypowsybl's network, which has no static type: the package is optional."""
BASE_MVA = 100.0
UNSET = 1e300
"""PowSyBl states a limit that is not there as the largest double."""
BAND = (0.9, 1.1)
"""p.u.: the band of a voltage level that states none, as for pandapower (EN 50160)."""
NUMBERED = re.compile(r"(?:B|BUS-)([0-9]{1,9})")
"""Identifiers that PowSyBl makes of the bus numbers of IEEE CDF, PSS/E and MATPOWER."""


@contextmanager
def in_per_unit(network: PowsyblNetwork) -> Iterator[None]:
    """Let a network state its quantities per unit of :data:`BASE_MVA` for a while."""
    before = network.per_unit, network.nominal_apparent_power
    network.per_unit, network.nominal_apparent_power = True, BASE_MVA
    try:
        yield
    finally:
        network.per_unit, network.nominal_apparent_power = before


class Buses:
    """The buses: of the bus view first, then the points that are added."""

    def __init__(self, network: PowsyblNetwork) -> None:
        self.levels = network.get_voltage_levels(all_attributes=True)
        view = network.get_buses(all_attributes=True)
        self.keys: list[str] = list(view.index)
        self.level: list[str] = list(view["voltage_level_id"])
        self.vm: list[float] = list(view["v_mag"])
        self.va: list[float] = list(view["v_angle"])
        self.kv: list[float] = list(self.levels["nominal_v"].reindex(self.level))
        self.labels: list[str] = [""] * len(view)
        self.at = {key: i for i, key in enumerate(self.keys)}
        self.same = list(range(len(view)))
        self.pd = [0.0] * len(view)
        self.qd = [0.0] * len(view)
        self.shunt = [0j] * len(view)
        self.reference: set[int] = set()
        self.network = network
        self.inner = network.get_bus_breaker_view_buses(all_attributes=True)
        for bus in network.get_extensions("slackTerminal").get("bus_id", []):
            if bus in self.at:
                self.reference.add(self.at[bus])

    def add(self, key: str, level: str, kv: float, label: str) -> int:
        """Return the index of a point that the bus view lacks."""
        if key not in self.at:
            self.at[key] = len(self.keys)
            self.same.append(len(self.keys))
            self.keys.append(key)
            self.level.append(level)
            self.kv.append(kv)
            self.labels.append(label)
            self.shunt.append(0j)
            for values, value in (
                (self.vm, np.nan),
                (self.va, np.nan),
                (self.pd, 0.0),
                (self.qd, 0.0),
            ):
                values.append(value)
        return self.at[key]

    def root(self, bus: int) -> int:
        """Return the bus that stands for all that are joined to it."""
        while self.same[bus] != bus:
            bus = self.same[bus]
        return bus

    def join(self, first: int, second: int) -> None:
        """Make one bus of two."""
        low, high = sorted((self.root(first), self.root(second)))
        self.same[high] = low

    def numbers(self) -> dict[int, int]:
        """Return the number of every bus that stands for itself: the source's, or 1, 2, ..."""
        given: dict[int, list[int]] = {}
        for key, bus in zip(self.inner.index, self.inner["bus_id"], strict=True):
            match = NUMBERED.fullmatch(key)
            if bus in self.at and match:
                given.setdefault(self.root(self.at[bus]), []).append(int(match[1]))
        roots = [i for i, same in enumerate(self.same) if same == i]
        seen = self.network.get_buses().index
        stated = {i: min(given[i]) for i in roots if i in given}
        complete = all(i in stated or i >= len(seen) for i in roots)
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
            number: self.labels[i] or label.get(i) or self.keys[i]
            for i, number in self.numbers().items()
        }

    def groups(self) -> dict[str, list[str]]:
        """Return country, area and substation of every bus that stands for itself."""
        substation = self.levels["substation_id"]
        country = self.network.get_substations()["country"]
        listed = self.network.get_areas_voltage_levels().reset_index()
        kinds = self.network.get_areas()["area_type"]
        control = (
            "ControlArea" if (kinds == "ControlArea").any() else kinds.min() if len(kinds) else ""
        )
        pairs = zip(listed["id"], listed["voltage_level_id"], strict=True)
        area = {level: name for name, level in pairs if kinds.get(name) == control}
        levels = [self.level[i] for i in self.numbers()]
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
        place = {i: row for row, i in enumerate(numbers)}
        table = np.zeros((len(numbers), mpc.BUS_COLUMNS))
        for i in range(len(self.keys)):
            row = table[place[self.root(i)]]
            row[[mpc.PD, mpc.QD]] += BASE_MVA * np.array([self.pd[i], self.qd[i]])
            row[[mpc.GS, mpc.BS]] += BASE_MVA * np.array([self.shunt[i].real, self.shunt[i].imag])
        low, high = (self.levels[f"{side}_voltage_limit"].to_dict() for side in ("low", "high"))
        for i, row in zip(numbers, table, strict=True):
            band = (low.get(self.level[i], np.nan), high.get(self.level[i], np.nan))
            vm, va = self.vm[i], self.va[i]
            row[mpc.BUS_I] = numbers[i]
            row[mpc.BUS_TYPE] = mpc.REFERENCE if i in map(self.root, self.reference) else 1
            row[mpc.VM], row[mpc.VA] = (
                (vm, np.rad2deg(va)) if vm > 0 and np.isfinite(va) else (1.0, 0.0)
            )
            row[mpc.BASE_KV] = self.kv[i]
            row[mpc.VMIN], row[mpc.VMAX] = (
                given if given >= 0 else default for given, default in zip(band, BAND, strict=True)
            )
        return table
