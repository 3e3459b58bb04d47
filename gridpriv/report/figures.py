"""Figures of a run: matplotlib, readable in grey and by colour-blind readers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gridpriv.core.files import beside
from gridpriv.core.store import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colour-blind safe palette
PALETTE = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999",
)  # fmt: skip
DPI = 150


def save(figure: Any, path: Path, *, private: bool = True) -> None:
    """Write a figure whole or not at all."""
    with beside(path, private=private) as file:
        figure.savefig(file, format=path.suffix.lstrip("."), dpi=DPI, bbox_inches="tight")


def legend_below(figure: Any, axes: Any, columns: int = 4, title: str | None = None) -> None:
    """Put the legend of one of a figure's axes under all of them, where it covers no data.

    The figure needs the constrained layout.
    """
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(columns, len(labels)),
        fontsize=9, frameon=False, title=title,
    )  # fmt: skip


def plain_numbers(axis: Any, ticks: Sequence[float] | None = None) -> None:
    """Label a logarithmic axis of few decades by numbers instead of powers of ten.

    Parameters
    ----------
    axis : matplotlib.axis.Axis
    ticks : sequence of float, optional
        Where; default 1, 2 and 5 times powers of ten.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(
        LogLocator(subs=(1.0, 2.0, 5.0)) if ticks is None else FixedLocator(list(ticks))
    )
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def draw_horizon(steps: pd.DataFrame, name: str, path: Path, *, public: bool) -> None:
    """Draw what a table of steps holds: residual (public); demand and shed (local)."""
    from matplotlib.figure import Figure

    panels = [
        ("demand_mw", "demand (MW)", "from private demand"),
        ("recourse_shed_mw", "shed after recourse (MW)", "from private demand"),
        ("consensus_residual", "consensus residual (p.u.)", "released values only"),
    ]
    shown = [panel for panel in panels if panel[0] in steps]
    figure = Figure(figsize=(8, 2.4 * len(shown)))
    axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for k, (column, label, origin) in enumerate(shown):
        values = pd.to_numeric(steps[column])
        axes[k].plot(np.arange(len(steps)), values, color=PALETTE[k], marker=".", markersize=3)
        axes[k].set_ylabel(label, fontsize=8)
        axes[k].set_title(origin, loc="right", fontsize=8, color="#555555")
        axes[k].set_ylim(bottom=0.0)
        axes[k].grid(alpha=0.3)
    every = max(1, len(steps) // 12)
    axes[-1].set_xticks(np.arange(len(steps))[::every], steps["step"].astype(str)[::every])
    axes[-1].tick_params(axis="x", rotation=45, labelsize=8)
    axes[-1].set_xlabel("step")
    axes[0].set_title(f"{name}: {len(steps)} steps", loc="left", fontsize=10)
    save(figure, path, private=not public)


def draw_convergence(study: Study, path: Path) -> None:
    """Write :func:`convergence_figure` of a run's folder."""
    run = study.runs.iloc[0]
    figure = convergence_figure(study.rounds, f"{run.case}: {run['update']}, {run.scheme}")
    save(figure, path, private=not study.public)


def convergence_figure(rounds: pd.DataFrame, title: str) -> Figure:
    """Return what a table of rounds holds: residual (public), objective and shed (local)."""
    from matplotlib.figure import Figure

    panels = [
        ("consensus_residual", "consensus residual (p.u.)", "released values only"),
        ("objective", "objective (p.u.$^2$)", "from private demand"),
        ("shed_mw", "active shed (MW)", "from private demand"),
    ]
    shown = [panel for panel in panels if panel[0] in rounds]
    figure = Figure(figsize=(8, 2.4 * len(shown)))
    axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for k, (column, label, origin) in enumerate(shown):
        values = rounds[column].clip(lower=1e-16)
        axes[k].semilogy(rounds["round"], values, color=PALETTE[k], marker=".", markersize=3)
        axes[k].set_ylabel(label)
        axes[k].set_title(origin, loc="right", fontsize=8, color="#555555")
        axes[k].grid(alpha=0.3)
    axes[-1].set_xlabel("round")
    axes[0].set_title(title, loc="left", fontsize=10)
    return figure
