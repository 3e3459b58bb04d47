"""Totals compared with published values and closed forms."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import laplace, norm

from gridpriv import InputError
from gridpriv.privacy import accounting
from gridpriv.privacy.accounting import (
    classical_gaussian_multiplier,
    epsilon_of,
    gaussian_multiplier,
    published_total,
    pure_multiplier,
    total_epsilon,
    total_of,
    total_pure,
)
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.settings import Budget, noise_multiplier


@pytest.mark.parametrize(
    ("charge", "releases", "delta", "epsilon"),
    [
        (Charge("laplace", 10.0), 100, 1e-5, "4.220"),
        (Charge("laplace", 10.0), 500, 1e-5, "11.191"),
        (Charge("gaussian", classical_gaussian_multiplier(0.1, 1e-2)), 100, 1e-5, "1.2227"),
        (Charge("gaussian", classical_gaussian_multiplier(0.1, 1e-2)), 500, 1e-2, "1.4929"),
        (Charge("gaussian", classical_gaussian_multiplier(1.0, 1e-5)), 100, 1e-5, "10.394"),
        (Charge("gaussian", classical_gaussian_multiplier(1.0, 1e-5)), 500, 1e-5, "29.629"),
    ],
)
def test_totals_are_the_reference_values(charge, releases, delta, epsilon):
    digits = len(epsilon.split(".")[1])
    assert f"{total_epsilon({charge: releases}, delta):.{digits}f}" == epsilon


def test_the_papers_theorem_is_below_the_truth_where_the_table_says_so():
    assert published_total(0.1, 1e-2, 100, 1e-5) == pytest.approx(1.544, abs=1e-3)
    assert published_total(0.1, 1e-2, 500) == pytest.approx(2.184, abs=1e-3)
    assert published_total(1.0, 1e-5, 100) == pytest.approx(9.904, abs=5e-3)
    assert published_total(1.0, 1e-5, 500) == pytest.approx(22.147, abs=5e-3)
    truth = total_epsilon({Charge("gaussian", classical_gaussian_multiplier(1.0, 1e-5)): 500}, 1e-5)
    assert published_total(1.0, 1e-5, 500) < truth


def test_gaussians_compose_as_the_privacy_loss_distribution_says():
    """The closed form of one Gaussian and dp_accounting's PLD of many are the same number."""
    import dp_accounting
    from dp_accounting import pld

    accountant = pld.PLDAccountant()
    for multiplier, count in ((20.0, 30), (35.0, 70)):
        event = dp_accounting.GaussianDpEvent(multiplier)
        accountant.compose(dp_accounting.SelfComposedDpEvent(event, count))
    ours = total_epsilon({Charge("gaussian", 20.0): 30, Charge("gaussian", 35.0): 70}, 1e-5)
    assert ours == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_the_noise_for_a_total_is_the_published_multiplier():
    assert gaussian_multiplier(1.0, 1e-5, 100) == pytest.approx(37.3, abs=0.05)
    assert gaussian_multiplier(1.0, 1e-5, 1) == pytest.approx(3.73, abs=0.005)


@given(epsilon=st.floats(0.1, 5.0), releases=st.integers(1, 60))
@settings(max_examples=4, deadline=None)
def test_calibrated_laplace_noise_costs_the_total(epsilon, releases):
    pure = pure_multiplier("laplace", epsilon, 0.0, releases)
    assert total_pure({Charge("laplace", pure): releases}) == pytest.approx(epsilon)
    approximate = pure_multiplier("laplace", epsilon, 1e-5, releases)
    assert approximate <= pure * (1 + 1e-9)
    spent = total_epsilon({Charge("laplace", approximate): releases}, 1e-5)
    assert spent <= epsilon * (1 + 1e-3)
    assert spent >= 0.97 * epsilon


@pytest.mark.parametrize("epsilon", [0.5, 10.0])
@pytest.mark.parametrize("releases", [2, 200])
def test_calibrated_laplace_noise_spends_all_of_a_total_but_a_millionth(epsilon, releases):
    multiplier = pure_multiplier("laplace", epsilon, 1e-5, releases)
    spent = total_epsilon({Charge("laplace", multiplier): releases}, 1e-5)
    assert (1.0 - 4e-6) * epsilon <= spent <= epsilon


def test_a_total_wider_than_any_loss_distribution_is_calibrated_to_a_pure_one():
    """Where one release hides nothing its certificate is the pure one, so the noise is too."""
    multiplier = pure_multiplier("laplace", 600.0, 1e-5, 10)
    assert total_epsilon({Charge("laplace", multiplier): 10}, 1e-5) <= 600.0


def test_pure_charges_are_dominated_by_randomised_response():
    """A Laplace release costs no more as itself than as any purely private mechanism."""
    laplace = total_epsilon({Charge("laplace", 2.0): 40}, 1e-5)
    pure = total_epsilon({Charge("pure", 0.5): 40}, 1e-5)
    assert laplace <= pure <= 20.0
    assert pure == pytest.approx(15.9958722, abs=1e-7)  # each release composed on its own
    assert epsilon_of(Charge("pure", 0.5), 1e-5) == 0.5


@pytest.mark.parametrize(
    ("each", "count", "delta"),
    [(0.25, 20, 1e-5), (0.05, 100, 1e-5), (0.01, 300, 1e-6), (3.0, 7, 1e-9), (10.0, 4, 1e-5)],
)
def test_equal_pure_charges_have_the_total_of_the_definition(each, count, delta):
    """The hockey-stick divergence of randomised responses in exact sums equals delta there."""
    epsilon = total_epsilon({Charge("pure", each): count}, delta)

    def divergence(e):
        truth = Fraction(math.exp(each)) / (1 + Fraction(math.exp(each)))
        gap = Fraction(math.exp(e))
        return sum(
            math.comb(count, k)
            * max(
                Fraction(0),
                truth ** (count - k) * (1 - truth) ** k
                - gap * truth**k * (1 - truth) ** (count - k),
            )
            for k in range(count + 1)
        )

    assert divergence(epsilon) <= delta < divergence(epsilon * (1 - 1e-9))


@pytest.mark.parametrize("each", [0.01, 0.7, 5.0])
@pytest.mark.parametrize("count", [1, 2, 3, 40, 150])
def test_equal_laplace_charges_are_between_the_bounds_of_dp_accounting(each, count):
    """Its optimistic estimate is never above the true total, its pessimistic one never below."""
    losses = [
        pld.privacy_loss_distribution.from_laplace_mechanism(
            1.0 / each,
            pessimistic_estimate=above,
            value_discretization_interval=1e-3 * min(each, 1.0),
            use_connect_dots=above,
        ).self_compose(count)
        for above in (False, True)
    ]
    for delta in (1e-9, 1e-5, 0.05):
        low, high = (loss.get_epsilon_for_delta(delta) for loss in losses)
        total = total_epsilon({Charge("laplace", 1.0 / each): count}, delta)
        assert low * (1 - 1e-12) <= total <= high * (1 + 1e-5) + 1e-15
        assert high - low <= 0.004 * high  # else the bounds say nothing


@pytest.mark.parametrize(
    ("each", "count"),
    [(0.05, 100), (0.01, 1000), pytest.param(0.005, 3000, marks=pytest.mark.slow)],
)
def test_chances_added_by_fourier_transform_err_by_less_than_is_allowed_for(each, count):
    """Compared with repeated convolution, whose terms are all positive."""
    chance = accounting.laplace_chances(each, count)
    by_transform = accounting.self_convolved(chance, count)
    by_sums, power, left = np.ones(1), chance, count
    while left:
        by_sums = np.convolve(by_sums, power) if left % 2 else by_sums
        power, left = np.convolve(power, power), left // 2
    assert np.abs(by_transform - by_sums[: len(by_transform)]).sum() < count * accounting.FOURIER


def test_releases_that_together_hide_all_but_delta_cost_nothing():
    assert total_epsilon({Charge("pure", 1e-3): 3}, 0.01) == 0.0
    assert total_epsilon({Charge("pure", 0.2): 2}, 0.5) == 0.0


def test_mixed_charges_are_never_cheaper_than_their_parts():
    parts = [{Charge("zcdp", 0.01): 5}, {Charge("pure", 0.1): 5}, {Charge("gaussian", 9.0): 5}]
    mixed = {key: n for part in parts for key, n in part.items()}
    assert total_epsilon(mixed, 1e-5) >= max(total_epsilon(part, 1e-5) for part in parts[:1])
    assert math.isinf(total_pure(mixed))


def test_the_classical_gaussian_holds_up_to_one_only():
    with pytest.raises(InputError, match="at most 1"):
        noise_multiplier(Budget("per-release", 1.5), "gaussian", "published", 10, 1e-2)
    assert noise_multiplier(Budget("per-release", 1.5), "gaussian", "proven", 10, 1e-2) > 0


def test_delta_outside_its_range_is_refused():
    for delta in (0.0, 1.0, -1.0, 2.0):
        with pytest.raises(InputError, match="delta"):
            total_epsilon({Charge("laplace", 1.0): 1}, delta)


@pytest.mark.parametrize(("multiplier", "releases"), [(1.0, 101), (0.5, 200)])
def test_wide_compositions_on_a_coarser_grid_state_the_same_total(multiplier, releases):
    """dp_accounting's own grid (1e-4) and the coarser one agree to a millionth."""
    import dp_accounting
    from dp_accounting import pld

    fine = pld.PLDAccountant(value_discretization_interval=1e-4)
    event = dp_accounting.LaplaceDpEvent(multiplier)
    fine.compose(dp_accounting.SelfComposedDpEvent(event, releases))
    stated = total_epsilon({Charge("laplace", multiplier): releases}, 1e-5)
    assert stated == pytest.approx(fine.get_epsilon(1e-5), rel=1e-6)


@pytest.mark.parametrize("count", [3, 120])
def test_gaussian_charges_among_others_are_one_gaussian(count):
    """Composed one by one on dp_accounting's own grid they cost the same; below and above WIDE."""
    import dp_accounting
    from dp_accounting import pld

    fine = pld.PLDAccountant(value_discretization_interval=1e-4)
    charges = {Charge("laplace", 1.0): count}
    charges |= {Charge("gaussian", 2.0): 3, Charge("gaussian", 5.0): 9}
    events = {"laplace": dp_accounting.LaplaceDpEvent, "gaussian": dp_accounting.GaussianDpEvent}
    for charge, times in charges.items():
        event = events[charge.kind](charge.parameter)
        fine.compose(dp_accounting.SelfComposedDpEvent(event, times))
    assert total_epsilon(charges, 1e-5) == pytest.approx(fine.get_epsilon(1e-5), rel=1e-4)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (0.1, 1e-9),
        (0.1, 0.2),
        (1.0, 1e-5),
        (1.0, 0.01),
        (5.0, 1e-9),
        (5.0, 0.2),
        (20.0, 1e-5),
        (20.0, 0.01),
    ],
)
def test_one_laplace_release_costs_what_its_two_densities_say(epsilon, delta):
    """The curve in closed form, against the best test of one bit and dp_accounting's grid.

    The best test of two Laplace distributions accepts below a threshold.
    """
    bound, scale = (
        total_epsilon({Charge("laplace", 1.0 / epsilon): 1}, delta),
        1.0 / epsilon,
    )
    t = np.concatenate([np.linspace(-1.0, 0.0, 1001), np.geomspace(1e-12, 1.0, 200_001)])
    reported = laplace.cdf(t, 0.0, scale) - np.exp(bound) * laplace.cdf(t, 1.0, scale)
    assert reported.max() <= delta * (1.0 + 1e-9) + 1e-14
    if bound > 0.0:
        assert reported.max() == pytest.approx(delta, rel=1e-6, abs=1e-12)
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp_accounting.LaplaceDpEvent(1.0 / epsilon))
    assert bound <= accountant.get_epsilon(delta) <= bound + 1e-7


def test_a_pure_and_a_gaussian_release_cost_at_most_their_sum_at_one_delta() -> None:
    pure, gaussian = Charge("pure", 1.0), Charge("gaussian", 2.23048)
    alone = total_epsilon({gaussian: 1}, 1e-5)
    together = total_epsilon({pure: 1, gaussian: 1}, 1e-5)
    # a Laplace release of epsilon 1 is a pure one: its exact total is a lower bound
    assert total_epsilon({Charge("laplace", 1.0): 1, gaussian: 1}, 1e-5) <= together
    assert together <= 1.0 + alone + 1e-12


@pytest.mark.parametrize(("pure", "multiplier"), [(0.5, 4.0), (1.0, 2.0), (3.0, 1.0)])
def test_a_pure_beside_a_gaussian_release_costs_what_randomised_response_does(pure, multiplier):
    """The curve in closed form: the mean of the Gaussian one over the response's two losses."""

    def gaussian(e: float) -> float:
        half = 0.5 / multiplier
        return norm.cdf(half - e * multiplier) - math.exp(e) * norm.cdf(-half - e * multiplier)

    def curve(e: float) -> float:
        truth = 1.0 / (1.0 + math.exp(-pure))
        return truth * gaussian(e - pure) + (1.0 - truth) * gaussian(e + pure)

    exact = brentq(lambda e: curve(e) - 1e-5, 0.0, 30.0, xtol=1e-12)
    charges = {Charge("pure", pure): 1, Charge("gaussian", multiplier): 1}
    assert exact - 1e-9 <= total_epsilon(charges, 1e-5) <= exact + 2e-4


def gaussian_delta(epsilon, multiplier):
    """Return the curve of one Gaussian release (Balle and Wang 2018, theorem 8)."""
    half, distant = 0.5 / multiplier, epsilon * multiplier
    below = norm.logcdf(-half - distant)
    return norm.cdf(half - distant) - math.exp(min(epsilon + below, 0.0))


def two_valued(epsilon, delta):
    """Return (loss, chance) of the pair that dominates an (epsilon, delta) private mechanism."""
    true = (1.0 - delta) / (1.0 + math.exp(-epsilon))
    return [(epsilon, true), (-epsilon, 1.0 - delta - true), (math.inf, delta)]


def composed(pairs, multiplier, epsilon):
    """Return delta of a composition: every combination of losses, and one Gaussian release."""
    total = 0.0
    for outcome in itertools.product(*pairs):
        loss, chance = sum(x for x, _ in outcome), math.prod(p for _, p in outcome)
        if math.isinf(loss):
            total += chance
        elif multiplier is not None:
            total += chance * gaussian_delta(epsilon - loss, multiplier)
        else:
            total += chance * max(0.0, -math.expm1(epsilon - loss))
    return total


@pytest.mark.parametrize(
    ("stated", "multiplier", "delta", "added"),
    [
        ([(40.0, 0.0), (41.0, 1e-6)], None, 1e-5, 81.0),
        ([(40.0, 0.0), (41.0, 1e-5)], None, 1e-5, 81.0),
        ([(40.0, 0.0), (41.0, 2e-5)], None, 1e-5, math.inf),
        ([(60.0, 0.0)], 3.730631, 1e-5, 61.0),
        ([(60.0, 0.0)], 3.730631, 1e-9, 61.7),
        ([(60.0, 0.0), (41.0, 5e-6), (2.0, 2e-6)], 3.730631, 1e-5, 104.1),
        ([(55.0, 1e-6), (55.0, 1e-6)], None, 1e-5, 110.0),
        ([(0.5, 0.0), (2.0, 1e-6)], 1.0, 1e-5, math.inf),
    ],
)
def test_a_total_is_between_the_exact_one_and_basic_composition(stated, multiplier, delta, added):
    """The exact curve is a sum over all losses; basic composition adds epsilons and deltas."""
    charges = Counter(Charge("approximate", e, d) if d else Charge("pure", e) for e, d in stated)
    if multiplier is not None:
        charges[Charge("gaussian", multiplier)] += 1
    pairs = [two_valued(e, d) for e, d in stated]
    for total in (total_of(charges, delta), total_epsilon(charges, delta)):
        assert total <= added * (1 + 1e-7)
        if math.isinf(total):
            assert sum(d for _, d in stated) > delta
        else:
            assert composed(pairs, multiplier, total * (1 + 1e-9)) <= delta * (1 + 1e-6)


def test_a_split_release_beside_a_wide_one_keeps_its_loss():
    """Both parts of a split Laplace release count in the total of the others."""
    split, wide = Charge("split-laplace", 1.0, 0.7), Charge("pure", 60.0)
    alone = total_epsilon({split: 1}, 1e-5)
    for total in (total_of, total_epsilon):
        assert total({split: 1, wide: 1}, 1e-5) == pytest.approx(60.0 + alone, rel=1e-9)
