"""Who speaks for a zone in a run over a network: every order is answered once.

Before an answer leaves, it is on disk with all that its agent remembers. An order that comes again
(its answer was lost, or either side was restarted) gets the same bytes: nothing is drawn, solved
or charged a second time. Another order for a turn that was answered is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gridpriv.consensus.agent import Agent
from gridpriv.consensus.memory import Iterate, Memory
from gridpriv.consensus.messages import Order, Phase, Reply
from gridpriv.consensus.wire import (
    BEFORE,
    Answer,
    Asked,
    Failure,
    MessageError,
    Place,
    Reason,
    decode,
    encode,
    packed,
    unpacked,
)
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import BudgetError, GridprivError, SolverError
from gridpriv.core.files import StorageError
from gridpriv.core.records import Records
from gridpriv.core.sealed import DamagedError

NOTHING = np.zeros(0)
MOST_BYTES = 1 << 24  # of standings that are kept one after the other before the last is alone


@dataclass(frozen=True, eq=False)
class Standing:
    """Where a zone stands after a turn; private.

    Attributes
    ----------
    last : Place
        The turn that was answered last.
    order, answer : bytes
        What was asked then, and what was answered.
    first : bytes
        The first order of all.
    before : Iterate
        Where the agent stood before the last turn.
    memory : Memory
        Where it stands now.
    figures : tuple of (int, dict)
        The rounds, and what each meant to the zone itself.
    """

    last: Place
    order: bytes
    answer: bytes
    first: bytes
    before: Iterate
    memory: Memory
    figures: tuple[tuple[int, Mapping[str, float]], ...] = ()


class Speaker:
    """Answers orders for one zone.

    Parameters
    ----------
    agent : Agent
        At its start.
    rounds : int
        How many rounds the zone takes part in at most.
    path : Path
        Where its standing is kept (private).

    Attributes
    ----------
    agreed : array or None
        What was agreed on for the zone's shared coordinates, once the last round is over.
    failed : GridprivError or None
        Why the zone could not answer.
    """

    def __init__(self, zone: str, run: str, agent: Agent, rounds: int, path: Path) -> None:
        self.zone, self.run = zone, run
        self.agreed: Floats | None = None
        self.failed: Exception | None = None
        self._agent, self._rounds = agent, rounds
        self._size = int(agent.shared.sum())
        now = agent.memory()
        self._standing = Standing(BEFORE, b"", b"", b"", now.at, now)
        self._file = Records(path, private=True)
        if kept := self._file.read():
            self._go_on(_standing_of(kept[-1], path))

    @property
    def last(self) -> Place:
        """The turn that was answered last."""
        return self._standing.last

    @property
    def figures(self) -> tuple[Mapping[str, float], ...]:
        """What each round meant to the zone; private."""
        return tuple({"round": t} | dict(told) for t, told in self._standing.figures)

    def answer(self, content: bytes) -> bytes:
        """Return the answer to an order.

        Raises
        ------
        MessageError
            For what is no order of this run, or not the one that is due; nothing was done.
        StorageError
            If the answer cannot be kept; it must not leave then.
        """
        asked = self._checked(content)
        if asked.place == self.last:
            if content != self._standing.order:
                raise MessageError(f"another order for {asked.place}, which was answered already")
            return self._standing.answer
        if not _due(self.last, asked.place):
            raise MessageError(f"an order for {asked.place} after {self.last}")
        before = self._agent.memory()
        try:
            reply = self._performed(asked)
        except Exception as error:
            self._fail(error)
            return encode(Failure(self.run, self.zone, asked.place, _public(error)))
        answer = encode(Answer(self.run, self.zone, asked.place, reply))
        figures = self._standing.figures
        if asked.phase == "round":
            own = self._agent.figures()
            told = {"noise_magnitude": own.noise_magnitude} | own.values
            figures = (*figures, (asked.order.number, told))
        self._keep(
            Standing(
                asked.place, content, answer, self._standing.first or content, before.at,
                self._agent.memory(), figures,
            )
        )  # fmt: skip
        return answer

    def _checked(self, content: bytes) -> Asked:
        asked = decode(content)
        if not isinstance(asked, Asked):
            raise MessageError("a message that is no order")
        if asked.run != self.run:
            raise MessageError("an order of another run")
        if len(asked.order.w) != self._size:
            raise MessageError(f"an order for {len(asked.order.w)} variables, not {self._size}")
        if asked.phase in ("round", "missed") and asked.order.number > self._rounds:
            raise MessageError(f"an order for {asked.place} of {self._rounds}")
        return asked

    def _performed(self, asked: Asked) -> Reply:
        agent, order = self._agent, asked.order
        match asked.phase:
            case "ready":
                agent.ready(order)
            case "rehearse":
                return agent.rehearse(order)
            case "round":
                return agent.round(order)
            case "missed":
                self._miss(order)
            case "agreed":
                self.agreed = order.w
                return Reply(NOTHING, agent.drawn())
        return Reply(NOTHING, {})

    def _miss(self, order: Order) -> None:
        """Note a round that went on without this zone, whether or not it has answered since."""
        if self.last == Place("round", order.number):
            self._agent.resume(replace(self._agent.memory(), at=self._standing.before))
        self._agent.miss(order)

    def _fail(self, error: Exception) -> None:
        """Keep what was drawn before the failure: it counts, and an answer to it left."""
        self.failed = error
        self._keep(replace(self._standing, memory=self._agent.memory()))

    def _keep(self, standing: Standing) -> None:
        write = self._file.add if self._file.size < MOST_BYTES else self._file.renew
        write(packed(standing, Standing))
        self._standing = standing

    def _go_on(self, standing: Standing) -> None:
        """Stand where a process before this one stood."""
        if standing.first:
            # some solvers keep the scaling of their first problem: solve the same one first, which
            # is public, as rounds come after
            self._performed(self._checked(standing.first))
        self._agent.resume(standing.memory)
        self._standing = standing
        if self.last.phase == "agreed":
            self.agreed = self._checked(standing.order).order.w


def _due(last: Place, place: Place) -> bool:
    """Return whether a turn may follow another."""
    began = last.phase in ("round", "missed")
    done = last.number if began else 0
    first: dict[Phase, int] = {"none": 1, "rehearse": last.number + 1}
    match place.phase:
        case "ready":
            return last.phase in ("none", "rehearse") and place.number == 1
        case "rehearse":
            return place.number == first.get(last.phase)
        case "round":
            return place.number == done + 1 and last.phase not in ("none", "agreed")
        case "missed":
            late = last == Place("round", place.number)
            return late or (place.number == done + 1 and last.phase not in ("none", "agreed"))
        case "agreed":
            return began and place.number == done
    return False


def _public(error: Exception) -> Reason:
    """Return what may be said of a failure: its sentence may hold private figures."""
    kinds: dict[type[GridprivError], Reason] = {
        SolverError: "solver", BudgetError: "budget", StorageError: "storage"
    }  # fmt: skip
    found = (reason for kind, reason in kinds.items() if isinstance(error, kind))
    return next(found, "defect")


def read_standing(path: Path) -> Standing | None:
    """Return the standing that was written last; None where there is none.

    Raises
    ------
    DamagedError
        If it is not whole.
    """
    kept = Records(path, private=True).read()
    return _standing_of(kept[-1], path) if kept else None


def _standing_of(content: bytes, path: Path) -> Standing:
    try:
        found: Standing = unpacked(content, Standing, math.inf)
    except MessageError as error:
        raise DamagedError(f"{path} is damaged: {error}") from error
    return found
