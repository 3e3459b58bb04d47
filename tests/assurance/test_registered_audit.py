"""The audit of a registered mechanism: a valid one passes, one with a wrong scale fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from assurance_broken import few_draws, prepared
from scipy import special

from gridpriv.assurance import independence
from gridpriv.assurance.adversary import record_run
from gridpriv.assurance.audit import AuditPlan, AuditResult, audit, audit_mechanism, target
from gridpriv.assurance.independence import has_distribution, mechanism_laws, noise_checks
from gridpriv.assurance.replay import Finding
from gridpriv.assurance.statistic import zone_levels
from gridpriv.assurance.whole import whole_run
from gridpriv.cli.assurance import _print_audit
from gridpriv.privacy.mechanism import MECHANISMS, Charge, Stream
from gridpriv.privacy.settings import NAMES, register_mechanism


@dataclass(frozen=True)
class Logistic:
    """Density e^(-x/b) / b(1 + e^(-x/b))^2: its logarithm has slope 1/b at most."""

    scale: float
    norm: int = 1
    drawn: float = 1.0

    @property
    def variance(self) -> float:
        return (np.pi * self.scale) ** 2 / 3.0

    def perturb(self, value: Any, stream: Stream) -> Any:
        return value + stream().logistic(0.0, self.drawn * self.scale, value.shape)

    def charge(self, distance: float) -> Charge:
        return Charge("pure", distance / self.scale)


@dataclass(frozen=True)
class Declared(Logistic):
    """The same, with its distribution function."""

    def cdf(self, x: Any) -> Any:
        return special.expit(x / self.scale)


@dataclass(frozen=True)
class Halved(Declared):
    """Draws half the noise that it states and charges for."""

    drawn: float = 0.5


@dataclass(frozen=True)
class HalvedSilently(Logistic):
    """Draws half the noise that it charges for, and declares no distribution."""

    drawn: float = 0.5


@dataclass(frozen=True)
class Ball:
    """Pure noise of the 2-norm: the numbers of one draw depend on each other."""

    scale: float
    norm: int = 2

    @property
    def variance(self) -> float:
        return 29.0 * self.scale**2

    def perturb(self, value: Any, stream: Stream) -> Any:
        generator = stream()
        direction = generator.standard_normal(value.size)
        direction /= np.linalg.norm(direction)
        return value + generator.gamma(value.size, self.scale) * direction

    def charge(self, distance: float) -> Charge:
        return Charge("pure", distance / self.scale)


KINDS = {
    "logistic": Logistic,
    "declared": Declared,
    "halved": Halved,
    "halved_silently": HalvedSilently,
    "ball": Ball,
}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    few_draws(monkeypatch)
    for name, kind in KINDS.items():
        register_mechanism(name, kind)
    yield
    for name in KINDS:
        NAMES.remove(name)
        del MECHANISMS[name, "simulated"]


def _run(name: str) -> Any:
    return prepared.__wrapped__(mechanism=name, protects="p", rounds=2, budget="total:2")


def _failed(name: str) -> set[str]:
    run = _run(name)
    findings: list[Finding] = noise_checks(run, 0.999) + whole_run(run)
    return {finding.check for finding in findings if not finding.passed}


@pytest.mark.parametrize(
    "name", [pytest.param("logistic", marks=pytest.mark.slow), "declared", "ball"]
)
def test_a_valid_mechanism_passes(name: str) -> None:
    assert _failed(name) == set()


def test_a_declared_distribution_is_compared() -> None:
    assert _failed("halved") == {"distribution"}
    laws = {finding.neighbour: finding.passed for finding in mechanism_laws(1.0, 0.999)}
    assert laws["declared, simulated"] and not laws["halved, simulated"]
    assert not {"logistic, simulated", "ball, simulated"} & set(laws)
    assert has_distribution("laplace", Logistic(1.0)) and not has_distribution("x", Logistic(1.0))


def test_correct_mechanisms_fail_with_the_stated_risk_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The chances of all tests add up to 0.001 at most (Bonferroni)."""
    tests: list[str] = []
    for name in ("kstest", "binomtest"):
        honest = getattr(independence.stats, name)

        def counted(*given: Any, honest: Any = honest, **more: Any) -> Any:
            tests.append(honest.__name__)
            return honest(*given, **more)

        monkeypatch.setattr(independence.stats, name, counted)
    (allowed,) = {finding.allowed for finding in mechanism_laws(1.0, 0.999)}
    assert {"kstest", "binomtest"} == set(tests)
    assert len(tests) * 10.0**-allowed <= 0.001


def test_half_the_noise_without_a_distribution_is_measured() -> None:
    run = _run("halved_silently")
    zone, other = target(run, None)
    (level,) = zone_levels(run, zone, record_run(run).recorded[zone], other, ("release",))
    assert audit_mechanism(level, 6_000).verdict == "violation"


def test_the_table_says_what_was_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    plan = AuditPlan(levels=())
    _, other = target(_run("logistic"), None)
    for name, not_checked in (("logistic", True), ("declared", False)):
        result = AuditResult(_run(name), plan, "1", other, (), ())
        _print_audit(result.as_dict())
        assert ("not checked" in capsys.readouterr().out) == not_checked
        assert result.as_dict()["not_checked"] == (["distribution"] if not_checked else [])


def test_too_few_runs_are_refused_before_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    from gridpriv.assurance import adversary
    from gridpriv.core.errors import InputError

    monkeypatch.delattr(adversary, "record_run")
    with pytest.raises(InputError, match="at least"):
        audit(prepared(), AuditPlan(runs={"release": 5}, levels=("release",)))
