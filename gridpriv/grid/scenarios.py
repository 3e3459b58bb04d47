"""Read demand, demand over time and contingencies of a case.

Demand is read from CSV with a header line and units in the column names. There are three forms:

- ``bus,pd_mw,qd_mvar``: one row per bus to change (:func:`override_demand`);
- ``step,load_scale``: one row per step, with a factor on every demand;
- ``step,bus,pd_mw,qd_mvar``: consecutive rows form a step; other buses keep their demand.

``pd_mw`` or ``qd_mvar`` may be left out, as a column or as an empty cell: that demand is kept.
Buses that closed switches join are one bus of the case: the sum of their rows is its demand.

Contingencies are all outages of a kind, or are read from a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, check_choice, not_allowed, warn
from gridpriv.grid.case import Case
from gridpriv.grid.tables import CsvRow, CsvRows

if TYPE_CHECKING:
    from pandas import DataFrame

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
        Factor of each step on the case's own demand; empty where each step has its own demand.
    unlisted : tuple of int
        Numbers of buses that can have load and keep the case's demand in a step without their row.
    """

    case: Case
    steps: tuple[str, ...]
    pd: Floats
    qd: Floats
    source: str
    scales: tuple[float, ...] = ()
    unlisted: tuple[int, ...] = ()

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
        """Return the factor on true demand in a step."""
        return self.scales[step] if self.scales else 1.0

    def at(self, step: int) -> Case:
        """Return the case with the demand of a step, counted from 0."""
        if not 0 <= step < len(self):
            raise not_allowed("step", step, f"0 to {len(self) - 1}")
        return replace(self.case, pd=self.pd[step].copy(), qd=self.qd[step].copy())

    def table(self) -> DataFrame:
        """Return one row per step: its name and the total demand in MW and MVAr."""
        from pandas import DataFrame

        base = self.case.base_mva
        return DataFrame(
            {
                "step": self.steps,
                "pd_mw": base * self.pd.sum(axis=1),
                "qd_mvar": base * self.qd.sum(axis=1),
            }
        )


def override_demand(case: Case, path: str | Path) -> Case:
    """Return the case with the demand of buses in a CSV file.

    Parameters
    ----------
    case : Case
    path : path
        With columns ``bus,pd_mw,qd_mvar`` in MW and MVAr; an empty cell keeps a demand.

    Raises
    ------
    InputError
        With the line, for an unknown or repeated bus, or a demand that is not a finite number.
    """
    demand = read_bus_demand(path, case)
    for name, kind, values in zip(DEMANDS, ("active", "reactive"), demand, strict=True):
        if np.isnan(values).all():
            warn(f"demand file {path} gives no {name}: {kind} demand is the case's")
    pd_new, qd_new = np.where(np.isnan(demand), [case.pd, case.qd], demand)
    return replace(without_fixed(case, demand), pd=pd_new, qd=qd_new)


def without_fixed(case: Case, demand: Floats) -> Case:
    """Return a case without :attr:`Case.fixed` if demand (..., n) is given wherever load can be."""
    known = not case.fixed or np.isnan(demand[..., case.load_buses]).any()
    return case if known else replace(case, fixed={})


def unlisted_buses(case: Case, demand: Floats) -> tuple[int, ...]:
    """Return the numbers of buses that can have load without a demand (2, ..., n) in a step."""
    without = np.isnan(demand).all(axis=0).reshape(-1, case.n_bus).any(axis=0)
    return tuple(case.bus_id[without & case.load_buses].tolist())


def read_bus_demand(path: str | Path, case: Case) -> Floats:
    """Return the demand (2, n_bus) of a CSV file, per unit; NaN where it has none.

    Raises
    ------
    InputError
        As :func:`override_demand`.
    """
    rows = CsvRows(Path(path), "demand file", (("bus",), DEMANDS))
    demand = np.full((2, case.n_bus), np.nan)
    first_line: dict[str, int] = {}
    for row in rows:
        row.once(first_line, str(row.bus(case)[1]), "bus")
        _add(row, case, demand)
    if not first_line:
        raise InputError(f"{rows.label} names no bus: give one row per bus")
    return demand


MOST_SHARE = 1e100  # of a zone's mean
FORECAST = ("step", "bus", *DEMANDS, "pd_std_mw", "qd_std_mvar", "zone_spread")


def is_forecast(path: Path) -> bool:
    """Return True for a file with the columns of a forecast."""
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return [cell.strip() for cell in file.readline(1024).split(",")] == list(FORECAST)


def read_forecast(path: Path, case: Case, step: str) -> tuple[Floats, Floats]:
    """Return the expected demand (2, n_bus) of a forecast, per unit, and zones' spreads.

    Parameters
    ----------
    step : str
        One step by name; empty for the mean over all, whose change over steps adds to the spread.

    Returns
    -------
    mean : (2, n_bus)
        NaN where the file has none.
    spread : (n_bus,)
        Standard deviation of the sum over a bus's zone, relative to its mean.

    Raises
    ------
    InputError
        As :func:`override_demand`; for a step that is not in the file.

    Warns
    -----
    GridprivWarning
        Where the mean of several steps is returned.
    """
    rows = CsvRows(path, "forecast", (FORECAST, ()))
    means: dict[str, Floats] = {}
    spreads = np.zeros(case.n_bus)
    first_line: dict[str, dict[str, int]] = {}
    for row in rows:
        here = means.setdefault(row["step"], np.full((2, case.n_bus), np.nan))
        index, number = row.bus(case)
        lines = first_line.setdefault(row["step"], {})
        row.once(lines, str(number), f"step {row['step']}: bus")
        _add(row, case, here)
        if not step or row["step"] == step:
            # a share of a mean, which may be small relative to the noise
            spread = row.number("zone_spread", MOST_SHARE)
            if not spread > 0:
                raise row.error("zone_spread", "a positive number")
            spreads[index] = max(spreads[index], spread)
    if step and step not in means:
        names = ", ".join(list(means)[:5]) + (", ..." if len(means) > 5 else "")
        raise not_allowed("public_demand", f"{path}@{step}", f"FILE@STEP with STEP one of {names}")
    if step:
        return means[step], spreads
    if len(means) > 1:
        warn(
            f"public demand {path} has {len(means)} steps, and none is chosen: the expected demand "
            "is their mean, and its standard deviation includes the change over steps. Choose one "
            f"with --public-demand {path}@{next(iter(means))}."
        )
    every = np.stack(list(means.values()))
    mean, totals = every.mean(axis=0), np.nansum(every[:, 0], axis=1)  # no rows: star points
    return mean, np.hypot(spreads, totals.std() / max(abs(totals.mean()), 1e-12))


def read_demand_series(path: str | Path, case: Case) -> DemandSeries:
    """Read a series of demand from CSV (``step,load_scale`` or ``step,bus,pd_mw,qd_mvar``).

    Parameters
    ----------
    path : path
        Steps in their order; load scales are public and 0 or more, demand is in MW and MVAr.
    case : Case
        Case whose demand is scaled, or kept for buses that a step does not name.

    Returns
    -------
    DemandSeries

    Raises
    ------
    InputError
        With the line; also for more values than :data:`MOST_VALUES`.
    """
    rows = CsvRows(
        Path(path), "demand series", (("step", "load_scale"), ()), (("step", "bus"), DEMANDS)
    )
    names: list[str] = []
    factors: list[float] = []
    changes: list[tuple[int, CsvRow]] = []
    first_line: dict[str, int] = {}
    buses: dict[str, int] = {}
    for row in rows:
        if "load_scale" in row or not names or names[-1] != row["step"]:
            names.append(row.name("step"))
            row.once(first_line, names[-1], "step")
            buses = {}
            if len(names) * case.n_bus > MOST_VALUES:
                raise InputError(
                    f"{row.label}: more than {len(names) - 1} steps are not allowed "
                    f"for {case.n_bus} buses: split the series"
                )
        if "load_scale" in row:
            factors.append(row.number("load_scale"))
            if factors[-1] < 0:
                raise row.error("load_scale", "0 or more")
        else:
            row.once(buses, str(row.bus(case)[1]), f"step {row['step']}: bus")
            changes.append((len(names) - 1, row))
    scale = np.array(factors or [1.0] * len(names)).reshape(-1, 1)
    demand = np.full((2, len(names), case.n_bus), np.nan)
    for step, row in changes:
        _add(row, case, demand[:, step])
    unlisted = () if factors else unlisted_buses(case, demand)
    kept, case = case, without_fixed(case, demand)
    for values, own in zip(demand, (kept.pd, kept.qd), strict=True):
        np.copyto(values, scale * own, where=np.isnan(values))
    (pd_new, qd_new), steps, source = demand, tuple(names), Path(path).name
    return DemandSeries(case, steps, pd_new, qd_new, source, tuple(factors), unlisted)


def _add(row: CsvRow, case: Case, demand: Floats) -> None:
    """Add a row's demand to that of its bus in (2, n), which is NaN before the first row."""
    index, number = row.bus(case)
    for column, values in zip(DEMANDS, demand, strict=True):
        if row.get(column):
            added = row.number(column) / case.base_mva
            if added and not case.load_buses[index]:
                point = f"bus {number} is a star point or an open line end, which has no load"
                raise row.error(column, f"0: {point}")
            values[index] = added + (0.0 if np.isnan(values[index]) else values[index])


Kind = Literal["branch", "generator", "multiple"]
Rating = Literal["A", "B", "C"]
RATINGS: tuple[Rating, ...] = ("A", "B", "C")
LIST_OF = {"branch": "branches", "generator": "generators"}
LISTS = (*LIST_OF.values(), "all")
NOTATION = "branch:N or gen:N with N a row in service of the case"


@dataclass(frozen=True)
class Contingency:
    """Elements that fail together.

    Attributes
    ----------
    name : str
        As listed, or the name of the element.
    kind : {'branch', 'generator', 'multiple'}
        Kind of the element, or ``multiple``.
    outages : tuple of str
        The elements in the notation of :meth:`gridpriv.grid.case.Case.without`.
    """

    name: str
    kind: Kind
    outages: tuple[str, ...]

    def elements(self, case: Case) -> tuple[Ints, Ints]:
        """Return the indices of the failing branches and generators."""
        rows = [outage.partition(":") for outage in self.outages]
        branches = [int(row) for kind, _, row in rows if kind == "branch"]
        gens = [int(row) for kind, _, row in rows if kind == "gen"]
        branch_at, gen_at = np.isin(case.branch_row, branches), np.isin(case.gen_row, gens)
        return np.flatnonzero(branch_at), np.flatnonzero(gen_at)

    def places(self, case: Case) -> tuple[str, ...]:
        """Return the bus numbers of the elements: both ends of a branch, a generator's bus."""
        branches, gens = self.elements(case)
        return (
            *(branch_ends(case, k) for k in branches.tolist()),
            *map(str, case.bus_id[case.gen_bus[gens]]),
        )


def contingencies(case: Case, which: str | Path) -> tuple[Contingency, ...]:
    """Return the single outages of a kind, or the contingencies of a file.

    Parameters
    ----------
    case : Case
    which : str or path
        ``branches``, ``generators``, ``all``, or a CSV file with columns ``name,outage``. Rows of
        one name are one contingency.

    Raises
    ------
    InputError
        With the line, for an element that is not in service or is named twice.
    """
    if which not in LISTS:
        if str(which).endswith(".csv"):
            return _read(case, Path(which))
        raise not_allowed("contingencies", str(which), f"{', '.join(LISTS)} or a file FILE.csv")
    every = map(_single, _outages(case))
    return tuple(single for single in every if which in ("all", LIST_OF[single.kind]))


def branch_ends(case: Case, branch: int) -> str:
    """Return the bus numbers of a branch's ends; of a star point, the other outer buses instead.

    So the winding of a transformer has the numbers of the transformer's buses, its own first.
    """
    ends = np.array([case.f_bus[branch], case.t_bus[branch]])
    own, star = ends[case.load_buses[ends]], ends[~case.load_buses[ends]]
    windings = np.isin(case.f_bus, star) | np.isin(case.t_bus, star)
    outer = np.setdiff1d(np.concatenate([case.f_bus[windings], case.t_bus[windings]]), ends)
    named = np.concatenate([own, outer]) if len(own) == 1 and len(outer) else ends
    return "-".join(map(str, case.bus_id[named].tolist()))


def out_of_service(case: Case, outages: Sequence[str]) -> str:
    """Return the outages of a case with both ends of a branch or the bus of a generator."""
    described = (f"{outage} ({_single(outage).places(case)[0]})" for outage in outages)
    return f"Out of service: {', '.join(described)}." if outages else ""


def branch_rating(case: Case, rating: Rating) -> Floats:
    """Return the apparent power limit of every branch, p.u. (0: none).

    Parameters
    ----------
    rating : {'A', 'B', 'C'}
        Normal, short-term, emergency. Without C a branch has B, without B A.

    Returns
    -------
    (m,) float
    """
    check_choice("rating", rating, RATINGS)
    limit = case.rate
    for rate in (case.rate_b, case.rate_c)[: RATINGS.index(rating)]:
        if rate is not None:
            limit = np.where(rate > 0, rate, limit)
    return limit


def _single(outage: str, name: str = "") -> Contingency:
    kind: Kind = "branch" if outage.startswith("branch:") else "generator"
    return Contingency(name or outage, kind, (outage,))


def _read(case: Case, path: Path) -> tuple[Contingency, ...]:
    rows = CsvRows(path, "contingency list", (("name", "outage"), ()))
    in_service = set(_outages(case))
    listed: dict[str, dict[str, int]] = {}
    for row in rows:
        elements = listed.setdefault(row.name("name"), {})
        if row["outage"] not in in_service:
            raise row.error("outage", _notation(case))
        row.once(elements, row["outage"], f"{row['name']}: outage")
    if not listed:
        raise InputError(f"{rows.label} lists no contingency: give one row per contingency")
    return tuple(
        _single(outages[0], name) if len(outages) == 1 else Contingency(name, "multiple", outages)
        for name, outages in ((name, tuple(elements)) for name, elements in listed.items())
    )


def _notation(case: Case) -> str:
    """Return the notation of outages in the numbers of the case."""
    rows = {"branch": case.branch_row, "gen": case.gen_row}
    spans = (f"{kind}:{each.min()} to {each.max()}" for kind, each in rows.items() if each.size)
    return f"{NOTATION} ({', '.join(spans)})"


def _outages(case: Case) -> Iterator[str]:
    yield from (f"branch:{row}" for row in case.branch_row.tolist())
    yield from (f"gen:{row}" for row in case.gen_row.tolist())
