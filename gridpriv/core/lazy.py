"""Names imported on first use: of packages, and of attributes made by higher layers."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package; list its public names in ``__all__``.

    The names are those of the package's imports for type checkers. They are read from the loader,
    which also works in an archive and without source.
    """
    module, source = sys.modules[package], ""
    home: dict[str, str] = {}
    for step in dis.get_instructions(module.__spec__.loader.get_code(package)):  # type: ignore[union-attr]
        if step.opname == "IMPORT_NAME":
            source = step.argval
        elif step.opname == "IMPORT_FROM" and source not in ("__future__", "typing", __name__):
            home[step.argval] = source
    vars(module)["__all__"] = sorted(home)

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(home)


class LazyAttribute:
    """An attribute made from its owner by a class of a higher layer, imported on first use.

    So a result has plots although lower layers do not import plotting.
    """

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __get__(self, instance: object, owner: type) -> Any:
        """Return the value made from the instance; from the class, the attribute itself."""
        if instance is None:
            return self
        return getattr(import_module(self.module), self.name)(instance)
