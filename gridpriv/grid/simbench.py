"""simbench grids by name, and the demand over time that simbench nets carry."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

from gridpriv.core.errors import InputError, missing_extra, not_allowed
from gridpriv.grid.case import Case
from gridpriv.grid.overrides import DemandSeries, series_from_simbench
from gridpriv.grid.pandapower import convert_net
from gridpriv.grid.pandapower_json import Net, open_json
from gridpriv.grid.readreport import ReadReport

PREFIX = "simbench:"
PROFILES = "profiles"


def is_simbench(name: str | Path) -> bool:
    """Test for the name of a simbench grid."""
    return str(name).startswith(PREFIX)


def simbench_net(name: str) -> Net:
    """Return the net of ``simbench:CODE``, such as ``simbench:1-MV-rural--0-sw``."""
    code = name.removeprefix(PREFIX)
    try:
        import simbench
    except ImportError:
        raise missing_extra("simbench", "simbench", "a simbench grid") from None
    if code not in simbench.collect_all_simbench_codes():
        raise not_allowed("simbench code", code, "such as 1-MV-rural--0-sw (see simbench.de)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return simbench.get_simbench_net(code)


def load_simbench(name: str) -> tuple[Case, ReadReport]:
    """Read a simbench grid by name."""
    conversion = convert_net(simbench_net(name), name.removeprefix(PREFIX))
    return conversion.case, replace(conversion.report, source=name, format="simbench net")


def is_profiles(text: str) -> bool:
    """Test for a ``--series`` that names the net's own profiles, not a file."""
    return text == PROFILES or text.startswith(PROFILES + ":")


def profile_series(text: str, name: str, case: Case) -> DemandSeries:
    """Return the demand of ``profiles[:FIRST,STEPS]`` of the net that a case was read from.

    Parameters
    ----------
    text : str
        FIRST counts from 0; simbench's steps are quarters of an hour, the default is the whole
        year: ``profiles:0,96`` is the first of January.
    name : str
        Of the case: ``simbench:CODE`` or a path to a pandapower JSON file.
    case : Case
        As read from there; its demand may have been overridden.
    """
    net = _net(name)
    conversion = convert_net(net)
    window = _window(text)
    series = series_from_simbench(net, conversion.case, conversion.link.bus, *window)
    # what an override changed stays: only the change over time is the profiles'
    return replace(
        series,
        case=case,
        pd=series.pd - conversion.case.pd + case.pd,
        qd=series.qd - conversion.case.qd + case.qd,
    )


def _net(name: str) -> Net:
    if is_simbench(name):
        return simbench_net(name)
    if Path(name).suffix.lower() == ".json":
        return open_json(Path(name))
    raise InputError(
        f"series = {PROFILES!r} is not allowed for case {name}: profiles are those of a simbench "
        "net (simbench:CODE, or a pandapower .json); name a CSV file"
    )


def _window(text: str) -> tuple[int, int | None]:
    """Return first step and number of steps."""
    _, _, numbers = text.partition(":")
    if not numbers:
        return 0, None
    parts = numbers.split(",")
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() for part in parts):
        raise not_allowed("series", text, f"{PROFILES} or {PROFILES}:FIRST,STEPS in whole numbers")
    return int(parts[0]), int(parts[1])
