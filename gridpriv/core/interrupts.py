"""Steps that an interrupt may not come into, and calls that it ends but that would swallow it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

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
