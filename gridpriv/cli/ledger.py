"""``gridpriv ledger``: what data owners grant, and what was charged."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gridpriv.cli.flags import (
    CASE,
    DEMAND,
    REAL,
    add_flags,
    add_output,
    add_zone_arguments,
    chosen_zoning,
    given_case,
    given_settings,
)
from gridpriv.cli.output import json_text, print_table, tell
from gridpriv.core.display import counted
from gridpriv.core.document import Json
from gridpriv.core.errors import GridprivWarning, not_allowed, one_of
from gridpriv.core.files import write_text
from gridpriv.core.text import csv_text, json_ready
from gridpriv.zonal.settings import Adjacency

if TYPE_CHECKING:
    from gridpriv.privacy.ledger_file import LedgerFile
    from gridpriv.privacy.ledger_rows import Account, Book, LedgerDataset

FORMATS = ("csv", "json")
ACTIONS = {
    "grant": "grant a total budget to each bus of a case; creates the ledger",
    "show": "show every grant and its remaining budget",
    "export": "export charges as CSV, or charges and grants as JSON",
    "verify": "verify the whole ledger and print its head digest",
}
COLUMNS = (
    "row",
    "owner",
    "run",
    "charged_at",
    "units",
    "kind",
    "parameter",
    "second",
    "count",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``grant``, ``show``, ``export`` and ``verify``."""
    actions = parser.add_subparsers(
        dest="action", metavar="grant|show|export|verify", required=True
    )
    grant, show, export, verify = (
        actions.add_parser(name, help=summary, description=summary)
        for name, summary in ACTIONS.items()
    )
    for action in (grant, show, export, verify):
        action.add_argument("file", metavar="FILE", help="the ledger")
        action.add_argument(
            "--key", metavar="FILE", help="key file of the ledger (default: FILE.key)"
        )
    grant.add_argument("--case", required=True, metavar="CASE", help=CASE)
    grant.add_argument("--demand", metavar="FILE.csv", help=DEMAND)
    add_zone_arguments(grant)
    grant.add_argument(
        "--epsilon", type=REAL, required=True, metavar="E", help="total of all releases"
    )
    grant.add_argument(
        "--delta", type=REAL, default=0.0, metavar="D", help="of all releases (default: 0, pure)"
    )
    add_flags(grant, Adjacency)
    grant.add_argument(
        "--owner", action="append", metavar="ZONE", help="grant to this zone only (repeatable)"
    )
    export.add_argument(
        "--format", metavar="NAME", help="csv | json (default: that of --out's name, or csv)"
    )
    verify.add_argument(
        "--expect",
        metavar="HEAD",
        help="head digest printed earlier; an older copy of the ledger is refused",
    )
    for action in (grant, show, verify):
        add_output(action)
    add_output(export, "output file; otherwise standard output", "FILE")


def execute(args: argparse.Namespace) -> int:
    """Grant, show, export or verify."""
    act = {"grant": _grant, "show": _show, "export": _export, "verify": _verify}[str(args.action)]
    return act(args, None if args.key is None else Path(args.key))


def _grant(args: argparse.Namespace, key: Path | None) -> int:
    from gridpriv.privacy.ledger import grant, read_book
    from gridpriv.privacy.ledger_file import key_path
    from gridpriv.zonal.datasets import zone_datasets

    case = given_case(args)
    zoning = chosen_zoning(case, args)
    near = Adjacency(**given_settings(args, Adjacency))
    datasets = _chosen(zone_datasets(case, zoning, near.adjacency(case)), args.owner)
    grant(args.file, datasets, args.epsilon, args.delta, key)
    _warn_delta(args.delta, len(near.protects.split("+")) * max(map(len, zoning.members)))
    delta = f" at delta {args.delta:g}" if args.delta else ""
    granted = (
        f"{args.file}: epsilon {args.epsilon:g}{delta} granted to each of the "
        f"{counted(sum(len(dataset.units) for dataset in datasets), 'bus')} in "
        f"{counted(len(datasets), 'zone')} of "
        f"{case.name} ({', '.join(dataset.owner for dataset in datasets)}).\n"
        f"Protected: {str(datasets[0].protection).rstrip('.')}.\n"
        f"Key: {key_path(Path(args.file), key)}. Whoever has it can forge the ledger; without\n"
        "it the ledger cannot be read."
    )
    tell(args, _document(args.file, read_book(args.file, key)), lambda: print(granted))
    return 0


def _chosen(datasets: Sequence[LedgerDataset], owners: list[str] | None) -> list[LedgerDataset]:
    """Return the datasets of ``--owner``, or all."""
    if owners is None:
        return list(datasets)
    for owner in owners:
        one_of("owner", owner, [dataset.owner for dataset in datasets])
    return [dataset for dataset in datasets if dataset.owner in owners]


def _warn_delta(delta: float, entries: int) -> None:
    """Warn of a delta at which publishing one record in full would count as private."""
    if delta >= 1.0 / entries:
        warnings.warn(
            f"delta = {delta:g} is not below 1/{entries}, one over the number of demand entries "
            "of the largest zone: at such a delta, publishing an entry at random is 'private'",
            GridprivWarning,
            stacklevel=2,
        )


def _show(args: argparse.Namespace, key: Path | None) -> int:
    from gridpriv.privacy.ledger import read_book

    document = _document(args.file, read_book(args.file, key))
    tell(args, document, lambda: _print_accounts(args.file, document["owners"]))
    return 0


def _print_accounts(file: str, owners: list[Json]) -> None:
    print_table(
        f"Ledger {file}",
        ["owner", "units", "epsilon", "delta", "releases", "spent epsilon", "used %", "left %"],
        [
            [
                *(owner[name] for name in ("owner", "units", "epsilon", "delta", "releases")),
                owner["total"]["epsilon"],
                100.0 * owner["used"],
                100.0 * owner["left"],
            ]
            for owner in owners
        ],
    )
    for adjacency in sorted({owner["adjacency"] for owner in owners}):
        print(f"Protected: {adjacency.rstrip('.')}.")
    for keeper in sorted({owner["kept_by"] for owner in owners}):
        print(f"Kept by {keeper}.")
    print(
        "A row is the units of an owner at the time of the grant that have the same charges; each\n"
        "unit has the figures of its row. Spent epsilon is certified for releases fixed in\n"
        "advance; used and left count what the grant's filter counts, which holds for releases\n"
        "chosen after seeing earlier ones."
    )


def _document(file: str, book: Book) -> Json:
    return {"ledger": str(file), "owners": [_account(account) for account in book.accounts]}


def _account(account: Account) -> Json:
    """Return an account as JSON can hold it; infinite epsilon is null."""
    used, grant = account.filter.used(account.spent), account.grant
    return {
        "owner": account.owner,
        "units": account.units,
        "epsilon": grant.epsilon,
        "delta": grant.delta,
        "adjacency": str(grant.protection),
        "granted_at": grant.at,
        "kept_by": account.kept_by,
        "releases": sum(account.spent.values()),
        "total_pure": json_ready(account.total_pure),
        "total": {"epsilon": json_ready(account.total), "delta": grant.delta},
        "used": used,
        "left": max(0.0, 1.0 - used),
        "charges": [vars(charge) | {"count": count} for charge, count in account.spent.items()],
    }


def _export(args: argparse.Namespace, key: Path | None) -> int:
    from gridpriv.privacy.ledger import read_book

    kind = args.format or (Path(args.out).suffix[1:] if args.out else "csv")
    one_of("format", kind, FORMATS)
    book = read_book(args.file, key)
    charges = _charges(book)
    document = _document(args.file, book) | {"charges": charges}
    text = (
        csv_text(COLUMNS, (row.values() for row in charges))
        if kind == "csv"
        else json_text(document)
    )
    if args.out is not None:
        try:
            write_text(Path(args.out), text, private=True)
        except ValueError:
            raise not_allowed("out", args.out, "the name of a file") from None
    told = "" if args.out is not None else text
    tell(args, document, lambda: sys.stdout.write(told), args.out)
    return 0


def _charges(book: Book) -> list[Json]:
    """Return every charge, oldest first; ``units`` is for how many units it was."""
    return [
        dict(
            zip(
                COLUMNS,
                (row, entry.owner, entry.run, entry.at, units, *vars(charge).values(), count),
                strict=True,
            )
        )
        for row, entry in book.charged
        for units in (sum(last - first + 1 for first, last in entry.units),)
        for charge, count in entry.charges
    ]


def _verify(args: argparse.Namespace, key: Path | None) -> int:
    from gridpriv.privacy.ledger import verify
    from gridpriv.privacy.ledger_file import parse_head

    expect = None if args.expect is None else parse_head(args.expect)
    found = verify(args.file, expect, key)
    document = {"ledger": str(args.file), "rows": found.head.count, "head": str(found.head)}
    document |= {"expected": args.expect, "unfinished_bytes": found.unfinished}
    tell(args, document, lambda: _print_verified(args.file, found, expected=expect is not None))
    return 0


def _print_verified(file: str, found: LedgerFile, *, expected: bool) -> None:
    print(f"{file}: every byte of its {counted(found.head.count, 'row')} is as it was written.")
    if found.unfinished:
        print(
            f"After them come {found.unfinished} bytes of a row that a process was stopped in; "
            "its charge was never confirmed, and the next charge removes them."
        )
    print(f"Head: {found.head}")
    if not expected:
        print("An older copy of the file looks like this one without an earlier head:")
        print("keep this head elsewhere, and give it to --expect next time.")
    else:
        print("The ledger continues the expected head.")
