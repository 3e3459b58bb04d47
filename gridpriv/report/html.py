"""The report as one HTML file: no network, readable without its script, in print and by ear."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from gridpriv.core.message import Message
from gridpriv.core.text import slug
from gridpriv.report.curves import Chart
from gridpriv.report.document import Report
from gridpriv.report.figures import swatch, to_svg
from gridpriv.report.sections import Section
from gridpriv.report.tables import Table, in_parts, shown
from gridpriv.report.verdict import Card

LINE = 134
"""Characters of a table's text that a page of 1280 pixels is wide enough for."""
ASSETS = Path(__file__).parent / "assets"


def to_html(report: Report) -> str:
    """Return the page."""
    css = (ASSETS / "report.css").read_text(encoding="utf-8")
    script = (ASSETS / "report.js").read_text(encoding="utf-8")
    links = "".join(
        f'<li><a href="#{slug(s.title)}">{escape(s.title)}</a></li>' for s in report.sections
    )
    cards = "".join(map(_card, report.cards))
    steps = _notes(m for m in report.messages if m.severity == "next")
    warnings = _notes(m for m in report.messages if m.severity == "warning")
    notes = _notes(m for m in report.messages if m.severity == "info")
    first, *rest = report.sections or (None,)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(report.title)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the verdict</a>\n'
        f"<header><h1>{escape(report.title)}</h1>\n"
        f'<p class="question">{escape(report.question)}</p>'
        "</header>\n"
        f'<main id="main">\n<div class="answer" aria-label="Verdict">{cards}{warnings}</div>\n'
        + (_section(first, first=True) if first else "")
        + (f'<section class="next"><h2>What to do next</h2>{steps}</section>\n' if steps else "")
        + (f"<section><h2>About these figures</h2>{notes}</section>\n" if notes else "")
        + f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n'
        + "\n".join(map(_section, rest))
        + '\n</main>\n<footer>Made by gridpriv. Figures "from private demand" are for the data '
        "owner; a public export leaves them out.</footer>\n"
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _card(card: Card) -> str:
    """Return a verdict card: figures with what qualifies each of them."""
    facts = "".join(
        f"<div{f' class={fact.state}' if fact.state else ''}><dt>{escape(fact.label)}</dt>"
        f"<dd>{escape(fact.value)}{f'<small>{escape(fact.note)}</small>' if fact.note else ''}"
        "</dd></div>"
        for fact in card.facts
    )
    return f'<div class="card"><h2>{escape(card.title)}</h2><dl>{facts}</dl></div>'


def _notes(messages: Iterable[Message]) -> str:
    items = "".join(f'<li class="{m.severity}">{escape(str(m))}</li>' for m in messages)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _section(section: Section, *, first: bool = False) -> str:
    notes = _notes(section.notes)
    charts = "".join(_chart_group(heading, group, first) for heading, group in section.charts)
    tools = _tools(section) if section.charts else ""
    figures = "".join(f"<figure>{to_svg(each, 'map')}</figure>" for each in section.figures)
    tables = "".join(_table(part) for table in section.tables for part in in_parts(table, LINE))
    if figures:
        figures = f'<div class="grid maps">{figures}</div>'
    return (
        f'<section id="{slug(section.title)}"><h2>{escape(section.title)}</h2>'
        f"{figures}{tools}{charts}{notes}{tables}</section>"
    )


def _tools(section: Section) -> str:
    """Return the legend, whose buttons hide and show series."""
    buttons = "".join(
        f'<button type="button" data-series="{k}" aria-pressed="true">'
        f"{swatch(look, f'{section.title} {k}')}{escape(name)}</button>"
        for k, (name, look) in enumerate(section.look.items())
    )
    return f'<div class="legend sticky" role="group" aria-label="Series shown">{buttons}</div>'


def _chart_group(heading: str, charts: tuple[Chart, ...], large: bool) -> str:
    head = f"<h3>{escape(heading)}</h3>" if heading else ""
    drawn = "".join(
        f"<figure>{to_svg(chart, 'chart', name, legend=False)}</figure>"
        for chart in charts
        if (name := slug(f"{heading} {chart.title}"))
    )
    return f'{head}<div class="grid{" large" if large else ""}">{drawn}</div>'


def _table(table: Table) -> str:
    numeric = [table.numeric(k) for k in range(len(table.columns))]
    headers = [escape(column.header) for column in table.columns]
    head = "".join(
        f'<th scope="col"{" class=n" if n else ""}><button type="button">{header}</button></th>'
        for header, n in zip(headers, numeric, strict=True)
    )
    rows = "".join(f"<tr>{''.join(map(_cell, row, numeric, headers))}</tr>" for row in table.rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.caption)}">'
        f"<table><caption>{escape(table.caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cell(value: object, numeric: bool, header: str) -> str:
    """Return a cell with its header, which narrow screens show beside it."""
    text = shown(value)
    if not numeric:
        return f'<td{" class=w" if len(text) < 34 else ""} data-h="{header}">{escape(text)}</td>'
    exact = "" if value is None else repr(value)
    return f'<td class=n data-h="{header}" data-v="{exact}">{escape(text)}</td>'
