"""Runs on statistics of demand: draws, charges, and dependencies of the messages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gridpriv import InputError, load_case, make_settings, run, shipped_zoning
from gridpriv.zonal.prepared import prepare

pytestmark = pytest.mark.usefixtures("few_replans")

ONCE = {
    "mechanism": "knorm",
    "noise_schedule": "once",
    "budget": "total:1",
    "beta": "10MW",
    "rounds": 3,
    "seed": 1,
    "solver": "clarabel",
}


def settings(**given):
    return make_settings(**(ONCE | given))


def scrambled(case):
    generator = np.random.default_rng(8)
    return replace(case, pd=generator.permutation(case.pd) + 0.3, qd=generator.permutation(case.qd))


@pytest.mark.usefixtures("no_replans")
def test_nothing_released_reads_no_demand_and_draws_nothing():
    case = load_case("case14")
    here, there = (
        run(item, shipped_zoning(item), settings(release="nothing"))
        for item in (case, scrambled(case))
    )
    assert here.trace.releases == {name: {} for name in here.trace.releases}
    assert np.array_equal(here.trace.sent, there.trace.sent)


@pytest.mark.parametrize("release", ["bus", "total", "tree", "auto"])
@pytest.mark.parametrize("mechanism", ["laplace", "knorm"])
def test_each_zone_draws_once_and_certifies_the_total(release, mechanism):
    case = load_case("case14")
    result = run(case, shipped_zoning(case), settings(release=release, mechanism=mechanism))
    assert [sum(counts.values()) for counts in result.trace.releases.values()] == [1, 1, 1]
    for certificate in result.certificates:
        assert certificate.total_pure == pytest.approx(1.0)
        assert certificate.norm == (1 if mechanism == "laplace" else "box")


@pytest.mark.parametrize("noise_schedule", ["update", "round", "once"])
def test_all_refreshes_spend_the_same_total_of_a_total(noise_schedule):
    case = load_case("case14")
    result = run(
        case,
        shipped_zoning(case),
        settings(release="total", noise_schedule=noise_schedule, local_updates=2, step="nonsmooth"),
    )
    drawn = {"update": 6, "round": 3, "once": 1}[noise_schedule]
    assert [s.releases for s in result.certificates] == [drawn] * 3
    assert result.certificates[0].total_pure == pytest.approx(1.0)


def test_what_is_released_is_chosen_without_the_demand():
    case = load_case("case118")
    chosen = [
        [d.strategy.matrix for d in prepare(item, shipped_zoning(item), settings()).disclosures]
        for item in (case, scrambled(case))
    ]
    assert all(np.array_equal(a, b) for a, b in zip(*chosen, strict=True))


def test_an_operators_file_moves_the_prior(tmp_path):
    case = load_case("case14")
    path = tmp_path / "usual.csv"
    rows = [f"{bus},{k},0" for k, bus in enumerate(case.bus_id.tolist())]
    path.write_text("bus,pd_mw,qd_mvar\n" + "\n".join(rows))
    prepared = prepare(case, shipped_zoning(case), settings(public_demand=str(path)))
    means = {
        int(case.bus_id[b]): case.base_mva * m
        for zone, d in zip(prepared.zones, prepared.disclosures, strict=True)
        for b, m in zip(zone.own, d.prior.mean, strict=False)
    }
    assert [means[b] for b in case.bus_id.tolist()] == pytest.approx(np.arange(14.0))


def test_a_missing_public_file_is_refused_before_anything_is_drawn(tmp_path):
    case = load_case("case14")
    with pytest.raises(InputError, match="nowhere"):
        prepare(case, shipped_zoning(case), settings(public_demand=str(tmp_path / "nowhere.csv")))
