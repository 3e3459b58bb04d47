"""Replay of the whole run with its coordinator, over every round.

coordinator   every zone's data are replaced by quite different data, and every release returns its
              earlier value. The coordinator then reads the same values, so every order and the
              number of rounds must be the same: a penalty or a stopping rule that reads private
              data gives other orders. One of the other data sets is the estimate from the releases,
              at which a private residual is smallest.
rounds        over all rounds of the run, every release that is charged is drawn, and all its
              coordinates have noise. Where demand noise is drawn once, this and the last check
              also use the same run with noise drawn in every round.
stated        beta of the run is that of its settings, on its base; the loss of a draw's density is
              at most its charge, and the draws of a zone cost at most the budget. The loss of pure
              noise is its steepest slope times the sensitivity; for normal noise it is the exact
              delta. That of a registered mechanism is not known, so only beta is compared.
outputs       corner changes at tie buses change the released part of every zone's exact minimizer,
              at several penalties (the largest change depends on a bus's row), by at most the
              declared sensitivity of output perturbation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, stats

from gridpriv.assurance import adversary
from gridpriv.assurance.replay import Draw, Finding, Tape, taped
from gridpriv.core.arrays import Floats
from gridpriv.privacy.accounting import epsilon_of
from gridpriv.privacy.adjacency import UNITS_MVA, DemandAdjacency
from gridpriv.privacy.mechanism import Staircase
from gridpriv.privacy.perturbation import NoiseRule, Perturbation
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm, length
from gridpriv.privacy.settings import BUILT_IN, Budget
from gridpriv.zonal.prepared import Prepared

PENALTIES = (0.3, 1.0, 3.0, 10.0, 30.0, 300.0)  # times the weight of the imbalance
TIE_BUSES = 6  # of a zone, those with most shared variables in their balance
LARGE = 20.0  # times beta: the size of a corner change, large relative to solvers' errors
NORMS: tuple[Norm, ...] = (1, 2)
LEAST_DELTA = 1e-12  # at which a charge without a pure epsilon is read
SAME = 1e-9  # relative: difference of solvers on equal input


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A whole run: its messages, and every draw in order."""

    network: adversary.RecordingTransport
    draws: tuple[Draw, ...]


def play(
    prepared: Prepared, data: Sequence[Floats] | None = None, frozen: Sequence[Floats] | None = None
) -> RecordedRun:
    """Run all rounds on a tape; on other data, and with releases as they were, if these are given.

    Parameters
    ----------
    prepared : Prepared
        With noise.
    data : sequence of array, optional
        Every zone's.
    frozen : sequence of array, optional
        Values that releases return, in order.
    """
    tape = Tape(frozen)
    network = adversary.record_run(on_tape(prepared, tape), data=data)
    return RecordedRun(network, tuple(tape.drawn))


def rule_of(prepared: Prepared) -> NoiseRule:
    """Return the noise rule of a run that has one."""
    assert prepared.rules.noise is not None
    return prepared.rules.noise


def on_tape(prepared: Prepared, tape: Tape) -> Prepared:
    """Return the run with every release on a tape."""
    return adversary.varied(
        prepared, rules=replace(prepared.rules, noise=taped(rule_of(prepared), tape))
    )


def without_noise(draws: Sequence[Draw]) -> int:
    """Count the coordinates without noise."""
    return sum(int((draw.output == draw.value).sum()) for draw in draws)


def whole_run(prepared: Prepared) -> list[Finding]:
    """Return the findings of every check of the whole run, which must have noise."""
    base = play(prepared)
    frozen = [draw.output for draw in base.draws]
    findings = [
        _coordinator(base, play(prepared, other, frozen), name)
        for name, other in _other_data(prepared, base)
    ]
    findings.append(_rounds(base))
    findings += _stated(prepared, base)
    findings += [_outputs(prepared, zone) for zone in range(len(prepared.zones))]
    findings.append(_rounds(play(with_fresh_noise(prepared))))
    return findings


def with_fresh_noise(prepared: Prepared) -> Prepared:
    """Return the run with noise drawn in every round, if it is drawn once; else the run."""
    if prepared.rules.perturbation.noise_schedule != "once":
        return prepared
    return adversary.varied(
        prepared, rules=replace(prepared.rules, perturbation=Perturbation("demand", "round"))
    )


def _other_data(prepared: Prepared, base: RecordedRun) -> list[tuple[str, list[Floats]]]:
    demand = [problem.program.zone.demand for problem in prepared.problems]
    matches = [
        ("no demand", [np.zeros_like(d) for d in demand]),
        ("twice the demand", [2.0 * d for d in demand]),
    ]
    rule = rule_of(prepared)
    if prepared.rules.perturbation.target == "demand":
        estimates = [
            problem.disclosure.estimate(draw.output, rule.release(draw.sensitivity))
            for problem, draw in zip(prepared.problems, base.draws, strict=False)
        ]
        if len(estimates) == len(demand):
            matches.append(("the released demand", estimates))
    return matches


def _coordinator(base: RecordedRun, other: RecordedRun, name: str) -> Finding:
    """Count orders that differ although all releases are equal."""
    differ = 0
    for here, there in zip(base.network.recorded, other.network.recorded, strict=True):
        differ += abs(len(here) - len(there))
        for a, b in zip(here, there, strict=False):
            pairs = ((a.w, b.w), (a.penalty, b.penalty), (a.step, b.step))
            differ += not all(np.allclose(x, y, rtol=SAME, atol=SAME) for x, y in pairs)
    return Finding("coordinator", "all", name, float(differ), 0.0)


def _rounds(base: RecordedRun) -> Finding:
    """Count coordinates without noise, and releases that were charged and not drawn."""
    replies = [record.reply for zone in base.network.recorded for record in zone]
    charged = sum(sum(reply.releases.values()) for reply in replies)
    bare = without_noise(base.draws) + abs(len(base.draws) - charged)
    return Finding("rounds", "all", "-", float(bare), 0.0)


def _stated(prepared: Prepared, base: RecordedRun) -> list[Finding]:
    """Compare the adjacency, every charge and every zone's total with the settings."""
    settings, rule = prepared.settings, rule_of(prepared)
    given, allowed = settings.beta, settings.budget.epsilon * (1.0 + SAME)
    unit = UNITS_MVA[given.unit.lower()] / prepared.case.base_mva if given.unit else 1.0
    beta = prepared.scale * given.value * unit
    findings = [Finding("stated", "all", "beta", beta, prepared.run_adjacency.beta * (1.0 + SAME))]
    if rule.assumed is not None:  # a paper's sensitivity: its epsilon is not a budget
        return findings
    if rule.mechanism not in BUILT_IN:  # the loss of its density is not known
        return findings
    for problem, records in zip(prepared.problems, base.network.recorded, strict=True):
        drawn = sum((Counter(each.reply.releases) for each in records), Counter[Release]())
        releases = {rule.release(release.sensitivity): n for release, n in drawn.items()}
        if not releases:
            continue
        charged = max(
            law_loss(release) / epsilon_of(release.certified, LEAST_DELTA) for release in releases
        )
        findings.append(Finding("stated", problem.name, "loss over charge", charged, 1.0 + SAME))
        spent = budget_spent(releases, settings.budget, settings.release_delta)
        findings.append(Finding("stated", problem.name, "spent of the budget", spent, allowed))
    return findings


def law_loss(release: Release) -> float:
    """Return the largest loss of a pure mechanism, from its density; 0 for others."""
    mechanism, distance = release.mechanism, release.sensitivity.value
    if isinstance(mechanism, Staircase):
        return math.ceil(distance / mechanism.step * (1.0 - SAME)) * mechanism.epsilon
    return 0.0 if mechanism.norm == 2 else distance / mechanism.scale


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return epsilon of normal noise whose mean changes by mu deviations.

    The root of delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)
    (Balle and Wang 2018); 0 where delta covers it.
    """

    def excess(epsilon: float) -> float:
        below = stats.norm.logcdf(-mu / 2.0 - epsilon / mu)
        reached = stats.norm.cdf(mu / 2.0 - epsilon / mu) - math.exp(epsilon + below)
        return float(reached) - delta

    covered = mu == 0.0 or excess(0.0) <= 0.0
    return 0.0 if covered else float(optimize.brentq(excess, 0.0, mu * (mu + 40.0)))


def budget_spent(releases: Mapping[Release, int], budget: Budget, delta: float) -> float:
    """Return the epsilon that releases spend of a budget; 0 where no exact figure is known.

    Pure losses add up. Normal noise composes to normal noise at mu^2 = sum (D / sigma)^2.
    """
    total = budget.scope == "total"
    pure = {release: law_loss(release) for release in releases}
    if budget.delta is None and all(pure.values()):
        spent = [loss * (releases[release] if total else 1) for release, loss in pure.items()]
        return sum(spent) if total else max(spent)
    if any(pure.values()):
        return 0.0
    square = {
        release: (release.sensitivity.value / release.mechanism.scale) ** 2 for release in releases
    }
    mu = math.sqrt(
        sum(square[release] * n for release, n in releases.items())
        if total
        else max(square.values())
    )
    return gaussian_epsilon(mu, budget.delta or delta)


def _outputs(prepared: Prepared, zone: int) -> Finding:
    """Return the exact minimizer's largest change over its declared sensitivity, in both norms."""
    problem, shared = prepared.problems[zone], prepared.shared[zone]
    adjacency, demand = _box(prepared), problem.program.zone.demand
    start, worst, where = problem.start(), 0.0, "-"
    weight = prepared.network.objective.weight
    for rho in [weight * each for each in PENALTIES] if shared.any() else ():
        metric = np.where(shared, rho, 0.0)

        def minimiser(data: Floats, metric: Floats = metric) -> Floats:
            linear = problem.gradient(np.zeros_like(start), data) - metric * start
            return np.asarray(problem.minimise_exact(linear, metric).z[shared])

        declared = [problem.output_sensitivity(adjacency, n, "exact", metric).value for n in NORMS]
        here = minimiser(demand)
        for other in _tie_neighbours(prepared, zone):
            change = (minimiser(demand + LARGE * other.change) - here) / LARGE
            ratio = max(length(change, n) / d for n, d in zip(NORMS, declared, strict=True))
            if ratio > worst:
                worst, where = ratio, f"{other}, penalty {rho:g}"
    return Finding("outputs", problem.name, where, worst, 1.0, worst)


def _box(prepared: Prepared) -> DemandAdjacency:
    """Return the adjacency at any power factor, as output perturbation protects no band."""
    return replace(prepared.run_adjacency, power_factors=None)


def _tie_neighbours(prepared: Prepared, zone: int) -> list[adversary.Neighbour]:
    """Return one corner change and its opposite at the buses with most coupling variables."""
    problem, adjacency = prepared.problems[zone], _box(prepared)
    own = len(problem.program.zone.own)
    rows = abs(problem.program.imbalance[:, prepared.shared[zone]]).sum(axis=1)
    order = np.argsort(-np.asarray(rows).ravel()[:own], kind="stable")[:TIE_BUSES]
    ends = adversary.corners(adjacency)[:2]
    return [adversary.neighbour(problem, int(bus), dp, dq) for bus in order for dp, dq in ends]
