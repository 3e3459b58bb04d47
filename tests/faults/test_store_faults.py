"""The store under every fault, on a small study that takes milliseconds."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import DEFECT, KILLED, How, content, run

from gridpriv.core.errors import GridprivError
from gridpriv.core.files import StorageError, sealed
from gridpriv.core.store import Store, Tables, open_store, read_study

RUNS = [f"run{k}" for k in range(3)]
MANIFEST = {"kind": "study", "title": "toy", "study": {"weight": 2}, "planned": len(RUNS)}


def rows(run: str) -> Tables:
    number = RUNS.index(run)
    return {
        "runs": [
            {
                "run": run,
                "number": number,
                "status": "done",
                "mean": number / 3,
                "count": None if number == 1 else number,
                "seed": 2**64 - 1,
            }
        ],
        "rounds": [{"run": run, "round": t, "residual": 0.1**t} for t in range(1, 4)],
    }


def toy_study(folder: Path, *, resume: bool) -> int:
    """Use a store like every command; return the exit code."""
    common = {"network_buses": [{"bus": 1, "x": 0.5}, {"bus": 2, "x": None}]}
    try:
        with open_store(folder, MANIFEST, resume=resume, common=lambda: common) as store:
            stored = store.stored()
            for run_id in RUNS:
                if run_id not in stored:
                    store.add(rows(run_id))
            store.finish()
    except GridprivError as error:
        print(error, *getattr(error, "__notes__", ()))
        return error.exit_code
    return 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "out"
    assert run(lambda: toy_study(folder, resume=False), folder).status == 0
    return content(folder)


def operations(folder: Path, how: How) -> int:
    return run(lambda: toy_study(folder, resume=False), folder, 10**9, how).operations


def test_the_undisturbed_study_is_what_was_put_in(tmp_path: Path) -> None:
    assert toy_study(tmp_path / "out", resume=False) == 0
    study = read_study(tmp_path / "out")
    stored = study.runs.astype(object).where(study.runs.notna(), None).to_dict("records")
    assert stored == [rows(run_id)["runs"][0] | {"seed": str(2**64 - 1)} for run_id in RUNS]
    assert len(study.rounds) == 9
    assert list(study.tables["network_buses"].bus) == [1, 2]


@pytest.mark.parametrize("every", [31, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["kill", "full", "error"])
def test_after_a_fault_at_every_operation_the_study_resumes_to_the_same_bytes(
    tmp_path: Path, whole: dict[str, bytes], how: How, every: int
) -> None:
    folder = tmp_path / "out"
    count = operations(folder, how)
    assert count > 40
    for at in range(1, count + 1, every):
        shutil.rmtree(folder, ignore_errors=True)
        ended = run(lambda: toy_study(folder, resume=False), folder, at, how)
        where = f"{how} at operation {at} of {count}: {ended.said}"
        if how == "kill":
            assert ended.status == KILLED, where
        else:
            assert ended.status in {0, 2, 3}, where
            assert ended.status or content(folder).keys() >= whole.keys(), where
        before = run(lambda: toy_study(folder, resume=False), folder)
        if before.status:
            assert "add --resume" in before.said, where
        again = run(lambda: toy_study(folder, resume=True), folder)
        assert again.status == 0, f"{where}; then {again.said}"
        assert content(folder) == whole, where


@pytest.mark.parametrize("every", [31, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["kill", "full", "error"])
def test_a_fault_at_every_operation_of_a_resume_is_survived_too(
    tmp_path: Path, whole: dict[str, bytes], how: How, every: int
) -> None:
    folder, half = tmp_path / "out", tmp_path / "half" / "out"
    count = operations(tmp_path / "count" / "out", "kill")
    run(lambda: toy_study(half, resume=False), half, count // 2)
    for at in range(1, 200, every):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(half, folder)
        ended = run(lambda: toy_study(folder, resume=True), folder, at, how)
        assert ended.status != DEFECT, ended.said
        assert run(lambda: toy_study(folder, resume=True), folder).status == 0
        assert content(folder) == whole, f"{how} at {at}"
        if ended.operations < at:
            break
    assert at > 20


@pytest.mark.parametrize("every", [31, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["kill", "full", "error"])
def test_runs_that_are_forgotten_and_run_again_leave_the_same_bytes(
    tmp_path: Path, whole: dict[str, bytes], how: How, every: int
) -> None:
    folder, finished = tmp_path / "out", tmp_path / "finished" / "out"
    assert run(lambda: toy_study(finished, resume=False), finished).status == 0

    def retry() -> int:
        try:
            with open_store(folder, MANIFEST, resume=True) as store:
                store.forget(RUNS[1:2])
        except GridprivError as error:
            return error.exit_code
        return toy_study(folder, resume=True)

    for at in range(1, 300, every):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(finished, folder)
        ended = run(retry, folder, at, how)
        assert ended.status != DEFECT, ended.said
        assert run(lambda: toy_study(folder, resume=True), folder).status == 0
        assert content(folder) == whole, f"{how} at {at}"
        if ended.operations < at:
            break
    assert at > 60


def mutations(original: bytes, places: int) -> list[tuple[str, bytes]]:
    """Return an empty file, truncations at equal distances, and flips of a bit at each."""
    size = len(original)
    cuts = sorted({size * k // places for k in range(places)} | {size - 1})
    damaged = [(f"cut at {cut}", original[:cut]) for cut in cuts]
    for place in cuts:
        flipped = bytearray(original)
        flipped[place] ^= 0x04
        damaged.append((f"bit of byte {place}", bytes(flipped)))
    return damaged


PLACES = pytest.mark.parametrize("places", [5, pytest.param(16, marks=pytest.mark.slow)])


def refusal(action: Callable[..., Any], *given: Any, **more: Any) -> str:
    try:
        action(*given, **more)
    except GridprivError as error:
        assert error.exit_code == 2
        return str(error)
    return ""


@PLACES
def test_damage_of_every_file_of_a_finished_study_is_named(
    tmp_path: Path, whole: dict[str, bytes], places: int
) -> None:
    folder = tmp_path / "out"
    for name, original in whole.items():
        for what, damaged in mutations(original, places):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for other, intact in whole.items():
                (folder / other).write_bytes(intact)
            (folder / name).write_bytes(damaged)
            message = refusal(read_study, folder)
            if not message:
                assert json.loads(damaged) == json.loads(original), f"{name}, {what}"
                continue  # white space
            assert str(folder / name) in message, f"{name}, {what}: {message!r}"
            assert toy_study(folder, resume=True) == 2


@pytest.mark.parametrize(
    ("tables", "named"),
    [
        ({"runs": {"rows": 3}}, "runs"),
        ({"runs": {"rows": 3, "sha256": None}}, "runs"),
        ({"runs": 3}, "runs"),
        ({"../out/runs": {"rows": 3, "sha256": "0" * 64}}, "../out/runs"),
        ({"/etc/passwd": {"rows": 3, "sha256": "0" * 64}}, "/etc/passwd"),
        ({"..": {"rows": 3, "sha256": "0" * 64}}, ".."),
        ([], "tables"),
        (None, "tables"),
    ],
)
def test_a_manifest_that_was_sealed_again_names_its_own_tables_only(
    tmp_path: Path, whole: dict[str, bytes], tables: Any, named: str
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    for name, intact in whole.items():
        (folder / name).write_bytes(intact)
    manifest = json.loads(whole["manifest.json"])
    del manifest["checksum"]
    (folder / "manifest.json").write_text(sealed(manifest | {"tables": tables}))
    message = refusal(read_study, folder)
    assert f"its entry of table {named!r}" in message, message
    assert toy_study(folder, resume=True) == 2


@PLACES
def test_damage_of_a_part_is_named_when_read_and_repaired_by_a_resume(
    tmp_path: Path, whole: dict[str, bytes], places: int
) -> None:
    folder, half = tmp_path / "out", tmp_path / "half" / "out"
    count = operations(tmp_path / "count" / "out", "kill")
    run(lambda: toy_study(half, resume=False), half, count // 2)
    parts = [name for name in content(half / "parts") if name.endswith(".json")]
    assert len(parts) >= 2
    for name in parts:
        for what, damaged in mutations((half / "parts" / name).read_bytes(), places):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(half, folder)
            (folder / "parts" / name).write_bytes(damaged)
            message = refusal(read_study, folder)
            if not message:
                assert json.loads(damaged) == json.loads((half / "parts" / name).read_bytes())
                continue  # white space
            assert name in message and "--resume" in message, f"{name}, {what}: {message!r}"
            with pytest.warns(match="made again"):
                assert toy_study(folder, resume=True) == 0
            assert content(folder) == whole


def test_special_files_in_the_places_of_ours_are_refused_at_once(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    for name in whole:
        folder = tmp_path / name
        folder.mkdir()
        for other, intact in whole.items():
            (folder / other).write_bytes(intact)
        (folder / name).unlink()
        os.mkfifo(folder / name)
        assert "must be a regular file" in refusal(read_study, folder)
        (folder / name).unlink()
        (folder / name).symlink_to("/dev/zero")
        assert "must be a regular file" in refusal(read_study, folder)


def test_another_study_is_refused_and_what_an_earlier_version_wrote(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert toy_study(folder, resume=False) == 0
    other = MANIFEST | {"study": {"weight": 3}}
    for resume in (False, True):
        message = refusal(open_store(folder, other, resume=resume).__enter__)
        assert "holds another study ('toy'; other weight)" in message
    for form in (3, 99):
        old = tmp_path / str(form)
        old.mkdir()
        (old / "manifest.json").write_text(f'{{"format": {form}}}')
        for message in (
            refusal(read_study, old),
            refusal(open_store(old, MANIFEST, resume=True).__enter__),
        ):
            assert f"was written in format {form}" in message and "run the study again" in message


def test_a_folder_that_cannot_be_begun_says_why_and_promises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Store, name: str, _: str) -> None:
        raise StorageError(f"{self.folder / name}: no space left on device")

    monkeypatch.setattr(Store, "text", full)
    with (
        pytest.raises(StorageError, match="no space left") as caught,
        open_store(tmp_path / "out", MANIFEST, resume=False),
    ):
        pass
    assert not getattr(caught.value, "__notes__", ())
