"""Distributed DP-SGD (Abadi et al. 2016) and DP-FedAvg (McMahan et al. 2018).

**DP-SGD.** Every client sends its noisy gradient; the server averages and steps. With ``--batch`` a
client's gradient is that of a batch. With ``--clip`` every sample's gradient is scaled down to the
clip, as published; otherwise the loss's own bound holds. With ``--trust central`` the server
receives gradients and releases their mean with noise: the mean of P clients changes by 1/P of the
change of one client, and every client is charged. With ``--trust secure-sum`` the server sees only
that noisy mean (:mod:`gridpriv.learning.secure_sum`).

With ``--centring on`` clients first release the mean of their features. Between adjacent data sets
it changes by at most twice the norm bound divided by the number of samples. Steps use features less
that mean; the model stays linear, with another intercept. Momentum and averages over rounds are
functions of releases.

**DP-FedAvg.** A trusted server adds noise to clients' clipped updates. It protects a client's whole
training set from readers of the models, but not from the server.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np

from gridpriv.consensus.transport import InProcess
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import not_allowed
from gridpriv.learning import secure_sum
from gridpriv.learning.accounting import ROUNDING, Amplification, Sampled, sampled_multiplier
from gridpriv.learning.algorithms.base import (
    Algorithm,
    Outcome,
    RoundReleases,
    Sent,
    State,
    Task,
    Watch,
)
from gridpriv.learning.clients import Array, like, namespace, to_numpy
from gridpriv.learning.settings import LearnSettings
from gridpriv.privacy.accounting import FIXED_SIZE, POISSON, gaussian_multiplier
from gridpriv.privacy.mechanism import Mechanism
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Release


def participants(settings: LearnSettings, streams: NoiseStreams, clients: int, t: int) -> Ints:
    """Return the clients of round t.

    Drawn in public without replacement; with ``participation`` secret each joins independently with
    probability K/P, so there may be none.
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

    Amplification requires that the sampled clients or samples stay secret; a seed would reveal
    them.
    """
    if settings.noise != "secure":
        return random.random(count)
    integers = np.frombuffer(secrets.token_bytes(8 * count), np.uint64)
    return np.asarray((integers >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def active_clients(task: Task, t: int) -> Ints:
    """Return the clients of round t of a task."""
    return participants(task.settings, task.streams, task.clients.number, t)


def draw_weights(task: Task, samples: int, random: np.random.Generator) -> Floats:
    """Return the number of copies of each sample of a client in a batch, shape (m,).

    ``poisson``: each independently with probability b/m, so the size varies.
    """
    batch = task.settings.batch
    if batch is None:
        return np.ones(samples)
    if task.settings.sampling == "with-replacement":
        indices = (draw_keys(task.settings, batch, random) * samples).astype(int)
        return np.bincount(indices, minlength=samples).astype(float)
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

    ``bound`` is that of a sample's gradient; a batch with replacement may consist of one sample.
    """
    batch = task.settings.batch
    repeated = batch if batch and task.settings.sampling == "with-replacement" else 1
    return task.adjacency.factor * bound * repeated / batch_divisor(task, samples)


def amplification(task: Task, samples: int, steps: int) -> Amplification | None:
    """Return the amplification by a client's secret batches over several steps, or None.

    With Poisson batches the release is (1 - q) A + q B, A independent of the sample. With batches
    without replacement a sample in a batch can be exchanged for any other, which changes the
    release by at most the distance of a replacement. Under ``zero-out`` that is twice the adjacency
    distance, and there is no amplification.
    """
    settings = task.settings
    kinds = {
        ("poisson", "zero-out"): "sampled-gaussian",
        ("poisson", "replace-one"): POISSON,
        ("without-replacement", "replace-one"): FIXED_SIZE,
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

    ``first`` is that of one additional release within the total.
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


CENTRING = 0.05
"""Share of centring in the budget's sum of 1/m^2 over releases."""
FASTEST, SLOWING = 350.0, 8.0  # of chosen_rate
SMALL = 0.1  # intercept of centred features, over the norm


class Dpsgd(Algorithm):
    """T steps of size ``learning_rate``.

    The state is the model before averaging, the velocity, the sum of averaged models and the
    clients' noisy mean features (empty without centring).
    """

    def __init__(self, task: Task, intercept: float | None = None) -> None:
        super().__init__(task)
        self.steps, self.centres = _steps(task), task.settings.centring == "on"
        self.intercept = float(self.clients.x[0, -1]) if intercept is None else intercept

    @cached_property
    def rate(self) -> float:
        """The learning rate."""
        return self.settings.learning_rate or chosen_rate(self.task, self.steps(1))

    def start(self) -> State:
        """Return the start of the model, and zeros."""
        w = self.clients.start()[0]
        centre = self.xp.zeros_like(self.clients.x[:1]) if self.centres else w[:0, :1]
        return w, 0.0 * w, 0.0 * w, centre

    def run(self, watch: Watch) -> None:
        """Run the remaining rounds, on features less their noisy mean with centring."""
        rounds, (*model, centre) = self.task.remaining_rounds(*self.start())
        if not self.centres:
            self.run_rounds(rounds, (*model, centre), watch)
            return
        task, centre = _centred(self.task, centre)
        Dpsgd(task, self.intercept).run_rounds(rounds, (*model, centre), watch)

    def local(self, t: int, state: State) -> State:
        """Return the active clients' gradients, of all their samples or of a batch."""
        settings, active = self.settings, active_clients(self.task, t)
        each = self.xp.stack([state[0]] * len(active))
        if settings.batch is None and settings.sampled_clients is None:
            return (self.clients.gradients(each, settings.clip),)
        return (batch_gradients(self.task, active, each, (t, 0), settings.clip),)

    def release(self, t: int, values: Array) -> tuple[Array, Array]:
        """Release the clients' gradients, or their mean."""
        return released(self.task, t, values, self.steps(t))

    def aggregate(self, t: int, state: State, sent: Sent) -> Outcome:
        """Step along the mean gradient; the model may be an average over the last rounds."""
        settings, (w, velocity, total, centre) = self.settings, state
        slope = self.xp.mean(sent.values, axis=0) + self.regularizer.subgradient(w)
        velocity = settings.momentum * velocity + (1.0 - settings.momentum) * slope
        w = w - self.rate * velocity
        model, averaged = w, t - math.floor((1.0 - settings.averaging) * settings.rounds)
        if settings.averaging and averaged > 0:
            total = total + w
            model = total / averaged
        if self.centres:
            model = _folded(model, centre, self.task, self.intercept)
        each = self.xp.stack([model] * self.clients.number)
        return (w, velocity, total, centre), model, each

    def releases(self, t: int) -> RoundReleases:
        """Return one gradient of every active client, or their mean.

        The first round releases the clients' mean features too, where they are centred.
        """
        return self.steps(t) if t > 1 else [*_means(self.task), *self.steps(t)]


def released(task: Task, t: int, values: Array, plan: RoundReleases) -> tuple[Array, Array]:
    """Release the clients' values (A, J, K); return what is released and the noise in it.

    Every client's value, or, with a server or a secure sum, their mean (1, J, K).
    """
    trust, xp = task.settings.trust, namespace(values)
    if trust == "local":
        return task.release(t, values, plan)
    mean = xp.mean(values, axis=0)[None]
    if trust == "central" or not plan:
        return task.release(t, mean, plan)
    mechanism = plan[0][1].mechanism
    shared = mechanism.noise if isinstance(mechanism, Sampled) else mechanism
    assert isinstance(shared, secure_sum.SharedGaussian)
    rule, flat = shared.rule, to_numpy(values).reshape(len(values), -1)
    steps = secure_sum.on_grid(flat, shared.step * rule.clients)
    exact = (steps.sum(axis=0) * shared.step).reshape(mean.shape)
    if task.settings.noise == "simulated":
        noisy, noise = task.release(t, exact, plan)
        return like(noisy, mean), noise
    task.charge_all(plan)
    clients = [secure_sum.SumClient(i, rule, shared.share, own) for i, own in enumerate(steps)]
    total = secure_sum.secure_sum(InProcess(clients), rule, shared.dimension)
    noisy = secure_sum.mean_of(total, shared.step).reshape(mean.shape)
    return like(noisy, mean), noisy - exact


def chosen_rate(task: Task, plan: RoundReleases) -> float:
    """Return a learning rate from public numbers: smaller the more noise a step has.

    A step's noise over the clip, as a 2-norm, is nu = scale sqrt(J K / P) / clip. In measurements
    (docs/decisions/0070-models.md) lr times clip of 100 was best for small nu, and of 11.5/nu for
    large nu.
    """
    clip = task.settings.clip or task.sample_gradient()
    if not math.isfinite(clip):
        raise not_allowed("learning_rate", None, "a number, or given with --clip")
    variance = max((release.mechanism.variance for _, release in plan), default=0.0)
    noise = math.sqrt(variance * task.size / max(len(plan), 1)) / clip
    return min(FASTEST, SLOWING / max(noise, 1e-12)) / clip


def centre_multiplier(task: Task) -> float | None:
    """Return the noise multiplier of the clients' means; None where none are released.

    With a budget per release it is the same as for all releases.
    """
    if task.settings.centring == "off" or task.rule is None:
        return None
    if task.settings.budget.scope == "per-release":
        return task.multiplier
    budget = task.settings.budget
    whole = gaussian_multiplier(budget.epsilon, budget.delta or 0.0, task.shared.runs)
    return task.shared.noise * ROUNDING * whole / math.sqrt(CENTRING)


def _means(task: Task) -> RoundReleases:
    """Return the releases of the clients' mean features."""
    multiplier, source = centre_multiplier(task), "a mean of rows of bounded norm"
    if multiplier is None:
        return []
    distance = task.adjacency.factor * task.norm / task.clients.counts
    if task.settings.trust == "local":
        return task.releases(distance, source, multiplier=multiplier)
    everybody = np.arange(task.clients.number)
    release = _of_mean(
        task, float(distance.max()), source, multiplier, everybody, task.clients.shape[0]
    )
    return [(everybody, release)]


def _centred(task: Task, centre: Array) -> tuple[Task, Array]:
    """Return the task on features less the clients' noisy mean, and that mean (1, J).

    A resumed run has the mean already. The intercept stays, but is small: otherwise it would
    dominate a sample's clipped gradient.
    """
    clients, settings = task.linear_clients(), task.settings
    if settings.intercept == "off" or settings.clip is None:
        raise not_allowed("centring", "on", "off without --clip and an intercept")
    if task.checkpoint.rounds == 0:
        xp = namespace(clients.x)
        means = [xp.mean(clients.part(p)[0], axis=0)[None] for p in range(clients.number)]
        noisy, _ = released(task, 0, xp.stack(means), _means(task))
        centre = xp.mean(noisy, axis=0)
        centre[:, -1] = 0.0
    centred = clients.x - centre
    centred[:, -1] = SMALL * task.norm
    return replace(task, clients=replace(clients, x=centred)), centre


def _folded(w: Array, centre: Array, task: Task, constant: float) -> Array:
    """Return the model of the original features, with the intercept adjusted for the mean."""
    xp = namespace(w)
    folded = xp.asarray(w, copy=True)
    folded[-1] = (SMALL * task.norm * w[-1] - xp.matmul(centre, w)[0]) / constant
    return folded


def _steps(task: Task) -> Callable[[int], RoundReleases]:
    """Return the releases of a step of every round."""
    bound, number = task.sample_gradient(), task.clients.number
    noisy, local = task.rule is not None, task.settings.trust == "local"
    source = "one sample's bounded gradient"

    def of(p: int, active: Ints | None = None) -> Release:
        samples = int(task.clients.counts[p])
        amplified = amplification(task, samples, 1)
        distance = step_sensitivity(task, samples, bound)
        multiplier = step_multiplier(task, amplified, centre_multiplier(task))
        if active is not None:
            return _of_mean(task, distance, source, multiplier, active, task.size, amplified)
        return task.release_of(distance, source, multiplier=multiplier, amplified=amplified)

    own = [of(p) for p in range(number if noisy and local else 0)]

    def of_round(t: int) -> RoundReleases:
        active = active_clients(task, t)
        if noisy and not local:
            # the client with the fewest samples has the largest sensitivity and sampling rate
            smallest = int(active[np.argmin(task.clients.counts[active])])
            return [(active, of(smallest, active))]
        return [(p, own[p]) for p in active.tolist()] if own else []

    return of_round


def _of_mean(
    task: Task,
    distance: float,
    source: str,
    multiplier: float,
    active: Ints,
    dimension: int,
    amplified: Amplification | None = None,
) -> Release:
    """Return the release of the mean of several clients' values, where one client's changes."""
    settings, distance = task.settings, distance / len(active)
    release = task.release_of(distance, source, multiplier=multiplier, amplified=amplified)
    if settings.trust == "central":
        return release
    tenth = min(math.ceil(len(active) / 10), len(active) - 1)
    colluding = tenth if settings.colluding is None else settings.colluding
    rule = secure_sum.SumRule(len(active), colluding, settings.dropouts)
    shared: Mechanism = secure_sum.shared_gaussian(multiplier, distance, rule, dimension)
    shared = shared if amplified is None else Sampled(shared, amplified)
    return replace(release, mechanism=shared)


DEFAULT_CLIP = 1.0


class DpFedavg(Algorithm):
    """T rounds of Q local steps on each sampled client; the state is the server's model."""

    def start(self) -> State:
        """Return the start of the model."""
        return (self.clients.start()[0],)

    def local(self, t: int, state: State) -> State:
        """Return the sum of the clipped updates over a public number of clients, (1, J, K)."""
        w, active = state[0], active_clients(self.task, t)
        if not len(active):
            return (self.xp.zeros_like(w)[None],)
        rate, local = self.settings.learning_rate or 0.0, self.xp.stack([w] * len(active))
        for q in range(1, self.settings.local_updates + 1):
            slope = batch_gradients(self.task, active, local, (t, q), None)
            local = local - rate * (slope + self.regularizer.subgradient(local))
        updates = clipped(local - w[None], _clip(self.task))
        return (self.xp.sum(updates, axis=0)[None] / expected_clients(self.task),)

    def aggregate(self, _: int, state: State, sent: Sent) -> Outcome:
        """Add the noisy mean update to the model."""
        w = state[0] + sent.values[0]
        return (w,), w, self.xp.stack([w] * self.clients.number)

    def releases(self, t: int) -> RoundReleases:
        """Return the release of the summed updates over a public number of clients.

        Adjacent sums differ by one client. With public participation the clients of a round are
        charged for it. Where the server samples clients in secret, each with probability K/P, every
        client is charged for every round, by the loss of the Poisson-sampled Gaussian mechanism.
        """
        task, number = self.task, self.clients.number
        if task.rule is None:
            return []
        secret, rate = self.settings.participation == "secret", expected_clients(task) / number
        amplified = Amplification(rate, "sampled-gaussian") if secret and rate < 1.0 else None
        active = np.arange(number) if secret else active_clients(task, t)
        release = task.release_of(
            _clip(task) / expected_clients(task),
            "a client's clipped update",
            multiplier=step_multiplier(task, amplified),
            amplified=amplified,
        )
        return [(active, release)]


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
