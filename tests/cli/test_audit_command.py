"""Flags that a study of settings cannot apply are refused, not ignored."""

from __future__ import annotations

import pytest

from gridpriv.cli.main import main


@pytest.mark.parametrize("command", ["audit", "attack"])
@pytest.mark.parametrize(
    "flags",
    [("--demand", "d.csv"), ("--ledger", "l.db"), ("--series", "s.csv"), ("--public",)],
)
def test_what_cannot_be_honoured_is_refused(command, flags, capsys):
    assert main([command, "case14", *flags]) == 2
    assert f"unknown flag {flags[0]}" in capsys.readouterr().err


@pytest.mark.parametrize("command", [("audit", "--levels", "release"), ("audit",), ("attack",)])
def test_what_releases_nothing_is_refused(command, capsys):
    name, *flags = command
    assert main([name, "case14", "--release", "nothing", *flags]) == 2
    assert "releases nothing" in capsys.readouterr().err
