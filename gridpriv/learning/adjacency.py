"""When two training sets count as neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gridpriv.errors import one_of

Kind = Literal["replace-one", "add-one"]
KINDS: tuple[Kind, ...] = ("replace-one", "add-one")


@dataclass(frozen=True)
class SampleAdjacency:
    """One sample of one client is replaced by any other, or is there or not.

    Sample counts are public either way; with ``add-one`` the sample's term joins the sum
    and the public count it is divided by stays.
    """

    kind: Kind = "replace-one"

    def __post_init__(self) -> None:
        one_of("adjacency", self.kind, KINDS)

    @property
    def factor(self) -> float:
        """How many samples' gradients a sum can move by."""
        return 2.0 if self.kind == "replace-one" else 1.0

    def __str__(self) -> str:
        change = {
            "replace-one": "is replaced by any other",
            "add-one": "is in the training set or not (counts are public)",
        }
        return f"one sample of one client {change[self.kind]}"
