"""``--quiet``, ``--json`` and misspelt settings have the same effect in every command."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from gridpriv.cli.main import COMMANDS, add_arguments, main


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every command, of every action where there are some."""
    by_name = {}
    for name in COMMANDS:
        parser = argparse.ArgumentParser(prog=name)
        add_arguments(name, parser)
        nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        actions = {f"{name} {k}": action for a in nested for k, action in a.choices.items()}
        by_name |= actions or {name: parser}
    return by_name


def test_every_command_is_quiet_and_speaks_json_in_the_same_words() -> None:
    help_texts: dict[str, set[str]] = {"--quiet": set(), "--json": set()}
    for name, parser in parsers().items():
        for flag, texts in help_texts.items():
            actions = [a for a in parser._actions if flag in a.option_strings]
            assert len(actions) == 1, f"{name} has no {flag}"
            texts.add(str(actions[0].help))
    assert [len(texts) for texts in help_texts.values()] == [1, 1], help_texts


QUICK = {
    "account": ["account", "--epsilon", "1", "--releases", "10"],
    "cases": ["cases", "case14"],
    "zones": ["zones", "case14", "--zones", "2"],
    "schema": ["schema", "runs"],
    "run": [
        "run",
        "case14",
        "--rounds",
        "1",
        "--solver",
        "clarabel",
        "--seed",
        "1",
        "--mechanism",
        "none",
    ],
    "relax": ["relax", "case14"],
    "learn": ["learn", "run", "lasso", "--rounds", "1", "--clients", "5", "--clip", "1"],
    "reproduce": ["reproduce"],
}


@pytest.mark.parametrize("name", QUICK)
def test_quiet_prints_nothing_and_json_one_document(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*QUICK[name], "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert main([*QUICK[name], "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), dict)


OUT = {
    "run": ["case14"],
    "compare": ["case14"],
    "plan": ["case14"],
    "audit": ["case14"],
    "attack": ["case14"],
    "relax": ["case14"],
    "acopf": ["case14"],
    "security": ["case14"],
    "exchange": ["case14"],
    "reproduce": ["rk-fig3"],
    "learn run": ["lasso"],
    "learn compare": ["lasso"],
    "learn reproduce": ["huang-fig1"],
}
OWN_OUT = {
    "publish",
    "report",
    "zones",
    "ledger export",
    "consortium",
    "keys",
    "learn predict",
    "learn forecast",
}
"""Whose ``--out`` is one file, or a place that other tests hold."""


def test_every_command_that_writes_a_folder_refuses_a_file_in_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    has_out = {
        name
        for name, parser in parsers().items()
        if any("--out" in action.option_strings for action in parser._actions)
    }
    assert has_out == OUT.keys() | OWN_OUT
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for name, words in OUT.items():
        assert main([*name.split(), *words, "--out", str(taken)]) == 2, name
        printed = capsys.readouterr()
        assert printed.err.endswith(f"--out {taken}: must be a folder, not a file\n"), (
            name,
            printed.err,
        )
        assert printed.out == ""
    assert taken.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
