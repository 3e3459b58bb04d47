"""Loss of a change of several statistics at once, compared with sums of densities over grids."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate

from gridpriv.core.errors import InputError
from gridpriv.privacy.accounting import parts, total_epsilon, total_pure
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.filters import check_charges, divergence
from gridpriv.privacy.linear import Disclosure, Prior, Statistics, bus, total, tree
from gridpriv.privacy.mechanism import Charge, Gaussian, KNorm
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity
from gridpriv.privacy.temporal import TemporalBasis, TemporalDisclosure

LEVELS = (np.zeros(5, dtype=int), np.arange(5))


def two_laplace(first, second, epsilon):
    """delta(epsilon) of two draws of scale 1 whose values change by two amounts, by quadrature."""

    def item(at):
        if at >= first:
            return 0.0
        return -math.expm1((at - first) / 2.0) if at > -first else -math.expm1(at)

    def density(x):
        return 0.5 * math.exp(-abs(x)) * item(epsilon - (abs(x - second) - abs(x)))

    ends = [0.0, second, *((second - epsilon + f) / 2.0 for f in (first, -first))]
    actual, _ = integrate.quad(density, -40.0, 40.0, points=ends, limit=400, epsabs=1e-12)
    return actual


@pytest.mark.parametrize("share", [0.5, 0.7])
def test_a_tree_is_charged_as_its_two_moves(share):
    """Epsilon 2 in total: delta 0.632 at epsilon 0 as one change, 0.448 as two halves."""
    adjacency = DemandAdjacency(0.1)
    strategy = tree(LEVELS, (share, 1.0 - share))
    rule = NoiseRule("knorm", "simulated", multiplier=0.5)
    charge = rule.release(strategy.sensitivity(adjacency, rule.norm)).certified
    assert total_pure({charge: 1}) == pytest.approx(2.0)
    for epsilon in (0.2, 0.9, 1.6):
        delta = two_laplace(2.0 * share, 2.0 * (1.0 - share), epsilon)
        assert delta < -math.expm1((epsilon - 2.0) / 2.0)
        stated = total_epsilon({charge: 1}, delta)
        assert epsilon - 1e-9 <= stated <= epsilon + 1e-8
    if share == 0.5:
        assert two_laplace(1.0, 1.0, 0.0) == pytest.approx(0.448, abs=1e-3)
        assert -math.expm1(-1.0) == pytest.approx(0.632, abs=1e-3)


@pytest.mark.parametrize("share", [0.5, 0.7, 1.0])
def test_moves_of_k_times_beta_are_charged_as_noise_at_a_kth_of_the_scale(share):
    """A grant at a larger beta than the run's: each of the two moves is k times as large."""
    adjacency, k = DemandAdjacency(0.1), 3.0
    strategy = bus(5) if share == 1.0 else tree(LEVELS, (share, 1.0 - share))
    rule = NoiseRule("knorm", "simulated", multiplier=0.5)
    wide = rule.release(strategy.sensitivity(adjacency, rule.norm)).certified_within(k)
    rule = NoiseRule("knorm", "simulated", multiplier=0.5 / k)
    narrow = rule.release(strategy.sensitivity(adjacency, rule.norm)).certified
    assert wide.kind == narrow.kind and wide.second == narrow.second
    assert wide.parameter == pytest.approx(narrow.parameter)
    assert total_pure({wide: 1}) == pytest.approx(6.0)


def hockey_stick(moves, epsilon, half=11.0, cells=55):
    """sup over events of two pairs' K-norm noise of scale 1, over a grid of four dimensions."""
    middle = np.linspace(-half, half, cells)

    def law(pair):
        x, y = np.meshgrid(abs(middle - pair[0]), abs(middle - pair[1]), indexing="ij")
        return np.exp(-np.maximum(x, y))

    (here, _), (first, second) = (law((0, 0)), None), (law(moves[0]), law(moves[1]))
    mass = here.sum() ** 2
    joint, changed = np.multiply.outer(here, here), np.multiply.outer(first, second)
    return float(np.maximum(joint - math.exp(epsilon) * changed, 0.0).sum() / mass)


def test_no_move_within_the_shares_costs_more_than_the_stated_corner():
    """Over a grid of 55^4 cells; changes are whole cells, at most 5 in total and 3 per pair."""
    step = 22.0 / 54.0
    distance, share = 5 * step, 3 / 5
    charge = Release(KNorm(1.0), Sensitivity(distance, "box", "test", share), distance).certified
    first, second = (1.0 / part.parameter for part in parts(charge))
    assert (first, second) == pytest.approx((3 * step, 2 * step))
    for epsilon in (0.3, 1.2):
        corner = hockey_stick([(3 * step, 3 * step), (2 * step, -2 * step)], epsilon)
        assert corner == pytest.approx(two_laplace(first, second, epsilon), rel=0.06)
        for moves in ([(3, 1), (2, 2)], [(2, 2), (2, 2)], [(3, 3), (0, 0)], [(1, 3), (1, 2)]):
            scaled = [(step * a, step * b) for a, b in moves]
            assert hockey_stick(scaled, epsilon) <= corner * (1 + 1e-9)
        whole = hockey_stick([(5 * step, 5 * step), (0.0, 0.0)], epsilon)
        assert whole > corner * 1.02  # so that a share that is stated too small would be false


@pytest.mark.parametrize("protects", ["p+q", "p"])
@pytest.mark.parametrize("norm", [1, "box"])
@pytest.mark.parametrize(
    "strategy",
    [
        bus(5),
        total(5),
        tree(LEVELS, (0.5, 0.5)),
        tree(LEVELS, (0.7, 0.3)),
        tree((*LEVELS, np.array([0, 0, 1, 1, 1])), (0.2, 0.5, 0.3)),
        Statistics("random", np.random.default_rng(3).normal(size=(4, 5))),
        replace(total(5), reactive=0.05),
        replace(tree(LEVELS, (0.7, 0.3)), reactive=3.0),
    ],
    ids=["bus", "total", "halves", "tree", "three levels", "random", "light q", "heavy q"],
)
def test_no_number_or_pair_moves_by_more_than_its_share(strategy, norm, protects):
    adjacency, generator = DemandAdjacency(0.1, protects), np.random.default_rng(1)
    stated, largest = strategy.sensitivity(adjacency, norm), 0.0
    for unit in range(5):
        for dp, dq in [(1, 1), (1, -1), (1, 0), *generator.uniform(-1, 1, (20, 2))]:
            change = np.zeros(10)
            change[unit], change[5 + unit] = 0.1 * dp, 0.1 * dq * (protects == "p+q")
            distance = np.abs(strategy.measure(change))
            sizes = distance.reshape(2, -1).max(axis=0) if norm == "box" else distance
            assert sizes.sum() <= stated.value * (1 + 1e-12)
            largest = max(largest, float(sizes.max()))
    assert largest <= stated.share * stated.value * (1 + 1e-12)
    assert stated.share == pytest.approx(max(0.5, largest / stated.value))


def test_laplace_noise_on_p_and_q_is_charged_as_two_halves():
    rule = NoiseRule("laplace", "simulated", multiplier=0.5)
    charge = rule.release(bus(5).sensitivity(DemandAdjacency(0.1), 1)).certified
    assert parts(charge) == (Charge("laplace", 1.0), Charge("laplace", 1.0))
    alone = rule.release(bus(5).sensitivity(DemandAdjacency(0.1, "p"), 1)).certified
    assert parts(alone) == (Charge("laplace", 0.5),)


def test_only_independent_noise_is_split_and_coefficients_are_not():
    gaussian = Release(Gaussian(1.0), Sensitivity(1.0, 2, "test"), 1.0)
    assert gaussian.certified.kind == "gaussian"
    widened = Sensitivity(1.0, "box", "test", 0.5).widened(0.1)
    assert widened.share == 1.0
    prior = Prior(np.full(10, 0.5), np.ones(2), np.full(2, -np.inf), np.full(2, np.inf))
    level = Disclosure(tree(LEVELS, (0.5, 0.5)), prior, 0.0)
    basis = TemporalDisclosure(level, TemporalBasis(4, (0.7,)))
    assert basis.sensitivity(DemandAdjacency(0.1), "box").share == 1.0


def test_filters_take_both_moves():
    charge = Charge("split-laplace", 0.5, 0.7)
    for order in (1.5, 8.0):
        both = sum(divergence(part, order) for part in parts(charge))
        assert divergence(charge, order) == pytest.approx(both)
        assert divergence(charge, order) < divergence(Charge("laplace", 0.5), order)
    check_charges({charge: 1})
    with pytest.raises(InputError, match="split-laplace share"):
        check_charges({Charge("split-laplace", 0.5, 0.2): 1})
