"""Computed zone maps: one function per method, and a common repair and balance step.

Every method works on the graph of buses, is deterministic for a seed, and returns connected zones
(on a connected grid). Edges are weighted by branch admittance, except for METIS: with weights it
cuts more ties, and rounds are not fewer (docs/decisions/0017-acceleration.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from heapq import heapify, heappop, heappush

import networkx as nx
import numpy as np

from gridpriv.core.errors import check_choice, missing_extra, not_allowed
from gridpriv.grid.case import Case
from gridpriv.grid.zoning import Zoning, bus_graph, warn_disconnected, zoning_from_groups

Groups = list[set[int]]
SMALLEST_SHARE = 1 / 3
"""Smallest zone as a share of the mean size, where the graph allows it."""


def partition(case: Case, zones: int, method: str = "spectral", seed: int = 0) -> Zoning:
    """Partition the buses of a case into connected, balanced zones.

    Parameters
    ----------
    case : Case
    zones : int
        Number of zones, 1 to the number of buses.
    method : {'spectral', 'louvain', 'kernighan-lin', 'metis'}
    seed : int
        Of the method's own choices (ties, start vectors); not a privacy seed.

    Returns
    -------
    Zoning

    Raises
    ------
    InputError
        For an unknown method, an impossible number of zones, or a missing extra.
    """
    check_choice("method", method, METHODS)
    if not 1 <= zones <= case.n_bus:
        raise not_allowed("zones", zones, f"1 to {case.n_bus}, the number of buses")
    graph = bus_graph(case)
    groups = METHODS[method](graph, zones, seed) if zones > 1 else [set(graph)]
    groups = fill_empty(graph, connect(graph, groups), zones)
    groups = balance(graph, groups, SMALLEST_SHARE)
    zoning = zoning_from_groups(case, groups, f"{method}, {zones} zones")
    warn_disconnected(case, zoning)
    return zoning


def louvain(graph: nx.Graph, zones: int, seed: int) -> Groups:
    """Louvain communities at the first resolution that gives enough, merged down to ``zones``."""
    resolution = 1.0
    while True:
        groups = [
            set(c)
            for c in nx.community.louvain_communities(graph, resolution=resolution, seed=seed)
        ]
        if len(groups) >= zones:
            return _merge(graph, groups, zones)
        resolution *= 2.0


def metis(graph: nx.Graph, zones: int, seed: int) -> Groups:
    """METIS k-way partition (the ``metis`` extra)."""
    try:
        import pymetis
    except ImportError:
        raise missing_extra("pymetis", "metis", "--partition metis") from None
    adjacency = [list(graph[node]) for node in range(len(graph))]
    options = pymetis.Options(seed=seed)
    _, membership = pymetis.part_graph(zones, adjacency=adjacency, options=options)
    return [set(np.flatnonzero(np.array(membership) == z).tolist()) for z in range(zones)]


def connect(graph: nx.Graph, groups: Collection[set[int]]) -> Groups:
    """Keep the largest piece of every group; give each other piece to its strongest neighbour."""
    zones: Groups = []
    parts: Groups = []
    for group in groups:
        components = nx.connected_components(graph.subgraph(group))
        ranked = sorted(components, key=lambda part: (-len(part), min(part)))
        zones.extend(set(part) for part in ranked[:1])
        parts.extend(set(part) for part in ranked[1:])
    zone_of, part_of = _zone_of(zones), _zone_of(parts)
    waiting = [(*_rank(graph, part, zone_of), i) for i, part in enumerate(parts)]
    heapify(waiting)
    unassigned = set(range(len(parts)))
    while unassigned:
        number = heappop(waiting)[-1]
        if number not in unassigned:  # outdated rank
            continue
        unassigned.discard(number)
        part = parts[number]
        ties = _tie_weights(graph, part, zone_of)
        target = max(ties, key=lambda z: (ties[z], -z)) if ties else _smallest(zones)
        _move(part, target, zones, zone_of)
        for neighbour in {
            part_of[o] for node in part for o in graph[node] if o in part_of
        } & unassigned:
            heappush(waiting, (*_rank(graph, parts[neighbour], zone_of), neighbour))
    return zones


def _rank(graph: nx.Graph, part: set[int], zone_of: dict[int, int]) -> tuple[bool, int, int]:
    """Return the order of reassignment of pieces: those adjacent to a zone, then the smallest."""
    touches = any(other in zone_of for node in part for other in graph[node])
    return not touches, len(part), min(part)


def _zone_of(groups: Groups) -> dict[int, int]:
    return {node: z for z, group in enumerate(groups) for node in group}


def _move(part: set[int], target: int, groups: Groups, zone_of: dict[int, int]) -> None:
    groups[target] |= part
    zone_of.update(dict.fromkeys(part, target))


def _smallest(groups: Groups) -> int:
    return min(range(len(groups)), key=lambda z: (len(groups[z]), min(groups[z])))


def _tie_weights(graph: nx.Graph, part: set[int], zone_of: dict[int, int]) -> dict[int, float]:
    weights: dict[int, float] = {}
    for node in part:
        for other, edge in graph[node].items():
            if other not in part and other in zone_of:
                zone = zone_of[other]
                weights[zone] = weights.get(zone, 0.0) + edge["weight"]
    return weights


def fill_empty(graph: nx.Graph, groups: Groups, zones: int) -> Groups:
    """Split the largest groups until there are ``zones`` of them."""
    groups = list(groups)
    while len(groups) < zones:
        largest = max(groups, key=lambda g: (len(g), -min(g)))
        groups.remove(largest)
        subgraph = graph.subgraph(largest)
        side = _fiedler_side(subgraph, len(subgraph) // 2, 0)
        groups.extend(connect(subgraph, [side, largest - side]))
    return groups


def balance(graph: nx.Graph, groups: Groups, smallest_share: float) -> Groups:
    """Enlarge zones under ``smallest_share`` of the mean size; zones stay connected.

    A small zone gets boundary buses of its largest neighbour. Where that would disconnect the
    neighbour, the small zone is merged into its smallest neighbour and the largest zone is split.
    If the graph allows neither, the zone stays small.
    """
    groups = [set(g) for g in groups]
    zone_of = _zone_of(groups)
    least = smallest_share * len(zone_of) / len(groups)
    for _ in range(2 * len(groups)):
        zone = _smallest(groups)
        while len(groups[zone]) < least and _gain_boundary_bus(graph, groups, zone_of, zone):
            pass
        if len(groups[_smallest(groups)]) >= least:
            break
        if len(groups[zone]) < least:
            groups = _merge_and_halve(graph, groups, zone)
            zone_of = _zone_of(groups)
    return groups


def _gain_boundary_bus(graph: nx.Graph, groups: Groups, zone_of: dict[int, int], zone: int) -> bool:
    frontier = {o for node in groups[zone] for o in graph[node] if zone_of[o] != zone}
    for node in sorted(frontier, key=lambda o: (-len(groups[zone_of[o]]), o)):
        donor = groups[zone_of[node]]
        if len(donor) > len(groups[zone]) + 1 and nx.is_connected(graph.subgraph(donor - {node})):
            donor.discard(node)
            _move({node}, zone, groups, zone_of)
            return True
    return False


def _merge_and_halve(graph: nx.Graph, groups: Groups, zone: int) -> Groups:
    merged = [group for z, group in enumerate(groups) if z != zone]
    if not _tie_weights(graph, groups[zone], _zone_of(merged)):  # an island cannot be merged
        return groups
    merged[_smallest_neighbour(graph, groups[zone], merged)] |= groups[zone]
    return fill_empty(graph, merged, len(groups))


def _merge(graph: nx.Graph, groups: Groups, zones: int) -> Groups:
    """Merge the smallest group into its smallest neighbour until ``zones`` are left."""
    groups = [set(g) for g in groups]
    while len(groups) > zones:
        smallest = groups.pop(_smallest(groups))
        groups[_smallest_neighbour(graph, smallest, groups)] |= smallest
    return groups


def _smallest_neighbour(graph: nx.Graph, part: set[int], groups: Groups) -> int:
    """Return the smallest group with a tie to some nodes; without ties the smallest of all."""
    ties = _tie_weights(graph, part, _zone_of(groups))
    return min(ties, key=lambda z: (len(groups[z]), -ties[z], z)) if ties else _smallest(groups)


def _recursive(
    graph: nx.Graph, zones: int, seed: int, side: Callable[[nx.Graph, int, int], set[int]]
) -> Groups:
    """Return zones by recursive bisection: into a side, split where sizes allow equal zones."""
    if zones == 1:
        return [set(graph)]
    first = zones // 2
    size = round(len(graph) * first / zones)
    first_side = side(graph, size, seed)
    parts = connect(graph, [first_side, set(graph) - first_side])
    if len(parts) < 2 or min(map(len, parts)) == 0:
        return [set(graph)]
    return [
        group
        for part, count in zip(parts, (first, zones - first), strict=True)
        for group in _recursive(graph.subgraph(part), count, seed, side)
    ]


def _fiedler_side(graph: nx.Graph, size: int, seed: int) -> set[int]:
    """Return the first ``size`` nodes, by island, each in the order of its Fiedler vector."""
    islands = sorted(nx.connected_components(graph), key=lambda island: (-len(island), min(island)))
    ranked: list[int] = []
    for island in islands:
        nodes = sorted(island)
        vector = _fiedler(graph.subgraph(island), nodes, seed)
        ranked += [node for _, node in sorted(zip(vector, nodes, strict=True))]
    return set(ranked[:size])


def _fiedler(graph: nx.Graph, nodes: list[int], seed: int) -> list[float]:
    """Return the Fiedler vector of the normalized Laplacian, rounded to keep equal values equal."""
    if len(nodes) <= 2:
        return list(map(float, range(len(nodes))))
    ordered = nx.Graph()
    ordered.add_nodes_from(nodes)
    ordered.add_edges_from(graph.edges(data=True))
    vector = nx.fiedler_vector(ordered, normalized=True, method="tracemin_lu", seed=seed)
    vector = vector * (1.0 if vector[np.argmax(np.abs(vector))] > 0 else -1.0)
    return [float(v) for v in np.round(vector, 6)]


def _kernighan_lin_side(graph: nx.Graph, size: int, seed: int) -> set[int]:
    """Return a Fiedler split refined by Kernighan and Lin's exchanges."""
    start = _fiedler_side(graph, size, seed)
    pair = (start, set(graph) - start)
    if not all(pair):  # networkx exchanges between two sides only
        return start
    return set(
        nx.community.kernighan_lin_bisection(graph, partition=pair, weight="weight", seed=seed)[0]
    )


METHODS: dict[str, Callable[[nx.Graph, int, int], Groups]] = {
    "spectral": partial(_recursive, side=_fiedler_side),
    "louvain": louvain,
    "kernighan-lin": partial(_recursive, side=_kernighan_lin_side),
    "metis": metis,
}
