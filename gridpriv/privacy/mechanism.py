"""Additive noise mechanisms: what the sampler draws and what the accountant charges.

Each is one frozen object that does both, so that they cannot disagree. ``distance`` is the
sensitivity of what is released, in the mechanism's norm, as the full replacement distance.

The plain mechanisms draw numpy floats: fine for simulation, but floating-point noise leaks
(one output can prove which input it came from; Mironov, CCS 2012). The secure ones hand the
value to OpenDP, which rounds it to a 2^k grid and adds discrete noise there from the operating
system's entropy, and charge what OpenDP's own privacy map states. The value must go through:
discrete noise added to an unrounded float would leave the float's low bits readable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import missing_extra
from gridpriv.privacy.sensitivity import Norm

Stream = Callable[[], np.random.Generator]


class Mechanism(Protocol):
    """Additive noise of a given scale."""

    @property
    def norm(self) -> Norm:
        """Norm the sensitivity is measured in."""
        ...

    @property
    def scale(self) -> float:
        """Scale of the noise (Laplace b, Gaussian sigma)."""
        ...

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return ``value`` with noise; ``stream`` gives the generator a simulation draws from."""
        ...

    def charge(self, distance: float) -> Charge:
        """Return what one release costs at this sensitivity."""
        ...


@dataclass(frozen=True)
class Charge:
    """What one release costs, for the accountant.

    Attributes
    ----------
    kind : {'laplace', 'gaussian', 'pure', 'zcdp', 'sampled-gaussian', 'approximate', 'uncertified'}
    parameter : float
        Noise multiplier (scale / sensitivity) of a Laplace or Gaussian mechanism; epsilon of
        a purely or an (epsilon, delta) private one; rho of a zero-concentrated one; of no
        meaning where nothing is proved.
    second : float
        Rate of the Poisson sample that a sampled Gaussian mechanism sees (under add-one
        adjacency); delta of an (epsilon, delta) private mechanism; else 0.
    """

    kind: str
    parameter: float
    second: float = 0.0


@dataclass(frozen=True)
class Laplace:
    """Laplace noise of scale b on every coordinate (Dwork et al., TCC 2006)."""

    scale: float
    norm: Norm = 1

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return the value plus draws of density exp(-|x|/b)/2b."""
        return value + stream().laplace(0.0, self.scale, value.shape)

    def charge(self, distance: float) -> Charge:
        """Return the Laplace mechanism at noise multiplier b/D1."""
        return Charge("laplace", self.scale / distance)


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise of standard deviation sigma on every coordinate."""

    scale: float
    norm: Norm = 2

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return the value plus normal draws of standard deviation sigma."""
        return value + stream().normal(0.0, self.scale, value.shape)

    def charge(self, distance: float) -> Charge:
        """Return the Gaussian mechanism at noise multiplier sigma/D2."""
        return Charge("gaussian", self.scale / distance)


@dataclass(frozen=True)
class SecureLaplace:
    """OpenDP's discrete Laplace noise, from the operating system's entropy."""

    scale: float
    norm: Norm = 1

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return OpenDP's release of the value, rounded to its grid; ``stream`` is not used."""
        del stream
        return np.asarray(_opendp("laplace", self.scale)(value.tolist()), dtype=float)

    def charge(self, distance: float) -> Charge:
        """Return OpenDP's own map at ``distance``: a pure epsilon."""
        return Charge("pure", float(_opendp("laplace", self.scale).map(distance)))


@dataclass(frozen=True)
class SecureGaussian:
    """OpenDP's discrete Gaussian noise, from the operating system's entropy."""

    scale: float
    norm: Norm = 2

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return OpenDP's release of the value, rounded to its grid; ``stream`` is not used."""
        del stream
        return np.asarray(_opendp("gaussian", self.scale)(value.tolist()), dtype=float)

    def charge(self, distance: float) -> Charge:
        """Return OpenDP's own map at ``distance``: a rho of zero-concentrated privacy."""
        return Charge("zcdp", float(_opendp("gaussian", self.scale).map(distance)))


MECHANISMS: dict[tuple[str, str], Callable[[float], Mechanism]] = {
    ("laplace", "simulated"): Laplace,
    ("gaussian", "simulated"): Gaussian,
    ("laplace", "secure"): SecureLaplace,
    ("gaussian", "secure"): SecureGaussian,
}


@lru_cache(maxsize=256)
def _opendp(kind: str, scale: float) -> Any:
    """Return the OpenDP measurement on vectors of floats with the distance of ``kind``."""
    try:
        import opendp.prelude as dp
    except ImportError:
        raise missing_extra("opendp", "secure", "--noise secure") from None
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    if kind == "laplace":
        return dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=scale)
    return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
