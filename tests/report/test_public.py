"""Output of --public: a search for the seed, demand, and values that reveal them."""

from __future__ import annotations

import json
import os
import re
import stat
import zipfile
from pathlib import Path

import pytest

from gridpriv import load_case
from gridpriv.cli.main import main
from gridpriv.report.export import study_messages
from gridpriv.report.source import read_source, summary
from gridpriv.study import Method, compare, make_plan

SEEDS = (918273645, 564738291)
FORMATS = ["html", "xlsx", "csv", "tex", "pdf"]


@pytest.fixture(scope="module")
def private_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cost")
    plan = make_plan(
        ["case14"],
        budgets=[5],
        seeds=SEEDS,
        settings={"rounds": 3, "objective": "cost", "planning": "soc"},
        reference=False,
        methods=[
            Method("noise-free", (("mechanism", "none"),)),
            Method("demand, one-shot", (("perturbation", "demand"), ("noise_schedule", "once"))),
        ],
    )
    compare(plan, out=folder, jobs=1)
    return folder


@pytest.fixture(scope="module")
def published(private_study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("typst")
    folder = tmp_path_factory.mktemp("published")
    words = ["report", str(private_study), "--public", "--out", str(folder)]
    assert main([*words, "--format", ",".join(FORMATS)]) == 0
    return folder


def content(folder: Path) -> dict[str, str]:
    """Return the text of every file, including the content of workbooks."""
    entries = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.suffix == ".xlsx":
            with zipfile.ZipFile(path) as book:
                for name in book.namelist():
                    entries[f"{path.name}/{name}"] = book.read(name).decode("utf-8", "replace")
        else:
            entries[str(path.relative_to(folder))] = path.read_bytes().decode("utf-8", "replace")
    return entries


def test_no_public_report_states_a_seed_or_a_digest(private_study: Path, published: Path) -> None:
    manifest = json.loads((private_study / "manifest.json").read_text())
    fingerprint = load_case("case14").fingerprint
    assert manifest["cases"][0]["fingerprint"] == fingerprint
    import pandas as pd

    runs = pd.read_parquet(private_study / "runs.parquet")
    secrets = [str(seed) for seed in SEEDS] + [fingerprint[:8], *(run[:8] for run in runs["run"])]
    texts = content(published)
    assert {".html", ".csv", ".tex", ".pdf"} <= {Path(name).suffix for name in texts}
    for name, text in texts.items():
        assert not [secret for secret in secrets if secret in text], name


def test_a_report_is_its_owners_alone_and_a_public_one_everybodys(
    private_study: Path, published: Path, tmp_path: Path
) -> None:
    assert main(["report", str(private_study), "--out", str(tmp_path), "--format", "csv"]) == 0
    os.umask(umask := os.umask(0))
    for folder, mode in ((tmp_path, 0o600), (published, 0o666 & ~umask)):
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert files and {stat.S_IMODE(path.stat().st_mode) for path in files} == {mode}


def test_a_public_workbook_holds_no_cost_demand_or_time(
    private_study: Path, published: Path
) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    import pandas as pd

    book = openpyxl.load_workbook(published / "report-public.xlsx")
    cells = [c for sheet in book for row in sheet.values for c in row if isinstance(c, float)]
    private = {
        "rounds": ["cost", "objective", "plan_shortage_mw", "noise_magnitude"],
        "zones": ["cost", "load_mw", "plan_shortage_mw"],
        "runs": ["cost"],
        "buses": ["pd_mw"],
        "timing": ["solve", "total"],
    }
    for name, columns in private.items():
        table = pd.read_parquet(private_study / f"{name}.parquet")
        for column in columns:
            private_values = {float(f"{v:.10g}") for v in table[column].dropna() if abs(v) > 1e-3}
            assert private_values and not private_values & {float(f"{c:.10g}") for c in cells}, (
                column
            )


def test_rows_without_noise_publish_their_settings_only(
    private_study: Path, published: Path
) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    import pandas as pd

    runs = pd.read_parquet(private_study / "runs.parquet")
    rounds = pd.read_parquet(private_study / "rounds.parquet")
    bare = runs.loc[runs["mechanism"] == "none", "run"].iloc[0]
    residuals = rounds.loc[rounds["run"] == bare, "consensus_residual"]
    book = openpyxl.load_workbook(published / "report-public.xlsx")
    cells = [c for sheet in book for row in sheet.values for c in row if isinstance(c, float)]
    assert not [c for c in cells for r in residuals if abs(c - r) < 1e-12]
    rows = list(book["runs"].values)
    shown = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    (quiet,) = [row for row in shown if row["Mechanism"] == "none"]
    assert quiet["Status"] == "withheld" and quiet["Rounds finished"] is None
    published_residuals = rounds.loc[rounds["run"] != bare, "consensus_residual"]
    assert all(any(abs(c - r) < 1e-12 for c in cells) for r in published_residuals)


def test_public_simulations_say_so_wherever_a_certificate_is_shown(published: Path) -> None:
    texts = content(published)
    mark = "simulated noise"
    for name, text in texts.items():
        if "psilon" in text and not name.startswith(("report-public.xlsx", "report-public.pdf")):
            assert mark in text, name
    workbook = "".join(v for k, v in texts.items() if k.startswith("report-public.xlsx"))
    assert mark in workbook


def run(*words: str) -> int:
    return main(["run", "case14", "--rounds", "2", "--planning", "soc", *words])


def test_a_public_run_of_simulated_noise_says_so_and_hides_the_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--seed", str(SEEDS[0]), "--public", "--out", str(tmp_path / "new")) == 0
    printed = capsys.readouterr().out
    assert "simulated noise, no privacy" in printed and str(SEEDS[0]) not in printed
    for name, text in content(tmp_path / "new").items():
        assert str(SEEDS[0]) not in text, name
    document = json.loads((tmp_path / "new" / "run.json").read_text())
    assert document["privacy"]["caveat"].startswith("simulated noise, no privacy")


def test_a_public_run_goes_into_a_fresh_folder_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "old"
    assert run("--seed", "1", "--out", str(folder), "--quiet") == 0
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert folder / "buses.csv" in before
    assert run("--seed", "1", "--public", "--out", str(folder)) == 2
    error = capsys.readouterr().err
    assert "one of the two is published" in error and "name another folder" in error
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_public_report_goes_into_a_fresh_folder_only(
    private_study: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(private_study), "--public", "--out", str(published)]) == 2
    assert "report-public.html" in capsys.readouterr().err
    assert main(["report", str(private_study), "--public"]) == 0
    assert (private_study / "public" / "report-public.html").is_file()
    assert main(["report", str(private_study), "--public"]) == 2
    assert "new or empty folder" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--out", "new"], []])
def test_a_public_run_without_noise_is_refused(
    words: list[str], tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("--mechanism", "none", "--public", *words) == 2
    captured = capsys.readouterr()
    assert "but --mechanism is none" in captured.err and not captured.out
    assert not list(tmp_path.iterdir())


def test_every_sentence_of_a_public_study_ends_once(study_folder: Path) -> None:
    study = read_source(study_folder, public=True)
    messages = study_messages(study, summary(study))
    assert {"private-left-out", "composition", "protected", "caveat"} <= {m.code for m in messages}
    assert not any(".." in str(m) or "$/h" in str(m) for m in messages)


def test_of_a_public_series_without_noise_no_step_is_counted(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("step,load_scale\nnight,0.6\nnoon,1\n")
    series = ["--series", str(tmp_path / "day.csv"), "--mechanism", "none", "--rounds", "1"]
    out = tmp_path / "out"
    assert main(["run", "case14", *series, "--quiet", "--out", str(out)]) == 0
    own, public = (read_source(out, public=public) for public in (False, True))
    assert "steps-run" in {m.code for m in study_messages(own, summary(own))}
    codes = [m.code for m in study_messages(public, summary(public))]
    assert codes == ["private-left-out", "withheld"]


def test_secure_noise_says_that_there_is_no_seed(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("opendp")
    assert run("--noise", "secure") == 0
    printed = capsys.readouterr().out
    assert "secure noise: no seed" in printed and not re.search(r"seed \d", printed)
