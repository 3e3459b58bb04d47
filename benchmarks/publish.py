"""Measure published cases: AC feasibility, error of the optimal cost, use in other tools.

    python benchmarks/publish.py measure rows.csv [--seeds N] [--cases A,B] [--minutes M]
    python benchmarks/publish.py table rows.csv

``measure`` appends a row per publication and skips rows of the file, so it can be stopped and
restarted. Grids are in order of size. Noise depends on beta/total alone. The nine pairs of beta 1,
10, 100 MW and total 0.1, 1, 10 have five ratios, and a row applies to all pairs of its ratio.

Methods: ``auto``, as ``gridpriv publish`` does; ``naive``: Laplace noise on every bus at the same
total, unprojected. The status of a row is computed by judge.py from
the state in the written file, read by the reader of MATPOWER files. Seed 0 is also opened in
pandapower and, where installed, PYPOWER: a power flow must find the voltages of the file
(``~``: it converges to others; pandapower puts taps at high-voltage sides, MATPOWER at from buses).
"""

from __future__ import annotations

import argparse
import csv
import logging
import math
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from judge import Judgement, State

from gridpriv.core.errors import SolverError
from gridpriv.grid.case import Case
from gridpriv.grid.convert import matpower_text
from gridpriv.grid.library import load_case
from gridpriv.power.ac.optimum import acopf
from gridpriv.zonal.protected_case import prepare_publication, protect
from gridpriv.zonal.settings import make_settings

GRIDS = (
    "pglib_opf_case5_pjm",
    "case14",
    "pglib_opf_case14_ieee",
    "pglib_opf_case24_ieee_rts",
    "case30",
    "pglib_opf_case30_ieee",
    "pglib_opf_case39_epri",
    "case57",
    "pglib_opf_case57_ieee",
    "pglib_opf_case73_ieee_rts",
    "case118",
    "pglib_opf_case118_ieee",
    "pglib_opf_case162_ieee_dtc",
    "pglib_opf_case179_goc",
    "case300",
)
RATIOS = (0.1, 1.0, 10.0, 100.0, 1000.0)  # beta over total, MW
NAIVE_RATIO = 10.0  # of beta 10 MW and total 1
KEY = ("grid", "method", "ratio", "seed")
COLUMNS = (*KEY, "status", "balance_mva", "cost_error_pct", "margin", "opened", "seconds")


def tasks(grids: list[str], seeds: int) -> Iterator[tuple[str, str, float, int]]:
    """Yield grid, method, ratio and seed, grid by grid."""
    for grid in grids:
        yield from product([grid], ["auto"], RATIOS, range(seeds))
        yield from product([grid], ["naive"], [NAIVE_RATIO], range(seeds))


def measure(path: Path, grids: list[str], seeds: int, minutes: float) -> None:
    """Run the rows that the file lacks, until the time is over."""
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    with path.open(encoding="utf-8", newline="") as file:
        done = {tuple(row[name] for name in KEY) for row in csv.DictReader(file)}
    end, name = time.process_time() + 60.0 * minutes, ""
    with path.open("a", encoding="utf-8") as file:
        for grid, method, ratio, seed in tasks(grids, seeds):
            label = grid, method, f"{ratio:g}", str(seed)
            if label in done:
                continue
            if time.process_time() > end:
                break
            if grid != name:
                name, case = grid, load_case(grid)
                true = acopf(case).cost or math.nan
            start = time.process_time()
            publish = published if method == "auto" else naive
            figures = publish(case, true, ratio, seed)
            row = (*label, *figures, f"{time.process_time() - start:.2f}")
            file.write(",".join(map(str, row)) + "\n")
            file.flush()


def published(case: Case, true: float, ratio: float, seed: int) -> tuple[str, ...]:
    """Publish a case and check its file; return the columns from ``status`` to ``opened``."""
    settings = make_settings(beta=f"{10.0 * ratio}MW", budget="total:10", seed=seed)
    try:
        made = protect(prepare_publication(case, settings))
    except SolverError:
        return "none", "", "", "", ""
    state = made.served.optimum.state
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "published.m"
        file.write_text(matpower_text(made.case("published"), (), state.qg, rounded=True), "utf-8")
        read = load_case(file)
        opened = "+".join(openers(file, read)) if seed == 0 else ""
    none, zone = np.zeros(read.n_bus), np.zeros(read.n_bus, dtype=int)
    written = State(
        read.vm, read.va, read.pg, state.qg, none, none, none, zone, np.zeros(1), ("grid",)
    )
    verdict = Judgement(read, written, 1.0)
    error = 100.0 * ((made.served.optimum.cost or math.nan) / true - 1.0)
    margin = f"{made.served.margin:g}"
    return verdict.status, f"{verdict.balance_mva:.2g}", f"{error:.6g}", margin, opened


def naive(case: Case, true: float, ratio: float, seed: int) -> tuple[str, ...]:
    """Return the columns of per-bus Laplace noise: p and q of a bus share the total."""
    noise = np.random.default_rng(seed).laplace(0.0, 2.0 * ratio / case.base_mva, (2, case.n_bus))
    try:
        best = acopf(replace(case, pd=case.pd + noise[0], qd=case.qd + noise[1]), shedding=False)
    except SolverError:
        return "none", "", "", "", ""
    status = "infeasible" if best.violations else "feasible"
    return status, "", f"{100.0 * ((best.cost or math.nan) / true - 1.0):.6g}", "", ""


def openers(file: Path, read: Case) -> Iterator[str]:
    """Yield the tools that read the file and find its voltages by a power flow."""
    import pandapower
    from pandapower.converter.matpower.from_mpc import from_mpc

    with suppress(pandapower.LoadflowNotConverged):
        net = from_mpc(str(file))
        pandapower.runpp(net)
        off = float(np.abs(net.res_bus.vm_pu.to_numpy() - read.vm).max())
        yield "pandapower" if off < 1e-5 else f"pandapower~{off:.2g}"
    try:
        from matpowercaseframes import CaseFrames
        from pypower import api
    except ImportError:
        return
    tables = CaseFrames(str(file))
    ppc = {"version": "2", "baseMVA": float(tables.baseMVA)}
    ppc |= {name: getattr(tables, name).to_numpy(float) for name in ("bus", "gen", "branch")}
    state, solved = api.runpf(ppc, api.ppoption(VERBOSE=0, OUT_ALL=0))
    if solved and np.abs(state["bus"][:, 7] - read.vm).max() < 1e-5:
        yield "pypower"


def table(path: Path) -> str:
    """Return the Markdown table: mean error of the optimal cost and shares, one row per grid."""
    rows = pd.read_csv(path, keep_default_na=False)
    rows["error"] = pd.to_numeric(rows["cost_error_pct"], errors="coerce").abs()
    rows["feasible"] = rows["status"].eq("feasible")
    made = rows[rows["method"] == "auto"]
    lines = ["| beta / total, MW | " + " | ".join(f"{r:g}" for r in RATIOS) + " | naive at 10 |"]
    lines.append("| --- " * (len(RATIOS) + 2) + "|")
    for grid in dict.fromkeys(rows["grid"]):
        here = made[made["grid"] == grid]
        cells = [here[here["ratio"] == ratio] for ratio in RATIOS]
        words = [f"{c['error'].mean():.2g}" if len(c) else "" for c in cells]
        rough = rows[(rows["grid"] == grid) & (rows["method"] == "naive")]
        fit = rough[rough["feasible"]]
        mean = f"{fit['error'].mean():.2g} " if len(fit) else ""
        words.append(f"{mean}({len(fit)}/{len(rough)})" if len(rough) else "")
        lines.append(f"| {grid} | " + " | ".join(words) + " |")
    opened = [text for text in made["opened"] if text]
    lines += [
        "",
        f"{made['feasible'].sum()} of {len(made)} published files are AC-feasible; "
        f"{made['margin'].astype(str).ne('0').sum()} were projected. "
        f"Opened in pandapower: {sum('pandapower' in text for text in opened)} of "
        f"{(made['seed'].astype(str) == '0').sum()}, in PYPOWER: "
        f"{sum('pypower' in text for text in opened)}.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("do", choices=("measure", "table"))
    parser.add_argument("rows", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--cases", default=",".join(GRIDS))
    parser.add_argument("--minutes", type=float, default=math.inf, help="of processor time")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # of pandapower too
    logging.disable(logging.WARNING)
    if args.do == "measure":
        measure(args.rows, args.cases.split(","), args.seeds, args.minutes)
    else:
        print(table(args.rows))


if __name__ == "__main__":
    main()
