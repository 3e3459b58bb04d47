"""The report as PDF, typeset by Typst (the ``typst`` wheel; no other program)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from gridpriv.core.message import Message
from gridpriv.core.text import slug
from gridpriv.report.document import Report
from gridpriv.report.figures import Plot, fonts, swatch, to_svg
from gridpriv.report.sections import Section
from gridpriv.report.tables import GAP, LONG, Table, in_parts, shown, widths_of
from gridpriv.report.verdict import Card

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
COLOURS = {
    "": "black",
    "wide": "black",
    "good": 'rgb("#00694d")',
    "warn": 'rgb("#8a5a00")',
    "bad": 'rgb("#a32a0a")',
}


def to_pdf(report: Report) -> bytes:
    """Return the PDF."""
    import typst

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        source = place / "report.typ"
        source.write_text(_source(report, place), encoding="utf-8")
        return bytes(typst.compile(str(source), font_paths=[fonts()]))


def _source(report: Report, place: Path) -> str:
    first, *rest = report.sections or (None,)
    notes = _notes([m for m in report.messages if m.severity == "info"])
    steps = _notes([m for m in report.messages if m.severity == "next"])
    parts = [
        PREAMBLE.replace("{caveat}", typst_string(report.caveat)).replace(
            "{title}", typst_string(report.title)
        ),
        f'#text(size: 17pt, weight: "bold")[{_text(report.title)}]\n',
        f"#text(size: 11pt, fill: luma(80))[{_text(report.question)}]\n",
        *map(_card, report.cards),
        _notes([m for m in report.messages if m.severity == "warning"]),
        _section(first, place) if first else "",
        f"= What to do next\n{steps}" if steps else "",
        f"= About these figures\n{notes}" if notes else "",
    ]
    parts += [_section(section, place) for section in rest]
    return "\n".join(parts)


def _card(card: Card) -> str:
    """Return a verdict card: two facts a line."""
    facts = ", ".join(
        f"[#text(size: 8pt, fill: luma(90))[{_text(fact.label)}] \\ "
        f'#text(weight: "bold", fill: {COLOURS[fact.state]})[{_text(fact.value)}]'
        + (f" \\ #text(size: 8pt, fill: luma(60))[{_text(fact.note)}]" if fact.note else "")
        + "]"
        for fact in card.facts
    )
    return (
        "#block(fill: luma(245), inset: 8pt, width: 100%, breakable: false, "
        f'stroke: (left: 2pt + rgb("#0b5cad")))[*{_text(card.title)}*\n'
        f"#grid(columns: (1fr, 1fr, 1fr), gutter: 8pt, {facts})]\n"
    )


def _notes(messages: Sequence[Message]) -> str:
    """Return messages as a list, warnings in bold."""
    lines = [
        f"- {f'*{_text(str(m))}*' if m.severity == 'warning' else _text(str(m))}" for m in messages
    ]
    return "\n".join(lines) + "\n" if lines else ""


def _section(section: Section, place: Path) -> str:
    parts = [f"= {_text(section.title)}\n"]
    if section.figures:
        parts.append(_images(section.figures, place, f"{slug(section.title)}-figure"))
    if section.charts:
        parts.append(_legend(section, place))
    for number, (heading, charts) in enumerate(section.charts):
        if heading:
            parts.append(f"== {_text(heading)}\n")
        parts.append(_images(charts, place, f"{slug(section.title)}-{number}", legend=False))
    parts.append(_notes(section.notes))
    parts += [_table(part) for table in section.tables for part in in_parts(table, LINE)]
    return "\n".join(parts)


def _images(plots: Sequence[Plot], place: Path, name: str, *, legend: bool = True) -> str:
    cells, width = [], "100%" if len(plots) > 1 else "68%"
    for k, plot in enumerate(plots):
        path = place / f"{name}-{k}.svg"
        path.write_text(to_svg(plot, "figure", legend=legend), encoding="utf-8")
        cells.append(
            f"image({typst_string(path.name)}, width: {width}, alt: {typst_string(plot.alt)})"
        )
    return f"#grid(columns: {min(len(cells), 2)}, gutter: 8pt, {', '.join(cells)})\n"


def _legend(section: Section, place: Path) -> str:
    items = []
    for number, (name, look) in enumerate(section.look.items()):
        path = place / f"swatch-{number}.svg"
        path.write_text(swatch(look), encoding="utf-8")
        items.append(
            f'#box[#box(baseline: 1pt, image("{path.name}", height: 7pt)) {_text(name)}] #h(8pt)'
        )
    return "#block(sticky: true, text(size: 8pt)[" + " ".join(items) + "])\n"


def _table(table: Table) -> str:
    numeric = [table.numeric(k) for k in range(len(table.columns))]
    align = ", ".join("right" if n else "left" for n in numeric)
    # short words keep to one line; numbers and long texts share what is left
    widths = ", ".join(
        f"{w}fr" if n or w >= GAP + LONG else "auto"
        for w, n in zip(widths_of(table), numeric, strict=True)
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


def typst_string(text: str) -> str:
    """Return a text as Typst's source quotes it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
