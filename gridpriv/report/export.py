"""A report (verdict cards, messages, tables, sections of its page) and its files.

HTML from Jinja2 templates, PDF by Typst (the ``typst`` wheel), a workbook with units in headers,
tables as CSV and as LaTeX (booktabs). The HTML page is one file: no network, readable without its
script, in print and by screen readers.
"""

from __future__ import annotations

import io
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from gridpriv.core.errors import check_choice, warn
from gridpriv.core.files import make_folder, refuse_used, write_bytes
from gridpriv.core.store import Study
from gridpriv.core.tables import Column
from gridpriv.core.text import Json, Message, by_severity, capitalized, frame_csv, inert, slug
from gridpriv.privacy.mechanism import has_secure_sampler
from gridpriv.report import PICTURES, check_formats
from gridpriv.report.contents import (
    composition,
    contents,
    noisy_runs,
    protections,
    released_by_unfinished,
    simulation_caveat,
)
from gridpriv.report.panel import Card, Panel, cards, next_steps, panel_messages, panels_of
from gridpriv.report.schema import marked
from gridpriv.report.source import (
    fitting,
    interruption,
    message,
    read_source,
    series_document,
    step_rows,
    summary,
)
from gridpriv.report.tables import Table, cell, in_parts, shown, to_csv, to_tex, typst_widths
from gridpriv.study.engine import Identity
from gridpriv.study.record import STORED
from gridpriv.zonal.summary import notes, series_messages, series_notes

if TYPE_CHECKING:
    from gridpriv.report.figures import Look, Plot
    from gridpriv.report.sections import Section


OF_CHART = frozenset({"not-converged", "noise-free-imbalance"})
"""Codes of warnings on methods in the first chart of a study, below which they stand."""


@dataclass(frozen=True, eq=False)
class Report:
    """A whole report.

    ``caveat`` is the note for every page that certificates are of simulated noise.
    ``draw`` makes the sections: only for a format that shows figures, since these alone import
    Matplotlib. ``summary`` has a row per combination over its seeds.
    """

    title: str
    question: str
    cards: tuple[Card, ...]
    messages: tuple[Message, ...]
    tables: tuple[Table, ...]
    draw: Callable[[], Iterable[Section]]
    summary: pd.DataFrame
    caveat: str = ""

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The page's sections, in order."""
        return tuple(self.draw())

    def of(self, severity: str, *, of_chart: bool = False) -> list[Message]:
        """Return the messages of a severity, those on methods in the first chart apart."""
        return [
            message
            for message in self.messages
            if message.severity == severity and (message.code in OF_CHART) == of_chart
        ]

    @property
    def lines(self) -> tuple[str, ...]:
        """Cards and messages as lines of text."""
        text = [line for card in self.cards for line in (card.title, *map(str, card.facts))]
        return (*text, *map(str, self.messages))


def make_report(study: Study) -> Report:
    """Return the report of a study, or of one run's folder."""
    table = summary(study)
    tables, panels = contents(study, table), panels_of(study, table)

    def draw() -> Iterable[Section]:
        from gridpriv.report.sections import sections

        return sections(study, table, tables)

    return Report(
        title=str(study.manifest["title"]),
        question=str(study.manifest["question"]),
        cards=cards(study, table, panels),
        messages=tuple(study_messages(study, table, panels)),
        tables=tables,
        draw=draw,
        summary=table,
        caveat=simulation_caveat(study),
    )


def study_messages(
    study: Study, table: pd.DataFrame, panels: Sequence[Panel] | None = None
) -> list[Message]:
    """Return the messages of a study or run: warnings first, next steps last."""
    if table.empty or (not (table.seeds > 0).any() and study.withheld.empty):
        return [message("no-finished-run", {}), *released_by_unfinished(study)]
    document = study.manifest.get("document")
    if document is not None:
        messages = [*notes(document), *_left_out(study), *_next_of_run(document)]
        return by_severity(messages)
    messages = _of_series(study) if "steps" in study.tables and study.withheld.empty else []
    steps: list[Message] = []
    for panel in panels_of(study, table) if panels is None else panels:
        own = list(panel_messages(panel))
        messages += own
        steps += next_steps(panel, own)
    messages += [*_claims(study), *composition(study), *protections(study), *_proven(study)]
    messages += _left_out(study)
    if caveat := simulation_caveat(study):
        messages.append(message("caveat", {"caveat": capitalized(caveat)}))
    chosen = {"settings": LEARNING_SETTINGS} if "adjacency" in study.runs else {}
    steps += _next_secure(*noisy_runs(study).get("mechanism", ()), **chosen) if caveat else []
    return by_severity(messages + list({str(step): step for step in steps}.values()))


def _of_series(study: Study) -> list[Message]:
    """Return the messages of a series; without its document those of its steps."""
    steps, document = step_rows(study), series_document(study)
    if document is not None:
        return series_notes(document | {"steps": steps})
    settings = study.manifest["study"]["settings"]
    return series_messages(steps, int(study.manifest["planned"]), settings)


NEXT_OF_RUN = {
    "next-rounds": {"not-converged", "noise-free-not-converged", "ac-rounds-not-converged"},
    "next-once": {"not-converged-fresh-noise"},
    "next-budget": {f"{worse}-than-prior-only" for worse in ("dearer", "sheds-more", "worse")},
}
"""Next steps, by the messages of a run that suggest them."""


def _next_of_run(document: Json) -> Iterator[Message]:
    codes = {note["code"] for note in document.get("messages") or ()}
    yield from (message(step, {}) for step, causes in NEXT_OF_RUN.items() if codes & causes)
    if document["privacy"]["mechanism"] != "none" and document["privacy"]["noise"] != "secure":
        yield from _next_secure(document["privacy"]["mechanism"])


LEARNING_SETTINGS = "--budget and --adjacency first (docs/learning.md)"


def _next_secure(
    *mechanisms: str, settings: str = "--beta and --budget first (docs/howto/budget.md)"
) -> list[Message]:
    """Return the step to secure noise, of mechanisms that have a sampler and of those without."""
    noisy = [name for name in dict.fromkeys(mechanisms) if name != "none"]
    lacking = [name for name in noisy if not has_secure_sampler(name)]
    steps = [message("next-sampled", {"mechanism": name}) for name in lacking]
    if noisy and len(lacking) == len(noisy):
        return steps
    return [message("next-secure", {"settings": settings}), *steps]


def _proven(study: Study) -> Iterator[Message]:
    """Yield the presets whose noise has proven sensitivities, of methods of a study."""
    methods = study.manifest["study"].get("methods") or []
    presets = {m["preset"] for m in methods if "preset" in m and m.get("sensitivity") == "proven"}
    yield from (message("proven-of-preset", {"preset": preset}) for preset in sorted(presets))


def _left_out(study: Study) -> Iterator[Message]:
    if study.public:
        yield message("private-left-out", {})
        if len(study.withheld):
            yield message("withheld", {})


NOISE_OF = {
    "": "",
    "published": " with the noise that the paper states",
    "proven": " with noise that certifies the stated epsilon",
}


def _claims(study: Study) -> Iterator[Message]:
    """Yield, of a reproduction, how many of the paper's statements hold."""
    claims = study.tables.get("claims", pd.DataFrame())
    if "outcome" not in claims:  # local
        return
    claims = claims.assign(ours=claims.get("ours", False))
    for kind, noise in NOISE_OF.items():
        # a paper's own statements; near-chance or flat values have no information
        own = claims[claims.sensitivity == kind]
        own = own[(own.outcome != "no information") & ~own.ours.astype(bool)]
        if len(own):
            holding = int((own.outcome == "holds").sum())
            yield message("claims", {"holding": holding, "stated": len(own), "noise": noise})
    ratios = study.tables["certificates"]
    published = set(study.done.loc[study.done.sensitivity == "published", "run"])
    if len(ratios) and published:
        published_ratios = ratios[ratios.run.isin(published)].ratio
        values = {"least": f"{published_ratios.min():.3g}", "most": f"{published_ratios.max():.3g}"}
        yield message("published-ratio", values)


ASSETS = Path(__file__).parent / "assets"
HTML_LINE, PDF_LINE = 134, 145
"""Characters of a table's text that a page of 1280 pixels, and one of A4, is wide enough for."""


@cache
def template(name: str) -> Template:
    """Return a template of the package's; of HTML ones every text is escaped."""
    pages = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=name.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    functions: dict[str, Callable[..., object]] = {
        "slug": slug,
        "shown": shown,
        "in_parts": in_parts,
        "unbroken": unbroken,
        "repr": repr,
        "str": str,
        "quoted": quoted,
        "text": lambda words: f"#{quoted(words)}",  # of Typst, escaped: no commands
        "widths": typst_widths,
    }
    pages.filters.update(functions)
    pages.globals.update(functions)
    return pages.get_template(name)


def unbroken(text: object) -> Markup:
    """Return text with flags that a browser does not break across lines."""
    return Markup(re.sub(r"(--[a-z][a-z-]*)", r'<span class="flag">\1</span>', str(escape(text))))


def to_html(report: Report) -> str:
    """Return the page."""
    from gridpriv.report.figures import swatch, to_svg  # imports Matplotlib

    def asset(name: str) -> Markup:
        return Markup((ASSETS / name).read_text(encoding="utf-8"))

    def svg(plot: Plot, kind: str, name: str = "", *, legend: bool = True) -> Markup:
        return Markup(to_svg(plot, kind, slug(name), legend=legend))

    def sample(look: Look, name: str) -> Markup:
        return Markup(swatch(look, name))

    values = {"report": report, "line": HTML_LINE, "asset": asset, "svg": svg, "swatch": sample}
    return template("report.html").render(values)


def to_pdf(report: Report) -> bytes:
    """Return the PDF."""
    import typst

    from gridpriv.report.figures import fonts, swatch, to_svg

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)

        def written(svg: str) -> str:
            path = root / f"{sum(1 for _ in root.iterdir())}.svg"
            path.write_text(svg, encoding="utf-8")
            return path.name

        values = {
            "report": report,
            "line": PDF_LINE,
            "svg": lambda plot, legend: written(to_svg(plot, "figure", legend=legend)),
            "swatch": lambda look: written(swatch(look)),
        }
        source = root / "report.typ"
        source.write_text(template("report.typ").render(values), encoding="utf-8")
        return bytes(typst.compile(str(source), font_paths=[fonts()]))


def quoted(words: str) -> str:
    """Return a text as Typst's source quotes it."""
    return '"' + words.replace("\\", "\\\\").replace('"', '\\"') + '"'


MOST_ROWS = 1_048_575
MEASURED = 1000
"""Number of rows that determine a column's width."""
RAW = ("runs", "rounds", "zones", "buses", "certificates", "charges", "timing")


def to_xlsx(report: Report, study: Study) -> bytes:
    """Return the workbook: the verdict, the report's tables, and the study's own tables.

    The required package was checked before (:mod:`gridpriv.report`).
    """
    from openpyxl import Workbook

    book = Workbook()
    first = book.active
    first.title = "verdict"
    for line in (report.title, report.question, *report.lines):
        first.append([inert(line)])
    first.column_dimensions["A"].width = 120
    for table in report.tables:
        _sheet(book, table.name, [c.header for c in table.columns], table.rows)
    taken = set(book.sheetnames)
    for name in RAW:
        frame = study.tables.get(name, pd.DataFrame())
        if len(frame.columns) > 1 and len(frame):
            title = f"all {name}" if name in taken else name
            columns = _declared(frame, name)
            units = [column.unit for column in columns]
            rows = [
                [cell(v, unit) for v, unit in zip(row, units, strict=True)]
                for row in frame.head(MOST_ROWS).itertuples(index=False)
            ]
            mark = marked if report.caveat else lambda column: column
            _sheet(book, title, [mark(column).header for column in columns], rows)
    out = io.BytesIO()
    book.save(out)
    return _undated(out.getvalue())


def _undated(book: bytes) -> bytes:
    """Return a workbook without times: equal values give equal bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(book)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename == "docProps/core.xml":  # openpyxl writes the present time on saving
                content = re.sub(rb"\d{4}-\d\d-\d\dT[\d:]+Z", b"1980-01-01T00:00:00Z", content)
            new.writestr(zipfile.ZipInfo(entry.filename), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _declared(frame: pd.DataFrame, name: str) -> list[Column]:
    """Return the columns of a stored table; undeclared ones have their name as title."""
    known = {c.name: c for c in (Identity.table.column("run"), *STORED[name].columns)}
    return [known.get(key, Column(key, "private", str(key), "")) for key in frame]


def _sheet(book: Any, name: str, headers: list[str], rows: Sequence[Sequence[object]]) -> None:
    from openpyxl.styles import Font
    from openpyxl.utils import get_column_letter

    sheet = book.create_sheet(name[:31])
    sheet.append(headers)
    for row in rows:
        sheet.append([inert(v) for v in row])
    for k, header in enumerate(headers, start=1):
        sheet.cell(1, k).font = Font(bold=True)
        texts = [str(cells[k - 1]) for cells in rows[:MEASURED] if isinstance(cells[k - 1], str)]
        longest = max(map(len, [header, *texts]))
        sheet.column_dimensions[get_column_letter(k)].width = min(max(longest + 2, 10), 44)
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = sheet.dimensions


def export(
    folder: str | Path,
    formats: Iterable[str] = ("html",),
    *,
    public: bool = False,
    out: str | Path | None = None,
    figures: str | None = None,
    pivot: tuple[Sequence[str], Sequence[str]] | None = None,
    values: Sequence[str] = (),
) -> list[Path]:
    """Write the report of a study's or run's folder; return the files.

    Parameters
    ----------
    folder : path
    formats : iterable of {'html', 'pdf', 'xlsx', 'csv', 'tex'}
    public : bool
        Leave out values computed from true demand; files are named ``report-public``.
    out : path, optional
        Output folder; default ``folder``, and its subfolder ``public`` for a public report, which
        must be empty so that it has no files for the data owner only.
    figures : {'png', 'svg', 'pdf'}, optional
        Also write every figure as a file of this format into ``report-figures``.
    pivot : (rows, columns), optional
        Also write ``pivot.tex`` and ``pivot.csv``: :meth:`Study.table` of these columns.
    values : sequence of str
        Values of that table; default: the study's first cost.

    Returns
    -------
    list of Path
        The files, in the order of ``formats``.

    Raises
    ------
    InputError
        For a folder without a study or run, inconsistent tables, another format, or a public report
        into a folder with other files.
    """
    wanted = list(formats)
    check_formats(wanted)
    if figures is not None:
        check_choice("figures", figures, PICTURES)
    source = Path(folder)
    target = Path(out) if out is not None else source / "public" if public else source
    if public:
        refuse_used(target)
    with fitting(source):
        study = read_source(source, public=public)
        if (interrupted := interruption(study)) is not None:
            warn(str(interrupted))
        report = make_report(study)
        stem = "report-public" if public else "report"
        files = report_files(report, study, wanted, stem)
        if figures is not None:
            files |= _figures(report, figures, stem)
        if pivot is not None:
            files |= _pivot(study, pivot, values, stem)
    return write_files(files, target, private=not public)


def report_files(
    report: Report, study: Study, formats: Iterable[str], stem: str = "report"
) -> dict[str, bytes]:
    """Return the files of a report in several formats, by their names."""
    files: dict[str, bytes] = {}
    for kind in dict.fromkeys(formats):
        if kind == "html":
            files[f"{stem}.html"] = to_html(report).encode()
        elif kind == "pdf":
            files[f"{stem}.pdf"] = to_pdf(report)
        elif kind == "xlsx":
            files[f"{stem}.xlsx"] = to_xlsx(report, study)
        else:
            for t in report.tables:
                text = to_csv(t) if kind == "csv" else to_tex(report.title, t)
                files[f"{stem}-{kind}/{t.name}.{kind}"] = text.encode()
    return files


def write_files(files: dict[str, bytes], folder: Path, *, private: bool = True) -> list[Path]:
    """Write files into a folder; return their paths."""
    for name, content in files.items():
        make_folder((folder / name).parent)
        write_bytes(folder / name, content, private=private)
    return [folder / name for name in files]


def _pivot(
    study: Study, pivot: tuple[Sequence[str], Sequence[str]], values: Sequence[str], stem: str
) -> dict[str, bytes]:
    """Return a table of means and intervals, for LaTeX and as CSV."""
    table = study.table(*pivot, values)
    text = table.text
    text.columns = [" ".join(map(str, key)) for key in text.columns]
    return {
        f"{stem}-tex/pivot.tex": table.to_latex().encode(),
        f"{stem}-csv/pivot.csv": frame_csv(text.reset_index()).encode(),
    }


def _figures(report: Report, kind: str, stem: str) -> dict[str, bytes]:
    """Return every figure of a report as a separate file, charts with their legend."""
    from gridpriv.report.figures import figure_bytes, figure_of

    drawn = {
        f"{heading} {chart.title}": chart.plot(figsize=(7.2, 3.6))
        for section in report.sections
        for heading, charts in section.charts
        for chart in charts
    }
    drawn |= {plot.title: plot.plot() for section in report.sections for plot in section.figures}
    return {
        f"{stem}-figures/{slug(name)}.{kind}": figure_bytes(figure_of(ax), kind)
        for name, ax in drawn.items()
    }
