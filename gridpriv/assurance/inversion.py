r"""From messages back to demand: a damped Gauss-Newton MAP estimate.

The estimate minimises, over demands d within public bounds,

    sum_t || y_t - phi_t(d) ||^2_{C_t^{-1}}  +  || (d - d0) / s0 ||^2

with y_t what was heard in round t, phi_t the forward model, d0 and s0 the public prior and C_t
the covariance of what the noise does to y_t, linearised:

    gradient noise   C = v G G' + tau^2 I     G = d y_t / d gradient
    output noise     C = v I
    demand noise     C = v J J' + tau^2 I     J = d y_t / d d, if it is drawn anew each round
                     C = tau^2 I              if it is drawn once

Noise of earlier rounds that reaches a message through variables nobody hears (linearized
updates, boundary messages) is left out: the estimate is then weaker than it could be.

What can be fitted is not d but d plus the noise that even the releases leave in it, so the
prior of the fit is widened by that variance and the answer then shrunk by what it takes up.
v is the variance of one coordinate's noise and tau the solver's error. All rounds are fitted at
once, which is how noise drawn anew each round is averaged out.

Answers are piecewise smooth in d (active sets change), so plain Gauss-Newton wanders: steps are
damped (Levenberg-Marquardt), clipped to the bounds, and tau falls in stages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gridpriv.assurance.forward import ForwardModel, Predicted
from gridpriv.grid.case import Floats

STAGES = (1e-2, 1e-4, 1e-6)
SOLVER_ERROR = 1e-6


@dataclass(frozen=True, eq=False)
class Prior:
    """What is publicly believed of a zone's demand, per unit: mean, spread and bounds, (2 b,)."""

    mean: Floats
    spread: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True)
class Noise:
    """What the adversary knows of the noise.

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


@dataclass(frozen=True, eq=False)
class Estimate:
    """An estimated demand.

    Attributes
    ----------
    demand : (2 b,)
    spread : (2 b,)
        Posterior standard deviation at the linearisation.
    misfit : float
        Root mean square of the residuals y_t - phi_t.
    """

    demand: Floats
    spread: Floats
    misfit: float


def fit(model: ForwardModel, prior: Prior, noise: Noise, iterations: int = 8) -> Estimate:
    """Return the MAP estimate of a zone's demand from its messages.

    Parameters
    ----------
    model : ForwardModel
        Holds the messages.
    prior : Prior
    noise : Noise
    iterations : int
        Damped steps of each stage.
    """
    hidden = _hidden(model, noise)
    spread = np.sqrt(prior.spread**2 + hidden)
    exact = noise.target == "none" or (noise.target == "demand" and noise.once)
    stages = STAGES if exact else (1e-3, 1e-4, SOLVER_ERROR)
    demand, damping = prior.mean.copy(), 1e-2
    gradients = noise.target == "objective"
    total = len(model.script)
    every = range(1, total + 1)
    horizons = [r for r in every if exact or r == total or r & (r - 1) == 0]
    for rounds, tau in ((r, tau) for r in horizons for tau in stages):
        at = model.predict(demand, rounds, gradients=gradients)
        weights = _weights(at, noise, tau)
        for _ in range(iterations):
            trial, now, damping = _step(
                model, prior, noise, weights, demand, at, spread, damping
            )
            if now is None:
                break
            moved = float(np.abs(trial - demand).max())
            demand, at = trial, now
            weights = _weights(at, noise, tau)
            if moved < 1e-7:
                break
        damping = min(damping, 1.0)
    information = _information(at, weights) + np.diag(1.0 / spread**2)
    posterior = np.sqrt(np.diag(np.linalg.pinv(information, hermitian=True)))
    misfit = float(np.sqrt(np.mean((at.sent - model.observed) ** 2)))
    residual = model.observed - at.sent
    fitted = float(np.einsum("tm,tmn,tn->", residual, weights, residual, optimize=True))
    # a fit that leaves more than the noise explains is trusted less
    doubt = max(0.0, fitted / residual.size - 1.0) if noise.target != "none" else 0.0
    keep = prior.spread**2 / (spread**2 + doubt * posterior**2)
    demand = prior.mean + keep * (demand - prior.mean)
    posterior = np.sqrt(keep * hidden + (keep * posterior) ** 2)
    return Estimate(demand, np.minimum(posterior, prior.spread), misfit)


def _hidden(model: ForwardModel, noise: Noise) -> Floats:
    """Return the variance that noise leaves in each demand even for who sees every release."""
    size, draws = model.problem.program.imbalance.shape[0], len(model.script)
    if noise.target == "demand":
        return np.full(size, noise.variance / (1 if noise.once else draws))
    if noise.target == "objective":
        inverse = np.linalg.pinv(2.0 * model.problem.program.imbalance.T.toarray())
        return np.asarray((inverse**2).sum(axis=1) * noise.variance / draws)
    return np.zeros(size)


def _weights(at: Predicted, noise: Noise, tau: float) -> Floats:
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


def _step(
    model: ForwardModel,
    prior: Prior,
    noise: Noise,
    weights: Floats,
    demand: Floats,
    at: Predicted,
    spread: Floats,
    damping: float,
) -> tuple[Floats, Predicted | None, float]:
    """Return (demand, its prediction, damping) after one accepted step; None if none helps."""
    residual = model.observed[: len(at.sent)] - at.sent
    pull = np.einsum("tmi,tmn,tn->i", at.by_demand, weights, residual, optimize=True)
    pull = pull - (demand - prior.mean) / spread**2
    hessian = _information(at, weights) + np.diag(1.0 / spread**2)
    free = _free(demand, pull, prior)
    before = _cost(residual, weights, demand, prior.mean, spread)
    for _ in range(6):
        change = np.zeros_like(demand)
        damped = hessian[np.ix_(free, free)] + damping * np.diag(np.diag(hessian)[free])
        change[free] = np.linalg.solve(damped, pull[free])
        trial = np.clip(demand + change, prior.lower, prior.upper)
        now = model.predict(trial, len(at.sent), gradients=noise.target == "objective")
        left = model.observed[: len(now.sent)] - now.sent
        after = _cost(left, weights, trial, prior.mean, spread)
        if after < before:
            return trial, now, max(damping / 5.0, 1e-9)
        damping *= 5.0
    return demand, None, damping


def _free(demand: Floats, pull: Floats, prior: Prior) -> Floats:
    """Return a mask of the entries that are not held at a bound."""
    held = (demand <= prior.lower) & (pull < 0) | (demand >= prior.upper) & (pull > 0)
    return np.asarray(~held)


def _cost(
    residual: Floats, weights: Floats, demand: Floats, mean: Floats, spread: Floats
) -> float:
    fitted = float(np.einsum("tm,tmn,tn->", residual, weights, residual, optimize=True))
    return fitted + float((((demand - mean) / spread) ** 2).sum())
