"""A grid's state as tables with pandapower's names, as a case file, and as a pandapower net.

Every value depends on private demand, directly or through dispatch: tables and nets are *local*,
and no public export contains them.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, RangeIndex

from gridpriv.core.arrays import Complexes, Floats
from gridpriv.core.errors import InputError
from gridpriv.core.files import write_bytes
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
    case = solution.case
    buses = case.bus_id
    intake = bus_intake(solution, solution.s_from, solution.s_to)
    everywhere = np.arange(case.n_bus), np.ones(case.n_bus)
    res_bus, res_shed = _of_buses(solution, intake, *everywhere, buses)
    ends = {"from_bus": buses[case.f_bus], "to_bus": buses[case.t_bus]}
    flows = branch_flows(
        solution, solution.s_from, solution.s_to, np.arange(case.n_branch), "from", "to"
    )
    res_line = DataFrame(ends, index=case.branch_row).join(flows.set_index(case.branch_row))
    rate = np.where(case.rate > 0, case.rate, np.inf)
    load = np.maximum(np.abs(solution.s_from), np.abs(solution.s_to)) / rate
    res_line["loading_percent"] = np.where(np.isfinite(rate), 100.0 * load, np.nan)
    res_gen = generator_output(solution, np.arange(case.n_gen)).set_index(case.gen_row)
    res_gen.insert(0, "bus", buses[case.gen_bus])
    return {"res_bus": res_bus, "res_line": res_line, "res_gen": res_gen, "res_shed": res_shed}


def _of_buses(
    solution: GridState, intake: Complexes, at: Any, own: Floats, index: Any
) -> tuple[DataFrame, DataFrame]:
    """Return state and load shedding of some buses; ``own`` is 0 where another bus has theirs."""
    base = solution.case.base_mva
    state = {
        "vm_pu": solution.vm[at],
        "va_degree": np.rad2deg(solution.va[at]),
        "p_mw": base * intake.real[at] * own,
        "q_mvar": base * intake.imag[at] * own,
    }
    shed = {"p_mw": base * solution.p_shed[at] * own, "q_mvar": base * solution.q_shed[at] * own}
    return DataFrame(state, index=index), DataFrame(shed, index=index)


def _from_reference(solution: GridState) -> GridState:
    """Return the solution with all angles shifted so that the reference bus has the case's."""
    case = solution.case
    slack = np.flatnonzero(case.reference & (solution.vm > 0))[:1]
    if slack.size == 0:
        return solution
    turn = case.va[slack[0]] - solution.va[slack[0]]
    return replace(solution, va=np.where(solution.vm > 0, solution.va + turn, solution.va))


def bus_intake(solution: GridState, s_from: Complexes, s_to: Complexes) -> Complexes:
    """Return every bus's inflow from its branches (p.u.)."""
    intake = np.zeros(solution.case.n_bus, dtype=np.complex128)
    np.subtract.at(intake, solution.case.f_bus, s_from)
    np.subtract.at(intake, solution.case.t_bus, s_to)
    return intake


def branch_flows(
    solution: GridState,
    s_from: Complexes,
    s_to: Complexes,
    rows: NDArray[np.int64],
    near: str,
    far: str,
) -> DataFrame:
    """Return the flow columns of some branches, under pandapower's names for their ends."""
    case, base = solution.case, solution.case.base_mva
    f, t = case.f_bus[rows], case.t_bus[rows]
    there, back = base * s_from[rows], base * s_to[rows]
    # a base voltage of 0 is not known: no currents
    kv = np.where(case.base_kv > 0, case.base_kv, np.nan) * np.sqrt(3.0)
    vm = np.where(solution.vm > 0, solution.vm, np.nan)
    ends, table = ((near, there, f), (far, back, t)), DataFrame(index=RangeIndex(len(rows)))
    for end, flow, _ in ends:
        table[f"p_{end}_mw"], table[f"q_{end}_mvar"] = flow.real, flow.imag
    table["pl_mw"], table["ql_mvar"] = (there + back).real, (there + back).imag
    for end, flow, bus in ends:
        table[f"i_{end}_ka"] = np.abs(flow) / (vm * kv)[bus]
    table["i_ka"] = np.maximum(table[f"i_{near}_ka"], table[f"i_{far}_ka"])
    for end, _, bus in ends:
        table[f"vm_{end}_pu"] = solution.vm[bus]
        table[f"va_{end}_degree"] = np.rad2deg(solution.va[bus])
    return table


def generator_output(solution: GridState, rows: NDArray[np.int64]) -> DataFrame:
    """Return output and voltage of some generators."""
    base, bus = solution.case.base_mva, solution.case.gen_bus[rows]
    return DataFrame(
        {
            "p_mw": base * solution.pg[rows],
            "q_mvar": base * solution.qg[rows],
            "va_degree": np.rad2deg(solution.va[bus]),
            "vm_pu": solution.vm[bus],
        }
    )


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
        and the result tables ``res_bus``, ``res_line``, ``res_trafo``, ``res_trafo3w``,
        ``res_gen``, ``res_ext_grid`` and ``res_shed``. ``pandapower.runpp`` then gives the AC
        power flow of the dispatch.

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
    _fill_results(filled, link, solution)
    return filled


def write_set_points(solution: GridState, source: str | Path, path: Path) -> None:
    """Write a solution as a case file: set points, outages and served demand.

    Parameters
    ----------
    solution : GridState
        Local: it depends on private demand, so only its owner may read the file.
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
    for elements, rows in ((link.branch, case.branch_row), (link.gen, case.gen_row)):
        in_service = {elements[row - 1] for row in rows.tolist()}
        for element in set(elements) - in_service:
            if element.table == "switch":
                net.switch.loc[element.index, "closed"] = False
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


def _fill_results(net: Any, link: PandapowerLink, solution: GridState) -> None:
    case, base = solution.case, solution.case.base_mva
    rows = np.array(_rows(case.branch_row, link.branch), dtype=np.int64) - 1
    w = solution.vm**2
    s_from = solution.s_from + w[case.f_bus] * np.conj(link.shunts[0, rows])
    s_to = solution.s_to + w[case.t_bus] * np.conj(link.shunts[1, rows])
    elements = [link.branch[row] for row in rows]
    intake = bus_intake(solution, s_from, s_to)
    representative = set(_net_buses(link).values())
    at = {bus: case.index_of[number] for bus, number in link.bus.items() if number in case.index_of}
    index = [int(bus) for bus in net.bus.index if int(bus) in at]
    where = [at[bus] for bus in index]
    own = np.array([bus in representative for bus in index], dtype=float)
    state, net["res_shed"] = _of_buses(solution, intake, where, own, index)
    net["res_bus"] = state.reindex(net.bus.index)
    for table, near, far in (("line", "from", "to"), ("trafo", "hv", "lv")):
        positions = np.array(
            [k for k, e in enumerate(elements) if e.table == table], dtype=np.int64
        )
        flows = branch_flows(solution, s_from, s_to, positions, near, far)
        flows.index = [elements[k].index for k in positions]
        net[f"res_{table}"] = _loading(net[table], flows, table).reindex(net[table].index)
    _fill_trafo3w(net, elements, s_from, s_to, base)
    for table in ("gen", "ext_grid"):
        mine_gens, gen_index = _gen_rows(link, case, table)
        positions = np.array(mine_gens, dtype=np.int64)
        values = generator_output(solution, positions).set_index([gen_index])
        columns = ["p_mw", "q_mvar"] if table == "ext_grid" else list(values)
        net[f"res_{table}"] = values[columns].reindex(net[table].index)


def _loading(table: DataFrame, flows: DataFrame, kind: str) -> DataFrame:
    """Add pandapower's loading: current over rating, of the worse end."""
    rows = table.loc[flows.index]
    if kind == "line":
        rating = rows["max_i_ka"] * rows["df"] * rows["parallel"]
        flows["loading_percent"] = 100.0 * flows["i_ka"] / rating
        return flows
    flows = flows.drop(columns="i_ka")
    power = np.sqrt(3.0) * np.maximum(
        flows["i_hv_ka"] * rows["vn_hv_kv"], flows["i_lv_ka"] * rows["vn_lv_kv"]
    )
    flows["loading_percent"] = 100.0 * power / (rows["sn_mva"] * rows["df"] * rows["parallel"])
    return flows


def _fill_trafo3w(
    net: Any, elements: list[Any], s_from: Complexes, s_to: Complexes, base: float
) -> None:
    if len(net.trafo3w) == 0:
        return
    values = DataFrame(index=net.trafo3w.index)
    for side in ("hv", "mv", "lv"):
        positions = [k for k, e in enumerate(elements) if e.table == "trafo3w" and e.side == side]
        flow = (s_from if side == "hv" else s_to)[positions] * base
        index = [elements[k].index for k in positions]
        values.loc[index, f"p_{side}_mw"] = flow.real
        values.loc[index, f"q_{side}_mvar"] = flow.imag
    values["pl_mw"] = values[[f"p_{side}_mw" for side in ("hv", "mv", "lv")]].sum(axis=1)
    values["ql_mvar"] = values[[f"q_{side}_mvar" for side in ("hv", "mv", "lv")]].sum(axis=1)
    net["res_trafo3w"] = values
