"""Loss distributions of Gaussian noise on a value of a secret sample, between replaced samples.

A client computes a value from a batch that it draws in secret and adds Gaussian noise. Neighbours
differ in one sample x, replaced by x'. The unit of length is the noise's standard deviation.

*Poisson batches* (every sample joins on its own with chance q). Given the others of the batch, the
output is (1 - q) N(c) + q N(c + u) with x and (1 - q) N(c) + q N(c + u') with x', and |u|, |u'| are
at most mu, half of the distance between neighbours. The hockey-stick divergence is jointly convex,
so that the worst c counts, and c = 0 by translation. For alpha >= 1,

    H_alpha(P || Q) = q sup_A [N(u)(A) - k0 N(0)(A) - k1 N(u')(A)],  k0, k1 >= 0,

is a multiple of a hockey stick of one Gaussian against a mixture of two, at distances |u| <= mu and
|u - u'| <= 2 mu. Such mixtures are dominated by those on a line with the largest distances
(Choquette-Choo et al. 2023, lemma 4.5): u = mu, u' = -mu. For alpha < 1 it follows from
H_alpha(P || Q) = 1 - alpha + alpha H_{1/alpha}(Q || P). So the pair is

    P = (1 - q) N(0, 1) + q N(mu, 1),    Q = (1 - q) N(0, 1) + q N(-mu, 1).

*Batches of b of n without replacement* (q = b/n). Two batches that differ in one member lie at most
the distance between neighbours apart, 1/m, and with log(1 + q (e^eps - 1)) for eps,

    delta' = q delta_m(eps),  delta_m the curve of plain Gaussian noise

(Balle, Barthe and Gaboardi 2018, theorem 9). That is H_alpha of (1 - q) N(0) + q N(1/m) against
N(0) at alpha >= 1. The relation is symmetric, which gives alpha < 1 as above; the curve is convex,
as P[L > 0] + Q[L > 0] <= 1, so that it is the curve of a pair (Zhu, Dong and Wang 2022, theorem 11
and proposition 8), and losses compose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gridpriv.core.arrays import Floats

REPLACED, DRAWN = "replaced-gaussian", "drawn-gaussian"
"""Kinds of charge: a Poisson batch, and a batch without replacement, between replaced samples."""
TAIL = 1e-16  # chance of a loss that counts as infinite
MOST_POINTS = 200_000

Curve = Callable[[Floats], Floats]


def poisson_curve(multiplier: float, rate: float) -> Curve:
    """Return delta of epsilons for Poisson batches and a replaced sample.

    Parameters
    ----------
    multiplier : float
        Noise over the full distance between neighbours, 1/(2 mu).
    rate : float
        q.
    """
    from scipy.special import ndtr  # imports scipy: slow

    mu = 0.5 / multiplier

    def curve(epsilons: Floats) -> Floats:
        # P/Q = e^eps is a quadratic in y = e^(mu x): a y^2 - b y - e^eps a = 0
        far = np.exp(epsilons)
        a, b = rate * math.exp(-0.5 * mu**2), (1.0 - rate) * np.expm1(epsilons)
        root = np.sqrt(b**2 + 4.0 * far * a**2)
        y = np.where(b > 0, (b + root) / (2.0 * a), 2.0 * far * a / (root - b))
        x = np.log(y) / mu
        p = (1.0 - rate) * ndtr(-x) + rate * ndtr(mu - x)
        q = (1.0 - rate) * ndtr(-x) + rate * ndtr(-mu - x)
        return np.asarray(np.maximum(p - far * q, 0.0))

    return curve


def drawn_curve(multiplier: float, rate: float) -> Curve:
    """Return delta of epsilons for batches without replacement and a replaced sample.

    Parameters
    ----------
    multiplier : float
        Noise over the full distance between neighbours, m.
    rate : float
        q = b/n.
    """
    from scipy.special import log_ndtr, ndtr  # imports scipy: slow

    distance = 1.0 / multiplier

    def above(epsilons: Floats) -> Floats:
        x = (np.log1p(np.expm1(epsilons) / rate) + 0.5 * distance**2) / distance
        p = (1.0 - rate) * ndtr(-x) + rate * ndtr(distance - x)
        return np.asarray(np.maximum(p - np.exp(epsilons + log_ndtr(-x)), 0.0))

    def curve(epsilons: Floats) -> Floats:
        size = above(np.abs(epsilons))
        return np.where(epsilons >= 0, size, -np.expm1(epsilons) + np.exp(epsilons) * size)

    return curve


CURVES: dict[str, Callable[[float, float], Curve]] = {REPLACED: poisson_curve, DRAWN: drawn_curve}


def loss_distribution(kind: str, multiplier: float, rate: float, step: float) -> Any:
    """Return the loss distribution of one release, rounded up to a grid by connecting the dots.

    The distribution on the grid whose curve connects the points (e^eps, delta) of the exact curve
    dominates it (Doroshenko et al. 2022).
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    curve = CURVES[kind](multiplier, rate)
    most = 1.0
    while curve(np.array([most]))[0] > TAIL and most < MOST_POINTS * step / 2.0:
        most *= 1.25
    end = math.ceil(most / step)
    grid = np.arange(-end, end + 1)
    epsilons = np.asarray(grid * step, dtype=np.float64)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(step, grid, curve(epsilons))
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)
