"""Write a case as a MATPOWER file: ``.m`` text (format version 2), or ``.mat``."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.grid import tables as mpc
from gridpriv.grid.case import PIECEWISE, Case, GenCost

NO_ANGLE, QG, MBASE = 360.0, 2, 6
REFERENCE, GENERATOR, LOAD = 3, 2, 1
DEMAND_DECIMALS, OUTPUT_DECIMALS, VOLTAGE_DECIMALS = 6, 4, 8
BUS_DECIMALS = {2: DEMAND_DECIMALS, 3: DEMAND_DECIMALS, 7: VOLTAGE_DECIMALS, 8: VOLTAGE_DECIMALS}
GENERATOR_DECIMALS = {1: OUTPUT_DECIMALS, 2: OUTPUT_DECIMALS, 5: VOLTAGE_DECIMALS}
"""By column of the rounded tables: MW and MVAr, p.u. and degrees."""


def matpower_text(
    case: Case,
    comments: Iterable[str] = (),
    qg: Floats | None = None,
    *,
    rounded: bool = False,
) -> str:
    """Return a case as the text of a MATPOWER file.

    What reads back is the case: rows in service, in the case's order.

    Parameters
    ----------
    case : Case
    comments : iterable of str
        Lines under the header.
    qg : (g,) float, optional
        Reactive output, p.u.; 0 by default.
    rounded : bool
        Round demand, voltages and outputs to the digits that a solver leaves a meaning: 1e-6 MW,
        1e-8 p.u. and degrees, 1e-4 MW. Outputs stay within their limits.
    """
    buses, generators = bus_rows(case), generator_rows(case, qg)
    if rounded:
        buses = _rounded(buses, BUS_DECIMALS)
        generators = _rounded(generators, GENERATOR_DECIMALS)
        for output, most, least in ((1, 8, 9), (2, 3, 4)):
            generators[:, output] = np.clip(
                generators[:, output], generators[:, least], generators[:, most]
            )
    lines = [f"function mpc = {function_name(case.name)}"]
    lines += [f"% {' '.join(comment.split())}" for comment in comments]
    lines += ["", "mpc.version = '2';", f"mpc.baseMVA = {number(case.base_mva)};", ""]
    for name, header, rows in (
        ("bus", "bus_i type Pd Qd Gs Bs area Vm Va baseKV zone Vmax Vmin", buses),
        ("gen", "bus Pg Qg Qmax Qmin Vg mBase status Pmax Pmin", generators),
        (
            "branch",
            "fbus tbus r x b rateA rateB rateC ratio angle status angmin angmax",
            branch_rows(case),
        ),
        ("gencost", "model startup shutdown n values", cost_rows(case)),
    ):
        if len(rows) or name != "gencost":
            lines += [f"% {' '.join(header.split())}", f"mpc.{name} = [", *_rows(rows), "];", ""]
    return "\n".join(lines)


def matpower_bytes(case: Case, qg: Floats | None = None) -> bytes:
    """Return a case as a MATPOWER ``.mat`` file: the struct ``mpc`` in MATLAB's format 5."""
    from scipy.io import savemat

    tables = {
        "version": "2",
        "baseMVA": case.base_mva,
        "bus": bus_rows(case),
        "gen": generator_rows(case, qg),
        "branch": branch_rows(case),
    }
    costs = {"gencost": cost_rows(case)} if case.cost else {}
    file = io.BytesIO()
    savemat(file, {"mpc": tables | costs}, do_compression=True)
    return file.getvalue()


def function_name(name: str) -> str:
    """Return a name that MATLAB allows for a function."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if re.match(r"[A-Za-z]", plain) else f"case_{plain}"


def number(value: float) -> str:
    """Return the shortest text that reads back as the same number."""
    if np.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e15 else repr(float(value))


def bus_rows(case: Case) -> Floats:
    """Return MATPOWER's bus table, in MW, MVAr and degrees."""
    kind = np.full(case.n_bus, LOAD)
    kind[case.gen_bus] = GENERATOR
    kind[case.reference] = REFERENCE
    if not case.reference.any() and case.n_gen:
        kind[case.gen_bus[0]] = REFERENCE
    table = mpc.table_of(case, "bus", case.n_bus, mpc.BUS_COLUMNS)
    table[:, mpc.BUS_I], table[:, mpc.BUS_TYPE] = case.bus_id, kind
    for group, column in (("area", mpc.AREA), ("zone", mpc.ZONE)):
        table[:, column] = _groups(case.groups.get(group, ()), case.n_bus)
    return table


def generator_rows(case: Case, qg: Floats | None = None) -> Floats:
    """Return MATPOWER's generator table; without ``qg`` no reactive output."""
    table = mpc.table_of(case, "gen", case.n_gen, 21)
    table[:, mpc.GEN_BUS] = case.bus_id[case.gen_bus]
    table[:, QG] = 0.0 if qg is None else case.base_mva * qg
    table[:, MBASE], table[:, mpc.GEN_STATUS] = 100.0, 1.0
    return table


def branch_rows(case: Case) -> Floats:
    """Return MATPOWER's branch table; a transformer at its nominal ratio is a line."""
    table = mpc.table_of(case, "branch", case.n_branch, mpc.ANGMAX + 1)
    table[:, mpc.F_BUS], table[:, mpc.T_BUS] = case.bus_id[case.f_bus], case.bus_id[case.t_bus]
    for rate, column in ((case.rate_b, mpc.RATE_B), (case.rate_c, mpc.RATE_C)):
        table[:, column] = 0.0 if rate is None else case.base_mva * rate
    line = (case.tap == 1.0) & (case.shift == 0.0)
    table[:, mpc.TAP], table[:, mpc.BR_STATUS] = np.where(line, 0.0, case.tap), 1.0
    for angle, column in ((case.angmin, mpc.ANGMIN), (case.angmax, mpc.ANGMAX)):
        degrees = np.rad2deg(angle)
        table[:, column] = np.where(np.isinf(angle), np.copysign(NO_ANGLE, angle), degrees)
    return table


def cost_rows(case: Case) -> Floats:
    """Return MATPOWER's cost table, rows filled up with zeros to one width."""
    rows = [[cost.model, 0.0, 0.0, _count(cost), *cost.values] for cost in case.cost]
    width = max(map(len, rows), default=0)
    return np.array([row + [0.0] * (width - len(row)) for row in rows]).reshape(len(rows), width)


def _count(cost: GenCost) -> int:
    return len(cost.values) // (2 if cost.model == PIECEWISE else 1)


def _groups(names: Sequence[str], count: int) -> Floats:
    """Return group numbers: the source's where all are numbers, else their order."""
    if not names:
        return np.ones(count)
    if all(re.fullmatch(r"\d{1,9}", name) for name in names):
        return np.array([float(name) for name in names])
    order = {name: place + 1.0 for place, name in enumerate(dict.fromkeys(names))}
    return np.array([order[name] for name in names])


def _rounded(table: Floats, decimals: Mapping[int, int]) -> Floats:
    """Return a table with columns rounded, without negative zeros."""
    table = table.copy()
    for column, places in decimals.items():
        table[:, column] = np.round(table[:, column], places) + 0.0
    return table


def _rows(table: Floats) -> Iterable[str]:
    return ("\t" + "\t".join(map(number, row)) + ";" for row in table.tolist())
