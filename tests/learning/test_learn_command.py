"""The command, its JSON document, comparisons that resume, and reproductions."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from dataclasses import replace

import made
import pandas as pd
import pytest

from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.core.text import number_text
from gridpriv.learning import LearnSettings, learn, make_learn_settings
from gridpriv.learning.algorithms import PERTURBED
from gridpriv.learning.datasets import load_dataset
from gridpriv.report.export import export
from gridpriv.report.panel import cards
from gridpriv.report.source import summary
from gridpriv.study import learned, read_study
from gridpriv.study.learned import DatasetLoader, LearnPlan, compare_learning
from gridpriv.study.plan import method_of


@pytest.fixture
def mnist(tmp_path):
    (tmp_path / "mnist").mkdir()
    made.write_mnist(tmp_path / "mnist")
    return tmp_path


def test_run_prints_one_json_document(mnist, capsys):
    words = [
        "learn",
        "run",
        "mnist",
        "--data",
        str(mnist),
        "--preset",
        "ryu-kim",
        "--rounds",
        "3",
        "--epsilon",
        "0.1",
        "--evaluate-every",
        "2",
        "--json",
    ]
    assert main(words) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert err == ""
    assert {
        "case",
        "clients",
        "settings",
        "rounds",
        "final",
        "privacy",
        "solver",
        "timing",
        "seed",
        "version",
    } <= set(document)
    assert set(document["final"]) == {
        "objective",
        "consensus_residual",
        "train_loss",
        "test_accuracy",
        "test_error",
    }
    assert [row["test_error"] is None for row in document["rounds"]] == [True, False, False]
    assert len(document["clients"]) == 10 and document["clients"][0]["samples"] == 4
    assert document["settings"]["penalty"] == "geometric:2,1.2,10000,1e9,5"
    privacy = document["privacy"]
    assert privacy["per_release"]["nominal"] == 0.1
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
        (["--norm", "-3"], "--norm -3"),
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
    item, same, other = (learn(data, LearnSettings(rounds=3, seed=s)) for s in (1, 1, 2))
    assert (item.w == same.w).all() and not (item.w == other.w).all()


def make_plan(names, totals, seeds, given, dataset="made", **more):
    ways = [
        {"name": name, "algorithm": name.partition(":")[0]}
        | ({"perturbation": "output"} if name.endswith(":output") else {})
        for name in names
    ]
    return LearnPlan(
        dataset,
        tuple(method_of(way) for way in ways),
        tuple(f"total:{total},1e-5" for total in totals),
        tuple(range(seeds)),
        given | {"sensitivity": "proven"},
        **more,
    )


def binary(*_):
    return made.binary()


def compared(folder, **more):
    given = {"rounds": 4, "clients": 4, "penalty": "1", "evaluate_every": 2}
    names = ["ryu-kim", "ryu-kim:output", "dp-admm", "dpsgd", "centralized"]
    return compare_learning(make_plan(names, [1.0, 4.0], 2, given), folder, binary, **more)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return compared(tmp_path_factory.mktemp("compared") / "study")


def test_comparison_is_at_equal_certified_totals_and_resumes(study, monkeypatch):
    private = study.done[study.done.budget != "none"]
    assert len(private) == 16 and len(study.runs) == 18
    stated = private.budget.str.extract(r"total:([0-9.]+)")[0].astype(float)
    assert (private.total_epsilon / stated).between(0.99, 1.0001).all()
    with pytest.raises(InputError, match=r"18 of the 18 runs.* --resume to report on them again"):
        compared(study.folder)
    monkeypatch.setattr(learned, "learn", lambda *_, **__: pytest.fail("ran again"))
    again = compared(study.folder, resume=True)
    assert again.runs.test_error_pct.tolist() == study.runs.test_error_pct.tolist()


def test_several_processes_give_the_same_tables(tmp_path):
    given = {"rounds": 3, "clients": 4, "clip": 1.0}
    plan = make_plan(["dpsgd", "dp-admm"], [1.0], 2, given, dataset="lasso")
    each = compare_learning(plan, tmp_path / "one", DatasetLoader())
    two = compare_learning(plan, tmp_path / "two", DatasetLoader(), jobs=2)
    pd.testing.assert_frame_equal(each.runs, two.runs)
    pd.testing.assert_frame_equal(each.rounds, two.rounds)


def test_interrupted_comparison_ends_with_the_same_figures(study, tmp_path, monkeypatch):
    finished = []

    def some(dataset, settings, watch, **more):
        if len(finished) == 5:
            raise KeyboardInterrupt
        finished.append(settings)
        return learn(dataset, settings, watch, **more)

    monkeypatch.setattr(learned, "learn", some)
    with pytest.raises(KeyboardInterrupt):
        compared(tmp_path / "cut")
    monkeypatch.setattr(learned, "learn", learn)
    rest = compared(tmp_path / "cut", resume=True)
    pd.testing.assert_frame_equal(rest.runs, study.runs)
    pd.testing.assert_frame_equal(rest.rounds, study.rounds)


def test_comparison_has_the_shared_report(study):
    table = summary(study)
    facts = {fact.label: fact for card in cards(study, table) for fact in card.facts}
    best = table[table.budget.str.startswith("total:4")].sort_values("test_error_pct").iloc[0]
    assert facts["Lowest mean test error"].value == best.series
    assert facts["Lowest mean test error"].note.startswith("not distinguishable from ")
    assert facts["Test error"].value == f"{number_text(best.test_error_pct)} %"
    assert {"ryu-kim", "dp-admm", "centralized"} <= set(table.series)
    (page,) = export(study.folder, ["html"])
    text = page.read_text()
    assert "Test error" in text and "Shed" not in text and "MW" not in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch": 500}, "batch = 500: must be at most 100"),
        ({"sampled_clients": 9, "clients": 4}, "sampled_clients = 9: must be at most 4"),
    ],
)
def test_comparison_refuses_before_the_first_run(tmp_path, given, message):
    folder, given = tmp_path / "study", {"rounds": 3, "clients": 4} | given
    with pytest.raises(InputError, match=message):
        compare_learning(make_plan(["dpsgd"], [1.0], 1, given), folder, binary)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--graph", "regular:2"], "--graph regular:2: must be left out: none of these"),
        (["--target-delta", "1e-3"], "unknown flag --target-delta"),
        (["--method", "x: sensitivity=published"], "sensitivity: must be left out"),
        (["--method", "x: algorythm=pvp"], "did you mean 'algorithm'"),
        (["--tune", "radius"], "SETTING=VALUE,VALUE"),
        (["--tune", "radius=-1"], "radius"),
        (["--tune", "rounds=3,4"], "setting = 'rounds': must be"),
        (["--tune-on", "charged"], "declare one with --tune"),
        (["--tune", "penalty=1,2", "--tune-on", "public:1"], "S above 0, below 1"),
        (["--study", "x.toml", "--tune-on", "charged"], "lasso, --clip, --algorithms, --tune-on"),
        (["--allow", "anything"], "--allow anything"),
        (["--jobs", "0"], "--jobs 0"),
        (["--seeds", "0"], "--seeds 0: must be a whole number, 1 or more"),
        (["--totals", "1,0"], "--totals 0: must be a positive number"),
        (["--totals", ""], "--totals ''"),
    ],
)
def test_bad_comparisons_exit_with_2(capsys, tmp_path, words, message):
    out = tmp_path / "study"
    given = ["learn", "compare", "lasso", "--algorithms", "pvp,dpsgd", "--clip", "1"]
    assert main([*given, *words, "--out", str(out)]) == 2
    assert message in capsys.readouterr().err and not out.exists()


def test_other_units_of_privacy_are_refused_unless_allowed_by_name():
    given = {"rounds": 2, "clients": 4, "clip": 1.0}
    plan = make_plan(["dpsgd", "dp-fedavg"], [1.0], 1, given)
    with pytest.raises(InputError, match=r"one client's update.*server is trusted.*--allow units"):
        plan.trials()
    assert len(replace(plan, allowed=("units",)).trials()) == 2
    other = method_of({"name": "zero-out", "algorithm": "dpsgd", "adjacency": "zero-out"})
    with pytest.raises(InputError, match="any change of one sample of one client to a blank one"):
        replace(plan, methods=(plan.methods[0], other)).trials()


def test_unequal_client_rounds_are_refused_or_made_equal():
    given = {"rounds": 10, "clients": 4, "clip": 1.0, "sampled_clients": 2}
    plan = make_plan(["dpsgd", "dp-admm"], [1.0], 1, given)
    with pytest.raises(InputError, match=r"dpsgd: 20; dp-admm: 40|dp-admm: 40; dpsgd: 20"):
        plan.trials()
    sgd, admm = replace(plan, client_rounds=20).trials()
    assert (sgd.settings.rounds, admm.settings.rounds) == (10, 5)


def test_failed_run_of_a_comparison_says_why(tmp_path):
    """Too little penalty for dvp's certificate: seen only when its noise is calibrated."""
    given = {"rounds": 3, "clients": 4, "penalty": "0.001"}
    study = compare_learning(make_plan(["dvp"], [1.0], 1, given), tmp_path / "study", binary)
    assert study.failed.reason.str.contains("larger --penalty").all()
    assert len(study.failed) == 1


def test_a_run_says_what_its_noise_is_added_to():
    reported = {name: LearnSettings(algorithm=name).as_dict()["perturbation"] for name in PERTURBED}
    assert (reported["dvp"], reported["dpsgd"], reported["dp-admm"]) == (
        "dual",
        "gradient",
        "output",
    )
    assert LearnSettings(perturbation="output").as_dict()["perturbation"] == "output"
    assert LearnSettings(mechanism="none", algorithm="pvp").as_dict()["perturbation"] == "none"


def test_settings_go_to_the_algorithms_that_read_them():
    given = {"rounds": 3, "clients": 4, "batch": 5, "penalty": "2"}
    trials = make_plan(["dpsgd", "dp-admm", "admm"], [1.0], 1, given).trials()
    sgd, dp_admm, admm = [trial.settings for trial in trials]
    assert (sgd.batch, dp_admm.batch, admm.batch) == (5, None, None)
    assert sgd.penalty == LearnSettings.penalty and str(dp_admm.penalty) == str(admm.penalty) == "2"
    assert (sgd.mechanism, admm.mechanism) == ("gaussian", "none")


def test_study_on_changed_data_is_not_resumed(tmp_path):
    plan = make_plan(["dpsgd"], [1.0], 1, {"rounds": 2, "clients": 4})
    compare_learning(plan, tmp_path / "study", binary)
    with pytest.raises(InputError, match="fingerprint"):
        compare_learning(plan, tmp_path / "study", lambda *_: made.binary(seed=8), resume=True)


def test_a_row_is_what_learn_run_of_its_seed_gives(tmp_path):
    plan = make_plan(["cdp-admm"], [1.0], 2, {"rounds": 5, "preset": "gauthier"}, dataset="lasso")
    study = compare_learning(plan, tmp_path / "study", DatasetLoader())
    for row in study.runs.itertuples():
        settings = make_learn_settings(
            "lasso", "gauthier", budget="total:1.0,1e-05", seed=row.seed, rounds=5
        )
        alone = learn(load_dataset("lasso", seed=row.seed), settings)
        assert row.test_mse == alone.final["test_error"]
    assert study.runs.test_mse.nunique() == 2


def test_preset_gives_way_to_what_is_given():
    settings = make_learn_settings("adult", "huang-l2", clients=7)
    assert (
        settings.clients,
        settings.radius,
        settings.step,
        settings.rounds,
    ) == (7, 89.0, "smooth", 100)


def test_a_result_is_one_line_and_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    settings = make_learn_settings("lasso", "gauthier", rounds=3, seed=4)
    result = learn(load_dataset("lasso"), settings)
    assert repr(result).startswith("LearnResult(lasso: cdp-admm, 50 clients, 3 rounds, gaussian")
    assert len(repr(result)) < 160
    page = " ".join(ET.fromstring(f"<div>{result._repr_html_()}</div>").itertext())
    assert (
        main(["learn", "run", "lasso", "--preset", "gauthier", "--rounds", "3", "--seed", "4"]) == 0
    )
    output = capsys.readouterr().out
    for sentence in (
        "Protected: any change of one sample of one client",
        "simulated noise, no privacy",
    ):
        assert sentence in page and sentence in output


def test_a_pure_total_is_printed_where_the_noise_has_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["learn", "run", "lasso", "--clip", "1", "--rounds", "2"]
    assert main([*words, "--mechanism", "laplace", "--budget", "total:1"]) == 0
    printed = capsys.readouterr().out
    row = next(
        line for line in printed.splitlines() if "total epsilon (pure DP), 2 releases" in line
    )
    nominal, certified = map(float, row.split()[-2:])
    assert nominal == 1.0 and certified == pytest.approx(1.0, rel=1e-3)
    assert (
        "gradient" in printed
        and "This run: simulated noise" in printed
        and "Data: synthetic" in printed
    )
    assert main([*words, "--budget", "total:1,1e-5"]) == 0
    assert "(pure DP)" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--algorithm", "pvp", "--radius", "23"], ["--learning-rate", "0.1"]]
)
def test_what_nobody_reads_is_refused_also_where_it_equals_the_default(capsys, words):
    assert main(["learn", "run", "lasso", "--clip", "1", *words]) == 2
    assert "which does not read it" in capsys.readouterr().err


def test_a_presets_batch_is_undone_by_none(tmp_path):
    (tmp_path / "adult").mkdir()
    made.write_adult(tmp_path / "adult")
    unsampled = make_learn_settings("adult", "li", batch="none", sampled_clients="none")
    assert unsampled.batch is None and unsampled.sampled_clients is None
    with pytest.raises(InputError, match="rounds = 'none'"):
        make_learn_settings("adult", "li", rounds="none")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dataset = [", "study file"),
        ("datset = 'lasso'", "did you mean 'dataset'"),
        ("dataset = 'lasso'", "methods = []"),
        ("dataset = 'lasso'\nseeds = 3", "seeds = 3: must be a list of whole numbers"),
        ("dataset = 'lasso'\nseeds = [true]", "seeds = "),
        ("dataset = 'lasso'\nbudgets = [0.5, 'total:1']", "a list of texts"),
        ("dataset = 'lasso'\n[[methods]]\nalgorithm = 'dpsgd'", "a text that names the method"),
        ("dataset = 'lasso'\n[[methods]]\nname = 'a'\nalgorithm = 'dpsgd'", "budgets = []"),
        (
            "dataset = 'lasso'\nbudgets = ['total:1,1e-5']\n[[methods]]\nname = 'a'\nrunds = 3",
            "did you mean 'rounds'",
        ),
        ("dataset = 'lasso'\ntuning = 3", "a table of lists"),
        ("dataset = 'lasso'\nmeasure = 'speed'\n[[methods]]\nname = 'a'", "measure = 'speed'"),
    ],
)
def test_a_study_file_that_says_nothing_runnable_is_refused(tmp_path, capsys, text, message):
    (tmp_path / "s.toml").write_text(text)
    out = tmp_path / "out"
    assert main(["learn", "compare", "--study", str(tmp_path / "s.toml"), "--out", str(out)]) == 2
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err and not out.exists()


def test_a_study_file_without_end_is_refused_at_once(tmp_path, capsys):
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    assert main(["learn", "compare", "--study", str(pipe), "--out", str(tmp_path / "study")]) == 2
    assert f"study file {pipe} is a pipe" in capsys.readouterr().err


def test_a_study_file_is_run_by_the_command(tmp_path, capsys):
    (tmp_path / "s.toml").write_text(
        "dataset = 'lasso'\nbudgets = ['total:1,1e-5']\nseeds = [4]\n"
        "[settings]\nrounds = 3\nclip = 1.0\nclients = 5\n"
        "[tuning]\non = 'public:0.2'\nlearning-rate = [0.01, 0.1]\n"
        "[[methods]]\nname = 'a'\nalgorithm = 'dpsgd'\n"
        "[[methods]]\nname = 'b'\nalgorithm = 'dp-admm'\nradius = 2.0\n"
    )
    words = ["learn", "compare", "--study", str(tmp_path / "s.toml"), "--format", "none"]
    assert main([*words, "--out", str(tmp_path / "out"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["summary"]
    assert [row["method"] for row in rows] == ["a", "b"]
    chosen = read_study(tmp_path / "out").runs.tuned.tolist()
    assert "learning-rate" in chosen[0] and "of 2" in chosen[0] and chosen[1] == ""


@pytest.mark.parametrize("intercept", ["on", "off"])
def test_measures_compare_with_the_solution_of_the_trained_model(tmp_path, intercept):
    """With an intercept and clipped features the reference has them too."""
    settings = {"intercept": intercept, "norm": 4.0, "split": "writer", "clients": 5}
    methods = (method_of({"name": "exact", "algorithm": "admm", "penalty": "0.5"}),)
    errors = {}
    for measure in ("normalized-error", "augmented-objective"):
        plan = LearnPlan("lasso", methods, (), (0,), settings | {"rounds": 60}, measure=measure)
        study = compare_learning(plan, tmp_path / measure)
        assert study.runs["status"].tolist() == ["done"]
        errors[measure] = study.tables["rounds"][measure.replace("-", "_")].dropna().tolist()
    assert errors["normalized-error"][-1] < 1e-3
    loss = study.runs["mean_objective"].iloc[0]
    assert errors["augmented-objective"][-1] == pytest.approx(5 * loss, rel=0.05)
