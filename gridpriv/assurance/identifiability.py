r"""Identifiability of demand: the Fisher information of a noise-free trace.

With J the derivative of all messages of R rounds by the zone's demand d, taken at the true
demand, tau the error of the solves behind them and s0 the spread of the prior, no unbiased
reading of the messages is sharper than the posterior covariance

    P = ( J'J / tau^2 + diag(1 / s0^2) )^{-1}.

It says what is there to be found, not that a search finds it. Per bus:

``identifiable``  two posterior standard deviations are within 5 % of the demand;
``mixed``         alone it would be: its demand moves the messages, but so does that of
                  others, in the same directions;
``unheard``       even alone it would not be: its demand hardly moves the messages, because its
                  news has not arrived in the rounds heard, or the zone's generators take it up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gridpriv.assurance.forward import ForwardModel
from gridpriv.assurance.inversion import DemandPrior
from gridpriv.core.arrays import Floats

VERDICTS = ("identifiable", "mixed", "unheard")
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
        Singular values of J diag(s0), falling: how far messages move when demand moves by its
        prior spread.
    hidden : (2 b,)
        The change of demand of norm one (in prior spreads) that moves the messages least.
    """

    verdict: tuple[str, ...]
    spread: Floats
    singular: Floats
    hidden: Floats

    @property
    def rank(self) -> int:
        """Number of directions of demand that move the messages by more than they err."""
        return int((self.singular > SOLVE_ERROR).sum())


def identify(
    model: ForwardModel, prior: DemandPrior, demand: Floats, tolerance: Floats
) -> Identified:
    """Return the identifiability of a zone's active demand from its messages.

    Parameters
    ----------
    model : ForwardModel
        Holds the messages.
    demand : (2 b,)
        The true demand: this is the analyst's question, not the adversary's.
    tolerance : (b,)
        Within which an active demand counts as recovered, p.u.
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
        np.where(2.0 * alone[:buses] <= tolerance, "mixed", "unheard"),
    )
    return Identified(tuple(verdict.tolist()), spread[:buses], singular, directions[-1])
