"""Damaged files of every format that pypowsybl reads: a case, or an error message, nothing else.

A batch is read in a fresh interpreter with a bound on its processor time, so that a crash or an
endless loop inside pypowsybl is detected. 1,000 files per format:

    pytest -m slow tests/grid/test_powsybl_mutations.py
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from mutations import damaged

from gridpriv.core.errors import InputError
from gridpriv.grid import powsybl

pytest.importorskip("pypowsybl")
SUFFIXES = (".xiidm", ".zip", ".uct", ".raw", ".txt")
SAMPLE, ALL, BATCH = 12, 1000, 250
LONGEST_S = 300


def damaged_file(suffix: str, content: bytes, draw: random.Random) -> bytes:
    """Return a damaged file; archives are mostly damaged in one of their documents."""
    if suffix != ".zip" or draw.random() < 0.2:
        return damaged(content, draw)
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        names = old.namelist()
        hit = draw.choice(names)
        for name in names:
            text = old.read(name)
            new.writestr(name, damaged(text, draw) if name == hit else text)
    return packed.getvalue()


def batch(suffix: str, sample: Path, first: int, count: int) -> dict[str, int]:
    """Read damaged files one after the other; return how many were read and refused."""
    content, outcomes = sample.read_bytes(), {"read": 0, "refused": 0}
    with TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            draw = random.Random(f"{suffix} {seed}")
            path = Path(folder) / f"case{suffix}"
            path.write_bytes(damaged_file(suffix, content, draw))
            try:
                powsybl.checked_content(path)
                answer = powsybl.answer(Path(folder), {"source": path.name})
                if "error" in answer:
                    raise InputError(answer["error"])
                powsybl._case(json.loads(json.dumps(answer)), "case")
                outcomes["read"] += 1
            except InputError:
                outcomes["refused"] += 1
    return outcomes


def outcomes(suffix: str, sample: Path, first: int, count: int) -> dict[str, int]:
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; import json, warnings; from pathlib import Path; "
        "warnings.simplefilter('ignore'); import test_powsybl_mutations as tests; "
        f"print(json.dumps(tests.batch({suffix!r}, Path({str(sample)!r}), {first}, {count})))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    actual: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return actual


def check(suffix: str, tmp_path: Path, first: int, count: int) -> None:
    from powsybl_files import samples

    sample = tmp_path / f"sample{suffix}"
    sample.write_bytes(samples()[suffix])
    computed = outcomes(suffix, sample, first, count)
    assert sum(computed.values()) == count
    assert count < BATCH or min(computed.values()) > 0, "some are read, some are refused"


@pytest.mark.parametrize("suffix", [".uct", ".raw"])
def test_a_sample(suffix: str, tmp_path: Path) -> None:
    check(suffix, tmp_path, 0, SAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, ALL, BATCH))
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_thousand(suffix: str, first: int, tmp_path: Path) -> None:
    check(suffix, tmp_path, first, BATCH)
