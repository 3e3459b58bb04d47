"""The algorithms by name: which settings each reads, and what its noise is on."""

from __future__ import annotations

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
