"""The plan of a study of learning: its methods, budgets and seeds, and the file that says them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gridpriv.core.errors import InputError, not_allowed, one_of, whole
from gridpriv.core.files import read_table
from gridpriv.core.text import Json
from gridpriv.learning.algorithms import NON_PRIVATE, READS, SPECIFIC
from gridpriv.learning.algorithms.base import MEASURES
from gridpriv.learning.datasets import dataset_name
from gridpriv.learning.releases import protected
from gridpriv.learning.run import Tuning
from gridpriv.learning.settings import LearnSettings, make_learn_settings
from gridpriv.privacy.settings import NO_NOISE, parse_budget
from gridpriv.study.methods import Method, as_written, empty_axis
from gridpriv.study.plan import SETTINGS, Kind, at_scale, check_kinds, each, method_of, plain

DELTA = 1e-5
TITLE = "{}: algorithms at equal certified totals"
QUESTION = "Which algorithm errs least at equal certified privacy?"
# what methods may differ in, if it is allowed by name
DIFFERENCES = ("client-rounds", "units")

WHOLE: Kind = (lambda value: isinstance(value, int), "a whole number")
KINDS: dict[str, Kind] = {
    "budgets": (each(str), "a list of texts"),
    "allow": (each(str), "a list of texts"),
    "seeds": (
        lambda value: each(int)(value) and all(one >= 0 and one is not True for one in value),
        "a list of whole numbers, 0 or more",
    ),
    "methods": (each(dict), "tables"),
    "settings": SETTINGS,
    "tuning": (SETTINGS[0], "a table of lists"),
    "client_rounds": WHOLE,
    "data_seed": WHOLE,
}
TEXTS = ("title", "question", "dataset", "measure")


@dataclass(frozen=True)
class LearnPlan:
    """Plan of a study of learning.

    Attributes
    ----------
    dataset : str
        Of methods that name none.
    methods : tuple of Method
        Named settings over the common ones; ``preset``, ``dataset`` and ``budgets`` among them.
    budgets : tuple of str
        Of methods that name none: ``total:E,D`` or ``per-release:E[,D]``.
    settings : mapping
        Common to all methods, of which each gets what its algorithm reads.
    tuning : Tuning or None
        The grid that every method chooses from as far as it reads it.
    client_rounds : int or None
        Rounds of every method are this over its clients of a round.
    allowed : tuple of str
        What methods may differ in: ``client-rounds``, ``units``.
    measure : str
        A further figure of every evaluated round (:mod:`gridpriv.learning.algorithms.base`).
    data_seed : int or None
        See :class:`gridpriv.study.learned.Shelf`.
    """

    dataset: str
    methods: tuple[Method, ...]
    budgets: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Json = field(default_factory=dict)
    tuning: Tuning | None = None
    client_rounds: int | None = None
    allowed: tuple[str, ...] = ()
    measure: str = ""
    data_seed: int | None = None
    title: str = ""
    question: str = QUESTION

    def __post_init__(self) -> None:
        for axis in ("methods", "seeds"):
            if not getattr(self, axis):
                raise empty_axis(axis)
        names = [method.name for method in self.methods]
        if len(set(names)) < len(names):
            raise not_allowed("methods", names, "each name once")
        for name in self.allowed:
            one_of("allow", name, DIFFERENCES)
        if self.measure:
            one_of("measure", self.measure, MEASURES)
        if self.client_rounds is not None:
            whole("client-rounds", self.client_rounds)

    def trials(self) -> list[Trial]:
        """Return every run once; raises on the first setting that no run can have."""
        listed: list[Trial] = []
        for method in self.methods:
            given = dict(self.settings) | dict(method.settings)
            own = {name: given.pop(name, None) for name in ("dataset", "preset", "budgets")}
            budgets = tuple(own["budgets"] or self.budgets)
            dataset = own["dataset"] or self.dataset
            for budget, seed in _repeated(given, own["preset"], dataset, budgets, self.seeds):
                settings = self._settings(method, given, own["preset"], dataset, budget, seed)
                candidates = self.tuning.candidates(settings) if self.tuning else ()
                listed.append(
                    Trial(len(listed), dataset, method.name, settings, candidates, self.measure)
                )
        self._refuse_unlike(listed)
        return listed

    def _settings(
        self, method: Method, given: Json, preset: str | None, dataset: str, budget: str, seed: int
    ) -> LearnSettings:
        """Return a run's settings: of the common ones those that its algorithm reads."""
        own = dict(method.settings)
        base = make_learn_settings(dataset_name(dataset), preset)
        algorithm = given.get("algorithm", base.algorithm)
        one_of("algorithm", algorithm, READS)
        unread = SPECIFIC - READS[algorithm]
        chosen = {k: v for k, v in given.items() if k in own or k not in unread}
        chosen |= {"mechanism": NO_NOISE} if budget == NO_NOISE else {"budget": budget}
        if budget != NO_NOISE and parse_budget(budget).scope == "total":
            chosen.setdefault("target_delta", parse_budget(budget).delta or DELTA)
        settings = make_learn_settings(
            dataset_name(dataset), preset, **(chosen | {"algorithm": algorithm, "seed": seed})
        )
        if self.client_rounds is None or algorithm == "centralized":
            return settings
        return replace(settings, rounds=max(1, self.client_rounds // _participants(settings)))

    def _refuse_unlike(self, trials: Sequence[Trial]) -> None:
        """Refuse methods that cannot be compared: other units of privacy, or other effort."""
        noisy = [t for t in trials if t.budget != NO_NOISE]
        trained = [t for t in trials if t.settings.algorithm != "centralized"]
        for what, of, why, some in (
            (
                "units",
                _unit,
                "protect different things, so that their budgets do not compare",
                noisy,
            ),
            ("client-rounds", client_rounds, "train with unequal client-rounds", trained),
        ):
            for dataset in dict.fromkeys(t.dataset for t in some):
                by_unit = {of(t.settings): t.method for t in reversed(some) if t.dataset == dataset}
                if len(by_unit) > 1 and what not in self.allowed:
                    units = "; ".join(f"{method}: {unit}" for unit, method in by_unit.items())
                    more = " give --client-rounds N, or" if what == "client-rounds" else ""
                    raise InputError(
                        f"these methods {why} ({units}):{more} leave one out, or allow it by name "
                        f"(--allow {what})"
                    )

    def as_dict(self) -> Json:
        """Return the plan with the keys of a study file."""
        document = {
            "dataset": self.dataset,
            "budgets": list(self.budgets),
            "seeds": list(self.seeds),
            "settings": as_written(self.settings),
            "methods": [method.as_dict() for method in self.methods],
            "tuning": None if self.tuning is None else self.tuning.as_dict(),
            "client-rounds": self.client_rounds,
            "allow": list(self.allowed),
            "measure": self.measure,
            "data-seed": self.data_seed,
        }
        return {key: value for key, value in document.items() if value not in (None, [], {}, "")}


@dataclass(frozen=True)
class Trial:
    """One run of a study.

    Attributes
    ----------
    number : int
        Position in the tables.
    settings : LearnSettings
        Where candidates are given, what they share.
    candidates : tuple of LearnSettings
        What the run chooses from; empty without tuning.
    """

    number: int
    dataset: str
    method: str
    settings: LearnSettings
    candidates: tuple[LearnSettings, ...] = ()
    measure: str = ""

    @property
    def budget(self) -> str:
        """Noise of the run."""
        return self.settings.drawn

    @property
    def id(self) -> str:
        """Identity: the same settings have the same name in every session."""
        given = [s.as_given() for s in (self.settings, *self.candidates)]
        identity = json.dumps([self.dataset, self.method, self.budget, given], sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()[:16]


def read_learn_plan(path: Path, scale: str = "quick") -> LearnPlan:
    """Return the plan of a study file; its table ``full`` changes it at that scale."""
    given = read_table(path, "study file")
    document = plain(at_scale(given, scale, (*TEXTS, *KINDS)))
    check_kinds(document, KINDS, (lambda value: isinstance(value, str), "a text"))
    tuning = document.pop("tuning", None)
    return LearnPlan(
        dataset=document.pop("dataset", ""),
        methods=tuple(map(method_of, document.pop("methods", []))),
        budgets=tuple(document.pop("budgets", ())),
        seeds=tuple(document.pop("seeds", (0,))),
        settings=plain(document.pop("settings", {})),
        tuning=None if tuning is None else Tuning.of(dict(tuning)),
        allowed=tuple(document.pop("allow", ())),
        **document,
    )


def _participants(settings: LearnSettings) -> int:
    return settings.sampled_clients or settings.clients or 1


def client_rounds(settings: LearnSettings) -> int:
    """Return the total number of client-rounds of a run."""
    return settings.rounds * _participants(settings)


def _unit(settings: LearnSettings) -> str:
    return protected(settings.algorithm, settings.adjacency, settings.trust)


def _repeated(
    given: Json, preset: str | None, dataset: str, budgets: tuple[str, ...], seeds: tuple[int, ...]
) -> list[tuple[str, int]]:
    """Return the budgets and seeds of a method; without noise no budget."""
    base = make_learn_settings(dataset_name(dataset), preset)
    quiet = given.get("mechanism") == NO_NOISE
    if quiet or given.get("algorithm", base.algorithm) in NON_PRIVATE:
        return [(NO_NOISE, seed) for seed in seeds]
    if not budgets:
        raise empty_axis("budgets")
    return [(str(parse_budget(budget)), seed) for budget in budgets for seed in seeds]
