"""Where the buses of a pandapower net are drawn: its bus geodata."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.grid.case import Case
from gridpriv.grid.pandapower_checks import frame

LEAST_SHARE = 0.8
"""Share of buses that must have a place for a net's own places to be used."""


def bus_places(net: Any, case: Case, bus_of: dict[int, int]) -> Floats | None:
    """Return the buses' coordinates as the net gives them, shape (n_bus, 2), or None.

    A group of fused buses stands where its smallest bus with a place stands. A bus without one
    (the star point of a three-winding transformer) stands amid its neighbours. None where fewer
    than eight buses in ten have a place, or all have the same: then a layout is clearer.
    """
    places = np.full((case.n_bus, 2), np.nan)
    given = _geodata(net)
    for bus in sorted(given, reverse=True):
        if bus_of.get(bus) in case.index_of:
            places[case.index_of[bus_of[bus]]] = given[bus]
    known = np.isfinite(places).all(axis=1)
    if known.mean() < LEAST_SHARE or np.ptp(places[known], axis=0).max() == 0.0:
        return None
    return _filled(places, case)


def _geodata(net: Any) -> dict[int, tuple[float, float]]:
    """Return bus to (x, y): GeoJSON points of ``bus.geo``, or the older ``bus_geodata`` table."""
    found: dict[int, tuple[float, float]] = {}
    old = frame(net, "bus_geodata")
    if {"x", "y"} <= set(old):
        for bus, x, y in zip(old.index, old["x"], old["y"], strict=True):
            _keep(found, bus, (x, y))
    if "geo" in net.bus:
        for bus, text in net.bus.geo.items():
            _keep(found, bus, _point(text))
    return found


def _point(text: object) -> object:
    try:
        return json.loads(text)["coordinates"]  # type: ignore[arg-type]
    except (TypeError, ValueError, KeyError):
        return None


def _keep(found: dict[int, tuple[float, float]], bus: Any, place: Any) -> None:
    """Keep what is two finite numbers (a third is a height); a drawing can do without the rest."""
    try:
        x, y = float(place[0]), float(place[1])
    except (TypeError, ValueError, IndexError, KeyError):
        return
    if np.isfinite(x) and np.isfinite(y):
        found[int(bus)] = (x, y)


def _filled(places: Floats, case: Case) -> Floats | None:
    """Return the places with every missing one at the mean of its neighbours' places."""
    missing = np.isnan(places[:, 0])
    while missing.any():
        total, count = np.zeros_like(places), np.zeros(len(places))
        for here, there in ((case.f_bus, case.t_bus), (case.t_bus, case.f_bus)):
            near = ~missing[there]
            np.add.at(total, here[near], places[there[near]])
            np.add.at(count, here[near], 1.0)
        next_to = missing & (count > 0)
        if not next_to.any():  # an island without any place
            return None
        places[next_to] = total[next_to] / count[next_to, None]
        missing &= ~next_to
    return places
