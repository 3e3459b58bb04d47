"""Commands with a fault at every file operation: --resume then gives the same result.

Compared are every table byte by byte except ``timing`` (seconds and process numbers), and the
names of all files: none missing, none left over.

    GRIDPRIV_FAULTS_EVERY=1 pytest -m slow tests/faults

takes every operation, which is the default; the default suite takes a few of a run's.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import KILLED, How, content, run

from gridpriv.cli.main import main
from gridpriv.core.store import read_study

EVERY = int(os.environ.get("GRIDPRIV_FAULTS_EVERY", "1"))
TIMED = ("timing.parquet",)
SCHEDULES = range(50)
DAY = "step,load_scale\nnight,0.6\nmorning,1.0\nnoon,1.2\n"
COMMANDS = {
    "compare": [
        "compare",
        "case14",
        "--mechanism",
        "laplace",
        "--perturbation",
        "demand",
        "--budgets",
        "1",
        "--seeds",
        "2",
        "--rounds",
        "1",
        "--jobs",
        "1",
        "--no-reference",
        "--format",
        "none",
        "--quiet",
    ],
    "series": [
        "run",
        "case14",
        "--series",
        "DAY",
        "--seed",
        "3",
        "--rounds",
        "1",
        "--solver",
        "clarabel",
        "--quiet",
    ],
    "run": ["run", "case14", "--seed", "3", "--rounds", "1", "--solver", "clarabel", "--quiet"],
    "public": [
        "run",
        "case14",
        "--series",
        "DAY",
        "--seed",
        "3",
        "--rounds",
        "1",
        "--public",
        "--solver",
        "clarabel",
        "--quiet",
    ],
    "learn": [
        "learn",
        "compare",
        "lasso",
        "--rounds",
        "2",
        "--clients",
        "5",
        "--clip",
        "1",
        "--algorithms",
        "ryu-kim",
        "--totals",
        "1",
        "--seeds",
        "2",
        "--format",
        "none",
        "--quiet",
    ],
}


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
    entries = content(folder)
    assert entries.keys() == whole.keys(), where
    for name, expected in whole.items():
        if name.endswith(".parquet") and name not in TIMED:
            assert entries[name] == expected, f"{where}: {name}"


def resumed(name: str, folder: Path, where: str) -> None:
    again = run(command(name, folder, "--resume"), folder)
    assert again.status == 0, f"{where}; then {again.said}"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "full", "error"])
def test_a_fault_at_every_operation(
    tmp_path: Path, undisturbed: tuple[str, dict[str, bytes]], how: How
) -> None:
    survive(tmp_path / "out", undisturbed, how, EVERY)


def survive(folder: Path, undisturbed: tuple[str, dict[str, bytes]], how: How, every: int) -> None:
    name, whole = undisturbed
    count = run(command(name, folder), folder, 10**9, how).operations
    for at in range(1, count + 1, every):
        shutil.rmtree(folder, ignore_errors=True)
        ended = run(command(name, folder), folder, at, how)
        where = f"{name}: {how} at operation {at} of {count}: {ended.said}"
        assert ended.status in ({KILLED} if how == "kill" else {0, 2, 3}), where
        assert "Traceback" not in ended.said, where
        resumed(name, folder, where)
        assert_same(folder, whole, where)
    print(f"{name}, {how}: {len(range(1, count + 1, every))} of {count} operations")


@pytest.mark.parametrize("undisturbed", ["run"], indirect=True)
def test_a_run_that_was_killed_now_and_then(
    tmp_path: Path, undisturbed: tuple[str, dict[str, bytes]]
) -> None:
    survive(tmp_path / "out", undisturbed, "kill", 211)


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--public"]], ids=" ".join)
def test_a_charged_run_says_at_least_what_the_ledger_says_wherever_it_is_killed(
    tmp_path: Path,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Complete, killed, or killed and resumed: no zone released more than its folder records."""
    book, granted, folder = tmp_path / "book", tmp_path / "granted", tmp_path / "out"
    grant = ["ledger", "grant", str(granted), "--case", "case14", "--total", "11"]
    assert main([*grant, "--quiet"]) == 0
    shutil.copy(f"{granted}.key", f"{book}.key")
    charged = [*words, "--ledger", str(book)]

    def charges() -> dict[str, int]:
        capsys.readouterr()
        assert main(["ledger", "show", str(book), "--json"]) == 0
        owners = json.loads(capsys.readouterr().out)["owners"]
        return {owner["owner"]: owner["releases"] for owner in owners}

    def said() -> dict[str, int]:
        if not (folder / "manifest.json").exists():
            return {}
        table = read_study(folder).tables.get("releases")
        return {} if table is None else dict(table.groupby("zone")["count"].sum())

    shutil.copy(granted, book)
    count = run(command("run", folder, *charged), folder, 10**9).operations
    for at in range(1, count + 1, EVERY):
        shutil.rmtree(folder, ignore_errors=True)
        monkeypatch.setenv("GRIDPRIV_STATE", str(tmp_path / f"state-{at}"))  # no earlier charge
        shutil.copy(granted, book)
        assert run(command("run", folder, *charged), folder, at).status == KILLED
        for _ in range(2):
            spent, stated = charges(), said()
            assert all(stated.get(zone, 0) >= n for zone, n in spent.items()), (at, spent, stated)
            again = run(command("run", folder, *charged, "--resume"), folder)
            assert again.status == 0, f"killed at {at} of {count}: {again.said}"
            privacy = json.loads((folder / "run.json").read_text())["privacy"]
            assert privacy["releases_per_zone"] >= max(charges().values()), at
        assert max(charges().values()) <= 2


@pytest.mark.slow
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
