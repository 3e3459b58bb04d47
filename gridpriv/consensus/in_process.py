"""Agents in this process, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gridpriv.consensus.transport import Crew, Performer, attempt, rows


class InProcess:
    """A transport that calls its performers."""

    def __init__(self, performers: Sequence[Performer]) -> None:
        self._performers = performers

    def ask(self, verb: str, *given: Sequence[Any]) -> list[Any]:
        """Return every performer's answer, or its exception."""
        each = rows(len(self._performers), given)
        return [attempt(p, verb, row) for p, row in zip(self._performers, each, strict=True)]

    def close(self) -> None:
        """Do nothing."""


def in_process(crew: Crew) -> InProcess:
    """Return a transport that holds a whole crew in this process."""
    return InProcess(crew.members(range(len(crew.sizes))))
