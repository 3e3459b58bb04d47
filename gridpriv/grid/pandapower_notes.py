"""Report on a pandapower net: each of its tables, read, ignored or unsupported."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gridpriv.grid.case import Case
from gridpriv.grid.pandapower_checks import Net, frame, in_service
from gridpriv.grid.pandapower_tables import fixed_voltages, voltage_bands
from gridpriv.grid.readreport import FieldNote, dc_note, grid_notes, known_fields, notes_of

VOLTAGE_PARTS = [f"const_{kind}_{part}percent" for kind in "zi" for part in ("", "p_", "q_")]
PUBLIC_TABLES = ("res_", "_", "std_", "dtypes")


def net_notes(
    net: Net,
    case: Case,
    bus_of: dict[int, int],
    shunt_f: NDArray[np.complex128],
    shunt_t: NDArray[np.complex128],
) -> tuple[FieldNote, ...]:
    """Return the notes on every table of a net."""
    tables = [key for key, field, _ in known_fields("pandapower") if key == field.field]
    counts = {table: len(frame(net, table)) for table in tables if table != "profiles"}
    profiles = net.get("profiles")
    counts["profiles"] = len(profiles) if isinstance(profiles, dict) else 0
    counts |= _bus_counts(net, case, bus_of) | _unsupported(net)
    counts["moved"] = int(((shunt_f != 0) | (shunt_t != 0)).sum())
    dc_lines = int(in_service(net, "dcline").sum())
    return (
        *notes_of("pandapower", counts | {"base": 1}, base=case.base_mva),
        *(_out_of_service(net, table) for table in tables if not in_service(net, table).all()),
        *grid_notes(case),
        *_lost_buses(net, case, bus_of),
        *_fixed_voltages(net, bus_of),
        *([dc_note(dc_lines)] if dc_lines else []),
        *_ignored(net, tables),
    )


def _out_of_service(net: Net, table: str) -> FieldNote:
    count = int((~in_service(net, table)).sum())
    return FieldNote(f"{table}: out of service", "read", count, "left out")


def _bus_counts(net: Net, case: Case, bus_of: dict[int, int]) -> dict[str, int]:
    given = pd.Series(True, index=net.bus.index)
    for column in ("min_vm_pu", "max_vm_pu"):
        given &= net.bus[column].notna() if column in net.bus else False
    return {
        "fused": len(bus_of) - len(set(bus_of.values())),
        "auxiliary": len(set(case.bus_id.tolist()) - set(bus_of.values())),
        "bare": int((~given).sum()),
        "places": 0 if case.xy is None else case.n_bus,
    }


def _lost_buses(net: Net, case: Case, bus_of: dict[int, int]) -> Iterator[FieldNote]:
    """Yield the note on buses without a path to an external grid."""
    kept = set(case.bus_id.tolist())
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


def _unsupported(net: Net) -> dict[str, int]:
    """Return the number of rows of each table that are modelled only in part."""
    loads, costs, curves = (frame(net, name) for name in ("load", "poly_cost", "pwl_cost"))
    parts = loads[[c for c in VOLTAGE_PARTS if c in loads]]
    counts = {"varying": ((parts.fillna(0) != 0).any(axis=1) & in_service(net, "load")).sum()}
    for table in ("load", "storage"):
        rows = frame(net, table)
        flexible = rows.get("controllable", pd.Series(False, rows.index)).fillna(False).astype(bool)
        counts[f"flexible {table}"] = (flexible & in_service(net, table)).sum()
    names = [str(name) for name in costs]
    reactive = [c for c in names if c.startswith("cq") and (costs[c].fillna(0) != 0).any()]
    curved = int((curves["power_type"] != "p").sum()) if len(curves) else 0
    loose = costs["et"].isin(["load", "storage", "dcline"]).sum() if len(costs) else 0
    return counts | {"reactive cost": len(reactive) + curved, "loose cost": loose}


def _ignored(net: Net, read: list[str]) -> Iterator[FieldNote]:
    for name in net:
        rows = net[name]
        known = name in read or name == "dcline" or name.startswith(PUBLIC_TABLES)
        if isinstance(rows, pd.DataFrame) and len(rows) and not known:
            yield FieldNote(name, "ignored", len(rows))
