"""``gridpriv audit`` on a gridpriv that is broken in one place: ``python audit_mutants.py NAME``.

Every mutant replaces one function before the command runs; no setting and no flag names it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from gridpriv.consensus import agent, coordinator, schedules
from gridpriv.power import problem
from gridpriv.privacy import mechanism, noise
from gridpriv.zonal import run as zonal_run

private: dict[int, float] = {}
"""Private figures that a curious coordinator gets hold of, by zone."""


def _leak() -> None:
    honest = agent.Agent.round

    def curious(self: Any, order: Any) -> Any:
        private[self.problem.key] = float(np.abs(self.data).sum())
        return honest(self, order)

    agent.Agent.round = curious


def penalty_reads_private_figures() -> None:
    _leak()
    for rule in (schedules.KeptPenalty, schedules.BalancedPenalty):
        rule.following = lambda *given: given[2] * (1.0 + 1e-3 * sum(private.values()))


def stopping_reads_private_figures() -> None:
    _leak()
    honest = coordinator.rounds

    def eager(*given: Any) -> Any:
        for turn in honest(*given):
            yield turn
            if turn.number >= 2 and sum(private.values()) > 3.0:
                return

    zonal_run.rounds = eager


def same_noise_in_every_round() -> None:
    honest = noise.NoiseStreams.stream
    noise.NoiseStreams.stream = lambda *place: honest(*place[:2], 1, place[3])


def same_noise_in_every_zone() -> None:
    honest = noise.NoiseStreams.stream
    noise.NoiseStreams.stream = lambda *place: honest(place[0], 1, *place[2:])


def noise_ends_after_round_6() -> None:
    honest = agent.Agent._released_at

    def tired(self: Any, release: Any, value: Any, place: Any) -> Any:
        if place[0] > 6 and release is not None:
            self._pay(release)
            return value
        return honest(self, release, value, place)

    agent.Agent._released_at = tired


def exact_output_sensitivity_halved() -> None:
    honest = problem.output_sensitivity

    def halved(*given: Any) -> Any:
        found = honest(*given)
        return replace(found, value=found.value / 2.0) if given[3] == "exact" else found

    problem.output_sensitivity = halved


def secure_noise_halved() -> None:
    honest = mechanism.SecureLaplace.perturb
    mechanism.SecureLaplace.perturb = lambda self, value, stream: honest(
        replace(self, scale=0.5 * self.scale), value, stream
    )


def secure_noise_of_floats() -> None:
    floats = mechanism.Laplace.perturb
    generator = np.random.default_rng()
    mechanism.SecureLaplace.perturb = lambda self, value, _: floats(self, value, lambda: generator)


MUTANTS = (
    penalty_reads_private_figures, stopping_reads_private_figures, same_noise_in_every_round,
    same_noise_in_every_zone, noise_ends_after_round_6, exact_output_sensitivity_halved,
    secure_noise_halved, secure_noise_of_floats,
)  # fmt: skip

if __name__ == "__main__":
    {mutant.__name__: mutant for mutant in MUTANTS}.get(sys.argv[1], lambda: None)()
    from gridpriv.cli.main import main

    raise SystemExit(main(["audit", "case14", *sys.argv[2:]]))
