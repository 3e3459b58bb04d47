"""``gridpriv convert``: a case file in another format, and what the new file has lost."""

from __future__ import annotations

import argparse

from gridpriv.cli.flags import CASE, add_output
from gridpriv.cli.output import print_table, tell
from gridpriv.core.display import counted
from gridpriv.core.document import Json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("source", metavar="IN", help=CASE)
    parser.add_argument(
        "target",
        metavar="OUT",
        help="file to write: .m, .mat, .json (pandapower); with the extra powsybl .xiidm, .zip "
        "(CGMES), .uct (UCTE), .raw (PSS/E)",
    )
    add_output(parser)


def execute(args: argparse.Namespace) -> int:
    """Convert, read the new file again, and print what it has lost."""
    from gridpriv.grid.convert import convert

    converted = convert(args.source, args.target)
    converted.source.warn()
    document = converted.as_dict()
    tell(args, document, lambda: summarise(document), args.target)
    return 0


def summarise(document: Json) -> None:
    """Print the figures that changed or were lost, and what the source has that was not read."""
    changed = [row for row in document["differences"] if row["status"] != "kept"]
    kept = len(document["differences"]) - len(changed)
    title = (
        f"{document['case']}: {document['source']['format']} to {document['target']['format']}, "
        f"{counted(document['buses'], 'bus')}, {document['load_mw']:.6g} MW of load"
    )
    if changed:
        print_table(
            title,
            ["figure", "status", "elements", "largest relative difference"],
            [[row["field"], row["status"], row["count"], row["largest"]] for row in changed],
        )
    else:
        print(title)
    print(f"{counted(kept, 'figure')} kept, compared after reading the new file.")
    for note in document["unsupported"]:
        print(f"Not represented: {note['field']} ({note['count']}): {note['note']}.")
