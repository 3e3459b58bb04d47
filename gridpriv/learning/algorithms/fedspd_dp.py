"""FedSPD-DP (Li et al.): Q local proximal SGD steps, partial participation, noise on y.

Under sensitivity ``published`` it is the published algorithm. There the next round starts from the
client's unperturbed x, which is also in its dual. So a release depends on private state of all
earlier rounds, which lemma 2 (x^{t,0} equal on adjacent data) leaves out: nothing is certified.
Under ``proven`` the client uses its released value instead: y = 2x - lambda/rho - x_0 is a public
shift of 2x, so noise xi on y is noise xi/2 on x, and x + xi/2 replaces x in the next start and in
the dual. Then only the steps of the round are private.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from gridpriv.core.errors import not_allowed
from gridpriv.learning.algorithms.base import Algorithm, Outcome, RoundReleases, Sent, State, Task
from gridpriv.learning.algorithms.dpsgd import (
    active_clients,
    amplification,
    batch_divisor,
    batch_gradients,
    step_multiplier,
    step_sensitivity,
)
from gridpriv.privacy.accounting import FIXED_SIZE, total_epsilon
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.release import Release

RECURSION = "recursion over the round's steps from released values"
# G, phi, d_lambda of section V; d_X is a setting
GRADIENT, DEVIATION, DUAL_DIAMETER = 1.0, 1.0, 1.0
PAPER_CONSTANT = 3.04  # c_0 of (21)


class FedspdDp(Algorithm):
    """Algorithm 1; the state is the clients' iterates, averages, duals and messages."""

    def start(self) -> State:
        """Return the start of the models, and zeros."""
        none = self.clients.zeros
        return self.clients.start(), none(), none(), none()

    def local(self, t: int, state: State) -> State:
        """Return twice the mean (13) of each active client's iterates, and the last iterates."""
        rho, active = self.settings.penalty.at(1), active_clients(self.task, t)
        gamma, x_0 = proximity(self.task, t, rho), self.xp.mean(state[3], axis=0)
        x, dual = (self.xp.stack([each[int(p)] for p in active]) for each in (state[0], state[2]))
        public, total = rho * x_0[None] + dual, self.xp.zeros_like(x)
        for q in range(1, self.settings.local_updates + 1):
            slope = batch_gradients(self.task, active, x, (t, q), self.settings.clip)
            free = (gamma * x + public - slope) / (gamma + rho)
            x = self.regularizer.prox(free, 1.0 / (gamma + rho))
            total = total + x
        return 2.0 * (total / self.settings.local_updates), x

    def aggregate(self, t: int, state: State, sent: Sent) -> Outcome:
        """Update the state of active clients, and average the last messages of all."""
        iterate, average, dual, shown = state
        published = self.settings.sensitivity == "published"
        x_0, rho = self.xp.mean(shown, axis=0), self.settings.penalty.at(1)
        doubled, last = sent.local
        for k, p in enumerate(active_clients(self.task, t)):
            model = (doubled if published else sent.values)[k] / 2.0
            dual[p] = dual[p] - rho * (model - x_0)
            shown[p] = model - dual[p] / rho
            if published:
                shown[p] = shown[p] + sent.noise[k]
            iterate[p] = last[k] if published else model
            average[p] = model
        return state, self.xp.mean(shown, axis=0), self.xp.asarray(average, copy=True)

    def releases(self, t: int) -> RoundReleases:
        """Return 2 x of every active client."""
        if self.task.rule is None:
            return []
        active, rho = active_clients(self.task, t), self.settings.penalty.at(1)
        gamma = proximity(self.task, t, rho)
        return [(p, _release(self.task, p, gamma, rho)) for p in active.tolist()]


def proximity(task: Task, t: int, rho: float) -> float:
    """Return gamma^t of (26) and (27), with (m S)^2 rho d/(2 Q^2) for its noise term.

    S is the sensitivity of y times (rho + gamma): the paper's 4 Q G/(Q - 1), or the proven bound (Q
    + 1) s. With m = sqrt(2 ln(1.25/delta))/epsilon the paper's is 16 rho d G^2 ln(1.25/delta)/((Q -
    1) epsilon)^2. The setting ``proximity`` replaces all but sqrt(t).
    """
    settings, steps = task.settings, task.settings.local_updates
    if settings.proximity is not None:
        return settings.proximity * math.sqrt(t)
    batch = settings.batch or int(task.clients.counts.min())
    number = task.clients.number
    share = (settings.sampled_clients or number) / number
    if settings.sensitivity == "published":
        reach = paper_reach(steps, batch if settings.gradient_change == "2G/b" else 1)
    else:
        samples = int(task.clients.counts.min())
        reach = (steps + 1) * step_sensitivity(task, samples, task.sample_gradient())
    spread_ = rho * task.size * (task.multiplier * reach) ** 2 / (2.0 * steps**2)
    constant = GRADIENT**2 + 2.0 * DUAL_DIAMETER**2 + 2.0 * DEVIATION**2 / batch + spread_
    return 2.0 * math.sqrt(steps * share * constant) / settings.diameter * math.sqrt(t)


def paper_reach(steps: int, batch: int = 1) -> float:
    """Return lemma 2's numerator, 4 G for one step and 4 Q G/(Q - 1) for more.

    It assumes a change of 2 G in a batch's gradient, whatever the batch size; with ``batch`` 2 G/b.
    """
    return 4.0 * GRADIENT / batch * (1.0 if steps == 1 else steps / (steps - 1.0))


def batch_smoothness(task: Task, samples: int) -> float:
    """Return the largest Lipschitz constant of a batch's gradient.

    A Poisson batch may contain all samples of the client, but its sum is divided by ``batch``.
    """
    smoothness = task.clients.loss.smoothness(task.norm)
    most = samples if task.settings.sampling == "poisson" else batch_divisor(task, samples)
    return smoothness * most / batch_divisor(task, samples)


def sound_sensitivity(
    steps: int, gamma: float, rho: float, item: float, smoothness: float, *, convex: bool = True
) -> float:
    """Return the sensitivity of y when the round starts from released values.

    A step maps x to prox((gamma x - grad f(x) + public)/(gamma + rho)). The proximal map is
    non-expansive, and x - grad f(x)/gamma is too where gamma >= L/2 (L the smoothness of the
    batch's f; else the factor is L/gamma - 1). Where f is not convex (a clipped loss of several
    outputs) the factor is 1 + L/gamma. So d_r <= (gamma d_{r-1} + s)/(gamma + rho) with d_0 = 0 and
    s the step's gradient sensitivity; x is the mean of the Q iterates, and y changes by twice the
    change of x.
    """
    stretch = max(1.0, smoothness / gamma - 1.0) if convex else 1.0 + smoothness / gamma
    distance, total = 0.0, 0.0
    for _ in range(steps):
        distance = (gamma * stretch * distance + item) / (gamma + rho)
        total += distance
    return 2.0 * total / steps


def published_total(
    epsilon: float,
    steps: int,
    batch: int,
    samples: float,
    share: float,
    rounds: int,
    with_replacement: bool,
) -> float:
    """Return (21) with c_0 = 3.04; it certifies nothing."""
    rate = steps * batch / samples
    if with_replacement:
        rate = 1.0 - (1.0 - 1.0 / samples) ** (steps * batch)
    if rate >= 1.0:
        raise not_allowed("batch", batch, f"below {samples / steps:g}: Q b under m_i in (21)")
    return PAPER_CONSTANT * rate * epsilon * math.sqrt(share * rounds / (1.0 - rate))


def _release(task: Task, p: int, gamma: float, rho: float) -> Release:
    """Return the release of one client's 2 x; y is a public shift of it."""
    settings, steps = task.settings, task.settings.local_updates
    samples = int(task.clients.counts[p])
    item = step_sensitivity(task, samples, task.sample_gradient())
    convex = settings.clip is None or task.clients.shape[1] == 1
    smoothness = batch_smoothness(task, samples)
    sound = sound_sensitivity(steps, gamma, rho, item, smoothness, convex=convex)
    if settings.sensitivity == "published":
        task.tally.note(
            "the published algorithm carries unperturbed state from round to round, which lemma 2 "
            "leaves out: nothing is certified"
        )
        batch = (settings.batch or samples) if settings.gradient_change == "2G/b" else 1
        assumed = paper_reach(steps, batch) / (gamma + rho)
        return task.release_of(sound, RECURSION, assumed=assumed, proved=False)
    amplified = amplification(task, samples, steps)
    multiplier = step_multiplier(task, amplified)
    return task.release_of(sound, RECURSION, multiplier=multiplier, amplified=amplified)


def total_curves() -> dict[str, dict[int, float]]:
    """Return figure 6: epsilon at delta 1e-4 by rounds, for every accounting, at 0.1 per round.

    Of FedSPD-DP with b = 10, Q = 5 and 325 samples a client: by the paper's formula with all
    clients or 20 of 100 in a round and batches drawn with or without replacement; certified,
    with no amplification, with batches of fixed size without replacement under replace-one, and
    with Poisson batches under zero-out. Of DP-ADMM: by Huang et al.
    """
    epsilon, delta, samples = 0.1, 1e-4, 325.0
    plain = Charge("gaussian", math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon)
    rate = 1.0 - (1.0 - 10.0 / samples) ** 5
    sampled = Charge("sampled-gaussian", plain.parameter, rate)
    fixed_size = Charge(FIXED_SIZE, plain.parameter, rate)
    stated = {
        f"FedSPD-DP, {clients}, {sampling} (paper)": partial(
            published_total, epsilon, 5, 10, samples, share, with_replacement=again
        )
        for clients, share in (("all clients", 1.0), ("20 clients", 0.2))
        for sampling, again in (("without replacement", False), ("with replacement", True))
    }
    every: dict[str, Callable[[int], float]] = {
        "DP-ADMM (paper)": lambda t: PAPER_CONSTANT * math.sqrt(t) * epsilon,
        **stated,
        "certified, no amplification": lambda t: total_epsilon({plain: t}, delta),
        "certified, batches of fixed size": lambda t: total_epsilon({fixed_size: t}, delta),
        "certified, Poisson batches": lambda t: total_epsilon({sampled: t}, delta),
    }
    return {name: {t: of(t) for t in (1, 5, 10, 20, 50, 100)} for name, of in every.items()}
