"""Demands drawn from what released statistics leave likely (post-processing).

A draw of the model of :mod:`gridpriv.privacy.strategies.linear` is moved by what it misses of the
released statistics (Matheron's rule), which makes it a draw of the posterior:

    d0 = mean + t k + s e,   d = d0 + C S' V(s)^-1 (y - S d0 - noise),   C = spread^2 kk' + s^2 D,

with s drawn by its posterior weight and the noise by the mechanism's own law, so that a draw lies
about the estimate as the true demand does, under the model, also where noise is not normal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.privacy.mechanism import Mechanism
from gridpriv.privacy.strategies.linear import (
    DEVIATIONS,
    Evidence,
    Statistics,
    evidence,
    in_range,
)
from gridpriv.privacy.strategies.prior import Prior, Sums


@dataclass(frozen=True, eq=False)
class Observed:
    """Released statistics of one kind of demand, and the belief that they are read with.

    Attributes
    ----------
    matrix : (m, n)
        S.
    seen : (m,)
    variance : float
        Of the noise on each.
    belief : Sums
        Its scale and spread are those of every draw; each draw may have its own mean.
    """

    matrix: Floats
    seen: Floats
    variance: float
    belief: Sums

    @cached_property
    def evidence(self) -> Evidence:
        """Evidence on the relative size of deviations, s."""
        return evidence(self.matrix, self.seen, self.variance, self.belief)

    def draw(self, belief: Sums, noise: Floats, generator: np.random.Generator) -> Floats:
        """Return a demand (n,) of the posterior for noise (m,), its sum in the belief's range."""
        known = self.evidence
        row = int(generator.choice(len(DEVIATIONS), p=known.weight))
        s, shares = DEVIATIONS[row], belief.shares
        value = belief.scale * generator.standard_normal(len(shares))
        value -= value.sum() * belief.scale**2 / (belief.scale**2).sum()
        start = belief.mean + belief.spread * generator.standard_normal() * shares + s * value
        missed = self.seen - self.matrix @ start - noise
        pull = known.vectors @ ((known.vectors.T @ missed) / known.size[row])
        total = self.matrix @ shares @ pull
        moved = belief.spread**2 * shares * total + s**2 * belief.deviations @ (
            self.matrix.T @ pull
        )
        return in_range(start + moved, belief)


def posterior_draws(
    strategy: Statistics,
    released: Floats,
    mechanism: Mechanism,
    prior: Prior,
    generator: np.random.Generator,
) -> Iterator[Floats]:
    """Yield demands (2n,) of the posterior, without end.

    Parameters
    ----------
    strategy : Statistics
    released : (2m,)
        Statistics with noise.
    mechanism : Mechanism
        Of the noise.
    """
    variance, none = mechanism.variance, np.zeros_like(released)
    p_seen, q_seen = np.split(released, 2)
    of_p, of_q = strategy.matrices
    active = Observed(of_p, p_seen, variance, prior.active)
    reactive = Observed(of_q, q_seen, variance, prior.reactive(prior.active.mean))
    while True:
        p_noise, q_noise = np.split(mechanism.perturb(none, lambda: generator), 2)
        p = active.draw(prior.active, p_noise, generator)
        yield np.concatenate([p, reactive.draw(prior.reactive(p), q_noise, generator)])
