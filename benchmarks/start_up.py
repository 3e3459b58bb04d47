"""Processor time of short commands from start to end, the least of several tries.

    python benchmarks/start_up.py [--tries N] [--json FILE]

User and system time of the process and of those that it starts, on one thread. It leaves out what
other work on the machine takes, though caches and clock that they share still show.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

GRIDPRIV = [sys.executable, "-c", "from gridpriv.cli.main import main; raise SystemExit(main())"]
AIMED = {  # seconds; None: nothing is aimed at
    "--help": 0.3,
    "run case14 --mechanism none": None,
    "run case14": 1.2,
    "run case118 --solver clarabel --rounds 100": 1.6,
    "compare case14 --format none --out": None,
}


def seconds(words: list[str]) -> float:
    """Return the processor time of a command, that of its children included."""
    before = os.times()
    with tempfile.TemporaryDirectory() as folder:
        given = [*words, f"{folder}/study"] if words[-1] == "--out" else words
        subprocess.run(
            [*GRIDPRIV, *given],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    after = os.times()
    spent = (after.children_user, after.children_system)
    return sum(spent) - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    for words, aimed in AIMED.items():
        least = min(seconds(words.split()) for _ in range(args.tries))
        rows.append({"command": words, "seconds": round(least, 2), "aimed": aimed})
        print(f"gridpriv {words:44} {least:6.2f} s" + (f" (aim {aimed})" if aimed else ""))
    if args.json:
        machine = (
            f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        )
        args.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
