"""Agents on a Dask cluster, as actors: each is made where it works, and keeps its state there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gridpriv.consensus.transport import Crew, attempt, equal_shares, rows
from gridpriv.core.cluster import connect
from gridpriv.core.errors import InputError
from gridpriv.core.processes import WorkerError


class Cluster:
    """A transport to the workers of a Dask cluster, which need gridpriv installed.

    Parameters
    ----------
    crew : Crew
        Sent to every worker once.
    address : str
        Of the scheduler.

    Raises
    ------
    InputError
        If the scheduler cannot be reached, or has no workers.
    """

    def __init__(self, crew: Crew, address: str) -> None:
        self._client = connect(address)
        try:
            workers = sorted(self._client.scheduler_info(n_workers=-1)["workers"])
            if not workers:
                raise InputError(
                    f"cluster = {address!r} has no workers: start some with 'dask worker {address}'"
                )
            self._actors = self._placed(crew, workers)
        except BaseException:
            self.close()
            raise

    def ask(self, verb: str, *given: Sequence[Any]) -> list[Any]:
        """Return every performer's answer, or its exception; a lost worker's is that it is lost."""
        each = rows(len(self._actors), given)
        asked = [actor.ask(verb, row) for actor, row in zip(self._actors, each, strict=True)]
        return [_outcome(future) for future in asked]

    def close(self) -> None:
        """Let the actors go."""
        self._actors = []
        self._client.close()

    def _placed(self, crew: Crew, workers: Sequence[str]) -> list[Any]:
        """Return an actor per member of the crew, in order, in equal shares of the workers."""
        here = self._client.scatter(crew, broadcast=True, hash=False)
        futures: list[Any] = [None] * len(crew.sizes)
        for worker, share in zip(workers, equal_shares(crew.sizes, len(workers)), strict=True):
            for position in share:
                futures[position] = self._client.submit(
                    Seat, here, position, actor=True, pure=False, workers=[worker]
                )
        return [future.result() for future in futures]


class Seat:
    """Where one member of a crew works."""

    def __init__(self, crew: Crew, position: int) -> None:
        (self._member,) = crew.members([position])

    def ask(self, verb: str, given: Sequence[Any]) -> Any:
        """Return the member's answer, or its exception."""
        return attempt(self._member, verb, given)


def _outcome(future: Any) -> Any:
    """Return an actor's answer, or that its worker was lost."""
    try:
        return future.result()
    except Exception as error:
        return WorkerError(f"a cluster's worker was lost: {error}")
