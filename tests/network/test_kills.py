"""Parties that are killed and restarted: the undisturbed result, and no repeated release.

Each party is a process, killed by SIGKILL at a random time. A listener between it and the
coordinator's machine (the test) records its messages, and they are compared round by round.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from parties import laid_out, settings

from gridpriv import run
from gridpriv.privacy.ledger import grant, read_book
from gridpriv.zonal.prepared import zone_datasets

ZONES = ("1", "2", "3")
ROUNDS = 6
RECORDING = """
import sys
from gridpriv.consensus import client
from gridpriv.consensus.messages import decode
from gridpriv.cli.main import main

honest, place = client._Connection.send, sys.argv.pop(1)

def send(self, content):
    with open(place, "ab") as file:
        file.write(len(content).to_bytes(4, "little") + content)
    honest(self, content)

client._Connection.send = send
client.PAUSES = (0.05,)
sys.exit(main())
"""


@pytest.fixture(scope="module")
def undisturbed(case14, zones14):
    result = run(case14, zones14, settings(rounds=ROUNDS))
    return [r.consensus_residual for r in result.trace.rounds]


@pytest.fixture(scope="module")
def template(case14, zones14, tmp_path_factory):
    folder = laid_out(case14, zones14, tmp_path_factory.mktemp("consortium"), rounds=ROUNDS)
    adjacency = settings().adjacency(case14)
    for dataset in zone_datasets(case14, zones14, adjacency):
        grant(folder / dataset.owner / "ledger", [dataset], 20.0)
        configured = folder / dataset.owner / "zone.toml"
        text = configured.read_text().replace("# ledger =  #", 'ledger = "ledger"  #')
        # rounds take a while, so that kills fall into all of them
        configured.write_text(text.replace("beat = 0.0", "beat = 0.1"))
    return folder


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Parties:
    def __init__(self, folder):
        self.folder = folder
        port = free_port()
        for path in (
            folder / "coordinator" / "coordinator.toml",
            *(folder / z / "zone.toml" for z in ZONES),
        ):
            path.write_text(path.read_text().replace("127.0.0.1:0", f"127.0.0.1:{port}"))
        (folder / "party.py").write_text(RECORDING)
        self.processes = {}
        for name in ("coordinator", *ZONES):
            self.start(name)

    def start(self, name):
        kind = "coordinator" if name == "coordinator" else "zone-agent"
        config = f"{'coordinator' if name == 'coordinator' else 'zone'}.toml"
        sent = self.folder / f"sent-{name}"
        with (self.folder / f"err-{name}").open("ab") as errors:
            self.processes[name] = subprocess.Popen(
                [
                    sys.executable,
                    str(self.folder / "party.py"),
                    str(sent),
                    kind,
                    "--quiet",
                    "--config",
                    str(self.folder / name / config),
                ],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )

    def kill(self, name):
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def wait(self, seconds):
        until = time.monotonic() + seconds
        for process in self.processes.values():
            process.wait(max(0.1, until - time.monotonic()))
        return {name: process.returncode for name, process in self.processes.items()}

    def errors(self, name):
        return (self.folder / f"err-{name}").read_text()

    def sent(self, name):
        """Every message that left a zone, by turn."""
        from gridpriv.consensus.messages import Answer, decode

        content, result, at = (self.folder / f"sent-{name}").read_bytes(), {}, 0
        while at + 4 <= len(content):
            size = int.from_bytes(content[at : at + 4], "little")
            first = content[at + 4 : at + 4 + size]
            at += 4 + size
            if len(first) == size:
                message = decode(first)
                assert isinstance(message, Answer)
                result.setdefault(str(message.turn), set()).add(first)
        return result


def schedule(folder, undisturbed, seed):
    rng = random.Random(seed)
    parties = Parties(folder)
    try:
        for _ in range(rng.randint(1, 3)):
            time.sleep(rng.uniform(0.0, 2.5))
            name = rng.choice(("coordinator", *ZONES))
            if parties.processes[name].poll() is None:
                parties.kill(name)
                parties.start(name)
        codes = parties.wait(300.0)
    finally:
        for process in parties.processes.values():
            process.kill()
    assert set(codes.values()) == {0}, {n: parties.errors(n) for n in codes}
    document = json.loads((folder / "coordinator" / "report" / "run.json").read_text())
    assert [row["consensus_residual"] for row in document["rounds"]] == undisturbed
    for name in ZONES:
        left = parties.sent(name)
        assert all(len(each) == 1 for each in left.values()), name  # never twice with other noise
        charges = Counter()
        for _, row in read_book(folder / name / "ledger").charged:
            charges.update(dict(row.charges))
        assert charges.total() == sum(turn.startswith("round") for turn in left) == ROUNDS


@pytest.fixture
def folder(template, tmp_path):
    return Path(shutil.copytree(template, tmp_path / "here"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_fifty_schedules(folder, undisturbed, seed):
    schedule(folder, undisturbed, seed)
