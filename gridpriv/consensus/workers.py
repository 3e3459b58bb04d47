"""Agents in worker processes, which make them and keep their state."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from gridpriv.consensus.transport import Crew, attempt, equal_shares, rows
from gridpriv.core.errors import GridprivError
from gridpriv.core.processes import Worker


class Workers:
    """A transport to worker processes.

    Parameters
    ----------
    crew : Crew
        Sent to every worker, which makes its own share of it.
    """

    def __init__(self, crew: Crew, workers: int) -> None:
        self._shares = equal_shares(crew.sizes, workers)
        self._workers = [Worker(_serve, crew, share) for share in self._shares]
        self._owed = [1] * workers  # answers that were asked for and not yet taken
        try:
            for number in range(workers):
                self._answer(number)
        except BaseException:
            self.close()
            raise

    def ask(self, verb: str, *given: Sequence[Any]) -> list[Any]:
        """Return every performer's answer, or its exception; a lost worker's is why it was lost."""
        each = rows(sum(map(len, self._shares)), given)
        for number, share in enumerate(self._shares):
            self._workers[number].send((verb, [each[position] for position in share]))
            self._owed[number] += 1
        outcomes: list[Any] = [None] * len(each)
        for number, share in enumerate(self._shares):
            try:
                found = self._answer(number)
            except GridprivError as error:
                found = [error] * len(share)
            for position, outcome in zip(share, found, strict=True):
                outcomes[position] = outcome
        return outcomes

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.end()

    def _answer(self, number: int) -> Any:
        """Return a worker's last answer; those nobody waited for (an interrupt) are dropped."""
        worker, found = self._workers[number], None
        while self._owed[number]:
            worker.pipe.poll(None)  # the whole wait: an interrupt here leaves the answer whole
            self._owed[number] -= 1
            found = worker.answer()
        return found


def _serve(pipe: Connection, crew: Crew, share: list[int]) -> None:
    """Make this worker's share of the crew, then answer until the pipe closes."""
    try:
        members = crew.members(share)
    except Exception as error:
        pipe.send(error)
        return
    try:
        pipe.send(len(members))
        while True:
            verb, given = pipe.recv()
            pipe.send([attempt(p, verb, row) for p, row in zip(members, given, strict=True)])
    except (EOFError, ConnectionError):
        return
