"""Coordinates of buses for drawings: the source's own, or else a layout by graph distances.

The layout minimizes stress, the sum over pairs of (|x_i - x_j| / d_ij - 1)^2 with d_ij the length
of the shortest path (Gansner, Koren, North: Graph drawing by stress majorization, 2005), from a
classical-scaling start. It uses no random numbers, and no step amplifies rounding: a grid has the
same picture on every run and machine.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import splu

from gridpriv.core.arrays import Floats, Ints
from gridpriv.grid.case import Case
from gridpriv.grid.network import laplacian
from gridpriv.grid.zoning import Zoning, bus_graph, tie_lines

if TYPE_CHECKING:
    from pandas import DataFrame

TIE_LENGTH = 1.8
"""Factor on the drawn length of a tie line, to separate zones."""
PIVOTS = 80
ALL_PAIRS = 400
"""Up to this many buses every pair counts; beyond, branches and pairs with pivots do."""
SWEEPS = 150
BLOCK = 100_000
"""Number of pairs per block, for the processor's cache."""
GOLDEN = 0.6180339887498949


@lru_cache(maxsize=8)
def bus_positions(case: Case, zoning: Zoning) -> Floats:
    """Return a position per bus, shape (n, 2), x to the right and y up, about one unit per branch.

    A case with coordinates keeps them, in an equirectangular projection where they can
    be longitude and latitude.
    """
    positions = _laid_out(case, zoning) if case.xy is None else _projected(case.xy)
    positions.setflags(write=False)
    return positions


def network_tables(case: Case, zoning: Zoning) -> tuple[DataFrame, DataFrame]:
    """Return a grid's buses, with position and zone, and its branches (public)."""
    from pandas import DataFrame

    positions = bus_positions(case, zoning)
    buses = DataFrame(
        {
            "bus": case.bus_id,
            "zone": [zoning.names[z] for z in zoning.zone_of],
            "x": positions[:, 0],
            "y": positions[:, 1],
            "generator": np.isin(np.arange(case.n_bus), case.gen_bus),
        }
    )
    branches = DataFrame(
        {
            "from": case.bus_id[case.f_bus],
            "to": case.bus_id[case.t_bus],
            "tie": tie_lines(case, zoning),
        }
    )
    return buses, branches


def _projected(xy: Floats) -> Floats:
    low, high = xy.min(axis=0), xy.max(axis=0)
    if low[0] < -180 or high[0] > 180 or low[1] < -90 or high[1] > 90:
        return xy.copy()
    flat: Floats = xy * np.array([np.cos(np.deg2rad((low[1] + high[1]) / 2.0)), 1.0])
    return flat


def _laid_out(case: Case, zoning: Zoning) -> Floats:
    graph = bus_graph(case)
    islands = sorted(
        (np.array(sorted(island)) for island in nx.connected_components(graph)),
        key=lambda island: (-len(island), int(case.bus_id[island].min())),
    )
    layouts = [_island(case, zoning, island) for island in islands]
    places = np.zeros((case.n_bus, 2))
    for island, corner, layout in zip(islands, _shelves(layouts), layouts, strict=True):
        places[island] = layout + corner
    return places


def _island(case: Case, zoning: Zoning, island: Ints) -> Floats:
    """Return positions of one island's buses, its lower left corner at the origin."""
    if len(island) == 1:
        return np.zeros((1, 2))
    lengths = _lengths(case, zoning, island)
    pivots = _pivots(lengths, case.bus_id[island])
    distances = dijkstra(lengths, directed=False, indices=pivots)
    start = _classical_scaling(distances)
    placed = _upright(_least_stress(start, pivots, distances, lengths.tocoo()))
    from_corner: Floats = np.round(placed - placed.min(axis=0), 3)
    return from_corner


def _lengths(case: Case, zoning: Zoning, island: Ints) -> csr_array:
    """Return the branches' lengths as a matrix; a hundredth of variation breaks all symmetry."""
    at = np.full(case.n_bus, -1)
    at[island] = np.arange(len(island))
    ends = np.sort(np.stack([at[case.f_bus], at[case.t_bus]]), axis=0)
    i, j = np.unique(ends[:, ends[0] >= 0], axis=1)
    same = zoning.zone_of[island[i]] == zoning.zone_of[island[j]]
    vary = 1.0 + 0.01 * np.mod(GOLDEN * (1 + np.arange(len(i))), 1.0)
    return csr_array((np.where(same, 1.0, TIE_LENGTH) * vary, (i, j)), shape=(len(island),) * 2)


def _pivots(lengths: csr_array, names: Ints) -> Ints:
    """Return every bus of a small island, or buses far from one another."""
    n = len(names)
    if n <= ALL_PAIRS:
        return np.arange(n)
    chosen = [int(np.argmin(names))]
    nearest = dijkstra(lengths, directed=False, indices=chosen[0])
    while len(chosen) < PIVOTS:
        chosen.append(int(np.argmax(np.round(nearest, 9))))
        distances = dijkstra(lengths, directed=False, indices=chosen[-1])
        nearest = np.minimum(nearest, distances)
    return np.array(chosen)


def _classical_scaling(distances: Floats) -> Floats:
    """Return the two leading coordinates of the distances to pivots, shape (n, 2)."""
    squared = distances.T**2
    centred = squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean()
    _, vectors = np.linalg.eigh(centred.T @ centred)
    start: Floats = centred @ vectors[:, [-1, -2]] if vectors.shape[1] > 1 else centred
    return start / max(float(np.abs(start).max()), 1e-12) * float(distances.max()) / 2.0


def _least_stress(start: Floats, pivots: Ints, distances: Floats, lengths: coo_array) -> Floats:
    """Return positions of least stress near ``start``; every sweep lowers it.

    Pairs are those of pivots with all buses and, unless these are all pairs, the branches.
    """
    n = len(start)
    if len(pivots) == n:
        lengths = coo_array((n, n))
    i, j, branch_closeness = lengths.row, lengths.col, 1.0 / lengths.data
    closeness = 1.0 / np.where(distances > 0, distances, np.inf)  # a bus has no distance to itself
    ends = np.repeat(pivots, n), np.tile(np.arange(n), len(pivots))
    weight = np.concatenate([closeness.ravel(), branch_closeness]) ** 2
    laplace = laplacian(np.append(ends[0], i), np.append(ends[1], j), weight, n)
    solve = splu(laplace[1:, 1:].tocsc()).solve
    blocks = np.array_split(np.arange(len(pivots)), 1 + closeness.size // BLOCK)
    placed = (start - start[0]).T.copy()
    for _ in range(SWEEPS):
        pulls = _pulled(placed[:, i] - placed[:, j], branch_closeness)
        right = np.stack([np.bincount(i, k, n) - np.bincount(j, k, n) for k in pulls]).astype(float)
        for block in blocks:
            pulls = _pulled(placed[:, pivots[block], None] - placed[:, None], closeness[block])
            right[:, pivots[block]] += [pull.sum(axis=1) for pull in pulls]
            right -= [pull.sum(axis=0) for pull in pulls]
        solution = np.zeros_like(placed)
        solution[:, 1:] = solve(right[:, 1:].T).T
        step = float(np.abs(solution - placed).max())
        placed = solution
        if step < 1e-4:
            break
    coordinates: Floats = placed.T
    return coordinates


def _pulled(gap: Floats, closeness: Floats) -> tuple[Floats, Floats]:
    """Return the components of unit vectors along gaps (2, ...), times ``closeness``."""
    x, y = gap
    pull = closeness / np.maximum(np.sqrt(x * x + y * y), 1e-9)
    return pull * x, pull * y


def _upright(placed: Floats) -> Floats:
    """Return the drawing rotated to landscape, its first bus to the upper left."""
    centred = placed - placed.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    turned: Floats = centred @ axes[:, ::-1]
    return turned * np.where(turned[0] * np.array([-1.0, 1.0]) < 0, -1.0, 1.0)


def _shelves(layouts: list[Floats]) -> list[NDArray[np.float64]]:
    """Return the lower left corner of every island, in rows from the top."""
    sizes = [np.ptp(layout, axis=0) + 1.0 for layout in layouts]
    area = float(sum(s[0] * s[1] for s in sizes))
    width = max(1.5 * area**0.5, *(float(s[0]) for s in sizes))
    corners, x, top, tall = [], 0.0, 0.0, 0.0
    for size in sizes:
        if x > 0 and x + size[0] > width:
            x, top, tall = 0.0, top - tall, 0.0
        corners.append(np.array([x, top - size[1]]))
        x, tall = x + float(size[0]), max(tall, float(size[1]))
    return corners
