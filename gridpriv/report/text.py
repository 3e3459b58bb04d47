"""The report's tables as CSV and as LaTeX (booktabs)."""

from __future__ import annotations

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
    numeric = [table.numeric(k) for k in range(len(table.columns))]
    columns = "".join("r" if n else "l" for n in numeric)
    head = " & ".join(escaped(c.header) for c in table.columns)
    rows = "\n".join(" & ".join(escaped(shown(v)) for v in row) + r" \\" for row in table.rows)
    return (
        f"% {report.title}: {table.caption}; needs \\usepackage{{booktabs}}\n"
        "\\begin{table}\n\\centering\n"
        f"\\caption{{{escaped(table.caption)}}}\n\\label{{tab:{table.name}}}\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head} \\\\\n\\midrule\n{rows}\n"
        "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    )


def escaped(text: str) -> str:
    """Return text with LaTeX's special characters escaped."""
    return "".join(SPECIAL.get(character, character) for character in text)
