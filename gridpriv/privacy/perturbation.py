"""The perturbed quantity of a local update, and the noise schedule.

A release must be a function of the private data and of earlier releases. Then each costs as much as
its own sensitivity implies, and they compose. Targets:

- ``objective``: the perturbed gradient. The minimizer, the averages and the next iterate are
  computed from it and from public settings: post-processing.
- ``output``: the perturbed minimizer. A linearized update starts from the last perturbed minimizer,
  so every coordinate has noise. An exact update does not depend on an earlier iterate, so its
  minimizer is perturbed and released on the coupling variables only.
- ``demand``: the perturbed data, which replace the data in the local problem. Noise is drawn every
  update, every round, or once per run. Once is a single release, whatever the number of rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gridpriv.privacy.mechanism import MECHANISMS, make_mechanism
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity

Target = Literal["none", "objective", "output", "demand"]
NoiseSchedule = Literal["update", "round", "once"]


@dataclass(frozen=True)
class Perturbation:
    """Perturbed quantity and noise schedule.

    Attributes
    ----------
    target : {'none', 'objective', 'output', 'demand'}
    noise_schedule : {'update', 'round', 'once'}
        ``update`` unless the target is ``demand``.
    """

    target: Target
    noise_schedule: NoiseSchedule = "update"

    def releases(self, rounds: int, local_updates: int) -> int:
        """Return the number of releases of one agent in a run."""
        if self.target == "none":
            return 0
        per_run = {"update": rounds * local_updates, "round": rounds, "once": 1}
        return per_run[self.noise_schedule]

    def drawn_at(self, round_: int, update: int) -> tuple[int, int]:
        """Return the (round, update) at which the noise used at this one was drawn."""
        return {"update": (round_, update), "round": (round_, 1), "once": (1, 1)}[
            self.noise_schedule
        ]


@dataclass(frozen=True)
class NoiseRule:
    """Noise settings that make a release from a sensitivity.

    Attributes
    ----------
    mechanism : {'laplace', 'gaussian', 'knorm', 'staircase', 'staircase-number'}
    source : {'simulated', 'secure'}
    multiplier : float
        Scale of the noise divided by the sensitivity of its calibration.
    assumed : float or None
        The paper's sensitivity under sensitivity ``published``; None for the proven one.
    """

    mechanism: str
    source: str
    multiplier: float
    assumed: float | None = None

    @cached_property
    def norm(self) -> Norm:
        """Norm of the mechanism's sensitivity."""
        return MECHANISMS[self.mechanism, "simulated"].norm

    def release(self, sensitivity: Sensitivity) -> Release:
        """Return the release of a quantity with this sensitivity."""
        assumed = sensitivity.value if self.assumed is None else self.assumed
        kind = MECHANISMS[self.mechanism, self.source]
        mechanism = make_mechanism(kind, self.multiplier * assumed, assumed)
        return Release(mechanism, sensitivity, assumed)
