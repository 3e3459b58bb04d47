"""Read pandapower nets, from memory or from JSON, and report which of their tables are read.

pandapower's own conversion (``to_ppc``) resolves switches, tap changers, three-winding
transformers and unit systems. The case adds what that conversion leaves out of MATPOWER's columns:

- iron losses and unequal shunts of a branch become shunts at its end buses. Bus balances and
  voltages do not change, and :class:`PandapowerLink` records the conversion;
- buses that closed switches fuse are one bus, with the smallest of their numbers;
- limits and costs are read from the net's tables, because ``to_ppc`` leaves them out.

simbench grids are read by name, with the demand over time that their nets include. docs/readers.md
lists every table.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from gridpriv.core.arrays import Bools, Complexes, Floats
from gridpriv.core.errors import InputError, missing_extra, not_allowed
from gridpriv.grid import pandapower_tables as pp_tables
from gridpriv.grid.case import Case, SourceNames
from gridpriv.grid.library import FieldNote, ReadReport, dc_note, grid_notes, known_fields, notes_of
from gridpriv.grid.pandapower_json import (
    Net,
    check_net,
    frame,
    in_service,
    numbers,
    open_json,
    optional,
)
from gridpriv.grid.scenarios import DemandSeries
from gridpriv.grid.tables import MatpowerTables, case_from_tables, naming

Elements = tuple[pp_tables.Element, ...]

VOLTAGE_PARTS = [f"const_{kind}_{part}percent" for kind in "zi" for part in ("", "p_", "q_")]
PUBLIC_TABLES = ("res_", "_", "std_", "dtypes")


def net_notes(
    net: Net, case: Case, bus_of: dict[int, int], shunts: Complexes
) -> tuple[FieldNote, ...]:
    """Return the notes on every table of a net."""
    tables = [key for key, field, _ in known_fields("pandapower") if key == field.field]
    counts = {table: len(frame(net, table)) for table in tables if table != "profiles"}
    profiles = net.get("profiles")
    counts["profiles"] = len(profiles) if isinstance(profiles, dict) else 0
    counts |= _bus_counts(net, case, bus_of) | _unsupported(net)
    counts["moved"] = int((shunts != 0).any(axis=0).sum())
    dc_lines = int(in_service(net, "dcline").sum())
    return (
        *notes_of("pandapower", counts | {"base": 1}, base=case.base_mva),
        *(
            FieldNote(f"{table}: out of service", "read", count, "left out")
            for table in tables
            if (count := int((~in_service(net, table)).sum()))
        ),
        *grid_notes(case),
        *_lost_buses(net, case, bus_of),
        *_fixed_voltages(net, bus_of),
        *([dc_note(dc_lines)] if dc_lines else []),
        *_ignored(net, tables),
    )


def _bus_counts(net: Net, case: Case, bus_of: dict[int, int]) -> dict[str, int]:
    has_limits = pd.Series(True, index=net.bus.index)
    for column in ("min_vm_pu", "max_vm_pu"):
        has_limits &= net.bus[column].notna() if column in net.bus else False
    return {
        "fused": len(bus_of) - len(set(bus_of.values())),
        "auxiliary": len(set(case.bus_id.tolist()) - set(bus_of.values())),
        "bare": int((~has_limits).sum()),
        "places": 0 if case.xy is None else case.n_bus,
    }


def _lost_buses(net: Net, case: Case, bus_of: dict[int, int]) -> Iterator[FieldNote]:
    """Yield the note on buses without a path to an external grid."""
    case_buses = set(case.bus_id.tolist())
    running = net.bus.index[in_service(net, "bus")]
    lost = [bus for bus in running if bus_of.get(int(bus)) not in case_buses]
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
    """Yield the notes on buses with a fixed voltage, and on those outside their band."""
    ids = np.unique(np.fromiter(bus_of.values(), dtype=np.int64, count=len(bus_of)))
    low, high = pp_tables.voltage_bands(net, ids, bus_of)
    for element, bus, set_point in pp_tables.fixed_voltages(net):
        if bus not in bus_of:
            continue
        at = int(np.searchsorted(ids, bus_of[bus]))
        field, fixed = f"{element}: vm_pu", f"bus {bus} is fixed at {set_point:.6g} p.u."
        if low[at] <= set_point <= high[at]:
            note = f"{fixed}, as in pandapower's optimal power flow (not controllable)"
            yield FieldNote(field, "read", 1, note)
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


@dataclass(frozen=True, eq=False)
class Conversion:
    """A case, the report of its source, and the link back to the net."""

    case: Case
    report: ReadReport
    link: pp_tables.PandapowerLink


def case_from_pandapower(net: Net, name: str | None = None) -> Case:
    """Return the case of a pandapower net; :func:`convert_net` also reports and links back.

    Parameters
    ----------
    net : pandapowerNet
        Not changed.
    name : str, optional
        Of the case; the net's own name by default.

    Raises
    ------
    InputError
        Naming table, row and column.
    """
    return convert_net(net, name).case


def load_pandapower(path: Path) -> tuple[Case, ReadReport]:
    """Read a net written by ``pandapower.to_json``."""
    net = open_json(path)
    with naming(path):
        conversion = convert_net(net, path.stem)
    return conversion.case, replace(conversion.report, source=path.name, format="pandapower JSON")


def convert_net(net: Net, name: str | None = None) -> Conversion:
    """Convert a pandapower net; the net itself is not changed.

    Parameters
    ----------
    name : str, optional
        Of the case; the net's own name by default.

    Raises
    ------
    InputError
        Naming table, row and column.
    """
    check_net(net)
    label = name or str(net["name"] or "pandapower")
    flexible = pp_tables.flexible_sgens(net)
    work, ppc = pp_tables.pypower_tables(net, flexible)
    bus_of, ids = pp_tables.bus_numbers(work, len(ppc["bus"]))
    branch = pp_tables.branch_elements(work, ppc)
    gen = pp_tables.gen_elements(net, flexible, bus_of)
    shunts = pp_tables.end_shunts(ppc, branch)
    tables = MatpowerTables(
        name=label,
        base_mva=float(work.sn_mva),
        bus=pp_tables.bus_table(work, ppc, ids, bus_of, shunts),
        gen=pp_tables.gen_table(net, gen, bus_of),
        branch=pp_tables.branch_table(work, ppc, ids, branch),
        gencost=pp_tables.cost_rows(net, gen),
        dcline=pp_tables.dc_table(net, bus_of),
        first_bus=0,
    )
    case = _case(tables, branch, gen)
    in_case = set(case.bus_id.tolist())
    case_bus = {bus: number for bus, number in bus_of.items() if number in in_case}
    case = replace(case, auxiliary=pp_tables.auxiliary_buses(case, bus_of))
    static = np.array([gen[row - 1].table == "sgen" for row in case.gen_row.tolist()], dtype=bool)
    case = replace(
        case,
        following=static if static.any() else None,
        own_band=np.stack(pp_tables.voltage_bands(net, case.bus_id, case_bus, own=True)),
        xy=pp_tables.bus_places(net, case, bus_of),
        groups=pp_tables.bus_zones(net, case, bus_of),
        names=_names(net, bus_of, branch, gen),
        fixed={**case.fixed, **_fixed_elements(net, flexible, case_bus)},
    )
    notes = net_notes(net, case, bus_of, shunts)
    report = ReadReport(label, "pandapower net", notes)
    return Conversion(case, report, pp_tables.PandapowerLink(bus_of, branch, gen, shunts))


def _fixed_elements(net: Net, flexible: Bools, bus_of: dict[int, int]) -> dict[str, int]:
    """Return the number of elements at some buses whose fixed power is part of their demand."""
    counts = {"static generator": 0, "storage unit": 0}
    kinds = {"sgen": "static generator", "asymmetric_sgen": "static generator"}
    for table, kind in (kinds | {"storage": "storage unit"}).items():
        on = in_service(net, table) & (~flexible if table == "sgen" else True)
        counts[kind] += int(frame(net, table)[on].get("bus", pd.Series()).isin(bus_of).sum())
    return {kind: count for kind, count in counts.items() if count}


def _names(net: Net, bus_of: dict[int, int], branch: Elements, gen: Elements) -> SourceNames:
    """Return the names in the net's tables; for fused buses that of the smallest."""
    labels = {
        table: frame(net, table)["name"].dropna().astype(str).to_dict()
        for table in {"bus", *(element.table for element in (*branch, *gen))}
        if "name" in frame(net, table)
    }
    buses = sorted(labels.get("bus", {}).items(), reverse=True)
    name_of_bus = {bus_of[int(bus)]: name for bus, name in buses if int(bus) in bus_of and name}

    def label(element: pp_tables.Element) -> str:
        name = labels.get(element.table, {}).get(element.index, "")
        return f"{name} ({element.side})" if name and element.side else name

    joined = {bus: number for bus, number in bus_of.items() if bus != number}
    return SourceNames(name_of_bus, tuple(map(label, branch)), tuple(map(label, gen)), joined)


_ROW = re.compile(r"^(?:mpc\.)?(branch|generator|gencost|gen)(?: row)? (\d+): ")


def _case(tables: MatpowerTables, branch: Elements, gen: Elements) -> Case:
    """Return the case; errors name the net's element instead of a row of the tables."""
    try:
        return case_from_tables(tables)
    except InputError as error:
        match = _ROW.match(str(error))
        if match is None:
            raise
        rows = branch if match[1] == "branch" else gen
        raise InputError(f"net.{rows[int(match[2]) - 1]}: {error}") from error


PREFIX = "simbench:"
PROFILES = "profiles"


def simbench_net(name: str) -> Net:
    """Return the net of ``simbench:CODE``, such as ``simbench:1-MV-rural--0-sw``."""
    code = name.removeprefix(PREFIX)
    try:
        import simbench
    except ImportError:
        raise missing_extra("simbench", "simbench", "a simbench grid") from None
    if code not in simbench.collect_all_simbench_codes():
        raise not_allowed("simbench code", code, "such as 1-MV-rural--0-sw (see simbench.de)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return simbench.get_simbench_net(code)


def load_simbench(name: str) -> tuple[Case, ReadReport]:
    """Read a simbench grid by name."""
    conversion = convert_net(simbench_net(name), name.removeprefix(PREFIX))
    return conversion.case, replace(conversion.report, source=name, format="simbench net")


def is_profiles(text: str) -> bool:
    """Return True for a ``--series`` of the net's own profiles, not a file."""
    return text == PROFILES or text.startswith(PROFILES + ":")


def profile_series(text: str, name: str, case: Case) -> DemandSeries:
    """Return the demand of ``profiles[:FIRST,STEPS]`` of a case's net.

    Parameters
    ----------
    text : str
        FIRST counts from 0; simbench's steps are quarters of an hour, the default is the whole
        year: ``profiles:0,96`` is the first of January.
    name : str
        Of the case: ``simbench:CODE`` or a path to a pandapower JSON file.
    case : Case
        As read from that net; its demand may have been overridden.
    """
    net = _net(name)
    conversion = convert_net(net)
    window = _window(text)
    series = series_from_simbench(net, conversion.case, conversion.link.bus, *window)
    # an overridden demand stays: only its change over time is from the profiles
    return replace(
        series,
        case=case,
        pd=series.pd - conversion.case.pd + case.pd,
        qd=series.qd - conversion.case.qd + case.qd,
    )


def series_from_simbench(
    net: Net, case: Case, bus_of: dict[int, int], first: int = 0, steps: int | None = None
) -> DemandSeries:
    """Return the demand of a simbench net's profiles.

    A load's P and Q are its nominal values times the profile's ``_pload`` and ``_qload``; a
    static generator's P is its nominal value times its profile (as simbench's own
    ``get_absolute_values``). Everything else keeps its demand.

    Parameters
    ----------
    net : pandapowerNet
        With ``net.profiles``.
    case : Case
        Converted from this net.
    bus_of : dict of int to int
        :attr:`gridpriv.grid.pandapower_tables.PandapowerLink.bus`.
    first, steps : int
        Part of the year: 96 steps are a day.
    """
    profiles = net.get("profiles")
    if not isinstance(profiles, dict) or not isinstance(profiles.get("load"), pd.DataFrame):
        raise InputError("the net has no profiles: take a simbench net with time series")
    length = len(profiles["load"])
    count = length - first if steps is None else steps
    if not (first >= 0 and count >= 1 and first + count <= length):
        raise not_allowed("steps", f"{first} to {first + count}", f"within 0 to {length}")
    window = slice(first, first + count)
    pd_new, qd_new = (np.tile(values, (count, 1)) for values in (case.pd, case.qd))
    index = {
        bus: case.index_of[number] for bus, number in bus_of.items() if number in case.index_of
    }
    load, sgen = profiles["load"][window], profiles.get("renewables")
    base = case.base_mva
    _add_profiles(net, "load", "p_mw", load, "_pload", index, pd_new, 1.0 / base)
    _add_profiles(net, "load", "q_mvar", load, "_qload", index, qd_new, 1.0 / base)
    if isinstance(sgen, pd.DataFrame):
        _add_profiles(net, "sgen", "p_mw", sgen[window], "", index, pd_new, -1.0 / base)
    names = load.get("time", load.index)
    return DemandSeries(case, tuple(map(str, names)), pd_new, qd_new, "simbench profiles")


def _add_profiles(
    net: Net,
    table: str,
    column: str,
    profiles: pd.DataFrame,
    suffix: str,
    index: dict[int, int],
    demand: Floats,
    factor: float,
) -> None:
    """Add (profile - 1) times the nominal value of every row in service to its bus."""
    mask = in_service(net, table)
    if table == "sgen":
        mask = mask & ~pp_tables.flexible_sgens(net)
    rows = frame(net, table)[mask]
    if len(rows) == 0:
        return
    if not {"profile", "scaling"} <= set(rows):
        raise InputError(f"net.{table} has no columns profile and scaling: take a simbench net")
    nominal = factor * optional(rows, column, np.nan) * optional(rows, "scaling", np.nan)
    for at, bus, profile, value in zip(
        rows.index, optional(rows, "bus", -1.0), rows["profile"], nominal, strict=True
    ):
        name = f"{profile}{suffix}"
        if name not in profiles:
            raise InputError(
                f"net.{table} row {at}: profile {name!r} is not in the net"
                "; correct the profile's name"
            )
        if int(bus) in index:
            demand[:, index[int(bus)]] += value * (numbers(profiles[name], "profiles") - 1.0)


def _net(name: str) -> Net:
    if name.startswith(PREFIX):
        return simbench_net(name)
    if Path(name).suffix.lower() == ".json":
        return open_json(Path(name))
    raise InputError(
        f"series = {PROFILES!r} is not allowed for case {name}: profiles are those of a simbench "
        "net (simbench:CODE, or a pandapower .json); name a CSV file"
    )


def _window(text: str) -> tuple[int, int | None]:
    """Return first step and number of steps."""
    _, _, numbers = text.partition(":")
    if not numbers:
        return 0, None
    parts = numbers.split(",")
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() for part in parts):
        raise not_allowed("series", text, f"{PROFILES} or {PROFILES}:FIRST,STEPS in whole numbers")
    return int(parts[0]), int(parts[1])
