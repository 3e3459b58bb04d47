"""Figures of audits and attacks, and of flow-based domains; local."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from gridpriv.core.text import Json
from gridpriv.grid.layout import network_tables
from gridpriv.report.curves import Chart, Series
from gridpriv.report.figures import PALETTE, Bar, Bars, Plot, set_labels, set_title
from gridpriv.report.network import GridMap

if TYPE_CHECKING:
    from gridpriv.assurance.audit import AuditResult
    from gridpriv.assurance.findings import AttackResult

PRIOR = "prior alone"
REFRESHED = {
    "round": "drawn each round (--noise-schedule round)",
    "run": "drawn once (--noise-schedule once)",
}


def audit_bars(result: AuditResult) -> Bars:
    """Return nominal, certified and measured epsilon of every level."""
    bars = [
        Bar(
            level.level,
            (level.measured.epsilon,),
            note=f"{level.verdict}, {2 * level.measured.runs} runs",
            marks=(level.nominal, level.certified),
        )
        for level in result.levels
    ]
    title = (
        f"{result.prepared.case.name}: bus {result.neighbour.bus}, "
        f"{100 * result.plan.confidence:g} % confidence"
    )
    return Bars(title, "epsilon", bars, ("measured (lower bound)",), ("nominal", "certified"))


def errors_bars(result: AttackResult) -> Bars:
    """Return the mean error per bus of every configuration, against the prior's."""
    table = result.summary()
    names = [f"{row.configuration} ({row.adversary})" for row in table.itertuples()]
    colours = ["#999999", *(PALETTE[a != "messages"] for a in table["adversary"][1:])]
    half = table["interval_mw"].astype(float).fillna(0.0)
    bars = [
        Bar(name, (mw,), h, f"{100 * share:.0f} % recovered", colour=colour)
        for name, mw, h, share, colour in zip(
            [PRIOR, *names[1:]], table["mae_mw"], half, table["recovered"], colours, strict=True
        )
    ]
    return Bars(
        f"{result.prepared.case.name}: demand reconstruction",
        "mean absolute error of a bus's active demand (MW); intervals: 95 % over seeds",
        bars,
        line=float(table["mae_mw"].iloc[0]),
        line_name=PRIOR,
    )


def epsilon_chart(result: AttackResult) -> Chart:
    """Return error against total epsilon, with the prior's and that without noise."""
    table = result.summary()
    swept = table[table["configuration"].str.startswith("total ")]
    silent = table[(table["configuration"] == "noise-free") & (table["adversary"] == "messages")]
    series = [
        _curve(f"reads {reads}", rows["epsilon"], rows["mae_mw"], rows["interval_mw"])
        for reads, rows in swept.groupby("adversary", sort=False)
    ]
    levels = {PRIOR: table["mae_mw"].iloc[0], "messages without noise": silent["mae_mw"].iloc[0]}
    title = f"{result.prepared.case.name}: error against budget; intervals: 95 % over seeds"
    return _chart(title, "total epsilon of the run", series, levels)


def averaging_chart(table: pd.DataFrame, prior_mw: float, title: str) -> Chart:
    """Return error against rounds heard, for noise drawn each round and drawn once."""
    series = []
    for noise_schedule, label in REFRESHED.items():
        rows = table[table["noise_schedule"] == noise_schedule].groupby("rounds")["mae_mw"]
        mean, half = rows.mean(), 1.96 * rows.std().fillna(0.0) / np.sqrt(rows.count())
        series.append(_curve(label, mean.index, mean, half))
    return _chart(title, "rounds heard", series, {PRIOR: prior_mw})


def error_map(result: AttackResult, label: str | None = None) -> GridMap:
    """Return the grid with each attacked bus's error over the prior's: dark is worst protected."""
    case, zoning = result.prepared.case, result.prepared.zoning
    outcomes = [o for o in result.outcomes if o.adversary == "messages" and o.label == label]
    wanted = [*outcomes, result.shown][0]
    gain = result.errors(wanted).mean(axis=0) / np.maximum(result.prior_errors, 0.05)
    shades = dict(zip(case.bus_id[result.attacked].tolist(), gain.tolist(), strict=True))
    return GridMap(
        f"{case.name}: demand read from messages, {wanted.label}",
        *network_tables(case, zoning),
        values=shades,
        limits=(0.0, 1.0),
        value_label="error / error of the prior (0: known, 1: no better than the prior)",
    )


def _curve(name: str, across: ArrayLike, mean: ArrayLike, half: ArrayLike) -> Series:
    x, y, h = (np.asarray(v, dtype=float) for v in (across, mean, half))
    h = np.nan_to_num(h)
    return Series(name, tuple(x), tuple(y), tuple(y - h), tuple(y + h))


def _chart(title: str, x_label: str, curves: list[Series], levels: dict[str, float]) -> Chart:
    series = (*curves, *(Series(n, (), (float(v),), flat=True) for n, v in levels.items()))
    return Chart(
        title,
        x_label,
        "mean error of a bus (MW)",
        series,
        "MW",
        x_log=True,
        bars=True,
        size=(6.4, 4.0),
    )


SIZE = (5.2, 4.6)
"""Inches."""


@dataclass(frozen=True)
class DomainFigure(Plot):
    """The domain of an ``exchange --json`` document in the net positions of two zones."""

    document: Json
    size: tuple[float, float] = SIZE

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

    def draw(self, axes: Axes, *, legend: bool) -> None:  # noqa: ARG002
        """Draw the domain and the scheduled net positions on axes; they need no legend."""
        domain = self.document["domain"]
        position = {row["zone"]: row["net_position_mw"] for row in self.document["zones"]}
        corners = [(corner["first_mw"], corner["second_mw"]) for corner in domain["corners"]]
        names = domain["first_zone"], domain["second_zone"]
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
