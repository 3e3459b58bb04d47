"""``gridpriv ledger``: what data owners grant, and what was charged."""

from __future__ import annotations

import argparse
import csv
import io
import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridpriv.cli.common import (
    REAL,
    add_zone_arguments,
    chosen_zoning,
    print_table,
    write_json,
    write_text,
)
from gridpriv.core.errors import GridprivWarning, InputError, one_of

if TYPE_CHECKING:
    from gridpriv.privacy.ledger_rows import Account, Dataset, Entry

FORMATS = ("csv", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``grant``, ``show`` and ``export``."""
    actions = parser.add_subparsers(dest="action", metavar="grant|show|export", required=True)
    grant = actions.add_parser(
        "grant", help="grant a total budget to a case's zones; makes the ledger"
    )
    grant.add_argument("file", metavar="FILE", help="the ledger")
    grant.add_argument("--case", required=True, metavar="CASE", help="a case by name, or a path")
    add_zone_arguments(grant)
    grant.add_argument("--epsilon", type=REAL, required=True, metavar="E", help="of all releases")
    grant.add_argument(
        "--delta", type=REAL, default=0.0, metavar="D", help="of all releases (default 0: pure)"
    )
    grant.add_argument("--beta", help="adjacency distance, as in run")
    grant.add_argument("--protects", help="p+q | p | q, as in run")
    grant.add_argument(
        "--owner", action="append", metavar="ZONE", help="grant to this zone only (repeatable)"
    )
    show = actions.add_parser("show", help="every owner's grant and what is left of it")
    show.add_argument("file", metavar="FILE", help="the ledger")
    export = actions.add_parser("export", help="every charge as CSV, or with the grants as JSON")
    export.add_argument("file", metavar="FILE", help="the ledger")
    export.add_argument("--format", help="csv | json (default: that of --out's name, or csv)")
    export.add_argument("--out", metavar="FILE", help="write there, not on standard output")
    for action in (grant, show):
        action.add_argument("--json", action="store_true", help="print one JSON document")


def execute(args: argparse.Namespace) -> int:
    """Grant, show or export."""
    return {"grant": _grant, "show": _show, "export": _export}[str(args.action)](args)


def _grant(args: argparse.Namespace) -> int:
    from gridpriv.grid.library import load_case
    from gridpriv.privacy.adjacency import DemandAdjacency, parse_beta
    from gridpriv.privacy.ledger import grant
    from gridpriv.privacy.ledger_rows import read_accounts, zone_datasets
    from gridpriv.zonal.settings import Settings

    case = load_case(args.case)
    zoning = chosen_zoning(case, args)
    beta = (Settings.beta if args.beta is None else parse_beta(args.beta)).per_unit(case.base_mva)
    protects = Settings.protects if args.protects is None else args.protects
    datasets = _chosen(zone_datasets(case, zoning, DemandAdjacency(beta, protects)), args.owner)
    grant(args.file, datasets, args.epsilon, args.delta)
    buses = max(len(members) for members in zoning.members)
    _warn_delta(args.delta, buses * (2 if protects == "p+q" else 1))
    if args.json:
        write_json(_document(args.file, read_accounts(args.file)))
        return 0
    delta = f" at delta {args.delta:g}" if args.delta else ""
    print(
        f"{args.file}: epsilon {args.epsilon:g}{delta} granted to each of "
        f"{len(datasets)} zones of {case.name} ({', '.join(d.owner for d in datasets)})."
    )
    print(f"Protected: {datasets[0].adjacency}.")
    return 0


def _chosen(datasets: Sequence[Dataset], owners: list[str] | None) -> list[Dataset]:
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


def _show(args: argparse.Namespace) -> int:
    from gridpriv.privacy.ledger_rows import read_accounts

    document = _document(args.file, read_accounts(args.file))
    if args.json:
        write_json(document)
        return 0
    owners = document["owners"]
    print_table(
        f"Ledger {args.file}",
        ["owner", "epsilon", "delta", "releases", "spent epsilon", "used %", "left %"],
        [
            [
                owner["owner"],
                owner["epsilon"],
                owner["delta"],
                owner["releases"],
                owner["total"]["epsilon"],
                100.0 * owner["used"],
                100.0 * owner["left"],
            ]
            for owner in owners
        ],
    )
    for adjacency in sorted({owner["adjacency"] for owner in owners}):
        print(f"Protected: {adjacency}.")
    for keeper in sorted({owner["kept_by"] for owner in owners}):
        print(f"Kept by {keeper}.")
    print(
        "Spent epsilon is certified for releases fixed in advance; used and left count what the "
        "grant's\nfilter counts, which holds for releases chosen after seeing earlier ones."
    )
    return 0


def _document(file: str, accounts: Sequence[Account]) -> dict[str, Any]:
    return {"ledger": str(file), "owners": [_account(account) for account in accounts]}


def _account(account: Account) -> dict[str, Any]:
    """Return an account as JSON can hold it; infinite epsilon is null."""
    used = account.filter.used(account.spent)
    return {
        "owner": account.owner,
        "epsilon": account.epsilon,
        "delta": account.delta,
        "adjacency": account.adjacency,
        "granted_at": account.granted_at,
        "kept_by": account.kept_by,
        "releases": sum(account.spent.values()),
        "total_pure": _finite(account.total_pure),
        "total": {"epsilon": _finite(account.total), "delta": account.delta},
        "used": used,
        "left": max(0.0, 1.0 - used),
        "charges": [
            {"kind": charge.kind, "parameter": charge.parameter, "count": count}
            for charge, count in account.spent.items()
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _export(args: argparse.Namespace) -> int:
    from gridpriv.privacy.ledger_rows import read_accounts, read_entries

    kind = args.format or (Path(args.out).suffix[1:] if args.out else "csv")
    one_of("format", kind, FORMATS)
    entries = read_entries(args.file)
    out = None if args.out is None else Path(args.out)
    if out is not None and not out.parent.is_dir():
        raise InputError(f"out = {args.out!r} is not allowed: there is no folder {out.parent}")
    if kind == "json":
        document = _document(args.file, read_accounts(args.file))
        write_json(document | {"charges": [asdict(entry) for entry in entries]}, out)
    elif out is None:
        sys.stdout.write(_csv(entries))
    else:
        write_text(out, _csv(entries))
    return 0


def _csv(entries: Sequence[Entry]) -> str:
    from gridpriv.privacy.ledger_rows import Entry

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in fields(Entry)]
    writer.writerow(names)
    writer.writerows([getattr(entry, name) for name in names] for entry in entries)
    return text.getvalue()
