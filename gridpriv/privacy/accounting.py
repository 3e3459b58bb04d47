"""Total epsilons of releases, in closed form where there is one and by dp_accounting otherwise.

A charge is the cost of one release (:class:`gridpriv.privacy.mechanism.Charge`). Charges of plain
mechanisms are composed by their privacy loss distribution (PLD). Gaussian mechanisms alone compose
to one Gaussian mechanism of multiplier (sum 1/m_i^2)^(-1/2) exactly (Dong, Roth and Su 2022,
corollary 3.3), whose curve dp_accounting gives in closed form. A pure release is dominated by
randomized response; equal pure releases have a total in closed form. Staircases are composed by
their three losses. Mechanisms without additive noise are composed by the PLD that dominates every
mechanism of their epsilon and delta. A release without a proof makes the total infinite.

One Laplace release of pure epsilon e0 = D1/b (a run that draws noise once) has the curve

    delta(e) = 1 - exp((e - e0)/2),   0 <= e <= e0,

(the mass by which Lap(0, b) exceeds exp(e) Lap(D1, b): all of it lies below x = (D1 - eb)/2), so
epsilon at delta is e0 + 2 ln(1 - delta). dp_accounting rounds the same curve up to a grid.

dp_accounting's default adjacency relation is used and multipliers are scale/D with D the
full replacement distance: under REPLACE_ONE its accountants disagree (google
differential-privacy issue 378).

**Sampled batches, between replaced samples.**

A client computes a value from a batch that it samples in secret and adds Gaussian noise. Adjacent
data differ in one sample x, replaced by x'. The unit of length is the noise's standard deviation.

*Poisson batches* (every sample joins on its own with chance q). Given the others of the batch, the
output is (1 - q) N(c) + q N(c + u) with x and (1 - q) N(c) + q N(c + u') with x', and |u|, |u'| are
at most mu, half of the distance between adjacent data. The hockey-stick divergence is jointly
convex, so the worst c counts, and c = 0 by translation. For alpha >= 1,

    H_alpha(P || Q) = q sup_A [N(u)(A) - k0 N(0)(A) - k1 N(u')(A)],  k0, k1 >= 0,

is a multiple of a hockey stick of one Gaussian against a mixture of two, at distances |u| <= mu and
|u - u'| <= 2 mu. Such mixtures are dominated by those on a line with the largest distances
(Choquette-Choo et al. 2023, lemma 4.5): u = mu, u' = -mu. For alpha < 1 it follows from
H_alpha(P || Q) = 1 - alpha + alpha H_{1/alpha}(Q || P). So the pair is

    P = (1 - q) N(0, 1) + q N(mu, 1),    Q = (1 - q) N(0, 1) + q N(-mu, 1).

*Batches of b of n without replacement* (q = b/n). Two batches that differ in one member are at a
distance of at most 1/m, that of adjacent data, and with log(1 + q (e^eps - 1)) for eps,

    delta' = q delta_m(eps),  delta_m the curve of plain Gaussian noise

(Balle, Barthe and Gaboardi 2018, theorem 9). That is H_alpha of (1 - q) N(0) + q N(1/m) against
N(0) at alpha >= 1. The relation is symmetric, which gives alpha < 1 as above; the curve is convex,
as P[L > 0] + Q[L > 0] <= 1, so that it is the curve of a pair (Zhu, Dong and Wang 2022, theorem 11
and proposition 8), and losses compose.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, finite, not_allowed
from gridpriv.privacy.mechanism import HIDES_NOTHING, Charge
from gridpriv.privacy.staircase import chance_of_loss

POISSON, FIXED_SIZE = "replaced-gaussian", "drawn-gaussian"
"""Kinds of charge: a Poisson batch, and a batch without replacement, between replaced samples."""
TINY = np.finfo(float).tiny
TAIL = 1e-16  # probability of a loss that counts as infinite
MOST_POINTS = 200_000
FOURIER, LEAST_DELTA = 1e-15, 1e-10
"""Error of sums of probabilities by Fourier transform, per release; its least delta."""
MOST_EQUAL = 10_000  # equal Laplace releases whose losses are added by Fourier transform

Curve = Callable[[Floats], Floats]


def poisson_curve(multiplier: float, rate: float) -> Curve:
    """Return delta of epsilons for Poisson batches and a replaced sample.

    Parameters
    ----------
    multiplier : float
        Noise over the full distance between adjacent data, 1/(2 mu).
    rate : float
        q.
    """
    from scipy.special import ndtr  # imports scipy: slow

    mu = 0.5 / multiplier

    def curve(epsilons: Floats) -> Floats:
        # P/Q = e^eps is a quadratic in y = e^(mu x): a y^2 - b y - e^eps a = 0
        ratio = np.exp(epsilons)
        a, b = rate * math.exp(-0.5 * mu**2), (1.0 - rate) * np.expm1(epsilons)
        root = np.sqrt(b**2 + 4.0 * ratio * a**2)
        y = np.where(b > 0, (b + root) / (2.0 * a), 2.0 * ratio * a / (root - b))
        x = np.log(y) / mu
        p = (1.0 - rate) * ndtr(-x) + rate * ndtr(mu - x)
        q = (1.0 - rate) * ndtr(-x) + rate * ndtr(-mu - x)
        return np.asarray(np.maximum(p - ratio * q, 0.0))

    return curve


def fixed_size_curve(multiplier: float, rate: float) -> Curve:
    """Return delta of epsilons for batches without replacement and a replaced sample.

    Parameters
    ----------
    multiplier : float
        Noise over the full distance between adjacent data, m.
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


CURVES: dict[str, Callable[[float, float], Curve]] = {
    POISSON: poisson_curve,
    FIXED_SIZE: fixed_size_curve,
}


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


Charges = Mapping[Charge, int]

# Losses are rounded up to a grid, so a coarser one is still a bound. Compositions whose losses
# spread above WIDE take ten times as long on the fine grid, and gain a millionth of epsilon.
# Compositions with sampled releases take MIDDLE: a third of the time, for 1e-4 of epsilon at most.
FINE, MIDDLE, COARSE, WIDE = 1e-4, 3e-4, 1e-3, 100.0
LARGE, SMALL = 30.0, 0.2  # pure epsilon and Gaussian multiplier of a release that hides nothing
LEAST = math.log(1e-9)  # multiplier of noise whose cost is 0
MOST = 30  # different charges whose loss distributions are composed to show a total
SAMPLED = frozenset({"sampled-gaussian", POISSON, FIXED_SIZE})
PURE = frozenset({"laplace", "split-laplace", "pure", "staircase"})


def pure_epsilon(charge: Charge) -> float:
    """Return the epsilon of a charge at delta 0; infinite where there is none."""
    if charge.kind in ("laplace", "split-laplace"):
        return 1.0 / charge.parameter
    return charge.parameter if charge.kind in PURE else math.inf


def parts(charge: Charge) -> tuple[Charge, ...]:
    """Return the charges whose composition bounds a release's loss at every delta.

    A bus changes several statistics of a tree, each with its own noise: Laplace noise on numbers,
    or K-norm noise on pairs. Let the changes x_k of numbers or pairs, in the mechanism's norm, add
    up to at most D, each of at most s D, s at least 1/2. Then the loss is at most that of two
    Laplace mechanisms whose values change by s D and by (1 - s) D:

    1. delta(eps; v) = 1 - M(v) with M log-concave in v (step 1 of :class:`KNorm`; a product of
       Laplace densities is log-concave too), so that delta is largest at an extreme point of the
       convex set {sum of x_k <= D, x_k <= s D}.
    2. At an extreme point all but two x_k are 0, and those are s D and (1 - s) D: two strictly
       between 0 and s D would be a mixture of other points; at most one can be s D unless s = 1/2.
    3. Noise on them is independent, and the loss of each that of a Laplace mechanism (step 2 and
       3 of :class:`KNorm`).
    """
    if charge.kind != "split-laplace":
        return (charge,)
    larger = Charge("laplace", charge.parameter / charge.second)
    return (larger, Charge("laplace", charge.parameter / (1.0 - charge.second)))


def total_pure(charges: Charges) -> float:
    """Return the pure epsilon of all charges by basic composition."""
    return math.fsum(count * pure_epsilon(charge) for charge, count in charges.items())


def epsilon_of(charge: Charge, delta: float) -> float:
    """Return the epsilon of one release: pure for Laplace, at ``delta`` for the others."""
    if charge.kind == "approximate" and delta >= charge.second:
        return charge.parameter
    pure = pure_epsilon(charge)
    return pure if math.isfinite(pure) else total_epsilon({charge: 1}, delta)


def total_epsilon(charges: Charges, delta: float) -> float:
    """Return an upper bound of epsilon at ``delta`` of the composition of all charges.

    Parameters
    ----------
    charges : mapping of Charge to int
        Number of each charge. Queries may depend on earlier releases; the charges and their number
        are fixed in advance.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        inf where a charge certifies nothing.

    Raises
    ------
    InputError
        For another delta.

    Notes
    -----
    Gaussian charges exactly, as one, and equal pure ones exactly; equal Laplace ones by the sum of
    losses of a dominating discrete law; others by composed loss distributions, or with
    zero-concentrated ones by Renyi divergence (``dp_accounting``). Never above the sum of pure
    epsilons, nor above the epsilons of pure and (epsilon, delta) private charges plus the total of
    the others at the delta that is left (:func:`_added`).
    """
    check_delta("delta", delta)
    counts: dict[Charge, int] = {}
    for charge, count in charges.items():
        for part in parts(charge):
            counts[part] = counts.get(part, 0) + count
    ordered = sorted(counts.items(), key=lambda item: repr(item[0]))
    return _total(tuple(ordered), delta)


@lru_cache(maxsize=1024)
def _total(charges: tuple[tuple[Charge, int], ...], delta: float) -> float:
    if not charges:
        return 0.0
    kinds = {charge.kind for charge, _ in charges}
    if "uncertified" in kinds:
        return math.inf
    if kinds == {"gaussian"}:
        import dp_accounting

        return float(dp_accounting.get_epsilon_gaussian(_joint_multiplier(charges), delta))
    wide = [item for item in charges if HIDES_NOTHING < stated_epsilon(item[0]) < math.inf]
    if wide:  # a loss distribution this wide has no use and no grid
        return _added(charges, wide, delta)
    number, (first, count), equal = sum(n for _, n in charges), charges[0], len(charges) == 1
    if kinds == {"laplace"} and number == 1:
        bound = max(0.0, pure_epsilon(first) + 2.0 * math.log1p(-delta))
    elif kinds == {"laplace"} and number == 2:
        bound = _two_laplace_epsilon([pure_epsilon(c) for c, n in charges for _ in range(n)], delta)
    elif kinds == {"staircase"} and number == 1:
        bound = max(0.0, first.parameter + math.log1p(-min(delta / first.second, 1.0 - 1e-16)))
    elif kinds == {"pure"} and equal and count <= MOST_POINTS:
        bound = _randomised_responses(first.parameter, count, delta)
    elif kinds == {"laplace"} and equal and count <= MOST_EQUAL and delta >= LEAST_DELTA:
        bound = _equal_laplace(pure_epsilon(first), count, delta)
    else:
        bound = (_rdp_epsilon if "zcdp" in kinds else _composed_epsilon)(charges, delta)
    for epsilon in (pure_epsilon, stated_epsilon):
        if separate := [item for item in charges if math.isfinite(epsilon(item[0]))]:
            bound = min(bound, _added(charges, separate, delta))
    return bound


def stated_epsilon(charge: Charge) -> float:
    """Return the stated epsilon of a charge, pure or with a delta; infinite if it has none."""
    return charge.parameter if charge.kind == "approximate" else pure_epsilon(charge)


def _added(
    charges: Iterable[tuple[Charge, int]], separate: Iterable[tuple[Charge, int]], delta: float
) -> float:
    """Return the epsilons of some charges plus the total of the others; infinite without delta.

    Let these charges have (e_i, d_i), with d_i = 0 for a pure charge. Each is dominated by a pair
    whose loss is at most e_i but on an event of probability d_i. Dominating pairs compose, also
    where a release depends on earlier ones (Zhu, Dong and Wang 2022, theorem 10). The loss of all
    is L + R with L at most s = sum of e_i outside an event of probability d = sum of d_i, so

        E(1 - e^(s + e - L - R))+ <= d + E(1 - e^(e - R))+,

    and s + e is a bound at delta where e is one of the others at delta - d.
    """
    separate = tuple(separate)
    composed = dict(item for item in charges if item not in separate)
    spent = math.fsum(n * c.second for c, n in separate if c.kind == "approximate")
    remaining_delta = delta - spent if spent else delta
    if remaining_delta < 0.0 or (composed and remaining_delta == 0.0):
        return math.inf
    total = math.fsum(n * stated_epsilon(c) for c, n in separate)
    return total + total_epsilon(composed, remaining_delta) if composed else total


def _two_laplace_epsilon(moves: list[float], delta: float) -> float:
    """Return epsilon of two Laplace releases, by bisection of their curve.

    With a >= b the pure epsilons and delta_a(t) = 1 - exp((t - a)/2), |t| <= a, the curve of the
    first, delta(e) is the mean of delta_a(e - L) over the loss L of the second: b with probability
    1/2, -b with probability exp(-b)/2, and density exp((l - b)/2)/4 between. As e - b >= -a, only e
    - L < a limits it.
    """
    b, a = sorted(moves)

    def curve(e: float) -> float:
        low, tail = max(e - a, -b), math.exp((e - a - b) / 2.0)
        value = 0.5 * (1.0 - tail) - 0.5 * math.expm1((low - b) / 2.0) - 0.25 * (b - low) * tail
        return value - 0.5 * math.exp(-b) * math.expm1(min(e + b - a, 0.0) / 2.0)

    low, high = 0.0, a + b
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if curve(middle) > delta else (low, middle)
    return high


def _randomised_responses(epsilon: float, count: int, delta: float) -> float:
    """Return epsilon at ``delta`` of pure releases of equal epsilon.

    Each is dominated by randomized response (Kairouz, Oh and Viswanath 2015, theorem 3.3): of n,
    the loss is l_j = (n - 2 j) epsilon with probability C(n, j) e^((n - j) epsilon) / (1 +
    e^epsilon)^n.
    """
    j = np.arange(1, count + 1)
    choices = np.append(0.0, np.cumsum(np.log((count + 1 - j) / j)))
    j = np.append(0, j)
    losses = (count - 2 * j) * epsilon
    log_chance = choices - j * epsilon - count * math.log1p(math.exp(-epsilon))
    return max(
        0.0, _epsilon_of_losses(np.asarray(losses, float), log_chance, delta) + 1e-13 * count
    )


def _equal_laplace(epsilon: float, count: int, delta: float) -> float:
    """Return epsilon at ``delta`` of Laplace releases of equal pure epsilon.

    The curve of one release is 1 - exp((e - epsilon)/2). Discrete Laplace noise of rate a =
    epsilon/k on a value that changes by k steps has that delta at its losses (k - 2 j) a, j = 0,
    ..., k, and between them the chord in e^e, which is above: it dominates (Doroshenko et al.
    2022). Its losses add up by Fourier transform, to ``count`` times :data:`FOURIER` in every sum
    of probabilities.
    """
    chance = laplace_chances(epsilon, count)
    summed = self_convolved(chance, count)
    with np.errstate(divide="ignore"):
        log_chance = np.log(np.maximum(summed, 0.0))
    losses = np.linspace(count * epsilon, -count * epsilon, len(summed))
    return max(0.0, _epsilon_of_losses(losses, log_chance, delta - count * FOURIER))


def laplace_chances(epsilon: float, count: int) -> Floats:
    """Return the probabilities of discrete Laplace noise that dominates one release, by loss."""
    k = max(16, min(math.ceil(epsilon / MIDDLE), 2**18 // count))
    a = epsilon / k
    chance: Floats = math.tanh(a / 2.0) * np.exp(-a * np.arange(k + 1))
    chance[[0, k]] = np.array([1.0, math.exp(-epsilon)]) / (1.0 + math.exp(-a))
    return chance


def self_convolved(chance: Floats, count: int) -> Floats:
    """Return the probabilities of a sum of ``count`` draws, by Fourier transform."""
    length = count * (len(chance) - 1) + 1
    size = 2 ** (length - 1).bit_length()
    return np.fft.irfft(np.fft.rfft(chance, size) ** count, size)[:length]


def _epsilon_of_losses(losses: Floats, log_chance: Floats, delta: float) -> float:
    """Return epsilon at ``delta`` of descending losses with their probabilities.

    Between l_(i+1) and l_i the curve is delta(e) = A_i - e^e B_i, with A_i and B_i the sums of
    probabilities, and of probabilities times e^(-l_j), over j up to i.
    """
    a, log_b = np.cumsum(np.exp(log_chance)), np.logaddexp.accumulate(log_chance - losses)
    reached = a[:-1] - np.exp(losses[1:] + log_b[:-1])  # delta at the next loss
    i = int(np.searchsorted(reached, delta))
    return math.log(max(a[i] - delta, TINY)) - float(log_b[i])


def _joint_multiplier(charges: tuple[tuple[Charge, int], ...]) -> float:
    return 1.0 / math.sqrt(math.fsum(n / c.parameter**2 for c, n in charges))


def _composed_epsilon(charges: tuple[tuple[Charge, int], ...], delta: float) -> float:
    """Return epsilon of composed loss distributions, of all plain Gaussian charges as one."""
    from dp_accounting.pld import privacy_loss_distribution

    gaussian = tuple(item for item in charges if item[0].kind == "gaussian")
    composed = [item for item in charges if item not in gaussian]
    spread = math.fsum(n * pure_epsilon(c) for c, n in composed if c.kind in PURE)
    if gaussian:
        multiplier = _joint_multiplier(gaussian)
        composed.append((Charge("gaussian", multiplier), 1))
        spread += 0.5 / multiplier**2  # its losses are N(s, 2s), s = 1/(2 m^2)
    step = FINE if spread <= WIDE else COARSE
    step = MIDDLE if any(charge.kind in SAMPLED for charge, _ in composed) else step
    total = privacy_loss_distribution.identity(step)
    for charge, count in composed:
        total = total.compose(_loss(charge, step).self_compose(count))
    return float(total.get_epsilon_for_delta(delta))


def _loss(charge: Charge, step: float) -> Any:
    """Return the privacy loss distribution of one release, on a grid of losses of width ``step``.

    Randomized response between two values, the truth with probability e^eps/(1 + e^eps), dominates
    every eps-private mechanism (Kairouz, Oh and Viswanath 2015). dp_accounting 0.6's PLDAccountant
    leaves out the count of its event and would charge 40 releases as one (a test shows this).
    """
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as of

    grid = {"value_discretization_interval": step}
    match charge.kind:
        case "approximate":
            private = common.DifferentialPrivacyParameters(charge.parameter, charge.second)
            return of.from_privacy_parameters(private, **grid)
        case "staircase":
            return _staircase_loss(charge, step)
        case "pure":
            noise = 2.0 / (1.0 + math.exp(charge.parameter))
            return of.from_randomized_response(noise, 2, **grid)
        case "laplace":
            return of.from_laplace_mechanism(charge.parameter, **grid)
        case "replaced-gaussian" | "drawn-gaussian":
            return loss_distribution(charge.kind, charge.parameter, charge.second, step)
    rate = charge.second if charge.kind == "sampled-gaussian" else 1.0
    return of.from_gaussian_mechanism(charge.parameter, sampling_prob=rate, **grid)


def _staircase_loss(charge: Charge, step: float) -> Any:
    """Return the loss distribution of a staircase: three losses, on the grid of the others.

    The losses under the adjacent data are the same (:mod:`gridpriv.privacy.staircase`).
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    full, q = charge.second, math.exp(-charge.parameter)
    steps, zero = charge.parameter / step, max(0.0, 1.0 - (1.0 + q) * full)
    losses = {math.ceil(-steps): q * full}  # at 0, as the rest, where epsilon is below a step
    for at, mass in ((0, zero), (math.ceil(steps), full)):
        losses[at] = losses.get(at, 0.0) + mass
    pmf = pld_pmf.create_pmf(losses, step, infinity_mass=0.0, pessimistic_estimate=True)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


def _rdp_epsilon(charges: tuple[tuple[Charge, int], ...], delta: float) -> float:
    """Return epsilon of zCDP charges by Renyi accounting; pure charges are eps^2/2-zCDP."""
    import dp_accounting
    from dp_accounting import rdp

    rho = math.fsum(n * zcdp_rho(charge) for charge, n in charges)
    accountant = rdp.RdpAccountant()
    accountant.compose(dp_accounting.ZCDpEvent(rho))
    return float(accountant.get_epsilon(delta))


def zcdp_rho(charge: Charge) -> float:
    """Return rho of a charge (Bun and Steinke 2016, propositions 1.4 and 1.6)."""
    if charge.kind == "zcdp":
        return charge.parameter
    if charge.kind == "gaussian":
        return 0.5 / charge.parameter**2
    return 0.5 * pure_epsilon(charge) ** 2


def total_of(charges: Charges, delta: float) -> float:
    """Return epsilon of charges at ``delta`` (0: pure), for display.

    Parameters that agree to nine digits count as equal. The loss distribution of a release with
    almost no noise needs gigabytes: its epsilon is added to the total of the others. That of many
    different releases takes minutes: they are composed by their Renyi divergences.
    """
    if not charges or delta == 0.0:
        return total_pure(charges)
    rounded_charges: Counter[Charge] = Counter()
    for charge, count in charges.items():
        rounded = replace(charge, parameter=float(f"{charge.parameter:.9g}"))
        if charge.kind == "gaussian" and charge.parameter < SMALL and len(charges) > 1:
            rounded = Charge("zcdp", zcdp_rho(rounded))
        rounded_charges[rounded] += count
    many = len(charges) > MOST and {c.kind for c in charges} <= {"laplace", "gaussian", "pure"}
    least = 0.0 if many else LARGE
    large = [item for item in rounded_charges.items() if least < stated_epsilon(item[0]) < math.inf]
    if large:
        concentrated: Counter[Charge] = Counter()
        for charge, count in rounded_charges.items():
            concentrated[Charge("zcdp", zcdp_rho(charge))] += count
        check_delta("delta", delta)
        added = _added(rounded_charges.items(), large, delta)
        return min(total_pure(rounded_charges), added, total_epsilon(concentrated, delta))
    return total_epsilon(rounded_charges, delta)


@lru_cache(maxsize=256)
def pure_multiplier(
    kind: str, epsilon: float, delta: float, releases: int, dimension: int = 2
) -> float:
    """Return 1 over the pure epsilon of each of the releases that together cost (epsilon, delta).

    Parameters
    ----------
    kind : {'laplace', 'staircase'}
    delta : float
        With 0 the total is pure (basic composition); else it is (epsilon, delta) by PLD.
    dimension : int
        Of a staircase.
    """
    pure = releases / epsilon
    if delta == 0.0 or releases == 1:
        return pure

    def cost(m: float) -> float:
        second = chance_of_loss(1.0 / m, dimension) if kind == "staircase" else 0.0
        charge = Charge(kind, m if kind == "laplace" else 1.0 / m, second)
        return total_epsilon({charge: releases}, delta)

    return least_multiplier(cost, epsilon, pure)


def least_multiplier(cost: Callable[[float], float], epsilon: float, most: float) -> float:
    """Return the least multiplier of a falling cost of at most epsilon, to six digits, on its side.

    It is ``most`` where that costs no less: at a very small delta the grid of the loss distribution
    costs more than delta saves.
    """
    from scipy.optimize import brentq

    def excess(log_multiplier: float) -> float:
        return cost(math.exp(log_multiplier)) - epsilon

    high = math.log(most)
    if excess(high) >= 0.0:
        return most
    low = high - math.log(2.0)  # a small multiplier takes long: it is halved, not bracketed at once
    while excess(low) <= 0.0:
        low, high = low - math.log(2.0), low
        if high < LEAST:
            return math.exp(high)
    result, step = float(brentq(excess, low, high, xtol=1e-6)), 1e-6
    while excess(result) > 0.0:  # the distribution's grid makes steps: end on the safe side
        result, step = result + step, 2.0 * step
    return min(math.exp(result), most)


def gaussian_multiplier(epsilon: float, delta: float, releases: int) -> float:
    """Return the noise multiplier sigma/D2 at which Gaussian releases cost (epsilon, delta).

    The analytic Gaussian mechanism (Balle and Wang 2018) at sqrt(releases) times the noise.
    """
    if delta == 0.0:
        raise InputError(
            "the Gaussian mechanism has no pure epsilon: state the total as total:EPSILON,DELTA"
        )
    import dp_accounting

    return math.sqrt(releases) * float(dp_accounting.get_sigma_gaussian(epsilon, delta))


def classical_gaussian_multiplier(epsilon: float, delta: float) -> float:
    """Return sqrt(2 ln(1.25/delta))/epsilon (Dwork and Roth 2014, theorem A.1); epsilon <= 1."""
    if epsilon > 1.0:
        raise not_allowed(
            "epsilon",
            epsilon,
            "at most 1 with the classical Gaussian calibration of the paper, whose proof holds "
            "there only (--sensitivity proven uses the analytic Gaussian mechanism)",
        )
    return math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


def published_total(
    epsilon: float, delta: float, releases: int, target_delta: float | None = None
) -> float:
    """Return RK's theorem 4.6, sqrt(TE ln(1/target_delta)/ln(1.25/delta)) epsilon.

    It is derived as a lower bound of the total and certifies nothing; it is reported under
    sensitivity ``published`` only, labelled as the paper's.
    """
    target = delta if target_delta is None else target_delta
    return math.sqrt(releases * math.log(1 / target) / math.log(1.25 / delta)) * epsilon


def check_delta(field: str, delta: float) -> None:
    """Raise :class:`InputError` unless delta is in (0, 1)."""
    if not (finite(delta) and 0.0 < delta < 1.0):
        raise not_allowed(field, delta, "a number above 0 and below 1")
