"""Worker processes that answer over a pipe and end with their parent; a Dask cluster.

A worker is a fresh interpreter. It does not run the caller's script again, as multiprocessing's
would, unless its arguments are defined there; so a script needs no main guard unless it passes its
own functions to workers.

A worker ends whenever its parent ends: its standard input is a pipe that only the parent keeps
open. When that closes, Linux sends it SIGIO, whose default action is to terminate, even in the
middle of a solver's loop; elsewhere a thread that reads the pipe ends it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from itertools import islice
from multiprocessing import Pipe, spawn
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from threading import Thread
from typing import Any, TypeVar

from gridpriv.core.errors import InputError, WorkerError
from gridpriv.core.threads import one_thread

Item = TypeVar("Item")
Answer = TypeVar("Answer")
SCRIPT = ("init_main_from_name", "init_main_from_path")
reading_script = ContextVar("reading_script", default=False)


class Worker:
    """A fresh interpreter that runs ``serve(pipe, *arguments)`` and dies with this process.

    Parameters
    ----------
    serve : callable
        Picklable; given its end of the pipe first.
    arguments
        Picklable.

    Attributes
    ----------
    pipe : Connection
        End of the parent.
    """

    def __init__(self, serve: Callable[..., None], *arguments: Any) -> None:
        if reading_script.get():
            raise InputError(
                "a script that gives its own functions to worker processes needs if __name__ == "
                "'__main__': before what it runs; add that line"
            )
        work = bytes(ForkingPickler.dumps((serve, arguments)))
        preparation_data = spawn.get_preparation_data("worker") if b"__main__" in work else {}
        self.pipe, worker_end = Pipe()
        boot = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from gridpriv.core.processes import work; work({worker_end.fileno()})"
        )
        environment = dict(os.environ)
        one_thread(environment)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", boot],
            stdin=subprocess.PIPE,
            pass_fds=[worker_end.fileno()],
            env=environment,
        )
        worker_end.close()
        with suppress(BrokenPipeError):  # it ended early: reported with the first answer
            self.pipe.send(
                {key: preparation_data[key] for key in SCRIPT if key in preparation_data}
            )
            self.pipe.send_bytes(work)

    def send(self, message: Any) -> None:
        """Send a message; it is dropped for a worker that has ended, whose answer reports it."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(message)

    def answer(self) -> Any:
        """Return the result of the worker, or raise its exception.

        Raises
        ------
        WorkerError
            If it ended instead.
        """
        try:
            outcome = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise WorkerError(f"a worker process {self._end()}") from None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def end(self) -> None:
        """End the process, whether it is busy or not."""
        self.pipe.close()
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()

    def _end(self) -> str:
        """Return a sentence on the end of the process."""
        try:
            code = self.process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            return "closed its pipe before it answered"
        if code < 0:
            return f"was killed by signal {-code} before it answered (out of memory?)"
        return f"ended with status {code} before it answered"


def unordered(
    function: Callable[[Item], Answer], tasks: Sequence[Item], processes: int
) -> Generator[Answer, None, None]:
    """Yield ``function`` of every task as it is finished, by this and further processes.

    Tasks are started in their order. A failure is raised here; it, or closing the iterator, ends
    the processes.
    """
    if processes == 1:
        yield from map(function, tasks)
        return
    remaining = iter(tasks)
    with ExitStack() as stack:
        busy: dict[Any, Worker] = {}
        for task in islice(remaining, processes):
            worker = Worker(_serve_one, function)
            stack.callback(worker.end)
            worker.send(task)
            busy[worker.pipe] = worker
        while busy:
            for pipe in wait(list(busy)):
                worker = busy.pop(pipe)
                answer: Answer = worker.answer()
                for task in islice(remaining, 1):
                    worker.send(task)
                    busy[pipe] = worker
                yield answer


def work(handle: int) -> None:
    """Execute, in a worker, the first message of its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # left to the parent
    _end_with_parent(sys.stdin.fileno())
    pipe = Connection(handle)
    try:
        reading_script.set(True)
        spawn.prepare(pipe.recv())
        reading_script.set(False)
        serve, arguments = ForkingPickler.loads(pipe.recv_bytes())
    except EOFError:
        return
    except Exception as error:
        pipe.send(error)
        return
    serve(pipe, *arguments)


def _end_with_parent(lifeline: int) -> None:
    """End this process once the other end of a pipe is closed."""
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)

    def watch() -> None:
        while os.read(lifeline, 1):
            pass
        os._exit(1)

    # it also detects a pipe that was closed before the signal was set
    Thread(target=watch, daemon=True).start()


def _serve_one(pipe: Connection, function: Callable[[Any], Any]) -> None:
    """Answer until the pipe closes."""
    try:
        while True:
            pipe.send(function(pipe.recv()))
    except (EOFError, ConnectionError):
        return
    except Exception as error:  # raised again in the parent
        pipe.send(error)
