from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.study import Method, StudyPlan, make_plan, read_plan
from gridpriv.study.comparison import WorkEstimate
from gridpriv.study.papers import FOLDER
from gridpriv.study.plan import plan_from, to_toml


def write(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


def test_default_study_sets_the_stated_methods_side_by_side_at_equal_totals() -> None:
    tasks = make_plan(["case14"], seeds=[1]).tasks()
    noisy = [t for t in tasks if t.budget not in ("none", "nothing")]
    budgets = {t.settings.budget.epsilon for t in noisy}
    assert budgets == {0.5, 1.0, 5.0, 10.0}
    assert {t.settings.budget.scope for t in noisy} == {"total"}
    assert {t.settings.budget.delta for t in noisy} == {1e-5}
    assert {t.settings.sensitivity for t in noisy} == {"proven"}
    ways = {
        (t.settings.perturbation, t.settings.effective_perturbation().noise_schedule) for t in noisy
    }
    assert ways == {
        ("objective", "update"),
        ("output", "update"),
        ("demand", "round"),
        ("demand", "once"),
    }
    assert any(t.settings.mechanism == "none" for t in tasks)


def test_nothing_released_is_a_baseline_of_private_methods_once_a_grid_and_load() -> None:
    """Budgets, seeds and settings of noise do not change a run without draws."""
    plan = make_plan(["case14"], seeds=3, load_scales=[1.0, 1.2], beta=["1MW", "5MW"])
    silent = [t for t in plan.tasks() if t.settings.release == "nothing"]
    assert [(t.method, t.budget, t.settings.load_scale) for t in silent] == [
        ("prior-only", "nothing", 1.0),
        ("prior-only", "nothing", 1.2),
    ]
    rounds = make_plan(["case14"], rounds=[2, 3]).tasks()
    assert len([t for t in rounds if t.settings.release == "nothing"]) == 2


def references_of(plan: StudyPlan) -> set[tuple[str, str, int]]:
    """Runs of a plan without noise: name, draws, and rounds."""
    return {
        (t.method, t.budget, t.settings.rounds)
        for t in plan.tasks()
        if t.budget in ("none", "nothing")
    }


def test_every_study_has_the_same_zones_without_noise_and_with_nothing_released() -> None:
    """A study of a file and one of axes, each way's other settings kept, whatever its noise."""
    text = {
        "cases": ["case14"],
        "settings": {"beta": "5MW"},
        "methods": [
            {"name": "few", "rounds": 3},
            {"name": "many", "rounds": 9, "mechanism": "knorm"},
            {"name": "as many", "rounds": 9, "perturbation": "output"},
        ],
    }
    assert references_of(plan_from(text)) == {
        (f"{name}, rounds {n}", drawn, n)
        for n in (3, 9)
        for name, drawn in (("noise-free", "none"), ("prior-only", "nothing"))
    }
    axes = make_plan(["case14"], mechanism=["laplace"], update=["exact", "linearized"], seeds=2)
    assert {name for name, _, _ in references_of(axes)} == {
        "noise-free, exact",
        "noise-free, linearized",
        "prior-only, exact",
        "prior-only, linearized",
    }
    assert references_of(plan_from(text | {"reference": False})) == set()


def test_a_study_refuses_noise_that_no_seed_repeats():
    with pytest.raises(InputError, match="noise = 'secure': must be simulated"):
        make_plan(["case14"], settings={"noise": "secure"}, seeds=1).tasks()


def test_a_release_is_compared_without_methods_that_release_no_demand():
    names = {task.method for task in make_plan(["case14"], release=["total"], seeds=1).tasks()}
    assert names == {"noise-free", "prior-only", "demand, release total"}


@pytest.mark.parametrize(
    ("ways", "axes", "references"),
    [
        (({"update": "linearized"}, {"update": "exact"}, {}), {}, 2),
        (({}, {"workers": 1}, {"workers": 2}, {"rounds": 20, "penalty": "auto"}), {}, 1),
        (({"preset": "ryu-kim"}, {"preset": "ryu-kim", "update": "linearized"}), {}, 1),
        (({"preset": "ryu-kim"}, {"preset": "ryu-kim", "rounds": 7}), {}, 2),
        (({"local_updates": 1}, {}), {}, 1),
        (({"local_updates": 1}, {}), {"local_updates": [1, 3]}, 2),
    ],
)
def test_what_comes_to_the_same_has_one_reference(ways, axes, references) -> None:
    """Settings are compared as they are run, not as they are written."""
    methods = [Method(str(n), tuple(sorted(way.items()))) for n, way in enumerate(ways)]
    plan = make_plan(["case14"], methods=methods, budgets=[1], seeds=1, **axes)
    assert len(plan.references) == 2 * references
    assert not any(dict(reference.settings).get("workers") for reference in plan.references)
    done = {
        json.dumps(t.settings.as_dict() | {"mechanism": t.budget}, sort_keys=True)
        for t in plan.tasks()
        if t.budget in ("none", "nothing")
    }
    assert len(done) >= 2 * references


def test_a_study_that_has_a_noise_free_method_of_its_own_gets_no_second_one() -> None:
    noisy, quiet = {"name": "once"}, {"name": "mine", "mechanism": "none", "rounds": 4}
    silent = {"name": "silent", "release": "nothing", "rounds": 4}
    text = {"cases": ["case14"], "methods": [noisy, quiet]}
    assert references_of(plan_from(text)) == {("mine", "none", 4), ("prior-only", "nothing", 20)}
    text["methods"] = [noisy, quiet, silent]
    assert references_of(plan_from(text)) == {("mine", "none", 4), ("silent", "nothing", 4)}
    text["methods"] = [quiet]
    assert references_of(plan_from(text)) == {("mine", "none", 4)}, "beside nothing private"
    named = {"name": "noise-free"}  # and has some
    with pytest.raises(InputError, match=r"'noise-free': must be .* a reference .*--no-reference"):
        plan_from({"cases": ["case14"], "methods": [named]})
    assert (
        references_of(plan_from({"cases": ["case14"], "methods": [named], "reference": False}))
        == set()
    )
    with pytest.raises(InputError, match="each name once"):
        plan_from({"cases": ["case14"], "methods": [named, {**named, "rounds": 3}]})


@pytest.mark.parametrize(
    ("methods", "axes"),
    [
        ([Method("a", (("perturbation", "objective"), ("release", "nothing")))], {}),
        ([Method("a", (("preset", "ryu-kim"), ("release", "nothing")))], {}),
        ([Method("a", (("release", "nothing"),))], {"perturbation": ["objective", "output"]}),
        ((), {"perturbation": ["objective"], "release": ["nothing"], "mechanism": ["laplace"]}),
    ],
)
def test_no_release_of_demand_is_refused_with_other_noise(methods, axes) -> None:
    """Gradients and outputs would be released all the same."""
    refusal = r"release = 'nothing': must be left out: perturbation '(objective|output)' releases"
    with pytest.raises(InputError, match=refusal):
        make_plan(["case14"], methods=methods, budgets=[0.5], reference=False, **axes).tasks()


def test_runs_without_noise_are_planned_once_whatever_budgets_and_seeds(small_plan) -> None:
    quiet = [t for t in small_plan.tasks() if t.settings.mechanism == "none"]
    noisy = [t for t in small_plan.tasks() if t.settings.mechanism != "none"]
    assert len(quiet) == 1
    assert len(noisy) == 2 * 2  # budgets x seeds
    assert [t.number for t in small_plan.tasks()] == list(range(5))


def test_every_task_has_its_own_identity_and_the_same_one_each_time(small_plan) -> None:
    first, again = ([t.id for t in small_plan.tasks()] for _ in range(2))
    assert first == again
    assert len(set(first)) == len(first)


def test_budgets_are_per_release_on_request() -> None:
    plan = make_plan(["case14"], budgets=[0.1], per_release=True)
    assert [str(b) for b in plan.budgets] == ["per-release:0.1"]


def test_a_number_of_seeds_means_one_to_it() -> None:
    assert make_plan(["case14"], seeds=3).seeds == (1, 2, 3)


def test_axes_combine_and_refresh_applies_to_demand_only() -> None:
    plan = make_plan(
        ["case14"],
        mechanism=["none", "laplace"],
        perturbation=["objective", "demand"],
        noise_schedule=["round", "run"],
        update=["exact", "linearized"],
        seeds=[1],
    )
    names = [s.name for s in plan.methods]
    assert names.count("noise-free, exact") == 1
    assert "laplace, objective, exact" in names
    assert {"laplace, demand, per round, exact", "laplace, demand, per run, exact"} <= set(names)
    assert len(names) == 2 + 2 + 4


def test_any_setting_is_an_axis_and_multiplies_the_methods() -> None:
    plan = make_plan(["case14"], objective=["imbalance", "cost"], beta=["1MW", "2MW"], seeds=[1])
    usual = make_plan(["case14"], seeds=[1])
    quiet = sum(
        dict(s.settings).get("mechanism") == "none" or dict(s.settings).get("release") == "nothing"
        for s in usual.methods
    )
    # beta has no meaning without noise, the objective has
    assert len(plan.methods) == 4 * (len(usual.methods) - quiet) + 2 * quiet
    combinations = {(t.method, t.settings.objective, str(t.settings.beta)) for t in plan.tasks()}
    assert ("demand, one-shot, objective cost, beta 2MW", "cost", "2MW") in combinations


def test_an_axis_multiplies_methods_except_those_that_set_it() -> None:
    plan = make_plan(
        ["case14"],
        methods=[Method("own", (("objective", "cost"),)), Method("both")],
        objective=["imbalance", "cost"],
    )
    assert [s.name for s in plan.methods] == [
        "own",
        "both, objective imbalance",
        "both, objective cost",
    ]


def test_a_study_file_may_be_json(tmp_path: Path) -> None:
    plan = make_plan(["case14"], objective=["imbalance", "cost"], settings={"outage": ("gen:2",)})
    file = tmp_path / "study.json"
    file.write_text(json.dumps(plan.as_dict()))
    assert read_plan(file) == plan


@pytest.mark.parametrize("name", ["rk-fig3", "rk-fig4"])
def test_bundled_figures_have_the_papers_grid(name: str) -> None:
    # RK 6.1.1: 4 algorithms, epsilon in {.05, .1, .5, 1}, E in {1, 5}, T = 100, rho = 100
    tasks = read_plan(FOLDER / f"{name}.toml", "full").tasks()
    paper = [t for t in tasks if t.settings.sensitivity == "published" and t.budget != "none"]
    assert {t.method for t in paper} == {"ObjG", "ObjL", "OutG", "OutL"}
    assert {t.settings.budget.epsilon for t in paper} == {0.05, 0.1, 0.5, 1.0}
    assert {t.settings.local_updates for t in paper} == {1, 5}
    assert {(t.settings.rounds, str(t.settings.penalty)) for t in paper} == {(100, "100")}
    assert {t.settings.delta for t in paper} == {1e-2}
    assert len(paper) == 4 * 4 * 2 * 5
    quick = read_plan(FOLDER / f"{name}.toml").tasks()
    seedless = [{replace(t.settings, seed=0) for t in some} for some in (tasks, quick)]
    assert seedless[0] == seedless[1]  # fewer seeds, if anything


@pytest.mark.parametrize("name", ["rk-fig3", "rk-fig4"])
def test_a_plan_written_as_toml_reads_back_the_same(name: str, tmp_path: Path) -> None:
    plan = read_plan(FOLDER / f"{name}.toml")
    again = read_plan(write(tmp_path, to_toml(plan)))
    assert again == plan
    assert [t.id for t in again.tasks()] == [t.id for t in plan.tasks()]


def test_a_plan_with_defaults_reads_back_the_same(tmp_path: Path) -> None:
    plan = make_plan(["case14"], title='a "quoted" title', settings={"outage": ("gen:2",)})
    assert read_plan(write(tmp_path, to_toml(plan))) == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('cases = ["case14"]\nbudget = [1]', "did you mean 'budgets'"),
        ('cases = ["case14"]\nlocal-update = [1]', "did you mean 'local_updates'"),
        ('cases = ["case14"]\nobjectve = ["cost"]', "did you mean 'objective'"),
        ('cases = ["case14"]\nobjective = "cost"', "objective = 'cost': must be a list"),
        ('cases = ["case14"]\n[[methods]]\nname = "a"\nbudget = "total:1"', "the axis budgets"),
        ('cases = ["case14"]\n[settings]\nmechansim = "none"', "did you mean 'mechanism'"),
        ('cases = ["case14"]\n[[methods]]\nname = "a"\npertubation = "x"', "did you mean 'perturb"),
        ('cases = ["case14"]\nbudgets = []', r"budgets = \[\]: must be a list of one value"),
        ("cases = []", r"cases = \[\]: must be"),
        ("budgets = [1]", "cases is missing"),
        ('cases = "case14"', "cases = 'case14': must be a list"),
        ('cases = ["case14"]\nseeds = 0', "seeds = 0: must be"),
        ('cases = ["case14"]\nseeds = [-1]', "seeds = -1: must be"),
        ('cases = ["case14"]\nseeds = "3"', "seeds = '3': must be"),
        ('cases = ["case14"]\nbudgets = [1, 1]', "each value once"),
        ('cases = ["case14"]\nbudgets = ["lots"]', "budgets = 'lots': must be"),
        ('cases = ["case14"]\nload-scales = ["x"]', "load-scales = 'x': must be"),
        ('cases = ["case14"]\n[settings]\nseed = 3', "use the axis seeds"),
        ('cases = ["case14"]\n[[methods]]\nmechanism = "none"', "a text that names the method"),
        ("cases = [", "study.toml"),
        ('full = 3\ncases = ["case14"]', "full = 3: must be a table"),
        ('cases = ["case14"]\n[full]\nseed = [1]', "did you mean 'seeds'"),
    ],
)
def test_a_bad_study_file_is_refused_in_words(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_plan(write(tmp_path, text))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('mechanism = "gausian"', "did you mean 'gaussian'"),
        ("rounds = 0", "rounds = 0: must be"),
        ('rounds = "ten"', "rounds = 'ten': must be"),
        ('delta = "small"', "method 'a'"),
    ],
)
def test_a_bad_setting_is_found_before_anything_runs(
    tmp_path: Path, settings: str, message: str
) -> None:
    plan = read_plan(write(tmp_path, f'cases = ["case14"]\n[[methods]]\nname = "a"\n{settings}'))
    with pytest.raises(InputError, match=message):
        plan.tasks()


def test_a_missing_study_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "none.toml"))):
        read_plan(tmp_path / "none.toml")


def test_a_methods_own_local_updates_win_over_the_axis() -> None:
    plan = plan_from(
        {
            "cases": ["case14"],
            "budgets": [1],
            "seeds": [1],
            "local-updates": [1, 5],
            "reference": False,
            "methods": [{"name": "both"}, {"name": "own", "local-updates": 2}],
        }
    )
    updates = [(t.method, t.settings.local_updates) for t in plan.tasks()]
    assert sorted(updates) == [("both", 1), ("both", 5), ("own", 2)]


def test_a_study_file_without_end_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    for path, kind in ((pipe, "a pipe"), (Path("/dev/zero"), "a device")):
        with pytest.raises(InputError, match=f"study file {path} is {kind}"):
            read_plan(path)


@pytest.mark.parametrize(
    "text",
    [
        "seeds = 10000000000000000000",
        "seeds = [[1]]",
        "seeds = 1979-05-27",
        "seeds = 200000000",
        "seeds = [18446744073709551616]",
        "load-scales = [[1]]",
    ],
)
def test_a_bad_axis_of_a_study_file_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=text.partition(" ")[0]):
        read_plan(write(tmp_path, f'cases = ["case14"]\n{text}'))


def test_a_worker_of_a_study_need_not_import_what_lays_out_grids() -> None:
    code = (
        "import sys, gridpriv.study.comparison, gridpriv.zonal.run\n"
        "assert not {'networkx', 'gridpriv.grid.layout'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_estimate_separates_noisy_runs_from_baselines() -> None:
    assert str(WorkEstimate(62, 2, 9.0, 2)).startswith(
        "60 noisy and 2 baseline runs in 2 processes"
    )
    assert str(WorkEstimate(2, 1, 9.0)).startswith("2 runs in 1 process")


def test_a_case_has_maps_of_its_own_and_the_others_those_of_all():
    shared = make_plan(["case14", "case118"], zonings=["2", "3"])
    assert shared.grids == [(case, zones) for case in ("case14", "case118") for zones in "23"]
    mixed = make_plan(["case14", "own.json"], zonings=["own.json=a.csv", "own.json=b.csv"])
    assert mixed.grids == [("case14", ""), ("own.json", "a.csv"), ("own.json", "b.csv")]
    both = make_plan(["case14", "own.json"], zonings=["2", "own.json=a.csv"], seeds=1)
    assert both.grids == [("case14", "2"), ("own.json", "a.csv")]
    assert {(task.case, task.zoning) for task in both.tasks()} == set(both.grids)
    assert plan_from(both.as_dict()) == both
    with pytest.raises(InputError, match=r"zonings = 'other=2': must be CASE=MAP with one of"):
        make_plan(["case14"], zonings=["other=2"])
    with pytest.raises(InputError, match=r"'case14=2'\]: must be each value once"):
        make_plan(["case14"], zonings=["case14=2", "case14=2"])


def test_a_study_of_a_shipped_case_and_an_own_grid_with_its_map(tmp_path, capsys):
    grid, zones = tmp_path / "own.m", tmp_path / "zones.csv"
    assert main(["convert", "case14", str(grid), "--quiet"]) == 0
    zones.write_text("bus,zone\n" + "".join(f"{b},{b % 2}\n" for b in range(1, 15)))
    words = ["compare", "case14", str(grid), "--dry-run", "--json", "--seeds", "1,"]
    assert main([*words, "--zonings", f"{grid}={zones}"]) == 0
    assert "zone 1 is not connected" in capsys.readouterr().err
    assert main(words) == 2
    message = capsys.readouterr().err
    assert f"case {grid} has no shipped zone map: give it one by --zonings {grid}=MAP" in message
    assert "MAP: K, PARTITION:K or FILE.csv" in message
    assert "--zones" not in message and "--zoning " not in message, "compare has no such flags"
    assert main([*words, "--zonings", f"own={zones}"]) == 2
    message = capsys.readouterr().err
    assert f"own={zones} does not exist; --zonings case14=MAP gives this case" in message


def test_a_zone_map_may_have_an_equals_sign_in_its_path(tmp_path):
    path = tmp_path / "k=2" / "zones.csv"
    path.parent.mkdir()
    path.write_text("bus,zone\n")
    shared = make_plan(["case14", "case118"], zonings=[str(path)])
    assert shared.grids == [("case14", str(path)), ("case118", str(path))]
    of_one = make_plan(["case14", "case118"], zonings=[f"case14={path}"])
    assert of_one.grids == [("case14", str(path)), ("case118", "")]
