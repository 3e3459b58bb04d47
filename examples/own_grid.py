"""Run your own grid: a pandapower net with your zones, and the result written into the net.

python examples/own_grid.py
"""

import pandapower as pp
import pandapower.networks

import gridpriv
from gridpriv.grid.zoning import zoning_from_source

net = pandapower.networks.case9()  # any net whose generators have limits; costs in $/h
net.bus["zone"] = ["west" if bus in (0, 3, 4, 8) else "east" for bus in net.bus.index]

case = gridpriv.case_from_pandapower(net, name="own")
zones = zoning_from_source(case, "zone")  # or gridpriv.read_zoning("zones.csv", case)
print(gridpriv.zone_report(case, zones).to_string(index=False))

settings = gridpriv.make_settings(budget="total:5", beta="1MW", solver="clarabel", seed=1)
result = gridpriv.run(case, zones, settings)
physical = result.physical
print(f"{physical['cost']:.2f} $/h, {physical['shed_mw']:.3f} MW shed")

filled = result.to_pandapower(net)  # a copy of the net, with set points
pp.runpp(filled)
print(filled.res_bus[["vm_pu", "p_mw", "q_mvar"]].round(3).to_string())
