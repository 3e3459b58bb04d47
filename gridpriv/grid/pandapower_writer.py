"""Write a case as a pandapower net.

A branch without transformer between buses of one voltage is a line; any other is a
transformer, whose charging becomes shunts at its end buses (pandapower's default T model
would place it elsewhere). Balance, voltages and losses are those of the case; docs/readers.md
lists what a net cannot represent (angle limits, cost polynomials above quadratic).
"""

from __future__ import annotations

import json
import warnings

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gridpriv.core.arrays import Complexes, Floats
from gridpriv.grid.case import PIECEWISE, POLYNOMIAL, Case
from gridpriv.grid.pandapower_json import Net
from gridpriv.grid.pandapower_tables import NO_LIMIT, Element, PandapowerLink
from gridpriv.grid.zoning import bus_graph

LARGEST_INDEX = 1_000_000
"""pandapower allocates arrays up to the largest index: larger numbers are renumbered."""
HERTZ = 50.0
LIMITS = {"min_p_mw": "pmin", "max_p_mw": "pmax", "min_q_mvar": "qmin", "max_q_mvar": "qmax"}


def write_net(case: Case) -> tuple[Net, PandapowerLink]:
    """Return a pandapower net of a case, and the link between the two.

    Buses keep their numbers as indices (unless beyond a million); generators have the case's ``pg``
    and ``vg``. Each island has one external grid or slack generator: a reference bus of the case,
    or the bus of its largest generator.
    """
    import pandapower as pp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = pp.create_empty_network(name=case.name, sn_mva=case.base_mva, f_hz=HERTZ)
        index = case.bus_id if case.bus_id.max() <= LARGEST_INDEX else np.arange(case.n_bus)
        kv = np.where(case.base_kv > 0, case.base_kv, 1.0)
        pp.create_buses(
            net,
            case.n_bus,
            vn_kv=kv,
            index=index,
            min_vm_pu=case.vmin,
            max_vm_pu=case.vmax,
            name=[case.names.bus.get(b, str(b)) for b in case.bus_id.tolist()],
        )
        line = (case.tap == 1) & (case.shift == 0) & np.isclose(kv[case.f_bus], kv[case.t_bus])
        charging = -0.5j * case.b / np.stack([case.tap**2, np.ones(case.n_branch)])
        shunts = np.where(line, 0.0, charging)
        _demands(net, case, index, shunts)
        branch = _branches(net, case, index, kv, line)
        gen = _generators(net, case, index)
    _name_elements(net, case, branch, gen)
    if case.xy is not None:
        net.bus["geo"] = [
            json.dumps({"coordinates": place, "type": "Point"}) for place in case.xy.tolist()
        ]
    numbers = dict(zip(map(int, index), map(int, case.bus_id), strict=True))
    return net, PandapowerLink(numbers, branch, gen, shunts)


def _name_elements(
    net: Net, case: Case, branch: tuple[Element, ...], gen: tuple[Element, ...]
) -> None:
    """Write the source's names of branches and generators."""
    tables = ((branch, case.names.branch, case.branch_row), (gen, case.names.gen, case.gen_row))
    for elements, names, rows in tables:
        if names:
            for element, row in zip(elements, rows.tolist(), strict=True):
                net[element.table].loc[element.index, "name"] = names[row - 1]


def _demands(net: Net, case: Case, index: NDArray[np.int64], shunts: Complexes) -> None:
    import pandapower as pp

    base, loaded = case.base_mva, np.flatnonzero((case.pd != 0) | (case.qd != 0))
    if len(loaded):
        pp.create_loads(
            net, index[loaded], p_mw=base * case.pd[loaded], q_mvar=base * case.qd[loaded]
        )
    admittance = case.gs + 1j * case.bs
    np.add.at(admittance, case.f_bus, -shunts[0])
    np.add.at(admittance, case.t_bus, -shunts[1])
    at = np.flatnonzero(admittance)
    if len(at):
        power = base * np.conj(admittance[at])
        pp.create_shunts(net, index[at], p_mw=power.real, q_mvar=power.imag)


def _branches(
    net: Net, case: Case, index: NDArray[np.int64], kv: Floats, line: NDArray[np.bool_]
) -> tuple[Element, ...]:
    import pandapower as pp

    f, t, base = index[case.f_bus], index[case.t_bus], case.base_mva
    limited = (case.rate > 0) & np.isfinite(case.rate)
    rate = base * np.where(limited, case.rate, 0.0)
    elements: list[Element] = [Element("line", 0)] * case.n_branch
    at = np.flatnonzero(line)
    if len(at):
        volts = kv[case.f_bus[at]]
        ohm = volts**2 / base
        numbers = pp.create_lines_from_parameters(
            net,
            f[at],
            t[at],
            length_km=1.0,
            r_ohm_per_km=case.r[at] * ohm,
            x_ohm_per_km=case.x[at] * ohm,
            c_nf_per_km=case.b[at] / ohm / (2 * np.pi * HERTZ) * 1e9,
            max_i_ka=np.where(limited[at], rate[at] / volts / np.sqrt(3.0), NO_LIMIT),
            max_loading_percent=100.0,
        )
        for row, number in zip(at, numbers, strict=True):
            elements[row] = Element("line", int(number))
    at = np.flatnonzero(~line)
    if len(at):
        power = np.where(limited[at], rate[at], NO_LIMIT)
        sign = np.where(case.x[at] < 0, -1.0, 1.0)
        numbers = pp.create_transformers_from_parameters(
            net,
            f[at],
            t[at],
            sn_mva=power,
            vn_hv_kv=kv[case.f_bus[at]] * case.tap[at],
            vn_lv_kv=kv[case.t_bus[at]],
            vk_percent=sign * np.hypot(case.r[at], case.x[at]) * power / base * 100.0,
            vkr_percent=case.r[at] * power / base * 100.0,
            pfe_kw=0.0,
            i0_percent=0.0,
            shift_degree=np.rad2deg(case.shift[at]),
            max_loading_percent=100.0,
        )
        for row, number in zip(at, numbers, strict=True):
            elements[row] = Element("trafo", int(number))
    return tuple(elements)


def slack_generators(case: Case) -> tuple[list[int], list[int]]:
    """Return generators that are slacks, and reference buses without a generator.

    One per island: at a reference bus where the island has one, or else the largest generator.
    """
    gens: list[int] = []
    bare: list[int] = []
    for island in nx.connected_components(bus_graph(case)):
        inside = np.isin(case.gen_bus, list(island))
        reference = [bus for bus in np.flatnonzero(case.reference).tolist() if bus in island]
        for bus in reference:
            at = np.flatnonzero(case.gen_bus == bus).tolist()
            gens += at[:1]
            bare += [] if at else [bus]
        if not reference and inside.any():
            gens.append(int(np.argmax(np.where(inside, case.pmax, -np.inf))))
    return gens, bare


def _generators(net: Net, case: Case, index: NDArray[np.int64]) -> tuple[Element, ...]:
    import pandapower as pp

    base = case.base_mva
    slacks, bare = slack_generators(case)
    setpoint = case.vm.copy()
    setpoint[case.gen_bus[::-1]] = case.vg[::-1]  # generators of a bus have the first one's
    setpoint = np.where(setpoint > 0, setpoint, 1.0)
    elements: list[Element] = []
    for g, bus in enumerate(case.gen_bus.tolist()):
        every = {name: float(base * getattr(case, field)[g]) for name, field in LIMITS.items()}
        limits = {name: value for name, value in every.items() if np.isfinite(value)}
        slack = g in slacks
        set_points = (
            {"va_degree": np.rad2deg(case.va[bus])} if slack else {"p_mw": base * case.pg[g]}
        )
        create = pp.create_ext_grid if slack else pp.create_gen
        number = create(
            net, int(index[bus]), vm_pu=setpoint[bus], controllable=True, **set_points, **limits
        )
        elements.append(Element("ext_grid" if slack else "gen", int(number)))
    for bus in bare:  # fixes voltage and angle, without output in the model
        pp.create_ext_grid(
            net,
            int(index[bus]),
            vm_pu=setpoint[bus],
            va_degree=np.rad2deg(case.va[bus]),
            controllable=True,
            **dict.fromkeys(LIMITS, 0.0),
        )
    _write_costs(net, case, elements)
    return tuple(elements)


def _write_costs(net: Net, case: Case, elements: list[Element]) -> None:
    import pandapower as pp

    for element, cost in zip(elements, case.cost, strict=False):
        values = cost.values
        if cost.model == POLYNOMIAL and not any(values[:-3]):
            c2, c1, c0 = (0.0, 0.0, 0.0, *values)[-3:]
            pp.create_poly_cost(
                net, element.index, element.table, cp1_eur_per_mw=c1, cp0_eur=c0, cp2_eur_per_mw2=c2
            )
        elif cost.model == PIECEWISE:
            mw, price = np.array(values[::2]), np.array(values[1::2])
            areas = np.column_stack([mw[:-1], mw[1:], np.diff(price) / np.diff(mw)])
            pp.create_pwl_cost(net, element.index, element.table, areas.tolist())
