"""Draw README's picture: the zones of case39 and the noisy totals that they release.

Run ``python docs/images/make_zones.py`` from the root; it writes ``docs/images/zones.svg``. Needs
the ``cases`` extra. A test compares the numbers in the file with those of today's run.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

import gridpriv
from gridpriv.zonal.security import viewed_case

COLOURS = ("#0072B2", "#D55E00", "#009E73")  # Okabe and Ito, colour-blind safe
PLACES = np.array([(0.17, 0.70), (0.83, 0.70), (0.50, 0.17)])
FILE = Path(__file__).parent / "zones.svg"
SETTINGS = {"beta": "20MW", "budget": "total:1", "seed": 1, "release": "total"}


def released_totals() -> dict[str, tuple[int, float]]:
    """Return the number of buses and the released total (MW) of every zone."""
    case = gridpriv.load_case("case39")
    zones = gridpriv.shipped_zoning(case)
    result = gridpriv.run(case, zones, gridpriv.make_settings(**SETTINGS))
    released = viewed_case(result).pd * case.base_mva
    return {
        zone.name: (len(zone.own), float(released[zone.own].sum())) for zone in result.zone_models
    }


def draw(totals: dict[str, tuple[int, float]]) -> None:
    """Write the picture."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gridpriv", "font.size": 10})
    figure, ax = plt.subplots(figsize=(8.0, 3.9))
    ax.set(xlim=(-0.02, 1.02), ylim=(0, 1))
    ax.axis("off")
    for (name, (buses, total)), place, colour in zip(totals.items(), PLACES, COLOURS, strict=True):
        box = FancyBboxPatch(
            place - (0.16, 0.115),
            0.32,
            0.23,
            boxstyle="round,pad=0.012",
            facecolor=(*mpl.colors.to_rgb(colour), 0.12),
            edgecolor=colour,
            linewidth=1.6,
        )
        ax.add_patch(box)
        ax.text(
            *np.add(place, (0, 0.055)), f"Zone {name}: {buses} buses", ha="center", weight="bold"
        )
        ax.text(*(place - (0, 0.012)), "demand stays in the zone", ha="center", color="#555555")
        ax.text(
            *(place - (0, 0.082)), f"releases {total:,.0f} MW (noisy)", ha="center", color=colour
        )
    for first, second in ((0, 1), (0, 2), (1, 2)):
        ax.add_patch(
            FancyArrowPatch(
                PLACES[first],
                PLACES[second],
                arrowstyle="<->",
                mutation_scale=14,
                shrinkA=92 if 1 in (first, second) and first == 0 else 62,
                shrinkB=92 if 1 in (first, second) and first == 0 else 62,
                color="#555555",
                linewidth=1.3,
            )
        )
    ax.text(0.5, 0.735, "noisy totals", ha="center", color="#333333")
    ax.text(0.5, 0.635, "AC rounds", ha="center", color="#333333")
    ax.text(
        0.5,
        0.97,
        "case39; protected: a change of 20 MW and 20 MVAr at any one bus; total epsilon 1",
        ha="center",
    )
    figure.savefig(FILE, metadata={"Date": None}, bbox_inches="tight")


if __name__ == "__main__":
    draw(released_totals())
