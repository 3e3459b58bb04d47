"""``gridpriv security``: document, views, published values, refused input."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import gridpriv
from gridpriv.cli.analysis import _corrected, _prevented, _worst, sentences
from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.power.ac.state import Limit

NOISE = ["--budget", "total:1", "--beta", "10MW", "--mechanism", "knorm", "--seed", "1"]
PLAIN = ["--mechanism", "none"]
KEYS = {
    "case",
    "buses",
    "view",
    "rating",
    "visibility",
    "secure",
    "corrected",
    "base",
    "prevention",
    "contingencies",
    "privacy",
    "seconds",
    "version",
}
OF_A_CONTINGENCY = {
    "name",
    "kind",
    "outages",
    "at",
    "status",
    "worst_loading_percent",
    "worst_branch",
    "violations",
    "islanded_mw",
    "shed_mw",
    "corrective",
}


def document(capsys, *words):
    assert main(["security", "case14", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_document_ranks_every_outage(capsys):
    result = document(capsys, *NOISE)
    assert set(result) == KEYS
    rows = result["contingencies"]
    assert len(rows) == 25 and all(set(row) == OF_A_CONTINGENCY for row in rows)
    assert {row["kind"] for row in rows} == {"branch", "generator"}
    assert result["secure"] is False and rows[0]["violations"]
    assert (result["view"], result["visibility"]) == ("shared", "public")
    assert result["privacy"]["total_pure"] == 1.0


def test_without_noise_the_views_are_of_the_same_demand_and_local(capsys):
    shared = document(capsys, *PLAIN)
    assert shared["visibility"] == "local"
    of_zone = document(capsys, *PLAIN, "--view", "zone:2")
    assert of_zone["contingencies"] == shared["contingencies"]
    local = document(capsys, *PLAIN, "--view", "local")
    islanded = {row["name"]: row["islanded_mw"] for row in local["contingencies"]}
    assert islanded == {row["name"]: row["islanded_mw"] for row in shared["contingencies"]}


@pytest.fixture(scope="module")
def noisy():
    case = gridpriv.load_case("case14")
    zones = gridpriv.shipped_zoning(case)
    settings = gridpriv.make_settings(
        budget="total:1", beta="10MW", mechanism="knorm", seed=1, rounds=2
    )
    return gridpriv.run(case, zones, settings)


def test_the_shared_view_is_a_function_of_released_demand_and_the_public_network(noisy):
    """Other demand, dispatch and voltages of the owner, the same releases: the same bytes."""
    rng = np.random.default_rng(3)
    case = noisy.case
    other = replace(
        case,
        pd=case.pd * rng.uniform(0.3, 3, case.n_bus),
        qd=rng.normal(size=case.n_bus),
        vm=rng.uniform(0.9, 1.1, case.n_bus),
        va=rng.normal(size=case.n_bus),
        vg=rng.uniform(0.9, 1.1, case.n_gen),
        pg=rng.uniform(0, 1, case.n_gen),
    )
    network = replace(noisy.network, case=other)
    zones = tuple(replace(zone, network=network) for zone in noisy.zone_models)
    scrambled = replace(
        noisy,
        case=other,
        zone_models=zones,
        redispatch=None,
        outcomes=tuple(
            replace(run, z=run.z * np.nan, p_imbalance=run.p_imbalance * np.nan)
            for run in noisy.outcomes
        ),
    )
    public, same = (gridpriv.security(run).as_dict(public=True) for run in (noisy, scrambled))
    assert json.dumps(public) == json.dumps(same)
    assert public["seconds"] is None and public["contingencies"][0]["violations"]


def test_a_zone_s_own_view_differs_from_the_released_one_and_stays_at_home(noisy):
    shared, own = (gridpriv.security(noisy, view=view) for view in ("shared", "zone:1"))
    assert shared.public and not own.public
    zone = next(zone for zone in noisy.zone_models if zone.name == "1")
    assert own.before.case.pd[zone.own] == pytest.approx(noisy.case.pd[zone.own])
    elsewhere = np.setdiff1d(np.arange(noisy.case.n_bus), zone.own)
    assert own.before.case.pd[elsewhere] == pytest.approx(shared.before.case.pd[elsewhere])
    for view in ("zone:1", "local"):
        with pytest.raises(InputError, match="follows from true demand"):
            gridpriv.security(noisy, view=view).as_dict(public=True)


def test_the_local_view_begins_with_the_state_after_redispatch(noisy):
    analysis = gridpriv.security(noisy, "generators", view="local")
    assert analysis.before.state.vm == pytest.approx(noisy.redispatch.state.vm, abs=1e-6)
    assert analysis.before.state.pg == pytest.approx(noisy.redispatch.state.pg, abs=1e-6)
    assert len(analysis.contingencies) == 5


def test_files_hold_the_ranking(tmp_path, capsys):
    out = tmp_path / "security"
    outages = tmp_path / "list.csv"
    outages.write_text("name,outage\nnorth,branch:1\nnorth,branch:3\nplant,gen:2\n")
    words = ["--contingencies", str(outages), *NOISE, "--out", str(out)]
    assert main(["security", "case14", *words]) == 0
    table = pd.read_csv(out / "contingencies.csv")
    assert set(table["name"]) == {"north", "plant"}
    assert table.set_index("name").loc["north", "outages"] == "branch:1 branch:3"
    assert {path.name for path in out.iterdir()} == {"contingencies.csv", "security.json"}
    printed = capsys.readouterr().out
    assert "2 outages" in printed and "May be published when run with --noise secure" in printed


def test_the_verdict_names_its_demand_its_ratings_and_its_privacy(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    assert main(["security", "case39", *NOISE]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    table, printed = printed[: printed.index("Not secure.")], " ".join(printed.split())
    assert "Not secure. On the released demand (an estimate), limits are violated after" in printed
    assert "the worst 10 of 56 outages" in printed and "--view local" in printed
    assert "Before any outage, " in printed and "rating C after it" in printed
    assert "total epsilon 1 (pure DP, delta = 0)" in printed
    assert "This run: simulated noise, no privacy" in printed and "; seed 1." in printed
    assert "Protected: any change of one bus's active demand by at most 10 MW" in printed
    assert "Next: --secure finds a dispatch that keeps limits after outages, if possible" in printed
    assert "shed M " not in table
    assert main(["security", "case39", *PLAIN, "--view", "local"]) == 0
    printed = capsys.readouterr().out
    assert "On the true demand, " in printed and "Certificate" not in printed


def _said(capsys, *words):
    assert main(["security", *words]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("case", "rated"), [("case14", False), ("case39", True)])
def test_a_grid_without_ratings_says_that_overloads_are_not_checked(capsys, case, rated):
    printed = _said(capsys, case, *PLAIN, "--contingencies", "generators")
    assert ("Branch limits: rating A" in printed) is rated
    assert ("No branch has a rating: overloads are not checked." in printed) is not rated


def test_islanded_load_is_explained_where_its_column_is_printed():
    """The outage that separates load is secure and therefore not among those shown."""
    case = gridpriv.load_case("case14")
    result = gridpriv.run(case, gridpriv.shipped_zoning(case), gridpriv.make_settings(seed=1))
    document = gridpriv.security(result).as_dict()
    islanded = {"status": "converged", "violations": [], "shed_mw": 0.0, "islanded_mw": 5.0}
    contingencies = document["contingencies"]
    assert any(row["violations"] for row in contingencies)
    for row in contingencies:
        row["islanded_mw"] = 0.0
    rows = [*contingencies, contingencies[-1] | islanded]
    assert not any("Islanded" in line for line in sentences(document | {"contingencies": rows}))
    shown = [contingencies[0] | {"islanded_mw": 5.0}, *contingencies[1:]]
    assert any("Islanded" in line for line in sentences(document | {"contingencies": shown}))


@pytest.mark.parametrize("violations", [0, 1])
def test_a_dispatch_within_limits_is_advised_where_a_limit_is_violated(noisy, violations):
    document = gridpriv.security(noisy, "generators").as_dict()
    rows = document["contingencies"]
    some = next(row["violations"] for row in rows if row["violations"])
    shown = [row | {"violations": some[:violations], "shed_mw": 5.0} for row in rows]
    text = " ".join(sentences(document | {"contingencies": shown}))
    assert document["secure"] is False and "--corrective finds" in text
    assert ("--secure finds" in text) == bool(violations)


def test_load_shedding_after_corrective_redispatch_is_in_the_sentence_on_limits():
    rows = [{"corrective": {"status": "corrected", "shed_mw": 5.0}}] * 7
    text = _corrected(rows).partition(" The MW of")[0]
    assert text.endswith("after 7 of 7 outages; 7 of these shed load, up to 5 MW.")


def test_the_preventive_plan_counts_outages_that_shed_load_before_and_after():
    prevention = {
        "cost_before": None,
        "cost": None,
        "loading_before": None,
        "outages_before": 62,
        "not_prevented": ["a", "b"],
        "cuts": 3,
        "plans": 2,
    }
    assert _prevented(prevention, [], "released demand").startswith(
        "Preventive dispatch: outages that violate a limit or shed load: 62 before, 2 after;"
    )


def test_a_screened_outage_is_never_counted_as_secure(capsys, monkeypatch):
    """Outages whose DC loading is below the rating have no AC state, so no known voltage."""
    monkeypatch.setenv("COLUMNS", "80")
    words = ["security", "case39", *PLAIN, "--screen", "100", "--contingencies", "branches"]
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    screened = [row for row in result["contingencies"] if row["status"] == "screened"]
    assert screened and result["secure"] is not True
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert " Secure. " not in printed
    assert f"{len(screened)} are not known (--screen)" in printed
    assert f"{len(screened)} outages screened by DC loading only" in printed


def test_the_table_states_the_worst_violation_with_its_limit(noisy):
    rows = gridpriv.security(noisy, "generators").table
    violated = rows[rows["violations"] > 0]
    assert len(violated)
    for row in violated.itertuples():
        assert row.worst_kind and row.worst_at and row.worst_unit
        assert abs(row.worst_value - row.worst_limit) > 0


def test_the_worst_violation_is_not_marginal_and_its_digits_say_so():
    """0.1 % of 1.06 p.u. is 0.00106 p.u., of 100 MVA 0.1 MVA."""
    place = {"element": 1, "limit": "upper", "at": "1"}
    rows = (
        Limit("line", **place, value=100.05, bound=100.0, amount=0.05, unit="MVA", rating=100.0),
        Limit(
            "voltage", **place, value=1.0612, bound=1.06, amount=0.0012, unit="p.u.", rating=1.06
        ),
    )
    line, voltage = (row._asdict() for row in rows)
    assert _worst([line, voltage]) == "voltage at bus 1: 1.0612 > 1.06 p.u."
    assert _worst([line]) == "line 1: 100.05 > 100 MVA (marginal)"


def test_an_outage_that_the_case_lacks_is_refused_with_its_rows(noisy, tmp_path):
    (tmp_path / "list.csv").write_text("name,outage\nx,branch:99\n")
    with pytest.raises(InputError, match=r"branch:1 to 20, gen:1 to 5"):
        gridpriv.contingencies(noisy.case, tmp_path / "list.csv")


def test_an_analysis_with_screened_outages_alone_is_not_known_to_be_secure(noisy):
    analysis = gridpriv.security(noisy, "generators")
    sound = replace(analysis.before, state=replace(analysis.before.state, p_shed=np.zeros(14)))
    contingencies = [
        replace(item, status=status, violations=(), shed_mw=0.0)
        for item, status in zip(
            analysis.contingencies, ["screened", *["converged"] * 4], strict=True
        )
    ]
    if sound.state.violations:
        pytest.skip("the base case violates a limit")
    unknown = replace(analysis, before=sound, contingencies=tuple(contingencies))
    assert unknown.secure is None and unknown.as_dict()["secure"] is None
    assert replace(unknown, contingencies=tuple(contingencies[1:])).secure is True
    diverged = replace(contingencies[1], status="diverged")
    assert replace(unknown, contingencies=(contingencies[0], diverged)).secure is False


def test_a_screening_without_ratings_is_refused(noisy):
    with pytest.raises(InputError, match="no branch of case14 has one"):
        gridpriv.security(noisy, screen=80.0)


def test_a_run_is_charged_to_the_ledger_once_and_the_analysis_not_at_all(tmp_path, capsys):
    ledger = str(tmp_path / "owners.ledger")
    assert (
        main(
            [
                "ledger",
                "grant",
                ledger,
                "--case",
                "case14",
                "--total",
                "1.5",
                "--beta",
                "10MW",
                "--quiet",
            ]
        )
        == 0
    )
    words = ["security", "case14", *NOISE, "--ledger", ledger, "--quiet"]
    assert main(words) == 0
    assert main(words) == 4  # another run would exceed the grant
    assert "ledger" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--contingencies", "lines"], "--contingencies lines: must be branches"),
        (["--contingencies", "missing.csv"], "missing.csv"),
        (["--view", "mine"], "--view mine: must be shared, local or zone:NAME"),
        (["--view", "zone:9"], "--view zone:9: must be one of shared, local, zone:1, zone:2"),
        (["--rating", "D"], "--rating D: must be"),
        (["--screen", "-1"], "--screen -1: must be"),
        (
            ["--screen", "80"],
            "--screen 80 compares DC loadings with ratings, but no branch of case14",
        ),
        (["--public", "--view", "local"], "--public exports figures of released demand only"),
        (["--public", *PLAIN], "--public exports noisy releases only"),
        (["--perturbation", "output"], "needs released demand, but this run perturbs 'output'"),
    ],
)
def test_bad_input_is_exit_code_2_and_named_before_anything_is_drawn(words, message, capsys):
    assert main(["security", "case14", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_preventive_plan_states_what_it_costs_and_what_it_leaves(capsys):
    result = document(capsys, *NOISE, "--secure")
    prevention = result["prevention"]
    assert prevention["violations_before"] > 4 and prevention["plans"] >= 2
    assert prevention["cost_before"] < prevention["cost"] < 1.01 * prevention["cost_before"]
    not_prevented = {
        row["name"] for row in result["contingencies"] if row["violations"] or row["shed_mw"]
    }
    assert set(prevention["not_prevented"]) == not_prevented <= {"branch:1"}
    assert (
        prevention["outages_before"] > len(not_prevented) and prevention["loading_before"] is None
    )
    assert document(capsys, *NOISE)["prevention"]["plans"] == 0


def test_a_preventive_plan_is_a_function_of_released_demand(noisy):
    generators = gridpriv.contingencies(noisy.case, "generators")
    first = gridpriv.security(noisy, generators, secure=True).as_dict(public=True)
    rng = np.random.default_rng(5)
    case = replace(noisy.case, pd=noisy.case.pd * rng.uniform(0.5, 1.5, noisy.case.n_bus))
    zones = tuple(
        replace(zone, network=replace(zone.network, case=case)) for zone in noisy.zone_models
    )
    other = gridpriv.security(replace(noisy, case=case, zone_models=zones), generators, secure=True)
    again = other.as_dict(public=True)
    for analysis in (first, again):
        analysis.pop("seconds", None)
    assert json.dumps(first) == json.dumps(again)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--view", "local"], "--view is local"),
        (["--screen", "50"], "--screen is 50 %"),
        (["--contingencies", "none.csv"], "none.csv"),
    ],
)
def test_a_preventive_plan_is_refused(words, message, capsys):
    assert main(["security", "case14", *PLAIN, "--secure", *words]) == 2
    assert message in capsys.readouterr().err


def test_outages_shed_the_same_share_of_a_grid_of_kilowatts() -> None:
    """10 kW are all of the load there, and rounding on a grid of megawatts."""
    case = gridpriv.load_case("case14")
    settings = gridpriv.make_settings(
        mechanism="none", load_scale=1.9, objective="losses", beta="1kW"
    )
    shed = []
    for base_mva in (100.0, 1e-3):
        scaled = replace(case, base_mva=base_mva)
        result = gridpriv.run(scaled, gridpriv.shipped_zoning(case), settings)
        analysis = gridpriv.security(result, "generators")
        shed.append(analysis.table.shed_mw.to_numpy() / base_mva)
    assert shed[0].max() > 0.5
    assert shed[1] == pytest.approx(shed[0], rel=1e-3, abs=1e-6)


def test_a_small_angle_limit_is_kept_to_a_tenth_of_a_percent() -> None:
    """A hundredth of a degree is a tenth of a limit of 0.1 degrees."""
    case = gridpriv.load_case("case14")
    tight = np.radians(0.1)
    rows = np.isin(np.arange(case.n_branch), (6, 14, 15, 16, 18))
    case = replace(
        case,
        angmin=np.where(rows, -tight, case.angmin),
        angmax=np.where(rows, tight, case.angmax),
    )
    settings = gridpriv.make_settings(beta="5MW", seed=1)
    result = gridpriv.run(case, gridpriv.shipped_zoning(case), settings)
    va = np.degrees(result.redispatch.state.va)
    over = np.abs(va[case.f_bus[rows]] - va[case.t_bus[rows]]).max() - 0.1
    status = result.physical["status"]
    assert status == ("feasible" if over <= 1e-5 else "marginal" if over <= 1e-4 else "infeasible")


@pytest.mark.parametrize(
    "words",
    [
        ["security", "case14", "--contingencies", "generators"],
        ["exchange", "case39", "--zones", "2"],
    ],
)
def test_the_protected_change_of_a_scaled_analysis_is_of_the_demand_before(words, capsys) -> None:
    """At half the demand a change of 10 MW costs twice the epsilon: 10 MW are meant before it."""
    scaled = [*words, *NOISE, "--load-scale", "0.5", "--coordination", "central"]
    assert main([*scaled, "--public", "--json"]) == 0
    adjacency = json.loads(capsys.readouterr().out)["privacy"]["adjacency"]
    assert adjacency.endswith("by at most 10 MVAr, of the demand before --load-scale 0.5")
    assert main([*scaled, "--protects", "p", "--mechanism", "laplace"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "by at most 10 MW, of the demand before --load-scale 0.5." in printed
    assert "Only active demand is protected." in printed
