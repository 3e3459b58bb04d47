from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from gridpriv.cli.main import main
from gridpriv.core.store import Study
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.sensitivity import Sensitivity
from gridpriv.study.claims import CLAIMS, Comparison, check_claims, verdict
from gridpriv.study.papers import table1, table1_claims
from gridpriv.zonal.run import noise_rule
from gridpriv.zonal.settings import make_settings

# RK table 1 at epsilon 0.1, beta 0.01, delta 0.01, worked out by hand: ln 125 = 4.828314
AT_A_TENTH = {"ObjG": 0.3862651, "ObjL": 0.08, "OutG": 0.09656628, "OutL": 0.02}


@pytest.fixture(scope="module")
def variances() -> pd.DataFrame:
    return table1()


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
    claims = table1_claims(variances).set_index("calibration")
    assert claims.outcome["paper"] == "holds"
    assert claims.outcome["sound, case118"] == "does not hold"
    # D1 of case118 is 13 times the claimed one for p alone (26 for p+q): variance 676 times
    ratio = variances[variances.algorithm == "ObjL"].eval("sound_case118 / drawn")
    assert ratio.to_numpy() == pytest.approx(26.0**2, rel=1e-6)


def test_a_statement_holds_only_if_all_its_comparisons_do() -> None:
    right, wrong = Comparison("a", 1.0, 2.0), Comparison("b", 2.0, 1.0)
    assert verdict([right, right], every=True)["outcome"] == "holds"
    told = verdict([right, wrong], every=True)
    assert told["outcome"] == "does not hold"
    assert (told["holding"], told["comparisons"]) == (1, 2)
    assert verdict([right, wrong], every=False)["outcome"] == "holds"
    assert verdict([wrong], every=False)["outcome"] == "does not hold"
    assert verdict([Comparison("tie", 1.0, 1.0)], every=True)["outcome"] == "does not hold"


def made_up(reverse: str = "") -> Study:
    """Return a study whose figures obey every statement, but for the metric ``reverse``."""
    runs, rounds = [], []
    for scheme in ("ObjG", "ObjL", "OutG", "OutL"):
        for eps in (0.05, 0.1, 0.5, 1.0):
            for updates in (1, 5):
                run = f"{scheme}-{eps}-{updates}"
                runs.append(
                    {"run": run, "case": "c", "scheme": scheme, "budget": f"per-release:{eps}",
                     "local_updates": updates, "mechanism": "x", "rounds": 20, "status": "done"}
                )  # fmt: skip
                kind = {"ObjG": 4.0, "OutG": 3.0, "ObjL": 2.0, "OutL": 1.0}[scheme]
                rank = {"ObjL": 1.0, "ObjG": 2.0, "OutL": 3.0, "OutG": 4.0}[scheme]
                if updates == 5 and eps == 1.0:
                    rank = 5.0 - rank
                figures = {"noise_magnitude": kind / eps, "objective": rank,
                           "consensus_residual": 1.0 / updates}  # fmt: skip
                if reverse:
                    figures[reverse] = 1.0 / figures[reverse]
                # early rounds say the opposite: only the last ten count for these two
                early = figures | {k: -figures[k] for k in ("objective", "consensus_residual")}
                rounds += [{"run": run, "round": t} | early for t in range(1, 11)]
                rounds += [{"run": run, "round": t} | figures for t in range(11, 21)]
    return Study(None, {}, {"runs": pd.DataFrame(runs), "rounds": pd.DataFrame(rounds)})


def test_figures_that_obey_the_paper_pass_every_check() -> None:
    claims = check_claims(made_up())
    assert set(claims.claim) == {claim for claim, _, _ in CLAIMS}
    assert (claims.outcome == "holds").all(), claims


@pytest.mark.parametrize(
    ("metric", "failing"), [("noise_magnitude", 3), ("objective", 3), ("consensus_residual", 2)]
)
def test_figures_that_do_not_fail_their_checks(metric: str, failing: int) -> None:
    claims = check_claims(made_up(metric))
    assert (claims.outcome == "does not hold").sum() == failing
    assert claims[claims.outcome == "does not hold"].detail.str.startswith("not: ").all()


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "rk-table1"]) == 0
    told = capsys.readouterr().out
    assert "0.3863" in told
    assert "does not hold" in told


def test_an_unknown_name_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "rk-fig33"]) == 2
    assert "rk-fig3" in capsys.readouterr().err


def test_claims_of_missing_parts_are_left_out() -> None:
    study = made_up()
    runs = study.tables["runs"]
    study.tables["runs"] = runs[runs.local_updates == 1]
    claims = check_claims(study)
    assert not claims.claim.str.startswith("E = 5").any()
    assert math.isfinite(claims.holding.sum())
