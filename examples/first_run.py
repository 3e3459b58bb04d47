"""One private run from Python: case14, three zones, a certified total epsilon of 5.

python examples/first_run.py
"""

import gridpriv

case = gridpriv.load_case("case14")
zones = gridpriv.shipped_zoning(case)
settings = gridpriv.make_settings(
    solver="clarabel", refresh="run", rounds=15, budget="total:5", beta="1MW", seed=1
)
result = gridpriv.run(case, zones, settings)

print(result.rounds[["round", "objective", "consensus_residual", "shed_mw"]].tail(3).to_string())
print(result.buses[["bus", "zone", "pd_mw", "recourse_shed_mw"]].head(5).to_string())
for zone in result.statements:
    print(
        f"zone {zone.zone}: {zone.releases} release of certified epsilon {zone.certified:g} "
        f"(claimed {zone.claimed:g}), total {zone.total:.4g}; {zone.provenance}"
    )
