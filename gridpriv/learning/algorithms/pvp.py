"""ADMM with primal variable perturbation (Huang et al., algorithm 2)."""

from __future__ import annotations

from gridpriv.core.errors import not_allowed
from gridpriv.learning.algorithms.base import Drawing, Releases, Task, Watch
from gridpriv.learning.algorithms.exact import TOLERANCE, minimise_locally
from gridpriv.learning.algorithms.star import star_admm
from gridpriv.learning.arrays import Array, like

BOUND_SOURCE = "two neighbours' strongly convex local problems (lemma 4)"


def pvp(task: Task, watch: Watch) -> None:
    """Run algorithm 2: exact local updates, Gaussian noise on what is sent.

    Sensitivity (lemma 4). The local objective on D is (rho + modulus)-strongly convex,
    whatever the regularizer's smoothness, and on D' its gradient differs by g with
    ||g|| <= factor c_1/m_i at any point. For the minimisers v, v' strong convexity gives
    (rho + modulus) ||v - v'||^2 <= <g(v'), v - v'>, so
    ||v - v'|| <= factor c_1/(m_i (rho + modulus)). That needs the gradient of a convex loss: with a
    clip on several outputs it is none, and nothing is certified. Each minimiser is found to
    TOLERANCE/rho, which adds twice that.
    """
    drawing = releases(task)

    def step(k: int, rho: float, local: Array, w: Array, dual: Array) -> tuple[Array, Array]:
        linear = -dual - rho * w[None]
        # from where the loss is left out: the client's last model is as far off as its noise
        found = minimise_locally(task, linear, rho, -linear / rho)
        noisy, noise = task.release(k, found, drawing(k))
        return like(noisy, local), noise

    star_admm(task, watch, step)


def releases(task: Task) -> Releases:
    """Return the releases of a round: one minimizer per client."""
    schedule, gradient = task.settings.penalty, task.mean_sensitivity()
    convex = task.settings.clip is None or task.clients.shape[1] == 1
    if not convex and task.rule is not None and task.settings.sensitivity == "proven":
        raise not_allowed(
            "clip",
            task.settings.clip,
            "none with pvp and several outputs: a clipped loss of several outputs is not convex, "
            "so that lemma 4 does not hold and nothing is certified",
        )
    if not convex:
        task.tally.note("a clipped loss of several outputs is not convex: lemma 4 does not hold")

    def of_round(k: int) -> Drawing:
        rho = schedule.at(k)
        distance = gradient / (rho + task.regularizer.modulus) + 2.0 * TOLERANCE / rho
        return Drawing.of_all(task.releases(distance, BOUND_SOURCE, proved=convex))

    return of_round
