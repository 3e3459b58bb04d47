"""Releases of a client's private values, and the tally of their cost.

An algorithm states the change of its value between adjacent data; the release
(:class:`gridpriv.privacy.release.Release`) adds the noise and is charged. Two mechanisms are added
to those of :mod:`gridpriv.privacy.mechanism`: noise on a value of a secret sample, and noise
without a proof.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from gridpriv.core.errors import check_choice
from gridpriv.privacy.accounting import SAMPLED
from gridpriv.privacy.mechanism import Charge, Wrapped
from gridpriv.privacy.release import Release

Kind = Literal["replace-one", "zero-out"]
KINDS: tuple[Kind, ...] = ("replace-one", "zero-out")

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

    def __post_init__(self) -> None:
        check_choice("adjacency", self.kind, KINDS)

    @property
    def factor(self) -> float:
        """Largest change of a sum, in gradients of samples."""
        return 2.0 if self.kind == "replace-one" else 1.0

    def __str__(self) -> str:
        change = {
            "replace-one": "any other",
            "zero-out": "a blank one, or back (sample counts are public)",
        }
        return f"any change of one sample of one client to {change[self.kind]}"


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

MULTIPLIERS = ("gaussian", "laplace", *SAMPLED)  # kinds whose parameter is a multiplier
COSTS = {"pure": 1, "zcdp": 2}  # kinds whose parameter grows with this power of the sensitivity


@dataclass(frozen=True)
class Sampled(Wrapped):
    """Gaussian noise on a sum over a batch that its owner samples in secret.

    Attributes
    ----------
    noise : Mechanism
        Gaussian noise, of which a discrete one is a function (:class:`SecureGaussian`).
    rate : float
        Probability that a sample is in the batch.
    kind : str
        Of the charge: method of sampling, and adjacency
        (:mod:`gridpriv.privacy.accounting`).
    """

    rate: float
    kind: str = "sampled-gaussian"

    def charge(self, distance: float) -> Charge:
        """Return the sampled Gaussian mechanism at noise multiplier sigma/D2."""
        return Charge(self.kind, self.noise.charge(distance).parameter, self.rate)


@dataclass(frozen=True)
class Amplification:
    """Amplification of a release by secret sampling.

    Attributes
    ----------
    rate : float
        Probability that a sample is in any of the release's batches, below 1.
    kind : str
        Of the charge (:mod:`gridpriv.privacy.accounting`).
    """

    rate: float
    kind: str


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
        by_content = {
            frozenset(charge.items()): charge for charge in self.charges.values() if charge
        }
        return list(by_content.values())


def covering(release: Release) -> Release:
    """Return a release as it is charged to a ledger, at no lower cost.

    Its sensitivity includes the rounding of float64 sums, and it has no amplification: no filter
    composes sampled releases, and a sampled release costs at most as much as one on all samples.
    """
    wider = release.sensitivity.value * (1.0 + MARGIN)
    plain = release.mechanism
    return replace(
        release,
        mechanism=plain.noise if isinstance(plain, Sampled) else plain,
        sensitivity=replace(release.sensitivity, value=wider),
    )


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
