"""Print objective and residual by perturbation at one certified total, mean over seeds.

python benchmarks/privacy.py --seeds 5 --json results/privacy.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from gridpriv import load_case, make_settings, run, shipped_zoning

SCHEMES = {
    "no noise, exact, 15 rounds": {"mechanism": "none", "rounds": 15},
    "objective, linearized, all, 100 rounds": {
        "preset": "ryu-kim",
        "sensitivity": "proven",
        "perturbation": "objective",
    },
    "output, linearized, all, 100 rounds": {
        "preset": "ryu-kim",
        "sensitivity": "proven",
        "perturbation": "output",
    },
    "objective, exact, 5 rounds": {"perturbation": "objective", "rounds": 5},
    "output, exact, 5 rounds": {"perturbation": "output", "rounds": 5},
    "demand per round, exact, 3 rounds": {"noise_schedule": "round", "rounds": 3},
    "demand per round, exact, 10 rounds": {"noise_schedule": "round", "rounds": 10},
    "demand once, exact, 15 rounds": {"noise_schedule": "once", "rounds": 15},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=["case14", "case118"])
    parser.add_argument("--budget", default="total:5")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    for name in args.cases:
        case = load_case(name)
        zoning = shipped_zoning(case)
        print(f"\n{name}, {args.budget}, beta 0.01, p+q, mean of {args.seeds} seeds")
        print(f"{'method':42} {'objective':>10} {'residual':>10} {'redispatch MW':>12}")
        for method, given in SCHEMES.items():
            budget = {} if given.get("mechanism") == "none" else {"budget": args.budget}
            finals = [
                run(
                    case,
                    zoning,
                    make_settings(
                        objective="imbalance",
                        release="bus",
                        **given,
                        **budget,
                        solver="clarabel",
                        seed=seed,
                    ),
                ).as_dict()["final"]
                for seed in range(args.seeds)
            ]
            means = {
                "objective": float(np.mean([f["objective"] for f in finals])),
                "residual": float(np.mean([f["consensus_residual"] for f in finals])),
                "redispatch_mw": float(np.mean([f["physical"]["shed_mw"] for f in finals])),
            }
            rows.append({"case": name, "method": method, "budget": args.budget, **means})
            print(
                f"{method:42} {means['objective']:10.3g} {means['residual']:10.3g} "
                f"{means['redispatch_mw']:12.3g}",
                flush=True,
            )
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
