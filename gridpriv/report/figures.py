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


# column, label with unit, and what it is computed from
ROUNDS = (
    ("consensus_residual", "consensus residual (p.u.)", "released values only"),
    ("objective", "objective (p.u.$^2$)", "from private demand"),
    ("shed_mw", "active shed (MW)", "from private demand"),
)
STEPS = (
    ("demand_mw", "demand (MW)", "from private demand"),
    ("recourse_shed_mw", "shed after recourse (MW)", "from private demand"),
    ("consensus_residual", "consensus residual (p.u.)", "released values only"),
)


def draw_horizon(steps: pd.DataFrame, name: str, path: Path, *, public: bool) -> None:
    """Draw what a table of steps holds: residual (public); demand and shed (local)."""
    title = f"{name}: {len(steps)} steps"
    figure = _panels(STEPS, steps, np.arange(len(steps)), title, log=False)
    last = figure.axes[-1]
    every = max(1, len(steps) // 12)
    last.set_xticks(np.arange(len(steps))[::every], steps["step"].astype(str)[::every])
    last.tick_params(axis="x", rotation=45, labelsize=8)
    last.set_xlabel("step")
    save(figure, path, private=not public)


def draw_convergence(study: Study, path: Path) -> None:
    """Write :func:`convergence_figure` of a run's folder."""
    run = study.runs.iloc[0]
    figure = convergence_figure(study.rounds, f"{run.case}: {run['update']}, {run.scheme}")
    save(figure, path, private=not study.public)


def convergence_figure(rounds: pd.DataFrame, title: str) -> Figure:
    """Return what a table of rounds holds: residual (public), objective and shed (local)."""
    figure = _panels(ROUNDS, rounds, rounds["round"], title, log=True)
    figure.axes[-1].set_xlabel("round")
    return figure


def _panels(
    panels: Sequence[tuple[str, str, str]], table: pd.DataFrame, across: Any, title: str, *,
    log: bool,
) -> Figure:  # fmt: skip
    """Return one panel under the other for every column that the table has."""
    from matplotlib.figure import Figure

    shown = [panel for panel in panels if panel[0] in table]
    figure = Figure(figsize=(8, 2.4 * len(shown)))
    axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for k, (column, label, origin) in enumerate(shown):
        values = pd.to_numeric(table[column])
        look = {"color": PALETTE[k], "marker": ".", "markersize": 3}
        if log:
            axes[k].semilogy(across, values.clip(lower=1e-16), **look)
        else:
            axes[k].plot(across, values, **look)
            axes[k].set_ylim(bottom=0.0)
        axes[k].set_ylabel(label, fontsize=8)
        axes[k].set_title(origin, loc="right", fontsize=8, color="#555555")
        axes[k].grid(alpha=0.3)
    axes[0].set_title(title, loc="left", fontsize=10)
    return figure
