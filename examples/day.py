"""Run a day under one budget: one release of the unscaled demand serves every hour.

    python examples/day.py

Load scales are public. A series of demand by bus (columns step,bus,pd_mw,qd_mvar) is also released
once: its mean and cosine coefficients of each zone's total (``--temporal-basis``).
"""

import tempfile
from pathlib import Path

import gridpriv

HOURS = {"03:00": 0.55, "07:00": 0.8, "11:00": 1.0, "15:00": 0.95, "19:00": 1.1, "23:00": 0.7}

case = gridpriv.load_case("case14")
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "day.csv"
    path.write_text("step,load_scale\n" + "".join(f"{h},{x}\n" for h, x in HOURS.items()))
    series = gridpriv.read_demand_series(path, case)

settings = gridpriv.make_settings(
    budget="total:1", beta="1MW", rounds=10, solver="clarabel", seed=1
)
day = gridpriv.run_series(series, gridpriv.shipped_zoning(case), settings)

table = day.table()
table["cost"] = [result.physical["cost"] for result in day.results]
print(table[["step", "demand_mw", "redispatch_shed_mw", "cost"]].round(3).to_string(index=False))
for zone in day.certificates:
    print(
        f"zone {zone.zone}: {zone.releases} release in {len(series)} steps, "
        f"total epsilon {zone.total_pure:g}"
    )
