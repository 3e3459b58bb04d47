"""The process in which pypowsybl reads and writes files, with limits on its time and memory.

pypowsybl is native code that parses what somebody else wrote. It runs in a process of its own,
whose answer is numbers and texts in JSON, so that neither a crash nor an endless loop reaches the
caller.
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gridpriv.core.errors import InputError
from gridpriv.grid import tables as mpc

if TYPE_CHECKING:
    from gridpriv.grid.powsybl_tables import PowsyblNetwork, PowsyblTables

MOST_MEMORY = 6 * 2**30
"""Bytes of address space: Java reserves far more than it uses (0.4 GB of 4 GB for 300 buses)."""
MOST_SECONDS = 120
"""Of processor time. 9,241 buses take eight."""
MOST_WRITTEN = 2**30
ANSWER = "answer.json"
LONGEST_REASON = 300
SMALLEST_MVA = 1e-9
"""Differences of served demand below this are rounding."""


def main(folder: str) -> None:
    """Do what ``request.json`` in a folder asks for; leave the answer there."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN, MOST_WRITTEN))
    place = Path(folder)
    request = json.loads((place / "request.json").read_text(encoding="utf-8"))
    (place / ANSWER).write_text(json.dumps(answer(place, request)), encoding="utf-8")


def answer(place: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Return the tables of a file and what was written; or why it cannot be read."""
    step = "is not readable"
    try:
        network = load(place / request["source"])
        tables = _tables(network)
        if "target" in request:
            step = f"has no place in the format {request['format']}"
            if "result" in request:
                apply(network, tables, request["result"])
            _save(network, place / request["target"], request["format"])
    except Exception as error:  # whatever native code raises of a damaged file
        reason = " ".join(str(error).split()) or type(error).__name__
        return {"error": f"{step}: {reason[:LONGEST_REASON]}"}
    written = asdict(tables)
    return {key: v.tolist() if hasattr(v, "tolist") else v for key, v in written.items()}


def load(path: Path) -> PowsyblNetwork:
    """Return the network of a file, whatever the configuration of this machine's user says."""
    import pypowsybl as powsybl

    powsybl.set_config_read(False)
    own_base = {"matpower.import.ignore-base-voltage": "false"}
    return powsybl.network.load(path, parameters=own_base if path.suffix == ".mat" else {})


def _tables(network: PowsyblNetwork) -> PowsyblTables:
    from gridpriv.grid.powsybl_tables import network_tables

    return network_tables(network)


def _save(network: PowsyblNetwork, path: Path, form: str) -> None:
    parameters = {"ucte.export.naming-strategy": "Counter"} if form == "UCTE" else {}
    network.save(path, format=form, parameters=parameters)


def apply(network: PowsyblNetwork, tables: PowsyblTables, result: dict[str, Any]) -> None:
    """Write set points into a network.

    Parameters
    ----------
    result : dict
        ``gens``: row, MW, MVAr and voltage (p.u.) of every generator in service; ``demand``: bus
        number, MW and MVAr that are served; ``branches``: rows in service.
    """
    write_generators(network, tables, result["gens"])
    write_outages(network, tables, {row for row, *_ in result["gens"]}, set(result["branches"]))
    write_demand(network, tables, result["demand"])


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


if __name__ == "__main__":
    main(sys.argv[1])
