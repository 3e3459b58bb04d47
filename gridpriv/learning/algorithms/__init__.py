"""Algorithms and models by name: which settings an algorithm reads, and what its noise is on.

A model is linear, or a torch module named on the command line: ``module:FILE.py:CLASS``.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.files import read_bytes
from gridpriv.learning.clients import import_torch

_BATCHES = {"batch", "sampling", "sampled_clients"}
_PENALTY = {"penalty", "clip"}

# settings that not every algorithm reads
READS: dict[str, frozenset[str]] = {
    "ryu-kim": frozenset(
        {"perturbation", "local_updates", "step_scale", "box", "output_step", *_PENALTY}
    ),
    "admm": frozenset(_PENALTY),
    "pvp": frozenset(_PENALTY),
    "dvp": frozenset(_PENALTY),
    "dp-admm": frozenset({"step", "radius", "gradient_change", *_PENALTY}),
    "dpsgd": frozenset(
        {
            "learning_rate",
            "clip",
            "momentum",
            "averaging",
            "centring",
            "trust",
            "colluding",
            "dropouts",
            *_BATCHES,
        }
    ),
    "dp-fedavg": frozenset({"learning_rate", "clip", "local_updates", "participation", *_BATCHES}),
    "fedspd-dp": frozenset(
        {"local_updates", "diameter", "proximity", "gradient_change", *_PENALTY, *_BATCHES}
    ),
    "cdp-admm": frozenset({"step_scale", "graph", "decay", *_PENALTY}),
    "ddp-admm": frozenset({"step_scale", "graph", *_PENALTY}),
    "centralized": frozenset({"box"}),
}
SPECIFIC: frozenset[str] = frozenset().union(*READS.values())
ALGORITHMS = tuple(READS)
# what noise is added to, as a setting and in words; ryu-kim's is a setting
PERTURBED = {
    "pvp": ("output", "the local model"),
    "dvp": ("dual", "the dual variable"),
    "dp-admm": ("output", "the linearized local model"),
    "dpsgd": ("gradient", "the gradient"),
    "dp-fedavg": ("update", "the server's model"),
    "fedspd-dp": ("output", "the mean of the local steps"),
    "cdp-admm": ("output", "the local model"),
    "ddp-admm": ("output", "the local model"),
}
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
    """Return the SHA-256 of a module's file: a model file is read with the same code only."""
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
