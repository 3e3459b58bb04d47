r"""The certificate of a published case: its releases, their guarantees, and the published demand.

A certificate is a function of settings, public data and releases, so it is public with the case.

Guarantees of pure epsilon, whatever an adversary knows of the other buses:

- A guess between two demands of a bus at distance beta, at even odds, is right with probability at
  most e^epsilon / (1 + e^epsilon).
- An estimate x of the true one of t and t + beta has |x - t| + |x - t - beta| >= beta, so its mean
  absolute error over the two is at least (beta / 2) times the overlap of the two distributions,
  which is at least 2 / (1 + e^epsilon):

      error >= beta / (1 + e^epsilon).

  Between demands at distance k beta the loss is k epsilon, so both hold with k beta and k epsilon.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from importlib.metadata import version
from pathlib import Path

import numpy as np

from gridpriv.core.errors import InputError
from gridpriv.core.files import read_bytes, read_sealed
from gridpriv.core.text import Json, capitalized, json_ready, sections
from gridpriv.grid.case import Case
from gridpriv.grid.convert import bus_shift
from gridpriv.power.ac.optimum import Served
from gridpriv.privacy.accounting import epsilon_of, total_pure
from gridpriv.privacy.certificate import certified_for, noise_caveat
from gridpriv.privacy.mechanism import MECHANISMS
from gridpriv.privacy.release import Release
from gridpriv.zonal.prepared import Prepared

UNITS = {"p+q": "MW", "p": "MW", "q": "MVAr"}
"""Unit of the protected change."""
METRICS = {
    "box": "sum over buses of max(|p|, |q|)",
    "pair": "sum over buses of max(|p|, |q|)",
    1: "sum over buses of |p| + |q|",
    "number": "sum over buses of |p| + |q|",
    2: "sum over buses of p^2 + q^2",
}

PUBLIC_DATA = (
    "topology, impedances, ratings, voltage and angle limits, shunts, generators with their limits "
    "and costs, areas and zones of buses"
)


def best_guess(epsilon: float) -> float:
    """Return the largest probability of a right guess between adjacent demands at even odds.

    >>> best_guess(0.0)
    0.5
    """
    return 1.0 / (1.0 + math.exp(-epsilon))


def inversion_error(beta: float, epsilon: float) -> float:
    """Return the least expected absolute error of an estimate over two demands at distance beta.

    >>> round(inversion_error(10.0, 1.0), 3)
    2.689
    """
    return beta / (1.0 + math.exp(min(epsilon, 700.0)))


def rounded_bounds(guard: Json) -> Json:
    """Return the bounds of a certificate for readers: the upper one rounded up, the lower down."""
    upper, lower = Context(prec=3, rounding=ROUND_CEILING), Context(prec=4, rounding=ROUND_FLOOR)
    return {
        "best_guess": float(upper.create_decimal_from_float(guard["best_guess"])),
        "inversion_error_mw": float(lower.create_decimal_from_float(guard["inversion_error_mw"])),
    }


@dataclass(frozen=True, eq=False)
class PublishedDraw:
    """One release of a publication.

    Attributes
    ----------
    quantity : str
    release : Release
    unit : float
        Of its numbers, in ``unit_name``.
    unit_name : str
    reactive : float
        Weight of reactive values: their noise is that of active values divided by it.
    weights : tuple of float
        Of a tree: weights of the sum over all buses and of a bus before the noise.
    """

    quantity: str
    release: Release
    unit: float
    unit_name: str
    reactive: float = 1.0
    weights: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class CertificateContents:
    """Contents of a certificate.

    Attributes
    ----------
    ready : Prepared
        The whole grid as one zone.
    adjacency : str
        Protected change, as a sentence.
    drawn : tuple of Drawn
    served : Served
        The published demand.
    errors : (float, float)
        Expected errors of the total and of a bus (root mean square) of active demand, per unit.
    cost_range : (float, float) or None
    factors : tuple of float
        Public factors of the steps of a series.
    """

    ready: Prepared
    adjacency: str
    drawn: tuple[PublishedDraw, ...]
    served: Served
    errors: tuple[float, float]
    cost_range: tuple[float, float] | None = None
    factors: tuple[float, ...] = ()

    @property
    def epsilon(self) -> float:
        """Pure epsilon of all releases."""
        return total_pure(Counter(item.release.certified for item in self.drawn))


def certificate(
    contents: CertificateContents, published: Case, files: Mapping[str, str], run: str | None
) -> Json:
    """Return the certificate of a published case as a JSON value.

    Parameters
    ----------
    files : mapping of str to str
        Content by name.
    run : str or None
        Identifier of the ledger's entries.
    """
    settings, base = contents.ready.settings, published.base_mva
    epsilon, beta = contents.epsilon, base * contents.ready.rules.adjacency.beta
    optimum = contents.served.optimum
    document: Json = {
        "case": published.name,
        "source": contents.ready.case.name,
        "buses": published.n_bus,
        "bus_shift": bus_shift(published),
        "protected": {
            "adjacency": contents.adjacency,
            "beta_mw": beta,
            "protects": settings.protects,
            "total_epsilon": epsilon,
            "noise": settings.noise,
            "caveat": noise_caveat(
                settings.noise_budget, settings.noise, settings.effective_mechanism()
            ),
            "best_guess": best_guess(epsilon),
            "inversion_error_mw": inversion_error(beta, epsilon),
        },
        "releases": [_row(item) for item in contents.drawn],
        "demand": _demand(contents),
        "optimum": {
            "ac_feasible": not optimum.violations,
            "cost": optimum.cost,
            "cost_range": contents.cost_range,
            "rated_branches": int((published.rate > 0).sum()),
        },
        "files": file_rows(files),
        "ledger": None if run is None else {"run": run},
        "public_data": PUBLIC_DATA,
        "version": version("gridpriv"),
    }
    return dict(json_ready(document))


CERTIFICATE = ".certificate.json"


def file_rows(texts: Mapping[str, str]) -> list[Json]:
    """Return the rows of a certificate on files: names and digests."""
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    return [{"name": name, "sha256": digest} for name, digest in digests.items()]


def verify(path: Path) -> Json:
    """Compare the files of a publication with the digests in its certificate.

    Parameters
    ----------
    path : Path
        The published case (``.m``) or its certificate; the other files are next to it.

    Returns
    -------
    dict
        ``certificate``, ``case``, ``total_epsilon``, ``noise``, and the ``status`` of each of
        ``files``: unchanged, changed or missing.

    Raises
    ------
    InputError
        If the certificate is missing, damaged or edited, or not one of a published case.
    """
    own = path.name.endswith(CERTIFICATE)
    source = path if own else path.with_name(f"{path.stem}{CERTIFICATE}")
    document = read_sealed(source)
    try:
        guard, listed = document["protected"], document["files"]
        digests = {source.with_name(row["name"]): row["sha256"] for row in listed}
        result = {"certificate": str(source), "case": document["case"]}
        result |= {name: guard[name] for name in ("total_epsilon", "noise")}
    except (LookupError, TypeError, ValueError):
        raise InputError(
            f"{source} is not the certificate of a published case: give FILE.m or "
            f"FILE{CERTIFICATE} of gridpriv publish"
        ) from None
    if not own:
        digests = {path: "", **digests}  # a case that the certificate does not list is changed
    return result | {"files": [_compared(file, digest) for file, digest in digests.items()]}


def _compared(file: Path, digest: str) -> Json:
    """Return the name of a file, and whether it is as its digest says."""
    if not file.exists():
        return {"name": file.name, "status": "missing"}
    same = hashlib.sha256(read_bytes(file)).hexdigest() == digest
    return {"name": file.name, "status": "unchanged" if same else "changed"}


def _row(drawn: PublishedDraw) -> Json:
    release = drawn.release
    mechanism = release.mechanism
    return {
        "quantity": drawn.quantity,
        "mechanism": type(mechanism).__name__,
        "sensitivity": drawn.unit * release.sensitivity.value,
        "scale": drawn.unit * mechanism.scale,
        "standard_deviation": drawn.unit * math.sqrt(mechanism.variance),
        "reactive_weight": drawn.reactive,
        "weights": list(drawn.weights),
        "unit": drawn.unit_name,
        "norm": str(mechanism.norm),
        "epsilon": epsilon_of(release.certified, 0.0),
        "bound_source": release.sensitivity.bound_source,
    }


def _demand(contents: CertificateContents) -> Json:
    case = contents.served.case
    total, bus = (case.base_mva * error for error in contents.errors)
    projected = case.base_mva * np.abs(contents.served.demand_change).sum(axis=1)
    return {
        "total_mw": case.base_mva * float(case.pd.sum()),
        "expected_total_error_mw": total,
        "expected_bus_error_mw": bus,
        "negative_loads": int((case.pd < 0.0).sum()),
        "projected_mw": float(projected[0]),
        "projected_mvar": float(projected[1]),
        "metric": METRICS[contents.drawn[0].release.mechanism.norm],
        "factors": contents.factors or None,
        "margin": contents.served.margin,
    }


COPIES = {"secure": "a protected copy", "simulated": "a trial copy, without privacy,"}
"""Published cases by the source of their noise."""
TEXTS = sections(Path(__file__).with_name("datasheet.txt"))
OTHER = {
    own: f"; changes of {other} demand: it is released with the same noise, but the total epsilon "
    f"covers changes of {named} demand only"
    for own, named, other in (("p", "active", "reactive"), ("q", "reactive", "active"))
}


SUMS = (
    "Before the noise, the total is multiplied by {weights[0]:.4g} and the demand of a bus by "
    "{weights[1]:.4g}. Divided by this factor, the noise has a standard deviation "
    "of {total:.4g} {unit} for the total and {bus:.4g} {unit} for a bus. The posterior "
    "combines all values with the prior."
)
WEIGHTED = (
    "Reactive values are multiplied by {weight:.4g} before the noise; the estimate of reactive "
    "demand follows active demand at the public power factor."
)


def data_sheet(document: Json, notes: Sequence[str] = ()) -> str:
    """Return the one-page data sheet of a certificate, in Markdown."""
    guard = document["protected"]
    releases = [line for release in document["releases"] for line in _lines(release)]
    weights = sorted({release["reactive_weight"] for release in document["releases"]} - {1.0})
    releases += [line for weight in weights for line in ("", WEIGHTED.format(weight=weight))]
    for release in document["releases"]:
        if release["weights"]:
            total, bus = (release["standard_deviation"] / each for each in release["weights"])
            releases += ["", SUMS.format(**release, total=total, bus=bus)]
    shown = document | guard | rounded_bounds(guard) | {"releases": "\n".join(releases)}
    sheet = TEXTS["sheet"].format(
        **(shown | document["demand"]),
        made=capitalized(guard["caveat"]),
        other=OTHER.get(guard["protects"], ""),
        beta_unit=UNITS[guard["protects"]],
        before=before(document),
        copy=COPIES[guard["noise"]],
        simulated=f"{TEXTS['simulated']}\n\n" if guard["noise"] == "simulated" else "",
        holds=holds(document),
        uses="\n".join([*_uses(document["demand"], document["optimum"]), *notes]),
    )
    return f"{sheet}\n"


def _lines(release: Json) -> list[str]:
    """Return the line of a release, and another of its reactive values if they have more noise."""
    lines, weight = [TEXTS["release"].format(**release)], release["reactive_weight"]
    if weight != 1.0:
        deviation = release["standard_deviation"] / weight
        lines[0] = TEXTS["release"].format(
            **(release | {"quantity": f"{release['quantity']}, active"})
        )
        lines.append(
            f"| {release['quantity']}, reactive | {release['mechanism']} | joint with active | "
            f"joint with active | {deviation:.4g} | MVAr |"
        )
    return lines


def before(document: Json) -> str:
    """Return the words that follow demand whose steps public factors multiply."""
    return " before the public factors" if document["demand"]["factors"] else ""


def holds(document: Json) -> str:
    """Return the note on the noise of a certificate; see :func:`certified_for`."""
    names = {kind.__name__: name.removesuffix("-number") for (name, _), kind in MECHANISMS.items()}
    drawn = (names[release["mechanism"]] for release in document["releases"])
    return certified_for(document["protected"]["noise"], *drawn)


def _uses(demand: Json, optimum: Json) -> list[str]:
    """Return the errors, the costs and the projection of a published case."""
    total, bus = demand["expected_total_error_mw"], demand["expected_bus_error_mw"]
    cost, span = optimum["cost"], optimum["cost_range"]
    stated = "none: the case has no costs" if cost is None else f"{cost:,.2f} $/h"
    of_bus = f"of one bus, root mean square: {bus:.4g} MW"
    lines = [
        f"Posterior standard deviation of the total: {total:.4g} MW; {of_bus}.",
        f"Optimal cost of this case: {stated}.",
    ]
    if span is not None:
        lines.append(
            f"The optimal cost of the true case is between {span[0]:,.0f} and {span[1]:,.0f} $/h, "
            "with a probability of 95 % (the range over 39 draws of the posterior: 38/40)."
        )
    if not demand["margin"]:
        return [*lines, "The estimate was AC-feasible and was not changed."]
    return [
        *lines,
        f"The estimate was not AC-feasible. It was changed by {demand['projected_mw']:.4g} MW and "
        f"{demand['projected_mvar']:.4g} MVAr to the nearest demand that an AC optimum serves "
        f"(distance: {demand['metric']}).",
    ]
