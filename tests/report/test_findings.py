"""A report shows the audit and the attack of its folder, and no others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.core.files import sealed
from gridpriv.core.store import Study
from gridpriv.core.text import amount
from gridpriv.grid.zoning import map_digest
from gridpriv.report.export import make_report
from gridpriv.report.source import measured, read_source

BUS = ["--release", "bus", "--mechanism", "laplace"]
FEW = ["case14", "--rounds", "2", "--quiet", "--out"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run")
    assert main(["run", *BUS, *FEW, str(place)]) == 0
    attack = ["--mechanism", "none", "--update", "linearized", "--bus", "12"]
    assert main(["attack", *FEW, str(place / "attack"), *attack]) == 0
    return place


def test_the_attack_is_a_section_with_the_figures_of_its_file(folder: Path) -> None:
    report = make_report(read_source(folder))
    (section,) = [s for s in report.sections if s.title == "Audit and attack"]
    (table,) = section.tables
    stored = json.loads((folder / "attack" / "attack.json").read_text())["summary"]
    reads = [c.name for c in table.columns].index("mae_mw")
    assert [row[reads] for row in table.rows] == [row["mae_mw"] for row in stored]


def test_a_plan_is_shown_with_the_measured_gap(folder: Path) -> None:
    """The way of the run, another budget's, and one that is not the run's."""
    words = [
        "plan",
        "case14",
        "--scenarios",
        "1",
        "--rounds",
        "2",
        "--mechanisms",
        "laplace",
        "--beta",
        "1MW",
        "--quiet",
        "--out",
        str(folder / "plan"),
    ]
    over = json.loads((folder / "run.json").read_text())["final"]["cost_of_privacy"]
    for total, releases in (("5", "nothing,bus"), ("4", "bus"), ("5", "total")):
        assert main([*words, "--total", total, "--releases", releases]) == 0
        (section,) = [s for s in make_report(read_source(folder)).sections if s.title == "Plan"]
        note = str(section.notes[-1])
        assert (
            f"This run is {amount(over['optimality_gap'], '$/h')} $/h over the AC optimum" in note
        )
        ways = json.loads((folder / "plan" / "plan.json").read_text())["methods"]
        assert len(section.tables[0].rows) == len(ways)
        if (total, releases) != ("5", "nothing,bus"):
            assert section.notes[-1].code == "plan-measured-other"
            continue
        expected = amount(ways[1]["over_optimum"]["median"], "$/h")
        assert note.endswith(f"{expected} to {expected} over it (median {expected}).")
    shutil.rmtree(folder / "plan")


@pytest.fixture(scope="module")
def planned(folder: Path) -> Study:
    """Return a run and a plan that includes its method, as a report reads them."""
    plan = ["plan", "case14", "--scenarios", "1", "--rounds", "2", "--mechanisms", "laplace"]
    plan += ["--beta", "1MW", "--total", "5", "--releases", "bus", "--quiet"]
    assert main([*plan, "--out", str(folder / "plan")]) == 0
    study = read_source(folder)
    shutil.rmtree(folder / "plan")
    return study


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"seed": 8},
        {"objective": "imbalance"},
        {"update": "linearized"},
        {"consensus": "all"},
        {"penalty": 100.0},
        {"tolerance": 1e-9},
    ],
)
def test_a_plan_is_compared_with_a_run_of_its_settings_only(
    other: dict[str, Any], planned: Study
) -> None:
    document, grid = planned.manifest["document"], planned.manifest["cases"][0]
    assert other.keys() <= document["settings"].keys()
    run = document | {"settings": document["settings"] | other}
    (note,) = measured(planned.tables["plan"], run, map_digest(grid["map"]))
    assert note.code == ("plan-measured-other" if other.keys() - {"seed"} else "plan-measured")
    (note,) = measured(planned.tables["plan"], document, "of another zone map")
    assert note.code == "plan-measured-other"


def test_the_default_methods_hold_that_of_a_run_of_default_release_and_rounds(
    tmp_path: Path,
) -> None:
    grid = ["case9", "--zones", "3"]
    run = ["run", *grid, "--mechanism", "knorm", "--seed", "1", "--quiet"]
    assert main([*run, "--out", str(tmp_path / "run")]) == 0
    plan = ["plan", *grid, "--scenarios", "1", "--beta", "1MW", "--total", "5", "--quiet"]
    assert main([*plan, "--out", str(tmp_path / "run" / "plan")]) == 0
    (note,) = [
        str(s.notes[-1])
        for s in make_report(read_source(tmp_path / "run")).sections
        if s.title == "Plan"
    ]
    ways = json.loads((tmp_path / "run" / "plan" / "plan.json").read_text())["methods"]
    (own,) = [way for way in ways if (way["release"], way["rounds"]) == ("auto", "20")]
    assert note.endswith(f"(median {amount(own['over_optimum']['median'], '$/h')}).")


def test_public_reports_leave_it_out(folder: Path) -> None:
    report = make_report(read_source(folder, public=True))
    assert "Audit and attack" not in [section.title for section in report.sections]


def test_a_strange_file_is_named(folder: Path) -> None:
    (folder / "audit.json").write_text(sealed({}))
    with pytest.raises(InputError, match=r"audit\.json is no result of 'gridpriv audit'"):
        read_source(folder)
    (folder / "audit.json").unlink()


def test_a_list_for_a_figure_is_refused(folder: Path) -> None:
    path = folder / "attack" / "attack.json"
    whole = path.read_text()
    document = json.loads(whole)
    document["summary"][0]["mae_mw"] = [1.0]
    del document["checksum"]
    path.write_text(sealed(document))
    with pytest.raises(InputError, match=r"attack\.json is no result of 'gridpriv attack'"):
        read_source(folder)
    path.write_text(whole)


def test_a_figure_that_was_changed_is_refused(folder: Path) -> None:
    path = folder / "attack" / "attack.json"
    whole = path.read_text()
    document = json.loads(whole)
    document["summary"][0]["mae_mw"] *= 2.0
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"attack\.json is damaged or was edited"):
        read_source(folder)
    path.write_text(whole)
