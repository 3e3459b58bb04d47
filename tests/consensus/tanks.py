"""Two water tanks with a pipe between them: the smallest application of the consensus algorithm.

Each tank takes an inflow x of at most its own capacity, and water moves through the pipe at rate
q from the first tank to the second. A tank's demand d is private. Its deficit is
s = d - x + q (first) or d - x - q (second), and it minimizes s^2. Only q is shared.

With both inflows at their capacity the tanks share the deficit evenly: s = (D - C)/2 each, where D
and C are the sums of demands and capacities, and q = (d2 - c2 - d1 + c1)/2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from gridpriv.consensus.agent import Agent, AgentRules, Minimiser
from gridpriv.core.errors import SolverError
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import NoiseRule, Perturbation
from gridpriv.privacy.sensitivity import Sensitivity

PIPE = 4.0
INFLOW, FLOW = 0, 1  # the variables of a tank: (x, q)


class Itself:
    """Release the demand itself, and use the released value as its estimate."""

    def measure(self, data):
        return data

    def sensitivity(self, adjacency, norm):
        return Sensitivity(adjacency, norm, "one demand")

    def estimate(self, released, release):
        del release
        return released


class Tank:
    """f(z; d) = (d - b'z)^2 over a box, with b = (1, +-1)."""

    smoothness = 4.0  # 2 b'b
    solver_error = 0.0  # its minimisers are exact

    def __init__(self, key: int, capacity: float, *, breaks_at: int = 0) -> None:
        self.name, self.key = f"tank {key}", key
        self.coordinates = np.array([key, 0])  # x is its own, q is global variable 0
        self.row = np.array([1.0, -1.0 if key == 1 else 1.0])
        self.box = np.array([[0.0, capacity], [-PIPE, PIPE]])
        self._breaks_at, self._solves = breaks_at, 0

    def start(self):
        return np.zeros(2)

    def gradient(self, z, data):
        return 2.0 * self.row * (self.row @ z - data[0])

    def minimise(self, linear, metric, *, near=False, within=np.inf):
        del near, within
        self._solves += 1
        if self._solves == self._breaks_at:
            raise SolverError("the pipe burst")
        return Minimiser(np.clip(-linear / metric, *self.box.T), iterations=1)

    def minimise_exact(self, linear, metric, *, near=False, within=np.inf):
        """Try every corner, edge and the inside: the best point that is stationary on its face."""
        del near, within
        self._solves += 1
        if self._solves == self._breaks_at:
            raise SolverError("the pipe burst")
        square = 2.0 * np.outer(self.row, self.row) + np.diag(metric)
        best, least = None, np.inf
        for at_bound in product((None, 0, 1), repeat=2):
            free = [k for k in range(2) if at_bound[k] is None]
            z = np.array(
                [0.0 if at_bound[k] is None else self.box[k, at_bound[k]] for k in range(2)]
            )
            if free:
                inner = square[np.ix_(free, free)]
                z[free] = np.linalg.lstsq(inner, -(linear + square @ z)[free], rcond=None)[0]
            inside = (z >= self.box[:, 0] - 1e-12) & (z <= self.box[:, 1] + 1e-12)
            value = linear @ z + 0.5 * z @ square @ z
            if inside.all() and value < least - 1e-15:
                best, least = z, value
        return Minimiser(best, iterations=9)

    def lack(self, z, data):
        return float(data[0] - self.row @ z)

    def metrics(self, z, data):
        return {"objective": self.lack(z, data) ** 2}

    def gradient_sensitivity(self, adjacency, norm):
        return Sensitivity(2.0 * adjacency * (2.0 if norm == 1 else np.sqrt(2.0)), norm, "2 beta b")

    def output_sensitivity(self, adjacency, norm, update, metric):
        del update, metric
        return Sensitivity(adjacency, norm, "of the test's making")

    @property
    def disclosure(self):
        return Itself()


@dataclass(frozen=True)
class Waterworks:
    """Both tanks.

    Attributes
    ----------
    demands, capacities : (2,) float
    rules : AgentRules
    breaks : (tank, solve)
        Which solve of which tank fails; (0, 0) is none.
    """

    demands: tuple[float, float]
    capacities: tuple[float, float]
    rules: AgentRules
    breaks: tuple[int, int] = (0, 0)
    seed: int = 7

    @property
    def sizes(self) -> list[int]:
        return [2, 2]

    def make(self, positions: Sequence[int]) -> list[Agent]:
        return [self.agent(position + 1) for position in positions]

    def agent(self, key: int) -> Agent:
        breaks_at = self.breaks[1] if self.breaks[0] == key else 0
        return Agent(
            Tank(key, self.capacities[key - 1], breaks_at=breaks_at),
            np.array([self.demands[key - 1]]),
            np.array([False, True]),
            self.rules,
            NoiseStreams(self.seed),
            proxy=np.array([1.0]),
        )


def rules(update="exact", target="none", local_updates=1, noise_schedule="update"):
    """Rules without noise, or with Laplace noise of a tenth of the sensitivity."""
    noise = None if target == "none" else NoiseRule("laplace", "simulated", 0.1)
    return AgentRules(update, local_updates, Perturbation(target, noise_schedule), noise, 0.01)
