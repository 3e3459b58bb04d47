"""Figures of audits and attacks: matplotlib, readable in grey and by colour-blind readers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gridpriv.grid.layout import bus_positions
from gridpriv.grid.zoning import tie_lines
from gridpriv.report.figures import PALETTE, save

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.assurance.audit import AuditResult
    from gridpriv.assurance.findings import AttackResult

MARKERS = "os^Dv"


def draw_audit(result: AuditResult, path: Path) -> None:
    """Draw claimed, certified and measured epsilon of every level."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 1.2 + 0.8 * len(result.levels)))
    axes = figure.add_subplot()
    for row, level in enumerate(result.levels):
        axes.plot([0, level.measured.epsilon], [row, row], color=PALETTE[0], linewidth=7, zorder=1)
        axes.plot(level.claimed, row, "D", color=PALETTE[1], markersize=9, zorder=3)
        axes.plot(level.certified, row, "|", color="black", markersize=26, markeredgewidth=3)
        note = f"{level.verdict}, {2 * level.measured.runs} runs"
        axes.annotate(note, (0, row), (2, 13), textcoords="offset points", fontsize=8)
    axes.plot([], [], color=PALETTE[0], linewidth=7, label="measured (lower bound)")
    axes.plot([], [], "D", color=PALETTE[1], markersize=9, linestyle="none", label="claimed")
    axes.plot([], [], "|", color="black", markersize=14, markeredgewidth=3, label="certified",
              linestyle="none")  # fmt: skip
    axes.set_yticks(range(len(result.levels)), [level.level for level in result.levels])
    axes.set_ylim(-0.6, len(result.levels) - 0.3)
    axes.set_xlim(left=0.0)
    axes.set_xlabel("epsilon")
    axes.set_title(
        f"{result.prepared.case.name}: bus {result.neighbour.bus}, "
        f"{100 * result.plan.confidence:g} % confidence", loc="left", fontsize=10,
    )  # fmt: skip
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=3, frameon=False)
    axes.grid(axis="x", alpha=0.3)
    save(figure, path, private=True)


def draw_errors(result: AttackResult, path: Path) -> None:
    """Draw the mean error per bus of every configuration, against the prior's."""
    from matplotlib.figure import Figure

    table = result.summary()
    figure = Figure(figsize=(8, 0.9 + 0.42 * len(table)))
    axes = figure.add_subplot()
    names = [f"{row.configuration} ({row.adversary})" for row in table.itertuples()]
    names[0] = "public prior alone"
    error = table["interval_mw"].astype(float).fillna(0.0)
    colours = ["#999999"] + [PALETTE[0] if a == "messages" else PALETTE[1]
                             for a in table["adversary"][1:]]  # fmt: skip
    axes.barh(range(len(table)), table["mae_mw"], xerr=error, color=colours, edgecolor="black",
              linewidth=0.4, capsize=3)  # fmt: skip
    axes.axvline(table["mae_mw"].iloc[0], color="black", linestyle="--", linewidth=1)
    white = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1}
    for row, share in enumerate(table["recovered"]):
        axes.annotate(f"{100 * share:.0f} % recovered", (0, row), (4, -3),
                      textcoords="offset points", fontsize=7, bbox=white)  # fmt: skip
    axes.set_yticks(range(len(table)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("mean absolute error of a bus's active demand (MW); bars: 95 % over seeds")
    axes.set_title(f"{result.prepared.case.name}: demand reconstruction", loc="left", fontsize=10)
    save(figure, path, private=True)


def draw_epsilon(result: AttackResult, path: Path) -> None:
    """Draw error against total epsilon, with the prior's and that without noise."""
    from matplotlib.figure import Figure

    table = result.summary()
    swept = table[table["configuration"].str.startswith("total ")]
    figure = Figure(figsize=(7, 4.2))
    axes = figure.add_subplot()
    for k, (reads, rows) in enumerate(swept.groupby("adversary", sort=False)):
        half = rows["interval_mw"].astype(float).fillna(0.0)
        axes.errorbar(rows["epsilon"].astype(float), rows["mae_mw"], yerr=half, marker=MARKERS[k],
                      color=PALETTE[k], linestyle=("-", "--", ":")[k % 3], capsize=3,
                      label=f"reads {reads}")  # fmt: skip
    axes.axhline(table["mae_mw"].iloc[0], color="black", linestyle="--", linewidth=1,
                 label="public prior alone")  # fmt: skip
    silent = table[(table["configuration"] == "no noise") & (table["adversary"] == "messages")]
    axes.axhline(float(silent["mae_mw"].iloc[0]), color="#888888", linestyle=":", linewidth=1.5,
                 label="messages without noise")  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("total epsilon of the run")
    axes.set_ylabel("mean error of a bus (MW)")
    axes.set_title(f"{result.prepared.case.name}: error against budget; bars: 95 % over seeds",
                   loc="left", fontsize=10)  # fmt: skip
    axes.grid(alpha=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)
    save(figure, path, private=True)


def draw_map(result: AttackResult, path: Path, label: str | None = None) -> None:
    """Draw the grid with each attacked bus's error over the prior's: dark is worst protected."""
    from matplotlib.figure import Figure

    case, zoning = result.prepared.case, result.prepared.zoning
    outcomes = [o for o in result.outcomes if o.adversary == "messages" and o.label == label]
    wanted = [*outcomes, result.shown]
    gain = np.full(case.n_bus, np.nan)
    errors = result.errors(wanted[0]).mean(axis=0)
    gain[result.attacked] = errors / np.maximum(result.prior_errors, 0.05)
    positions, ties = bus_positions(case, zoning), tie_lines(case, zoning)
    figure = Figure(figsize=(9, 7))
    axes = figure.add_subplot()
    for mask, style, width in ((~ties, "-", 0.8), (ties, "--", 1.6)):
        for f, t in zip(case.f_bus[mask], case.t_bus[mask], strict=True):
            ends = positions[[f, t]]
            axes.plot(ends[:, 0], ends[:, 1], style, color="#888888", linewidth=width, zorder=1)
    known = np.isfinite(gain)
    size = max(10.0, min(260.0, 26000.0 / case.n_bus))
    dots = axes.scatter(
        positions[known, 0], positions[known, 1], s=size, c=np.clip(gain[known], 0.0, 1.0),
        cmap="cividis", vmin=0.0, vmax=1.0, edgecolor="black", linewidth=0.4, zorder=2,
    )  # fmt: skip
    for bus, (x, y), value in zip(case.bus_id, positions, gain, strict=True):
        if case.n_bus <= 150 and np.isfinite(value):
            colour = "white" if value < 0.5 else "black"
            axes.annotate(str(bus), (x, y), ha="center", va="center", fontsize=6, color=colour)
    bar = figure.colorbar(dots, ax=axes, shrink=0.7)
    bar.set_label("error over the prior's error (0: known, 1: no better than the prior)")
    axes.set_title(f"{case.name}: what messages give away, {wanted[0].label}", loc="left")
    axes.set_axis_off()
    save(figure, path, private=True)


def draw_averaging(table: pd.DataFrame, path: Path, prior_mw: float, title: str) -> None:
    """Draw error against rounds heard, for noise drawn each round and drawn once."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2))
    axes = figure.add_subplot()
    names = {"round": "drawn each round (--refresh round)", "run": "drawn once (--refresh run)"}
    for k, (refresh, label) in enumerate(names.items()):
        rows = table[table["refresh"] == refresh].groupby("rounds")["mae_mw"]
        mean, half = rows.mean(), 1.96 * rows.std().fillna(0.0) / np.sqrt(rows.count())
        axes.errorbar(mean.index, mean, yerr=half, marker=MARKERS[k], color=PALETTE[k],
                      linestyle="-" if k == 0 else "--", capsize=3, label=label)  # fmt: skip
    axes.axhline(prior_mw, color="black", linewidth=1, linestyle=":", label="public prior alone")
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = sorted(table["rounds"].unique())
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.minorticks_off()
    axes.set_xlabel("rounds heard")
    axes.set_ylabel("mean error of a bus (MW)")
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save(figure, path, private=True)
