"""Public power factors: adjacency, sensitivities, noise, estimates, grants and refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from gridpriv import load_case, make_settings, run, shipped_zoning
from gridpriv.assurance.adversary import corners
from gridpriv.core.errors import InputError
from gridpriv.privacy.adjacency import DemandAdjacency, PowerFactors, parse_power_factors
from gridpriv.privacy.linear import Disclosure, Prior, bus, total, tree
from gridpriv.privacy.mechanism import KNorm
from gridpriv.privacy.sensitivity import length
from gridpriv.zonal.prepared import prepare

BANDS = ["0.9..1", "-0.98..0.9", "0.5..0.8"]
N, BETA = 4, 0.3
STRATEGIES = [bus(N), total(N), tree([np.zeros(N, int), np.arange(N)], [0.7, 0.3])]


def lags(power_factor):
    """Reactive per active power: the tangent of the angle whose cosine the power factor is."""
    return math.copysign(math.tan(math.acos(abs(power_factor))), power_factor)


def disclosed(strategy, band):
    mean = np.concatenate([np.ones(N), 0.3 * np.ones(N)])
    wide = np.full(2, 10.0)
    prior = Prior(mean, wide, -1e9 * np.ones(2), 1e9 * np.ones(2))
    return Disclosure(strategy, prior, 0.0, power_factors=parse_power_factors(band))


@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.name)
@pytest.mark.parametrize("norm", [1, 2, "box"])
def test_no_change_between_the_power_factors_moves_more_than_is_declared(band, strategy, norm):
    """Every bus, over a grid of active changes and power factors; corners attain the bound."""
    disclosure = disclosed(strategy, band)
    near = DemandAdjacency(BETA, power_factors=disclosure.power_factors)
    declared = disclosure.sensitivity(near, norm).value
    ends = [lags(float(item)) for item in band.split("..")]
    inside = [
        (p, t * p)
        for p in np.linspace(-BETA, BETA, 7)
        for t in np.linspace(min(ends), max(ends), 9)
    ]

    def changed(place, p, q):
        change = np.zeros(2 * N)
        change[place], change[N + place] = p, q
        return length(disclosure.measure(change), norm)

    worst = max(changed(k, *item) for k, item in itertools.product(range(N), inside))
    assert 0.999 * declared < worst <= declared * (1 + 1e-12)
    at_corners = [changed(k, *item) for k in range(N) for item in corners(near)]
    assert max(at_corners) == pytest.approx(declared)
    assert {(round(p, 9), round(q, 9)) for p, q in corners(near)} == {
        (round(p, 9), round(t * p, 9)) for p in (BETA, -BETA) for t in ends
    }


@pytest.mark.parametrize("band", BANDS)
def test_noise_has_the_density_of_the_parallelogram(band):
    """A density e^(-g/b) in the plane has a gauge g of Gamma(2, b), and is uniform along edges."""
    factors, scale = parse_power_factors(band), 2.0
    draws = KNorm(scale).perturb(np.zeros(40_000), lambda: np.random.default_rng(5)).reshape(2, -1)
    p, q = np.linalg.solve(factors.shear, draws)
    low, high = sorted(lags(float(each)) for each in band.split(".."))
    across = (q - 0.5 * (low + high) * p) / (0.5 * (high - low))
    gauge = np.maximum(np.abs(p), np.abs(across))
    assert stats.kstest(gauge / scale, stats.gamma(2).cdf).pvalue > 0.001
    edge = np.abs(p) >= np.abs(across)
    assert abs(edge.mean() - 0.5) < 0.01
    assert stats.kstest(across[edge] / p[edge], stats.uniform(-1, 2).cdf).pvalue > 0.001


@pytest.mark.parametrize("band", BANDS)
def test_without_noise_the_estimate_is_the_demand(band):
    demand = np.array([1.0, 0.2, 0.7, 0.4, 0.1, 0.3, -0.2, 0.05])
    disclosure = disclosed(bus(N), band)
    assert disclosure.estimate(disclosure.measure(demand), None) == pytest.approx(demand, abs=1e-6)
    assert disclosure.matrix @ demand == pytest.approx(disclosure.measure(demand))


def test_neighbours_at_other_power_factors_are_not_what_is_measured():
    with pytest.raises(ValueError, match="different power factors"):
        disclosed(bus(N), "0.9..1").sensitivity(DemandAdjacency(BETA), "box")


def test_a_narrow_band_costs_little_more_than_active_demand_alone():
    """Noise on q: that of p times the middle of the band, and that of its half width."""
    factors = PowerFactors(0.95, 1.0)
    square = np.linalg.inv(factors.shear) @ np.linalg.inv(factors.shear).T
    assert square[0, 0] == pytest.approx(1.0)
    assert square[1, 1] == pytest.approx(0.5 * lags(0.95) ** 2)


def test_published_demand_outside_the_band_is_refused_and_private_demand_is_not_read(tmp_path):
    case = load_case("case14")
    zoning = shipped_zoning(case)
    private = case.qd > lags(0.99) * case.pd
    assert private.any()
    settings = {"power_factor": "0.99..1", "mechanism": "knorm", "seed": 1, "rounds": 2}
    assert run(case, zoning, make_settings(**settings)).certificates[0].certified <= 5.0
    path = tmp_path / "public.csv"
    rows = [f"{number},10,{4 if number == 6 else 0.5}" for number in case.bus_id]
    path.write_text("bus,pd_mw,qd_mvar\n" + "\n".join(rows) + "\n")
    with pytest.raises(InputError, match="keeps to: bus 6 has 10 MW, 4 MVAr"):
        prepare(case, zoning, make_settings(**settings, public_demand=str(path)))


@pytest.mark.parametrize("lag", [0.0, 0.5, 2.0, 90.0])
@pytest.mark.parametrize("shift", [1e-11, 1e-9, 1e-8, 1e-7])
def test_no_grant_is_for_neighbours_beyond_those_of_the_run(lag, shift):
    """Narrowest bands, almost equal: they are distinguished, or none exceeds the other."""
    stated, granted = (
        PowerFactors(*(1.0 / math.hypot(1.0, t) for t in (at, at + 0.0021)))
        for at in (lag, lag + shift)
    )
    ends = lags(granted.first), lags(granted.last)
    beyond = max(abs(t - stated.middle) / stated.half for t in ends)
    near = (DemandAdjacency(0.1, power_factors=f).protection(100.0) for f in (granted, stated))
    try:
        factor = next(near).factor(next(near))
    except InputError:
        return
    assert beyond <= factor * (1 + 1e-4)


def test_grants_and_runs_at_other_power_factors_do_not_meet():
    box, band = (
        DemandAdjacency(0.1, power_factors=entry).protection(100.0)
        for entry in (None, parse_power_factors("0.9..1"))
    )
    message = "reactive demand less 0.242161052 times its active demand by at most 2.42161 MVAr"
    assert message in str(band)
    assert band.factor(band) == 1.0
    for entry, other in ((box, band), (band, box)):
        with pytest.raises(InputError, match="granted for: "):
            entry.factor(other)
