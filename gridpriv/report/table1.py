"""The report of Ryu and Kim's table 1."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gridpriv.core.files import make_folder, write_text
from gridpriv.core.tables import Column, TableSchema
from gridpriv.report.document import Report
from gridpriv.report.html import to_html
from gridpriv.report.sections import Section
from gridpriv.report.tables import make_table
from gridpriv.report.text import to_csv
from gridpriv.report.verdict import Card, Fact
from gridpriv.study.rows import ClaimRow

VARIANCES = TableSchema(
    "table1",
    "one algorithm at one epsilon: variance of the noise on a coordinate",
    (
        Column("algorithm", "settings", "Algorithm", "name of the algorithm in the paper"),
        Column("epsilon", "settings", "Epsilon per release", "nominal epsilon of one release"),
    ),
    tuple(
        Column(name, "settings", title, "variance of the noise", "p.u. squared")
        for name, title in (
            ("printed", "Printed in the paper"),
            ("drawn", "Drawn by gridpriv, sensitivity published"),
            ("proven_case14", "Sound, case14"),
            ("proven_case118", "Sound, case118"),
        )
    ),
)


def write_table1(table: pd.DataFrame, claims: pd.DataFrame, folder: Path) -> list[Path]:
    """Write table1.csv and report.html."""
    variances = make_table(VARIANCES, "Variance of the noise", table)
    stated = make_table(ClaimRow.table, "Stated ordering", claims)
    outcome = claims.set_index("sensitivity").outcome
    worst = (table.proven_case118 / table.drawn).groupby(table.algorithm).max()
    facts = (
        Fact("ObjG > OutG > ObjL > OutL, published noise", outcome["published"]),
        Fact("The same, proven sensitivity on case118", outcome["proven, case118"]),
        Fact("Variance, proven over published", f"{worst.min():.3g} to {worst.max():.3g}"),
    )
    report = Report(
        "Ryu and Kim, table 1",
        "How large is the noise of the four algorithms, as stated and as privacy needs it?",
        (Card("Variance of the noise", facts),),
        (),
        (variances, stated),
        lambda: (
            Section("Variance", tables=(variances,)),
            Section("Statements of the paper", tables=(stated,)),
        ),
    )
    files = {"table1.csv": to_csv(variances), "report.html": to_html(report)}
    make_folder(folder)
    for name, text in files.items():
        write_text(folder / name, text, private=False)
    return [folder / name for name in files]
