"""Errors that a user can cause: the given value, the allowed values, the remedy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Real


class GridprivError(Exception):
    """Base of every error a user can cause; ``exit_code`` is the command's exit status."""

    exit_code = 2


class InputError(GridprivError):
    """A wrong setting, file or argument (exit code 2).

    Attributes
    ----------
    setting : tuple of str, object and str, or None
        Name of the parameter, given value, and allowed values: of :func:`not_allowed`.
    """

    setting: tuple[str, object, str] | None = None


class RunError(GridprivError):
    """Work that started and could not be finished (exit code 3)."""

    exit_code = 3


class WorkerError(RunError):
    """A worker process that ended before it answered."""


class SolverError(RunError):
    """A solver ended without a usable solution (exit code 3)."""


class BudgetError(GridprivError):
    """A release would overspend an owner's privacy budget (exit code 4)."""

    exit_code = 4


class GridprivWarning(UserWarning):
    """A warning for the user; the work continues."""


def warn(text: str, level: int = 2) -> None:
    """Warn the user; ``level`` is :func:`warnings.warn`'s ``stacklevel``, 2 for the caller's."""
    warnings.warn(text, GridprivWarning, stacklevel=level + 1)


def notes(error: BaseException) -> str:
    """Return the notes of an exception, each in parentheses after a space."""
    return "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


MOST_WHOLE = 2**64 - 1
LONGEST = 100  # characters of a value in a message


def excerpt(value: object) -> str:
    """Return a value for an error: as Python writes it, and not longer than a line."""
    text = repr(value)
    return text if len(text) <= LONGEST + 2 else f"{text[:LONGEST]}...{text[-1]}"


def not_allowed(field: str, value: object, allowed: str) -> InputError:
    """Return the error for a bad value: field, value and allowed values (after "must be")."""
    error = InputError(f"{field} = {excerpt(value)}: must be {allowed}")
    error.setting = (field, value, allowed)
    return error


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Return the name that a word may misspell: one letter of three, or fewer in a longer word."""
    cutoff = 0.65 if len(word) <= 3 else 0.7
    return next(iter(get_close_matches(word, list(names), n=1, cutoff=cutoff)), None)


def check_choice(field: str, value: object, choices: Iterable[str]) -> None:
    """Raise :class:`InputError` unless ``value`` is one of ``choices``; name the nearest one."""
    names = list(choices)
    if value in names:
        return
    near = nearest(str(value), names)
    hint = f" (did you mean {near!r}?)" if near else ""
    one_of = "one of " if len(names) > 1 else ""
    raise not_allowed(field, value, f"{one_of}{', '.join(names)}{hint}")


def whole(field: str, value: object, least: int = 1, most: int | None = None) -> None:
    """Raise :class:`InputError` unless ``value`` is a whole number from ``least`` to ``most``.

    Without ``most``, to 2^64 - 1.
    """
    if most is not None and not (isinstance(value, int) and least <= value <= most):
        raise not_allowed(field, value, f"a whole number from {least} to {most}")
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise not_allowed(field, value, f"a whole number, {least} or more")
    if value > MOST_WHOLE:
        raise not_allowed(field, value, "a whole number below 2^64")


def finite(value: object) -> bool:
    """Return True for a finite real number."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def positive(field: str, value: float) -> None:
    """Raise :class:`InputError` unless ``value`` is finite and above 0."""
    if not (finite(value) and value > 0):
        raise not_allowed(field, value, "a positive number")


def not_negative(field: str, value: float) -> None:
    """Raise :class:`InputError` unless ``value`` is finite and 0 or more."""
    if not (finite(value) and value >= 0):
        raise not_allowed(field, value, "a finite number, 0 or more")


def missing_extra(package: str, extra: str, purpose: str) -> InputError:
    """Return the error for an optional package that is not installed."""
    return InputError(
        f"{purpose} needs the package {package}, which is not installed: "
        f"pip install 'gridpriv[{extra}]'"
    )
