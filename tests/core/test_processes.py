"""Functions in other processes: same results, reported failures, no remaining processes."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from gridpriv.consensus.transport import _serve
from gridpriv.core.errors import GridprivError, WorkerError
from gridpriv.core.processes import Worker, _serve_one, unordered
from gridpriv.core.threads import VARIABLE


@contextmanager
def worker_of(function):
    worker = Worker(_serve_one, function)
    try:
        yield worker
    finally:
        worker.end()


def answered(worker, given):
    worker.send(given)
    return worker.answer()


def test_answers_are_the_functions_and_the_process_is_gone_afterwards():
    with worker_of(math.sqrt) as root:
        assert [answered(root, x) for x in (4.0, 2.0)] == [2.0, math.sqrt(2.0)]
        process = root.process
        assert process.poll() is None
    assert process.poll() is not None


def test_a_failure_there_is_raised_here():
    with worker_of(math.sqrt) as root, pytest.raises(ValueError, match="math domain"):
        answered(root, -1.0)


def test_a_process_that_dies_is_no_answer_and_says_how_it_ended():
    with (
        worker_of(os._exit) as last,
        pytest.raises(WorkerError, match="ended with status 7 before"),
    ):
        answered(last, 7)
    with (
        worker_of(signal.raise_signal) as last,
        pytest.raises(WorkerError, match="killed by signal 9"),
    ):
        answered(last, signal.SIGKILL)


def test_linear_algebra_there_has_one_thread_unless_reported_otherwise(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with worker_of(os.getenv) as variable:
        assert answered(variable, VARIABLE) == "1"
    monkeypatch.setenv(VARIABLE, "3")
    with worker_of(os.getenv) as variable:
        assert answered(variable, VARIABLE) == "3"


def test_leaving_does_not_wait_for_a_process_that_is_busy():
    began = time.perf_counter()
    with worker_of(time.sleep) as busy:
        busy.send(60.0)
    assert time.perf_counter() - began < 10.0


class Nobody:
    def make(self, share):
        return share


@pytest.mark.parametrize(("serve", "given"), [(_serve_one, (math.sqrt,)), (_serve, (Nobody(), []))])
def test_leaving_while_an_answer_is_unread_says_nothing(serve, given, capfd):
    """Closing a pipe with something in it resets it."""
    worker = Worker(serve, *given)
    if serve is _serve_one:  # the other one speaks first
        worker.send(4.0)
    assert worker.pipe.poll(10.0)
    time.sleep(0.1)  # it waits for the next question
    worker.pipe.close()
    ended = worker.process.wait(10.0)
    worker.end()
    assert (ended, capfd.readouterr().err) == (0, "")


def test_tasks_of_several_processes_are_each_answered_once():
    assert sorted(unordered(math.sqrt, [float(k * k) for k in range(7)], 3)) == list(range(7))
    assert list(unordered(math.sqrt, [], 3)) == []


def test_a_failure_or_a_closed_iterator_ends_all_processes():
    with pytest.raises(ValueError, match="math domain"):
        list(unordered(math.sqrt, [1.0, -1.0, 4.0], 2))
    answers = unordered(math.sqrt, [1.0] * 5, 2)
    next(answers)
    answers.close()
    assert not children_of(os.getpid())


def children_of(pid: int) -> set[int]:
    loaded = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child) for child in loaded}


UNGUARDED = """
import math, sys
from gridpriv.core.processes import unordered
sys.stdout.write("begun ")
def root(x):
    return math.sqrt(x)
print(sorted(unordered({function}, [4.0, 9.0], 2)))
"""


def run_script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_script_needs_no_main_guard(tmp_path: Path):
    done = run_script(tmp_path, UNGUARDED.format(function="math.sqrt"))
    assert done.stdout == "begun [2.0, 3.0]\n"
    assert done.stderr == ""


def test_a_script_that_sends_its_own_functions_is_reported_to_have_a_guard(tmp_path: Path):
    done = run_script(tmp_path, UNGUARDED.format(function="root"))
    assert done.stderr.count("Traceback") == 1
    assert "InputError" in done.stderr.splitlines()[-1]
    assert "if __name__ == '__main__':" in done.stderr.splitlines()[-1]
    guarded = UNGUARDED.format(function="root").replace(
        "print(", "if __name__ == '__main__':\n    print("
    )
    done = run_script(tmp_path, guarded)
    assert "[2.0, 3.0]" in done.stdout
    assert done.stderr == ""


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path):
    for name in ("gridpriv", "numpy", "multiprocessing"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            "import math; from gridpriv.core.processes import unordered; "
            "print(sorted(unordered(math.sqrt, [4.0, 9.0], 2)))",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "[2.0, 3.0]\n"


# a worker deep in a computation that never lets another thread run
BUSY = """
import re, sys
from gridpriv.core.processes import Worker, _serve_one
worker = Worker(_serve_one, re.compile("(a+)+$").match)
print(worker.process.pid, flush=True)
worker.send("a" * 40 + "b")
sys.stdin.read()
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_busy_worker_dies_with_its_parent_however_that_ends(how: signal.Signals):
    parent = subprocess.Popen(
        [sys.executable, "-c", BUSY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    time.sleep(1.0)
    assert alive(worker)
    parent.send_signal(how)
    parent.wait(timeout=10)
    deadline = time.monotonic() + 2.0
    while alive(worker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(worker)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_error_of_ours_keeps_its_kind():
    assert issubclass(WorkerError, GridprivError)
    assert WorkerError("x").exit_code == 3
