"""Storage, ramps, reserves and commitment, which couple the steps of a series.

All of them are read from CSV files; storage also from MOST's storage files and from a pandapower
net (JSON), and ramps from a MATPOWER file, where the case is of that net or file. All of it is
public: equipment and market data, no demand.

- ``name,bus,p_mw,energy_mwh`` and, optional, ``charge_mw`` (default: p_mw),
  ``efficiency_charge``, ``efficiency_discharge`` (1), ``loss_percent_per_hour`` (0),
  ``soc_percent`` (50), ``end_soc_percent`` (default: soc_percent), ``q_mvar`` (0): storage;
- ``gen,up_mw_per_hour,down_mw_per_hour``: ramps of generators, by row of the source;
- ``gen,start_cost,min_up_hours,min_down_hours``: generators that a commitment may switch off;
- ``gen,up_mw,down_mw`` and, optional, ``up_price,down_price`` ($/MWh): largest reserve of
  generators; the row of gen ``required`` is the reserve of all zones together in every step.

Case files have, in addition to the model of one step:

- pandapower's ``storage``: ``max_p_mw`` and ``min_p_mw`` (charging is positive; without them the
  set point ``p_mw``), ``max_e_mwh``, ``min_e_mwh``, ``soc_percent``, ``min_q_mvar`` and
  ``max_q_mvar``. The table has no efficiencies: 1.
- MOST's storage file (``.m``): ``storage.gen`` (bus, limits) and ``storage.sd_table``, of which
  InitialStorage, MinStorageLevel, MaxStorageLevel, OutEff, InEff and LossFactor are read. Losses
  compound here; in MOST they are those of the mean level of a step.
- MATPOWER's ``gen``: ``RAMP_30`` in MW per 30 minutes, where it is 0 ``RAMP_10`` (MW per 10
  minutes) or else ``RAMP_AGC`` (MW per minute); 0 is no limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, excerpt, not_allowed
from gridpriv.core.files import LARGEST, read_text
from gridpriv.grid.case import POLYNOMIAL, Case, GenCost
from gridpriv.grid.matlab import Arithmetic, WrongError
from gridpriv.grid.tables import CsvRows, shipped_rows

REQUIRED = "required"


@dataclass(frozen=True)
class Storage:
    """A storage; power in p.u., energy in p.u. hours.

    Attributes
    ----------
    gen : int
        Index of the generator that represents it.
    charge, discharge : float
        Largest power into and out of it.
    charge_efficiency, discharge_efficiency : float
    loss : float
        Share of its energy that is lost per hour.
    start, end : float
        Energy before the first step, and the least after the last.
    floor : float
        Energy that always stays in it; the other energies are above it.
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
    floor: float = 0.0

    def retention(self, hours: float) -> float:
        """Return the share of its energy that is left after so many hours."""
        return float((1.0 - self.loss) ** hours)

    def max_final_energy(self, steps: int, hours: float) -> float:
        """Return the energy after so many steps of charging at full power."""
        energy, retention = self.start, self.retention(hours)
        for _ in range(steps):
            energy = min(
                self.energy, retention * energy + hours * self.charge_efficiency * self.charge
            )
        return energy


@dataclass(frozen=True)
class CommittableGenerator:
    """A generator that may be switched off.

    Attributes
    ----------
    gen : int
        Index in the case.
    start_cost : float
        $ per start.
    min_up, min_down : float
        Minimum up and down times in hours.
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
        Largest reserve of generators, up and down, and its price in $/MWh.
    reserve_required : (2, T)
        Reserve of all zones together, up and down.
    switches : tuple of CommittableGenerator
        Generators that a commitment may switch off.
    before : (g,), optional
        Output before the first step, for its ramps; without it the first step has none.
    """

    hours: float
    storages: tuple[Storage, ...]
    ramp_up: Floats
    ramp_down: Floats
    reserve_most: Floats
    reserve_price: Floats
    reserve_required: Floats
    switches: tuple[CommittableGenerator, ...] = ()
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
            With the line, for an unknown generator or a negative value; for a storage that
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
    def coupled(self) -> tuple[str, ...]:
        """Names of the inputs that couple the steps."""
        bounded = np.isfinite(self.ramp_up).any() or np.isfinite(self.ramp_down).any()
        present = {
            "storage": bool(self.storages),
            "ramps": bool(bounded),
            "reserves": bool(self.reserve_required.any()),
            "commitment": bool(self.switches),
        }
        return tuple(name for name, here in present.items() if here)

    @property
    def empty(self) -> bool:
        """True if the steps are not coupled."""
        return not self.coupled

    def later(self, energy: Floats, before: Floats | None, ramps: float, steps: int) -> Chronology:
        """Return the chronology of some steps from a state on.

        Parameters
        ----------
        energy : (storages,)
            Energy before these steps, p.u. hours.
        before : (g,) or None
            Output before these steps.
        ramps : float
            Share of the ramps for the plan.
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
    most = storage.max_final_energy(steps, hours)
    if most < storage.end - 1e-9:
        levels = (storage.floor + level for level in (storage.end, storage.start, most))
        end, start, reached = (f"{case.base_mva * level:.6g} MWh" for level in levels)
        raise InputError(
            f"storage {storage.name}: its end condition of {end} cannot be met: charging at full "
            f"power for {steps} steps of {hours:g} h from {start} reaches {reached}. "
            "Lower end_soc_percent."
        )


def with_storage(case: Case, path: str | Path) -> tuple[Case, tuple[Storage, ...]]:
    """Return the case with a generator for every storage of a file, and the storages.

    Parameters
    ----------
    case : Case
    path : str or path
        A storage list, a storage file of MOST (``.m``), or the pandapower JSON of the case: its
        ``storage`` table, whose set points are then not part of demand.

    Raises
    ------
    InputError
        With the line, for an unknown bus, a repeated name, or a value that is not allowed.
    """
    source = Path(path)
    if source.suffix.lower() == ".json":
        case, entries = net_storages(case, source)
    elif source.suffix.lower() == ".m":
        entries = most_storages(case, source)
    else:
        entries = list(_storage_rows(case, source))
    if not entries:
        raise InputError(f"storage list {source} lists no storage: give one row per storage")
    storages = tuple(_storage(case, number, entry) for number, entry in enumerate(entries))
    buses = np.array([case.index_of[entry.bus] for entry in entries])
    reactive = np.array([entry.value["q_mvar"] for entry in entries]) / case.base_mva
    return _with_generators(case, storages, buses, reactive), storages


def _storage_rows(case: Case, path: Path) -> Iterator[StorageEntry]:
    """Yield the rows of a storage list."""
    needed = ("name", "bus", "p_mw", "energy_mwh")
    rows = CsvRows(path, "storage list", (needed, ()), (needed, tuple(OPTIONS)))
    first_line: dict[str, int] = {}
    for row in rows:
        name = row.name("name")
        row.once(first_line, name, "storage")
        bus = int(case.bus_id[row.bus(case)[0]])
        value = {key: row.number(key) for key in ("p_mw", "energy_mwh")}
        for key, default in OPTIONS.items():
            value[key] = row.number(key) if row.get(key) else default
        for key, allowed in not_in_range(value):
            raise row.error(key, allowed)
        yield StorageEntry(name, bus, value)


def _storage(case: Case, number: int, entry: StorageEntry) -> Storage:
    """Return a storage of a list; its generator comes after those of the case."""
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
        entry.floor_mwh / base,
    )


def _with_generators(
    case: Case, storages: Sequence[Storage], buses: np.ndarray, reactive: Floats
) -> Case:
    """Return the case with a generator without cost for every storage."""
    count = len(storages)
    first = int(case.gen_row.max(initial=0)) + 1

    def grown(name: str, values: object) -> np.ndarray:
        return np.concatenate([getattr(case, name), np.broadcast_to(np.asarray(values), count)])

    following = None if case.following is None else grown("following", False)
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
        following=following,
    )


def _by_generator(
    case: Case, rows: CsvRows, amounts: tuple[str, ...], optional_columns: tuple[str, ...] = ()
) -> Iterator[tuple[int, Floats]]:
    """Yield the generator and the values of every row; -1 for the row of :data:`REQUIRED`.

    Parameters
    ----------
    amounts : tuple of str
        Columns that must be 0 or more.
    optional_columns : tuple of str
        Optional columns of any number; 0 where they are empty.
    """
    first_line: dict[str, int] = {}
    for row in rows:
        text = row["gen"]
        number = int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else -1
        at = np.flatnonzero(case.gen_row == number).tolist()
        if not at and not (text == REQUIRED and optional_columns):
            raise row.error("gen", f"a generator row in service, 1 to {case.gen_row.max()}")
        row.once(first_line, str(number) if at else text, "gen")
        values = [row.number(key) for key in amounts]
        for key, value in zip(amounts, values, strict=True):
            if value < 0:
                raise row.error(key, "0 or more")
        values += [row.number(key) if row.get(key) else 0.0 for key in optional_columns]
        yield (at or [-1])[0], np.array(values)
    if not first_line:
        raise InputError(f"{rows.label} names no generator: give one row per generator")


def _read_ramps(case: Case, path: Path) -> Floats:
    """Return the ramps of every generator, up and down, p.u. per hour: (2, g)."""
    if path.suffix.lower() in (".m", ".mat"):
        return np.stack([source_ramps(case, path)] * 2)
    keys = ("up_mw_per_hour", "down_mw_per_hour")
    ramps = np.full((2, case.n_gen), np.inf)
    for g, values in _by_generator(case, CsvRows(path, "ramp list", (("gen", *keys), ())), keys):
        ramps[:, g] = values / case.base_mva
    return ramps


def _read_reserves(case: Case, path: Path) -> tuple[Floats, Floats, Floats]:
    """Return the largest reserves of generators (2, g), prices (2, g) and the requirement (2,)."""
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
    for name, need, offered in zip(amounts, required, most.sum(axis=1), strict=True):
        if need > offered:
            raise InputError(
                f"{rows.label}: gen {REQUIRED}: {name} = {case.base_mva * need:g}: must be at "
                f"most {case.base_mva * offered:g}, the sum over the generators of the list"
            )
    return most, price, required


def _read_switches(case: Case, path: Path) -> tuple[CommittableGenerator, ...]:
    keys = ("start_cost", "min_up_hours", "min_down_hours")
    rows = CsvRows(path, "commitment list", (("gen", *keys), ()))
    return tuple(
        CommittableGenerator(g, *values.tolist()) for g, values in _by_generator(case, rows, keys)
    )


COLUMNS = shipped_rows("storage.csv")
OPTIONS = {row["column"]: float(row["list"]) for row in COLUMNS if row["list"]}
"""Columns of a storage list that may be missing, and their defaults."""
RANGES = {
    row["column"]: (float(row["least"]), float(row["most"])) for row in COLUMNS if row["most"]
}
"""Allowed values."""
NET_COLUMNS = {row["column"]: float(row["net"]) for row in COLUMNS if row["net"]}
"""Columns of pandapower's ``storage``, and their defaults."""
MOST_LEVELS = ("InitialStorage", "MinStorageLevel", "MaxStorageLevel")
_COMMENT = re.compile(r"[%#][^\r\n]*")
_ASSIGNED = re.compile(r"^\s*([a-zA-Z][\w.]*)\s*=\s*(\[[^\]]*\]|\{[^}]*\}|[^;\n]*)", re.MULTILINE)
RAMPS = ((18, 2.0), (17, 6.0), (16, 60.0))
"""Columns of MATPOWER's gen with ramps, and the number of their periods in an hour."""


@dataclass(frozen=True)
class StorageEntry:
    """A row of a storage list: name, number of the bus, and values in MW, MWh and percent.

    ``floor_mwh`` is the energy that stays in it; the values are above it.
    """

    name: str
    bus: int
    value: Mapping[str, float]
    floor_mwh: float = 0.0


def not_in_range(value: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield the invalid values of a storage, and the allowed ones."""
    for key, number in value.items():
        low, high = RANGES[key]
        if not np.isnan(number) and not (low <= number <= high and np.isfinite(number)):
            yield key, f"finite, {low:g} or more" if np.isinf(high) else f"{low:g} to {high:g}"


def net_storages(case: Case, path: Path) -> tuple[Case, list[StorageEntry]]:
    """Return the storages in service of a pandapower JSON, and its case without their set points.

    Raises
    ------
    InputError
        If the case is of another file or has another demand, or a row has a repeated name or a
        value that is not allowed.
    """
    from gridpriv.grid.pandapower import convert_net
    from gridpriv.grid.pandapower_json import frame, in_service, open_json, optional

    net = open_json(path)
    own = convert_net(net)
    _check_same_grid(
        case, path, "storage", set(case.bus_id.tolist()) <= set(own.case.bus_id.tolist())
    )
    order = [own.case.index_of[bus] for bus in case.bus_id.tolist()]
    if not all(np.array_equal(getattr(case, d), getattr(own.case, d)[order]) for d in ("pd", "qd")):
        raise InputError(
            f"the set points of net.storage in {path} are part of its own demand, but the case has "
            "another demand. Give the storages as --storage FILE.csv, or leave out --demand."
        )
    rows = frame(net, "storage")[in_service(net, "storage")]
    bus_of = own.link.bus
    in_case = [bus_of.get(int(bus)) in case.index_of for bus in rows.get("bus", ())]
    rows = rows[np.array(in_case, dtype=bool)]
    columns = {name: optional(rows, name, missing) for name, missing in NET_COLUMNS.items()}
    at = np.array([case.index_of[bus_of[int(bus)]] for bus in rows["bus"]], dtype=np.int64)
    pd, qd = case.pd.copy(), case.qd.copy()
    for demand, name in ((pd, "p_mw"), (qd, "q_mvar")):
        np.subtract.at(demand, at, columns[name] * columns["scaling"] / case.base_mva)
    names = [name if isinstance(name, str) else "" for name in rows.get("name", [""] * len(rows))]
    names = [name or f"storage {row}" for name, row in zip(names, rows.index, strict=True)]
    entries: list[StorageEntry] = []
    for k, (row, name) in enumerate(zip(rows.index, names, strict=True)):
        label = f"{path}: net.storage row {row}"
        if name in names[:k]:
            raise InputError(
                f"{label}: name = {name!r} is another row's too: give each storage a name of its "
                "own"
            )
        values = {key: float(column[k]) for key, column in columns.items()}
        checked = _net_storage_values(values, label)
        entries.append(StorageEntry(name, int(case.bus_id[at[k]]), checked, values["min_e_mwh"]))
    fixed = {kind: count for kind, count in case.fixed.items() if kind != "storage unit"}
    return replace(case, pd=pd, qd=qd, fixed=fixed), entries


def _net_storage_values(row: Mapping[str, float], label: str) -> dict[str, float]:
    """Return the values of a storage list for a row of pandapower's ``storage``."""
    power = abs(row["p_mw"] * row["scaling"])
    charge, discharge = row["max_p_mw"], -row["min_p_mw"]
    room = row["max_e_mwh"] - row["min_e_mwh"]
    stored = row["soc_percent"] / 100 * row["max_e_mwh"] - row["min_e_mwh"]
    if np.isnan(room):
        raise InputError(f"{label}: max_e_mwh is missing or no finite number; give its MWh")
    return _allowed(
        {
            "p_mw": power if np.isnan(discharge) else discharge,
            "charge_mw": power if np.isnan(charge) else charge,
            "energy_mwh": room,
            "soc_percent": 100 * stored / room if room > 0 else 0.0,
            "q_mvar": min(row["max_q_mvar"], -row["min_q_mvar"]),
        },
        label,
    )


def _allowed(values: dict[str, float], label: str) -> dict[str, float]:
    """Return the values of a storage, with defaults for missing ones."""
    value = OPTIONS | values
    for key, allowed in not_in_range(value):
        raise InputError(f"{label}: {key} = {value[key]:g}: must be {allowed}")
    return value


def most_storages(case: Case, path: Path) -> list[StorageEntry]:
    """Return the storages in service of a file that MOST reads (``loadstoragedata``).

    The end condition is that of a storage list: no less energy than before the first step.

    Raises
    ------
    InputError
        If the file is not of that form, or a storage is not at a bus of the case.
    """
    text = _COMMENT.sub("", read_text(path, "storage file", LARGEST))
    known, fields = Arithmetic(), {}
    for match in _ASSIGNED.finditer(re.sub(r"\.\.\.[^\n]*\n", " ", text)):
        field, value = match[1], match[2].strip()
        fields[field] = re.findall(r"'(\w+)'", value) if value[:1] == "{" else value
        if "." not in field and value[:1] not in ("[", "{"):
            _evaluate(f"{field} = {value}", known, path)

    def table(name: str) -> list[list[float]]:
        lines = re.split(r"[;\n]", str(fields.get(name, "")).strip("[]"))
        rows = [line.replace(",", " ").split() for line in lines]
        return [[_evaluate(f"cell = {w}", known, path) for w in row] for row in rows if row]

    gens, rows = table("storage.gen"), table("storage.sd_table.data")
    names = list(fields.get("storage.sd_table.colnames", ()))
    same = {len(row) for row in rows} <= {len(names)} and all(len(gen) >= 10 for gen in gens)
    if not gens or len(rows) != len(gens) or not same or not {*MOST_LEVELS} <= {*names}:
        raise InputError(
            f"storage file {path} is none that MOST reads: it needs storage.gen, and as many rows "
            f"of storage.sd_table.data under colnames with {', '.join(MOST_LEVELS)}"
        )
    entries = []
    for number, (gen, row) in enumerate(zip(gens, rows, strict=True), start=1):
        if gen[7] > 0:
            entries.append(_most_entry(case, f"{path}: storage {number}", gen, names, row))
    return entries


def _most_entry(
    case: Case, label: str, gen: list[float], names: list[str], row: list[float]
) -> StorageEntry:
    """Return a storage of MOST's tables: a row of its gen and of its data."""
    data = {"OutEff": 1.0, "InEff": 1.0, "LossFactor": 0.0, **dict(zip(names, row, strict=True))}
    first, least, most = (data[name] for name in MOST_LEVELS)
    room = most - least
    value = {
        "p_mw": gen[8],
        "charge_mw": -gen[9],
        "energy_mwh": room,
        "efficiency_discharge": data["OutEff"],
        "efficiency_charge": data["InEff"],
        "loss_percent_per_hour": 100.0 * data["LossFactor"],
        "soc_percent": 100.0 * (first - least) / room if room > 0 else 0.0,
        "q_mvar": min(gen[3], -gen[4]),
    }
    if gen[0] not in case.index_of:
        raise InputError(f"{label}: bus = {gen[0]:g}: must be a bus in service of {case.name}")
    name = label.rpartition(": ")[2]
    return StorageEntry(name, int(gen[0]), _allowed(value, label), least)


def _evaluate(statement: str, arithmetic: Arithmetic, path: Path) -> float:
    """Return the number that a statement gives its name."""
    name = statement.partition(" ")[0]
    try:
        arithmetic.carry_out(statement)
    except WrongError as error:
        wrong = excerpt(statement.removeprefix("cell = "))
        raise InputError(
            f"storage file {path}: {wrong} is not read ({error}); give numbers"
        ) from None
    return arithmetic.values[name]


def source_ramps(case: Case, path: Path) -> Floats:
    """Return the ramps of a MATPOWER file in p.u. per hour, (g,); inf where it has none.

    Raises
    ------
    InputError
        If the case is of another file, or its ramps are missing or negative.
    """
    from gridpriv.grid.matpower import matpower_tables
    from gridpriv.grid.pypower import mat_tables

    gen = (matpower_tables if path.suffix.lower() == ".m" else mat_tables)(path).gen
    of_source = case.gen_row <= len(gen)  # not storages
    row = case.gen_row[of_source] - 1
    _check_same_grid(
        case, path, "ramps", bool((gen[row, 0] == case.bus_id[case.gen_bus[of_source]]).all())
    )
    ramps, allowed = np.zeros(len(gen)), True
    for column, periods in RAMPS:
        if gen.shape[1] > column:
            allowed &= bool((np.isfinite(gen[row, column]) & (gen[row, column] >= 0)).all())
            ramps = np.where(ramps > 0, ramps, periods * gen[:, column])
    ramp = np.zeros(case.n_gen)
    ramp[of_source] = ramps[row]
    if not allowed or not (ramp > 0).any():
        raise InputError(
            f"{path} has no ramps of the generators of {case.name}: RAMP_30, RAMP_10 or RAMP_AGC "
            "of mpc.gen must be 0 or more, one of them positive. Give --ramps FILE.csv instead."
        )
    return np.where(ramp > 0, ramp / case.base_mva, np.inf)


def _check_same_grid(case: Case, path: Path, quantity: str, matches: bool) -> None:
    """Refuse a file of another grid: of another name, or with other elements."""
    if path.stem != case.name or not matches:
        raise InputError(
            f"{quantity} of {path} belong to its own grid, but the case is {case.name}. Give that "
            "file as the case too, or a CSV file."
        )
