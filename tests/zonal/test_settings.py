from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from gridpriv import InputError, Settings, make_settings
from gridpriv.core.errors import GridprivWarning
from gridpriv.learning import LearnSettings
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.linear import bus
from gridpriv.privacy.perturbation import NoiseRule


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"budget": "per-release:0"}, "whose epsilon must be"),
        ({"budget": "per-release:-1"}, "whose epsilon must be"),
        ({"budget": "total:nan"}, "whose epsilon must be"),
        ({"budget": "total:1,2"}, "whose delta must be"),
        ({"budget": "weekly:1"}, "per-release:E"),
        (
            {"perturbation": "output", "mechanism": "laplace", "release": "total"},
            "release = 'total': must be left out",
        ),
        *(
            ({"release": "nothing", "perturbation": target}, f"left out: perturbation '{target}'")
            for target in ("output", "objective")
        ),
        ({"delta": 0.0}, "delta = 0.0"),
        ({"delta": 1.0}, "delta = 1.0"),
        ({"target_delta": -0.1}, "target_delta"),
        (
            {"target_delta": 1e-5, "budget": "total:1,1e-6"},
            "target_delta = 1e-05: must be left out",
        ),
        ({"rounds": 0}, "rounds = 0"),
        ({"local_updates": 0}, "local_updates = 0"),
        ({"mechanism": "gausian"}, "did you mean 'gaussian'"),
        ({"beta": "0"}, "beta"),
        ({"beta": "1 parsec"}, "beta"),
        ({"noise_schedule": "once", "perturbation": "output"}, "perturbation output has none"),
        ({"mechanism": "gaussian", "budget": "total:1"}, "no pure epsilon"),
        ({"sensitivity": "published"}, "no other bound is published"),
        ({"seed": -1}, "seed"),
        ({"noise": "secure", "seed": 1}, "secure noise has no seed"),
        ({"load_scale": -1.0}, "load_scale"),
        ({"workers": 0}, "workers"),
        ({"power_factor": "0.9"}, "power_factor = '0.9': must be A..B, such as 0.9..1: two"),
        ({"power_factor": "1e-200..1"}, "each from 0.01 to 1"),
        ({"power_factor": "0.9..0.9000000001"}, "at least 0.002 apart"),
        ({"power_factor": "0.9..0.9"}, "two power factors that differ"),
        ({"power_factor": "0..1"}, "two power factors that differ"),
        ({"power_factor": "0.9..1.1"}, "two power factors that differ"),
        ({"power_factor": "0.9..nan"}, "two power factors that differ"),
        ({"power_factor": "a..1"}, "two power factors that differ"),
        ({"power_factor": "0.9..1", "protects": "p"}, "protects = 'p': must be"),
        ({"power_factor": "0.9..1", "perturbation": "output"}, "left out: perturbation 'output'"),
    ],
)
def test_bad_values_are_refused_by_name(given, message):
    with pytest.raises(InputError) as caught:
        Settings(**given)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "delta"),
    [
        ({"budget": "total:1,1e-6"}, 1e-6),
        ({"budget": "total:1,1e-6", "target_delta": 1e-6}, 1e-6),
        ({"budget": "total:1"}, 1e-5),
        ({"budget": "total:1", "target_delta": 1e-4}, 1e-4),
        ({"budget": "per-release:1,1e-6"}, 1e-5),
        ({"budget": "per-release:1,1e-6", "target_delta": 1e-4}, 1e-4),
    ],
)
@pytest.mark.parametrize("kind", [Settings, LearnSettings])
def test_totals_are_stated_at_the_delta_of_their_budget(kind, given, delta):
    settings = kind(mechanism="laplace", **given)
    assert settings.total_delta == settings.as_dict()["target_delta"] == delta


@pytest.mark.parametrize(
    ("given", "delta"),
    [
        ({"budget": "per-release:1,1e-6"}, 1e-6),
        ({"budget": "per-release:1,1e-6", "delta": 1e-3}, 1e-6),
        ({"budget": "per-release:1", "delta": 1e-3}, 1e-3),
        ({"budget": "total:1,1e-6", "delta": 1e-3}, 1e-3),
    ],
)
@pytest.mark.parametrize("kind", [Settings, LearnSettings])
def test_the_epsilon_of_a_release_is_stated_at_the_delta_of_its_budget(kind, given, delta):
    assert kind(mechanism="gaussian", **given).release_delta == delta


@pytest.mark.parametrize(
    ("given", "mechanism"),
    [
        ({}, "knorm"),
        ({"power_factor": "0.9..1"}, "knorm"),
        ({"noise_schedule": "round"}, "knorm"),
        ({"protects": "p"}, "laplace"),
        ({"protects": "q"}, "laplace"),
        ({"perturbation": "objective"}, "laplace"),
        ({"perturbation": "output"}, "laplace"),
        ({"mechanism": "laplace"}, "laplace"),
        ({"mechanism": "none"}, "none"),
        ({"mechanism": "gaussian", "budget": "total:1,1e-6"}, "gaussian"),
    ],
)
def test_noise_is_shaped_to_pairs_where_pairs_are_protected_unless_another_is_given(
    given, mechanism
):
    settings = make_settings(**given)
    assert settings.effective_mechanism() == mechanism == settings.as_dict()["mechanism"]
    assert settings.mechanism == given.get("mechanism")
    other = replace(settings, mechanism=None, budget="total:1", power_factor=None, protects="p")
    assert other.effective_mechanism() == "laplace"


@pytest.mark.parametrize(("protects", "ratio"), [("p+q", 0.5), ("p", 2.0), ("q", 2.0)])
def test_the_default_mechanism_has_the_least_variance_at_its_budget(protects, ratio):
    """K-norm over Laplace noise at the same pure epsilon, by sampling: half, or twice."""
    adjacency, value = DemandAdjacency(0.1, protects), np.zeros(400_000)
    variance = {}
    for mechanism in ("knorm", "laplace"):
        rule = NoiseRule(mechanism, "simulated", multiplier=0.5)
        release = rule.release(bus(3).sensitivity(adjacency, rule.norm))
        assert release.certified.parameter == pytest.approx(0.5)
        variance[mechanism] = release.apply(value, lambda: np.random.default_rng(1)).var()
    assert variance["knorm"] / variance["laplace"] == pytest.approx(ratio, rel=0.02)
    default = make_settings(protects=protects).effective_mechanism()
    assert default == min(variance, key=variance.__getitem__)


def test_the_classical_gaussian_is_refused_above_one():
    with pytest.raises(InputError, match="at most 1"):
        make_settings("ryu-kim", mechanism="gaussian", budget="per-release:2")
    make_settings("ryu-kim", mechanism="gaussian", budget="per-release:2", sensitivity="proven")


def test_flags_beside_a_preset_override_it():
    settings = make_settings("ryu-kim", rounds=7, sensitivity="proven")
    assert (settings.rounds, settings.sensitivity, str(settings.penalty)) == (7, "proven", "100")
    assert settings.effective_start() == "flat"


def test_unknown_presets_and_settings_name_the_nearest():
    with pytest.raises(InputError, match="ryu-kim"):
        make_settings("ryu-kin")
    with pytest.raises(InputError, match="rounds"):
        make_settings(round=3)


def test_effective_settings_are_json():
    shown = Settings().as_dict()
    assert json.loads(json.dumps(shown))["noise_schedule"] == "once"
    assert Settings(mechanism="none").as_dict()["perturbation"] == "none"


def test_the_default_distance_is_a_megawatt_on_any_base(case14):
    assert make_settings().beta.per_unit(100.0) == 0.01
    assert make_settings().adjacency(replace(case14, base_mva=10.0)).beta == 0.1
    assert make_settings("ryu-kim").beta.per_unit(10.0) == 0.01, "the paper's is per unit"


@pytest.mark.parametrize(
    ("beta", "base", "message"),
    [
        ("1e9MW", 100.0, "'1e9MW': must be 1e-07 to 1e+08 MW on a base of 100 MVA"),
        ("1e9MW", 10.0, "'1e9MW': must be 1e-08 to 1e+07 MW on a base of 10 MVA"),
        ("1e-05kW", 100.0, "'1e-05kW': must be 0.0001 to 1e+11 kW on a base of 100 MVA"),
        ("1e7", 100.0, "10000000.0: must be 1e-09 to 1e+06 p.u. (or such as 1MW)"),
    ],
)
def test_a_distance_that_no_grid_has_is_refused_in_its_own_unit(case14, beta, base, message):
    """Without a warning before: a value with a warning is used."""
    settings, case = make_settings(beta=beta), replace(case14, base_mva=base)
    with warnings.catch_warnings(), pytest.raises(InputError) as refused:
        warnings.simplefilter("error")
        settings.adjacency(case)
    assert str(refused.value) == f"beta = {message}"


@pytest.mark.parametrize(
    ("beta", "base"), [("1e-7MW", 100.0), ("1e8MW", 100.0), ("3e-9MW", 3.0), ("1e6", 100.0)]
)
def test_the_bounds_that_a_refusal_names_are_allowed_themselves(case14, beta, base):
    settings, case = make_settings(beta=beta), replace(case14, base_mva=base)
    assert settings.protected(case).beta == settings.beta.per_unit(base)


@pytest.mark.parametrize(
    ("beta", "message"),
    [
        ("20", "no unit: it means 2000 MW, more than the generating capacity .* write 20MW"),
        ("2", r"beta = 2 has no unit: it means 200 MW\. For megawatts write 2MW"),
        ("500MW", "beta = 500MW is more than the generating capacity at any bus of case14"),
        ("0.5", None),
        ("20MW", None),
    ],
)
def test_a_distance_that_was_meant_in_megawatts_is_questioned(case14, beta, message):
    settings = make_settings(beta=beta)
    if message is None:
        settings.adjacency(case14)  # a warning would be an error here
    else:
        with pytest.warns(GridprivWarning, match=message):
            settings.adjacency(case14)


@pytest.mark.parametrize(
    ("preset", "given", "drawn"),
    [
        (None, {}, "total:5"),
        (None, {"mechanism": "none"}, "none"),
        (None, {"mechanism": "none", "release": "nothing"}, "none"),
        (None, {"release": "nothing"}, "nothing"),
        (
            "ryu-kim",
            {"release": "nothing", "perturbation": "demand", "sensitivity": "proven"},
            "nothing",
        ),
    ],
)
def test_settings_tell_what_a_run_draws(preset, given, drawn):
    assert make_settings(preset, **given).noise_budget == drawn


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({"solver": "ipopt"}, "solver = 'ipopt': must be 'clarabel' with acceleration 'newton'"),
        ({"solver_tolerance": "tight"}, "solver_tolerance = 'tight': must be 'matched' with"),
    ],
)
def test_newton_rounds_take_no_solver_of_zones(given, allowed):
    """A solver that is asked for solves: by default rounds are of ADMM then."""
    plain = make_settings(planning="soc")
    assert plain.effective_acceleration() == "newton"
    assert make_settings(planning="soc", **given).effective_acceleration() == "anderson"
    for planning in ("soc", "ac", None):
        with pytest.raises(InputError, match=allowed):
            make_settings(planning=planning, acceleration="newton", **given)
    assert make_settings(planning="soc", acceleration="newton", solver="clarabel")
