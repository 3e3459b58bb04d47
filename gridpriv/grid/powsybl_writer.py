"""Write set points, outages and served demand into a pypowsybl network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gridpriv.core.errors import InputError
from gridpriv.grid import tables as mpc

if TYPE_CHECKING:
    from gridpriv.grid.powsybl_tables import PowsyblTables
    from gridpriv.grid.powsybl_units import PowsyblNetwork

SMALLEST_MVA = 1e-9
"""Differences of served demand below this are rounding."""


def write_generators(
    network: PowsyblNetwork, tables: PowsyblTables, gens: list[list[float]]
) -> None:
    """Write active and reactive output, and the voltage of the own bus as the set point.

    Parameters
    ----------
    gens : list of (row, MW, MVAr, voltage in p.u.)
        Of every generator in service.
    """
    kilovolt = dict(zip(tables.bus[:, mpc.BUS_I], tables.bus[:, mpc.BASE_KV], strict=True))
    for row, p, q, vm in gens:
        kind, name = tables.gen_ids[int(row) - 1]
        target_v = vm * kilovolt[tables.gen[int(row) - 1, mpc.GEN_BUS]]
        if kind == "generator":
            network.update_generators(
                id=name, target_p=p, target_q=q, target_v=target_v, regulated_element_id=name
            )
        elif kind == "converter":
            network.update_vsc_converter_stations(
                id=name, target_v=target_v, regulated_element_id=name
            )
        elif kind == "svc":
            network.update_static_var_compensators(
                id=name, target_v=target_v, regulated_element_id=name
            )


def write_outages(
    network: PowsyblNetwork, tables: PowsyblTables, gens: set[int], branches: set[int]
) -> None:
    """Disconnect the elements in service whose rows are not among those given."""
    off = [row for row in range(len(tables.gen)) if row + 1 not in gens]
    for row in off:
        if tables.gen[row, mpc.GEN_STATUS]:
            network.disconnect(tables.gen_ids[row][1])
    for row, status in enumerate(tables.branch[:, mpc.BR_STATUS]):
        if status and row + 1 not in branches:
            network.disconnect(tables.branch_ids[row][1])


def write_demand(network: PowsyblNetwork, tables: PowsyblTables, demand: list[list[float]]) -> None:
    """Write served demand into the loads of each bus, in proportion to their active demand.

    Parameters
    ----------
    demand : list of (bus, MW, MVAr)
        Demand that is served.
    """
    stated = {int(row[mpc.BUS_I]): row[[mpc.PD, mpc.QD]] for row in tables.bus}
    loads = network.get_loads()
    for number, p, q in demand:
        change = np.array([p, q]) - stated[int(number)]
        if np.abs(change).max() <= SMALLEST_MVA:
            continue
        here = loads.loc[tables.loads.get(int(number), [])]
        if not len(here):
            raise InputError(
                f"bus {int(number)} serves {-change[0]:.6g} MW less than the source states, and "
                "has no load to write that into"
            )
        weight = here["p0"].abs().to_numpy()
        share = weight / weight.sum() if weight.sum() > 0 else np.full(len(here), 1 / len(here))
        network.update_loads(
            id=list(here.index),
            p0=(here["p0"] + share * change[0]).to_list(),
            q0=(here["q0"] + share * change[1]).to_list(),
        )
