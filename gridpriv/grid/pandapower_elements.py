"""Elements of a pandapower net as branches and generators, and its PYPOWER tables.

pandapower's ``to_ppc`` resolves switches, tap changers and unit systems; what is done here is to
call it on public figures only, and to remember which element each of its rows stands for.
"""

from __future__ import annotations

import copy
import logging
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.errors import InputError
from gridpriv.grid.pandapower_checks import Net, Ppc, frame, in_service, optional

DEFAULT_BASE = 1.0
"""pandapower's sn_mva where nobody chose one; see :func:`base_power`."""
BASES = (1.0, 10.0, 100.0)
SIDES = ("hv", "mv", "lv")


@dataclass(frozen=True)
class Element:
    """A row of a pandapower table; ``side`` is that of a three-winding transformer."""

    table: str
    index: int
    side: str = ""

    def __str__(self) -> str:
        return f"{self.table} {self.index}" + (f" ({self.side})" if self.side else "")


@dataclass(frozen=True, eq=False)
class PandapowerLink:
    """Elements of a net that the rows of its case stand for.

    Attributes
    ----------
    bus : dict of int to int
        Bus of the net to bus number (``Case.bus_id``); fused buses share one.
    branch, gen : tuple of Element
        By the case's ``branch_row - 1`` and ``gen_row - 1``: elements in service, counted
        through lines, trafos, trafo3w (by side), impedances and switches; through external
        grids, generators and dispatchable static generators.
    shunt_f, shunt_t : (rows,) complex
        Admittance (p.u.) at the ends of each branch row that the case holds as bus shunts.
    """

    bus: dict[int, int]
    branch: tuple[Element, ...]
    gen: tuple[Element, ...]
    shunt_f: NDArray[np.complex128]
    shunt_t: NDArray[np.complex128]


def base_power(net: Net) -> float:
    """Return the base of the per-unit system in MVA, from public name plates.

    ``sn_mva`` is a matter of computation to pandapower, and 1 MVA by default, on which a
    medium-voltage grid has admittances of 1e4 per unit and conic solvers fail. Where it was left
    at that, the base is 1, 10 or 100 MVA: enough for all transformers together or, without
    transformers, 100 MVA from 10 kV on. Demand plays no part: it is private.
    """
    given = float(net.sn_mva)
    if given != DEFAULT_BASE:
        return given
    total = float(optional(frame(net, "trafo"), "sn_mva", 0.0).sum())
    total += float(optional(frame(net, "trafo3w"), "sn_hv_mva", 0.0).sum())
    if total == 0.0 and float(net.bus.vn_kv.max()) >= 10.0:
        return BASES[-1]
    return next((base for base in BASES if base >= total), BASES[-1])


def flexible_sgens(net: Net) -> NDArray[np.bool_]:
    """Return the dispatchable static generators: controllable, with limits of P."""
    rows = frame(net, "sgen")
    mask = in_service(net, "sgen")
    for column in ("min_p_mw", "max_p_mw"):
        mask = mask & np.isfinite(optional(rows, column, np.nan))
    return mask & (optional(rows, "controllable", 0.0) > 0)


def pypower_tables(net: Net, flexible: NDArray[np.bool_]) -> tuple[Net, Ppc]:
    """Return a copy of the net with pandapower's lookups, and its PYPOWER tables."""
    from pandapower.converter.pypower.to_ppc import to_ppc

    logging.getLogger("pandapower").setLevel(logging.ERROR)
    work = copy.deepcopy(net)
    work.sn_mva = base_power(net)
    if len(work.sgen):
        work.sgen = work.sgen.drop(columns=["min_q_mvar", "max_q_mvar"], errors="ignore")
        work.sgen["in_service"] = in_service(net, "sgen") & ~flexible
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ppc = to_ppc(work, mode="pf", init="flat", calculate_voltage_angles=True)
    except Exception as error:  # what an inconsistent net raises is pandapower's affair
        raise InputError(
            f"pandapower cannot convert the net ({type(error).__name__}: {error})"
        ) from error
    return work, ppc


def bus_numbers(work: Net, n_ppc: int) -> tuple[dict[int, int], NDArray[np.int64]]:
    """Return net bus -> bus number, and the number of every PYPOWER bus.

    A group of fused buses has its smallest number, an auxiliary bus one beyond all of them.
    Buses out of service, or without a path to an external grid, have none.
    """
    lookup = work._pd2ppc_lookups["bus"]
    lookup = np.where(lookup < n_ppc, lookup, -1)
    ids = np.full(n_ppc, -1, dtype=np.int64)
    for bus in sorted(map(int, work.bus.index), reverse=True):
        if lookup[bus] >= 0:
            ids[lookup[bus]] = bus
    auxiliary = ids < 0
    ids[auxiliary] = int(work.bus.index.max()) + 1 + np.arange(auxiliary.sum())
    bus_of = {int(b): int(ids[lookup[b]]) for b in work.bus.index if lookup[b] >= 0}
    return bus_of, ids


def branch_elements(work: Net, ppc: Ppc) -> tuple[Element, ...]:
    """Return the element behind every PYPOWER branch in service, in pandapower's order."""
    listed: list[Element] = []
    for table, (first, last) in work._pd2ppc_lookups["branch"].items():
        if table == "switch":
            index = work.switch.index[work["_impedance_bb_switches"]]
            rows = [Element(table, int(i)) for i in index]
        elif table == "trafo3w":
            rows = [Element(table, int(i), side) for side in SIDES for i in work.trafo3w.index]
        else:
            rows = [Element(table, int(i)) for i in work[table].index]
        if len(rows) != last - first:
            raise InputError(
                f"net.{table}: {len(rows)} rows became {last - first} branches"
                "; report this as a defect"
            )
        listed += rows
    running = ppc["internal"]["branch_is"]
    return tuple(element for element, on in zip(listed, running, strict=True) if on)


def gen_elements(
    net: Net, flexible: NDArray[np.bool_], bus_of: dict[int, int]
) -> tuple[Element, ...]:
    """Return the elements in service that are generators of the case."""
    listed: list[Element] = []
    for table in ("ext_grid", "gen", "sgen"):
        mask = flexible if table == "sgen" else in_service(net, table)
        rows = frame(net, table)[mask]
        if len(rows):
            pairs = zip(rows.index.tolist(), rows["bus"].tolist(), strict=True)
            listed += [Element(table, int(i)) for i, bus in pairs if int(bus) in bus_of]
    return tuple(listed)


def moved_shunts(
    ppc: Ppc, elements: tuple[Element, ...]
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Return each end's shunt admittance beyond the case's symmetric b."""
    ratio = np.real(ppc["branch"][:, 8])
    tap = np.where(ratio == 0, 1.0, ratio)
    r_skew, x_skew, g, g_skew, b_skew = (
        np.real(ppc.get(f"branch_{name}", np.zeros(len(tap))))
        for name in ("r_asym", "x_asym", "g", "g_asym", "b_asym")
    )
    skew = (r_skew != 0) | (x_skew != 0)
    if skew.any():
        raise InputError(
            f"net.{elements[int(np.argmax(skew))]}: impedances that differ by direction "
            "(rft/rtf, xft/xtf) cannot be represented"
            "; give equal values for both directions"
        )
    at_from = (0.5 * g / tap**2).astype(np.complex128)
    return at_from, 0.5 * (g + g_skew + 1j * b_skew)
