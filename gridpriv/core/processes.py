"""Processes that answer over a pipe, and one that runs a single function beside this one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from gridpriv.core.errors import GridprivError

Given = TypeVar("Given")
Answer = TypeVar("Answer")


def spawn(serve: Callable[..., None], *given: Any) -> tuple[BaseProcess, Connection]:
    """Start a fresh interpreter that runs ``serve(pipe, *given)``; return it and our end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, *given), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def answer(pipe: Connection) -> Any:
    """Return what the process at the other end sends, or raise the exception that it sends."""
    try:
        outcome = pipe.recv()
    except EOFError:
        raise GridprivError("a worker process ended before it answered") from None
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


class Beside(Generic[Given, Answer]):
    """A function in a process of its own, which gets ready while this one works on.

    A failure there is raised here when an answer is asked for, and ends the process.

    Parameters
    ----------
    function : callable
        Picklable; what calling this object computes.
    get_ready : callable
        Picklable, without arguments; run there at once (slow imports).
    """

    def __init__(self, function: Callable[[Given], Answer], get_ready: Callable[[], None]) -> None:
        self._process, self._pipe = spawn(_serve_one, function, get_ready)

    def ask(self, given: Given) -> None:
        """Start ``function(given)``."""
        with suppress(BrokenPipeError):  # it ended early: what it said, if anything, is read next
            self._pipe.send(given)

    def answer(self) -> Answer:
        """Return what was asked for last; raise what it raises."""
        found: Answer = answer(self._pipe)
        return found

    def __call__(self, given: Given) -> Answer:
        """Return ``function(given)``; raise what it raises."""
        self.ask(given)
        return self.answer()

    def __enter__(self) -> Beside[Given, Answer]:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process, whether it has answered or not."""
        self._pipe.close()
        self._process.terminate()
        self._process.join()


def _serve_one(
    pipe: Connection, function: Callable[[Any], Any], get_ready: Callable[[], None]
) -> None:
    """Get ready, then answer until the pipe closes."""
    try:
        get_ready()
        while True:
            pipe.send(function(pipe.recv()))
    except (EOFError, KeyboardInterrupt, BrokenPipeError):
        return
    except Exception as error:  # raised again where the answer is awaited
        pipe.send(error)
