"""Figures of a run: matplotlib, readable in grey and by colour-blind readers."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from gridpriv.grid.case import Case
from gridpriv.grid.zoning import Zoning, bus_graph, tie_lines

if TYPE_CHECKING:
    from gridpriv.result import RunResult

# Okabe and Ito's colour-blind safe palette
PALETTE = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999",
)  # fmt: skip
DPI = 150
LABELLED_BUSES = 150


def save(figure: Any, path: Path) -> None:
    """Write a figure whole or not at all."""
    part = path.with_name(path.name + ".part")
    figure.savefig(part, format=path.suffix.lstrip("."), dpi=DPI, bbox_inches="tight")
    part.replace(path)


def draw_zones(case: Case, zoning: Zoning, path: Path) -> None:
    """Draw buses coloured by zone and tie lines dashed."""
    from matplotlib.figure import Figure

    positions = layout(case, zoning)
    figure = Figure(figsize=(9, 7))
    axes = figure.add_subplot()
    ties = tie_lines(case, zoning)
    for mask, style, width, colour in ((~ties, "-", 0.8, "#888888"), (ties, "--", 1.6, "#000000")):
        for f, t in zip(case.f_bus[mask], case.t_bus[mask], strict=True):
            ends = positions[[f, t]]
            axes.plot(ends[:, 0], ends[:, 1], style, color=colour, linewidth=width, zorder=1)
    size = max(10.0, min(220.0, 26000.0 / case.n_bus))
    for z, buses in enumerate(zoning.members):
        axes.scatter(
            positions[buses, 0], positions[buses, 1], s=size, color=PALETTE[z % len(PALETTE)],
            marker="osD^vP*X"[(z // len(PALETTE)) % 8], edgecolor="black", linewidth=0.4, zorder=2,
            label=f"zone {zoning.names[z]} ({len(buses)} buses)" if zoning.n_zone <= 12 else None,
        )  # fmt: skip
    if case.n_bus <= LABELLED_BUSES:
        for bus, (x, y) in zip(case.bus_id, positions, strict=True):
            axes.annotate(str(bus), (x, y), ha="center", va="center", fontsize=6, zorder=3)
    axes.plot([], [], "k--", linewidth=1.6, label=f"tie line ({int(ties.sum())})")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=4, frameon=False)
    axes.set_title(f"{case.name}: zones ({zoning.source})")
    axes.set_axis_off()
    save(figure, path)


@lru_cache(maxsize=8)
def layout(case: Case, zoning: Zoning) -> Any:
    """Return a stable position per bus, shape (n, 2): zones apart, neighbours together."""
    graph = bus_graph(case)
    for f, t in graph.edges:
        graph[f][t]["pull"] = 1.0 if zoning.zone_of[f] == zoning.zone_of[t] else 0.3
    if case.n_bus <= 500:
        first = nx.kamada_kawai_layout(graph, weight=None)
    else:
        first = nx.spring_layout(graph, weight="pull", seed=7, iterations=60)
    return np.array([first[i] for i in range(case.n_bus)])


def draw_convergence(result: RunResult, path: Path, *, public: bool) -> None:
    """Draw residual (public) and, unless ``public``, objective and shed against rounds."""
    from matplotlib.figure import Figure

    rounds = result.rounds
    shown = [("consensus_residual", "consensus residual (p.u.)", "released values only")]
    if not public:
        shown += [
            ("objective", "objective (p.u.$^2$)", "from private demand"),
            ("shed_mw", "active shed (MW)", "from private demand"),
        ]
    figure = Figure(figsize=(8, 2.4 * len(shown)))
    axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for k, (column, label, origin) in enumerate(shown):
        values = rounds[column].clip(lower=1e-16)
        axes[k].semilogy(rounds["round"], values, color=PALETTE[k], marker=".", markersize=3)
        axes[k].set_ylabel(label)
        axes[k].set_title(origin, loc="right", fontsize=8, color="#555555")
        axes[k].grid(alpha=0.3)
    axes[-1].set_xlabel("round")
    settings = result.settings
    axes[0].set_title(
        f"{result.case.name}: {settings.update}, mechanism {settings.mechanism}",
        loc="left", fontsize=10,
    )  # fmt: skip
    save(figure, path)
