"""Studies in separate processes: workers, kills, full disks, a Dask cluster."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gridpriv.study import compare, read_study
from gridpriv.study.plan import to_toml

pytestmark = pytest.mark.slow


def start(plan_file: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "gridpriv.cli.main",
            "compare",
            "--study",
            str(plan_file),
            "--out",
            str(out),
            "--format",
            "none",
            *more,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_two_workers_give_the_tables_of_one(tmp_path, make_small_plan, assert_same_tables) -> None:
    plan = make_small_plan(seeds=[1, 2, 3, 4])
    serial = compare(plan, out=tmp_path / "one", jobs=1)
    two = compare(plan, out=tmp_path / "two", jobs=2)
    assert_same_tables(serial, two)
    assert two.tables["timing"].process.nunique() == 2


@pytest.mark.parametrize("attempt", range(2))
def test_killed_at_a_random_time_and_resumed_gives_the_same_tables(
    tmp_path, make_small_plan, assert_same_tables, attempt
) -> None:
    del attempt  # each draws its own moment
    plan = make_small_plan(seeds=list(range(1, 13)), settings={"rounds": 20})
    file = tmp_path / "study.toml"
    file.write_text(to_toml(plan))
    whole = compare(plan, out=tmp_path / "whole", jobs=1)
    out = tmp_path / "killed"
    process = start(file, out, "--jobs", "2")
    deadline = time.monotonic() + 120
    grid = {"common.json"}  # is there before any run
    while time.monotonic() < deadline:
        if {part.name for part in (out / "parts").glob("*.json")} - grid:
            break
        time.sleep(0.02)
    time.sleep(random.Random(time.time_ns()).uniform(0.0, 2.0))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    stored = len(read_study(out).runs)
    assert stored > 0
    done = start(file, out, "--resume", "--jobs", "1")
    assert done.wait(timeout=300) == 0, done.stderr.read().decode()
    assert_same_tables(read_study(out), whole)


FULL_DISK = """
import resource, sys
from contextlib import contextmanager
from gridpriv.study import compare, read_plan

@contextmanager
def progress(total):
    left = [3]
    def advance(note):
        left[0] -= 1
        if left[0] == 0:  # from here on, no file can grow: writing fails as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
    yield advance

try:
    compare(read_plan(sys.argv[1]), out=sys.argv[2], jobs=1, progress=progress)
except Exception as error:
    print(type(error).__name__, error, *getattr(error, "__notes__", ()))
"""


def test_a_full_disk_is_reported_and_loses_nothing(
    tmp_path, make_small_plan, assert_same_tables
) -> None:
    plan = make_small_plan(seeds=[1, 2, 3])
    file = tmp_path / "study.toml"
    file.write_text(to_toml(plan))
    out = tmp_path / "out"
    completed = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(file), str(out)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert completed.startswith("StorageError cannot write")
    assert "--resume" in completed
    assert "3 of 7 runs are stored" in completed
    assert not list(out.rglob("*.part"))
    whole = compare(plan, out=tmp_path / "whole", jobs=1)
    assert_same_tables(compare(plan, out=out, jobs=1, resume=True), whole)


def test_a_dask_cluster_of_two_gives_the_same_tables(
    tmp_path, make_small_plan, assert_same_tables
) -> None:
    distributed = pytest.importorskip("distributed")
    plan = make_small_plan(seeds=[1, 2, 3])
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        on_cluster = compare(plan, out=tmp_path / "dask", cluster=cluster.scheduler_address)
    near = compare(plan, out=tmp_path / "near", jobs=2)
    assert_same_tables(on_cluster, near)
    assert on_cluster.failed.empty


def test_what_workers_warn_of_is_reported_here_once(tmp_path) -> None:
    words = [
        "case118",
        "--preset",
        "ryu-kim",
        "--sensitivity",
        "proven",
        "--mechanism",
        "gaussian",
        "--perturbation",
        "objective",
        "--budgets",
        "0.5,1",
        "--per-release",
        "--seeds",
        "2",
        "--rounds",
        "1",
        "--format",
        "none",
    ]
    for jobs in ("1", "2"):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "gridpriv.cli.main",
                "compare",
                *words,
                "--jobs",
                jobs,
                "--out",
                str(tmp_path / jobs),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr.count("warning: delta = 0.01 is at least 1/236") == 1
        assert done.stderr.count("warning: ") == 1
