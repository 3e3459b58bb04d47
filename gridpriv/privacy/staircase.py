r"""The staircase distribution on a line and on a square (Geng, Kairouz, Oh and Viswanath 2015).

A value of d = 1 or 2 numbers changes by at most a step D in each. Noise has a density that falls in
steps of the norm N(x) = max |x_i|: with q = exp(-epsilon) and a share g of the step,

    f(x) = a q^s(N(x)),    s(N) = floor(N/D + 1 - g),

constant up to N = g D, then falling by the factor q at (g + j) D, j = 0, 1, ...

Pure loss. |N(x - v) - N(x)| <= N(v) <= D, so s differs by at most 1: the loss is -epsilon, 0 or
epsilon. A change of at most k steps costs k epsilon.

Sampler. f is a mixture of uniform distributions on the cubes of radius (g + j) D,

    q^s = (1 - q) sum_{j >= s} q^(j - s) q^s,    so P[j] is proportional to (g + j)^d q^j.

With (g + j)^2 = g^2 + (2g + 1) j + j(j - 1), j is geometric, 1 + a sum of two geometric draws, or
2 + a sum of three, in the shares g^2/(1-q), (2g+1) q/(1-q)^2, 2 q^2/(1-q)^3; with d = 1 the first
two, in the shares g/(1-q) and q/(1-q)^2. The variance of a number is E[(g + j)^2] D^2/3, which g
minimizes.

Loss distribution. Let p be the probability of the loss epsilon. By reflection (x to v - x, as f is
even) it is the probability of -epsilon under the adjacent value, hence q p here: the losses are
epsilon, -epsilon and 0 with p, q p and 1 - (1 + q) p, and

    delta(e) = p (1 - exp(e - epsilon)),    0 <= e <= epsilon.

The worst change: the overlap of f and a multiple c of its shifted copy is the integral over levels
t of vol({f > t} and (v + {f > t/c})). Both sets are cubes, whose overlap is a product of overlaps
of intervals and falls in every |v_i|. So delta(e) is largest, at every e, at a corner |v_i| = D.
There

    1 - delta(0) = sum_j P[j] (1 - 1/(2(g + j)))_+^d,    p = delta(0)/(1 - q).

Values that change in several pairs at once are not covered: each pair would cost a whole epsilon,
however small its change.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from gridpriv.core.arrays import Floats

POWERS = ((1.0,), (0.0, 1.0), (0.0, 1.0, 1.0), (0.0, 1.0, 4.0, 1.0), (0.0, 1.0, 11.0, 11.0, 1.0))
"""Of q in (1 - q)^(n+1) sum_j j^n q^j (Eulerian numbers), for n = 0 to 4."""
ROUNDING = 1e-15


def _moment(share: float, power: int, epsilon: float) -> float:
    """Return the sum of (share + j)^power q^j over j = 0, 1, ..."""
    q, rest = math.exp(-epsilon), -math.expm1(-epsilon)
    return math.fsum(
        math.comb(power, n)
        * share ** (power - n)
        * math.fsum(a * q**k for k, a in enumerate(POWERS[n]))
        / rest ** (n + 1)
        for n in range(power + 1)
    )


def variance(epsilon: float, dimension: int, share: float | None = None) -> float:
    """Return the variance of a number at step 1; the default share has the least variance."""
    g = best_share(epsilon, dimension) if share is None else share
    return _moment(g, dimension + 2, epsilon) / (3.0 * _moment(g, dimension, epsilon))


@lru_cache(maxsize=1024)
def best_share(epsilon: float, dimension: int) -> float:
    """Return the share g of a step at which the variance is least."""
    from scipy.optimize import minimize_scalar

    # the variance has one minimum in log g, which falls as exp(-epsilon/(dimension + 2))
    low = -epsilon / 2.0 - 3.0
    result = minimize_scalar(
        lambda log: variance(epsilon, dimension, math.exp(log)),
        bounds=(low, 0.0),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return math.exp(float(result.x))


@lru_cache(maxsize=1024)
def chance_of_loss(epsilon: float, dimension: int) -> float:
    """Return p, the probability of the whole loss at the worst change, rounded up."""
    q, rest = math.exp(-epsilon), -math.expm1(-epsilon)
    g = best_share(epsilon, dimension)
    shifted = (
        _moment(g - 0.5, dimension, epsilon)
        if g >= 0.5
        else q * _moment(g + 0.5, dimension, epsilon)
    )
    overlap = shifted / _moment(g, dimension, epsilon)
    return min((1.0 - overlap + ROUNDING) / rest, 1.0 / (1.0 + q))


def draws(epsilon: float, dimension: int, count: int, generator: np.random.Generator) -> Floats:
    """Return draws of the noise at step 1, (dimension, count)."""
    q, rest, g = math.exp(-epsilon), -math.expm1(-epsilon), best_share(epsilon, dimension)
    parts = np.array(
        [g / rest, q / rest**2]
        if dimension == 1
        else [g**2 / rest, (2.0 * g + 1.0) * q / rest**2, 2.0 * q**2 / rest**3]
    )
    part = generator.choice(len(parts), count, p=parts / parts.sum())
    radius = g + part + generator.negative_binomial(part + 1, rest)
    return np.asarray(radius * generator.uniform(-1.0, 1.0, (dimension, count)))
