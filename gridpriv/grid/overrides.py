"""Demand that replaces a case's own: per bus from CSV, over time from CSV or simbench profiles.

Three CSV shapes, units in the column names, the first line is the header:

- ``bus,pd_mw,qd_mvar``: one row per bus to change (:func:`override_demand`);
- ``step,load_scale``: one row per step, every demand times the factor;
- ``step,bus,pd_mw,qd_mvar``: rows of a step stand together; buses not named keep their demand.

``pd_mw`` or ``qd_mvar`` may be left out, as a column or as an empty cell: that demand is kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pandas import DataFrame

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivWarning, InputError, not_allowed
from gridpriv.grid.case import Case
from gridpriv.grid.pandapower_json import Net, frame, in_service, numbers, optional
from gridpriv.grid.pandapower_tables import flexible_sgens
from gridpriv.grid.tables import CsvRows

DEMANDS = ("pd_mw", "qd_mvar")
MOST_VALUES = 15_000_000
"""Steps times buses of a series read from a file: a year of quarters of an hour on 426 buses."""


@dataclass(frozen=True, eq=False)
class DemandSeries:
    """Demand of every bus over time.

    Attributes
    ----------
    case : Case
        The grid, with its own demand.
    steps : tuple of str
        Names of the steps, in order.
    pd, qd : (steps, n_bus) float
        Demand in per unit.
    scales : tuple of float
        Of each step, where it is the case's own demand times a factor; empty where the steps are
        data of their own.
    """

    case: Case
    steps: tuple[str, ...]
    pd: Floats
    qd: Floats
    source: str
    scales: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        shape = (len(self.steps), self.case.n_bus)
        if len(self.steps) == 0:
            raise InputError(f"{self.source}: a series needs at least one step")
        for name in ("pd", "qd"):
            values = getattr(self, name)
            if values.shape != shape:
                raise InputError(
                    f"{self.source}: {name} has shape {values.shape}, not {shape}"
                    "; give one row per step and one column per bus"
                )
            if not np.isfinite(values).all():
                step, bus = np.argwhere(~np.isfinite(values))[0]
                raise InputError(
                    f"{self.source}: step {self.steps[step]}, bus {self.case.bus_id[bus]}: "
                    f"{name} is not a finite number; give a finite number"
                )

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Case]:
        return (self.at(step) for step in range(len(self)))

    def scale(self, step: int) -> float:
        """Return by how much the private data were multiplied in a step."""
        return self.scales[step] if self.scales else 1.0

    def at(self, step: int) -> Case:
        """Return the case with the demand of a step, counted from 0."""
        if not 0 <= step < len(self):
            raise not_allowed("step", step, f"0 to {len(self) - 1}")
        return replace(self.case, pd=self.pd[step].copy(), qd=self.qd[step].copy())

    def table(self) -> DataFrame:
        """Return one row per step: its name and the total demand in MW and MVAr."""
        base = self.case.base_mva
        return DataFrame(
            {
                "step": self.steps,
                "pd_mw": base * self.pd.sum(axis=1),
                "qd_mvar": base * self.qd.sum(axis=1),
            }
        )


def override_demand(case: Case, path: str | Path) -> Case:
    """Return the case with the demand of the buses that a CSV file names.

    Parameters
    ----------
    case : Case
    path : path
        With columns ``bus,pd_mw,qd_mvar`` in MW and MVAr; an empty cell keeps a demand.

    Raises
    ------
    InputError
        With the line, for an unknown or repeated bus, or a demand that is no finite number.
    """
    given = read_bus_demand(path, case)
    for name, kind, values in zip(DEMANDS, ("active", "reactive"), given, strict=True):
        if np.isnan(values).all():
            warnings.warn(
                f"demand file {path} gives no {name}: {kind} demand is the case's",
                GridprivWarning,
                stacklevel=2,
            )
    pd_new, qd_new = np.where(np.isnan(given), [case.pd, case.qd], given)
    return replace(case, pd=pd_new, qd=qd_new)


def read_bus_demand(path: str | Path, case: Case) -> Floats:
    """Return the demand (2, n_bus), per unit, that a CSV file gives; NaN where it gives none.

    Raises
    ------
    InputError
        As :func:`override_demand`.
    """
    rows = CsvRows(Path(path), "demand file", (("bus",), DEMANDS))
    given = np.full((2, case.n_bus), np.nan)
    seen: dict[str, int] = {}
    for line, row in rows:
        rows.once(seen, str(int(rows.bus(row, line, case)[1])), line, "bus")
        _apply(rows, row, line, case, *given)
    if not seen:
        raise InputError(f"{rows.label} names no bus: give one row per bus")
    return given


MOST_SHARE = 1e100  # of a zone's mean
FORECAST = ("step", "bus", *DEMANDS, "pd_std_mw", "qd_std_mvar", "zone_spread")


def is_forecast(path: Path) -> bool:
    """Test for a file with the columns of a forecast."""
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return [cell.strip() for cell in file.readline(1024).split(",")] == list(FORECAST)


def read_forecast(path: Path, case: Case, step: str) -> tuple[Floats, Floats]:
    """Return the demand (2, n_bus), per unit, that a forecast expects, and zones' spreads.

    Parameters
    ----------
    step : str
        One step by name; empty for the mean over all, whose change over steps adds to the spread.

    Returns
    -------
    mean : (2, n_bus)
        NaN where the file gives none.
    spread : (n_bus,)
        Standard deviation of the sum over a bus's zone, relative to its mean.

    Raises
    ------
    InputError
        As :func:`override_demand`; for a step that the file has not.
    """
    rows = CsvRows(path, "forecast", (FORECAST, ()))
    means: dict[str, Floats] = {}
    spreads = np.zeros(case.n_bus)
    for line, row in rows:
        here = means.setdefault(row["step"], np.full((2, case.n_bus), np.nan))
        index, _ = rows.bus(row, line, case)
        for k, name in enumerate(DEMANDS):
            here[k, index] = rows.number(row, name, line) / case.base_mva
        if not step or row["step"] == step:
            # a share of a mean, which may be small beside the noise
            spread = rows.number(row, "zone_spread", line, most=MOST_SHARE)
            if not spread > 0:
                raise rows.error(line, "zone_spread", row["zone_spread"], "a positive number")
            spreads[index] = max(spreads[index], spread)
    if step and step not in means:
        raise not_allowed("step", step, f"one of {', '.join(list(means)[:5])}, ... of {path}")
    if step:
        return means[step], spreads
    every = np.stack(list(means.values()))
    mean, totals = every.mean(axis=0), every[:, 0].sum(axis=1)
    return mean, np.hypot(spreads, totals.std() / max(abs(totals.mean()), 1e-12))


def read_demand_series(path: str | Path, case: Case) -> DemandSeries:
    """Read a series of demand from CSV (``step,load_scale`` or ``step,bus,pd_mw,qd_mvar``).

    Parameters
    ----------
    path : path
        Steps in their order; load scales are public and 0 or more, demand is in MW and MVAr.
    case : Case
        Whose demand is scaled, or kept where a step does not name a bus.

    Returns
    -------
    DemandSeries

    Raises
    ------
    InputError
        With the line; also for more steps than :data:`MOST_VALUES` holds.
    """
    rows = CsvRows(
        Path(path), "demand series", (("step", "load_scale"), ()), (("step", "bus"), DEMANDS)
    )
    names: list[str] = []
    factors: list[float] = []
    changes: list[tuple[int, dict[str, str], int]] = []
    seen: dict[str, int] = {}
    buses: dict[str, int] = {}
    for line, row in rows:
        if "load_scale" in row or not names or names[-1] != row["step"]:
            names.append(rows.name(row, "step", line))
            rows.once(seen, names[-1], line, "step")
            buses = {}
            if len(names) * case.n_bus > MOST_VALUES:
                raise InputError(
                    f"{rows.label}, line {line}: more than {len(names) - 1} steps are not allowed "
                    f"for {case.n_bus} buses: split the series"
                )
        if "load_scale" in row:
            factors.append(rows.number(row, "load_scale", line))
            if factors[-1] < 0:
                raise rows.error(line, "load_scale", row["load_scale"], "0 or more")
        else:
            rows.once(buses, str(rows.bus(row, line, case)[1]), line, f"step {row['step']}: bus")
            changes.append((len(names) - 1, row, line))
    scale = np.array(factors or [1.0] * len(names)).reshape(-1, 1)
    pd_new, qd_new = scale * case.pd, scale * case.qd
    for step, row, line in changes:
        _apply(rows, row, line, case, pd_new[step], qd_new[step])
    return DemandSeries(case, tuple(names), pd_new, qd_new, Path(path).name, tuple(factors))


def series_from_simbench(
    net: Net, case: Case, bus_of: dict[int, int], first: int = 0, steps: int | None = None
) -> DemandSeries:
    """Return the demand of a simbench net's profiles.

    A load's P and Q are its nominal values times the profile's ``_pload`` and ``_qload``; a
    static generator's P is its nominal value times its profile (as simbench's own
    ``get_absolute_values``). Everything else keeps its demand.

    Parameters
    ----------
    net : pandapowerNet
        With ``net.profiles``.
    case : Case
        Converted from this net.
    bus_of : dict of int to int
        :attr:`gridpriv.grid.pandapower_tables.PandapowerLink.bus`.
    first, steps : int
        Part of the year: 96 steps are a day.
    """
    profiles = net.get("profiles")
    if not isinstance(profiles, dict) or not isinstance(profiles.get("load"), DataFrame):
        raise InputError("the net has no profiles: take a simbench net with time series")
    length = len(profiles["load"])
    count = length - first if steps is None else steps
    if not (first >= 0 and count >= 1 and first + count <= length):
        raise not_allowed("steps", f"{first} to {first + count}", f"within 0 to {length}")
    window = slice(first, first + count)
    pd_new, qd_new = (np.tile(values, (count, 1)) for values in (case.pd, case.qd))
    index = {
        bus: case.index_of[number] for bus, number in bus_of.items() if number in case.index_of
    }
    load, sgen = profiles["load"][window], profiles.get("renewables")
    base = case.base_mva
    _add_profiles(net, "load", "p_mw", load, "_pload", index, pd_new, 1.0 / base)
    _add_profiles(net, "load", "q_mvar", load, "_qload", index, qd_new, 1.0 / base)
    if isinstance(sgen, DataFrame):
        _add_profiles(net, "sgen", "p_mw", sgen[window], "", index, pd_new, -1.0 / base)
    names = load.get("time", load.index)
    return DemandSeries(case, tuple(map(str, names)), pd_new, qd_new, "simbench profiles")


def _add_profiles(
    net: Net,
    table: str,
    column: str,
    profiles: DataFrame,
    suffix: str,
    index: dict[int, int],
    demand: Floats,
    factor: float,
) -> None:
    """Add (profile - 1) times the nominal value of every row in service to its bus."""
    mask = in_service(net, table)
    if table == "sgen":
        mask = mask & ~flexible_sgens(net)
    rows = frame(net, table)[mask]
    if len(rows) == 0:
        return
    if not {"profile", "scaling"} <= set(rows):
        raise InputError(f"net.{table} has no columns profile and scaling: take a simbench net")
    nominal = factor * optional(rows, column, np.nan) * optional(rows, "scaling", np.nan)
    for at, bus, profile, value in zip(
        rows.index, optional(rows, "bus", -1.0), rows["profile"], nominal, strict=True
    ):
        name = f"{profile}{suffix}"
        if name not in profiles:
            raise InputError(
                f"net.{table} row {at}: profile {name!r} is not in the net"
                "; correct the profile's name"
            )
        if int(bus) in index:
            demand[:, index[int(bus)]] += value * (numbers(profiles[name], "profiles") - 1.0)


def _apply(
    rows: CsvRows, row: dict[str, str], line: int, case: Case, pd_new: Floats, qd_new: Floats
) -> None:
    index, _ = rows.bus(row, line, case)
    for column, values in zip(DEMANDS, (pd_new, qd_new), strict=True):
        if row.get(column):
            values[index] = rows.number(row, column, line) / case.base_mva
