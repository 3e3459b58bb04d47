"""Secure sums: exact under dropouts, opaque to colluding clients, as noisy as charged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import ndtr

from gridpriv.consensus.transport import InProcess, Workers
from gridpriv.core.errors import InputError
from gridpriv.learning.secure_sum import (
    SumClient,
    SumRule,
    expanded,
    mean_of,
    on_grid,
    recovered,
    secure_sum,
    shared_gaussian,
)
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity

DIMENSION = 40


def private_values(clients: int, seed: int = 0) -> np.ndarray:
    """Return whole numbers of either sign, (clients, d)."""
    random = np.random.default_rng(seed)
    return random.integers(-(10**9), 10**9, (clients, DIMENSION)).astype(float)


def sum_clients(rule: SumRule, values: np.ndarray, share: float = 0.0) -> list[SumClient]:
    return [SumClient(i, rule, share, own) for i, own in enumerate(values)]


@dataclass(frozen=True)
class Factory:
    """Makes clients in worker processes."""

    rule: SumRule
    values: np.ndarray

    @property
    def sizes(self) -> Sequence[int]:
        return [1] * self.rule.clients

    def make(self, positions: Sequence[int]) -> list[SumClient]:
        return [SumClient(i, self.rule, 0.0, self.values[i]) for i in positions]

    def resets(self) -> list[None]:
        return []


def test_the_sum_is_exact_across_processes() -> None:
    """Clients in two worker processes, the messages through the transport of the grid's agents."""
    rule, values = SumRule(5, 1), private_values(5)
    transport = Workers(Factory(rule, values), 2)
    try:
        total = secure_sum(transport, rule, DIMENSION)
    finally:
        transport.close()
    np.testing.assert_array_equal(mean_of(total, 1.0), values.sum(axis=0))


@pytest.mark.parametrize("schedule", range(20))
def test_clients_are_lost_at_any_stage(schedule: int) -> None:
    """Twenty schedules of losses: the sum is of those whose masked value arrived, or refused."""
    random = np.random.default_rng(schedule)
    clients = int(random.integers(3, 9))
    rule = SumRule(clients, 1, int(random.integers(0, clients - 1)))
    count = int(random.integers(0, clients + 1))
    stages = random.integers(0, 4, count)
    who = random.permutation(clients)[:count]
    lost = [{int(i) for i in who[stages == stage]} for stage in range(4)]
    values = private_values(clients, schedule)
    transport = InProcess(sum_clients(rule, values))
    if count > rule.dropouts:
        with pytest.raises(InputError, match="may be"):
            secure_sum(transport, rule, DIMENSION, lost)
        return
    arrived = [i for i in range(clients) if i not in lost[0] | lost[1] | lost[2]]
    total = secure_sum(transport, rule, DIMENSION, lost)
    np.testing.assert_array_equal(mean_of(total, 1.0), values[arrived].sum(axis=0))


def test_colluding_clients_do_not_unmask_another() -> None:
    """The server and t clients share all their data; the rest of a value is uniform."""
    rule, values = SumRule(6, colluding=3, dropouts=1), np.zeros((6, 4000))
    clients = sum_clients(rule, values)
    keys = {i: item.keys() for i, item in enumerate(clients)}
    given = {i: item.shares(keys) for i, item in enumerate(clients)}
    sealed = [{j: given[j][i] for j in given if j != i} for i in range(6)]
    words = clients[0].masked(sealed[0])
    for i in (1, 2, 3):
        clients[i].masked(sealed[i])
    left = words
    for i in (1, 2, 3):  # their pairwise masks are known to the server
        left = left - expanded(clients[i]._agreed(clients[i]._mask, 0, 0), len(words))
    shares = {i: clients[i]._received[0] for i in (1, 2, 3)}
    half = len(shares[1]) // 2
    guess = recovered({i: pair[half:] for i, pair in shares.items()})
    assert guess != clients[0]._seed
    left = left - expanded(guess, len(words))
    counts = np.bincount((left >> np.uint64(60)).astype(int), minlength=16)
    assert ((counts - 250.0) ** 2 / 250.0).sum() < 45.0  # chi-square of 15: one in 10,000
    # with a share more than colluders have it is unmasked: the test sees a success
    remaining = {i: clients[i]._received[0][half:] for i in (1, 2, 3)}
    clients[4].masked(sealed[4]), clients[5].masked(sealed[5])
    remaining |= {4: clients[4]._received[0][half:], 5: clients[5]._received[0][half:]}
    assert recovered(remaining) == clients[0]._seed


def test_a_client_reveals_once_and_never_to_few() -> None:
    rule = SumRule(4, 1, 1)
    clients = sum_clients(rule, private_values(4))
    secure_sum(InProcess(clients), rule, DIMENSION)
    with pytest.raises(InputError, match="once a round"):
        clients[0].reveal([0, 1, 2, 3])
    fresh = sum_clients(rule, private_values(4))[0]
    with pytest.raises(InputError, match="3 masked values"):
        fresh.reveal([0, 1])


def test_the_noise_that_colluders_do_not_know_is_of_full_strength() -> None:
    """Their own shares taken out, the sum has the noise of a trusted server, 10 % for chance."""
    rule = SumRule(5, colluding=2, dropouts=1)
    noise = shared_gaussian(1.0, 0.5, rule, DIMENSION)
    random = np.random.default_rng(1)
    known = random.normal(scale=noise.share, size=(rule.honest, 4000)).sum(axis=0)
    assert np.std(known) * noise.step == pytest.approx(noise.noise.scale, rel=0.1)
    seen = noise.perturb(np.zeros(4000), lambda: np.random.default_rng(2))
    assert np.var(seen) == pytest.approx(noise.variance, rel=0.1)
    assert noise.variance == pytest.approx(noise.noise.variance * 5 / 2)
    values = on_grid(np.zeros((5, DIMENSION)), noise.step)
    clients = sum_clients(rule, values, noise.share)
    drawn = [mean_of(secure_sum(InProcess(clients), rule, DIMENSION), noise.step)]
    assert np.var(drawn) == pytest.approx(noise.variance, rel=0.8)


@pytest.mark.parametrize(("multiplier", "honest"), [(0.8, 1), (1.4, 2), (3.7, 7)])
def test_the_charge_covers_the_exact_loss(multiplier: float, honest: int) -> None:
    """Own integration of the sum of discrete Gaussians, one coordinate, rounded values."""
    rule = SumRule(honest + 1, 1)
    noise = shared_gaussian(multiplier, 1.0, rule, 1)
    share = noise.share
    reach = math.ceil(10.0 * share)
    each = np.exp(-0.5 * (np.arange(-reach, reach + 1) / share) ** 2)
    law, total = each / each.sum(), each / each.sum()
    for _ in range(honest - 1):
        total = np.maximum(
            np.convolve(total, law) if len(total) < 2000 else _convolved(total, law), 0
        )
    changed = math.floor(1.0 / noise.step) + 1  # a value that moves by D moves so many steps
    p, q = np.pad(total, (0, changed)), np.pad(total, (changed, 0))
    charged = noise.charge(1.0).parameter
    assert charged >= multiplier * (1.0 - 1e-12)
    assert charged <= multiplier * (1.0 + 1e-3)
    for epsilon in (0.1, 0.5, 1.0):
        exact = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
        bound = ndtr(0.5 / charged - epsilon * charged) - math.exp(epsilon) * ndtr(
            -0.5 / charged - epsilon * charged
        )
        assert exact <= bound * (1.0 + 1e-6) + 1e-12
        assert exact >= bound * (1.0 - 0.02) - 1e-12


def _convolved(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    from scipy.signal import fftconvolve

    return np.asarray(fftconvolve(left, right))


def test_colluding_and_lost_clients_leave_an_honest_one() -> None:
    with pytest.raises(InputError, match="colluding and dropouts"):
        SumRule(4, 2, 2)
    release = Release(shared_gaussian(1.0, 1.0, SumRule(3), 2), Sensitivity(1.0, 2, "made"), 1.0)
    assert release.certified.kind == "gaussian"
