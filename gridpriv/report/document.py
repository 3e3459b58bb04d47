"""A report: verdict cards, messages, tables, and the sections of its page; writers make files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pandas as pd

from gridpriv.core.stored import Study
from gridpriv.core.text import Json, Message, by_severity
from gridpriv.privacy.mechanism import has_secure_sampler
from gridpriv.report.contents import (
    composition,
    contents,
    noisy_runs,
    protections,
    released_by_unfinished,
    simulation_caveat,
)
from gridpriv.report.panel import Card, Panel, cards, next_steps, panel_messages
from gridpriv.report.source import message, step_rows
from gridpriv.report.summary import summary
from gridpriv.report.tables import Table
from gridpriv.zonal.summary import notes, series_messages

if TYPE_CHECKING:
    from gridpriv.report.sections import Section


@dataclass(frozen=True, eq=False)
class Report:
    """A whole report.

    ``caveat`` is what must stand on every page: that certificates are of simulated noise.
    ``draw`` makes the sections: only for a format that shows figures, since these alone import
    Matplotlib.
    """

    title: str
    question: str
    cards: tuple[Card, ...]
    messages: tuple[Message, ...]
    tables: tuple[Table, ...]
    draw: Callable[[], Iterable[Section]]
    caveat: str = ""

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The page's sections, in order."""
        return tuple(self.draw())

    def of(self, severity: str) -> list[Message]:
        """Return the messages of a severity."""
        return [message for message in self.messages if message.severity == severity]

    @property
    def lines(self) -> tuple[str, ...]:
        """Cards and messages as text, line by line."""
        text = [line for card in self.cards for line in (card.title, *map(str, card.facts))]
        return (*text, *map(str, self.messages))


def make_report(study: Study) -> Report:
    """Return the report of a study, or of one run's folder."""
    table = summary(study)
    tables = contents(study, table)

    def draw() -> Iterable[Section]:
        from gridpriv.report.sections import sections

        return sections(study, table, tables)

    return Report(
        title=str(study.manifest["title"]),
        question=str(study.manifest["question"]),
        cards=cards(study, table),
        messages=tuple(study_messages(study, table)),
        tables=tables,
        draw=draw,
        caveat=simulation_caveat(study),
    )


def study_messages(study: Study, table: pd.DataFrame) -> list[Message]:
    """Return the messages of a study or run: warnings first, what to do next last."""
    if table.empty or (not (table.seeds > 0).any() and study.withheld.empty):
        return [message("no-finished-run", {}), *released_by_unfinished(study)]
    document = study.manifest.get("document")
    if document is not None:
        matches = [*notes(document), *_left_out(study), *_next_of_run(document)]
        return by_severity(matches)
    if "steps" in study.tables and study.withheld.empty:
        settings = study.manifest["study"]["settings"]
        matches = series_messages(step_rows(study), int(study.manifest["planned"]), settings)
        panels = []
    else:
        panels = list(Panel.all(study, table))
        matches = [item for panel in panels for item in panel_messages(panel)]
    matches += [*_claims(study), *composition(study), *protections(study), *_left_out(study)]
    if caveat := simulation_caveat(study):
        matches.append(message("caveat", {"caveat": f"{caveat[0].upper()}{caveat[1:]}"}))
    steps = [step for panel in panels for step in next_steps(panel)]
    steps += _next_secure(*noisy_runs(study).get("mechanism", ())) if caveat else []
    return by_severity(matches + list({str(step): step for step in steps}.values()))


NEXT_OF_RUN = {
    "next-rounds": {"not-converged", "noise-free-not-converged", "ac-rounds-not-converged"},
    "next-once": {"not-converged-fresh-noise"},
    "next-budget": {f"{worse}-than-prior-only" for worse in ("dearer", "sheds-more", "worse")},
}
"""What to do next, by the messages of a run that call for it."""


def _next_of_run(document: Json) -> Iterator[Message]:
    codes = {note["code"] for note in document.get("messages") or ()}
    yield from (message(step, {}) for step, causes in NEXT_OF_RUN.items() if codes & causes)
    if document["privacy"]["mechanism"] != "none" and document["privacy"]["noise"] != "secure":
        yield from _next_secure(document["privacy"]["mechanism"])


def _next_secure(*mechanisms: str) -> list[Message]:
    """Return the step to secure noise, of mechanisms that have a sampler and of those without."""
    noisy = [name for name in dict.fromkeys(mechanisms) if name != "none"]
    lacking = [name for name in noisy if not has_secure_sampler(name)]
    steps = [] if noisy and len(lacking) == len(noisy) else [message("next-secure", {})]
    return steps + [message("next-sampled", {"mechanism": name}) for name in lacking]


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


def _marked(rows: pd.DataFrame, name: str) -> pd.Series:
    """Return a column of True and False; False where a table has none."""
    return rows[name].astype(bool) if name in rows else pd.Series(data=False, index=rows.index)


def _claims(study: Study) -> Iterator[Message]:
    """Yield, of a reproduction, how many of the paper's statements hold."""
    claims = study.tables.get("claims", pd.DataFrame())
    if "outcome" not in claims:  # local
        return
    for kind, noise in NOISE_OF.items():
        # a paper's own statements, of which a near-chance or flat figure tells nothing
        own = claims[claims.sensitivity == kind]
        own = own[(own.outcome != "no information") & ~_marked(own, "ours")]
        if len(own):
            holding = int((own.outcome == "holds").sum())
            yield message("claims", {"holding": holding, "stated": len(own), "noise": noise})
    ratios = study.tables["statements"]
    published = set(study.done.loc[study.done.sensitivity == "published", "run"])
    if len(ratios) and published:
        here = ratios[ratios.run.isin(published)].ratio
        values = {"least": f"{here.min():.3g}", "most": f"{here.max():.3g}"}
        yield message("published-ratio", values)
