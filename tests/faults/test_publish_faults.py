"""``gridpriv publish`` with a fault at every file operation: two publications never mix."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest
from harness import KILLED, How, content, run

from gridpriv.cli.main import main
from gridpriv.core.files import read_sealed

EVERY = int(os.environ.get("GRIDPRIV_FAULTS_EVERY", "1"))
WORDS = ["publish", "case14", "--release", "total", "--quiet"]
CERTIFICATE = "own.certificate.json"


def publish(folder: Path, seed: int, *more: str) -> int:
    return main([*WORDS, *more, "--seed", str(seed), "--out", str(folder / "own.m")])


@pytest.mark.parametrize(
    "how", ["kill", *(pytest.param(how, marks=pytest.mark.slow) for how in ("full", "error"))]
)
@pytest.mark.parametrize("of", ["scenarios", pytest.param("series", marks=pytest.mark.slow)])
def test_files_of_two_publications_are_never_next_to_each_other(
    tmp_path: Path, of: str, how: How
) -> None:
    """The earlier one has scenarios, which the other has not; or both are of a series."""
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
        return {k: v for k, v in content(folder).items() if not k.endswith(".part")}

    shutil.copytree(tmp_path / "1", folder)
    count = run(again, folder, 10**9, how).operations
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
            assert entries in (old, new), where
            for file in read_sealed(folder / CERTIFICATE)["files"]:
                digest = hashlib.sha256(entries[file["name"]]).hexdigest()
                assert digest == file["sha256"], where
        else:
            assert how == "kill" or "the publication is not written" in ended.said, where
        assert again() == 0, where
        assert new.items() <= complete().items(), where
