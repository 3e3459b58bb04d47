"""Hostile names run no code in a spreadsheet, LaTeX, Typst, HTML or a terminal.

The names attack each program that opens a report. A report with them must have the structure of one
with harmless names of the same number of words.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gridpriv import load_case, shipped_zoning
from gridpriv.cli.main import main
from gridpriv.report.export import export, make_report
from gridpriv.report.source import read_source
from gridpriv.study import Method, compare, make_plan

HOSTILE = (
    "=cmd|'/C calc'!A0",
    "+1+cmd|'/C calc'!A0",
    "-2+3+cmd|'/C calc'!A0",
    "@SUM(1+1)*cmd|'/C calc'!A0",
    '\t=HYPERLINK("http://x.example")',
    "\r=1+1",
    "  =1+1",
    "\uff1d1+1",
    "\u00a0=1+1",
    'a","=1+1',
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</script><script>alert(1)</script>",
    "]]><svg onload=alert(1)>",
    "&lt;b&gt; &amp;",
    "new\n\\input{/etc/passwd}",
    "end} \\immediate\\write18{id} \\begin{x",
    "$x_1^2$ % rest ~ # &",
    '"] #panic("typst")',
    '\\"#panic("typst")',
    '#read("/etc/passwd") ${sys.inputs}',
    "[red]markup[/red]",
    "[/never opened]",
    "[link=http://x.example]x[/link]",
    "\x1b]0;owned\x07\x1b[2J",
    "\u2028line\u2029paragraph",
    "\u202eesrever",
    "\x00nul\x0bvt",
    "%s %(x)s {0} {title} {caveat}",
)
FIRST = 10
"""Names that a spreadsheet may take for formulas."""


def zone_map(names: tuple[str, ...]) -> pd.DataFrame:
    """Return case14's shipped zone map under other names."""
    case = load_case("case14")
    zoning = shipped_zoning(case)
    return pd.DataFrame({"bus": case.bus_id, "zone": [names[z] for z in zoning.zone_of]})


def made(folder: Path, names: tuple[str, ...], zones: tuple[str, ...], title: str) -> Path:
    """Return a study's folder with these names of ways and zones."""
    folder.mkdir()
    zone_map(zones).to_csv(folder / "zones.csv", index=False)
    # names that a cell starts with stand alone; the others share a method by tens
    starts, rest = names[:FIRST], names[FIRST:]
    grouped = [*starts, *(" ".join(rest[k : k + 10]) for k in range(0, len(rest), 10))]
    methods = [
        Method(f"{name} {k:02d}", (("rounds", 1), ("beta", f"{1 + k}MW")))
        for k, name in enumerate(grouped)
    ]
    plan = make_plan(
        ["case14"],
        budgets=[5],
        seeds=[1],
        methods=methods,
        title=title,
        question=title,
        zonings=[str(folder / "zones.csv")],
        reference=False,
    )
    compare(plan, out=folder / "study", jobs=1)
    return folder / "study"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, paint: Any) -> tuple[Path, Path]:
    """Return the folders of reports with hostile and with harmless names."""
    place = tmp_path_factory.mktemp("names")
    title = 'x\n\\input{/etc/passwd} </title><script>alert(1)</script> #panic("typst")'
    zones = ("=1+1", '<i>#panic("typst")', "\\input{x}")
    harmless = tuple("way number" for k in range(len(HOSTILE)))
    hostile = made(place / "a", HOSTILE, zones, title)
    calm = made(place / "b", harmless, ("one", "two", "three"), "A title of words")
    with paint():
        export(hostile, ["html", "csv", "tex", "xlsx"])
        export(calm, ["html", "tex"])
    return hostile, calm


def numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def runs_as_formula(text: str) -> bool:
    """Return whether a spreadsheet may take a cell for a formula."""
    bare = text.strip(" \t\r\n\u00a0")
    return bare[:1] in tuple("=+-@\uff1d\uff0b\uff0d\uff20") and bare != "" and not numeric(text)


def test_no_cell_of_a_csv_or_workbook_is_a_formula(reports: tuple[Path, Path]) -> None:
    hostile, _ = reports
    openpyxl = pytest.importorskip("openpyxl")
    cells = []
    for path in (hostile / "report-csv").glob("*.csv"):
        with path.open(newline="") as file:
            cells += [cell for row in csv.reader(file) for cell in row]
    book = openpyxl.load_workbook(hostile / "report.xlsx")
    assert not [c for sheet in book for row in sheet for c in row if c.data_type == "f"]
    cells += [c for s in book for row in s.values for c in row if isinstance(c, str)]
    assert len([c for c in cells if "calc" in c]) > 8
    assert not [cell for cell in cells if runs_as_formula(cell)]


class Tags(HTMLParser):
    """Collects the elements of a page and their attributes' names."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.seen.append((tag, tuple(name for name, _ in attrs)))


def test_the_page_has_the_elements_of_one_with_harmless_names(reports: tuple[Path, Path]) -> None:
    seen = []
    for folder in reports:
        tags = Tags()
        tags.feed((folder / "report.html").read_text(encoding="utf-8"))
        seen.append({(tag, names) for tag, names in tags.seen})
    assert not [element for element in seen[0] if any(name.startswith("on") for name in element[1])]
    assert seen[0] == seen[1]


def test_latex_has_the_commands_of_one_with_harmless_names(reports: tuple[Path, Path]) -> None:
    for path in (reports[0] / "report-tex").glob("*.tex"):
        calm = reports[1] / "report-tex" / path.name
        lines = path.read_text(encoding="utf-8").split("\n")
        assert len(lines) == len(calm.read_text(encoding="utf-8").split("\n")), path.name
        assert lines[0].startswith("%") and not [x for x in lines[1:] if x.startswith("%")]
        body = "\n".join(lines[1:])
        bare = re.sub(r"\\(textbackslash|textasciitilde|textasciicircum)\{\}|\\[&%$#_{}]", "", body)
        commands = set(re.findall(r"\\[A-Za-z]+", bare))
        assert commands <= {
            "\\begin",
            "\\end",
            "\\centering",
            "\\caption",
            "\\label",
            "\\toprule",
            "\\midrule",
            "\\bottomrule",
        }, path.name
        inside = bare[bare.index("\\midrule") : bare.index("\\bottomrule")]
        assert not re.search(r"[%$#~^_{}]", inside), path.name


@pytest.mark.slow
def test_typst_runs_no_name(reports: tuple[Path, Path]) -> None:
    pytest.importorskip("typst")
    (path,) = export(reports[0], ["pdf"])  # a name that ran would panic
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext (poppler-utils) is not installed")
    words = ["pdftotext", "-layout", str(path), "-"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    joined = re.sub(r"\s+", "", text)
    assert 'panic("typst")' in joined and "root:" not in joined


def test_the_terminal_shows_names_as_they_are(
    reports: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    from gridpriv.cli.study import print_summary
    from gridpriv.report.export import study_messages
    from gridpriv.report.source import summary

    study = read_source(reports[0])
    table = summary(study)
    print_summary(table)
    printed = capsys.readouterr().out
    assert "[red]" in printed and "\x1b" not in printed and "\x00" not in printed
    assert "\x1b" not in " ".join(map(str, study_messages(study, table)))
    assert make_report(study).title.count("\n") == 0


def test_a_runs_tables_hold_no_formula(tmp_path: Path) -> None:
    zone_map(("=1+1", "@x", "-a")).to_csv(tmp_path / "zones.csv", index=False)
    words = ["run", "case14", "--zoning", str(tmp_path / "zones.csv"), "--rounds", "1"]
    words += ["--planning", "soc", "--no-reference"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    for path in (tmp_path / "run").glob("*.csv"):
        with path.open(newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert not [cell for cell in cells if runs_as_formula(cell)], path.name
