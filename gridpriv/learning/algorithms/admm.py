"""ADMM with exact local updates (Huang et al., algorithm 1): the non-private baseline."""

from __future__ import annotations

from gridpriv.learning.algorithms.base import Task, Watch
from gridpriv.learning.algorithms.exact import minimise_locally
from gridpriv.learning.algorithms.star import star_admm
from gridpriv.learning.arrays import Array, like


def admm(task: Task, watch: Watch) -> None:
    """Run algorithm 1; it protects nothing."""

    def step(_: int, rho: float, local: Array, w: Array, dual: Array) -> tuple[Array, None]:
        return like(minimise_locally(task, -dual - rho * w[None], rho, local), local), None

    star_admm(task, watch, step)
