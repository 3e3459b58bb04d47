"""CDP-ADMM and DDP-ADMM (Gauthier et al.): linearized ADMM on a graph, no server.

The two differ in the noise: its variance falls by a constant factor R a round (CDP) or like
1/sqrt(t) (DDP). Either way a run's releases are Gaussian and compose to one Gaussian release
of multiplier (sum 1/m_t^2)^(-1/2), which is set to the budget's.
"""

from __future__ import annotations

import networkx as nx
import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import not_allowed
from gridpriv.learning.algorithms.base import (
    Drawing,
    Releases,
    Round,
    Task,
    Watch,
    held,
    magnitude,
    spread,
)
from gridpriv.learning.arrays import Array, like, namespace
from gridpriv.learning.graph import make_graph
from gridpriv.learning.releases import ROUNDING
from gridpriv.privacy.budget import noise_multiplier


def variances_of(task: Task) -> Floats:
    """Return the variance of every round's noise, up to a factor: R^t, or 1/sqrt(t) (DDP)."""
    t = np.arange(1.0, task.settings.rounds + 1.0)
    falling = task.settings.decay ** (t - 1.0), 1.0 / np.sqrt(t)
    return falling[0] if task.settings.algorithm == "cdp-admm" else falling[1]


def releases(task: Task) -> Releases:
    """Return the releases of a round: one model per client, sent to its graph neighbours."""
    settings = task.settings
    scales = multipliers(task, variances_of(task))
    degrees = _links(task).sum(axis=1)
    distance = sensitivity(
        task.mean_sensitivity(), settings.penalty.at(1), degrees, settings.step_scale
    )

    def of_round(t: int) -> Drawing:
        found = task.releases(
            distance, "lemma I of Gauthier et al.", multiplier=float(scales[t - 1])
        )
        return Drawing.of_all(found)

    return of_round


def _links(task: Task) -> Floats:
    """Return the graph's adjacency matrix."""
    number = task.clients.number
    graph = make_graph(task.settings.graph, number, task.settings.seed)
    return np.asarray(nx.to_numpy_array(graph, nodelist=range(number), weight=None))


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


def sensitivity(gradient: Floats, rho: float, degrees: Floats, step: float) -> Floats:
    """Return lemma I: the update is affine in the gradient, factor 1/(2 rho |N_k| + 1/eta)."""
    distance: Floats = gradient / (2.0 * rho * degrees + 1.0 / step)
    return distance


def graph_admm(task: Task, watch: Watch) -> None:
    """Run algorithm 1."""
    settings, clients, regularizer = task.settings, task.clients, task.regularizer
    if settings.batch is not None or settings.sampled_clients is not None:
        raise not_allowed(
            "batch or sampled-clients", "given", f"left out with {settings.algorithm}"
        )
    xp = namespace(clients.x)
    links, drawing = _links(task), releases(task)
    degrees = links.sum(axis=1)
    rho, eta = settings.penalty.at(1), settings.step_scale
    adjacent = like(links, clients.x)
    metric = spread(2.0 * rho * degrees + 1.0 / eta, clients.x)
    count = spread(degrees, clients.x)

    def neighbours(beta: Array) -> Array:
        flat = xp.reshape(beta, (clients.number, -1))
        return xp.reshape(xp.matmul(adjacent, flat), beta.shape)

    rounds, (beta, dual) = task.left(clients.start(), clients.zeros())
    for t in rounds:
        slope = clients.gradients(beta, settings.clip) + regularizer.subgradient(beta)
        pull = beta / eta + rho * (count * beta + neighbours(beta))
        beta, noise = task.release(t, (pull - slope - dual) / metric, drawing(t))
        dual = dual + rho * (count * beta - neighbours(beta))
        watch(Round(t, xp.mean(beta, axis=0), beta, magnitude(noise), held(beta, dual)))
