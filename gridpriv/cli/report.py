"""``gridpriv report``: (re)build the exports of a study's or a run's folder."""

from __future__ import annotations

import argparse

from gridpriv.cli.common import write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="folder of gridpriv compare or run --out")
    parser.add_argument(
        "--format", default="html", metavar="A,B,...", help="html, pdf, xlsx, csv, tex"
    )
    parser.add_argument("--public", action="store_true",
                        help="leave out figures of private data; into a new folder")  # fmt: skip
    parser.add_argument("--out", metavar="OUT",
                        help="where to (default: DIR; with --public DIR/public)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def execute(args: argparse.Namespace) -> int:
    """Write the report in every format asked for."""
    from gridpriv.cli.compare import wanted_formats
    from gridpriv.core.errors import not_allowed
    from gridpriv.report.export import export

    formats = wanted_formats(args.format)
    if not formats:
        raise not_allowed("format", args.format, "one or more of html, pdf, xlsx, csv, tex")
    files = export(args.folder, formats, public=args.public, out=args.out)
    if args.json:
        write_json({"folder": args.folder, "files": [str(f) for f in files]})
    else:
        print("\n".join(str(f) for f in files))
    return 0
