"""A zone as the local problem of the consensus algorithm, and the choice of its solver."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gridpriv.consensus.agent import Minimiser
from gridpriv.consensus.schedules import SolverTolerance, Update
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import not_allowed
from gridpriv.power.objective import fixed_cost
from gridpriv.power.presolve import ReducedProgram, presolve
from gridpriv.power.program import ZoneProgram
from gridpriv.power.sensitivity import SOLVER_ERROR, gradient_sensitivity, output_sensitivity
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.linear import Disclosure
from gridpriv.privacy.sensitivity import Norm, Sensitivity

if TYPE_CHECKING:
    from gridpriv.power.solvers.clarabel import Certified


class ZoneSolver(Protocol):
    """Solve minimize 1/2 z'(D + [exact] 2B'B) z + linear'z over a zone's feasible set.

    D is the diagonal ``metric``. A solver reuses the parts that do not change between solves.
    """

    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Minimiser:
        """Return the minimizer, or with ``near`` a point near it.

        Raises
        ------
        SolverError
            Where there is no minimizer, or none is found.
        """


class OnePoint:
    """Solver of a zone whose presolve leaves no variable, and so a single feasible point.

    Such a zone is a bus with a fixed voltage, without generators. Presolve has checked that the
    point satisfies every constraint.
    """

    def __init__(self, program: ReducedProgram) -> None:
        self._point = program.restore(np.zeros(0))

    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Minimiser:
        """Return the point, whatever the objective."""
        del linear, metric, near
        return Minimiser(self._point.copy(), 0, 0)


class ZoneProblem:
    """f(z; d) of the zone's objective over its W; the data d are (pd, qd) of its own buses.

    Parameters
    ----------
    solver : str
        ``ipopt``, ``clarabel`` or ``pyomo:NAME``.
    disclosure : Disclosure, optional
        Released statistics of the demand, under demand perturbation.
    solver_tolerance : {'matched', 'tight'}
        Accuracy of a solve whose minimizer is not released.
    """

    solver_error = SOLVER_ERROR

    def __init__(
        self,
        program: ZoneProgram,
        solver: str,
        disclosure: Disclosure | None = None,
        solver_tolerance: SolverTolerance = "tight",
    ) -> None:
        self._disclosure = disclosure
        self.program = program
        self.name = program.name
        self.key = program.key
        self.coordinates: Ints = program.coordinates
        self.solver = solver
        self.solver_tolerance: SolverTolerance = solver_tolerance
        self._last_output: tuple[Any, Sensitivity] | None = None
        self._solvers: dict[bool, ZoneSolver] = {}
        self._certified: dict[bool, Certified] = {}
        self._sensitivities: dict[tuple[DemandAdjacency, Norm], Sensitivity] = {}

    def disclosing(self, disclosure: Disclosure | None) -> ZoneProblem:
        """Return the same problem, with its solvers, and another disclosure of its demand."""
        other = copy.copy(self)
        other._disclosure = disclosure
        return other

    @cached_property
    def smoothness(self) -> float:
        """L = 2 M lambda_max(BB') + max H (public)."""
        gram = (self.program.imbalance @ self.program.imbalance.T).toarray()
        largest = float(np.linalg.eigvalsh(gram)[-1])
        return 2.0 * self.program.weight * largest + float(self.program.cost_square.max())

    @cached_property
    def reduced(self) -> ReducedProgram:
        """The presolved program."""
        return presolve(self.program)

    def start(self) -> Floats:
        """Return the flat start."""
        return self.program.start.copy()

    def imbalance(self, z: Floats, data: Floats) -> Floats:
        """Return s = Bz + d: active, then reactive, of the own buses; positive is a shortage."""
        return np.asarray(self.program.imbalance @ z + data)

    def gradient(self, z: Floats, data: Floats) -> Floats:
        """Return 2 M B'(Bz + d) + Hz + c."""
        program = self.program
        return program.pull(self.imbalance(z, data)) + program.cost_square * z + program.cost_linear

    def minimise(
        self, linear: Floats, metric: Floats, *, near: bool = False, within: float = math.inf
    ) -> Minimiser:
        """Return argmin over W of <linear, z> + 1/2 z' diag(metric) z."""
        return self._solved(linear, metric, near, within, exact=False)

    def minimise_exact(
        self, linear: Floats, metric: Floats, *, near: bool = False, within: float = math.inf
    ) -> Minimiser:
        """Return argmin over W of M ||Bz||^2 + 1/2 z'(H + diag(metric))z + <linear, z>."""
        return self._solved(linear, metric, near, within, exact=True)

    def _solved(
        self, linear: Floats, metric: Floats, near: bool, within: float, *, exact: bool
    ) -> Minimiser:
        if within < math.inf and self.reduced.size:
            if exact not in self._certified:
                from gridpriv.power.solvers.clarabel import Certified

                self._certified[exact] = Certified(self.reduced, exact=exact)
            return self._certified[exact].solve(linear, metric, within)
        if exact not in self._solvers:
            self._solvers[exact] = make_solver(
                self.solver,
                self.program,
                lambda: self.reduced,
                exact=exact,
                solver_tolerance=self.solver_tolerance,
            )
        return self._solvers[exact].solve(linear, metric, near=near)

    def metrics(self, z: Floats, data: Floats) -> dict[str, float]:
        """Return squared imbalance (p.u.), shortage, surplus (MW, MVAr), cost; for the owner only.

        The cost of generation in $/h is included only if the objective has it.
        """
        base = self.program.zone.network.case.base_mva
        active, reactive = self.imbalance(z, data).reshape(2, -1)
        cost = {} if self._cost_unit is None else {"cost": self._cost(z)}
        return cost | {
            "objective": float(active @ active + reactive @ reactive),
            "plan_shortage_mw": base * float(np.maximum(active, 0.0).sum()),
            "plan_surplus_mw": base * float(np.maximum(-active, 0.0).sum()),
            "plan_shortage_mvar": base * float(np.maximum(reactive, 0.0).sum()),
            "plan_surplus_mvar": base * float(np.maximum(-reactive, 0.0).sum()),
        }

    @cached_property
    def _cost_unit(self) -> float | None:
        objective = self.program.zone.network.objective
        return objective.cost_unit if objective.kind == "cost" else None

    @cached_property
    def _fixed_cost(self) -> float:
        return fixed_cost(self.program.zone.network.case, self.program.zone.gens)

    def _cost(self, z: Floats) -> float:
        program = self.program
        moving = program.cost_linear @ z + 0.5 * program.cost_square @ z**2
        return float((self._cost_unit or 0.0) * moving) + self._fixed_cost

    def gradient_sensitivity(self, adjacency: DemandAdjacency, norm: Norm) -> Sensitivity:
        """Return the sensitivity of the gradient."""
        place = (adjacency, norm)
        if place not in self._sensitivities:
            self._sensitivities[place] = gradient_sensitivity(self.program, adjacency, norm)
        return self._sensitivities[place]

    def output_sensitivity(
        self, adjacency: DemandAdjacency, norm: Norm, update: Update, metric: Floats
    ) -> Sensitivity:
        """Return the sensitivity of the released minimizer; a round's updates share it."""
        place = (adjacency, norm, update, metric.tobytes())
        if self._last_output is None or self._last_output[0] != place:
            result = output_sensitivity(self.program, adjacency, norm, update, metric)
            self._last_output = (place, result)
        return self._last_output[1]

    @property
    def disclosure(self) -> Disclosure:
        """Release strategy of the demand."""
        if self._disclosure is None:
            raise ValueError("demand perturbation needs a disclosure")
        return self._disclosure


SOLVERS = ("ipopt", "clarabel", "pyomo:NAME")


def check_solver(name: str) -> None:
    """Raise :class:`gridpriv.core.errors.InputError` unless ``name`` is a solver that can run."""
    if name.startswith("pyomo:"):
        from gridpriv.power.solvers.pyomo import check_available

        check_available(name.removeprefix("pyomo:"))
    elif name not in ("ipopt", "clarabel"):
        raise not_allowed("solver", name, f"one of {', '.join(SOLVERS)}")


def make_solver(
    name: str,
    program: ZoneProgram,
    reduced: Callable[[], ReducedProgram],
    *,
    exact: bool,
    solver_tolerance: SolverTolerance = "tight",
) -> ZoneSolver:
    """Return a solver of a zone.

    Parameters
    ----------
    name : str
        ``ipopt``, ``clarabel`` or ``pyomo:NAME``.
    program : ZoneProgram
    reduced : callable
        Returns the presolved program; called by solvers that use it.
    exact : bool
        True if the objective has f's own quadratic.
    solver_tolerance : {'matched', 'tight'}
        Accuracy of Clarabel where a point near the minimizer suffices.
    """
    if name.startswith("pyomo:"):
        from gridpriv.power.solvers.pyomo import PyomoSolver

        return PyomoSolver(program, name.removeprefix("pyomo:"), exact=exact)
    presolved = reduced()
    if presolved.size == 0:
        return OnePoint(presolved)
    if name == "clarabel":
        from gridpriv.power.solvers.clarabel import ClarabelSolver

        return ClarabelSolver(presolved, exact=exact, solver_tolerance=solver_tolerance)
    from gridpriv.power.solvers.ipopt import IpoptSolver

    return IpoptSolver(presolved, exact=exact)


def solver_version(name: str) -> str:
    """Return the version of a solver's package."""
    package = {"ipopt": "casadi", "clarabel": "clarabel"}.get(name, "pyomo")
    return f"{package} {version(package)}"
