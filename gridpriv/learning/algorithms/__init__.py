"""Algorithms and models by name: the settings that an algorithm reads, and its perturbed quantity.

A model is linear, or a torch module named on the command line: ``module:FILE.py:CLASS``.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.files import read_bytes, read_table
from gridpriv.learning.clients import import_torch

ROWS = read_table(Path(__file__).with_name("algorithms.toml"), "list of algorithms")
ALGORITHMS = tuple(ROWS)
# settings that not every algorithm reads
READS = {name: frozenset(row["reads"].split()) for name, row in ROWS.items()}
SPECIFIC: frozenset[str] = frozenset().union(*READS.values())
PERTURBED = {n: (row["perturbed"], row["quantity"]) for n, row in ROWS.items() if "quantity" in row}
NON_PRIVATE = ("admm", "centralized")

LINEAR = "linear"
FORM = f"{LINEAR}, or module:FILE.py:CLASS, the file and the class of a torch module"


def check_model(text: str) -> None:
    """Raise :class:`InputError` unless a text names a kind of model."""
    if text != LINEAR:
        _parts(text)


def _parts(text: str) -> tuple[Path, str]:
    kind, _, rest = text.partition(":")
    path, _, name = rest.rpartition(":")
    if kind != "module" or not path.endswith(".py") or not name.isidentifier():
        raise not_allowed("model", text, FORM)
    return Path(path), name


def source_digest(text: str) -> str:
    """Return the SHA-256 of a module's file, as a model file requires the same code."""
    return hashlib.sha256(read_bytes(_parts(text)[0], "module")).hexdigest()


def load_module(text: str, seed: int) -> Any:
    """Return a new module of the class, its parameters drawn by the seed; the file's code runs.

    Raises
    ------
    InputError
        If the file cannot be run, or has no such class that takes no arguments.
    """
    path, name = _parts(text)
    if not path.is_file():
        raise not_allowed("model", text, f"a file that exists: {path} does not")
    torch = import_torch()
    spec = importlib.util.spec_from_file_location(f"_gridpriv_module_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise not_allowed("model", text, FORM)
    code = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(code)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            module = getattr(code, name)()
    except Exception as error:  # the file's own code may raise anything
        raise InputError(f"model {text}: {type(error).__name__}: {error}") from error
    if not isinstance(module, torch.nn.Module):
        raise not_allowed("model", text, f"a subclass of torch.nn.Module; {name} is none")
    return module
