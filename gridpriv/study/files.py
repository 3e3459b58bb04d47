"""Study files: a plan as TOML, read with every key checked, and written back."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from gridpriv.core.errors import InputError, not_allowed, one_of
from gridpriv.study.plan import (
    DEFAULT_BUDGETS,
    DEFAULT_QUESTION,
    DEFAULT_SEEDS,
    SETTING_NAMES,
    Scheme,
    StudyPlan,
    empty_axis,
    make_plan,
    shown,
)

LISTS = (
    "cases", "zonings", "budgets", "mechanisms", "perturbations", "refresh", "updates",
    "local-updates", "load-scales",
)  # fmt: skip
KEYS = ("title", "question", "per-release", "seeds", "settings", "schemes", *LISTS)
SETTING_KEYS = ("preset", *(shown(name) for name in SETTING_NAMES))


def bundled(name: str) -> Path:
    """Return the path of a study file that comes with gridpriv."""
    return Path(__file__).parent / "bundled" / f"{name}.toml"


def read_plan(path: str | Path) -> StudyPlan:
    """Read a study file.

    Raises
    ------
    InputError
        Naming the file and the key: an unknown key (with the nearest known one), an empty
        axis, a value of the wrong kind, or TOML that cannot be read (with its line).
    """
    file = Path(path)
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"study file {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"study file {file}: {error}") from error
    try:
        return plan_from(given, file.stem)
    except InputError as error:
        raise InputError(f"study file {file}: {error}") from None


def plan_from(given: dict[str, Any], name: str = "") -> StudyPlan:
    """Return the plan of a study file's content (:meth:`StudyPlan.as_dict` gives it back)."""
    for key in given:
        one_of("key", key, KEYS)
    axes = {key: _list(key, given[key]) for key in LISTS if key in given}
    if "cases" not in axes:
        raise InputError("cases is missing: a list of cases, such as cases = ['case14']")
    if not axes.get("local-updates", [1]):
        del axes["local-updates"]
    for key, values in axes.items():
        if not values:
            raise empty_axis(key)
    return make_plan(
        axes["cases"],
        budgets=axes.get("budgets", DEFAULT_BUDGETS),
        per_release=_bool("per-release", given.get("per-release", False)),
        schemes=[_scheme(s) for s in _tables("schemes", given.get("schemes", []))],
        mechanisms=axes.get("mechanisms", ()),
        perturbations=axes.get("perturbations", ()),
        refresh=axes.get("refresh", ()),
        updates=axes.get("updates", ()),
        zonings=axes.get("zonings", ("",)),
        local_updates=axes.get("local-updates", ()),
        load_scales=axes.get("load-scales", (1.0,)),
        seeds=given.get("seeds", DEFAULT_SEEDS),
        settings=_settings("settings", given.get("settings", {})),
        title=str(given.get("title", "Privacy budgets compared")),
        question=str(given.get("question", DEFAULT_QUESTION)),
        name=name,
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


def _value(value: Any) -> str:
    """Return a value as TOML; JSON's strings, numbers, arrays and booleans are also TOML's."""
    return json.dumps(value, ensure_ascii=False)


def _scheme(table: dict[str, Any]) -> Scheme:
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise not_allowed("schemes.name", name, "a text that names the scheme")
    rest = {k: v for k, v in table.items() if k != "name"}
    return Scheme(name, tuple(sorted(_settings(f"scheme {name!r}", rest).items())))


def _settings(where: str, table: Any) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise not_allowed(where, table, "a table of settings")
    for key in table:
        one_of(f"{where}: key", key, SETTING_KEYS)
    return {
        key.replace("-", "_"): tuple(v) if isinstance(v, list) else v for key, v in table.items()
    }


def _list(key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise not_allowed(key, value, "a list")
    return value


def _bool(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise not_allowed(key, value, "true or false")
    return value


def _tables(key: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise not_allowed(key, value, "tables, each under [[schemes]]")
    return value
