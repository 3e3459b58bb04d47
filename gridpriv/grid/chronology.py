"""Storage, ramps, reserves and commitment, which couple the steps of a series; from CSV files.

All of it is public: equipment and market data, no demand.

- ``name,bus,p_mw,energy_mwh`` and, optional, ``charge_mw`` (default: p_mw),
  ``efficiency_charge``, ``efficiency_discharge`` (1), ``loss_percent_per_hour`` (0),
  ``soc_percent`` (50), ``end_soc_percent`` (default: soc_percent), ``q_mvar`` (0): storage;
- ``gen,up_mw_per_hour,down_mw_per_hour``: ramps of generators, by row of the source;
- ``gen,start_cost,min_up_hours,min_down_hours``: generators that a commitment may let stand still;
- ``gen,up_mw,down_mw`` and, optional, ``up_price,down_price`` ($/MWh): what generators can hold in
  reserve; the row of gen ``required`` is what all zones together hold in every step.

Storage is also read from MOST's storage files and from a pandapower net (JSON), and ramps from a
MATPOWER file, where the case is of that net or file (:mod:`gridpriv.grid.source_equipment`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.grid import source_equipment
from gridpriv.grid.case import POLYNOMIAL, Case, GenCost
from gridpriv.grid.tables import CsvRows

REQUIRED = "required"


@dataclass(frozen=True)
class Storage:
    """A storage; power in p.u., energy in p.u. hours.

    Attributes
    ----------
    gen : int
        Index of the generator that stands for it.
    charge, discharge : float
        Largest power into and out of it.
    charge_efficiency, discharge_efficiency : float
    loss : float
        Share of its energy that is lost per hour.
    start, end : float
        Energy before the first step, and the least after the last.
    """

    name: str
    gen: int
    charge: float
    discharge: float
    energy: float
    charge_efficiency: float
    discharge_efficiency: float
    loss: float
    start: float
    end: float

    def most_at_end(self, steps: int, hours: float) -> float:
        """Return the energy after so many steps of charging at full power."""
        energy, kept = self.start, 1.0 - self.loss * hours
        for _ in range(steps):
            energy = min(self.energy, kept * energy + hours * self.charge_efficiency * self.charge)
        return energy


@dataclass(frozen=True)
class Switch:
    """A generator that may stand still.

    Attributes
    ----------
    gen : int
        Index in the case.
    start_cost : float
        $ per start.
    min_up, min_down : float
        Least hours of running, and of standing still.
    """

    gen: int
    start_cost: float
    min_up: float
    min_down: float


@dataclass(frozen=True, eq=False)
class Chronology:
    """Coupling of the steps of a case: ramps, storage, reserves; power per unit.

    Attributes
    ----------
    hours : float
        Length of a step.
    storages : tuple of Storage
    ramp_up, ramp_down : (g,)
        Largest change of output per hour; inf without a limit.
    reserve_most, reserve_price : (2, g)
        Reserve that generators can hold, up and down, and its price in $/MWh.
    reserve_required : (2, T)
        Reserve of all zones together, up and down.
    switches : tuple of Switch
        Generators that a commitment may let stand still.
    before : (g,), optional
        Output before the first step, which ramps are counted from; without it the first is free.
    """

    hours: float
    storages: tuple[Storage, ...]
    ramp_up: Floats
    ramp_down: Floats
    reserve_most: Floats
    reserve_price: Floats
    reserve_required: Floats
    switches: tuple[Switch, ...] = ()
    before: Floats | None = None

    @staticmethod
    def of(
        case: Case,
        storages: Sequence[Storage] = (),
        *,
        steps: int,
        hours: float = 1.0,
        ramps: str | Path | None = None,
        reserves: str | Path | None = None,
        switches: str | Path | None = None,
    ) -> Chronology:
        """Return the chronology of a case (with its storages) from files.

        Raises
        ------
        InputError
            With the line, for an unknown generator or a negative figure; for a storage that
            cannot reach its end condition.
        """
        if not (np.isfinite(hours) and hours > 0):
            raise not_allowed("step_hours", hours, "a positive number of hours")
        for storage in storages:
            _check_end(case, storage, steps, hours)
        up, down = np.full((2, case.n_gen), np.inf)
        if ramps is not None:
            up, down = _read_ramps(case, Path(ramps))
        most, price = np.zeros((2, 2, case.n_gen))
        needed = np.zeros(2)
        if reserves is not None:
            most, price, needed = _read_reserves(case, Path(reserves))
        return Chronology(
            hours,
            tuple(storages),
            up,
            down,
            most,
            price,
            np.tile(needed[:, None], steps),
            () if switches is None else _read_switches(case, Path(switches)),
        )

    @property
    def empty(self) -> bool:
        """True if nothing couples the steps."""
        bounded = np.isfinite(self.ramp_up).any() or np.isfinite(self.ramp_down).any()
        return not (self.storages or self.switches or bounded or self.reserve_required.any())

    def later(self, energy: Floats, before: Floats | None, ramps: float, steps: int) -> Chronology:
        """Return the chronology of some steps from a state on.

        Parameters
        ----------
        energy : (storages,)
            Energy before them, p.u. hours.
        before : (g,) or None
            Output before them.
        ramps : float
            Share of the ramps that may be planned.
        steps : int
        """
        current = zip(self.storages, energy.tolist(), strict=True)
        return replace(
            self,
            storages=tuple(replace(item, start=level) for item, level in current),
            ramp_up=ramps * self.ramp_up,
            ramp_down=ramps * self.ramp_down,
            reserve_required=self.reserve_required[:, :steps],
            before=before,
        )


def _check_end(case: Case, storage: Storage, steps: int, hours: float) -> None:
    most = storage.most_at_end(steps, hours)
    if most < storage.end - 1e-9:
        base = case.base_mva
        raise InputError(
            f"storage {storage.name}: its end condition of {base * storage.end:.6g} MWh cannot be "
            f"met: charging at full power for {steps} steps of {hours:g} h from "
            f"{base * storage.start:.6g} MWh reaches {base * most:.6g} MWh. Lower end_soc_percent."
        )


def with_storage(case: Case, path: str | Path) -> tuple[Case, tuple[Storage, ...]]:
    """Return the case with a generator for every storage of a file, and the storages.

    Parameters
    ----------
    case : Case
    path : str or path
        A storage list, a storage file of MOST (``.m``), or the pandapower JSON that the case is
        of: its ``storage`` table, whose set points are then no demand any more.

    Raises
    ------
    InputError
        With the line, for an unknown bus, a repeated name, or a figure that is not allowed.
    """
    source = Path(path)
    if source.suffix.lower() == ".json":
        case, entries = source_equipment.net_storages(case, source)
    elif source.suffix.lower() == ".m":
        entries = source_equipment.most_storages(case, source)
    else:
        entries = list(_storage_rows(case, source))
    if not entries:
        raise InputError(f"storage list {source} lists no storage: give one row per storage")
    made = tuple(_storage(case, number, entry) for number, entry in enumerate(entries))
    buses = np.array([case.index_of[entry.bus] for entry in entries])
    reactive = np.array([entry.value["q_mvar"] for entry in entries]) / case.base_mva
    return _with_generators(case, made, buses, reactive), made


def _storage_rows(case: Case, path: Path) -> Iterator[source_equipment.StorageEntry]:
    """Yield the rows of a storage list."""
    needed = ("name", "bus", "p_mw", "energy_mwh")
    rows = CsvRows(path, "storage list", (needed, ()), (needed, tuple(source_equipment.OPTIONS)))
    seen: dict[str, int] = {}
    for line, row in rows:
        name = rows.name(row, "name", line)
        rows.once(seen, name, line, "storage")
        bus = rows.bus(row, line, case)[1]
        value = {key: rows.number(row, key, line) for key in ("p_mw", "energy_mwh")}
        for key, default in source_equipment.OPTIONS.items():
            value[key] = rows.number(row, key, line) if row.get(key, "").strip() else default
        for key, allowed in source_equipment.not_in_range(value):
            raise rows.error(line, key, row.get(key, ""), allowed)
        yield source_equipment.StorageEntry(name, bus, value)


def _storage(case: Case, number: int, entry: source_equipment.StorageEntry) -> Storage:
    """Return a storage of a list, whose generator is one beyond those of the case."""
    value, base = entry.value, case.base_mva
    charge = value["p_mw"] if np.isnan(value["charge_mw"]) else value["charge_mw"]
    soc, end = value["soc_percent"], value["end_soc_percent"]
    full = value["energy_mwh"] / base
    return Storage(
        entry.name,
        case.n_gen + number,
        charge / base,
        value["p_mw"] / base,
        full,
        value["efficiency_charge"],
        value["efficiency_discharge"],
        value["loss_percent_per_hour"] / 100,
        soc / 100 * full,
        (soc if np.isnan(end) else end) / 100 * full,
    )


def _with_generators(
    case: Case, storages: Sequence[Storage], buses: np.ndarray, reactive: Floats
) -> Case:
    """Return the case with a generator without cost for every storage."""
    count = len(storages)
    first = int(case.gen_row.max(initial=0)) + 1

    def grown(name: str, values: object) -> np.ndarray:
        return np.concatenate([getattr(case, name), np.broadcast_to(np.asarray(values), count)])

    free = GenCost(POLYNOMIAL, (0.0, 0.0))
    return replace(
        case,
        gen_bus=grown("gen_bus", buses).astype(np.int64),
        pmin=grown("pmin", [-s.charge for s in storages]),
        pmax=grown("pmax", [s.discharge for s in storages]),
        qmin=grown("qmin", -reactive),
        qmax=grown("qmax", reactive),
        vg=grown("vg", case.vm[buses]),
        pg=grown("pg", 0.0),
        gen_row=grown("gen_row", first + np.arange(count)).astype(np.int64),
        cost=(*case.cost, *([free] * count)) if case.cost else (),
    )


def _by_generator(
    case: Case, rows: CsvRows, amounts: tuple[str, ...], others: tuple[str, ...] = ()
) -> Iterator[tuple[int, Floats]]:
    """Yield the generator and the figures of every row; -1 for the row of :data:`REQUIRED`.

    Parameters
    ----------
    amounts : tuple of str
        Columns that must be 0 or more.
    others : tuple of str
        Optional columns of any number; 0 where they are empty.
    """
    seen: dict[str, int] = {}
    for line, row in rows:
        text = row["gen"].strip()
        at = np.flatnonzero(case.gen_row == (int(text) if text.isdecimal() else -1)).tolist()
        if not at and not (text == REQUIRED and others):
            allowed = f"a generator row in service, 1 to {case.gen_row.max()}"
            raise rows.error(line, "gen", text, allowed)
        rows.once(seen, text, line, "gen")
        values = [rows.number(row, key, line) for key in amounts]
        for key, value in zip(amounts, values, strict=True):
            if value < 0:
                raise rows.error(line, key, row[key], "0 or more")
        values += [rows.number(row, key, line) if row.get(key, "") else 0.0 for key in others]
        yield (at or [-1])[0], np.array(values)
    if not seen:
        raise InputError(f"{rows.label} names no generator: give one row per generator")


def _read_ramps(case: Case, path: Path) -> Floats:
    """Return the ramps of every generator, up and down, p.u. per hour: (2, g)."""
    if path.suffix.lower() in (".m", ".mat"):
        return np.stack([source_equipment.source_ramps(case, path)] * 2)
    keys = ("up_mw_per_hour", "down_mw_per_hour")
    ramps = np.full((2, case.n_gen), np.inf)
    for g, values in _by_generator(case, CsvRows(path, "ramp list", (("gen", *keys), ())), keys):
        ramps[:, g] = values / case.base_mva
    return ramps


def _read_reserves(case: Case, path: Path) -> tuple[Floats, Floats, Floats]:
    """Return reserve that generators can hold (2, g), its price (2, g), the requirement (2,)."""
    amounts, prices = ("up_mw", "down_mw"), ("up_price", "down_price")
    needed = ("gen", *amounts)
    rows = CsvRows(path, "reserve list", (needed, ()), (needed, prices))
    most, price, required = *np.zeros((2, 2, case.n_gen)), None
    for g, values in _by_generator(case, rows, amounts, prices):
        if g < 0:
            required = values[:2] / case.base_mva
        else:
            most[:, g], price[:, g] = values[:2] / case.base_mva, values[2:]
    if required is None:
        raise InputError(
            f"{rows.label} has no row of gen {REQUIRED}: what all zones hold together; add it"
        )
    return most, price, required


def _read_switches(case: Case, path: Path) -> tuple[Switch, ...]:
    keys = ("start_cost", "min_up_hours", "min_down_hours")
    rows = CsvRows(path, "commitment list", (("gen", *keys), ()))
    return tuple(Switch(g, *values.tolist()) for g, values in _by_generator(case, rows, keys))
