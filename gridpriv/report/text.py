"""The report's tables as CSV and as LaTeX (booktabs)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gridpriv.core.text import csv_text
from gridpriv.report.document import Report
from gridpriv.report.tables import Table, shown

SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
}


def to_csv(table: Table) -> str:
    """Return a table as CSV, numbers in full, units in the header."""
    return csv_text([c.header for c in table.columns], table.rows)


def to_tex(report: Report, table: Table) -> str:
    """Return a table as a LaTeX ``table`` (needs the package booktabs)."""
    head = " & ".join(escaped(c.header) for c in table.columns)
    rows = [[escaped(shown(v)) for v in row] for row in table.rows]
    note = f"{report.title}: {table.caption}; "
    align = "".join("r" if n else "l" for n in table.numbers)
    return booktabs([head], rows, align, table.caption, table.name, note)


def booktabs(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    align: str,
    caption: str,
    label: str,
    note: str = "",
) -> str:
    """Return a LaTeX ``table`` of escaped cells, lines of the head given whole."""
    names = "\n".join(rf"{line} \\" for line in head)
    body = "\n".join(" & ".join(row) + r" \\" for row in rows)
    return (
        f"% {note}needs \\usepackage{{booktabs}}\n\\begin{{table}}\n\\centering\n"
        f"\\caption{{{escaped(caption)}}}\n\\label{{tab:{label}}}\n"
        f"\\begin{{tabular}}{{{align}}}\n\\toprule\n{names}\n\\midrule\n{body}\n"
        "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    )


def escaped(text: str) -> str:
    """Return text with LaTeX's special characters escaped."""
    return "".join(SPECIAL.get(character, character) for character in text)
