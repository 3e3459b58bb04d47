"""``gridpriv ledger`` on the command line."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gridpriv.cli.main import main
from gridpriv.core.errors import GridprivWarning
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.ledger import Ledger
from gridpriv.privacy.mechanism import Charge
from gridpriv.zonal.prepared import zone_datasets


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["ledger", *words]) == 0
    return capsys.readouterr().out


def charge(path: Path, charges: dict[str, dict[Charge, int]], beta: float = 0.01) -> None:
    case = load_case("case14")
    zoning = shipped_zoning(case)
    assert zoning is not None
    with Ledger(path, zone_datasets(case, zoning, DemandAdjacency(beta))) as ledger:
        for owner, group in charges.items():
            ledger.charge(owner, "run-1", group)


@pytest.fixture
def granted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "case14.ledger"
    text = run(capsys, "grant", str(path), "--case", "case14", "--total", "2,1e-5")
    assert "epsilon 2 at delta 1e-05 granted to each of the 14 buses in 3 zones of case14" in text
    assert "active demand by at most 1 MW and reactive demand by at most 1 MVAr" in text
    return path


def shown(capsys: pytest.CaptureFixture[str], path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(capsys, "show", str(path), "--json"))
    return document


def test_show_says_what_is_granted_spent_and_left(
    granted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    charge(granted, {"1": {Charge("laplace", 10.0): 5}, "3": {Charge("gaussian", 20.0): 4}})
    document = shown(capsys, granted)
    first, second, third = document["owners"]
    assert [o["owner"] for o in document["owners"]] == ["1", "2", "3"]
    assert all((o["epsilon"], o["delta"]) == (2.0, 1e-5) for o in document["owners"])
    assert first["releases"] == 5
    assert first["total_pure"] == pytest.approx(0.5)
    assert 0.0 < first["total"]["epsilon"] <= 0.5
    assert first["used"] + first["left"] == pytest.approx(1.0)
    assert second["left"] == 1.0
    assert "first charge" in second["kept_by"]
    assert third["total_pure"] is None
    assert third["charges"] == [{"kind": "gaussian", "parameter": 20.0, "second": 0.0, "count": 4}]
    table = run(capsys, "show", str(granted))
    assert "left %" in table
    assert "Renyi filter" in table
    rows = table.partition("Protected: ")[0]  # prose wraps at a terminal only
    assert max(map(len, rows.splitlines())) <= 80


def test_export_holds_every_charge_and_no_mark_of_the_data(
    granted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    charge(granted, {"1": {Charge("laplace", 10.0): 5}, "2": {Charge("pure", 0.1 + 0.2): 1}})
    rows = list(csv.DictReader(io.StringIO(run(capsys, "export", str(granted)))))
    assert [(r["owner"], r["run"], r["kind"], r["count"]) for r in rows] == [
        ("1", "run-1", "laplace", "5"),
        ("2", "run-1", "pure", "1"),
    ]
    assert float(rows[1]["parameter"]) == 0.1 + 0.2  # every digit
    printed = run(capsys, "export", str(granted), "--out", str(tmp_path / "a.csv"))
    assert printed.startswith("Written to")
    assert list(csv.DictReader((tmp_path / "a.csv").open())) == rows
    run(capsys, "export", str(granted), "--out", str(tmp_path / "a.json"))
    document = json.loads((tmp_path / "a.json").read_text())
    assert [c["count"] for c in document["charges"]] == [5, 1]
    assert len(document["owners"]) == 3
    assert "dataset" not in (tmp_path / "a.json").read_text()


def test_a_grant_to_one_zone_under_another_adjacency(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one.ledger"
    words = ["--case", "case14", "--total", "5", "--beta", "1MW", "--protects", "p"]
    run(capsys, "grant", str(path), *words, "--owner", "2")
    (owner,) = shown(capsys, path)["owners"]
    assert owner["owner"] == "2"
    assert owner["delta"] == 0.0
    assert owner["adjacency"] == "any change of one bus's active demand by at most 1 MW"


def test_zones_other_than_the_shipped_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "four.ledger"
    words = ["--case", "case14", "--zones", "4", "--total", "5", "--json"]
    document = json.loads(run(capsys, "grant", str(path), *words))
    assert len(document["owners"]) == 4


@pytest.mark.filterwarnings("default::gridpriv.core.errors.GridprivWarning")
def test_a_delta_of_one_over_the_entries_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ledger", "grant", str(tmp_path / "l"), "--case", "case14", "--total", "1"]
    assert main([*words[:-1], "1,0.2"]) == 0
    assert "1/10" in capsys.readouterr().err
    assert issubclass(GridprivWarning, UserWarning)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["show", "{}/absent"], 2, "there is no ledger"),
        (["export", "{}/absent"], 2, "there is no ledger"),
        (["show", "{}"], 2, "not a regular file"),
        (["show", "{}/text"], 2, "not a gridpriv ledger"),
        (["grant", "{}/text", "--case", "case14", "--total", "1"], 2, "not a gridpriv ledger"),
        (["grant", "{}/new", "--case", "case14", "--total", "0"], 2, "--total 0"),
        (["grant", "{}/new", "--case", "case14", "--total", "1,1"], 2, "delta between"),
        (["grant", "{}/new", "--case", "case14", "--total", "1", "--beta", "x"], 2, "beta"),
        (["grant", "{}/new", "--case", "case14", "--total", "1", "--protects", "x"], 2, "p+q"),
        (["grant", "{}/new", "--case", "case14", "--total", "1", "--owner", "9"], 2, "1, 2, 3"),
        (["grant", "{}/new", "--case", "nocase", "--total", "1"], 2, "nocase"),
        (["grant", "{}/a/b", "--case", "case14", "--total", "1"], 2, "no folder"),
    ],
)
def test_wrong_words_are_refused_and_nothing_is_made(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    message: str,
) -> None:
    (tmp_path / "text").write_text("bus,zone\n" * 99)
    assert main(["ledger", *[word.format(tmp_path) for word in words]]) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["text"]
    assert (tmp_path / "text").read_text() == "bus,zone\n" * 99


def test_a_second_grant_and_a_bad_export_format_are_refused(
    granted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ledger", "grant", str(granted), "--case", "case14", "--total", "9"]
    assert main(words) == 2
    assert "all 5 buses of '1' have a grant already" in capsys.readouterr().err
    assert main(["ledger", "export", str(granted), "--format", "xml"]) == 2
    assert "csv, json" in capsys.readouterr().err
    assert main(["ledger", "export", str(granted), "--out", str(granted / "x" / "a.csv")]) == 3
    assert shown(capsys, granted)["owners"][0]["epsilon"] == 2.0


def test_a_missing_action_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["ledger"])
    assert stopped.value.code == 2
    assert "grant|show|export|verify" in capsys.readouterr().err


def test_verify_prints_a_head_that_a_later_ledger_goes_on_from(
    granted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(run(capsys, "verify", str(granted), "--json"))
    assert (document["rows"], document["unfinished_bytes"]) == (1, 0)
    charge(granted, {"1": {Charge("laplace", 10.0): 5}})
    text = run(capsys, "verify", str(granted), "--expect", document["head"])
    assert "every byte of its 3 rows" in text  # the grant, a rule, a charge
    assert "continues the expected head" in text
    head = next(line for line in text.splitlines() if line.startswith("Head: "))
    granted.write_bytes(granted.read_bytes()[:-1])
    assert main(["ledger", "verify", str(granted), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "has 2 whole rows of 3" in captured.err
    assert main(["ledger", "verify", str(granted), "--expect", head[6:-1]]) == 2
    assert "head = " in capsys.readouterr().err


def test_a_renamed_map_finds_its_buses_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book, fewer = str(tmp_path / "book"), tmp_path / "map.csv"
    assert main(["ledger", "grant", book, "--case", "case14", "--total", "2"]) == 0
    words = ["run", "case14", "--ledger", book, "--budget", "total:2", "--rounds", "2"]
    flags = ["--solver", "clarabel", "--quiet"]
    assert main([*words, *flags]) == 0
    fewer.write_text("bus,zone\n" + "".join(f"{b},{'a' if b < 6 else 'b'}\n" for b in range(1, 15)))
    for zones in (["--zoning", str(fewer)], ["--zones", "2"], []):
        assert main([*words, *flags, *zones]) == 4
        errors = capsys.readouterr().err
        assert "buses lack the budget" in errors and re.search(r"zone '\w+' in ledger", errors)
    assert [o["releases"] for o in shown(capsys, Path(book))["owners"]] == [1, 1, 1]


@pytest.mark.parametrize(
    ("beta", "message", "total"),
    [
        (["--beta", "1MW"], "", 1.0),
        (["--beta", "0.01"], "", 1.0),
        (["--beta", "1000kW"], "", 1.0),
        (["--beta", "4MW"], "", 1.0),  # protects more than was granted
        (["--beta", "0.5MW"], "", 2.0),  # half the noise: twice the loss between granted neighbours
        (["--load-scale", "1.5"], "", 1.0),  # beta is of the demand before it is scaled
        (["--load-scale", "1.5", "--perturbation", "objective"], "", 1.0),
        (["--protects", "p"], "granted for: any change of one bus's active demand", 0.0),
    ],
)
def test_beta_is_compared_as_a_number(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    beta: list[str],
    message: str,
    total: float,
) -> None:
    book = str(tmp_path / "book")
    assert main(["ledger", "grant", book, "--case", "case14", "--total", "2"]) == 0
    words = ["run", "case14", "--ledger", book, "--budget", "total:1", "--rounds", "1", *beta]
    assert main([*words, "--solver", "clarabel", "--no-reference", "--quiet"]) == (
        2 if message else 0
    )
    assert message in capsys.readouterr().err
    owners = shown(capsys, Path(book))["owners"]
    assert [o["total_pure"] for o in owners] == pytest.approx([total] * 3)


def test_demand_and_key_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book, key, demand = (str(tmp_path / name) for name in ("book", "key", "demand.csv"))
    Path(demand).write_text("bus,pd_mw\n4,55\n")
    grant = ["ledger", "grant", book, "--case", "case14", "--total", "2", "--demand", demand]
    assert main([*grant, "--key", key]) == 2
    assert "there is no key" in capsys.readouterr().err
    Path(key).write_text("0f" * 32 + "\n")
    Path(key).chmod(0o600)
    assert main([*grant, "--key", key]) == 0
    words = ["run", "case14", "--ledger", book, "--rounds", "1", "--budget", "total:1", "--quiet"]
    words += ["--no-reference"]
    assert main([*words, "--demand", demand]) == 2
    assert main([*words, "--demand", demand, "--ledger-key", key, "--solver", "clarabel"]) == 0
    capsys.readouterr()
    assert main([*words, "--ledger-key", key, "--solver", "clarabel"]) == 0  # the next hour's
    assert main([*words, "--ledger-key", key]) == 4
    assert "left 0 %" in capsys.readouterr().err
    assert main(["run", "case14", "--rounds", "1", "--ledger-key", key]) == 2
    assert "give --ledger" in capsys.readouterr().err
    assert not Path(f"{book}.key").exists()


def test_a_zones_name_is_no_formula_in_an_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book, zones = str(tmp_path / "book"), tmp_path / "map.csv"
    zones.write_text("bus,zone\n" + "".join(f"{b},=cmd|' /C calc'!A0\n" for b in range(1, 15)))
    words = ["--case", "case14", "--zoning", str(zones), "--total", "5"]
    assert main(["ledger", "grant", book, *words]) == 0
    words = ["run", "case14", "--ledger", book, "--zoning", str(zones), "--rounds", "1"]
    assert main([*words, "--solver", "clarabel", "--quiet"]) == 0
    capsys.readouterr()
    (row,) = csv.DictReader(io.StringIO(run(capsys, "export", book)))
    assert row["owner"] == "'=cmd|' /C calc'!A0"
    assert not [cell for cell in row.values() if cell.startswith(("=", "+", "-", "@"))]


def test_in_the_c_locale_names_are_printed(tmp_path: Path) -> None:
    book, zones = tmp_path / "büch", tmp_path / "zonen.csv"
    zones.write_text("bus,zone\n" + "".join(f"{b},Süd\n" for b in range(1, 15)))
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    grant = ["grant", str(book), "--case", "case14", "--zoning", str(zones), "--total", "1"]
    reading = [["show"], ["export"], ["verify"], ["show", "--json"]]
    commands = [grant, *([*words, str(book)] for words in reading), ["show", f"{book}x"]]
    code = (
        "import json, os, sys; from gridpriv.cli import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['gridpriv', 'ledger', *(os.fsdecode(word.encode()) for word in words)]\n"
        "    print(main.main(), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)],
        env=os.environ | plain,
        capture_output=True,
        check=True,
    )
    codes = [line for line in done.stderr.splitlines() if len(line) == 1 and line.isdigit()]
    assert codes == [b"0"] * 5 + [b"2"], done.stderr


def test_the_older_flag_of_a_grant_names_the_present_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", "grant", str(tmp_path / "l"), "--case", "case14", "--epsilon", "5"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert error.endswith("--epsilon was replaced. Give the total epsilon as --total 5.")
    assert not (tmp_path / "l").exists()


def test_no_refused_run_is_advised_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two steps draw and a third is refused: a grant stays exceeded, however often it is tried."""
    (tmp_path / "day.csv").write_text("step,load_scale\na,1.0\nb,0.9\nc,0.8\n")
    path = tmp_path / "l"
    run(capsys, "grant", str(path), "--case", "case14", "--total", "3")
    monkeypatch.setattr(Ledger, "plan", lambda *_: None)  # another process was charged meanwhile
    charge(path, {zone: {Charge("laplace", 1.0): 1} for zone in "123"})
    words = ["--series", str(tmp_path / "day.csv"), "--noise-schedule", "round", "--rounds", "1"]
    budget = ["--budget", "total:3", "--seed", "1", "--ledger", str(path)]
    assert main(["run", "case14", *words, *budget, "--out", str(tmp_path / "out")]) == 4
    text = " ".join(capsys.readouterr().err.split())
    assert "2 of 3 runs are stored" in text
    assert "--resume" not in text
