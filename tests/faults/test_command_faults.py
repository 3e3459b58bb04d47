"""Commands under a fault at every file operation: the same command with --resume ends the same.

What is compared is every table byte by byte but ``timing`` (seconds and process numbers), and the
names of all files: nothing missing, nothing left over. ``GRIDPRIV_FAULTS_EVERY=1`` (the default)
takes every operation.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import KILLED, How, content, run

from gridpriv.cli.main import main

pytestmark = pytest.mark.slow

EVERY = int(os.environ.get("GRIDPRIV_FAULTS_EVERY", "1"))
SCHEDULES = range(50)
DAY = "step,load_scale\nnight,0.6\nmorning,1.0\nnoon,1.2\n"
COMMANDS = {
    "compare": ["compare", "case14", "--mechanism", "laplace", "--perturbation", "demand",
                "--budgets", "1", "--seeds", "2", "--rounds", "1", "--jobs", "1",
                "--format", "none", "--quiet"],
    "series": ["run", "case14", "--series", "DAY", "--seed", "3", "--rounds", "1",
               "--solver", "clarabel", "--quiet"],
    "learn": ["learn", "compare", "lasso", "--rounds", "2", "--clients", "5", "--clip", "1",
              "--algorithms", "ryu-kim", "--totals", "1", "--seeds", "2", "--format", "none",
              "--quiet"],
}  # fmt: skip


def command(name: str, folder: Path, *more: str) -> Callable[[], int]:
    day = folder.parent / "day.csv"
    day.parent.mkdir(parents=True, exist_ok=True)
    day.write_text(DAY)
    words = [str(day) if word == "DAY" else word for word in COMMANDS[name]]
    return lambda: main([*words, "--out", str(folder), *more])


@pytest.fixture(scope="module", params=COMMANDS)
def undisturbed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, bytes]]:
    folder = tmp_path_factory.mktemp(request.param) / "out"
    # in this process: what it imports need not be imported by every fork
    assert command(request.param, folder)() == 0
    return request.param, content(folder)


def assert_same(folder: Path, whole: dict[str, bytes], where: str) -> None:
    found = content(folder)
    assert found.keys() == whole.keys(), where
    for name, expected in whole.items():
        if name.endswith(".parquet") and name != "timing.parquet":
            assert found[name] == expected, f"{where}: {name}"


def resumed(name: str, folder: Path, where: str) -> None:
    again = run(command(name, folder, "--resume"), folder)
    assert again.status == 0, f"{where}; then {again.said}"


@pytest.mark.parametrize("how", ["kill", "full", "error"])
def test_a_fault_at_every_operation(
    tmp_path: Path, undisturbed: tuple[str, dict[str, bytes]], how: How
) -> None:
    name, whole = undisturbed
    folder = tmp_path / "out"
    count = run(command(name, folder), folder, 10**9, how).operations
    for at in range(1, count + 1, EVERY):
        shutil.rmtree(folder, ignore_errors=True)
        ended = run(command(name, folder), folder, at, how)
        where = f"{name}: {how} at operation {at} of {count}: {ended.said}"
        assert ended.status in ({KILLED} if how == "kill" else {0, 2, 3}), where
        assert "Traceback" not in ended.said, where
        resumed(name, folder, where)
        assert_same(folder, whole, where)
    print(f"{name}, {how}: {len(range(1, count + 1, EVERY))} of {count} operations")


@pytest.mark.parametrize("seed", SCHEDULES)
def test_a_random_schedule_of_kills(
    tmp_path: Path, undisturbed: tuple[str, dict[str, bytes]], seed: int
) -> None:
    name, whole = undisturbed
    if seed % len(COMMANDS) != list(COMMANDS).index(name):
        pytest.skip("another command's schedule")
    chance, folder, places = random.Random(seed), tmp_path / "out", []
    while True:
        places.append(chance.randrange(1, 60))
        if run(command(name, folder, "--resume"), folder, places[-1]).status == 0:
            break
        if len(places) == 12:
            resumed(name, folder, str(places))
            break
    assert_same(folder, whole, f"{name}, seed {seed}, killed at {places}")
