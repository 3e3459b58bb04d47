from __future__ import annotations

import math
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.core.store import Study
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.sensitivity import Sensitivity
from gridpriv.study.claims import (
    Comparison,
    Means,
    check_claims,
    comparisons,
    make_claim,
    passing_round,
    verdict,
)
from gridpriv.study.papers import COMPUTED, FOLDER, claims_of, reproductions, table1, table1_claims
from gridpriv.zonal.prepared import noise_rule
from gridpriv.zonal.settings import make_settings

# RK table 1 at epsilon 0.1, beta 0.01, delta 0.01, worked out by hand: ln 125 = 4.828314
AT_A_TENTH = {"ObjG": 0.3862651, "ObjL": 0.08, "OutG": 0.09656628, "OutL": 0.02}


@pytest.fixture(scope="module")
def variances() -> pd.DataFrame:
    return table1().table


def test_what_is_drawn_has_the_papers_variances(variances: pd.DataFrame) -> None:
    at = variances[variances.epsilon == 0.1].set_index("algorithm")
    for algorithm, value in AT_A_TENTH.items():
        assert at.drawn[algorithm] == pytest.approx(value, rel=1e-6)
    # every variance in the table is proportional to 1/epsilon^2
    scaled = variances.drawn * variances.epsilon**2
    assert scaled.groupby(variances.algorithm).std().max() < 1e-12


@pytest.mark.parametrize(("algorithm", "value"), AT_A_TENTH.items())
def test_samples_of_the_noise_have_that_variance(algorithm: str, value: float) -> None:
    settings = make_settings(
        "ryu-kim",
        perturbation={"Obj": "objective", "Out": "output"}[algorithm[:3]],
        mechanism={"G": "gaussian", "L": "laplace"}[algorithm[3]],
    )
    rule = noise_rule(settings, DemandAdjacency(0.01))
    release = rule.release(Sensitivity(1.0, rule.norm, "not used"))
    draws = release.apply(np.zeros(400_000), lambda: np.random.default_rng(3))
    assert np.var(draws) == pytest.approx(value, rel=0.02)


def test_the_papers_order_of_variances_is_lost_under_sound_noise(variances: pd.DataFrame) -> None:
    claims = table1_claims(variances).set_index("sensitivity")
    assert claims.outcome["published"] == "holds"
    assert claims.outcome["proven, case118"] == "does not hold"
    # D1 of case118 is 13 times the nominal one for p alone (26 for p+q): variance 676 times
    ratio = variances[variances.algorithm == "ObjL"].eval("proven_case118 / drawn")
    assert ratio.to_numpy() == pytest.approx(26.0**2, rel=1e-6)


def test_a_statement_holds_only_if_all_its_comparisons_do() -> None:
    right, wrong = Comparison("a", 1.0, 2.0), Comparison("b", 2.0, 1.0)
    assert verdict([right, right])["outcome"] == "holds"
    outcome = verdict([right, wrong])
    assert outcome["outcome"] == "does not hold"
    assert (outcome["holding"], outcome["comparisons"]) == (1, 2)
    assert verdict([right, wrong], some=True)["outcome"] == "holds"
    assert verdict([wrong], some=True)["outcome"] == "does not hold"
    silent = Comparison("near chance", 94.5, 97.0, informative=False)
    assert verdict([silent])["outcome"] == "no information"
    assert verdict([right, silent])["comparisons"] == 1
    assert verdict([Comparison("tie", 1.0, 1.0)])["outcome"] == "does not hold"
    assert verdict([Comparison("tie", 1.0, 1.0, equal=True)])["outcome"] == "holds"


def made_up(reverse: str = "") -> Study:
    """Return a study whose values satisfy every statement, except for the metric ``reverse``."""
    runs, rounds = [], []
    for method in ("ObjG", "ObjL", "OutG", "OutL"):
        for eps in (0.05, 0.1, 0.5, 1.0):
            for updates in (1, 5):
                run = f"{method}-{eps}-{updates}"
                runs.append(
                    {
                        "run": run,
                        "case": "c",
                        "method": method,
                        "budget": f"per-release:{eps}",
                        "local_updates": updates,
                        "mechanism": "x",
                        "rounds": 20,
                        "status": "done",
                    }
                )
                kind = {"ObjG": 4.0, "OutG": 3.0, "ObjL": 2.0, "OutL": 1.0}[method]
                rank = {"ObjL": 1.0, "ObjG": 2.0, "OutL": 3.0, "OutG": 4.0}[method]
                if updates == 5 and eps == 1.0:
                    rank = 5.0 - rank
                figures = {
                    "noise_magnitude": kind / eps,
                    "objective": rank,
                    "consensus_residual": 1.0 / updates,
                }
                if reverse:
                    figures[reverse] = 1.0 / figures[reverse]
                # early rounds say the opposite: only the last ten count for these two
                early = figures | {k: -figures[k] for k in ("objective", "consensus_residual")}
                rounds += [{"run": run, "round": t} | early for t in range(1, 11)]
                rounds += [{"run": run, "round": t} | figures for t in range(11, 21)]
    return Study(None, {}, {"runs": pd.DataFrame(runs), "rounds": pd.DataFrame(rounds)})


def test_figures_that_obey_the_paper_pass_every_check() -> None:
    claims = check_claims(made_up(), claims_of("rk-fig3"))
    assert len(claims) == 9
    assert (claims.outcome == "holds").all(), claims


@pytest.mark.parametrize(
    ("metric", "failing"), [("noise_magnitude", 3), ("objective", 3), ("consensus_residual", 2)]
)
def test_figures_that_do_not_fail_their_checks(metric: str, failing: int) -> None:
    claims = check_claims(made_up(metric), claims_of("rk-fig4"))
    assert (claims.outcome == "does not hold").sum() == failing
    assert claims[claims.outcome == "does not hold"].detail.str.startswith("not: ").all()


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "rk-table1"]) == 0
    printed = capsys.readouterr().out
    assert "0.3863" in printed
    assert "does not hold" in printed


def test_an_unknown_name_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "rk-fig33"]) == 2
    assert "rk-fig3" in capsys.readouterr().err


def test_claims_of_missing_parts_are_left_out() -> None:
    study = made_up()
    runs = study.tables["runs"]
    study.tables["runs"] = runs[runs.local_updates == 1]
    claims = check_claims(study, claims_of("rk-fig3"))
    assert not claims.claim.str.startswith("E = 5").any()
    assert math.isfinite(claims.holding.sum())


def learned(curves: dict[str, dict[str, list[float]]]) -> Study:
    """Return a study of one seed with a figure by round, of every method and budget."""
    runs, rounds = [], []
    for method, budgets in curves.items():
        for budget, values in budgets.items():
            run = f"{method} {budget}"
            runs.append(
                {
                    "run": run,
                    "case": "x",
                    "method": method,
                    "budget": budget,
                    "local_updates": 1,
                    "status": "done",
                    "error": values[-1],
                }
            )
            rounds += [{"run": run, "round": t + 1, "error": v} for t, v in enumerate(values)]
    return Study(None, {}, {"runs": pd.DataFrame(runs), "rounds": pd.DataFrame(rounds)})


CURVES = {
    "a": {"total:1": [9.0, 5.0, 3.0, 1.0], "total:2": [9.0, 5.0, 3.0, 0.5]},
    "b": {"total:1": [4.0, 4.0, 4.0, 4.0], "total:2": [4.0, 4.0, 4.0, 0.25]},
    "free": {"none": [0.4, 0.4, 0.4, 0.4]},
}


@pytest.mark.parametrize(
    ("row", "holding"),
    [
        ({"less": "a", "more": "b"}, [True, False]),
        ({"less": "free", "more": ["a", "b"]}, [True, True, True, False]),
        ({"less": "free", "more": "free", "factor": 2.0}, [True]),
        ({"less": "a", "more": "b", "budgets": [2]}, [False]),
        ({"less": "a", "more": "a", "round": 4, "than-round": 1}, [True, True]),
        ({"less": "a", "more": "b", "round": 1, "factor": 2.0}, [False, False]),
        ({"falling": ["a", "b"], "along": "budgets"}, [True, True]),
        ({"falling": ["b", "a"]}, [True, False]),
        ({"passes": "a", "rival": "b"}, [True, False]),
        ({"passes": "a", "rival": "b", "after": 0.8}, [False, False]),
        ({"spread": ["a", "b"]}, [True]),
    ],
)
def test_every_kind_of_statement(row: dict, holding: list[bool]) -> None:
    claim = make_claim({"of": "x", "text": "t", "figure": "error"} | row)
    compared = comparisons(claim, Means(learned(CURVES), "x"))
    assert [c.holds for c in compared] == holding


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "one of less with more"),
        ({"less": "a", "more": "b", "falling": "a"}, "one of less with more"),
        ({"less": "a", "mor": "b"}, "did you mean 'more'"),
        ({"less": "a", "more": "b", "verdict": "maybe"}, "verdict = 'maybe'"),
        ({"less": "a", "more": "b", "cause": "weather"}, "cause = 'weather'"),
    ],
)
def test_a_statement_that_cannot_be_checked_is_refused(row: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_claim({"of": "x", "text": "t", "figure": "error"} | row)


def test_passing_is_for_good() -> None:
    assert passing_round([9, 5, 3, 1], [4, 4, 4, 4]) == 3
    assert passing_round([3, 5, 3, 1], [4, 4, 4, 4]) == 3
    assert passing_round([1, 1], [4, 4]) == 1
    assert passing_round([1, 1, 4], [4, 4, 4]) is None


def test_every_figure_and_table_is_there_with_recorded_outcomes() -> None:
    wanted = {"rk-fig5", "rk-fig6", "rk-fig7", "huang-table2", "gauthier-fig1", "gauthier-fig2"}
    wanted |= {f"huang-fig{k}" for k in range(1, 7)} | {f"li-fig{k}" for k in range(2, 7)}
    assert wanted <= set(reproductions())
    for name in wanted:
        claims = claims_of(name)
        assert claims and all(claim.verdict for claim in claims), name
        assert all(claim.cause and claim.why for claim in claims if claim.verdict != "holds"), name


def test_statements_name_methods_that_their_study_has() -> None:
    for name in set(reproductions()) - set(COMPUTED):
        document = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
        methods = {method["name"] for method in document["methods"]}
        for claim in claims_of(name):
            named = {
                *claim.less,
                *claim.more,
                *claim.falling,
                *claim.spread,
                claim.passes,
                claim.rival,
            } - {""}
            assert named <= methods, (name, claim.text)


def test_a_reproduction_without_data_is_a_table_with_claims(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    out = tmp_path / "totals"
    assert main(["reproduce", "li-fig6", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.replace(str(out), "").splitlines())) <= 80
    assert "holds (2 of 2)" in printed
    last = pd.read_csv(out / "table.csv").set_index("accounting")["100"]
    # c_0 q epsilon sqrt(T/(1 - q)) with q = 50/325, (21)
    assert last["FedSPD-DP, all clients, without replacement (paper)"] == pytest.approx(
        3.04 * (50 / 325) * 0.1 * (100 / (1 - 50 / 325)) ** 0.5
    )
    assert last["DP-ADMM (paper)"] == pytest.approx(3.04)
    claims = pd.read_csv(out / "claims.csv")
    assert len(claims) == 6 and (claims.outcome == claims.settled).all()


def test_wrong_scale_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "gauthier-fig2", "--out", str(tmp_path / "x"), "--scale", "half"]
    assert main(words) == 2
    assert "one of quick, full" in capsys.readouterr().err
