"""Pictures of audits and attacks; local."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gridpriv.drawing import Drawing, draw_network
from gridpriv.drawing.bars import Bar, draw_bars, key
from gridpriv.drawing.chart import PALETTE, Chart, Series, described, stacked, styles
from gridpriv.grid.layout import network_tables

if TYPE_CHECKING:
    from gridpriv.assurance.audit import AuditResult
    from gridpriv.assurance.findings import AttackResult

PRIOR = "prior alone"
REFRESHED = {"round": "drawn each round (--refresh round)", "run": "drawn once (--refresh run)"}


def audit_picture(result: AuditResult) -> Drawing:
    """Return claimed, certified and measured epsilon of every level."""
    bars = [
        Bar(level.level, level.measured.epsilon, point=level.claimed, level=level.certified,
            note=f"{level.verdict}, {2 * level.measured.runs} runs")
        for level in result.levels
    ]  # fmt: skip
    title = (
        f"{result.prepared.case.name}: bus {result.neighbour.bus}, "
        f"{100 * result.plan.confidence:g} % confidence"
    )
    keys = (
        key("measured (lower bound)", bar=True), key("claimed", point=True),
        key("certified", level=True),
    )  # fmt: skip
    return draw_bars(title, "epsilon", bars, keys)


def errors_picture(result: AttackResult) -> Drawing:
    """Return the mean error per bus of every configuration, against the prior's."""
    table = result.summary()
    names = [f"{row.configuration} ({row.adversary})" for row in table.itertuples()]
    colours = ["#999999", *(PALETTE[a != "messages"] for a in table["adversary"][1:])]
    half = table["interval_mw"].astype(float).fillna(0.0)
    bars = [
        Bar(name, mw, half=h, note=f"{100 * share:.0f} % recovered", colour=colour)
        for name, mw, h, share, colour in zip(
            [PRIOR, *names[1:]], table["mae_mw"], half, table["recovered"], colours, strict=True
        )
    ]
    return draw_bars(
        f"{result.prepared.case.name}: demand reconstruction",
        "mean absolute error of a bus's active demand (MW); intervals: 95 % over seeds",
        bars, line=float(table["mae_mw"].iloc[0]),
    )  # fmt: skip


def epsilon_picture(result: AttackResult) -> str:
    """Return error against total epsilon, with the prior's and that without noise, as SVG."""
    table = result.summary()
    swept = table[table["configuration"].str.startswith("total ")]
    silent = table[(table["configuration"] == "no noise") & (table["adversary"] == "messages")]
    series = [
        _curve(f"reads {reads}", rows["epsilon"], rows["mae_mw"], rows["interval_mw"])
        for reads, rows in swept.groupby("adversary", sort=False)
    ]
    levels = {PRIOR: table["mae_mw"].iloc[0], "messages without noise": silent["mae_mw"].iloc[0]}
    title = f"{result.prepared.case.name}: error against budget; bands: 95 % over seeds"
    return _chart(title, "total epsilon of the run", series, levels, "linear")


def averaging_picture(table: pd.DataFrame, prior_mw: float, title: str) -> str:
    """Return error against rounds heard, for noise drawn each round and drawn once, as SVG."""
    series = []
    for refresh, label in REFRESHED.items():
        rows = table[table["refresh"] == refresh].groupby("rounds")["mae_mw"]
        mean, half = rows.mean(), 1.96 * rows.std().fillna(0.0) / np.sqrt(rows.count())
        series.append(_curve(label, mean.index, mean, half))
    return _chart(title, "rounds heard", series, {PRIOR: prior_mw}, "log")


def map_picture(result: AttackResult, label: str | None = None) -> Drawing:
    """Return the grid with each attacked bus's error over the prior's: dark is worst protected."""
    case, zoning = result.prepared.case, result.prepared.zoning
    outcomes = [o for o in result.outcomes if o.adversary == "messages" and o.label == label]
    wanted = [*outcomes, result.shown][0]
    gain = result.errors(wanted).mean(axis=0) / np.maximum(result.prior_errors, 0.05)
    shades = dict(zip(case.bus_id[result.attacked].tolist(), gain.tolist(), strict=True))
    return draw_network(
        f"{case.name}: what messages give away, {wanted.label}",
        *network_tables(case, zoning),
        shades=shades, note="error over the prior's error (0: known, 1: no better than the prior)",
    )  # fmt: skip


def _curve(name: str, across: ArrayLike, mean: ArrayLike, half: ArrayLike) -> Series:
    x, y, h = (np.asarray(v, dtype=float) for v in (across, mean, half))
    h = np.nan_to_num(h)
    return Series(name, tuple(x), tuple(y), tuple(y - h), tuple(y + h))


def _chart(
    title: str, x_label: str, curves: list[Series], levels: dict[str, float], scale: str
) -> str:
    series = (*curves, *(Series(n, (), (float(v),), flat=True) for n, v in levels.items()))
    chart = Chart(
        "attack", title, x_label, "mean error of a bus (MW)", series,
        described(title, series, "MW"), x_log=True, width=600, height=360,
        styles=styles([one.name for one in series]),
    )  # fmt: skip
    return stacked([chart], scale, flat=tuple(levels))
