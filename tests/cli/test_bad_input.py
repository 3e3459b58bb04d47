"""Extreme grids and demands: a clear result, or an early error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gridpriv.cli.main import main

ZONES = "bus,zone\n1,a\n2,a\n3,b\n4,b\n"
LINE = "{} {} 0.01 0.1 0.02 0 0 0 0 0 1 -360 360;"
JOINED, ISLANDS = ((1, 2), (2, 3), (3, 4)), ((1, 2), (3, 4))


def grid(
    folder: Path, generators: tuple[int, ...], lines: tuple[tuple[int, int], ...], sign: float = 1.0
) -> list[str]:
    """Write four buses of 50, 40, 30 and 20 MW in two zones; return the words that name them."""
    loads = dict(zip(range(1, 5), (50, 40, 30, 20), strict=True))
    text = ["mpc.version = '2';", "mpc.baseMVA = 100;", "mpc.bus = ["]
    text += [
        f"{b} {3 if b == 1 else 1} {sign * mw} {mw / 5} 0 0 1 1 0 110 1 1.1 0.9;"
        for b, mw in loads.items()
    ]
    text += ["];", "mpc.gen = [", *(f"{b} 0 0 100 -100 1 100 1 200 0;" for b in generators), "];"]
    text += ["mpc.branch = [", *(LINE.format(*ends) for ends in lines), "];"]
    if generators:
        text += ["mpc.gencost = [", *("2 0 0 3 0.01 20 0;" for _ in generators), "];"]
    (folder / "grid.m").write_text("\n".join(text) + "\n")
    (folder / "zones.csv").write_text(ZONES)
    return [str(folder / "grid.m"), "--zoning", str(folder / "zones.csv")]


def outcome(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, dict[str, Any], str]:
    assert main(["run", *words, "--seed", "1", "--no-reference", "--json"]) == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    return document["final"]["physical"], {z["zone"]: z for z in document["zones"]}, shown.err


@pytest.mark.parametrize(
    ("generators", "lines", "shed", "deenergized_mw"),
    [
        ((1, 3), ISLANDS, 0.0, 0.0),  # an island per zone
        ((1,), ISLANDS, 50.0, 50.0),  # one of them has no generator
        ((1,), JOINED, 0.0, 0.0),  # a zone that imports everything
        ((), JOINED, 140.0, 140.0),  # nothing generates at all
    ],
)
def test_a_zone_without_generators_is_served_or_its_demand_is_shed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    generators: tuple[int, ...],
    lines: tuple[tuple[int, int], ...],
    shed: float,
    deenergized_mw: float,
) -> None:
    physical, _, warned = outcome(capsys, *grid(tmp_path, generators, lines))
    assert physical["shed_mw"] == pytest.approx(shed, abs=1e-3)
    assert physical["deenergized_mw"] == pytest.approx(deenergized_mw, abs=1e-3)
    warnings = [line for line in warned.splitlines() if line.startswith("warning")]
    alone = "joins two zones: nothing is exchanged, so no release pays"
    assert [alone in line for line in warnings] == [True] * (lines == ISLANDS)


def test_negative_loads_everywhere_are_generation_without_a_taker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    physical, _, warned = outcome(capsys, *grid(tmp_path, (1,), JOINED, -1.0))
    assert physical["shed_mw"] == pytest.approx(0.0, abs=1e-3)
    assert physical["curtailed_mw"] == pytest.approx(140.0, abs=0.1)
    assert "pd_mw adds up to -140 MW, less than 0. Is the sign right?" in warned


def demand_file(folder: Path, factor: float) -> Path:
    path = folder / "kilowatts.csv"
    path.write_text("bus,pd_mw\n" + "".join(f"{b},{factor * b}\n" for b in range(2, 15)))
    return path


@pytest.mark.parametrize(
    "words", ["run case14 --dry-run", "relax case14", "publish case14 --seed 1 --out {tmp}/out.m"]
)
def test_kilowatts_in_a_megawatt_column_are_questioned_and_not_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    path = demand_file(tmp_path, 1000.0)
    assert main([*words.format(tmp=tmp_path).split(), "--demand", str(path)]) == 0
    warned = capsys.readouterr().err
    assert (
        f"warning: --demand {path}: active demand pd_mw adds up to 104000 MW, 135 times" in warned
    )
    assert warned.count("Is it in MW, not in kW?") == 1


@pytest.mark.parametrize(("command", "warns"), [("run", True), ("relax", False)])
def test_commands_with_noise_warn_that_dispatchable_loads_are_not_protected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, warns: bool
) -> None:
    path, *zoning = grid(tmp_path, (1, 3), JOINED)
    words = [command, path, *([*zoning, "--dry-run"] if command == "run" else [])]
    assert main(words) == 0
    assert "not protected" not in capsys.readouterr().err
    text, load = Path(path).read_text(), "3 0 0 9 -9 1 100 1 0 -20;"  # Pmax 0, Pmin -20 MW
    Path(path).write_text(text.replace("3 0 0 100 -100 1 100 1 200 0;", load))
    assert main(words) == 0
    assert ("not protected" in " ".join(capsys.readouterr().err.split())) is warns


STORAGE = "name,bus,p_mw,energy_mwh,soc_percent\nbattery,1,20000,20000,50\n"


@pytest.mark.parametrize(
    "budgets",
    [
        "1e-5;total:5",
        "total:1,1e-5;total:5",
        "foo:5",
        "total:x",
        "total:1,1e-5",
        "1,per-release:2,3",
    ],
)
def test_the_form_of_budgets_that_a_refusal_names_is_accepted(
    capsys: pytest.CaptureFixture[str], budgets: str
) -> None:
    words = ["compare", "case14", "--mechanism", "knorm", "--seeds", "1", "--dry-run", "--budgets"]
    assert main([*words, budgets]) == 2
    refusal = capsys.readouterr().err
    assert budgets.rpartition(",")[2] in refusal, "the value as typed"
    assert "[,D]" not in refusal
    assert main([*words, refusal.split("'")[-2]]) == 0


@pytest.mark.usefixtures("no_replans")
@pytest.mark.parametrize(
    ("words", "source"),
    [
        ("cases {grid}", "case {grid}: active demand pd_mw"),
        ("zones {grid} --zones 2", "case {grid}: active demand pd_mw"),
        ("compare {grid} --zonings 2 --dry-run", "case {grid}: active demand pd_mw"),
        ("consortium {grid} --zones 2 --out {tmp}/out", "case {grid}: active demand pd_mw"),
        ("security {grid} --zones 2 --seed 1", "case {grid}: active demand pd_mw"),
        (
            "learn forecast {usual} --zones 2 --history {tmp}/history.csv --seed 1",
            "--history {tmp}/history.csv, step 2026-01-05T01:00: active demand pd_mw",
        ),
        (
            "run {usual} --zones 2 --public-demand {tmp}/demand.csv --dry-run",
            "public demand {tmp}/demand.csv: active demand pd_mw",
        ),
        (
            "run {usual} --zones 2 --series {tmp}/day.csv --storage {tmp}/storage.csv --dry-run",
            "--storage {tmp}/storage.csv: p_mw",
        ),
    ],
)
def test_every_command_that_reads_demand_or_storage_asks_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, source: str
) -> None:
    path, usual = tmp_path / "kilowatts.m", grid(tmp_path, (1, 3), JOINED)[0]
    path.write_text(Path(usual).read_text().replace(" 100 -100 1 100 1 200 0;", " 1 -1 1 1 1 2 0;"))
    (tmp_path / "demand.csv").write_text(
        "bus,pd_mw,qd_mvar\n" + "".join(f"{bus},20000,0\n" for bus in range(1, 5))
    )
    (tmp_path / "day.csv").write_text("step,load_scale\n1,1\n2,1\n")
    (tmp_path / "storage.csv").write_text(STORAGE)
    (tmp_path / "history.csv").write_text(
        "step,bus,pd_mw\n"
        + "".join(f"2026-01-05T{h:02}:00,1,{20000 * (h == 1) + 50}\n" for h in range(6))
    )
    named = {"tmp": tmp_path, "grid": path, "usual": usual}
    assert main([word.format(**named) for word in words.split()]) == 0
    warned = capsys.readouterr().err
    assert f"warning: {source.format(**named)} adds up to" in warned
    assert warned.count("Is it in MW, not in kW?") == 1


def test_plausible_demand_is_not_questioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cases", *grid(tmp_path, (1, 3), JOINED)[:1]]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", [["run", "--public", "--rounds", "2"], ["relax"], ["acopf"]])
def test_a_load_scale_of_zero_is_questioned_in_every_view(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main([words[0], "case14", "--load-scale", "0", *words[1:]]) == 0
    assert "warning: --load-scale 0 makes demand 0 MW at every bus. Is that intended?" in (
        capsys.readouterr().err
    )


def test_a_public_run_says_nothing_of_demand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both views of a public run are equal for demand files that differ in their warnings."""
    seen, path = [], tmp_path / "demand.csv"
    case = grid(tmp_path, (1, 3), JOINED)  # 400 MW of capacity
    words = ["run", *case, "--demand", str(path), "--rounds", "1", "--seed", "1"]
    for each in (20.0, 500.0):
        path.write_text("bus,pd_mw\n" + "".join(f"{bus},{each}\n" for bus in range(1, 5)))
        assert main([*words, "--public", "--json"]) == 0
        seen.append(capsys.readouterr())
    assert seen[0].err == seen[1].err
    assert "kW" not in seen[1].out + seen[1].err
    assert main([*words, "--dry-run"]) == 0
    assert "Is it in MW, not in kW?" in capsys.readouterr().err, "its owner is asked"
    assert main([*words, "--dry-run", "--quiet"]) == 0
    assert capsys.readouterr().err == "", "--quiet asks nothing"


def test_a_series_is_questioned_by_its_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "day.csv"
    path.write_text("step,load_scale\nnight,0.5\nnoon,13\n")
    words = ["run", "case14", "--series", str(path), "--rounds", "1", "--seed", "1"]
    assert main([*words, "--dry-run"]) == 0
    warned = capsys.readouterr().err
    assert f"--series {path}, step noon: active demand pd_mw adds up to 3367 MW" in warned
    assert "Is that load scale intended?" in warned
    assert "night" not in warned
    assert "kW" not in warned


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--load-scale", "-1"], "--load-scale -1"),
        (["--demand", "{tmp}/other.csv"], "bus = '99': must be"),
        (["--zoning", "{tmp}/partial.csv"], "misses 12 of the 14 buses"),
        (["--outage", "branch:99"], "--outage branch:99"),
        (["--public-demand", "{tmp}/other.csv"], "bus = '99': must be"),
    ],
)
def test_nothing_is_charged_before_an_error_of_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    (tmp_path / "other.csv").write_text("bus,pd_mw,qd_mvar\n99,1,1\n")
    (tmp_path / "partial.csv").write_text("bus,zone\n1,a\n2,b\n")
    ledger = str(tmp_path / "case14.ledger")
    assert main(["ledger", "grant", ledger, "--case", "case14", "--total", "9"]) == 0
    given = [word.replace("{tmp}", str(tmp_path)) for word in words]
    noise = ["--noise", "secure", "--ledger", ledger]
    assert main(["run", "case14", *given, *noise]) == 2
    assert message in capsys.readouterr().err
    assert main(["ledger", "show", ledger, "--json"]) == 0
    owners = json.loads(capsys.readouterr().out)["owners"]
    assert [owner["left"] for owner in owners] == [1.0, 1.0, 1.0]
    assert [owner["releases"] for owner in owners] == [0, 0, 0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "case14", "--budgets", "1,0"], "--budgets 0: must be a positive number"),
        (["compare", "case14", "--method", "a: rounds=x"], "method 'a': rounds = 'x': must be"),
        (["run", "case14", "--zones=--"], "--zones=--: must have a value"),
    ],
)
def test_an_error_names_what_was_typed(capsys, tmp_path, words, message):
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
