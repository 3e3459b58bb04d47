"""``gridpriv learn grant`` and ``learn run --ledger``: budgets of training samples."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from gridpriv.cli.charging import add_ledger_arguments, given_key, opened
from gridpriv.cli.flags import REAL, add_flags, add_output
from gridpriv.cli.output import tell
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.settings import names
from gridpriv.learning.settings import LearnSettings

if TYPE_CHECKING:
    from gridpriv.learning.algorithms.base import Begun
    from gridpriv.learning.datasets.base import Dataset
    from gridpriv.privacy.ledger import ReleaseCharge
    from gridpriv.privacy.ledger_rows import LedgerDataset as Owned

# what tells which samples there are, and what is protected of them
OF_SAMPLES = frozenset(
    {"adjacency", "algorithm", "norm", "clients", "split", "missing", "scaling", "seed"}
)


def grant_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``learn grant`` takes beside a data set."""
    parser.add_argument(
        "--epsilon", type=REAL, required=True, metavar="E", help="total of all releases"
    )
    parser.add_argument(
        "--delta", type=REAL, default=0.0, metavar="D", help="of all releases (default: 0, pure)"
    )
    add_ledger_arguments(parser)
    add_flags(parser, LearnSettings, without=set(names(LearnSettings)) - OF_SAMPLES)
    add_output(parser)


def grant(args: argparse.Namespace, dataset: Dataset, settings: LearnSettings) -> int:
    """Grant a total to every sample (with dp-fedavg: every client) of a data set."""
    from gridpriv.learning.run import split_for
    from gridpriv.learning.units import client_datasets
    from gridpriv.privacy.ledger import grant as write_grant

    if args.ledger is None:
        raise InputError("--ledger is missing: the file that the grant is written to")
    owners = client_datasets(dataset, split_for(dataset, settings), settings)
    write_grant(args.ledger, owners, args.epsilon, args.delta, given_key(args))
    units = sum(len(owner.units) for owner in owners)
    kind = owners[0].protection.units
    document = {
        "ledger": args.ledger,
        "dataset": dataset.name,
        "epsilon": args.epsilon,
        "delta": args.delta,
        "units": units,
        "unit": kind,
        "clients": len(owners),
        "protected": str(owners[0].protection),
    }
    delta = f" at delta {args.delta:g}" if args.delta else ""
    told = (
        f"{args.ledger}: epsilon {args.epsilon:g}{delta} granted to each of {units} {kind} of "
        f"{dataset.name}.\nProtected: {document['protected']}."
    )
    tell(args, document, lambda: print(told))
    return 0


@contextmanager
def charging(
    args: argparse.Namespace, dataset: Dataset, settings: LearnSettings, begun: Begun
) -> Iterator[ReleaseCharge | None]:
    """Open ``--ledger``, refuse a run that does not fit, and yield what charges its releases."""
    from gridpriv.learning.run import make_task, split_for
    from gridpriv.learning.units import client_datasets, planned

    def owners() -> Sequence[Owned]:
        return client_datasets(dataset, split_for(dataset, settings), settings)

    with opened(args, owners, noisy=settings.mechanism != "none") as charge:
        if charge is None:
            yield None
            return
        task, _ = make_task(dataset, settings)
        task = replace(task, begun=begun)
        costs = {name: charge.cost(name, drawn) for name, drawn in planned(task).items()}
        if any(cost.kind == "uncertified" for one in costs.values() for cost in one):
            raise not_allowed(
                "ledger", args.ledger, "left out with this run: nothing is proved of its releases"
            )
        charge.ledger.plan(costs)
        yield charge
