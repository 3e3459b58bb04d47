"""Clients on threads: numpy's products leave Python's lock, so two cores work at once.

BLAS is held to one thread meanwhile: many skinny products on threads of their own are faster
than one after the other on all of BLAS's, and stay so when other work shares the cores. With both
(no limit) a round takes twice as long.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.transport import Calls, R, each
from gridpriv.core.threads import one_blas_thread

SHARES = 4  # of the agents, for each thread: one that is held up leaves the rest to the others


class Threads:
    """Agents of this process on a few threads; results do not depend on how many."""

    def __init__(self, agents: Sequence[Any], workers: int) -> None:
        self._agents = agents
        self._workers = max(1, min(workers, len(agents), os.cpu_count() or 1))
        self._stack = ExitStack()

    def __enter__(self) -> Threads:
        self._stack.enter_context(one_blas_thread())
        self._pool = self._stack.enter_context(ThreadPoolExecutor(self._workers))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, calls: Calls[R]) -> list[R | Exception]:
        """Return every agent's answer, or its exception."""
        agents, own = self._agents, each(calls, len(self._agents))

        def attempted(share: NDArray[np.intp]) -> list[R | Exception]:
            return [own[i].answer(agents[i]) for i in share]

        shares = np.array_split(np.arange(len(agents)), SHARES * self._workers)
        return list(chain.from_iterable(self._pool.map(attempted, shares)))

    def close(self) -> None:
        """Do nothing: leaving the context ends the threads."""
