"""A consortium over loopback: equality with one process, and effects of faults."""

from __future__ import annotations

import json

import dp_accounting
import numpy as np
import pandas as pd
import pytest
from parties import LOOPBACK, Consortium, laid_out, same_rounds

from gridpriv import make_settings
from gridpriv.consensus.coordinator import State, Turn
from gridpriv.consortium.agreement import read_agreement
from gridpriv.consortium.parties import ZoneParty, read_party, write_folders
from gridpriv.consortium.take_part import (
    CoordinatedRun,
    read_own,
    report,
    take_part_as_zone,
    write_report,
)
from gridpriv.core.errors import GridprivWarning, InputError
from gridpriv.privacy.accounting import gaussian_multiplier
from gridpriv.privacy.mechanism import Gaussian
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity

ZONES = ("1", "2", "3")


@pytest.mark.parametrize("secure", [True, False])
def test_three_zones_over_network_are_a_run_in_one_process(folder, in_one_process, secure):
    parties = Consortium(folder, secure=secure).coordinator().zones(*ZONES)
    results = parties.results()
    same_rounds(results["coordinator"], in_one_process)
    for name in ZONES:
        own = results[name]["rounds"]
        expected = [r.by_agent[name] for r in in_one_process.trace.rounds]
        assert [
            {k: own_row[k] for k in two} for own_row, two in zip(own, expected, strict=True)
        ] == expected
    public = json.loads((folder / "coordinator" / "report" / "run.json").read_text())
    assert all(0 < r["consensus_residual_max"] <= r["consensus_residual"] for r in public["rounds"])
    assert [row["consensus_residual"] for row in public["rounds"]] == [
        r.consensus_residual for r in in_one_process.trace.rounds
    ]
    assert [row["releases"] for row in public["privacy"]] == [3, 3, 3]


def test_the_public_report_of_a_run_without_noise_has_its_settings_only(case14, zones14, tmp_path):
    folder = laid_out(case14, zones14, tmp_path / "here", mechanism="none")
    agreement = read_agreement(folder / "coordinator" / "agreement.json")
    zeros = np.zeros(1)
    turn = Turn(1, zeros, zeros, 0.5, 0.5, 0.5, State(zeros, zeros, zeros))
    write_report(agreement, CoordinatedRun((turn,), {}), tmp_path / "report")
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["run.json"]
    document = json.loads((tmp_path / "report" / "run.json").read_text())
    assert document["rounds"] is document["privacy"] is None


def test_the_public_report_states_each_epsilon_at_its_own_delta(case14, zones14, tmp_path):
    given = {"mechanism": "gaussian", "budget": "total:5,1e-6", "delta": 1e-3}
    folder = laid_out(case14, zones14, tmp_path / "here", **given)
    agreement = read_agreement(folder / "coordinator" / "agreement.json")
    noise = Gaussian(gaussian_multiplier(5.0, 1e-6, 3))
    release = Release(noise, Sensitivity(1.0, 2, "any"), 1.0)
    (row,) = report(agreement, CoordinatedRun((), {"1": {release: 3}}))["privacy"]
    assert row["total"] == pytest.approx(5.0, rel=1e-6)
    once = dp_accounting.get_epsilon_gaussian(noise.scale, 1e-3)
    assert row["certified"] == pytest.approx(once, rel=1e-6)


@pytest.mark.parametrize(
    "reactive", [[0.0], [True], ["1"], [-1], [10**6], [1, 1], {"1": 1}, None, "1", [[1]]]
)
def test_places_of_reactive_flows_are_whole_numbers_of_the_zone(
    case14, zones14, tmp_path, reactive
):
    path = laid_out(case14, zones14, tmp_path / "here") / "1" / "agreement.json"
    document = json.loads(path.read_text())
    document["zones"][0]["reactive"] = reactive
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="reactive is not a list of places"):
        read_agreement(path)


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("reactive", lambda places: places[:-1]),
        ("units", lambda places: [2.0 * places[0], *places[1:]]),
        ("start", lambda places: [places[0] + 1e-9, *places[1:]]),
    ],
)
def test_a_zone_checks_all_that_the_agreement_says_of_it(case14, zones14, tmp_path, field, other):
    folder = laid_out(case14, zones14, tmp_path / "here") / "1"
    party = read_party(folder / "zone.toml", ZoneParty)
    document = json.loads((folder / "agreement.json").read_text())
    read_own(read_agreement(folder / "agreement.json"), party, folder)
    (zone_one,) = (zone for zone in document["zones"] if zone["zone"] == "1")
    zone_one[field] = other(zone_one[field])
    (folder / "agreement.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="starts or weighs them otherwise"):
        read_own(read_agreement(folder / "agreement.json"), party, folder)


def test_a_zone_asks_of_kilowatts_in_its_demand_before_it_connects(case14, zones14, tmp_path):
    folder = laid_out(case14, zones14, tmp_path / "here") / "1"
    party = read_party(folder / "zone.toml", ZoneParty)
    agreement = read_agreement(folder / "agreement.json")
    assert read_own(agreement, party, folder).zone.name == "1"  # in MW: silent
    table = pd.read_csv(folder / party.demand)
    table[["pd_mw", "qd_mvar"]] *= 1000.0
    table.to_csv(folder / party.demand, index=False)
    reached = []
    with (
        pytest.warns(GridprivWarning, match=r"demand\.csv: active demand pd_mw .* not in kW"),
        pytest.warns(GridprivWarning, match="reactive demand qd_mvar .* not in kVAr"),
        pytest.raises(ConnectionError),
    ):
        take_part_as_zone(agreement, party, folder, refusing(reached), lambda *_, **__: None)
    assert reached == ["1"]


def refusing(reached):
    """Return an exchange that fails when a zone is ready, with the zones that were."""

    def serve(client, _):
        reached.append(client.zone)
        raise ConnectionError

    return serve


def test_an_agreement_of_an_earlier_format_are_refused(case14, zones14, tmp_path):
    path = laid_out(case14, zones14, tmp_path / "here") / "1" / "agreement.json"
    path.write_text(path.read_text().replace("gridpriv agreement 4", "gridpriv terms 2"))
    with pytest.raises(InputError, match="not of the format"):
        read_agreement(path)


def test_an_agreement_of_totals_at_another_delta_than_its_budget_is_refused(
    case14, zones14, tmp_path
):
    """Earlier versions wrote the default delta of totals next to the budget's."""
    folder = laid_out(case14, zones14, tmp_path / "here", budget="total:5,1e-6")
    path = folder / "1" / "agreement.json"
    assert read_agreement(path).settings.total_delta == 1e-6
    path.write_text(path.read_text().replace('"target_delta": null', '"target_delta": 1e-05'))
    with pytest.raises(InputError, match="earlier development version") as caught:
        read_agreement(path)
    assert f"agreement {path}: target_delta = 1e-05" in str(caught.value)


@pytest.mark.parametrize("solver_tolerance", ["matched", "tight"])
def test_a_zone_solves_as_far_as_the_agreement_says(
    case14, zones14, tmp_path, solver_tolerance, monkeypatch
):
    monkeypatch.setattr("gridpriv.zonal.prepared.FEW_ZONES", 0)
    folder = laid_out(case14, zones14, tmp_path / "here", solver_tolerance=solver_tolerance) / "1"
    party = read_party(folder / "zone.toml", ZoneParty)
    own = read_own(read_agreement(folder / "agreement.json"), party, folder)
    assert own.member(0, None).problem.solver_tolerance == solver_tolerance


@pytest.mark.parametrize(
    ("given", "noise_schedule"),
    [
        ({}, "once"),
        ({"noise_schedule": "round"}, "round"),
        ({"perturbation": "objective", "update": "linearized"}, None),
    ],
)
def test_the_agreement_says_when_noise_is_drawn(case14, zones14, tmp_path, given, noise_schedule):
    """Parties of another version, with another default, must not draw another number of times."""
    write_folders(
        case14, zones14, make_settings(rounds=3, **given), "trial", LOOPBACK, tmp_path / "new"
    )
    path = tmp_path / "new" / "1" / "agreement.json"
    document = json.loads(path.read_text())
    assert document["settings"]["noise_schedule"] == noise_schedule
    assert document["settings"]["rounds"] == 3
    document["settings"]["noise_schedule"] = None
    path.write_text(json.dumps(document))
    if noise_schedule is None:
        assert read_agreement(path).settings.noise_schedule is None
    else:
        with pytest.raises(InputError, match=r"when demand noise is drawn.*make it again"):
            read_agreement(path)
