"""ADMM with primal variable perturbation (Huang et al., algorithm 2)."""

from __future__ import annotations

from gridpriv.learning.accounting import charge
from gridpriv.learning.algorithms.base import Task, Watch
from gridpriv.learning.algorithms.exact import minimise_locally
from gridpriv.learning.algorithms.star import star_admm
from gridpriv.learning.arrays import Array, like


def pvp(task: Task, watch: Watch) -> None:
    """Run algorithm 2: exact local updates, Gaussian noise on what is sent.

    Sensitivity (lemma 4). The local objective on D is (rho + modulus)-strongly convex,
    whatever the regularizer's smoothness, and on D' its gradient differs by g with
    ||g|| <= factor c_1/m_i at any point. For the minimisers v, v' strong convexity gives
    (rho + modulus) ||v - v'||^2 <= <g(v'), v - v'>, so
    ||v - v'|| <= factor c_1/(m_i (rho + modulus)).
    """
    schedule = task.settings.penalty_schedule()
    gradient = task.mean_sensitivity()

    def step(k: int, local: Array, w: Array, dual: Array) -> tuple[Array, Array]:
        rho = schedule.at(k)
        found = minimise_locally(task, -dual - rho * w[None], rho, local)
        distance = gradient / (rho + task.regularizer.modulus)
        noise = task.noise(k, task.multiplier * distance)
        _record(task, distance)
        return found + like(noise, found), noise

    star_admm(task, watch, step)


def _record(task: Task, distance: Array) -> None:
    for p in range(task.clients.number if task.multiplier else 0):
        task.charging.record(p, charge("gaussian", task.multiplier))
        task.charging.calibrated(
            p, distance[p], distance[p], task.multiplier * distance[p],
            "two neighbours' strongly convex local problems (lemma 4)",
        )  # fmt: skip
