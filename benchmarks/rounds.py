"""Count rounds on the relaxation: until the residual is small, and until the cost is optimal.

Without noise, with cost; decision 0017. The first table counts rounds until no variable's
residual is above 1e-2, accelerated and plain. The second table uses PowerModelsADA's criterion: the
round from which on the residual (2-norm) stays below 1e-2 and the cost within 1 % of the
relaxation's bound: by Newton steps (the default on the relaxation; the residual is that of all
constraints), with Anderson's acceleration and plain. It also lists PowerModelsADA's ADMM with
parameters tuned per case, and the rounds of the default to the AC optimum
(docs/decisions/0031-ac-rounds.md).

    python benchmarks/rounds.py [--large] [--optimum]

``--large`` adds case1354pegase in 30 METIS zones and case2869pegase in 80 (five minutes);
``--optimum`` prints the second table only.
"""

from __future__ import annotations

import sys

import numpy as np

import gridpriv

MOST_ROUNDS = 150
GRIDS = (
    ("case14", 3),
    ("case30", 3),
    ("case57", 3),
    ("case118", 3),
    ("case300", 4),
    ("case_ACTIVSg500", 5),
)
LARGE = (("case1354pegase", 30), ("case2869pegase", 80))
PUBLISHED = {
    ("14_ieee", 2): 12,
    ("24_ieee_rts", 4): 39,
    ("30_ieee", 3): 12,
    ("39_epri", 3): 41,
    ("73_ieee_rts", 3): 3,
    ("179_goc", 3): 16,
    ("300_ieee", 4): 11,
    ("588_sdet", 8): 131,
}
"""Rounds of PowerModelsADA's ADMM on PGLib-OPF cases, by spectral zones."""
RESIDUAL = COST_SHARE = 1e-2
KINDS = "newton", "anderson", "none"


def rounds_to_agree(name: str, zones: int, acceleration: str) -> str:
    """Return the number of rounds, or a text if the largest number is not enough."""
    case = gridpriv.load_case(name)
    method = "metis" if case.n_bus > 1000 else "spectral"
    settings = gridpriv.make_settings(
        mechanism="none",
        planning="soc",
        rounds=MOST_ROUNDS,
        tolerance=RESIDUAL,
        acceleration=acceleration,
    )
    result = gridpriv.run(case, gridpriv.partition(case, zones, method=method), settings)
    agreed = result.rounds.consensus_residual_max.iloc[-1] < settings.tolerance
    return str(len(result.rounds)) if agreed else f"> {MOST_ROUNDS}"


def rounds_to_the_optimum(name: str, zones: int, acceleration: str) -> str:
    """Return the round from which on residual and cost meet PowerModelsADA's criterion."""
    case = gridpriv.load_case(f"pglib_opf_case{name}")
    settings = gridpriv.make_settings(
        mechanism="none",
        planning="soc",
        rounds=MOST_ROUNDS,
        tolerance=0.0,
        acceleration=acceleration,
    )
    rounds = gridpriv.run(case, gridpriv.partition(case, zones), settings).rounds
    bound = gridpriv.relax(case, "cost").bound
    not_converged = (rounds.consensus_residual >= RESIDUAL) | (
        abs(rounds.cost / bound - 1) >= COST_SHARE
    )
    last = int(np.flatnonzero(not_converged).max(initial=-1))
    return f"> {MOST_ROUNDS}" if last + 1 == len(rounds) else str(last + 2)


def ac_rounds(name: str, zones: int) -> str:
    """Return the number of rounds of the default to the AC optimum."""
    case = gridpriv.load_case(f"pglib_opf_case{name}")
    settings = gridpriv.make_settings(mechanism="none")
    rounds = gridpriv.run(case, gridpriv.partition(case, zones), settings).ac_rounds
    return str(len(rounds.iterations)) if rounds.schedule is not None else "-"


def main() -> None:
    """Print one line per grid."""
    if "--optimum" not in sys.argv[1:]:
        print(f"{'grid':18} {'zones':>5} {'anderson':>9} {'plain':>6}")
        for name, zones in (*GRIDS, *LARGE) if "--large" in sys.argv[1:] else GRIDS:
            counts = [rounds_to_agree(name, zones, kind) for kind in ("anderson", "none")]
            print(f"{name:18} {zones:5} {counts[0]:>9} {counts[1]:>6}", flush=True)
    heads = " ".join(f"{head:>9}" for head in ("published", *KINDS, "AC"))
    print(f"{'PGLib grid':18} {'zones':>5} {heads}")
    for (name, zones), published in PUBLISHED.items():
        counts = [rounds_to_the_optimum(name, zones, kind) for kind in KINDS]
        cells = " ".join(f"{cell:>9}" for cell in (published, *counts, ac_rounds(name, zones)))
        print(f"{name:18} {zones:5} {cells}", flush=True)


if __name__ == "__main__":
    main()
