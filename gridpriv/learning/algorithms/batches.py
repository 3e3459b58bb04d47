"""Minibatches as weights on a client's samples, and the gradients of weighted samples."""

from __future__ import annotations

import numpy as np

from gridpriv.core.arrays import Floats, Ints
from gridpriv.learning.accounting import sampled_multiplier
from gridpriv.learning.algorithms.base import Task
from gridpriv.learning.arrays import Array, namespace
from gridpriv.learning.settings import LearnSettings
from gridpriv.privacy.noise import NoiseStreams


def participants(settings: LearnSettings, streams: NoiseStreams, clients: int, t: int) -> Ints:
    """Return the clients of round t, drawn without replacement; the draw is public."""
    chosen = settings.sampled_clients
    if chosen is None or chosen == clients:
        return np.arange(clients)
    return np.sort(streams.stream(1, t, 0).choice(clients, size=chosen, replace=False))


def active_clients(task: Task, t: int) -> Ints:
    """Return the clients of round t of a task."""
    return participants(task.settings, task.streams, task.clients.number, t)


def draw_weights(task: Task, samples: int, random: np.random.Generator) -> Floats:
    """Return how often each of a client's samples is in a batch, shape (m,).

    ``poisson``: each with probability b/m on its own, so the size varies.
    """
    batch = task.settings.batch
    if batch is None:
        return np.ones(samples)
    if task.settings.sampling == "poisson":
        return (random.random(samples) < batch / samples).astype(float)
    if task.settings.sampling == "with-replacement":
        return np.bincount(random.integers(samples, size=batch), minlength=samples).astype(float)
    weights = np.zeros(samples)
    weights[random.choice(samples, size=batch, replace=False)] = 1.0
    return weights


def batch_divisor(task: Task, samples: int) -> float:
    """Return the public number that a batch's sum of gradients is divided by."""
    return float(samples if task.settings.batch is None else task.settings.batch)


def step_sensitivity(task: Task, samples: int, bound: float) -> float:
    """Return how far one step's gradient moves between neighbours.

    ``bound`` is a sample gradient's; a sample may fill a batch that is drawn with replacement.
    """
    batch = task.settings.batch
    repeated = batch if batch and task.settings.sampling == "with-replacement" else 1
    return task.adjacency.factor * bound * repeated / batch_divisor(task, samples)


def inclusion_rate(task: Task, samples: int, steps: int) -> float | None:
    """Return the chance that a sample is in any of a release's batches, where it amplifies.

    Poisson batches of a client's own secret draw under ``add-one`` only: then what is released
    is (1 - q) A + q B with A independent of the sample. None elsewhere, where q is 1, and with
    secure noise, whose discrete draws the sampled mechanism's loss distribution does not cover.
    """
    settings = task.settings
    if (
        settings.noise == "secure"
        or settings.batch is None
        or settings.sampling != "poisson"
        or settings.adjacency != "add-one"
    ):
        return None
    rate = float(1.0 - (1.0 - settings.batch / samples) ** steps)
    return rate if rate < 1.0 else None


def step_multiplier(task: Task, rate: float | None) -> float:
    """Return the noise multiplier of a release from a secret sample of this rate, or of none."""
    if rate is None or task.rule is None:
        return task.multiplier
    return task.shared.noise * sampled_multiplier(task.settings, task.rule.multiplier, rate)


def batch_gradients(
    task: Task, active: Ints, w: Array, place: tuple[int, int], clip: float | None
) -> Array:
    """Return the active clients' gradients at w (A, J, K), of batches drawn at a round and step."""
    clients, found = task.clients, []
    for k, p in enumerate(active.tolist()):
        samples = int(clients.counts[p])
        weights = draw_weights(task, samples, task.streams.stream(2 + p, *place))
        found.append(clients.weighted(p, w[k], weights, clip) / batch_divisor(task, samples))
    return namespace(w).stack(found)
