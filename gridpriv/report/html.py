"""The report as one HTML file: no network, readable without its script, in print and by ear."""

from __future__ import annotations

import json
import math
from html import escape
from pathlib import Path

from gridpriv.core.text import slug
from gridpriv.drawing import to_svg
from gridpriv.drawing.chart import Chart, render, swatch
from gridpriv.report.document import Report
from gridpriv.report.sections import Section
from gridpriv.report.tables import Table, shown

ASSETS = Path(__file__).parent / "assets"


def to_html(report: Report) -> str:
    """Return the page."""
    css = (ASSETS / "report.css").read_text(encoding="utf-8")
    script = (ASSETS / "report.js").read_text(encoding="utf-8")
    links = "".join(
        f'<li><a href="#{slug(s.title)}">{escape(s.title)}</a></li>' for s in report.sections
    )
    answer = "".join(f"<p>{escape(line)}</p>" for line in report.answer)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(report.title)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the answer</a>\n'
        f"<header><h1>{escape(report.title)}</h1>\n"
        f'<p class="question">{escape(report.question)}</p>'
        "</header>\n"
        f'<main id="main">\n<div class="answer" role="note" aria-label="Answer">{answer}</div>\n'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n'
        + "\n".join(_section(report, s, n == 0) for n, s in enumerate(report.sections))
        + '\n</main>\n<footer>Made by gridpriv. Figures "from private demand" are for the data '
        "owner; a public export leaves them out.</footer>\n"
        '<div id="tip" class="tip" hidden></div>'
        '<div id="live" class="sr" aria-live="polite"></div>\n'
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _section(report: Report, section: Section, first: bool) -> str:
    text = "".join(f"<p>{escape(line)}</p>" for line in section.text)
    charts = "".join(_chart_group(heading, group, first) for heading, group in section.charts)
    tools = _tools(report) if section.charts else ""
    maps = "".join(f"<figure>{to_svg(one)}</figure>" for one in section.maps)
    if maps:
        maps = f'<div class="grid large">{maps}</div>'
    return (
        f'<section id="{slug(section.title)}"><h2>{escape(section.title)}</h2>'
        f"{tools}{charts}{text}{maps}{''.join(map(_table, section.tables))}</section>"
    )


def _tools(report: Report) -> str:
    """Return the legend, whose buttons hide series, and the switch of the vertical scale."""
    buttons = "".join(
        f'<button type="button" data-series="{escape(name)}" aria-pressed="true">'
        f"{swatch(style, flat=name in report.flat)}{escape(name)}</button>"
        for name, style in report.styles.items()
    )
    scale = (
        '<button type="button" class="tools" data-scale="log" aria-pressed="true">'
        "logarithmic scale</button>"
    )
    return (
        f'<div class="legend sticky" role="group" aria-label="Series shown">{buttons}{scale}</div>'
    )


def _chart_group(heading: str, charts: tuple[Chart, ...], large: bool) -> str:
    head = f"<h3>{escape(heading)}</h3>" if heading else ""
    drawn = "".join(f"<figure>{render(c)}{_chart_values(c)}</figure>" for c in charts)
    return f'{head}<div class="grid{" large" if large else ""}">{drawn}</div>'


def _chart_values(chart: Chart) -> str:
    """Return a chart's values for the script, as JSON that no text in it can break out of."""
    unit = chart.y_label.rpartition("(")[2].rstrip(")") if "(" in chart.y_label else ""
    values = {
        "unit": unit,
        "band": "95 %" if chart.x_log else "seeds",
        "x": "total epsilon" if chart.x_log else chart.x_label,
        "series": [
            {"name": s.name, "x": _short(s.x), "y": _short(s.y)}
            | ({"low": _short(s.low), "high": _short(s.high)} if s.low else {})
            for s in chart.series
        ],
    }
    text = json.dumps(values, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="data-{chart.name}">{text}</script>'


def _short(values: tuple[float, ...]) -> list[float | None]:
    return [float(f"{v:.5g}") if math.isfinite(v) else None for v in values]


def _table(table: Table) -> str:
    numeric = [table.numeric(k) for k in range(len(table.columns))]
    head = "".join(
        f'<th scope="col"{" class=n" if n else ""}>'
        f'<button type="button">{escape(c.header)}</button></th>'
        for c, n in zip(table.columns, numeric, strict=True)
    )
    rows = "".join(
        "<tr>" + "".join(_cell(v, n) for v, n in zip(row, numeric, strict=True)) + "</tr>"
        for row in table.rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.caption)}">'
        f"<table><caption>{escape(table.caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cell(value: object, numeric: bool) -> str:
    if not numeric:
        text = shown(value)
        return f"<td{' class=w' if len(text) < 34 else ''}>{escape(text)}</td>"
    exact = "" if value is None else repr(value)
    return f'<td class=n data-v="{exact}">{escape(shown(value))}</td>'
