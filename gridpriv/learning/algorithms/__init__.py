"""The algorithms by name: which settings each reads, and its class, imported when one runs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gridpriv.learning.algorithms.base import Algorithm, Task

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
# what noise is added to; ryu-kim's is a setting
PERTURBED = {
    "pvp": "output",
    "dvp": "dual",
    "dp-admm": "output",
    "dpsgd": "gradient",
    "dp-fedavg": "update",
    "fedspd-dp": "output",
    "cdp-admm": "output",
    "ddp-admm": "output",
}
NON_PRIVATE = ("admm", "centralized")
# file and class; others have those of their name
_HOME = {
    "admm": ("star_admm", "Admm"),
    "dp-admm": ("star_admm", "DpAdmm"),
    "pvp": ("star_admm", "Pvp"),
    "cdp-admm": ("graph_admm", "GraphAdmm"),
    "ddp-admm": ("graph_admm", "GraphAdmm"),
}


def make_algorithm(task: Task) -> Algorithm:
    """Return the algorithm of a task's settings."""
    name = task.settings.algorithm
    usual = name.replace("-", "_"), name.title().replace("-", "")
    file, kind = _HOME.get(name, usual)
    made: Algorithm = getattr(import_module(f"gridpriv.learning.algorithms.{file}"), kind)(task)
    return made
