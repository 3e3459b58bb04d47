"""One release: its noise and its privacy cost, in one frozen object; and the values of releases.

A stored value is on disk before it is used. An interrupted run uses it again: that is
post-processing, so it is neither drawn nor charged a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.core.files import make_folder, read_sealed, sealed, write_text
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
        """Return the protected quantity with noise on every coordinate."""
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


@dataclass(frozen=True)
class KeptReleases:
    """Released values of a run that draws once, from their draw until the run is stored.

    Files have mode 0600, also in a public folder: they are removed when it is finished.

    Attributes
    ----------
    folder : Path
    network : str
        Digest of the grid without its demand.
    owners : tuple of int
        Keys of the zones, each with one value.
    run_id : str
        Identity of the attempt at the run that draws the values, the same in a ledger.
    reuses : bool
        True if the values are used again: then none is drawn or charged.
    """

    folder: Path
    network: str
    owners: tuple[int, ...]
    run_id: str = ""
    reuses: bool = False

    @property
    def complete(self) -> bool:
        """True if the value of every zone is stored."""
        return all(self._file(owner).exists() for owner in self.owners)

    def value(self, owner: int, release: Release, shape: tuple[int, ...]) -> Floats | None:
        """Return the value, of this shape, of a zone's release; None if it is to be drawn.

        Raises
        ------
        GridprivError
            If values are reused, and this one is missing, damaged, or of another release, zone,
            grid or run.
        """
        if not self.reuses:
            return None
        document = read_sealed(self._file(owner))
        try:
            value = np.array(document["value"], dtype=float)
            matches = document["release"] == self._identity(owner, release)
        except (KeyError, TypeError, ValueError, OverflowError):
            matches = False
        if not (matches and value.shape == shape and np.isfinite(value).all()):
            raise InputError(
                f"{self._file(owner)} is not the release that this zone stored in this run: put "
                "that file back, or name another folder"
            )
        return value

    def keep(self, owner: int, release: Release, value: Floats) -> None:
        """Store a released value; return when it is on disk."""
        make_folder(self.folder)
        document = {"release": self._identity(owner, release), "value": value.tolist()}
        write_text(self._file(owner), sealed(document), private=True)

    def _file(self, owner: int) -> Path:
        return self.folder / f"{owner}.json"

    def _identity(self, owner: int, release: Release) -> str:
        return f"{release!r} of {owner} on {self.network} in {self.run_id}"
