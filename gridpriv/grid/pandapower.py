"""Read pandapower nets, from memory or from JSON.

pandapower's own conversion (``to_ppc``) resolves switches, tap changers, three-winding
transformers and unit systems; what it keeps beside MATPOWER's columns is brought into the
case here, exactly where it can be:

- iron losses and unequal shunts of a branch become shunts at its end buses (the balance of
  every bus and every voltage stay the same, :class:`PandapowerLink` knows what was moved);
- buses fused by closed switches are one bus, named after the smallest of them;
- limits and costs are read from the net's tables, because ``to_ppc`` leaves them out.

docs/readers.md lists every table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from gridpriv.core.errors import InputError
from gridpriv.grid.case import Case, SourceNames
from gridpriv.grid.pandapower_checks import Net, check_net, frame
from gridpriv.grid.pandapower_elements import (
    Element,
    PandapowerLink,
    branch_elements,
    bus_numbers,
    flexible_sgens,
    gen_elements,
    moved_shunts,
    pypower_tables,
)
from gridpriv.grid.pandapower_json import open_json
from gridpriv.grid.pandapower_notes import net_notes
from gridpriv.grid.pandapower_tables import (
    branch_table,
    bus_places,
    bus_table,
    bus_zones,
    cost_rows,
    dc_table,
    gen_table,
)
from gridpriv.grid.readreport import ReadReport
from gridpriv.grid.tables import MatpowerTables, case_from_tables


@dataclass(frozen=True, eq=False)
class Conversion:
    """A case, the report of its source, and the link back to the net."""

    case: Case
    report: ReadReport
    link: PandapowerLink


def case_from_pandapower(net: Net, name: str | None = None) -> Case:
    """Return the case of a pandapower net; :func:`convert_net` also reports and links back.

    Parameters
    ----------
    net : pandapowerNet
        Not changed.
    name : str, optional
        Of the case; the net's own name by default.

    Raises
    ------
    InputError
        Naming table, row and column.
    """
    return convert_net(net, name).case


def load_pandapower(path: Path) -> tuple[Case, ReadReport]:
    """Read a net that ``pandapower.to_json`` wrote."""
    net = open_json(path)
    try:
        conversion = convert_net(net, path.stem)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return conversion.case, replace(conversion.report, source=path.name, format="pandapower JSON")


def convert_net(net: Net, name: str | None = None) -> Conversion:
    """Convert a pandapower net; the net itself is not changed.

    Parameters
    ----------
    name : str, optional
        Of the case; the net's own name by default.

    Raises
    ------
    InputError
        Naming table, row and column.
    """
    check_net(net)
    label = name or str(net["name"] or "pandapower")
    flexible = flexible_sgens(net)
    work, ppc = pypower_tables(net, flexible)
    bus_of, ids = bus_numbers(work, len(ppc["bus"]))
    branch = branch_elements(work, ppc)
    gen = gen_elements(net, flexible, bus_of)
    shunt_f, shunt_t = moved_shunts(ppc, branch)
    tables = MatpowerTables(
        name=label,
        base_mva=float(work.sn_mva),
        bus=bus_table(work, ppc, ids, bus_of, shunt_f, shunt_t),
        gen=gen_table(net, gen, bus_of),
        branch=branch_table(work, ppc, ids, branch),
        gencost=cost_rows(net, gen),
        dcline=dc_table(net, bus_of),
        first_bus=0,
    )
    case = _case(tables, branch, gen)
    case = replace(
        case,
        xy=bus_places(net, case, bus_of),
        groups=bus_zones(net, case, bus_of),
        names=_names(net, bus_of, branch, gen),
    )
    notes = net_notes(net, case, bus_of, shunt_f, shunt_t)
    report = ReadReport(label, "pandapower net", notes)
    return Conversion(case, report, PandapowerLink(bus_of, branch, gen, shunt_f, shunt_t))


def _names(
    net: Net, bus_of: dict[int, int], branch: tuple[Element, ...], gen: tuple[Element, ...]
) -> SourceNames:
    """Return the names that the net's tables give; of fused buses that of the smallest."""
    labels = {
        table: frame(net, table)["name"].dropna().astype(str).to_dict()
        for table in {"bus", *(element.table for element in (*branch, *gen))}
        if "name" in frame(net, table)
    }
    buses = sorted(labels.get("bus", {}).items(), reverse=True)
    named = {bus_of[int(bus)]: name for bus, name in buses if int(bus) in bus_of and name}

    def label(element: Element) -> str:
        name = labels.get(element.table, {}).get(element.index, "")
        return f"{name} ({element.side})" if name and element.side else name

    return SourceNames(named, tuple(map(label, branch)), tuple(map(label, gen)))


_ROW = re.compile(r"^(?:mpc\.)?(branch|generator|gencost|gen)(?: row)? (\d+): ")


def _case(tables: MatpowerTables, branch: tuple[Element, ...], gen: tuple[Element, ...]) -> Case:
    """Return the case; errors name the net's element instead of a row of the tables."""
    try:
        return case_from_tables(tables)
    except InputError as error:
        match = _ROW.match(str(error))
        if match is None:
            raise
        rows = branch if match[1] == "branch" else gen
        raise InputError(f"net.{rows[int(match[2]) - 1]}: {error}") from error
