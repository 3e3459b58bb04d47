"""Plans of studies: methods over axes, each combination once per seed.

A *method* is a named set of settings (``demand per round``): those of every comparison, those of a
study, and those of axes, as far as their values have a meaning with the others.

An *axis* is a list of values that every method is run at: budgets, local updates, load scales,
zonings, cases, and any other setting, whose values become separate methods. Seeds repeat each
noisy combination. All settings are validated when the plan is expanded, before anything runs.

A study file is a plan as TOML or JSON, read with every key checked, and written back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

from gridpriv.core.errors import InputError, not_allowed, positive, whole
from gridpriv.core.files import read_table
from gridpriv.core.settings import check_names, names, settings_of, written
from gridpriv.core.text import Json, clean
from gridpriv.privacy import settings as privacy
from gridpriv.zonal.settings import PRIOR_ONLY, Adjacency, ReleaseSchedule, Settings, make_settings

# settings with their own axis, which [settings] and methods may not have
OWN_AXIS = {"seed": "seeds", "load_scale": "load-scales", "budget": "budgets"}
# axes of the protection of demand: any of them replaces the default methods
OF_RELEASE = ("mechanism", "perturbation", "release", "noise_schedule", "update")
METHOD_AXES = tuple(n for n in names(Settings) if n not in (*OWN_AXIS, "local_updates", "outage"))
OF_NOISE = (*names(privacy.Privacy), *names(Adjacency), *names(ReleaseSchedule))
NOT_IN_BASELINE = (*OF_NOISE, "workers")  # without effect on a run without noise


def as_written(given: Mapping[str, Any]) -> Json:
    """Return settings in the notation of a study file."""
    return {shown(name): written(value) for name, value in given.items()}


@dataclass(frozen=True)
class Method:
    """A name and its settings.

    Attributes
    ----------
    name : str
    settings : tuple of (str, value)
        Over the study's common settings; ``preset`` may be among them.
    """

    name: str
    settings: tuple[tuple[str, Any], ...] = ()

    def as_dict(self) -> Json:
        """Return the method as a table of a study file."""
        return {"name": self.name} | as_written(dict(self.settings))


def make_method(name: str, **settings: Any) -> Method:
    """Return a method, its settings in the order of their names, lists as tuples."""
    frozen = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    return Method(name, tuple(sorted(frozen.items())))


REFERENCES = {
    privacy.NO_NOISE: make_method("noise-free", mechanism=privacy.NO_NOISE),
    privacy.NOTHING: make_method("prior-only", **PRIOR_ONLY),
}
"""Baselines of noisy methods, by their noise."""

DEFAULT_METHODS = (
    REFERENCES[privacy.NO_NOISE],
    make_method("noise-free, Ryu-Kim update", preset="ryu-kim", mechanism=privacy.NO_NOISE),
    REFERENCES[privacy.NOTHING],
    *(
        make_method(
            f"Ryu-Kim {target}, {noise.capitalize()}",
            preset="ryu-kim",
            sensitivity="proven",
            perturbation=target,
            mechanism=noise,
        )
        for target in ("objective", "output")
        for noise in ("laplace", "gaussian")
    ),
    make_method("demand, every round", perturbation="demand", noise_schedule="round"),
    make_method("demand, one-shot", perturbation="demand", noise_schedule="once"),
)


def methods_at(
    methods: tuple[Method, ...], axes: Mapping[str, Sequence[Any]]
) -> tuple[Method, ...]:
    """Return the methods at every combination of the axes' values, as far as they apply."""
    for axis, values in axes.items():
        if isinstance(values, str):
            raise not_allowed(shown(axis), values, "a list")
        if not values:
            raise empty_axis(axis)
    if not methods and any(axis in axes for axis in OF_RELEASE):
        methods = (Method(""),)
        axes = {"perturbation": ("demand",)} | dict(axes)
    methods_by_label: dict[str, Method] = {}
    for method, *values in product(methods or DEFAULT_METHODS, *axes.values()):
        own, chosen = dict(method.settings), dict(zip(axes, values, strict=True))
        if {noise_budget_of(own), noise_budget_of(chosen | own)} <= set(privacy.NO_BUDGET):
            chosen = {name: value for name, value in chosen.items() if name not in OF_NOISE}
        chosen |= own
        given = {name: value for name, value in chosen.items() if _applies(name, chosen)}
        added = [n for n in (*OF_RELEASE, *axes) if n in given and n not in dict(method.settings)]
        words = [method.name, *(word_of(name, given[name]) for name in dict.fromkeys(added))]
        label = ", ".join(word for word in words if word)
        labelled = make_method(label, **given)
        if methods_by_label.setdefault(label, labelled) != labelled:
            raise not_allowed("methods", label, "each name once")
    return tuple(methods_by_label.values())


def noise_budget_of(given: Json) -> str:
    """Return the noise budget of settings with a preset; empty if they are refused."""
    settings = effective(given)
    return "" if settings is None else settings.noise_budget


def effective(given: Json) -> Settings | None:
    """Return settings made from values, possibly with a preset; None if they are refused."""
    own = dict(given)
    try:
        return make_settings(own.pop("preset", None), **own)
    except InputError:  # with the common settings they may be valid; otherwise the tasks raise
        return None


def _applies(name: str, given: Json) -> bool:
    """Return True if a setting applies to the other ones."""
    if given.get("mechanism") == privacy.NO_NOISE:
        return name == "mechanism" or name not in OF_NOISE
    return name != "noise_schedule" or given.get("perturbation", "demand") == "demand"


def word_of(name: str, value: object) -> str:
    """Return a setting's value in the name of a method."""
    if name in OF_RELEASE:
        word = "noise-free" if value == privacy.NO_NOISE else str(value)
        return {"noise_schedule": f"per {value}", "release": f"release {value}"}.get(name, word)
    return f"{shown(name)} {value}"


def empty_axis(axis: str) -> InputError:
    """Return the error for an axis without values."""
    return InputError(f"{shown(axis)} = []: must be a list of one value or more")


def shown(name: str) -> str:
    """Return a setting's name in the notation of files and flags."""
    return name.replace("_", "-")


DEFAULT_BUDGETS = (0.5, 1.0, 5.0, 10.0)
DEFAULT_SEEDS = (1, 2, 3, 4, 5)
MOST_SEEDS = 100_000
DEFAULT_TITLE = "Methods compared"
DEFAULT_QUESTION = "Which method protects demand at the lowest cost?"


@dataclass(frozen=True)
class StudyTask:
    """One run of a study.

    Attributes
    ----------
    number : int
        Position in the plan and in tables.
    case, zoning, method : str
        Labels; ``zoning`` is empty for the default map.
    settings : Settings
        All settings of the run, including its seed.
    """

    number: int
    case: str
    zoning: str
    method: str
    settings: Settings

    @property
    def budget(self) -> str:
        """Budget of the noise, or ``none`` or ``nothing``."""
        return self.settings.noise_budget

    @cached_property
    def id(self) -> str:
        """Identity: the same combination has the same name in every process and session."""
        labels = [self.case, self.zoning, self.method, self.budget, self.settings.as_dict()]
        return hashlib.sha256(json.dumps(labels, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class StudyPlan:
    """A grid of settings.

    Attributes
    ----------
    cases : tuple of str
    methods : tuple of Method
    budgets : tuple of Budget
    zonings : tuple of str
        ``''`` (the case's default map), ``K``, ``METHOD:K`` or a CSV file; ``CASE=MAP`` for one
        case, which then has its own maps only.
    local_updates : tuple of int
        For methods without their own; empty: those of each method.
    load_scales : tuple of float
    seeds : tuple of int
    settings : tuple of (str, value)
        Common to all methods.
    reference : bool
        True if :attr:`references` are run too.
    title, question : str
        For the report.
    """

    cases: tuple[str, ...]
    methods: tuple[Method, ...] = DEFAULT_METHODS
    budgets: tuple[privacy.Budget, ...] = ()
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
        for axis in ("cases", "methods", "budgets", "zonings", "load_scales", "seeds"):
            if not getattr(self, axis):
                raise empty_axis(axis)
        for axis in ("cases", "budgets", "zonings", "local_updates", "load_scales", "seeds"):
            values = [str(value) for value in getattr(self, axis)]
            if len(set(values)) < len(values):
                raise not_allowed(shown(axis), values, "each value once")
        names = [clean(method.name) for method in self.methods]
        if len(set(names)) < len(names):
            raise not_allowed("methods", names, "each name once")
        for taken in sorted({clean(r.name) for r in self.references} & set(names)):
            raise not_allowed(
                "methods.name",
                taken,
                "another name: a reference that the study adds has this one (or leave references "
                "out: reference = false, --no-reference)",
            )
        for case in self.cases:
            if not isinstance(case, str) or not case:
                raise not_allowed("cases", case, "names of cases, or paths")
        for zoning in self.zonings:
            if "=" in self._case_and_map(zoning)[1] and not zoning.endswith(".csv"):
                known = ", ".join(self.cases)
                allowed = f"CASE=MAP with one of the cases as given ({known})"
                raise not_allowed("zonings", zoning, allowed)
        for seed in self.seeds:
            whole("seeds", seed, least=0)

    @property
    def grids(self) -> list[tuple[str, str]]:
        """Cases with their zone maps: those given for a case, or those given for all."""
        pairs = [self._case_and_map(zoning) for zoning in self.zonings]
        common = [zoning for case, zoning in pairs if not case] or [""]
        own = {name: [zoning for case, zoning in pairs if case == name] for name in self.cases}
        return [(case, zoning) for case in self.cases for zoning in own[case] or common]

    def _case_and_map(self, zoning: str) -> tuple[str, str]:
        """Return the case that a zone map is for (empty: all of them), and the map."""
        case = next((case for case in self.cases if zoning.startswith(f"{case}=")), "")
        return case, zoning[len(case) + 1 :] if case else zoning

    @cached_property
    def references(self) -> tuple[Method, ...]:
        """Noise-free and prior-only baselines of noisy methods.

        One for each choice of settings other than noise, whatever their notation; none of a kind
        that the study has itself.
        """
        common = dict(self.settings)
        drawn = [noise_budget_of(common | dict(method.settings)) for method in self.methods]
        baselines: dict[str, Json] = {}
        for method, noise in zip(self.methods, drawn, strict=True):
            if noise not in privacy.NO_BUDGET:
                baseline = {k: v for k, v in method.settings if k not in NOT_IN_BASELINE}
                baselines.setdefault(self._baseline_key(baseline), baseline)
        missing = [m for kind, m in REFERENCES.items() if kind not in drawn and self.reference]
        return tuple(
            make_method(
                ", ".join([item.name, *(word_of(k, v) for k, v in baseline.items())]),
                **(baseline | dict(item.settings)),
            )
            for item, baseline in product(missing, baselines.values())
        )

    def _baseline_key(self, baseline: Json) -> str:
        """Return a key of the baseline run of such settings: equal for equal runs."""
        own = baseline.get("local_updates") if self.local_updates else None  # wins over the axis
        settings = effective(dict(self.settings) | baseline | {"mechanism": privacy.NO_NOISE})
        given = baseline if settings is None else settings.as_dict()
        compared = {k: str(v) for k, v in given.items() if k not in NOT_IN_BASELINE}
        return json.dumps([own, compared], sort_keys=True)

    def tasks(self) -> tuple[StudyTask, ...]:
        """Return every run once, in the order of the tables; raises on the first bad setting."""
        for method in self.methods:  # before the baselines, which the plan adds
            for key, value in method.settings:
                if key != "preset":
                    _check_setting(f"method {method.name!r}", key, value)
        seen: dict[str, StudyTask] = {}
        methods, updates = (*self.references, *self.methods), self.local_updates or (None,)
        axes = self.grids, self.load_scales, methods, updates, self.budgets
        for grid, scale, method, number, budget in product(*axes):
            given = {"load_scale": scale} | ({} if number is None else {"local_updates": number})
            for task in self._repeated(grid, method, given, budget):
                seen.setdefault(task.id, task)
        return tuple(replace(task, number=number) for number, task in enumerate(seen.values()))

    def _repeated(
        self, grid: tuple[str, str], method: Method, axes: Json, budget: privacy.Budget
    ) -> Iterator[StudyTask]:
        # a method's own settings win over an axis
        given = dict(self.settings) | axes | dict(method.settings)
        if given.get("noise") == "secure":
            raise not_allowed("noise", "secure", "simulated: a study repeats its runs by seed")
        own = partial(make_settings, given.pop("preset", None), **given)
        try:
            first = own(budget=budget, seed=self.seeds[0])
            if first.noise_budget in privacy.NO_BUDGET:  # budgets and seeds have no effect
                runs = [own(seed=self.seeds[0])]
            else:
                runs = [replace(first, seed=seed) for seed in self.seeds]
        except InputError as error:
            raise InputError(f"method {method.name!r}: {error}") from None
        for settings in runs:
            yield StudyTask(0, *grid, method.name, settings)

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
            "settings": as_written(dict(self.settings)),
            "methods": [method.as_dict() for method in self.methods],
        }


def make_plan(
    cases: Sequence[str],
    *,
    budgets: Sequence[float | str] = DEFAULT_BUDGETS,
    per_release: bool = False,
    methods: Sequence[Method] = (),
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
    methods : sequence of Method
        Named settings; unless given :data:`DEFAULT_METHODS`, or one per
        combination of the axes ``mechanism``, ``perturbation``, ``noise_schedule`` and ``update``.
    zonings : sequence of str or int
        ``K``, ``METHOD:K``, a CSV file, or '' for the case's default map; for one case
        ``CASE=MAP``.
    local_updates : sequence of int
        Values of E; those of each method unless given.
    load_scales : sequence of float
        Factors on every demand.
    seeds : sequence of int, or int
        N means 1 to N.
    settings : mapping
        Common settings by their Python name.
    reference : bool
        Also run the zones of noisy methods without noise and with prior-only
        (:attr:`StudyPlan.references`).
    title, question, name : str
        Title and question of the report, and name of its folder.
    **axes : sequence
        Values of any other setting, by its name; each method is run at each. A method's own
        value wins.

    Raises
    ------
    InputError
        For an empty axis, a repeated value, or a setting that no run can have.
    """
    common = dict(settings or {})
    own = [(f"method {method.name!r}", dict(method.settings)) for method in methods]
    for where, current in [("settings", common), *own]:
        for key in current:
            if key in OWN_AXIS:
                raise InputError(
                    f"{where}: {shown(key)}: must be left out: use the axis {OWN_AXIS[key]}"
                )
        check_names(current, (*names(Settings), "preset"))
    check_names(axes, (*METHOD_AXES, *(make_plan.__kwdefaults__ or ())))
    delta = common.get("target_delta") or privacy.TOTAL_DELTA
    return StudyPlan(
        cases=tuple(cases),
        methods=methods_at(tuple(methods), axes),
        budgets=tuple(_budget(b, per_release, delta) for b in budgets),
        zonings=tuple(str(z) for z in zonings),
        local_updates=tuple(local_updates),
        load_scales=tuple(_number("load-scales", x) for x in load_scales),
        seeds=_seeds(seeds),
        settings=make_method("", **common).settings,
        reference=reference,
        title=title,
        question=question,
        name=name,
    )


def _check_setting(where: str, key: str, value: object) -> None:
    """Raise the error of one setting's value, with the name of its source."""
    try:
        settings_of(Settings)[key].validated(key, value)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _budget(value: float | str | privacy.Budget, per_release: bool, delta: float) -> privacy.Budget:
    if isinstance(value, privacy.Budget):
        return value
    try:
        if isinstance(value, str) and ":" in value:
            return privacy.parse_budget(value.replace(";", ","))  # commas separate budgets
        epsilon = float(value)
    except InputError as error:
        allowed = error.setting[2].replace("[,D]", "[;D]") if error.setting else str(error)
        form = f"{allowed}; commas separate budgets, as in 'total:1;1e-5,total:5;1e-5'"
        raise not_allowed("budgets", value, form) from None
    except (ValueError, TypeError, OverflowError):
        allowed = "a number, total:E[;D] or per-release:E[;D], such as 1 or total:5;1e-5"
        raise not_allowed("budgets", value, allowed) from None
    positive("budgets", epsilon)
    if per_release:
        return privacy.Budget("per-release", epsilon)
    return privacy.Budget("total", epsilon, delta)


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


SCALARS = ("title", "question", "per_release", "seeds", "reference", "settings", "methods")
AXES = ("cases", "zonings", "budgets", "local_updates", "load_scales", *METHOD_AXES)

Kind = tuple[Callable[[Any], bool], str]
"""Kind of a file's entry: the test of a value, and its name."""


def each(kind: type) -> Callable[[Any], bool]:
    """Return the check that a value is a list of a kind."""
    return lambda value: isinstance(value, list) and all(isinstance(item, kind) for item in value)


FLAG: Kind = (lambda value: isinstance(value, bool), "true or false")
SETTINGS: Kind = (lambda value: isinstance(value, dict), "a table of settings")
ANY: Kind = (lambda _: True, "")  # checked later, or converted to text
KINDS = {
    "title": ANY,
    "question": ANY,
    "seeds": ANY,
    "per_release": FLAG,
    "reference": FLAG,
    "settings": SETTINGS,
    "methods": (each(dict), "tables, each under [[methods]]"),
}


def read_plan(path: str | Path, scale: str = "quick") -> StudyPlan:
    """Read a study file: TOML, or JSON if its name ends in ``.json``.

    Parameters
    ----------
    path : path
    scale : {'quick', 'full'}
        At ``full`` the file's table of that name changes it, if it has one.

    Returns
    -------
    StudyPlan

    Raises
    ------
    InputError
        Naming the file and the key: an unknown key (with the nearest known one), an empty
        axis, a value of the wrong kind, or TOML that cannot be read (with its line).
    """
    file = Path(path)
    given = read_table(file, "study file")
    try:
        return plan_from(at_scale(given, scale, (*SCALARS, *AXES)), file.stem)
    except InputError as error:
        raise InputError(f"study file {file}: {error}") from None


def at_scale(given: Json, scale: str, known: Iterable[str]) -> Json:
    """Return a study file's content at a scale: its table ``full`` changes it at ``full``."""
    given = dict(given)
    full = given.pop("full", {})
    if not isinstance(full, dict):
        raise not_allowed("full", full, "a table of keys that are other at the full scale")
    check_names([*given, *full], known)
    if scale == "full":
        given["methods"] = given.get("methods", []) + full.pop("methods", [])
        given["settings"] = given.get("settings", {}) | full.pop("settings", {})
        given |= full
    return given


def plan_from(given: Json, name: str = "") -> StudyPlan:
    """Return the plan of a study file's content (:meth:`StudyPlan.as_dict` gives it back)."""
    check_names(given, (*SCALARS, *AXES))
    text = plain(given)
    check_kinds(text, KINDS, (each(object), "a list"))
    if "cases" not in text:
        raise InputError("cases is missing: a list of cases, such as cases = ['case14']")
    if not text.get("local_updates", [1]):
        del text["local_updates"]
    for key, values in text.items():
        if key not in SCALARS and not values:
            raise empty_axis(key)
    text["methods"] = [method_of(table) for table in text.get("methods", [])]
    text["settings"] = plain(text.get("settings", {}))
    text |= {key: str(text[key]) for key in ("title", "question") if key in text}
    return make_plan(text.pop("cases"), name=name, **text)


def to_toml(plan: StudyPlan) -> str:
    """Return the plan as a study file."""
    text = plan.as_dict()
    methods, settings = text.pop("methods"), text.pop("settings")
    lines = [f"{key} = {_value(v)}" for key, v in text.items() if v not in ([], [""])]
    lines += ["", "[settings]", *(f"{k} = {_value(v)}" for k, v in settings.items())]
    for method in methods:
        lines += ["", "[[methods]]", *(f"{k} = {_value(v)}" for k, v in method.items())]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    """Return a value as TOML; JSON's strings, numbers, arrays and booleans are also TOML's."""
    return json.dumps(value, ensure_ascii=False)


def method_of(table: Json) -> Method:
    """Return the method of a file's table, its name among its settings."""
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise not_allowed("methods.name", name, "a text that names the method")
    return make_method(name, **plain({k: v for k, v in table.items() if k != "name"}))


def plain(given: Json) -> Json:
    """Return a file's keys as Python names."""
    return {key.replace("-", "_"): value for key, value in given.items()}


def check_kinds(document: Json, kinds: Mapping[str, Kind], other: Kind) -> None:
    """Refuse an entry that is of another kind than its key's, or than ``other`` for the rest."""
    for key, value in document.items():
        of_kind, words = kinds.get(key, other)
        if not of_kind(value):
            raise not_allowed(shown(key), value, words)
