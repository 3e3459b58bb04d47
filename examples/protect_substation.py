"""Hide the presence of a 10 MW substation: plan on public data, then run the recommendation.

    python examples/protect_substation.py

Change CASE, BETA and TOTAL for another grid. The plan reads no demand. The run is a simulation:
its seed removes the noise.
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
tried, left_out = forecast(case, zones, gridpriv.make_settings(**settings), options, scenarios=3)
for method in tried:
    gap = method.over_optimum
    print(
        f"release {method.release:8} coordination {method.rounds}: {gap.median:8.2f} $/h over the "
        f"AC optimum ({gap.least:.2f} to {gap.most:.2f})"
    )
print(f"sampled demands without an AC optimum, left out: {left_out}")
best = recommended(tried)
print(f"recommended: release {best.release}, coordination {best.rounds}")

chosen = options[tried.index(best)]
result = gridpriv.run(case, zones, gridpriv.make_settings(**settings | chosen))
print(f"{result.physical['cost']:.2f} $/h, {result.physical['shed_mw']:.2f} MW shed")
for zone in result.certificates:
    print(f"zone {zone.zone}: {zone.releases} release, total epsilon {zone.total_pure:g}")
