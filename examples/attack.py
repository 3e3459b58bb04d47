"""Attack a run: estimate the load of each bus from all messages, with noise and without.

    python examples/attack.py

Updates are linearized, because their messages reveal most. One zone of case14 is attacked, to
save time. A failed attack proves nothing; the guarantee is the certificate.
"""

import gridpriv

case = gridpriv.load_case("case14")
settings = gridpriv.make_settings(
    update="linearized",
    budget="total:1",
    beta="1MW",
    rounds=3,
    solver="clarabel",
    seed=1,
)
prepared = gridpriv.prepare(case, gridpriv.shipped_zoning(case), settings)

result = gridpriv.attack(prepared, gridpriv.AttackPlan(seeds=1, rounds=3, bus=12))
print(result.summary().round(3).to_string(index=False))
print(result.zones().to_string(index=False))
