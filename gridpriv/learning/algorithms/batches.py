"""Minibatches as weights on a client's samples, and the gradients of weighted samples."""

from __future__ import annotations

import math
import secrets

import numpy as np

from gridpriv.core.arrays import Floats, Ints
from gridpriv.learning.accounting import sampled_multiplier
from gridpriv.learning.algorithms.base import Task
from gridpriv.learning.arrays import Array, namespace
from gridpriv.learning.releases import Amplification
from gridpriv.learning.settings import LearnSettings
from gridpriv.privacy.accounting import DRAWN, REPLACED
from gridpriv.privacy.noise import NoiseStreams


def participants(settings: LearnSettings, streams: NoiseStreams, clients: int, t: int) -> Ints:
    """Return the clients of round t.

    Drawn in public without replacement; with ``participation`` secret each joins on its own with
    chance K/P, so that there may be none.
    """
    chosen = settings.sampled_clients
    if chosen is None or chosen == clients:
        return np.arange(clients)
    random = streams.stream(1, t, 0)
    if settings.participation == "secret":
        keys = draw_keys(settings, clients, random)
        return np.flatnonzero(keys < chosen / clients)
    return np.sort(random.choice(clients, size=chosen, replace=False))


def draw_keys(settings: LearnSettings, count: int, random: np.random.Generator) -> Floats:
    """Return uniform numbers in [0, 1): with secure noise from the operating system's entropy.

    Amplification holds because nobody can tell who was drawn; a seed could.
    """
    if settings.noise != "secure":
        return random.random(count)
    drawn = np.frombuffer(secrets.token_bytes(8 * count), np.uint64)
    return np.asarray((drawn >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def active_clients(task: Task, t: int) -> Ints:
    """Return the clients of round t of a task."""
    return participants(task.settings, task.streams, task.clients.number, t)


def draw_weights(task: Task, samples: int, random: np.random.Generator) -> Floats:
    """Return the number of copies of each sample of a client in a batch, shape (m,).

    ``poisson``: each with probability b/m on its own, so the size varies.
    """
    batch = task.settings.batch
    if batch is None:
        return np.ones(samples)
    if task.settings.sampling == "with-replacement":
        drawn = (draw_keys(task.settings, batch, random) * samples).astype(int)
        return np.bincount(drawn, minlength=samples).astype(float)
    keys = draw_keys(task.settings, samples, random)
    if task.settings.sampling == "poisson":
        return (keys < batch / samples).astype(float)
    weights = np.zeros(samples)
    weights[np.argpartition(keys, batch - 1)[:batch]] = 1.0
    return weights


def batch_divisor(task: Task, samples: int) -> float:
    """Return the public number that a batch's sum of gradients is divided by."""
    return float(samples if task.settings.batch is None else task.settings.batch)


def step_sensitivity(task: Task, samples: int, bound: float) -> float:
    """Return the sensitivity of the gradient of one step.

    ``bound`` is a sample gradient's; a sample may fill a batch that is drawn with replacement.
    """
    batch = task.settings.batch
    repeated = batch if batch and task.settings.sampling == "with-replacement" else 1
    return task.adjacency.factor * bound * repeated / batch_divisor(task, samples)


def amplification(task: Task, samples: int, steps: int) -> Amplification | None:
    """Return the amplification by a client's secret batches over several steps, or None.

    With Poisson batches what is released is (1 - q) A + q B, A independent of the sample. With
    batches without replacement a sample that is in a batch can be swapped for any that is not,
    which moves the release by no more than a replacement does; under ``zero-out``, where neighbours
    lie half as far apart, that is twice their distance, and there is no amplification.
    """
    settings = task.settings
    kinds = {
        ("poisson", "zero-out"): "sampled-gaussian",
        ("poisson", "replace-one"): REPLACED,
        ("without-replacement", "replace-one"): DRAWN,
    }
    kind = kinds.get((settings.sampling, settings.adjacency))
    if settings.batch is None or kind is None or settings.sensitivity == "published":
        return None
    rate = float(1.0 - (1.0 - settings.batch / samples) ** steps)
    return Amplification(rate, kind) if rate < 1.0 else None


def step_multiplier(
    task: Task, amplified: Amplification | None, first: float | None = None
) -> float:
    """Return the noise multiplier of a release, amplified or not.

    ``first`` is that of one release besides, which the total leaves room for.
    """
    if task.rule is None:
        return task.multiplier
    plain, runs = task.rule.multiplier, task.shared.runs
    if task.settings.budget.scope != "total":
        first = None
    if amplified is None:
        if first is None:
            return task.multiplier
        steps = task.settings.rounds * runs
        return math.sqrt(steps / (steps / task.multiplier**2 - runs / first**2))
    whole = None if first is None else first / task.shared.noise / math.sqrt(runs)
    result = sampled_multiplier(task.settings, plain, amplified.rate, amplified.kind, whole)
    return task.shared.noise * result


def batch_gradients(
    task: Task, active: Ints, w: Array, place: tuple[int, int], clip: float | None
) -> Array:
    """Return the active clients' gradients at w (A, J, K), of batches drawn at a round and step."""
    clients, result = task.clients, []
    for k, p in enumerate(active.tolist()):
        samples = int(clients.counts[p])
        weights = draw_weights(task, samples, task.streams.stream(2 + p, *place))
        result.append(clients.weighted(p, w[k], weights, clip) / batch_divisor(task, samples))
    return namespace(w).stack(result)
