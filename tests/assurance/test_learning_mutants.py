"""Faults in the guarantees of ``gridpriv learn``; ``gridpriv audit learning`` detects each."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from gridpriv.assurance import learned
from gridpriv.cli.main import main
from gridpriv.learning import clients, modules, run, secure_sum
from gridpriv.learning.accounting import Amplification, Tally
from gridpriv.learning.algorithms import admm, base, dpsgd, fedspd_dp
from gridpriv.privacy import noise

LANES = {lane.name: lane for lane in learned.LANES}


def failures(name):
    return {check.check for check in learned.audit_lane(LANES[name]) if not check.passed}


def poisson_rate_of_add_one_under_replace_one(patch):
    """As if the batch were charged for one gradient more or less, half of a replacement."""
    patch.setattr(
        dpsgd,
        "amplification",
        lambda *given: Amplification(2 / given[1], "sampled-gaussian"),
    )
    halved = dpsgd.step_sensitivity
    patch.setattr(dpsgd, "step_sensitivity", lambda *given: 0.5 * halved(*given))


def rate_of_half_a_batch(patch):
    honest = dpsgd.amplification

    def smaller(*given):
        charge = honest(*given)
        return replace(charge, rate=0.5 * charge.rate)

    patch.setattr(dpsgd, "amplification", smaller)


def step_sensitivity_halved(patch):
    honest = dpsgd.step_sensitivity
    patch.setattr(dpsgd, "step_sensitivity", lambda *given: 0.5 * honest(*given))


def minimizer_sensitivity_halved(patch):
    honest = admm.minimizer_sensitivity
    patch.setattr(admm, "minimizer_sensitivity", lambda *given: 0.5 * honest(*given))


def recursion_halved(patch):
    honest = fedspd_dp.sound_sensitivity
    patch.setattr(fedspd_dp, "sound_sensitivity", lambda *given, **how: 0.5 * honest(*given, **how))


def noise_reused_in_every_round(patch):
    honest = noise.NoiseStreams.stream
    patch.setattr(
        noise.NoiseStreams,
        "stream",
        lambda self, *place: honest(self, place[0], 1, place[2]),
    )


def noise_shared_by_clients(patch):
    def with_noise(self, t, values, releases):
        noise = self.streams.stream(0, t, 0).normal(size=values[0].shape)
        scales = np.array([r.mechanism.scale for r in releases])
        return values + scales[:, None, None] * noise

    patch.setattr(base.Task, "with_noise", with_noise)


def clip_a_tenth_too_long(patch):
    honest = clients.mean_gradient

    def longer(loss, x, targets, w, clip=None):
        return honest(loss, x, targets, w, None if clip is None else 1.1 * clip)

    patch.setattr(clients, "mean_gradient", longer)


def last_chunk_not_clipped(patch):
    honest = modules.ModuleClients.weighted

    def careless(self, p, w, weights, clip):
        first = np.where(np.arange(len(weights)) < modules.CHUNK, weights, 0.0)
        return honest(self, p, w, first, clip) + honest(self, p, w, weights - first, None)

    patch.setattr(modules.ModuleClients, "weighted", careless)


def tuning_not_charged(patch):
    honest = run._charged

    def free(*given):
        result = honest(*given)
        return replace(result, shared=replace(result.shared, runs=1, charges={}))

    patch.setattr(run, "_charged", free)


def every_second_release_not_charged(patch):
    honest = Tally.add

    def lazy(self, client, release, count=1):
        if self.charges.get(client, {}) and sum(self.charges[client].values()) % 2:
            self.last[client] = release
            self.skipped = not getattr(self, "skipped", False)
            if self.skipped:
                return
        honest(self, client, release, count)

    patch.setattr(Tally, "add", lazy)


def secure_sum_of_shares_too_small(patch):
    patch.setattr(
        secure_sum.SharedGaussian,
        "perturb",
        lambda self, value, stream: (
            value + stream().normal(scale=self.noise.scale / 2.0, size=value.shape)
        ),
    )


def mean_over_clients_twice(patch):
    """The mean changes by 1/P of a client's value, not by 1/P^2."""
    honest = dpsgd._of_mean

    def twice(task, distance, source, multiplier, active, *rest):
        return honest(task, distance / len(active), source, multiplier, active, *rest)

    patch.setattr(dpsgd, "_of_mean", twice)


MUTANTS = {
    poisson_rate_of_add_one_under_replace_one: ("dpsgd, Poisson batches", "values"),
    rate_of_half_a_batch: ("dpsgd, Poisson batches", "total"),
    step_sensitivity_halved: ("dpsgd", "values"),
    minimizer_sensitivity_halved: ("dp-admm", "values"),
    recursion_halved: ("fedspd-dp", "values"),
    noise_reused_in_every_round: ("dpsgd", "independence"),
    noise_shared_by_clients: ("dp-admm", "independence"),
    clip_a_tenth_too_long: ("dpsgd", "values"),
    last_chunk_not_clipped: ("torch module", "values"),
    tuning_not_charged: ("dpsgd, charged tuning", "total"),
    every_second_release_not_charged: ("dpsgd", "total"),
    secure_sum_of_shares_too_small: ("dpsgd, secure sum", "distribution"),
    mean_over_clients_twice: ("dpsgd, central", "values"),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_audit_sees_a_broken_algorithm(mutant, monkeypatch):
    lane, check = MUTANTS[mutant]
    if LANES[lane].module:
        pytest.importorskip("torch")
    mutant(monkeypatch)
    assert check in failures(lane)


def test_the_command_fails_on_a_mutant_and_passes_without(monkeypatch, capsys):
    lanes = (LANES["dpsgd"], LANES["dp-admm"], LANES["dpsgd, secure sum"])
    monkeypatch.setattr(learned, "LANES", lanes)
    assert main(["audit", "learning", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "consistent"
    step_sensitivity_halved(monkeypatch)
    assert main(["audit", "learning", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "violation"


def test_every_lane_of_the_true_code_passes():
    assert not [check for check in learned.audit_learning() if not check.passed]
