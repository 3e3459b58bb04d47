"""When two training sets count as neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gridpriv.core.errors import one_of

Kind = Literal["replace-one", "add-one"]
KINDS: tuple[Kind, ...] = ("replace-one", "add-one")

TRUSTED = {
    "local": "no server is trusted",
    "central": "the server is trusted",
    "secure-sum": "no server sees single terms of a sum, and few clients collude with it",
}


@dataclass(frozen=True)
class SampleAdjacency:
    """One sample of one client is replaced by any other, or (``add-one``) by a blank one.

    A blank sample has no features, so its term of every sum is 0 while the sample keeps its place:
    counts and how batches are drawn are public and stay. That is how a sample's presence is
    protected here; a client that draws a batch of fixed size from one sample less would draw
    another one in its place.
    """

    kind: Kind = "replace-one"

    def __post_init__(self) -> None:
        one_of("adjacency", self.kind, KINDS)

    @property
    def factor(self) -> float:
        """Largest change of a sum, in gradients of samples."""
        return 2.0 if self.kind == "replace-one" else 1.0

    def __str__(self) -> str:
        change = {
            "replace-one": "is replaced by any other",
            "add-one": "counts or is blank (sample counts are public)",
        }
        return f"one sample of one client {change[self.kind]}"


def protected(algorithm: str, kind: Kind, trust: str = "local") -> str:
    """Return a sentence on the protection by an algorithm's releases, also against a server."""
    if algorithm == "dp-fedavg":
        return "one client's update is in the sum or not; the server is trusted"
    return f"{SampleAdjacency(kind)}; {TRUSTED[trust]}"
