"""The report as PDF, typeset by Typst (the ``typst`` wheel; no other program)."""

from __future__ import annotations

import tempfile
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
    parts += map(_table, section.tables)
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


def _table(table: Table) -> str:
    numeric = [table.numeric(k) for k in range(len(table.columns))]
    align = ", ".join("right" if n else "left" for n in numeric)
    # short words keep to one line; numbers, whose headers wrap, share what is left
    widest = [max(len(shown(cell)) for cell in column) for column in zip(*table.rows, strict=True)]
    widths = ", ".join(
        "1fr" if n else "auto" if w < 34 else "4fr" for w, n in zip(widest, numeric, strict=True)
    )
    head = ", ".join(f"[*{_text(c.header)}*]" for c in table.columns)
    rows = ",\n".join(", ".join(f"[{_text(shown(v))}]" for v in row) for row in table.rows)
    size = "6pt" if len(table.columns) > 10 else "6.8pt"
    return (
        f"#block(above: 1em, sticky: true)[*{_text(table.caption)}*]\n"
        f"#[#set text(size: {size})\n"
        f"#table(columns: ({widths},), align: ({align},), table.hline(), table.header({head}, "
        f"table.hline(stroke: 0.5pt)),\n{rows},\ntable.hline())]\n"
    )


def _text(text: str) -> str:
    """Return text as a Typst string in markup, so that nothing in it is read as a command."""
    return f"#{typst_string(text)}"
