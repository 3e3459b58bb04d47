"""What each release of demand costs once the grid has settled: mean over seeds, cell by cell.

    python benchmarks/release.py case14 --betas 10MW,20MW --totals 1 --seeds 40
    python benchmarks/release.py case57 --zones 3 --betas 1MW,5MW,10MW,20MW --totals 0.5,1,5

Zones are compiled once. Rows stand in the order of the cells; ``nothing`` and ``none`` (no noise)
are run once a case, as neither depends on budget or beta. A run without a dispatch is counted and
left out of the means.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from gridpriv import load_case, make_settings, partition, shipped_zoning
from gridpriv.consensus.transport import ReusedAgents, in_process
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.reference import PRIOR_ONLY
from gridpriv.zonal.run import run_prepared

RELEASES = "bus,total,tree,auto"


def cell(case: Any, zoning: Any, zones: ReusedAgents, seeds: int, **given: Any) -> dict[str, Any]:
    """Return a cell's means over seeds."""
    costs, shed, failed, chosen = [], [], 0, set()
    began = time.perf_counter()
    for seed in range(seeds):
        prepared = prepare(case, zoning, make_settings(objective="cost", **{"seed": seed, **given}))
        figures = run_prepared(prepared, transport=zones).physical
        chosen |= {d.strategy.name for d in prepared.disclosures if d is not None}
        if figures["cost"] is None:
            failed += 1
        else:
            costs.append(figures["cost"])
        shed.append(figures["shed_mw"])
    return {
        "cost": float(np.mean(costs)) if costs else None,
        "median": float(np.median(costs)) if costs else None,
        "worst": float(np.max(costs)) if costs else None,
        "shed_mw": float(np.mean(shed)),
        "failed": failed,
        "seeds": seeds,
        "strategies": "+".join(sorted(chosen)),
        "seconds": time.perf_counter() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case")
    parser.add_argument("--zones", type=int)
    parser.add_argument("--betas", default="10MW")
    parser.add_argument("--totals", default="1")
    parser.add_argument("--releases", default=RELEASES)
    parser.add_argument("--mechanism", default="knorm")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--solver", default="clarabel")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    case, zones, rows = load_case(args.case), ReusedAgents(in_process), []
    zoning = shipped_zoning(case) if args.zones is None else None
    zoning = zoning or shipped_zoning(case, args.zones) or partition(case, args.zones)
    common = {"rounds": args.rounds, "solver": args.solver}
    plain = {"beta": "-", "total": "-"}
    cells = [
        (plain | {"release": "none"}, 1, {"mechanism": "none"}),
        (plain | {"release": "nothing"}, 1, PRIOR_ONLY),
    ] + [
        (
            {"beta": beta, "total": total, "release": release},
            args.seeds,
            {
                "beta": beta,
                "budget": f"total:{total}",
                "release": release,
                "mechanism": args.mechanism,
                "noise_schedule": "once",
            },
        )
        for beta in args.betas.split(",")
        for total in args.totals.split(",")
        for release in args.releases.split(",")
    ]
    for named, seeds, given in cells:
        row = {"case": args.case, **named, **cell(case, zoning, zones, seeds, **given, **common)}
        rows.append(row)
        print(
            f"{args.case:12s} {row['beta']:>5s} {row['total']:>4s} {row['release']:8s}"
            + "".join(f" {row[k] or 0:11.1f}" for k in ("cost", "median", "worst"))
            + f" shed {row['shed_mw']:7.2f} without {row['failed']}/{seeds}"
            f" {row['strategies']:12s} {row['seconds']:6.1f} s",
            flush=True,
        )
        if args.json:
            args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
