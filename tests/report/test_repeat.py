"""A report's "To repeat" line, run as it is printed."""

from __future__ import annotations

import html
import json
import re
import shlex
from pathlib import Path

import pytest

from gridpriv.cli.flags import COUPLING, Parser, command_again, run_settings
from gridpriv.cli.main import main
from gridpriv.cli.run import add_arguments
from gridpriv.grid.library import case_files
from gridpriv.report.export import make_report
from gridpriv.report.source import read_source


def repeated(folder: Path) -> list[str]:
    """Return the words of the command that a report of the folder prints."""
    notes = [note for part in make_report(read_source(folder)).sections for note in part.notes]
    (line,) = (str(note) for note in notes if note.code == "repeat")
    return shlex.split(line.partition("To repeat: ")[2])


def printed(folder: Path) -> list[str]:
    page = re.sub(r"</?span[^>]*>", "", (folder / "report.html").read_text())  # around flags
    page = re.sub(r"<[^>]*>", "\n", page)
    line = next(line for line in page.splitlines() if "To repeat: " in line)
    return shlex.split(html.unescape(line).partition("To repeat: ")[2])


@pytest.mark.parametrize(
    "words",
    [
        ["--mechanism", "none", "--zones", "3"],
        [
            "--zones",
            "2",
            "--method",
            "louvain",
            "--preset",
            "ryu-kim",
            "--epsilon",
            "0.3",
            "--mechanism",
            "gaussian",
        ],
        ["--zones", "2", "--outage", "branch:3", "--outage", "gen:5", "--beta", "2MW"],
        ["--zoning", "my zones.csv", "--penalty", "geometric:1,1.5,2,50", "--update", "linearized"],
        ["--zones", "2", "--release", "total", "--public-demand", "expected.csv", "--beta", "1MW"],
        [
            "--zone-size",
            "5",
            "--noise-schedule",
            "once",
            "--demand",
            "demand.csv",
            "--load-scale",
            "1.0625",
            "--budget",
            "total:0.123456789",
        ],
    ],
)
def test_the_printed_command_makes_the_same_run(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("it's a grid.m").write_bytes(case_files()["case14"].read_bytes())
    Path("my zones.csv").write_text("bus,zone\n" + "".join(f"{b},{b % 2}\n" for b in range(1, 15)))
    Path("demand.csv").write_text("bus,pd_mw\n3,80\n")
    expected = "".join(f"{bus},18,5\n" for bus in range(1, 15))
    Path("expected.csv").write_text(f"bus,pd_mw,qd_mvar\n{expected}")
    command = ["run", "it's a grid.m", "--rounds", "2", "--no-reference", *words]
    assert main([*command, "--out", "first", "--quiet"]) == 0
    again = repeated(tmp_path / "first")
    assert again[0] == "gridpriv"
    monkeypatch.chdir("/")  # wherever it is typed
    assert main([*again[1:], "--out", str(tmp_path / "second"), "--quiet"]) == 0
    first, second = (
        json.loads((tmp_path / name / "run.json").read_text()) for name in ("first", "second")
    )
    first["settings"]["seed"] = first["seed"]  # drawn there, given here
    first["settings"]["public_demand"] = second["settings"]["public_demand"]  # by its full path
    for key in ("settings", "zones", "final", "privacy", "seed", "repeat"):
        assert first[key] == second[key], key


def test_a_public_report_says_no_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", "case14", "--planning", "soc", "--rounds", "1", "--seed", "981273465"]
    assert main([*words, "--out", "first", "--quiet"]) == 0
    assert main(["report", "first", "--public", "--quiet"]) == 0
    page = (tmp_path / "first" / "public" / "report-public.html").read_text()
    assert "981273465" not in page and "To repeat" not in page


def test_a_day_is_compared_again_with_the_same_baselines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("day.csv").write_text("step,bus,pd_mw\n1,3,80\n")
    words = [
        "run",
        "case14",
        "--zones",
        "2",
        "--series",
        "day.csv",
        "--reference",
        "--solver",
        "clarabel",
        "--noise-schedule",
        "once",
        "--rounds",
        "2",
    ]
    assert main([*words, "--out", "first", "--quiet"]) == 0
    assert main(["report", "first", "--quiet"]) == 0
    again = printed(tmp_path / "first")
    assert "--budget" in again  # a default too: a later version may set another
    assert main([*again[1:], "--out", "second", "--quiet"]) == 0
    first, second = (
        json.loads((tmp_path / name / "horizon.json").read_text()) for name in ("first", "second")
    )
    assert first["steps"][0]["prior_only_cost"] is not None
    for here, there in zip(first["steps"], second["steps"], strict=True):
        assert here | {"seconds": 0} == there | {"seconds": 0}


def test_a_coupled_day_names_all_its_files(tmp_path: Path) -> None:
    files = {name: str(tmp_path / f"{name}.csv") for name in COUPLING}
    given = [word for name, path in files.items() for word in (f"--{name}", path)]
    parser = Parser(prog="gridpriv run")
    add_arguments(parser)
    args = parser.parse_args(["case14", "--series", "day.csv", *given, "--step-hours", "8"])
    args.command = "run"
    again = shlex.split(command_again(args, run_settings(args)))
    assert [word for word in given if word not in again] == []
    assert again[again.index("--step-hours") + 1] == "8"
