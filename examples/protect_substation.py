"""Hide whether a substation of 10 MW runs at all: plan from public data, then run what it says.

    python examples/protect_substation.py

Change CASE, BETA and TOTAL to ask it of another grid. The plan reads no demand; the run that
follows is a simulation, whose seed undoes its noise.
"""

import gridpriv
from gridpriv.zonal.forecast import forecast, methods, recommended

CASE, BETA, TOTAL = "case14", "10MW", 1.0

case = gridpriv.load_case(CASE)
zones = gridpriv.shipped_zoning(case)
settings = {
    "mechanism": "knorm",
    "budget": f"total:{TOTAL}",
    "beta": BETA,
    "noise_schedule": "once",
    "solver": "clarabel",
    "seed": 0,
}

options = list(methods(["nothing", "bus", "total"], ["knorm"], ["central"]))
tried = forecast(case, zones, gridpriv.make_settings(**settings), options, scenarios=3)
for way in tried:
    print(
        f"{way.release:8} of {way.rounds}: {way.over_optimum.median:8.2f} $/h over the optimum "
        f"({way.over_optimum.least:.2f} to {way.over_optimum.most:.2f})"
    )
best = recommended(tried)
print(f"recommended: release {best.release}, coordination {best.rounds}")

chosen = options[tried.index(best)]
result = gridpriv.run(case, zones, gridpriv.make_settings(**settings | chosen))
print(f"{result.physical['cost']:.2f} $/h, {result.physical['shed_mw']:.2f} MW shed")
for zone in result.certificates:
    print(f"zone {zone.zone}: {zone.releases} release, total epsilon {zone.total_pure:g}")
