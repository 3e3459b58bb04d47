"""Deliberately faulty mechanisms and agents, and prepared runs for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from gridpriv.assurance import independence
from gridpriv.consensus.agent import Agent, AgentReleases
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.privacy.mechanism import Laplace, Stream
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.zonal.prepared import Prepared, prepare
from gridpriv.zonal.settings import Settings


def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tests of noise draw less; what they detect here is far beyond their threshold."""
    monkeypatch.setattr(independence, "REPEATS", 240)
    monkeypatch.setattr(independence, "RUNS", 4)


@cache
def prepared(case: str = "case14", **given: Any) -> Prepared:
    settings = {
        "budget": "per-release:1",
        "rounds": 3,
        "solver": "clarabel",
        "seed": 1,
        "penalty": "3",
    } | given
    loaded = load_case(case)
    zoning = shipped_zoning(loaded)
    assert zoning is not None
    return prepare(loaded, zoning, Settings(**settings))


def with_rule(run: Prepared, rule: NoiseRule) -> Prepared:
    return replace(run, rules=replace(run.rules, noise=rule))


@dataclass(frozen=True)
class HalfNoise(Laplace):
    """Draws half the noise that it states and charges for."""

    def perturb(self, value: Any, stream: Stream) -> Any:
        return value + stream().laplace(0.0, self.scale / 2.0, value.shape)


@dataclass(frozen=True)
class SkipsOne(Laplace):
    """Leaves the last coordinate without noise."""

    def perturb(self, value: Any, stream: Stream) -> Any:
        noisy = value + stream().laplace(0.0, self.scale, value.shape)
        noisy[-1] = value[-1]
        return noisy


@dataclass(frozen=True)
class BrokenRule(NoiseRule):
    """A noise rule that hands out a broken mechanism."""

    kind: type[Laplace] = Laplace

    def release(self, sensitivity: Any) -> Any:
        sound = super().release(sensitivity)
        return replace(sound, mechanism=self.kind(sound.mechanism.scale))


def broken(run: Prepared, kind: type[Laplace]) -> Prepared:
    rule = run.rules.noise
    assert rule is not None
    return with_rule(
        run, BrokenRule(rule.mechanism, rule.source, rule.multiplier, rule.assumed, kind)
    )


class DataDependentStep(Agent):
    """Takes smaller steps where the demand is larger."""

    def round(self, order: Any) -> Any:
        step = order.step / (1.0 + float(np.linalg.norm(self.data)))
        return super().round(replace(order, step=step))


class HiddenState(Agent):
    """Sends a noisy minimiser and starts the next update from the clean one."""

    clean: Any = None

    def _local_update(self, z: Any, *rest: Any) -> Any:
        return super()._local_update(z if self.clean is None else self.clean, *rest)

    def _released(self, z: Any, *rest: Any) -> Any:
        self.clean = z
        return super()._released(z, *rest)


class Uncharged(Agent):
    """Agent that does not report its releases."""

    def round(self, order: Any) -> Any:
        return replace(super().round(order), releases={})


class ReadsData(AgentReleases):
    """Reads its sensitivity off the data, as the published codes do."""

    def _sensitivity(self, noise: Any, metric: Any) -> Any:
        declared = super()._sensitivity(noise, metric)
        return replace(declared, value=declared.value * float(np.abs(self.estimate).max()))


class DataDependentNoise(Agent):
    """Releases with a sensitivity read off the data."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.releases.__class__ = ReadsData
