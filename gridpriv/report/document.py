"""A report: a study's answer and tables, and the sections of its page; writers make files of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from gridpriv.core.stored import Study
from gridpriv.drawing.chart import Style, styles
from gridpriv.privacy.budget import QUIET
from gridpriv.report import sections
from gridpriv.report.answers import answers, simulation_caveat
from gridpriv.report.contents import contents
from gridpriv.report.sections import Section, Subject
from gridpriv.report.summary import summary
from gridpriv.report.tables import Table

ORDER: tuple[Callable[[Subject], Section | None], ...] = (
    sections.first, sections.claims, sections.convergence, sections.places, sections.privacy,
    sections.planned, sections.audited, sections.ac, sections.failed, sections.provenance,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Report:
    """A whole report.

    ``caveat`` is what must stand on every page: that certificates are of simulated noise.
    ``draw`` makes the sections, charts and maps included: only for a format that shows them.
    """

    title: str
    question: str
    answer: tuple[str, ...]
    tables: tuple[Table, ...]
    draw: Callable[[], Iterable[Section]]
    caveat: str = ""
    styles: dict[str, Style] = field(default_factory=dict)
    flat: frozenset[str] = frozenset()

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The page's sections, in order."""
        return tuple(self.draw())


def make_report(study: Study) -> Report:
    """Return the report of a study, or of one run's folder."""
    table = summary(study)
    tables = contents(study, table)
    drawn = table[table.seeds > 0] if len(table) else table
    names = list(dict.fromkeys(drawn.series)) if len(drawn) else []
    flat = frozenset(drawn.loc[drawn.budget.isin(QUIET), "series"]) if len(drawn) else frozenset()
    subject = Subject(study, table, {t.name: t for t in tables}, styles(names))
    return Report(
        title=str(study.manifest["title"]),
        question=str(study.manifest["question"]),
        answer=tuple(answers(study, table)),
        tables=tables,
        draw=lambda: filter(None, (make(subject) for make in ORDER)),
        caveat=simulation_caveat(study),
        styles=subject.look,
        flat=flat if len(names) > len(flat) else frozenset(),
    )
