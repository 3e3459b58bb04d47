"""MATPOWER's tables of a pypowsybl network, read from its per-unit data frames.

Buses are those of pypowsybl's bus view: switches are resolved. To them are added the star points
of three-winding transformers, and the boundary points of boundary lines, of which a tie line has
one for both halves. What the IIDM model (powsybl.readthedocs.io, grid model) has and MATPOWER's
branch has not (losses, unequal charging, an open end) becomes shunts at the end buses: the
balance of every bus and every voltage stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gridpriv.core.arrays import Floats
from gridpriv.grid.case import SourceNames
from gridpriv.grid.powsybl_branches import Branches
from gridpriv.grid.powsybl_buses import Buses, PowsyblNetwork, in_per_unit
from gridpriv.grid.powsybl_injections import Injections
from gridpriv.grid.readreport import FieldNote, known_fields, notes_of

if TYPE_CHECKING:
    import pandas as pd

LIMITS = ("CURRENT", "APPARENT_POWER", "ACTIVE_POWER")


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


def network_notes(network: PowsyblNetwork, joined: int, remote: int) -> tuple[FieldNote, ...]:
    """Return the notes on a network.

    Parameters
    ----------
    joined : int
        Branches of negligible impedance, whose ends are one bus.
    remote : int
        Regulators of another bus's voltage.
    """
    kinds = {key for key, _, _ in known_fields("powsybl") if hasattr(network, f"get_{key}")}
    frames = {kind: getattr(network, f"get_{kind}")() for kind in kinds}
    counts = {kind: len(rows) for kind, rows in frames.items()}
    counts |= _limits(network) | _control(frames, network)
    levels = network.get_voltage_levels()
    banded = levels[["low_voltage_limit", "high_voltage_limit"]].notna().all(axis=1)
    counts |= {
        "retained": _true(frames["switches"], "retained"),
        "banded": banded.sum(),
        "unbanded": (~banded).sum(),
        "countries": (frames["substations"]["country"] != "").sum(),
        "joined": joined,
        "remote": remote,
    }
    return tuple(notes_of("powsybl", counts))


def _limits(network: PowsyblNetwork) -> dict[str, int]:
    """Return the number of permanent and temporary ratings of each kind, and of those unused."""
    rows = network.get_loading_limits(all_attributes=True).reset_index()
    steady = rows["acceptable_duration"] == -1
    counts = {"unselected": (~rows["selected"].astype(bool)).sum()}
    for kind in LIMITS:
        counts[f"{kind} steady"] = ((rows["type"] == kind) & steady).sum()
        counts[f"{kind} brief"] = ((rows["type"] == kind) & ~steady).sum()
    return counts


def _control(frames: dict[str, pd.DataFrame], network: PowsyblNetwork) -> dict[str, int]:
    """Return the number of elements whose control is held, or left out."""
    gens = frames["generators"]
    droop = network.get_extensions("hvdcAngleDroopActivePowerControl")
    return {
        "fixed reactive": (gens["connected"] & ~gens["voltage_regulator_on"].astype(bool)).sum(),
        "curves": (gens["reactive_limits_kind"] == "CURVE").sum(),
        "phase regulating": _true(frames["phase_tap_changers"], "regulating"),
        "ratio regulating": _true(frames["ratio_tap_changers"], "regulating"),
        "shunts regulating": _true(frames["shunt_compensators"], "voltage_regulation_on"),
        "emulated": _true(droop, "enabled"),
    }


def _true(rows: pd.DataFrame, column: str) -> int:
    return int(rows[column].astype(bool).sum()) if len(rows) else 0
