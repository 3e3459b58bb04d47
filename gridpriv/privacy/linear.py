"""Linear statistics of a demand: their sensitivity, the estimate from them, and exact sums.

A matrix of statistics is applied to the true demand, and noise is added. The estimate from the
release and public priors is post-processing. The matrices apply to vectors of units and groups of
units, not to grids.

The same matrix S (m, n) is applied to p and, times a weight w, to q. If one unit i changes by (dp,
dq) with |dp|, |dq| <= beta, the statistics change by (dp S_i, w dq S_i), S_i a column of S. With
w = 1:

    norm 1    2 beta max_i ||S_i||_1; (1 + w) beta max_i ||S_i||_1 for any w,
    norm 2    sqrt(2) beta max_i ||S_i||_2; sqrt(1 + w^2) for any w,
    norm box  beta max_i ||S_i||_1, as max(|dp S_si|, |dq S_si|) <= beta |S_si|; times max(1, w),

    norm pair beta max_i |S_si| where every column has a single nonzero entry s; else none,

and beta for 2 beta and sqrt(2) beta where only p or only q is protected. All are attained.

Estimate. Given y = S d + noise of variance v per coordinate, for p and then for q:

    d = mean + t k + s e,   t ~ N(0, spread^2),   e ~ N(0, deviations),   1'e = 0,

with k the shares. s, the size of units' deviations from their shares, is not public. It is
estimated from y: every s of a grid is weighted by the likelihood of y, which is normal with
covariance V(s) = v I + spread^2 aa' + s^2 S deviations S', a = Sk (empirical Bayes; all noise is
treated as normal, which costs accuracy but no privacy). For each s the mean is the generalized
least squares estimate. Last, the sum is projected on its public range.

Draws. A draw of this model is corrected by its residual in the released statistics (Matheron's
rule), which makes it a draw of the posterior:

    d0 = mean + t k + s e,   d = d0 + C S' V(s)^-1 (y - S d0 - noise),   C = spread^2 kk' + s^2 D,

with s drawn by its posterior weight and the noise from the mechanism's own distribution. Under the
model a draw differs from the estimate as the true demand does, also with noise that is not normal.

Exact sums. The sensitivity of S d is that of exact arithmetic. In floating point S d and S d' may
differ by more: sums of 2,000 numbers that add up to 299 p.u. by 4.6e-5 of a beta of 1e-9 p.u. Under
secure noise demand is therefore first put on a grid of g = 2^-36 p.u., within 2^17/n p.u. at each
of n units (public). Then:

1. Clipping and rounding are monotone, clipping increases no distance, and rounding commutes with
   whole steps: numbers at a distance of at most beta are then at most beta + g apart.
2. Sums of n such numbers are whole multiples of g below 2^53 g: every partial sum is exact in
   double precision, in any order.
3. Weights multiply exact sums once: an error of at most 2^-53 2^17 = g on each side. Where demand
   was scaled or sheared before, or sums are averaged over T steps afterwards, there are at most
   2 (T + 1) more roundings of at most g.

So every statistic changes by at most (1 + 8 (T + 1) g / beta) times its weight times beta, with T =
0 for one step. This sensitivity is declared, and sets the scale of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.core.errors import InputError
from gridpriv.privacy.adjacency import DemandAdjacency, PowerFactors
from gridpriv.privacy.mechanism import Mechanism
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity, length

LEAST_SHARE = 0.1  # of the mean demand: largest demand of a unit whose prior is 0


@dataclass(frozen=True, eq=False)
class Prior:
    """Public prior of the demand (p, q) of n units.

    Attributes
    ----------
    mean : (2n,)
        Expected p, then q.
    spread : (2,)
        Standard deviation of the sum of p, and of the sum of q.
    lower, upper : (2,)
        Public range of both sums.
    loads : (n,) bool or None
        Units that can have demand, by public data; None if all can. The estimate of another is its
        mean.
    """

    mean: Floats
    spread: Floats
    lower: Floats
    upper: Floats
    loads: Bools | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean).all() and (self.spread > 0).all()):
            raise InputError(
                "a prior needs finite means and positive spreads: correct --public-demand"
            )
        if not (self.lower <= self.upper).all():
            raise InputError("a prior's range is empty: correct --public-demand")

    @property
    def active(self) -> Sums:
        """Prior of p."""
        return self._half(0, np.split(self.mean, 2)[0])

    def reactive(self, active: Floats) -> Sums:
        """Return the prior of q given the estimate of p, at the public power factor."""
        p, q = np.split(self.mean, 2)
        total = float(p.sum())
        ratio = float(q.sum()) / total if total > 0 else 0.0
        return self._half(1, q + ratio * (active - p))

    def _half(self, half: int, mean: Floats) -> Sums:
        size = np.abs(np.split(self.mean, 2)[half])
        loads = np.ones(len(size), bool) if self.loads is None else self.loads
        typical = float(size.sum()) / max(1, int(loads.sum()))
        scale = np.maximum(size, LEAST_SHARE * typical) if typical > 0 else np.ones_like(size)
        scale = np.where(loads, scale, 0.0)
        return Sums(
            mean, scale, float(self.spread[half]), float(self.lower[half]), float(self.upper[half])
        )


@dataclass(frozen=True, eq=False)
class Sums:
    """Prior of one kind of demand of n units.

    Attributes
    ----------
    mean : (n,)
    scale : (n,)
        Deviations of units from their shares, relative to each other.
    spread : float
        Standard deviation of the sum.
    lower, upper : float
        Range of the sum.
    """

    mean: Floats
    scale: Floats
    spread: float
    lower: float
    upper: float

    def less(self, part_of_demand: Floats, unit: float) -> Sums:
        """Return the prior of the rest after a known part (n,), in units of ``unit``."""
        part = float(part_of_demand.sum())
        return Sums(
            (self.mean - part_of_demand) / unit,
            self.scale / unit,
            self.spread / unit,
            (self.lower - part) / unit,
            (self.upper - part) / unit,
        )

    @property
    def shares(self) -> Floats:
        """Shares of the units in an error of the sum: proportional to their scales."""
        return np.asarray(self.scale / (self.scale.sum() or 1.0))

    @property
    def deviations(self) -> Floats:
        """Covariance (n, n) of the units' deviations, at relative size 1, given their sum."""
        variance = self.scale**2
        total = float(variance.sum()) or 1.0
        return np.asarray(np.diag(variance) - np.outer(variance, variance) / total)


LEAST_NOISE = 1e-12  # variance, relative to that of the estimated demand
DEVIATIONS = np.geomspace(0.05, 5.0, 25)
"""Grid of relative sizes s, uniform in their logarithm."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """Linear statistics (S p, w S q) of the demand of a zone's n buses, released with noise.

    ``gridpriv.Strategy`` is the public name of this class.

    Attributes
    ----------
    name : str
        Shown as the source of the sensitivity bound, such as ``total``.
    matrix : (m, n)
        S: one row per released number, one column per bus of the zone.
    reactive : float
        w, the weight of the statistics of q; below 1 they use less of the budget in norms 1 and 2.
    """

    name: str
    matrix: Floats
    reactive: float = 1.0

    @property
    def matrices(self) -> tuple[Floats, Floats]:
        """S of p and w S of q."""
        return self.matrix, self.reactive * self.matrix

    def measure(self, demand: Floats) -> Floats:
        """Return the statistics of a demand (2n,): those of p, then those of q, shape (2m,)."""
        halves = zip(self.matrices, np.split(demand, 2), strict=True)
        return np.concatenate([matrix @ half for matrix, half in halves])

    def weight(self, norm: Norm) -> float:
        """Return the largest length of a column of S, for a norm of the statistics."""
        columns = np.abs(self.matrix)
        lengths = np.sqrt((columns**2).sum(axis=0)) if norm == 2 else columns.sum(axis=0)
        if norm in ("pair", "number") and (np.count_nonzero(columns, axis=0) > 1).any():
            return np.inf  # a unit changes several statistics
        return float(lengths.max(initial=0.0))

    def share(self, norm: Norm, change: Floats) -> float:
        """Return the largest share of the distance in one number or one pair.

        In norm 1 p and q are separate numbers.
        """
        weight = self.weight(norm)
        if norm not in {1, "box"} or not weight:
            return 1.0
        largest = float(np.abs(self.matrix).max()) / weight
        return max(0.5, largest * float(change.max()) / length(change, norm))

    def sensitivity(self, adjacency: DemandAdjacency, norm: Norm) -> Sensitivity:
        """Return the sensitivity of the statistics to one unit."""
        entries = 2 if adjacency.protects == "p+q" else 1
        halves = np.array(["p" in adjacency.protects, "q" in adjacency.protects])
        change = adjacency.beta * halves * np.array([1.0, self.reactive])
        weight = self.weight(norm)
        total = "root sum of squares" if norm == 2 else "sum"
        inside = "" if weight == 1.0 else f", with weights whose {total} is {weight:.6g}"
        numbers = int((self.matrix != 0.0).sum(axis=0).max(initial=0))
        if numbers > 1:
            inside += f", so that {entries * numbers} of the released numbers change"
        if self.reactive != 1.0:
            inside += f", reactive demand times {self.reactive:g}"
        each = "changes by at most beta" if entries == 1 else "change by at most beta each"
        moves = f"{adjacency.protects.replace('+', ' and ')} of one bus {each}"
        if adjacency.power_factors is not None:
            moves = (
                "active demand of one bus moves by beta, reactive demand with it at power "
                f"factors {adjacency.power_factors}"
            )
        return Sensitivity(
            length(change, norm) * weight,
            norm,
            f"{moves}{inside} ({self.name})",
            self.share(norm, change),
        )

    def estimate(
        self,
        released: Floats,
        variance: float,
        prior: Prior,
        power_factors: PowerFactors | None = None,
    ) -> Floats:
        """Return the posterior mean (2n,) of demand given released statistics and the prior.

        Parameters
        ----------
        released : (2m,)
            Statistics with noise.
        variance : float
            Of the noise on each.
        power_factors : PowerFactors, optional
            Power factors whose coordinates (p', q') the statistics have.
        """
        p_released, q_released = np.split(released, 2)
        of_p, of_q = self.matrices
        active = _posterior(of_p, p_released, variance, prior.active)
        belief = prior.reactive(active)
        if power_factors is None:
            return np.concatenate([active, _posterior(of_q, q_released, variance, belief)])
        along, half = power_factors.middle * active, power_factors.half
        posterior = _posterior(of_q, q_released, variance, belief.less(along, half))
        return np.concatenate([active, along + half * posterior])


Strategy = Statistics
"""Public name of the statistics that a zone releases."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence of released statistics of one kind of demand on deviations from shares.

    The covariance V(s) of the statistics is diagonal in the columns X of ``vectors``:
    X' V(s) X = diag(``size``).

    Attributes
    ----------
    vectors : (m, m)
    size : (25, m)
        For every s of :data:`DEVIATIONS`.
    weight : (25,)
        Posterior weight of every s.
    """

    vectors: Floats
    size: Floats
    weight: Floats


def evidence(matrix: Floats, released: Floats, variance: float, prior: Sums) -> Evidence:
    """Return the evidence of released statistics on the relative size of deviations."""
    from scipy.linalg import eigh  # slow to import, and schemas do not need it

    total = matrix @ prior.shares
    # without a floor of the noise the matrix could be singular
    noise = max(variance, LEAST_NOISE * prior.spread**2 * float(total @ total))
    covariance = noise * np.eye(len(released)) + prior.spread**2 * np.outer(total, total)
    scattered = matrix @ prior.deviations @ matrix.T
    values, vectors = eigh(scattered, covariance) if len(released) else (released, covariance)
    loads = vectors.T @ (released - matrix @ prior.mean)
    size = 1.0 + DEVIATIONS[:, None] ** 2 * np.maximum(values, 0.0)
    log_likelihood = -0.5 * (np.log(size) + loads**2 / size).sum(axis=1)
    weight = np.exp(log_likelihood - log_likelihood.max())
    return Evidence(vectors, size, weight / weight.sum())


def _posterior(matrix: Floats, released: Floats, variance: float, prior: Sums) -> Floats:
    """Return the posterior mean of one kind of demand, its sum in the public range."""
    known = evidence(matrix, released, variance, prior)
    loads, weight = known.vectors.T @ (released - matrix @ prior.mean), known.weight[:, None]
    pull = known.vectors @ (weight * loads / known.size).sum(axis=0)
    spread = known.vectors @ (weight * DEVIATIONS[:, None] ** 2 * loads / known.size).sum(axis=0)
    along = prior.spread**2 * prior.shares * (matrix @ prior.shares @ pull)
    return in_range(prior.mean + along + prior.deviations @ matrix.T @ spread, prior)


def in_range(demand: Floats, prior: Sums) -> Floats:
    """Return a demand (n,) with its sum projected on the public range."""
    outside = float(np.clip(demand.sum(), prior.lower, prior.upper) - demand.sum())
    return np.asarray(demand + outside * prior.shares)


def posterior_covariance(matrix: Floats, variance: float, prior: Sums, deviation: float) -> Floats:
    """Return the posterior covariance (n, n) of demand, before any draw.

    Parameters
    ----------
    matrix : (m, n)
        With no rows, the covariance of the prior.
    variance : float
        Of the noise on a statistic.
    deviation : float
        s, as a public guess.
    """
    shares = prior.shares
    prior_covariance = prior.spread**2 * np.outer(shares, shares) + deviation**2 * prior.deviations
    cross = matrix @ prior_covariance
    noise = max(variance, LEAST_NOISE * np.trace(prior_covariance))  # nested sums would be singular
    noisy = cross @ matrix.T + noise * np.eye(len(matrix))
    return np.asarray(prior_covariance - cross.T @ np.linalg.solve(noisy, cross))


def bus(units: int) -> Statistics:
    """Return the strategy that releases every unit separately: S = I.

    The noise of the zone's sum grows with the root of the number of its units.
    """
    return Statistics("bus", np.eye(units))


def total(units: int) -> Statistics:
    """Return the strategy that releases the sum of p and the sum of q: S = 1'.

    Their noise does not depend on the size of the zone; the location of load is public.
    """
    return Statistics("total", np.ones((1, units)))


def nothing(units: int) -> Statistics:
    """Return the strategy that releases nothing: S without rows, and epsilon 0."""
    return Statistics("nothing", np.zeros((0, units)))


def tree(levels: Sequence[Ints], weights: Sequence[float]) -> Statistics:
    """Return the strategy that releases weighted sums over the parts of every level.

    A unit is in one part of each level, so it changes the statistics by the sum of all weights (in
    norm 2, the root of the sum of their squares), whatever the parts are.

    Parameters
    ----------
    levels : sequence of (n,) int
        Part of every unit, by level.
    weights : sequence of float
        Of each level, positive: the noise of a part's sum is the common scale divided by the
        weight.
    """
    if len(levels) != len(weights) or not all(weight > 0 for weight in weights):
        raise InputError("a tree needs one positive weight for every level: give one per level")
    entries: dict[bytes, float] = {}
    for parts, weight in zip(levels, weights, strict=True):
        for members in np.unique(parts)[:, None] == parts:
            part = members.tobytes()
            entries[part] = entries.get(part, 0.0) + weight  # equal parts are one sum
    member = np.frombuffer(b"".join(entries), dtype=bool).reshape(len(entries), len(levels[0]))
    return Statistics("tree", member * np.array(list(entries.values()))[:, None])


@dataclass(frozen=True, eq=False)
class Observed:
    """Released statistics of one kind of demand, and the prior of their estimate.

    Attributes
    ----------
    matrix : (m, n)
        S.
    released : (m,)
    variance : float
        Of the noise on each.
    belief : Sums
        Its scale and spread apply to every draw; each draw may have its own mean.
    """

    matrix: Floats
    released: Floats
    variance: float
    belief: Sums

    @cached_property
    def evidence(self) -> Evidence:
        """Evidence on the relative size of deviations, s."""
        return evidence(self.matrix, self.released, self.variance, self.belief)

    def draw(self, belief: Sums, noise: Floats, generator: np.random.Generator) -> Floats:
        """Return a demand (n,) of the posterior for noise (m,), its sum in the prior's range."""
        known = self.evidence
        row = int(generator.choice(len(DEVIATIONS), p=known.weight))
        s, shares = DEVIATIONS[row], belief.shares
        value = belief.scale * generator.standard_normal(len(shares))
        value -= value.sum() * belief.scale**2 / ((belief.scale**2).sum() or 1.0)
        start = belief.mean + belief.spread * generator.standard_normal() * shares + s * value
        residual = self.released - self.matrix @ start - noise
        pull = known.vectors @ ((known.vectors.T @ residual) / known.size[row])
        total = self.matrix @ shares @ pull
        correction = belief.spread**2 * shares * total + s**2 * belief.deviations @ (
            self.matrix.T @ pull
        )
        return in_range(start + correction, belief)


def posterior_draws(
    strategy: Statistics,
    released: Floats,
    mechanism: Mechanism,
    prior: Prior,
    generator: np.random.Generator,
) -> Iterator[Floats]:
    """Yield demands (2n,) of the posterior, without end.

    Parameters
    ----------
    strategy : Statistics
    released : (2m,)
        Statistics with noise.
    mechanism : Mechanism
        Of the noise.
    """
    variance, none = mechanism.variance, np.zeros_like(released)
    p_released, q_released = np.split(released, 2)
    of_p, of_q = strategy.matrices
    active = Observed(of_p, p_released, variance, prior.active)
    reactive = Observed(of_q, q_released, variance, prior.reactive(prior.active.mean))
    while True:
        p_noise, q_noise = np.split(mechanism.perturb(none, lambda: generator), 2)
        p = active.draw(prior.active, p_noise, generator)
        yield np.concatenate([p, reactive.draw(prior.reactive(p), q_noise, generator)])


GRID = 2.0**-36
LARGEST = 2.0**17


def on_grid(demand: Floats) -> Floats:
    """Return demand (..., n) in whole steps of the grid, within its public range."""
    most = LARGEST / max(1, demand.shape[-1])
    return np.asarray(np.round(np.clip(demand, -most, most) / GRID) * GRID)


def exact_statistics(matrix: Floats, demand: Floats) -> Floats:
    """Return S d of demand (n,) on the grid; all nonzero entries of a row of S are equal."""
    weights = np.abs(matrix).max(axis=1, initial=0.0)
    members = matrix / np.where(weights > 0.0, weights, 1.0)[:, None]
    return np.asarray(weights * (members @ demand))


def with_rounding(bound: Sensitivity, beta: float, steps: int = 0) -> Sensitivity:
    """Return a sensitivity that includes the rounding of demand, and of averages over steps."""
    share = 8.0 * (steps + 1) * GRID / beta
    source = f"{bound.bound_source}, with rounding to {GRID:.2g} p.u."
    return replace(bound, value=(1.0 + share) * bound.value, bound_source=source)


@dataclass(frozen=True, eq=False)
class Disclosure:
    """A strategy, and the public prior of the estimate from its releases.

    Attributes
    ----------
    expected : float
        Root of the expected squared error of the data as weighted by the objective, per unit; from
        public data.
    scale : float
        Public factor from the owner's data to the data. The release is of the owner's statistics,
        with the adjacency of the owner's data; the estimate is scaled, which is post-processing.
    power_factors : PowerFactors or None
        Power factors whose coordinates (p', q') the statistics have, in place of (p, q).
    exact : bool
        Sum without rounding errors (:mod:`gridpriv.privacy.linear`), as secure
        noise needs.
    """

    strategy: Statistics
    prior: Prior
    expected: float
    scale: float = 1.0
    power_factors: PowerFactors | None = None
    exact: bool = False

    @property
    def matrix(self) -> Floats:
        """Matrix from the data (2n,) to the statistics."""
        pairs = np.eye(2) if self.power_factors is None else self.power_factors.shear
        weights = np.diag([1.0, self.strategy.reactive])
        return np.asarray(np.kron(weights @ pairs, self.strategy.matrix)) / (self.scale or 1.0)

    def measure(self, data: Floats) -> Floats:
        """Return the statistics before noise."""
        owned = data / self.scale if self.scale else data
        if self.power_factors is not None:
            owned = (self.power_factors.shear @ owned.reshape(2, -1)).ravel()
        return (
            self.exact_sums(on_grid(owned.reshape(2, -1)))
            if self.exact
            else self.strategy.measure(owned)
        )

    def exact_sums(self, owned: Floats) -> Floats:
        """Return the statistics of demand (2, n) on the grid, without rounding of sums."""
        halves = zip(self.strategy.matrices, owned, strict=True)
        return np.concatenate([exact_statistics(matrix, half) for matrix, half in halves])

    def sensitivity(self, adjacency: DemandAdjacency, norm: Norm) -> Sensitivity:
        """Return the sensitivity of the statistics."""
        if adjacency.power_factors != self.power_factors:
            raise ValueError("adjacency and statistics have different power factors")
        bound = self.strategy.sensitivity(adjacency, norm)
        return with_rounding(bound, adjacency.beta) if self.exact else bound

    def estimate(self, released: Floats, release: Release | None) -> Floats:
        """Return the posterior mean of demand; the prior without a release."""
        noise = 0.0 if release is None else release.mechanism.variance
        result = self.strategy.estimate(released, noise, self.prior, self.power_factors)
        return self.scale * result


DEVIATION = 1.5
"""Public guess of s: the median over the zones of 25 published grids (0.1 to 9)."""


def expected_error(
    strategy: Statistics,
    variance: float,
    prior: Prior,
    use: Floats,
    deviation: float = DEVIATION,
    *,
    reactive: bool = False,
    power_factors: PowerFactors | None = None,
) -> float:
    """Return the root of the expected squared error of ``use`` times the demand.

    Parameters
    ----------
    variance : float
        Of the noise on a statistic.
    use : (k, n)
        Linear functions of the demand whose error counts.
    reactive : bool
        Add the error of reactive demand to that of active demand.
    power_factors : PowerFactors, optional
        Power factors whose coordinates (p', q') the statistics have: q = middle p + half q'.
    """

    def error(matrix: Floats, belief: Sums) -> float:
        posterior = posterior_covariance(matrix, variance, belief, deviation)
        return max(float(np.trace(use @ posterior @ use.T)), 0.0)

    of_p, of_q = strategy.matrices
    active = error(of_p, prior.active)
    if not reactive:
        return math.sqrt(active)
    belief = prior.reactive(prior.active.mean)
    if power_factors is None:
        return math.sqrt(active + error(of_q, belief))
    along, half = power_factors.middle * prior.active.mean, power_factors.half
    across = error(of_q, belief.less(along, half))
    return math.sqrt((1.0 + power_factors.middle**2) * active + half**2 * across)
