"""AC check: an AC power flow (pandapower) at the generation the zones would dispatch.

The relaxation's voltages need not exist. Here generators hold their dispatched output and the
relaxation's voltage magnitude, loads take what is served, and Newton's method finds the
voltages. What the reference bus then has to add, and what leaves its band, is reported.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.arrays import Floats
from gridpriv.grid.case import Case

ABSENT_LIMIT = 9999.0


@dataclass(frozen=True)
class AcCheck:
    """Outcome of an AC power flow; figures are None where it did not converge.

    Attributes
    ----------
    converged : bool
    slack_mw : float or None
        Active power the reference buses give beyond their dispatch, in MW.
    vm_violations : int or None
        Buses outside their voltage band (by more than 1e-4 p.u.).
    vm_worst_pu : float or None
        Largest distance outside the band.
    loading_violations : int or None
        Rated branches above their limit (by more than 0.1 %).
    """

    converged: bool
    slack_mw: float | None = None
    vm_violations: int | None = None
    vm_worst_pu: float | None = None
    loading_violations: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Dispatch:
    """What a run would do, per bus and in per unit.

    Attributes
    ----------
    pg, qg : (n,)
        Generation.
    p_served, q_served : (n,)
        Load that is served.
    vm : (n,)
        Voltage magnitude of the relaxation.
    """

    pg: Floats
    qg: Floats
    p_served: Floats
    q_served: Floats
    vm: Floats


def ac_check(case: Case, dispatch: Dispatch) -> AcCheck:
    """Return the AC power flow's verdict on a dispatch."""
    import pandapower as pp

    if not np.isfinite(np.concatenate([dispatch.pg, dispatch.p_served, dispatch.vm])).all():
        return AcCheck(converged=False)
    net = ac_network(case, dispatch)
    try:
        pp.runpp(
            net,
            tolerance_mva=1e-6,
            trafo_model="pi",
            init="dc" if (case.x != 0.0).all() else "flat",  # a DC start divides by x
            calculate_voltage_angles=True,
            numba=False,
        )
    except (pp.LoadflowNotConverged, FloatingPointError):
        return AcCheck(converged=False)
    reference = reference_buses(case)
    given = net.res_gen.p_mw.sum() + net.res_ext_grid.p_mw.sum() - case.base_mva * dispatch.pg.sum()
    vm = net.res_bus.vm_pu.to_numpy()
    outside = np.maximum(case.vmin - vm, vm - case.vmax)
    outside[reference] = 0.0
    loading = np.concatenate([net.res_line.loading_percent, net.res_trafo.loading_percent])
    return AcCheck(
        converged=True,
        slack_mw=float(given),
        vm_violations=int((outside > 1e-4).sum()),
        vm_worst_pu=float(max(outside.max(), 0.0)),
        loading_violations=int((loading > 100.1).sum()) if (case.rate > 0).any() else 0,
    )


def reference_buses(case: Case) -> NDArray[np.int64]:
    """Return the reference buses: the source's, or the bus of the largest generator."""
    given = np.flatnonzero(case.reference)
    if len(given) or case.n_gen == 0:
        return given
    return case.gen_bus[[np.argmax(case.pmax)]]


def ac_network(case: Case, dispatch: Dispatch) -> Any:
    """Return a pandapower net of the case at a dispatch; buses keep their indices."""
    bare = case.scale_load(0.0)  # steps of a day differ in demand alone: one net for all
    net = copy.deepcopy(_network(_Grid(bare.fingerprint, bare)))
    base = case.base_mva
    net.load.p_mw, net.load.q_mvar = base * dispatch.p_served, base * dispatch.q_served
    net.gen.p_mw = base * dispatch.pg[net.gen.bus]
    net.gen.vm_pu, net.ext_grid.vm_pu = dispatch.vm[net.gen.bus], dispatch.vm[net.ext_grid.bus]
    return net


@dataclass(frozen=True)
class _Grid:
    """A case as a key: two with one fingerprint are the same."""

    fingerprint: str
    case: Case = field(compare=False)


@lru_cache(maxsize=2)
def _network(grid: _Grid) -> Any:
    """Return a net with a load of 0 at every bus, which costs more than its power flow.

    Generators of one bus are one, because pandapower's converter mishandles several.
    """
    import logging

    import pandapower as pp
    from pandapower.converter.pypower.from_ppc import from_ppc

    logging.getLogger("pandapower.converter.pypower.from_ppc").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # pandas on pandapower's converter
        net = from_ppc(_ppc(grid.case), f_hz=50, validate_conversion=False)
        pp.create_loads(net, net.bus.index, p_mw=0.0)
    return net


def _ppc(case: Case) -> dict[str, Any]:
    base, reference = case.base_mva, reference_buses(case)
    with_gen = np.union1d(case.gen_bus, reference)
    bus = np.zeros((case.n_bus, 13))
    bus[:, 0] = np.arange(case.n_bus)
    bus[:, 1] = 1
    bus[with_gen, 1] = 2
    bus[reference, 1] = 3
    bus[:, 4], bus[:, 5] = base * case.gs, base * case.bs
    bus[:, 6], bus[:, 7] = 1, 1
    bus[:, 9], bus[:, 10] = np.where(case.base_kv > 0, case.base_kv, 1.0), 1
    bus[:, 11], bus[:, 12] = case.vmax, case.vmin
    gen = np.zeros((len(with_gen), 21))
    gen[:, 0], gen[:, 5] = with_gen, 1
    gen[:, 3], gen[:, 8], gen[:, 4], gen[:, 9] = (
        ABSENT_LIMIT * base, ABSENT_LIMIT * base, -ABSENT_LIMIT * base, -ABSENT_LIMIT * base,
    )  # fmt: skip
    gen[:, 6], gen[:, 7] = base, 1
    branch = np.zeros((case.n_branch, 13))
    branch[:, 0], branch[:, 1] = case.f_bus, case.t_bus
    branch[:, 2], branch[:, 3], branch[:, 4] = case.r, case.x, case.b
    branch[:, 5] = base * np.where(np.isfinite(case.rate), case.rate, 0.0)
    branch[:, 8] = np.where((case.tap == 1) & (case.shift == 0), 0.0, case.tap)
    branch[:, 9], branch[:, 10] = np.rad2deg(case.shift), 1
    branch[:, 11], branch[:, 12] = -360, 360
    return {"version": "2", "baseMVA": base, "bus": bus, "gen": gen, "branch": branch}
