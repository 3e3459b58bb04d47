"""Ryu and Kim's linearized ADMM on a convex loss, with the agents and coordinator of the grid.

Agents, coordinator and releases are those of :mod:`gridpriv.consensus`. This module has the
learning settings of section 6.2 (divisor of the gradient, step sizes, penalty, published
sensitivities) and a client as the local problem of a consensus agent.

The private data of a client are *weights*, one per sample, 1 unless changed:
f(z; weights) = sum_j weights_j loss_j(z) / count + lambda R(z). Adjacent data under ``zero-out``
have a weight of 0, which an audit can replay.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.agent import Agent, AgentRules, Iterate, Minimiser
from gridpriv.consensus.coordinator import FullyShared, Plan, State, Turn, rounds
from gridpriv.consensus.messages import Order, Reply
from gridpriv.consensus.schedules import StepSize, Update
from gridpriv.consensus.transport import Calls, InProcess, R, each, exchange
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError
from gridpriv.core.threads import one_blas_thread
from gridpriv.learning.accounting import SampleAdjacency, Unproved, classical_epsilon
from gridpriv.learning.algorithms.base import Algorithm, Round, RoundReleases, Task, Watch
from gridpriv.learning.clients import Array, Loss, clipped_residuals, like, to_numpy
from gridpriv.learning.settings import BudgetedPenalty, Regularizer
from gridpriv.privacy.linear import Disclosure
from gridpriv.privacy.perturbation import NoiseRule, Perturbation
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity

# rows whose features (4 bytes x 784) stay in a core's cache between the two products
BLOCK_ROWS = 1024


@dataclass(eq=False)
class ClientProblem:
    """One client's loss over a box.

    Attributes
    ----------
    key : int
        Of the noise streams.
    x : (m, J)
        Features, a view of the data set's one copy where the split allows.
    targets : (m, K)
    norm : float
        Public bound R of ||x||_2.
    count : int
        Public divisor of the sum of gradients: the number of samples of all clients, or of this
        one.
    regularizer : Regularizer
        Its subgradient is added in full; it is public.
    box : float or None
        u of W = [-u, u]^n.
    clip : float or None
        Per-sample gradient clip; needed where the loss has no Lipschitz constant.
    """

    name: str
    key: int
    x: Array
    targets: Array
    loss: Loss
    norm: float
    count: int
    regularizer: Regularizer
    box: float | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        self.shape = (int(self.x.shape[1]), int(self.targets.shape[1]))
        self.samples = int(self.x.shape[0])
        self.size = self.shape[0] * self.shape[1]
        self.solver_error = 0.0
        bent = self.loss.smoothness(self.norm) * self.samples / self.count
        self.smoothness = bent + self.regularizer.modulus

    @property
    def coordinates(self) -> Ints:
        """Positions of all parameters: every client has all of them."""
        return np.arange(self.size)

    def start(self) -> Floats:
        """Return zero."""
        return np.zeros(self.size)

    def gradient(self, z: Floats, data: Floats) -> Floats:
        """Return sum_j data_j grad loss_j(z) / count + lambda R'(z), shape (J*K,).

        Blocks of rows stay in the cache for the second product.
        """
        w = like(z.reshape(self.shape), self.x)
        weights = None if (data == 1.0).all() else data
        total: Array = None
        for rows in self._blocks():
            x = self.x[rows]
            residual = clipped_residuals(self.loss, x, self.targets[rows], w, self.clip)
            if weights is not None:
                residual = residual * like(weights[rows, None], x)
            # residual' X, not X' residual: BLAS packs the narrow factor faster
            part = residual.T @ x
            total = part if total is None else total + part
        slope: Floats = to_numpy(total.T.reshape(-1)) / self.count
        slope += self.regularizer.subgradient(z)
        return slope

    def largest_gradient(self, z: Floats) -> float:
        """Return the largest 2-norm of a sample's gradient at z (private)."""
        w, most = like(z.reshape(self.shape), self.x), 0.0
        for rows in self._blocks():
            x = self.x[rows]
            residual = self.loss.residual(x @ w, self.targets[rows])
            squares = (to_numpy(residual) ** 2).sum(axis=1) * (to_numpy(x) ** 2).sum(axis=1)
            most = max(most, math.sqrt(float(squares.max())))
        return most

    def minimise(
        self, linear: Floats, metric: Floats, *, near: bool = False, within: float = math.inf
    ) -> Minimiser:
        """Return argmin over the box of <linear, z> + 1/2 z' diag(metric) z: a clip."""
        del near, within
        free = linear / metric
        np.negative(free, out=free)
        return Minimiser(free if self.box is None else free.clip(-self.box, self.box))

    def minimise_exact(
        self, linear: Floats, metric: Floats, *, near: bool = False, within: float = math.inf
    ) -> Minimiser:
        """Refuse: the loss is not a public quadratic."""
        del linear, metric, near, within
        raise InputError(
            "update = 'exact': must be linearized, this loss is no public quadratic; "
            "--algorithm admm, pvp or dvp solve the local problems"
        )

    def metrics(self, z: Floats, data: Floats) -> dict[str, float]:
        """Return nothing: a run evaluates the objective, which costs as much as a round."""
        del z, data
        return {}

    def gradient_sensitivity(self, adjacency: SampleAdjacency, norm: Norm) -> Sensitivity:
        """Return the sensitivity of the gradient, at any z.

        A sample's gradient is x residual'. In the 2-norm ||x||_2 ||residual||_2 <= R c; in the
        1-norm ||x||_1 ||residual||_1 <= sqrt(J) R c_1, or by a clip C to sqrt(J K) C. One such
        term joins the sum (zero-out), or one leaves and one joins (replace-one); the sum is
        divided by a public count.
        """
        bound = self._sample_bound(norm)
        if not math.isfinite(bound):
            raise InputError(
                f"the gradient of the {self.loss.name} loss has no bound: give --clip C"
            )
        source = (
            f"{adjacency.factor:g} sample gradient of norm {bound:.6g} at most (features of norm "
            f"{self.norm:.6g}), over {self.count} samples"
        )
        return Sensitivity(adjacency.factor / self.count * bound, norm, source)

    def output_sensitivity(
        self, adjacency: SampleAdjacency, norm: Norm, update: Update, metric: Floats
    ) -> Sensitivity:
        """Return the sensitivity of the minimizer: that of the gradient over the metric.

        A projection on a box is non-expansive in every coordinate, so it does not add.
        """
        del update
        gradient = self.gradient_sensitivity(adjacency, norm)
        least = float(metric.min())
        return Sensitivity(
            gradient.value / least, norm, f"{gradient.bound_source}; over rho + 1/eta = {least:.6g}"
        )

    @property
    def disclosure(self) -> Disclosure:
        """Refuse: a release of noisy weights would not protect a sample's features."""
        raise InputError("perturbation = 'demand': must be objective or output in learning")

    def _sample_bound(self, norm: Norm) -> float:
        if norm == 2:
            return self.loss.gradient_bound(self.norm, self.clip)
        plain = math.sqrt(self.shape[0]) * self.norm * self.loss.bound_1
        return plain if self.clip is None else min(plain, math.sqrt(self.size) * self.clip)

    def _blocks(self) -> Iterator[slice]:
        size = BLOCK_ROWS if isinstance(self.x, np.ndarray) else self.samples
        return (slice(first, first + size) for first in range(0, self.samples, size))


SHARES = 4  # of the agents, for each thread: a slow thread leaves the rest to others


@dataclass(frozen=True)
class PaperRule(NoiseRule):
    """Noise calibrated to ``ratio`` times the proven sensitivity.

    Attributes
    ----------
    bound : float or None
        Bound in the sensitivities in place of the largest gradient among the client's own samples,
        to which noise is scaled (the authors' FEMNIST). The scale depends on the private data, so
        such a release certifies nothing.
    """

    ratio: float = 1.0
    bound: float | None = None

    def at(self, largest: float) -> PaperRule:
        """Return the rule of a round with this largest gradient at its start."""
        return replace(self, ratio=max(largest, 1e-12) / (self.bound or 1.0))

    def release(self, sensitivity: Sensitivity) -> Release:
        """Return the release with the paper's noise and the proven sensitivity."""
        calibrated = replace(self, assumed=self.ratio * sensitivity.value)
        result = NoiseRule.release(calibrated, sensitivity)
        if self.bound is None:
            return result
        return replace(result, mechanism=Unproved(result.mechanism))


class ClientAgent(Agent):
    """An agent with its own step size (the paper's output baseline includes n_p).

    ``observed`` is the noise rule that depends on the client's samples: it is scaled to the largest
    gradient at the start of a round.
    """

    own_step: StepSize | None = None
    observed: PaperRule | None = None

    def round(self, order: Order) -> Reply:
        """Run one round."""
        if self.observed is not None and isinstance(self.problem, ClientProblem):
            noise = self.observed.at(self.problem.largest_gradient(self.iterate.z))
            self.releases.rules = replace(self.rules, noise=noise)
        if self.own_step is not None:
            order = replace(order, step=self.own_step(order.number))
        return super().round(order)


class RyuKim(Algorithm):
    """Algorithm 3.1 (Ryu and Kim 2022) on the agents and the coordinator of a grid."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.penalty, scale = penalty_of(task), task.settings.step_scale
        self.step: StepSize = lambda t: scale / math.sqrt(t)  # RK's theorem 5.4

    def run(self, watch: Watch) -> None:
        """Run the rounds that are left and report each."""
        task, settings = self.task, self.settings
        consensus = FullyShared(task.clients.number, task.size)
        agents, state = _resumed_agents(task, self.penalty)
        plan = Plan(settings.rounds, self.step, self.penalty, first=task.checkpoint.rounds + 1)
        workers = max(1, min(settings.workers, len(agents), os.cpu_count() or 1))
        with one_blas_thread(), ThreadPoolExecutor(workers) as pool:
            transport = Threads(agents, pool, workers)
            for turn in rounds(exchange(transport, ClientAgent.round), consensus, state, plan):
                noise = float(sum(agent.metrics().noise_magnitude for agent in agents))
                watch(_round_of(agents, turn, task.clients.shape, noise))

    @cached_property
    def planned(self) -> list[ClientAgent]:
        """Agents to list releases without a run."""
        return list(each_agent(self.task))

    def releases(self, t: int) -> RoundReleases:
        """Return E gradients, or iterates, per client."""
        penalty = np.full(self.task.size, self.penalty.at(t))
        releases = [a.release(penalty, (a.own_step or self.step)(t)) for a in self.planned]
        updates = range(self.settings.local_updates)
        return [(p, r) for p, r in enumerate(releases) if r is not None for _ in updates]


def _resumed_agents(task: Task, penalty: BudgetedPenalty) -> tuple[list[ClientAgent], State]:
    """Return agents and coordinator at the start of the first remaining round."""
    start, mean = np.zeros((task.clients.number, task.size)), np.zeros((1, task.size))
    _, (z, average, dual, *coordinator) = task.remaining_rounds(
        start, start, start, mean, mean, penalty.first(task.size)
    )
    agents = []
    # one by one: temporary arrays of an agent are freed before the next
    for agent, *at in zip(each_agent(task), z, average, dual, strict=True):
        agent.iterate = Iterate(*at)
        agents.append(agent)
    return agents, State(*coordinator)


def _round_of(agents: list[ClientAgent], turn: Turn, shape: tuple[int, int], noise: float) -> Round:
    """Return the result of a round, so that the loop does not keep its models in memory."""
    local = [agent.average.reshape(shape) for agent in agents]
    state = partial(_state, agents, turn.state)
    return Round(turn.number, turn.w.reshape(shape), local, noise, state, turn.residual)


def _state(agents: list[ClientAgent], state: State) -> tuple[Floats, ...]:
    """Return the state for the next round: agents' iterates and duals, coordinator's means."""
    at = [agent.iterate for agent in agents]
    arrays = (np.stack([getattr(item, part) for item in at]) for part in ("z", "average", "dual"))
    return *arrays, state.sent, state.dual, state.rho


def output_step(size: int, sensitivity: float, multiplier: float) -> StepSize:
    """Return RK's step for the output baseline, 1/eta = n + s m sqrt(2 n t) / n.

    With n = JK parameters, s = 2 c_1/n_p and m = sqrt(2 ln(1.25/delta))/epsilon this is
    JK + 4 c_1 sqrt(JK t ln(1.25/delta)) / (n_p epsilon JK).
    """
    return lambda t: 1.0 / (size + sensitivity * multiplier * math.sqrt(2.0 * size * t) / size)


def penalty_of(task: Task) -> BudgetedPenalty:
    """Return rho of every round, at the epsilon of one release."""
    settings = task.settings
    multiplier = 0.0 if task.rule is None else task.rule.multiplier
    epsilon = classical_epsilon(multiplier, settings.release_delta, settings.mechanism)
    return settings.penalty.for_epsilon(epsilon)


def each_agent(task: Task) -> Iterator[ClientAgent]:
    """Yield the clients' agents; each shares everything.

    Objective perturbation divides the gradient by all samples, the paper's output baseline by
    the client's own.
    """
    settings, clients = task.settings, task.linear_clients()
    output = settings.mechanism != "none" and settings.perturbation == "output"
    for p, samples in enumerate(clients.counts.astype(int).tolist()):
        count = samples if output else int(clients.counts.sum())
        given = (*clients.part(p), clients.loss, task.norm, count, task.regularizer)
        yield make_agent(task, ClientProblem(str(p + 1), p, *given, settings.box, settings.clip))


def make_agent(task: Task, problem: ClientProblem) -> ClientAgent:
    """Return the agent of a problem, with the noise of the calibration."""
    settings = task.settings
    target = "none" if settings.mechanism == "none" else settings.perturbation
    rules = AgentRules(
        update="linearized",
        local_updates=settings.local_updates,
        perturbation=Perturbation(target),
        noise=noise_rule(task, problem),
        adjacency=task.adjacency,
    )

    def charge(owner: str, releases: Mapping[Release, int]) -> None:
        for release, count in releases.items():
            for _ in range(count):
                task.charge_release(int(owner) - 1, release)

    weights, everything = np.ones(problem.samples), np.ones(task.size, dtype=bool)
    agent = ClientAgent(problem, weights, everything, rules, task.streams, charge)
    if isinstance(rules.noise, PaperRule) and rules.noise.bound is not None:
        agent.observed = rules.noise
    if target == "output" and settings.output_step == "paper":
        assumed = _assumed_gradient(task, problem)
        agent.own_step = output_step(task.size, assumed, task.multiplier)
    return agent


def noise_rule(task: Task, problem: ClientProblem) -> NoiseRule | None:
    """Return the noise of a client's releases, or None."""
    settings = task.settings
    if settings.mechanism == "none":
        return None
    sound = problem.gradient_sensitivity(task.adjacency, 2).value
    if settings.sensitivity == "proven" or settings.mechanism == "laplace":
        return NoiseRule(settings.mechanism, settings.noise, task.multiplier)
    paper = partial(PaperRule, settings.mechanism, "simulated", task.multiplier)
    if settings.split == "writer":  # FEMNIST: c_1 = sqrt(J K) would be twice MNIST's
        task.tally.note(
            "the noise scale follows the client's own samples (the authors' code): "
            "it depends on private data and certifies nothing"
        )
        # c_1 is for one sample in the objective's sensitivity, 2 c_1 in the output's
        pair = 2.0 if settings.perturbation == "output" else 1.0
        return paper(bound=sound * problem.count / pair).at(0.0)
    return paper(ratio=_assumed_gradient(task, problem) / sound)


def _assumed_gradient(task: Task, problem: ClientProblem) -> float:
    """Return the gradient sensitivity of the noise's calibration, in the 2-norm.

    The paper's is c_1/N with c_1 = sqrt(J K) for objective perturbation (one sample joins) and
    2 c_1/n_p for output perturbation.
    """
    if task.settings.sensitivity == "proven" or task.settings.mechanism == "laplace":
        return problem.gradient_sensitivity(task.adjacency, 2).value
    pair = 2.0 if task.settings.perturbation == "output" else 1.0
    return pair * math.sqrt(task.size) / problem.count


class Threads(InProcess):
    """Agents of this process on a few threads; results do not depend on their number.

    numpy's products leave Python's lock, so two cores can work at once. BLAS is limited to one
    thread meanwhile: many narrow products on separate threads are faster than a sequence of them on
    all BLAS threads. Without the limit a round takes twice as long.
    """

    def __init__(self, agents: Sequence[Any], pool: ThreadPoolExecutor, workers: int) -> None:
        super().__init__(agents)
        self._pool, self._shares = pool, np.array_split(np.arange(len(agents)), SHARES * workers)

    def call_all(self, calls: Calls[R]) -> list[R | Exception]:
        """Return every agent's reply, or its exception."""
        agents, own = self.agents, each(calls, len(self.agents))

        def answers(share: NDArray[np.intp]) -> list[R | Exception]:
            return [own[i].answer(agents[i]) for i in share]

        return list(chain.from_iterable(self._pool.map(answers, self._shares)))
