from __future__ import annotations

import hashlib
import json
import re
import warnings
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gridpriv.cli.main import main
from gridpriv.core import store
from gridpriv.core.errors import GridprivWarning, InputError, SolverError
from gridpriv.core.files import StorageError
from gridpriv.report.source import read_source
from gridpriv.study import Method, compare, read_study
from gridpriv.study.plan import make_plan
from gridpriv.study.record import _warning
from gridpriv.zonal.opening import RoundRecord
from gridpriv.zonal.run import run_prepared
from gridpriv.zonal.settings import Settings


class StopError(Exception):
    """Simulated kill: no handler catches it."""


def stopping_after(count: int):
    @contextmanager
    def progress(_total: int):
        remaining = [count]

        def advance(_note: str) -> None:
            remaining[0] -= 1
            if remaining[0] == 0:
                raise StopError

        yield advance

    return progress


def test_an_interrupted_study_resumes_to_the_same_tables(
    tmp_path: Path, finished: Path, small_plan, assert_same_tables
) -> None:
    whole = read_study(finished)
    out = tmp_path / "cut"
    with pytest.raises(StopError):
        compare(small_plan, out=out, jobs=1, progress=stopping_after(2))
    assert len(read_study(out).runs) == 2
    with pytest.raises(InputError, match="2 of the 5 runs of this study: add --resume"):
        compare(small_plan, out=out, jobs=1, resume=False)
    with pytest.raises(StopError):
        compare(small_plan, out=out, jobs=1, resume=True, progress=stopping_after(1))
    assert_same_tables(compare(small_plan, out=out, jobs=1), whole)  # a notebook's cell, run again
    assert not (out / "parts").exists()


def test_a_resume_runs_nothing_twice(finished: Path, small_plan) -> None:
    before = read_study(finished).tables["timing"]
    again = compare(small_plan, out=finished, jobs=1, resume=True).tables["timing"]
    assert again.equals(before)


def test_a_resume_of_nothing_says_so_and_begins(tmp_path: Path, make_small_plan) -> None:
    out, plan = tmp_path / "mistyped", make_small_plan(budgets=[5], seeds=[1])
    with pytest.warns(GridprivWarning, match="nothing to resume in .*mistyped: it is begun"):
        study = compare(plan, out=out, jobs=1, resume=True)
    assert len(study.done) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(plan, out=out, jobs=1, resume=True)


def test_a_study_is_finished_by_one_reading_of_its_parts(
    tmp_path: Path, make_small_plan, monkeypatch
) -> None:
    read: list[str] = []
    honest = store.read_part
    monkeypatch.setattr(store, "read_part", lambda path: read.append(path.name) or honest(path))
    study = compare(make_small_plan(budgets=[5], seeds=[1]), out=tmp_path, jobs=1)
    opened, *finished = read  # what a new folder holds before its runs, then each part once
    assert opened == "common.json"
    assert sorted(finished) == sorted([*(f"{run}.json" for run in study.runs.run), "common.json"])


def test_a_folder_with_another_study_or_other_files_is_refused(
    tmp_path: Path, finished: Path, small_plan, make_small_plan
) -> None:
    other = make_small_plan(seeds=[1, 2, 3])
    for resume in (False, True):
        with pytest.raises(InputError, match=r"holds another study .*other seeds"):
            compare(other, out=finished, jobs=1, resume=resume)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.doc").write_text("years of work")
    with pytest.raises(InputError, match=r"other files \(thesis.doc\)"):
        compare(small_plan, out=tmp_path / "b", jobs=1)
    assert (tmp_path / "b" / "thesis.doc").read_text() == "years of work"


@contextmanager
def default_delta_of_totals():
    """Totals are stated at 1e-5 whatever their budget, as in earlier versions."""
    honest = Settings.as_dict
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Settings, "as_dict", lambda s: honest(s) | {"target_delta": 1e-5})
        yield


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_study_of_an_earlier_version_with_other_settings_is_refused(
    tmp_path: Path, make_small_plan
) -> None:
    plan = make_small_plan(budgets=["total:1,1e-6"], seeds=[1])
    with default_delta_of_totals():
        compare(plan, out=tmp_path / "whole", jobs=1)
        with pytest.raises(StopError):
            compare(plan, out=tmp_path / "cut", jobs=1, progress=stopping_after(2))
    before = content(tmp_path)
    for name in ("whole", "cut"):
        with pytest.raises(InputError, match="written by an earlier development version"):
            compare(plan, out=tmp_path / name, jobs=1, resume=True)
    assert content(tmp_path) == before


def test_a_run_of_an_earlier_version_with_other_settings_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "case14", "--coordination", "central", "--no-reference"]
    words += ["--out", str(tmp_path / "run"), "--seed", "1", "--budget"]
    with default_delta_of_totals():
        assert main([*words, "total:1,1e-6"]) == 0
    before = content(tmp_path)
    for budget, reason in (
        ("total:1,1e-6", "written by an earlier development version, with another target_delta"),
        ("total:2,1e-6", "other settings (budget, target_delta)"),
    ):
        capsys.readouterr()
        assert main([*words, budget, "--resume"]) == 2
        assert reason in " ".join(capsys.readouterr().err.split())
    assert content(tmp_path) == before


def test_a_failed_run_is_recorded_with_its_reason_and_the_rest_go_on(tmp_path: Path) -> None:
    plan = make_plan(
        ["case14"],
        budgets=[5],
        seeds=[1],
        settings={"rounds": 2},
        reference=False,
        methods=[
            Method("broken", (("solver", "pyomo:nosuchsolver"),)),
            Method("fine", (("noise_schedule", "once"),)),
        ],
    )
    study = compare(plan, out=tmp_path, jobs=1)
    assert list(study.done.method) == ["fine"]
    assert "nosuchsolver" in study.failed.reason.iloc[0]


def test_every_run_says_when_its_rounds_stop_and_how_far_its_solves_go(tmp_path: Path) -> None:
    plan = make_plan(
        ["case14"],
        budgets=[5],
        seeds=[1],
        settings={"rounds": 20},
        reference=False,
        methods=[
            Method("as it is", (("planning", "soc"), ("acceleration", "anderson"))),
            Method(
                "loose", (("planning", "soc"), ("acceleration", "anderson"), ("tolerance", 0.05))
            ),
            Method(
                "all rounds",
                (("planning", "soc"), ("acceleration", "anderson"), ("solver_tolerance", "tight")),
            ),
        ],
    )
    compare(plan, out=tmp_path, jobs=1)
    runs = read_source(tmp_path).runs.set_index("method")
    assert runs.solver_tolerance.to_dict() == {
        "as it is": "matched",
        "loose": "matched",
        "all rounds": "tight",
    }
    assert runs.tolerance.to_dict() == {"as it is": 1e-4, "loose": 0.05, "all rounds": 0.0}
    assert runs.finished_rounds["loose"] < runs.finished_rounds["all rounds"] == 20


def test_a_stopped_run_keeps_its_rounds(
    tmp_path: Path, make_small_plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(record: RoundRecord) -> None:
        raise SolverError(f"stopped, consensus residual {record.consensus_residual:.3g}")

    plan = make_small_plan(budgets=[5], seeds=[1])
    with monkeypatch.context() as patch:
        patch.setattr("gridpriv.zonal.run.run_prepared", partial(run_prepared, watch=stop))
        study = compare(plan, out=tmp_path, jobs=1)
    assert len(study.failed) == len(plan.tasks())
    drawn = r"\(most releases drawn by a zone: \d+\)$"
    ends = study.failed.reason.str.contains(r"residual [\d.e-]+ " + drawn)
    assert ends.all(), study.failed.reason.iloc[0]
    sizes = study.rounds.groupby("run").size()  # rounds on the AC equations, before the exchange
    assert (sizes > 3).all()
    assert list(sizes[study.failed.run]) == list(study.failed.finished_rounds)
    retried = compare(plan, out=tmp_path, jobs=1, resume=True, retry_failed=True)
    assert retried.failed.empty
    assert len(retried.done) == len(plan.tasks())


def test_the_manifest_repeats_the_study(tmp_path: Path, finished, assert_same_tables) -> None:
    from gridpriv.study.plan import plan_from, read_plan

    manifest = json.loads((finished / "manifest.json").read_text())
    again = plan_from(manifest["study"])
    assert again == read_plan(finished / "study.toml")
    assert_same_tables(compare(again, out=tmp_path / "b", jobs=1), read_study(finished))
    assert manifest["seeds"] == [1, 2]
    assert len(manifest["cases"][0]["fingerprint"]) == 64
    assert manifest["cases"][0]["load_mw"] == pytest.approx(259.0)  # IEEE 14-bus
    assert len(manifest["cases"][0]["map"]) == 14
    assert manifest["versions"]["gridpriv"] == manifest["version"]


def test_a_folder_without_a_study_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no results"):
        read_study(tmp_path)


def test_bad_running_options_are_refused(tmp_path: Path, small_plan) -> None:
    with pytest.raises(InputError, match=": must be"):
        compare(small_plan, out=tmp_path, jobs=0)


def test_an_unreachable_cluster_is_named(tmp_path: Path, small_plan) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(InputError, match=r"cluster = 'tcp://127.0.0.1:9' cannot be reached"):
        compare(small_plan, out=tmp_path, cluster="tcp://127.0.0.1:9")


def test_storage_errors_have_an_exit_code_of_their_own() -> None:
    assert StorageError("x").exit_code == 3


def forge(folder: Path, name: str, table: pa.Table) -> None:
    """Replace a table of a folder and update every checksum."""
    pq.write_table(table, folder / f"{name}.parquet")
    manifest = json.loads((folder / "manifest.json").read_text())
    content = (folder / f"{name}.parquet").read_bytes()
    manifest["tables"][name]["sha256"] = hashlib.sha256(content).hexdigest()
    del manifest["checksum"]
    plain = json.dumps(manifest, sort_keys=True).encode()
    manifest["checksum"] = hashlib.sha256(plain).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_forged_table_that_unpacks_without_end_is_refused(finished: Path) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 10**4, pa.int32()), ["a" * 10**5])
    forge(finished, "runs", pa.table({"reason": text}))
    with pytest.raises(InputError, match=r"runs\.parquet: must be .* unpacks to"):
        read_study(finished)


def test_a_title_that_no_file_can_hold_is_refused_before_a_folder_is_begun(
    tmp_path: Path, make_small_plan
) -> None:
    with pytest.raises(InputError, match=r"title = .*: must be text that UTF-8 can hold"):
        compare(make_small_plan(title="\udcff"), out=tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


def test_a_forged_table_that_holds_lists_is_refused(finished: Path) -> None:
    forge(finished, "runs", pa.table({"run": [["a"], ["b"]]}))
    with pytest.raises(
        InputError, match=r"runs\.parquet: must be a table without lists \(column run\)"
    ):
        read_study(finished)


@pytest.mark.parametrize("order", [("laplace", "knorm"), ("knorm", "laplace")])
def test_norms_of_several_mechanisms_share_a_table(tmp_path: Path, order: tuple) -> None:
    """The norm of one mechanism is a number, that of the other a word."""
    plan = make_plan(
        ["case14"],
        mechanism=order,
        budgets=[1],
        seeds=[1],
        reference=False,
        settings={"rounds": 1},
    )
    study = compare(plan, out=tmp_path, jobs=1)
    certificates = study.tables["certificates"].merge(study.runs[["run", "mechanism"]], on="run")
    norms = dict(zip(certificates.mechanism, certificates.norm, strict=True))
    assert norms == {"laplace": "1", "knorm": "box"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 4}, "workers = 4: must be at most 3, the number of zones"),
        ({"temporal_basis": "2"}, "basis = '2': must be 'auto' without a series"),
        ({"beta": "1e9MW"}, r"beta = '1e9MW': must be 1e-07 to 1e\+08 MW on a base of 100"),
    ],
)
def test_what_no_run_of_the_study_can_have_is_refused_before_a_folder_is_begun(
    tmp_path: Path, settings, message
) -> None:
    with pytest.raises(InputError, match=message):
        compare("case14", out=tmp_path / "study", settings=settings)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("beta", ["1e9MW", "1e7"])
def test_one_distance_of_several_that_no_grid_has_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], beta: str
) -> None:
    out = tmp_path / "study"
    common = ["--rounds", "1", "--seeds", "1", "--budgets", "1", "--mechanism", "laplace"]
    assert main(["compare", "case14", *common, "--beta", f"1MW,{beta}", "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert re.search(r"^gridpriv compare: --beta 1(e9MW|0000000): must be", printed.err, re.M)
    assert printed.out == ""
    assert not out.exists()


@pytest.mark.parametrize(("last", "noted"), [(0.5, True), (0.009, False), (float("nan"), True)])
def test_a_run_is_noted_where_its_last_residual_is_above_the_tolerance(
    last: float, noted: bool
) -> None:
    """Whatever its first residual was: one that falls to 0.5 p.u. has not converged either."""
    rounds = [SimpleNamespace(consensus_residual=residual) for residual in (2.0, last)]
    run = SimpleNamespace(trace=SimpleNamespace(rounds=rounds), physical={"fallback_zones": []})
    assert ("not converged" in _warning(run)) == noted
