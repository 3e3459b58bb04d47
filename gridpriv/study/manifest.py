"""A study's manifest: everything from which it can be repeated."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from gridpriv.core.document import Json
from gridpriv.core.errors import not_allowed

PACKAGES = (
    "gridpriv",
    "numpy",
    "scipy",
    "pandas",
    "pyomo",
    "casadi",
    "clarabel",
    "pandapower",
    "dp-accounting",
    "pyarrow",
)
LEARNING_RUN = "learning run"
"""Kind of a folder that holds one run of learning."""


def header(kind: str, title: str, question: str, plan: Json, planned: int) -> Json:
    """Return the header of the manifest of any study; ``plan`` is JSON.

    Raises
    ------
    InputError
        For text that no file could hold: half of a character, or bytes that are no UTF-8.
    """
    for name, told in {"title": title, "question": question, **plan}.items():
        try:
            json.dumps(told, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise not_allowed(name, ascii(told), "text that UTF-8 can hold") from None
    return {
        "kind": kind,
        "public": False,
        "title": title,
        "question": question,
        "study": plan,
        "seeds": plan["seeds"],
        "cases": [],
        "planned": planned,
        "version": version("gridpriv"),
        "versions": versions(),
        "machine": machine(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def versions() -> dict[str, str]:
    """Return the version of Python and of every package that figures depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine() -> Json:
    """Return system and processor of this machine; no name or address."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
    }
