"""Algorithms: limits without noise, replays on adjacent data, independence of workers."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import made
import networkx as nx
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from gridpriv.consensus.coordinator import FullyShared, Plan, State, make_consensus, rounds
from gridpriv.consensus.messages import Reply
from gridpriv.core.errors import InputError, SolverError
from gridpriv.learning import clients as learning_clients
from gridpriv.learning import learn, load_dataset
from gridpriv.learning.algorithms import NON_PRIVATE, READS, SPECIFIC
from gridpriv.learning.algorithms.admm import (
    TOLERANCE,
    check_graph,
    make_graph,
    minimise_locally,
    multipliers,
    nonsmooth_step,
    smooth_step,
)
from gridpriv.learning.algorithms.base import solve
from gridpriv.learning.algorithms.ryu_kim import output_step
from gridpriv.learning.clients import make_clients
from gridpriv.learning.datasets.base import split
from gridpriv.learning.run import make_task
from gridpriv.learning.settings import BudgetedPenalty, parse_penalty, parse_regularizer

FREE = {"mechanism": "none", "clients": 5, "evaluate_every": 100}


def optimum(data, regularizer, box=None):
    clients = make_clients(data, split(data, "contiguous", 5, 0))
    term = parse_regularizer(regularizer)
    return made.objective_value(clients, term, solve(clients, term, box))


@pytest.mark.parametrize("regularizer", ["l2:0.01", "l1:0.01"])
def test_admm_reaches_the_centralized_objective(regularizer):
    data = made.binary()
    outcome = learn(
        data,
        made.plain(algorithm="admm", penalty="0.1", rounds=300, regularizer=regularizer, **FREE),
    )
    assert outcome.final["objective"] == pytest.approx(optimum(data, regularizer), rel=1e-4)
    assert outcome.final["consensus_residual"] < 1e-3


def test_dp_admm_reaches_it_without_noise():
    data = made.binary()
    run_result = learn(
        data,
        made.plain(
            algorithm="dp-admm",
            penalty="0.1",
            rounds=3000,
            regularizer="l2:0.01",
            step="smooth",
            **FREE,
        ),
    )
    assert run_result.final["objective"] == pytest.approx(optimum(data, "l2:0.01"), rel=1e-4)


def test_ryu_kim_reaches_the_boxed_optimum():
    data = made.multiclass()
    result = learn(
        data,
        made.plain(
            rounds=2000, box=0.5, split="contiguous", penalty="0.2", step_scale=50.0, **FREE
        ),
    )
    assert np.abs(result.local).max() <= 0.5
    assert result.final["objective"] == pytest.approx(optimum(data, "none", 0.5), rel=1e-3)


@pytest.mark.parametrize("algorithm", ["cdp-admm", "ddp-admm"])
def test_graph_admm_reaches_it_without_noise(algorithm):
    data = made.binary()
    fitted = learn(
        data,
        made.plain(
            algorithm=algorithm,
            penalty="0.05",
            rounds=2000,
            regularizer="l2:0.01",
            graph="regular:2",
            **FREE,
        ),
    )
    assert fitted.final["objective"] == pytest.approx(optimum(data, "l2:0.01"), rel=1e-4)


def test_centralized_objective_is_scikit_learns():
    linear_model = pytest.importorskip("sklearn.linear_model")
    data = made.binary(samples=2000)
    clients = make_clients(data, split(data, "contiguous", 5, 0))
    term = parse_regularizer("l2:0.003")
    ours = made.objective_value(clients, term, solve(clients, term))
    model = linear_model.LogisticRegression(
        C=1.0 / (0.003 * 2000), fit_intercept=False, tol=1e-10, max_iter=5000
    ).fit(data.x_train, data.y_train)
    reference = made.objective_value(clients, term, model.coef_.T)
    assert ours == pytest.approx(reference, rel=1e-6)


def test_gradients_do_not_depend_on_how_clients_are_stacked():
    data = made.multiclass()
    equal = make_clients(data, split(data, "contiguous", 5, 0))
    w = np.random.default_rng(0).normal(size=(5, 6, 3)).astype(np.float32)
    one_by_one = [equal.gradients(np.stack([w[p]] * 5))[p] for p in range(5)]
    assert np.allclose(equal.gradients(w), one_by_one, atol=1e-6)
    uneven = make_clients(data, [np.arange(0, 100), np.arange(100, 300)])
    both = uneven.gradients(w[:2]) * np.array([100, 200])[:, None, None]
    at_one = uneven.gradients(np.stack([w[0], w[0]])) * np.array([100, 200])[:, None, None]
    whole = make_clients(data, [np.arange(300)]).gradients(w[:1]) * 300
    assert np.allclose(at_one.sum(axis=0), whole[0], atol=1e-3)
    assert np.allclose(both[0], at_one[0], atol=1e-4)


@pytest.mark.parametrize("algorithm", ["ryu-kim", "dp-admm", "dpsgd", "cdp-admm"])
def test_the_loss_of_all_is_the_mean_of_what_each_client_is_reported(algorithm):
    given = {"graph": "regular:2"} if algorithm == "cdp-admm" else {}
    fitted = learn(
        made.multiclass() if algorithm == "ryu-kim" else made.binary(),
        made.plain(algorithm=algorithm, rounds=3, **FREE | given),
    )
    mean = np.average(fitted.clients["train_loss"], weights=fitted.clients["samples"])
    assert fitted.final["train_loss"] == pytest.approx(mean, rel=1e-14)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("perturbation", ["objective", "output"])
def test_results_do_not_depend_on_threads(mechanism, perturbation):
    data = made.multiclass()
    budget = "total:5" if mechanism == "laplace" else "total:5,1e-5"
    settings = made.plain(
        mechanism=mechanism,
        perturbation=perturbation,
        budget=budget,
        rounds=5,
        local_updates=2,
        clients=4,
        workers=1,
    )
    item, two = learn(data, settings), learn(data, replace(settings, workers=2))
    assert np.array_equal(item.w, two.w)
    assert item.privacy["total"]["epsilon"] <= 5.0 * (1 + 1e-6)
    assert item.privacy["releases_per_client"] == 10


@pytest.mark.parametrize(
    "algorithm", ["ryu-kim", "dp-admm", "pvp", "dvp", "dpsgd", "cdp-admm", "fedspd-dp"]
)
def test_sound_calibration_certifies_the_budget(algorithm):
    given = {"graph": "regular:2"} if algorithm == "cdp-admm" else {}
    given |= {} if algorithm == "dpsgd" else {"penalty": "1"}
    settings = made.plain(
        algorithm=algorithm,
        budget="total:2,1e-5",
        rounds=8,
        clients=5,
        regularizer="l2:0.01",
        **given,
    )
    fitted = learn(made.binary(), settings)
    assert 1.99 < fitted.privacy["total"]["epsilon"] <= 2.0
    assert fitted.privacy["total"]["nominal"] == 2.0
    assert fitted.rounds["noise_magnitude"].min() > 0
    each = learn(made.binary(), replace(settings, budget="per-release:0.3")).privacy["per_release"]
    assert 0.999 * 0.3 < each["certified"] <= 0.3 == each["nominal"]


def test_dual_perturbation_refuses_what_no_noise_can_meet():
    """The ratio of the determinants costs ln(1 + 0.25/(m rho)) a release whatever the noise."""
    settings = made.plain(
        algorithm="dvp", budget="per-release:0.02", rounds=2, clients=5, penalty="0.1"
    )
    with pytest.raises(InputError, match=r"more than 0\.0308 a release with dvp here"):
        learn(made.binary(samples=400), settings)
    assert learn(made.binary(samples=400), replace(settings, penalty="10")).privacy


@pytest.mark.parametrize(
    ("data", "clients", "scale"),
    [
        (made.binary(), 5, 1.0),
        (made.binary(), 7, 1e3),  # unequal clients, and minimisers far away
        (replace(made.binary(), x_train=1e-6 * made.binary().x_train), 4, 1.0),
        (load_dataset("lasso"), 3, 1.0),
    ],
)
def test_newton_finds_the_minimisers_that_scipy_finds(data, clients, scale):
    """Gradients are below 1e-6, as the sensitivity of a minimizer assumes."""
    settings = made.plain(
        algorithm="pvp", mechanism="none", clients=clients, regularizer="l2:0.01", split="iid"
    )
    task, _ = make_task(data, settings)
    rho, members = 0.3, task.clients
    random = np.random.default_rng(5)
    linear, start = scale * random.normal(size=(2, clients, *members.shape))
    minimizer = minimise_locally(task, linear, rho, start)
    for p in range(clients):
        x, y = (part.astype(float) for part in members.part(p))

        def value(v, x=x, y=y[:, 0], p=p):
            scores = x @ v
            loss = np.logaddexp(0.0, -y * scores) if data.task == "binary" else (scores - y) ** 2
            return loss.mean() + linear[p, :, 0] @ v + 0.5 * (rho + 0.01) * v @ v

        best = minimize(value, minimizer[p, :, 0], method="BFGS", options={"gtol": 1e-9}).x
        near = 2.0 * TOLERANCE / rho + 1e-6 * np.linalg.norm(best)
        assert np.linalg.norm(minimizer[p, :, 0] - best) < max(near, 2e-5)


@pytest.mark.parametrize("strength", [1e-6, 0.02, 0.2])
@pytest.mark.parametrize(
    ("data", "scale"),
    [
        (made.binary(features=30), 1.0),
        (made.binary(features=30), 1e3),
        (load_dataset("lasso"), 1.0),
    ],
)
def test_l1_minimisers_are_those_of_a_problem_with_bounds(data, strength, scale):
    """In v = a - b with a, b >= 0 the problem is smooth: L-BFGS-B solves it."""
    settings = made.plain(
        algorithm="pvp", mechanism="none", clients=3, regularizer=f"l1:{strength}", split="iid"
    )
    task, _ = make_task(data, settings)
    rho, members = 0.3, task.clients
    linear, start = scale * np.random.default_rng(5).normal(size=(2, 3, *members.shape)) / 10
    minimizer = minimise_locally(task, linear, rho, start)[:, :, 0]
    for p in range(3):
        x, y = (part.astype(float) for part in members.part(p))

        def value(parts, x=x, y=y[:, 0], p=p):
            v = parts[: x.shape[1]] - parts[x.shape[1] :]
            s = x @ v
            loss = np.logaddexp(0.0, -y * s) if data.task == "binary" else (s - y) ** 2
            bent = -y * expit(-y * s) if data.task == "binary" else 2.0 * (s - y)
            slope = x.T @ bent / len(y) + linear[p, :, 0] + rho * v
            total = loss.mean() + linear[p, :, 0] @ v + 0.5 * rho * v @ v + strength * parts.sum()
            return total, np.concatenate([slope, -slope]) + strength

        both = np.concatenate([np.maximum(minimizer[p], 0.0), np.maximum(-minimizer[p], 0.0)])
        bounds = [(0.0, None)] * len(both)
        options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000}
        best = minimize(
            value, 0 * both, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        assert value(both)[0] <= best.fun + 1e-9 * max(1.0, abs(best.fun))
        v = best.x[: x.shape[1]] - best.x[x.shape[1] :]
        assert np.linalg.norm(minimizer[p] - v) < 1e-4 * max(1.0, np.linalg.norm(v))
    if strength == 0.2 and scale == 1.0:
        assert (minimizer == 0).any()


@pytest.mark.parametrize("regularizer", ["l2:0.01", "l1:0.01"])
def test_a_clients_minimiser_is_not_moved_by_what_others_take(regularizer):
    settings = made.plain(
        algorithm="pvp", mechanism="none", clients=2, regularizer=regularizer, split="iid"
    )
    task, _ = make_task(made.binary(features=40), settings)
    linear, start = np.random.default_rng(5).normal(size=(2, 2, *task.clients.shape))
    start = minimise_locally(task, linear, 0.1, start) + 1e-3  # near the end of its steps
    values = []
    for further in (0.0, 1.0, 1e3):  # the other's, which takes as many steps and more
        start[0] += further
        values.append(minimise_locally(task, linear, 0.1, start))
    assert all(np.array_equal(values[0][1], other[1]) for other in values[1:])


def test_what_cannot_be_certified_is_refused_before_it_runs():
    settings = made.plain(algorithm="dvp", budget="total:1,1e-5", clients=4, rounds=3)
    for data, more in (
        (made.multiclass(), {}),
        (made.binary(), {"regularizer": "l1:0.1"}),
    ):
        with pytest.raises(InputError, match="algorithm = 'dvp': must be another"):
            learn(data, replace(settings, **more))
    clipped = replace(settings, algorithm="pvp", clip=1.0)
    with pytest.raises(InputError, match="none with pvp and several outputs"):
        learn(made.multiclass(), clipped)


def test_more_clients_than_models_scored_at_once_have_their_own_errors(monkeypatch):
    data = made.binary(samples=64)
    monkeypatch.setattr(learning_clients, "SCORES", 3 * len(data.y_test))
    settings = made.plain(algorithm="dp-admm", clients=32, rounds=2, budget="total:1,1e-5")
    fitted = learn(data, settings)
    scores = data.x_test @ fitted.local[:, :, 0].T
    wrong = np.mean(np.where(scores > 0, 1, -1) != data.y_test[:, None])
    assert fitted.rounds.local_error.iloc[-1] == pytest.approx(wrong)


def test_a_client_holds_its_model_and_multipliers_and_no_more():
    data, clients, rounds = made.multiclass(samples=256, features=2000), 128, 3
    settings = made.plain(
        algorithm="ryu-kim",
        clients=clients,
        rounds=rounds,
        evaluate_every=rounds,
        budget="total:1,1e-5",
        workers=1,
    )
    models = clients * 2000 * data.classes * 8  # bytes of a model a client
    stored = []
    learn(data, replace(settings, clients=2))  # imports
    tracemalloc.start()
    try:
        learn(data, settings, lambda _: stored.append(tracemalloc.get_traced_memory()))
    finally:
        tracemalloc.stop()
    (during, _), (_, peak) = stored[-2:]
    assert during < 2.8 * models  # model and multipliers
    assert peak < 4.0 * models  # and the models that are returned


@pytest.mark.parametrize("algorithm", sorted(READS))
def test_what_an_algorithm_does_not_read_is_refused(algorithm):
    other = {
        "perturbation": "output",
        "local_updates": 3,
        "step_scale": 2.0,
        "box": 0.5,
        "step": "smooth",
        "radius": 7.0,
        "learning_rate": 1.0,
        "batch": 4,
        "sampling": "without-replacement",
        "sampled_clients": 2,
        "graph": "regular:2",
        "decay": 0.5,
        "penalty": "3",
        "clip": 1.0,
        "diameter": 2.0,
        "proximity": 5.0,
        "gradient_change": "2G/b",
        "output_step": "common",
        "averaging": 0.5,
        "momentum": 0.5,
        "centring": "on",
        "trust": "central",
        "colluding": 1,
        "dropouts": 1,
        "participation": "secret",
    }
    assert set(other) == SPECIFIC
    mechanism = "none" if algorithm in NON_PRIVATE else "gaussian"
    for name, value in other.items():
        if name in READS[algorithm]:
            assert made.plain(algorithm=algorithm, mechanism=mechanism, **{name: value})
        else:
            with pytest.raises(InputError, match=f"{name} = .* left out with {algorithm}"):
                made.plain(algorithm=algorithm, mechanism=mechanism, **{name: value})


@pytest.mark.slow
def test_amplified_run_uses_less_noise_for_the_same_total():
    data = made.binary(samples=1000)
    settings = made.plain(
        algorithm="dpsgd",
        budget="total:1,1e-5",
        rounds=10,
        clients=5,
        batch=10,
        adjacency="zero-out",
        sampling="poisson",
    )
    amplified = learn(data, settings)
    fixed = learn(data, replace(settings, sampling="without-replacement"))
    for actual in (amplified, fixed):
        assert 0.96 < actual.privacy["total"]["epsilon"] <= 1.0001
    assert amplified.rounds.noise_magnitude.sum() < 0.5 * fixed.rounds.noise_magnitude.sum()


def test_dp_admm_release_moves_no_further_than_lemma_1():
    """Replay: the same noise and other clients, one sample replaced, first release."""
    data = made.binary(samples=100)
    settings = made.plain(
        algorithm="dp-admm", rounds=1, clients=2, split="contiguous", penalty="0.1"
    )
    x = data.x_train.copy()
    x[0] = -x[0] / np.linalg.norm(x[0])
    before = data.x_train.copy()
    before[0] = -x[0]
    entry = learn(replace(data, x_train=before), settings)
    two = learn(replace(data, x_train=x), settings)
    distance = np.linalg.norm(entry.local[0] - two.local[0])
    stated = entry.privacy["sensitivity"][0]["sensitivity"]
    # at w = 0 the residuals are 1/2, so half of the bound is reached
    assert distance == pytest.approx(0.5 * stated, rel=1e-3)
    assert np.array_equal(entry.local[1], two.local[1])


def test_fedspd_paper_certifies_nothing_and_says_so():
    fitted = learn(
        made.binary(),
        made.plain(
            algorithm="fedspd-dp",
            sensitivity="published",
            budget="per-release:1,1e-4",
            rounds=3,
            clients=4,
            local_updates=2,
            batch=5,
            penalty="20",
        ),
    )
    assert fitted.as_dict()["privacy"]["total"]["epsilon"] is None
    assert any("nothing is certified" in note for note in fitted.privacy["notes"])


def test_data_dependent_noise_certifies_nothing():
    fitted = learn(
        made.multiclass(),
        made.plain(
            sensitivity="published",
            budget="per-release:1,1e-6",
            rounds=2,
            split="writer",
            adjacency="zero-out",
        ),
    )
    assert fitted.privacy["total"]["epsilon"] == np.inf


def test_only_sampled_clients_release():
    task = make_task(made.binary(), made.plain(clients=10, algorithm="dpsgd"))[0]
    assert task.clients.number == 10
    result = learn(
        made.binary(),
        made.plain(
            algorithm="dpsgd", clients=10, sampled_clients=3, rounds=20, budget="total:1,1e-5"
        ),
    )
    assert result.privacy["releases_per_client"] < 20
    assert 0.99 < result.privacy["total"]["epsilon"] <= 1.0001


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sampled_clients": 6}, "at most 5, the number of clients"),
        ({"batch": 81}, "at most 80, the smallest client's samples"),
        ({"algorithm": "admm"}, "none with admm"),
        (
            {"algorithm": "dp-admm", "step": "smooth", "regularizer": "l1:0.1"},
            "nonsmooth with an l1",
        ),
        ({"algorithm": "cdp-admm", "graph": "regular:9"}, "a degree below 5"),
    ],
)
def test_settings_that_the_data_cannot_have_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        learn(made.binary(), made.plain(**({"clients": 5, "algorithm": "dpsgd"} | given)))


def test_divergence_is_an_error_not_a_table_of_nans():
    data = made.binary()
    wild = made.plain(
        algorithm="dpsgd",
        mechanism="none",
        clients=5,
        rounds=400,
        learning_rate=1e6,
        regularizer="l2:1",
    )
    with (
        np.errstate(over="ignore", invalid="ignore"),
        pytest.raises(SolverError, match="diverged in round"),
    ):
        learn(data, wild)


def test_fully_shared_agents_meet_as_partly_shared_ones_do():
    size, agents = 5, 7
    random = np.random.default_rng(3)
    own, penalty = random.normal(size=(agents, size)), parse_penalty("geometric:1,1.3,2,1e9")

    def exchange(orders):
        """Everyone goes half of the way from where it would be to where all are to meet."""
        return [Reply(0.5 * (o.w + z) / o.number, {}) for o, z in zip(orders, own, strict=True)]

    def played(consensus, start):
        state, plan = State(start, start, penalty.first(size)), Plan(9, lambda t: 1.0 / t, penalty)
        return list(rounds(exchange, consensus, state, plan))

    general = make_consensus([np.arange(size)] * agents)
    full = FullyShared(agents, size)
    assert np.array_equal(full.holders, general.holders) and full.size == general.size
    every = played(general, np.zeros(agents * size))
    for item, other in zip(played(full, np.zeros((1, size))), every, strict=True):
        np.testing.assert_allclose(item.w, other.w, rtol=1e-12, atol=1e-14)
        assert item.residual == pytest.approx(other.residual, rel=1e-12)
        # what is kept is one row, whatever the agents
        assert item.state.sent.shape == item.state.dual.shape == (1, size)
        mean = other.state.dual.reshape(agents, size).mean(axis=0)
        np.testing.assert_allclose(item.state.dual[0], mean, rtol=1e-12, atol=1e-14)


def test_disconnected_graph_is_refused(tmp_path):
    links = tmp_path / "links.txt"
    links.write_text("# clients\n1 2\n3,4\n")
    with pytest.raises(InputError, match="not connected: 2 parts"):
        make_graph(str(links), 4, 0)
    links.write_text("1 2\n2 5\n")
    with pytest.raises(InputError, match="two client numbers, 1 to 4"):
        make_graph(str(links), 4, 0)
    for wrong, message in (
        ("1 two\n", "two client numbers"),
        ("1 2\n3\n", "line 2"),
        ("1 2\n2 2\n", "with itself"),
    ):
        links.write_text(wrong)
        with pytest.raises(InputError, match=message):
            make_graph(str(links), 4, 0)
    with pytest.raises(InputError, match="not connected"):
        check_graph(nx.empty_graph(3))
    assert nx.is_connected(make_graph("regular:4", 50, 0))


@pytest.mark.parametrize("variances", [0.9 ** np.arange(30.0), 1 / np.sqrt(np.arange(1.0, 31.0))])
def test_decaying_noise_meets_the_total(variances):
    task = make_task(made.binary(), made.plain(algorithm="cdp-admm", rounds=30, clients=5))[0]
    computed = multipliers(task, variances)
    from gridpriv.privacy.accounting import gaussian_multiplier

    assert np.sum(1 / computed**2) ** -0.5 == pytest.approx(gaussian_multiplier(1.0, 1e-5, 1))
    assert np.allclose(computed**2 / computed[0] ** 2, variances / variances[0])


def test_schedules_are_the_papers():
    # Huang et al., the L1 and L2 step sizes printed in section VI
    m_i, epsilon, delta, k = 400, 0.1, 1e-3, 7
    multiplier = np.sqrt(2 * np.log(1.25 / delta)) / epsilon
    s = 2.0 / m_i
    printed = (
        23
        * (
            2 * k * (1 + 1e-6 * np.sqrt(104)) ** 2
            + 1664 * k * np.log(1.25 / delta) / (m_i * epsilon) ** 2
        )
        ** -0.5
    )
    assert nonsmooth_step(23, 1 + 1e-6 * np.sqrt(104), 104, s, multiplier)(k) == pytest.approx(
        printed
    )
    printed = 1 / (0.25 + 1e-6 + 2 * np.sqrt(416 * k * np.log(1.25 / delta)) / (89 * m_i * epsilon))
    assert smooth_step(89, 0.25 + 1e-6, 104, s, multiplier)(k) == pytest.approx(printed)
    # the output baseline of Ryu and Kim
    size, c_1, n_p = 7840, np.sqrt(7840), 6000
    inverse = size + 4 * c_1 * np.sqrt(size * k * np.log(1.25 / delta)) / (n_p * epsilon * size)
    assert 1 / output_step(size, 2 * c_1 / n_p, multiplier)(k) == pytest.approx(inverse)
    # Ryu and Kim (E.1)
    rho = parse_penalty("geometric:0.005,1.2,2000,1e9,0.05").for_epsilon(0.1)
    assert rho.at(1999) == pytest.approx(0.505)
    assert rho.at(4000) == pytest.approx(0.005 * 1.44 + 0.5)
    assert BudgetedPenalty(1.0, 10.0, 1, 1e9).at(400) == pytest.approx(1e9)
    for text in ("0", "-1", "geometric:1,2,3", "many"):
        with pytest.raises(InputError, match="penalty"):
            parse_penalty(text)
