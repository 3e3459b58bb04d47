"""Federated forecasts of demand, as a public prior for runs, plans and published cases.

Each zone has the demand y_b(t) of its buses over a history of T steps. Features of time are public
(calendar, weather columns). Of a linear model only the products of features and demand are private:
every zone releases them once, with noise, and the model is computed from the releases.

*Adjacency*: one bus changes its active and its reactive demand by at most beta each, in every step
of the history. With features phi_k of mean 0, orthonormal over the history, zone z releases

1. the mean active demand of every bus: one value changes by beta, in the 1-norm;
2. the mean (p, q) of the zone, one pair that changes by beta: distance beta in the norm ``box``. A
   bus's reactive demand is expected at the zone's power factor;
3. c_k = mean of phi_k(t) P_z(t) of the zone's active demand P_z, which changes in the 1-norm by max
   over |d(t)| <= beta of sum_k |mean phi_k d|, that is beta times the largest mean |sum_k s_k
   phi_k| over signs s;
4. the mean of |P_z(t) - forecast(t)|: the forecast is a function of 1 to 3, and the mean changes by
   at most beta.

Zones have disjoint buses, so a run costs as much as the four releases of one zone: their epsilons
add up to the total. The rest is post-processing. Levels of buses are shrunk to the estimated
distribution of all levels (nonparametric empirical Bayes). Shapes c_k/mean are shrunk to the mean
of zones, and that mean to 0, by the size of the noise in them.

Error. The forecast of a zone at features f(t) differs from its demand by the errors of the level,
of the coefficients c_k and by the residual r(t), so its variance is that of the level plus sum_k
f_k(t)^2 E_k plus E[r^2]. All three follow from the releases and the variances of their noise:

- Noise in the coefficients of shapes has variance v. Their estimate is a x + rho (x_z - a x), with
  the mean x of zones, its variance e and its factor a, the zone's x_z and factor rho. With spread B
  of zones, E_k = (1 - rho)^2 (R_k + B) + rho^2 v + 2 rho (1 - rho) a e: noise and shrinkage bias.
- R_k is E[(theta_k - a x)^2 | x] under the horseshoe prior theta ~ N(0, lambda^2 e), lambda half-
  Cauchy (Carvalho, Polson and Scott 2010), with lambda^2 e at most :data:`MOST_SHAPE`^2. With kappa
  = 1 / (1 + lambda^2), theta given x and kappa has mean (1 - kappa) x and variance (1 - kappa) e,
  and kappa's density is (1 - kappa)^(-1/2) exp(-kappa x^2 / 2 e). So a coefficient that is shrunk
  to 0 has R_k > 0, for its size is not known.
- B is estimated by a difference of variances with a standard error (the square of Laplace noise
  has variance 5 v^2): the mean of a normal distribution about it, truncated to 0 to
  :data:`MOST_DIFFERENCE`^2, or to twice the estimate if that is more.
- Least squares on T steps errs by the residual, too. Residuals within :data:`CORRELATED` hours, c
  steps, count as one observation. The residual adds c sum_t w_t^2 phi_k(t)^2 E[r^2] to the variance
  of c_k, and c sum_t w_t^2 E[r^2] to that of the level. The mean of r^2 over the history is E[r^2]
  times 1 minus the sum of these factors (at least :data:`LEAST_LEFT`). Zones may have the same
  residual (weather), which then is in x, too: an estimate keeps rho + (1 - rho) a of its error.
- Released mean |r + coefficient errors| is sqrt(2/pi) sqrt(E[r^2] + u sum_k E_k), with Laplace
  noise. The ratio u of actual to expected error is a priori gamma distributed with mean 1, and the
  root of E[r^2] is log-uniform from :data:`LEAST_RESIDUAL` to :data:`MOST_RESIDUAL` of the level
  (to more where the release is more than :data:`CERTAIN` scales of its noise); posterior means of
  u and E[r^2] are used.

Rounding. These distances are those of exact arithmetic. Under secure noise demand is first put on a
grid of g = 2^-36, within 2^17/n at each of n buses (``on_grid`` of :mod:`gridpriv.privacy.linear`),
so one bus changes by at most beta + g and sums over buses are exact. A weighted mean over T steps
of numbers within 2^17 has at most T + 2 roundings of 2^-53 times a sum of at most 2^17 (weights add
up to 1, and so do at most weights times abs(phi_k), by orthonormality): an error of (T + 2) g for
each of two adjacent data sets. Forecasts within 2^17, from which P_z(t) is subtracted, double it
and add 2 g. So every number that changes is charged 8 (T + 1) g in addition to its distance.

Lags of true demand would make every feature private; a public lag (last week's published load)
is a column of the weather file. A hidden layer of public random weights makes the same model
nonlinear (``network``): of it, too, only products with features are private.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, not_allowed, warn
from gridpriv.core.text import UTC_OFFSETS
from gridpriv.privacy.linear import GRID as STEP
from gridpriv.privacy.linear import LARGEST, on_grid
from gridpriv.privacy.mechanism import MECHANISMS, make_mechanism
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity

SHARES: Mapping[str, float] = {"buses": 0.60, "zone": 0.06, "shape": 0.29, "spread": 0.05}
"""Parts of epsilon (docs/decisions/0071-forecast.md)."""
MOST_SUMS, BLOCK = 2**26, 2**22
"""Sums of features, over signs and steps, that are enumerated (for more a bound is used), and that
are in memory at once."""
HIDDEN = 4
LAST_YEAR = 2262
"""Times of pandas end in it."""
HALF_LIFE = 7.0  # half-life in days of the weight of a step of the history
GRID, ROUNDS = 200, 300  # levels that a bus may have, and steps of expectation maximization
GAUSSIAN_MEAN = math.sqrt(2.0 / math.pi)  # of |x| of a standard normal x
LAPLACE_SQUARE = 5.0  # relative variance of the square of Laplace noise
LEAST_RESIDUAL, MOST_RESIDUAL = 0.02 / GAUSSIAN_MEAN, 0.3  # relative to the level
CERTAIN = 2.0  # scales of Laplace noise, which it exceeds with probability exp(-2) / 2
CORRELATED, LEAST_LEFT = 6.0, 0.25
"""Hours whose residuals count as one observation; least part of E[r^2] that is left in a history
(docs/decisions/0071-forecast.md)."""
MOST_SHAPE, MOST_DIFFERENCE = 0.2, 0.1
"""Largest scale of a coefficient of a shape, and of its difference between zones (relative to the
level): the wave of a coefficient of 0.2 has an amplitude of 28 %."""
Charge = Callable[[str, Release], None]


@dataclass(frozen=True, eq=False)
class History:
    """History of demand of the buses of one zone.

    Attributes
    ----------
    zone : str
    p, q : (T, n) float
        Active and reactive demand of the zone's buses, in one unit.
    """

    zone: str
    p: Floats
    q: Floats

    def __post_init__(self) -> None:
        if self.p.ndim != 2 or self.p.shape != self.q.shape or 0 in self.p.shape:
            raise not_allowed(
                f"history of zone {self.zone}",
                f"p {self.p.shape}, q {self.q.shape}",
                "two arrays (steps, buses) of one shape: every zone needs a bus and a step",
            )


@dataclass(frozen=True, eq=False)
class Forecast:
    """Expected demand and its standard deviation, for every bus and step ahead.

    Attributes
    ----------
    mean, spread : (2, steps, n) float
        Of p and q, in the history's unit; the buses of all zones in their order.
    zone_mean, zone_spread : (zones, steps) float
        Of the active demand of every zone.
    releases : mapping of str to tuple of Release
        Of every zone; empty without noise.
    epsilon : float
        Total of a zone, pure; inf without noise.
    """

    mean: Floats
    spread: Floats
    zone_mean: Floats
    zone_spread: Floats
    releases: Mapping[str, tuple[Release, ...]]
    epsilon: float

    def quantile(self, level: float) -> Floats:
        """Return a quantile of the zones' active demand, (zones, steps); quantiles do not cross."""
        from scipy.special import ndtri

        return np.asarray(self.zone_mean + ndtri(level) * self.zone_spread)


def orthonormal(past: Floats, ahead: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return features of mean 0, orthonormal over the history (T, K), and the same ahead (H, K).

    Means are under the weights (T,). Features that are collinear over the history are left out.
    """
    centre = weights @ past
    scale = np.sqrt(weights @ (past - centre) ** 2)
    varying = scale > 1e-9
    standardized = (past[:, varying] - centre[varying]) / scale[varying]
    standardized_ahead = (ahead[:, varying] - centre[varying]) / scale[varying]
    rows = np.sqrt(weights)[:, None] * standardized
    # of each after projection off the features before it
    residual = np.abs(np.linalg.qr(rows)[1].diagonal())
    independent = np.flatnonzero(residual > 1e-6)
    _, triangle = np.linalg.qr(rows[:, independent])
    past, ahead = (
        np.linalg.solve(triangle.T, side[:, independent].T).T
        for side in (standardized, standardized_ahead)
    )
    return past, ahead


def network_features(past: Floats, ahead: Floats, seed: int) -> tuple[Floats, Floats]:
    """Return the outputs of a hidden layer with public random weights, after the features."""
    random = np.random.default_rng((seed, past.shape[1]))
    weights = random.normal(size=(past.shape[1], HIDDEN))
    offsets = random.normal(size=HIDDEN)
    centre, scale = past.mean(axis=0), np.maximum(past.std(axis=0), 1e-9)
    hidden = [np.tanh((x - centre) / scale @ weights + offsets) for x in (past, ahead)]
    return np.hstack([past, hidden[0]]), np.hstack([ahead, hidden[1]])


def shape_sensitivity(features: Floats, weights: Floats) -> float:
    """Return the change of the products c, in the 1-norm, if one bus changes by 1 in every step."""
    count = features.shape[1]
    if count == 0:
        return 0.0
    # |sum_k s_k mean phi_k d|^2 <= K by orthonormality
    if len(features) * 2 ** (count - 1) > MOST_SUMS:
        return math.sqrt(count)
    signs = np.array(list(product((1.0, -1.0), repeat=count - 1)))
    blocks = np.array_split(signs, math.ceil(len(signs) * len(features) / BLOCK))
    first, others = features[:, :1], features[:, 1:]
    return max(float((weights @ np.abs(first + others @ some.T)).max()) for some in blocks)


def zone_releases(
    past: Floats, weights: Floats, epsilon: float, beta: float, source: str
) -> dict[str, Release]:
    """Return the releases of a zone by part, from public numbers only; empty without noise.

    Parameters are those of :func:`forecast_demand`.
    """
    features, _ = orthonormal(past, past, weights)
    shape = shape_sensitivity(features, weights)
    # the distance in beta, and the numbers (pairs, in the norm box) that change
    parts = {"buses": (1.0, 1), "zone": (1.0, 1), "shape": (shape, features.shape[1])}
    releases = {}
    for part, (factor, moving) in (parts | {"spread": (1.0, 1)}).items():
        if epsilon == math.inf or factor == 0.0:
            continue
        norm: Norm = "box" if part == "zone" else 1
        distance, text = factor * beta, f"{part} of a zone, one bus moves in every step"
        if source == "secure":
            distance += moving * 8.0 * (len(past) + 1) * STEP
            text += f", with rounding to {STEP:.2g}"
        kind = MECHANISMS["knorm" if norm == "box" else "laplace", source]
        mechanism = make_mechanism(kind, distance / (SHARES[part] * epsilon), distance)
        releases[part] = Release(mechanism, Sensitivity(distance, norm, text), distance)
    return releases


def forecast_demand(
    histories: Sequence[History],
    past: Floats,
    ahead: Floats,
    weights: Floats,
    *,
    epsilon: float,
    beta: float,
    correlated: float = 1.0,
    source: str = "simulated",
    seed: int = 0,
    charge: Charge = lambda *_: None,
) -> Forecast:
    """Return a forecast from the releases of zones' histories.

    Parameters
    ----------
    histories : sequence of History
        Of T steps each, one per zone.
    past, ahead : (T, K), (H, K) float
        Public features of the history's steps and of the steps ahead.
    weights : (T,) float
        Public weights of the history's steps, which add up to 1 (:func:`recency`).
    epsilon : float
        Total of a zone's releases, pure; inf releases without noise.
    beta : float
        Largest change of a bus's active and reactive demand in every step, in the unit of the
        histories.
    correlated : float
        Number of steps whose residuals count as one observation (:func:`correlated_steps`).
    source : {'simulated', 'secure'}
        Secure noise takes histories in per unit: zones' demand is clipped to 2^17.
    charge : callable, optional
        Called with a zone's name and a release before it is drawn (a ledger); refusing raises.

    Raises
    ------
    InputError
        For histories of another length than the features, or numbers that are not finite.
    """
    _check_numbers(histories, past, ahead)
    features, features_ahead = orthonormal(past, ahead, weights)
    releases = zone_releases(past, weights, epsilon, beta, source)
    exact = bool(releases) and source == "secure"
    if exact:
        histories = [History(h.zone, on_grid(h.p), on_grid(h.q)) for h in histories]
    names = [history.zone for history in histories]
    released = partial(_released, releases, NoiseStreams(seed), charge, names)
    buses, zones, products = [], [], []
    for z, history in enumerate(histories):
        p, q = history.p.sum(axis=1), history.q.sum(axis=1)
        buses.append(released(z, "buses", weights @ history.p))
        zones.append(released(z, "zone", np.array([weights @ p, weights @ q])))
        products.append(released(z, "shape", features.T @ (weights * p)))
    levels = _levels(buses, zones)
    sums = [means[0].sum() for means, _, _ in levels]
    size = np.where(sums, sums, 1.0) if epsilon == math.inf else np.maximum(sums, beta)
    shape, shape_errors, retention = _pooled(
        np.array([c for c, _ in products]) / size[:, None],
        np.array([variance for _, variance in products]) / size**2,
    )
    relative = np.maximum(1.0 + shape @ features_ahead.T, 0.0)
    fitted = np.array(sums)[:, None] * np.maximum(1.0 + shape @ features.T, 0.0)
    if exact:
        fitted = fitted.clip(-LARGEST, LARGEST)
    sampling = correlated * (weights**2 @ features**2), correlated * float(weights @ weights)
    errors = []
    for z, history in enumerate(histories):
        gap = weights @ np.abs(history.p.sum(axis=1) - fitted[z])
        coefficients, level = size[z] ** 2 * shape_errors[z], levels[z][2]
        (gap,), variance = released(z, "spread", np.array([gap]))
        residual, ratio = _residual(float(gap), variance, level, coefficients, abs(size[z]))
        fixed, drawn = _sampled(residual, level, ratio * coefficients, retention[z], sampling)
        errors.append(np.sqrt(fixed + features_ahead**2 @ drawn))
    every = dict.fromkeys(names, tuple(releases.values()))
    return _assembled(levels, sums, relative, np.array(errors), every, epsilon)


def _sampled(
    residual: float,
    level: float,
    coefficients: Floats,
    retention: Floats,
    sampling: tuple[Floats, float],
) -> tuple[float, Floats]:
    """Return the expected squared errors of a level and of coefficients of a shape (K,).

    Noise gives those of ``level`` and ``coefficients``. The ``residual`` E[r^2] of a finite history
    adds to both, to coefficients for the part of a common error that is kept (``retention``).

    Parameters
    ----------
    sampling : ((K,) float, float)
        Variance of coefficients and level for a residual of 1.
    """
    shape, mean = sampling
    left = residual / max(1.0 - float(shape.sum()) - mean, LEAST_LEFT)
    return level + left * (1.0 + mean), coefficients + left * retention**2 * shape


def _released(
    releases: Mapping[str, Release],
    streams: NoiseStreams,
    charge: Charge,
    zones: Sequence[str],
    z: int,
    part: str,
    values: Floats,
) -> tuple[Floats, float]:
    """Charge and draw zone z's release of a part; return it and the variance of its noise."""
    if part not in releases:
        return values, 0.0
    release, place = releases[part], list(SHARES).index(part)
    charge(zones[z], release)
    noisy = release.apply(values, lambda: streams.stream(z, 1, place))
    return noisy, release.mechanism.variance


def _check_numbers(histories: Sequence[History], past: Floats, ahead: Floats) -> None:
    """Raise :class:`InputError` for other lengths than the features', or numbers not finite."""
    steps, lengths = len(past), [len(history.p) for history in histories]
    if steps < 2 or any(length != steps for length in lengths):
        raise not_allowed("history", lengths, f"{steps} steps in every zone, at least 2")
    every = [past, ahead, *(values for history in histories for values in (history.p, history.q))]
    if not all(np.isfinite(values).all() for values in every):
        raise InputError(
            "the history or its features hold a number that is not finite: give finite numbers"
        )


def _levels(
    buses: Sequence[tuple[Floats, float]], zones: Sequence[tuple[Floats, float]]
) -> list[tuple[Floats, Floats, float]]:
    """Return the means (2, n) of every zone's buses, and the variances of their errors (2, n).

    Last is the variance of the error of the zone's active demand.

    Active levels are posterior means, shifted so that a zone's sum is the best estimate from both
    of its releases; reactive levels have the zone's power factor.
    """
    noisy = np.concatenate([values for values, _ in buses])
    means, variances = _posterior(noisy, buses[0][1])
    cuts = np.cumsum([len(values) for values, _ in buses])[:-1]
    levels = []
    for expected, variance, (values, noise), (total, zone_noise) in zip(
        np.split(means, cuts), np.split(variances, cuts), buses, zones, strict=True
    ):
        summed = len(values) * noise
        weight = summed / (summed + zone_noise) if summed > 0 else 1.0
        active = max(weight * total[0] + (1.0 - weight) * values.sum(), 0.0)
        shift = variance * ((active - expected.sum()) / max(float(variance.sum()), 1e-300))
        own = np.maximum(expected + shift, 0.0) if noise > 0 else expected
        ratio = float(np.clip(total[1] / max(active, 1e-12), -1.0, 1.0))
        errors = np.stack([variance, ratio**2 * variance])
        levels.append((np.stack([own, ratio * own]), errors, weight * zone_noise))
    return levels


def _posterior(noisy: Floats, variance: float) -> tuple[Floats, Floats]:
    """Return posterior means and variances of levels under Laplace noise of a variance.

    Their distribution on a grid maximizes the likelihood of the releases (Kiefer and Wolfowitz
    1956), by expectation maximization.
    """
    scale = math.sqrt(variance / 2.0)
    grid = np.linspace(0.0, max(float(noisy.max()), scale, 1e-12), GRID)
    if scale <= grid[1] - grid[0]:  # less noise than the grid resolves
        return noisy, np.full_like(noisy, variance)
    gaps = np.abs(noisy[:, None] - grid) / scale
    likelihood = np.exp(gaps.min(axis=1, keepdims=True) - gaps)
    weights = np.full(GRID, 1.0 / GRID)
    for _ in range(ROUNDS):
        joint = likelihood * weights
        weights = (joint / joint.sum(axis=1, keepdims=True)).mean(axis=0)
    posterior = likelihood * weights
    posterior /= posterior.sum(axis=1, keepdims=True)
    mean = posterior @ grid
    return mean, np.maximum(posterior @ grid**2 - mean**2, 0.0)


def _pooled(shapes: Floats, variances: Floats) -> tuple[Floats, Floats, Floats]:
    """Return every zone's shape (zones, K), shrunk to their mean, and its expected squared error.

    The mean of shapes is shrunk to 0. Last is the part of an error of all shapes that is kept.

    Shrinkage depends on these variances of the noise. The mean of each feature is shrunk separately
    (features are in the order of their typical weight in demand), all features of a zone together.
    """
    if not variances.any():
        return shapes, np.zeros_like(shapes), np.ones_like(shapes)
    weights = 1.0 / np.maximum(variances, 1e-12)
    mean, error = weights @ shapes / weights.sum(), 1.0 / weights.sum()
    gaps = ((shapes - mean) ** 2).mean(axis=1)
    factor = np.maximum(mean**2 - error, 0.0) / np.maximum(mean**2, 1e-300)
    between, (zones, count) = float((gaps - variances + error).mean()), shapes.shape
    noise, apart = variances[:, None], max(between, 0.0)
    kept = apart / np.maximum(apart + noise, 1e-300)
    pooled: Floats = factor * mean + kept * (shapes - factor * mean)
    unseen = _risk(mean, error, factor)
    if zones > 1:
        spread = math.sqrt(LAPLACE_SQUARE / (count * (zones - 1))) * float(variances.mean())
        unseen = unseen + _between(between, spread)
    errors = (1 - kept) ** 2 * unseen + kept**2 * noise + 2 * kept * (1 - kept) * factor * error
    return pooled, errors, kept + (1 - kept) * factor


def _risk(estimates: Floats, variance: float, factors: Floats) -> Floats:
    """Return E[(theta - factor x)^2 | x] of estimates x under the truncated horseshoe prior.

    The root of 1 - kappa has a uniform prior, so its quadrature has equal weights.
    """
    most = MOST_SHAPE**2 / (MOST_SHAPE**2 + variance)
    retention = most * ((np.arange(GRID) + 0.5) / GRID) ** 2
    square = estimates[:, None] ** 2
    weights = np.exp((retention - retention[-1]) * square / (2.0 * variance))
    risk = retention * variance + square * (retention - factors[:, None]) ** 2
    return np.asarray((weights * risk).sum(axis=1) / weights.sum(axis=1))


def _between(estimate: float, error: float) -> float:
    """Return the mean of a normal distribution about an estimate, truncated to its range."""
    grid = np.linspace(0.0, max(MOST_DIFFERENCE**2, 2.0 * estimate), GRID + 1)
    gaps = ((grid - estimate) / error) ** 2 / 2.0
    weights = np.exp(gaps.min() - gaps)
    return float(weights @ grid / weights.sum())


def _residual(
    gap: float, variance: float, level: float, coefficients: Floats, size: float
) -> tuple[float, float]:
    """Return E[r^2], and the ratio of actual to expected errors of coefficients.

    Parameters
    ----------
    gap, variance : float
        Released mean of the absolute error over the history, and the variance of its noise.
    level, coefficients : float, (K,) float
        Expected squared errors.
    size : float
        The zone's mean demand.
    """
    least, scale = LEAST_RESIDUAL * size, math.sqrt(variance / 2.0)
    if variance == 0.0:
        return max(gap / GAUSSIAN_MEAN, least) ** 2, 1.0
    from scipy.special import gammaincinv

    total = float(coefficients.sum())
    shape = total**2 / max(LAPLACE_SQUARE * float((coefficients**2).sum()), 1e-300)
    ratios = gammaincinv(shape, (np.arange(GRID) + 0.5) / GRID) / shape if total > 0 else np.ones(1)
    certain = (gap - CERTAIN * scale) / GAUSSIAN_MEAN
    residuals = np.geomspace(least, max(MOST_RESIDUAL * size, 2.0 * certain), GRID)[:, None] ** 2
    expected = GAUSSIAN_MEAN * np.sqrt(residuals + level + ratios * total)
    distance = np.abs(gap - expected) / scale
    weights = np.exp(distance.min() - distance)
    weights /= weights.sum()
    return float((weights * residuals).sum()), float((weights * ratios).sum())


def _assembled(
    levels: Sequence[tuple[Floats, Floats, float]],
    sums: Sequence[float],
    relative: Floats,
    errors: Floats,
    releases: Mapping[str, tuple[Release, ...]],
    epsilon: float,
) -> Forecast:
    """Return the forecast of levels times shapes, with the errors of both."""
    means, spreads = [], []
    for z, (level, variance, _) in enumerate(levels):
        means.append(level[:, None, :] * relative[z][None, :, None])
        size = max(float(sums[z]), 1e-12)
        misfit = np.abs(level)[:, None, :] * (errors[z][:, None] / size)
        spreads.append(np.sqrt(variance[:, None, :] + misfit**2))
    return Forecast(
        np.concatenate(means, axis=2),
        np.concatenate(spreads, axis=2),
        np.array(sums)[:, None] * relative,
        errors,
        releases,
        epsilon,
    )


def pinball_loss(actual: Floats, quantiles: Mapping[float, Floats]) -> float:
    """Return the mean pinball loss over levels and values, in the unit of the values."""
    gaps = {level: actual - predicted for level, predicted in quantiles.items()}
    losses = [np.maximum(level * gap, (level - 1.0) * gap).mean() for level, gap in gaps.items()]
    return float(np.mean(losses))


def mape(actual: Floats, predicted: Floats) -> float:
    """Return the mean absolute error in per cent of the actual values."""
    return float(100.0 * (np.abs(predicted - actual) / np.maximum(np.abs(actual), 1e-9)).mean())


def dates_and_times(texts: Sequence[str], label: str) -> Any:
    """Return the times of ISO 8601 texts as a pandas index: in UTC where they have an offset.

    Raises
    ------
    InputError
        Naming the first text that is not a time, or where only some have an offset.
    """
    import pandas as pd

    offsets = [_OFFSET.search(str(text)) is not None for text in texts]
    stamps = pd.to_datetime(list(texts), format="ISO8601", errors="coerce", utc=any(offsets))
    if (unread := np.flatnonzero(stamps.isna())).size:
        raise InputError(
            f"{label} must be dates and times, such as 2026-01-31T17:00; "
            f"got {str(texts[int(unread[0])])!r}"
        )
    if any(offsets) and not all(offsets):
        raise InputError(f"{label} must all have a UTC offset, or none: give all of them one")
    return stamps


BETWEEN_CHANGES = 120
"""Days within which clocks do not change twice: 126 in North America, 154 in Europe."""
_OFFSET = re.compile(r"([T ].*?)(?:Z|[+-]\d\d(?::?\d\d)?)$")


def local_times(times: Sequence[str]) -> Any:
    """Return the local times of ISO 8601 texts as a pandas index, without their UTC offsets."""
    import pandas as pd

    return pd.DatetimeIndex(
        pd.to_datetime([_OFFSET.sub(r"\1", t) for t in times], format="ISO8601")
    )


def calendar(times: Sequence[str]) -> Floats:
    """Return public features of time: harmonics of the day, of week-ends, and their products.

    The first harmonic also drifts from day to day, as daylight does. Hours and days are local: with
    UTC offsets, days on which clocks change have 23 or 25 hours.

    Parameters
    ----------
    times : sequence of str
        Dates and times in ISO 8601, in equal steps.

    Raises
    ------
    InputError
        Naming the first text that is not a time, or the first gap: a missing day shifts all later
        ones.
    """
    stamps = dates_and_times(times, "the history's steps")
    gaps = np.diff(stamps.asi8) / 1e9
    if len(gaps) and (gaps[0] <= 0 or not (gaps == gaps[0]).all()):
        place = int(np.flatnonzero((gaps != gaps[0]) | (gaps <= 0))[0])
        clocks = stamps.tz is None and abs(gaps[place] - gaps[0]) == 3600.0
        advice = f"If clocks change here, {UTC_OFFSETS}. " if clocks else ""
        raise InputError(
            f"the history must have equal steps: {times[place + 1]} follows {times[place]}, where "
            f"steps are {gaps[0]:g} s. {advice}Fill the gap, or start after it"
        )
    local = local_times(times)
    hour = (local.hour + local.minute / 60.0).to_numpy(float)
    weekend = (np.asarray(local.dayofweek) >= 5).astype(float)
    waves = [f(2.0 * math.pi * k * hour / 24.0) for k in (1, 2, 3) for f in (np.cos, np.sin)]
    drift = _days(stamps)
    products = [factor * wave for factor in (weekend, drift) for wave in waves[:2]]
    return np.stack([*waves, weekend, *products], axis=1)


def _days(stamps: Any) -> Floats:
    return np.asarray((stamps - stamps[0]).total_seconds(), dtype=np.float64) / 86_400.0


def recency(times: Sequence[str]) -> Floats:
    """Return the weights of a history's steps: they halve in a week, and add up to 1."""
    days = _days(dates_and_times(times, "the history's steps"))
    weights = 0.5 ** ((days[-1] - days) / HALF_LIFE)
    return np.asarray(weights / weights.sum())


def correlated_steps(times: Sequence[str]) -> float:
    """Return the number of steps in :data:`CORRELATED` hours, at least 1."""
    return max(1.0, CORRELATED / 24.0 / step_in_days(times))


def step_in_days(times: Sequence[str]) -> float:
    """Return the time between two steps."""
    return float(_days(dates_and_times(times[:2], "the history's steps"))[1])


def _offset(time: str) -> str:
    """Return the UTC offset of an ISO 8601 text, empty without one."""
    found = _OFFSET.search(time)
    return time[found.end(1) :] if found else ""


def following(times: Sequence[str], count: int) -> list[str]:
    """Return the times of the steps after a history, at the UTC offset of its last step.

    Warns
    -----
    GridprivWarning
        Where clocks change in the history, and may change again before the last step ahead.
    """
    import pandas as pd

    last, before = pd.Timestamp(times[-1]), pd.Timestamp(times[-2])
    try:
        allowed = (last + count * (last - before)).year < LAST_YEAR
    except (ValueError, OverflowError):
        allowed = False
    if not allowed:
        raise not_allowed("steps", count, f"so few that the forecast ends before {LAST_YEAR}")
    changes = [now for old, now in pairwise(times) if _offset(old) != _offset(now)]
    safe = pd.Timestamp(changes[-1]) + pd.Timedelta(days=BETWEEN_CHANGES) if changes else None
    if safe is not None and last + count * (last - before) > safe:
        warn(
            f"clocks change in the history, last at {changes[-1]}, and steps ahead keep the offset "
            f"{_offset(times[-1])} of its last step. After the next change their local hours are "
            "wrong: forecast fewer steps, up to that change"
        )
    return [(last + (k + 1) * (last - before)).isoformat() for k in range(count)]
