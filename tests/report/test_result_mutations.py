"""Damaged and forged results: reported, or refused with exit code 2, never a traceback.

Each kind of file that ``gridpriv report`` reads is damaged in an otherwise valid folder. For kinds
with checks in addition to the checksum, half of the damage is *forged*: the checksum is updated, as
an attacker would. The seed of a batch is its number; a batch runs in a separate process.

    pytest -m slow tests/report/test_result_mutations.py

reads 20,000 files of each kind; the default suite reads a sample.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import shutil
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mutations import VALUES, damaged, in_a_process

from gridpriv.assurance import independence
from gridpriv.cli.main import main
from gridpriv.core.store import reopen_store

pytestmark = pytest.mark.usefixtures("painted")

BATCH, SAMPLE, ALL = 250, 8, 20_000
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
    """Return a folder of results: a study, one half done, a run, each with an audit and attack."""
    place = tmp_path_factory.mktemp("whole")
    audit = [
        "audit",
        *RUN,
        "--noise-schedule",
        "round",
        "--runs",
        "200",
        "--audit-rounds",
        "2",
        "--levels",
        "release",
    ]
    attack = ["attack", *RUN, "--mechanism", "none", "--bus", "5", "--attack-rounds", "1"]
    demands = independence.other_demands
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(independence, "other_demands", lambda run: demands(run)[:1])
        patch.setattr(independence, "REPEATS", 60)  # an audit of few draws has the same fields
        patch.setattr(independence, "RUNS", 2)
        patch.setattr(independence, "DRAWS", 150)
        for name, words in {
            "study": ["compare", *STUDY],
            "run": ["run", *RUN, "--seed", "1"],
            "audit": audit,
            "attack": attack,
        }.items():
            assert main([*words, "--out", str(place / name)]) == 0
    half = place / "half"
    shutil.copytree(place / "study", half)
    with reopen_store(half) as store:  # as an interrupt before the last run leaves it
        store.forget(list(store.stored())[-1:])
    for name in ("audit", "attack"):
        shutil.copy(place / name / f"{name}.json", place / "study")
    return place


def sealed(document: dict[str, Any]) -> bytes:
    """Return a document with the checksum of its form: SHA-256 of its sorted JSON."""
    plain = {key: value for key, value in document.items() if key != "checksum"}
    checksum = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    return json.dumps(plain | {"checksum": checksum}).encode()


def entries(value: Any) -> list[tuple[Any, Any]]:
    """Return the (container, key) of everything in a JSON document."""
    paths = []
    for key, below in value.items() if isinstance(value, dict) else enumerate(value):
        paths.append((value, key))
        if isinstance(below, dict | list):
            paths += entries(below)
    return paths


def forged_json(content: bytes, draw: random.Random) -> bytes:
    """Return a sealed document in which entries are gone, others' or of another kind."""
    document = json.loads(content)
    for _ in range(draw.randint(1, 3)):
        container, key = draw.choice(entries(document))
        if draw.random() < 0.3 and isinstance(container, dict) and len(document) > 1:
            del container[key]
        else:
            other, place = draw.choice(entries(document))
            values = [*VALUES, *[json.dumps(other[place])] * 3]
            container[key] = draw.choice(values)
    return sealed(document)


CHECKED = ("audit", "attack")
"""Kinds whose readers find a forgery too: the others trust what carries the right checksum."""
KINDS: dict[str, tuple[str, str]] = {
    "manifest": ("study", "manifest.json"),
    "table": ("study", "*.parquet"),
    "part": ("half", "*.json"),
    "manifest of a run": ("run", "manifest.json"),
    "table of a run": ("run", "*.parquet"),
    "audit": ("study", "audit.json"),
    "attack": ("study", "attack.json"),
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
        if kind in CHECKED and draw.random() < 0.5:
            victim.write_bytes(forged_json(files[victim], draw))
        else:
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
