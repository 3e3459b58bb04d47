"""The report as PDF, typeset by Typst (the ``typst`` wheel; no other program)."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from gridpriv.core.text import slug
from gridpriv.drawing import to_svg
from gridpriv.drawing.chart import Chart, render, swatch
from gridpriv.drawing.files import typst_string
from gridpriv.report.document import Report
from gridpriv.report.sections import Section
from gridpriv.report.tables import Table, shown

PREAMBLE = """
#set document(title: {title}, date: none)
#set page(
  paper: "a4", margin: (x: 1.7cm, y: 1.8cm), numbering: "1 / 1",
  header: align(right, text(size: 7.5pt, fill: luma(90), {caveat})),
)
#set text(size: 9.5pt)
#set par(leading: 0.6em)
#show heading.where(level: 1): set block(above: 1.6em, below: 0.7em)
#show heading.where(level: 2): set block(above: 1.1em, below: 0.5em)
#set table(stroke: none, inset: (x: 3pt, y: 2.2pt))
#show table: set text(size: 6.8pt)
#show table: set par(leading: 0.45em)
#show figure: set block(breakable: true)
"""
LINE = 145
"""Characters of a table's text that a page is wide enough for."""
GAP = 2
"""Characters that the space between two columns takes."""
LONG = 34
"""Characters from which on a text wraps."""
INTERVAL = ("_low", "_high")
"""Ends of the names of a 95 % interval's ends."""


def to_pdf(report: Report) -> bytes:
    """Return the PDF."""
    import typst

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        source = place / "report.typ"
        source.write_text(_source(report, place), encoding="utf-8")
        return bytes(typst.compile(str(source)))


def _source(report: Report, place: Path) -> str:
    answer = " \\\n".join(_text(line) for line in report.answer)
    parts = [
        PREAMBLE.replace("{caveat}", typst_string(report.caveat)).replace(
            "{title}", typst_string(report.title)
        ),
        f'#text(size: 17pt, weight: "bold")[{_text(report.title)}]\n',
        f"#text(size: 11pt, fill: luma(80))[{_text(report.question)}]\n",
        "#block(fill: luma(245), inset: 8pt, width: 100%, "
        f'stroke: (left: 2pt + rgb("#0b5cad")))[{answer}]\n',
    ]
    parts += [_section(report, s, place, n == 0) for n, s in enumerate(report.sections)]
    return "\n".join(parts)


def _section(report: Report, section: Section, place: Path, first: bool) -> str:
    parts = [f"= {_text(section.title)}\n"]
    if section.charts:
        parts.append(_legend(report, place))
    for heading, charts in section.charts:
        if heading:
            parts.append(f"== {_text(heading)}\n")
        columns = 2 if first or len(charts) in (2, 4) else 3
        parts.append(_images([_chart_file(c, place) for c in charts], columns))
    parts += [_text(line) + "\n" for line in section.text]
    if section.maps:
        parts.append(_map_grid(section, place))
    parts += [_table(part) for table in section.tables for part in in_parts(table)]
    return "\n".join(parts)


def _chart_file(chart: Chart, place: Path) -> tuple[str, str]:
    path = place / f"{chart.name}.svg"
    path.write_text(render(chart, "log"), encoding="utf-8")
    return path.name, chart.alt


def _images(files: list[tuple[str, str]], columns: int) -> str:
    cells = ", ".join(
        f"image({typst_string(name)}, width: 100%, alt: {typst_string(alt)})" for name, alt in files
    )
    return f"#grid(columns: {columns}, gutter: 6pt, {cells})\n"


def _legend(report: Report, place: Path) -> str:
    items = []
    for number, (name, style) in enumerate(report.styles.items()):
        path = place / f"swatch-{number}.svg"
        path.write_text(swatch(style, flat=name in report.flat), encoding="utf-8")
        items.append(
            f'#box[#box(baseline: 1pt, image("{path.name}", height: 7pt)) {_text(name)}] #h(8pt)'
        )
    return "#block(sticky: true, text(size: 8pt)[" + " ".join(items) + "])\n"


def _map_grid(section: Section, place: Path) -> str:
    cells = []
    for drawing in section.maps:
        path = place / f"{slug(drawing.title)}.svg"
        path.write_text(to_svg(drawing), encoding="utf-8")
        cells.append(f'[#image("{path.name}", width: 100%)]')
    return f"#grid(columns: 2, gutter: 8pt, {', '.join(cells)})\n"


def in_parts(table: Table) -> list[Table]:
    """Return a table in parts that a page is wide enough for, each with what its rows are about.

    The ends of an interval stay with their mean.
    """
    widths, parts = _widths(table), [list(range(table.keys))]
    for group in _inseparable(table):
        full = sum(widths[k] for k in parts[-1] + group) > LINE
        if full and len(parts[-1]) > table.keys:
            parts.append(list(range(table.keys)))
        parts[-1] += group
    return [
        replace(
            table,
            caption=f"{table.caption}, continued" if n else table.caption,
            columns=tuple(table.columns[k] for k in part),
            rows=tuple(tuple(row[k] for k in part) for row in table.rows),
        )
        for n, part in enumerate(parts)
    ]


def _inseparable(table: Table) -> list[list[int]]:
    """Return the figures' positions, a mean's with those of its interval's ends."""
    groups: list[list[int]] = []
    for k in range(table.keys, len(table.columns)):
        if table.columns[k].name.endswith(INTERVAL):
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups


def _widths(table: Table) -> list[int]:
    """Return how many characters each column needs: headers of numbers wrap, and long texts do."""
    widths = []
    for k, column in enumerate(table.columns):
        kept = column.header.split() if table.numeric(k) else [column.header]
        cells = [shown(row[k])[:LONG] for row in table.rows]
        widths.append(GAP + max(map(len, [*kept, *cells])))
    return widths


def _table(table: Table) -> str:
    numeric = [table.numeric(k) for k in range(len(table.columns))]
    align = ", ".join("right" if n else "left" for n in numeric)
    # short words keep to one line; numbers and long texts share what is left
    widths = ", ".join(
        f"{w}fr" if n or w >= GAP + LONG else "auto"
        for w, n in zip(_widths(table), numeric, strict=True)
    )
    head = ", ".join(f"[*{' '.join(map(_whole, c.header.split()))}*]" for c in table.columns)
    rows = ",\n".join(", ".join(f"[{_text(shown(v))}]" for v in row) for row in table.rows)
    return (
        f"#block(above: 1em, sticky: true)[*{_text(table.caption)}*]\n"
        f"#table(columns: ({widths},), align: ({align},), table.hline(), table.header({head}, "
        f"table.hline(stroke: 0.5pt)),\n{rows},\ntable.hline())\n"
    )


def _whole(word: str) -> str:
    """Return a word that no line break parts, as one may after the slash of a unit."""
    return f"#box({typst_string(word)})"


def _text(text: str) -> str:
    """Return text as a Typst string in markup, so that nothing in it is read as a command."""
    return f"#{typst_string(text)}"
