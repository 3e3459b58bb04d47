"""Replays on adjacent data: no release changes more, and none has less noise, than charged.

D and D' differ in one sample of client 1. Both runs have the same releases, chosen by
the test (as by an adversary), so the remaining difference is the effect of one sample. The data are
extreme: half of the correct sensitivity is exceeded, twice the correct sensitivity is not reached.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from itertools import cycle

import dp_accounting
import made
import numpy as np
import pytest
from dp_accounting import pld

from gridpriv.core.errors import InputError
from gridpriv.learning import learn
from gridpriv.learning.accounting import (
    MARGIN,
    SampleAdjacency,
    Tally,
    privacy_certificate,
    rounded,
)
from gridpriv.learning.algorithms import admm, dpsgd, fedspd_dp
from gridpriv.learning.algorithms.admm import certificate
from gridpriv.learning.algorithms.base import Task, make_algorithm
from gridpriv.learning.algorithms.dpsgd import (
    amplification,
    clipped,
    draw_weights,
    step_sensitivity,
)
from gridpriv.learning.algorithms.fedspd_dp import (
    batch_smoothness,
    paper_reach,
    sound_sensitivity,
)
from gridpriv.learning.algorithms.ryu_kim import ClientProblem
from gridpriv.learning.clients import SOFTMAX, targets_of, to_numpy
from gridpriv.learning.datasets.base import Dataset, clip_rows
from gridpriv.learning.run import make_task
from gridpriv.learning.settings import Regularizer
from gridpriv.privacy.accounting import epsilon_of
from gridpriv.privacy.mechanism import Gaussian, Laplace, SecureGaussian

CLIENTS, SAMPLES, FEATURES = 3, 3, 6
REACHED = 0.8
ADJACENCIES = ("replace-one", "zero-out")
CLIP = {"squares": 0.5}


@dataclass(frozen=True, eq=False)
class TuningResult(Task):
    """A task with chosen noise in some rounds."""

    draws: dict = field(default_factory=dict)

    def with_noise(self, t, values, releases):
        if t not in self.draws:
            return super().with_noise(t, values, releases)
        return values + self.draws[t]


@dataclass(eq=False)
class Ledger(Tally):
    """Keeps every charge and every calibration of a client, one a round."""

    made: dict = field(default_factory=dict)
    stated: dict = field(default_factory=dict)

    def add(self, client, release, count=1):
        super().add(client, release, count)
        self.made.setdefault(client, []).append(rounded(release.certified))
        stated = (release.sensitivity.value, release.mechanism.scale)
        self.stated.setdefault(client, []).append(stated)


def play(data, settings, draws):
    """Run an algorithm with chosen noise; return its rounds and charges."""
    task, _ = make_task(data, settings)
    ledger, rounds = Ledger(), []
    given = {f.name: getattr(task, f.name) for f in fields(task)} | {"tally": ledger}
    make_algorithm(TuningResult(**given, draws=draws)).run(rounds.append)
    return rounds, ledger


def neighbours(kind, adjacency):
    """Return D and D', and models at which their gradients differ by all they can.

    Of opposite features under softmax, scores +-(b, 0, -b) of the middle class: residuals
    (1, -1, 0) and (0, -1, 1). Under logistic loss two samples, opposite but in one feature, that
    the model gets wrong. Under clipped squares, targets far above and far below.
    """
    random = np.random.default_rng(0)
    x, _ = clip_rows(random.normal(size=(CLIENTS * SAMPLES, FEATURES)), 0.05)
    x[0] = 1.0 / math.sqrt(FEATURES)
    task, classes, distant = "multiclass", 3, 100.0 * np.outer(x[0], [1.0, 0.0, -1.0])
    y = random.integers(0, 3, len(x))
    y[0] = 1
    if kind == "logistic":
        task, classes, distant = "binary", 2, np.zeros((FEATURES, 1))
        y = np.where(y > 0, 1, -1)
        x[0, -1] *= -1.0
        distant[-1] = 100.0
    if kind == "squares":
        task, classes, distant = "regression", 0, np.zeros((FEATURES, 1))
        y = np.where(np.arange(len(x)) == 0, 1e3, y.astype(float))
    data = Dataset("made", task, x, y, x[:0], y[:0], classes, 1.0)
    return data, replace(data, **_changed(data, kind, adjacency)), distant


def _changed(data, kind, adjacency):
    """Return the other features and labels: the first sample's opposite, or a blank."""
    x, y = data.x_train.copy(), data.y_train.copy()
    if adjacency == "zero-out":
        x[0] = 0.0
    elif kind == "squares":
        y[0] = -y[0]
    else:
        x[0, : FEATURES if kind == "softmax" else -1] *= -1.0
    return {"x_train": x, "y_train": y}


def units(settings):
    """Return noise over its effect on a client's model (dpsgd: on the mean over clients)."""
    return {"dpsgd": -1.0 / settings.learning_rate, "fedspd-dp": 2.0}.get(settings.algorithm, 1.0)


def released(settings, done):
    """Return the releases of a round, up to a public shift, in the units of its noise.

    For dpsgd the clients' sum: a difference is due to the one client whose release differs.
    """
    if settings.algorithm == "dpsgd":
        return units(settings) * settings.clients * done.w[None]
    if settings.algorithm == "dp-fedavg":
        return done.w[None]
    return units(settings) * done.local


def replay(data, other, distant, settings):
    """Return changes of client 1's releases over the stated sensitivity, shape (rounds,).

    After each round the noise on D' compensates the difference, so both have equal releases.
    """
    draws = dict.fromkeys(range(2, settings.rounds + 1), 0.0) | {1: units(settings) * distant}
    first, ledger = play(data, settings, dict(draws))
    ratios = []
    for t in range(1, settings.rounds + 1):
        second, again = play(other, settings, draws)
        gap = released(settings, second[t - 1]) - released(settings, first[t - 1])
        assert ledger.stated == again.stated  # scales are public
        # other clients do not see the sample; releases are made equal up to rounding
        assert np.abs(gap[1:]).max(initial=0.0) <= (0.0 if t == 1 else 1e-5)
        ratios.append(np.linalg.norm(gap[0]) / ledger.stated[0][t - 1][0])
        alone = np.arange(CLIENTS)[:, None, None] == 0
        draws[t] = draws[t] - np.where(alone, gap[0], 0.0)
    _scales_are_charged(ledger, settings.rounds)
    return np.array(ratios)


def _scales_are_charged(ledger, rounds):
    """Every release is charged at its noise over its sensitivity."""
    assert len(ledger.made[0]) == len(ledger.stated[0]) == rounds
    for what, (sound, scale) in zip(ledger.made[0], ledger.stated[0], strict=True):
        assert "gaussian" in what.kind
        assert (1.0 - 1e-6) * scale / sound <= what.parameter <= scale / sound


ADMM = {"penalty": "0.5"}
FEDSPD = {"algorithm": "fedspd-dp", "local_updates": 3, **ADMM}
ADDITIVE = {
    "dp-admm": {"algorithm": "dp-admm", "regularizer": "l1:0.001", **ADMM},
    "dp-admm-smooth": {"algorithm": "dp-admm", "step": "smooth", "regularizer": "l2:0.1", **ADMM},
    "pvp-l1": {"algorithm": "pvp", "regularizer": "l1:0.001", **ADMM},
    "pvp-l2": {"algorithm": "pvp", "regularizer": "l2:0.5", **ADMM},
    "cdp-admm": {"algorithm": "cdp-admm", "graph": "regular:2", "decay": 0.8, **ADMM},
    "ddp-admm": {"algorithm": "ddp-admm", "graph": "regular:2", **ADMM},
    "dpsgd": {"algorithm": "dpsgd"},
    "dpsgd-poisson": {"algorithm": "dpsgd", "batch": 2, "rounds": 8},
    "dpsgd-without": {
        "algorithm": "dpsgd",
        "batch": 2,
        "sampling": "without-replacement",
        "rounds": 8,
    },
    "dpsgd-with": {"algorithm": "dpsgd", "batch": 2, "sampling": "with-replacement", "rounds": 20},
    "fedspd": FEDSPD,
    "fedspd-poisson": FEDSPD | {"batch": 2, "rounds": 8},
}


def settings_for(name, **given):
    base = {"clients": CLIENTS, "split": "contiguous", "budget": "per-release:5", "rounds": 4}
    return made.plain(**(base | ADDITIVE[name] | given))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("kind", ["softmax", "logistic", "squares"])
@pytest.mark.parametrize("name", ADDITIVE)
def test_a_release_moves_as_far_as_is_stated_and_no_further(name, kind, adjacency):
    """Given equal earlier releases, one sample changes the next by at most the sensitivity."""
    settings = settings_for(name, adjacency=adjacency, clip=CLIP.get(kind))
    ratios = replay(*neighbours(kind, adjacency), settings)
    assert ratios.max() <= 1.0 + 1e-5
    assert ratios.max() >= REACHED


class Tape:
    """In the place of a mechanism's noise: values before it, and the releases to be repeated."""

    def __init__(self, chosen=()):
        self.values, self.scales, self.out = [], [], list(chosen)

    def release(self, scale, value):
        self.values.append(value.copy())
        self.scales.append(scale)
        if len(self.out) < len(self.values):
            self.out.append(value.copy())
        return self.out[len(self.values) - 1].copy()


def taped(monkeypatch, tape, data, settings):
    kind = {"gaussian": Gaussian, "laplace": Laplace}[settings.mechanism]

    def perturb(mechanism, value, stream):
        del stream
        return tape.release(mechanism.scale, value)

    monkeypatch.setattr(kind, "perturb", perturb)
    return play(data, settings, {})[1]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("kind", ["softmax", "logistic", "squares"])
@pytest.mark.parametrize("perturbation", ["objective", "output"])
@pytest.mark.parametrize("noise", ["gaussian proven", "gaussian published", "laplace proven"])
def test_ryu_kim_releases_move_as_far_as_is_stated(
    monkeypatch, noise, perturbation, kind, adjacency
):
    """The gradient, or the minimizer, changes by at most the sensitivity in the noise's norm."""
    data, other, distant = neighbours(kind, adjacency)
    mechanism, sensitivity = noise.split()
    updates, order = 2, 1 if mechanism == "laplace" else 2
    settings = made.plain(
        mechanism=mechanism,
        perturbation=perturbation,
        sensitivity=sensitivity,
        rounds=2,
        local_updates=updates,
        budget="per-release:0.3",
        adjacency=adjacency,
        clip=CLIP.get(kind),
        clients=CLIENTS,
        split="contiguous",
        penalty="0.5",
        workers=1,
    )
    # what the first round releases leads to the models; then the minimisers stay there
    sign = -1.0 if perturbation == "objective" else 1.0
    first = Tape([10.0 * sign * distant.reshape(-1)] * CLIENTS * updates)
    ledger = taped(monkeypatch, first, data, settings)
    second = Tape(first.out)
    taped(monkeypatch, second, other, settings)
    assert first.scales == second.scales  # scales are public
    difference = np.array(first.values) - np.array(second.values)
    # (rounds, clients, updates), in which order one thread runs them
    distance = np.linalg.norm(difference, order, axis=1).reshape(2, CLIENTS, updates)
    scales = np.array(first.scales).reshape(2, CLIENTS, updates)
    assert distance[:, 1:].max() < 1e-9
    assert sum(ledger.charges[0].values()) == 2 * updates
    (charged,) = {what.parameter for what in ledger.made[0]}
    assert (distance[:, 0] / scales[:, 0]).max() <= (1.0 + 1e-6) / charged
    stated = ledger.stated[0][-1][0]
    assert scales[1, 0, -1] == pytest.approx(charged * stated, rel=1e-6)
    assert REACHED * stated <= distance[1, 0].max() <= stated * (1.0 + 1e-9)


def blank_client(data):
    """Return the data without client 1's training set: its features are all zero."""
    x = data.x_train.copy()
    x[:SAMPLES] = 0.0
    return replace(data, x_train=x)


FEDAVG = {
    "algorithm": "dp-fedavg",
    "clients": CLIENTS,
    "split": "contiguous",
    "rounds": 3,
    "budget": "per-release:5",
    "local_updates": 4,
    "learning_rate": 0.5,
    "clip": 0.5,
}


def test_dp_fedavg_moves_by_one_clipped_update_over_the_active_clients():
    """A client's whole training set changes the mean by at most clip/A."""
    data = neighbours("squares", "replace-one")[0]
    settings = made.plain(**FEDAVG)
    draws = dict.fromkeys(range(1, 4), 0.0)
    ratios = []
    first, ledger = play(data, settings, dict(draws))
    _scales_are_charged(ledger, 3)
    for t in range(1, 4):
        second, _ = play(blank_client(data), settings, draws)
        deviation = second[t - 1].w - first[t - 1].w
        ratios.append(np.linalg.norm(deviation) / ledger.stated[0][t - 1][0])
        draws[t] = draws[t] - deviation[None]
    assert ledger.stated[0][0][0] == pytest.approx(0.5 / CLIENTS)
    assert REACHED <= max(ratios) <= 1.0 + 1e-9


@pytest.mark.parametrize("active", [1, 2])
def test_dp_fedavg_clips_updates_and_divides_by_the_active_clients(active):
    """Without noise a round's step is the mean of updates of norm ``clip`` at most."""
    data = neighbours("squares", "replace-one")[0]
    data = replace(data, y_train=np.full(len(data.y_train), 1e6))
    settings = made.plain(**FEDAVG | {"sampled_clients": active})
    rounds, ledger = play(data, settings, dict.fromkeys(range(1, 4), 0.0))
    models = np.array([np.zeros((FEATURES, 1)), *(done.w for done in rounds)])
    steps = np.linalg.norm(np.diff(models, axis=0), axis=(1, 2))
    assert steps.max() <= 0.5 * (1.0 + 1e-9)
    if active == 1:
        assert steps == pytest.approx([0.5] * 3)
    stated = [sound for client in ledger.stated.values() for sound, _ in client]
    assert len(stated) == 3 * active
    assert stated == pytest.approx([0.5 / active] * len(stated))


def test_an_update_that_is_no_number_counts_as_none():
    """A client whose local steps diverge changes the mean by no more than any other."""
    updates = np.array([np.inf, np.nan, 1e200, -3.0, 0.5]).reshape(5, 1, 1)
    with np.errstate(over="ignore"):
        actual = clipped(updates, 1.0)
    assert actual.ravel().tolist() == [0.0, 0.0, 0.0, -1.0, 0.5]


def wide(task="regression", features=3000, rows=6):
    """Return data with enough features to estimate the noise scale of one round to 2 %."""
    random = np.random.default_rng(1)
    x, _ = clip_rows(random.normal(size=(rows, features)), 1.0)
    y = random.choice([-1, 1], rows)
    y = y.astype(float) if task == "regression" else y
    return Dataset("made", task, x, y, x[:0], y[:0], 2 if task == "binary" else 0, 1.0)


NOISY = ADDITIVE | {
    "dp-fedavg": {"algorithm": "dp-fedavg", "local_updates": 2},
    "dp-fedavg-sampled": {"algorithm": "dp-fedavg", "clients": 3, "sampled_clients": 2},
}


@pytest.mark.parametrize("name", NOISY)
def test_noise_has_the_charged_scale(name):
    """Value and release differ by multiplier times sensitivity, independently per release."""
    clients = NOISY[name].get("clients", 3 if "graph" in NOISY[name] else 1)
    settings = made.plain(
        **{"split": "contiguous", "budget": "per-release:1", "adjacency": "zero-out", "clip": 0.5}
        | NOISY[name]
        | {"clients": clients, "rounds": 3}
    )
    noisy, ledger = play(wide(), settings, {})
    drawn = []
    for t in (1, 3):
        silent, _ = play(wide(), settings, {t: 0.0})
        noise = released(settings, noisy[t - 1]) - released(settings, silent[t - 1])
        client = next(p for p, made in ledger.made.items() if len(made) == 3)
        expected = ledger.made[client][t - 1].parameter * ledger.stated[client][t - 1][0]
        assert np.std(noise) == pytest.approx(expected, rel=0.06)
        drawn.extend(noise)
    assert related(drawn) < 0.1


def related(draws):
    """Return the largest correlation of any two draws."""
    computed = np.corrcoef(np.reshape(draws, (len(draws), -1)))
    return np.abs(computed - np.eye(len(draws))).max()


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("perturbation", ["objective", "output"])
def test_ryu_kim_noise_has_the_charged_scale(monkeypatch, perturbation, mechanism):
    """Noise of a gradient or a minimizer has the charged scale, independently per release."""
    kind = {"gaussian": Gaussian, "laplace": Laplace}[mechanism]
    perturb, drawn = kind.perturb, []

    def watched(self, value, stream):
        noisy = perturb(self, value, stream)
        drawn.append(noisy - value)
        return noisy

    monkeypatch.setattr(kind, "perturb", watched)
    settings = made.plain(
        mechanism=mechanism,
        perturbation=perturbation,
        budget="per-release:1",
        rounds=2,
        local_updates=2,
        clients=2,
        clip=0.5,
        penalty="0.5",
        workers=1,
    )
    _, ledger = play(wide(), settings, {})
    assert related(drawn) < 0.1
    expected = ledger.made[0][-1].parameter * ledger.stated[0][-1][0]
    spread = math.sqrt(2.0) if mechanism == "laplace" else 1.0
    assert np.std(drawn[-1]) == pytest.approx(spread * expected, rel=0.06)


def test_dual_perturbation_has_the_noise_of_its_certificate():
    """The noise is read off the minimiser: b = -grad F(v); its scale gives the charge."""
    data, rho, modulus = wide("binary"), 0.5, 0.3
    settings = made.plain(
        algorithm="dvp",
        clients=1,
        rounds=2,
        penalty=str(rho),
        regularizer=f"l2:{modulus}",
        budget="per-release:1",
    )
    rounds, ledger = play(data, settings, {})
    v, y = rounds[0].local[0][:, 0], data.y_train
    slope = -data.x_train.T @ (y / (1.0 + np.exp(y * (data.x_train @ v)))) / len(y)
    noise = -(slope + (rho + modulus) * v)
    multiplier = np.std(noise) / (2.0 * 1.0 / len(y))
    what = ledger.made[0][0]
    assert what.kind == "approximate" and 4 * what.second <= settings.total_delta * (1 + 1e-12)
    # a twentieth of epsilon and half of delta are the covering noise's
    expected = 0.05 + certificate(multiplier, what.second / 2, 0.25, len(y), rho + modulus)
    assert what.parameter == pytest.approx(expected, rel=0.06)


def test_dual_perturbation_covers_what_the_solver_errs(monkeypatch):
    """Iterates within 1e-6/rho of a minimizer are distinguishable at most by the cover's share."""
    minimizer, minimise = [], admm.minimise_locally

    def watched(*given):
        minimizer.append(minimise(*given))
        return minimizer[-1]

    monkeypatch.setattr(admm, "minimise_locally", watched)
    rho = 0.5
    settings = made.plain(
        algorithm="dvp",
        clients=1,
        rounds=1,
        penalty=str(rho),
        regularizer="l2:0.3",
        budget="per-release:1",
    )
    rounds, ledger = play(wide("binary"), settings, {})
    cover = np.std(rounds[0].local - minimizer[0])
    event = dp_accounting.GaussianDpEvent(cover / (2e-6 / rho))
    spent = pld.PLDAccountant().compose(event).get_epsilon(ledger.made[0][0].second / 2)
    assert 0.045 < spent < 0.055


@pytest.mark.parametrize("sensitivity", ["proven", "published"])
def test_fedspd_starts_from_what_it_released(monkeypatch, sensitivity):
    """Under ``sound`` other data and the same release give the same next start and dual."""
    starts = []
    original = fedspd_dp.FedspdDp.local

    def watched(self, t, state):
        iterate, _, dual, shown = state
        starts.append(np.concatenate([iterate.ravel(), dual.ravel(), shown.mean(axis=0).ravel()]))
        return original(self, t, state)

    monkeypatch.setattr(fedspd_dp.FedspdDp, "local", watched)
    data = neighbours("logistic", "replace-one")[0]
    other = replace(data, x_train=-np.roll(data.x_train, 1, axis=1), y_train=-data.y_train)
    settings = settings_for("fedspd", rounds=2, sensitivity=sensitivity, budget="per-release:1")
    draws = {1: 0.0, 2: 0.0}
    first, _ = play(data, settings, dict(draws))
    second, _ = play(other, settings, dict(draws))
    difference = first[0].local - second[0].local
    assert np.abs(difference).max() > 1e-3
    # y = 2x + public, and under ``paper`` noise is added to y alone
    play(other, settings, draws | {1: 2.0 * difference})
    before, after = starts[1], starts[5]
    if sensitivity == "proven":
        assert np.allclose(before, after, atol=1e-12)
    else:
        assert np.abs(before - after).max() > 1e-3


def task_for(algorithm="fedspd-dp", samples=40, **given):
    base = {"algorithm": algorithm, "clients": 1, "budget": "per-release:1"}
    return make_task(made.binary(samples=samples), made.plain(**base | given))[0]


def test_a_sample_is_in_a_secret_batch_at_the_rate_that_amplifies():
    """1 - (1 - b/m)^Q for Q secret batches, by sampling and adjacency."""

    def rate(samples, steps, **given):
        actual = amplification(task_for(batch=10, **given), samples, steps)
        return None if actual is None else (pytest.approx(actual.rate), actual.kind)

    for adjacency, kind in (("zero-out", "sampled-gaussian"), ("replace-one", "replaced-gaussian")):
        assert rate(40, 1, adjacency=adjacency) == (0.25, kind)
        assert rate(40, 3, adjacency=adjacency) == (1 - 0.75**3, kind)
        assert rate(10, 2, adjacency=adjacency) is None  # it is in every batch
        assert rate(40, 3, adjacency=adjacency, sampling="with-replacement") is None
    assert rate(40, 1, sampling="without-replacement") == (0.25, "drawn-gaussian")
    assert rate(40, 1, sampling="without-replacement", adjacency="zero-out") is None
    assert amplification(task_for(), 40, 3) is None


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement", "with-replacement"])
def test_amplification_is_charged_where_there_is_a_rate(sampling):
    """A run charges the sampled mechanism at the rate of its Q batches, or the plain one."""
    for name, steps in (("fedspd", 3), ("dpsgd", 1)):
        settings = settings_for(name, batch=2, sampling=sampling, adjacency="zero-out", rounds=1)
        data = neighbours("logistic", "zero-out")[0]
        (what,) = play(data, settings, {1: 0.0})[1].made[0]
        if sampling == "poisson":
            assert what.kind == "sampled-gaussian"
            assert what.second == pytest.approx(1.0 - (1.0 / 3.0) ** steps)
        else:
            assert (what.kind, what.second) == ("gaussian", 0.0)


def test_batches_are_drawn_as_they_are_charged():
    """Poisson: each sample independently with chance b/m. Else b samples, or b single draws."""
    random = np.random.default_rng(0)
    draws = {}
    for how in ("poisson", "without-replacement", "with-replacement"):
        task = task_for(batch=10, sampling=how)
        draws[how] = np.array([draw_weights(task, 40, random) for _ in range(2000)])
    for computed in draws.values():
        assert np.abs(computed.mean(axis=0) - 0.25).max() < 0.06
    assert draws["poisson"].max() == draws["without-replacement"].max() == 1.0
    # a binomial number of samples
    assert draws["poisson"].sum(axis=1).var() == pytest.approx(40 * 0.25 * 0.75, rel=0.15)
    for how in ("without-replacement", "with-replacement"):
        assert (draws[how].sum(axis=1) == 10.0).all()
    assert draws["with-replacement"].max() > 1.0
    assert (draw_weights(task_for(), 40, random) == 1.0).all()


def test_step_sensitivity_counts_a_sample_as_often_as_it_is_drawn():
    """Sample gradients of norm 3 over the public divisor, b of them with replacement."""
    bound = 3.0
    assert step_sensitivity(task_for(), 40, bound) == pytest.approx(2 * 3 / 40)
    assert step_sensitivity(task_for(adjacency="zero-out"), 40, bound) == pytest.approx(3 / 40)
    for sampling, expected in (
        ("poisson", 2 * 3 / 10),
        ("without-replacement", 2 * 3 / 10),
        ("with-replacement", 2 * 3),
    ):
        task = task_for(batch=10, sampling=sampling)
        assert step_sensitivity(task, 40, bound) == pytest.approx(expected)


def test_paper_reach_is_lemma_2s():
    """4 G for one step, 4 Q G/(Q - 1) for more, with G = 1."""
    assert [paper_reach(q) for q in (1, 2, 5)] == pytest.approx([4.0, 8.0, 5.0])


@pytest.mark.parametrize("convex", [True, False])
@pytest.mark.parametrize("smoothness", [0.0, 4.0, 6.0, 9.0])
def test_sound_sensitivity_is_reached_step_by_step(smoothness, convex):
    """Two iterates under the worst function of smoothness L; gradients differ by s, the worst case.

    The slope is -L x where it may be nonconvex; else L x, or zero while L is small.
    """
    gamma, rho, item, steps = 2.0, 0.7, 0.3, 5
    slope = -smoothness if not convex else smoothness if smoothness > 2.0 * gamma else 0.0
    x, other, gaps = 0.0, 0.0, []
    for _ in range(steps):
        push = math.copysign(item / 2.0, (gamma - slope) * (x - other))
        x = (gamma * x - slope * x + push) / (gamma + rho)
        other = (gamma * other - slope * other - push) / (gamma + rho)
        gaps.append(abs(x - other))
    computed = sound_sensitivity(steps, gamma, rho, item, smoothness, convex=convex)
    assert computed == pytest.approx(2.0 * sum(gaps) / steps)


def test_smoothness_beyond_two_gamma_stretches():
    """x - grad f(x)/gamma is non-expansive up to L = 2 gamma, and L/gamma - 1 beyond."""
    flat, edge, steep = (sound_sensitivity(2, 2.0, 0.0, 1.0, s) for s in (0.0, 4.0, 8.0))
    # d_1 = 1/2, d_2 = stretch/2 + 1/2
    assert flat == edge == pytest.approx(0.5 + 1.0)
    assert steep == pytest.approx(0.5 + (3.0 * 0.5 + 0.5))


def test_a_poisson_batch_may_be_every_sample():
    """Its sum is over b, so its curvature is up to m/b times a sample's."""
    for sampling, share in (("poisson", 4.0), ("without-replacement", 1.0)):
        task = task_for(batch=10, sampling=sampling)
        each = task.clients.loss.smoothness(task.norm)
        assert batch_smoothness(task, 40) == pytest.approx(share * each)
    assert batch_smoothness(task_for(), 40) == pytest.approx(0.25)


def test_fedspd_states_what_its_largest_batch_does(monkeypatch):
    """One step on the sample and one on all others, 3.9 b of them, increase its change.

    Batches of b samples would not: the least-squares steps are non-expansive there.
    """
    samples, batch, norm, updates = 40, 10, 2.2, 2
    alone = (np.arange(samples) == 0).astype(float)
    drawn = cycle([alone, 1.0 - alone])
    monkeypatch.setattr(dpsgd, "draw_weights", lambda *_: next(drawn))
    x, y = np.full((samples, 1), norm), np.where(alone, 1e3, 0.0)
    data = Dataset("made", "regression", x, y, x[:0], y[:0], 0, norm)
    settings = made.plain(
        algorithm="fedspd-dp",
        clients=1,
        split="contiguous",
        batch=batch,
        clip=0.5,
        penalty="0.01",
        local_updates=updates,
        rounds=1,
        budget="per-release:5",
    )
    (first,), ledger = play(data, settings, {1: 0.0})
    (second,), _ = play(replace(data, y_train=-y), settings, {1: 0.0})
    distance = np.abs(released(settings, first) - released(settings, second)).item()
    task = make_task(data, settings)[0]
    gamma, smoothness = fedspd_dp.proximity(task, 1, 0.01), 2.0 * norm**2
    assert smoothness < 2.0 * gamma
    entry = 2.0 * 0.5 / batch
    assert distance > 1.5 * sound_sensitivity(updates, gamma, 0.01, entry, smoothness)
    assert distance <= ledger.stated[0][0][0]


@pytest.mark.parametrize("kind", ["softmax", "logistic"])
def test_fedspd_takes_a_clipped_loss_of_several_outputs_for_nonconvex(kind):
    """Then a step stretches by 1 + L/gamma; clipped logistic loss is still convex."""
    data = neighbours(kind, "zero-out")[0]
    settings = settings_for("fedspd", clip=0.5)
    _, ledger = play(data, settings, {})
    task = make_task(data, settings)[0]
    gamma, item = fedspd_dp.proximity(task, 1, 0.5), 2.0 * 0.5 / SAMPLES
    curvature, growth = {"softmax": 0.5, "logistic": 0.25}[kind], 1.0
    if kind == "softmax":
        growth += curvature / gamma
    first = item / (gamma + 0.5)
    second = (gamma * growth * first + item) / (gamma + 0.5)
    third = (gamma * growth * second + item) / (gamma + 0.5)
    assert ledger.stated[0][0][0] == pytest.approx(2.0 * (first + second + third) / 3.0)


@pytest.mark.parametrize("multiplier", [0.0, math.inf, math.nan])
def test_a_release_without_usable_noise_certifies_nothing(multiplier):
    """No noise, or none that is a number, is an uncertified release."""
    task = task_for("dp-admm")
    task.tally.add(0, task.release_of(0.1, "x", multiplier=multiplier))
    ((what, count),) = task.tally.charges[0].items()
    assert (what.kind, count) == ("uncertified", 1)


@pytest.mark.parametrize(
    ("data", "given"),
    [
        (made.binary, {"algorithm": "dvp", "regularizer": "l1:0.01"}),
        (made.multiclass, {"algorithm": "dvp", "regularizer": "l2:0.01"}),
        (made.multiclass, {"algorithm": "pvp", "clip": 0.5}),
    ],
)
def test_what_is_not_proved_is_not_certified(data, given):
    """Nonsmooth or several outputs under dvp, clipped gradients of several under pvp."""
    settings = made.plain(
        clients=3, rounds=2, penalty="1", budget="per-release:1", sensitivity="published", **given
    )
    with pytest.raises(InputError, match="certified"):
        learn(data(samples=60), replace(settings, sensitivity="proven"))
    result = learn(data(samples=60), settings).privacy
    assert result["total"]["epsilon"] == math.inf
    assert result["per_release"]["certified"] == math.inf
    assert result["notes"]


@pytest.mark.parametrize(
    ("data", "given"),
    [
        (made.binary, {"algorithm": "dvp", "regularizer": "l2:0.01"}),
        (made.binary, {"algorithm": "pvp", "clip": 0.5}),
        (made.multiclass, {"algorithm": "pvp"}),
    ],
)
def test_what_is_proved_next_to_it_is_certified(data, given):
    """One output, or no clip: the total is finite and there is nothing to note."""
    settings = made.plain(clients=3, rounds=2, penalty="1", budget="per-release:1", **given)
    outcome = learn(data(samples=60), settings).privacy
    assert 1.0 < outcome["total"]["epsilon"] < 4.0
    assert outcome["per_release"]["certified"] == pytest.approx(1.0, rel=1e-3)
    assert outcome["notes"] == []


def test_every_printed_value_is_its_worst_clients():
    """A client sampled at rate 1 and one at 1/20: the totals are alike, the noise is not."""
    data = replace(made.binary(samples=420), writer_of=np.repeat([0, 1], [20, 400]))
    settings = made.plain(
        algorithm="dpsgd",
        adjacency="zero-out",
        batch=20,
        split="writer",
        rounds=20,
        budget="total:1,1e-5",
    )
    ledger = play(data, settings, {})[1]
    first, other = (dict(ledger.charges[p]) for p in (0, 1))
    rhos = [sum(n / (2 * c.parameter**2) for c, n in t.items()) for t in (first, other)]
    assert rhos[1] > 2.0 * rhos[0]  # less noise: amplification makes up for it
    run_result = learn(data, settings).privacy
    assert run_result["zcdp"] is None  # it would be the total without amplification
    certified = [max(epsilon_of(c, settings.release_delta) for c in t) for t in (first, other)]
    assert run_result["per_release"]["certified"] == pytest.approx(max(certified))
    assert 0.97 < run_result["total"]["epsilon"] <= 1.0


@pytest.mark.parametrize("norm", [1, 2])
def test_gradient_moves_as_far_as_two_opposite_samples(norm):
    """x and -x under scores +-(b, 0, -b): both residuals push the middle class down."""
    random = np.random.default_rng(0)
    corner, z = np.ones((1, 6)), 30.0 * np.outer(np.ones(6), [1.0, 0.0, -1.0]).reshape(-1)
    rest, labels = random.random((4, 6)), [1, 0, 1, 2, 0]
    data = Dataset(
        "made",
        "multiclass",
        np.concatenate([corner, rest]),
        np.array(labels),
        rest[:0],
        np.array([], int),
        3,
        math.sqrt(6.0),
    )
    targets = targets_of(data, data.y_train, np.float64)
    problems = [
        ClientProblem(
            "1", 0, np.concatenate([x, rest]), targets, SOFTMAX, data.norm, 5, Regularizer()
        )
        for x in (corner, -corner)
    ]
    here, there = (problem.gradient(z, np.ones(5)) for problem in problems)
    stated = problems[0].gradient_sensitivity(SampleAdjacency("replace-one"), norm).value
    assert REACHED * stated <= np.linalg.norm(here - there, norm) <= stated * (1.0 + 1e-12)


SECURE = NOISY | {
    f"ryu-kim-{p}": {"perturbation": p, "penalty": "0.5"} for p in ("objective", "output")
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "fedspd-poisson" else name
        for name in SECURE
    ],
)
def test_secure_noise_has_the_scale_that_is_charged_and_no_seed(name):
    """Twice the same seed, other noise; its spread and OpenDP's own map give the charge."""
    clients = SECURE[name].get("clients", 3 if "graph" in SECURE[name] else 1)
    settings = made.plain(
        **{"split": "contiguous", "budget": "total:2,1e-5", "adjacency": "zero-out", "clip": 0.5}
        | SECURE[name]
        | {"clients": clients, "rounds": 2, "noise": "secure"}
    )
    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        perturb = SecureGaussian.perturb

        def watched(self, value, stream):
            noisy = perturb(self, value, stream)
            drawn.append((noisy - value, self.scale))
            return noisy

        patch.setattr(SecureGaussian, "perturb", watched)
        _, ledger = play(wide(features=300), settings, {})
        first = drawn[0][0]
        play(wide(features=300), settings, {})
    assert not np.array_equal(first, drawn[len(drawn) // 2][0])
    for noise, scale in drawn:
        assert np.std(noise) == pytest.approx(scale, rel=0.2)
    together = np.concatenate([np.ravel(noise / scale) for noise, scale in drawn])
    assert np.std(together) == pytest.approx(1.0, rel=0.1)
    client = next(iter(ledger.made))
    for what, (sound, scale) in zip(ledger.made[client], ledger.stated[client], strict=True):
        assert what.kind in ("gaussian", "sampled-gaussian")
        assert what.parameter == pytest.approx(scale / sound, rel=1e-3)
        assert what.parameter <= scale / sound
    assert privacy_certificate(settings, 0.0, ledger)["total"]["epsilon"] <= 2.0


@pytest.mark.parametrize("given", [{"algorithm": "dvp"}, {"sensitivity": "published"}])
def test_secure_noise_is_refused_where_nothing_covers_it(given):
    with pytest.raises(InputError, match="noise = 'secure': must be"):
        made.plain(**{"noise": "secure", "budget": "per-release:1"} | given)


def test_proximity_and_what_a_batch_moves_by_are_settings():
    """Gamma is gamma_0 sqrt(t), and lemma 2's numerator is over the batch where asked."""
    assert paper_reach(5, 10) == pytest.approx(paper_reach(5) / 10)
    task = task_for(rounds=2, proximity=3.0)
    assert fedspd_dp.proximity(task, 4, 0.5) == pytest.approx(6.0)
    first, second = (fedspd_dp.proximity(task_for(diameter=d), 1, 0.5) for d in (1.0, 23.0))
    assert first / second == pytest.approx(23.0)


def test_sums_under_secure_noise_round_by_less_than_is_charged_for():
    """Adjacent data at the stated distance, against exact sums; float32 exceeds the margin here."""
    pytest.importorskip("opendp")
    random = np.random.default_rng(0)
    samples, clip = 8_000, 0.5
    x = np.abs(random.normal(size=(samples, 40)))
    x = (0.999999 * x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    y = np.where(np.arange(samples) < samples - 1, 1, -1)
    data = Dataset("a", "binary", x, y, x[:0], y[:0], 2, 1.0)
    excess = {}
    for noise in ("simulated", "secure"):
        settings = made.plain(
            algorithm="dpsgd", clip=clip, clients=1, rounds=1, noise=noise, budget="total:1,1e-5"
        )
        values = []
        for row in random.integers(0, samples - 1, 10):
            changed = x.copy()
            changed[row] *= -1.0
            sums = [
                samples * to_numpy(stored.gradients(np.zeros((1, 40, 1), stored.x.dtype), clip))[0]
                for stored in (
                    make_task(replace(data, x_train=first), settings)[0].clients
                    for first in (x, changed)
                )
            ]
            exact = float(np.linalg.norm(x[row].astype(np.float64)))
            exact = 2.0 * min(clip, 0.5 * exact)
            values.append(abs(np.linalg.norm(sums[0] - sums[1]) / exact - 1.0))
        excess[noise] = max(values)
    assert excess["secure"] < MARGIN < excess["simulated"]
