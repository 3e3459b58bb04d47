"""Audit the paper's settings on case118: the nominal epsilon is refuted, the certified one is not.

python examples/audit_case118.py
"""

from gridpriv import load_case, make_settings, shipped_zoning
from gridpriv.assurance.audit import AuditPlan, audit
from gridpriv.zonal.prepared import prepare

case = load_case("case118")
settings = make_settings("ryu-kim", protects="p", solver="clarabel", seed=1)
plan = AuditPlan(runs={"release": 20_000}, levels=("release",), rounds=2)
result = audit(prepare(case, shipped_zoning(case), settings), plan)
for level in result.levels:
    print(
        f"{level.level}: nominal {level.nominal:.3g}, certified {level.certified:.3g}, "
        f"measured at least {level.measured.epsilon:.3g} (99.9 % confidence)"
    )
print(result.verdict)
