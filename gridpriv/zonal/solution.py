"""The state of a whole grid: what a run would dispatch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.arrays import Complexes, Floats
from gridpriv.grid.case import Case
from gridpriv.power.ac.state import GridState
from gridpriv.power.zone import Network


@dataclass(frozen=True, eq=False)
class GridSolution(GridState):
    """State of a grid and its source; negative load shedding is a surplus.

    A relaxation's angles follow its wi/wr along a spanning tree; they are consistent on every
    branch only where it is tight.
    """

    source: str = ""


def _imbalance(
    case: Case, w: Floats, s_from: Complexes, s_to: Complexes, pg: Floats, qg: Floats
) -> Complexes:
    """Return every bus's imbalance: flows out + shunts + demand - generation."""
    total = case.pd + 1j * case.qd + w * (case.gs - 1j * case.bs)
    np.add.at(total, case.f_bus, s_from)
    np.add.at(total, case.t_bus, s_to)
    np.subtract.at(total, case.gen_bus, pg + 1j * qg)
    return np.asarray(total, dtype=np.complex128)


def solution_of_variables(network: Network, z: Floats, source: str) -> GridSolution:
    """Return the solution of the grid's variables, numbered as :mod:`gridpriv.power.zone` does."""
    start = network.offsets
    part = {name: z[start[name] : start[after]] for name, after in pairwise(start)}
    s_from = part["p_from"] + 1j * part["q_from"]
    s_to = part["p_to"] + 1j * part["q_to"]
    w = np.maximum(part["w"], 0.0)
    imbalance = _imbalance(network.case, w, s_from, s_to, part["pg"], part["qg"])
    difference = np.angle(part["wr"] + 1j * part["wi"])
    angles = tree_angles(network.case, network.pair_i, network.pair_j, difference)
    return GridSolution(
        network.case,
        np.sqrt(w),
        angles,
        s_from,
        s_to,
        part["pg"],
        part["qg"],
        imbalance.real,
        imbalance.imag,
        source,
    )


def tree_angles(
    case: Case, pair_i: NDArray[np.int64], pair_j: NDArray[np.int64], difference: Floats
) -> Floats:
    """Return bus angles (rad) from angle differences i - j of bus pairs, along spanning trees.

    Each tree starts at a reference bus of its island, at the source's angle there.
    """
    import networkx as nx  # slow to import, and most runs end without it

    graph = nx.Graph()
    graph.add_nodes_from(range(case.n_bus))
    for i, j, angle in zip(pair_i.tolist(), pair_j.tolist(), difference.tolist(), strict=True):
        graph.add_edge(i, j, drop=angle, tail=i)
    angles = np.zeros(case.n_bus)
    for island in nx.connected_components(graph):
        references = [bus for bus in sorted(island) if case.reference[bus]]
        root = references[0] if references else min(island)
        angles[root] = case.va[root] if references else 0.0
        for near, far in nx.bfs_edges(graph, root):
            edge = graph[near][far]
            angles[far] = angles[near] + (-edge["drop"] if edge["tail"] == near else edge["drop"])
    return angles
