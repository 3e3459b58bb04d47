"""The command, its JSON document, comparisons that resume, and reproductions."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import made
import pandas as pd
import pytest

from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.learning import LearnSettings, learn, make_learn_settings
from gridpriv.learning import compare as compare_module
from gridpriv.learning.algorithms.names import PERTURBED
from gridpriv.learning.compare import compare, plan
from gridpriv.learning.datasets import load_dataset
from gridpriv.learning.papers import REPRODUCTIONS
from gridpriv.learning.reproduce import Claim, Outcome, Reproduction, claim, falling
from gridpriv.learning.reproduce_gauthier import passing_round
from gridpriv.learning.reproduce_rk import figure5
from gridpriv.learning.stored import PlannedRuns, StoredRuns
from gridpriv.report.export import export
from gridpriv.report.summary import answers, summary


@pytest.fixture
def mnist(tmp_path):
    (tmp_path / "mnist").mkdir()
    made.write_mnist(tmp_path / "mnist")
    return tmp_path


def test_run_prints_one_json_document(mnist, capsys):
    words = ["learn", "run", "mnist", "--data", str(mnist), "--preset", "ryu-kim", "--rounds", "3",
             "--epsilon", "0.1", "--evaluate-every", "2", "--json"]  # fmt: skip
    assert main(words) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    assert {"case", "clients", "settings", "rounds", "final", "privacy", "solver", "timing", "seed",
            "version"} <= set(found)  # fmt: skip
    assert set(found["final"]) == {
        "objective", "consensus_residual", "train_loss", "test_accuracy", "test_error",
    }  # fmt: skip
    assert [row["test_error"] is None for row in found["rounds"]] == [True, False, False]
    assert len(found["clients"]) == 10 and found["clients"][0]["samples"] == 4
    assert found["settings"]["penalty"] == "growing:2,1.2,10000,1e9,5"
    privacy = found["privacy"]
    assert privacy["per_release"]["claimed"] == 0.1
    # sqrt(2) 28 is below the paper's sqrt(7840), so the paper's noise is more than enough
    assert privacy["sensitivity"][0]["ratio"] == pytest.approx((2 * 784 / 7840) ** 0.5)
    assert privacy["per_release"]["certified"] < 0.1
    assert privacy["total"]["delta"] == 1e-5 and privacy["releases_per_client"] == 3


def test_run_without_noise_has_null_privacy(mnist, capsys):
    words = ["learn", "run", str(mnist / "mnist"), "--mechanism", "none", "--rounds", "2", "--json"]
    assert main(words) == 0
    privacy = json.loads(capsys.readouterr().out)["privacy"]
    assert privacy["mechanism"] == "none"
    assert privacy["total"]["epsilon"] is None and privacy["per_release"]["certified"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--clients", "41"], "no client may be empty"),
        (["--algorithm", "dpsgd", "--sampled-clients", "11"], "at most 10"),
        (["--split", "writer"], "names no writers"),
        (["--preset", "li"], "with data set adult, not mnist"),
        (["--preset", "ryu-kin"], "did you mean 'ryu-kim'"),
        (["--budget", "total:1"], "total:E,D"),
        (["--norm", "-3"], "norm = -3.0"),
        (["--rounds", "0"], "a whole number, 1 or more"),
        (["--device", "tpu"], "one of cpu, cuda, torch"),
        (["--epsilon", "1", "--budget", "total:1,1e-5"], "exclude each other"),
    ],
)
def test_bad_input_exits_with_2_and_a_message(mnist, capsys, words, message):
    assert main(["learn", "run", "mnist", "--data", str(mnist), *words]) == 2
    out, err = capsys.readouterr()
    assert message in err and "Traceback" not in err and out == ""


def test_run_writes_a_folder(mnist, tmp_path):
    out = tmp_path / "run"
    words = [
        "learn",
        "run",
        "mnist",
        "--data",
        str(mnist),
        "--rounds",
        "2",
        "--out",
        str(out),
        "--quiet",
    ]
    assert main(words) == 0
    assert len(pd.read_csv(out / "rounds.csv")) == 2
    assert json.loads((out / "run.json").read_text())["dataset"]["train_samples"] == 40
    assert not list(out.glob("*.part"))


def test_seed_alone_decides_the_result():
    data = made.multiclass()
    one, same, other = (learn(data, LearnSettings(rounds=3, seed=s)) for s in (1, 1, 2))
    assert (one.w == same.w).all() and not (one.w == other.w).all()


def compared(folder, **more):
    given = {"rounds": 4, "clients": 4, "penalty": "1", "evaluate_every": 2}
    names = ["ryu-kim", "ryu-kim:output", "dp-admm", "dpsgd", "centralized"]
    return compare(lambda _: made.binary(), None, names, [1.0, 4.0], 2, folder, given, **more)


def test_comparison_is_at_equal_certified_totals_and_resumes(tmp_path, monkeypatch):
    study = compared(tmp_path / "study")
    private = study.done[study.done.budget != "none"]
    assert len(private) == 16 and len(study.runs) == 18
    stated = private.budget.str.extract(r"total:([0-9.]+)")[0].astype(float)
    assert (private.total_epsilon / stated).between(0.99, 1.0001).all()
    with pytest.raises(InputError, match="already holds 18 of the 18 runs"):
        compared(tmp_path / "study")
    monkeypatch.setattr(compare_module, "learn", lambda *_: pytest.fail("ran again"))
    again = compared(tmp_path / "study", resume=True)
    assert again.runs.test_error_pct.tolist() == study.runs.test_error_pct.tolist()


def test_interrupted_comparison_ends_with_the_same_figures(tmp_path, monkeypatch):
    whole = compared(tmp_path / "whole")
    finished = []

    def some(dataset, settings, watch):
        if len(finished) == 5:
            raise KeyboardInterrupt
        finished.append(settings)
        return learn(dataset, settings, watch)

    monkeypatch.setattr(compare_module, "learn", some)
    with pytest.raises(KeyboardInterrupt):
        compared(tmp_path / "cut")
    monkeypatch.setattr(compare_module, "learn", learn)
    rest = compared(tmp_path / "cut", resume=True)
    pd.testing.assert_frame_equal(rest.runs, whole.runs)
    pd.testing.assert_frame_equal(rest.rounds, whole.rounds)


def test_comparison_has_the_shared_report(tmp_path):
    study = compared(tmp_path / "study")
    table = summary(study)
    told = answers(study, table)
    best = table[table.budget.str.startswith("total:4")].sort_values("test_error_pct").iloc[0]
    assert f'"{best.series}" costs the least, {best.test_error_pct:.2f} %' in told[0]
    assert {"ryu-kim", "dp-admm", "centralized"} <= set(table.series)
    (page,) = export(study.folder, ["html"])
    text = page.read_text()
    assert "Test error" in text and "Shed" not in text and "MW" not in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch": 500}, "batch = 500 is not allowed: at most 100"),
        ({"sampled_clients": 9}, "sampled_clients = 9 is not allowed: at most 4"),
        ({"graph": "ring"}, "graph = 'ring' is not allowed: left out with dpsgd, pvp: none"),
        ({"target_delta": 1e-3}, "target_delta = 0.001 is not allowed: left out: a comparison"),
        ({"calibration": "paper"}, "calibration = 'paper' is not allowed: left out"),
    ],
)
def test_comparison_refuses_before_the_first_run(tmp_path, given, message):
    folder, given = tmp_path / "study", {"rounds": 3, "clients": 4} | given
    with pytest.raises(InputError, match=message):
        compare(lambda _: made.binary(), None, ["dpsgd", "pvp"], [1.0], 1, folder, given)
    assert not folder.exists()


def test_a_client_level_certificate_is_not_compared_with_samples(tmp_path):
    with pytest.raises(InputError, match="algorithms = 'dp-fedavg' is not allowed"):
        compare(lambda _: made.binary(), None, ["dpsgd", "dp-fedavg"], [1.0], 1, tmp_path / "s", {})


def test_failed_run_of_a_comparison_says_why(tmp_path):
    """Too little penalty for dvp's certificate: seen only when its noise is calibrated."""
    given = {"rounds": 3, "clients": 4, "penalty": "0.001"}
    data = made.binary()
    study = compare(lambda _: data, None, ["dvp"], [1.0], 1, tmp_path / "study", given)
    assert study.failed.reason.str.contains("larger --penalty").all()
    assert len(study.failed) == 1


def test_a_run_says_what_its_noise_is_added_to():
    told = {name: LearnSettings(algorithm=name).as_dict()["perturbation"] for name in PERTURBED}
    assert (told["dvp"], told["dpsgd"], told["dp-admm"]) == ("dual", "gradient", "output")
    assert LearnSettings(perturbation="output").as_dict()["perturbation"] == "output"
    assert LearnSettings(mechanism="none", algorithm="pvp").as_dict()["perturbation"] == "none"


def test_settings_go_to_the_algorithms_that_read_them():
    given = {"rounds": 3, "clients": 4, "batch": 5, "penalty": "2"}
    data = made.binary()
    trials = plan(data, None, ["dpsgd", "dp-admm", "admm"], [1.0], 1, given)
    sgd, dp_admm, admm = [trial.settings for trial in trials]
    assert (sgd.batch, dp_admm.batch, admm.batch) == (5, None, None)
    assert sgd.penalty == LearnSettings.penalty and str(dp_admm.penalty) == str(admm.penalty) == "2"
    assert (sgd.mechanism, admm.mechanism) == ("gaussian", "none")


def test_study_on_changed_data_is_not_resumed(tmp_path):
    given = {"rounds": 2, "clients": 4}
    first, other = made.binary(), made.binary(seed=8)
    compare(lambda _: first, None, ["dpsgd"], [1.0], 1, tmp_path / "study", given)
    with pytest.raises(InputError, match="fingerprint"):
        compare(lambda _: other, None, ["dpsgd"], [1.0], 1, tmp_path / "study", given, resume=True)


def test_a_row_is_what_learn_run_of_its_seed_gives(tmp_path):
    def datasets(seed):
        return load_dataset("lasso", seed=seed)

    given = {"rounds": 5}
    study = compare(datasets, "gauthier", ["cdp-admm"], [1.0], 2, tmp_path / "study", given)
    for row in study.runs.itertuples():
        settings = make_learn_settings(
            "lasso", "gauthier", budget="total:1.0,1e-05", seed=row.seed, rounds=5
        )
        alone = learn(datasets(row.seed), settings)
        assert row.test_mse == alone.final["test_error"]
    assert study.runs.test_mse.nunique() == 2


def test_preset_gives_way_to_what_is_given():
    found = make_learn_settings("adult", "huang-l2", clients=7)
    assert (found.clients, found.radius, found.step, found.rounds) == (7, 89.0, "smooth", 100)


def test_claims_are_counted():
    assert claim("a", [("x", 1, 2), ("y", 3, 2)]) == Claim(
        "a", 1, 2, "x: 1 against 2; y: 3 against 2"
    )
    assert claim("a", [("x", 1, 2)]).outcome == "holds"
    assert claim("a", [("x", 2, 2)]).outcome == "does not hold"
    assert falling("b", "v", [3, 2, 2.5]).outcome == "holds in part"


def test_passing_is_for_good():
    assert passing_round([9, 5, 3, 1], [4, 4, 4, 4]) == 3
    assert passing_round([3, 5, 3, 1], [4, 4, 4, 4]) == 3
    assert passing_round([1, 1], [4, 4]) == 1
    assert passing_round([1, 1, 4], [4, 4, 4]) is None


def test_every_reproduction_of_the_issue_is_there():
    wanted = {"rk-fig5", "rk-fig6", "rk-fig7", "huang-table2", "gauthier-fig1", "gauthier-fig2"}
    wanted |= {f"huang-fig{k}" for k in range(1, 7)} | {f"li-fig{k}" for k in range(2, 7)}
    assert set(REPRODUCTIONS) == wanted


class MadeUpRuns:
    """Records in which ObjG errs less than OutG, and E = 5 more than 1 at certified totals only."""

    full = False

    def run(self, *_, budget, perturbation="objective", local_updates=1, **__):
        error = 0.3 if perturbation == "objective" else 0.4
        error += (0.1 if budget.startswith("total") else -0.1) * (local_updates > 1)
        series = {"noise_magnitude": [7840.0 * (1 + error)] * 2, "seconds": [1.0], "round": [1, 2],
                  "objective": [2.0, error], "test_error": [0.9, error]}  # fmt: skip
        return {
            "settings": {"box": 0.1}, "series": series,
            "final": {"objective": error, "test_error": error},
            "privacy": {"total": {"epsilon": 1.0}, "notes": []},
        }  # fmt: skip


def test_claims_of_figure_5_say_what_the_runs_say():
    found = figure5(MadeUpRuns())
    outcomes = {c.text: c.outcome for c in found.claims}
    assert outcomes == {
        "The noise of ObjG is greater than that of OutG (E = 1).": "does not hold",
        "ObjG's objective is below OutG's (E = 1).": "holds",
        "E = 5 has a lower objective than E = 1.": "holds",
        "ObjG's test error is below OutG's (E = 1).": "holds",
        "E = 5 has a lower test error than E = 1.": "holds",
        "At equal certified totals: ObjG's test error is below OutG's (E = 1).": "holds",
        "At equal certified totals: E = 5 has a lower test error than E = 1.": "does not hold",
    }
    assert len(found.table) == 4 * 3 + 3 * 3
    assert found.table.noise.between(1.2, 1.5).all()


def test_reproduction_without_data_runs_and_writes_figure_table_and_claims(tmp_path, capsys):
    assert main(["learn", "reproduce", "li-fig6", "--out", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["claims"]) == 5 and found["scale"] == "quick"
    assert (tmp_path / "figure.png").stat().st_size > 5000
    assert len(pd.read_csv(tmp_path / "table.csv")) == 6
    lines = (tmp_path / "claims.md").read_text().splitlines()
    assert sum(line.startswith("- holds") for line in lines) >= 2


def test_planned_steps_are_those_that_run(tmp_path):
    """The bar's total is counted on stand-ins; runs, also those kept, advance it to just there."""
    settings = make_learn_settings(
        "lasso", "gauthier", rounds=3, local_updates=2, algorithm="ryu-kim", budget="total:1,1e-5"
    )
    dataset, planned, done = load_dataset("lasso"), PlannedRuns(), []
    stand_in = planned.get(dataset, settings)
    runs = StoredRuns(tmp_path, lambda _, steps: done.append(steps))
    record = runs.get(dataset, settings)
    assert done == [2, 2, 2] and planned.steps == 6
    assert runs.get(dataset, settings) == record and done == [2, 2, 2, 6]
    assert stand_in["series"].keys() == record["series"].keys()
    assert {len(values) for values in stand_in["series"].values()} == {3}
    assert stand_in["series"]["round"] == record["series"]["round"]
    assert stand_in["final"].keys() >= {"objective", "test_error", "local_error"}


def test_wrong_scale_is_refused(tmp_path, capsys):
    words = ["learn", "reproduce", "li-fig6", "--out", str(tmp_path), "--scale", "half"]
    assert main(words) == 2
    assert "one of quick, full" in capsys.readouterr().err


def test_reproduction_writes_its_folder(tmp_path):
    made_up = Reproduction(
        "x", "X", lambda _: Outcome(pd.DataFrame({"a": [1]}), [], lambda figure: figure.subplots())
    )
    assert made_up.run("quick", None, tmp_path).table.a.tolist() == [1]
    assert (tmp_path / "table.csv").read_text() == "a\n1\n"


def test_a_result_is_one_line_and_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    settings = make_learn_settings("lasso", "gauthier", rounds=3, seed=4)
    result = learn(load_dataset("lasso"), settings)
    assert repr(result).startswith("LearnResult(lasso: cdp-admm, 50 clients, 3 rounds, gaussian")
    assert len(repr(result)) < 160
    page = " ".join(ET.fromstring(f"<div>{result._repr_html_()}</div>").itertext())
    assert (
        main(["learn", "run", "lasso", "--preset", "gauthier", "--rounds", "3", "--seed", "4"]) == 0
    )
    told = capsys.readouterr().out
    for sentence in ("Protected: one sample of one client", "no privacy: simulated noise"):
        assert sentence in page and sentence in told
