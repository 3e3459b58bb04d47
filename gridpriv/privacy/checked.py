"""A registered mechanism whose parts are checked where they are used.

A fault of a user's class is an error of input that names the mechanism. The parts are tried when
noise of a scale is made, which is before a release of that scale is charged; what only a draw
shows is refused when it is drawn. A message names no value: what is perturbed is private.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.privacy.mechanism import MECHANISMS, Charge, Stream
from gridpriv.privacy.sensitivity import Norm

PARTS = ("scale", "norm", "variance", "perturb", "charge")
KINDS = (
    "laplace",
    "split-laplace",
    "gaussian",
    "staircase",
    "pure",
    "zcdp",
    "sampled-gaussian",
    "replaced-gaussian",
    "drawn-gaussian",
    "approximate",
    "uncertified",
)
"""Kinds of :class:`gridpriv.privacy.mechanism.Charge` that the accountant composes."""
SIZES = (2, 32)
"""Numbers in the values on which noise is tried; even, as some mechanisms take pairs (p, q)."""
REACH, POINTS = 40.0, 161
"""Multiples of the scale up to which a distribution function is tried, and at how many points."""
ROUNDING = 1e-9


def checked(name: str, kind: type[Any]) -> type[Any]:
    """Return a class like ``kind`` whose faults are errors of input.

    Parameters
    ----------
    name : str
        Of the mechanism.
    kind : class
        Made from a scale. Its subclass keeps what is asked of its base classes.
    """

    def made(self: Any, *values: Any, **named: Any) -> None:
        _result(name, "__init__", lambda: kind.__init__(self, *values, **named))
        try_parts(name, self)

    def perturb(self: Any, value: Floats, stream: Stream) -> Floats:
        return check_noisy(name, value, _result(name, "perturb", kind.perturb, self, value, stream))

    def charge(self: Any, distance: float) -> Charge:
        return check_charge(name, _result(name, "charge", kind.charge, self, distance))

    def cdf(self: Any, x: Floats) -> Floats:
        return check_probabilities(name, x, _result(name, "cdf", kind.cdf, self, x))

    def reduce(self: Any) -> tuple[Any, ...]:
        return restored, (name, self.scale)

    methods = {"__init__": made, "perturb": perturb, "charge": charge, "__reduce__": reduce}
    if hasattr(kind, "cdf"):
        methods["cdf"] = cdf
    return type(kind.__name__, (kind,), methods | {"__module__": kind.__module__})


def missing_parts(name: str, kind: Callable[[float], Any]) -> list[str]:
    """Return the parts that noise of scale 1 lacks."""
    item = _result(name, "__init__", kind, 1.0)
    return [part for part in PARTS if not _result(name, part, hasattr, item, part)]


def restored(name: str, scale: float) -> Any:
    """Return the noise of a registered mechanism in another process, by its name."""
    return MECHANISMS[name, "simulated"](scale)


def try_parts(name: str, mechanism: Any) -> None:
    """Draw noise on zeros, and read norm, variance and distribution function.

    Raises
    ------
    InputError
        For the first fault.
    """
    if _result(name, "norm", lambda: mechanism.norm) not in get_args(Norm):
        raise fault(name, "norm", f"is {mechanism.norm!r}", "one of 1, 2 and 'box'")
    variance = _result(name, "variance", lambda: float(mechanism.variance))
    if math.isnan(variance) or variance < 0.0:
        raise fault(name, "variance", f"is {variance:g}", "a number of at least 0")
    for size in SIZES:
        mechanism.perturb(np.zeros(size), lambda: np.random.default_rng(0))
    if hasattr(mechanism, "cdf"):
        mechanism.cdf(np.linspace(-REACH, REACH, POINTS) * mechanism.scale)


def check_noisy(name: str, value: Floats, noisy: Any) -> Floats:
    """Return the noisy value of ``perturb``; refuse another shape, NaN and infinity."""
    drawn = _numbers(name, "perturb()", noisy)
    if drawn.shape != value.shape:
        given = f"returns shape {drawn.shape} for a value of shape {value.shape}"
        raise fault(name, "perturb()", given, "the value plus noise on every number")
    if not np.isfinite(drawn).all():
        raise fault(name, "perturb()", "returns NaN or infinite numbers", "finite numbers")
    return drawn


def check_charge(name: str, charge: Any) -> Charge:
    """Return the charge; refuse another type, unknown kinds and parameters below 0."""
    if not isinstance(charge, Charge):
        given = f"returns {type(charge).__name__}"
        raise fault(name, "charge()", given, "a gridpriv Charge")
    if charge.kind not in KINDS:
        raise fault(name, "charge()", f"returns kind {charge.kind!r}", f"one of {', '.join(KINDS)}")
    if math.isnan(charge.parameter) or min(charge.parameter, charge.second) < 0.0:
        raise fault(name, "charge()", f"returns {charge}", "parameters of at least 0")
    return charge


def check_probabilities(name: str, x: Floats, values: Any) -> Floats:
    """Return the probabilities of ``cdf``; refuse those of no distribution function."""
    below = _numbers(name, "cdf()", values)
    if below.shape != np.shape(x):
        given = f"returns shape {below.shape} for numbers of shape {np.shape(x)}"
        raise fault(name, "cdf()", given, "a probability for each number")
    if not np.isfinite(below).all():
        raise fault(name, "cdf()", "returns NaN or infinite numbers", "numbers from 0 to 1")
    if below.size and (below.min() < -ROUNDING or below.max() > 1.0 + ROUNDING):
        given = f"returns {below.min():.4g} to {below.max():.4g}"
        raise fault(name, "cdf()", given, "numbers from 0 to 1")
    if (np.diff(below.ravel()[np.argsort(np.ravel(x), kind="stable")]) < -ROUNDING).any():
        raise fault(name, "cdf()", "decreases", "a distribution function, which never decreases")
    return below


def fault(name: str, part: str, given: str, allowed: str) -> InputError:
    """Return the error of a mechanism's part: what it gives, and what is allowed."""
    return InputError(
        f"{part} of mechanism {name!r} {given}. It must give {allowed}. Correct the class that is "
        "registered under this name"
    )


def _numbers(name: str, part: str, values: Any) -> Floats:
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise fault(name, part, f"returns {type(values).__name__}", "an array of numbers") from None


def _result(name: str, part: str, call: Callable[..., Any], *values: Any) -> Any:
    """Return a part's result; its exception's type alone is named, as its text may hold data."""
    try:
        return call(*values)
    except InputError:
        raise
    except Exception as error:  # whatever a user's class does
        raise InputError(
            f"{part} of mechanism {name!r} raises {type(error).__name__}. Correct the class that "
            "is registered under this name"
        ) from error
