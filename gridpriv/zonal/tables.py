"""A grid's state as tables with pandapower's names, and tables as CSV, Parquet or JSON files.

Every figure here comes from private demand, directly or through what a zone dispatches: the
tables are *local*, no public export contains them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, RangeIndex

from gridpriv.core.arrays import Complexes
from gridpriv.zonal.solution import GridSolution

FORMATS = ("csv", "parquet", "json")


def result_tables(solution: GridSolution) -> dict[str, DataFrame]:
    """Return pandapower's result tables of a solution, one row per row of the case.

    Returns
    -------
    dict of str to DataFrame
        ``res_bus`` (index: bus number), ``res_line`` (index: branch row of the source, with
        ``from_bus`` and ``to_bus``; transformers included), ``res_gen`` (index: generator row,
        with ``bus``) and ``res_shed`` (index: bus number). MW, MVAr, degrees, kA; signs as in
        pandapower (a bus's ``p_mw`` is what it takes). Angles are relative to the first reference
        bus, which has the angle of the case; currents are NaN without a base voltage.
    """
    solution = _from_reference(solution)
    case, base = solution.case, solution.case.base_mva
    buses = case.bus_id
    taken = bus_intake(solution, solution.s_from, solution.s_to)
    res_bus = DataFrame(
        {
            "vm_pu": solution.vm,
            "va_degree": np.rad2deg(solution.va),
            "p_mw": base * taken.real,
            "q_mvar": base * taken.imag,
        },
        index=buses,
    )
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
    res_shed = DataFrame(
        {"p_mw": base * solution.p_shed, "q_mvar": base * solution.q_shed}, index=buses
    )
    return {"res_bus": res_bus, "res_line": res_line, "res_gen": res_gen, "res_shed": res_shed}


def _from_reference(solution: GridSolution) -> GridSolution:
    """Return the solution with all angles turned so that the reference bus has the case's."""
    case = solution.case
    slack = np.flatnonzero(case.reference & (solution.vm > 0))[:1]
    if slack.size == 0:
        return solution
    turn = case.va[slack[0]] - solution.va[slack[0]]
    return replace(solution, va=np.where(solution.vm > 0, solution.va + turn, solution.va))


def bus_intake(solution: GridSolution, s_from: Complexes, s_to: Complexes) -> Complexes:
    """Return every bus's inflow from its branches (p.u.)."""
    taken = np.zeros(solution.case.n_bus, dtype=np.complex128)
    np.subtract.at(taken, solution.case.f_bus, s_from)
    np.subtract.at(taken, solution.case.t_bus, s_to)
    return taken


def branch_flows(
    solution: GridSolution,
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
    current = {near: np.abs(there) / (vm * kv)[f], far: np.abs(back) / (vm * kv)[t]}
    table = {
        f"p_{near}_mw": there.real,
        f"q_{near}_mvar": there.imag,
        f"p_{far}_mw": back.real,
        f"q_{far}_mvar": back.imag,
        "pl_mw": (there + back).real,
        "ql_mvar": (there + back).imag,
        f"i_{near}_ka": current[near],
        f"i_{far}_ka": current[far],
        "i_ka": np.maximum(current[near], current[far]),
        f"vm_{near}_pu": solution.vm[f],
        f"va_{near}_degree": np.rad2deg(solution.va[f]),
        f"vm_{far}_pu": solution.vm[t],
        f"va_{far}_degree": np.rad2deg(solution.va[t]),
    }
    return DataFrame(table, index=RangeIndex(len(rows)))


def generator_output(solution: GridSolution, rows: NDArray[np.int64]) -> DataFrame:
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


def frames_json(tables: Mapping[str, DataFrame]) -> str:
    """Return tables as one JSON document, row by row; a missing figure is null."""
    document = {
        name: json.loads(table.to_json(orient="records", double_precision=15))
        for name, table in tables.items()
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
