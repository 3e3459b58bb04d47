"""Staircase noise against exact sums over cells of constant density, sampling and enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from gridpriv import make_settings, run
from gridpriv.core.errors import InputError
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.privacy import staircase
from gridpriv.privacy.accounting import pure_multiplier, total_epsilon, total_pure
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.filters import check_charges, divergence
from gridpriv.privacy.linear import bus, total, tree
from gridpriv.privacy.mechanism import Charge, NumberStaircase, Staircase
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.sensitivity import length

KINDS = {2: Staircase, 1: NumberStaircase}


def cells(shift, epsilon, dimension, reach=60):
    """Masses of all cells on which the density and the shifted density are constant (step 1).

    Both are constant between the edges of their cubes, so the sums are exact up to the mass beyond
    ``reach`` steps.
    """
    share = staircase.best_share(epsilon, dimension)
    radii = share + np.arange(reach)
    sides, middles = [], []
    for changed in shift:
        edges = np.concatenate([-radii, radii, changed - radii, changed + radii])
        edges = np.unique(np.round(edges, 12))
        sides.append(np.diff(edges))
        middles.append((edges[1:] + edges[:-1]) / 2.0)
    here = np.max(np.meshgrid(*map(abs, middles), indexing="ij"), axis=0)
    difference = [abs(middle - changed) for middle, changed in zip(middles, shift, strict=True)]
    there = np.max(np.meshgrid(*difference, indexing="ij"), axis=0)
    volume = np.prod(np.meshgrid(*sides, indexing="ij"), axis=0)
    p, q = (np.exp(-epsilon * np.floor(n + 1.0 - share)) * volume for n in (here, there))
    return p / p.sum(), q / p.sum()


def stated(epsilon, dimension, at):
    return staircase.chance_of_loss(epsilon, dimension) * -math.expm1(at - epsilon)


@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize("epsilon", [0.7, 2.0, 5.0, 10.0])
def test_the_loss_at_a_corner_is_stated_exactly_and_no_move_loses_more(dimension, epsilon):
    shares = (0.0, 0.3, 0.8, 0.99)
    here, there = cells((1.0,) * dimension, epsilon, dimension)
    corner = [np.maximum(here - math.exp(s * epsilon) * there, 0.0).sum() for s in shares]
    assert corner == pytest.approx(
        [stated(epsilon, dimension, s * epsilon) for s in shares], rel=1e-9
    )
    ratio = np.log(here / there)
    assert np.unique(np.round(ratio / epsilon, 9)).tolist() == [-1.0, 0.0, 1.0]
    generator = np.random.default_rng(2)
    for _ in range(12):
        move = generator.uniform(-1.0, 1.0, dimension)
        here, there = cells(move, epsilon, dimension)
        assert abs(np.log(here / there)).max() <= epsilon * (1 + 1e-9)
        for s, most in zip(shares, corner, strict=True):
            assert np.maximum(here - math.exp(s * epsilon) * there, 0.0).sum() <= most + 1e-12


@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize("epsilon", [1.0, 5.0, 10.0])
def test_a_million_draws_have_the_density(dimension, epsilon):
    mechanism, count = KINDS[dimension](0.3 / epsilon, 0.3), 1_000_000
    noise = mechanism.perturb(np.zeros(dimension * count), lambda: np.random.default_rng(4))
    noise = noise.reshape(dimension, count) / 0.3
    share = staircase.best_share(epsilon, dimension)
    norms = abs(noise).max(axis=0)
    # rings between radii at which the density steps, and halves of them
    radii = np.concatenate([[0.0], share + np.arange(80)])
    edges = np.sort(np.concatenate([radii, (radii[1:] + radii[:-1]) / 2.0]))
    volume = np.diff((2.0 * edges) ** dimension)
    mass = volume * np.exp(-epsilon * np.floor((edges[1:] + edges[:-1]) / 2.0 + 1.0 - share))
    expected = count * mass / mass.sum()
    expected_counts = np.histogram(norms, edges)[0]
    keep = expected >= 10
    counts = [*expected_counts[keep], count - expected_counts[keep].sum()]
    means = [*expected[keep], max(count - expected[keep].sum(), 1e-9)]
    if means[-1] < 5:
        counts, means = ([*stored[:-2], sum(stored[-2:])] for stored in (counts, means))
    assert stats.chisquare(counts, np.array(means) * count / sum(means)).pvalue > 1e-3
    # the point on its square is uniform: every side is as likely, and along it
    if dimension == 2:
        largest = abs(noise).argmax(axis=0)
        along = np.take_along_axis(noise, (1 - largest)[None], axis=0)[0] / norms
        assert stats.kstest(along[:50_000], stats.uniform(-1, 2).cdf).pvalue > 1e-3
        assert largest.mean() == pytest.approx(0.5, abs=0.003)
    assert (noise > 0).mean() == pytest.approx(0.5, abs=0.003)
    assert (0.3 * noise).var() == pytest.approx(mechanism.variance, rel=0.03)


@pytest.mark.parametrize(("epsilon", "deviation"), [(1.0, 1.99), (5.0, 0.306), (10.0, 0.073)])
def test_the_noise_on_a_pair_is_the_best_of_its_kind(epsilon, deviation):
    """Standard deviation of a number in units of beta; K-norm noise has 2.00, 0.400 and 0.200."""
    assert math.sqrt(staircase.variance(epsilon, 2)) == pytest.approx(deviation, rel=0.006)
    for dimension in (1, 2):
        j, q = np.arange(400), np.exp(-epsilon * np.arange(400))
        values = []
        for share in np.linspace(0.001, 1.0, 4000):
            weight = (share + j) ** dimension * q
            values.append((weight * (share + j) ** 2).sum() / (3.0 * weight.sum()))
        best = staircase.variance(epsilon, dimension)
        assert best == pytest.approx(min(values), rel=1e-4)
        assert best <= min(values) * (1 + 1e-9)


@pytest.mark.parametrize("dimension", [1, 2])
def test_composition_is_that_of_all_outcomes_enumerated(dimension):
    epsilon, releases, delta = 0.6, 4, 1e-3
    p, q = staircase.chance_of_loss(epsilon, dimension), math.exp(-epsilon)
    item = {epsilon: p, -epsilon: q * p, 0.0: 1.0 - (1.0 + q) * p}
    outcomes = [
        (sum(losses), math.prod(item[loss] for loss in losses))
        for losses in itertools.product(item, repeat=releases)
    ]

    def curve(e):
        return sum(mass * max(0.0, -math.expm1(e - loss)) for loss, mass in outcomes)

    charge = Charge("staircase", epsilon, p)
    bound = total_epsilon({charge: releases}, delta)
    assert bound < releases * epsilon
    assert curve(bound) <= delta * (1 + 1e-9)
    assert curve(bound - 1e-3) > delta
    assert total_pure({charge: releases}) == pytest.approx(releases * epsilon)
    single = total_epsilon({charge: 1}, delta)
    assert stated(epsilon, dimension, single) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("dimension", [1, 2])
def test_renyi_divergences_are_those_of_the_densities(dimension):
    epsilon = 1.3
    charge = Charge("staircase", epsilon, staircase.chance_of_loss(epsilon, dimension))
    here, there = cells((1.0,) * dimension, epsilon, dimension)
    for order in (1.5, 4.0, 30.0):
        exact = math.log((here * (here / there) ** (order - 1.0)).sum()) / (order - 1.0)
        assert divergence(charge, order) == pytest.approx(exact, rel=1e-8)
    assert divergence(charge, 1e6) <= epsilon
    with pytest.raises(InputError, match="staircase chance"):
        check_charges({Charge("staircase", 1.0, 0.9): 1})


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 40.0])
def test_the_chance_of_the_whole_loss_is_one_at_every_size(epsilon):
    for dimension in (1, 2):
        p = staircase.chance_of_loss(epsilon, dimension)
        assert 0.5 * (1 - 1e-6) <= p <= 1.0 / (1.0 + math.exp(-epsilon))


def test_a_total_at_delta_buys_staircases_that_keep_it():
    for dimension in (1, 2):
        each = 1.0 / pure_multiplier("staircase", 2.0, 1e-5, 30, dimension)
        charge = Charge("staircase", each, staircase.chance_of_loss(each, dimension))
        assert each > 2.0 / 30
        assert 1.99 < total_epsilon({charge: 30}, 1e-5) <= 2.0


def test_staircases_below_a_step_of_the_accountant_lose_no_mass():
    """Enumerated: 20 losses of +-epsilon or 0, and two Laplace releases."""
    small = Charge("staircase", 9e-5, 0.4)
    alone = total_epsilon({Charge("laplace", 1.0): 2}, 1e-5)
    assert alone < total_epsilon({Charge("laplace", 1.0): 2, small: 20}, 1e-5) < alone + 20 * 3e-4
    assert 7.24e-4 < total_epsilon({small: 20}, 1e-5) <= 20 * 9e-5
    assert total_epsilon({Charge("staircase", 2e-5, 0.4): 1000}, 1e-5) <= 1000 * 2e-5
    assert pure_multiplier("staircase", 0.5, 1e-5, 10_000, 2) > 1e4


def test_more_than_a_step_costs_more_and_several_pairs_are_not_certified():
    mechanism = Staircase(0.2, 0.4)
    assert mechanism.charge(0.4) == mechanism.charge(0.1)
    assert mechanism.charge(0.4).kind == "staircase"
    assert mechanism.charge(0.41) == Charge("pure", 4.0)
    assert mechanism.charge(math.inf).kind == "uncertified"
    change = np.array([0.1, 0.0, -0.3, 0.0])
    assert length(change, "pair") == pytest.approx(0.3)
    assert math.isinf(length(change, "number"))
    assert math.isinf(length(np.array([0.1, 0.1, 0.0, 0.0]), "pair"))
    assert length(np.array([0.0, -0.2]), "number") == pytest.approx(0.2)
    assert length(np.zeros(4), "pair") == 0.0


def test_a_bus_moves_one_statistic_of_buses_and_sums_and_several_of_a_tree():
    levels = [np.zeros(4, dtype=int), np.arange(4)]
    for protects, norm, kind in (("p+q", "pair", Staircase), ("p", "number", NumberStaircase)):
        adjacency = DemandAdjacency(0.1, protects)
        for strategy in (bus(4), total(4)):
            assert strategy.sensitivity(adjacency, norm).value == pytest.approx(0.1)
        sums = tree(levels, (0.5, 0.5)).sensitivity(adjacency, norm)
        assert math.isinf(sums.value)
        name = "staircase" if kind is Staircase else "staircase-number"
        rule = NoiseRule(name, "simulated", multiplier=0.2)
        release = rule.release(bus(4).sensitivity(adjacency, norm))
        assert isinstance(release.mechanism, kind)
        assert release.certified.parameter == pytest.approx(5.0)
    assert math.isinf(bus(4).sensitivity(DemandAdjacency(0.1), "number").value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"noise": "secure"}, "noise = 'secure'"),
        ({"release": "tree"}, "several sums of a tree"),
        ({"perturbation": "objective"}, "perturbation 'demand' only"),
    ],
)
def test_staircases_are_refused_where_they_are_not_proven(given, message):
    with pytest.raises(InputError, match=message):
        make_settings(mechanism="staircase", **given)


@pytest.mark.parametrize(("protects", "law"), [("p+q", Staircase), ("q", NumberStaircase)])
def test_a_run_releases_buses_or_sums_under_a_staircase(protects, law):
    case = load_case("case14")
    settings = make_settings(
        mechanism="staircase", budget="total:5", beta="10MW", protects=protects, rounds=2, seed=1
    )
    result = run(case, shipped_zoning(case), settings)
    document = result.as_dict()
    assert {row["statistics"] for row in document["released"]} <= {"bus", "total"}
    assert document["privacy"]["total_pure"] == pytest.approx(5.0)
    assert document["privacy"]["total"]["epsilon"] <= 5.0
    kinds = {type(r.mechanism) for counts in result.trace.releases.values() for r in counts}
    assert kinds == {law}
