"""Zone maps: the zone of every bus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.arrays import Ints
from gridpriv.core.errors import InputError, check_choice, excerpt, not_allowed, warn
from gridpriv.core.files import write_text
from gridpriv.core.text import Json, counted, html_table
from gridpriv.grid.case import Case
from gridpriv.grid.tables import LONGEST_NAME, CsvRows, is_name

if TYPE_CHECKING:  # slow to import, and not needed early in a run with a shipped map
    import networkx as nx
    import pandas as pd


MOST_NAMED = 6
"""Number of parts of a zone, and of buses of a part, in a warning."""
MOST_SHOWN = 20
"""Number of zones that a notebook shows."""
GROUPS = ("area", "zone", "country", "substation")


@dataclass(frozen=True, eq=False)
class Zoning:
    """A partition of a case's buses into zones.

    Zones are in the natural order of their names. Results do not depend on that order:
    a zone's identity is its smallest bus number (:attr:`gridpriv.power.zone.Zone.key`).

    Attributes
    ----------
    names : tuple of str
        Zone names, one per zone.
    zone_of : (n_bus,) int
        Zone index of every bus.
    source : str
        Source of the map (file name, or method and number of zones).
    """

    names: tuple[str, ...]
    zone_of: Ints
    source: str

    def __repr__(self) -> str:
        sizes = np.bincount(self.zone_of, minlength=self.n_zone).tolist()
        least, most = min(sizes), max(sizes)
        buses = f"{least} to {most}" if least < most else f"{most}"
        return f"Zoning({counted(self.n_zone, 'zone')} of {buses} buses, {self.source})"

    def _repr_html_(self) -> str:
        sizes = np.bincount(self.zone_of, minlength=self.n_zone).tolist()
        return html_table(
            (repr(self), ["zone", "buses"], list(zip(self.names, sizes, strict=True))[:MOST_SHOWN])
        )

    @property
    def n_zone(self) -> int:
        """Number of zones."""
        return len(self.names)

    @cached_property
    def members(self) -> tuple[Ints, ...]:
        """Bus indices of each zone."""
        return grouped(self.zone_of, self.n_zone)


def grouped(zone_of: Ints, n_zone: int) -> tuple[Ints, ...]:
    """Return the bus indices of each zone, in increasing order."""
    order = np.argsort(zone_of, kind="stable")
    return tuple(np.split(order, np.searchsorted(zone_of[order], np.arange(1, n_zone))))


def zoning_from_groups(
    case: Case, groups: Iterable[Iterable[int]], source: str, names: Iterable[str] | None = None
) -> Zoning:
    """Return the zoning of groups of bus indices that contain every bus once.

    Raises
    ------
    InputError
        If a group is empty, a bus is missing, or a bus is in two groups.
    """
    members = [sorted(group) for group in groups]
    for number, group in enumerate(members, start=1):
        if not group:
            raise InputError(f"zone {number} of {len(members)} has no buses: leave the zone out")
    first_bus = [int(case.bus_id[group].min()) for group in members]
    labels = _labels(first_bus, names)
    order = sorted(range(len(members)), key=lambda z: _natural(labels[z]))
    zone_of = np.full(case.n_bus, -1, dtype=np.int64)
    for new, old in enumerate(order):
        if (zone_of[members[old]] >= 0).any():
            twice = next(b for b in members[old] if zone_of[b] >= 0)
            raise InputError(
                f"bus {case.bus_id[twice]} is in more than one zone: keep one row per bus"
            )
        zone_of[members[old]] = new
    if (zone_of < 0).any():
        raise InputError(
            f"bus {case.bus_id[np.argmax(zone_of < 0)]} is in no zone: add it to the map"
        )
    return Zoning(tuple(labels[z] for z in order), zone_of, source)


def zoning_from_source(case: Case, groups: str) -> Zoning:
    """Return the zones in the case's own source.

    Parameters
    ----------
    groups : {'area', 'zone', 'country', 'substation'}
        MATPOWER's areas or loss zones, pandapower's ``bus.zone``; countries, control areas or
        substations of a file that pypowsybl reads.

    Raises
    ------
    InputError
        If the source has no such groups, or a single group, or names that cannot be printed.

    Warns
    -----
    GridprivWarning
        Of every zone whose buses are not connected.
    """
    check_choice("zones_from", groups, GROUPS)
    names = case.groups.get(groups, ())
    if len(set(names)) < 2:
        several = [name for name, values in case.groups.items() if len(set(values)) > 1]
        allowed = " or ".join(several) or "left out"
        raise not_allowed(
            "zones_from",
            groups,
            f"{allowed}: {case.name} has one {groups} at most. Use --zones K or --zoning FILE.csv",
        )
    if "" in names:
        raise InputError(
            f"zones_from = {groups!r} needs a {groups} for every bus, but {names.count('')} buses "
            f"of case {case.name} have none. Give --zoning FILE.csv or --zones K."
        )
    wrong = next((name for name in names if not is_name(name)), None)
    if wrong is not None:
        raise InputError(
            f"{groups} = {excerpt(wrong)} of case {case.name}: must be 1 to {LONGEST_NAME} "
            "printable characters"
        )
    return _zoning_from_names(case, dict(enumerate(names)), f"{groups} of the case")


def _zoning_from_names(case: Case, zone_of: Mapping[int, str], source: str) -> Zoning:
    """Return the zoning of buses' zones by name; warn of zones that are not connected."""
    groups: dict[str, list[int]] = {}
    for index, name in zone_of.items():
        groups.setdefault(name, []).append(index)
    zoning = zoning_from_groups(case, groups.values(), source, groups.keys())
    warn_disconnected(case, zoning)
    return zoning


def _labels(first_bus: list[int], names: Iterable[str] | None) -> list[str]:
    """Return the given names, or 1, 2, ... in the order of the zones' smallest bus numbers."""
    if names is not None:
        return [str(name) for name in names]
    rank = {bus: str(r) for r, bus in enumerate(sorted(first_bus), start=1)}
    return [rank[bus] for bus in first_bus]


def _natural(label: str) -> tuple[int, int, str]:
    return (0, int(label), "") if label.isdecimal() else (1, 0, label)


def read_zoning(path: str | Path, case: Case) -> Zoning:
    """Read a zone map: a CSV file with the columns ``bus,zone``.

    Parameters
    ----------
    path : path
        ``bus`` is the number in the case's source, ``zone`` any name.
    case : Case

    Returns
    -------
    Zoning

    Raises
    ------
    InputError
        With the line, for a map that misses or repeats a bus, or has a bus that is not in the case.

    Warns
    -----
    GridprivWarning
        For a zone that is not connected.
    """
    rows = CsvRows(Path(path), "zone map", (("bus", "zone"), ()))
    zone_of: dict[int, str] = {}
    first_line: dict[str, int] = {}
    for row in rows:
        index, number = row.bus(case)
        row.once(first_line, str(number), "bus")
        name = row.name("zone")
        if zone_of.setdefault(index, name) != name:
            representative = case.bus_id[index]
            raise row.error(
                "zone", f"{zone_of[index]}, as closed switches join bus {representative}"
            )
    place_auxiliary(case, zone_of)
    missing = [bus for at, bus in enumerate(map(str, case.bus_id.tolist())) if at not in zone_of]
    if missing:
        some = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise InputError(
            f"{rows.label} misses {len(missing)} of the {case.n_bus} buses: {some}"
            "; add them to the map"
        )
    return _zoning_from_names(case, zone_of, Path(path).name)


def place_auxiliary(case: Case, zone_of: dict[int, str]) -> None:
    """Give auxiliary buses without a zone that of the first neighbour with one, in place."""
    for ends in zip(case.f_bus.tolist(), case.t_bus.tolist(), strict=True):
        for here, there in (ends, ends[::-1]):
            if not case.load_buses[here] and there in zone_of:
                zone_of.setdefault(here, zone_of[there])


def write_zoning(zoning: Zoning, case: Case, path: str | Path) -> None:
    """Write the zone map as CSV (``bus,zone``), as :func:`read_zoning` reads it.

    Parameters
    ----------
    zoning : Zoning
    case : Case
        Of the map.
    path : path
        Replaced if it exists.
    """
    import pandas as pd

    table = pd.DataFrame({"bus": case.bus_id, "zone": [zoning.names[z] for z in zoning.zone_of]})
    write_text(Path(path), table.to_csv(index=False), private=False)


def bus_graph(case: Case) -> nx.Graph:
    """Return the graph of buses (indices); edge ``weight`` is the sum of |y| of its branches."""
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(case.n_bus))
    strength = 1.0 / np.abs(case.r + 1j * case.x)
    for f, t, y in zip(case.f_bus.tolist(), case.t_bus.tolist(), strength.tolist(), strict=True):
        weight = graph[f][t]["weight"] if graph.has_edge(f, t) else 0.0
        graph.add_edge(f, t, weight=weight + y)
    return graph


def zone_map(case: Case, zoning: Zoning) -> dict[str, str]:
    """Return the name of every bus's zone by the number of the bus, as a JSON value."""
    names = (zoning.names[z] for z in zoning.zone_of)
    return dict(zip(map(str, case.bus_id.tolist()), names, strict=True))


def tie_lines(case: Case, zoning: Zoning) -> NDArray[np.bool_]:
    """Return a mask of the branches whose ends are in two zones, shape (m,)."""
    ties: NDArray[np.bool_] = zoning.zone_of[case.f_bus] != zoning.zone_of[case.t_bus]
    return ties


def zone_report(case: Case, zoning: Zoning) -> pd.DataFrame:
    """Return one row per zone: buses, tie lines, generators, load, capacity, connectedness.

    Units are in the column names; ``share_of_mean`` is the zone's size over the mean size.

    Parameters
    ----------
    case : Case
    zoning : Zoning
        Of that case.
    """
    import pandas as pd

    return pd.DataFrame(zone_rows(case, zoning))


def zone_rows(case: Case, zoning: Zoning) -> list[Json]:
    """Return the rows of :func:`zone_report`."""
    ties = tie_lines(case, zoning)
    ends = np.concatenate([zoning.zone_of[case.f_bus[ties]], zoning.zone_of[case.t_bus[ties]]])
    mean, island = case.n_bus / zoning.n_zone, _parts(case, zoning)
    generators = grouped(zoning.zone_of[case.gen_bus], zoning.n_zone)
    ties_of = np.bincount(ends, minlength=zoning.n_zone).tolist()
    pieces = (len(np.unique(island[buses])) for buses in zoning.members)
    parts = zip(zoning.names, zoning.members, generators, ties_of, pieces, strict=True)
    return [
        {
            "zone": name,
            "buses": len(buses),
            "share_of_mean": len(buses) / mean,
            "tie_lines": ends_here,
            "generators": len(gens),
            "load_mw": case.base_mva * float(case.pd[buses].sum()),
            "capacity_mw": case.base_mva * float(case.pmax[gens].sum()),
            "connected": pieces == 1,
        }
        for name, buses, gens, ends_here, pieces in parts
    ]


def _parts(case: Case, zoning: Zoning) -> Ints:
    """Return the number of the connected part of every bus, without tie lines."""
    from gridpriv.grid.network import islands_by  # imports scipy

    return islands_by(case, ~tie_lines(case, zoning))


def warn_disconnected(case: Case, zoning: Zoning) -> None:
    """Warn (:class:`GridprivWarning`) of every zone whose buses are not connected."""
    island = _parts(case, zoning)
    for name, buses in zip(zoning.names, zoning.members, strict=True):
        parts = [case.bus_id[buses[island[buses] == part]] for part in np.unique(island[buses])]
        if len(parts) > 1:
            warn(
                f"zone {name} is not connected: its {len(buses)} buses fall into {len(parts)} "
                f"parts (buses {_parts_named(parts)}). Move each part to a zone that it borders on"
            )


def _parts_named(parts: list[Ints]) -> str:
    """Return the bus numbers of the smallest parts, by commas; parts by semicolons."""
    smallest = sorted(parts, key=len)
    lists = [
        ", ".join(map(str, part[:MOST_NAMED])) + (", ..." if len(part) > MOST_NAMED else "")
        for part in smallest[:MOST_NAMED]
    ]
    return "; ".join([*lists, "..."] if len(parts) > MOST_NAMED else lists)
