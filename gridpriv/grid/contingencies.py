"""Contingencies: the outages that a grid is to withstand, by kind or from a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, not_allowed, one_of
from gridpriv.grid.case import Case
from gridpriv.grid.tables import CsvRows

Kind = Literal["branch", "generator", "multiple"]
Rating = Literal["A", "B", "C"]
RATINGS: tuple[Rating, ...] = ("A", "B", "C")
LIST_OF = {"branch": "branches", "generator": "generators"}
LISTS = (*LIST_OF.values(), "all")
NOTATION = "branch:N or gen:N with N a row in service of the case"


@dataclass(frozen=True)
class Contingency:
    """Elements that fail together.

    Attributes
    ----------
    name : str
        As listed, or that of the element.
    kind : {'branch', 'generator', 'multiple'}
        Kind of the one element, or ``multiple``.
    outages : tuple of str
        The elements in the notation of :meth:`gridpriv.grid.case.Case.without`.
    """

    name: str
    kind: Kind
    outages: tuple[str, ...]

    def elements(self, case: Case) -> tuple[Ints, Ints]:
        """Return the indices of the branches and of the generators that fail."""
        rows = [outage.partition(":") for outage in self.outages]
        branches = [int(row) for kind, _, row in rows if kind == "branch"]
        gens = [int(row) for kind, _, row in rows if kind == "gen"]
        return (
            np.flatnonzero(np.isin(case.branch_row, branches)),
            np.flatnonzero(np.isin(case.gen_row, gens)),
        )

    def places(self, case: Case) -> tuple[str, ...]:
        """Return the bus numbers of the elements: both ends of a branch, a generator's bus."""
        branches, gens = self.elements(case)
        ends = case.bus_id[case.f_bus[branches]], case.bus_id[case.t_bus[branches]]
        return (
            *(f"{f}-{t}" for f, t in zip(*ends, strict=True)),
            *map(str, case.bus_id[case.gen_bus[gens]]),
        )


def contingencies(case: Case, which: str | Path) -> tuple[Contingency, ...]:
    """Return the single outages of a kind, or the contingencies that a file lists.

    Parameters
    ----------
    case : Case
    which : str or path
        ``branches``, ``generators``, ``all``, or a CSV file with columns ``name,outage``. Rows of
        one name are one contingency.

    Raises
    ------
    InputError
        With the line, for an element that is not in service or is named twice.
    """
    if which not in LISTS:
        if str(which).endswith(".csv"):
            return _read(case, Path(which))
        raise not_allowed("contingencies", str(which), f"{', '.join(LISTS)} or a file FILE.csv")
    every = map(_single, _outages(case))
    return tuple(single for single in every if which in ("all", LIST_OF[single.kind]))


def branch_rating(case: Case, rating: Rating) -> Floats:
    """Return the apparent power limit of every branch, p.u. (0: none).

    Parameters
    ----------
    rating : {'A', 'B', 'C'}
        Normal, short-term, emergency. Where a branch has none, the one before holds.

    Returns
    -------
    (m,) float
    """
    one_of("rating", rating, RATINGS)
    limit = case.rate
    for given in (case.rate_b, case.rate_c)[: RATINGS.index(rating)]:
        if given is not None:
            limit = np.where(given > 0, given, limit)
    return limit


def _single(outage: str, name: str = "") -> Contingency:
    kind: Kind = "branch" if outage.startswith("branch:") else "generator"
    return Contingency(name or outage, kind, (outage,))


def _read(case: Case, path: Path) -> tuple[Contingency, ...]:
    rows = CsvRows(path, "contingency list", (("name", "outage"), ()))
    in_service = set(_outages(case))
    listed: dict[str, dict[str, int]] = {}
    for line, row in rows:
        elements = listed.setdefault(rows.name(row, "name", line), {})
        if row["outage"] not in in_service:
            raise rows.error(line, "outage", row["outage"], _notation(case))
        rows.once(elements, row["outage"], line, f"{row['name']}: outage")
    if not listed:
        raise InputError(f"{rows.label} lists no contingency: give one row per contingency")
    return tuple(
        _single(outages[0], name) if len(outages) == 1 else Contingency(name, "multiple", outages)
        for name, outages in ((name, tuple(elements)) for name, elements in listed.items())
    )


def _notation(case: Case) -> str:
    """Return the notation of outages with the numbers that the case has."""
    rows = {"branch": case.branch_row, "gen": case.gen_row}
    spans = (f"{kind}:{each.min()} to {each.max()}" for kind, each in rows.items() if each.size)
    return f"{NOTATION} ({', '.join(spans)})"


def _outages(case: Case) -> Iterator[str]:
    yield from (f"branch:{row}" for row in case.branch_row.tolist())
    yield from (f"gen:{row}" for row in case.gen_row.tolist())
