"""A party's log: one JSON object a line, with a level; public figures only."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from gridpriv.consensus.sessions import Note
from gridpriv.core.errors import one_of

LEVELS = ("debug", "info", "warning", "error")


def notes(party: str, level: str) -> Note:
    """Return a function that writes a party's events of a level and above to standard error.

    An event has a name, and names of zones, turns, runs, or reasons of the network.
    """
    one_of("log", level, LEVELS)
    logger = logging.getLogger(f"gridpriv.consortium.{party}")
    logger.setLevel(level.upper())
    logger.propagate = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.handlers = [handler]

    def note(kind: str, event: str, **about: Any) -> None:
        number = getattr(logging, kind.upper())
        if logger.isEnabledFor(number):
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = {"at": at, "level": kind, "party": party, "event": event} | about
            logger.log(number, json.dumps(line))

    return note
