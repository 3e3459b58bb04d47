"""Methods: named settings, those of every comparison, and those that axes make.

A *method* is a named set of settings (``demand per round``). The values of an axis become methods
of their own, as far as they have a meaning beside the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.settings import names, written
from gridpriv.core.text import Json
from gridpriv.privacy.settings import NO_NOISE, NOTHING, QUIET, Privacy
from gridpriv.zonal.settings import PRIOR_ONLY, Adjacency, ReleaseSchedule, Settings, make_settings

# settings that have their own axis, so that [settings] and methods may not hold them
OWN_AXIS = {"seed": "seeds", "load_scale": "load-scales", "budget": "budgets"}
# axes that say how demand is protected: given one of them, they replace the default methods
OF_RELEASE = ("mechanism", "perturbation", "release", "noise_schedule", "update")
SCHEME_AXES = tuple(
    name for name in names(Settings) if name not in (*OWN_AXIS, "local_updates", "outage")
)
OF_NOISE = (*names(Privacy), *names(Adjacency), *names(ReleaseSchedule))
BESIDE_GROUND = (*OF_NOISE, "workers")  # change nothing of a run that draws no noise


def as_written(given: Mapping[str, Any]) -> Json:
    """Return settings as a study file writes them."""
    return {shown(name): written(value) for name, value in given.items()}


@dataclass(frozen=True)
class Method:
    """A name and the settings that make it.

    Attributes
    ----------
    name : str
    settings : tuple of (str, value)
        Over the study's common settings; ``preset`` may be among them.
    """

    name: str
    settings: tuple[tuple[str, Any], ...] = ()

    def as_dict(self) -> Json:
        """Return the method as a study file's table."""
        return {"name": self.name} | as_written(dict(self.settings))


def make_method(name: str, **settings: Any) -> Method:
    """Return a method, its settings in the order of their names, lists as tuples."""
    frozen = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    return Method(name, tuple(sorted(frozen.items())))


REFERENCES = {
    NO_NOISE: make_method("noise-free", mechanism=NO_NOISE),
    NOTHING: make_method("prior-only", **PRIOR_ONLY),
}
"""Baselines of private methods, by their noise."""

DEFAULT_METHODS = (
    REFERENCES[NO_NOISE],
    make_method("noise-free, Ryu-Kim update", preset="ryu-kim", mechanism=NO_NOISE),
    REFERENCES[NOTHING],
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
        if drawn_by(own) in QUIET and drawn_by(chosen | own) in QUIET:
            chosen = {name: value for name, value in chosen.items() if name not in OF_NOISE}
        chosen |= own
        given = {name: value for name, value in chosen.items() if _applies(name, chosen)}
        added = [
            name
            for name in (*OF_RELEASE, *axes)
            if name in given and name not in dict(method.settings)
        ]
        words = [method.name, *(word_of(name, given[name]) for name in dict.fromkeys(added))]
        label = ", ".join(word for word in words if word)
        labelled = make_method(label, **given)
        if methods_by_label.setdefault(label, labelled) != labelled:
            raise not_allowed("methods", label, "each name once")
    return tuple(methods_by_label.values())


def drawn_by(given: Json) -> str:
    """Return the noise budget of settings with a preset; empty if they are refused."""
    settings = effective(given)
    return "" if settings is None else settings.drawn


def effective(given: Json) -> Settings | None:
    """Return the settings that some, a preset's among them, make; None if they are refused."""
    own = dict(given)
    try:
        return make_settings(own.pop("preset", None), **own)
    except InputError:  # beside the common settings they may do; if not, the tasks say so
        return None


def _applies(name: str, given: Json) -> bool:
    """Return True if a setting applies to the other ones."""
    if given.get("mechanism") == NO_NOISE:
        return name == "mechanism" or name not in OF_NOISE
    return name != "noise_schedule" or given.get("perturbation", "demand") == "demand"


def word_of(name: str, value: object) -> str:
    """Return a setting's value in the name of a method."""
    if name in OF_RELEASE:
        word = "noise-free" if value == NO_NOISE else str(value)
        return {"noise_schedule": f"per {value}", "release": f"release {value}"}.get(name, word)
    return f"{shown(name)} {value}"


def empty_axis(axis: str) -> InputError:
    """Return the error for an axis without values."""
    return InputError(f"{shown(axis)} = []: must be a list of one value or more")


def shown(name: str) -> str:
    """Return a setting's name as files and flags write it."""
    return name.replace("_", "-")
