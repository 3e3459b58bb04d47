"""Figure of a flow-based domain: net positions of two zones that no branch's rating forbids."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes

from gridpriv.core.text import Json
from gridpriv.report.figures import PALETTE, set_labels, set_title, styled_axes

SIZE = (5.2, 4.6)
"""Inches."""


@dataclass(frozen=True)
class DomainFigure:
    """The domain of an ``exchange --json`` document in the net positions of two zones."""

    document: Json

    @property
    def title(self) -> str:
        """Title of the figure."""
        return f"{self.document['case']}: flow-based domain"

    @property
    def alt(self) -> str:
        """The figure in words."""
        domain = self.document["domain"]
        places = (f"({c['first_mw']:.4g}, {c['second_mw']:.4g})" for c in domain["corners"])
        zones = f"{domain['first_zone']} and {domain['second_zone']}"
        return f"{self.title} of zones {zones}: {', '.join(places)} MW"

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return SIZE

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the domain and the scheduled net positions on axes; return them."""
        domain = self.document["domain"]
        position = {row["zone"]: row["net_position_mw"] for row in self.document["zones"]}
        corners = [(corner["first_mw"], corner["second_mw"]) for corner in domain["corners"]]
        names = domain["first_zone"], domain["second_zone"]
        with styled_axes(ax, self.size) as axes:
            if corners:
                axes.fill(*zip(*corners, strict=True), color=PALETTE[0], alpha=0.25)
                axes.plot(*zip(*corners, corners[0], strict=True), color=PALETTE[0], lw=1.2)
            axes.plot(position[names[0]], position[names[1]], "o", color=PALETTE[1])
            axes.annotate(
                "scheduled",
                (position[names[0]], position[names[1]]),
                (6, 4),
                textcoords="offset points",
                fontsize=9,
            )
            axes.axhline(0.0, color="#BBBBBB", lw=0.6, zorder=0)
            axes.axvline(0.0, color="#BBBBBB", lw=0.6, zorder=0)
            set_labels(
                axes,
                f"net position of zone {names[0]} (MW)",
                f"net position of zone {names[1]} (MW)",
            )
            set_title(
                axes,
                self.title,
                f"zone {domain['balancing_zone']} balances, other zones as scheduled",
            )
        return axes
