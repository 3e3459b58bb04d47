"""DP-FedAvg (McMahan et al. 2018): clients' clipped updates, noise added by a trusted server.

It protects a client's whole training set from those who see the models, not from the server:
another adjacency and another adversary than the rest of the module, and stated as such.
"""

from __future__ import annotations

import numpy as np

from gridpriv.learning.algorithms.base import Algorithm, Drawing, Outcome, Sent, State, Task
from gridpriv.learning.algorithms.batches import active_clients, batch_gradients, step_multiplier
from gridpriv.learning.arrays import Array, namespace
from gridpriv.learning.releases import Amplification

DEFAULT_CLIP = 1.0


class DpFedavg(Algorithm):
    """T rounds of Q local steps on each sampled client; the state is the server's model."""

    def start(self) -> State:
        """Return the start of the model."""
        return (self.clients.start()[0],)

    def local(self, t: int, state: State) -> State:
        """Return the sum of the clipped updates over a public number of clients, (1, J, K)."""
        w, active = state[0], active_clients(self.task, t)
        local = _local_models(self.task, t, active, w) if len(active) else w[None]
        updates = clipped(local - w[None], _clip(self.task))
        return (self.xp.sum(updates, axis=0)[None] / expected_clients(self.task),)

    def aggregate(self, _: int, state: State, sent: Sent) -> Outcome:
        """Move the model by the noisy mean update."""
        w = state[0] + sent.values[0]
        return (w,), w, self.xp.stack([w] * self.clients.number)

    def releases(self, t: int) -> Drawing:
        """Return the release of the summed updates over a public number of clients.

        One client joins the sum or not. Who takes part in public is charged for that round. Where
        the server draws clients in secret, each with chance K/P, every client is charged for every
        round, by the loss of the Poisson-sampled Gaussian mechanism.
        """
        task, number = self.task, self.clients.number
        secret, rate = self.settings.participation == "secret", expected_clients(task) / number
        amplified = Amplification(rate, "sampled-gaussian") if secret and rate < 1.0 else None
        active = np.arange(number) if secret else active_clients(task, t)
        if task.rule is None:
            return Drawing([], active)
        release = task.release_of(
            _clip(task) / expected_clients(task),
            "a client's clipped update",
            multiplier=step_multiplier(task, amplified),
            amplified=amplified,
        )
        return Drawing([release], active[None])


def expected_clients(task: Task) -> int:
    """Return the public number that the sum of updates is divided by."""
    return task.settings.sampled_clients or task.clients.number


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
        local = local - (task.settings.learning_rate or 0.0) * (
            slope + task.regularizer.subgradient(local)
        )
    return local
