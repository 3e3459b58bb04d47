"""Storage and ramps that a case file holds beside what the model of one step needs.

- pandapower's ``storage``: ``max_p_mw`` and ``min_p_mw`` (charging is positive; without them the
  set point ``p_mw``), ``max_e_mwh``, ``min_e_mwh``, ``soc_percent``, ``min_q_mvar`` and
  ``max_q_mvar``. The table has no efficiencies: 1.
- MOST's storage file (``.m``): ``storage.gen`` (bus, limits) and ``storage.sd_table``, of which
  InitialStorage, MinStorageLevel, MaxStorageLevel, OutEff, InEff, LossFactor and rho are read.
- MATPOWER's ``gen``: ``RAMP_30`` in MW per 30 minutes, or else ``RAMP_10`` or ``RAMP_AGC`` (MW per
  minute); 0 is no limit. MOST reads the same columns (MOST user's manual, section 3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.core.files import LARGEST, read_text, shown
from gridpriv.grid.case import Case
from gridpriv.grid.matlab import Arithmetic, WrongError

OPTIONS = {
    "charge_mw": np.nan,
    "efficiency_charge": 1.0,
    "efficiency_discharge": 1.0,
    "loss_percent_per_hour": 0.0,
    "soc_percent": 50.0,
    "end_soc_percent": np.nan,
    "q_mvar": 0.0,
}
"""Columns of a storage list that may be missing, and what is taken then."""
RANGES = {
    "efficiency_charge": (1e-3, 1.0),
    "efficiency_discharge": (1e-3, 1.0),
    "loss_percent_per_hour": (0.0, 100.0),
    "soc_percent": (0.0, 100.0),
    "end_soc_percent": (0.0, 100.0),
}
"""Allowed values; the others may be 0 or more."""
NET_COLUMNS = dict.fromkeys(("p_mw", "q_mvar", "min_e_mwh", "max_q_mvar", "min_q_mvar"), 0.0) | {
    "scaling": 1.0,
    "soc_percent": 50.0,
    "max_e_mwh": np.nan,
    "max_p_mw": np.nan,
    "min_p_mw": np.nan,
}
"""Columns of pandapower's ``storage``, and what is taken where one is missing."""
MOST_LEVELS = ("InitialStorage", "MinStorageLevel", "MaxStorageLevel")
_COMMENT = re.compile(r"[%#][^\r\n]*")
_ASSIGNED = re.compile(r"^\s*([a-zA-Z][\w.]*)\s*=\s*(\[[^\]]*\]|\{[^}]*\}|[^;\n]*)", re.MULTILINE)
RAMPS = ((18, 2.0), (17, 6.0), (16, 60.0))
"""Columns of MATPOWER's gen with ramps, and the number of their periods in an hour."""


@dataclass(frozen=True)
class StorageEntry:
    """A row of a storage list: name, number of the bus, and figures in MW, MWh and percent."""

    name: str
    bus: int
    value: Mapping[str, float]


def not_in_range(value: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield the figures of a storage that are not allowed, and what is."""
    for key, number in value.items():
        low, high = RANGES.get(key, (0.0, np.inf))
        if not np.isnan(number) and not (low <= number <= high and np.isfinite(number)):
            yield key, f"finite, {low:g} or more" if np.isinf(high) else f"{low:g} to {high:g}"


def net_storages(case: Case, path: Path) -> tuple[Case, list[StorageEntry]]:
    """Return the storages in service of a pandapower JSON, and its case without their set points.

    Raises
    ------
    InputError
        If the case is of another file or has another demand, or a row has a name that another
        has, or a figure that is not allowed.
    """
    from gridpriv.grid.pandapower import convert_net
    from gridpriv.grid.pandapower_json import frame, in_service, open_json, optional

    net = open_json(path)
    own = convert_net(net)
    _check_same(case, path, "storage", set(case.bus_id.tolist()) <= set(own.case.bus_id.tolist()))
    place = [own.case.index_of[bus] for bus in case.bus_id.tolist()]
    if not all(np.array_equal(getattr(case, d), getattr(own.case, d)[place]) for d in ("pd", "qd")):
        raise InputError(
            f"the set points of net.storage in {path} are part of its own demand, but the case has "
            "another demand. Give the storages as --storage FILE.csv, or leave out --demand."
        )
    rows = frame(net, "storage")[in_service(net, "storage")]
    bus_of = own.link.bus
    kept = [bus_of.get(int(bus)) in case.index_of for bus in rows.get("bus", ())]
    rows = rows[np.array(kept, dtype=bool)]
    given = {name: optional(rows, name, missing) for name, missing in NET_COLUMNS.items()}
    at = np.array([case.index_of[bus_of[int(bus)]] for bus in rows["bus"]], dtype=np.int64)
    pd, qd = case.pd.copy(), case.qd.copy()
    for demand, name in ((pd, "p_mw"), (qd, "q_mvar")):
        np.subtract.at(demand, at, given[name] * given["scaling"] / case.base_mva)
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
        figures = {key: float(values[k]) for key, values in given.items()}
        entries.append(StorageEntry(name, int(case.bus_id[at[k]]), _net_figures(figures, label)))
    return replace(case, pd=pd, qd=qd), entries


def _net_figures(given: Mapping[str, float], label: str) -> dict[str, float]:
    """Return the figures of a storage list for a row of pandapower's ``storage``."""
    power = abs(given["p_mw"] * given["scaling"])
    charge, discharge = given["max_p_mw"], -given["min_p_mw"]
    room = given["max_e_mwh"] - given["min_e_mwh"]
    stored = given["soc_percent"] / 100 * given["max_e_mwh"] - given["min_e_mwh"]
    if np.isnan(room):
        raise InputError(f"{label}: max_e_mwh is missing or no finite number; give its MWh")
    return _allowed(
        {
            "p_mw": power if np.isnan(discharge) else discharge,
            "charge_mw": power if np.isnan(charge) else charge,
            "energy_mwh": room,
            "soc_percent": 100 * stored / room if room > 0 else 0.0,
            "q_mvar": min(given["max_q_mvar"], -given["min_q_mvar"]),
        },
        label,
    )


def _allowed(given: dict[str, float], label: str) -> dict[str, float]:
    """Return the figures of a storage with those that are taken for missing ones."""
    value = OPTIONS | given
    for key, allowed in not_in_range(value):
        raise InputError(f"{label}: {key} = {value[key]:g}: must be {allowed}")
    return value


def most_storages(case: Case, path: Path) -> list[StorageEntry]:
    """Return the storages in service of a file that MOST reads (``loadstoragedata``).

    The end condition is that of a storage list: no less energy than before the first step.

    Raises
    ------
    InputError
        If the file is not of that form, or a storage stands on no bus of the case.
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
    given = {"OutEff": 1.0, "InEff": 1.0, "LossFactor": 0.0, **dict(zip(names, row, strict=True))}
    first, least, most = (given[name] for name in MOST_LEVELS)
    room = most - least
    value = {
        "p_mw": gen[8],
        "charge_mw": -gen[9],
        "energy_mwh": room,
        "efficiency_discharge": given["OutEff"],
        "efficiency_charge": given["InEff"],
        "loss_percent_per_hour": 100.0 * given["LossFactor"],
        "soc_percent": 100.0 * (first - least) / room if room > 0 else 0.0,
        "q_mvar": min(gen[3], -gen[4]),
    }
    if gen[0] not in case.index_of:
        raise InputError(f"{label}: bus = {gen[0]:g}: must be a bus in service of {case.name}")
    return StorageEntry(label.rpartition(": ")[2], int(gen[0]), _allowed(value, label))


def _evaluate(statement: str, known: Arithmetic, path: Path) -> float:
    """Return the number that a statement gives its name."""
    name = statement.partition(" ")[0]
    try:
        known.carry_out(statement)
    except WrongError as error:
        wrong = shown(statement.removeprefix("cell = "))
        raise InputError(
            f"storage file {path}: {wrong} is not read ({error}); give numbers"
        ) from None
    return known.values[name]


def source_ramps(case: Case, path: Path) -> Floats:
    """Return the ramps of a MATPOWER file in p.u. per hour, (g,); inf where it has none.

    Raises
    ------
    InputError
        If the case is of another file, which has no ramps, or negative ones.
    """
    from gridpriv.grid.matpower import matpower_tables
    from gridpriv.grid.pypower import mat_tables

    gen = (matpower_tables if path.suffix.lower() == ".m" else mat_tables)(path).gen
    of_source = case.gen_row <= len(gen)  # not storages
    row = case.gen_row[of_source] - 1
    _check_same(
        case, path, "ramps", bool((gen[row, 0] == case.bus_id[case.gen_bus[of_source]]).all())
    )
    given, allowed = np.zeros(len(gen)), True
    for column, periods in RAMPS:
        if gen.shape[1] > column:
            allowed &= bool((np.isfinite(gen[row, column]) & (gen[row, column] >= 0)).all())
            given = np.where(given > 0, given, periods * gen[:, column])
    ramp = np.zeros(case.n_gen)
    ramp[of_source] = given[row]
    if not allowed or not (ramp > 0).any():
        raise InputError(
            f"{path} has no ramps of the generators of {case.name}: RAMP_30, RAMP_10 or RAMP_AGC "
            "of mpc.gen must be 0 or more, one of them positive. Give --ramps FILE.csv instead."
        )
    return np.where(ramp > 0, ramp / case.base_mva, np.inf)


def _check_same(case: Case, path: Path, what: str, same: bool) -> None:
    """Refuse a file of another grid: of another name, or with other elements."""
    if path.stem != case.name or not same:
        raise InputError(
            f"{what} of {path} belong to its own grid, but the case is {case.name}. Give that file "
            "as the case too, or a CSV file."
        )
