"""Schedules of faults between processes in network namespaces (root, Linux, iproute2)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCHEDULES = int(os.environ.get("GRIDPRIV_SCHEDULES", "200"))


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and ip")
def test_schedules_of_faults_between_namespaces(tmp_path):
    program = Path(__file__).with_name("namespaces.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), "0", str(SCHEDULES)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == SCHEDULES
    assert not [row for row in rows if row["wrong"]]
    assert {event[0] for row in rows for event in row["events"]} >= {"partition", "stop", "kill"}
