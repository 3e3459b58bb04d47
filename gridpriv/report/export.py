"""Write a report in one or several formats into its folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gridpriv.core.errors import one_of
from gridpriv.core.files import make_folder, refuse_used, write_bytes
from gridpriv.core.stored import Study
from gridpriv.core.text import slug
from gridpriv.report.document import Report, make_report
from gridpriv.report.formats import PICTURES, check_formats
from gridpriv.report.source import fitting, read_source


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
        Leave out whatever is computed from private data; files are named ``report-public``.
    out : path, optional
        Where to; default ``folder``, and ``public`` in it for what is public. What is public
        goes into an empty folder, so that nothing private lies beside it.
    figures : {'png', 'svg', 'pdf'}, optional
        Also write every figure as a file of this format into ``report-figures``.
    pivot : (rows, columns), optional
        Also write ``pivot.tex`` and ``pivot.csv``: :meth:`Study.table` of these columns.
    values : sequence of str
        Figures of that table; default: the study's first cost.

    Returns
    -------
    list of Path
        The files, in the order of ``formats``.

    Raises
    ------
    InputError
        For a folder that holds no study or run, or tables that do not fit together, another
        format, or a public report that would go beside other files.
    """
    wanted = list(formats)
    check_formats(wanted)
    if figures is not None:
        one_of("figures", figures, PICTURES)
    source = Path(folder)
    place = Path(out) if out is not None else source / "public" if public else source
    if public:
        refuse_used(place)
    files: dict[str, bytes] = {}
    with fitting(source):
        study = read_source(source, public=public)
        report = make_report(study)
        stem = "report-public" if public else "report"
        for kind in dict.fromkeys(wanted):
            files |= _files(report, study, kind, stem)
        if figures is not None:
            files |= _figures(report, figures, stem)
        if pivot is not None:
            files |= _pivot(study, pivot, values, stem)
    for name, content in files.items():
        make_folder((place / name).parent)
        write_bytes(place / name, content, private=not public)
    return [place / name for name in files]


def _files(report: Report, study: Study, kind: str, stem: str) -> dict[str, bytes]:
    """Return the files of a report in one format, by their names."""
    if kind == "html":
        from gridpriv.report.pages import to_html

        return {f"{stem}.html": to_html(report).encode()}
    if kind == "pdf":
        from gridpriv.report.pages import to_pdf

        return {f"{stem}.pdf": to_pdf(report)}
    if kind == "xlsx":
        from gridpriv.report.sheets import to_xlsx

        return {f"{stem}.xlsx": to_xlsx(report, study)}
    from gridpriv.report.text import to_csv, to_tex

    return {
        f"{stem}-{kind}/{t.name}.{kind}": (
            to_csv(t) if kind == "csv" else to_tex(report, t)
        ).encode()
        for t in report.tables
    }


def _pivot(
    study: Study, pivot: tuple[Sequence[str], Sequence[str]], values: Sequence[str], stem: str
) -> dict[str, bytes]:
    """Return a table of means and intervals, for LaTeX and as CSV."""
    from gridpriv.core.text import frame_csv

    table = study.table(*pivot, values)
    text = table.text
    text.columns = [" ".join(map(str, key)) for key in text.columns]
    return {
        f"{stem}-tex/pivot.tex": table.to_latex().encode(),
        f"{stem}-csv/pivot.csv": frame_csv(text.reset_index()).encode(),
    }


def _figures(report: Report, kind: str, stem: str) -> dict[str, bytes]:
    """Return every figure of a report as a file that stands alone, charts with their legend."""
    from gridpriv.report.figures import figure_bytes

    drawn = {
        f"{heading} {chart.title}": chart.plot(figsize=(7.2, 3.6))
        for section in report.sections
        for heading, charts in section.charts
        for chart in charts
    }
    drawn |= {plot.title: plot.plot() for section in report.sections for plot in section.figures}
    return {
        f"{stem}-figures/{slug(name)}.{kind}": figure_bytes(ax.get_figure(root=True), kind)
        for name, ax in drawn.items()
    }
