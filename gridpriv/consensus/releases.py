"""An agent's releases: sensitivity, charge, draw and count of each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from gridpriv.consensus.memory import AgentRules, Place, Streams
from gridpriv.consensus.problem import LocalProblem
from gridpriv.core.arrays import Floats
from gridpriv.core.threads import uninterrupted
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.release import Charging, Release
from gridpriv.privacy.sensitivity import reach


class AgentReleases:
    """Perturbs what an agent releases; every release is charged, then drawn, and counted.

    Attributes
    ----------
    draw : (int, int) or None
        Where the noise of the data in use was drawn.
    estimate : array
        The data in use: an estimate by the last draw, or the data themselves before one.
    of_round, drawn : Counter of Release
        Releases of this round, and of all rounds.
    magnitude : float
        Sum of |noise| in this round; private.
    """

    def __init__(
        self,
        problem: LocalProblem,
        data: Floats,
        rules: AgentRules,
        streams: Streams,
        charge: Charging | None,
    ) -> None:
        self.problem, self.rules, self.streams, self.charge = problem, rules, streams, charge
        self.draw: Place | None = None
        self.estimate = data
        self.of_round: Counter[Release] = Counter()
        self.drawn: Counter[Release] = Counter()
        self.magnitude = 0.0

    def begin_round(self) -> None:
        """Forget the releases of the round before, which are counted in ``drawn``."""
        self.of_round.clear()
        self.magnitude = 0.0

    def resume(self, draw: Place | None, estimate: Floats, drawn: Mapping[Release, int]) -> None:
        """Go on after earlier releases."""
        self.draw, self.estimate, self.drawn = draw, estimate, Counter(drawn)

    @property
    def released_data(self) -> Floats | None:
        """The data as others may know them; None before a release, or if others are released."""
        target = self.rules.perturbation.target
        known = target == "none" or (target == "demand" and self.draw is not None)
        return self.estimate if known else None

    def perturb(self, target: str, value: Floats, place: Place, metric: Floats) -> Floats:
        """Return ``value`` with noise if it is what this run perturbs; charge, then draw."""
        if self.rules.perturbation.target != target or not value.size:
            return value
        release = self.release(metric)
        if target == "demand":
            noisy = self._disclosed(release, value, place)
        else:
            noisy = self._released_at(release, value, place)
        self.magnitude += float(np.abs(noisy - value).sum())
        return noisy

    def release(self, metric: Floats) -> Release | None:
        """Return the release of one draw in this metric; None where nothing private is in it."""
        noise = self.rules.noise
        if noise is None:
            return None
        sensitivity = self._sensitivity(noise, metric)
        return noise.release(sensitivity) if sensitivity.value else None

    @property
    def certifies_minimisers(self) -> bool:
        """True where errors of minimisers count, which a published sensitivity ignores."""
        noise = self.rules.noise
        output = self.rules.perturbation.target == "output"
        return output and noise is not None and noise.assumed is None

    def covered(self, metric: Floats) -> float:
        """Return the error of a minimiser that its noise covers, in the norm of the metric."""
        noise, share = self.rules.noise, self.problem.solver_share[self.rules.update]
        met = metric[metric > 0.0]
        if noise is None or not share or not met.size:
            return math.inf
        noisy = self._sensitivity(noise, metric).value
        return 0.5 * share / (1.0 + share) * noisy / reach(met, noise.norm) or math.inf

    def _disclosed(self, release: Release | None, data: Floats, place: Place) -> Floats:
        """Return the estimate of the data by a release of its statistics; drawn when it is due."""
        draw = self.rules.perturbation.drawn_at(*place)
        if draw != self.draw:
            disclosure = self.problem.disclosure
            noisy = self._released_at(release, disclosure.measure(data), draw)
            self.draw, self.estimate = draw, disclosure.estimate(noisy, release)
        return self.estimate

    def _released_at(self, release: Release | None, value: Floats, place: Place) -> Floats:
        """Return the value with the noise of a place; as it is where nothing private is in it."""
        if release is None:
            return value
        self._pay(release)
        return release.apply(value, lambda: self.streams.stream(self.problem.key, *place))

    def _pay(self, release: Release) -> None:
        """Charge a release that is about to be drawn, and count it; an interrupt splits nothing.

        Where nobody is charged there is nothing to split: what is not drawn need not be counted.
        """
        if self.charge is None:
            self._count(release)
            return
        with uninterrupted():
            self.charge(self.problem.name, {release: 1})
            self._count(release)

    def _count(self, release: Release) -> None:
        self.of_round[release] += 1
        self.drawn[release] += 1

    def _sensitivity(self, noise: NoiseRule, metric: Floats) -> Any:
        rules = self.rules
        problem, adjacency = self.problem, rules.adjacency
        if rules.perturbation.target == "objective":
            return problem.gradient_sensitivity(adjacency, noise.norm)
        if rules.perturbation.target == "demand":
            return problem.disclosure.sensitivity(adjacency, noise.norm)
        exact = problem.output_sensitivity(adjacency, noise.norm, rules.update, metric)
        share = problem.solver_share[rules.update] if self.certifies_minimisers else 0.0
        return exact.widened(share)
