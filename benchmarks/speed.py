"""Measure time and memory of commands, of a plain Pyomo + Ipopt loop, and growth with the grid.

    python benchmarks/speed.py [--commands WORD ...] [--sizes 14,118,300,1354] [--workers N]
                               [--tries N] [--keep "other load of the machine"]

For every command: wall time, processor time (user and system, with its child processes, one thread
per process), and the peak memory of it and of its largest child process. Processor time excludes
other work on the machine, except for effects of shared caches and clock.

Runs of the growth table warm-start, do ten rounds without noise and redispatch on AC; the
seconds of each stage are printed: reading and compilation; warm start; rounds; AC redispatch. The
plain loop writes and reads a Pyomo model at every solve (``--solver pyomo:ipopt``) and runs the
same rounds. ``--keep`` adds the run to history.json. Grids above 118 buses and those of PGLib need
the extra ``cases``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
MAIN = """
import atexit, resource as r, sys
peaks = (r.getrusage(who).ru_maxrss for who in (r.RUSAGE_SELF, r.RUSAGE_CHILDREN))
atexit.register(lambda: print(*peaks, file=sys.stderr))
from gridpriv.cli.main import main
raise SystemExit(main())
"""
AIMED = {  # seconds; None: no target
    "--help": 0.3,
    "run case14": 1.2,
    "run case14 --mechanism none": None,
    "run case118 --solver clarabel --rounds 100": 1.6,
    "relax pglib_opf_case1354_pegase --objective cost": 2.0,
    "acopf pglib_opf_case1354_pegase": 10.0,
    "compare case14 --format none --out": 13.5,
    "relax pglib_opf_case9241_pegase --objective cost": 20.0,
    "acopf pglib_opf_case9241_pegase": 120.0,
    "run case9241pegase --zones 350 --method metis --workers 2 --no-reference": 25.0,
    "run case_ACTIVSg70k --zones 2600 --method metis --workers 2 --no-reference": 150.0,
}
ROUNDS = "--mechanism none --rounds 10 --tolerance 0"
GRIDS = {  # buses: case and number of zones
    14: ("case14", 3),
    57: ("case57", 3),
    118: ("case118", 3),
    300: ("case300", 6),
    500: ("case_ACTIVSg500", 10),
    1354: ("case1354pegase", 30),
    2869: ("case2869pegase", 80),
    9241: ("case9241pegase", 350),
    70000: ("case_ACTIVSg70k", 2600),
}
PLAIN = 118  # largest grid of the plain loop
SPECTRAL = 1000  # buses above which zones are METIS's
LARGE = 300  # buses from which start-up is a small part


def measured(words: str, tries: int) -> dict[str, object]:
    """Return the least time of a command over the tries, and its peak memory."""
    runs = [_once(words.split()) for _ in range(tries)]
    least = min(runs, key=lambda run: run["seconds"])
    for peak in ("megabytes", "megabytes_worker"):
        least[peak] = max(run[peak] for run in runs)
    print(
        f"gridpriv {words:76} {least['seconds']:8.2f} s {least['wall']:8.2f} s wall "
        f"{least['megabytes']:5} + {least['megabytes_worker']:5} MB",
        end="",
        flush=True,
    )
    return {"command": words} | least


def _once(words: list[str]) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        output, problems = Path(folder, "output"), Path(folder, "problems")
        given = [*words, f"{folder}/study"] if words[-1] == "--out" else words
        began = time.perf_counter()
        with output.open("wb") as out, problems.open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-c", MAIN, *given],
                env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
                stdout=out,
                stderr=err,
            )
            _, status, used = os.wait4(process.pid, 0)
        wall, errors = time.perf_counter() - began, problems.read_text().splitlines()
        if status:
            ended = os.waitstatus_to_exitcode(status)
            raise SystemExit(f"gridpriv {' '.join(words)} ended {ended}: {errors[-1:]}")
        split = _split(output.read_text()) if "--json" in words else {}
    own, worker = (round(int(peak) / 1024) for peak in errors[-1].split())
    seconds = used.ru_utime + used.ru_stime
    return {
        "seconds": round(seconds, 2),
        "wall": round(wall, 2),
        "megabytes": own,
        "megabytes_worker": worker,
    } | split


def _split(document: str) -> dict[str, object]:
    """Return the seconds of a run's stages."""
    run = json.loads(document)
    rounds, timing = sum(row["seconds"] for row in run["rounds"]), run["timing"]
    stages = {
        "read": timing["total"] - timing["build"] - timing["solve"],
        "warm_start": timing["build"],
        "rounds": rounds,
        "redispatch": timing["solve"] - rounds,
    }
    return {"split": {stage: round(taken, 2) for stage, taken in stages.items()}}


def commands(holding: list[str], tries: int) -> Iterator[dict[str, object]]:
    """Measure the commands that contain one of the words."""
    for words, aimed in AIMED.items():
        if any(word in words for word in holding):
            yield measured(words, tries) | {"aimed": aimed}
            print("" if aimed is None else f"  (aim {aimed:g})")


def growth(sizes: list[int], workers: int, tries: int) -> Iterator[dict[str, object]]:
    """Measure a run of every grid, and of the plain loop where that ends in a minute."""
    for buses in sizes:
        case, zones = GRIDS[buses]
        words = f"run {case} --zones {zones} {ROUNDS} --workers {min(workers, zones)} --json"
        if buses > SPECTRAL:
            words += " --method metis"
        row = {"buses": buses} | measured(f"{words} --solver clarabel", tries)
        print("\n    " + ", ".join(f"{stage} {taken}" for stage, taken in row["split"].items()))
        if buses <= PLAIN:
            plain = measured(f"{words} --solver pyomo:ipopt", 1)["seconds"]
            row |= {"plain_seconds": plain, "ratio": round(plain / row["seconds"], 1)}
            print(f"  ({row['ratio']} times)")
        yield row


def exponent(rows: list[dict[str, object]]) -> float | None:
    """Return the slope of log seconds over log buses; None for fewer than three grids."""
    if len(rows) < 3:
        return None
    logs = np.log([[row["buses"], row["seconds"]] for row in rows])
    return round(float(np.polyfit(*logs.T, 1)[0]), 2)


def keep(table: dict[str, object], note: str) -> None:
    """Add a run to the history."""
    path = Path(__file__).with_name("history.json")
    history = json.loads(path.read_text()) if path.exists() else []
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    stated = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit.stdout.strip(),
        "machine": machine,
        "note": note,
    }
    path.write_text(json.dumps([*history, stated | table], indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--commands", nargs="*", default=[""], metavar="WORD", help="those that hold one of them"
    )
    parser.add_argument("--sizes", default="14,118,300,1354", help=f"of {[*GRIDS]}, or none")
    parser.add_argument("--workers", type=int, default=1, help="of the growth table's runs")
    parser.add_argument("--tries", type=int, default=2)
    parser.add_argument("--keep", metavar="NOTE", help="add to history.json")
    args = parser.parse_args()
    results = list(commands(args.commands, args.tries))
    sizes = [] if args.sizes == "none" else [int(size) for size in args.sizes.split(",")]
    grids = list(growth(sizes, args.workers, args.tries))
    grown = {
        "all": exponent(grids),
        f"from {LARGE} buses": exponent([row for row in grids if row["buses"] >= LARGE]),
    }
    for which, power in grown.items():
        if power is not None:
            print(
                f"processor seconds grow with buses to the power {power} ({which}, with start-up)"
            )
    if args.keep:
        keep({"commands": results, "grids": grids, "exponents": grown}, args.keep)


if __name__ == "__main__":
    main()
