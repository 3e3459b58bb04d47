"""Settings of a contingency analysis: outages, ratings, and the demand that is known."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from gridpriv.core.errors import InputError, not_allowed, not_negative, one_of
from gridpriv.core.settings import Part, choice, number, words
from gridpriv.grid.contingencies import RATINGS, Rating

FlowModel = Literal["dc", "ac"]
SHARED, LOCAL, ZONE = "shared", "local", "zone:"


def check_view(view: str) -> None:
    """Refuse a text that names no view."""
    if view not in (SHARED, LOCAL) and not (view.startswith(ZONE) and len(view) > len(ZONE)):
        raise not_allowed("view", view, f"{SHARED}, {LOCAL} or {ZONE}NAME")


def viewing_zone(view: str) -> str | None:
    """Return the zone whose true demand a view takes; None for the other views."""
    return view.removeprefix(ZONE) if view.startswith(ZONE) else None


def check_view_of(view: str, zones: Collection[str], perturbed: str) -> None:
    """Refuse a view that a run does not have.

    Parameters
    ----------
    zones : collection of str
        Names of the run's zones.
    perturbed : str
        Target of the run's noise: none, demand, objective or output.
    """
    check_view(view)
    zone = viewing_zone(view)
    if zone is not None:
        one_of("zone", zone, zones)
    if view != LOCAL and perturbed not in ("none", "demand"):
        raise InputError(
            f"view = {view!r} needs released demand, but this run perturbs {perturbed!r}. Give "
            f"--perturbation demand or --view {LOCAL}."
        )


@dataclass(frozen=True, kw_only=True)
class FlowBased(Part):
    """The demand on which exchange between zones is analysed, and the power flow of its PTDFs."""

    view: str = words(
        SHARED,
        "demand: shared (as released) | local (true) | zone:NAME (true in this zone, as released "
        "in the others)",
        "VIEW",
        check_view,
    )
    ptdf: FlowModel = choice("dc", ("dc", "ac"), "power flow of the PTDFs")
    threshold: float = number(
        5.0, "least zone-to-zone PTDF of a listed branch", not_negative, unit="%"
    )


@dataclass(frozen=True, kw_only=True)
class Security(Part):
    """Outages, the demand that they are analysed on, and ratings after them."""

    contingencies: str = words(
        "all", "outages: branches | generators | all | FILE.csv with columns name,outage", "LIST"
    )
    view: str = words(
        SHARED,
        "demand: shared (as released) | local (true) | zone:NAME (true in this zone, as released "
        "in the others)",
        "VIEW",
        check_view,
    )
    rating: Rating = choice("C", RATINGS, "branch rating after an outage, as MATPOWER's rateA to C")
    screen: float = number(
        0.0,
        "loading by the DC estimate below which an outage gets no AC power flow",
        not_negative,
        unit="%",
    )
