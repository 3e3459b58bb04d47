"""Rounds until zones agree, accelerated and plain: the last table of decision 0017.

Without noise, with cost. A run ends when no variable's disagreement is above 1e-2 p.u.

    python benchmarks/rounds.py [--large]

``--large`` adds case1354pegase in 30 METIS zones and case2869pegase in 80 (five minutes).
"""

from __future__ import annotations

import sys

import gridpriv

MOST_ROUNDS = 80
GRIDS = (
    ("case14", 3),
    ("case30", 3),
    ("case57", 3),
    ("case118", 3),
    ("case300", 4),
    ("case_ACTIVSg500", 5),
)
LARGE = (("case1354pegase", 30), ("case2869pegase", 80))


def rounds_to_agree(name: str, zones: int, acceleration: str) -> str:
    """Return the number of rounds, or that the most of them do not do."""
    case = gridpriv.load_case(name)
    method = "metis" if case.n_bus > 1000 else "spectral"
    settings = gridpriv.make_settings(
        mechanism="none", rounds=MOST_ROUNDS, tolerance=1e-2, acceleration=acceleration
    )
    result = gridpriv.run(case, gridpriv.partition(case, zones, method=method), settings)
    agreed = result.rounds.consensus_residual_max.iloc[-1] < settings.tolerance
    return str(len(result.rounds)) if agreed else f"> {MOST_ROUNDS}"


def main() -> None:
    """Print a line a grid."""
    print(f"{'grid':18} {'zones':>5} {'anderson':>9} {'plain':>6}")
    for name, zones in (*GRIDS, *LARGE) if "--large" in sys.argv[1:] else GRIDS:
        found = [rounds_to_agree(name, zones, kind) for kind in ("anderson", "none")]
        print(f"{name:18} {zones:5} {found[0]:>9} {found[1]:>6}", flush=True)


if __name__ == "__main__":
    main()
