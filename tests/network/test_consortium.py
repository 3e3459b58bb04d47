"""A consortium over loopback: the same as one process, and what becomes of faults."""

from __future__ import annotations

import json

import pytest
from parties import LOOPBACK, Consortium, laid_out, same_rounds, settings

from gridpriv import make_settings, partition, run
from gridpriv.consortium.folders import lay_out
from gridpriv.consortium.parties import ZoneParty, read_party
from gridpriv.consortium.speak import read_own
from gridpriv.consortium.terms import read_terms
from gridpriv.core.errors import InputError

ZONES = ("1", "2", "3")


@pytest.mark.parametrize("secure", [True, False])
def test_three_zones_over_grpc_are_a_run_in_one_process(folder, in_one_process, secure):
    parties = Consortium(folder, secure=secure).coordinator().zones(*ZONES)
    results = parties.results()
    same_rounds(results["coordinator"], in_one_process)
    for name in ZONES:
        own = results[name]["rounds"]
        theirs = [r.by_agent[name] for r in in_one_process.trace.rounds]
        assert [{k: one[k] for k in two} for one, two in zip(own, theirs, strict=True)] == theirs
    public = json.loads((folder / "coordinator" / "report" / "run.json").read_text())
    assert all(0 < r["disagreement"] <= r["consensus_residual"] for r in public["rounds"])
    assert [row["consensus_residual"] for row in public["rounds"]] == [
        r.consensus_residual for r in in_one_process.trace.rounds
    ]
    assert [row["releases"] for row in public["privacy"]] == [3, 3, 3]


def test_penalties_are_evened_as_in_one_process(case118, tmp_path):
    zoning = partition(case118, 12)
    given = {"refresh": "run", "rounds": 8, "acceleration": "evened"}
    alone = run(case118, zoning, settings(**given))
    first, *_, last = (largest for _, largest in (r.penalty for r in alone.trace.rounds))
    assert last > 1.9 * first
    folder = laid_out(case118, zoning, tmp_path / "here", **given)
    parties = Consortium(folder, secure=False).coordinator().zones(*zoning.names)
    same_rounds(parties.results()["coordinator"], alone)


@pytest.mark.parametrize(
    "reactive", [[0.0], [True], ["1"], [-1], [10**6], [1, 1], {"1": 1}, None, "1", [[1]]]
)
def test_places_of_reactive_flows_are_whole_numbers_of_the_zone(
    case14, zones14, tmp_path, reactive
):
    path = laid_out(case14, zones14, tmp_path / "here") / "1" / "terms.json"
    told = json.loads(path.read_text())
    told["zones"][0]["reactive"] = reactive
    path.write_text(json.dumps(told))
    with pytest.raises(InputError, match="reactive is not a list of places"):
        read_terms(path)


@pytest.mark.parametrize(
    ("field", "other"),
    [("reactive", lambda held: held[:-1]), ("units", lambda held: [2.0 * held[0], *held[1:]]),
     ("start", lambda held: [held[0] + 1e-9, *held[1:]])],
)  # fmt: skip
def test_a_zone_checks_all_that_terms_say_of_it(case14, zones14, tmp_path, field, other):
    folder = laid_out(case14, zones14, tmp_path / "here") / "1"
    party = read_party(folder / "zone.toml", ZoneParty)
    told = json.loads((folder / "terms.json").read_text())
    read_own(read_terms(folder / "terms.json"), party, folder)
    (mine,) = (zone for zone in told["zones"] if zone["zone"] == "1")
    mine[field] = other(mine[field])
    (folder / "terms.json").write_text(json.dumps(told))
    with pytest.raises(InputError, match="starts or weighs them otherwise"):
        read_own(read_terms(folder / "terms.json"), party, folder)


def test_terms_of_an_earlier_format_are_refused(case14, zones14, tmp_path):
    path = laid_out(case14, zones14, tmp_path / "here") / "1" / "terms.json"
    path.write_text(path.read_text().replace("gridpriv terms 2", "gridpriv terms 1"))
    with pytest.raises(InputError, match="not of the format"):
        read_terms(path)


@pytest.mark.parametrize("accuracy", ["matched", "exact"])
def test_a_zone_solves_as_far_as_the_terms_say(case14, zones14, tmp_path, accuracy, monkeypatch):
    monkeypatch.setattr("gridpriv.zonal.prepared.FEW_ZONES", 0)
    folder = laid_out(case14, zones14, tmp_path / "here", accuracy=accuracy) / "1"
    party = read_party(folder / "zone.toml", ZoneParty)
    own = read_own(read_terms(folder / "terms.json"), party, folder)
    assert own.member(0, None).problem.accuracy == accuracy


@pytest.mark.parametrize(
    ("given", "refresh"),
    [({}, "run"), ({"refresh": "round"}, "round"),
     ({"perturbation": "objective", "update": "linearized"}, None)],
)  # fmt: skip
def test_terms_say_how_often_noise_is_drawn(case14, zones14, tmp_path, given, refresh):
    """Parties of another version, with another default, must not draw another number of times."""
    lay_out(case14, zones14, make_settings(rounds=3, **given), "trial", LOOPBACK, tmp_path / "new")
    path = tmp_path / "new" / "1" / "terms.json"
    told = json.loads(path.read_text())
    assert told["settings"]["refresh"] == refresh
    assert told["settings"]["rounds"] == 3
    told["settings"]["refresh"] = None
    path.write_text(json.dumps(told))
    if refresh is None:
        assert read_terms(path).settings.refresh is None
    else:
        with pytest.raises(InputError, match=r"how often demand noise is drawn.*make them again"):
            read_terms(path)
