"""What a study runs: schemes side by side, over axes, each combination once per seed.

A *scheme* is a named set of settings (``demand per round``). An *axis* is a list of values that
every scheme is run at (budgets, local updates, load scales, zonings, cases). Seeds repeat each
noisy combination. All settings are validated when the plan is expanded, before anything runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from gridpriv.core.errors import InputError, not_allowed, one_of
from gridpriv.core.settings import names
from gridpriv.zonal.settings import Settings, make_settings

NO_NOISE = "none"
DEFAULT_BUDGETS = (0.5, 1.0, 5.0, 10.0)
DEFAULT_SEEDS = (1, 2, 3, 4, 5)
DEFAULT_QUESTION = "Which way of protecting demand costs the fewest megawatts at equal privacy?"

# settings that have their own axis, so that [settings] may not hold them
OWN_AXIS = {"seed": "seeds", "load_scale": "load-scales", "budget": "budgets"}
SETTING_NAMES = names(Settings)


@dataclass(frozen=True)
class Scheme:
    """One way of running: a name and the settings that make it.

    Attributes
    ----------
    name : str
    settings : tuple of (str, value)
        Over the study's common settings; ``preset`` may be among them.
    """

    name: str
    settings: tuple[tuple[str, Any], ...] = ()


def _scheme(name: str, **settings: Any) -> Scheme:
    return Scheme(name, tuple(sorted(settings.items())))


DEFAULT_SCHEMES = (
    _scheme("no noise", mechanism=NO_NOISE),
    _scheme("no noise, paper's update", preset="ryu-kim", mechanism=NO_NOISE),
    _scheme(
        "paper: objective, Laplace",
        preset="ryu-kim", calibration="sound", perturbation="objective", mechanism="laplace",
    ),
    _scheme(
        "paper: objective, Gaussian",
        preset="ryu-kim", calibration="sound", perturbation="objective", mechanism="gaussian",
    ),
    _scheme(
        "paper: output, Laplace",
        preset="ryu-kim", calibration="sound", perturbation="output", mechanism="laplace",
    ),
    _scheme(
        "paper: output, Gaussian",
        preset="ryu-kim", calibration="sound", perturbation="output", mechanism="gaussian",
    ),
    _scheme("demand, per round", perturbation="demand", refresh="round"),
    _scheme("demand, once", perturbation="demand", refresh="run"),
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """One run of a study.

    Attributes
    ----------
    number : int
        Position in the plan; tables stand in this order.
    case, zoning, scheme, budget : str
        Labels; ``zoning`` is empty for the default map, ``budget`` is 'none' without noise.
    settings : Settings
        Everything the run needs, its seed included.
    """

    number: int
    case: str
    zoning: str
    scheme: str
    budget: str
    settings: Settings

    @cached_property
    def id(self) -> str:
        """Identity: the same combination has the same name in every process and session."""
        told = [self.case, self.zoning, self.scheme, self.budget, self.settings.as_given()]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class StudyPlan:
    """A grid of settings.

    Attributes
    ----------
    cases : tuple of str
    schemes : tuple of Scheme
    budgets : tuple of str
        ``total:E,D`` or ``per-release:E[,D]``.
    zonings : tuple of str
        ``''`` (the case's default map), ``K``, ``METHOD:K`` or a CSV file.
    local_updates : tuple of int
        For schemes that do not set their own; empty: what each scheme has.
    load_scales : tuple of float
    seeds : tuple of int
    settings : tuple of (str, value)
        Common to all schemes.
    title, question : str
        For the report.
    """

    cases: tuple[str, ...]
    schemes: tuple[Scheme, ...] = DEFAULT_SCHEMES
    budgets: tuple[str, ...] = ()
    zonings: tuple[str, ...] = ("",)
    local_updates: tuple[int, ...] = ()
    load_scales: tuple[float, ...] = (1.0,)
    seeds: tuple[int, ...] = DEFAULT_SEEDS
    settings: tuple[tuple[str, Any], ...] = (("solver", "clarabel"),)
    title: str = "Privacy budgets compared"
    question: str = DEFAULT_QUESTION
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for axis in ("cases", "schemes", "budgets", "zonings", "load_scales", "seeds"):
            if not getattr(self, axis):
                raise empty_axis(axis)
        for axis in ("cases", "budgets", "zonings", "local_updates", "load_scales", "seeds"):
            values = getattr(self, axis)
            if len(set(values)) < len(values):
                raise not_allowed(shown(axis), list(values), "each value once")
        names = [scheme.name for scheme in self.schemes]
        if len(set(names)) < len(names):
            raise not_allowed("schemes", names, "each name once")
        for case in self.cases:
            if not isinstance(case, str) or not case:
                raise not_allowed("cases", case, "names of cases, or paths")
        for seed in self.seeds:
            if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
                raise not_allowed("seeds", seed, "whole numbers, 0 or more")

    def tasks(self) -> tuple[Task, ...]:
        """Return every run once, in the order of the tables; raises on the first bad setting."""
        seen: dict[str, Task] = {}
        for place in product(self.cases, self.zonings):
            for scale, scheme, updates, budget in product(
                self.load_scales, self.schemes, self.local_updates or (None,), self.budgets
            ):
                axes = {"load_scale": scale} | (
                    {} if updates is None else {"local_updates": updates}
                )
                for task in self._repeated(place, scheme, axes, budget):
                    seen.setdefault(task.id, task)
        return tuple(
            Task(n, t.case, t.zoning, t.scheme, t.budget, t.settings)
            for n, t in enumerate(seen.values())
        )

    def _repeated(
        self, place: tuple[str, str], scheme: Scheme, axes: dict[str, Any], budget: str
    ) -> Iterator[Task]:
        # a scheme's own settings win over an axis
        given = dict(self.settings) | axes | dict(scheme.settings)
        preset = given.pop("preset", None)
        quiet = given.get("mechanism") == NO_NOISE
        if not quiet:
            given["budget"] = budget
        for seed in self.seeds[:1] if quiet else self.seeds:
            try:
                settings = make_settings(preset, **given, seed=seed)
            except (InputError, TypeError, ValueError) as error:
                raise InputError(f"scheme {scheme.name!r}: {error}") from None
            yield Task(0, *place, scheme.name, NO_NOISE if quiet else budget, settings)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan with the keys of a study file."""
        return {
            "title": self.title,
            "question": self.question,
            "cases": list(self.cases),
            "zonings": list(self.zonings),
            "budgets": list(self.budgets),
            "local-updates": list(self.local_updates),
            "load-scales": list(self.load_scales),
            "seeds": list(self.seeds),
            "settings": {shown(k): _plain(v) for k, v in self.settings},
            "schemes": [
                {"name": s.name} | {shown(k): _plain(v) for k, v in s.settings}
                for s in self.schemes
            ],
        }


def make_plan(
    cases: Sequence[str],
    *,
    budgets: Sequence[float | str] = DEFAULT_BUDGETS,
    per_release: bool = False,
    schemes: Sequence[Scheme] = (),
    mechanisms: Sequence[str] = (),
    perturbations: Sequence[str] = (),
    refresh: Sequence[str] = (),
    updates: Sequence[str] = (),
    zonings: Sequence[str | int] = ("",),
    local_updates: Sequence[int] = (),
    load_scales: Sequence[float] = (1.0,),
    seeds: Sequence[int] | int = DEFAULT_SEEDS,
    settings: Mapping[str, Any] | None = None,
    title: str = "Privacy budgets compared",
    question: str = DEFAULT_QUESTION,
    name: str = "",
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
        Named settings. Without them, the combinations of ``mechanisms``, ``perturbations``,
        ``refresh`` and ``updates``; without those, :data:`DEFAULT_SCHEMES`.
    zonings : sequence of str or int
        ``K``, ``METHOD:K``, a CSV file, or '' for the case's default map.
    seeds : sequence of int, or int
        N means 1 to N.
    settings : mapping
        Common settings by their Python name; ``solver`` is clarabel unless given.

    Raises
    ------
    InputError
        For an empty axis, a repeated value, or a setting that no run can have.
    """
    common = {"solver": "clarabel"} | dict(settings or {})
    for key in common:
        if key in OWN_AXIS:
            raise InputError(f"settings.{shown(key)} is not allowed: use the axis {OWN_AXIS[key]}")
        one_of("setting", key, (*SETTING_NAMES, "preset"))
    combined = (mechanisms, perturbations, refresh, updates)
    if schemes and any(combined):
        raise InputError("schemes exclude mechanisms, perturbations, refresh and updates")
    delta = common.get("target_delta", Settings.target_delta)
    return StudyPlan(
        cases=tuple(cases),
        schemes=tuple(schemes) or _combined(*combined),
        budgets=tuple(_budget(b, per_release, delta) for b in budgets),
        zonings=tuple(str(z) for z in zonings),
        local_updates=tuple(local_updates),
        load_scales=tuple(_number("load-scales", x) for x in load_scales),
        seeds=_seeds(seeds),
        settings=tuple(sorted((k, _frozen(v)) for k, v in common.items())),
        title=title,
        question=question,
        name=name,
    )


def _combined(
    mechanisms: Sequence[str],
    perturbations: Sequence[str],
    refresh: Sequence[str],
    updates: Sequence[str],
) -> tuple[Scheme, ...]:
    """Return a scheme per combination; ``refresh`` applies to demand perturbation only."""
    if not any((mechanisms, perturbations, refresh, updates)):
        return DEFAULT_SCHEMES
    found: dict[str, Scheme] = {}
    for mechanism, target, draw, update in product(
        mechanisms or ("laplace",), perturbations or ("demand",), refresh or ("",), updates or ("",)
    ):
        given: dict[str, Any] = {"mechanism": mechanism, "perturbation": target}
        if update:
            given["update"] = update
        if draw and target == "demand":
            given["refresh"] = draw
        words = [mechanism, target, f"per {given['refresh']}" if "refresh" in given else "", update]
        if mechanism == NO_NOISE:
            given = {"mechanism": NO_NOISE} | ({"update": update} if update else {})
            words = ["no noise", update]
        scheme = _scheme(", ".join(w for w in words if w), **given)
        found.setdefault(scheme.name, scheme)
    return tuple(found.values())


def _budget(value: float | str, per_release: bool, delta: float) -> str:
    if isinstance(value, str):
        if ":" in value:
            return value
        try:
            value = float(value)
        except ValueError:
            raise not_allowed(
                "budgets", value, "numbers, or total:E[,D] or per-release:E[,D]"
            ) from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise not_allowed("budgets", value, "numbers, or total:E[,D] or per-release:E[,D]")
    return f"per-release:{value:g}" if per_release else f"total:{value:g},{delta:g}"


def _number(axis: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise not_allowed(axis, value, "numbers")
    return float(value)


def _seeds(seeds: Sequence[int] | int) -> tuple[int, ...]:
    if isinstance(seeds, bool):
        raise not_allowed("seeds", seeds, "a number of seeds, or a list of whole numbers")
    if isinstance(seeds, int):
        if seeds < 1:
            raise not_allowed("seeds", seeds, "1 or more, or a list of whole numbers")
        return tuple(range(1, seeds + 1))
    if isinstance(seeds, str | float):
        raise not_allowed("seeds", seeds, "a number of seeds, or a list of whole numbers")
    return tuple(seeds)


def empty_axis(axis: str) -> InputError:
    """Return the error for an axis without values."""
    return InputError(f"{shown(axis)} = [] is not allowed: an axis needs at least one value")


def shown(name: str) -> str:
    """Return a setting's name as files and flags write it."""
    return name.replace("_", "-")


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
