"""Noise streams of a simulation.

One independent stream per (run, zone, round, update): a draw depends on where it is used and
on nothing else, so results are the same whatever the order of zones or number of workers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class NoiseStreams:
    """Streams of one run, from its seed."""

    seed: int

    def stream(self, zone: int, round_: int, update: int) -> np.random.Generator:
        """Return the generator of one zone's update; the same arguments give the same one."""
        spawned = np.random.SeedSequence(self.seed, spawn_key=(zone, round_, update))
        return np.random.Generator(np.random.PCG64(spawned))
