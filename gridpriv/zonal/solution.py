"""The state of a whole grid: what a run would dispatch, or what given voltages mean."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gridpriv.core.arrays import Complexes, Floats
from gridpriv.grid.admittance import branch_flows
from gridpriv.grid.case import Case
from gridpriv.power.zone import Network


@dataclass(frozen=True, eq=False)
class GridSolution:
    """The state of a whole grid in per unit.

    Attributes
    ----------
    case : Case
        With the demand that was asked for.
    vm, va : (n,) float
        Voltage magnitude, and angle in rad. A relaxation's angles follow its wi/wr along a
        spanning tree; they are consistent on every branch only where it is tight.
    s_from, s_to : (m,) complex
        Flow into the branch at either end.
    pg, qg : (g,) float
    p_shed, q_shed : (n,) float
        Demand that is not served (negative: surplus).
    source : str
    """

    case: Case
    vm: Floats
    va: Floats
    s_from: Complexes
    s_to: Complexes
    pg: Floats
    qg: Floats
    p_shed: Floats
    q_shed: Floats
    source: str = ""


def solution_of_voltages(
    case: Case, voltage: Complexes, pg: Floats, qg: Floats, source: str = "voltages"
) -> GridSolution:
    """Return the solution at given voltages (p.u., shape (n,)).

    What the generators do not cover of a bus's balance is shed.
    """
    s_from, s_to = branch_flows(case, voltage)
    imbalance = _imbalance(case, np.abs(voltage) ** 2, s_from, s_to, pg, qg)
    return GridSolution(
        case, np.abs(voltage), np.angle(voltage), s_from, s_to, pg, qg,
        imbalance.real, imbalance.imag, source,
    )  # fmt: skip


def _imbalance(
    case: Case, w: Floats, s_from: Complexes, s_to: Complexes, pg: Floats, qg: Floats
) -> Complexes:
    """Return what every bus lacks: flows out + shunts + demand - generation."""
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
        network.case, np.sqrt(w), angles, s_from, s_to, part["pg"], part["qg"],
        imbalance.real, imbalance.imag, source,
    )  # fmt: skip


def tree_angles(
    case: Case, pair_i: NDArray[np.int64], pair_j: NDArray[np.int64], difference: Floats
) -> Floats:
    """Return bus angles (rad) from angle differences i - j of bus pairs, along spanning trees.

    Each tree starts at a reference bus of its island, at the source's angle there.
    """
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
