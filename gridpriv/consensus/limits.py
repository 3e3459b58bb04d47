"""The requests that an agreement allows a coordinator, and the answers that it allows a zone.

A coordinator chooses w, and nothing else: turns, step sizes and penalties follow from the
agreement and from what was asked before. A zone checks them before it computes anything. So its
releases are those of the agreement, whatever a coordinator sends; where the noise is calibrated to
a published sensitivity, their certified cost depends on penalty and step, and stays within what
the agreement's schedules can come to.

A zone's answer has as many numbers as the zone shares variables, and states no more releases than
the agreement has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gridpriv.consensus.messages import Order
from gridpriv.consensus.schedules import PenaltySchedule, StepSize
from gridpriv.consensus.wire import BEFORE, Answer, MessageError, Request, TurnId
from gridpriv.core.arrays import Floats

ROUNDING = 1e-9  # relative; both sides compute the same figures on other machines


class LimitError(MessageError):
    """An order that the agreement does not allow."""


@dataclass(frozen=True, eq=False)
class RequestLimits:
    """The requests of one zone that an agreement allows.

    Attributes
    ----------
    warm starts, rounds : int
        How many of each there are; rounds may stop early.
    trial : bool
        Whether a trial round comes before the first round.
    size : int
        Number of variables that the zone shares.
    step : callable
        Step size of every round.
    warm start, schedule : PenaltySchedule
        Of the zone's part of the variables, in warm starts and in rounds.
    """

    warm_starts: int
    trial: bool
    rounds: int
    size: int
    step: StepSize
    warm_start: PenaltySchedule
    schedule: PenaltySchedule

    def check(
        self, request: Request, last: TurnId, previous: Order | None, penalty: Floats | None
    ) -> None:
        """Refuse a request that is not due, or that the agreement does not allow.

        Parameters
        ----------
        last : TurnId
            The turn that the zone answered last.
        previous : Order or None
            The order of that turn; None before the first.
        penalty : (size,) or None
            Penalties of the last warm start or round; None before the first.

        Raises
        ------
        MessageError
            With the reason.
        """
        turn, order = request.turn, request.order
        if len(order.w) != self.size:
            raise MessageError(f"an order for {len(order.w)} variables, not {self.size}")
        if turn.phase in ("round", "missed") and turn.number > self.rounds:
            raise LimitError(f"an order for {turn} of {self.rounds}")
        if not self._is_due(turn, last):
            raise MessageError(f"an order for {turn} after {last}")
        if turn.phase == "agreed":
            return
        if turn.phase == "missed" and last == TurnId("round", turn.number):
            _check_same(order, previous)
            return
        self._check_step(turn, order.step)
        self._check_penalty(turn, order.penalty, penalty)

    def least_penalty(self) -> Floats:
        """Return the least penalty of each variable that any round can have."""
        least = self.warm_start.first(self.size)
        for t in range(1, self.warm_starts + 1):
            least = self.warm_start.range_after(t, least)[0]
        lowest = least
        for t in range(1, self.rounds):
            least = self.schedule.range_after(t, least)[0]
            lowest = np.minimum(lowest, least)
        return lowest

    def largest_step(self) -> float:
        """Return the largest step size that any round can have."""
        return max(self.step(t) for t in range(1, self.rounds + 1))

    def _is_due(self, turn: TurnId, last: TurnId) -> bool:
        """Return True for a turn that may follow the last one."""
        began = last.phase in ("round", "missed")
        done = last.number if began else 0
        opened = TurnId("warm_start", self.warm_starts) if self.warm_starts else BEFORE
        ready = TurnId("ready", 1) if self.trial else opened
        match turn.phase:
            case "warm_start":
                before = BEFORE if turn.number == 1 else TurnId("warm_start", turn.number - 1)
                return last == before and turn.number <= self.warm_starts
            case "ready":
                return self.trial and turn.number == 1 and last == opened
            case "round" | "missed":
                late = turn.phase == "missed" and last == TurnId("round", turn.number)
                return late or (turn.number == done + 1 and (began or last == ready))
            case "agreed":
                return began and turn.number == done
        return False

    def _check_step(self, turn: TurnId, step: float) -> None:
        allowed = [self.step(turn.number)]
        if turn.phase == "ready":  # a trial is of the first round, or of the last
            allowed.append(self.step(self.rounds))
        if not any(abs(step - other) <= ROUNDING * other for other in allowed):
            raise LimitError(f"step {step:g} in {turn}; the agreement's is {allowed[0]:g}")

    def _check_penalty(self, turn: TurnId, given: Floats, before: Floats | None) -> None:
        least, most = self._penalties(turn, before)
        wrong = (given < least * (1.0 - ROUNDING)) | (given > most * (1.0 + ROUNDING))
        if wrong.any():
            k = int(np.argmax(wrong))
            raise LimitError(
                f"penalty {given[k]:g} of variable {k + 1} in {turn}; the agreement allows "
                f"{least[k]:g} to {most[k]:g}"
            )

    def _penalties(self, turn: TurnId, before: Floats | None) -> tuple[Floats, Floats]:
        """Return the least and the largest penalty of each variable that a turn may have."""
        if before is None:
            first = (self.warm_start if self.warm_starts else self.schedule).first(self.size)
            least, most = first, first
        elif turn.phase == "warm_start":
            return self.warm_start.range_after(turn.number - 1, before)
        elif turn.phase != "ready" and turn.number > 1:
            return self.schedule.range_after(turn.number - 1, before)
        else:
            least, most = self.warm_start.range_after(self.warm_starts, before)
        if turn.phase == "ready":  # of the first round, or of the last
            low, high = least, most
            for t in range(1, self.rounds):
                low, high = (
                    self.schedule.range_after(t, low)[0],
                    self.schedule.range_after(t, high)[1],
                )
            least, most = np.minimum(least, low), np.maximum(most, high)
        return least, most


@dataclass(frozen=True)
class AnswerLimits:
    """The answers of one zone that an agreement allows.

    Attributes
    ----------
    size : int
        Number of variables that the zone shares.
    of_round, of_run : int
        Releases of one round, and of the run, at most.
    """

    size: int
    of_round: int = 0
    of_run: int = 0

    def check(self, answer: Answer) -> None:
        """Raise :class:`MessageError` for an answer of another size, or of too many releases."""
        turn, sent = answer.turn, answer.reply.sent
        due = self.size if turn.phase in ("warm_start", "round") else 0
        if len(sent) != due:
            raise MessageError(f"an answer of {len(sent)} numbers, not {due}")
        most = {"round": self.of_round, "agreed": self.of_run}.get(turn.phase, 0)
        stated = sum(answer.reply.releases.values())
        if stated > most:
            raise MessageError(f"{stated} releases in {turn}; at most {most}")


def _check_same(order: Order, previous: Order | None) -> None:
    """Refuse another order for a missed round than the one that the zone answered too late."""
    if previous is None or not (
        np.array_equal(order.w, previous.w) and np.array_equal(order.penalty, previous.penalty)
    ):
        raise LimitError("another order for a missed round than the one that was answered")
