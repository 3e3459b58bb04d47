"""Workers end with their command, however it ends: no process is alive two seconds later."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TRIES = 20
COMMANDS = {
    "compare": [
        "compare",
        "case14",
        "--budgets",
        "1,5",
        "--seeds",
        "40",
        "--rounds",
        "20",
        "--jobs",
        "2",
        "--format",
        "none",
        "--quiet",
    ],
    "run": ["run", "case14", "--workers", "2", "--rounds", "20000", "--tolerance", "0", "--quiet"],
}


def processes() -> dict[int, int]:
    """Return the parent of every process that is alive."""
    parents = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] != "Z":
                parents[int(path.name)] = int(fields[1])
    return parents


def descendants(pid: int) -> set[int]:
    parents = processes()
    members, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new}
        members |= new
    return members


def start(name: str, out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gridpriv.cli.main", *COMMANDS[name], "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_workers(process: subprocess.Popen[str], at_least: int = 2) -> set[int]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None
        workers = descendants(process.pid)
        if len(workers) >= at_least:
            return workers
        time.sleep(0.02)
    raise AssertionError("no workers")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_outlives_a_command(tmp_path: Path, name: str, how: signal.Signals) -> None:
    moments = random.Random(13)
    for attempt in range(TRIES):
        process = start(name, tmp_path / str(attempt))
        try:
            wait_for_workers(process)
            time.sleep(moments.uniform(0.0, 3.0))
            family = descendants(process.pid)  # with those that were started meanwhile
            os.kill(process.pid, how)
            _, errors = process.communicate(timeout=30)
            time.sleep(2.0)
            survivors = family & set(processes())
        finally:
            os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        assert not survivors, (attempt, survivors)
        assert "Traceback" not in errors, errors
        if how != signal.SIGKILL:
            assert process.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130}[how], errors
        if how != signal.SIGKILL and name == "compare":
            assert "--resume" in errors


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_worker_is_said_in_a_sentence(tmp_path: Path, name: str) -> None:
    process = start(name, tmp_path / "out")
    workers = wait_for_workers(process)
    time.sleep(3.0)
    os.kill(max(workers), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 3, errors
    assert "was killed by signal 9" in errors
    assert errors.count("\n") == 1, errors
