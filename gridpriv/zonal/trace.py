"""Records of a run's rounds: the coordinator's public values and the owners' figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gridpriv.consensus.coordinator import Turn
from gridpriv.consensus.memory import Figures
from gridpriv.core.arrays import Floats
from gridpriv.privacy.release import Release

AGREED = 0.01
"""p.u. of consensus residual up to which zones count as agreed: 1 MVA on a base of 100."""


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """One round's figures. Residuals and penalty are public, nothing else.

    Attributes
    ----------
    consensus_residual : float
        ||Aw - z||_2 at the round's w and the z sent after it.
    consensus_residual_max : float
        The largest distance of one coordinate of z from its w.
    dual_residual : float
        ||rho (w - last w)||_2 over all holders, in multiples of the mean marginal cost.
    figures : dict
        Sums over zones of their figures at the average they sent.
    by_agent : dict of str to dict
        The same per zone.
    penalty : (float, float)
        Least and largest rho.
    """

    round: int
    consensus_residual: float
    consensus_residual_max: float
    dual_residual: float
    noise_magnitude: float
    figures: dict[str, float]
    by_agent: dict[str, dict[str, float]]
    penalty: tuple[float, float]
    seconds: float
    iterations: int
    retries: int
    solves: int


@dataclass(frozen=True, eq=False)
class Trace:
    """A run's rounds, what was sent and dual after the last of them and, per zone, every release.

    Attributes
    ----------
    releases : mapping of str to mapping
        All that were drawn, those of a round that failed included.
    """

    rounds: tuple[RoundRecord, ...] = ()
    releases: Mapping[str, Mapping[Release, int]] = field(default_factory=dict)
    sent: Floats = field(default_factory=lambda: np.zeros(0))
    dual: Floats = field(default_factory=lambda: np.zeros(0))

    def drawn(self) -> str:
        """Return the number of releases as a sentence."""
        most = max((sum(counts.values()) for counts in self.releases.values()), default=0)
        return f"releases drawn in this run, at most of a zone: {most}"


def round_record(
    turn: Turn, names: Sequence[str], figures: Sequence[Figures], seconds: float
) -> RoundRecord:
    """Return a round's record; zones in the order of ``names``."""
    values = [figure.values for figure in figures]
    rho = turn.penalty
    return RoundRecord(
        round=turn.number,
        consensus_residual=turn.residual,
        consensus_residual_max=turn.farthest,
        dual_residual=turn.dual_residual,
        noise_magnitude=float(sum(figure.noise_magnitude for figure in figures)),
        figures={key: float(sum(figure[key] for figure in values)) for key in values[0]},
        by_agent=dict(zip(names, values, strict=True)),
        penalty=(float(rho.min()), float(rho.max())) if rho.size else (0.0, 0.0),
        seconds=seconds,
        iterations=sum(figure.effort.iterations for figure in figures),
        retries=sum(figure.effort.retries for figure in figures),
        solves=sum(figure.effort.solves for figure in figures),
    )
