"""Folders with valid checksums and invalid tables: reported, or refused with an error message.

Of every table of a run and of a study, each column is removed, emptied, or changed in type; the
checksums of manifest and tables are updated. The test does not depend on the report code.

    pytest -m slow tests/report/test_forged_tables.py

takes every change of every column; the default suite draws a few.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gridpriv.cli.main import main

pytestmark = pytest.mark.usefixtures("painted")

RUN = ["run", "case9", "--zones", "3", "--rounds", "2", "--seed", "1", "--solver", "clarabel"]
STUDY = [
    "compare",
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
    "1",
    "--mechanism",
    "none,laplace",
    "--budgets",
    "5",
    "--jobs",
    "1",
    "--format",
    "none",
]
SAMPLE = 8

WAYS: dict[str, Callable[[int], pa.Array]] = {
    "text": lambda n: pa.array(["a"] * n),
    "number": lambda n: pa.array([3.5] * n),
    "huge": lambda n: pa.array([1e308] * n),
    "flag": lambda n: pa.array([True] * n),
    "time": lambda n: pa.array([0] * n, pa.timestamp("s")),
    "bytes": lambda n: pa.array([b"\xff"] * n),
    "null": pa.nulls,
}


@pytest.fixture(scope="module", params=[RUN, STUDY], ids=["run", "study"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "out"
    assert main([*request.param, "--quiet", "--out", str(folder)]) == 0
    return folder


def forgeries(folder: Path) -> list[tuple[str, str, str]]:
    """Return table, column and way of every forgery of a folder."""
    return [
        (path.stem, column, way)
        for path in sorted(folder.glob("*.parquet"))
        for column in pq.read_schema(path).names
        for way in ("left out", *WAYS)
    ]


def forge(folder: Path, name: str, column: str, way: str) -> None:
    """Put a table with one column changed into a folder, and the checksums that it then needs."""
    path, manifest = folder / f"{name}.parquet", folder / "manifest.json"
    table = pq.read_table(path)
    if way == "left out":
        table = table.drop_columns([column])
    else:
        at = table.column_names.index(column)
        table = table.set_column(at, column, WAYS[way](table.num_rows))
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    path.write_bytes(buffer.getvalue())
    document = json.loads(manifest.read_text())
    document["tables"][name]["sha256"] = hashlib.sha256(buffer.getvalue()).hexdigest()
    del document["checksum"]
    checksum = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    manifest.write_text(json.dumps(document | {"checksum": checksum}))


def refused(folder: Path, out: Path, draw: random.Random) -> tuple[int, list[str]]:
    """Report a folder; return the exit code and the faults of its ending."""
    words = [
        "report",
        str(folder),
        "--out",
        str(out),
        "--format",
        draw.choice(["csv", "csv", "csv", "html"]),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = main(words + ["--public"] * (draw.random() < 0.2))
    wrong = [] if code in (0, 2) else [f"exit code {code}"]
    return code, wrong + [f"left {path}" for path in out.glob("**/*") if code and path.is_file()]


def survive(
    some: list[tuple[str, str, str]], whole: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw, codes, defects = random.Random(13), set(), []
    for forgery in some:
        for folder in ("forged", "out"):
            shutil.rmtree(place / folder, ignore_errors=True)
        shutil.copytree(whole, place / "forged", ignore=shutil.ignore_patterns("*.csv", "*.png"))
        forge(place / "forged", *forgery)
        code, wrong = refused(place / "forged", place / "out", draw)
        errors = capsys.readouterr().err
        wrong += [f"said {errors!r}"] * (errors.count("\n") != (code == 2))
        defects += [(forgery, line) for line in wrong]
        codes.add(code)
    assert defects == []
    assert codes <= {0, 2}


def test_a_sample_of_forged_tables(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    survive(random.Random(14).sample(forgeries(whole), SAMPLE), whole, tmp_path, capsys)


@pytest.mark.slow
def test_every_forged_table(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    survive(forgeries(whole), whole, tmp_path, capsys)
