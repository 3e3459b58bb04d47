"""Write a case as a MATPOWER file: ``.m`` text (format version 2), or ``.mat``."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.grid.case import PIECEWISE, Case, GenCost

MBASE, IN_SERVICE, NO_ANGLE = 100.0, 1.0, 360.0
REFERENCE, GENERATOR, LOAD = 3, 2, 1
DEMAND_DECIMALS, OUTPUT_DECIMALS, VOLTAGE_DECIMALS = 6, 4, 6
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
        1e-6 p.u. and degrees, 1e-4 MW. Outputs stay within their limits.
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
    base = case.base_mva
    area, zone = (_groups(case.groups.get(group, ()), case.n_bus) for group in ("area", "zone"))
    return np.column_stack(
        [
            case.bus_id,
            kind,
            base * case.pd,
            base * case.qd,
            base * case.gs,
            base * case.bs,
            area,
            case.vm,
            np.rad2deg(case.va),
            case.base_kv,
            zone,
            case.vmax,
            case.vmin,
        ]
    )


def generator_rows(case: Case, qg: Floats | None = None) -> Floats:
    """Return MATPOWER's generator table; without ``qg`` no reactive output."""
    base, ones = case.base_mva, np.ones(case.n_gen)
    limits = [base * limit for limit in (case.qmax, case.qmin)]
    given = 0.0 * ones if qg is None else base * qg
    return np.column_stack(
        [
            case.bus_id[case.gen_bus],
            base * case.pg,
            given,
            *limits,
            case.vg,
            MBASE * ones,
            IN_SERVICE * ones,
            base * case.pmax,
            base * case.pmin,
            np.zeros((case.n_gen, 11)),
        ]
    )


def branch_rows(case: Case) -> Floats:
    """Return MATPOWER's branch table; a transformer at its nominal ratio is a line."""
    base, none = case.base_mva, np.zeros(case.n_branch)
    ratio = np.where((case.tap == 1.0) & (case.shift == 0.0), 0.0, case.tap)
    emergency = [none if rate is None else rate for rate in (case.rate_b, case.rate_c)]
    return np.column_stack(
        [
            case.bus_id[case.f_bus],
            case.bus_id[case.t_bus],
            case.r,
            case.x,
            case.b,
            base * case.rate,
            *(base * rate for rate in emergency),
            ratio,
            np.rad2deg(case.shift),
            IN_SERVICE + none,
            np.where(np.isinf(case.angmin), -NO_ANGLE, np.rad2deg(case.angmin)),
            np.where(np.isinf(case.angmax), NO_ANGLE, np.rad2deg(case.angmax)),
        ]
    )


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
