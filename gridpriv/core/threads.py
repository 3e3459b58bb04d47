"""Threads of linear algebra: one, as matrices here are small.

A second one waits for work in a loop, which costs more than it does, and takes a core from another
process. Sums by several threads also depend in the last bit on how many cores a machine has.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from threading import Lock

VARIABLE = "OPENBLAS_NUM_THREADS"
"""OpenBLAS reads it once, as it is loaded; NumPy, SciPy and CasADi each have their own."""


def one_thread(environment: MutableMapping[str, str]) -> None:
    """Ask for one thread in an environment, unless its ``VARIABLE`` says how many there are to be.

    OMP_NUM_THREADS, which job schedulers set to the cores of a job, gives way.
    """
    environment.setdefault(VARIABLE, "1")


_LOCK = Lock()
_INSIDE: list[ExitStack] = []
"""The limit that is set, once for each who is in it: all threads of a process share it."""


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let the linear algebra of this process, already loaded, use one thread.

    Who comes first sets the limit and who leaves last lifts it, whichever thread these are.
    """
    from threadpoolctl import threadpool_limits

    with _LOCK:
        limit = _INSIDE[0] if _INSIDE else ExitStack()
        if not _INSIDE:
            limit.enter_context(threadpool_limits(1, user_api="blas"))
        _INSIDE.append(limit)
    try:
        yield
    finally:
        with _LOCK:
            if len(_INSIDE) == 1:
                limit.close()
            _INSIDE.pop()
