"""CDP-ADMM and DDP-ADMM (Gauthier et al.): linearized ADMM on a graph, no server.

The two differ in the noise: its variance falls by a constant factor R a round (CDP) or like
1/sqrt(t) (DDP). Either way a run's releases are Gaussian and compose to one Gaussian release
of multiplier (sum 1/m_t^2)^(-1/2), which is set to the budget's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.files import MIB, read_text, shown
from gridpriv.learning.algorithms.base import Algorithm, Drawing, Outcome, Sent, State, Task, spread
from gridpriv.learning.clients import Array, like
from gridpriv.learning.releases import ROUNDING
from gridpriv.privacy.settings import noise_multiplier

GRAPHS = "regular:D (2 is a ring), or a file with two client numbers a line"


def variances_of(task: Task) -> Floats:
    """Return the variance of every round's noise, up to a factor: R^t, or 1/sqrt(t) (DDP)."""
    t = np.arange(1.0, task.settings.rounds + 1.0)
    falling = task.settings.decay ** (t - 1.0), 1.0 / np.sqrt(t)
    return falling[0] if task.settings.algorithm == "cdp-admm" else falling[1]


def multipliers(task: Task, variances: Floats) -> Floats:
    """Return every round's noise multiplier, in proportion to the square root of a variance.

    A total budget fixes sum 1/m_t^2. A budget per release holds for every release, the last with
    the least noise included; under sensitivity ``published`` it is the first round's, as published.
    """
    if task.settings.mechanism == "none":
        return np.zeros(len(variances))
    budget = task.settings.budget
    if budget.scope == "per-release":
        least = variances[0] if task.settings.sensitivity == "published" else variances.min()
        falling: Floats = task.multiplier * np.sqrt(variances / least)
        return falling
    whole = (task.shared.noise * ROUNDING) * noise_multiplier(
        budget, "gaussian", "proven", task.shared.runs, task.settings.delta, task.settings.noise
    )
    return np.asarray(whole * np.sqrt(variances * np.sum(1.0 / variances)))


class GraphAdmm(Algorithm):
    """Algorithm 1; the state is the clients' models and duals.

    Sensitivity (lemma I): the update is affine in the gradient, factor 1/(2 rho |N_k| + 1/eta).
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        settings, number = task.settings, task.clients.number
        graph = make_graph(settings.graph, number, settings.seed)
        links = np.asarray(nx.to_numpy_array(graph, nodelist=range(number), weight=None))
        self.rho, self.eta, degrees = settings.penalty.at(1), settings.step_scale, links.sum(axis=1)
        self.multipliers = multipliers(task, variances_of(task))
        metric = 2.0 * self.rho * degrees + 1.0 / self.eta
        self.distance = task.mean_sensitivity() / metric
        self.adjacent, self.count = like(links, self.clients.x), spread(degrees, self.clients.x)
        self.metric = spread(metric, self.clients.x)

    def neighbours(self, beta: Array) -> Array:
        """Return the sum of every client's neighbours' models."""
        flat = self.xp.reshape(beta, (self.clients.number, -1))
        return self.xp.reshape(self.xp.matmul(self.adjacent, flat), beta.shape)

    def start(self) -> State:
        """Return the start of the models, and duals of 0."""
        return self.clients.start(), self.clients.zeros()

    def local(self, _: int, state: State) -> State:
        """Return the clients' models after a linearized step."""
        beta, dual = state
        slope = self.clients.gradients(beta, self.settings.clip) + self.regularizer.subgradient(
            beta
        )
        pull = beta / self.eta + self.rho * (self.count * beta + self.neighbours(beta))
        return ((pull - slope - dual) / self.metric,)

    def aggregate(self, _: int, state: State, sent: Sent) -> Outcome:
        """Move the duals by the distance from neighbours."""
        each = sent.values
        dual = state[1] + self.rho * (self.count * each - self.neighbours(each))
        return (each, dual), self.xp.mean(each, axis=0), each

    def releases(self, t: int) -> Drawing:
        """Return one model per client, sent to its graph neighbours."""
        scale, source = float(self.multipliers[t - 1]), "lemma I of Gauthier et al."
        return Drawing.of_all(self.task.releases(self.distance, source, multiplier=scale))


def make_graph(how: str, clients: int, seed: int) -> Any:
    """Return a connected undirected graph on clients 0..P-1.

    Raises
    ------
    InputError
        Naming a client that others cannot reach.
    """
    if match := re.fullmatch(r"regular:(\d+)", how):
        return check_graph(_regular(int(match[1]), clients, seed), clients)
    if Path(how).is_file():
        return check_graph(_read(Path(how), clients), clients)
    raise not_allowed("graph", how, GRAPHS)


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
    """Return the graph of a file of edges, two client numbers a line."""
    lines = read_text(path, "graph", MIB).replace(",", " ").splitlines()
    graph = nx.empty_graph(clients)
    for number, line in enumerate(lines, 1):
        ends = line.split("#")[0].split()
        inside = all(word.isdecimal() and 1 <= int(word) <= clients for word in ends)
        if len(ends) not in (0, 2) or not inside:
            allowed = f"two client numbers, 1 to {clients}"
            raise InputError(f"{path}, line {number}: {shown(line)}: must be {allowed}")
        if ends:
            graph.add_edge(*(int(word) - 1 for word in ends))
    if nx.number_of_selfloops(graph):
        raise InputError(f"{path}: an edge of a client with itself; leave it out")
    return graph
