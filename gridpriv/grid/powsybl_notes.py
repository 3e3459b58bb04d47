"""The account of a pypowsybl network: what is read, ignored and unsupported."""

from __future__ import annotations

from typing import Any

import pandas as pd

from gridpriv.grid.readreport import FieldNote, known_fields, notes_of

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


def _limits(network: Any) -> dict[str, int]:
    """Return the number of permanent and temporary ratings of each kind, and of those unused."""
    rows = network.get_loading_limits(all_attributes=True).reset_index()
    steady = rows["acceptable_duration"] == -1
    counts = {"unselected": (~rows["selected"].astype(bool)).sum()}
    for kind in LIMITS:
        counts[f"{kind} steady"] = ((rows["type"] == kind) & steady).sum()
        counts[f"{kind} brief"] = ((rows["type"] == kind) & ~steady).sum()
    return counts


def _control(frames: dict[str, pd.DataFrame], network: Any) -> dict[str, int]:
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
