"""A published case: sensitivity and inputs of the priced query, and its bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest

from gridpriv.core.errors import InputError
from gridpriv.grid.convert import matpower_text
from gridpriv.grid.library import load_case
from gridpriv.grid.scenarios import DemandSeries
from gridpriv.power.ac.optimum import acopf
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.release import Release
from gridpriv.privacy.temporal import COEFFICIENT_SPREAD, MOST_COEFFICIENTS
from gridpriv.zonal import protected_case
from gridpriv.zonal.certificate import _lines, best_guess, certificate, data_sheet, inversion_error
from gridpriv.zonal.protected_case import (
    prepare_publication,
    prepare_series,
    price_query,
    protect,
    series_errors,
)
from gridpriv.zonal.settings import make_settings


def settings(**given):
    return make_settings(**{"beta": "10MW", "budget": "total:1", "seed": 1} | given)


PRICES = ("p_price", "q_price")


@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("protects", ["p+q", "p", "q"])
def test_the_priced_query_moves_by_its_sensitivity_at_most_and_attains_it(protects, capped) -> None:
    case = load_case("case30")
    optimum, cap = acopf(case), protected_case.CAP * protected_case._largest_marginal_cost(case)
    if capped:  # where a limit is nearly infeasible
        prices = dict.fromkeys(PRICES, 10.0 * cap / case.base_mva + 0.0 * case.pd)
        optimum = replace(optimum, **prices)
    query = price_query(optimum, DemandAdjacency(0.1, protects), 1.0, "simulated")
    assert (np.abs(query.prices).max() == cap) == capped
    demand = np.stack([case.pd, case.qd])
    moves = product(*([-0.1, 0.1] if kind in protects else [0.0] for kind in "pq"))
    largest = 0.0
    for move, bus in product(moves, range(case.n_bus)):
        neighbour = demand.copy()
        neighbour[:, bus] += move
        largest = max(largest, abs(query.value(neighbour) - query.value(demand)))
    assert largest == pytest.approx(query.release.sensitivity.value, rel=1e-9)
    assert query.release.mechanism.scale == pytest.approx(largest)


@pytest.mark.parametrize("scaled", [True, False])
def test_the_stated_error_of_a_series_is_that_of_its_estimates(scaled) -> None:
    """Monte Carlo over seeds, for a day as the prior expects it; without the projection.

    The total changes by cosines whose sizes are those of the prior's standard deviations.
    """
    case, steps = load_case("case14"), 8
    level = prepare_publication(case, settings()).disclosure.prior.active.mean.sum()
    order = np.arange(1, MOST_COEFFICIENTS + 1)[:, None]
    waves = np.sqrt(2.0) * np.cos(np.pi * order * (np.arange(steps) + 0.5) / steps)
    factors = 1.0 + (COEFFICIENT_SPREAD * level / order * waves).sum(axis=0) / case.pd.sum()
    pd, qd = factors[:, None] * case.pd, factors[:, None] * case.qd
    scales = tuple(factors) if scaled else ()
    series = DemandSeries(case, tuple(map(str, range(steps))), pd, qd, "day", scales)
    horizon = prepare_series(series, settings(mechanism="knorm", coordination="central"))
    (item,), errors = horizon.disclosures, []
    public = {"owned": horizon.owned, "disclosures": horizon.disclosures}
    for seed in range(100):
        another = replace(horizon, seed=seed)
        vars(another).update(public)  # do not depend on the seed
        (estimate,) = another.draw()
        for k, factor in enumerate(factors):
            demand = factor * item.at(0, estimate) if scaled else item.at(k, estimate)
            errors.append(demand[: case.n_bus].sum() - pd[k].sum())
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(series_errors(horizon)[0], rel=0.2)


def test_secure_releases_charge_the_rounding_of_demand() -> None:
    """At a beta of 1e-9 p.u. a step of the grid is 1.5 % of it, and sums in floats are off."""
    case, tiny = load_case("case30"), DemandAdjacency(1e-9, "p+q")
    query = price_query(acopf(case), tiny, 1.0, "secure")
    plain = price_query(acopf(case), tiny, 1.0, "simulated")
    demand, worst = np.stack([case.pd, case.qd]), 0.0
    for bus in range(case.n_bus):
        for move in product((-1e-9, 1e-9), repeat=2):
            neighbour = demand.copy()
            neighbour[:, bus] += move
            worst = max(worst, abs(query.value(neighbour) - query.value(demand)))
    assert worst <= query.release.sensitivity.value
    assert query.release.sensitivity.value > 1.05 * plain.release.sensitivity.value
    publication = prepare_publication(case, settings(noise="secure", seed=None))
    assert "with rounding" in publication.release.sensitivity.bound_source


def test_every_draw_of_a_publication_has_a_stream_of_its_own() -> None:
    publication = prepare_publication(load_case("case14"), settings(), priced=True)
    numbers = (protected_case.RELEASE, protected_case.QUERY, protected_case.DRAWS)
    assert len({publication.stream(number).random() for number in numbers}) == len(numbers)


def test_prices_are_those_of_one_more_megawatt() -> None:
    case = load_case("case30")
    query = price_query(acopf(case), DemandAdjacency(0.1), 1.0, "simulated")
    more = case.pd.copy()
    more[6] += 1e-3
    step = acopf(replace(case, pd=more)).cost - acopf(case).cost
    assert query.prices[0, 6] * 1e-3 == pytest.approx(step, rel=1e-2)


def published(case, given, priced: bool) -> str:
    protected = protect(prepare_publication(case, given, priced=priced))
    final = protected.case("x")
    document = certificate(protected.contents, final, {}, None)
    return matpower_text(final) + data_sheet(document) + str(document)


@pytest.mark.parametrize(("release", "priced"), [("bus", False), ("tree", False), ("auto", True)])
def test_a_published_case_is_a_function_of_releases(release, priced, monkeypatch) -> None:
    """Released values frozen, demand and the owner's state scrambled: the same bytes."""
    fixed: dict[int, np.ndarray] = {}

    def apply(_, value, stream):
        del stream
        noise = np.random.default_rng(5).normal(0.3, 0.05, value.shape)
        return fixed.setdefault(value.size, value * 0.0 + (noise if value.size > 1 else 9000.0))

    monkeypatch.setattr(Release, "apply", apply)
    monkeypatch.setattr(protected_case, "RANGE_DRAWS", 2)
    case, generator = load_case("case14"), np.random.default_rng(3)
    scrambled = replace(
        case,
        **{
            name: getattr(case, name) + generator.normal(0.0, 0.1, len(getattr(case, name)))
            for name in ("pd", "qd", "vm", "va", "vg", "pg")
        },
    )
    given = settings(release=release)
    assert published(case, given, priced) == published(scrambled, given, priced)


def test_what_is_drawn_is_what_was_planned_and_adds_up_to_the_total(monkeypatch) -> None:
    monkeypatch.setattr(protected_case, "RANGE_DRAWS", 10)
    charged = []
    publication = prepare_publication(load_case("case14"), settings(), priced=True)
    protected = protect(publication, lambda owner, releases: charged.append((owner, releases)))
    assert [owner for owner, _ in charged] == ["grid", "grid"]
    drawn = [release for _, releases in charged for release in releases]
    assert drawn == [item.release for item in protected.contents.drawn]
    for release, planned in zip(drawn, publication.planned, strict=True):
        assert release.certified.kind == planned.certified.kind
        # the query's sensitivity is known once demand is: distance / (distance / epsilon) rounds
        assert release.certified.parameter == pytest.approx(planned.certified.parameter, rel=1e-15)
    document = certificate(protected.contents, protected.case("x"), {}, "run")
    assert document["protected"]["total_epsilon"] == pytest.approx(1.0)
    low, high = document["optimum"]["cost_range"]
    assert low < document["optimum"]["cost"] < high


def test_the_file_is_feasible_where_the_release_is_not() -> None:
    given = settings(release="bus", beta="100MW", budget="total:0.1", seed=3)
    protected = protect(prepare_publication(load_case("case14"), given))
    assert protected.served.margin > 0.0
    best = acopf(protected.case("x"))
    assert best.state.shed_mw < 1e-6
    assert not best.violations


def test_a_case_without_costs_has_no_priced_query() -> None:
    with pytest.raises(InputError, match="no convex generation costs"):
        prepare_publication(replace(load_case("case14"), cost=()), settings(), priced=True)
    assert protect(prepare_publication(replace(load_case("case14"), cost=()), settings()))


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 5.0])
def test_bounds_hold_for_the_best_attack_on_the_release(epsilon) -> None:
    """Bayes' rule with the exact likelihood of K-norm noise, which no attack on the file beats."""
    runs, generator = 20_000, np.random.default_rng(4)
    k = max(1, round(1.278 / epsilon))
    truth = generator.integers(0, 2, runs)
    radius = generator.gamma(3.0, 1.0 / epsilon, runs)
    released = truth[:, None] * float(k) + radius[:, None] * generator.uniform(-1.0, 1.0, (runs, 2))
    loss = epsilon * (np.abs(released).max(axis=1) - np.abs(released - k).max(axis=1))
    right = int(((loss > 0) == truth).sum())
    bound = best_guess(k * epsilon)
    assert binomtest(right, runs).proportion_ci(0.999).low <= bound
    assert right / runs > 0.5 + 0.2 * (bound - 0.5)  # the attack is worth its name
    error = k * np.abs((loss > 0) - truth)  # a median of the posterior
    least = inversion_error(k, k * epsilon)
    assert error.mean() + 3.3 * error.std() / math.sqrt(runs) >= least


@pytest.mark.slow
def test_an_attack_on_published_files_stays_within_the_bounds() -> None:
    """Two demands of bus 14 that differ by beta, 300 files each; the best threshold on its demand.

    The threshold is chosen on the files of its evaluation, which favours the attack.
    """
    case = load_case("case14")
    values = []
    for move in (0.0, 0.1):
        pd = case.pd.copy()
        pd[13] += move
        values.append(
            [
                protect(
                    prepare_publication(replace(case, pd=pd), settings(release="bus", seed=seed))
                )
                .case("x")
                .pd[13]
                for seed in range(300)
            ]
        )
    below, above = np.sort(values[0]), np.sort(values[1])
    guesses = [
        (np.searchsorted(below, t) + 300 - np.searchsorted(above, t)) / 600
        for t in np.concatenate([below, above])
    ]
    assert binomtest(round(600 * max(guesses)), 600).proportion_ci(0.999).low <= best_guess(1.0)
    assert max(guesses) > 0.55


@pytest.mark.slow
def test_the_stated_range_holds_the_true_optimal_cost() -> None:
    case = load_case("case14")
    true = acopf(case).cost
    inside = []
    for seed in range(20):
        low, high = protect(
            prepare_publication(case, settings(release="bus", seed=seed), priced=True)
        ).cost_range
        inside.append(low <= true <= high)
    assert sum(inside) >= 15


def test_the_noise_of_a_tree_bounds_the_error_of_its_total() -> None:
    """The posterior combines the released total with more data."""
    case = load_case("case14")
    protected = protect(prepare_publication(case, settings(release="tree", seed=1)))
    document = certificate(protected.contents, protected.case("x"), {}, None)
    (release,) = document["releases"]
    total, bus = (release["standard_deviation"] / weight for weight in release["weights"])
    assert sum(release["weights"]) == pytest.approx(1.0)
    assert document["demand"]["expected_total_error_mw"] <= total
    sheet = data_sheet(document)
    assert f"deviation of {total:.4g} MW for the total and {bus:.4g} MW for a bus" in sheet


def test_a_data_sheet_states_the_noise_of_active_and_reactive_demand() -> None:
    row = {"quantity": "demand: total", "mechanism": "Laplace", "epsilon": 1.0, "unit": "MW"}
    row |= {"sensitivity": 10.5, "standard_deviation": 14.85}
    assert len(_lines(row | {"reactive_weight": 1.0})) == 1
    active, reactive = _lines(row | {"reactive_weight": 0.05})
    assert active.startswith("| demand: total, active | Laplace | 1 | 10.5 | 14.85 | MW")
    assert reactive.startswith("| demand: total, reactive |") and "| 297 | MVAr" in reactive
