"""DP-FedAvg (McMahan et al. 2018): clients' clipped updates, noise added by a trusted server.

It protects a client's whole training set from those who see the models, not from the server:
another adjacency and another adversary than the rest of the module, and stated as such.
"""

from __future__ import annotations

import numpy as np

from gridpriv.learning.algorithms.base import (
    Drawing,
    Releases,
    Round,
    Task,
    Watch,
    held,
    magnitude,
)
from gridpriv.learning.algorithms.batches import active_clients, batch_gradients
from gridpriv.learning.arrays import Array, namespace

DEFAULT_CLIP = 1.0


def dp_fedavg(task: Task, watch: Watch) -> None:
    """Run T rounds of Q local steps on each sampled client."""
    clients = task.clients
    xp = namespace(clients.x)
    rounds, (w,) = task.left(clients.start()[0])
    clip, drawing = _clip(task), releases(task)
    for t in rounds:
        active = active_clients(task, t)
        updates = clipped(_local_models(task, t, active, w) - w[None], clip)
        noisy, noise = task.release(t, xp.mean(updates, axis=0)[None], drawing(t))
        w = w + noisy[0]
        local = xp.stack([w] * clients.number)
        watch(Round(t, w, local, magnitude(noise), held(w)))


def releases(task: Task) -> Releases:
    """Return what every round releases: the mean update, charged to every active client.

    One client joins the sum, which is divided by a public number of clients.
    """

    def of_round(t: int) -> Drawing:
        active = active_clients(task, t)
        distance = np.array([_clip(task) / len(active)])
        return Drawing(task.releases(distance, "a client's clipped update"), active[None])

    return of_round


def _clip(task: Task) -> float:
    return DEFAULT_CLIP if task.settings.clip is None else task.settings.clip


def clipped(updates: Array, most: float) -> Array:
    """Return updates (A, J, K) scaled down to 2-norm ``most``; 0 for one that is not finite."""
    xp = namespace(updates)
    finite = xp.isfinite(xp.sum(updates**2, axis=(1, 2)))[:, None, None]
    updates = xp.where(finite, updates, xp.zeros_like(updates))
    lengths = xp.sqrt(xp.sum(updates**2, axis=(1, 2)))[:, None, None]
    return updates * (most / xp.where(lengths > most, lengths, xp.full_like(lengths, most)))


def _local_models(task: Task, t: int, active: np.ndarray, w: Array) -> Array:
    xp = namespace(w)
    local = xp.stack([w] * len(active))
    for q in range(1, task.settings.local_updates + 1):
        slope = batch_gradients(task, active, local, (t, q), None)
        local = local - task.settings.learning_rate * (slope + task.regularizer.subgradient(local))
    return local
