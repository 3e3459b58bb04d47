"""MAP estimate of demand from messages (damped Gauss-Newton), and the identifiability of demand.

**Estimate.** It minimizes, over demands d within public bounds,

    sum_t || y_t - phi_t(d) ||^2_{C_t^{-1}}  +  || (d - d0) / s0 ||^2

with y_t the messages of round t, phi_t the forward model, d0 and s0 the public prior and C_t
the linearized covariance of the noise in y_t:

    gradient noise   C = v G G' + tau^2 I     G = d y_t / d gradient
    output noise     C = v I
    demand noise     C = v J J' + tau^2 I     J = d y_t / d d, if it is drawn every round
                     C = tau^2 I              if it is drawn once

Noise of earlier rounds that reaches a message through variables that are not sent (linearized
updates, boundary messages) is left out: the estimate is then weaker than it could be.

The fit is to d plus the noise that the releases leave in it. So its prior is widened by that
variance, and the estimate is then shrunk accordingly. v is the variance of one coordinate's noise
and tau the solver's error. All rounds are fitted at once, which averages noise drawn every round.

Solutions are piecewise smooth in d (active sets change), and plain Gauss-Newton need not converge.
Steps are damped (Levenberg-Marquardt) and clipped to the bounds, and tau is reduced in stages.
Without noise the rounds are added one by one. A round that cannot be fitted from the last estimate
is tried again from draws of its posterior. If that fails twice, the estimate is that of the last
round that was fitted.

**Identifiability.** With J the derivative of all messages of R rounds by the zone's demand d, at
the true demand, tau the error of the solves and s0 the spread of the prior, no unbiased estimate
from the messages is sharper than the posterior covariance

    P = ( J'J / tau^2 + diag(1 / s0^2) )^{-1}.

It bounds every search; a search need not reach it. Per bus:

``identifiable``  two posterior standard deviations are within 5 % of the demand;
``confounded``    identifiable only if other demand were known: its demand changes the messages,
                  but in the same directions as that of other buses;
``unobservable``  not identifiable even then: its demand hardly changes the messages, because too
                  few rounds have passed, or the zone's generators balance it.

**Forward model.** The adversary knows everything but the demand: the feasible set, B, the settings,
and what the network sent. The duals follow from messages. So each solution can be computed, and its
derivatives by demand and by noise (:mod:`gridpriv.power.solvers.clarabel`).

**Stationarity inversion.** Under consensus ``all`` every variable crosses the network, so the
minimizer z of an update and the iterate before it are known. With z = T x + t0, A x + s = b, s in
K, optimality is

    T'(g + 2 M B'd) + A'y = 0,    y in K*, orthogonal to s

with g the known part of the gradient. y is zero where a constraint is slack, and lies along one
known direction where it is active (for a cone: s mirrored). Projected off these directions N, this
is linear in d and in the noise xi on the gradient:

    (I - N N^+) T' (2 M B'd + xi) = -(I - N N^+) T'g.

No program is solved and nothing is linearized. Demand in the null space of the projection stays
hidden in that round: at buses where everything is at a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

from gridpriv.assurance.adversary import RecordedRound
from gridpriv.core.arrays import Floats
from gridpriv.power.conic_block import DifferentiableSolver, SolvedUpdate
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.solvers.clarabel import conic_rows
from gridpriv.zonal.prepared import Prepared


@dataclass(frozen=True, eq=False)
class Predicted:
    """Predicted messages of a demand.

    Attributes
    ----------
    sent : (R, m)
    by_demand : (R, m, 2 |N_z|)
        Derivative of each round's message by the demand.
    by_gradient : (R, m, n) or None
        Derivative by that round's gradient noise.
    """

    sent: Floats
    by_demand: Floats
    by_gradient: Floats | None


class ForwardModel:
    """Predicts a zone's messages from a demand, round by round.

    Parameters
    ----------
    shared : (n,) bool
    script : sequence of RecordedRound
        The recorded rounds.
    exact : bool
        True for the exact local update.
    proxy : (2 |N_z|,), optional
        Public estimate of the demand, where the script has a warm start.
    """

    def __init__(
        self,
        problem: ZoneProblem,
        shared: NDArray[np.bool_],
        script: Sequence[RecordedRound],
        *,
        exact: bool,
        local_updates: int,
        proxy: Floats | None = None,
    ) -> None:
        self.problem = problem
        self.shared = shared
        self.last = problem.start()
        self.script: Sequence[RecordedRound] = [r for r in script if not r.warm_start]
        self._warm_start = [record for record in script if record.warm_start]
        self._proxy = proxy
        self.exact = exact
        # an exact update has no start, so its E repetitions without noise are equal
        self.updates = 1 if exact else local_updates

    @cached_property
    def observed(self) -> Floats:
        """Messages of the zone, (R, m)."""
        return np.array([record.sent for record in self.script])

    @cached_property
    def _solver(self) -> DifferentiableSolver:
        return DifferentiableSolver(self.problem.reduced, exact=self.exact)

    @cached_property
    def duals(self) -> list[Floats]:
        """The zone's dual before each round, from messages alone."""
        duals, dual = [], np.zeros(len(self.script[0].w))
        for record in self._warm_start:
            dual = dual + record.penalty * (record.w - record.sent)
        for record in self.script:
            duals.append(dual)
            dual = dual + record.penalty * (record.w - record.sent)
        return duals

    @cached_property
    def start(self) -> Floats:
        """The zone's iterate before the first noisy round; an exact update does not use it."""
        if not self._warm_start or self.exact or self._proxy is None:
            return self.problem.start()
        warm_started = ForwardModel(
            self.problem,
            self.shared,
            [replace(h, warm_start=False) for h in self._warm_start],
            exact=False,
            local_updates=self.updates,
        )
        warm_started.predict(self._proxy)
        return warm_started.last

    def predict(
        self, demand: Floats, rounds: int | None = None, *, gradients: bool = False
    ) -> Predicted:
        """Return the messages of a demand and their derivatives.

        Parameters
        ----------
        demand : (2 |N_z|,)
        rounds : int, optional
            Number of recorded rounds.
        gradients : bool
            Return derivatives by the gradient too (for noise on the gradient).
        """
        z = self.start
        z_by_demand = np.zeros((len(z), len(demand)))
        sent, by_demand, by_gradient = [], [], []
        for position, record in enumerate(self.script[:rounds]):
            rho, pull = np.zeros_like(z), np.zeros_like(z)
            rho[self.shared] = record.penalty
            pull[self.shared] = record.penalty * record.w + self.duals[position]
            total, total_by_demand = np.zeros_like(z), np.zeros_like(z_by_demand)
            for _ in range(self.updates):
                solved, z, z_by_demand = self._update(
                    z, z_by_demand, demand, pull, rho, record.step
                )
                total, total_by_demand = total + z, total_by_demand + z_by_demand
            sent.append(total[self.shared] / self.updates)
            by_demand.append(total_by_demand[self.shared] / self.updates)
            if gradients:
                chosen = np.zeros((len(z), int(self.shared.sum())))
                chosen[self.shared, np.arange(chosen.shape[1])] = 1.0
                by_gradient.append(solved.response(chosen).T)
            if self.updates == 1:  # observed values include the noise of earlier rounds
                z, z_by_demand = z.copy(), z_by_demand.copy()
                z[self.shared], z_by_demand[self.shared] = record.sent, 0.0
        self.last = z
        return Predicted(
            np.array(sent), np.array(by_demand), np.array(by_gradient) if gradients else None
        )

    def _update(
        self, z: Floats, z_by_demand: Floats, demand: Floats, pull: Floats, rho: Floats, step: float
    ) -> tuple[SolvedUpdate, Floats, Floats]:
        """(3.2), and its derivative by the demand given that of z."""
        program = self.problem.program
        if self.exact:
            linear = self.problem.gradient(np.zeros_like(z), demand) - pull
            changes = program.by_demand
            solved = self._solver.update(linear, rho)
        else:
            linear = self.problem.gradient(z, demand) - pull - z / step
            changes = program.by_demand + program.hessian @ z_by_demand - z_by_demand / step
            solved = self._solver.update(linear, rho + 1.0 / step)
        return solved, solved.z, solved.response(np.asarray(changes))


BINDS = 1e-4  # slack below which a constraint may be active (p.u.)


def sends_all_variables(prepared: Prepared) -> bool:
    """Return True if every variable is sent, so that optimality conditions can be inverted."""
    rules = prepared.rules
    all_sent = all(shared.all() for shared in prepared.shared)
    return all_sent and rules.local_updates == 1 and rules.perturbation.target != "output"


class StationarityModel:
    """The projected optimality conditions as a model that is linear in demand.

    Its ``observed`` (right sides) and ``predict`` (left sides) are those of
    :func:`gridpriv.assurance.inversion.fit`, divided by the round's largest quadratic coefficient,
    so they are in the units of z.

    Parameters
    ----------
    model : ForwardModel
        With one local update per round, whose variables are all sent.
    """

    def __init__(self, model: ForwardModel) -> None:
        if model.updates > 1 or not model.shared.all():
            raise ValueError("stationarity needs every variable of every local update")
        self.problem: ZoneProblem = model.problem
        self.script = model.script
        self._model = model

    @cached_property
    def observed(self) -> Floats:
        """Right side of every round, (R, r)."""
        return np.array([right for _, _, right in self._rounds])

    def predict(
        self, demand: Floats, rounds: int | None = None, *, gradients: bool = False
    ) -> Predicted:
        """Return the left sides at a demand, with the coefficients of d and xi."""
        chosen = self._rounds[:rounds]
        by_demand = np.array([factors for factors, _, _ in chosen])
        by_gradient = np.array([noise for _, noise, _ in chosen]) if gradients else None
        return Predicted(by_demand @ demand, by_demand, by_gradient)

    @cached_property
    def _rounds(self) -> list[tuple[Floats, Floats, Floats]]:
        before, result = self._model.start, []
        for record, dual in zip(self.script, self._model.duals, strict=True):
            result.append(
                self._round(record.sent, before, record.penalty, record.w, dual, record.step)
            )
            before = record.sent
        return result

    def _round(
        self, z: Floats, before: Floats, rho: Floats, w: Floats, dual: Floats, step: float
    ) -> tuple[Floats, Floats, Floats]:
        """Return the factors of d and of xi, and the right-hand side, of one round."""
        program = self.problem.program
        if self._model.exact:
            known, metric = program.hessian @ z, rho
        else:
            known, metric = program.hessian @ before - before / step, rho + 1.0 / step
        known = known + program.cost_linear - rho * w - dual + metric * z
        expand = self.problem.reduced.expand
        hidden, _ = np.linalg.qr(self._binding(z))
        scale = float(metric.max())

        def projected(rows: Floats) -> Floats:
            return np.asarray(rows - hidden @ (hidden.T @ rows)) / scale

        return (
            projected(expand.T @ program.by_demand),
            projected(expand.T.toarray()),
            -projected(expand.T @ known),
        )

    def _binding(self, z: Floats) -> Floats:
        """Return the directions A'y of the constraints that may be active at z, (r, active)."""
        reduced = self.problem.reduced
        rows, offset, _ = conic_rows(reduced)
        slack = offset - rows @ self._gram_factor.solve(reduced.expand.T @ (z - reduced.shift))
        linear = len(slack) - int(reduced.cone_sizes.sum())
        normals = [rows[np.flatnonzero(slack[:linear] < BINDS)].toarray()]
        head = linear
        for size in reduced.cone_sizes:
            s = slack[head : head + size]
            if s[0] - np.linalg.norm(s[1:]) < BINDS:
                mirrored = np.concatenate([s[:1], -s[1:]])
                normals.append((mirrored @ rows[head : head + size])[None])
            head += int(size)
        return np.asarray(np.vstack(normals).T)

    @cached_property
    def _gram_factor(self) -> sparse.linalg.SuperLU:
        """Factors of T'T, which turn z back into x."""
        expand = self.problem.reduced.expand
        return splu(sparse.csc_matrix(expand.T @ expand))


STAGES = (1e-3, 1e-4, 1e-5, 1e-6)
NOISY_STAGES = (1e-3, 1e-4, 1e-6)
MISFIT_RATIO = 3.0  # misfit over tau up to which tau falls further
EXPLAINED_MISFIT = 6e-5  # misfit of a round that is explained: a few times the error of a solve
REACH = 8.0  # standard deviations of noise in a fitted demand
RESTARTS = 5  # draws for a round that is not explained
ITERATIONS = 12  # damped steps of each stage


MessageModel: TypeAlias = ForwardModel | StationarityModel
"""Messages as a function of demand: ``script``, ``observed``, ``predict``."""


@dataclass(frozen=True, eq=False)
class DemandPrior:
    """Public prior of a zone's demand, per unit: mean, spread and bounds, (2 b,)."""

    mean: Floats
    spread: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True)
class NoiseModel:
    """The adversary's model of the noise.

    Attributes
    ----------
    target : {'none', 'objective', 'output', 'demand'}
    once : bool
        Demand noise drawn once for the run.
    variance : float
        Of one coordinate in one message (noise of E updates is averaged in it).
    """

    target: str
    once: bool = False
    variance: float = 0.0

    @property
    def exact(self) -> bool:
        """True if one demand explains every message: no noise, or demand noise drawn once."""
        return self.target == "none" or (self.target == "demand" and self.once)


@dataclass(frozen=True, eq=False)
class Estimate:
    """An estimated demand.

    Attributes
    ----------
    demand : (2 b,)
    spread : (2 b,)
        Posterior standard deviation at the linearization.
    """

    demand: Floats
    spread: Floats


@dataclass(frozen=True, eq=False)
class _Fitted:
    """End of a descent: a demand, its predicted messages, and the last tau."""

    demand: Floats
    at: Predicted
    tau: float
    misfit: float


def fit(
    model: MessageModel, prior: DemandPrior, noise: NoiseModel, generator: np.random.Generator
) -> Estimate:
    """Return the MAP estimate of a zone's demand from its messages.

    Parameters
    ----------
    model : MessageModel
        Model with the messages.
    generator : numpy Generator
        For restarts.
    """
    total = len(model.script)
    if noise.exact:
        search = _search(model, prior, noise, total)
        return _shrunk(search, prior, search.explained(total, generator))
    result, demand = [], prior.mean
    if noise.target == "demand":  # the noisy demand of a round explains its message
        search = _search(model, prior, replace(noise, once=True), 1)
        result.append(_shrunk(search, prior, search.explained(1, generator)))
    for rounds in range(1, total + 1):
        if rounds == total or rounds & (rounds - 1) == 0:
            search = _search(model, prior, noise, rounds)
            fitted = search.descend(demand, rounds, NOISY_STAGES)
            demand = fitted.demand
            result.append(_shrunk(search, prior, fitted))
    # more rounds average more noise, unless their misfit is too large
    return min(result, key=lambda estimate: float((estimate.spread / prior.spread).mean()))


def _search(model: MessageModel, prior: DemandPrior, noise: NoiseModel, rounds: int) -> _Search:
    """Return the search for the demand, and the variance of noise that remains in it."""
    hidden = _hidden(model, noise, rounds)
    spread, reach = np.sqrt(prior.spread**2 + hidden), REACH * np.sqrt(hidden)
    wide = DemandPrior(prior.mean, spread, prior.lower - reach, prior.upper + reach)
    return _Search(model, wide, noise, hidden)


def _shrunk(search: _Search, prior: DemandPrior, result: _Fitted) -> Estimate:
    """Return the estimate of a fit, shrunk by the noise in it."""
    noise, spread, hidden = search.noise, search.prior.spread, search.hidden
    weights = _weights(result.at, noise, result.tau)
    information = _information(result.at, weights) + np.diag(1.0 / spread**2)
    posterior = np.sqrt(np.diag(np.linalg.pinv(information, hermitian=True)))
    residual = search.model.observed[: len(result.at.sent)] - result.at.sent
    fitted = float(np.einsum("tm,tmn,tn->", residual, weights, residual, optimize=True))
    # a fit with a misfit above the noise has less weight
    doubt = max(0.0, fitted / residual.size - 1.0) if noise.target != "none" else 0.0
    keep = prior.spread**2 / (spread**2 + doubt * posterior**2)
    demand = np.clip(prior.mean + keep * (result.demand - prior.mean), prior.lower, prior.upper)
    deviation = np.sqrt(keep * hidden + keep**2 * (1.0 + doubt) * posterior**2)
    return Estimate(demand, np.minimum(deviation, prior.spread))


@dataclass(frozen=True, eq=False)
class _Search:
    """Damped descents on growing numbers of rounds."""

    model: MessageModel
    prior: DemandPrior
    noise: NoiseModel
    hidden: Floats

    def explained(self, total: int, generator: np.random.Generator) -> _Fitted:
        """Return the fit of as many rounds as can be explained, with restarts where needed."""
        last = last_explained = self.descend(self.prior.mean, 1, STAGES)
        failures = 0
        for rounds in range(1, total + 1):
            here = self.descend(last.demand, rounds, STAGES)
            for _ in range(RESTARTS):
                if here.misfit <= EXPLAINED_MISFIT:
                    break
                trial = self.descend(self._draw(here, generator), rounds, STAGES)
                here = min(here, trial, key=lambda result: result.misfit)
            if here.misfit <= EXPLAINED_MISFIT:
                last_explained, failures = here, 0
            else:
                failures += 1
            if failures == 2:
                break
            last = here
        return last_explained

    def _draw(self, result: _Fitted, generator: np.random.Generator) -> Floats:
        """Return a demand drawn from the posterior after the rounds so far."""
        tau = max(1e-4, MISFIT_RATIO * result.misfit)
        scaled = result.at.by_demand.reshape(-1, len(self.prior.spread)) * self.prior.spread / tau
        values, vectors = np.linalg.eigh(scaled.T @ scaled + np.eye(len(self.prior.spread)))
        change = vectors @ (generator.normal(size=len(values)) / np.sqrt(values))
        trial = result.demand + self.prior.spread * change
        return np.asarray(np.clip(trial, self.prior.lower, self.prior.upper))

    def descend(self, demand: Floats, rounds: int, taus: tuple[float, ...]) -> _Fitted:
        """Descend at decreasing tau while the misfit decreases with it."""
        gradients, damping = self.noise.target == "objective", 1e-2
        at = self.model.predict(demand, rounds, gradients=gradients)
        for tau in taus:
            weights = _weights(at, self.noise, tau)
            for _ in range(ITERATIONS):
                trial, now, damping = self._step(weights, demand, at, damping)
                if now is None:
                    break
                largest_change = float(np.abs(trial - demand).max())
                demand, at = trial, now
                weights = _weights(at, self.noise, tau)
                if largest_change < 1e-7:
                    break
            damping = min(damping, 1.0)
            misfit = float(np.sqrt(np.mean((at.sent - self.model.observed[:rounds]) ** 2)))
            if self.noise.exact and misfit > MISFIT_RATIO * tau:
                break
        return _Fitted(demand, at, tau, misfit)

    def _step(
        self, weights: Floats, demand: Floats, at: Predicted, damping: float
    ) -> tuple[Floats, Predicted | None, float]:
        """Return (demand, its prediction, damping) after an accepted step; None if none helps."""
        model, prior = self.model, self.prior
        residual = model.observed[: len(at.sent)] - at.sent
        pull = np.einsum("tmi,tmn,tn->i", at.by_demand, weights, residual, optimize=True)
        pull = pull - (demand - prior.mean) / prior.spread**2
        hessian = _information(at, weights) + np.diag(1.0 / prior.spread**2)
        free = _free(demand, pull, prior)
        before = _cost(residual, weights, demand, prior)
        for _ in range(6):
            change = np.zeros_like(demand)
            damped = hessian[np.ix_(free, free)] + damping * np.diag(np.diag(hessian)[free])
            change[free] = np.linalg.solve(damped, pull[free])
            trial = np.clip(demand + change, prior.lower, prior.upper)
            now = model.predict(trial, len(at.sent), gradients=self.noise.target == "objective")
            remaining_residual = model.observed[: len(now.sent)] - now.sent
            after = _cost(remaining_residual, weights, trial, prior)
            if after < before:
                return trial, now, max(damping / 5.0, 1e-9)
            damping *= 5.0
        return demand, None, damping


def _hidden(model: MessageModel, noise: NoiseModel, draws: int) -> Floats:
    """Return the variance of noise in each demand given all releases."""
    size = model.problem.program.imbalance.shape[0]
    if noise.target == "demand":
        return np.full(size, noise.variance / (1 if noise.once else draws))
    if noise.target == "objective":
        inverse = np.linalg.pinv(model.problem.program.by_demand)
        return np.asarray((inverse**2).sum(axis=1) * noise.variance / draws)
    return np.zeros(size)


def _weights(at: Predicted, noise: NoiseModel, tau: float) -> Floats:
    """Return the inverse of C_t of every round, (R, m, m)."""
    eye = np.eye(at.sent.shape[1])
    if noise.target == "objective":
        assert at.by_gradient is not None
        spread = at.by_gradient @ at.by_gradient.transpose(0, 2, 1)
    elif noise.target == "demand" and not noise.once:
        spread = at.by_demand @ at.by_demand.transpose(0, 2, 1)
    elif noise.target == "output":
        spread = np.broadcast_to(eye, (len(at.sent), *eye.shape))
    else:
        return np.broadcast_to(eye / tau**2, (len(at.sent), *eye.shape))
    return np.asarray(np.linalg.inv(noise.variance * spread + tau**2 * eye))


def _information(at: Predicted, weights: Floats) -> Floats:
    return np.asarray(
        np.einsum("tmi,tmn,tnj->ij", at.by_demand, weights, at.by_demand, optimize=True)
    )


def _free(demand: Floats, pull: Floats, prior: DemandPrior) -> Floats:
    """Return a mask of the entries that are not at a bound."""
    value = (demand <= prior.lower) & (pull < 0) | (demand >= prior.upper) & (pull > 0)
    return np.asarray(~value)


def _cost(residual: Floats, weights: Floats, demand: Floats, prior: DemandPrior) -> float:
    fitted = float(np.einsum("tm,tmn,tn->", residual, weights, residual, optimize=True))
    return fitted + float((((demand - prior.mean) / prior.spread) ** 2).sum())


VERDICTS = ("identifiable", "confounded", "unobservable")
SOLVE_ERROR = 1e-5  # root mean square error of messages against solves at 1e-11, measured


@dataclass(frozen=True, eq=False)
class Identified:
    """Identifiability of a zone's demand.

    Attributes
    ----------
    verdict : tuple of str
        Per bus, of its active demand.
    spread : (b,)
        Posterior standard deviation of active demand, p.u.
    singular : (min(R m, 2 b),)
        Singular values of J diag(s0), descending: changes of messages per prior spread of demand.
    hidden : (2 b,)
        The change of demand of norm 1 (in prior spreads) that changes the messages least.
    """

    verdict: tuple[str, ...]
    spread: Floats
    singular: Floats
    hidden: Floats

    @property
    def rank(self) -> int:
        """Number of directions of demand that change the messages by more than their error."""
        return int((self.singular > SOLVE_ERROR).sum())


def identify(
    model: ForwardModel, prior: DemandPrior, demand: Floats, tolerance: Floats
) -> Identified:
    """Return the identifiability of a zone's active demand from its messages.

    Parameters
    ----------
    model : ForwardModel
        Model with the messages.
    demand : (2 b,)
        The true demand: this analysis is not available to the adversary.
    tolerance : (b,)
        Error up to which an active demand counts as recovered, p.u.
    """
    at = model.predict(demand)
    scaled = at.by_demand.reshape(-1, len(demand)) * prior.spread
    _, singular, directions = np.linalg.svd(scaled)
    gram = scaled.T @ scaled / SOLVE_ERROR**2 + np.eye(len(demand))
    buses = len(tolerance)
    spread = prior.spread * np.sqrt(np.diag(np.linalg.inv(gram)))
    alone = prior.spread / np.sqrt(np.diag(gram))
    verdict = np.where(
        2.0 * spread[:buses] <= tolerance,
        "identifiable",
        np.where(2.0 * alone[:buses] <= tolerance, "confounded", "unobservable"),
    )
    return Identified(tuple(verdict.tolist()), spread[:buses], singular, directions[-1])
