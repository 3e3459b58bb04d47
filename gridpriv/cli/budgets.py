"""``gridpriv account`` and ``gridpriv ledger``: totals of releases; grants and charges."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import gridpriv
from gridpriv.cli import flags
from gridpriv.cli.output import json_text, print_result, print_rows, print_table, say, warn, worded
from gridpriv.core.errors import InputError, check_choice, not_allowed
from gridpriv.core.files import write_text
from gridpriv.core.settings import Part, changed, choice
from gridpriv.core.text import Json, counted, csv_text, json_ready
from gridpriv.privacy import accounting, settings
from gridpriv.privacy.mechanism import Charge
from gridpriv.zonal.settings import Adjacency

if TYPE_CHECKING:
    from gridpriv.privacy.ledger_file import LedgerFile
    from gridpriv.privacy.ledger_rows import Account, Book, LedgerDataset

Calibration = Literal["analytic", "classical"]
LARGEST_MULTIPLIER = 1e9  # epsilon is then below every accountant's grid
LEAST_MULTIPLIER = 1e-3  # below it every mechanism's epsilon is beyond LARGEST
LARGEST = 30.0  # epsilon of one release: odds of e^30 to 1 between adjacent data
FORMATS = ("csv", "json")
COLUMNS = (
    *("row", "owner", "run", "charged_at", "units", "kind", "parameter"),
    *("delta_or_sampling_rate", "count"),
)


@dataclass(frozen=True, kw_only=True)
class Releases(Part):
    """Mechanism of one release."""

    mechanism: Literal["laplace", "gaussian", "knorm"] = changed(
        settings.Privacy,
        "mechanism",
        "laplace",
        choices=("laplace", "gaussian", "knorm"),
        help="noise mechanism; knorm: same totals as laplace (upper bounds for --release tree)",
    )
    calibration: Calibration = choice(
        "analytic",
        get_args(Calibration),
        "calibration of Gaussian noise to --epsilon and --delta: analytic (Balle and Wang 2018), "
        "or classical, as in published algorithms",
    )
    delta: float = changed(settings.Privacy, "delta", 1e-5, help="delta of one Gaussian release")


def add_account(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``account``."""
    flags.flag(parser, "--releases", "T", flags.WHOLE, required=True)
    group = parser.add_argument_group("noise", "Exactly one of these flags.")
    noise = group.add_mutually_exclusive_group(required=True)
    flags.flag(noise, "--epsilon", "E", flags.REAL, help="epsilon of one release")
    flags.flag(noise, "--noise-multiplier", "M", flags.REAL)
    flags.flag(noise, "--total", "E[,D]")
    flags.add_flags(parser, Releases)
    flags.flag(parser, "--target-delta", "D", flags.REAL)
    flags.add_output(parser)
    parser.set_defaults(execute=execute_account)


def execute_account(args: argparse.Namespace) -> int:
    """Print the statement."""
    document = account_document(args)
    return print_result(args, document, lambda: _print_account(document))


def noise_and_delta(args: argparse.Namespace, chosen: Releases) -> tuple[float, float]:
    """Return the noise multiplier and the target delta of the command line."""
    multiplier: float | None = args.noise_multiplier
    if args.releases < 1:
        raise not_allowed("releases", args.releases, "a whole number, 1 or more")
    target = settings.TOTAL_DELTA if args.target_delta is None else args.target_delta
    accounting.check_delta("target-delta", target)
    classical = chosen.calibration == "classical"
    if classical and args.epsilon is None:
        raise InputError("--calibration classical states the noise of one release: give --epsilon")
    if multiplier is None:
        budget = (
            given_total(args)
            if args.epsilon is None
            else settings.Budget("per-release", args.epsilon)
        )
        if budget.scope == "total" and budget.delta is not None and args.target_delta is None:
            target = budget.delta
        sensitivity: settings.SensitivityBound = "published" if classical else "proven"
        multiplier = settings.noise_multiplier(
            budget, chosen.mechanism, sensitivity, args.releases, chosen.delta
        )
    elif not 0.0 < multiplier <= LARGEST_MULTIPLIER:
        raise not_allowed(
            "noise-multiplier", multiplier, f"a positive number up to {LARGEST_MULTIPLIER:g}"
        )
    return multiplier, target


def account_document(args: argparse.Namespace) -> Json:
    """Return per-release and total privacy as a JSON value; infinite epsilon is null."""
    chosen, releases = Releases(**flags.given_settings(args, Releases)), args.releases
    multiplier, target = noise_and_delta(args, chosen)
    gaussian = chosen.mechanism == "gaussian"
    # K-norm noise has the loss of Laplace noise
    charge = Charge("gaussian" if gaussian else "laplace", multiplier)
    # a Gaussian release of multiplier m has epsilon of at least about 1/(2 m^2)
    release = (
        math.inf if multiplier < LEAST_MULTIPLIER else accounting.epsilon_of(charge, chosen.delta)
    )
    if release > LARGEST:
        raise InputError(
            f"one release at noise multiplier {multiplier:.4g} has epsilon {release:.4g}: at most "
            f"{LARGEST:g} can be accounted for; use more noise"
        )
    pure, paper = accounting.total_pure({charge: releases}), None
    if gaussian and chosen.calibration == "classical":
        paper = accounting.published_total(args.epsilon, chosen.delta, releases, target)
    return {
        "mechanism": chosen.mechanism,
        "calibration": chosen.calibration,
        "releases": releases,
        "noise_multiplier": multiplier,
        "per_release": {
            "nominal": release if args.epsilon is None else args.epsilon,
            "certified": release,
            "delta": chosen.delta if gaussian else 0.0,
        },
        "total_pure": pure if math.isfinite(pure) else None,
        "total": {"epsilon": accounting.total_epsilon({charge: releases}, target), "delta": target},
        "published_total": paper,
    }


def _print_account(document: Json) -> None:
    release, total = document["per_release"], document["total"]
    rows = [
        ["noise scale / sensitivity", document["noise_multiplier"]],
        [f"epsilon of one release at delta {release['delta']:g}", release["certified"]],
        ["total epsilon at delta 0 (basic composition)", document["total_pure"]],
        [f"total epsilon at delta {total['delta']:g} (PLD)", total["epsilon"]],
    ]
    paper = document["published_total"]
    if paper is not None:
        rows.append(["Ryu and Kim (2022), theorem 4.6 (not a certificate)", paper])
    known = [[name, f"{value:.5g}", "", ""] for name, value in rows if value is not None]
    mechanism = {"knorm": "K-norm"}.get(document["mechanism"], document["mechanism"].capitalize())
    say(f"{counted(document['releases'], 'release')}, {mechanism} noise")
    print_rows(known)
    if paper is not None:
        wrong = paper < total["epsilon"]
        say(
            "Theorem 4.6 is derived as a lower bound: "
            + ("here it is below the true total." if wrong else "it certifies nothing.")
        )


def add_ledger(parser: argparse.ArgumentParser) -> None:
    """Add ``grant``, ``show``, ``export`` and ``verify``."""
    actions = parser.add_subparsers(
        dest="action", metavar="grant|show|export|verify", required=True
    )
    grant, show, export, verify = (
        actions.add_parser(name, help=summary, description=summary)
        for name in ACTIONS
        for summary in [flags.help_of(parser, name)]
    )
    flags.add_zone_arguments(grant)
    flags.refer(grant, "zones")
    for action in (grant, show, export, verify):
        flags.flag(action, "file", "FILE")
        flags.flag(action, "--key", "FILE")
    flags.flag(grant, "--case", "CASE", required=True)
    flags.flag(grant, "--demand", "FILE.csv", help=argparse.SUPPRESS)  # without effect
    flags.flag(grant, "--total", "E[,D]", required=True)
    grant.add_argument("--epsilon", action=_Replaced, metavar="E", help=argparse.SUPPRESS)
    flags.add_flags(grant, Adjacency)
    flags.flag(grant, "--owner", "ZONE", action="append")
    flags.flag(export, "--format", "NAME")
    flags.flag(verify, "--expect", "HEAD")
    for action in (grant, show, verify):
        flags.add_output(action)
    flags.add_output(export, "FILE")
    parser.set_defaults(execute=execute_ledger)


class _Replaced(argparse.Action):
    """Refuses the older flag of a total epsilon."""

    def __call__(self, _: object, __: object, value: object, flag: str | None = None) -> None:
        raise InputError(f"{flag} was replaced. Give the total epsilon as --total {value}.")


def execute_ledger(args: argparse.Namespace) -> int:
    """Grant, show, export or verify."""
    return ACTIONS[args.action](args, None if args.key is None else Path(args.key))


def _grant(args: argparse.Namespace, key: Path | None) -> int:
    from gridpriv.zonal.prepared import zone_datasets

    case = flags.given_case(args)
    zoning = flags.chosen_zoning(case, args)
    near = Adjacency(**flags.given_settings(args, Adjacency))
    datasets = _chosen(zone_datasets(case, zoning, near.adjacency(case)), args.owner)
    names = ", ".join(dataset.owner for dataset in datasets)
    of = f"in {counted(len(datasets), 'zone')} of {case.name} ({names})"
    code = grant_units(args, args.file, key, datasets, of)
    _warn_delta(
        given_total(args).delta or 0.0,
        len(near.protects.split("+")) * max(map(len, zoning.members)),
    )
    return code


def grant_units(
    args: argparse.Namespace, file: str, key: Path | None, owners: Sequence[LedgerDataset], of: str
) -> int:
    """Grant ``--total`` to every unit of datasets, and print the grants."""
    from gridpriv.privacy.ledger_file import key_path

    total = given_total(args)
    gridpriv.grant(file, owners, total.epsilon, total.delta or 0.0, key)
    protection, number = owners[0].protection, sum(len(owner.units) for owner in owners)
    delta = f" at delta {total.delta:g}" if total.delta else ""
    granted = (
        f"{file}: total epsilon {total.epsilon:g}{delta} granted to each of the "
        f"{counted(number, protection.unit)} {of}.",
        f"Protected: {str(protection).rstrip('.')}.",
        worded("ledger-key", key=key_path(Path(file), key)),
    )
    return print_result(args, _document(file, gridpriv.read_book(file, key)), lambda: say(*granted))


def given_total(args: argparse.Namespace) -> settings.Budget:
    """Return the budget of ``--total``."""
    try:
        return settings.parse_budget(f"total:{args.total}")
    except InputError:
        allowed = "E[,D], such as 5 (pure) or 5,1e-5: epsilon above 0, delta between 0 and 1"
        raise not_allowed("total", args.total, allowed) from None


def _chosen(datasets: Sequence[LedgerDataset], owners: list[str] | None) -> list[LedgerDataset]:
    """Return the datasets of ``--owner``, or all."""
    if owners is None:
        return list(datasets)
    for owner in owners:
        check_choice("owner", owner, [dataset.owner for dataset in datasets])
    return [dataset for dataset in datasets if dataset.owner in owners]


def _warn_delta(delta: float, entries: int) -> None:
    """Warn of a delta at which publishing one record in full would count as private."""
    if delta >= 1.0 / entries:
        warn("ledger-delta", delta=delta, entries=entries)


def _show(args: argparse.Namespace, key: Path | None) -> int:

    document = _document(args.file, gridpriv.read_book(args.file, key))
    return print_result(args, document, lambda: _print_accounts(args.file, document["owners"]))


def _print_accounts(file: str, owners: list[Json]) -> None:
    plain = ("owner", "units", "epsilon", "delta", "releases")
    rows = []
    for owner in owners:
        shares = [100.0 * owner["used"], 100.0 * owner["left"]]
        rows.append([*(owner[name] for name in plain), owner["total"]["epsilon"], *shares])
    print_table(f"Ledger {file}", [*plain, "spent epsilon", "used %", "left %"], rows)
    protected = sorted({owner["adjacency"].rstrip(".") for owner in owners})
    rules = sorted({owner["kept_by"] for owner in owners})
    say(
        *(f"Protected: {adjacency}." for adjacency in protected),
        *(f"Rule: {rule}." for rule in rules),
        worded("ledger-rows"),
    )


def _document(file: str, book: Book) -> Json:
    return {"ledger": str(file), "owners": [_account(account) for account in book.accounts]}


def _account(account: Account) -> Json:
    """Return an account as a JSON value; infinite epsilon is null."""
    used, grant = account.filter.used(account.spent), account.grant
    return {
        "owner": account.owner,
        "units": account.units,
        "epsilon": grant.epsilon,
        "delta": grant.delta,
        "adjacency": str(grant.protection),
        "granted_at": grant.at,
        "kept_by": account.filter_name,
        "releases": sum(account.spent.values()),
        "total_pure": json_ready(account.total_pure),
        "total": {"epsilon": json_ready(account.total), "delta": grant.delta},
        "used": used,
        "left": max(0.0, 1.0 - used),
        "charges": [vars(charge) | {"count": count} for charge, count in account.spent.items()],
    }


def _export(args: argparse.Namespace, key: Path | None) -> int:

    kind = args.format or (Path(args.out).suffix[1:] if args.out else "csv")
    check_choice("format", kind, FORMATS)
    book = gridpriv.read_book(args.file, key)
    charges = _charges(book)
    document = _document(args.file, book) | {"charges": charges}
    rows = (row.values() for row in charges)
    text = csv_text(COLUMNS, rows) if kind == "csv" else json_text(document)
    if args.out is not None:
        try:
            write_text(Path(args.out), text, private=True)
        except ValueError:
            raise not_allowed("out", args.out, "the name of a file") from None
    lines = "" if args.out is not None else text
    return print_result(args, document, lambda: sys.stdout.write(lines), args.out)


def _charges(book: Book) -> list[Json]:
    """Return every charge, oldest first; ``units`` is its number of units."""
    charges = []
    for row, entry in book.charged:
        units = sum(last - first + 1 for first, last in entry.units)
        for charge, count in entry.charges:
            cells = (row, entry.owner, entry.run, entry.at, units, *vars(charge).values(), count)
            charges.append(dict(zip(COLUMNS, cells, strict=True)))
    return charges


def _verify(args: argparse.Namespace, key: Path | None) -> int:
    from gridpriv.privacy.ledger import verify
    from gridpriv.privacy.ledger_file import parse_head

    expect = None if args.expect is None else parse_head(args.expect)
    result = verify(args.file, expect, key)
    document = {"ledger": str(args.file), "rows": result.head.count, "head": str(result.head)}
    document |= {"expected": args.expect, "unfinished_bytes": result.unfinished}
    return print_result(args, document, lambda: _print_verified(args.file, result, args.expect))


def _print_verified(file: str, result: LedgerFile, expected: str | None) -> None:
    say(f"{file}: every byte of its {counted(result.head.count, 'row')} is as it was written.")
    if result.unfinished:
        say(worded("ledger-unfinished", bytes=result.unfinished))
    print(f"Head: {result.head}")
    say("The ledger continues the expected head." if expected else worded("ledger-keep-head"))


ACTIONS = {"grant": _grant, "show": _show, "export": _export, "verify": _verify}
