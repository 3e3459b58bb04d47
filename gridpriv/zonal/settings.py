"""Settings of a run and of its analyses, validated once, and the presets of papers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np

from gridpriv.consensus.coordinator import Acceleration
from gridpriv.consensus.schedules import (
    ConstantPenalty,
    ResidualBalancing,
    Rounds,
    SolverTolerance,
    Update,
)
from gridpriv.core.errors import InputError, check_choice, not_allowed, not_negative, positive, warn
from gridpriv.core.settings import (
    Part,
    check_names,
    choice,
    count,
    documented,
    names,
    notation,
    number,
    several,
    words,
)
from gridpriv.core.text import Json, html_table
from gridpriv.grid.case import Case
from gridpriv.grid.scenarios import RATINGS, Rating
from gridpriv.power.objective import (
    IMBALANCE,
    OBJECTIVES,
    Objective,
    ObjectiveKind,
    Service,
    cost_objective,
    has_convex_costs,
    losses_objective,
)
from gridpriv.privacy.adjacency import (
    PROTECTS,
    Beta,
    DemandAdjacency,
    PowerFactors,
    Protects,
    parse_beta,
    parse_power_factors,
)
from gridpriv.privacy.perturbation import NoiseSchedule, Perturbation, Target
from gridpriv.privacy.settings import NO_BUDGET, NOTHING, Budget, Mechanism, Privacy
from gridpriv.privacy.temporal import MOST_COEFFICIENTS, parse_window

Consensus = Literal["boundary", "all"]
FEW_ZONES = 100
"""Number of zones up to which the matched solver tolerance is exact."""
DEFAULT_TOLERANCE = 1e-4
"""p.u. of consensus residual below which rounds stop by default."""
Start = Literal["flat", "warm"]
Coordination = Literal["rounds", "central"]
Planning = Literal["ac", "soc"]
Release = Literal["bus", "total", "tree", "auto", "nothing"]
AUTO, PER_STEP = "auto", "per-step"
Refusal = tuple[str, str]
"""A setting, and its allowed values."""


@dataclass(frozen=True, kw_only=True)
class Adjacency(Part):
    """Adjacent demands differ at one bus by at most beta, before --load-scale."""

    beta: Beta = notation(
        Beta(1.0, "MW"),
        parse_beta,
        "BETA",
        "protected change of one bus's demand, such as 10MW; without a unit it is per unit of the "
        "case's base",
    )
    protects: Protects = choice(
        "p+q", PROTECTS, "protected demand of a bus: active, reactive or both"
    )
    power_factor: str | None = words(
        None,
        "public range of power factors of protected changes, such as 0.9..1: protects fewer "
        "changes, with less noise on reactive demand",
        "A..B",
        parse_power_factors,
        unset="any",
    )

    def agree(self) -> None:
        """Refuse power factors of one kind of demand."""
        super().agree()
        DemandAdjacency(1.0, self.protects, self._factors)

    @property
    def _factors(self) -> PowerFactors | None:
        return None if self.power_factor is None else parse_power_factors(self.power_factor)

    def protected(self, case: Case) -> DemandAdjacency:
        """Return the adjacency of a bus's demand in its owner's units."""
        return DemandAdjacency(self.beta.distance(case.base_mva), self.protects, self._factors)

    def adjacency(self, case: Case) -> DemandAdjacency:
        """Return :meth:`protected`; warn of a distance that no bus of the case has.

        The comparison is with what the generators of a bus can feed in, which is public. A number
        without unit of a whole base or more gives a warning too.
        """
        protected = self.protected(case)
        beta = protected.beta
        largest = float(np.bincount(case.gen_bus, weights=case.pmax).max(initial=0.0))
        unitless = not self.beta.unit and self.beta.value >= 1.0  # a base or more: probably in MW
        if unitless or beta > largest > 0.0:
            means = f" has no unit: it means {beta * case.base_mva:.6g} MW" if unitless else " is"
            more = (
                f"{',' * unitless} more than the generating capacity at any bus of {case.name} "
                f"({largest * case.base_mva:.6g} MW at most)"
            )
            advice = f". For megawatts write {self.beta.value:g}MW" if unitless else ""
            warn(f"beta = {self.beta}{means}{more if beta > largest > 0.0 else ''}{advice}", 3)
        return protected


@dataclass(frozen=True, kw_only=True)
class ReleaseSchedule(Part):
    """Released statistics of demand, and the schedule of their noise."""

    release: Release = choice(
        "auto",
        get_args(Release),
        "released statistics of a zone's demand: every bus, the zone's total, both (tree), the one "
        "of least expected error (auto), or nothing",
    )
    public_demand: str | None = words(
        None,
        "public prior: demand of every bus (bus,pd_mw,qd_mvar), or a forecast of gridpriv learn: "
        "its mean, or a STEP such as 2026-11-28T18:00:00",
        "FILE[@STEP]",
        unset="estimate from generating capacity, equal where load can be",
    )
    stream: str | None = words(
        None,
        "length of a window, such as 48h, day or year: with --series, the budget holds for every "
        "window (w-event privacy), and zones release means of their totals over blocks of hours",
        "WINDOW",
        parse_window,
        unset="none",
    )
    temporal_basis: str = choice(
        AUTO,
        (AUTO, PER_STEP, *map(str, range(MOST_COEFFICIENTS + 1))),
        "number of cosine (DCT) coefficients of the zone total that a series releases besides its "
        "mean; auto: that of least expected error; per-step: release every step instead",
    )
    noise_schedule: NoiseSchedule | None = choice(
        None,
        get_args(NoiseSchedule),
        "draws of noise on demand: once, every round or every update (noise on objective or "
        "output: always every update)",
        unset="once",
    )
    seed: int | None = count(None, "seed of simulated noise", least=0, unset="drawn and recorded")


@dataclass(frozen=True, kw_only=True)
class Scenario(Part):
    """Changes to the case."""

    load_scale: float = number(
        1.0,
        "factor on the net demand of every bus (loads, fixed static generators such as PV, "
        "storage, DC lines)",
        not_negative,
    )
    outage: tuple[str, ...] = several(
        "generator or branch out of service, gen:N or branch:N; N counts rows of a MATPOWER "
        "file, or elements in service of another format, from 1 (docs/howto/own-grid.md); "
        "repeatable: all are out together",
        "ROW",
        unset="none",
    )


@dataclass(frozen=True, kw_only=True)
class Grid(Scenario):
    """The optimization of the zones and its coordination."""

    objective: ObjectiveKind | None = choice(
        None,
        OBJECTIVES,
        "objective of the zones",
        unset=(
            "cost; losses if the case has no convex costs; imbalance with the linearized "
            "update or noise on objective or output"
        ),
    )
    imbalance_weight: float | None = number(
        None,
        "weight of the squared imbalance (active and reactive, p.u.^2) with --planning soc, in "
        "units of the cost of 1 p.u. of generation (objective losses: of 1 p.u. of losses)",
        positive,
        unset="100 times the base in MVA, such as 10000",
    )
    coordination: Coordination = choice(
        "rounds",
        get_args(Coordination),
        "schedule from rounds among zones, or from one central optimization of released demand",
    )
    planning: Planning | None = choice(
        None,
        get_args(Planning),
        "equations of the schedule: AC power flow (ac), or its second-order cone relaxation (soc)",
        unset="ac with objective cost or losses, update exact and noise on demand drawn at most "
        "once; else soc",
    )
    update: Update = choice(
        "exact",
        get_args(Update),
        "local update of ADMM: exact solution, or a step on the linearized objective",
    )
    consensus: Consensus = choice(
        "boundary",
        get_args(Consensus),
        "coupling variables of ADMM: those of tie lines, or all",
    )
    start: Start | None = choice(
        None,
        get_args(Start),
        "starting point: flat, or warm (from rounds on public data)",
        unset="warm with update exact, else flat",
    )
    acceleration: Acceleration | None = choice(
        None,
        get_args(Acceleration),
        "acceleration with --planning soc: Newton steps of all zones together, or Anderson's "
        "method; both need update exact, penalty auto, start warm and noise drawn at most once",
        unset="newton; anderson if --consensus, --solver or --solver-tolerance is not the "
        "default; none if a requirement is not met",
    )
    convexity: float = number(
        1.0, "strong-convexity modulus alpha that the step rule strongly-convex assumes", positive
    )
    tolerance: float | None = number(
        None,
        "largest entry of the consensus residual, p.u., at which rounds on the relaxation stop "
        "(dual residual: 10 X); 0: all rounds; above 0.01 p.u. a run counts as not converged",
        not_negative,
        unset=f"{DEFAULT_TOLERANCE:g} with update exact, penalty auto, start warm, "
        "solver-tolerance matched and noise drawn at most once, else 0",
    )
    solver: str = words(
        "clarabel", "solver of zones in ADMM: clarabel, ipopt or pyomo:NAME", "NAME"
    )
    solver_tolerance: SolverTolerance = choice(
        "matched",
        get_args(SolverTolerance),
        "tolerance of Clarabel; tight: 1e-8; matched: looser at a large consensus residual, "
        f"with over {FEW_ZONES} zones and no noise on objective or output",
    )


@documented
@dataclass(frozen=True, kw_only=True)
class Settings(Service, Grid, Rounds, ReleaseSchedule, Adjacency, Privacy):
    """Settings of a run; the defaults are the recommended ones (docs/decisions/0003-defaults.md).

    ``budget``, ``beta`` and ``penalty`` take their values or the notation of the command line.
    """

    def __repr__(self) -> str:
        given = [f"{name}={value}" for name, value in self._changed().items()]
        return f"Settings({', '.join([*given, 'other settings: defaults'])})"

    def _repr_html_(self) -> str:
        changed = self._changed()
        rows = [(k, v, "" if k in changed else "default") for k, v in self.as_given().items()]
        return html_table(("Settings", ["setting", "value", ""], rows))

    def _changed(self) -> Json:
        """Return the settings that differ from their defaults."""
        default = Settings().as_given()
        return {k: v for k, v in self.as_given().items() if v != default[k]}

    def agree(self) -> None:
        """Refuse combinations of settings without a meaning."""
        super().agree()
        for name, allowed in chain(_noise_refusals(self), _coordination_refusals(self)):
            raise not_allowed(name, getattr(self, name), allowed)

    def effective_mechanism(self) -> Mechanism:
        """Return the mechanism of the noise; by default that with the least noise.

        At the same certified loss K-norm noise on pairs (p, q) has half the variance of Laplace
        noise; where only p or only q changes it has twice the variance.
        """
        if self.mechanism is not None:
            return self.mechanism
        pairs = self.perturbation == "demand" and self.protects == "p+q"
        return "knorm" if pairs else "laplace"

    def noise_name(self) -> str:
        """Return the mechanism's name; a staircase is on numbers if only p or only q changes."""
        mechanism = self.effective_mechanism()
        is_number = mechanism == "staircase" and self.protects != "p+q"
        return "staircase-number" if is_number else mechanism

    def effective_perturbation(self) -> Perturbation:
        """Return the perturbation, with the effective noise schedule."""
        target: Target = "none" if self.mechanism == "none" else self.perturbation
        if target == "demand":
            return Perturbation(target, self.noise_schedule or "once")
        return Perturbation(target)

    @property
    def noise_budget(self) -> str:
        """Noise of a run: its budget, ``nothing`` (no release), or ``none``.

        The release of demand has a meaning only under demand perturbation.
        """
        silent = self.release == NOTHING and self.effective_perturbation().target == "demand"
        return NOTHING if silent else super().noise_budget

    def case_objective(self, case: Case) -> Objective:
        """Return the objective of a case's zones.

        A weight M multiplies the sensitivity of gradients, and the square root of it that of
        exact minimizers: only noise on demand does not depend on M.
        """
        unpriced = self.effective_perturbation().target in ("objective", "output")
        usual = "imbalance" if unpriced or self.update == "linearized" else "cost"
        if self.objective is None and usual == "cost" and not has_convex_costs(case):
            usual = "losses"
        kind = self.objective or usual
        if kind == "imbalance":
            return IMBALANCE
        make = cost_objective if kind == "cost" else losses_objective
        return make(case, self.imbalance_weight)

    def effective_values(self, case: Case) -> Json:
        """Return every effective setting of a run of a case, as a JSON value."""
        objective = self.case_objective(case)  # None: determined by the case
        shown = self.as_dict() | {"objective": objective.kind}
        shown["planning"] = self.case_planning(case)
        if objective.kind != "imbalance":
            shown["imbalance_weight"] = objective.weight
        return shown

    def released_demand(self) -> bool:
        """Return True where only one release of demand, or exact demand, is in use."""
        target = self.effective_perturbation().target
        return target in ("none", "demand") and not self.noise_is_fresh()

    def case_planning(self, case: Case) -> Planning:
        """Return the equations of a case's schedule."""
        if self.planning is not None:
            return self.planning
        priced = self.case_objective(case).kind != "imbalance" and self.update == "exact"
        return "ac" if priced and self.released_demand() else "soc"

    def effective_start(self) -> Start:
        """Return the effective start."""
        return self.start or ("warm" if self.update == "exact" else "flat")

    def repeats(self) -> bool:
        """Return True for a stationary iteration, with penalties of the warm start."""
        balanced = isinstance(self.penalty, ResidualBalancing) and self.effective_start() == "warm"
        rounds = self.coordination == "rounds" and self.update == "exact"
        return balanced and rounds and not self.noise_is_fresh()

    def effective_tolerance(self) -> float:
        """Return the consensus residual below which rounds stop; 0 runs all of them."""
        tolerance = (
            DEFAULT_TOLERANCE if self.solver_tolerance == "matched" and self.repeats() else 0.0
        )
        return tolerance if self.tolerance is None else self.tolerance

    def effective_acceleration(self) -> Acceleration:
        """Return the effective acceleration."""
        if self.acceleration is not None or not self.repeats():
            return self.acceleration or "none"
        newton = self.planning == "soc" and self.consensus == "boundary" and self.released_demand()
        return "newton" if newton and not any(_solver_refusals(self)) else "anderson"

    def noise_is_fresh(self) -> bool:
        """Return True where every round draws new noise, which a penalty rule must not follow."""
        perturbation = self.effective_perturbation()
        return self.noise_budget not in NO_BUDGET and perturbation.noise_schedule != "once"

    def planned_releases(self) -> int:
        """Return the number of releases of one zone."""
        return self.effective_perturbation().releases(self.rounds, self.local_updates)

    def as_dict(self) -> Json:
        """Return every effective setting, as a JSON value."""
        perturbation = self.effective_perturbation()
        scheduled = perturbation.target == "demand"
        return self.as_given() | {
            "mechanism": self.effective_mechanism(),
            "target_delta": self.total_delta,
            "perturbation": perturbation.target,
            "noise_schedule": perturbation.noise_schedule if scheduled else None,
            "start": self.effective_start(),
            "acceleration": self.effective_acceleration(),
            "tolerance": self.effective_tolerance(),
        }


def _noise_refusals(settings: Settings) -> Iterator[Refusal]:
    """Yield noise settings without a meaning under the others, with the allowed values."""
    perturbation, mechanism = settings.perturbation, settings.mechanism
    demand = perturbation == "demand"
    if settings.noise_schedule is not None and not demand:
        yield "noise_schedule", f"left out: perturbation {perturbation} has none"
    if settings.noise == "secure" and settings.seed is not None:
        yield "seed", "left out: secure noise has no seed"
    if mechanism == "knorm" and not demand:
        yield "mechanism", "with perturbation 'demand' only: its noise is on pairs (p, q)"
    if mechanism == "staircase" and not demand:
        yield "mechanism", "with perturbation 'demand' only: its noise is on what one bus moves"
    if settings.release in ("total", "tree", NOTHING) and not demand:
        instead = "releases no statistics of demand, but every local update"
        yield "release", f"left out: perturbation {perturbation!r} {instead}"
    if mechanism == "staircase" and settings.release == "tree":
        several = "a bus moves several sums of a tree, and each would cost a whole epsilon"
        yield "release", f"bus, total, auto or nothing with mechanism 'staircase': {several}"
    if settings.power_factor is not None and not demand:
        yield "power_factor", f"left out: perturbation {perturbation!r} is for changes at any"
    if mechanism != "none" and demand and settings.sensitivity == "published":
        yield "sensitivity", "'proven' with perturbation 'demand': no other bound is published"


def _solver_refusals(settings: Settings) -> Iterator[Refusal]:
    """Yield settings of the zones' solver that Newton rounds, which have none, do not use."""
    for name in ("solver", "solver_tolerance"):
        default = Grid.__dataclass_fields__[name].default
        if getattr(settings, name) != default:
            yield (
                name,
                f"{default!r} with acceleration 'newton', whose rounds have no solver of zones: "
                "choose acceleration 'anderson' for rounds of ADMM",
            )


def _coordination_refusals(settings: Settings) -> Iterator[Refusal]:
    """Yield settings of the coordination, as :func:`_noise_refusals` does."""
    perturbation, central = settings.perturbation, settings.coordination == "central"
    if settings.imbalance_weight is not None and settings.objective in (None, "imbalance"):
        other = "imbalance has no other term"
        yield "imbalance_weight", f"left out, or with objective cost or losses: {other}"
    if settings.acceleration not in (None, "none") and not settings.repeats():
        yield (
            "acceleration",
            "'none', or with a stationary iteration: update exact, penalty auto, "
            "start warm, coordination rounds, and noise drawn at most once",
        )
    if settings.acceleration == "newton":
        yield from _solver_refusals(settings)
    if central and settings.mechanism != "none" and perturbation != "demand":
        only = "only demand can be gathered"
        yield "coordination", f"'rounds' with perturbation {perturbation!r}: {only}"
    if central and settings.noise_schedule not in (None, "once"):
        yield "noise_schedule", "'once': coordination central has one round"
    if settings.planning == "ac" and not settings.released_demand():
        yield (
            "planning",
            "'soc' where noise is drawn in every round or is not on demand: AC rounds read one "
            "release of demand",
        )


PRIOR_ONLY: Json = {
    "mechanism": "knorm",
    "perturbation": "demand",
    "noise_schedule": "once",
    "release": NOTHING,
    "sensitivity": "proven",
}
"""Settings of a prior-only run."""

PRESETS: dict[str, Settings] = {
    "ryu-kim": Settings(
        objective="imbalance",
        perturbation="objective",
        sensitivity="published",
        budget=Budget("per-release", 0.1),
        delta=1e-2,
        beta=Beta(0.01),
        update="linearized",
        consensus="all",
        penalty=ConstantPenalty(100.0),
        start="flat",
        rounds=100,
    )
}


def make_settings(preset: str | None = None, **given: Any) -> Settings:
    """Return settings: the defaults, changed by a preset and by the given settings.

    Parameters
    ----------
    preset : str, optional
        ``ryu-kim``.
    **given
        Settings by name, as values or in the notation of the command line.

    Raises
    ------
    InputError
        For an unknown setting (with the nearest known one), a value that is not allowed, or
        settings that exclude each other.

    Examples
    --------
    >>> settings = make_settings("ryu-kim", budget="per-release:0.5", rounds=50)
    >>> settings.budget.epsilon, settings.rounds, settings.update
    (0.5, 50, 'linearized')
    >>> make_settings(bta=2.0)
    Traceback (most recent call last):
        ...
    gridpriv.core.errors.InputError: setting = 'bta' is unknown: did you mean 'beta'?
    """
    check_names(given, names(Settings))
    if preset is None:
        return Settings(**given)
    check_choice("preset", preset, PRESETS)
    base = PRESETS[preset]
    if given.get("perturbation") == "demand" and "sensitivity" not in given:
        raise InputError(
            f"perturbation = 'demand' has no sensitivity {base.sensitivity!r} (the preset's): "
            "add --sensitivity proven"
        )
    return replace(base, **given)


FlowModel = Literal["dc", "ac"]
SHARED, LOCAL, ZONE = "shared", "local", "zone:"


def check_view(view: str) -> None:
    """Refuse a text that is not a view."""
    if view not in (SHARED, LOCAL) and not (view.startswith(ZONE) and len(view) > len(ZONE)):
        raise not_allowed("view", view, f"{SHARED}, {LOCAL} or {ZONE}NAME")


def check_view_of(view: str, zones: Collection[str], perturbed: str) -> None:
    """Refuse a view that a run does not have.

    Parameters
    ----------
    zones : collection of str
        Names of the run's zones.
    perturbed : str
        Target of the run's noise: none, demand, objective or output.
    """
    check_choice("view", view, (SHARED, LOCAL, *(f"{ZONE}{name}" for name in zones)))
    if view != LOCAL and perturbed not in ("none", "demand"):
        raise InputError(
            f"view = {view!r} needs released demand, but this run perturbs {perturbed!r}. Give "
            f"--perturbation demand or --view {LOCAL}."
        )


VIEW = partial(
    words,
    SHARED,
    "demand of zones: shared (all released) | local (all true) | zone:NAME (true in this zone "
    "only)",
    "VIEW",
    check_view,
)


@dataclass(frozen=True, kw_only=True)
class FlowBased(Part):
    """Margins, domain, payments (at mean bus prices) and AC PTDFs depend on the demand of --view.

    So do DC PTDFs of zones without generators. A zone's net position changes by its generators, in
    proportion to capacity, or else by its demand (GSK). The margin (RAM) of a direction is the
    active flow that the rating allows at unchanged reactive flow, less that of the AC optimum; it
    has no reliability margin (FRM).
    """

    view: str = VIEW()
    ptdf: FlowModel = choice("dc", ("dc", "ac"), "power flow of the PTDFs: linearized or AC")
    threshold: float = number(
        5.0,
        "list only branches with a zone-to-zone PTDF of at least X %; the domain has all",
        not_negative,
    )


@dataclass(frozen=True, kw_only=True)
class Security(Part):
    """Analysis of outages.

    The dispatch before an outage is the AC optimum for the demand of --view (local: after AC
    redispatch). All generators of an island take up lost generation in proportion to headroom.
    """

    contingencies: str = words(
        "all",
        "single outages: branches | generators | all; or FILE.csv with columns name,outage "
        "(gen:N or branch:N): rows of one name are out together",
        "LIST",
    )
    view: str = VIEW()
    rating: Rating = choice(
        "C",
        RATINGS,
        "branch rating after an outage (before it: A): MATPOWER's rateA to rateC "
        "(without C: B; without B: A)",
    )
    screen: float = number(
        0.0,
        "DC screening: an outage whose largest DC loading is below X % of the rating gets no AC "
        "power flow and does not count as secure",
        not_negative,
    )
