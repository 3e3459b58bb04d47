"""``gridpriv schema``: every table and document, column by column, and what may be published."""

from __future__ import annotations

import argparse

from gridpriv.cli.flags import add_output
from gridpriv.cli.output import print_table, tell
from gridpriv.core.document import Json
from gridpriv.core.errors import one_of

HEAD = """# Tables and documents

Made by `gridpriv schema --markdown`. *public* is what `--public` keeps: settings (what is known
before a run), and figures computed from releases, of runs whose messages carry noise. *local* is
for the owner of the data. What is not listed here is never published.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "table", nargs="?", metavar="TABLE", help=("name of a table; without it, all are printed")
    )
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    add_output(parser)


def execute(args: argparse.Namespace) -> int:
    """Print the table asked for, or all."""
    from gridpriv.report.schema import told

    tables = told()
    if args.table is not None:
        one_of("table", args.table, tables)
        tables = {args.table: tables[args.table]}
    if args.markdown:
        print(markdown(tables), end="")
        return 0
    tell(args, {"tables": list(tables.values())}, lambda: _print(tables))
    return 0


def _print(tables: dict[str, Json]) -> None:
    for name, table in tables.items():
        print_table(
            f"{name}: {table['row']}",
            ["column", "unit", "visibility", "meaning"],
            [[c["name"], c["unit"], c["visibility"], c["meaning"]] for c in table["columns"]],
        )


def markdown(tables: dict[str, Json]) -> str:
    """Return the page of the documentation."""
    lines = [HEAD]
    for name, table in tables.items():
        lines += [
            f"## {name}",
            "",
            f"One row is {table['row']}.",
            "",
            "| column | title | unit | visibility | computed from | meaning |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| `{c['name']}` | {c['title']} | {c['unit']} | {c['visibility']} | {c['origin']} "
            f"| {c['meaning']} |"
            for c in table["columns"]
        ]
        lines.append("")
    return "\n".join(lines)
