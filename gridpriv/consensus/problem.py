"""The one seam between the algorithm and its applications."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gridpriv.consensus.schedules import Update
from gridpriv.core.arrays import Floats, Ints
from gridpriv.privacy.sensitivity import Norm, Sensitivity
from gridpriv.privacy.strategies.disclosure import Disclosure


@dataclass(frozen=True, eq=False)
class Minimiser:
    """A local solution and what it took.

    Attributes
    ----------
    z : (n,)
    iterations, retries : int
        Of the solver; retries counts repeats with safer settings.
    """

    z: Floats
    iterations: int = 0
    retries: int = 0


class LocalProblem(Protocol):
    """min f(z; data) over a public convex set W, seen by one agent.

    Attributes
    ----------
    key : int
        Identity for noise streams: the same whatever the order of agents.
    coordinates : (n,) int
        Number of each variable in the global vector; agents share equal numbers.
    smoothness : float
        Lipschitz constant L of the gradient of f (public).
    solver_share : mapping from update to float
        By what share of a minimiser's sensitivity errors of solvers may add to it; 0 where there
        are none.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def key(self) -> int: ...  # noqa: D102

    @property
    def coordinates(self) -> Ints: ...  # noqa: D102

    @property
    def smoothness(self) -> float: ...  # noqa: D102

    @property
    def solver_share(self) -> Mapping[Update, float]: ...  # noqa: D102

    def start(self) -> Floats:
        """Return the public start z^1, shape (n,)."""
        ...

    def gradient(self, z: Floats, data: Floats) -> Floats:
        """Return the gradient of f at z, shape (n,)."""
        ...

    def minimise(
        self, linear: Floats, metric: Floats, *, near: bool = False, within: float = math.inf
    ) -> Minimiser:
        """Return argmin over W of <linear, z> + 1/2 z' diag(metric) z.

        With ``near`` a point serves that a solver ended near it: no release rests on it. Where one
        does, its error in the norm of diag(metric) is proven to be at most ``within``.
        """
        ...

    def minimise_exact(
        self, linear: Floats, metric: Floats, *, near: bool = False, within: float = math.inf
    ) -> Minimiser:
        """Return argmin over W of f's own public quadratic + <linear, z> + 1/2 z' diag(metric) z.

        For f(z; data) = 1/2 z'Hz + <gradient(0, data), z> + constant with H public.
        """
        ...

    def figures(self, z: Floats, data: Floats) -> dict[str, float]:
        """Return figures that add up over agents; ``objective`` is one. They use private data."""
        ...

    def gradient_sensitivity(self, adjacency: Any, norm: Norm) -> Sensitivity:
        """Return the sensitivity of the gradient, at any z."""
        ...

    def output_sensitivity(
        self, adjacency: Any, norm: Norm, update: Update, metric: Floats
    ) -> Sensitivity:
        """Return the sensitivity of the released minimiser; ``metric`` is the local quadratic's."""
        ...

    @property
    def disclosure(self) -> Disclosure:
        """The statistics that demand perturbation releases; refuses where that is no release."""
        ...
