"""Study files: a plan as TOML or JSON, read with every key checked, and written back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gridpriv.core.document import Json
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.reading import read_table
from gridpriv.core.settings import check_names
from gridpriv.study.methods import PLURALS, SCHEME_AXES, Method, empty_axis, make_method, shown
from gridpriv.study.plan import DEFAULT_QUESTION, DEFAULT_SEEDS, DEFAULT_TITLE, StudyPlan, make_plan

SCALARS = ("title", "question", "per_release", "seeds", "reference", "settings", "methods")
AXES = ("cases", "zonings", "budgets", "local_updates", "load_scales", *PLURALS, *SCHEME_AXES)

Kind = tuple[Callable[[Any], bool], str]
"""Of a file's entry: whether a value is of it, and in words."""


def each(kind: type) -> Callable[[Any], bool]:
    """Return the check that a value is a list of a kind."""
    return lambda value: isinstance(value, list) and all(isinstance(item, kind) for item in value)


FLAG: Kind = (lambda value: isinstance(value, bool), "true or false")
SETTINGS: Kind = (lambda value: isinstance(value, dict), "a table of settings")
ANY: Kind = (lambda _: True, "")  # looked at later, or made a text
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
    """Return a study file's content at a scale: its table ``full`` changes it at that one."""
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
    axes = {key: value for key, value in text.items() if key not in SCALARS}
    if "cases" not in axes:
        raise InputError("cases is missing: a list of cases, such as cases = ['case14']")
    if not axes.get("local_updates", [1]):
        del axes["local_updates"]
    for key, values in axes.items():
        if not values:
            raise empty_axis(key)
    return make_plan(
        axes.pop("cases"),
        per_release=text.get("per_release", False),
        methods=[method_of(table) for table in text.get("methods", [])],
        seeds=text.get("seeds", DEFAULT_SEEDS),
        settings=plain(text.get("settings", {})),
        reference=text.get("reference", True),
        title=str(text.get("title", DEFAULT_TITLE)),
        question=str(text.get("question", DEFAULT_QUESTION)),
        name=name,
        **axes,
    )


def to_toml(plan: StudyPlan) -> str:
    """Return the plan as a study file."""
    text = plan.as_dict()
    methods, settings = text.pop("methods"), text.pop("settings")
    if not text["local-updates"]:
        del text["local-updates"]
    lines = [f"{key} = {_value(value)}" for key, value in text.items()]
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
    """Return a file's keys as Python names them."""
    return {key.replace("-", "_"): value for key, value in given.items()}


def check_kinds(document: Json, kinds: Mapping[str, Kind], other: Kind) -> None:
    """Refuse an entry that is of another kind than its key's, or than ``other`` for the rest."""
    for key, value in document.items():
        of_kind, words = kinds.get(key, other)
        if not of_kind(value):
            raise not_allowed(shown(key), value, words)
