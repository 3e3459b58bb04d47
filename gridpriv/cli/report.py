"""``gridpriv report``: (re)build the exports of a study's or a run's folder."""

from __future__ import annotations

import argparse

from gridpriv.cli.flags import add_formats, add_output, wanted_formats
from gridpriv.cli.output import output_folder, tell
from gridpriv.core.errors import InputError, not_allowed

PIVOT = (
    "also write pivot.tex and pivot.csv: mean and 95 %% interval by two columns of the runs, such "
    "as method,budget or case+method,budget"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="folder of gridpriv compare or run --out")
    add_formats(parser)
    parser.add_argument(
        "--figures", metavar="FORMAT", help="also write every figure as a file: png | svg | pdf"
    )
    parser.add_argument("--pivot", metavar="ROWS,COLUMNS", help=PIVOT)
    parser.add_argument(
        "--values", metavar="A,B", help="columns whose means --pivot shows (default: the cost)"
    )
    parser.add_argument(
        "--public",
        action="store_true",
        help="leave out figures of private data; writes a new folder",
    )
    add_output(parser, "output folder (default: DIR; with --public, DIR/public)")


def execute(args: argparse.Namespace) -> int:
    """Write the report in every format asked for."""
    from gridpriv.report.export import export

    output_folder(args.out)
    formats = wanted_formats(args)
    if not formats:
        raise not_allowed("format", args.format, "one or more of html, pdf, xlsx, csv, tex")
    files = export(
        args.folder,
        formats,
        public=args.public,
        out=args.out,
        figures=args.figures,
        pivot=_pivot(args.pivot),
        values=(args.values or "").split(",") if args.values else (),
    )
    names = [str(file) for file in files]
    tell(args, {"folder": args.folder, "files": names}, lambda: print("\n".join(names)))
    return 0


def _pivot(text: str | None) -> tuple[list[str], list[str]] | None:
    """Return the columns that make rows and columns of a table."""
    if text is None:
        return None
    parts = [part.split("+") for part in text.split(",")]
    if len(parts) != 2 or not all(all(names) for names in parts):
        raise InputError(
            f"--pivot must name rows and columns, such as method,budget; got {text!r}. Join "
            "several columns by +: case+method,budget."
        )
    return parts[0], parts[1]
