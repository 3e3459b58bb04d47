"""The account of a pypowsybl network: what is read, ignored and unsupported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from gridpriv.grid.readreport import FieldNote, counted

READ: dict[str, tuple[str, str]] = {
    "lines": ("r, x, g1, b1, g2, b2, connected", "unequal charging and losses: bus shunts"),
    "2_windings_transformers": ("at their current taps", "magnetizing current: a bus shunt"),
    "3_windings_transformers": ("at their current taps", "three branches to a star point"),
    "phase_tap_changers": ("tap", "phase shift of the branch"),
    "ratio_tap_changers": ("tap", "ratio of the branch"),
    "generators": ("target_p, target_q, target_v, p and q limits", ""),
    "loads": ("p0, q0", "bus demand"),
    "shunt_compensators": ("g, b of the sections in use", "bus shunts"),
    "static_var_compensators": ("b limits, target_v, target_q", "reactive power at p = 0"),
    "batteries": ("target_p, target_q", "fixed injections"),
    "boundary_lines": ("r, x, g, b, p0, q0", "a branch to a bus of their own, with its demand"),
    "tie_lines": ("both halves", "two branches in series"),
    "vsc_converter_stations": ("p of the line, target_v, target_q", "fixed active power"),
    "lcc_converter_stations": ("p of the line, power factor", "fixed demand"),
    "switches": ("open", "resolved by the bus view"),
}
LIMITS = ("CURRENT", "APPARENT_POWER", "ACTIVE_POWER")


def network_notes(network: Any, joined: int, remote: int) -> tuple[FieldNote, ...]:
    """Return the notes on a network.

    Parameters
    ----------
    joined : int
        Branches of negligible impedance, whose ends are one bus.
    remote : int
        Regulators of another bus's voltage.
    """
    frames = {kind: getattr(network, f"get_{kind}")() for kind in READ}
    return (
        *_read(frames, network),
        *_limits(network),
        *_control(frames, network, joined, remote),
        *_ignored(network),
    )


def _read(frames: dict[str, pd.DataFrame], network: Any) -> Iterator[FieldNote]:
    for kind, (columns, note) in READ.items():
        yield from counted(f"{kind}: {columns}", "read", len(frames[kind]), note)
    switches = frames["switches"]
    yield from counted(
        "switches: retained",
        "read",
        int(switches["retained"].sum()),
        "closed ones join their buses all the same",
    )
    lines = network.get_hvdc_lines()
    yield from counted(
        "hvdc_lines: target_p, losses, r",
        "read",
        len(lines),
        "active power of both stations, at its set point",
    )
    levels = network.get_voltage_levels()
    bands = levels[["low_voltage_limit", "high_voltage_limit"]].notna().all(axis=1)
    yield from counted("voltage_levels: voltage limits", "read", int(bands.sum()))
    yield from counted(
        "voltage_levels: without limits", "read", int((~bands).sum()), "0.9 to 1.1 p.u."
    )
    countries = network.get_substations()["country"]
    yield from counted(
        "substations: country",
        "read",
        int((countries != "").sum()),
        "for zone maps: --zones-from country",
    )
    yield from counted(
        "areas", "read", len(network.get_areas()), "for zone maps: --zones-from area"
    )


def _limits(network: Any) -> Iterator[FieldNote]:
    rows = network.get_loading_limits(all_attributes=True).reset_index()
    steady = rows["acceptable_duration"] == -1
    for kind in LIMITS:
        some = rows["type"] == kind
        name = kind.lower().replace("_", " ")
        how = {
            "CURRENT": "at nominal voltage",
            "APPARENT_POWER": "as given",
            "ACTIVE_POWER": "taken as apparent power",
        }[kind]
        yield from counted(
            f"limits: {name}, permanent",
            "read",
            int((some & steady).sum()),
            f"rateA, {how}; the smaller of two ends",
        )
        yield from counted(
            f"limits: {name}, temporary",
            "read",
            int((some & ~steady).sum()),
            f"rateB the longest, rateC the largest, {how}",
        )
    unused = rows.loc[~rows["selected"].astype(bool)] if len(rows) else rows
    yield from counted("limits: groups not selected", "ignored", len(unused))


def _control(
    frames: dict[str, pd.DataFrame], network: Any, joined: int, remote: int
) -> Iterator[FieldNote]:
    yield from counted("branches of negligible impedance", "read", joined, "join their ends")
    yield from counted(
        "regulators: another bus's voltage",
        "unsupported",
        remote,
        "hold their own bus at its voltage in PowSyBl's load flow",
    )
    gens = frames["generators"]
    fixed = gens["connected"] & ~gens["voltage_regulator_on"].astype(bool)
    yield from counted(
        "generators: voltage regulator off",
        "read",
        int(fixed.sum()),
        "reactive power held at target_q",
    )
    curves = gens["reactive_limits_kind"] == "CURVE"
    yield from counted(
        "generators: reactive capability curve",
        "unsupported",
        int(curves.sum()),
        "its limits at target_p",
    )
    for kind, what in (("phase", "flow or current"), ("ratio", "voltage")):
        changers = frames[f"{kind}_tap_changers"]
        regulating = int(changers["regulating"].astype(bool).sum()) if len(changers) else 0
        yield from counted(
            f"{kind}_tap_changers: regulation of {what}",
            "unsupported",
            regulating,
            "held at the current tap",
        )
    shunts = frames["shunt_compensators"]
    regulating = int(shunts["voltage_regulation_on"].astype(bool).sum()) if len(shunts) else 0
    yield from counted(
        "shunt_compensators: voltage regulation",
        "unsupported",
        regulating,
        "sections stay as they are",
    )
    droop = network.get_extensions("hvdcAngleDroopActivePowerControl")
    emulated = int(droop["enabled"].astype(bool).sum()) if len(droop) else 0
    yield from counted(
        "hvdc_lines: AC emulation",
        "unsupported",
        emulated,
        "active power at its set point",
        left_out=True,
    )
    yield from counted(
        "batteries: power limits", "unsupported", len(frames["batteries"]), "not dispatched"
    )
    yield from counted(
        "dc_nodes and their converters",
        "unsupported",
        len(network.get_dc_nodes()),
        "detailed DC grids are left out",
        left_out=True,
    )


def _ignored(network: Any) -> Iterator[FieldNote]:
    for field, frame in (
        ("busbar_sections", network.get_busbar_sections()),
        ("substations: TSO, geo_tags", network.get_substations()),
    ):
        yield from counted(field, "ignored", len(frame))
    yield FieldNote(
        "generator costs",
        "unsupported",
        len(network.get_generators()),
        "the formats have none: no objective cost",
    )
