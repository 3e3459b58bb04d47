"""Threads of linear algebra: one, as matrices here are small.

A second one waits for work in a loop, which costs more than it does, and takes a core from another
process. Sums by several threads also depend in the last bit on how many cores a machine has.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from contextlib import ExitStack

VARIABLE = "OPENBLAS_NUM_THREADS"
"""OpenBLAS reads it once, as it is loaded; NumPy, SciPy and CasADi each have their own."""


def one_thread(environment: MutableMapping[str, str]) -> None:
    """Ask for one thread in an environment, unless its ``VARIABLE`` says how many there are to be.

    OMP_NUM_THREADS, which job schedulers set to the cores of a job, gives way.
    """
    environment.setdefault(VARIABLE, "1")


def one_blas_thread() -> ExitStack:
    """Return a context in which the linear algebra of this process, already loaded, uses one."""
    from threadpoolctl import threadpool_limits

    stack = ExitStack()
    stack.enter_context(threadpool_limits(1, user_api="blas"))
    return stack
