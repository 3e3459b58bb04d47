"""Additive noise mechanisms: the noise of a release and its charge.

One frozen object draws the noise and computes the charge, so they cannot differ. ``distance`` is
the sensitivity of the released quantity, in the mechanism's norm, as the full replacement distance.

The plain mechanisms draw numpy floats: fine for simulation, but floating-point noise leaks (one
output can prove which input it came from; Mironov, CCS 2012). The secure mechanisms pass the value
to OpenDP, which rounds it to a 2^k grid and adds discrete noise from the operating system's
entropy. They charge the loss of plain noise at the epsilon or rho of OpenDP's own privacy map.
K-norm noise, which OpenDP does not have, is drawn here in the same way. The value itself must be
rounded: discrete noise added to an unrounded float would reveal the float's low bits.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, ClassVar, Protocol, cast

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, missing_extra, not_allowed
from gridpriv.privacy import staircase
from gridpriv.privacy.noise import box_integers
from gridpriv.privacy.sensitivity import Norm

Stream = Callable[[], np.random.Generator]

MOST_PAIRS = 2**20
SMOOTHED = 1e-12  # of a multiplier: see the secure mechanisms
HIDES_NOTHING = 50.0  # epsilon of a release above which only its pure epsilon is composed


class Mechanism(Protocol):
    """Additive noise of a given scale, in the unit of the released quantity."""

    @property
    def norm(self) -> Norm:
        """Norm of the sensitivity."""
        ...

    @property
    def scale(self) -> float:
        """Scale of the noise (Laplace and K-norm b, Gaussian sigma)."""
        ...

    @property
    def variance(self) -> float:
        """Variance of the noise on one coordinate."""
        ...

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return ``value`` with noise; ``stream`` returns the generator of a simulation."""
        ...

    def charge(self, distance: float) -> Charge:
        """Return the cost of one release at this sensitivity."""
        ...


@dataclass(frozen=True)
class Charge:
    """Cost of one release, for the accountant.

    Attributes
    ----------
    kind : {'laplace', 'split-laplace', 'gaussian', 'staircase', 'pure', 'zcdp', \
'sampled-gaussian', 'replaced-gaussian', 'drawn-gaussian', 'approximate', 'uncertified'}
    parameter : float
        Noise multiplier (scale / sensitivity) of a Laplace or Gaussian mechanism; epsilon of
        a staircase, a purely or an (epsilon, delta) private one; rho of a zero-concentrated
        one; without meaning where nothing is proven.
    second : float
        Sampling rate of a sampled Gaussian mechanism (Poisson under zero-out adjacency,
        ``replaced-``: Poisson under replacement, ``drawn-``: without replacement, under it);
        probability of the whole loss of a staircase; the larger of two shares of the distance of a
        split Laplace mechanism; delta of an (epsilon, delta) private mechanism; else 0.
    """

    kind: str
    parameter: float
    second: float = 0.0


@dataclass(frozen=True)
class Additive:
    """Noise of a distribution at a scale."""

    scale: float
    norm: ClassVar[Norm]
    variance_at_1: ClassVar[float]

    @property
    def variance(self) -> float:
        """Variance of the noise on one coordinate."""
        return self.variance_at_1 * self.scale**2


@dataclass(frozen=True)
class Laplace(Additive):
    """Laplace noise of scale b on every coordinate (Dwork et al., TCC 2006)."""

    norm: ClassVar[Norm] = 1
    variance_at_1: ClassVar[float] = 2.0

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return the value plus draws of density exp(-|x|/b)/2b."""
        return value + stream().laplace(0.0, self.scale, value.shape)

    def charge(self, distance: float) -> Charge:
        """Return the Laplace mechanism at noise multiplier b/D1."""
        return Charge("laplace", self.scale / distance)


@dataclass(frozen=True)
class Gaussian(Additive):
    """Gaussian noise of standard deviation sigma on every coordinate."""

    norm: ClassVar[Norm] = 2
    variance_at_1: ClassVar[float] = 1.0

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return the value plus normal draws of standard deviation sigma."""
        noisy = stream().standard_normal(value.shape)  # in place: draws may be large
        noisy *= self.scale
        noisy += value
        return noisy

    def charge(self, distance: float) -> Charge:
        """Return the Gaussian mechanism at noise multiplier sigma/D2."""
        return Charge("gaussian", self.scale / distance)


@dataclass(frozen=True)
class KNorm(Additive):
    """Noise shaped to a box: the K-norm mechanism (Hardt and Talwar, STOC 2010).

    A value is pairs (p, q), the p of all pairs first. A pair's noise has density exp(-max(|x|,
    |y|)/b) / 8b^2: the radius of a Gamma(3, b) distribution times a uniform point of the box [-1,
    1]^2. Distances are in the norm ``box``, N(x) = sum over pairs of max(|p|, |q|), so data that
    differ by beta in p and in q of one bus have distance beta, where the 1-norm has 2 beta; the
    variance of a coordinate is E r^2/3 = 4 b^2, half that of Laplace noise at the same epsilon.

    Pure loss. ln f(y) - ln f(y - v) = (N(y - v) - N(y))/b <= N(v)/b: epsilon = D/b.

    Loss distribution. It is that of one Laplace draw at multiplier b/D, exactly:

    1. delta(eps; v) = 1 - M(v) with M(v) = integral of min(f(x), e^eps f(x - v)) dx. The
       integrand is log-concave in (x, v) together, so M is log-concave (Prekopa), and even, as f
       is: it is least, and delta largest, at an extreme point of {N(v) <= D}. Those are one
       pair's corners D(+-1, +-1), and by symmetry all have the same loss.
    2. At v = (D, D), with c the middle and h half the distance of the two coordinates of x,
       N(x) = h + |c| and N(x - v) = h + |c - D|: the loss is (|c - D| - |c|)/b.
    3. (c, h) has density e^(-(h + |c|)/b) / 2b^2, h > 0: c is Laplace of scale b, and the loss that
       of a Laplace mechanism whose value changes by D.
    """

    norm: ClassVar[Norm] = "box"
    variance_at_1: ClassVar[float] = 4.0

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return the value plus one draw for each pair."""
        generator = stream()
        pairs = value.size // 2
        radius = generator.gamma(3.0, self.scale, pairs)
        return value + (radius * generator.uniform(-1.0, 1.0, (2, pairs))).reshape(value.shape)

    def charge(self, distance: float) -> Charge:
        """Return the Laplace mechanism at multiplier b/D, which has the same loss."""
        return Charge("laplace", self.scale / distance)


@dataclass(frozen=True)
class Staircase(Additive):
    """Staircase noise on pairs (p, q), where adjacent data differ in one pair (Geng et al. 2015).

    The distribution, its loss and the proofs are in :mod:`gridpriv.privacy.staircase`. Distances
    are in the norm ``pair``: infinite where several pairs change, and then nothing is certified.

    Attributes
    ----------
    scale : float
        step / epsilon.
    step : float
        The distance that costs one epsilon; a smaller distance costs as much.
    """

    step: float
    norm: ClassVar[Norm] = "pair"
    dimension: ClassVar[int] = 2

    @property
    def epsilon(self) -> float:
        """Pure epsilon of a change of at most one step."""
        return self.step / self.scale

    @property
    def variance(self) -> float:
        """Variance of the noise on one coordinate."""
        return self.step**2 * staircase.variance(self.epsilon, self.dimension)

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return the value plus one draw for each pair (each number in one dimension)."""
        count = value.size // self.dimension
        noise = staircase.draws(self.epsilon, self.dimension, count, stream())
        return value + self.step * noise.reshape(value.shape)

    def energy(self, noise: Floats) -> Floats:
        """Return minus the logarithm of the density up to a constant, (runs, k) to (runs,)."""
        norms = np.abs(noise.reshape(len(noise), self.dimension, -1)).max(axis=1) / self.step
        share = staircase.best_share(self.epsilon, self.dimension)
        return np.asarray(self.epsilon * np.floor(norms + 1.0 - share).sum(axis=1))

    def charge(self, distance: float) -> Charge:
        """Return the charge: one epsilon per step, and nothing certified for several pairs."""
        if math.isinf(distance):
            return Charge("uncertified", 0.0)
        if distance <= self.step:
            chance = staircase.chance_of_loss(self.epsilon, self.dimension)
            return Charge("staircase", self.epsilon, chance)
        return Charge("pure", math.ceil(distance / self.step) * self.epsilon)


@dataclass(frozen=True)
class NumberStaircase(Staircase):
    """Staircase noise on numbers, where adjacent data differ in one number."""

    norm: ClassVar[Norm] = "number"
    dimension: ClassVar[int] = 1


@dataclass(frozen=True)
class SecureLaplace(Additive):
    """OpenDP's discrete Laplace noise, from the operating system's entropy.

    Its loss is that of Laplace noise of the same scale, to :data:`SMOOTHED`. Let OpenDP's grid have
    steps of a times the scale (2^-1074), and P[z] be proportional to exp(-a |z|). If an integer
    differs by k steps between adjacent data, the loss a(|z - k| - |z|) has the values a(k - 2j), j
    = 0, ..., k, and at these epsilons delta is 1 - exp(-a j), as for Laplace noise on a value that
    changes by k steps. As delta falls with epsilon, between these losses it is at most that of a
    value that changes by k + 2. Unchanged numbers have no loss, and the losses of the others
    compose. The distance is that of OpenDP's map, which includes the rounding of values.
    """

    norm: ClassVar[Norm] = 1
    variance_at_1: ClassVar[float] = 2.0

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return OpenDP's release of the value, rounded to its grid; ``stream`` is not used."""
        del stream
        return np.asarray(_opendp("laplace", self.scale)(_finite(value).tolist()), dtype=float)

    def charge(self, distance: float) -> Charge:
        """Return the Laplace mechanism at the multiplier of OpenDP's own map."""
        epsilon = float(_opendp("laplace", self.scale).map(distance))
        return Charge("laplace", (1.0 - SMOOTHED) / epsilon)


@dataclass(frozen=True)
class SecureGaussian(Additive):
    """OpenDP's discrete Gaussian noise, from the operating system's entropy.

    Its loss is that of continuous Gaussian noise of the same scale, to :data:`SMOOTHED`. Let s be
    the scale in steps of OpenDP's grid, on which values are integers u. Continuous noise of
    variance s^2 - r^2 on u, rounded at random to the integers by a discrete Gaussian of variance
    r^2 around it, has the distribution of u plus discrete noise of variance s^2, up to a factor 1
    +- 2 exp(-2 pi^2 r^2) of every probability and coordinate (Peikert 2010, theorem 3.1). The
    rounding does not depend on data. With r = 8 that is below 1e-500 a coordinate, and the
    continuous noise lacks r^2/(2 s^2) of its scale, where OpenDP's grid has s above 2^50. The
    distance includes OpenDP's rounding of values; it is computed from its own map, D^2/(2 sigma^2).
    """

    norm: ClassVar[Norm] = 2
    variance_at_1: ClassVar[float] = 1.0

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return OpenDP's release of the value, rounded to its grid; ``stream`` is not used."""
        del stream
        return np.asarray(_opendp("gaussian", self.scale)(_finite(value).tolist()), dtype=float)

    def charge(self, distance: float) -> Charge:
        """Return the Gaussian mechanism at the multiplier of OpenDP's own map."""
        rho = float(_opendp("gaussian", self.scale).map(distance))
        return Charge("gaussian", (1.0 - SMOOTHED) / math.sqrt(2.0 * rho))


@dataclass(frozen=True)
class SecureKNorm(Additive):
    """Discrete K-norm noise on a grid, drawn exactly from the operating system's entropy.

    The grid is g = 2^e with scale/2^101 < g <= scale/2^100. A value is rounded to it,
    u = round(v/g), and the release is g(u + z), z integer with P[z] proportional to
    exp(-a N(z)), a = g/b.

    Map. Rounding is monotone and commutes with whole steps, so a coordinate that changes by x
    changes u by at most x/g + 1, and an unchanged coordinate leaves u unchanged; so N(u' - u) <=
    D/g + pairs, and the log-ratio is at most (D + pairs g)/b. ``pairs`` is not private; its bound
    is :data:`MOST_PAIRS`, and more are refused. The conversion of g(u + z) to a float is
    post-processing.

    Loss distribution. It is that of K-norm noise of the same scale, to :data:`SMOOTHED`:

    1. Let x be plain K-norm noise of scale 1/a on a pair of integers. If x rounds to z, |N(x) -
       N(z)| <= 1/2, so the probabilities of z and of rounding to z differ by a factor e^(+-a).
    2. A pair that changes by k steps, 2 or more, has delta(eps) <= e^a delta'(eps - 2a) with delta'
       of the plain noise, so at most e^a - exp((eps - a k)/2) or 0, for eps >= 0.
    3. That is at most 1 - exp((eps - a k - s)/2) with s = 4a exp(a k/2): as 1 - exp(-s/2) >= (e^a -
       1) exp(a k/2). So the loss of the pair is at most that of plain noise at a change larger by
       s/a steps. Pairs compose: with 2 steps for rounding, the change under plain noise is at most
       D + 2^20 g (2 + 4 exp(epsilon/2)). Above an epsilon of 50 the pure epsilon is charged.
    """

    norm: ClassVar[Norm] = "box"
    variance_at_1: ClassVar[float] = 4.0

    @property
    def _grid(self) -> Fraction:
        return Fraction(2) ** (math.frexp(self.scale)[1] - 1 - 100)

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return the value on the grid plus discrete noise; ``stream`` is not used."""
        del stream
        pairs, grid = value.size // 2, self._grid
        if pairs > MOST_PAIRS:
            raise not_allowed("pairs", pairs, f"at most {MOST_PAIRS} pairs (p, q) in one release")
        rate = grid / Fraction(self.scale)
        noise = [box_integers(rate, 2, secrets.randbelow) for _ in range(pairs)]
        steps = [pair[part] for part in (0, 1) for pair in noise]
        exact = [round(Fraction(v) / grid) for v in _finite(value).tolist()]
        noisy = [float(grid * (u + z)) for u, z in zip(exact, steps, strict=True)]
        return np.asarray(noisy, dtype=float)

    def charge(self, distance: float) -> Charge:
        """Return the Laplace mechanism, or the pure epsilon of the map; both rounded up."""
        step = self._grid / Fraction(self.scale)
        pure = float(Fraction(distance) / Fraction(self.scale) + 2 * MOST_PAIRS * step)
        if pure > HIDES_NOTHING:
            return Charge("pure", pure * (1.0 + SMOOTHED))
        moved = pure + 4.0 * MOST_PAIRS * float(step) * math.exp(pure / 2.0)
        return Charge("laplace", (1.0 - SMOOTHED) / moved)


@dataclass(frozen=True)
class Wrapped:
    """Noise of another mechanism; a subclass changes its draw or its charge."""

    noise: Mechanism

    @property
    def norm(self) -> Norm:
        """Norm of the sensitivity."""
        return self.noise.norm

    @property
    def scale(self) -> float:
        """Scale of the noise."""
        return self.noise.scale

    @property
    def variance(self) -> float:
        """Variance of the noise on one coordinate."""
        return self.noise.variance

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return the value with noise."""
        return self.noise.perturb(value, stream)

    def charge(self, distance: float) -> Charge:
        """Return the cost of the noise itself."""
        return self.noise.charge(distance)


MECHANISMS: dict[tuple[str, str], type[Additive]] = {
    ("laplace", "simulated"): Laplace,
    ("gaussian", "simulated"): Gaussian,
    ("knorm", "simulated"): KNorm,
    ("laplace", "secure"): SecureLaplace,
    ("gaussian", "secure"): SecureGaussian,
    ("knorm", "secure"): SecureKNorm,
    ("staircase", "simulated"): Staircase,
    ("staircase-number", "simulated"): NumberStaircase,
}


def has_secure_sampler(mechanism: str) -> bool:
    """Return True where a mechanism, by its name in settings, has secure noise."""
    return (mechanism, "secure") in MECHANISMS


def is_installed(mechanism: str, source: str) -> bool:
    """Return True for a mechanism that can be drawn; secure ones except K-norm need OpenDP."""
    needs = source == "secure" and mechanism != "knorm"
    return (mechanism, source) in MECHANISMS and not (needs and find_spec("opendp") is None)


def make_mechanism(kind: type[Additive], scale: float, distance: float) -> Mechanism:
    """Return noise of a scale, calibrated to a distance (a staircase's step)."""
    result = kind(scale, distance) if issubclass(kind, Staircase) else kind(scale)
    return cast(Mechanism, result)


def _finite(value: Floats) -> Floats:
    """Return the value; refuse NaN and infinity, which OpenDP would replace silently."""
    if not np.isfinite(value).all():
        raise InputError(
            "a value to be released is not a finite number: nothing was drawn; give a finite number"
        )
    return value


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
