"""One release: its noise and its privacy cost, in one frozen object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gridpriv.core.arrays import Floats
from gridpriv.privacy.mechanism import Additive, Charge, Mechanism, Stream
from gridpriv.privacy.sensitivity import Sensitivity


@dataclass(frozen=True)
class Release:
    """Noise of ``mechanism`` on a quantity of known ``sensitivity``.

    Attributes
    ----------
    sensitivity : Sensitivity
        The proven sensitivity, in the mechanism's norm, for the charge.
    assumed : float
        The sensitivity of the calibration: the same under sensitivity ``proven``, the paper's under
        ``published``.
    """

    mechanism: Mechanism
    sensitivity: Sensitivity
    assumed: float

    def apply(self, value: Floats, stream: Stream) -> Floats:
        """Return the private quantity with noise on every coordinate."""
        return self.mechanism.perturb(value, stream)

    @property
    def certified(self) -> Charge:
        """Cost of the release under the proven sensitivity."""
        return self.certified_within(1.0)

    def certified_within(self, factor: float) -> Charge:
        """Return the cost if the sensitivity is ``factor`` times the stated one."""
        charge = self.mechanism.charge(factor * self.sensitivity.value)
        share, independent = self.sensitivity.share, isinstance(self.mechanism, Additive)
        if share < 1.0 and independent and charge.kind == "laplace":
            return Charge("split-laplace", charge.parameter, share)
        return charge

    @property
    def nominal(self) -> Charge:
        """Cost of the release under the assumed sensitivity."""
        return self.mechanism.charge(self.assumed)


class Charging(Protocol):
    """Receiver of an agent's releases before they are drawn; it may refuse by raising."""

    def __call__(self, owner: str, releases: Mapping[Release, int]) -> None:
        """Charge an owner's new releases."""
        ...
