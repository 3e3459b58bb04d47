"""Results as pandapower tables, and as CSV, Parquet or JSON files.

Every figure here comes from private demand, directly or through what a zone dispatches: the
tables are *local*, no public export contains them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, RangeIndex

from gridpriv.errors import InputError, missing_extra, one_of
from gridpriv.grid.admittance import branch_admittance
from gridpriv.grid.case import Case, Floats
from gridpriv.grid.pandapower import PandapowerLink, convert_net
from gridpriv.grid.pandapower_writer import write_net
from gridpriv.power.zone import Network

if TYPE_CHECKING:
    from gridpriv.result import RunResult

FORMATS = ("csv", "parquet", "json")
SMALLEST_MVA = 1e-9
"""Differences of served demand below this are rounding."""
Complexes = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class GridSolution:
    """The state of a whole grid in per unit.

    Attributes
    ----------
    case : Case
        With the demand that was asked for.
    vm, va : (n,) float
        Voltage magnitude, and angle in rad. A relaxation's angles follow its wi/wr along a
        spanning tree; they are consistent on every branch only where it is tight.
    s_from, s_to : (m,) complex
        Flow into the branch at either end.
    pg, qg : (g,) float
    p_shed, q_shed : (n,) float
        Demand that is not served (negative: surplus).
    source : str
    """

    case: Case
    vm: Floats
    va: Floats
    s_from: Complexes
    s_to: Complexes
    pg: Floats
    qg: Floats
    p_shed: Floats
    q_shed: Floats
    source: str = ""


def solution_of_voltages(
    case: Case, voltage: Complexes, pg: Floats, qg: Floats, source: str = "voltages"
) -> GridSolution:
    """Return the solution at given voltages (p.u., shape (n,)): flows follow by Ohm's law.

    What the generators do not cover of a bus's balance is shed.
    """
    y, f, t = branch_admittance(case), case.f_bus, case.t_bus
    s_from = voltage[f] * np.conj(y.ff * voltage[f] + y.ft * voltage[t])
    s_to = voltage[t] * np.conj(y.tf * voltage[f] + y.tt * voltage[t])
    imbalance = _imbalance(case, np.abs(voltage) ** 2, s_from, s_to, pg, qg)
    return GridSolution(
        case, np.abs(voltage), np.angle(voltage), s_from, s_to, pg, qg,
        imbalance.real, imbalance.imag, source,
    )  # fmt: skip


def _imbalance(
    case: Case, w: Floats, s_from: Complexes, s_to: Complexes, pg: Floats, qg: Floats
) -> Complexes:
    """Return what every bus lacks: flows out + shunts + demand - generation."""
    total = case.pd + 1j * case.qd + w * (case.gs - 1j * case.bs)
    np.add.at(total, case.f_bus, s_from)
    np.add.at(total, case.t_bus, s_to)
    np.subtract.at(total, case.gen_bus, pg + 1j * qg)
    return np.asarray(total, dtype=np.complex128)


def solution_of_variables(network: Network, z: Floats, source: str) -> GridSolution:
    """Return the solution of the grid's variables, numbered as :mod:`gridpriv.power.zone` does."""
    start = network.offsets
    part = {name: z[start[name] : start[after]] for name, after in pairwise(start)}
    s_from = part["p_from"] + 1j * part["q_from"]
    s_to = part["p_to"] + 1j * part["q_to"]
    w = np.maximum(part["w"], 0.0)
    imbalance = _imbalance(network.case, w, s_from, s_to, part["pg"], part["qg"])
    difference = np.angle(part["wr"] + 1j * part["wi"])
    angles = tree_angles(network.case, network.pair_i, network.pair_j, difference)
    return GridSolution(
        network.case, np.sqrt(w), angles, s_from, s_to, part["pg"], part["qg"],
        imbalance.real, imbalance.imag, source,
    )  # fmt: skip


def solution_of_run(result: RunResult) -> GridSolution:
    """Return what the zones of a run would dispatch: after local recourse where it was solved.

    Without recourse, a variable that several zones hold is the mean of their copies.
    """
    network = result.zone_models[0].network
    if result.recourse is not None and not result.recourse.failed:
        return solution_of_variables(network, result.recourse.solution, "local recourse")
    total, holders = np.zeros(network.offsets["end"]), np.zeros(network.offsets["end"])
    for zone, after in zip(result.zone_models, result.outcomes, strict=True):
        total[zone.coordinates] += after.z
        holders[zone.coordinates] += 1.0
    return solution_of_variables(network, total / np.maximum(holders, 1.0), "last round")


def tree_angles(
    case: Case, pair_i: NDArray[np.int64], pair_j: NDArray[np.int64], difference: Floats
) -> Floats:
    """Return bus angles (rad) from angle differences i - j of bus pairs, along spanning trees.

    Each tree starts at a reference bus of its island, at the source's angle there.
    """
    graph = nx.Graph()
    graph.add_nodes_from(range(case.n_bus))
    for i, j, angle in zip(pair_i.tolist(), pair_j.tolist(), difference.tolist(), strict=True):
        graph.add_edge(i, j, drop=angle, tail=i)
    angles = np.zeros(case.n_bus)
    for island in nx.connected_components(graph):
        references = [bus for bus in sorted(island) if case.reference[bus]]
        root = references[0] if references else min(island)
        angles[root] = case.va[root] if references else 0.0
        for near, far in nx.bfs_edges(graph, root):
            edge = graph[near][far]
            angles[far] = angles[near] + (-edge["drop"] if edge["tail"] == near else edge["drop"])
    return angles


def result_tables(solution: GridSolution) -> dict[str, DataFrame]:
    """Return pandapower's result tables of a solution, one row per row of the case.

    Returns
    -------
    dict of str to DataFrame
        ``res_bus`` (index: bus number), ``res_line`` (index: branch row of the source, with
        ``from_bus`` and ``to_bus``; transformers included), ``res_gen`` (index: generator row,
        with ``bus``) and ``res_shed`` (index: bus number). MW, MVAr, degrees, kA; signs as in
        pandapower (a bus's ``p_mw`` is what it takes).
    """
    case, base = solution.case, solution.case.base_mva
    buses = case.bus_id
    taken = _taken(solution, solution.s_from, solution.s_to)
    res_bus = DataFrame(
        {"vm_pu": solution.vm, "va_degree": np.rad2deg(solution.va), "p_mw": base * taken.real,
         "q_mvar": base * taken.imag},
        index=buses,
    )  # fmt: skip
    ends = {"from_bus": buses[case.f_bus], "to_bus": buses[case.t_bus]}
    res_line = DataFrame(ends, index=case.branch_row).join(
        _flows(solution, solution.s_from, solution.s_to, np.arange(case.n_branch), "from", "to")
        .set_index(case.branch_row)
    )  # fmt: skip
    rate = np.where(case.rate > 0, case.rate, np.inf)
    load = np.maximum(np.abs(solution.s_from), np.abs(solution.s_to)) / rate
    res_line["loading_percent"] = np.where(np.isfinite(rate), 100.0 * load, np.nan)
    res_gen = _gens(solution, np.arange(case.n_gen)).set_index(case.gen_row)
    res_gen.insert(0, "bus", buses[case.gen_bus])
    res_shed = DataFrame(
        {"p_mw": base * solution.p_shed, "q_mvar": base * solution.q_shed}, index=buses
    )
    return {"res_bus": res_bus, "res_line": res_line, "res_gen": res_gen, "res_shed": res_shed}


def _taken(solution: GridSolution, s_from: Complexes, s_to: Complexes) -> Complexes:
    """Return what every bus takes from its branches (p.u.)."""
    taken = np.zeros(solution.case.n_bus, dtype=np.complex128)
    np.subtract.at(taken, solution.case.f_bus, s_from)
    np.subtract.at(taken, solution.case.t_bus, s_to)
    return taken


def _flows(
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
    kv = np.where(case.base_kv > 0, case.base_kv, 1.0) * np.sqrt(3.0)
    vm = np.where(solution.vm > 0, solution.vm, np.nan)
    current = {near: np.abs(there) / (vm * kv)[f], far: np.abs(back) / (vm * kv)[t]}
    table = {
        f"p_{near}_mw": there.real, f"q_{near}_mvar": there.imag,
        f"p_{far}_mw": back.real, f"q_{far}_mvar": back.imag,
        "pl_mw": (there + back).real, "ql_mvar": (there + back).imag,
        f"i_{near}_ka": current[near], f"i_{far}_ka": current[far],
        "i_ka": np.maximum(current[near], current[far]),
        f"vm_{near}_pu": solution.vm[f], f"va_{near}_degree": np.rad2deg(solution.va[f]),
        f"vm_{far}_pu": solution.vm[t], f"va_{far}_degree": np.rad2deg(solution.va[t]),
    }  # fmt: skip
    return DataFrame(table, index=RangeIndex(len(rows)))


def _gens(solution: GridSolution, rows: NDArray[np.int64]) -> DataFrame:
    base, bus = solution.case.base_mva, solution.case.gen_bus[rows]
    return DataFrame(
        {"p_mw": base * solution.pg[rows], "q_mvar": base * solution.qg[rows],
         "va_degree": np.rad2deg(solution.va[bus]), "vm_pu": solution.vm[bus]}
    )  # fmt: skip


def to_pandapower(solution: GridSolution, net: Any = None) -> Any:
    """Return a pandapower net that carries a solution.

    Parameters
    ----------
    solution : GridSolution
    net : pandapowerNet, optional
        The net the case was converted from; it is copied, not changed. Without one, a net is
        built from the case.

    Returns
    -------
    pandapowerNet
        With the dispatch as set points (``gen.p_mw``, ``vm_pu``, dispatchable ``sgen``), one
        static generator per bus whose served demand differs from the net's loads (``name``
        "gridpriv: not served"; shed demand and a load scale alike), outages out of service,
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
        given = solution.case.pd + 1j * solution.case.qd
    else:
        converted = convert_net(net)
        _same_grid(solution.case, converted.case)
        filled, link = copy.deepcopy(net), converted.link
        given = converted.case.pd + 1j * converted.case.qd
        _take_out(filled, link, solution.case)
    _set_points(filled, link, solution)
    _not_served(filled, link, solution, given)
    _fill_results(filled, link, solution)
    return filled


def run_to_pandapower(result: RunResult, net: Any = None) -> Any:
    """Return a net that carries what a run's zones would dispatch; see :func:`to_pandapower`."""
    return to_pandapower(solution_of_run(result), net)


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
        kept = {elements[row - 1] for row in rows.tolist()}
        for element in set(elements) - kept:
            if element.table == "switch":
                net.switch.loc[element.index, "closed"] = False
            else:
                net[element.table].loc[element.index, "in_service"] = False


def _gen_rows(link: PandapowerLink, case: Case, table: str) -> tuple[list[int], list[int]]:
    """Return (rows of the case's generators, indices in the table)."""
    pairs = [(g, link.gen[row - 1]) for g, row in enumerate(_rows(case.gen_row, link.gen))]
    mine = [(g, element.index) for g, element in pairs if element.table == table]
    return [g for g, _ in mine], [index for _, index in mine]


def _rows(rows: NDArray[np.int64], elements: tuple[Any, ...]) -> list[int]:
    """Return 1-based positions in ``elements``; a net built from a case has one per row of it."""
    return rows.tolist() if len(elements) != len(rows) else list(range(1, len(rows) + 1))


def _set_points(net: Any, link: PandapowerLink, solution: GridSolution) -> None:
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


def _not_served(net: Any, link: PandapowerLink, solution: GridSolution, given: Complexes) -> None:
    """Add a static generator wherever less (or more) is served than the net's loads ask for."""
    from pandapower import create_sgen

    case, base = solution.case, solution.case.base_mva
    served = case.pd + 1j * case.qd - solution.p_shed - 1j * solution.q_shed
    difference = base * (given - served)
    bus_at = _net_buses(link)
    for bus in np.flatnonzero(np.abs(difference) > SMALLEST_MVA):
        create_sgen(
            net, bus_at[int(case.bus_id[bus])], p_mw=float(difference[bus].real),
            q_mvar=float(difference[bus].imag), name="gridpriv: not served", controllable=False,
        )  # fmt: skip


def _net_buses(link: PandapowerLink) -> dict[int, int]:
    """Return bus number -> the net's bus that stands for it."""
    found: dict[int, int] = {}
    for bus in sorted(link.bus, reverse=True):
        found[link.bus[bus]] = bus
    return found


def _fill_results(net: Any, link: PandapowerLink, solution: GridSolution) -> None:
    case, base = solution.case, solution.case.base_mva
    rows = np.array(_rows(case.branch_row, link.branch), dtype=np.int64) - 1
    w = solution.vm**2
    s_from = solution.s_from + w[case.f_bus] * np.conj(link.shunt_f[rows])
    s_to = solution.s_to + w[case.t_bus] * np.conj(link.shunt_t[rows])
    elements = [link.branch[row] for row in rows]
    taken = _taken(solution, s_from, s_to)
    representative = set(_net_buses(link).values())
    at = {bus: case.index_of[number] for bus, number in link.bus.items()
          if number in case.index_of}  # fmt: skip
    index = [int(bus) for bus in net.bus.index if int(bus) in at]
    where = [at[bus] for bus in index]
    own = np.array([bus in representative for bus in index], dtype=float)
    net["res_bus"] = DataFrame(
        {"vm_pu": solution.vm[where], "va_degree": np.rad2deg(solution.va[where]),
         "p_mw": base * taken.real[where] * own, "q_mvar": base * taken.imag[where] * own},
        index=index,
    ).reindex(net.bus.index)  # fmt: skip
    for table, near, far in (("line", "from", "to"), ("trafo", "hv", "lv")):
        mine = np.array([k for k, e in enumerate(elements) if e.table == table], dtype=np.int64)
        flows = _flows(solution, s_from, s_to, mine, near, far)
        flows.index = [elements[k].index for k in mine]
        net[f"res_{table}"] = _loading(net[table], flows, table).reindex(net[table].index)
    _fill_trafo3w(net, elements, s_from, s_to, base)
    for table in ("gen", "ext_grid"):
        mine_gens, gen_index = _gen_rows(link, case, table)
        figures = _gens(solution, np.array(mine_gens, dtype=np.int64)).set_index([gen_index])
        columns = ["p_mw", "q_mvar"] if table == "ext_grid" else list(figures)
        net[f"res_{table}"] = figures[columns].reindex(net[table].index)
    net["res_shed"] = DataFrame(
        {"p_mw": base * solution.p_shed[where] * own,
         "q_mvar": base * solution.q_shed[where] * own},
        index=index,
    )  # fmt: skip


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
    figures = DataFrame(index=net.trafo3w.index)
    for side in ("hv", "mv", "lv"):
        mine = [k for k, e in enumerate(elements) if e.table == "trafo3w" and e.side == side]
        flow = (s_from if side == "hv" else s_to)[mine] * base
        index = [elements[k].index for k in mine]
        figures.loc[index, f"p_{side}_mw"] = flow.real
        figures.loc[index, f"q_{side}_mvar"] = flow.imag
    figures["pl_mw"] = figures[[f"p_{side}_mw" for side in ("hv", "mv", "lv")]].sum(axis=1)
    figures["ql_mvar"] = figures[[f"q_{side}_mvar" for side in ("hv", "mv", "lv")]].sum(axis=1)
    net["res_trafo3w"] = figures


def write_tables(
    tables: Mapping[str, DataFrame], folder: str | Path, format: str = "csv"
) -> list[Path]:
    """Write tables to a folder: one CSV or Parquet file each, or one ``tables.json``.

    Files are written beside and renamed, so none is ever half there. In JSON a missing figure
    is null, and every row carries its index as ``index``.

    Returns
    -------
    list of Path
        The files.
    """
    one_of("format", format, FORMATS)
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        if format == "json":
            return [_whole(target / "tables.json", _json_text(tables))]
        return [_write_one(table, target / f"{name}.{format}") for name, table in tables.items()]
    except OSError as error:
        raise InputError(f"cannot write to {target}: {error.strerror or error}") from error


def _write_one(table: DataFrame, path: Path) -> Path:
    if path.suffix == ".csv":
        return _whole(path, table.to_csv(index_label="index"))
    part = path.with_name(path.name + ".part")
    try:
        table.rename_axis("index").reset_index().to_parquet(part, index=False)
    except ImportError:
        raise missing_extra("pyarrow", "parquet", "writing Parquet") from None
    part.replace(path)
    return path


def _whole(path: Path, text: str) -> Path:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
    return path


def _json_text(tables: Mapping[str, DataFrame]) -> str:
    document = {
        name: json.loads(
            table.rename_axis("index").reset_index().to_json(orient="records", double_precision=15)
        )
        for name, table in tables.items()
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
