"""``gridpriv publish`` with a fault at every file operation: two publications never mix."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from harness import KILLED, How, content, run

from gridpriv.cli import publish as command
from gridpriv.cli.main import main
from gridpriv.core import files
from gridpriv.core.files import read_sealed

EVERY = int(os.environ.get("GRIDPRIV_FAULTS_EVERY", "1"))
WORDS = ["publish", "case14", "--release", "total", "--quiet"]
CERTIFICATE = "own.certificate.json"


def publish(folder: Path, seed: int, *more: str) -> int:
    return main([*WORDS, *more, "--seed", str(seed), "--out", str(folder / "own.m")])


@pytest.fixture
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute every publication once; its files are written each time."""
    honest, kept = command._prepared, dict[str, tuple[Any, Any]]()

    def prepared(args: Any, chosen: Any, *given: Any) -> tuple[Any, Any]:
        key = f"{chosen} {args.series}"
        if key not in kept:
            planned, draw = honest(args, chosen, *given)
            copy = draw(lambda *_: None)
            kept[key] = planned, lambda _charge: copy
        return kept[key]

    monkeypatch.setattr(command, "_prepared", prepared)


@pytest.mark.usefixtures("drawn_once")
@pytest.mark.parametrize(
    "how", ["kill", *(pytest.param(how, marks=pytest.mark.slow) for how in ("full", "error"))]
)
@pytest.mark.parametrize("of", ["scenarios", pytest.param("series", marks=pytest.mark.slow)])
def test_files_of_two_publications_are_never_next_to_each_other(
    tmp_path: Path, of: str, how: How
) -> None:
    """The earlier one has scenarios, which the other has not; or both are of a series.

    After a kill the next publication removes what is left of the earlier ones.
    """
    (tmp_path / "day.csv").write_text("step,load_scale\nnight,0.9\nnoon,1.0\n")
    series = ["--series", str(tmp_path / "day.csv")]
    first, second = (series, series) if of == "series" else (["--scenarios", "1"], [])
    publications = []
    for seed, more in ((1, first), (2, second)):
        (tmp_path / str(seed)).mkdir()
        assert publish(tmp_path / str(seed), seed, *more) == 0
        publications.append(content(tmp_path / str(seed)))
    old, new = publications
    assert new.keys() <= old.keys()
    assert all(old[name] != new[name] for name in new)
    folder = tmp_path / "out"

    def again() -> int:
        return publish(folder, 2, *second)

    def complete() -> dict[str, bytes]:
        return {k: v for k, v in content(folder).items() if not k.startswith(".")}

    shutil.copytree(tmp_path / "1", folder)
    count, recovered = run(again, folder, 10**9, how).operations, set()
    for at in range(1, count + 1, EVERY):
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "1", folder)
        ended = run(again, folder, at, how)
        where = f"{how} at operation {at} of {count}: {ended.said}"
        assert ended.status in ({KILLED} if how == "kill" else {0, 2, 3}), where
        assert "Traceback" not in ended.said, where
        entries = complete()
        assert entries.items() <= old.items() or entries.items() <= new.items(), where
        if CERTIFICATE in entries:
            assert entries == new or entries.items() <= old.items(), where
            for file in read_sealed(folder / CERTIFICATE)["files"]:
                digest = hashlib.sha256(entries.get(file["name"], b"")).hexdigest()
                assert digest == file["sha256"] or file["name"] not in entries, where
        else:
            assert how == "kill" or "the publication is not written" in ended.said, where
        # the name of a temporary file begins with 16 digits of its file's and ends at random
        state = frozenset(
            (name[: 17 if name.endswith(".part") else None], data)
            for name, data in content(folder).items()
        )
        if state not in recovered:
            recovered.add(state)
            assert again() == 0, where
            assert content(folder) == new, where


def test_a_second_publication_to_the_same_path_is_refused_before_its_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    book = str(tmp_path / "book")
    grant = ["ledger", "grant", book, "--case", "case14", "--total", "2", "--protects", "p+q"]
    assert main([*grant, "--beta", "10MW", "--quiet"]) == 0
    real, statuses = files.write_texts, []

    def at_once(*arguments: Any) -> None:
        monkeypatch.setattr("gridpriv.cli.publish.write_texts", real)
        statuses.append(publish(tmp_path, 2, "--ledger", book))
        statuses.append(main([*WORDS, "--out", str(tmp_path / "other.m")]))
        real(*arguments)

    monkeypatch.setattr("gridpriv.cli.publish.write_texts", at_once)
    assert publish(tmp_path, 1, "--ledger", book) == 0
    assert statuses == [2, 0]
    said = f"{tmp_path / 'own.m'} is being written to by process {os.getpid()}"
    assert said in capsys.readouterr().err
    assert main(["ledger", "show", book, "--json"]) == 0
    owners = json.loads(capsys.readouterr().out)["owners"]
    assert {owner["releases"] for owner in owners} == {1}
    assert not [name for name in content(tmp_path) if name.endswith((".part", ".m.lock"))]


def test_temporary_files_of_other_writers_are_kept(tmp_path: Path) -> None:
    with files.atomic_file(tmp_path / "other.m", private=False) as file:
        assert publish(tmp_path, 1) == 0
        file.write(b"still there")
    assert (tmp_path / "other.m").read_bytes() == b"still there"
