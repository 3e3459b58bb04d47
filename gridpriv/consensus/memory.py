"""An agent's rules, its state between rounds, and its figures for its owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gridpriv.consensus.schedules import Update
from gridpriv.core.arrays import Floats
from gridpriv.privacy.perturbation import NoiseRule, Perturbation
from gridpriv.privacy.release import Release

Place = tuple[int, int]
"""Round and local update, each from 1."""


class Streams(Protocol):
    """Where simulated noise comes from; the same arguments give the same generator."""

    def stream(self, zone: int, round_: int, update: int) -> np.random.Generator:
        """Return the generator of one agent's update."""
        ...


@dataclass(frozen=True)
class AgentRules:
    """Rules that all agents of a run follow (public).

    Attributes
    ----------
    update : {'linearized', 'exact'}
    local_updates : int
        E.
    noise : NoiseRule or None
        None without perturbation.
    adjacency : object
        What the problem's sensitivities are taken for.
    """

    update: Update
    local_updates: int
    perturbation: Perturbation
    noise: NoiseRule | None
    adjacency: Any


@dataclass(frozen=True)
class Effort:
    """A solver's effort in a round: iterations, repeats with safer settings, solves; private."""

    iterations: int = 0
    retries: int = 0
    solves: int = 0


@dataclass(frozen=True, eq=False)
class Figures:
    """An agent's last round, for its owner only: computed from private data.

    Attributes
    ----------
    values : dict
        The problem's own figures at the average that was sent.
    noise_magnitude : float
        Sum of |noise| over updates and coordinates (6.2).
    """

    values: dict[str, float]
    noise_magnitude: float
    effort: Effort


@dataclass(frozen=True, eq=False)
class Iterate:
    """An agent's variables between rounds.

    Attributes
    ----------
    z : (n,)
        Last iterate: the next round starts here.
    average : (n,)
        Of the last round's iterates; its shared part was sent.
    dual : (n,)
        0 on coordinates that nobody shares.
    """

    z: Floats
    average: Floats
    dual: Floats


@dataclass(frozen=True, eq=False)
class AgentState:
    """All that an agent keeps from one round to the next; private.

    Attributes
    ----------
    draw : (int, int) or None
        Where the noise of the data in use was drawn.
    estimate : array
        The data in use, where noise was drawn on them; else empty.
    drawn : mapping of Release to int
        Every release so far.
    """

    at: Iterate
    draw: Place | None
    estimate: Floats
    drawn: Mapping[Release, int]
