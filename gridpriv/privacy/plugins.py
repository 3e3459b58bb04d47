"""Mechanisms from outside the package, accepted by settings, command line and studies.

A module registers its mechanism by :func:`register_mechanism` when it is imported. Modules that the
environment variable ``GRIDPRIV_PLUGINS`` names (by commas: importable names, or paths that end in
``.py``) are imported with the settings of privacy, also in the processes of a study.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import cast

from gridpriv.core.errors import InputError, not_allowed
from gridpriv.privacy.accounting import epsilon_of, total_epsilon, total_pure
from gridpriv.privacy.mechanism import MECHANISMS, Additive, Charge

PLUGINS = "GRIDPRIV_PLUGINS"
NAMES = ["none", "laplace", "gaussian", "knorm", "staircase"]
"""Mechanisms that settings accept; those of users come last."""
PARTS = ("scale", "norm", "variance", "perturb", "charge")
SAME = 1e-9
LEAST, MOST = 1e-9, 1e12
"""Multipliers between which that of a budget is searched."""


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
        (:class:`gridpriv.Mechanism`).

    Raises
    ------
    InputError
        For a name that is taken, or a class that is no mechanism.

    Notes
    -----
    The certificate is that of ``charge``: nothing here proves it. ``gridpriv audit`` tests it.

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
    item, two = kind(1.0), kind(2.0)
    missing = [part for part in PARTS if not hasattr(item, part)]
    if missing:
        raise InputError(
            f"Mechanism {name!r} lacks {', '.join(missing)}. Add it (see gridpriv.Mechanism)."
        )
    for charge in (_charge(item, 1.0), _charge(two, 2.0)):
        if not isinstance(charge, Charge):
            raise InputError(f"charge() of mechanism {name!r} must return a gridpriv Charge.")
    first, second = (_charge(m, d) for m, d in ((item, 1.0), (two, 2.0)))
    alike = first.kind == second.kind and math.isclose(
        first.parameter, second.parameter, rel_tol=SAME
    )
    if not alike:
        raise InputError(
            f"charge() of mechanism {name!r} must depend on distance / scale only: scale 1 at "
            f"distance 1 costs {first}, scale 2 at distance 2 costs {second}."
        )
    MECHANISMS[name, "simulated"] = cast(type[Additive], kind)
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

    low, high = LEAST, MOST
    if cost(high) > epsilon:
        raise InputError(
            f"Mechanism {name!r} has no noise that costs epsilon {epsilon:g} at delta {delta:g}. "
            "Give a total with a delta, such as total:5,1e-5."
        )
    while high / low >= 1.0 + 1e-10:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if cost(middle) <= epsilon else (middle, high)
    return high


def load_plugins() -> None:
    """Import the modules that the environment variable ``GRIDPRIV_PLUGINS`` names.

    Raises
    ------
    InputError
        For a module that is not there, or whose import fails.
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
