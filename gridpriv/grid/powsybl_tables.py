"""MATPOWER's tables of a pypowsybl network, read from its per-unit data frames.

Buses are those of pypowsybl's bus view: switches are resolved. To them are added the star points
of three-winding transformers, and the boundary points of boundary lines, of which a tie line has
one for both halves. What the IIDM model (powsybl.readthedocs.io, grid model) has and MATPOWER's
branch has not (losses, unequal charging, an open end) becomes shunts at the end buses: the
balance of every bus and every voltage stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridpriv.core.arrays import Floats
from gridpriv.grid.names import SourceNames
from gridpriv.grid.powsybl_branches import Branches
from gridpriv.grid.powsybl_buses import Buses
from gridpriv.grid.powsybl_injections import Injections
from gridpriv.grid.powsybl_notes import network_notes
from gridpriv.grid.powsybl_units import PowsyblNetwork, in_per_unit
from gridpriv.grid.readreport import FieldNote


@dataclass(frozen=True, eq=False)
class PowsyblTables:
    """A network in MATPOWER's tables, and what they have no place for.

    Attributes
    ----------
    bus, branch, gen : 2-d arrays
        As in :class:`~gridpriv.grid.tables.MatpowerTables`; elements out of service have a row.
    names : SourceNames
    groups : dict of str to list of str
        ``country``, ``area`` and ``substation`` of every bus; empty where none is stated.
    notes : tuple of FieldNote
    branch_ids, gen_ids : list of (kind, identifier)
        Elements that the rows stand for.
    loads : dict of int to list of str
        Identifiers of the loads in service at each bus.
    """

    bus: Floats
    branch: Floats
    gen: Floats
    names: SourceNames
    groups: dict[str, list[str]]
    notes: tuple[FieldNote, ...]
    branch_ids: list[tuple[str, str]]
    gen_ids: list[tuple[str, str]]
    loads: dict[int, list[str]]


def network_tables(network: PowsyblNetwork) -> PowsyblTables:
    """Return the tables of a network, which is left as it was."""
    with in_per_unit(network):
        buses = Buses(network)
        branches = Branches(network, buses)
        gens = Injections(network, buses)
        notes = network_notes(network, branches.joined, gens.remote)
        names, loads = buses.named(), buses.by_number(gens.loads)
        return PowsyblTables(
            buses.table(),
            branches.table(),
            gens.table(),
            SourceNames(names, tuple(branches.names), tuple(gens.names)),
            buses.groups(),
            notes,
            branches.ids,
            gens.ids,
            loads,
        )
