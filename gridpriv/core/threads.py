"""Threads of linear algebra, and interrupts of the main thread.

Linear algebra has one thread, as matrices here are small. A second one waits for work in a loop,
which costs more than it does, and takes a core from another process. Sums by several threads also
depend in the last bit on how many cores a machine has.

Some steps an interrupt may not come into; and some calls it ends, but they would swallow it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from threading import Lock, current_thread, main_thread
from types import FrameType
from typing import Any

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


STOPS = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM until the block is done; then they take effect.

    Only a main thread is ever interrupted; in any other nothing is done.
    """
    with _noted(STOPS, lambda *_: None):
        yield


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end a library's call that keeps to itself what its callbacks raise.

    CasADi asks for interrupts within a solve; one that has come ends the solve, with a status or
    a point of its own making, and would be forgotten, as where its Python catches everything.
    Here it takes effect once more afterwards.
    """
    handlers = {int(number): signal.getsignal(number) for number in STOPS}
    heard = {number: handler for number, handler in handlers.items() if callable(handler)}
    with _noted(tuple(heard), lambda number, frame: heard[number](number, frame)):
        yield


@contextmanager
def _noted(numbers: tuple[int, ...], at_once: Handler) -> Iterator[None]:
    """Do ``at_once`` when a signal comes, and what else it would have done after the block."""
    if current_thread() is not main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        at_once(number, frame)

    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for stop in came:
            signal.raise_signal(stop)
