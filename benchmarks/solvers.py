"""Time of zone solves, rounds to consensus, build time and memory, in one run.

    python benchmarks/solvers.py --json results/solvers.json

The baseline is the plain way: a Pyomo model per solve, written for Ipopt and read back
(``pyomo:ipopt``), in the same run on the same local problems.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np

from gridpriv import load_case, make_settings, partition, run, shipped_zoning
from gridpriv.power.presolve import presolve
from gridpriv.power.program import compile_zone
from gridpriv.power.relaxation import zone_model
from gridpriv.power.solvers import make_solver
from gridpriv.power.zone import make_network, make_zones

SOLVERS = ("clarabel", "ipopt", "pyomo:ipopt")
ZONES = {"case30": 3, "case57": 3, "case300": 4, "case_ACTIVSg500": 5}


def zoned(name):
    case = load_case(name)
    return case, shipped_zoning(case) or partition(case, ZONES[name])


def sequence(program, zone, solver, rounds):
    """Yield the first rounds' (linear, metric) of the preset on one zone that hears itself."""
    z, dual = program.start, np.zeros(program.size)
    for t in range(1, rounds + 1):
        metric = np.full(program.size, 100.0 + np.sqrt(t))
        gradient = 2.0 * (program.imbalance.T @ (program.imbalance @ z + zone.demand))
        linear = gradient - (100.0 * z + dual) - np.sqrt(t) * z
        yield linear, metric
        z = solver.solve(linear, metric).z


def solve_times(name, repeats):
    """Return rows of median milliseconds per zone and solver, on the same problems."""
    case, zoning = zoned(name)
    rows = []
    for zone in make_zones(make_network(case), zoning):
        program = compile_zone(zone)
        reduced = presolve(program)
        guide = make_solver("clarabel", program, lambda r=reduced: r, exact=False)
        problems = list(sequence(program, zone, guide, repeats))
        row = {"case": name, "zone": zone.name, "variables": program.size}
        for kind in SOLVERS:
            solver = make_solver(kind, program, lambda r=reduced: r, exact=False)
            few = problems if kind != "pyomo:ipopt" else problems[:4]
            times = []
            for linear, metric in few:
                began = time.perf_counter()
                solver.solve(linear, metric)
                times.append(time.perf_counter() - began)
            row[kind] = 1e3 * float(np.median(times))
        rows.append(row)
    return rows


def build_time(name):
    """Return seconds to build the Pyomo models and to compile and presolve them."""
    case, zoning = zoned(name)
    began = time.perf_counter()
    zones = make_zones(make_network(case), zoning)
    for zone in zones:
        zone_model(zone)
    built = time.perf_counter()
    for zone in zones:
        presolve(compile_zone(zone))
    return {"build_s": built - began, "build_and_compile_s": time.perf_counter() - built}


def rounds_to(name, rounds):
    """Return rounds and seconds until the consensus residual is below 1e-2 and 1e-4."""
    case, zoning = zoned(name)
    began = time.perf_counter()
    result = run(
        case,
        zoning,
        make_settings(objective="imbalance", mechanism="none", solver="clarabel", rounds=rounds),
    )
    total = time.perf_counter() - began
    found = {"case": name, "seconds_all": total}
    for level in (1e-2, 1e-4):
        below = np.flatnonzero(result.rounds.consensus_residual < level)
        at = int(below[0]) if len(below) else None
        found[f"rounds_{level:g}"] = None if at is None else at + 1
        found[f"seconds_{level:g}"] = (
            None if at is None else float(result.rounds.seconds.iloc[: at + 1].sum())
        )
    both = (result.rounds.consensus_residual < 1e-2) & (result.rounds.objective < 1e-2)
    found["rounds_objective_and_residual_1e-2"] = int(np.argmax(both)) + 1 if both.any() else None
    tight = (result.rounds.consensus_residual < 1e-4) & (result.rounds.objective < 1e-5)
    first = int(np.argmax(tight)) + 1
    found["rounds_objective_1e-5_residual_1e-4"] = first if tight.any() else None
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=["case14", "case118"])
    parser.add_argument("--rounds-cases", nargs="+", default=["case14", "case118"])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    times = [row for name in args.cases for row in solve_times(name, args.repeats)]
    print("median ms per zone solve (linearized preset, same local problems)")
    print(f"{'case':10} {'zone':>4} {'vars':>5}" + "".join(f"{s:>14}" for s in SOLVERS))
    for row in times:
        cells = "".join(f"{row[s]:14.2f}" for s in SOLVERS)
        print(f"{row['case']:10} {row['zone']:>4} {row['variables']:5d}{cells}")
    builds = {name: build_time(name) for name in args.cases}
    for name, seconds in builds.items():
        print(f"{name}: Pyomo build {seconds['build_s']:.3f} s, build + compile + presolve "
              f"{seconds['build_and_compile_s']:.3f} s")  # fmt: skip
    rounds = [rounds_to(name, args.rounds) for name in args.rounds_cases]
    for found in rounds:
        print(json.dumps(found))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {memory:.0f} MB")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        document = {"solves": times, "build": builds, "rounds": rounds, "peak_mb": memory}
        args.json.write_text(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
