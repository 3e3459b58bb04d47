"""Injections of a pypowsybl network: demand and shunts at buses, and rows of generators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gridpriv.core.arrays import Floats
from gridpriv.grid import tables as mpc
from gridpriv.grid.powsybl_buses import BASE_MVA, UNSET, Buses, PowsyblNetwork, in_per_unit


class Injections:
    """Rows of the generator table; demand and shunts are added to the buses."""

    def __init__(self, network: PowsyblNetwork, buses: Buses) -> None:
        self.buses, self.network = buses, network
        self.rows: list[list[float]] = []
        self.names: list[str] = []
        self.ids: list[tuple[str, str]] = []
        self.loads: dict[int, list[str]] = {}
        self.remote = 0
        self.voltage: pd.Series[float] | None = None
        for shunt in network.get_shunt_compensators(all_attributes=True).itertuples():
            if (bus := self._bus(shunt)) >= 0:
                buses.shunt[bus] += shunt.g + 1j * shunt.b
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
            self.buses.pd[bus] += p
            self.buses.qd[bus] += q

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
        row[mpc.GEN_BUS] = bus
        power = [BASE_MVA * _endless(value) for value in (*p, *q)]
        row[[mpc.PG, mpc.PMIN, mpc.PMAX, mpc.QMIN, mpc.QMAX]] = power
        row[mpc.VG] = vm if vm > 0 else 1.0
        row[mpc.GEN_STATUS] = float(bus >= 0)
        kind, source = element
        self.rows.append(row.tolist())
        self.names.append(str(source.name or source.Index))
        self.ids.append((kind, source.Index))

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
        """Return the voltage that a generator holds at its own bus.

        Where it regulates another bus, it is the voltage of its own in PowSyBl's load flow.
        """
        if gen.regulated_bus_id in ("", self.buses.keys[bus]):
            return float(gen.target_v)
        self.remote += 1
        local = getattr(gen, "equivalent_local_target_v", np.nan)
        if local > 0:
            return float(local)
        if self.voltage is None:
            self.voltage = _solved(self.network)
        solved = self.voltage.get(self.buses.keys[bus], np.nan)
        stated = self.buses.vm[bus]
        return float(next((v for v in (solved, stated) if v > 0), gen.target_v))

    def _boundaries(self) -> None:
        """Add demand and generation at boundary points; a tie line has none."""
        given = self.network.get_boundary_lines_generation(all_attributes=True)
        for line in self.network.get_boundary_lines(all_attributes=True).itertuples():
            bus = self.buses.at.get(f"boundary of {line.Index}", -1)
            if line.paired or not line.connected or bus < 0:
                continue
            self._demand(bus, line.p0, line.q0)
            if line.Index in given.index:
                made = given.loc[line.Index]
                if made["voltage_regulator_on"]:
                    p = made["target_p"], made["min_p"], made["max_p"]
                    limits = -np.inf, np.inf
                    self._add(("boundary line", line), bus, p, limits, made["target_v"])
                else:
                    self._demand(bus, -made["target_p"], -_known(made["target_q"]))

    def _hvdc(self) -> None:
        """Add converter stations: at their set points, voltage held where they regulate it."""
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
        """Add static var compensators: a generator of reactive power where voltage is held."""
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
        numbers = self.buses.numbers()
        first = next(iter(numbers.values()), 0)
        table = np.array(self.rows).reshape(-1, mpc.GEN_COLUMNS)
        for row in table:
            bus = int(row[mpc.GEN_BUS])
            row[mpc.GEN_BUS] = numbers[self.buses.root(bus)] if bus >= 0 else first
        return table


def _endless(value: float) -> float:
    """Return a limit, infinite where PowSyBl states the largest double."""
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
    """Return voltages by PowSyBl's load flow, of a copy: it also writes into properties."""
    from pypowsybl import loadflow
    from pypowsybl.network import load_from_string

    copy = load_from_string("copy.xiidm", network.save_to_string())
    results = loadflow.run_ac(copy)
    with in_per_unit(copy):
        voltages = copy.get_buses()["v_mag"]
    converged = any(result.status.name == "CONVERGED" for result in results)
    return voltages if converged else voltages * np.nan
