"""The :class:`Case`: a power grid as arrays in per unit, and its JSON file without demand.

Branches and generators out of service and isolated buses are left out of a case; ``branch_row`` and
``gen_row`` are the source's row numbers.

The JSON file is for all parties of a consortium. It has no place for demand, nor for voltages,
angles and outputs of a solved state, from which demand could be computed. Numbers are in per unit
and radians, as in :class:`Case`, and are read back exactly; a missing limit is ``null``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.core.errors import InputError, not_allowed, not_negative
from gridpriv.core.files import read_document
from gridpriv.core.text import Json, html_table

POLYNOMIAL, PIECEWISE = 2, 1


MOST_DEMAND_MW = 1e7
"""Largest demand of a bus: three times the mean generation of the world."""


@dataclass(frozen=True)
class SourceNames:
    """Names of a source's elements, for display and for files; not part of the model.

    Attributes
    ----------
    bus : dict of int to str
        By the number of the bus.
    branch, gen : tuple of str
        By the row of the source table: ``branch[case.branch_row[k] - 1]``.
    joined : dict of int to int
        Bus of the case, by the number of a bus that closed switches join to it.
    """

    bus: dict[int, str] = field(default_factory=dict)
    branch: tuple[str, ...] = ()
    gen: tuple[str, ...] = ()
    joined: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class GenCost:
    """Cost of one generator in $/h as a function of its output in MW (MATPOWER gencost).

    Attributes
    ----------
    model : int
        ``POLYNOMIAL`` (coefficients, highest power first) or ``PIECEWISE`` (x1, y1, x2, y2, ...).
    values : tuple of float
        The coefficients or the breakpoints.
    """

    model: int
    values: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Case:
    """A grid in per unit of ``base_mva``; buses are numbered 0..n-1, ``bus_id`` has their names.

    Attributes
    ----------
    name : str
    base_mva : float
    bus_id : (n,) int
        Bus numbers of the source.
    pd, qd, gs, bs : (n,) float
        Demand and shunts at 1 p.u. voltage.
    vmin, vmax, vm, va : (n,) float
        Voltage band and the source's voltage (magnitude p.u., angle rad).
    base_kv : (n,) float
    reference : (n,) bool
        Reference buses of the source.
    f_bus, t_bus : (m,) int
        Branch ends as bus indices.
    r, x, b, tap, shift, rate : (m,) float
        Series impedance, charging, tap ratio (1 where the source has 0), phase shift (rad),
        apparent power limit (0: none).
    angmin, angmax : (m,) float
        Angle difference limits in rad; -inf and inf where the source has none.
    gen_bus : (g,) int
    pmin, pmax, qmin, qmax, vg, pg : (g,) float
    cost : tuple of GenCost or None
        One per generator, or empty where the source has none.
    branch_row, gen_row : int arrays
        1-based rows of the source tables.
    groups : dict of str to tuple of str
        The source's own groups of buses: ``area``, ``zone``, ``country``, ``substation``, each
        one name per bus. For zone maps only; not part of ``fingerprint``.
    names : SourceNames
        Names of buses, branches and generators. Not part of ``fingerprint``.
    xy : (n, 2) float or None
        The source's coordinates of buses: longitude and latitude in degrees, or another plane. For
        drawings only; not part of ``fingerprint``.
    rate_b, rate_c : (m,) float or None
        Short-term and emergency apparent power limits (0: none). For the analysis of outages only;
        not part of ``fingerprint``.
    own_band : (2, n) float or None
        Voltage bands of buses without their generators, which may fix or narrow them. For outages
        only; not part of ``fingerprint``.
    auxiliary : (n,) bool or None
        Buses that only a source's conversion adds: star points of three-winding transformers, open
        ends of lines. By the source's structure, which is public, no load can be at them.
    following : (g,) bool or None
        Grid-following generators (static generators of pandapower). An outage that leaves an island
        without another generator stops them, as there is no voltage to follow.
    fixed : dict of str to int
        Number of the source's elements by kind, other than loads, whose fixed power is part of the
        demand of buses (static generators, storage, DC lines).
    """

    name: str
    base_mva: float
    bus_id: Ints
    pd: Floats
    qd: Floats
    gs: Floats
    bs: Floats
    vmin: Floats
    vmax: Floats
    vm: Floats
    va: Floats
    base_kv: Floats
    reference: NDArray[np.bool_]
    f_bus: Ints
    t_bus: Ints
    r: Floats
    x: Floats
    b: Floats
    tap: Floats
    shift: Floats
    rate: Floats
    angmin: Floats
    angmax: Floats
    gen_bus: Ints
    pmin: Floats
    pmax: Floats
    qmin: Floats
    qmax: Floats
    vg: Floats
    pg: Floats
    branch_row: Ints
    gen_row: Ints
    cost: tuple[GenCost, ...] = ()
    xy: Floats | None = None
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: SourceNames = field(default_factory=SourceNames)
    rate_b: Floats | None = None
    rate_c: Floats | None = None
    own_band: Floats | None = None
    auxiliary: Bools | None = None
    following: Bools | None = None
    fixed: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
        _validate(self)

    def __repr__(self) -> str:
        return f"Case({self.name}: {', '.join(' '.join(row[::-1]) for row in self._sizes())})"

    def _repr_html_(self) -> str:
        return html_table((self.name, ["", "amount"], self._sizes()))

    def _sizes(self) -> list[tuple[str, str]]:
        """Return the grid's name and sizes, as a notebook shows it."""
        load, capacity = (self.base_mva * float(v.sum()) for v in (self.pd, self.pmax))
        return [
            ("buses", str(self.n_bus)),
            ("branches", str(self.n_branch)),
            ("generators", str(len(self.gen_bus))),
            ("MW of demand", f"{load:.6g}"),
            ("MW of capacity", f"{capacity:.6g}"),
        ]

    @property
    def n_bus(self) -> int:
        """Number of buses."""
        return len(self.bus_id)

    @property
    def n_branch(self) -> int:
        """Number of branches in service."""
        return len(self.f_bus)

    @property
    def n_gen(self) -> int:
        """Number of generators in service."""
        return len(self.gen_bus)

    @cached_property
    def load_buses(self) -> Bools:
        """Buses that can have load, (n,); public."""
        return np.ones(self.n_bus, bool) if self.auxiliary is None else ~self.auxiliary

    @cached_property
    def forming(self) -> Bools:
        """Generators that are not grid-following, (g,)."""
        return np.ones(self.n_gen, bool) if self.following is None else ~self.following

    @cached_property
    def index_of(self) -> dict[int, int]:
        """Map from the source's bus number to the bus index."""
        return {int(bus): i for i, bus in enumerate(self.bus_id)}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of every number of the model. Private: it can confirm a guessed demand."""
        digest = hashlib.sha256(f"{self.base_mva!r}".encode())
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, np.ndarray) and part.name not in NO_MODEL:
                digest.update(part.name.encode() + np.ascontiguousarray(value).tobytes())
        digest.update(repr([(c.model, *map(float, c.values)) for c in self.cost]).encode())
        return digest.hexdigest()

    def scale_load(self, factor: float) -> Case:
        """Return the case with the demand of every bus multiplied by ``factor``.

        As in MATPOWER the power of :attr:`fixed` elements is part of it.
        """
        not_negative("load_scale", factor)
        return replace(self, pd=self.pd * factor, qd=self.qd * factor)

    def without(self, outages: tuple[str, ...]) -> Case:
        """Return the case with generators and branches out of service.

        A bus that loses all its generators has its own voltage band. Grid-following generators
        that lose all others of their island are out of service, too.

        Parameters
        ----------
        outages : tuple of str
            Each ``gen:N`` or ``branch:N`` with N the 1-based row of the source table.
        """
        if not outages:
            return self
        in_service = {"branch": self.branch_row, "gen": self.gen_row}
        keep = {kind: np.ones(len(rows), bool) for kind, rows in in_service.items()}
        for outage in outages:
            kind, _, number = outage.partition(":")
            if kind not in keep or not number.isdigit():
                raise not_allowed("outage", outage, "gen:N or branch:N with N a row of the case")
            rows = in_service[kind]
            hit = rows == int(number)
            if not hit.any():
                raise not_allowed("outage", outage, f"{kind} rows in service, 1 to {rows.max()}")
            keep[kind][hit] = False
        rest = case_of(self, np.arange(self.n_bus), *map(np.flatnonzero, keep.values()))
        if rest.following is not None:
            keep["gen"][keep["gen"]] = _follow_another(rest)
            rest = case_of(self, np.arange(self.n_bus), *map(np.flatnonzero, keep.values()))
        if rest.own_band is None:
            return rest
        lost = np.setdiff1d(self.gen_bus, rest.gen_bus)
        bands = np.stack([rest.vmin, rest.vmax])
        bands[:, lost] = rest.own_band[:, lost]
        return replace(rest, vmin=bands[0], vmax=bands[1])


NO_MODEL = ("xy", "rate_b", "rate_c", "own_band")
GEN_FIELDS = ("gen_bus", "pmin", "pmax", "qmin", "qmax", "vg", "pg", "gen_row")
LINE_FIELDS = ("r", "x", "b", "tap", "shift", "rate", "angmin", "angmax")
BRANCH_FIELDS = ("f_bus", "t_bus", *LINE_FIELDS, "branch_row")
STATE_FIELDS = ("pd", "qd", "gs", "bs", "vmin", "vmax", "vm", "va", "base_kv")
BUS_FIELDS = ("bus_id", *STATE_FIELDS, "reference")


def case_of(case: Case, buses: Ints, branches: Ints, gens: Ints, **changed_fields: Floats) -> Case:
    """Return the case of some elements, with some fields given; they must be at its buses."""
    new_index = np.full(case.n_bus, -1)
    new_index[buses] = np.arange(len(buses))
    parts = ((BUS_FIELDS, buses), (BRANCH_FIELDS, branches), (GEN_FIELDS, gens))
    changes: dict[str, Any] = {n: getattr(case, n)[at] for names, at in parts for n in names}
    changes |= {name: new_index[changes[name]] for name in ("f_bus", "t_bus", "gen_bus")}
    changes |= emergency_ratings(case, branches)
    changes["cost"] = tuple(case.cost[g] for g in gens.tolist()) if case.cost else ()
    changes["groups"] = {k: tuple(v[i] for i in buses.tolist()) for k, v in case.groups.items()}
    changes["xy"] = None if case.xy is None else case.xy[buses]
    changes["following"] = None if case.following is None else case.following[gens]
    changes["auxiliary"] = None if case.auxiliary is None else case.auxiliary[buses]
    changes["own_band"] = None if case.own_band is None else case.own_band[:, buses]
    return replace(case, **changes | changed_fields)


def _follow_another(case: Case) -> Bools:
    """Return the generators (g,) of islands with one that is not grid-following."""
    from scipy.sparse import coo_array  # slow to import, and only needed after outages
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(case.n_branch), (case.f_bus, case.t_bus)), shape=(case.n_bus,) * 2)
    island = connected_components(links, directed=False)[1][case.gen_bus]
    return np.isin(island, island[case.forming])


def emergency_ratings(case: Case, branches: NDArray[Any]) -> dict[str, Floats]:
    """Return the short-term and emergency ratings of some branches, where a case has any."""
    ratings = {name: getattr(case, name) for name in ("rate_b", "rate_c")}
    return {name: rates[branches] for name, rates in ratings.items() if rates is not None}


def _validate(case: Case) -> None:
    if case.n_bus == 0:
        raise InputError(f"case {case.name}: no bus in service; put at least one in service")
    if not 0 < case.base_mva <= MOST_DEMAND_MW:
        allowed = f"a positive number up to {MOST_DEMAND_MW:g}"
        raise not_allowed("baseMVA", case.base_mva, allowed)
    _unique_buses(case)
    _finite(case, STATE_FIELDS, "bus", case.bus_id)
    _finite(case, ("r", "x", "b", "tap", "shift", "rate"), "branch", case.branch_row)
    _finite(case, ("vg", "pg"), "generator", case.gen_row)
    for name in ("pd", "qd"):
        values, most = getattr(case, name), MOST_DEMAND_MW / case.base_mva
        allowed = f"within +-{most:.4g} p.u. ({MOST_DEMAND_MW:g} MVA)"
        _refuse(np.abs(values) > most, values, name, "bus", case.bus_id, allowed)
    _ordered(case, "vmin", "vmax", "bus", case.bus_id)
    _ordered(case, "pmin", "pmax", "generator", case.gen_row)
    _ordered(case, "qmin", "qmax", "generator", case.gen_row)
    _ordered(case, "angmin", "angmax", "branch", case.branch_row)
    for name, none in OPEN.items():
        angle, values = name.startswith("ang"), getattr(case, name)
        rows = ("branch", case.branch_row) if angle else ("generator", case.gen_row)
        within = np.pi / 2 if angle else np.inf
        wrong = (values != none) & ~(np.abs(values) < within)
        allowed = f"{none:g} (no limit) or within +-{within:.4g}"
        _refuse(wrong, values, name, *rows, allowed)
    _refuse(case.vmin < 0, case.vmin, "Vmin", "bus", case.bus_id, "0 or more")
    mva = case.base_mva * case.rate
    _refuse(mva < 0, mva, "rateA", "branch", case.branch_row, "0 (no limit) or more, in MVA")
    for name, rates in emergency_ratings(case, np.arange(case.n_branch)).items():
        wrong = ~(np.isfinite(rates) & (rates >= 0))
        _refuse(wrong, rates, name, "branch", case.branch_row, "0 (none) or more")
    _refuse(case.tap <= 0, case.tap, "ratio", "branch", case.branch_row, "0 (none) or more")
    zero = (case.r == 0) & (case.x == 0)
    _refuse(zero, case.x, "r = x", "branch", case.branch_row, "a branch of non-zero impedance")
    loop = case.f_bus == case.t_bus
    bus = case.bus_id[case.f_bus]
    _refuse(loop, bus, "from = to bus", "branch", case.branch_row, "two different buses")
    _placed(case)
    for name, groups in case.groups.items():
        if len(groups) != case.n_bus:
            raise InputError(
                f"case {case.name}: {len(groups)} {name} names for {case.n_bus} buses"
                "; give one name per bus"
            )
    if case.cost and len(case.cost) != case.n_gen:
        raise InputError(
            f"case {case.name}: {len(case.cost)} cost rows for {case.n_gen} generators"
            "; give one or two rows per generator"
        )


def _placed(case: Case) -> None:
    if case.xy is None:
        return
    if case.xy.shape != (case.n_bus, 2):
        raise InputError(
            f"case {case.name}: xy has shape {case.xy.shape}, not {(case.n_bus, 2)}"
            "; give one row per bus"
        )
    bad = ~np.isfinite(case.xy)
    _refuse(bad[:, 0] | bad[:, 1], case.xy, "xy", "bus", case.bus_id, "finite numbers")


def _unique_buses(case: Case) -> None:
    ids, counts = np.unique(case.bus_id, return_counts=True)
    if (counts > 1).any():
        raise InputError(
            f"case {case.name}: bus {ids[counts > 1][0]} is listed more than once; leave one out"
        )


def _refuse(
    wrong: NDArray[np.bool_], values: NDArray[Any], field: str, kind: str, rows: Ints, allowed: str
) -> None:
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(f"{kind} {rows[at]}: {field} = {values[at]}: must be {allowed}")


def _finite(case: Case, names: tuple[str, ...], kind: str, rows: Ints) -> None:
    for name in names:
        values = getattr(case, name)
        _refuse(~np.isfinite(values), values, name, kind, rows, "a finite number")


def _ordered(case: Case, low: str, high: str, kind: str, rows: Ints) -> None:
    lower, upper = getattr(case, low), getattr(case, high)
    wrong = ~(lower <= upper)  # also true for NaN
    if not wrong.any():
        return
    _refuse(np.isnan(upper), upper, high, kind, rows, "a number, or infinite for no limit")
    unit = {"p": " MW", "q": " MVAr", "a": " degrees"}.get(low[0], "")
    scale = {"": 1.0, " degrees": 180.0 / np.pi}.get(unit, case.base_mva)
    most = scale * float(upper[wrong][0])
    shown = np.round(scale * lower, 9)
    _refuse(wrong, shown, low, kind, rows, f"at most {high} = {most:.6g}{unit}")


FORMAT = "gridpriv network 2"
WHOLE = ("bus_id", "f_bus", "t_bus", "gen_bus", "branch_row", "gen_row")
REAL = ("gs", "bs", "vmin", "vmax", "base_kv", "r", "x", "b", "tap", "shift", "rate")
OPEN = {  # limits that may be missing, and their value then
    "angmin": -math.inf,
    "angmax": math.inf,
    "pmin": -math.inf,
    "pmax": math.inf,
    "qmin": -math.inf,
    "qmax": math.inf,
}
MASKS = ("auxiliary", "following")
STATE = {"pd": 0.0, "qd": 0.0, "vm": 1.0, "va": 0.0, "vg": 1.0, "pg": 0.0}
KEYS = ("format", "name", "base_mva", *WHOLE, *REAL, *OPEN, "reference", *MASKS, "cost")


def public_network(case: Case) -> Case:
    """Return a case without demand, solved state, coordinates and names of elements."""
    names = SourceNames(joined=case.names.joined)  # files name these buses, too
    changes: dict[str, Any] = {"xy": None, "groups": {}, "names": names}
    for name, value in STATE.items():
        changes[name] = np.full(len(getattr(case, name)), value)
    return replace(case, **changes)


def network_text(case: Case) -> str:
    """Return the file of a case's network."""
    document: Json = {"format": FORMAT, "name": case.name, "base_mva": case.base_mva}
    document |= {name: getattr(case, name).tolist() for name in (*WHOLE, *REAL, "reference")}
    for name, none in OPEN.items():
        document[name] = [None if v == none else v for v in getattr(case, name).tolist()]
    document |= {"auxiliary": (~case.load_buses).tolist(), "following": (~case.forming).tolist()}
    document["cost"] = [[cost.model, *cost.values] for cost in case.cost]
    lines = (f"{json.dumps(key)}: {json.dumps(document[key])}" for key in KEYS)
    return "{\n" + ",\n".join(lines) + "\n}\n"


def network_digest(case: Case) -> str:
    """Return the SHA-256 of a case's network; public, as no demand is in it."""
    return hashlib.sha256(network_text(case).encode()).hexdigest()


def read_network(path: Path) -> Case:
    """Return the network of a file, as a case without demand.

    Raises
    ------
    InputError
        If it cannot be read, or is not a network.
    """
    return read_document(path, "network", FORMAT, KEYS, _case)


def _case(document: Json) -> Case:
    arrays: dict[str, Any] = {name: np.array(document[name], dtype=np.int64) for name in WHOLE}
    arrays |= {name: np.array(document[name], dtype=float) for name in REAL}
    for name, none in OPEN.items():
        arrays[name] = np.array([none if v is None else v for v in document[name]], dtype=float)
    sizes = {"pd": "bus_id", "qd": "bus_id", "vm": "bus_id", "va": "bus_id"}
    for name, value in STATE.items():
        arrays[name] = np.full(len(arrays[sizes.get(name, "gen_bus")]), value)
    for name in ("reference", *MASKS):
        arrays[name] = np.array(document[name], dtype=bool)
    _check_shapes(arrays)
    arrays |= {name: arrays[name] if arrays[name].any() else None for name in MASKS}
    return Case(
        name=str(document["name"]),
        base_mva=float(document["base_mva"]),
        cost=tuple(GenCost(int(m), tuple(map(float, v))) for m, *v in document["cost"]),
        **arrays,
    )


def _check_shapes(arrays: dict[str, Floats]) -> None:
    """Refuse arrays of other lengths than their table's, and ends that are not buses."""
    tables = {
        "bus_id": (*BUS_FIELDS, "auxiliary"),
        "f_bus": BRANCH_FIELDS,
        "gen_bus": (*GEN_FIELDS, "following"),
    }
    for first, rest in tables.items():
        for name in (column for column in rest if column in arrays):
            if arrays[name].shape != (len(arrays[first]),):
                raise ValueError(f"{name} is not as long as {first}")
    for name in ("f_bus", "t_bus", "gen_bus"):
        if ((arrays[name] < 0) | (arrays[name] >= len(arrays["bus_id"]))).any():
            raise ValueError(f"{name} has an index that is no bus")
