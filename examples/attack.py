"""What somebody who hears every message learns about each bus, with noise and without.

    python examples/attack.py

Linearized updates, whose messages tell most, and one zone of case14 to keep it short. An attack
that fails proves nothing; the certificate is what holds.
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

found = gridpriv.attack(prepared, gridpriv.AttackPlan(seeds=1, rounds=3, bus=12))
print(found.summary().round(3).to_string(index=False))
print(found.zones().to_string(index=False))
