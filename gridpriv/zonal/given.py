"""Names, numbers and texts in place of a Case, a Zoning and Settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gridpriv.core.errors import InputError, not_allowed, one_of
from gridpriv.core.settings import check_names, names
from gridpriv.grid.case import Case
from gridpriv.grid.library import load_case, zoning_of
from gridpriv.grid.zoning import Zoning, read_zoning
from gridpriv.zonal.settings import Settings, make_settings

Zones = Zoning | int | str | Path | None
"""A zone map, a number of zones, ``METHOD:K``, a CSV file, or None for the shipped map."""


def case_of(case: Case | str | Path) -> Case:
    """Return a case, loaded where a name or a path is given."""
    return case if isinstance(case, Case) else load_case(str(case))


def zoning_for(case: Case, zones: Zones) -> Zoning:
    """Return the zone map that is given, read, computed, or shipped with the case.

    Raises
    ------
    InputError
        For another text, or where no map is given and none is shipped.
    """
    if isinstance(zones, Zoning):
        return zones
    if isinstance(zones, Path) or (isinstance(zones, str) and zones.endswith(".csv")):
        return read_zoning(zones, case)
    method, _, count = str("" if zones is None else zones).rpartition(":")
    if method:
        from gridpriv.grid.partition import METHODS  # imports networkx: slow

        one_of("zones: method", method, METHODS)
    if count and not count.isdigit():
        raise not_allowed("zones", zones, "K, METHOD:K, or a CSV file with columns bus,zone")
    zoning = zoning_of(case, int(count) if count else None, method or None)
    if zoning is None:
        raise InputError(
            f"Case {case.name} has no shipped zone map. Give zones=K, zones='METHOD:K' or "
            "zones='FILE.csv'."
        )
    return zoning


def settings_from(settings: Settings | None, given: dict[str, Any]) -> Settings:
    """Return settings, those given by name over them; a number as budget is a total epsilon."""
    check_names(given, ("preset", *names(Settings)))
    budget = given.get("budget")
    if isinstance(budget, int | float) and not isinstance(budget, bool):
        given = given | {"budget": f"total:{budget:g}"}
    if settings is None:
        return make_settings(**given)
    own = {name: getattr(settings, name) for name in names(Settings)}
    return make_settings(**own | given)
