"""How far a released quantity can move between neighbours, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Norm = Literal[1, 2]


@dataclass(frozen=True)
class Sensitivity:
    """The largest distance between a quantity on neighbouring data.

    Attributes
    ----------
    value : float
    norm : {1, 2}
        The norm the distance is taken in.
    provenance : str
        Where it comes from, in words a reader can check.
    """

    value: float
    norm: Norm
    provenance: str

    def __post_init__(self) -> None:
        if not self.value > 0:
            raise ValueError(f"a sensitivity is positive, not {self.value}")
