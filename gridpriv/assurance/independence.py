"""Tests of a run's noise (distribution, independence, low-order bits) and of its public state.

**Noise.** Every zone releases its statistics many times under different seeds, on its own demand,
on no demand and on twice the demand. A *unit* of a draw is one pair (p, q) under the norms ``box``
and ``pair``, else one number; its norm is N = max(|p|, |q|), or |x|.

distribution   N over the declared scale has the declared distribution on each of the three demands
               (Kolmogorov and Smirnov's test); the smaller coordinate of a pair over the larger one
               is uniform; both signs are equally likely. A registered mechanism is compared with
               its own ``cdf``, and not at all without one.
independence   Signs agree with probability 1/2: of all pairs of coordinates, within a zone and
               between two, of p and q of a unit, and of consecutive rounds. N of all pairs of units
               lies on the same side of its median with probability 1/2: noise from one generator
               has common radii even where its signs differ. The numbers of one draw of a registered
               mechanism without ``cdf`` may be dependent, so one number per zone is compared.

Products of independent signs are independent, so their count is binomial. Where each of two columns
is split at its own median, the number of rows above both is hypergeometric. Each bound is exact,
and the largest of many is compared with the confidence divided by their number (Bonferroni).

**Low-order bits.** A float draw added to an unrounded value leaves a trace (Mironov, CCS 2012). Let
v be the value, u its last place, L the draw. Where |v + L| < v/16, |L| is between v/2 and 2v, so
both are multiples of u/2, and so is their sum, which is exact (Sterbenz): the sum's own last place
is u/32 or finer, and its last bits, all zero, reveal those of v. A secure mechanism rounds v to a
grid finer than u/32 (at most scale/2^60) and adds a whole number of grid steps, with a distribution
nearly constant over u/2: such a sum is a multiple of u/2 with probability at most 1/8. So many
values are released at once and the multiples among the small sums are counted. The bound on their
number is exact.

**Public state.** Everything public must be a function of releases and public data:

public state   The run is prepared again from a case with other demand. Sensitivities, scales,
               statistics, priors, warm starts, penalties and the first order to every zone must be
               equal.
public bytes   The prepared run is repeated on other demand while every release returns its earlier
               value. The document and the tables of ``--public`` must be equal byte by byte.

Both are exact. The demands are the two corners of the box at the bus that changes the gradient
most, no demand, and demand with the parts of its buses permuted.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from pandas import DataFrame
from scipy import stats

from gridpriv.assurance.adversary import RecordingTransport, record_run, rule_of, varied, zone_agent
from gridpriv.assurance.replay import Draw, Finding, Tape, taped
from gridpriv.consensus.agent import Agent
from gridpriv.consensus.transport import AgentFactory, in_process
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivError
from gridpriv.core.tables import publish_table
from gridpriv.grid.case import Case
from gridpriv.power.zone_agent import public_proxy
from gridpriv.privacy.mechanism import (
    MECHANISMS,
    Mechanism,
    Staircase,
    is_installed,
    make_mechanism,
)
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity
from gridpriv.privacy.settings import BUILT_IN
from gridpriv.privacy.staircase import best_share
from gridpriv.zonal import documents
from gridpriv.zonal.meter import Hold
from gridpriv.zonal.prepared import Prepared, prepare
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.run import open_rounds, run_prepared, zone_agents

REPEATS = 600  # releases of each zone; a multiple of the demands below, and even
DEMANDS = (1.0, 0.0, 2.0)  # times a zone's own
DRAWS = 1500  # units of every mechanism
RUNS = 12  # whole runs, where a release takes a round
MOST_COLUMNS = 400  # of all zones; a larger release is represented by evenly spaced units
STEPS = 400  # of a staircase, over its epsilon where that is below 1


@dataclass(frozen=True, eq=False)
class Sample:
    """Noise of one zone over repeated releases.

    Attributes
    ----------
    noise : (rows, k)
    mechanism : Mechanism
        As declared.
    distributed : bool
        The mechanism's distribution is known: it is shipped, or declares a ``cdf``.
    """

    zone: str
    noise: Floats
    mechanism: Mechanism
    distributed: bool = True

    @property
    def paired(self) -> bool:
        """True if a unit is a pair (p, q)."""
        return self.mechanism.norm in ("box", "pair")

    @property
    def norms(self) -> Floats:
        """N of every unit, (rows, units)."""
        size = np.abs(self.noise)
        return size.reshape(len(size), 2, -1).max(axis=1) if self.paired else size

    def part(self, units: int) -> Sample:
        """Return the sample of at most so many units."""
        total = self.norms.shape[1]
        chosen = np.unique(np.linspace(0, total - 1, min(units, total)).round().astype(int))
        columns = np.concatenate([chosen, total + chosen]) if self.paired else chosen
        return replace(self, noise=self.noise[:, columns])


def on_tape(prepared: Prepared, tape: Tape) -> Prepared:
    """Return the run with every release on a tape."""
    return varied(prepared, rules=replace(prepared.rules, noise=taped(rule_of(prepared), tape)))


def noise_checks(prepared: Prepared, confidence: float) -> list[Finding]:
    """Test the distribution and the independence of a run's noise.

    Parameters
    ----------
    prepared : Prepared
        With noise that is drawn in every round.
    confidence : float
        Probability with which correct noise passes all tests.
    """
    runs = [_round_noise(prepared, prepared.seed + k) for k in range(RUNS)]
    rounds = min((len(draws) for run in runs for draws in run.values()), default=0)
    if prepared.rules.perturbation.target == "demand":
        samples = repeated_releases(prepared)
    else:
        drawn = {zone: [draw for run in runs for draw in run[zone]] for zone in runs[0]}
        samples = [_sample(prepared, zone, d[: len(d) // 2 * 2]) for zone, d in drawn.items()]
    if not samples:
        return []
    risk = (1.0 - confidence) / (6.0 + 3.0 * len(DEMANDS))
    declared = all(sample.distributed for sample in samples)
    columns = MOST_COLUMNS // (2 * len(samples)) if declared else 1
    sampled = [sample.part(max(1, columns)) for sample in samples]
    rows = min(len(sample.noise) for sample in sampled)
    across = np.hstack([sample.noise[:rows] for sample in sampled])
    findings = _laws(samples, risk) if declared else []
    findings += [_signs(across, risk, "signs of all pairs of coordinates"), _radii(sampled, risk)]
    paired = [sample for sample in samples if sample.paired]
    for sample in paired:
        units = np.stack([part.ravel() for part in np.split(sample.noise, 2, axis=1)], axis=1)
        findings.append(_signs(units, risk / len(paired), "p with q", sample.zone))
    if rounds > 1:
        steps = [[d.output - d.value for d in draws[:rounds]] for r in runs for draws in r.values()]
        findings.append(_signs(np.hstack(steps).T, risk, "signs of all pairs of rounds"))
    return findings


def repeated_releases(prepared: Prepared) -> list[Sample]:
    """Return every zone's noise over :data:`REPEATS` releases of its demand."""
    samples = []
    for zone, problem in enumerate(prepared.problems):
        tape, demand = Tape(), problem.program.zone.demand
        rules = on_tape(prepared, tape).rules
        agent = zone_agent(prepared, zone, None, rules, NoiseStreams(0))
        for row in range(REPEATS):
            data = DEMANDS[row % len(DEMANDS)] * demand
            agent.twin(data, NoiseStreams(prepared.seed + row)).disclose()
        if tape.drawn and tape.drawn[0].value.size:
            samples.append(_sample(prepared, problem.name, tape.drawn))
    return samples


def _sample(prepared: Prepared, zone: str, draws: Sequence[Draw]) -> Sample:
    """Return draws at the scale of the first, as linearized updates scale with their step."""
    first = draws[0]
    noise = np.array([(draw.output - draw.value) * (first.scale / draw.scale) for draw in draws])
    mechanism = rule_of(prepared).release(first.sensitivity).mechanism
    return Sample(zone, noise, mechanism, has_distribution(rule_of(prepared).mechanism, mechanism))


def _round_noise(prepared: Prepared, seed: int) -> dict[str, list[Draw]]:
    """Return every zone's draws of a whole run, round by round."""
    tapes = {problem.name: Tape() for problem in prepared.problems}

    def taping(problem: Any, data: Any, shared: Any, rules: Any, *rest: Any, **named: Any) -> Agent:
        own = replace(rules, noise=taped(rule_of(prepared), tapes[problem.name]))
        return Agent(problem, data, shared, own, *rest, **named)

    record_run(prepared, seed, make_agent=taping)
    return {name: tape.drawn for name, tape in tapes.items() if tape.drawn}


def _laws(samples: Sequence[Sample], risk: float) -> list[Finding]:
    """Test the distribution of norms, directions and signs; return the worst of each zone."""
    findings = []
    for sample in samples:
        tests = []
        own = getattr(sample.mechanism, "cdf", None)
        tested = sample.norms if own is None else sample.noise
        for first in range(min(len(DEMANDS), len(sample.noise))):
            radii = tested[first :: len(DEMANDS)].ravel()
            tests.append(stats.kstest(radii, own or law(sample.mechanism)))
        if sample.paired:
            low = np.abs(sample.noise).reshape(len(sample.noise), 2, -1).min(axis=1)
            tests.append(stats.kstest((low / sample.norms).ravel(), "uniform"))
        if own is None:
            tests.append(stats.binomtest(int((sample.noise > 0.0).sum()), sample.noise.size))
        chance = min(float(test.pvalue) for test in tests)
        minus_log_p, allowed = -math.log10(max(chance, 1e-300)), -math.log10(risk / len(samples))
        findings.append(Finding("distribution", sample.zone, "-", minus_log_p, allowed))
    return findings


def mechanism_laws(multiplier: float, confidence: float) -> list[Finding]:
    """Test every installed mechanism of known distribution, at a run's scale over sensitivity.

    Parameters
    ----------
    multiplier : float
    confidence : float
        Probability with which correct mechanisms pass all tests.
    """
    findings: list[Finding] = []
    for (kind, source), law_of in MECHANISMS.items():
        mechanism = make_mechanism(law_of, multiplier, 1.0) if is_installed(kind, source) else None
        if mechanism is None or not has_distribution(kind, mechanism):
            continue
        noise = mechanism.perturb(
            np.zeros(2 * DRAWS), partial(np.random.default_rng, len(findings))
        )
        sample = Sample("-", noise[None], mechanism)
        # three tests of each: radius, direction and signs
        (finding,) = _laws([sample], (1.0 - confidence) / (3 * len(MECHANISMS)))
        findings.append(replace(finding, neighbour=f"{kind}, {source}"))
    return findings


def has_distribution(name: str, mechanism: Mechanism) -> bool:
    """Return True for noise of a known distribution: of a shipped mechanism, or with a ``cdf``."""
    return name in BUILT_IN or hasattr(mechanism, "cdf")


def law(mechanism: Mechanism) -> Callable[[Floats], Floats]:
    """Return the declared distribution function of a unit's norm N."""
    scale = mechanism.scale
    if isinstance(mechanism, Staircase):
        return _stairs(mechanism)
    functions: dict[Any, Callable[[Floats], Floats]] = {
        1: lambda x: -np.expm1(-x / scale),
        2: lambda x: stats.chi.cdf(x / scale, 1),
        "box": lambda x: stats.gamma.cdf(x / scale, 2),
    }
    return functions[mechanism.norm]


def _stairs(mechanism: Staircase) -> Callable[[Floats], Floats]:
    """Return the distribution function of N under density a q^floor(N/D + 1 - g)."""
    share = best_share(mechanism.epsilon, mechanism.dimension)
    steps = int(STEPS / min(mechanism.epsilon, 1.0))
    edges = np.concatenate([[0.0], share + np.arange(steps)])
    mass = np.exp(-mechanism.epsilon * np.arange(steps)) * np.diff(edges**mechanism.dimension)
    below = np.concatenate([[0.0], np.cumsum(mass)]) / mass.sum()
    powers = edges**mechanism.dimension
    return lambda x: np.interp((x / mechanism.step) ** mechanism.dimension, powers, below)


def _agreement(counts: Floats, rows: int, reach: float, name: str, zone: str = "all") -> Finding:
    """Return the share of agreeing rows that is furthest from a half."""
    furthest = float(np.abs(counts / rows - 0.5).max(initial=0.0))
    return Finding("independence", zone, name, furthest, reach)


def _signs(noise: Floats, risk: float, name: str, zone: str = "all") -> Finding:
    """Compare the signs of every two columns of noise (rows, k)."""
    signs, rows = np.where(noise > 0.0, 1.0, -1.0), len(noise)
    pairs = np.triu_indices(signs.shape[1], 1)
    agree = 0.5 * ((signs.T @ signs)[pairs] + rows)
    each = risk / max(1, len(agree))
    reach = float(stats.binom.isf(each / 2.0, rows, 0.5)) / rows - 0.5
    return _agreement(agree, rows, reach, name, zone)


def _radii(samples: Sequence[Sample], risk: float) -> Finding:
    """Compare the sides of the median of N, for every two units."""
    rows = min((len(sample.noise) for sample in samples), default=0) // 2 * 2
    norms = np.hstack([sample.norms[:rows] for sample in samples])
    order = norms.argsort(axis=0).argsort(axis=0)
    above = (order >= rows // 2).astype(float)
    pairs = np.triu_indices(norms.shape[1], 1)
    both = 2.0 * (above.T @ above)[pairs]
    each = risk / max(1, len(both)) / 2.0
    reach = 2.0 * float(stats.hypergeom.isf(each, rows, rows // 2, rows // 2)) / rows - 0.5
    return _agreement(both, rows, reach, "sizes of all pairs of units")


VALUES = 2_000
MANTISSA = 4.0 / 3.0  # of the value over the scale: all its bits are in use
CHANCE = 1e-9  # without a replayed bus: secure noise has no seed


def low_bits(rule: NoiseRule) -> list[Finding]:
    """Return the counts of noisy values on the value's own grid; [] without OpenDP."""
    if not is_installed(rule.mechanism, "secure"):
        return []
    secure = NoiseRule(rule.mechanism, "secure", rule.multiplier)
    mechanism = secure.release(Sensitivity(1.0, rule.norm, "any value")).mechanism
    value = np.full(VALUES, MANTISSA * mechanism.scale)
    noisy = mechanism.perturb(value, np.random.default_rng)
    small = noisy[np.abs(noisy) < value / 16.0]
    on_grid = np.fmod(small, np.spacing(value[0]) / 2.0) == 0.0
    allowed = float(stats.binom.isf(CHANCE, len(small), 1.0 / 8.0))
    return [Finding("low bits", "-", "-", float(on_grid.sum()), allowed)]


Compared = Sequence[tuple[str, Case]]
"""Cases that differ in demand only, by a name of the difference."""


def other_demands(prepared: Prepared) -> list[tuple[str, Case]]:
    """Return the cases for which public state must be equal, the run's own case first."""
    case, beta = prepared.case, prepared.run_adjacency.beta
    bus = int(np.argmax(np.bincount(np.concatenate([case.f_bus, case.t_bus]))))
    unit = np.zeros(case.n_bus)
    unit[bus] = beta
    shifted = np.roll(np.arange(case.n_bus), 1)
    return [
        ("-", case),
        ("p and q up", replace(case, pd=case.pd + unit, qd=case.qd + unit)),
        ("p up, q down", replace(case, pd=case.pd + unit, qd=case.qd - unit)),
        ("no demand", replace(case, pd=0.0 * case.pd, qd=0.0 * case.qd)),
        ("exchanged", replace(case, pd=case.pd[shifted].copy(), qd=case.qd[shifted].copy())),
    ]


def prepared_again(prepared: Prepared, case: Case, **changes: Any) -> Prepared:
    """Return the same run prepared from a case with other demand, or with changed settings.

    The case has the demand of the run, with its scale and outages applied.
    """
    settings = replace(prepared.settings, load_scale=1.0, outage=(), **changes)
    ready = prepare(case, prepared.zoning, settings, prepared.scale)
    return replace(ready, seed=prepared.seed)


def public_state(prepared: Prepared) -> dict[str, Any]:
    """Return the public state of a run before its first release."""
    with closing(in_process(zone_agents(prepared))) as zones:
        opening = open_rounds(prepared, zones)
    return {
        "rules": prepared.rules,
        "expected demand": prepared.expected,
        "statistics": prepared.disclosures,
        "shared coordinates": prepared.shared,
        "held interchange": interchange_reserves(prepared),
        "warm start": [public_proxy(zone) for zone in prepared.zones],
        "planning": (prepared.planning, prepared.firmness(1.0), prepared.soft_firmness),
        "first iterate": opening.state,
        "releases": opening.releases,
        "rounds": (opening.plan.rounds, opening.plan.tolerance),
        "step": [opening.plan.step(t) for t in (1, 2, 3)],
    }


def interchange_reserves(prepared: Prepared) -> Hold:
    """Return the reserves of zones under ``--hold interchange``, set aside or hypothetical."""
    rules = prepared.rules
    given = prepared.zones, prepared.disclosures, rules.noise, rules.adjacency
    return prepared.hold or Hold(*given)


def state_findings(prepared: Prepared, demands: Compared) -> list[Finding]:
    """Compare the public state on every demand with that on the first."""
    (_, base), *twins = [(name, public_state(prepared_again(prepared, c))) for name, c in demands]
    return [equality_finding("public state", name, base, twin) for name, twin in twins]


def equality_finding(check: str, label: str, base: Any, twin: Any) -> Finding:
    """Return the number of differences of two public values, and the name of the first."""
    paths = list(differences(base, twin))
    return zero_finding(check, label + (f": {paths[0]}" if paths else ""), len(paths))


def zero_finding(check: str, label: str, count: float) -> Finding:
    """Return the finding of a count that must be 0."""
    return Finding(check, "all", label, float(count), 0.0)


def differences(a: Any, b: Any) -> Iterator[str]:
    """Yield the places where two values differ: arrays, numbers, and their parts.

    A key is written only where its values differ: that of a release holds large arrays.
    """
    if isinstance(a, Tape):
        return
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        same = np.array_equal(a, b)
    elif type(a) is type(b) and (here := _parts(a)) is not None:
        there = _parts(b) or {}
        same = here.keys() == there.keys()
        for key in here if same else ():
            for place in differences(here[key], there[key]):
                yield f"{key}.{place}".rstrip(".")
    else:
        same = type(a) is type(b) and bool(a is b or a == b)
    if not same:
        yield ""


def _parts(value: Any) -> Mapping[Any, Any] | None:
    """Return the parts of a dataclass, a mapping or a sequence by name; None of other values."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    return value if isinstance(value, Mapping) else None


def bytes_findings(prepared: Prepared, demands: Compared, lane: str) -> list[Finding]:
    """Compare all public output on every demand with that on the first; releases are frozen."""
    (_, own), *twins = demands
    tape = Tape()
    base = published_run(prepared_again(prepared, own), tape)
    frozen = [draw.output for draw in tape.drawn]
    label = f"{lane}, draws that were not charged"
    findings = [zero_finding("public bytes", label, len(base["uncharged"]))]
    for name, case in twins:
        twin = published_run(prepared_again(prepared, case), Tape(frozen))
        findings.append(equality_finding("public bytes", f"{lane}, {name}", base, twin))
    return findings


def published_run(prepared: Prepared, tape: Tape) -> dict[str, Any]:
    """Run on a tape; return the messages, and the output of ``--public``."""
    run = on_tape(prepared, tape)
    charged: dict[str, Counter[Release]] = {}

    def charge(owner: str, releases: Mapping[Release, int]) -> None:
        charged.setdefault(owner, Counter()).update(releases)

    recorders: list[RecordingTransport] = []
    early: list[RunResult] = []

    def connect(factory: AgentFactory) -> RecordingTransport:
        recorders.append(RecordingTransport(in_process(factory), len(factory.sizes)))
        return recorders[-1]

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other demand, for the terminal of its owner
            result = run_prepared(run, leave=early.append, transport=connect, charge=charge)
    except GridprivError:
        if not early:
            raise
        result = early[0]
    drawn = {zone: Counter(each) for zone, each in result.trace.releases.items() if each}
    frames = [(table, getattr(result, table.name, None)) for table in documents.TABLES]
    return {
        "messages": recorders[0].crossed,
        "uncharged": list(differences(drawn, charged)),
        "document": json.dumps(result.as_dict(public=True), sort_keys=True),
        **{
            table.name: publish_table(frame, table).to_csv()
            for table, frame in frames
            if isinstance(frame, DataFrame)
        },
    }
