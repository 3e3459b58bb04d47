"""Steps that scale one demand share its release: drawn once, charged once, whatever interrupts."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from gridpriv import load_case, make_settings, run_series, shipped_zoning
from gridpriv.cli.main import main
from gridpriv.core.errors import SolverError
from gridpriv.core.stored import read_study
from gridpriv.grid.overrides import read_demand_series
from gridpriv.zonal.horizon import Horizon
from gridpriv.zonal.prepared import noise_rule, prepare

ONCE = {
    "mechanism": "knorm", "refresh": "run", "release": "total", "budget": "total:1",
    "beta": "10MW", "rounds": 2, "seed": 3, "solver": "clarabel",
}  # fmt: skip
FLAGS = [word for name, value in ONCE.items() for word in (f"--{name}", str(value))]
DAY = "step,load_scale\ndark,0\nnight,0.6\nmorning,1.0\nnoon,1.2\n"


@pytest.fixture
def day(tmp_path):
    (tmp_path / "day.csv").write_text(DAY)
    return str(tmp_path / "day.csv")


class Counting:
    """A ledger that counts what it is told."""

    def __init__(self):
        self.told = []

    def __call__(self, owner, releases):
        self.told.append((owner, sum(releases.values())))


def test_a_day_costs_one_release_at_the_noise_of_one_step(day):
    case = load_case("case14")
    zoning, settings = shipped_zoning(case), make_settings(**ONCE)
    charge = Counting()
    found = run_series(read_demand_series(day, case), zoning, settings, charge=charge)
    assert sorted(charge.told) == sorted((name, 1) for name in zoning.names)
    assert [s.total_pure for s in found.statements] == pytest.approx([1.0] * 3)
    alone = noise_rule(settings, settings.adjacency(case))
    assert found.results[1].rules.noise == alone
    for scale, result in zip((0.0, 0.6, 1.0, 1.2), found.results, strict=True):
        for one, base in zip(result.disclosed, found.results[2].disclosed, strict=True):
            np.testing.assert_allclose(one, scale * base, rtol=1e-12)


def test_steps_that_are_data_of_their_own_draw_and_pay_each(tmp_path):
    case = load_case("case14")
    path = tmp_path / "own.csv"
    path.write_text("step,bus,pd_mw,qd_mvar\na,2,20,10\nb,2,30,12\n")
    charge = Counting()
    run_series(read_demand_series(path, case), shipped_zoning(case), make_settings(**ONCE),
               charge=charge)  # fmt: skip
    assert len(charge.told) == 2 * 3


def test_an_interrupted_day_with_secure_noise_goes_on_without_a_second_draw(
    day, tmp_path, monkeypatch
):
    """Secure noise cannot be made again: what was released is what the folder holds."""
    pytest.importorskip("opendp")
    words = ["run", "case14", "--series", day, *FLAGS, "--noise", "secure", "--quiet"]
    at = words.index("--seed")
    words = [*words[:at], *words[at + 2 :], "--out", str(tmp_path / "out")]
    honest = Horizon.run_step

    def failing(self, number, *given, **named):
        if number == 2:
            raise SolverError("the lights go out")
        return honest(self, number, *given, **named)

    monkeypatch.setattr(Horizon, "run_step", failing)
    assert main(words) == 3
    before = read_study(tmp_path / "out").tables["released"]
    monkeypatch.setattr(Horizon, "run_step", honest)
    assert main([*words, "--resume"]) == 0
    after = read_study(tmp_path / "out").tables["released"]
    pd.testing.assert_frame_equal(before, after)
    document = json.loads((tmp_path / "out" / "horizon.json").read_text())
    assert document["finished"] == 4
    assert document["privacy"]["releases_per_zone"] == 1
    assert "demand that the steps scale" in document["privacy"]["adjacency"]


def test_a_ledger_admits_a_day_that_its_grant_covers_once(day, tmp_path):
    ledger = str(tmp_path / "owner.ledger")
    assert main(["ledger", "grant", ledger, "--case", "case14", "--epsilon", "1.01",
                 "--beta", "10MW", "--quiet"]) == 0  # fmt: skip
    words = ["run", "case14", "--series", day, *FLAGS, "--quiet", "--ledger", ledger]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    assert main([*words, "--out", str(tmp_path / "b")]) == 4


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_scaled_demand_is_released_as_its_owner_has_it(scale):
    """With next to no noise the estimate is the scaled sum, and a corner moves by beta unscaled."""
    case = load_case("case14")
    settings = make_settings(**(ONCE | {"budget": "total:1e6", "load_scale": scale}))
    prepared = prepare(case, shipped_zoning(case), settings)
    for zone, disclosure in zip(prepared.zones, prepared.disclosures, strict=True):
        owner = np.concatenate([case.pd[zone.own], case.qd[zone.own]])
        moved = owner.copy()
        moved[[0, len(zone.own)]] += prepared.rules.adjacency.beta
        apart = disclosure.measure(scale * moved) - disclosure.measure(zone.demand)
        stated = disclosure.sensitivity(prepared.rules.adjacency, "box").value
        assert np.abs(apart).max() == pytest.approx(stated)
        seen = disclosure.estimate(disclosure.measure(zone.demand), None)
        assert np.split(seen, 2)[0].sum() == pytest.approx(np.split(zone.demand, 2)[0].sum())
