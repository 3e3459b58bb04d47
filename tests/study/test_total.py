"""Totals of joint publications, compared with the analytic Gaussian mechanism by scipy."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.core.store import Study, read_manifest, read_study
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.grid.scenarios import read_demand_series
from gridpriv.privacy.accounting import total_epsilon
from gridpriv.privacy.mechanism import Charge
from gridpriv.report.export import study_messages
from gridpriv.report.source import summary
from gridpriv.study import Method, compare, learned, make_plan
from gridpriv.study.engine import differing, study_totals
from gridpriv.study.learned import LearnPlan, attempted, compare_learning
from gridpriv.study.plan import method_of
from gridpriv.study.record import publish_study
from gridpriv.zonal.horizon import run_series
from gridpriv.zonal.settings import make_settings

DELTA = 1e-5


def gaussian_epsilon(multipliers: list[float], delta: float) -> float:
    """Return epsilon of Gaussian releases together (Balle and Wang 2018, theorem 8)."""
    mu = math.sqrt(sum(1.0 / m**2 for m in multipliers))

    def excess(e: float) -> float:
        return norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta

    return float(brentq(excess, 0.0, 200.0, xtol=1e-10))


def made(runs: list[dict], charges: list[tuple], maps: dict[str, dict[str, str]]) -> Study:
    common = {
        "case": "c",
        "zoning": "",
        "load_scale": 1.0,
        "beta": "0.01",
        "protects": "p+q",
        "budget": "total:1",
        "target_delta": DELTA,
    }
    columns = ["run", "owner", "kind", "parameter", "second", "count"]
    manifest = {"cases": [{"case": "c", "zoning": z, "map": m} for z, m in maps.items()]}
    tables = {
        "runs": pd.DataFrame([common | run for run in runs]),
        "charges": pd.DataFrame(charges, columns=columns).assign(drawn=lambda c: c["count"]),
    }
    return Study(Path(), manifest, tables)


def test_runs_on_the_same_data_compose() -> None:
    charges = [
        (run, zone, "gaussian", m, 0.0, 4) for run in "ab" for zone, m in (("1", 3.0), ("2", 5.0))
    ]
    study = made([{"run": "a"}, {"run": "b"}], charges, {"": {"1": "1", "2": "2"}})
    (total,) = study_totals(study)
    assert total.runs == 2 and total.unknown == 0
    assert total.epsilon == pytest.approx(gaussian_epsilon([3.0] * 8, DELTA), rel=1e-6)


def test_a_run_counts_by_its_charges_and_not_by_the_budget_that_it_names() -> None:
    charges = [("a", "1", "gaussian", 4.0, 0.0, 1), ("b", "1", "gaussian", 4.0, 0.0, 1)]
    runs = [
        {"run": "a", "budget": "total:1"},
        {"run": "b", "budget": "none"},
        {"run": "c", "budget": "none"},
    ]
    (total,) = study_totals(made(runs, charges, {"": {"1": "1"}}))
    assert (total.runs, total.unknown) == (2, 0)
    assert total.epsilon == pytest.approx(gaussian_epsilon([4.0, 4.0], DELTA), rel=1e-6)


def test_what_a_killed_run_may_have_drawn_counts_before_any_has_finished() -> None:
    """The first step of a series was killed: it left its charges, but no row."""
    study = made([], [("000000", "1", "gaussian", 4.0, 0.0, 3)], {"": {"1": "1"}})
    study.tables["runs"] = pd.DataFrame({"run": [], "status": []}, dtype=str)
    study.manifest["study"] = {
        "settings": {"budget": "total:1", "target_delta": DELTA, "beta": "1MW", "protects": "p"}
    }
    (total,) = study_totals(study)
    assert (total.case, total.runs, total.unknown) == ("c", 1, 0)
    epsilon = gaussian_epsilon([4.0] * 3, DELTA)
    assert total.epsilon == pytest.approx(epsilon, rel=1e-6)
    text = " ".join(map(str, study_messages(study, summary(study))))
    assert f"may have released values that cost at most epsilon {epsilon:.3g} at delta" in text


def test_a_bus_is_charged_for_its_zones_under_every_map() -> None:
    multipliers = [("a", "1", 2.0), ("a", "2", 9.0), ("b", "x", 8.0), ("b", "y", 3.0)]
    charges = [(run, zone, "gaussian", m, 0.0, 1) for run, zone, m in multipliers]
    maps = {"": {"1": "1", "2": "1", "3": "2"}, "z": {"1": "x", "2": "x", "3": "y"}}
    (total,) = study_totals(made([{"run": "a"}, {"run": "b", "zoning": "z"}], charges, maps))
    worst = max(gaussian_epsilon([2.0, 8.0], DELTA), gaussian_epsilon([9.0, 3.0], DELTA))
    assert total.epsilon == pytest.approx(worst, rel=1e-6)
    assert total.epsilon < gaussian_epsilon([2.0, 3.0], DELTA)


def test_distances_are_compared_on_the_base_of_the_case_and_what_differs_is_named() -> None:
    charges = [(run, "1", "gaussian", 4.0, 0.0, 1) for run in "abc"]
    betas = {"a": "0.01", "b": "1MW", "c": "1000kW"}  # of a base of 100 MVA
    runs = [{"run": run, "beta": beta, "beta_pu": 0.01} for run, beta in betas.items()]
    study = made(runs, charges, {"": {"1": "1"}})
    assert differing(study.runs) == []
    (total,) = study_totals(study)
    assert total.epsilon == pytest.approx(gaussian_epsilon([4.0] * 3, DELTA), rel=1e-6)
    study.runs.loc[2, "beta_pu"] = 0.02
    assert differing(study.runs) == ["beta"]
    assert study_totals(study)[0].epsilon is None


def test_scaled_demand_is_charged_as_it_was() -> None:
    """Beta refers to the owner's demand, so the charges of a run hold at any scale."""
    charges = [("a", "1", "gaussian", 4.0, 0.0, 1), ("b", "1", "gaussian", 4.0, 0.0, 1)]
    runs = [{"run": "a"}, {"run": "b", "load_scale": 2.0}]
    (total,) = study_totals(made(runs, charges, {"": {"1": "1"}}))
    assert total.epsilon == pytest.approx(gaussian_epsilon([4.0, 4.0], DELTA), rel=1e-6)


EARLY = {"perturbation": "demand", "noise_schedule": "round", "planning": "soc"}
EARLY |= {"acceleration": "none", "rounds": 400, "tolerance": 0.0115, "budget": "per-release:0.1"}
FLAGS = [word for name, value in EARLY.items() for word in (f"--{name}".replace("_", "-"), value)]
DAY = "step,load_scale\na,1.0\nb,0.9\n"


@pytest.mark.parametrize("steps", [1, 2])
def test_a_folder_states_the_total_of_a_run_that_stopped_early(tmp_path: Path, steps: int) -> None:
    """At a delta: all planned releases, or the pure sum of those drawn, as the certificate."""
    (tmp_path / "day.csv").write_text(DAY)
    words = ["run", "case14", *map(str, FLAGS), "--seed", "3", "--no-reference", "--quiet"]
    words += ["--series", str(tmp_path / "day.csv")] if steps > 1 else []
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    name = "run.json" if steps == 1 else "horizon.json"
    privacy = json.loads((tmp_path / "out" / name).read_text())["privacy"]
    planned = total_epsilon({Charge("laplace", 10.0): steps * 400}, privacy["total"]["delta"])
    assert privacy["total"]["epsilon"] == pytest.approx(min(planned, privacy["total_pure"]))
    study = read_study(tmp_path / "out")
    for (total,) in (study_totals(study), study_totals(publish_study(study))):
        assert total.runs == steps
        assert total.epsilon == pytest.approx(privacy["total"]["epsilon"], rel=1e-9)
        assert total.pure == pytest.approx(privacy["total_pure"], rel=1e-9)
    assert read_manifest(tmp_path / "out")["totals"] == [vars(total)]


def test_a_series_in_python_states_the_same_total_as_its_folder(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text(DAY)
    case = load_case("case14")
    series = read_demand_series(tmp_path / "day.csv", case)
    result = run_series(series, shipped_zoning(case), make_settings(**EARLY, seed=3))
    for item in result.certificates:
        assert item.releases < 2 * 400
        planned = total_epsilon({Charge("laplace", 10.0): 2 * 400}, 1e-5)
        assert item.total == pytest.approx(min(planned, item.total_pure), rel=1e-9)


def test_a_study_takes_the_pure_sum_of_drawn_releases_where_it_is_smaller() -> None:
    rows = [(run, "1", "laplace", 10.0, 0.0, 400) for run in "ab"]
    study = made([{"run": "a"}, {"run": "b"}], rows, {"": {"1": "1"}})
    charges = {Charge("laplace", 10.0): 800}
    for drawn, least in ((20, 4.0), (400, total_epsilon(charges, DELTA))):
        study.tables["charges"]["drawn"] = drawn
        (total,) = study_totals(study)
        assert total.epsilon == pytest.approx(least, rel=1e-9)
        assert total.pure == pytest.approx(2 * drawn * 0.1, rel=1e-9)


def test_what_has_no_one_total_says_so() -> None:
    charges = [("a", "1", "gaussian", 4.0, 0.0, 1), ("b", "1", "uncertified", 0.0, 0.0, 1)]
    maps = {"": {"1": "1"}}
    (total,) = study_totals(made([{"run": "a"}, {"run": "b"}], charges, maps))
    assert total.epsilon == math.inf
    (total,) = study_totals(
        made([{"run": "a", "beta_pu": 0.02}, {"run": "b", "beta_pu": 0.01}], charges, maps)
    )
    assert total.epsilon is None
    (total,) = study_totals(made([{"run": "a"}, {"run": "lost"}], charges[:1], maps))
    assert total.unknown == 1


def test_a_study_states_its_total_also_in_public(tmp_path: Path) -> None:
    methods = [
        Method("output", (("perturbation", "output"), ("mechanism", "gaussian"))),
        Method("noise-free", (("mechanism", "none"),)),
    ]
    study = compare(
        make_plan(
            ["case14"],
            budgets=[1],
            methods=methods,
            seeds=3,
            settings={"rounds": 2},
            reference=False,
        ),
        out=tmp_path / "study",
        jobs=1,
    )
    (total,) = study_totals(study)
    assert total.runs == 3
    each = study.done.total_epsilon.dropna().max()
    m = brentq(lambda m: gaussian_epsilon([m], DELTA) - each, 0.1, 100.0, xtol=1e-12)
    assert total.epsilon == pytest.approx(gaussian_epsilon([m] * 3, DELTA), rel=1e-5)
    for seen in (study, publish_study(study)):
        text = " ".join(map(str, study_messages(seen, summary(seen))))
        assert "the 3 noisy runs of case14" in " ".join(text.split())
        assert f"with a release is at most {total.epsilon:.3g} at delta" in " ".join(text.split())


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"algorithm": "dp-fedavg"},
            "presence or absence of one client's update in the sum; the server is",
        ),
        (
            {"algorithm": "dpsgd", "adjacency": "zero-out"},
            "any change of one sample of one client to a blank",
        ),
    ],
)
def test_other_units_have_no_one_total_and_the_report_says_which(
    tmp_path: Path, other: dict, message: str
) -> None:
    ways = tuple(
        method_of({"name": n} | way)
        for n, way in (("ours", {"algorithm": "dpsgd"}), ("theirs", other))
    )
    given = {"rounds": 2, "clients": 5, "clip": 1.0}
    plan = LearnPlan("lasso", ways, ("total:1,1e-5",), (0,), given, allowed=("units",))
    study = compare_learning(plan, tmp_path / "study")
    (total,) = study_totals(study)
    assert total.epsilon is None and total.pure is None
    for seen in (study, publish_study(study)):
        answer = " ".join(map(str, study_messages(seen, summary(seen))))
        assert "no common total" in answer and "cost at most" not in answer
        assert (
            'Protected by "ours": any change of one sample of one client to any other; ' in answer
        )
        assert f'Protected by "theirs": {message}' in answer


def test_learning_composes_over_seeds(tmp_path: Path) -> None:
    way = method_of({"name": "dpsgd", "algorithm": "dpsgd"})
    given = {"rounds": 2, "clients": 5, "clip": 1.0}
    plan = LearnPlan("lasso", (way,), ("total:1,1e-5",), (0, 1), given)
    study = compare_learning(plan, tmp_path / "study")
    (total,) = study_totals(study)
    assert total.runs == 2 and 1.0 < total.epsilon < 2.0 and total.pure == math.inf


@pytest.mark.parametrize("noise", ["secure", "simulated"])
def test_a_comparison_that_was_killed_draws_no_secure_noise_again(
    noise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draws of the lost run are unknown, so no total may be stated."""
    pytest.importorskip("opendp")
    way = method_of({"name": "ours", "algorithm": "pvp", "noise": noise})
    plan = LearnPlan(
        "lasso", (way,), ("total:1,1e-5",), (0,), {"rounds": 1, "clients": 2, "clip": 1.0}
    )

    def lost(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(learned, "learn", lost)
        with pytest.raises(KeyboardInterrupt):
            compare_learning(plan, tmp_path / "study")
    if noise == "secure":
        with pytest.raises(InputError, match="secure noise to do that may have drawn it already"):
            compare_learning(plan, tmp_path / "study", resume=True)
    else:
        assert len(compare_learning(plan, tmp_path / "study", resume=True).runs) == 1


def test_a_defect_in_one_run_of_learning_costs_no_other():
    """It becomes a row that names it, as in a study of grids."""

    def broken(*_):
        raise ValueError("no such column")

    method = method_of({"name": "ours", "algorithm": "dpsgd"})
    (trial,) = LearnPlan("lasso", (method,), ("total:1,1e-5",), (0,), {"clip": 1.0}).trials()
    (row,) = attempted(broken, trial)["runs"]
    assert row["status"] == "failed"
    assert row["reason"] == "internal error, ValueError: no such column"
