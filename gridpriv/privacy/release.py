"""One release: the noise that is drawn and the privacy that it costs, in one frozen object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gridpriv.core.arrays import Floats
from gridpriv.privacy.mechanism import Charge, Mechanism, Stream
from gridpriv.privacy.sensitivity import Sensitivity


@dataclass(frozen=True)
class Release:
    """Noise of ``mechanism`` on a quantity of known ``sensitivity``.

    Attributes
    ----------
    sensitivity : Sensitivity
        The sound one, in the mechanism's norm: what the accountant charges for.
    assumed : float
        The sensitivity the noise was calibrated to: the same under calibration ``sound``,
        the paper's under ``paper``.
    """

    mechanism: Mechanism
    sensitivity: Sensitivity
    assumed: float

    def apply(self, value: Floats, stream: Stream) -> Floats:
        """Return the private quantity with noise on every coordinate."""
        return self.mechanism.perturb(value, stream)

    @property
    def certified(self) -> Charge:
        """What the release costs under the sound sensitivity."""
        return self.mechanism.charge(self.sensitivity.value)

    def certified_within(self, factor: float) -> Charge:
        """Return what it costs where the sensitivity is ``factor`` times the stated one."""
        return self.mechanism.charge(factor * self.sensitivity.value)

    @property
    def claimed(self) -> Charge:
        """What it would cost if the assumed sensitivity were right."""
        return self.mechanism.charge(self.assumed)


class Charging(Protocol):
    """What an agent's releases are told to before they are drawn; it may refuse by raising."""

    def __call__(self, owner: str, releases: Mapping[Release, int]) -> None:
        """Charge an owner's new releases."""
        ...
