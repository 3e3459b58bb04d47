from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gridpriv.privacy.mechanism import Gaussian, Laplace, SecureGaussian, SecureLaplace
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import NoiseRule, Perturbation
from gridpriv.privacy.sensitivity import Sensitivity


def test_a_stream_depends_on_its_place_and_on_nothing_else():
    streams = NoiseStreams(7)
    late = streams.stream(3, 9, 2).normal(size=4)
    streams.stream(1, 1, 1).normal(size=1000)
    assert np.array_equal(streams.stream(3, 9, 2).normal(size=4), late)
    places = [(z, t, e) for z in range(4) for t in range(4) for e in range(4)]
    draws = {tuple(streams.stream(*place).normal(size=2)) for place in places}
    assert len(draws) == len(places)
    assert not np.array_equal(NoiseStreams(8).stream(3, 9, 2).normal(size=4), late)


@pytest.mark.parametrize(
    ("mechanism", "law"),
    [
        (Laplace(0.7), stats.laplace(scale=0.7)),
        (Gaussian(0.7), stats.norm(scale=0.7)),
        (SecureLaplace(0.7), stats.laplace(scale=0.7)),
        (SecureGaussian(0.7), stats.norm(scale=0.7)),
    ],
)
def test_noise_has_the_law_its_name_says(mechanism, law):
    value = np.full(4000, 3.0)
    noise = mechanism.perturb(value, lambda: np.random.default_rng(1)) - value
    assert stats.kstest(noise, law.cdf).pvalue > 1e-4


@pytest.mark.parametrize("mechanism", [SecureLaplace(0.7), SecureGaussian(0.7)])
def test_secure_noise_is_opendps_and_ignores_the_stream(mechanism, monkeypatch):
    def forbidden():
        raise AssertionError("secure noise drew from a simulation's stream")

    value = np.array([0.1, 0.2, 0.3])
    assert not np.array_equal(
        mechanism.perturb(value, forbidden), mechanism.perturb(value, forbidden)
    )
    requested = []

    def opendp(kind, scale):
        requested.append((kind, scale))
        return lambda given: [item + 1.0 for item in given]

    monkeypatch.setattr("gridpriv.privacy.mechanism._opendp", opendp)
    np.testing.assert_array_equal(mechanism.perturb(value, forbidden), value + 1.0)
    assert requested == [(type(mechanism).__name__.removeprefix("Secure").lower(), 0.7)]


def test_secure_noise_charges_opendps_own_map():
    charge = SecureLaplace(2.0).charge(1.0)
    assert charge.kind == "laplace"  # of the map's epsilon, less 1e-12 for its grid
    assert charge.parameter == pytest.approx(2.0, rel=1e-6)
    assert charge.parameter < 2.0
    charge = SecureGaussian(2.0).charge(1.0)
    assert charge.kind == "gaussian"  # of the map's D^2/(2 sigma^2), less 1e-12 for its grid
    assert charge.parameter == pytest.approx(2.0, rel=1e-6)
    assert charge.parameter < 2.0


def test_sampler_and_accountant_read_the_same_object():
    rule = NoiseRule("laplace", "simulated", multiplier=4.0)
    release = rule.release(Sensitivity(0.5, 1, "for the test"))
    assert release.mechanism.scale == 2.0
    assert release.certified.parameter == 4.0
    assert release.nominal == release.certified
    paper = NoiseRule("laplace", "simulated", multiplier=4.0, assumed=0.05)
    release = paper.release(Sensitivity(0.5, 1, "for the test"))
    assert release.nominal.parameter == pytest.approx(4.0)
    assert release.certified.parameter == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("perturbation", "releases"),
    [
        (Perturbation("objective"), 60),
        (Perturbation("output"), 60),
        (Perturbation("demand", "update"), 60),
        (Perturbation("demand", "round"), 20),
        (Perturbation("demand", "once"), 1),
        (Perturbation("none"), 0),
    ],
)
def test_releases_of_a_run_are_counted(perturbation, releases):
    assert perturbation.releases(rounds=20, local_updates=3) == releases
    if perturbation.target != "none":
        drawn = {perturbation.drawn_at(t, e) for t in range(1, 21) for e in range(1, 4)}
        assert len(drawn) == releases
