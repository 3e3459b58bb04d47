"""The star ADMM of Huang et al. (algorithms 1 to 3): clients, an aggregator, dual updates."""

from __future__ import annotations

from collections.abc import Callable

from gridpriv.learning.algorithms.base import Round, Task, Watch, held, magnitude
from gridpriv.learning.arrays import Array, namespace

# (k, rho, local models, global model, duals) -> released local models, noise in them or None
LocalStep = Callable[[int, float, Array, Array, Array], tuple[Array, Array | None]]


def star_admm(task: Task, watch: Watch, local_step: LocalStep) -> None:
    """Run T rounds of local steps, (10c) and (10d).

    The aggregator and, in dp-admm, the next local step see released models only.
    """
    first = task.clients.start()
    xp = namespace(first)
    rounds, (local, dual, w) = task.left(first, task.clients.zeros(), xp.mean(first, axis=0))
    for k in rounds:
        rho = task.settings.penalty.at(k)
        local, noise = local_step(k, rho, local, w, dual)
        w = xp.mean(local - dual / rho, axis=0)
        dual = dual - rho * (local - w[None])
        watch(Round(k, w, local, 0.0 if noise is None else magnitude(noise), held(local, dual, w)))
