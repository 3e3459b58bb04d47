"""Run a grid that must shed load: least shedding, the AC optimum, and the shedding of a run.

    python examples/stressed_grid.py

Shedding of the noise-free run above the optimum is due to the zones; the rest is due to privacy.
"""

import gridpriv

case = gridpriv.load_case("case14").scale_load(3.0)
demand = case.base_mva * case.pd.sum()

bound = gridpriv.relax(case, "imbalance", "clarabel")
print(f"of {demand:.1f} MW at least {bound.least_shed_mw:.1f} MW must be shed")
print(bound.explanation())

optimum = gridpriv.acopf(case, "cost")
print(f"AC optimum: {optimum.as_dict()['shed_mw']:.1f} MW shed, {optimum.cost:.0f} $/h")

zones = gridpriv.shipped_zoning(case)
for name, chosen in {
    "noise-free": {"mechanism": "none"},
    "total epsilon 5": {"mechanism": "knorm", "budget": "total:5"},
}.items():
    settings = gridpriv.make_settings(solver="clarabel", beta="1MW", seed=1, **chosen)
    result = gridpriv.run(case, zones, settings)
    physical = result.physical
    print(f"{name}: {physical['shed_mw']:.1f} MW shed, {physical['cost']:.0f} $/h")
    worst = result.buses.nlargest(3, "redispatch_shed_mw")
print(worst[["bus", "zone", "pd_mw", "redispatch_shed_mw"]].round(1).to_string(index=False))
