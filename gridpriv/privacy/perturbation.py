"""Where noise enters a local update, and how often it is drawn.

A release must be a function of the private data and of what was released before; then each
costs what its own sensitivity says, and they compose. What is released, by target:

- ``objective``: the perturbed gradient. The minimizer, the averages and the next iterate are
  computed from it and from public settings: post-processing.
- ``output``: the perturbed minimizer. A linearized update starts from the last perturbed
  minimizer, so every coordinate carries noise; an exact update starts from nothing, so its
  minimizer is released, and perturbed, on the shared coordinates only.
- ``demand``: the perturbed data; the local problem never sees anything else. Drawn anew per
  update, per round, or once per run, which then costs one release whatever the rounds.
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
    """From a sensitivity to a release.

    Attributes
    ----------
    mechanism : {'laplace', 'gaussian', 'knorm', 'staircase', 'staircase-number'}
    source : {'simulated', 'secure'}
    multiplier : float
        Scale of the noise over the sensitivity it is calibrated to.
    assumed : float or None
        The paper's sensitivity under sensitivity ``published``; None to use the sound one.
    """

    mechanism: str
    source: str
    multiplier: float
    assumed: float | None = None

    @cached_property
    def norm(self) -> Norm:
        """Norm in which the mechanism needs its sensitivity."""
        return MECHANISMS[self.mechanism, "simulated"].norm

    def release(self, sensitivity: Sensitivity) -> Release:
        """Return the release of a quantity of this sensitivity."""
        assumed = sensitivity.value if self.assumed is None else self.assumed
        kind = MECHANISMS[self.mechanism, self.source]
        mechanism = make_mechanism(kind, self.multiplier * assumed, assumed)
        return Release(mechanism, sensitivity, assumed)
