"""Distributed DP-SGD (Abadi et al. 2016, without a trusted server).

Every client sends its noisy gradient and the server averages and steps. With ``--batch`` a
client's gradient is that of a batch; with ``--clip`` every sample's gradient is scaled down to
the clip, as published; without, the loss's own bound holds.
"""

from __future__ import annotations

from gridpriv.learning.algorithms.base import (
    Drawing,
    Releases,
    Round,
    Task,
    Watch,
    held,
    magnitude,
)
from gridpriv.learning.algorithms.batches import (
    active_clients,
    batch_gradients,
    inclusion_rate,
    step_multiplier,
    step_sensitivity,
)
from gridpriv.learning.arrays import namespace
from gridpriv.privacy.release import Release


def dpsgd(task: Task, watch: Watch) -> None:
    """Run T steps of size ``learning_rate``."""
    clients, settings = task.clients, task.settings
    xp = namespace(clients.x)
    rounds, (w,) = task.left(clients.start()[0])
    drawing = releases(task)
    whole = settings.batch is None and settings.sampled_clients is None
    for t in rounds:
        active = active_clients(task, t)
        local = xp.stack([w] * len(active))
        if whole:
            gradients = clients.gradients(local, settings.clip)
        else:
            gradients = batch_gradients(task, active, local, (t, 0), settings.clip)
        noisy, noise = task.release(t, gradients, drawing(t))
        mean = xp.mean(noisy, axis=0)
        w = w - settings.learning_rate * (mean + task.regularizer.subgradient(w))
        local = xp.stack([w] * clients.number)
        watch(Round(t, w, local, magnitude(noise), held(w)))


def releases(task: Task) -> Releases:
    """Return what every round releases: one gradient of every active client."""
    bound = task.sample_gradient()
    everybody = range(task.clients.number if task.rule is not None else 0)
    own = [_release(task, p, bound) for p in everybody]

    def of_round(t: int) -> Drawing:
        active = active_clients(task, t)
        return Drawing([own[p] for p in active] if own else [], active)

    return of_round


def _release(task: Task, p: int, bound: float) -> Release:
    """Return the release of one client's gradient."""
    samples = int(task.clients.counts[p])
    rate = inclusion_rate(task, samples, 1)
    return task.release_of(
        step_sensitivity(task, samples, bound),
        "one sample's bounded gradient",
        multiplier=step_multiplier(task, rate),
        rate=rate,
    )
