"""What a study runs: schemes side by side, over axes, each combination once per seed.

An *axis* is a list of values that every scheme (:mod:`gridpriv.study.schemes`) is run at:
budgets, local updates, load scales, zonings, cases, and any other setting, whose values become
schemes of their own. Seeds repeat each noisy combination. All settings are validated when the
plan is expanded, before anything runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

from gridpriv.core.document import Json
from gridpriv.core.errors import InputError, not_allowed, whole
from gridpriv.core.settings import check_names, names, written
from gridpriv.core.text import clean
from gridpriv.privacy.budget import NO_NOISE, QUIET, Budget, parse_budget
from gridpriv.study.schemes import (
    BESIDE_GROUND,
    DEFAULT_SCHEMES,
    OWN_AXIS,
    PLURALS,
    REFERENCES,
    SCHEME_AXES,
    Scheme,
    drawn_by,
    effective,
    empty_axis,
    make_scheme,
    schemes_at,
    shown,
    word_of,
)
from gridpriv.zonal.settings import Settings, make_settings

DEFAULT_BUDGETS = (0.5, 1.0, 5.0, 10.0)
DEFAULT_SEEDS = (1, 2, 3, 4, 5)
MOST_SEEDS = 100_000
DEFAULT_TITLE = "Privacy budgets compared"
DEFAULT_QUESTION = "Which way of protecting demand costs least at equal privacy?"


@dataclass(frozen=True)
class Task:
    """One run of a study.

    Attributes
    ----------
    number : int
        Position in the plan; tables stand in this order.
    case, zoning, scheme : str
        Labels; ``zoning`` is empty for the default map.
    settings : Settings
        Everything the run needs, its seed included.
    """

    number: int
    case: str
    zoning: str
    scheme: str
    settings: Settings

    @property
    def budget(self) -> str:
        """What the run draws."""
        return self.settings.drawn

    @cached_property
    def id(self) -> str:
        """Identity: the same combination has the same name in every process and session."""
        told = [self.case, self.zoning, self.scheme, self.budget, self.settings.as_dict()]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class StudyPlan:
    """A grid of settings.

    Attributes
    ----------
    cases : tuple of str
    schemes : tuple of Scheme
    budgets : tuple of Budget
    zonings : tuple of str
        ``''`` (the case's default map), ``K``, ``METHOD:K`` or a CSV file.
    local_updates : tuple of int
        For schemes that do not set their own; empty: what each scheme has.
    load_scales : tuple of float
    seeds : tuple of int
    settings : tuple of (str, value)
        Common to all schemes.
    reference : bool
        Whether :attr:`references` are run, too.
    title, question : str
        For the report.
    """

    cases: tuple[str, ...]
    schemes: tuple[Scheme, ...] = DEFAULT_SCHEMES
    budgets: tuple[Budget, ...] = ()
    zonings: tuple[str, ...] = ("",)
    local_updates: tuple[int, ...] = ()
    load_scales: tuple[float, ...] = (1.0,)
    seeds: tuple[int, ...] = DEFAULT_SEEDS
    settings: tuple[tuple[str, Any], ...] = ()
    reference: bool = True
    title: str = DEFAULT_TITLE
    question: str = DEFAULT_QUESTION
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for axis in ("cases", "schemes", "budgets", "zonings", "load_scales", "seeds"):
            if not getattr(self, axis):
                raise empty_axis(axis)
        for axis in ("cases", "budgets", "zonings", "local_updates", "load_scales", "seeds"):
            values = [str(value) for value in getattr(self, axis)]
            if len(set(values)) < len(values):
                raise not_allowed(shown(axis), values, "each value once")
        names = [clean(scheme.name) for scheme in self.schemes]
        if len(set(names)) < len(names):
            raise not_allowed("schemes", names, "each name once")
        for taken in sorted({clean(one.name) for one in self.references} & set(names)):
            raise not_allowed(
                "schemes.name", taken,
                "another name: a reference that the study adds has this one (or leave references "
                "out: reference = false, --no-reference)",
            )  # fmt: skip
        for case in self.cases:
            if not isinstance(case, str) or not case:
                raise not_allowed("cases", case, "names of cases, or paths")
        for seed in self.seeds:
            whole("seeds", seed, least=0)

    @cached_property
    def references(self) -> tuple[Scheme, ...]:
        """The schemes' zones without noise, and with nothing released, beside private ways.

        One for each choice of settings that say nothing of noise, however it is written; none of
        a kind that the study names itself.
        """
        common = dict(self.settings)
        drawn = [drawn_by(common | dict(scheme.settings)) for scheme in self.schemes]
        grounds: dict[str, Json] = {}
        for scheme, what in zip(self.schemes, drawn, strict=True):
            if what not in QUIET:
                ground = {k: v for k, v in scheme.settings if k not in BESIDE_GROUND}
                grounds.setdefault(self._come_to(ground), ground)
        missing = [one for kind, one in REFERENCES.items() if kind not in drawn and self.reference]
        return tuple(
            make_scheme(", ".join([one.name, *(word_of(k, v) for k, v in ground.items())]),
                    **(ground | dict(one.settings)))
            for one, ground in product(missing, grounds.values())
        )  # fmt: skip

    def _come_to(self, ground: Json) -> str:
        """Return what a reference of such settings is run with, the same for the same run."""
        own = ground.get("local_updates") if self.local_updates else None  # wins over the axis
        found = effective(dict(self.settings) | ground | {"mechanism": NO_NOISE})
        told = ground if found is None else found.as_dict()
        kept = {k: str(v) for k, v in told.items() if k not in BESIDE_GROUND}
        return json.dumps([own, kept], sort_keys=True)

    def tasks(self) -> tuple[Task, ...]:
        """Return every run once, in the order of the tables; raises on the first bad setting."""
        seen: dict[str, Task] = {}
        for place in product(self.cases, self.zonings):
            for scale, scheme, updates, budget in product(
                self.load_scales, (*self.references, *self.schemes),
                self.local_updates or (None,), self.budgets,
            ):  # fmt: skip
                axes = {"load_scale": scale} | (
                    {} if updates is None else {"local_updates": updates}
                )
                for task in self._repeated(place, scheme, axes, budget):
                    seen.setdefault(task.id, task)
        return tuple(replace(task, number=number) for number, task in enumerate(seen.values()))

    def _repeated(
        self, place: tuple[str, str], scheme: Scheme, axes: Json, budget: Budget
    ) -> Iterator[Task]:
        # a scheme's own settings win over an axis
        given = dict(self.settings) | axes | dict(scheme.settings)
        own = partial(make_settings, given.pop("preset", None), **given)
        try:
            first = own(budget=budget, seed=self.seeds[0])
            if first.drawn in QUIET:  # budgets and seeds change nothing
                runs = [own(seed=self.seeds[0])]
            else:
                runs = [replace(first, seed=seed) for seed in self.seeds]
        except InputError as error:
            raise InputError(f"scheme {scheme.name!r}: {error}") from None
        for settings in runs:
            yield Task(0, *place, scheme.name, settings)

    def as_dict(self) -> Json:
        """Return the plan with the keys of a study file."""
        return {
            "title": self.title,
            "question": self.question,
            "cases": list(self.cases),
            "zonings": list(self.zonings),
            "budgets": [str(budget) for budget in self.budgets],
            "local-updates": list(self.local_updates),
            "load-scales": list(self.load_scales),
            "seeds": list(self.seeds),
            "reference": self.reference,
            "settings": {shown(k): written(v) for k, v in self.settings},
            "schemes": [
                {"name": s.name} | {shown(k): written(v) for k, v in s.settings}
                for s in self.schemes
            ],
        }


def make_plan(
    cases: Sequence[str],
    *,
    budgets: Sequence[float | str] = DEFAULT_BUDGETS,
    per_release: bool = False,
    schemes: Sequence[Scheme] = (),
    zonings: Sequence[str | int] = ("",),
    local_updates: Sequence[int] = (),
    load_scales: Sequence[float] = (1.0,),
    seeds: Sequence[int] | int = DEFAULT_SEEDS,
    settings: Mapping[str, Any] | None = None,
    reference: bool = True,
    title: str = DEFAULT_TITLE,
    question: str = DEFAULT_QUESTION,
    name: str = "",
    **axes: Sequence[Any],
) -> StudyPlan:
    """Return the plan of a study.

    Parameters
    ----------
    cases : sequence of str
    budgets : sequence of float or str
        Numbers are certified totals at the target delta (of a release, with ``per_release``).
    per_release : bool
        Compare at equal epsilon per release, as the paper does.
    schemes : sequence of Scheme
        Named settings; unless given :data:`gridpriv.study.schemes.DEFAULT_SCHEMES`, or one per
        combination of the axes ``mechanism``, ``perturbation``, ``refresh`` and ``update``.
    zonings : sequence of str or int
        ``K``, ``METHOD:K``, a CSV file, or '' for the case's default map.
    local_updates : sequence of int
        Values of E; what each scheme has unless given.
    load_scales : sequence of float
        Factors on every demand.
    seeds : sequence of int, or int
        N means 1 to N.
    settings : mapping
        Common settings by their Python name.
    reference : bool
        Also run the zones of private schemes without noise and with nothing released
        (:attr:`StudyPlan.references`).
    title, question, name : str
        Of the report, what it answers, and of its folder.
    **axes : sequence
        Values of any other setting, by its name; each scheme is run at each. A scheme's own
        value wins.

    Raises
    ------
    InputError
        For an empty axis, a repeated value, or a setting that no run can have.
    """
    common = dict(settings or {})
    for where, held in (
        ("settings", common),
        *((f"scheme {s.name!r}", dict(s.settings)) for s in schemes),
    ):
        for key in held:
            if key in OWN_AXIS:
                raise InputError(
                    f"{where}: {shown(key)} is not allowed: use the axis {OWN_AXIS[key]}"
                )
        check_names(held, (*names(Settings), "preset"))
    combined = {PLURALS.get(name, name): values for name, values in axes.items()}
    check_names(combined, (*SCHEME_AXES, *(make_plan.__kwdefaults__ or ())))
    delta = common.get("target_delta", Settings.target_delta)
    return StudyPlan(
        cases=tuple(cases),
        schemes=schemes_at(tuple(schemes), combined),
        budgets=tuple(_budget(b, per_release, delta) for b in budgets),
        zonings=tuple(str(z) for z in zonings),
        local_updates=tuple(local_updates),
        load_scales=tuple(_number("load-scales", x) for x in load_scales),
        seeds=_seeds(seeds),
        settings=make_scheme("", **common).settings,
        reference=reference,
        title=title,
        question=question,
        name=name,
    )


def _budget(value: float | str | Budget, per_release: bool, delta: float) -> Budget:
    if isinstance(value, Budget):
        return value
    if isinstance(value, str) and ":" in value:
        return parse_budget(value)
    try:
        epsilon = float(value)
    except (ValueError, TypeError, OverflowError):
        raise not_allowed(
            "budgets", value, "numbers, or total:E[,D] or per-release:E[,D]"
        ) from None
    return Budget("per-release", epsilon) if per_release else Budget("total", epsilon, delta)


def _number(axis: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise not_allowed(axis, value, "numbers")
    return float(value)


def _seeds(seeds: Sequence[int] | int) -> tuple[int, ...]:
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= MOST_SEEDS:
            raise not_allowed("seeds", seeds, f"1 to {MOST_SEEDS}, or a list of whole numbers")
        return tuple(range(1, seeds + 1))
    if isinstance(seeds, str) or not isinstance(seeds, Sequence):
        raise not_allowed("seeds", seeds, "a number of seeds, or a list of whole numbers")
    return tuple(seeds)
