"""``gridpriv report``: (re)build the exports of a study's or a run's folder."""

from __future__ import annotations

import argparse

from gridpriv.cli.flags import add_formats, add_output, wanted_formats
from gridpriv.cli.output import output_folder, tell
from gridpriv.core.errors import not_allowed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="folder of gridpriv compare or run --out")
    add_formats(parser)
    parser.add_argument("--public", action="store_true",
                        help="leave out figures of private data; into a new folder")  # fmt: skip
    add_output(parser, "where to (default: the folder itself; with --public, public/ in it)")


def execute(args: argparse.Namespace) -> int:
    """Write the report in every format asked for."""
    from gridpriv.report.export import export

    output_folder(args.out)
    formats = wanted_formats(args)
    if not formats:
        raise not_allowed("format", args.format, "one or more of html, pdf, xlsx, csv, tex")
    files = export(args.folder, formats, public=args.public, out=args.out)
    names = [str(file) for file in files]
    tell(args, {"folder": args.folder, "files": names}, lambda: print("\n".join(names)))
    return 0
