"""A torch module instead of a linear model, compared with the linear one and plain autograd."""

from __future__ import annotations

import math

import made
import numpy as np
import pytest

from gridpriv.core.errors import InputError
from gridpriv.learning import learn
from gridpriv.learning.clients import make_clients, to_numpy
from gridpriv.learning.datasets.base import split
from gridpriv.learning.modules import module_clients
from gridpriv.privacy.accounting import total_epsilon

torch = pytest.importorskip("torch")
nn = torch.nn


def network(inputs=6, outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs))


def clients_of(data, module, clients=3):
    linear = make_clients(data, split(data, "iid", clients, 0))
    return linear, module_clients(linear, module, data, "torch")


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("data", [made.multiclass(), made.binary()])
def test_a_linear_layer_is_the_linear_model(data, clip):
    """Gradients, losses and errors of Linear without bias are those of the model (J, K)."""
    outputs = data.classes if data.task == "multiclass" else 1
    module = nn.Linear(data.features, outputs, bias=False)
    linear, modules = clients_of(data, module)
    random = np.random.default_rng(0)
    w = random.normal(size=(3, data.features, outputs)).astype(data.x_train.dtype)
    flat = torch.as_tensor(w, dtype=torch.float32).mT.reshape(3, -1, 1)
    expected = linear.gradients(w, clip)
    gradient = modules.gradients(flat, clip).reshape(3, outputs, data.features).mT
    assert np.allclose(to_numpy(gradient), expected, atol=3e-5)
    assert np.allclose(modules.values(flat), linear.values(w), atol=1e-6)
    assert np.allclose(modules.errors(data, flat), linear.errors(data, w))


def test_clipped_sums_are_those_of_one_gradient_at_a_time():
    """Plain backward passes, one sample each, as the second implementation."""
    data, module, clip = made.multiclass(), network(), 0.05
    _, modules = clients_of(data, module)
    x, targets = modules.part(1)
    total = torch.zeros(modules.shape[0])
    for row, target in zip(x[:7], targets[:7], strict=True):
        module.zero_grad()
        nn.functional.cross_entropy(module(row[None]), target.argmax()[None]).backward()
        item = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
        total += item * min(1.0, clip / float(item.norm()))
    weights = np.zeros(len(x))
    weights[:7] = 1.0
    actual = modules.weighted(1, modules.start()[1], weights, clip)[:, 0]
    assert torch.allclose(actual, total, atol=2e-6)


@pytest.mark.parametrize("strange", [math.nan, math.inf, 1e30])
def test_one_sample_moves_a_sum_by_no_more_than_the_clip(strange):
    """For any sample: also where its gradient is NaN."""
    data, clip = made.multiclass(), 0.05
    _, modules = clients_of(data, nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    every, w = np.ones(int(modules.counts[0])), modules.start()[0]
    remaining = every.copy()
    remaining[4] = 0.0
    modules.x[4] = strange
    changed = modules.weighted(0, w, every, clip) - modules.weighted(0, w, remaining, clip)
    assert float(changed.norm()) <= clip * (1.0 + 1e-6)


def test_a_private_run_learns_and_states_what_it_costs():
    data = made.multiclass(samples=1500)
    settings = made.plain(
        algorithm="dpsgd",
        clip=1.0,
        clients=3,
        rounds=30,
        batch=100,
        adjacency="zero-out",
        budget="total:8,1e-5",
        learning_rate=1.0,
        evaluate_every=30,
    )
    result = learn(data, settings, module=network())
    assert result.privacy["total"]["epsilon"] <= 8.0
    assert result.privacy["releases_per_client"] == 30
    first = float(np.mean(data.y_test != np.bincount(data.y_train).argmax()))
    assert result.final["test_error"] < 0.7 * first
    # against the accountant's own composition of what was drawn
    (scale,) = {row["scale"] for row in result.privacy["sensitivity"]}
    multiplier = scale / (1.0 / 100)
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent, pld

    event = SelfComposedDpEvent(PoissonSampledDpEvent(0.2, GaussianDpEvent(multiplier)), 30)
    spent = pld.PLDAccountant().compose(event).get_epsilon(1e-5)
    assert result.privacy["total"]["epsilon"] == pytest.approx(spent, rel=1e-3)
    assert total_epsilon({}, 1e-5) == 0.0


def test_the_given_module_is_left_as_it_was():
    module = network().train()
    before = [p.clone() for p in module.parameters()]
    settings = made.plain(algorithm="dpsgd", clip=1.0, clients=2, rounds=2)
    learn(made.multiclass(), settings, module=module)
    assert module.training
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert all(p.requires_grad for p in module.parameters())


class Broken(nn.Module):
    """Its gradient at zero is not finite."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return torch.sqrt(torch.abs(self.layer(x) - self.layer(x).detach()))


@pytest.mark.parametrize(
    ("module", "given", "words"),
    [
        (network(), {"clip": None}, "clip = None"),
        (network(), {"algorithm": "pvp"}, "algorithm = 'pvp'"),
        (network(), {"algorithm": "ryu-kim"}, "algorithm = 'ryu-kim'"),
        (network(outputs=4), {}, r"module output = \(2, 4\)"),
        (network(inputs=5), {}, "takes no rows of 6 features"),
        (nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), {}, "BatchNorm1d"),
        (Broken(), {}, "finite numbers"),
    ],
)
def test_a_module_that_cannot_be_certified_is_refused(module, given, words):
    settings = made.plain(**{"algorithm": "dpsgd", "clip": 1.0, "clients": 2} | given)
    with pytest.raises(InputError, match=words):
        learn(made.multiclass(), settings, module=module)


class Layer(nn.Module):
    """A linear layer behind a function of the batch."""

    def __init__(self, before):
        super().__init__()
        self.linear, self.before, self.kept = nn.Linear(6, 3), before, 0.0

    def forward(self, x):
        return self.linear(self.before(self, x))


def centred(least):
    return lambda _, x: x - x.mean(dim=0) if len(x) >= least else x


@pytest.mark.parametrize(
    "before",
    [
        centred(2),
        centred(3),
        centred(16),
        centred(257),
        lambda _, x: torch.cat([x[:1], x[1:] + x[:1]]),
        lambda _, x: x + torch.roll(x, -1, 0),
    ],
)
def test_a_layer_that_mixes_a_batch_is_refused(before):
    settings = made.plain(algorithm="dpsgd", clip=1.0, rounds=1)
    with pytest.raises(InputError, match="does not depend on the other rows"):
        learn(made.multiclass(), settings, module=Layer(before))


def record_mean(layer, x):
    before, layer.kept = layer.kept, x.mean()
    return x + before


@pytest.mark.parametrize("before", [record_mean, lambda _, x: x + torch.rand_like(x)])
def test_a_module_with_a_state_or_random_numbers_is_refused(before):
    settings = made.plain(algorithm="dpsgd", clip=1.0, rounds=1)
    with pytest.raises(InputError, match="no gradient of one sample"):
        learn(made.multiclass(), settings, module=Layer(before))


def test_parameters_are_float32_or_float64_and_trained():
    settings = made.plain(algorithm="dpsgd", clip=1.0, rounds=1)
    frozen = network()
    frozen[0].weight.requires_grad_(False)
    with pytest.raises(InputError, match="all trained: register"):
        learn(made.multiclass(), settings, module=frozen)
    for module in (network().bfloat16(), network().half(), Layer.__base__()):
        with pytest.raises(InputError, match="module parameters"):
            learn(made.multiclass(), settings, module=module)


def test_secure_noise_takes_a_module_in_double_precision_only():
    pytest.importorskip("opendp")
    settings = made.plain(algorithm="dpsgd", clip=1.0, rounds=1, clients=2, noise="secure")
    with pytest.raises(InputError, match=r"call module\.double"):
        learn(made.multiclass(), settings, module=network())
    result = learn(made.multiclass(), settings, module=network().double())
    assert result.privacy["total"]["epsilon"] <= 1.0


def test_the_last_chunk_of_a_client_is_clipped_as_the_others(monkeypatch):
    """One sample above a chunk, and two chunks and one: sums are those of one chunk."""
    data = made.multiclass(samples=257)
    _, modules = clients_of(data, network(), 1)
    w, every = modules.start()[0], np.ones(257)
    whole = modules.weighted(0, w, every, 0.01)
    assert float(whole.norm()) <= 257 * 0.01
    for chunk in (1000, 128, 7):
        monkeypatch.setattr("gridpriv.learning.modules.CHUNK", chunk)
        assert torch.allclose(modules.weighted(0, w, every, 0.01), whole, atol=1e-6)
