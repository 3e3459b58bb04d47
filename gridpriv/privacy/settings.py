"""Privacy settings of every application: mechanism, budget, and registered mechanisms.

A budget buys a noise multiplier. Mechanisms from outside the package are accepted by settings,
command line and studies: a module registers its mechanism by :func:`register_mechanism` when it is
imported. Modules that the environment variable ``GRIDPRIV_PLUGINS`` names (by commas: importable
names, or paths that end in ``.py``) are imported here, also in the processes of a study.

The parts of a registered mechanism are checked where they are used. A fault of a user's class is an
error of input that names the mechanism. The parts are tried when noise of a scale is made, which is
before a release of that scale is charged; what only a draw shows is refused when it is drawn. A
message names no value, as perturbed values need protection.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, not_allowed, positive
from gridpriv.core.settings import Part, choice, notation, number, shortest
from gridpriv.privacy.accounting import (
    FIXED_SIZE,
    POISSON,
    check_delta,
    classical_gaussian_multiplier,
    epsilon_of,
    gaussian_multiplier,
    least_multiplier,
    pure_multiplier,
    total_epsilon,
    total_pure,
)
from gridpriv.privacy.filters import CHARGED
from gridpriv.privacy.mechanism import (
    MECHANISMS,
    SMOOTHED,
    Additive,
    Charge,
    Stream,
    has_secure_sampler,
)
from gridpriv.privacy.perturbation import Target
from gridpriv.privacy.sensitivity import Norm

Scope = Literal["per-release", "total"]
# far beyond any protection and any use, and as far as noise can be computed
LEAST_EPSILON, MOST_EPSILON = 1e-12, 1e6

NO_NOISE, NOTHING = "none", "nothing"
"""In place of a budget: of a run without noise; of a run without releases."""
NO_BUDGET = (NO_NOISE, NOTHING)


@dataclass(frozen=True)
class Budget:
    """Epsilon (and delta) of one release, or of all of them.

    Attributes
    ----------
    scope : {'per-release', 'total'}
    delta : float or None
        None if not given: a total is then pure, and a release has the settings' delta.
    """

    scope: Scope
    epsilon: float
    delta: float | None = None

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        if not LEAST_EPSILON <= self.epsilon <= MOST_EPSILON:
            allowed = f"from {LEAST_EPSILON:g} to {MOST_EPSILON:g}"
            raise not_allowed("epsilon", self.epsilon, allowed)
        if self.delta is not None:
            check_delta("delta", self.delta)

    def __str__(self) -> str:
        tail = "" if self.delta is None else f",{shortest(self.delta)}"
        return f"{self.scope}:{shortest(self.epsilon)}{tail}"


def nominal_epsilon(noise_budget: str) -> float:
    """Return the epsilon of the noise of a run (``Privacy.noise_budget``).

    >>> nominal_epsilon("total:1,1e-6"), nominal_epsilon("nothing"), nominal_epsilon("none")
    (1.0, 0.0, inf)
    """
    epsilons = {NO_NOISE: math.inf, NOTHING: 0.0}
    return (
        epsilons[noise_budget] if noise_budget in epsilons else parse_budget(noise_budget).epsilon
    )


def parse_budget(text: str) -> Budget:
    """Return the budget of ``per-release:E[,D]`` or ``total:E[,D]``.

    >>> parse_budget("total:1,1e-6")
    Budget(scope='total', epsilon=1.0, delta=1e-06)
    >>> str(parse_budget("per-release:0.50"))
    'per-release:0.5'
    """
    scope, _, numbers = text.partition(":")
    parts = numbers.split(",")
    if scope not in ("per-release", "total") or not 1 <= len(parts) <= 2:
        bare = re.fullmatch(r"[0-9.]+(e[-+]?[0-9]+)?(,[0-9.]+e-?[0-9]+)?", text.strip())
        hint = f" (did you mean total:{text.strip()}?)" if bare else ""
        raise not_allowed("budget", text, f"total:E[,D] or per-release:E[,D]{hint}")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        raise not_allowed("budget", text, "per-release:E[,D] or total:E[,D] in numbers") from None
    try:
        return Budget(cast(Scope, scope), *values)
    except InputError as error:
        name, _, allowed = error.setting or ("epsilon", None, "a positive number")
        form = f"{scope}:E[,D], such as {scope}:5, whose {name} must be {allowed}"
        raise not_allowed("budget", text, form) from None


def noise_multiplier(
    budget: Budget,
    mechanism: str,
    sensitivity: str,
    releases: int,
    delta: float,
    source: str = "simulated",
) -> float:
    """Return scale / sensitivity for one release.

    Parameters
    ----------
    mechanism : {'laplace', 'gaussian', 'knorm', 'staircase', 'staircase-number'}
    sensitivity : {'proven', 'published'}
        ``published`` uses the classical Gaussian per release.
    releases : int
        Planned number for a zone; matters for totals.
    delta : float
        Of one Gaussian release, where the budget has none.
    """
    if mechanism not in BUILT_IN:
        if budget.scope == "total":
            return registered_multiplier(mechanism, budget.epsilon, budget.delta or 0.0, releases)
        return registered_multiplier(mechanism, budget.epsilon, budget.delta or delta, 1)
    if source == "secure":  # a margin for the grid of discrete noise
        plain = noise_multiplier(budget, mechanism, sensitivity, releases, delta)
        return plain * (1.0 + 2.0 * SMOOTHED)
    if budget.scope == "total" and mechanism.startswith("staircase"):
        dimension = 2 if mechanism == "staircase" else 1
        delta = budget.delta or 0.0
        return pure_multiplier("staircase", budget.epsilon, delta, releases, dimension)
    if budget.scope == "total":
        total = budget.epsilon, budget.delta or 0.0, releases
        gaussian = mechanism == "gaussian"
        return gaussian_multiplier(*total) if gaussian else pure_multiplier("laplace", *total)
    if mechanism != "gaussian":  # at a multiplier m all other mechanisms cost 1/m
        return 1.0 / budget.epsilon
    if sensitivity == "published":
        return classical_gaussian_multiplier(budget.epsilon, budget.delta or delta)
    return gaussian_multiplier(budget.epsilon, budget.delta or delta, 1)


BUILT_IN = ("laplace", "gaussian", "knorm", "staircase", "staircase-number")


PLUGINS = "GRIDPRIV_PLUGINS"
NAMES = ["none", "laplace", "gaussian", "knorm", "staircase"]
"""Mechanisms that settings accept; registered ones come last."""
SAME = 1e-9
MOST = 1e12
"""Largest multiplier that a budget may imply."""


def register_mechanism(name: str, kind: Callable[[float], object]) -> None:
    """Register a mechanism under a name, for ``mechanism=``, ``--mechanism`` and study files.

    Parameters
    ----------
    name : str
        New, in lower case.
    kind : class
        Made from the scale of the noise alone, with ``scale``, ``norm`` (1 or 2: that of the
        sensitivity), ``variance`` of a coordinate, ``perturb(value, stream)`` and
        ``charge(distance)``, which depends on distance / scale only and falls with the scale
        (:class:`gridpriv.Mechanism`). ``cdf(x)``, the distribution function of the noise on one
        number, is optional: ``gridpriv audit`` compares the noise with it.

    Raises
    ------
    InputError
        For a name in use, or a class that is not a mechanism: its parts are tested here, and again
        when noise of a scale is made, before a release is charged.

    Notes
    -----
    The certificate relies on ``charge`` without proof. ``gridpriv audit`` tests it.

    Examples
    --------
    >>> from gridpriv.privacy.mechanism import Laplace
    >>> register_mechanism("laplace", Laplace)
    Traceback (most recent call last):
        ...
    gridpriv.core.errors.InputError: name = 'laplace': must be a name that no mechanism has
    """
    if name in NAMES:
        raise not_allowed("name", name, "a name that no mechanism has")
    if not name.isidentifier() or name != name.lower():
        raise not_allowed("name", name, "lower case letters, digits and underscores")
    missing = missing_parts(name, kind)
    if missing:
        raise InputError(
            f"Mechanism {name!r} lacks {', '.join(missing)}. Add it (see gridpriv.Mechanism)."
        )
    if not isinstance(kind, type):
        raise InputError(f"Mechanism {name!r} is no class. Give a class that is made from a scale.")
    checked_kind = checked(name, kind)
    item, two = checked_kind(1.0), checked_kind(2.0)
    first, second = (_charge(m, d) for m, d in ((item, 1.0), (two, 2.0)))
    alike = first.kind == second.kind and math.isclose(
        first.parameter, second.parameter, rel_tol=SAME
    )
    if not alike:
        raise InputError(
            f"charge() of mechanism {name!r} must depend on distance / scale only: scale 1 at "
            f"distance 1 costs {first}, scale 2 at distance 2 costs {second}."
        )
    MECHANISMS[name, "simulated"] = cast(type[Additive], checked_kind)
    NAMES.append(name)


def _charge(mechanism: object, distance: float) -> Charge:
    return cast(Charge, mechanism.charge(distance))  # type: ignore[attr-defined]


def registered_multiplier(name: str, epsilon: float, delta: float, releases: int) -> float:
    """Return the least scale / sensitivity at which some releases cost epsilon at delta.

    With ``delta`` 0 by basic composition of pure charges; for one release its own epsilon.
    """
    kind = cast(Callable[[float], object], MECHANISMS[name, "simulated"])

    def cost(multiplier: float) -> float:
        charge = _charge(kind(multiplier), 1.0)
        if delta <= 0.0:
            return total_pure({charge: releases})
        return (
            epsilon_of(charge, delta) if releases == 1 else total_epsilon({charge: releases}, delta)
        )

    if cost(MOST) > epsilon:
        raise InputError(
            f"Mechanism {name!r} has no noise that costs epsilon {epsilon:g} at delta {delta:g}. "
            "Give a total with a delta, such as total:5,1e-5."
        )
    return least_multiplier(cost, epsilon, MOST)


def load_plugins() -> None:
    """Import the modules that the environment variable ``GRIDPRIV_PLUGINS`` names.

    Raises
    ------
    InputError
        For a missing module, or one whose import fails.
    """
    for name in filter(None, os.environ.get(PLUGINS, "").split(",")):
        if name in LOADED:
            continue
        LOADED.add(name)
        try:
            _import(name.strip())
        except InputError:
            raise
        except Exception as error:  # whatever a user's module does
            raise InputError(
                f"{PLUGINS} names {name!r}, whose import fails ({type(error).__name__}: {error}). "
                "Name an importable module or a path that ends in .py."
            ) from error


LOADED: set[str] = set()


def _import(name: str) -> None:
    if not name.endswith(".py"):
        import_module(name)
        return
    spec = spec_from_file_location(Path(name).stem, name)
    if spec is None or spec.loader is None:
        raise InputError(
            f"{PLUGINS} names {name!r}, which is no Python file. Name a path that ends in .py."
        )
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # its classes are pickled by its name
    spec.loader.exec_module(module)


Mechanism = Literal["none", "laplace", "gaussian", "knorm", "staircase"]
SensitivityBound = Literal["proven", "published"]
Noise = Literal["simulated", "secure"]
TOTAL_DELTA = 1e-5
PERTURBED: tuple[Target, ...] = ("objective", "output", "demand")


@dataclass(frozen=True, kw_only=True)
class Privacy(Part):
    """The noise of a run, and the budget that sets its scale."""

    mechanism: Mechanism | None = choice(
        None,
        NAMES,
        "noise mechanism",
        unset="knorm for demand with p and q protected, else laplace",
    )
    perturbation: Target = choice(
        "demand",
        PERTURBED,
        "noisy quantity: demand that zones release, or (published methods) objective or output of "
        "every local update",
    )
    sensitivity: SensitivityBound = choice(
        "proven",
        get_args(SensitivityBound),
        "sensitivity bound that sets the noise scale: proven, or as published with the algorithm",
    )
    budget: Budget = notation(
        Budget("total", 5.0),
        parse_budget,
        "BUDGET",
        "budget total:E[,D] of all releases, or per-release:E[,D]; a smaller epsilon E means "
        "more privacy and more noise; without delta D a total is pure DP (Gaussian noise needs D)",
    )
    delta: float = number(
        1e-5,
        "delta of the epsilon of one Gaussian release; --budget per-release:E without D uses it",
        check_delta,
    )
    target_delta: float | None = number(
        None,
        "delta of stated totals, next to pure totals",
        check_delta,
        unset="D of --budget total:E,D, else 1e-05",
    )
    noise: Noise = choice(
        "simulated",
        get_args(Noise),
        "source of the noise: simulated (repeatable, no privacy), or secure (entropy of the "
        "operating system; not for staircase noise and plugin mechanisms)",
    )

    @property
    def release_delta(self) -> float:
        """Delta of one release's epsilon."""
        per_release = self.budget.scope == "per-release"
        return self.budget.delta if per_release and self.budget.delta else self.delta

    @property
    def total_delta(self) -> float:
        """Delta of stated totals."""
        of_total = self.budget.delta if self.budget.scope == "total" else None
        return self.target_delta or of_total or TOTAL_DELTA

    def effective_mechanism(self) -> Mechanism:
        """Return the mechanism that draws the noise: the given one, or Laplace."""
        return self.mechanism or "laplace"

    @property
    def noise_budget(self) -> str:
        """Budget of the run's noise, or ``none``."""
        return NO_NOISE if self.mechanism == NO_NOISE else str(self.budget)

    def agree(self) -> None:
        """Refuse two deltas of a total, and a budget that the Gaussian mechanism cannot have."""
        super().agree()
        of_total = self.budget.delta if self.budget.scope == "total" else None
        if of_total and of_total != self.total_delta:
            allowed = f"left out: budget {self.budget} has the delta of the total"
            raise not_allowed("target_delta", self.target_delta, allowed)
        mechanism = self.mechanism or "laplace"  # the default ones all have a secure sampler
        if self.noise == "secure" and not has_secure_sampler(mechanism) and mechanism != NO_NOISE:
            raise not_allowed(
                "noise",
                self.noise,
                f"simulated with mechanism {mechanism!r}, for which no secure sampler exists "
                "(secure noise: knorm, laplace, gaussian)",
            )
        if self.mechanism != "gaussian":
            return
        if self.budget.scope == "total" and self.budget.delta is None:
            raise not_allowed(
                "budget",
                str(self.budget),
                "total:E,D with the Gaussian mechanism, which has no pure epsilon (did you mean "
                f"{self.budget},1e-5? In a list of budgets '{self.budget};1e-5')",
            )
        if self.sensitivity == "published" and self.budget.scope == "per-release":
            classical_gaussian_multiplier(self.budget.epsilon, self.release_delta)


PARTS = ("scale", "norm", "variance", "perturb", "charge")
KINDS = (*CHARGED, "sampled-gaussian", POISSON, FIXED_SIZE, "uncertified")
"""Kinds of :class:`gridpriv.privacy.mechanism.Charge` that the accountant composes."""
SIZES = (2, 32)
"""Sizes of the values on which noise is tested; even, as some mechanisms take pairs (p, q)."""
REACH, POINTS = 40.0, 161
"""Multiples of the scale up to which a ``cdf`` is tested, and the number of points."""
ROUNDING = 1e-9


def checked(name: str, kind: type[Any]) -> type[Any]:
    """Return a subclass of ``kind`` that raises its faults as input errors.

    Parameters
    ----------
    name : str
        Of the mechanism.
    kind : class
        Made from a scale.
    """

    def initialize(self: Any, *values: Any, **named: Any) -> None:
        _result(name, "__init__", lambda: kind.__init__(self, *values, **named))
        try_parts(name, self)

    def perturb(self: Any, value: Floats, stream: Stream) -> Floats:
        noisy = _result(name, "perturb", kind.perturb, self, value, stream)
        return _numbers(name, "perturb()", noisy, value, "the value plus noise on every number")

    def charge(self: Any, distance: float) -> Charge:
        return check_charge(name, _result(name, "charge", kind.charge, self, distance))

    def cdf(self: Any, x: Floats) -> Floats:
        return check_probabilities(name, x, _result(name, "cdf", kind.cdf, self, x))

    def reduce(self: Any) -> tuple[Any, ...]:
        return restored, (name, self.scale)

    methods = {"__init__": initialize, "perturb": perturb, "charge": charge, "__reduce__": reduce}
    if hasattr(kind, "cdf"):
        methods["cdf"] = cdf
    return type(kind.__name__, (kind,), methods | {"__module__": kind.__module__})


def missing_parts(name: str, kind: Callable[[float], Any]) -> list[str]:
    """Return the names of parts that noise of scale 1 lacks."""
    item = _result(name, "__init__", kind, 1.0)
    return [part for part in PARTS if not _result(name, part, hasattr, item, part)]


def restored(name: str, scale: float) -> Any:
    """Return the noise of a registered mechanism in another process, by its name."""
    return MECHANISMS[name, "simulated"](scale)


def try_parts(name: str, mechanism: Any) -> None:
    """Test draws on zeros, norm, variance and distribution function.

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


def check_charge(name: str, charge: Any) -> Charge:
    """Return the charge; refuse another type, unknown kinds and parameters below 0."""
    if not isinstance(charge, Charge):
        result = f"returns {type(charge).__name__}"
        raise fault(name, "charge()", result, "a gridpriv Charge")
    if charge.kind not in KINDS:
        raise fault(name, "charge()", f"returns kind {charge.kind!r}", f"one of {', '.join(KINDS)}")
    if math.isnan(charge.parameter) or min(charge.parameter, charge.second) < 0.0:
        raise fault(name, "charge()", f"returns {charge}", "parameters of at least 0")
    return charge


def check_probabilities(name: str, x: Floats, values: Any) -> Floats:
    """Return the probabilities of ``cdf``; refuse values of no distribution function."""
    below = _numbers(name, "cdf()", values, x, "a probability for each number")
    if below.size and (below.min() < -ROUNDING or below.max() > 1.0 + ROUNDING):
        result = f"returns {below.min():.4g} to {below.max():.4g}"
        raise fault(name, "cdf()", result, "numbers from 0 to 1")
    if (np.diff(below.ravel()[np.argsort(np.ravel(x), kind="stable")]) < -ROUNDING).any():
        raise fault(name, "cdf()", "decreases", "a distribution function, which never decreases")
    return below


def fault(name: str, part: str, result: str, allowed: str) -> InputError:
    """Return the error of a mechanism's part: its result, and what is allowed."""
    return InputError(
        f"{part} of mechanism {name!r} {result}. It must give {allowed}. Correct the class that is "
        "registered under this name"
    )


def _numbers(name: str, part: str, values: Any, argument: Floats, allowed: str) -> Floats:
    """Return a part's result: a finite number for each of its argument."""
    try:
        numbers = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise fault(name, part, f"returns {type(values).__name__}", "an array of numbers") from None
    if numbers.shape != np.shape(argument):
        result = f"returns shape {numbers.shape} for numbers of shape {np.shape(argument)}"
        raise fault(name, part, result, allowed)
    if not np.isfinite(numbers).all():
        raise fault(name, part, "returns NaN or infinite numbers", "finite numbers")
    return numbers


def _result(name: str, part: str, call: Callable[..., Any], *values: Any) -> Any:
    """Return a part's result; errors name only the exception's type, as texts may have data."""
    try:
        return call(*values)
    except InputError:
        raise
    except Exception as error:  # whatever a user's class does
        raise InputError(
            f"{part} of mechanism {name!r} raises {type(error).__name__}. Correct the class that "
            "is registered under this name"
        ) from error


load_plugins()
