from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gridpriv
from gridpriv.cli.main import main
from gridpriv.core.errors import GridprivWarning, InputError
from gridpriv.core.store import read_study, reopen_store
from gridpriv.core.text import number_text
from gridpriv.report import figures
from gridpriv.report.contents import contents
from gridpriv.report.export import PDF_LINE, export
from gridpriv.report.panel import cards, share_of
from gridpriv.report.source import half_width, read_source, summary
from gridpriv.report.tables import Table, escaped, in_parts, shown
from gridpriv.study import Study

QUICK_RUN = ["run", "case14", "--rounds", "2", "--seed", "1", "--planning", "soc"]
QUICK_RUN += ["--no-reference", "--quiet"]


def test_the_interval_is_students() -> None:
    # mean 2, s = 1, n = 3; the 97.5 % quantile of t with 2 degrees of freedom is 4.302653
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.302653 / np.sqrt(3.0), rel=1e-6)
    assert np.isnan(half_width([1.0]))


def test_the_summary_is_the_mean_over_seeds(study: Study) -> None:
    table = summary(study)
    row = table[(table.method == "demand, one-shot") & (table.budget == "total:5,1e-05")].iloc[0]
    runs = study.runs[(study.runs.method == "demand, one-shot") & (study.runs.budget == row.budget)]
    assert row.seeds == 3
    assert row.imbalance_mw == pytest.approx(sum(runs.imbalance_mw) / 3, rel=1e-12)
    assert row.imbalance_mw_low <= row.imbalance_mw <= row.imbalance_mw_high
    assert row.total_epsilon == pytest.approx(5.0, abs=1e-3)


def test_the_card_names_the_method_with_the_lowest_mean(study: Study) -> None:
    table = summary(study)
    (card,) = cards(study, table)
    facts = {fact.label: fact.value for fact in card.facts}
    at = table[table.budget == "total:5,1e-05"].sort_values("cost_of_privacy")
    assert facts["Lowest mean cost of privacy"] == at.iloc[0].series
    assert facts["Cost of privacy"].startswith(
        share_of(at.iloc[0].cost_of_privacy, at.iloc[0].baseline_cost).removesuffix(")")
    )
    assert facts["Certified total"] == "epsilon 5"
    assert card.title == "case14 (259.0 MW of demand), budget: total epsilon 5"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.99997, "1.00"), (12.345, "12.3"), (1234.5, "1234"), (3.2e-7, "3.20e-07")],
)
def test_figures_keep_three_digits_that_mean_something(value: float, text: str) -> None:
    assert number_text(value) == text


def test_the_page_asks_nothing_of_the_network(study_folder: Path) -> None:
    page = (study_folder / "report.html").read_text()
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(?:link|script|img|iframe)[^>]+(?:src|href)=\"(?!data:)", page)
    assert "@import" not in page and "fetch(" not in page


def test_the_page_is_well_formed(study_folder: Path) -> None:
    void = {"meta", "link", "br", "hr", "img", "input"}

    class Checker(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag, *_) -> None:
            if tag not in void:
                self.open.append(tag)

        def handle_startendtag(self, *_) -> None:
            pass

        def handle_endtag(self, tag) -> None:
            assert self.open.pop() == tag

    checker, page = Checker(), (study_folder / "report.html").read_text()
    checker.feed(page)
    assert checker.open == []
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert not [name for name in ids if re.search(r"\s", name)], "HTML allows no space in an id"


def test_the_workbook_has_numbers_as_numbers_and_units_in_headers(
    study_folder: Path, study: Study
) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.load_workbook(study_folder / "report.xlsx")
    assert {"verdict", "summary", "privacy", "runs", "rounds", "timing"} <= set(book.sheetnames)
    rows = list(book["runs"].values)
    header = list(rows[0])
    assert (
        "Shortage of the SOC relaxation (MW)" in header and "Squared imbalance (p.u.^2)" in header
    )
    column = header.index("Imbalance of the SOC relaxation (MW)")
    assert [row[column] for row in rows[1:]] == pytest.approx(
        list(study.runs.imbalance_mw), abs=1e-6
    )
    assert all(isinstance(row[column], int | float) for row in rows[1:])
    timing = next(iter(book["timing"].values))
    assert "Solving (s)" in timing
    texts = [c for sheet in book for row in sheet.values for c in row if isinstance(c, str)]
    assert not [t for t in texts if t.startswith("=")]


def test_csv_holds_the_numbers_in_full(study_folder: Path, study: Study) -> None:
    with (study_folder / "report-csv" / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    table = summary(study)
    assert [float(r["Cost ($/h)"]) for r in rows] == list(table.cost)


def test_only_formats_that_show_figures_import_what_draws_them(copied: Path) -> None:
    code = (
        "import sys; from gridpriv.report.export import export\n"
        "export(sys.argv[1], sys.argv[2:]); print('matplotlib' in sys.modules)"
    )
    words = [sys.executable, "-c", code, str(copied), "csv", "tex", "xlsx"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert printed == "False\n"
    assert figures.Figure.__module__.startswith("matplotlib"), "the module that draws imports it"


def test_every_figure_is_written_as_a_file(copied: Path) -> None:
    files = export(copied, [], figures="svg")
    names = {file.name for file in files}
    assert all(file.parent == copied / "report-figures" for file in files)
    assert "case14-zones.svg" in names
    assert {
        f"consensus-residual-by-round-from-messages-between-zones-case14-budget-total-epsilon-{e}.svg"
        for e in ("0-5", "5")
    } <= names
    chart = next(file for file in files if "consensus-residual" in file.name)
    assert "demand, one-shot" in chart.read_text(encoding="utf-8"), "its legend"
    with pytest.raises(InputError, match="one of png, svg, pdf"):
        export(copied, [], figures="gif")


def test_latex_escapes_what_it_must(study_folder: Path) -> None:
    assert escaped(r"50 % of a_b & {c} \ #1") == r"50 \% of a\_b \& \{c\} \textbackslash{} \#1"
    text = (study_folder / "report-tex" / "summary.tex").read_text()
    assert r"bold</b> \& 100 \% name" in text
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")]
    columns = re.search(r"tabular}{([lr]+)}", text).group(1)
    for line in body.splitlines()[1:]:
        assert len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1
        assert line.endswith(r"\\")


def measured(texts: list[str], place: Path, *, bold: bool) -> dict[str, float]:
    """Return how wide texts are in a table, in points, as the typesetter has it."""
    import typst

    weight, source = "bold" if bold else "regular", place / "measured.typ"
    listed = ", ".join(json.dumps(text, ensure_ascii=False) for text in texts)
    source.write_text(
        "#context [#metadata((" + listed + ",).map(t => measure(text(size: 6.8pt, "
        f'weight: "{weight}", t)).width.pt())) <widths>]',
        encoding="utf-8",
    )
    (widths,) = json.loads(typst.query(str(source), "<widths>", field="value"))
    return dict(zip(texts, widths, strict=True))


def test_no_table_of_the_pdf_is_wider_than_its_page(study: Study, tmp_path: Path) -> None:
    pytest.importorskip("typst")
    page = 210 / 25.4 * 72.0 - 2 * 48.2  # A4 without its margins of 1.7 cm
    tables = contents(study, summary(study))
    assert max(len(table.columns) for table in tables) > 9
    split = [in_parts(table, PDF_LINE) for table in tables]

    def cells_of(part: Table, k: int) -> list[str]:
        cells = [shown(row[k]) for row in part.rows]
        wraps = not part.numbers[k] and max(map(len, cells)) > 30
        return [cell[:34] for cell in cells] if wraps else cells

    columns = [(part, k) for parts in split for part in parts for k in range(len(part.columns))]
    words = {word for part, k in columns for word in part.columns[k].header.split()}
    heads = measured(sorted(words), tmp_path, bold=True)
    texts = {cell for part, k in columns for cell in cells_of(part, k)}
    widths = measured(sorted(texts), tmp_path, bold=False)
    for table, parts in zip(tables, split, strict=True):
        for part in parts:
            wide = 0.0
            for k, column in enumerate(part.columns):
                head = [heads[word] for word in column.header.split()]
                wide += max(*head, *(widths[cell] for cell in cells_of(part, k))) + 6.0
            assert wide < page, (part.caption, [c.header for c in part.columns])
        assert [c for part in parts for c in part.columns[table.keys :]] == list(
            table.columns[table.keys :]
        )
        for part in parts:
            named = [row[: table.keys] for row in table.rows]
            assert [row[: table.keys] for row in part.rows] == named
            assert not part.columns[table.keys].name.endswith(("_low", "_high"))


@pytest.mark.slow
def test_the_pdf_is_typeset_with_the_answer_on_its_first_page(study_folder: Path) -> None:
    pytest.importorskip("typst")
    (path,) = export(study_folder, ["pdf"])
    assert path.read_bytes().startswith(b"%PDF-")
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext (poppler-utils) is not installed")
    first = subprocess.run(
        ["pdftotext", "-l", "1", "-layout", str(path), "-"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    words = " ".join(first.split())
    runs = pd.read_parquet(study_folder / "runs.parquet")
    costs = runs[runs["budget"].str.startswith("total:5,")].groupby("method")["cost"].mean()
    assert f"total epsilon 5 {costs.idxmin()} 3 of 3 runs" in words
    assert "Lowest mean cost of privacy" in words
    assert "bold</b> & 100 % name" in words


def test_what_draws_nothing_and_what_draws_no_noise_are_distinguished(tmp_path: Path) -> None:
    words = [
        "compare",
        "case14",
        "--mechanism",
        "knorm",
        "--rounds",
        "1",
        "--budgets",
        "1",
        "--seeds",
        "1",
        "--jobs",
        "1",
        "--format",
        "none",
        "--quiet",
    ]
    assert main([*words, "--out", str(tmp_path)]) == 0
    for flags, place in ([], "report-csv"), (["--public"], "public/report-public-csv"):
        assert main(["report", str(tmp_path), "--format", "csv", "--quiet", *flags]) == 0
        table = pd.read_csv(tmp_path / place / "summary.csv", keep_default_na=False)
        shown = dict(zip(table["Method"], table["Budget"], strict=True))
        assert (shown["noise-free"], shown["prior-only"]) == ("noise-free", "epsilon 0")


def test_a_single_runs_folder_has_a_report(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert main([*QUICK_RUN, "--out", str(folder)]) == 0
    assert main(["report", str(folder), "--format", "html,csv"]) == 0
    page = (folder / "report.html").read_text()
    final = json.loads((folder / "run.json").read_text())["final"]
    assert number_text(final["physical"]["shed_mw"]) in page
    assert "--seed</span> 1" in page and 'class="map"' in page


def test_a_run_without_a_branch_is_drawn_without_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert main([*QUICK_RUN, "--outage", "branch:1", "--out", str(folder)]) == 0
    assert main(["report", str(folder), "--quiet"]) == 0
    branches = pd.read_parquet(folder / "network_branches.parquet")
    assert len(branches) == len(pd.read_parquet(folder / "res_line.parquet")) == 19


def test_a_public_runs_folder_has_a_report_without_private_figures(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert main([*QUICK_RUN, "--out", str(folder), "--public"]) == 0
    assert "load_mw" not in pd.read_csv(folder / "zones.csv")
    assert main(["report", str(folder)]) == 0
    assert "left out" in (folder / "report.html").read_text()


def put_runs(folder: Path, runs: pd.DataFrame) -> None:
    with reopen_store(folder) as store:
        store.set_table("runs", runs.to_dict("records"))


def test_a_study_without_any_finished_run_still_has_a_report(copied: Path) -> None:
    put_runs(copied, read_study(copied).runs.assign(status="failed", reason="no luck"))
    export(copied, ["html"])
    page = (copied / "report.html").read_text()
    assert "No run finished" in page and "no luck" in page


def test_missing_runs_are_stated_by_the_command_and_by_the_verdict(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = read_study(copied).runs
    put_runs(copied, runs.iloc[:-2])
    with pytest.warns(GridprivWarning, match="2 planned runs are missing"):
        export(copied, ["html"])
    page = re.sub(r"<[^>]+>|\s+", " ", (copied / "report.html").read_text())
    stated = f"{len(runs) - 2} of {len(runs)}"
    verdict = re.sub(" +", " ", page).split("Cost of privacy")[0]
    assert f"Runs {stated} 2 planned runs missing: the study was interrupted" in verdict
    assert main(["report", str(copied)]) == 0
    assert "2 planned runs are missing" in capsys.readouterr().err


def test_a_folder_without_results_and_a_bad_format_are_refused(
    tmp_path: Path, study_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"holds no results: there is no .*manifest\.json"):
        read_source(tmp_path)
    assert main(["report", str(study_folder), "--format", "docx"]) == 2
    assert "--format docx: must be" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "document", "message"),
    [
        (
            "run.json",
            '{"settings": {}}',
            "give the folder of run, compare, reproduce, learn run or learn compare",
        ),
        ("manifest.json", '{"format": 2}', "was written in format 2"),
        ("manifest.json", "[1, 2]", "not one JSON object"),
        ("manifest.json", "{", "is no JSON"),
    ],
)
def test_a_folder_that_cannot_be_read_is_refused_in_one_line(
    tmp_path: Path, name: str, document: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(document)
    assert main(["report", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and str(tmp_path) in error


@pytest.mark.usefixtures("no_replans")
def test_a_series_has_a_report_of_its_steps(tmp_path: Path) -> None:
    (tmp_path / "loads.csv").write_text("step,load_scale\nnight,0.6\nnoon,4\n")
    folder = tmp_path / "out"
    assert main([*QUICK_RUN, "--series", str(tmp_path / "loads.csv"), "--out", str(folder)]) == 0
    assert main(["report", str(folder), "--format", "html,csv"]) == 0
    document = json.loads((folder / "horizon.json").read_text())
    unserved = [step["redispatch_shed_mw"] for step in document["steps"]]
    assert max(unserved) > 1.0 > min(unserved)
    page = (folder / "report.html").read_text()
    assert f" {max(unserved):.1f} MW at step noon" in page
    assert "--seed</span> 1" in page and "night" in page
    with (folder / "report-csv" / "steps.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["Load shedding (MW)"]) for row in rows] == unserved
    manifest = json.loads((folder / "manifest.json").read_text())
    (total,) = manifest["totals"]
    assert total["epsilon"] == pytest.approx(document["privacy"]["total"]["epsilon"], rel=1e-3)
    assert f"epsilon {total['epsilon']:.3g}" in page


def test_the_compare_command_ends_with_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = [
        "compare",
        "case14",
        "--perturbation",
        "demand",
        "--noise-schedule",
        "once",
        "--budgets",
        "5",
        "--rounds",
        "2",
        "--seeds",
        "2",
        "--jobs",
        "1",
        "--out",
        str(out),
    ]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "cost of privacy" in " ".join(printed.split()) and "report.html" in printed
    assert (out / "report.html").stat().st_size > 20_000
    assert main(words) == 2
    assert "--resume" in capsys.readouterr().err
    assert main([*words, "--resume", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["runs"] == 2 + 2 and document["failed"] == 0


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (
            [
                "--method",
                "good: noise_schedule=once",
                "--method",
                "bad: solver=pyomo:nosuchsolver",
                "--no-reference",
            ],
            0,
            "1 of 2 runs failed",
        ),
        (
            ["--method", "bad: solver=pyomo:nosuchsolver", "--no-reference"],
            3,
            "1 of 1 runs failed",
        ),
    ],
)
def test_the_compare_command_reports_methods_without_a_finished_run(
    flags: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "compare",
        "case14",
        "--budgets",
        "5",
        "--mechanism",
        "knorm",
        "--rounds",
        "2",
        "--seeds",
        "1",
        "--jobs",
        "1",
        "--out",
        str(tmp_path),
        *flags,
    ]
    assert main(words) == code
    assert message in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare"], "name at least one case"),
        (["compare", "case14", "--budgets", ","], "one value or more"),
        (["compare", "case14", "--seeds", "two"], "--seeds two: must be"),
        (["compare", "case14", "--mechanism", "gausian"], "did you mean 'gaussian'"),
        (["compare", "case14", "--study", "x.toml"], "--study reads a whole study"),
        (["compare", "case14", "--zonings", "spectrl:3"], "did you mean 'spectral'"),
        (["compare", "nocase"], "nocase"),
        (["compare", "case14", "--budgets", "total:1"], "In a list of budgets 'total:1;1e-5'"),
        (["compare", "case14", "--format", "odt"], "--format odt: must be"),
    ],
)
def test_wrong_use_of_compare_is_refused_in_words(
    words: list[str], message: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_the_budget_that_compare_suggests_is_accepted(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "case14", "--budgets", "total:1;1e-5,total:5;1e-5", "--dry-run"]) == 0


@pytest.mark.parametrize("public", [(), ("--public",)])
def test_a_file_for_the_folder_of_a_report_is_refused_in_words(
    public: tuple[str, ...], copied: Path, tmp_path: Path, capsys
) -> None:
    place = tmp_path / "place"
    place.write_bytes(b"")
    before = sorted(copied.iterdir())
    assert main(["report", str(copied), *public, "--out", str(place)]) == 2
    assert f"--out {place}: must be a folder, not a file" in capsys.readouterr().err
    assert sorted(copied.iterdir()) == before
    assert place.read_bytes() == b""


@pytest.mark.parametrize("option", ["out", "plot"])
def test_a_folder_for_the_file_of_zones_is_refused_in_words(
    option: str, tmp_path: Path, capsys
) -> None:
    place = tmp_path / "place.png"
    place.mkdir()
    assert main(["zones", "case14", f"--{option}", str(place)]) == 2
    assert f"{option} = '{place}': must be a file, not a folder" in capsys.readouterr().err


def test_python_api_gives_tables(study: Study) -> None:
    assert {"run", "round", "objective"} <= set(study.rounds.columns)
    assert gridpriv.load_case("case14").n_bus == 14
    assert len(study.done) == 1 + 2 * 2 * 3  # no noise; budgets x ways x seeds
