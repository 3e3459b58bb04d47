"""Declarative settings: help, choices, unit, default and validation in one field.

A *part* is a frozen dataclass whose fields are made by the functions below; the settings of an
application are a dataclass that inherits its parts. Flags and their help, keys of study files, JSON
and the documentation of the class are made from these fields, and a value is checked (and, where it
has a notation such as ``total:5``, parsed) once, when the settings are made.

To add a setting, add a field to its part, and read it where it is used::

    voll: float = number(10_000.0, "value of lost load", positive, unit="$/MWh")

It is then the keyword ``voll``, the flag ``--voll X``, the key ``voll`` of study files and of
JSON, with its unit and default in every help text. Every field is read by some run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, Self, TypeVar

from gridpriv.core.errors import InputError, check_choice, nearest, not_allowed, whole
from gridpriv.core.text import Json

Validator = Callable[[str, Any], Any]
PartType = TypeVar("PartType", bound="type[Part]")
LONGEST = 50
"""Characters of a list of choices that takes the place of a flag's value."""


@dataclass(frozen=True)
class Setting:
    """Declaration of one setting.

    Attributes
    ----------
    help : str
        Description, without choices, unit and default.
    metavar : str
        Placeholder of the value in help.
    validate : callable
        Validator of name and value: returns the value, or raises ``InputError``. Choices are
        checked first.
    read : callable
        Parser of a text; unreadable text is left for ``validate`` to refuse.
    choices : tuple of str
        Allowed values, if they are a list.
    unset : str
        Meaning of None, or of no value.
    repeated : bool
        True for a tuple, whose flag is given once per value.
    """

    help: str
    metavar: str
    validate: Validator
    read: Callable[[str], Any] = str
    choices: Sequence[str] = ()
    unit: str = ""
    unset: str = ""
    repeated: bool = False

    def validated(self, name: str, value: Any) -> Any:
        """Return the validated value, or raise ``InputError``; None is kept if it is allowed."""
        undone = value == "none" and self.read is not str  # of a number: resets a preset's value
        if self.unset and (value is None or undone):
            return None
        if self.choices:
            check_choice(name, value, self.choices)
        return self.validate(name, value)

    def placeholder(self) -> str:
        """Return the value in the help of a flag: its choices if they are short."""
        listed = f"{{{','.join(self.choices)}}}"
        return listed if len(self.choices) > 1 and len(listed) <= LONGEST else self.metavar

    def described(self, default: Any, listed: str = "") -> str:
        """Return the help with choices (unless ``listed`` has them), unit and default."""
        several = len(self.choices) > 1 and not listed.startswith("{")  # one choice: help has it
        choices = f": {' | '.join(self.choices)}" if several else ""
        unit = f", {self.unit}" if self.unit else ""
        value = self.unset if default in (None, ()) else written(default)
        value = shortest(value) if isinstance(value, float) else value
        value = ",".join(map(str, value)) if isinstance(value, list) else value
        return f"{self.help}{unit}{choices} (default: {value})"


class Part:
    """Base of every part: refuses unknown names and validates its fields on construction."""

    def __new__(cls, **given: object) -> Self:
        """Refuse unknown names."""
        check_names(given, names(cls))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, item in settings_of(type(self)).items():
            object.__setattr__(self, name, item.validated(name, getattr(self, name)))
        self.agree()

    def agree(self) -> None:
        """Raise ``InputError`` if settings do not go together; parts call ``super().agree()``."""

    def as_given(self) -> Json:
        """Return every setting as a JSON value; the same class reads them back."""
        return {name: written(getattr(self, name)) for name in names(type(self))}


def choice(default: str | None, choices: Iterable[str], text: str, *, unset: str = "") -> Any:
    """Return a field with a list of values."""
    validate = _checked(lambda *_: None)
    known = choices if isinstance(choices, list) else tuple(choices)  # a list may grow
    return _field(default, Setting(text, "NAME", validate, choices=known, unset=unset))


def count(
    default: int | None, text: str, *, least: int = 1, most: int | None = None, unset: str = ""
) -> Any:
    """Return a field with a whole number, from ``least`` to ``most``."""
    validate = _checked(lambda name, value: whole(name, value, least, most))
    return _field(default, Setting(text, "N", validate, reading(int), unset=unset))


def number(
    default: float | None,
    text: str,
    check: Callable[[str, float], None],
    *,
    unit: str = "",
    unset: str = "",
) -> Any:
    """Return a field with a number; ``check(name, value)`` raises unless it is allowed."""
    setting = Setting(text, "X", _checked(check), reading(float), unit=unit, unset=unset)
    return _field(default, setting)


def notation(
    default: Any, parse: Callable[[str], Any], metavar: str, text: str, *, kinds: type | None = None
) -> Any:
    """Return a field that ``parse`` makes from a text; ``str`` of its value returns the text.

    ``kinds`` are the types of its values; by default that of the default value.
    """

    def validate(name: str, value: Any) -> Any:
        if isinstance(value, kinds or type(default)) and not isinstance(value, str):
            return value
        if not isinstance(value, str):
            raise not_allowed(name, value, f"a text: {text}")
        return parse(value)

    return _field(default, Setting(text, metavar, validate))


def words(
    default: str | None,
    text: str,
    metavar: str,
    check: Callable[[str], object] = lambda _: None,
    *,
    unset: str = "",
) -> Any:
    """Return a field with a text; ``check(value)`` raises unless it is allowed."""

    def refuse(name: str, value: Any) -> None:
        if not isinstance(value, str):
            raise not_allowed(name, value, "a text")
        check(value)

    return _field(default, Setting(text, metavar, _checked(refuse), unset=unset))


def several(text: str, metavar: str, *, unset: str) -> Any:
    """Return a field with a tuple of texts; its flag is given once for each."""

    def validate(name: str, value: Any) -> Any:
        if isinstance(value, str) or not all(isinstance(item, str) for item in value):
            raise not_allowed(name, value, "a list of texts")
        return tuple(value)

    return _field((), Setting(text, metavar, validate, unset=unset, repeated=True))


def changed(part: PartType, name: str, default: Any, **changes: Any) -> Any:
    """Return a part's field with another default and other changes for an application."""
    current = settings_of(part)[name]
    given = {key: getattr(current, key) for key in current.__dataclass_fields__} | changes
    return _field(default, Setting(**given))


def _checked(check: Callable[[str, Any], object]) -> Validator:
    """Return a validator that keeps the value unless ``check(name, value)`` raises."""

    def validate(name: str, value: Any) -> Any:
        check(name, value)
        return value

    return validate


def _field(default: Any, setting: Setting) -> Any:
    return field(default=default, metadata={"setting": setting})


def settings_of(part: type[Part]) -> dict[str, Setting]:
    """Return the declarations of the fields of a part, by name."""
    current: Iterable[Field[Any]] = fields(part)  # type: ignore[arg-type]
    return {item.name: item.metadata["setting"] for item in current}


def as_flags(settings: Part, named: Collection[str] = ()) -> list[str]:
    """Return the words of a command line that give the same settings.

    Defaults are left out, except those in ``named``.
    """
    words: list[str] = []
    standard = defaults(type(settings))
    for name in names(type(settings)):
        value = getattr(settings, name)
        if value != standard[name] or (name in named and value is not None):
            flag = f"--{name.replace('_', '-')}"
            values = value if isinstance(value, tuple) else (written(value),)
            words += [word for item in values for word in (flag, str(item))]
    return words


def parts_of(kind: type[Part]) -> dict[type[Part], list[str]]:
    """Return the parts that settings are made of, and the names that each declares first."""
    entries: dict[type[Part], list[str]] = {}
    for part in reversed(kind.__mro__):
        if issubclass(part, Part) and part is not Part:
            known = {name for declared in entries.values() for name in declared}
            entries[part] = [name for name in names(part) if name not in known]
    return {part: declared for part, declared in entries.items() if declared}


def defaults(part: type[Part]) -> Json:
    """Return the default of every field of a part, by name."""
    return {item.name: item.default for item in fields(part)}  # type: ignore[arg-type]


def names(part: type[Part]) -> tuple[str, ...]:
    """Return the names of a part's settings."""
    return tuple(settings_of(part))


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ``InputError`` for the first name that is not known; it names the nearest.

    A hyphen counts as an underscore, as in flags and study files; the error is the same for every
    source of a setting.
    """
    allowed = list(known)
    for name in given:
        plain = name.replace("-", "_")
        if plain in allowed:
            continue
        if near := nearest(plain, allowed):
            raise InputError(f"setting = {plain!r} is unknown: did you mean {near!r}?")
        raise not_allowed("setting", plain, f"one of {', '.join(sorted(allowed))}")


def reading(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a reader of texts that leaves unreadable text for the validator to refuse."""

    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            return text

    return read


def written(value: Any) -> Any:
    """Return a setting's value for JSON and study files."""
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def shortest(value: float) -> str:
    """Return the shortest text that reads back as the number."""
    text = f"{value:g}"
    return text.replace("e+0", "e").replace("e+", "e") if float(text) == value else repr(value)


def documented(part: PartType) -> PartType:
    """Add the description of every setting to the docstring of its class (a decorator)."""
    lines = [part.__doc__ or "", "", "    Attributes", "    ----------"]
    chosen = defaults(part)
    for name, item in settings_of(part).items():
        lines.append(f"    {name}")
        lines += textwrap.wrap(
            item.described(chosen[name]), 92, initial_indent=" " * 8, subsequent_indent=" " * 8
        )
    part.__doc__ = "\n".join(lines) + "\n    "
    return part
