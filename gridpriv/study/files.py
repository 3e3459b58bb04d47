"""Study files: a plan as TOML or JSON, read with every key checked, and written back."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gridpriv.core.document import Json
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.reading import MIB, read_text
from gridpriv.core.settings import check_names
from gridpriv.study.plan import (
    DEFAULT_QUESTION,
    DEFAULT_SEEDS,
    DEFAULT_TITLE,
    StudyPlan,
    make_plan,
)
from gridpriv.study.schemes import PLURALS, SCHEME_AXES, Scheme, empty_axis, shown

SCALARS = ("title", "question", "per_release", "seeds", "reference", "settings", "schemes")
AXES = ("cases", "zonings", "budgets", "local_updates", "load_scales", *PLURALS, *SCHEME_AXES)


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
    try:
        text = read_text(file, "study file", MIB)
        given = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"study file {file}: {error}") from error
    if not isinstance(given, dict):
        raise InputError(f"study file {file}: a table of keys is expected")
    try:
        return plan_from(at_scale(given, scale, (*SCALARS, *AXES)), file.stem)
    except InputError as error:
        raise InputError(f"study file {file}: {error}") from None


def at_scale(given: Json, scale: str, known: Sequence[str]) -> Json:
    """Return a study file's content at a scale: its table ``full`` changes it at that one."""
    given = dict(given)
    full = given.pop("full", {})
    if not isinstance(full, dict):
        raise not_allowed("full", full, "a table of keys that are other at the full scale")
    check_names([*given, *full], known)
    if scale == "full":
        given["schemes"] = given.get("schemes", []) + full.pop("schemes", [])
        given["settings"] = given.get("settings", {}) | full.pop("settings", {})
        given |= full
    return given


def plan_from(given: Json, name: str = "") -> StudyPlan:
    """Return the plan of a study file's content (:meth:`StudyPlan.as_dict` gives it back)."""
    check_names(given, (*SCALARS, *AXES))
    told = {key.replace("-", "_"): value for key, value in given.items()}
    axes = {key: _list(key, value) for key, value in told.items() if key not in SCALARS}
    if "cases" not in axes:
        raise InputError("cases is missing: a list of cases, such as cases = ['case14']")
    if not axes.get("local_updates", [1]):
        del axes["local_updates"]
    for key, values in axes.items():
        if not values:
            raise empty_axis(key)
    return make_plan(
        axes.pop("cases"),
        per_release=_bool("per-release", told.get("per_release", False)),
        schemes=[_scheme(s) for s in _tables("schemes", told.get("schemes", []))],
        seeds=told.get("seeds", DEFAULT_SEEDS),
        settings=_settings("settings", told.get("settings", {})),
        reference=_bool("reference", told.get("reference", True)),
        title=str(told.get("title", DEFAULT_TITLE)),
        question=str(told.get("question", DEFAULT_QUESTION)),
        name=name,
        **axes,
    )


def to_toml(plan: StudyPlan) -> str:
    """Return the plan as a study file."""
    told = plan.as_dict()
    schemes, settings = told.pop("schemes"), told.pop("settings")
    if not told["local-updates"]:
        del told["local-updates"]
    lines = [f"{key} = {_value(value)}" for key, value in told.items()]
    lines += ["", "[settings]", *(f"{k} = {_value(v)}" for k, v in settings.items())]
    for scheme in schemes:
        lines += ["", "[[schemes]]", *(f"{k} = {_value(v)}" for k, v in scheme.items())]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    """Return a value as TOML; JSON's strings, numbers, arrays and booleans are also TOML's."""
    return json.dumps(value, ensure_ascii=False)


def _scheme(table: Json) -> Scheme:
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise not_allowed("schemes.name", name, "a text that names the scheme")
    rest = {k: v for k, v in table.items() if k != "name"}
    return Scheme(name, tuple(sorted(_settings(f"scheme {name!r}", rest).items())))


def _settings(where: str, table: object) -> Json:
    if not isinstance(table, dict):
        raise not_allowed(where, table, "a table of settings")
    return {
        key.replace("-", "_"): tuple(v) if isinstance(v, list) else v for key, v in table.items()
    }


def _list(key: str, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise not_allowed(shown(key), value, "a list")
    return value


def _bool(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise not_allowed(key, value, "true or false")
    return value


def _tables(key: str, value: object) -> list[Json]:
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise not_allowed(key, value, "tables, each under [[schemes]]")
    return value
