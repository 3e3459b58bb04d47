"""``gridpriv account``: the total privacy of T releases, or the noise for a total."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Literal

from gridpriv.cli.flags import REAL, WHOLE, add_flags, add_output, given_settings
from gridpriv.cli.output import print_table, tell
from gridpriv.core.document import Json
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.settings import Part, changed
from gridpriv.privacy.accounting import (
    check_delta,
    epsilon_of,
    published_total,
    total_epsilon,
    total_pure,
)
from gridpriv.privacy.budget import Budget, noise_multiplier, parse_budget
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.settings import Privacy, SensitivityBound

LARGEST_MULTIPLIER = 1e9  # epsilon is below every accountant's grid long before
LEAST_MULTIPLIER = 1e-3  # below it every mechanism's epsilon is beyond LARGEST
LARGEST = 30.0  # epsilon of one release: its odds of being told apart are e^30 to 1


@dataclass(frozen=True, kw_only=True)
class Releases(Part):
    """Mechanism of one release."""

    mechanism: Literal["laplace", "gaussian"] = changed(
        Privacy, "mechanism", "laplace", choices=("laplace", "gaussian")
    )
    sensitivity: SensitivityBound = changed(
        Privacy,
        "sensitivity",
        "proven",
        help=(
            "Gaussian calibration of --epsilon and --delta: analytic (proven) or classical "
            "(published)"
        ),
    )
    delta: float = changed(Privacy, "delta", 1e-5, help="delta of one Gaussian release")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--releases", type=WHOLE, required=True, metavar="T", help="number of releases"
    )
    noise = parser.add_argument_group("noise", "Exactly one of these flags.")
    noise.add_argument("--epsilon", type=REAL, metavar="E", help="epsilon of one release")
    noise.add_argument(
        "--noise-multiplier", type=REAL, metavar="M", help="noise scale divided by sensitivity"
    )
    noise.add_argument("--total", metavar="E[,D]", help="total for which the noise is computed")
    add_flags(parser, Releases)
    parser.add_argument(
        "--target-delta",
        type=REAL,
        metavar="D",
        help="delta at which the total is stated (default: that of --total, or 1e-5)",
    )
    add_output(parser)


def execute(args: argparse.Namespace) -> int:
    """Print the statement."""
    document = statement(args)
    tell(args, document, lambda: _print(document))
    return 0


def asked(args: argparse.Namespace, chosen: Releases) -> tuple[float, float]:
    """Return the noise multiplier and the target delta that the command line asks about."""
    multiplier: float | None = args.noise_multiplier
    if sum(value is not None for value in (args.epsilon, multiplier, args.total)) != 1:
        raise InputError("give one of --epsilon, --noise-multiplier and --total")
    if args.releases < 1:
        raise not_allowed("releases", args.releases, "a whole number, 1 or more")
    target = Privacy.target_delta if args.target_delta is None else args.target_delta
    check_delta("target-delta", target)
    if chosen.sensitivity == "published" and args.epsilon is None:
        raise InputError("--sensitivity published states the noise of one release: give --epsilon")
    if multiplier is None:
        text = "" if args.total is None else f"total:{args.total}"
        budget = parse_budget(text) if text else Budget("per-release", args.epsilon)
        if budget.scope == "total" and budget.delta is not None and args.target_delta is None:
            target = budget.delta
        multiplier = noise_multiplier(
            budget, chosen.mechanism, chosen.sensitivity, args.releases, chosen.delta
        )
    elif not 0.0 < multiplier <= LARGEST_MULTIPLIER:
        raise not_allowed(
            "noise-multiplier", multiplier, f"a positive number up to {LARGEST_MULTIPLIER:g}"
        )
    return multiplier, target


def statement(args: argparse.Namespace) -> Json:
    """Return per-release and total privacy as JSON can hold it; infinite epsilon is null."""
    chosen, releases = Releases(**given_settings(args, Releases)), args.releases
    multiplier, target = asked(args, chosen)
    charge, gaussian = Charge(chosen.mechanism, multiplier), chosen.mechanism == "gaussian"
    # a Gaussian release of multiplier m has epsilon of at least about 1/(2 m^2)
    release = math.inf if multiplier < LEAST_MULTIPLIER else epsilon_of(charge, chosen.delta)
    if release > LARGEST:
        raise InputError(
            f"one release at noise multiplier {multiplier:.4g} has epsilon {release:.4g}: at most "
            f"{LARGEST:g} can be accounted for; use more noise"
        )
    pure, paper = total_pure({charge: releases}), None
    if gaussian and chosen.sensitivity == "published":
        paper = published_total(args.epsilon, chosen.delta, releases, target)
    return {
        "mechanism": chosen.mechanism,
        "sensitivity": chosen.sensitivity,
        "releases": releases,
        "noise_multiplier": multiplier,
        "per_release": {
            "nominal": release if args.epsilon is None else args.epsilon,
            "certified": release,
            "delta": chosen.delta if gaussian else 0.0,
        },
        "total_pure": pure if math.isfinite(pure) else None,
        "total": {"epsilon": total_epsilon({charge: releases}, target), "delta": target},
        "published_total": paper,
    }


def _print(document: Json) -> None:
    release, total = document["per_release"], document["total"]
    rows = [
        ["noise scale / sensitivity", document["noise_multiplier"]],
        [f"epsilon of one release at delta {release['delta']:g}", release["certified"]],
        ["total epsilon at delta 0 (basic composition)", document["total_pure"]],
        [f"total epsilon at delta {total['delta']:g} (PLD)", total["epsilon"]],
    ]
    paper = document["published_total"]
    if paper is not None:
        rows.append(["the paper's Theorem 4.6 (not a certificate)", paper])
    plural = "s" * (document["releases"] != 1)
    print_table(
        f"{document['releases']} {document['mechanism']} release{plural}",
        ["figure", "value"],
        [[name, None if value is None else f"{value:.5g}"] for name, value in rows],
    )
    if paper is not None:
        wrong = paper < total["epsilon"]
        print(
            "Theorem 4.6 is derived as a lower bound: "
            + ("here it is below the true total." if wrong else "it certifies nothing.")
        )
