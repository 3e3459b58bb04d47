"""``gridpriv run --series``: one budget for all steps, also after interruptions."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gridpriv
from gridpriv.cli.main import main
from gridpriv.core.errors import SolverError
from gridpriv.core.store import read_study
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.grid.scenarios import read_demand_series
from gridpriv.study.run_folder import RunFolder
from gridpriv.zonal import run as run_module
from gridpriv.zonal.horizon import Horizon, run_series

DAY = "step,load_scale\nnight,0.6\nmorning,1.0\nnoon,1.2\nevening,0.9\n"
FLAGS = (
    "--rounds",
    "2",
    "--noise-schedule",
    "round",
    "--solver",
    "clarabel",
    "--budget",
    "total:2",
    "--no-reference",
)
FIGURES = ["consensus_residual", "objective", "plan_shortage_mw", "redispatch_shed_mw"]


@pytest.fixture
def day(tmp_path: Path) -> str:
    (tmp_path / "day.csv").write_text(DAY)
    return str(tmp_path / "day.csv")


def run(day: str, *words: str) -> int:
    return main(["run", "case14", "--series", day, *FLAGS, *words])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, paint: Any) -> Path:
    """Return a folder with the day of seed 3 in ``out``."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "day.csv").write_text(DAY)
    with paint():
        assert run(str(folder / "day.csv"), "--seed", "3", "--out", str(folder / "out")) == 0
    return folder


@pytest.fixture
def whole(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished / "out", tmp_path / "whole"))


def test_the_command_runs_what_the_library_does(day: str, whole: Path) -> None:
    case = load_case("case14")
    zoning = shipped_zoning(case)
    assert zoning is not None
    settings = gridpriv.Settings(
        rounds=2, noise_schedule="round", solver="clarabel", budget="total:2", seed=3
    )
    ours = run_series(read_demand_series(day, case), zoning, settings)
    steps = pd.read_csv(whole / "steps.csv")
    assert steps.step.tolist() == ["night", "morning", "noon", "evening"]
    np.testing.assert_allclose(steps[FIGURES], ours.table()[FIGURES], rtol=1e-12)
    document = json.loads((whole / "horizon.json").read_text())
    assert document["privacy"]["releases_per_zone"] == 4 * 2
    assert document["privacy"]["total_pure"] == pytest.approx(2.0)
    worst = max(s.total for s in ours.certificates)
    assert document["privacy"]["total"]["epsilon"] == pytest.approx(worst)
    shed = pd.read_csv(whole / "res_shed.csv").groupby("step").p_mw
    shed_mw = shed.apply(lambda mw: mw.clip(lower=0).sum())[steps.step]
    np.testing.assert_allclose(shed_mw, steps.redispatch_shed_mw, atol=1e-6)
    assert len(pd.read_csv(whole / "rounds.csv")) == 8
    assert len(pd.read_csv(whole / "res_line.csv")) == 4 * 20


def test_an_interrupted_day_goes_on_where_it_stopped(
    day: str, whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = whole.with_name("broken")
    step, steps_run = Horizon.run_step, []

    def stop_at_noon(self: Horizon, number: int, *rest: object, **given: object) -> object:
        steps_run.append(number)
        if steps_run == [0, 1, 2]:
            raise KeyboardInterrupt
        return step(self, number, *rest, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(Horizon, "run_step", stop_at_noon)
    assert run(day, "--seed", "3", "--out", str(broken)) == 130
    assert "2 of 4 runs are stored" in " ".join(capsys.readouterr().err.split())
    assert read_study(broken).tables["steps"].step.tolist() == ["night", "morning"]
    assert run(day, "--out", str(broken)) == 2
    assert "already holds 2 of the 4 runs" in capsys.readouterr().err
    assert run(day, "--out", str(broken), "--resume") == 0, "the seed is the folder's"
    assert steps_run == [0, 1, 2, 2, 3]
    for name in ("steps.csv", "rounds.csv", "res_bus.csv"):
        a, b = (
            pd.read_csv(f / name).drop(columns="seconds", errors="ignore") for f in (whole, broken)
        )
        pd.testing.assert_frame_equal(a, b)
    privacy = [json.loads((f / "horizon.json").read_text())["privacy"] for f in (whole, broken)]
    assert privacy[0] == privacy[1]


def test_another_horizon_is_not_mixed_in(
    day: str, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", str(whole))
    for other in (("--budget", "total:3"), ("--zones", "2"), ("--seed", "9")):
        assert run(day, *other, *out, "--resume") == 2
        refused = "--seed 9: must be" if other[0] == "--seed" else "holds another series"
        assert refused in capsys.readouterr().err
    Path(day).write_text(DAY.replace("0.6", "0.7"))
    assert run(day, *out, "--resume") == 2
    assert "other demand)" in capsys.readouterr().err


def test_a_public_folder_holds_nothing_computed_from_demand(day: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(day, "--seed", "3", "--public", "--out", str(out)) == 0
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    tables = {
        "runs",
        "steps",
        "rounds",
        "zones",
        "certificates",
        "tie_prices",
        "releases",
        "charges",
        "network_buses",
        "network_branches",
    }
    copies = {
        "horizon.json",
        "horizon.png",
        "steps.csv",
        "rounds.csv",
        "zones.csv",
        "tie_prices.csv",
    }
    assert files == {"manifest.json"} | {f"{name}.parquet" for name in tables} | copies
    assert list(pd.read_csv(out / "steps.csv")) == ["step", "rounds", "consensus_residual"]
    text = "".join((out / f).read_text() for f in files if f.endswith((".json", ".csv")))
    for private in ("shed_mw", "demand_mw", 'objective": 0', "_sha256", '"seed": 3', "seconds"):
        assert private not in text, private


def cut_short(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Have the process end as by SIGKILL when a step has drawn its noise and is to be stored."""
    add = RunFolder.add

    def dying(self: RunFolder, step: int, result: object, *known: object) -> None:
        if step == number:
            os._exit(137)
        add(self, step, result, *known)  # type: ignore[arg-type]

    monkeypatch.setattr(RunFolder, "add", dying)


def run_until_killed(day: str, *words: str) -> None:
    """Run a series in a process that is killed when the third step has drawn its noise."""
    child = os.fork()
    if child == 0:
        with pytest.MonkeyPatch.context() as patch:
            cut_short(patch, 2)
            run(day, *words)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 137


def killed(folder: Path, *words: str) -> None:
    """Run a series on a ledger, in a process that is killed in the third step."""
    book, day = str(folder / "book"), folder / "day.csv"
    day.write_text(DAY)
    assert main(["ledger", "grant", book, "--case", "case14", "--total", "9"]) == 0
    run_until_killed(str(day), *words, "--ledger", book, "--out", str(folder / "out"))


@pytest.fixture(scope="module")
def killed_public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    killed(folder := tmp_path_factory.mktemp("killed"), "--public")
    return folder


@pytest.mark.parametrize(
    "words", [("--public",), pytest.param(("--seed", "3"), marks=pytest.mark.slow)]
)
def test_a_step_that_was_killed_counts_as_released_in_ledger_and_document(
    killed_public: Path,
    tmp_path: Path,
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    if words == ("--public",):
        shutil.copytree(killed_public, tmp_path, dirs_exist_ok=True)
    else:
        killed(tmp_path, *words)
    day, book, out = str(tmp_path / "day.csv"), str(tmp_path / "book"), tmp_path / "out"
    command = (*words, "--ledger", book, "--out", str(out))
    assert run(day, *command, "--resume", "--quiet") == 0
    capsys.readouterr()
    assert main(["ledger", "show", book, "--json"]) == 0
    charged = {o["releases"] for o in json.loads(capsys.readouterr().out)["owners"]}
    document = json.loads((out / "horizon.json").read_text())
    assert charged == {document["privacy"]["releases_per_zone"]} == {(4 + 1) * 2}
    early = read_study(out).tables["releases"].query("early")
    assert set(early.step) == {"noon"}
    assert early["count"].sum() == 2 * 3


@pytest.mark.parametrize("public", [(), pytest.param(("--public",), marks=pytest.mark.slow)])
def test_a_repeated_step_without_ledger_draws_the_same_noise_and_counts_once(
    day: str, whole: Path, tmp_path: Path, public: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    if public:
        shutil.rmtree(whole)
        assert run(day, "--seed", "3", *public, "--out", str(whole)) == 0
    run_until_killed(day, "--seed", "3", *public, "--out", str(out))
    assert run(day, *public, "--out", str(out), "--resume") == 0
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "out", Path(day).name}
    for path in whole.glob("*.parquet"):
        if path.stem != "timing":
            assert path.read_bytes() == (out / path.name).read_bytes(), path.name


def test_an_unfinished_public_series_is_known_by_a_file_next_to_it(
    day: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, unfinished = tmp_path / "out", tmp_path / ".out.unfinished"
    words = ("--public", "--out", str(out))
    run_until_killed(day, "--seed", "77", *words)
    assert stat.S_IMODE(unfinished.stat().st_mode) == 0o600
    assert json.loads(unfinished.read_text())["seed"] == 77
    files = [p for p in out.rglob("*") if p.is_file()]
    assert not [p for p in files if re.search(rb"(?<![\d.])77,", p.read_bytes())]
    assert run(day, "--seed", "5", *words, "--resume") == 2
    assert "--seed 5: must be 77, with which" in capsys.readouterr().err
    whole = Path(day).read_text()
    Path(day).write_text(whole.replace("1.2", "1.19"))
    assert run(day, *words, "--resume") == 2
    assert "holds a series of other demand" in capsys.readouterr().err
    Path(day).write_text(whole)
    content = unfinished.read_bytes()
    unfinished.unlink()
    assert run(day, *words, "--resume") == 2
    assert f"{unfinished} is missing" in capsys.readouterr().err
    unfinished.write_bytes(content)
    assert run(day, *words, "--resume") == 0
    assert not unfinished.exists()


def test_damage_of_what_was_drawn_is_never_taken_for_nothing_drawn(
    killed_public: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(killed_public, tmp_path, dirs_exist_ok=True)
    day, book, out = str(tmp_path / "day.csv"), str(tmp_path / "book"), tmp_path / "out"
    command = ("--ledger", book, "--public", "--out", str(out))
    capsys.readouterr()
    drawn = out / "parts" / "000001-drawn.json"
    content = drawn.read_bytes()
    drawn.write_bytes(b"garbage")
    assert run(day, *command, "--resume") == 2
    assert "cannot be made again" in capsys.readouterr().err
    drawn.write_bytes(content)
    (out / "parts" / "000001.json").write_bytes(b"garbage")  # its figures: the step runs again
    (out / "parts" / "000003.json").write_bytes((out / "parts" / "000000.json").read_bytes())
    assert run(day, *command, "--resume") == 0
    assert capsys.readouterr().err.count("made again") == 2
    assert main(["ledger", "show", book, "--json"]) == 0
    charged = {o["releases"] for o in json.loads(capsys.readouterr().out)["owners"]}
    document = json.loads((out / "horizon.json").read_text())
    assert charged == {document["privacy"]["releases_per_zone"]} == {(4 + 2) * 2}
    assert len(pd.read_csv(out / "steps.csv")) == 4


def test_a_step_that_ended_early_is_reported_and_not_counted(
    day: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record, made, out = run_module.round_record, [], tmp_path / "out"

    def failing(*turn: object) -> object:
        made.append(1)
        if len(made) == 6:  # two rounds a step: the second one at noon
            raise SolverError("zone 1 could not be solved")
        return record(*turn)  # type: ignore[arg-type]

    monkeypatch.setattr(run_module, "round_record", failing)
    assert run(day, "--seed", "3", "--out", str(out)) == 3
    assert read_study(out).rounds.step.value_counts()["noon"] == 1
    assert pd.read_csv(out / "steps.csv").step.tolist() == ["night", "morning"]
    assert json.loads((out / "horizon.json").read_text())["finished"] == 2
    assert "2 of 4 runs are stored and 1 ended early" in " ".join(capsys.readouterr().err.split())
    assert run(day, "--seed", "3", "--out", str(out)) == 2
    again = " ".join(capsys.readouterr().err.split())
    assert "already holds 2 of the 4 runs of this series and 1 that ended early: add" in again
    capsys.readouterr()
    assert main(["report", str(out), "--format", "html,csv"]) == 0
    page = re.sub(r"<[^>]+>", " ", (out / "report.html").read_text())
    assert "2 of 4 steps completed" in page and "zone 1 could not be solved" in page
    assert re.search(r"demand, mean\s+207\.2\s", page), "0.8 times 259 MW"


def test_a_ledger_is_charged_for_all_steps_or_refuses_before_the_first(
    day: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = str(tmp_path / "book")
    assert main(["ledger", "grant", book, "--case", "case14", "--total", "3"]) == 0
    assert run(day, "--ledger", book, "--quiet") == 0
    capsys.readouterr()
    assert main(["ledger", "show", book, "--json"]) == 0
    owners = json.loads(capsys.readouterr().out)["owners"]
    assert [o["releases"] for o in owners] == [8, 8, 8]
    # what is released in a step of 1.2 times the demand is the demand, and scaled afterwards
    assert all(o["total_pure"] == pytest.approx(2.0) for o in owners)
    assert run(day, "--ledger", book, "--out", str(tmp_path / "out")) == 4
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--resume",), "--resume needs the --out"),
        (("--series", "profiles"), "profiles are those of a simbench net"),
        (("--series", "nothing.csv"), "nothing.csv"),
    ],
)
def test_wrong_use_is_reported(
    day: str, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(day, *words) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert main(["run", "case14", "--resume"]) == 2


@pytest.mark.slow
def test_a_simbench_day_by_name(tmp_path: Path) -> None:
    simbench = pytest.importorskip("simbench")
    code = "1-LV-rural1--0-sw"
    words = [
        "run",
        f"simbench:{code}",
        "--zones",
        "2",
        "--mechanism",
        "none",
        "--rounds",
        "2",
        "--series",
        "profiles:40,3",
        "--out",
        str(tmp_path / "out"),
        "--solver",
        "clarabel",
    ]
    assert main(words) == 0
    steps = pd.read_csv(tmp_path / "out" / "steps.csv")
    net = simbench.get_simbench_net(code)
    values = simbench.get_absolute_values(net, profiles_instead_of_study_cases=True)
    load = values["load", "p_mw"].iloc[40:43].sum(axis=1)
    made = values["sgen", "p_mw"].iloc[40:43].sum(axis=1)
    np.testing.assert_allclose(steps.demand_mw, load - made, rtol=1e-9)
    assert steps.step.tolist() == net.profiles["load"].time.iloc[40:43].tolist()


def test_the_headline_is_the_mean_of_runs_that_ask_for_each_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every figure against single runs of the same load scales, one process after another."""
    (tmp_path / "day.csv").write_text("step,load_scale\nlow,0.9\nhigh,1.7\n")
    again = [str(tmp_path / "day.csv"), "--noise-schedule", "once", "--seed", "3"]
    assert run(*again, "--reference", "--out", str(tmp_path / "out")) == 0
    printed = dict(
        re.findall(r"^  ( *\S.*?\S)  +(\S+)  +(?:MW|\$/h)", capsys.readouterr().out, re.M)
    )
    steps = pd.read_csv(tmp_path / "out" / "steps.csv")

    def single(scale: str, *words: str) -> dict[str, float]:
        flags = ["--load-scale", scale, "--rounds", "2", "--solver", "clarabel", *words]
        assert main(["run", "case14", *flags, "--json", "--no-reference"]) == 0
        physical: dict[str, float] = json.loads(capsys.readouterr().out)["final"]["physical"]
        return physical

    quiet = [single(scale, "--mechanism", "none") for scale in ("0.9", "1.7")]
    silent = (
        "--mechanism",
        "knorm",
        "--release",
        "nothing",
        "--noise-schedule",
        "once",
        "--seed",
        "8",
    )
    nothing = [single(scale, *silent) for scale in ("0.9", "1.7")]
    # a step that is not AC-feasible has no cost, and the name says of how many steps a mean is
    pairs = [(final, base["cost"]) for final, base in zip(steps.cost, quiet, strict=True)]
    known = [final - base for final, base in pairs if base is not None and not np.isnan(final)]
    silent_costs = [final["cost"] for final in nothing if final["cost"] is not None]
    for name, values in (
        ("cost of privacy", known),
        ("cost, prior-only (epsilon = 0)", silent_costs),
    ):
        of = "mean" if len(values) == 2 else f"mean of {len(values)} of 2 steps"
        assert (f"{name}, {of}" in printed) == bool(values)
        if values:
            mean = pytest.approx(np.mean(values), rel=1e-4, abs=0.01)
            assert float(printed[f"{name}, {of}"]) == mean
    shed = float(printed["load shedding, mean"])
    assert shed == pytest.approx(steps.redispatch_shed_mw.mean(), rel=1e-3)
    assert float(printed["balancing power between zones, mean"]) == pytest.approx(
        steps.balancing_mw.mean(), rel=1e-3
    )
    assert main(["report", str(tmp_path / "out")]) == 0
    page = re.sub(r"<[^>]+>", " ", (tmp_path / "out" / "report.html").read_text())
    for name in ("load shedding, mean", "balancing power between zones, mean"):
        assert re.search(rf"{name}\s+{re.escape(printed[name])}\s", page), name


def test_a_bad_series_or_storage_is_refused_before_anything_runs(tmp_path):
    series = tmp_path / "series.csv"
    series.write_text("step,load_scale\na,1\nb,0.9\n")
    bad = tmp_path / "storage.csv"
    bad.write_text("name,bus,p_mw,energy_mwh\nx,9,nan,10\n")
    assert main(["run", "case14", "--series", str(tmp_path / "none.csv")]) == 2
    assert main(["run", "case14", "--series", str(series), "--storage", str(bad)]) == 2


def test_a_dry_run_states_runs_and_their_time_and_runs_nothing(capsys, tmp_path):
    series = tmp_path / "series.csv"
    series.write_text("step,load_scale\na,1\nb,0.9\n")
    out = tmp_path / "out"
    assert main(["run", "case14", "--series", str(series), "--dry-run", "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith("2 runs in 1 process, about ")
    study = ["compare", "case14", "--seeds", "1,2", "--dry-run", "--jobs", "2", "--out", str(out)]
    assert main(study) == 0
    assert " in 2 processes, about " in capsys.readouterr().out
    assert not out.exists() or not any(out.iterdir())


@pytest.mark.parametrize(
    ("rows", "ending"),
    [
        ("step,load_scale\na,0.6\nb,1.0\n", "before the public factors and --load-scale 0.5"),
        (
            "step,bus,pd_mw,qd_mvar\na,9,20,5\nb,9,30,6\n",
            "step, of the demand before --load-scale 0.5",
        ),
    ],
)
def test_the_protected_change_of_a_series_is_of_the_demand_before_the_load_scale(
    rows: str, ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "two.csv").write_text(rows)
    words = ["--series", str(tmp_path / "two.csv"), "--load-scale", "0.5", "--seed", "1"]
    assert main(["run", "case14", *words, "--coordination", "central", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["privacy"]["adjacency"].endswith(ending)
