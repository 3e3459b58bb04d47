"""Inputs of algorithms, their report after a round, common steps, and the centralized reference.

The reference is scipy's L-BFGS-B on all samples with bounds for the box.

Measures are the criteria of single papers for a round, in addition to loss and error: private, for
studies.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from pkgutil import resolve_name
from typing import Any

import numpy as np

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, SolverError, not_allowed
from gridpriv.core.threads import one_blas_thread
from gridpriv.learning.accounting import (
    Amplification,
    SampleAdjacency,
    Sampled,
    Tally,
    Unproved,
    covering,
)
from gridpriv.learning.algorithms import ROWS
from gridpriv.learning.clients import (
    Array,
    Clients,
    like,
    mean_gradient,
    mean_value,
    namespace,
    to_numpy,
)
from gridpriv.learning.modules import ModuleClients
from gridpriv.learning.settings import LearnSettings, Regularizer
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.release import Charging, Release
from gridpriv.privacy.sensitivity import Sensitivity


@dataclass(frozen=True)
class BudgetShare:
    """Position of a run among several.

    Attributes
    ----------
    runs : int
        Number of runs that share the budget, including this one.
    charges : mapping
        Charges of the other runs for every client.
    streams : NoiseStreams, optional
        In place of those of the seed.
    noise : float
        Noise relative to the budget's: below 1 on public rows, where nothing is certified.
    """

    runs: int = 1
    charges: Mapping[int, Mapping[Charge, int]] = field(default_factory=dict)
    streams: NoiseStreams | None = None
    noise: float = 1.0


WHOLE_BUDGET = BudgetShare()


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """State of an interrupted run: number of finished rounds, and arrays of the next start."""

    rounds: int = 0
    state: tuple[Floats, ...] = ()


@dataclass(frozen=True, eq=False)
class Task:
    """A learning problem split over clients, with its algorithm's settings.

    Attributes
    ----------
    norm : float
        Public bound of the features' 2-norm.
    rule : NoiseRule or None
        Noise of the budget for a sensitivity; None without noise.
    tally : Tally
        Every release is charged to it before it is drawn.
    charge : Charging or None
        Further receiver of a client's release before it is drawn (a ledger); refusing raises.
    shared : BudgetShare
        The runs that this one shares its budget with.
    checkpoint : Checkpoint
        Finished rounds before an interruption.
    module : torch.nn.Module or None
        The trained model, if it is not linear.
    """

    clients: Clients
    regularizer: Regularizer
    norm: float
    settings: LearnSettings
    streams: NoiseStreams
    rule: NoiseRule | None
    tally: Tally
    charge: Charging | None = None
    shared: BudgetShare = WHOLE_BUDGET
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    module: Any = None

    @property
    def adjacency(self) -> SampleAdjacency:
        """Adjacency of one sample."""
        return SampleAdjacency(self.settings.adjacency)

    @property
    def multiplier(self) -> float:
        """Noise scale over sensitivity; 0 without noise."""
        return 0.0 if self.rule is None else self.shared.noise * self.rule.multiplier

    @property
    def size(self) -> int:
        """Parameters of the model, J K."""
        return self.clients.shape[0] * self.clients.shape[1]

    def linear_clients(self) -> Clients:
        """Return the clients of a linear model; raises :class:`InputError` for a module's."""
        if isinstance(self.clients, ModuleClients):
            raise not_allowed(
                "algorithm",
                self.settings.algorithm,
                "dpsgd, dp-fedavg, dp-admm, cdp-admm or ddp-admm with a module",
            )
        return self.clients

    def sample_gradient(self) -> float:
        """Return the largest 2-norm of a sample's gradient, from public bounds.

        Raises
        ------
        InputError
            If the noise needs a bound and there is none.
        """
        bound = self.clients.loss.gradient_bound(self.norm, self.settings.clip)
        if self.settings.mechanism != "none" and not np.isfinite(bound):
            raise InputError(
                f"the {self.clients.loss.name} loss has no gradient bound: give --clip, a positive "
                "number"
            )
        return bound

    def mean_sensitivity(self) -> Floats:
        """Return the sensitivity of each client's mean gradient, shape (P,)."""
        bound = self.sample_gradient()
        if not np.isfinite(bound):
            return np.zeros(self.clients.number)
        return self.adjacency.factor * bound / self.clients.counts

    def release_of(
        self,
        distance: float,
        bound_source: str,
        *,
        multiplier: float | None = None,
        assumed: float | None = None,
        amplified: Amplification | None = None,
        proved: bool = True,
    ) -> Release:
        """Return the release of a value that changes by ``distance`` between adjacent data.

        Parameters
        ----------
        distance : float
            In the 2-norm.
        bound_source : str
            Derivation of the distance.
        multiplier : float, optional
            Noise over the assumed sensitivity; the budget's otherwise.
        assumed : float, optional
            The paper's sensitivity, which the noise is calibrated to; ``distance`` otherwise.
        amplified : Amplification, optional
            Of the secret sample that the value is computed from.
        proved : bool
            Whether ``distance`` holds for what is released.
        """
        assert self.rule is not None
        multiplier = self.multiplier if multiplier is None else multiplier
        rule = replace(self.rule, multiplier=multiplier, assumed=assumed)
        release = rule.release(Sensitivity(distance, rule.norm, bound_source))
        if not proved:
            return replace(release, mechanism=Unproved(release.mechanism))
        if amplified is not None:
            return replace(release, mechanism=Sampled(release.mechanism, amplified))
        return release

    def releases(
        self,
        distances: Floats,
        bound_source: str,
        *,
        multiplier: float | None = None,
        assumed: Floats | None = None,
        proved: bool = True,
    ) -> RoundReleases:
        """Return one release a client from their distances, (P,); none without noise."""
        if self.rule is None:
            return []
        noisy = distances if assumed is None else assumed
        given: dict[str, Any] = {"multiplier": multiplier, "proved": proved}
        pairs = list(zip(distances.tolist(), noisy.tolist(), strict=True))
        distinct = {
            (d, a): self.release_of(d, bound_source, assumed=None if a == d else a, **given)
            for d, a in set(pairs)
        }
        return [(client, distinct[pair]) for client, pair in enumerate(pairs)]

    def remaining_rounds(self, *start: Array) -> tuple[range, State]:
        """Return the remaining rounds, and the arrays from which the first of them starts.

        These are ``start``, or the last ``Round.state`` of an interrupted run.
        """
        rounds = range(self.checkpoint.rounds + 1, self.settings.rounds + 1)
        if not self.checkpoint.rounds:
            return rounds, start
        stored = zip(self.checkpoint.state, start, strict=True)
        return rounds, tuple(like(state, array) for state, array in stored)

    def charge_release(self, client: int, release: Release) -> None:
        """Charge a release that is about to be drawn."""
        if self.charge is not None:
            self.charge(str(client + 1), {covering(release): 1})
        self.tally.add(client, release)

    def charge_all(self, plan: RoundReleases) -> None:
        """Charge the releases of a round, which are about to be drawn."""
        for client, release in charged(plan):
            self.charge_release(client, release)

    def release(self, t: int, values: Array, plan: RoundReleases) -> tuple[Array, Array]:
        """Charge and draw round t's releases; return what leaves, and the noise in it.

        One stream serves a round's clients in their order: what is drawn depends on the seed and
        the round alone.

        Parameters
        ----------
        values : (A, J, K)
        plan : RoundReleases
            Of A releases; without any the values leave as they are.
        """
        if not plan:
            return values, namespace(values).zeros_like(values)
        self.charge_all(plan)
        noisy = self.with_noise(t, to_numpy(values), [release for _, release in plan])
        released = like(noisy, values)
        return released, released - values

    def with_noise(self, t: int, values: Floats, releases: Sequence[Release]) -> Floats:
        """Return the values with their releases' noise; neighbours with equal ones at once."""
        stream = self.streams.stream(0, t, 0)
        noisy, first = np.empty(values.shape), 0
        for release, equal in groupby(releases):
            rows = slice(first, first := first + len(list(equal)))
            flat = release.apply(values[rows].reshape(-1), lambda: stream)
            noisy[rows] = flat.reshape(values[rows].shape)
        return noisy


RoundReleases = Sequence[tuple[int | Ints, Release]]
"""The releases of a round, each with the clients that it is charged to: a function of settings and
public numbers, known before a run; empty without noise."""


def charged(plan: RoundReleases) -> Iterator[tuple[int, Release]]:
    """Yield every client and release that are charged."""
    for clients, release in plan:
        for client in np.atleast_1d(clients).tolist():
            yield client, release


State = tuple[Array, ...]
Outcome = tuple[State, Array, Array]  # the next state, the global model, the local models


@dataclass(frozen=True, eq=False)
class Sent:
    """Result of a round's release.

    Attributes
    ----------
    values : (A, J, K)
        As they left.
    noise : (A, J, K)
        In them.
    local : tuple of Array
        The private values, and what else clients keep of their local step.
    """

    values: Array
    noise: Array
    local: State


@dataclass(frozen=True, eq=False)
class Round:
    """Result of a round: global and local models and their noise (private).

    Attributes
    ----------
    w : (J, K)
    each : (P, J, K), or P of (J, K)
        The local models.
    state : callable
        Returns what the next round starts from; called before that begins.
    known_residual : float or None
        The 2-norm of ``each`` minus ``w``, where the algorithm has it.
    """

    number: int
    w: Array
    each: Sequence[Array] | Array
    noise_magnitude: float = 0.0
    state: Callable[[], State] = tuple
    known_residual: float | None = None

    @property
    def consensus_residual(self) -> float:
        """The 2-norm of the local models minus the global one."""
        if self.known_residual is not None:
            return self.known_residual
        xp = namespace(self.w)
        return math.sqrt(sum(float(xp.sum((z - self.w) ** 2)) for z in self.each))

    @cached_property
    def local(self) -> Array:
        """The local models in one array (P, J, K)."""
        return np.stack(self.each) if isinstance(self.each, list) else self.each


Watch = Callable[[Round], None]


class Algorithm:
    """A learning algorithm: its start, a local step, what is released, and the aggregation.

    Every round, clients take a local step, its first array leaves through ``release``, and the
    aggregation follows from what has left and what clients keep. A subclass gives :meth:`start`,
    :meth:`local` and :meth:`aggregate`, and with noise :meth:`releases`.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.clients, self.settings = task.clients, task.settings
        self.regularizer = task.regularizer
        self.xp = namespace(task.clients.x)

    def releases(self, t: int) -> RoundReleases:
        """Return the releases of round t: known before a run; none without noise."""
        del t
        return []

    def slopes(self, each: Array) -> Array:
        """Return every client's mean (clipped) gradient plus subgradient, at its own model."""
        gradients = self.clients.gradients(each, self.settings.clip)
        return gradients + self.regularizer.subgradient(each)

    def start(self) -> State:
        """Return the arrays that the first round starts from."""
        raise NotImplementedError

    def local(self, t: int, state: State) -> State:
        """Return the values to release (A, J, K), and what else aggregation needs of clients."""
        raise NotImplementedError

    def release(self, t: int, values: Array) -> tuple[Array, Array]:
        """Charge and draw; return what leaves, and the noise in it."""
        return self.task.release(t, values, self.releases(t))

    def aggregate(self, t: int, state: State, sent: Sent) -> Outcome:
        """Return the next state, the global model (J, K) and the local models (P, J, K)."""
        raise NotImplementedError

    def run_rounds(self, rounds: range, state: State, watch: Watch) -> None:
        """Run rounds from a state and report each."""
        for t in rounds:
            local = self.local(t, state)
            sent = Sent(*self.release(t, local[0]), local)
            state, w, each = self.aggregate(t, state, sent)
            noise = float(np.abs(to_numpy(self.noise_of(sent))).sum())
            watch(Round(t, w, each, noise, partial(tuple, state)))

    def noise_of(self, sent: Sent) -> Array:
        """Return the noise whose magnitude, (6.2) of Ryu and Kim, is reported."""
        return sent.noise

    def run(self, watch: Watch) -> None:
        """Run the rounds that are left."""
        rounds, state = self.task.remaining_rounds(*self.start())
        self.run_rounds(rounds, state, watch)


def spread(values: Floats, x: Array) -> Any:
    """Return per-client numbers as (P, 1, 1), in the library of ``x``."""
    return like(values[:, None, None], x)


def make_algorithm(task: Task) -> Algorithm:
    """Return the algorithm of a task's settings."""
    place = ROWS[task.settings.algorithm]["class"]
    algorithm: Algorithm = resolve_name(f"gridpriv.learning.algorithms.{place}")(task)
    return algorithm


def planned(task: Task) -> dict[str, Counter[Release]]:
    """Return the remaining charges of every client, from settings and public numbers only."""
    entries: dict[str, Counter[Release]] = {}
    if task.rule is None:
        return entries
    algorithm = make_algorithm(task)
    for t in range(task.checkpoint.rounds + 1, task.settings.rounds + 1):
        for client, release in charged(algorithm.releases(t)):
            entries.setdefault(str(client + 1), Counter())[covering(release)] += 1
    return entries


MOST_VALUES = 2**25


class Centralized(Algorithm):
    """Solve once and report it as the last round; it protects nothing."""

    def run(self, watch: Watch) -> None:
        """Report the centralized solution."""
        solution = solve(self.task.linear_clients(), self.regularizer, self.settings.box)
        w = like(solution, self.clients.x)
        watch(Round(self.settings.rounds, w, self.xp.stack([w] * self.clients.number)))


def solve(
    clients: Clients, regularizer: Regularizer, box: float | None = None, tolerance: float = 1e-7
) -> Floats:
    """Return argmin of the mean loss of all samples + lambda R(w) over the box, shape (J, K).

    The l1 norm is split into positive and negative parts, w = u - v with u, v >= 0, which
    makes the problem smooth with bounds.

    Raises
    ------
    SolverError
        If L-BFGS-B does not converge.
    """
    from scipy.optimize import minimize

    clients = _precise(clients)
    shape = clients.shape
    size = shape[0] * shape[1]
    split = regularizer.kind == "l1"

    def objective(flat: Floats) -> tuple[float, Floats]:
        w = flat[:size] - flat[size:] if split else flat
        value, gradient = _smooth_part(clients, regularizer, w.reshape(shape))
        if not split:
            return value, gradient
        value += regularizer.strength * float(flat.sum())
        return value, np.concatenate([gradient, -gradient]) + regularizer.strength

    most = np.inf if box is None else box
    bound = (0.0, most) if split else (-most, most)
    options = {"maxiter": 20000, "maxfun": 50000, "ftol": 1e-12, "gtol": tolerance, "maxcor": 30}
    start = np.zeros(2 * size if split else size)
    with one_blas_thread():
        bounds = [bound] * len(start)
        result = minimize(
            objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
    if not result.success and "ABNORMAL" not in result.message:
        raise SolverError(f"the centralized solution was not found: {result.message}")
    w = result.x[:size] - result.x[size:] if split else result.x
    solution: Floats = w.reshape(shape)
    return solution


def _precise(clients: Clients) -> Clients:
    """Return the clients in float64 where that fits; gradients then reach the tolerance."""
    if not isinstance(clients.x, np.ndarray) or clients.x.size > MOST_VALUES:
        return clients
    return replace(
        clients, x=clients.x.astype(np.float64), targets=clients.targets.astype(np.float64)
    )


def _smooth_part(clients: Clients, regularizer: Regularizer, w: Floats) -> tuple[float, Floats]:
    typed = like(w, clients.x)
    value = float(mean_value(clients.loss, clients.x, clients.targets, typed))
    gradient = to_numpy(mean_gradient(clients.loss, clients.x, clients.targets, typed))
    if regularizer.kind == "l2":
        value += regularizer.value(w)
        gradient = gradient + regularizer.subgradient(w)
    return value, np.asarray(gradient).reshape(-1).copy()


class NormalizedError:
    """sum_k ||beta_k - beta_c||^2 / ||beta_c||^2, beta_c the centralized solution (Gauthier)."""

    name = "normalized_error"

    def __init__(self, task: Task) -> None:
        self._reference = solve(task.linear_clients(), task.regularizer)
        self.values: list[float] = []

    def __call__(self, done: Round) -> None:
        """Record the measure after a round."""
        difference = float(np.sum((to_numpy(done.local) - self._reference[None]) ** 2))
        self.values.append(difference / float(np.sum(self._reference**2)))


class AugmentedObjective:
    """sum_i f_i(mean of w_i) + rho ||mean of w_i - mean of w|| of every tenth round (Huang).

    With an l1 regularizer the local mean is over w_i^0 .. w_i^{t-1} (theorem 3), else over
    w_i^1 .. w_i^t.
    """

    name = "augmented_objective"

    def __init__(self, task: Task) -> None:
        self._task, zeros = task, to_numpy(task.clients.zeros())
        self._last, self._local, self._w = zeros, zeros, zeros[0]
        self.values: list[float] = []

    def __call__(self, done: Round) -> None:
        """Record the measure after a round."""
        local, regularizer = to_numpy(done.local), self._task.regularizer
        self._local = self._local + (self._last if regularizer.kind == "l1" else local)
        self._w, self._last = self._w + to_numpy(done.w), local
        if done.number % 10 and done.number != 1:
            self.values.append(math.nan)
            return
        mean, w = self._local / done.number, self._w / done.number
        losses = self._task.clients.values(mean)
        penalties = [regularizer.value(item) for item in mean]
        distances = np.sqrt(((mean - w[None]) ** 2).sum(axis=(1, 2)))
        penalty = self._task.settings.penalty.at(1)
        self.values.append(float(np.sum(losses + penalties + penalty * distances)))


Measure = NormalizedError | AugmentedObjective
"""Called with every round; its values are NaN where it has none."""
MEASURES: Mapping[str, Callable[[Task], Measure]] = {
    "normalized-error": NormalizedError,
    "augmented-objective": AugmentedObjective,
}
