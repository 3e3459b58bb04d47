"""Damaged results: reported, or refused with exit code 2, never a traceback.

Each kind of file that ``gridpriv report`` reads is damaged in an otherwise valid folder. The seed
of a batch is its number; a batch runs in a separate process.

    pytest -m slow tests/report/test_result_mutations.py

reads 20,000 files of each kind; the default suite reads a sample.
"""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import warnings
from functools import partial
from pathlib import Path

import pytest
from mutations import damaged, in_a_process

from gridpriv.cli.main import main
from gridpriv.core.store import reopen_store

pytestmark = pytest.mark.usefixtures("painted")

BATCH, SAMPLE, ALL = 250, 5, 20_000
RUN = ["case9", "--zones", "3", "--rounds", "2", "--noise-schedule", "round", "--quiet"]
RUN += ["--planning", "soc"]
STUDY = [
    "case9",
    "--zonings",
    "3",
    "--rounds",
    "2",
    "--solver",
    "clarabel",
    "--planning",
    "soc",
    "--seeds",
    "2",
    "--mechanism",
    "none,laplace",
    "--budgets",
    "5",
    "--jobs",
    "1",
    "--format",
    "none",
    "--quiet",
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of results: a study, one half done, and a run."""
    place = tmp_path_factory.mktemp("whole")
    commands = {"study": ["compare", *STUDY], "run": ["run", *RUN, "--seed", "1"]}
    for name, words in commands.items():
        assert main([*words, "--out", str(place / name)]) == 0
    half = place / "half"
    shutil.copytree(place / "study", half)
    with reopen_store(half) as store:  # as an interrupt before the last run leaves it
        store.forget(list(store.stored())[-1:])
    return place


KINDS: dict[str, tuple[str, str]] = {
    "manifest": ("study", "manifest.json"),
    "table": ("study", "*.parquet"),
    "part": ("half", "*.json"),
    "manifest of a run": ("run", "manifest.json"),
    "table of a run": ("run", "*.parquet"),
}


def read(folder: Path, draw: random.Random) -> tuple[int, str]:
    """Report a folder; return the exit code and the faults of its ending."""
    shutil.rmtree(folder.parent / "out", ignore_errors=True)
    words = [
        "report",
        str(folder),
        "--out",
        str(folder.parent / "out"),
        "--format",
        draw.choice(["csv", "csv", "tex", "html", "xlsx"]),
    ]
    words += ["--public"] * (draw.random() < 0.3)
    out, err = io.StringIO(), io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            code = main(words)
    except BaseException as error:
        return 70, f"{type(error).__name__}: {error}"
    sentences = err.getvalue().count("\n")
    if code not in (0, 2) or sentences != (code == 2):
        return code, f"exit code {code}: {err.getvalue()}"
    return code, ""


def failures(kind: str, batch: int, count: int, whole: Path, place: Path) -> tuple[list[str], int]:
    """Return the failures of a batch, and the number of its reported folders."""
    name, pattern = KINDS[kind]
    draw = random.Random(f"{kind} {batch}")
    folder = place / f"{name} {batch}"
    shutil.copytree(whole / name, folder)
    files = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    victims = [path for path in files if path.match(pattern)]
    wrong, reported = [], 0
    for number in range(count):
        victim = draw.choice(victims)
        victim.write_bytes(damaged(files[victim], draw))
        code, problem = read(folder, draw)
        reported += code == 0
        if problem:
            wrong.append(f"batch {batch}, {number}, {victim.name}: {problem}"[:300])
        victim.write_bytes(files[victim])
    shutil.rmtree(folder)
    return wrong, reported


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_damaged_results(kind: str, whole: Path, tmp_path: Path) -> None:
    wrong, reported = in_a_process(partial(failures, kind, 0, SAMPLE, whole, tmp_path))
    assert wrong == []
    assert reported < SAMPLE


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_thousand_damaged_results(kind: str, whole: Path, tmp_path: Path) -> None:
    defects = [
        in_a_process(partial(failures, kind, batch, BATCH, whole, tmp_path))
        for batch in range(ALL // BATCH)
    ]
    assert [line for wrong, _ in defects for line in wrong] == []
    assert 0 < sum(reported for _, reported in defects) < ALL
