"""Networks of clients without a server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import networkx as nx

from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.reading import MIB, read_text

GRAPHS = "ring, complete, regular:D or a file with two client numbers a line"


def make_graph(how: str, clients: int, seed: int) -> Any:
    """Return a connected undirected graph on clients 0..P-1.

    Raises
    ------
    InputError
        Naming a client that others cannot reach.
    """
    if how == "ring":
        graph = nx.cycle_graph(clients)
    elif how == "complete":
        graph = nx.complete_graph(clients)
    elif match := re.fullmatch(r"regular:(\d+)", how):
        graph = _regular(int(match[1]), clients, seed)
    elif Path(how).is_file():
        graph = _read(Path(how), clients)
    else:
        raise not_allowed("graph", how, GRAPHS)
    return check_graph(graph, clients)


def check_graph(graph: Any, clients: int) -> Any:
    """Return the graph if it connects all clients."""
    if set(graph.nodes) != set(range(clients)):
        raise not_allowed("graph", f"{graph.number_of_nodes()} clients", f"clients 1 to {clients}")
    if not nx.is_connected(graph):
        parts = sorted(nx.connected_components(graph), key=len)
        alone = ", ".join(str(p + 1) for p in sorted(parts[0])[:5])
        raise InputError(
            f"the graph is not connected: {len(parts)} parts, clients {alone} reach no other part"
            "; add links between them"
        )
    return graph


def _regular(degree: int, clients: int, seed: int) -> Any:
    if not 1 <= degree < clients or degree * clients % 2:
        raise not_allowed(
            "graph", f"regular:{degree}", f"a degree below {clients} with an even number of ends"
        )
    for attempt in range(100):
        graph = nx.random_regular_graph(degree, clients, seed=seed + attempt)
        if nx.is_connected(graph):
            return graph
    return graph


def _read(path: Path, clients: int) -> Any:
    graph = nx.Graph()
    graph.add_nodes_from(range(clients))
    for number, line in enumerate(read_text(path, "graph", MIB).splitlines(), 1):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        try:
            one, other = (int(word) - 1 for word in words)
        except ValueError:
            raise InputError(f"{path} line {number}: two client numbers expected") from None
        if not (0 <= one < clients and 0 <= other < clients) or one == other:
            raise InputError(
                f"{path} line {number}: two different clients of 1 to {clients} expected"
            )
        graph.add_edge(one, other)
    return graph
