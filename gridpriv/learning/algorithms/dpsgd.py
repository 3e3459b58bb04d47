"""Distributed DP-SGD (Abadi et al. 2016), with or without a trusted server.

Every client sends its noisy gradient and the server averages and steps. With ``--batch`` a
client's gradient is that of a batch; with ``--clip`` every sample's gradient is scaled down to
the clip, as published; without, the loss's own bound holds. With ``--trust central`` the server
sees gradients and releases their mean with noise: the mean of P clients moves by 1/P of what one
moves, and every client is charged for it. With ``--trust secure-sum`` the server sees that noisy
mean alone (:mod:`gridpriv.learning.secure_sum`).

With ``--centring on`` clients first release the mean of their features: between neighbours it moves
by at most twice the norm bound over their samples. Steps are then taken on features less that mean,
which is as linear a model: its intercept takes up the difference. Momentum and averages over rounds
are functions of what was released.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np

from gridpriv.consensus.transport import InProcess
from gridpriv.core.arrays import Ints
from gridpriv.core.errors import not_allowed
from gridpriv.learning.algorithms.base import Algorithm, Drawing, Outcome, Sent, State, Task, Watch
from gridpriv.learning.algorithms.batches import (
    active_clients,
    amplification,
    batch_gradients,
    step_multiplier,
    step_sensitivity,
)
from gridpriv.learning.arrays import Array, like, namespace, to_numpy
from gridpriv.learning.releases import ROUNDING, Amplification, Sampled
from gridpriv.learning.secure_sum import (
    SharedGaussian,
    SumClient,
    SumRule,
    mean_of,
    on_grid,
    secure_sum,
    shared_gaussian,
)
from gridpriv.privacy.accounting import gaussian_multiplier
from gridpriv.privacy.mechanism import Mechanism
from gridpriv.privacy.release import Release

CENTRING = 0.05
"""Part of the budget, of the sum of 1/m^2 over releases, that centring takes."""
FASTEST, SLOWING = 350.0, 8.0  # of chosen_rate
SMALL = 0.1  # intercept of centred features, over the norm


class Dpsgd(Algorithm):
    """T steps of size ``learning_rate``.

    The state is the model before averaging, the velocity, the sum of averaged models and the
    clients' noisy mean features (none where they are not centred).
    """

    def __init__(self, task: Task, intercept: float | None = None) -> None:
        super().__init__(task)
        self.steps = _steps(task)
        self.intercept = float(self.clients.x[0, -1]) if intercept is None else intercept

    @cached_property
    def rate(self) -> float:
        """The learning rate."""
        return self.settings.learning_rate or chosen_rate(self.task, self.steps(1))

    @property
    def centres(self) -> bool:
        """True where features are taken less their mean."""
        return self.settings.centring == "on"

    def start(self) -> State:
        """Return the start of the model, and zeros."""
        w = self.clients.start()[0]
        centre = self.xp.zeros_like(self.clients.x[:1]) if self.centres else w[:0, :1]
        return w, 0.0 * w, 0.0 * w, centre

    def run(self, watch: Watch) -> None:
        """Run the rounds that are left, on features less their noisy mean where it is asked for."""
        rounds, (*model, centre) = self.task.left(*self.start())
        if not self.centres:
            self.play(rounds, (*model, centre), watch)
            return
        task, centre = _centred(self.task, centre)
        Dpsgd(task, self.intercept).play(rounds, (*model, centre), watch)

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
        """Step along the mean gradient; the model is the mean of the last rounds' where asked."""
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

    def releases(self, t: int) -> Drawing:
        """Return one gradient of every active client, or their mean.

        The first round releases the clients' mean features too, where they are centred.
        """
        drawing = self.steps(t)
        if t > 1 or centre_multiplier(self.task) is None:
            return drawing
        pairs = [*_means(self.task), *drawing]
        return Drawing([release for _, release in pairs], np.array([p for p, _ in pairs]))


def released(task: Task, t: int, values: Array, drawing: Drawing) -> tuple[Array, Array]:
    """Release the clients' values (A, J, K); return what is released and the noise in it.

    Every client's value, or, with a server or a secure sum, their mean (1, J, K).
    """
    trust, xp = task.settings.trust, namespace(values)
    if trust == "local":
        return task.release(t, values, drawing)
    mean = xp.mean(values, axis=0)[None]
    if trust == "central" or not drawing.releases:
        return task.release(t, mean, drawing)
    mechanism = drawing.releases[0].mechanism
    shared = mechanism.noise if isinstance(mechanism, Sampled) else mechanism
    assert isinstance(shared, SharedGaussian)
    rule, flat = shared.rule, to_numpy(values).reshape(len(values), -1)
    steps = on_grid(flat, shared.step * rule.clients)
    exact = (steps.sum(axis=0) * shared.step).reshape(mean.shape)
    if task.settings.noise == "simulated":
        noisy, noise = task.release(t, exact, drawing)
        return like(noisy, mean), noise
    task.charge_all(drawing)
    clients = [SumClient(i, rule, shared.share, own) for i, own in enumerate(steps)]
    total = secure_sum(InProcess(clients), rule, shared.dimension)
    noisy = mean_of(total, shared.step).reshape(mean.shape)
    return like(noisy, mean), noisy - exact


def chosen_rate(task: Task, drawing: Drawing) -> float:
    """Return a learning rate from public numbers: smaller the more noise a step has.

    A step's noise over the clip, as a 2-norm, is nu = scale sqrt(J K / P) / clip. In measurements
    (docs/decisions/0070-models.md) steps of lr times clip of 100 did best where nu is small, and of
    11.5/nu where it is large.
    """
    clip = task.settings.clip or task.sample_gradient()
    if not math.isfinite(clip):
        raise not_allowed("learning_rate", None, "a number, or given with --clip")
    variance = max((release.mechanism.variance for release in drawing.releases), default=0.0)
    noise = math.sqrt(variance * task.size / max(len(drawing.releases), 1)) / clip
    return min(FASTEST, SLOWING / max(noise, 1e-12)) / clip


def centre_multiplier(task: Task) -> float | None:
    """Return the noise multiplier of the clients' means; None where none are released.

    With a budget per release it is that of any release.
    """
    if task.settings.centring == "off" or task.rule is None:
        return None
    if task.settings.budget.scope == "per-release":
        return task.multiplier
    budget = task.settings.budget
    whole = gaussian_multiplier(budget.epsilon, budget.delta or 0.0, task.shared.runs)
    return task.shared.noise * ROUNDING * whole / math.sqrt(CENTRING)


def _means(task: Task) -> Drawing:
    """Return the releases of the clients' mean features."""
    multiplier, source = centre_multiplier(task), "a mean of rows of bounded norm"
    if multiplier is None:
        return Drawing([], np.array([], dtype=int))
    distance = task.adjacency.factor * task.norm / task.clients.counts
    if task.settings.trust == "local":
        return Drawing.of_all(task.releases(distance, source, multiplier=multiplier))
    everybody = np.arange(task.clients.number)
    release = _of_mean(
        task, float(distance.max()), source, multiplier, everybody, task.clients.shape[0]
    )
    return Drawing([release], everybody[None])


def _centred(task: Task, centre: Array) -> tuple[Task, Array]:
    """Return the task on features less the clients' noisy mean, and that mean (1, J).

    A run that goes on has the mean already. The intercept stays, but is small: a sample's clipped
    gradient would else be mostly the intercept's.
    """
    clients, settings = task.linear_clients(), task.settings
    if settings.intercept == "off" or settings.clip is None:
        raise not_allowed("centring", "on", "off without --clip and an intercept")
    if task.begun.rounds == 0:
        xp = namespace(clients.x)
        means = [xp.mean(clients.part(p)[0], axis=0)[None] for p in range(clients.number)]
        noisy, _ = released(task, 0, xp.stack(means), _means(task))
        centre = xp.mean(noisy, axis=0)
        centre[:, -1] = 0.0
    moved = clients.x - centre
    moved[:, -1] = SMALL * task.norm
    return replace(task, clients=replace(clients, x=moved)), centre


def _folded(w: Array, centre: Array, task: Task, constant: float) -> Array:
    """Return the model of features as they were: the intercept takes up the centre."""
    xp = namespace(w)
    folded = xp.asarray(w, copy=True)
    folded[-1] = (SMALL * task.norm * w[-1] - xp.matmul(centre, w)[0]) / constant
    return folded


def _steps(task: Task) -> Callable[[int], Drawing]:
    """Return the releases of a step of every round."""
    bound, number = task.sample_gradient(), task.clients.number
    noisy, local = task.rule is not None, task.settings.trust == "local"
    source = "one sample's bounded gradient"

    def of(p: int, active: Ints | None = None) -> Release:
        samples = int(task.clients.counts[p])
        amplified, distance = (
            amplification(task, samples, 1),
            step_sensitivity(task, samples, bound),
        )
        multiplier = step_multiplier(task, amplified, centre_multiplier(task))
        if active is not None:
            return _of_mean(task, distance, source, multiplier, active, task.size, amplified)
        return task.release_of(distance, source, multiplier=multiplier, amplified=amplified)

    own = [of(p) for p in range(number if noisy and local else 0)]

    def of_round(t: int) -> Drawing:
        active = active_clients(task, t)
        if noisy and not local:
            # who has the fewest samples moves the mean furthest, and is sampled most
            smallest = int(active[np.argmin(task.clients.counts[active])])
            return Drawing([of(smallest, active)], active[None])
        return Drawing([own[p] for p in active] if own else [], active)

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
    """Return the release of the mean of several clients' values, of which one moves."""
    settings, distance = task.settings, distance / len(active)
    release = task.release_of(distance, source, multiplier=multiplier, amplified=amplified)
    if settings.trust == "central":
        return release
    tenth = min(math.ceil(len(active) / 10), len(active) - 1)
    colluding = tenth if settings.colluding is None else settings.colluding
    rule = SumRule(len(active), colluding, settings.dropouts)
    shared: Mechanism = shared_gaussian(multiplier, distance, rule, dimension)
    if amplified is not None:
        shared = Sampled(shared, amplified.rate, amplified.kind)
    return replace(release, mechanism=shared)
