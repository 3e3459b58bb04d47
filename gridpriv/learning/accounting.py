"""Releases of clients' private values, their privacy cost, and training data as units of a ledger.

An algorithm states the change of its value between adjacent data; the release
(:class:`gridpriv.privacy.release.Release`) adds the noise and is charged. Two mechanisms are added
to those of :mod:`gridpriv.privacy.mechanism`: noise on a value of a secret sample, and noise
without a proof.

Clients' data are disjoint and a client is seen only through its releases, so the loss of a run is
that of its worst client. There are four kinds of release:

- plain Laplace and Gaussian noise of known sensitivity: composed by
  :mod:`gridpriv.privacy.accounting`;
- Gaussian noise on a step over a batch that the client samples in secret: the PLD of the sampled
  Gaussian mechanism, for Poisson batches under either adjacency and for batches of fixed size
  without replacement under ``replace-one`` (:mod:`gridpriv.privacy.accounting`). Batches drawn with
  replacement are charged in full. Participation of clients is visible in the messages, so it does
  not amplify privacy, except where a trusted server samples clients in secret (``dp-fedavg`` with
  ``participation`` secret);
- (epsilon, delta) mechanisms without additive noise (objective perturbation of an exact minimizer):
  the PLD that dominates every such mechanism;
- releases without a proof: nothing is certified, and the total is infinite.

The units of a ledger are samples, released client by client. ``dp-fedavg`` protects a client's
whole training set, so there the units are clients.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import chain

import numpy as np

from gridpriv.core.text import Json
from gridpriv.learning.datasets.base import Dataset, Indices
from gridpriv.learning.settings import Kind, LearnSettings
from gridpriv.privacy import accounting, ledger_rows
from gridpriv.privacy.adjacency import Move, Protection
from gridpriv.privacy.ledger_rows import Unit
from gridpriv.privacy.mechanism import Charge, Wrapped
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.release import Release
from gridpriv.privacy.settings import noise_multiplier

TRUSTED = {
    "local": "no server is trusted",
    "central": "the server is trusted",
    "secure-sum": "no server sees single terms of a sum, and few clients collude with it",
}


@dataclass(frozen=True)
class SampleAdjacency:
    """One sample of one client is replaced by any other, or (``zero-out``) by a blank sample.

    A blank sample has no features, so its term of every sum is 0, but it still counts: counts and
    the sampling of batches are public and do not change. So the presence of a sample is protected.
    If the sample were removed, a batch of fixed size would have another sample in its place.
    """

    kind: Kind = "replace-one"

    @property
    def factor(self) -> float:
        """Largest change of a sum, in gradients of samples."""
        return 2.0 if self.kind == "replace-one" else 1.0

    def __str__(self) -> str:
        blank = "a blank one, or back (sample counts are public)"
        other = "any other" if self.kind == "replace-one" else blank
        return f"any change of one sample of one client to {other}"


def protected(algorithm: str, kind: Kind, trust: str = "local") -> str:
    """Return a sentence on the protection by an algorithm's releases, also against a server."""
    if algorithm == "dp-fedavg":
        return "presence or absence of one client's update in the sum; the server is trusted"
    return f"{SampleAdjacency(kind)}; {TRUSTED[trust]}"


DIGITS = 10
# A charge's multiplier is this much below the noise drawn, for the rounding of sums. A sum of N
# gradients of norm C errs by N 2^-53 N C at most in float64, so two of them by N^2 2^-53 of their
# sensitivity 2C: 1e-7 covers 30,000 samples of a client in the worst order, and any number in
# practice. float32 sums, for simulated noise, err by up to some 1e-4 of it (60,000 samples), which
# is not covered; simulated noise protects nothing.
MARGIN = 1e-7
# so noise is larger than its budget requires by this factor
ROUNDING = 1.0 + 2.0 * MARGIN

MULTIPLIERS = ("gaussian", "laplace", *accounting.SAMPLED)  # kinds whose parameter is a multiplier
COSTS = {"pure": 1, "zcdp": 2}  # kinds whose parameter grows with this power of the sensitivity


@dataclass(frozen=True)
class Amplification:
    """Amplification of a release by secret sampling.

    Attributes
    ----------
    rate : float
        Probability that a sample is in any of the release's batches, below 1.
    kind : str
        Of the charge: method of sampling, and adjacency
        (:mod:`gridpriv.privacy.accounting`).
    """

    rate: float
    kind: str


@dataclass(frozen=True)
class Sampled(Wrapped):
    """Gaussian noise on a sum over a batch that its owner samples in secret.

    Attributes
    ----------
    noise : Mechanism
        Gaussian noise, of which a discrete one is a function (:class:`SecureGaussian`).
    amplified : Amplification
    """

    amplified: Amplification

    def charge(self, distance: float) -> Charge:
        """Return the sampled Gaussian mechanism at noise multiplier sigma/D2."""
        plain = self.noise.charge(distance)
        return Charge(self.amplified.kind, plain.parameter, self.amplified.rate)


@dataclass(frozen=True)
class Unproved(Wrapped):
    """Noise of a scale without a proof, from a paper whose sensitivity is incomplete."""

    def charge(self, distance: float) -> Charge:
        """Return a charge that certifies nothing."""
        del distance
        return Charge("uncertified", 0.0)


@dataclass(eq=False)
class Tally:
    """Releases of every client.

    Attributes
    ----------
    charges : dict of int to Counter
        Of every client.
    last : dict of int to Release
        Every client's last release.
    notes : list of str
        Notes on the certificate.
    """

    charges: dict[int, Counter[Charge]] = field(default_factory=dict)
    last: dict[int, Release] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, client: int, release: Release, count: int = 1) -> None:
        """Charge a client's releases."""
        self.charge(client, release.certified, count)
        self.last[client] = release

    def charge(self, client: int, charge: Charge, count: int = 1) -> None:
        """Charge a mechanism without additive noise; see :func:`rounded`."""
        self.charges.setdefault(client, Counter())[rounded(charge)] += count

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)

    def distinct(self) -> list[Mapping[Charge, int]]:
        """Return the distinct charges of clients."""
        return list({frozenset(c.items()): c for c in self.charges.values() if c}.values())


def covering(release: Release) -> Release:
    """Return a release as it is charged to a ledger, at no lower cost.

    Its sensitivity includes the rounding of float64 sums, and it has no amplification: no filter
    composes sampled releases, and a sampled release costs at most as much as one on all samples.
    """
    wider = release.sensitivity.value * (1.0 + MARGIN)
    plain = release.mechanism.noise if isinstance(release.mechanism, Sampled) else release.mechanism
    return replace(release, mechanism=plain, sensitivity=replace(release.sensitivity, value=wider))


@lru_cache(maxsize=1024)
def rounded(charge: Charge) -> Charge:
    """Return a charge rounded to ten digits at no lower cost, so that equal charges compare equal.

    A multiplier is rounded down and a cost up; a release without noise certifies nothing.
    :data:`MARGIN` covers the rounding of float64 sums.
    """
    parameter = charge.parameter
    if charge.kind in MULTIPLIERS:
        if not (parameter > 0.0 and math.isfinite(parameter)):
            return Charge("uncertified", 0.0)
        unit = _unit(parameter)
        # a float that is one unit in the last place short of a multiple is that multiple
        parameter = math.floor(parameter / unit + 1e-3) * unit * (1.0 - MARGIN)
    elif charge.kind in COSTS and parameter > 0.0:
        parameter *= ROUNDING ** COSTS[charge.kind]
        parameter = math.ceil(parameter / _unit(parameter)) * _unit(parameter)
    return Charge(charge.kind, parameter, charge.second)


def _unit(parameter: float) -> float:
    return float(10.0 ** (math.floor(math.log10(parameter)) + 1 - DIGITS))


def noise_rule(settings: LearnSettings, releases: int) -> NoiseRule | None:
    """Return the noise for a budget over a number of plain releases, or None."""
    if settings.mechanism == "none":
        return None
    stated = settings.budget, settings.mechanism, settings.sensitivity
    multiplier = noise_multiplier(*stated, releases, settings.delta, settings.noise)
    if settings.sensitivity == "proven":
        multiplier *= ROUNDING
    return NoiseRule(settings.mechanism, settings.noise, multiplier)


@cache
def sampled_multiplier(
    settings: LearnSettings, plain: float, rate: float, kind: str, first: float | None = None
) -> float:
    """Return the multiplier at which sampled releases cost as much as plain ones of ``plain``.

    ``first`` is the multiplier of one additional plain release.

    ``plain`` is the multiplier of the budget without amplification. The sampled releases are
    calibrated by their PLD to the total of as many plain ones. With a budget per release the noise
    is that of the budget, and amplification appears in the certificate only.
    """
    budget = settings.budget
    if budget.scope == "per-release" or rate >= 1.0:
        return plain
    whole = accounting.gaussian_multiplier(budget.epsilon, budget.delta or 0.0, 1)
    releases = max(1, round((plain / whole) ** 2))

    def cost(multiplier: float) -> float:
        spent = {Charge(kind, multiplier, rate): releases}
        if first is not None:
            spent[Charge("gaussian", first)] = 1
        return accounting.total_epsilon(spent, budget.delta or 0.0)

    # sampling at rate q lowers the noise by a factor of q at best (small epsilon, many releases)
    return ROUNDING * _smallest(cost, budget.epsilon, plain * max(rate / 2.0, 1e-3), plain)


def _smallest(cost: Callable[[float], float], epsilon: float, least: float, most: float) -> float:
    """Return a multiplier up to ``most`` whose cost is at most epsilon, the smallest to 0.2 %.

    Amplification only lowers the cost, so ``most`` (no amplification) always suffices. The search
    ends at ``least``, below which little can be gained. Cost falls as the multiplier grows, so a
    tolerance above the root is on the safe side.
    """
    from scipy.optimize import brentq  # imports scipy: slow

    @cache
    def excess(logarithm: float) -> float:
        return math.log(min(cost(math.exp(logarithm)) / epsilon, 1e3))

    high, low, tolerance = math.log(most), math.log(most), 1e-3
    while excess(low) <= 0.0:  # narrow multipliers have wide loss distributions: from above
        if low <= math.log(least):
            return math.exp(low)
        high, low = low, max(low - min(1.0, 0.1 - excess(low)), math.log(least))
    if high == low:
        return most
    return math.exp(min(high, float(brentq(excess, low, high, xtol=tolerance)) + tolerance))


def classical_epsilon(multiplier: float, delta: float, mechanism: str) -> float:
    """Return the epsilon of the noise that the papers' step sizes and penalties use.

    sqrt(2 ln(1.25/delta)) / multiplier, or 1 / multiplier for Laplace; inf without noise. It is no
    privacy statement.
    """
    numerator = 1.0 if mechanism == "laplace" else math.sqrt(2.0 * math.log(1.25 / delta))
    return numerator / multiplier if multiplier > 0.0 else math.inf


def zcdp_total(charges: Mapping[Charge, int]) -> float:
    """Return rho of zero-concentrated privacy."""
    return math.fsum(n * accounting.zcdp_rho(c) for c, n in charges.items())


def privacy_certificate(settings: LearnSettings, multiplier: float, tally: Tally) -> Json:
    """Return the ``privacy`` block of a run: every value is that of the worst client.

    Parameters
    ----------
    multiplier : float
        Noise over sensitivity according to the budget; shown where nothing was released.
    """
    tallies = tally.distinct()
    releases = max((sum(t.values()) for t in tallies), default=0)
    charges = {c for item in tallies for c in item}
    delta, target = settings.release_delta, settings.total_delta
    multiplier_drawn = min((c.parameter for c in charges if c.kind in MULTIPLIERS), default=None)
    pure = charges and all(c.kind in accounting.PURE for c in charges)
    # rho has no amplification, so sampled releases have none
    concentrated = charges and all(c.kind in {"gaussian", "zcdp"} for c in charges)
    return {
        "mechanism": settings.mechanism,
        "perturbation": settings.as_dict()["perturbation"],
        "sensitivity_bound": settings.sensitivity,
        "noise": settings.noise,
        "adjacency": protected(settings.algorithm, settings.adjacency, settings.trust),
        "releases_per_client": releases,
        "per_release": {
            "nominal": _nominal(settings, "per-release"),
            "certified": max((accounting.epsilon_of(c, delta) for c in charges), default=None),
            "delta": delta if settings.mechanism == "gaussian" else 0.0,
        },
        "noise_multiplier": multiplier_drawn or multiplier or None,
        "total_pure": max(map(accounting.total_pure, tallies)) if pure else None,
        "total": {
            "nominal": _nominal(settings, "total"),
            "epsilon": max((accounting.total_epsilon(t, target) for t in tallies), default=None),
            "delta": target,
        },
        "zcdp": max(map(zcdp_total, tallies)) if concentrated else None,
        "published_total": ryu_kim_total(settings),
        "sensitivity": [_calibration(p, tally.last[p]) for p in sorted(tally.last)],
        "notes": tally.notes,
    }


def _calibration(client: int, release: Release) -> Json:
    """Return the assumed and the proven sensitivity of a client's last release."""
    assumed, sound = release.assumed, release.sensitivity
    return {
        "client": client + 1,
        "assumed": assumed,
        "sensitivity": sound.value,
        "ratio": sound.value / assumed if assumed > 0 else None,
        "scale": release.mechanism.scale,
        "bound_source": sound.bound_source,
    }


def _nominal(settings: LearnSettings, scope: str) -> float | None:
    """Return the budget's epsilon of one release, or of all."""
    budget = settings.budget
    return budget.epsilon if settings.mechanism != "none" and budget.scope == scope else None


def ryu_kim_total(settings: LearnSettings) -> Json | None:
    """Return theorem 4.6 of Ryu and Kim for their algorithm as published; no certificate."""
    budget, releases = settings.budget, settings.rounds * settings.local_updates
    stated = ("ryu-kim", "published", "gaussian", "per-release")
    if (settings.algorithm, settings.sensitivity, settings.mechanism, budget.scope) != stated:
        return None
    value = accounting.published_total(
        budget.epsilon, settings.release_delta, releases, settings.total_delta
    )
    return {"epsilon": value, "formula": "Ryu and Kim, theorem 4.6 (a lower bound)"}


def client_datasets(
    dataset: Dataset, parts: Sequence[Indices], settings: LearnSettings
) -> tuple[ledger_rows.LedgerDataset, ...]:
    """Return every client's dataset: its samples, or itself as one unit.

    Parameters
    ----------
    parts : sequence of (m,) int
        Training rows of every client. A sample is identified by its row and its data, so its budget
        does not depend on the split over clients; other data in its row are refused.
    """
    if settings.algorithm == "dp-fedavg":
        move, unit = Move("training set", math.inf, "(any other)"), "client"
        units = [_client(dataset, p, part) for p, part in enumerate(parts)]
    else:
        move, unit = Move("features and label", math.inf, f"({settings.adjacency})"), "sample"
        units = [_samples(dataset, part) for part in parts]
    protection = Protection(unit, f"{unit}s", (move,))
    entries = [(str(p), own, protection, "client") for p, own in enumerate(units, start=1)]
    return tuple(ledger_rows.LedgerDataset(*entry) for entry in entries)


def _samples(dataset: Dataset, rows: Indices) -> tuple[Unit, ...]:
    return tuple(_ledger_unit(dataset, f"row {row}", _record(dataset, int(row))) for row in rows)


def _client(dataset: Dataset, number: int, rows: Indices) -> tuple[Unit, ...]:
    # part of a keyed mark, never stored: one digest of all rows of the client
    digest = hashlib.sha256()
    for row in rows:
        digest.update(_record(dataset, int(row)))
    return (_ledger_unit(dataset, f"client {number + 1} of rows {_spans(rows)}", digest.digest()),)


def _ledger_unit(dataset: Dataset, name: str, record: bytes) -> Unit:
    # in the register all units of a data set are one: a sample is also part of a client
    identity = dataset.content or dataset.name
    account = hashlib.sha256(f"data set {identity}".encode()).hexdigest()[:32]
    return Unit(f"{dataset.name} {name}", record, account)


def _record(dataset: Dataset, row: int) -> bytes:
    x, y = dataset.x_train[row], dataset.y_train[row : row + 1]
    return np.ascontiguousarray(x).tobytes() + np.ascontiguousarray(y).tobytes()


def _spans(rows: Indices) -> str:
    """Return the first and last numbers of every range of consecutive rows."""
    ordered = np.sort(rows)
    breaks = np.flatnonzero(np.diff(ordered) != 1)
    first_rows, last_rows = ordered[np.r_[0, breaks + 1]], ordered[np.r_[breaks, len(ordered) - 1]]
    return ",".join(map(str, chain.from_iterable(zip(first_rows, last_rows, strict=True))))
