"""Filters against dp_accounting, against the exact worst adversary, and at their limits."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

from gridpriv.core.errors import InputError
from gridpriv.privacy.accounting import gaussian_multiplier, pure_multiplier, total_epsilon
from gridpriv.privacy.filters import (
    GrantFilter,
    PlannedFilter,
    PureFilter,
    RenyiFilter,
    check_charges,
    choose_rule,
    divergence,
)
from gridpriv.privacy.mechanism import Charge

GAUSSIAN, LAPLACE = Charge("gaussian", 10.0), Charge("laplace", 10.0)


def filter_for(epsilon: float, delta: float, first: dict[Charge, int]) -> GrantFilter:
    return GrantFilter(epsilon, choose_rule(epsilon, delta, first))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("charge", [GAUSSIAN, LAPLACE, Charge("pure", 0.5), Charge("zcdp", 1e-3)])
def test_the_capacity_converts_to_the_grant(epsilon: float, delta: float, charge: Charge) -> None:
    rule = choose_rule(epsilon, delta, {charge: 1})
    assert isinstance(rule, RenyiFilter)
    converted, _ = compute_epsilon([rule.order], [rule.capacity], delta)
    assert converted <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    ("charge", "order", "expected"),
    [
        (GAUSSIAN, 7.0, 7.0 / 200.0),  # Mironov 2017, proposition 7
        (Charge("zcdp", 0.02), 3.0, 0.06),  # Bun and Steinke 2016, definition 1.1
        # Mironov 2017, proposition 6, at order 2 and epsilon 0.1
        (LAPLACE, 2.0, math.log(2 / 3 * math.exp(0.1) + 1 / 3 * math.exp(-0.2))),
        # randomised response, from the definition of the divergence
        (
            Charge("pure", 1.0),
            2.0,
            math.log((math.exp(2.0) + math.exp(-1.0)) / (1.0 + math.exp(1.0))),
        ),
        (Charge("pure", 900.0), 2.0, 900.0),
        # order times epsilon^2/2, where floats of the definition cancel to below 0
        (Charge("pure", 1e-9), 1.27, 0.635e-18),
        (Charge("pure", 1e-7), 4.37, 2.185e-14),
    ],
)
def test_divergences_are_the_published_ones(charge: Charge, order: float, expected: float) -> None:
    assert divergence(charge, order) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "charge", "count"), [(1.0, GAUSSIAN, 6), (5.0, GAUSSIAN, 110), (5.0, LAPLACE, 117)]
)
def test_what_fits_is_certified_by_pld_and_costs_some_seven_percent(
    epsilon: float, charge: Charge, count: int
) -> None:
    grant_filter = filter_for(epsilon, 1e-5, {charge: 1})
    assert grant_filter.room({}, {charge: 1}) == count
    certified = total_epsilon({charge: count}, 1e-5)
    assert 0.89 * epsilon < certified <= epsilon


@pytest.mark.parametrize(
    "mix",
    [
        {GAUSSIAN: 3, LAPLACE: 2},
        {GAUSSIAN: 1, Charge("zcdp", 0.002): 4},
        {LAPLACE: 1, Charge("laplace", 3.0): 1, Charge("gaussian", 4.0): 1},
    ],
)
def test_mixed_charges_that_fit_are_certified_within_the_grant(mix: dict[Charge, int]) -> None:
    grant_filter = filter_for(3.0, 1e-5, {LAPLACE: 1})
    times = grant_filter.room({}, mix)
    assert times >= 1
    most = {charge: times * count for charge, count in mix.items()}
    assert total_epsilon(most, 1e-5) <= 3.0
    assert not grant_filter.fits({charge: 2 * count for charge, count in most.items()})


def test_basic_composition_is_enough_where_it_is_better() -> None:
    """Two Laplace releases of epsilon 2.5 pass the Renyi filter of (5, 1e-5), not epsilon 5."""
    charge = Charge("laplace", 0.4)
    rule = choose_rule(5.0, 1e-5, {LAPLACE: 1})
    assert rule is not None and rule.used({charge: 2}) > 1.0
    assert GrantFilter(5.0, rule).fits({charge: 2})
    assert not GrantFilter(5.0, rule).fits({charge: 3})


def test_delta_zero_counts_pure_epsilon_only() -> None:
    grant_filter = filter_for(1.0, 0.0, {LAPLACE: 1})
    assert grant_filter.rule is None
    assert grant_filter.room({}, {LAPLACE: 1}) == 10  # although ten times 0.1 is not 1 in floats
    assert math.isinf(grant_filter.used({GAUSSIAN: 1}))
    assert PureFilter(2.0).used({LAPLACE: 10}) == pytest.approx(0.5)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_plan_calibrated_to_the_grant_fits_it_exactly(mechanism: str) -> None:
    find = gaussian_multiplier if mechanism == "gaussian" else partial(pure_multiplier, "laplace")
    charge = Charge(mechanism, find(1.0, 1e-5, 100))
    assert filter_for(1.0, 1e-5, {charge: 1}).room({}, {charge: 1}) < 100
    rule = choose_rule(1.0, 1e-5, {charge: 100}, planned=True)
    assert isinstance(rule, PlannedFilter)
    grant_filter = GrantFilter(1.0, rule)
    assert grant_filter.room({}, {charge: 1}) == 100
    jitter = Charge(mechanism, charge.parameter * (1 - 1e-13))
    assert grant_filter.fits({charge: 50, jitter: 50})
    assert not grant_filter.fits({charge: 50, jitter: 51})
    weaker = Charge(mechanism, charge.parameter * 1.5)
    assert rule.used({weaker: 1}) == math.inf


def test_no_release_of_a_plan_takes_the_place_of_another() -> None:
    """A plan is 1 of the one and 100 of the other: 2 of the first exceed it, with any of both."""
    rule = PlannedFilter(((Charge("gaussian", 1.0), 1), (GAUSSIAN, 100)))
    assert rule.used({Charge("gaussian", 1.0): 2}) == 2.0
    assert rule.used({Charge("gaussian", 1.0): 2, GAUSSIAN: 50}) == 2.0
    assert rule.used({Charge("gaussian", 1.0): 1, GAUSSIAN: 100}) == 1.0


def test_a_plan_with_room_under_the_renyi_filter_leaves_the_grant_open() -> None:
    charge = Charge("gaussian", gaussian_multiplier(1.0, 1e-5, 100))
    assert isinstance(choose_rule(3.0, 1e-5, {charge: 100}, planned=True), RenyiFilter)


def test_a_plan_that_no_accountant_allows_gets_no_rule_of_its_own() -> None:
    charge = Charge("gaussian", gaussian_multiplier(1.0, 1e-5, 100))
    rule = choose_rule(1.0, 1e-5, {charge: 101}, planned=True)
    assert isinstance(rule, RenyiFilter)
    assert not GrantFilter(1.0, rule).fits({charge: 101})


def worst_delta(
    grant_filter: GrantFilter,
    unit: float,
    epsilon: float,
    first: tuple[int, int],
    most: tuple[int, int],
) -> float:
    """Return the exact delta at ``epsilon`` of the best adversary the filter allows.

    Charges are randomized responses of epsilon ``unit`` and twice that, so the privacy loss is a
    walk on multiples of ``unit``. Dynamic programming over (counts, loss) gives the largest loss of
    an adversary who chooses every release by the loss so far.
    """
    small, large = Charge("pure", unit), Charge("pure", 2 * unit)
    reach = most[0] + 2 * most[1] + 2
    loss = unit * np.arange(-reach, reach + 1)
    stop = np.maximum(0.0, -np.expm1(epsilon - loss))

    def fits(a: int, b: int) -> bool:
        if a > most[0] or b > most[1]:
            return False
        return grant_filter.fits({c: n for c, n in ((small, a), (large, b)) if n})

    def mixed(value: np.ndarray, steps: int) -> np.ndarray:
        truth = 1.0 / (1.0 + math.exp(-steps * unit))
        up, down = np.roll(value, -steps), np.roll(value, steps)
        up[-steps:], down[:steps] = value[-steps:], value[:steps]
        return truth * up + (1.0 - truth) * down

    values: dict[tuple[int, int], np.ndarray] = {}
    for a in range(most[0], -1, -1):
        for b in range(most[1], -1, -1):
            if (a or b) and not fits(a, b):
                continue
            best = stop
            if (a + 1, b) in values:
                best = np.maximum(best, mixed(values[a + 1, b], 1))
            if (a, b + 1) in values:
                best = np.maximum(best, mixed(values[a, b + 1], 2))
            values[a, b] = best
    return float(mixed(values[first], 1 if first[0] else 2)[reach])


@pytest.mark.parametrize(("first", "unit"), [((1, 0), 0.2), ((0, 1), 0.2), ((1, 0), 0.1)])
def test_no_adaptive_adversary_passes_the_grant(first: tuple[int, int], unit: float) -> None:
    """The exact optimum over all strategies stays within delta, and is not far below it."""
    epsilon, delta = 3.0, 1e-3
    opening = Charge("pure", unit * (2 if first[1] else 1))
    grant_filter = filter_for(epsilon, delta, {opening: 1})
    most = (
        grant_filter.room({}, {Charge("pure", unit): 1}),
        grant_filter.room({}, {Charge("pure", 2 * unit): 1}),
    )
    assert most[0] * unit > epsilon  # the Renyi filter gives more than basic composition
    reached = worst_delta(grant_filter, unit, epsilon, first, most)
    assert 0.1 * delta < reached <= delta
    loose = GrantFilter(1.3 * epsilon, choose_rule(1.3 * epsilon, delta, {opening: 1}))
    more = (
        loose.room({}, {Charge("pure", unit): 1}),
        loose.room({}, {Charge("pure", 2 * unit): 1}),
    )
    assert worst_delta(loose, unit, epsilon, first, more) > delta


def test_room_is_the_largest_count_that_fits() -> None:
    grant_filter = filter_for(2.0, 1e-6, {GAUSSIAN: 1})
    room = grant_filter.room({LAPLACE: 2}, {GAUSSIAN: 1})
    assert grant_filter.fits({LAPLACE: 2, GAUSSIAN: room})
    assert not grant_filter.fits({LAPLACE: 2, GAUSSIAN: room + 1})


@pytest.mark.parametrize(
    ("charges", "named"),
    [
        ({Charge("uniform", 1.0): 1}, "uniform"),
        ({Charge("laplace", 0.0): 1}, "0.0"),
        ({Charge("laplace", math.nan): 1}, "nan"),
        ({Charge("pure", math.inf): 1}, "inf"),
        ({Charge("laplace", 1.0): 0}, "count"),
        ({Charge("laplace", 1.0): 1.5}, "1.5"),
        ({Charge("laplace", 1.0): True}, "True"),
    ],
)
def test_charges_that_mean_nothing_are_refused(charges: dict[Charge, int], named: str) -> None:
    with pytest.raises(InputError, match=named):
        check_charges(charges)
