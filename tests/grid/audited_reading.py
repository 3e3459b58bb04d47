"""Separate program: read files and record every audit event of the interpreter.

``python audited_reading.py CALM... -- FILE...`` reads the harmless files CALM first, so that
gridpriv's own imports are done, and then each FILE. For each it prints a line of JSON: the outcome
of reading, and every audit event except opening that file.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from gridpriv.core.errors import GridprivError
from gridpriv.grid.library import load_case
from gridpriv.grid.pandapower import profile_series
from gridpriv.grid.scenarios import override_demand, read_demand_series
from gridpriv.grid.zoning import read_zoning

CASE14 = load_case("case14")
HARMLESS = {"sys._getframe", "object.__getattr__", "builtins.id"}
NOT_READING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def read(path: Path) -> str:
    """Read a file by every reader that takes its kind; return how that ended."""
    try:
        if path.suffix == ".csv":
            case = CASE14
            for reader in (override_demand, read_demand_series):
                try:
                    reader(*((case, path) if reader is override_demand else (path, case)))
                except GridprivError:
                    continue
                return "read"
            read_zoning(path, case)
        else:
            case = load_case(path)
            if path.suffix == ".json":
                with suppress(GridprivError):
                    profile_series("profiles", str(path), case)
    except GridprivError as error:
        return f"refused ({error.exit_code}): {error}"
    return "read"


def main(words: list[str]) -> None:
    at = words.index("--")
    for calm in words[:at]:
        read(Path(calm))
    events: list[str] = []
    watched: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not watched or event in HARMLESS:
            return
        reads = event == "open" and not arguments[2] & NOT_READING
        if reads and (arguments[0] == watched[0] or isinstance(arguments[0], int)):
            return  # the file itself, or a handle that was opened before
        events.append(f"{event} {str(arguments)[:200]}")

    sys.addaudithook(hook)
    for word in words[at + 1 :]:
        watched.append(word)
        try:
            outcome = read(Path(word))
        except Exception as error:
            outcome = f"traceback: {type(error).__name__}: {error}"
        watched.clear()
        print(json.dumps({"file": word, "outcome": outcome, "events": events}))
        events.clear()


if __name__ == "__main__":
    main(sys.argv[1:])
