"""Threads of linear algebra, and interrupts of the main thread.

Linear algebra has one thread, as matrices here are small. A second thread would wait for work in a
loop, which costs more than its work and takes a core from another process. Sums by several threads
also depend in the last bit on the number of cores.

Interrupts are deferred in some steps, and raised again after calls that suppress them.
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
    """Set one thread in an environment, unless its ``VARIABLE`` has a number.

    OMP_NUM_THREADS, which job schedulers set to the cores of a job, is ignored.
    """
    environment.setdefault(VARIABLE, "1")


_LOCK = Lock()
_INSIDE: list[ExitStack] = []
"""Stack of the limit: it is common to all threads of a process."""


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit the loaded linear algebra libraries of this process to one thread.

    The first context sets the limit and the last one removes it, in whichever thread.
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
    """Defer Ctrl-C and SIGTERM until the end of the block.

    Only a main thread is interrupted; in any other there is no effect.
    """
    with _noted(STOPS, lambda *_: None):
        yield


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end a library call that suppresses exceptions of its callbacks.

    CasADi checks for interrupts within a solve; an interrupt ends the solve with a status or an
    invalid point, and would then be lost. Here it is raised again afterwards.
    """
    handlers = {int(number): signal.getsignal(number) for number in STOPS}
    callables = {number: handler for number, handler in handlers.items() if callable(handler)}
    with _noted(tuple(callables), lambda number, frame: callables[number](number, frame)):
        yield


@contextmanager
def _noted(numbers: tuple[int, ...], at_once: Handler) -> Iterator[None]:
    """Call ``at_once`` on a signal, and the signal's own handler after the block."""
    if current_thread() is not main_thread():
        yield
        return
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        at_once(number, frame)

    previous = {number: signal.signal(number, note) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for stop in received:
            signal.raise_signal(stop)
