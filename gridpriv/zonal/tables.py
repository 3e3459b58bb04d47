"""A grid's state as tables with pandapower's names, as a case file, and as a pandapower net.

Every value depends on true demand, directly or through dispatch: tables and nets are *local*,
and no public export contains them.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from gridpriv.core.arrays import Complexes, Floats
from gridpriv.core.errors import InputError
from gridpriv.core.files import write_bytes
from gridpriv.core.text import Json
from gridpriv.grid.case import Case
from gridpriv.grid.convert import check_target, write_case
from gridpriv.grid.library import POWSYBL_FORMATS
from gridpriv.grid.pandapower import convert_net
from gridpriv.grid.pandapower_tables import PandapowerLink
from gridpriv.grid.pandapower_writer import write_net
from gridpriv.grid.powsybl import WRITTEN, write_powsybl
from gridpriv.power.ac.state import GridState


def result_tables(solution: GridState) -> dict[str, DataFrame]:
    """Return pandapower's result tables of a solution, one row per row of the case.

    Returns
    -------
    dict of str to DataFrame
        ``res_bus`` (index: bus number), ``res_line`` (index: branch row of the source, with
        ``from_bus`` and ``to_bus``; transformers included), ``res_gen`` (index: generator row,
        with ``bus``) and ``res_shed`` (index: bus number). MW, MVAr, degrees, kA; signs as in
        pandapower (a bus's ``p_mw`` is its consumption). Angles are relative to the first reference
        bus, which has the angle of the case; currents are NaN without a base voltage.
    """
    solution = _from_reference(solution)
    case, base = solution.case, solution.case.base_mva
    intake = np.zeros(case.n_bus, dtype=np.complex128)
    np.subtract.at(intake, case.f_bus, solution.s_from)
    np.subtract.at(intake, case.t_bus, solution.s_to)
    state = _voltages(solution, slice(None)) | _powers(base * intake)
    res_bus = DataFrame(state, index=case.bus_id)
    shed = _powers(base * (solution.p_shed + 1j * solution.q_shed))
    output = _powers(base * (solution.pg + 1j * solution.qg)) | _voltages(solution, case.gen_bus)
    columns = ["bus", "p_mw", "q_mvar", "va_degree", "vm_pu"]
    res_gen = DataFrame({"bus": case.bus_id[case.gen_bus]} | output, case.gen_row, columns)
    return {
        "res_bus": res_bus,
        "res_line": _branch_flows(solution),
        "res_gen": res_gen,
        "res_shed": DataFrame(shed, index=case.bus_id),
    }


def _voltages(solution: GridState, bus: Any, of: str = "") -> dict[str, Floats]:
    """Return the voltage columns of some buses, of an end of branches."""
    angle = np.rad2deg(solution.va[bus])
    return {f"vm_{of}pu": solution.vm[bus], f"va_{of}degree": angle}


def _powers(power: Any, of: str = "") -> dict[str, Floats]:
    """Return the columns of active and reactive power (MW, MVAr), of an end of branches."""
    return {f"p_{of}mw": power.real, f"q_{of}mvar": power.imag}


def _from_reference(solution: GridState) -> GridState:
    """Return the solution with all angles shifted so that the reference bus has the case's."""
    case = solution.case
    slack = np.flatnonzero(case.reference & (solution.vm > 0))[:1]
    if slack.size == 0:
        return solution
    turn = case.va[slack[0]] - solution.va[slack[0]]
    return replace(solution, va=np.where(solution.vm > 0, solution.va + turn, solution.va))


def _branch_flows(solution: GridState) -> DataFrame:
    """Return the flows of the branches, under pandapower's names for lines."""
    case, base = solution.case, solution.case.base_mva
    there, back = base * solution.s_from, base * solution.s_to
    ends = (("from_", there, case.f_bus), ("to_", back, case.t_bus))
    # a base voltage of 0 is not known: no currents
    kv = np.where(case.base_kv > 0, case.base_kv, np.nan) * np.sqrt(3.0)
    kv = kv * np.where(solution.vm > 0, solution.vm, np.nan)
    rate = base * np.where((case.rate > 0) & np.isfinite(case.rate), case.rate, np.nan)
    columns: Json = {f"{end}bus": case.bus_id[bus] for end, _, bus in ends}
    for end, flow, _ in ends:
        columns |= _powers(flow, end)
    columns |= {"pl_mw": (there + back).real, "ql_mvar": (there + back).imag}
    columns |= {f"i_{end}ka": np.abs(flow) / kv[bus] for end, flow, bus in ends}
    columns["i_ka"] = np.maximum(columns["i_from_ka"], columns["i_to_ka"])
    for end, _, bus in ends:
        columns |= _voltages(solution, bus, end)
    load = 100.0 * np.maximum(np.abs(there), np.abs(back)) / rate
    return DataFrame(columns | {"loading_percent": load}, index=case.branch_row)


SMALLEST_MVA = 1e-9
"""Differences of served demand below this are rounding."""


def to_pandapower(solution: GridState, net: Any = None) -> Any:
    """Return a pandapower net with a solution.

    Parameters
    ----------
    net : pandapowerNet, optional
        The net the case was converted from; it is copied, not changed. Without one, a net is
        built from the case.

    Returns
    -------
    pandapowerNet
        With the dispatch as set points (``gen.p_mw``, ``vm_pu``, dispatchable ``sgen``), one
        static generator per bus whose served demand differs from the net's loads (``name``
        "gridpriv: load shedding"; for shed demand and for a load scale), outages out of service,
        the load shedding ``res_shed``, and the results of pandapower's own AC power flow of the
        dispatch; these are empty where that does not converge. Without ``net`` there are no
        currents if base voltages are unknown.

    Raises
    ------
    InputError
        If the net is not the one the case was converted from.
    """
    if net is None:
        filled, link = write_net(solution.case)
        net_demand = solution.case.pd + 1j * solution.case.qd
    else:
        converted = convert_net(net)
        _same_grid(solution.case, converted.case)
        filled, link = copy.deepcopy(net), converted.link
        net_demand = converted.case.pd + 1j * converted.case.qd
        _take_out(filled, link, solution.case)
    _set_points(filled, link, solution)
    _not_served(filled, link, solution, net_demand)
    _run_power_flow(filled)
    if net is None and not (solution.case.base_kv > 0).all():  # the net has 1 kV in their place
        for table in (filled.res_line, filled.res_trafo):
            table[list(table.filter(like="_ka"))] = np.nan
    filled["res_shed"] = _shed_table(link, solution)
    return filled


def write_set_points(solution: GridState, source: str | Path, path: Path) -> None:
    """Write a solution as a case file: set points, outages and served demand.

    Parameters
    ----------
    solution : GridState
        Local: it depends on true demand, so only its owner may read the file.
    source : str or path
        The case's source (:func:`gridpriv.load_case`). A file that pypowsybl reads keeps its other
        content, and so does a pandapower net.
    path : Path
        ``.m``, ``.mat``, ``.json`` (pandapower), or a format that pypowsybl writes.

    Raises
    ------
    InputError
        If the format is not known, or has no place for the grid.
    """
    suffix, kind = path.suffix.lower(), Path(source).suffix.lower()
    check_target(path, source)
    if suffix == ".json":
        from pandapower import to_json

        from gridpriv.grid.pandapower_json import open_json

        net = open_json(Path(source)) if kind == ".json" else None
        write_bytes(path, to_json(to_pandapower(solution, net)).encode(), private=True)
    elif suffix in WRITTEN and kind in POWSYBL_FORMATS:
        write_powsybl(Path(source), path, _powsybl_result(solution))
    else:
        write_case(settled_case(solution), path, solution.qg, private=True)


def settled_case(solution: GridState) -> Case:
    """Return the case with the served demand, the outputs and the voltages; local."""
    case, vm = solution.case, np.where(solution.vm > 0, solution.vm, 1.0)
    return replace(
        case,
        pd=case.pd - solution.p_shed,
        qd=case.qd - solution.q_shed,
        pg=solution.pg,
        vg=vm[case.gen_bus],
        vm=vm,
        va=solution.va,
    )


def _powsybl_result(solution: GridState) -> dict[str, Any]:
    """Return a solution in the form of :func:`gridpriv.grid.powsybl.apply`."""
    case = settled_case(solution)
    base = case.base_mva
    gens = np.column_stack([case.gen_row, base * case.pg, base * solution.qg, case.vg])
    demand = np.column_stack([case.bus_id, base * case.pd, base * case.qd])
    return {"gens": gens.tolist(), "demand": demand.tolist(), "branches": case.branch_row.tolist()}


def _same_grid(case: Case, other: Case) -> None:
    rows = {int(row): at for at, row in enumerate(other.branch_row)}
    at = [rows.get(int(row), -1) for row in case.branch_row]
    same = (
        np.array_equal(case.bus_id, other.bus_id)
        and all(row >= 0 for row in at)
        and np.array_equal(case.f_bus, other.f_bus[at])
        and np.allclose(case.x, other.x[at])
        and set(case.gen_row.tolist()) <= set(other.gen_row.tolist())
    )
    if not same:
        raise InputError(
            f"this net is not the one case {case.name} was converted from: buses, branches or "
            "generators differ (leave net out to have one built from the case)"
        )


def _take_out(net: Any, link: PandapowerLink, case: Case) -> None:
    """Take the elements out of service that the case no longer has (outages)."""
    from pandapower import create_switch

    for elements, rows in ((link.branch, case.branch_row), (link.gen, case.gen_row)):
        in_service = {elements[row - 1] for row in rows.tolist()}
        for element in set(elements) - in_service:
            if element.table == "switch":
                net.switch.loc[element.index, "closed"] = False
            elif element.side:  # a transformer's other windings stay in service
                bus = int(net.trafo3w.at[element.index, f"{element.side}_bus"])
                create_switch(net, bus, element.index, et="t3", closed=False)
            else:
                net[element.table].loc[element.index, "in_service"] = False


def _gen_rows(link: PandapowerLink, case: Case, table: str) -> tuple[list[int], list[int]]:
    """Return (rows of the case's generators, indices in the table)."""
    pairs = [(g, link.gen[row - 1]) for g, row in enumerate(_rows(case.gen_row, link.gen))]
    generators = [(g, element.index) for g, element in pairs if element.table == table]
    return [g for g, _ in generators], [index for _, index in generators]


def _rows(rows: NDArray[np.int64], elements: tuple[Any, ...]) -> list[int]:
    """Return 1-based positions in ``elements``; a net built from a case has an element per row."""
    return rows.tolist() if len(elements) != len(rows) else list(range(1, len(rows) + 1))


def _set_points(net: Any, link: PandapowerLink, solution: GridState) -> None:
    case, base = solution.case, solution.case.base_mva
    for table in ("ext_grid", "gen", "sgen"):
        rows, index = _gen_rows(link, case, table)
        if not rows:
            continue
        frame = net[table]
        bus = case.gen_bus[rows]
        if table != "sgen":
            frame.loc[index, "vm_pu"] = solution.vm[bus]
        if table == "ext_grid":
            frame.loc[index, "va_degree"] = np.rad2deg(solution.va[bus])
            continue
        scaling = frame.loc[index, "scaling"].to_numpy(dtype=float)
        frame.loc[index, "p_mw"] = base * solution.pg[rows] / scaling
        if table == "sgen":
            frame.loc[index, "q_mvar"] = base * solution.qg[rows] / scaling


def _not_served(net: Any, link: PandapowerLink, solution: GridState, net_demand: Complexes) -> None:
    """Add a static generator wherever served demand differs from the net's loads."""
    from pandapower import create_sgen

    case, base = solution.case, solution.case.base_mva
    served = case.pd + 1j * case.qd - solution.p_shed - 1j * solution.q_shed
    difference = base * (net_demand - served)
    bus_at = _net_buses(link)
    for bus in np.flatnonzero(np.abs(difference) > SMALLEST_MVA):
        create_sgen(
            net,
            bus_at[int(case.bus_id[bus])],
            p_mw=float(difference[bus].real),
            q_mvar=float(difference[bus].imag),
            name="gridpriv: load shedding",
            controllable=False,
        )


def _net_buses(link: PandapowerLink) -> dict[int, int]:
    """Return a map from bus number to the net's bus."""
    return {link.bus[bus]: bus for bus in sorted(link.bus, reverse=True)}


def _run_power_flow(net: Any) -> None:
    """Fill the result tables of a net by pandapower's AC power flow, if it converges."""
    from pandapower import LoadflowNotConverged, runpp

    with suppress(LoadflowNotConverged):
        runpp(
            net, init="dc", calculate_voltage_angles=True, tolerance_mva=SMALLEST_MVA, numba=False
        )


def _shed_table(link: PandapowerLink, solution: GridState) -> DataFrame:
    """Return the load shedding of the net's buses; of fused ones at the smallest."""
    case, bus_at = solution.case, _net_buses(link)
    number = [bus for bus in case.bus_id.tolist() if bus in bus_at]
    at = [case.index_of[bus] for bus in number]
    shed = case.base_mva * (solution.p_shed + 1j * solution.q_shed)[at]
    table = DataFrame(_powers(shed), index=[bus_at[bus] for bus in number])
    in_case = [bus for bus, number in link.bus.items() if number in case.index_of]
    return table.reindex(sorted(in_case), fill_value=0.0)
