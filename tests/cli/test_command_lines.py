"""Invalid command lines: each ends with a known exit code, without a traceback."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridpriv.cli.flags import Parser
from gridpriv.cli.main import COMMANDS, add_arguments, main

CASE = """function mpc = tiny
mpc.version = '2';
mpc.baseMVA = 100;
mpc.bus = [
1 3 0  0  0 0 1 1 0 230 1 1.1 0.9;
2 1 50 20 0 0 1 1 0 230 1 1.1 0.9;
3 2 40 10 0 0 1 1 0 230 1 1.1 0.9;
4 1 30 5  0 0 1 1 0 230 1 1.1 0.9;
];
mpc.gen = [
1 60 0 50 -50 1 100 1 120 0;
3 60 0 50 -50 1 100 1 120 0;
];
mpc.branch = [
1 2 0.01 0.1 0 200 0 0 0 0 1 -360 360;
2 3 0.01 0.1 0 200 0 0 0 0 1 -360 360;
3 4 0.01 0.1 0 200 0 0 0 0 1 -360 360;
4 1 0.01 0.1 0 200 0 0 0 0 1 -360 360;
];
mpc.gencost = [2 0 0 3 0.01 20 0; 2 0 0 3 0.02 10 0];
"""
QUICK = ["--zones", "2", "--rounds", "1", "--solver", "clarabel"]
VALID = {
    "run": ["tiny.m", *QUICK],
    "compare": [
        "tiny.m",
        "--zonings",
        "2",
        "--rounds",
        "1",
        "--mechanism",
        "none",
        "--jobs",
        "1",
        "--format",
        "none",
        "--out",
        "study",
    ],
    "report": ["done"],
    "reproduce": ["rk-table1"],
    "audit": ["tiny.m", *QUICK, "--runs", "20", "--levels", "release"],
    "attack": ["tiny.m", *QUICK, "--seeds", "1", "--attack-rounds", "1"],
    "relax": ["tiny.m"],
    "acopf": ["tiny.m"],
    "zones": ["tiny.m", "--zones", "2"],
    "cases": ["tiny.m"],
    "learn run": ["lasso", "--rounds", "1", "--algorithm", "admm", "--clients", "2"],
    "learn compare": [
        "lasso",
        "--rounds",
        "1",
        "--algorithms",
        "admm",
        "--seeds",
        "1",
        "--format",
        "none",
        "--out",
        "learned",
    ],
    "ledger grant": ["new.ledger", "--case", "tiny.m", "--zones", "2", "--total", "1"],
    "ledger show": ["old.ledger"],
    "ledger export": ["old.ledger"],
    "ledger verify": ["old.ledger"],
    "account": ["--releases", "3", "--epsilon", "1"],
    "plan": ["tiny.m", "--zones", "2", "--scenarios", "1", "--rounds", "1", "--releases", "total"],
}
TEXTS = (
    "",
    "-",
    "--",
    "---",
    " ",
    "\n",
    "a\nb",
    "\0",
    "a\0b",
    "é☃",
    "\udcff",
    "'",
    '"',
    "[red]",
    "%s %d %(default)s",
    "{}",
    "\\",
    "x" * 300,
    "x" * 5000,
    "/" + "x/" * 2100,
    "=",
    ",",
    ":",
    "/",
    ".",
    "..",
    "done",
    "tiny.m",
    "none.m",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/proc/self/mem",
    "/proc/x/y",
    "empty.csv",
    "empty.json",
    "empty.toml",
    "empty.m",
    "fifo",
    "0",
    "-0",
    "-1",
    "1",
    "2",
    "7",
    "1.5",
    "1e-308",
    "-1e-308",
    "5e-324",
    "1e308",
    "-1e308",
    "1e400",
    "nan",
    "-nan",
    "inf",
    "-inf",
    "Infinity",
    "True",
    "None",
    "null",
    "0x10",
    "1_0",
    "٣",
    "9" * 30,
    "9" * 400,
    "1" + "0" * 5000,
    "1,2",
    "1,,2",
    "1;2",
    "nan,nan",
    "total:1",
    "total:1,1e-5",
    "total:",
    "total:nan",
    "total:1,",
    "total:1,2",
    "total:1e-308",
    "per-release:1e308",
    "per-release:1e-308",
    "per-release:1,1e-308",
    "total:0.1,1e-300",
    "geometric:1,1,1,1",
    "geometric:1e308,1e308,1,1e308",
    "geometric:nan,1,1,1",
    "geometric:1,2,inf,4",
    "auto",
    "gen:1",
    "gen:99",
    "gen:",
    "gen:-1",
    "branch:1e3",
    "branch:0",
    "1MW",
    "1e400MW",
    "-1MW",
    "0kW",
    "1 parsec",
    "laplace",
    "gaussian",
    "knorm",
    "secure",
    "pyomo:",
    "pyomo:none",
    "spectral:2",
    "louvain:99",
    "profiles:1,2",
    "a: beta=1MW",
    "a: x",
    "regular:0",
    "dirichlet:0",
    "l1:nan",
    "html,html",
    "release,release",
)
CODES = {0, 2, 3, 4}
LONGEST_SECONDS = 10.0


def leaves(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, list[str]]]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in below:
        for word, leaf in action.choices.items():
            yield from leaves(leaf, f"{name} {word}")
    if not below:
        yield name, sorted({f for a in parser._actions for f in a.option_strings} - {"--help"})


def every_flag() -> dict[str, list[str]]:
    commands_by_flag: dict[str, list[str]] = {}
    for name in COMMANDS:
        parser = Parser(prog=name)
        add_arguments(name, parser)
        commands_by_flag |= leaves(parser, name)
    return commands_by_flag


FLAGS = every_flag()


def command_line(seed: int) -> list[str]:
    """A valid command line with one to three things wrong or at least odd."""
    chance = random.Random(seed)
    name = chance.choice(sorted(FLAGS))
    words = list(VALID.get(name, []))
    for _ in range(chance.choice((1, 1, 2, 3))):
        value = chance.choice(TEXTS)
        flag = chance.choice(FLAGS[name])
        kind = chance.random()
        if kind < 0.35:
            words += [flag, value]
        elif kind < 0.65:
            words += [f"{flag}={value}"]
        elif kind < 0.75 and words:
            words[chance.randrange(len(words))] = value
        elif kind < 0.8:
            words += [flag]
        elif kind < 0.85:
            words.insert(chance.randrange(len(words) + 1), value)
        elif kind < 0.9:
            words += [flag, "1", flag, value]
        elif kind < 0.95 and words:
            del words[chance.randrange(len(words))]
        else:
            words += [f"{flag}x", value]
    return [*name.split(), *words]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "tiny.m").write_text(CASE)
    for name in ("empty.csv", "empty.json", "empty.toml", "empty.m"):
        (folder / name).touch()
    os.mkfifo(folder / "fifo")
    with contextlib.chdir(folder):
        assert main(["run", *VALID["run"], "--mechanism", "none", "--out", "done", "--quiet"]) == 0
        assert main(["ledger", "grant", "old.ledger", *VALID["ledger grant"][1:], "--quiet"]) == 0
        # an import that the timer interrupts would stay broken for all that follow
        for name in ("attack", "acopf", "learn compare"):
            assert main([*name.split(), *VALID[name], "--quiet"]) == 0
    return folder


def run(words: list[str]) -> tuple[int, str, str, float]:
    """Run a command line in this process; a timer interrupts it as a user would."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace", write_through=True)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
    began = time.perf_counter()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    took = time.perf_counter() - began
    return code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode(), took


def check(place: Path, seed: int) -> None:
    words = command_line(seed)
    with contextlib.chdir(place):
        code, out, err, took = run(words)
    allowed = CODES | ({1} if words[0] == "audit" else set()) | ({130} if took > 9.0 else set())
    assert code in allowed, (seed, words, code, err)
    assert "Traceback" not in err, (seed, words, err)
    if code in (2, 3, 4):
        errors = [line for line in err.splitlines() if not line.startswith("warning: ")]
        assert len(errors) == 1 and errors[0].startswith("gridpriv "), (seed, words, err)
    if code == 0 and "--json" in words and "--help" not in words and "-h" not in words:
        assert out.strip(), (seed, words, err)
        json.loads(out)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a command line opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.usefixtures("offline")
def test_150_command_lines(place: Path) -> None:
    for seed in (*range(150), 5213, 5815):  # 5213: a solver meets numbers that are none
        check(place, seed)


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("first", range(1000, 6000, 100))
def test_5000_command_lines(place: Path, first: int) -> None:
    for seed in range(first, first + 100):
        check(place, seed)
