"""Singular and plural in messages: every command on a grid with one zone."""

from __future__ import annotations

import re

import pytest

from gridpriv.cli.main import main

MANY = re.compile(r"(?<![\d.,])1 ([a-z]+s) ")
WHOLE = ["case14", "--zones", "1"]
COMMANDS = {
    "run": ["run", *WHOLE, "--rounds", "1", "--no-reference", "--seed", "1"],
    "zones": ["zones", *WHOLE],
    "plan": [
        "plan",
        *WHOLE,
        "--beta",
        "10MW",
        "--total",
        "1",
        "--scenarios",
        "1",
        "--releases",
        "nothing",
        "--rounds",
        "1",
    ],
    "ledger": ["ledger", "grant", "OUT", "--case", *WHOLE, "--total", "1", "--beta", "1MW"],
    "consortium": ["consortium", *WHOLE, "--run", "one", "--out", "OUT"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_one_is_no_many(command, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = [str(tmp_path / "out") if w == "OUT" else w for w in COMMANDS[command]]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert re.search(r"\b1 zone\b", printed)
    assert MANY.findall(printed.replace("\n", " ")) == []
