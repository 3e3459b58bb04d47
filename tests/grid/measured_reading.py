"""Separate program: measure the reading of each file in a separate forked process.

``python measured_reading.py CALM... -- FILE...`` reads the harmless files CALM first, so that
imports count as memory but not as time. It then prints a line of JSON per FILE: the outcome of
reading, processor seconds, and the peak memory of the process (MB).
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from audited_reading import read

LONGEST_S = 30
"""Where a reading is ended by the system."""


def measured(path: Path) -> dict[str, object]:
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S))
        before = os.times()
        try:
            outcome = read(path)
        except Exception as error:
            outcome = f"traceback: {type(error).__name__}: {error}"
        after = os.times()
        actual = {
            "file": str(path),
            "outcome": outcome,
            "seconds": after.user + after.system - before.user - before.system,
            "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        }
        os.write(sender, json.dumps(actual).encode())
        os._exit(0)
    os.close(sender)
    with open(receiver, "rb") as pipe:  # noqa: PTH123
        stored = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        return {
            "file": str(path),
            "outcome": f"ended by {status}",
            "seconds": LONGEST_S,
            "megabytes": float("inf"),
        }
    return dict(json.loads(stored))


def main(words: list[str]) -> None:
    at = words.index("--")
    for calm in words[:at]:
        read(Path(calm))
    for word in words[at + 1 :]:
        print(json.dumps(measured(Path(word))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
