"""Report on a pandapower net: each of its tables, read, ignored or unsupported."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gridpriv.grid.case import Case
from gridpriv.grid.pandapower_checks import Net, frame, in_service
from gridpriv.grid.pandapower_tables import fixed_voltages, voltage_bands
from gridpriv.grid.readreport import FieldNote, counted, dc_note, grid_notes

READ = {
    "bus": "vn_kv; min_vm_pu and max_vm_pu are the voltage band",
    "line": "r, x, c, g; max_i_ka at nominal voltage is the limit in MVA",
    "trafo": "T model, tap position, phase shift; sn_mva is the limit",
    "trafo3w": "three branches and a star point",
    "impedance": "a branch without limit",
    "load": "part of the bus demand",
    "motor": "part of the bus demand",
    "storage": "part of the bus demand, at p_mw",
    "asymmetric_load": "part of the bus demand, summed over the phases",
    "asymmetric_sgen": "negative demand, summed over the phases",
    "sgen": "negative demand; a generator where controllable with min_p_mw and max_p_mw",
    "gen": "a generator; held at p_mw where not controllable or without limits, and at vm_pu where "
    "not controllable",
    "ext_grid": "a generator at a reference bus, without limits unless the net gives them; "
    "its voltage is held at vm_pu unless controllable",
    "shunt": "bus shunt",
    "ward": "constant power and constant impedance",
    "switch": "closed bus switches fuse buses, open switches cut branches",
    "poly_cost": "cp0, cp1, cp2",
    "pwl_cost": "active power",
}
VOLTAGE_PARTS = (
    "const_z_percent",
    "const_i_percent",
    "const_z_p_percent",
    "const_i_p_percent",
    "const_z_q_percent",
    "const_i_q_percent",
)
PUBLIC_TABLES = ("res_", "_", "std_", "dtypes")


def net_notes(
    net: Net,
    case: Case,
    bus_of: dict[int, int],
    shunt_f: NDArray[np.complex128],
    shunt_t: NDArray[np.complex128],
) -> tuple[FieldNote, ...]:
    """Return the notes on every table of a net."""
    moved = int(((shunt_f != 0) | (shunt_t != 0)).sum())
    return (
        *_tables(net),
        FieldNote("sn_mva", "read", 1, f"the case is in per unit of {case.base_mva:g} MVA"),
        *_service(net),
        *grid_notes(case),
        *_buses(net, case, bus_of),
        *_fixed_voltages(net, bus_of),
        *counted("iron losses, unequal shunts", "read", moved, "as shunts at the end buses"),
        *_unsupported(net),
        *_ignored(net),
    )


def _tables(net: Net) -> Iterator[FieldNote]:
    for table, text in READ.items():
        yield from counted(table, "read", len(frame(net, table)), text)


def _service(net: Net) -> Iterator[FieldNote]:
    for table in READ:
        out = int((~in_service(net, table)).sum())
        yield from counted(f"{table}: out of service", "read", out, "left out")


def _buses(net: Net, case: Case, bus_of: dict[int, int]) -> Iterator[FieldNote]:
    numbers = pd.Series(bus_of)
    kept = set(case.bus_id.tolist())
    fused = len(numbers) - numbers.nunique()
    yield from counted("bus: fused by closed switches", "read", fused, "named after the smallest")
    auxiliary = len(kept - set(bus_of.values()))
    yield from counted("auxiliary buses", "read", auxiliary, "star points and open line ends")
    given = pd.Series(True, index=net.bus.index)
    for column in ("min_vm_pu", "max_vm_pu"):
        given &= net.bus[column].notna() if column in net.bus else False
    bare = int((~given).sum())
    yield from counted("bus: no voltage band", "read", bare, "0.9 to 1.1 p.u. is taken")
    if case.xy is not None:
        yield FieldNote("bus: geodata", "read", case.n_bus, "for drawings only")
    running = net.bus.index[in_service(net, "bus")]
    lost = [bus for bus in running if bus_of.get(int(bus)) not in kept]
    if lost:
        loads = frame(net, "load")
        on = in_service(net, "load")
        mw = float(loads.loc[on & loads["bus"].isin(lost), "p_mw"].sum()) if len(loads) else 0.0
        yield FieldNote(
            "bus: not connected to an external grid",
            "unsupported",
            len(lost),
            f"left out with {mw:g} MW of load, as in pandapower's power flow",
            mw != 0,
        )


def _fixed_voltages(net: Net, bus_of: dict[int, int]) -> Iterator[FieldNote]:
    """Yield which buses have a fixed voltage, and which of them lie outside their band."""
    ids = np.unique(np.fromiter(bus_of.values(), dtype=np.int64, count=len(bus_of)))
    low, high = voltage_bands(net, ids, bus_of)
    for element, bus, set_point in fixed_voltages(net):
        if bus not in bus_of:
            continue
        at = int(np.searchsorted(ids, bus_of[bus]))
        field, fixed = f"{element}: vm_pu", f"bus {bus} is fixed at {set_point:.6g} p.u."
        if low[at] <= set_point <= high[at]:
            yield FieldNote(
                field,
                "read",
                1,
                f"{fixed}, as in pandapower's optimal power flow (not controllable)",
            )
        else:
            yield FieldNote(
                field,
                "unsupported",
                1,
                f"{fixed}, outside its voltage band of {low[at]:.6g} to {high[at]:.6g} p.u., as in "
                "pandapower's optimal power flow; set controllable to True to keep the band",
                left_out=True,
            )


def _unsupported(net: Net) -> Iterator[FieldNote]:
    running = int(in_service(net, "dcline").sum())
    if running:
        yield dc_note(running)
    loads = frame(net, "load")
    parts = loads[[c for c in VOLTAGE_PARTS if c in loads]]
    varying = int(((parts.fillna(0) != 0).any(axis=1) & in_service(net, "load")).sum())
    yield from counted(
        "load: voltage dependence",
        "unsupported",
        varying,
        "constant power is taken, as at 1 p.u.",
        left_out=True,
    )
    for table in ("load", "storage"):
        rows = frame(net, table)
        if "controllable" in rows:
            flexible = int(
                (rows["controllable"].fillna(False).astype(bool) & in_service(net, table)).sum()
            )
            yield from counted(f"{table}: controllable", "unsupported", flexible, "held at p_mw")
    costs = frame(net, "poly_cost")
    names = [str(name) for name in costs]
    reactive = [c for c in names if c.startswith("cq") and (costs[c].fillna(0) != 0).any()]
    curves = frame(net, "pwl_cost")
    count = len(reactive) + (int((curves["power_type"] != "p").sum()) if len(curves) else 0)
    yield from counted("cost of reactive power", "unsupported", count, "not in the objective")
    loose = int(costs["et"].isin(["load", "storage", "dcline"]).sum()) if len(costs) else 0
    yield from counted("poly_cost of loads, storage, dcline", "unsupported", loose)


def _ignored(net: Net) -> Iterator[FieldNote]:
    for name in net:
        rows = net[name]
        known = name in READ or name == "dcline" or name.startswith(PUBLIC_TABLES)
        if isinstance(rows, pd.DataFrame) and len(rows) and not known:
            yield FieldNote(name, "ignored", len(rows))
    profiles = net.get("profiles")
    if isinstance(profiles, dict) and profiles:
        yield FieldNote(
            "profiles", "ignored", len(profiles), "time series: run --series profiles reads them"
        )
