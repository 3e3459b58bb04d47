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

if TYPE_CHECKING:
    from gridpriv.grid.powsybl_tables import PowsyblTables
    from gridpriv.grid.powsybl_units import PowsyblNetwork

MOST_MEMORY = 6 * 2**30
"""Bytes of address space: Java reserves far more than it uses (0.4 GB of 4 GB for 300 buses)."""
MOST_SECONDS = 120
"""Of processor time. 9,241 buses take eight."""
MOST_WRITTEN = 2**30
ANSWER = "answer.json"
LONGEST_REASON = 300


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
    from gridpriv.grid.powsybl_writer import write_demand, write_generators, write_outages

    write_generators(network, tables, result["gens"])
    write_outages(network, tables, {row for row, *_ in result["gens"]}, set(result["branches"]))
    write_demand(network, tables, result["demand"])


if __name__ == "__main__":
    main(sys.argv[1])
