"""What stands beside a private run: no noise, nothing released, and what the budget buys."""

from __future__ import annotations

import json
import re

import pytest

from gridpriv import load_case, run, shipped_zoning
from gridpriv.cli.main import main
from gridpriv.cli.run import summarise
from gridpriv.power.ac.newton import PowerFlowError
from gridpriv.zonal.reference import reference
from gridpriv.zonal.reference_summary import (
    carried_without_noise,
    lucky,
    without_noise_apart,
    worthless,
)
from gridpriv.zonal.series_summary import series_sentences
from gridpriv.zonal.settings import make_settings
from gridpriv.zonal.summary import MOST_ZONES_NAMED, apart, figures, price, released, sentences

GRID = ["run", "case14", "--objective", "cost", "--rounds", "5", "--solver", "clarabel", "--json"]
ONCE = ["--mechanism", "knorm", "--refresh", "run", "--beta", "20MW", "--seed", "4"]


def final(capsys, *flags):
    assert main([*GRID, *flags]) == 0
    return json.loads(capsys.readouterr().out)


def test_both_rows_are_those_of_runs_that_ask_for_them(capsys):
    held = final(capsys, *ONCE)["final"]["cost_of_privacy"]
    plain = final(capsys, "--mechanism", "none")["final"]["physical"]
    silent = final(capsys, *ONCE, "--release", "nothing", "--seed", "9")["final"]["physical"]
    assert held["without_noise_cost"] == pytest.approx(plain["cost"], rel=1e-9)
    assert held["nothing_released_cost"] == pytest.approx(silent["cost"], rel=1e-9)
    assert held["nothing_released_shed_mw"] == silent["shed_mw"]


def test_the_row_of_a_scaled_run_expects_scaled_demand(capsys):
    """The factor is public: whoever releases nothing knows it too."""
    heavy = [*ONCE, "--load-scale", "1.6"]
    held = final(capsys, *heavy)["final"]["cost_of_privacy"]
    silent = final(capsys, *heavy, "--release", "nothing", "--seed", "9")["final"]["physical"]
    assert held["nothing_released_cost"] == pytest.approx(silent["cost"], rel=1e-9)


def test_a_budget_that_buys_less_than_nothing_is_said_to_first(capsys):
    noise = ["--perturbation", "objective", "--beta", "20MW", "--seed", "4"]
    flags = [*noise, "--mechanism", "laplace", "--budget", "total:0.1"]
    document = final(capsys, *flags)
    costs = document["final"]["physical"]["cost"], document["final"]["cost_of_privacy"]
    assert costs[0] is None or costs[0] > costs[1]["nothing_released_cost"]
    assert main([*GRID[:-1], *flags]) == 0
    told = capsys.readouterr().out
    assert told.index("worth nothing here") < told.index("Protected:")
    assert "cost, nothing released" in told


def document(found, silent, *, costs=True, coordination="rounds"):
    figures = {"cost": found if costs else None, "shed_mw": 0.0 if costs else found}
    held = {"nothing_released_cost": silent if costs else None}
    held["nothing_released_shed_mw"] = 0.0 if costs else silent
    settings = {"release": "bus", "perturbation": "demand", "coordination": coordination}
    return {"final": {"physical": figures, "cost_of_privacy": held}, "settings": settings}


@pytest.mark.parametrize(
    ("cost", "over", "said"),
    [(-0.67, 14.0, "ends 14.67 $/h beyond the AC optimum itself."),
     (-0.67, None, "is chance and no gain."), (-0.9, -2.0, "is chance and no gain."),
     (0.0, 14.0, None), (0.67, 14.0, None),
     (None, None, None)],
)  # fmt: skip
def test_a_negative_cost_of_privacy_is_explained(cost, over, said):
    held = {"cost": cost, "cost_over_optimum": over}
    settings = {"coordination": "rounds", "mechanism": "laplace", "perturbation": "demand",
                "refresh": "run", "release": "bus"}  # fmt: skip
    run = {"final": {"physical": {"cost": 8095.52}, "cost_of_privacy": held}}
    told = lucky(run | {"settings": settings})
    assert told is None if said is None else told.endswith(said)
    assert lucky(run | {"settings": settings | {"release": "nothing"}}) is None  # it has no noise


@pytest.mark.parametrize(
    ("mechanism", "refresh", "release", "advice"),
    [("none", "run", "bus", "More rounds"), ("knorm", "run", "bus", "More rounds"),
     ("laplace", "round", "bus", "drawn anew"), ("laplace", None, "bus", "drawn anew"),
     ("laplace", "round", "nothing", "More rounds")],
)  # fmt: skip
def test_zones_apart_are_advised_what_brings_them_closer(mechanism, refresh, release, advice):
    told = apart({
        "final": {"consensus_residual": 0.3}, "rounds": [{}],
        "settings": {"mechanism": mechanism, "refresh": refresh, "release": release,
                     "perturbation": "demand", "rounds": 1},
    })  # fmt: skip
    assert advice in told


@pytest.mark.parametrize(
    ("rounds", "tolerance", "advice"),
    [(20, 0.2, "Rounds ended at --tolerance"), (20, 0.0, "More rounds"), (2, 0.2, "More rounds")],
)
def test_rounds_that_ended_at_the_tolerance_are_not_told_to_be_more(rounds, tolerance, advice):
    settings = {"mechanism": "none", "refresh": "run", "perturbation": "demand"}
    told = apart({
        "final": {"consensus_residual": 0.3, "disagreement": 0.1}, "rounds": [{}, {}],
        "settings": settings | {"rounds": rounds, "tolerance": tolerance},
    })  # fmt: skip
    assert [one in told for one in (advice, "Rounds ended", "More rounds")].count(True) == 2


@pytest.mark.parametrize("costs", [True, False])
def test_a_budget_is_worth_nothing_only_where_its_run_is_worse(costs):
    assert worthless(document(10.0, 12.0, costs=costs)) is None
    assert worthless(document(10.0, 10.0, costs=costs)) is None
    assert worthless(document(12.0, 10.0, costs=costs)) is not None
    assert worthless(document(-9.0, -9.0)) is None  # generators may be paid to run


def test_a_cost_that_chance_may_have_made_the_dearer_one_is_told_as_that():
    """Nothing released moves by 0.18 % with the number of rounds on case300 (docs/limits.md)."""
    for found, near in ((8107.0, True), (8090.8, True), (8112.0, False), (9000.0, False)):
        assert ("either may be the cheaper" in worthless(document(found, 8090.7))) == near
    assert "either may be the cheaper" in worthless(document(-8090.7, -8107.0))
    assert "8090.800 $/h" in worthless(document(8090.8, 8090.7))  # 8091 and 8091 would tell nothing
    central = worthless(document(8107.0, 8090.7, coordination="central"))
    assert "rounds" not in central  # it has one
    shed = worthless(document(8107.0, 8090.7, costs=False))
    assert "either may be the cheaper" not in shed


def test_a_dearer_run_is_worth_nothing_whatever_zones_minimise(capsys):
    """Nothing released 8,104 $/h, this release 8,112."""
    noise = ["--mechanism", "gaussian", "--budget", "total:1,1e-5", "--beta", "20MW"]
    for seed in "123456":
        words = ["run", "case14", "--solver", "clarabel", *noise, "--seed", seed]
        assert main([*words, "--json"]) == 0
        figures = json.loads(capsys.readouterr().out)["final"]
        dearer = figures["physical"]["cost"] > figures["cost_of_privacy"]["nothing_released_cost"]
        if dearer:
            break
    assert dearer
    assert main(words) == 0
    assert "worth nothing here" in capsys.readouterr().out


STRESSED = ["run", "case14", "--rounds", "8", "--json", "--load-scale"]
HARD = ["--budget", "total:0.3", "--beta", "30MW", "--seed", "3"]


@pytest.mark.parametrize(
    "grid", [["2.5"], ["2.5", "--outage", "branch:17"], ["3", "--outage", "branch:1"], ["4"]]
)
def test_what_is_said_to_be_carried_beside_a_run_is_what_such_runs_are(grid, capsys):
    """Each of them run by itself here."""
    found = []
    for more in (HARD, ["--mechanism", "none"], [*HARD, "--release", "nothing"]):
        assert main([*STRESSED, *grid, *more]) == 0
        found.append(json.loads(capsys.readouterr().out)["final"])
    held = found[0]["cost_of_privacy"]
    private, plain, silent = (one["physical"] for one in found)
    assert held["without_noise_carried"] is plain["carried"]
    assert held["nothing_released_carried"] is silent["carried"]
    yardstick = silent["carried"] or not private["carried"]
    assert (held["nothing_released_cost"] is not None) == yardstick


def test_nothing_released_that_the_grid_cannot_carry_has_a_row_and_no_cost(capsys):
    assert main([*STRESSED, "3", "--outage", "branch:1", *HARD]) == 0
    document = json.loads(capsys.readouterr().out)
    physical, held = (document["final"][name] for name in ("physical", "cost_of_privacy"))
    assert physical["carried"], "this grid is meant to carry the run"
    assert held["nothing_released_carried"] is False, "and not that of nothing released"
    summarise(document)
    told = capsys.readouterr().out
    assert re.search(r"^  the grid can carry it, nothing released +no +$", told, re.M)
    assert "cost, nothing released" not in told and "served, nothing released" not in told


def test_a_reference_without_a_power_flow_tells_of_no_demand_that_is_served(monkeypatch):
    """Its zones' plans alone shed nothing; no grid has carried them."""
    case, settings = load_case("case14"), make_settings(rounds=1, mechanism="laplace", seed=1)
    result = run(case, shipped_zoning(case), settings)

    def lost(*_: object) -> None:
        raise PowerFlowError(3, 1.0)

    monkeypatch.setattr("gridpriv.power.ac.settle.ac_flow", lost)
    held = reference(result, 1.0)
    assert (held.without_noise_carried, held.nothing_released_carried) == (False, False)
    assert held.without_noise_shed_mw is None
    assert held.nothing_released_shed_mw is None
    assert held.without_noise_residual > 0.0


@pytest.mark.parametrize(
    ("run", "silent", "said"),
    [(True, True, []), (True, False, [False]), (False, True, [True]), (False, False, [False]),
     (True, None, ["no dispatch"]), (False, None, ["no dispatch"])],
)  # fmt: skip
def test_nothing_released_is_never_left_out_of_the_figures(run, silent, said, plain_run):
    final = plain_run["final"] | {"cost_of_privacy": {"nothing_released_carried": silent}}
    final["physical"] = final["physical"] | {"carried": run}
    settings = plain_run["settings"] | {"mechanism": "knorm"}

    def told(**changed):
        _, _, rows = figures(plain_run | {"final": final, "settings": settings} | changed)
        return [row[1] for row in rows if row[0] == "the grid can carry it, nothing released"]

    assert told() == said
    assert told(settings=settings | {"mechanism": "none"}) == []  # nothing is held against it
    assert told(final=final | {"cost_of_privacy": None}) == []
    hidden = {"physical": final["physical"] | {"carried": None},
              "cost_of_privacy": {"nothing_released_carried": None}}  # fmt: skip
    assert told(final=final | hidden) == []  # of a public run


@pytest.fixture(scope="module")
def plain_run():
    settings = make_settings(mechanism="none", rounds=1)
    case = load_case("case14")
    return run(case, shipped_zoning(case), settings).as_dict()


@pytest.mark.parametrize("rounds", ["2", "20"])
def test_the_residual_without_noise_is_that_of_such_a_run(rounds, capsys):
    words = [*GRID, *ONCE, "--rounds", rounds]
    assert main(words) == 0
    held = json.loads(capsys.readouterr().out)["final"]["cost_of_privacy"]
    assert main([*GRID, "--mechanism", "none", "--rounds", rounds]) == 0
    plain = json.loads(capsys.readouterr().out)["final"]
    assert held["without_noise_residual"] == pytest.approx(plain["consensus_residual"], rel=1e-6)


@pytest.mark.parametrize(
    ("residual", "said"),
    [(0.0312, True), (0.0100001, True), (0.01, False), (1e-9, False), (None, False)],
)
def test_a_noiseless_run_that_has_not_converged_is_said_to_be_none(residual, said):
    difference = ", and what privacy costs is the difference to it."
    for cost, objective, ending in (
        (1.0, "cost", difference), (None, "cost", "."), (1.0, "imbalance", "."),
    ):  # fmt: skip
        held, settings = (
            {"without_noise_residual": residual, "cost": cost},
            {"objective": objective},
        )
        told = without_noise_apart({"final": {"cost_of_privacy": held}, "settings": settings})
        assert (told is not None) == said
        if said:
            assert told.startswith("The run without noise has not converged: its zones differ by ")
            assert told.endswith(f" {residual:.4g} p.u. in what they share{ending}")
    assert without_noise_apart({"final": {"cost_of_privacy": None}}) is None


def test_what_privacy_costs_is_told_to_be_beside_a_run_that_has_not_converged(capsys):
    """In the run's own lines, as often as its document has it."""
    found = []
    for rounds in ("2", "20"):
        assert main([*GRID, *ONCE, "--rounds", rounds]) == 0
        document = json.loads(capsys.readouterr().out)
        apart_by = document["final"]["cost_of_privacy"]["without_noise_residual"]
        told = any("The run without noise has not converged" in s for s in sentences(document))
        assert told == (apart_by > 0.01)
        found.append(told)
    assert found[0], "two rounds are meant to be too few"


def test_a_series_tells_in_how_many_steps_zones_end_apart_without_noise():
    steps = [{"step": str(k), "consensus_residual": 0.0, "cost": None,
              "without_noise_residual": residual}
             for k, residual in enumerate((0.5, 0.02, 1e-3, None))]  # fmt: skip
    settings = {"voll": 1.0, "objective": "cost"}
    told = [one for one in series_sentences(steps, 4, settings) if "run without noise" in one]
    assert told == [
        "In 2 steps the run without noise has not converged: zones differ in what they share, by "
        "0.5 p.u. at most."
    ]
    steps[3]["without_noise_cost"] = 8.0
    assert series_sentences(steps, 4, settings)[-1].endswith(
        "0.5 p.u. at most, and what privacy costs is the difference to it."
    )
    assert not any("without noise" in one for one in series_sentences(steps[2:], 2, settings))


def test_a_series_tells_how_many_of_what_stands_beside_it_the_grid_carries():
    steps = [{"step": str(k), "consensus_residual": 0.0, "carried": k > 0, "cost": None,
              "without_noise_carried": True, "nothing_released_carried": silent}
             for k, silent in enumerate((True, False, None))]  # fmt: skip
    told = series_sentences(steps, 3, {"voll": 1.0})
    assert (
        "The grid can carry 2 of 3 dispatches; without noise, 3 of 3; with nothing released, "
        "1 of 2." in told
    )
    bare = [{k: v for k, v in step.items() if "_carried" not in k} for step in steps]
    assert "The grid can carry 2 of 3 dispatches." in series_sentences(bare, 3, {"voll": 1.0})


@pytest.mark.parametrize(
    ("run", "plain", "said"),
    [(False, True, "The grid could carry the same zones' run without noise"),
     (False, False, "The grid could not carry the same zones' run without noise either"),
     (True, False, "The grid could not carry the same zones' run without noise"),
     (True, True, None), (False, None, None), (True, None, None), (None, True, None)],
)  # fmt: skip
def test_whether_the_grid_carries_it_without_noise_is_said(run, plain, said):
    for cost, ending in ((None, "."), (0.05, ": the cost of privacy is no price.")):
        held = {"without_noise_carried": plain, "cost": cost}
        final = {"physical": {"carried": run}, "cost_of_privacy": held}
        assert carried_without_noise({"final": final}) == (said and said + ending)
        assert carried_without_noise({"final": final | {"cost_of_privacy": None}}) is None


def test_a_run_without_noise_is_held_against_no_other(capsys):
    """Neither it nor a day of it tells its own figures a second time."""
    assert main([*STRESSED, "4", "--mechanism", "none", "--reference"]) == 0
    document = json.loads(capsys.readouterr().out)
    held = document["final"]["cost_of_privacy"]
    assert held["without_noise_carried"] is held["without_noise_residual"] is None
    summarise(document)
    told = capsys.readouterr().out
    assert "Not converged" in told and "The grid cannot carry" in told
    assert "run without noise" not in told and "nothing released" not in told


def test_a_run_that_the_grid_cannot_carry_is_held_against_one_in_its_last_lines(capsys):
    assert main([*STRESSED, "4", *HARD]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["final"]["physical"]["carried"] is False, "this grid is meant to be too weak"
    assert carried_without_noise(document) in sentences(document)


def test_a_run_without_a_dispatch_is_worse_than_one_with():
    assert "no dispatch" in worthless(document(None, 10.0))


def test_what_is_not_asked_for_is_not_made(capsys):
    assert final(capsys, *ONCE, "--no-reference")["final"]["cost_of_privacy"] is None


def test_what_auto_chose_is_told_and_a_zone_of_one_bus_too(capsys, tmp_path):
    zones = tmp_path / "zones.csv"
    rows = [f"{bus},{'alone' if bus == 8 else 'rest'}" for bus in range(1, 15)]
    zones.write_text("bus,zone\n" + "\n".join(rows))
    words = [*GRID[:-1], *ONCE, "--no-reference", "--zoning", str(zones)]
    assert main([*words, "--release", "auto"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "What zones release" in told
    assert "rest tree (" in told or "rest bus (" in told
    assert "total is that bus's demand: alone." in told
    assert main([*words, "--release", "bus"]) == 0
    assert "What zones release" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("zones", "told"),
    [
        (MOST_ZONES_NAMED, "1 tree (1), 2 tree (2), 3 bus (3)"),
        (MOST_ZONES_NAMED + 1, "tree in 2 zones (1 to 2), bus in 11 zones (3 to 13)."),
    ],
)
def test_of_many_zones_it_is_told_how_many_release_the_same(zones, told):
    rows = [
        {"zone": str(z), "statistics": "tree" if z < 3 else "bus", "expected_error_mw": float(z)}
        for z in range(1, zones + 1)
    ]
    sized = [{"zone": str(z), "buses": 2} for z in range(1, zones + 1)]
    document = {"released": rows, "zones": sized, "settings": {"release": "auto"}}
    assert told in released(document)[0]


@pytest.mark.parametrize(
    ("errors", "told"),
    [([3.2], "total in 1 zone (3.2)"), ([3.2, 3.2004], "total in 2 zones (3.2)"),
     ([3.2, 3.21], "total in 2 zones (3.2 to 3.21)")],
)  # fmt: skip
def test_errors_that_are_shown_alike_are_shown_once(errors, told):
    others = [9.0] * MOST_ZONES_NAMED
    rows = [
        {"zone": str(z), "statistics": "bus" if error == 9.0 else "total",
         "expected_error_mw": error}
        for z, error in enumerate([*errors, *others])
    ]  # fmt: skip
    document = {"released": rows, "zones": [], "settings": {"release": "auto"}}
    assert f"{told}, bus in {MOST_ZONES_NAMED} zones (9)." in released(document)[0]


def test_a_run_that_releases_nothing_tells_of_no_noise(capsys):
    assert main(["run", "case14", "--release", "nothing", "--seed", "1", "--load-scale", "3"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "nothing of demand released" in told and "nothing of demand is released" in told
    assert "simulated noise" not in told and "noise on" not in told and "drawn anew" not in told
    assert "worth nothing" not in told


def test_a_run_that_releases_nothing_is_the_row_of_it(capsys):
    final_of = final(capsys, "--release", "nothing", "--seed", "1")["final"]
    row = final_of["cost_of_privacy"]["nothing_released_cost"]
    assert final_of["physical"]["cost"] == pytest.approx(row, rel=1e-9)


def test_what_is_released_for_scaled_demand_errs_by_scaled_power(capsys):
    """Neighbours use the estimate of what the owner released, times the public factor."""
    one, three = (
        final(capsys, *ONCE, "--no-reference", "--load-scale", factor)["released"]
        for factor in ("1", "3")
    )
    for row, scaled in zip(one, three, strict=True):
        assert scaled["expected_error_mw"] == pytest.approx(3 * row["expected_error_mw"])


def test_a_run_that_releases_nothing_is_at_epsilon_0(capsys):
    silent = final(capsys, "--release", "nothing", "--seed", "1", "--no-reference")
    assert price(silent).endswith("and releases nothing of demand, at epsilon 0.")
    bare = final(capsys, "--mechanism", "none", "--no-reference")
    assert price(bare).endswith("and has no privacy, as it has no noise.")
