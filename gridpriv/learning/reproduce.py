"""What every reproduction of a learning paper shares: runs, claims, the folder it writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from gridpriv.core.files import beside, write_text
from gridpriv.core.text import frame_csv
from gridpriv.learning.datasets import load_dataset
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.settings import make_learn_settings
from gridpriv.learning.stored import (
    PlannedRuns,
    Progress,
    Runs,
    StoredRuns,
    Watcher,
    silent,
)

# of curves, so that they are told apart in grey
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
MARKERS = "osD^v"
Scale = Literal["quick", "full"]
SCALES: tuple[Scale, ...] = ("quick", "full")
DPI = 150
# Okabe and Ito's colour-blind safe palette
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")


@dataclass(frozen=True)
class Claim:
    """A statement of the paper and what was found.

    Attributes
    ----------
    text : str
    holding, comparisons : int
        In how many of the comparisons made it holds; it holds if it does in all.
    numbers : str
    """

    text: str
    holding: int
    comparisons: int
    numbers: str

    @property
    def outcome(self) -> str:
        """``holds``, ``holds in part`` or ``does not hold``."""
        if self.holding == self.comparisons:
            return "holds"
        return "holds in part" if self.holding else "does not hold"


@dataclass(eq=False)
class Outcome:
    """A reproduction's table, claims and figure."""

    table: pd.DataFrame
    claims: list[Claim]
    draw: Callable[[Any], None]
    notes: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Bench:
    """Runs of a reproduction: data sets loaded once, records kept in the folder."""

    scale: Scale
    data: str | None
    store: Runs
    _loaded: dict[tuple[str, str, str], Dataset] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        """Whether the paper's own sizes are run."""
        return self.scale == "full"

    def dataset(self, name: str, missing: str = "drop", scaling: str = "bounds") -> Dataset:
        """Return a data set."""
        key = (name, missing, scaling)
        if key not in self._loaded:
            found = load_dataset(name, self.data, missing=missing, scaling=scaling)
            self._loaded[key] = found
        return self._loaded[key]

    def run(
        self, name: str, preset: str, watcher: Watcher | None = None, **given: Any
    ) -> dict[str, Any]:
        """Return the record of a run."""
        settings = make_learn_settings(name, preset, **given)
        return self.store.get(
            self.dataset(name, settings.missing, settings.scaling), settings, watcher
        )

    def mean(
        self, name: str, preset: str, figure: str, seeds: Sequence[int], **given: Any
    ) -> float:
        """Return a final figure's mean over seeds."""
        records = [self.run(name, preset, seed=seed, **given) for seed in seeds]
        return float(np.mean([r["final"][figure] for r in records]))


@dataclass(frozen=True)
class Reproduction:
    """A figure or table of a paper.

    Attributes
    ----------
    name, title : str
    make : callable
        From a :class:`Bench` to an :class:`Outcome`.
    size : (width, height)
        Of the figure, in inches.
    """

    name: str
    title: str
    make: Callable[[Bench], Outcome]
    size: tuple[float, float] = (8.0, 4.5)

    def run(
        self, scale: Scale, data: str | None, folder: Path, progress: Progress = silent
    ) -> Outcome:
        """Run what the folder does not hold and write the outcome there.

        Parameters
        ----------
        data : str or None
            Folder of data sets.
        progress : callable
            Given the local updates of all runs, returns a context that yields
            ``advance(note, steps)``.
        """
        planned = PlannedRuns()
        bench = Bench(scale, data, planned)
        self.make(bench)
        with progress(planned.steps) as advance:
            outcome = self.make(replace(bench, store=StoredRuns(folder, advance)))
        write_outcome(self, outcome, folder, scale)
        return outcome


def claim_table(outcome: Outcome) -> pd.DataFrame:
    """Return one row per claim."""
    return pd.DataFrame(
        [
            {
                "claim": c.text,
                "outcome": c.outcome,
                "in": f"{c.holding} of {c.comparisons}",
                "numbers": c.numbers,
            }
            for c in outcome.claims
        ]
    )


def write_outcome(which: Reproduction, outcome: Outcome, folder: Path, scale: str) -> None:
    """Write figure.png, table.csv, claims.csv and a page that says it all."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=which.size, layout="constrained")
    outcome.draw(figure)
    with beside(folder / "figure.png", private=True) as file:
        figure.savefig(file, format="png", dpi=DPI)
    claims = claim_table(outcome)
    for name, table in (("table", outcome.table), ("claims", claims)):
        write_text(folder / f"{name}.csv", frame_csv(table), private=True)
    lines = [f"# {which.title}", "", f"Scale: {scale}.", ""]
    lines += [
        f"- {c.outcome} ({c.holding} of {c.comparisons}): {c.text} {c.numbers}"
        for c in outcome.claims
    ]
    lines += ["", *outcome.notes, ""]
    write_text(folder / "claims.md", "\n".join(lines), private=True)


def claim(text: str, pairs: Sequence[tuple[str, float, float]], factor: float = 1.0) -> Claim:
    """Return the claim that the first figure is below ``factor`` times the second in each pair."""
    held = sum(bool(one < factor * other) for _, one, other in pairs)
    numbers = "; ".join(f"{label}: {one:.4g} against {other:.4g}" for label, one, other in pairs)
    return Claim(text, held, len(pairs), numbers)


def falling(text: str, label: str, values: Sequence[float], slack: float = 0.0) -> Claim:
    """Return the claim that values do not rise along a sequence, up to ``slack``."""
    steps = list(pairwise(values))
    held = sum(bool(after <= before + slack) for before, after in steps)
    shown = ", ".join(f"{value:.4g}" for value in values)
    return Claim(text, held, len(steps), f"{label}: {shown}")
