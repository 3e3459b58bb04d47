"""Every choice of a run, validated once, and the papers' presets."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from gridpriv.consensus.acceleration import Acceleration
from gridpriv.consensus.schedules import BalancedPenalty, ConstantPenalty
from gridpriv.consensus.settings import Accuracy, Rounds, Update
from gridpriv.core.document import Json
from gridpriv.core.errors import (
    GridprivWarning,
    InputError,
    not_allowed,
    not_negative,
    one_of,
    positive,
)
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
from gridpriv.grid.case import Case
from gridpriv.power.ac.service import Service
from gridpriv.power.objective import (
    IMBALANCE,
    OBJECTIVES,
    Objective,
    ObjectiveKind,
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
from gridpriv.privacy.budget import NOTHING, QUIET, Budget
from gridpriv.privacy.perturbation import Perturbation, Refresh, Target
from gridpriv.privacy.settings import Privacy
from gridpriv.privacy.strategies import MOST_COSINES

Consensus = Literal["boundary", "all"]
FEW_ZONES = 100
"""Zones up to which matched accuracy is exact."""
STILL = 1e-4
"""p.u. of disagreement of every shared variable below which rounds stop by default."""
Start = Literal["flat", "proxy"]
Coordination = Literal["rounds", "central"]
Release = Literal["bus", "total", "tree", "auto", "nothing"]
AUTO, ANEW = "auto", "anew"


@dataclass(frozen=True, kw_only=True)
class Adjacency(Part):
    """What of a grid's demand is protected."""

    beta: Beta = notation(
        Beta(1.0, "MW"),
        parse_beta,
        "BETA",
        "adjacency distance with its unit; without one it is per unit of the case's base",
    )
    protects: Protects = choice("p+q", PROTECTS, "which demands of a bus are protected")
    power_factor: str | None = words(
        None, "power factors at which demand changes, such as 0.9..1 (public; only changes between "
        "them are protected)", "A..B", parse_power_factors, unset="any",
    )  # fmt: skip

    def agree(self) -> None:
        """Refuse power factors of one kind of demand."""
        super().agree()
        DemandAdjacency(1.0, self.protects, self._factors)

    @property
    def _factors(self) -> PowerFactors | None:
        return None if self.power_factor is None else parse_power_factors(self.power_factor)

    def protected(self, case: Case) -> DemandAdjacency:
        """Return how far a bus's demand moves, as its owner has it."""
        return DemandAdjacency(self.beta.distance(case.base_mva), self.protects, self._factors)

    def adjacency(self, case: Case) -> DemandAdjacency:
        """Return what is :meth:`protected`; warn of a distance that no bus of the case has.

        The comparison is with what the generators of a bus can feed in, which is public. A
        number without unit that is a whole base or more is questioned too.
        """
        protected = self.protected(case)
        beta = protected.beta
        largest = float(np.bincount(case.gen_bus, weights=case.pmax).max(initial=0.0))
        bare = not self.beta.unit and self.beta.value >= 1.0  # a base or more: meant as MW?
        if bare or beta > largest > 0.0:
            more = f", more than its largest bus can generate ({largest * case.base_mva:.6g} MW)"
            warnings.warn(
                f"beta = {self.beta} is {beta * case.base_mva:.6g} MVA on the base of {case.name}"
                f"{more if beta > largest > 0.0 else ''}; "
                "a distance in megawatts is written with its unit, such as 20MW",
                GridprivWarning,
                stacklevel=3,
            )
        return protected


@dataclass(frozen=True, kw_only=True)
class Draws(Part):
    """How noise is drawn."""

    release: Release = choice(
        "auto", get_args(Release), "what a zone releases of its demand, with demand noise"
    )
    public_demand: str | None = words(
        None, "expected demand of every bus (bus,pd_mw,qd_mvar)", "FILE",
        unset="guessed from capacity",
    )  # fmt: skip
    course: str = choice(
        AUTO, (AUTO, ANEW, *map(str, range(MOST_COSINES + 1))),
        "how many cosines of a zone's sum over the steps of a series are released with its mean, "
        "once; anew: every step draws its own noise",
    )  # fmt: skip
    refresh: Refresh | None = choice(
        None,
        get_args(Refresh),
        "how often demand noise is drawn",
        unset="run, for demand noise",
    )
    seed: int | None = count(
        None, "seed of the simulated noise", least=0, unset="drawn and recorded"
    )


@dataclass(frozen=True, kw_only=True)
class Scenario(Part):
    """What the grid is, beside what its case says."""

    load_scale: float = number(1.0, "factor on every demand", not_negative)
    outage: tuple[str, ...] = several(
        "take a row out of service, gen:N or branch:N (repeatable)", "ROW", unset="none"
    )


@dataclass(frozen=True, kw_only=True)
class Grid(Scenario):
    """What the zones of a grid solve."""

    objective: ObjectiveKind | None = choice(
        None, OBJECTIVES, "what zones minimise",
        unset="cost, or losses without convex costs; imbalance with update linearized or noise "
        "on objective or output",
    )  # fmt: skip
    imbalance_weight: float | None = number(
        None, "weight of the squared imbalance beside cost or losses", positive,
        unset="1e4 on a base of 100 MVA; objective imbalance has none",
    )  # fmt: skip
    coordination: Coordination = choice(
        "rounds", get_args(Coordination),
        "who schedules: zones in rounds, or whoever gathers all that was released, at once",
    )  # fmt: skip
    update: Update = choice("exact", get_args(Update), "local update")
    consensus: Consensus = choice("boundary", get_args(Consensus), "what zones share")
    start: Start | None = choice(
        None, get_args(Start),
        "first iterate; proxy rehearses first on a public stand-in for the demand",
        unset="proxy with update exact, else flat",
    )  # fmt: skip
    acceleration: Acceleration | None = choice(
        None, get_args(Acceleration),
        "whether rounds go on by Anderson steps; evened also raises penalties where zones are last "
        "to agree: sooner on hundreds of zones, at a higher cost; both need update exact, penalty "
        "balanced, start proxy and noise that is not fresh",
        unset="anderson where it can be, else none",
    )  # fmt: skip
    convexity: float = number(1.0, "modulus alpha of the strongly convex step", positive)
    tolerance: float | None = number(
        None,
        "stop below this largest disagreement of one shared variable, in p.u.; 0 runs all rounds",
        not_negative,
        unset=f"{STILL:g} where rounds repeat one map and accuracy is matched, else 0",
    )
    solver: str = words("clarabel", "clarabel, ipopt or pyomo:NAME", "NAME")
    accuracy: Accuracy = choice(
        "matched", get_args(Accuracy),
        "how far clarabel solves where no release rests on the minimiser: on more than "
        f"{FEW_ZONES} zones as far as their rounds can use, or to its own 1e-8",
    )  # fmt: skip


@documented
@dataclass(frozen=True, kw_only=True)
class Settings(Service, Grid, Rounds, Draws, Adjacency, Privacy):
    """Settings of a run; the defaults are the recommended way (docs/decisions/0003-defaults.md).

    ``budget``, ``beta`` and ``penalty`` take their values or the notation of the command line.
    """

    def agree(self) -> None:
        """Refuse settings of which one has no meaning beside another."""
        super().agree()
        noisy, demand = self.mechanism != "none", self.perturbation == "demand"
        central = self.coordination == "central"
        for wrong, name, allowed in (
            (self.imbalance_weight is not None and self.objective in (None, "imbalance"),
             "imbalance_weight",
             "left out, or beside objective cost or losses: imbalance has no other term"),
            (self.refresh is not None and not demand,
             "refresh", f"left out: perturbation {self.perturbation} has none"),
            (self.noise == "secure" and self.seed is not None,
             "seed", "left out: secure noise has no seed"),
            (self.mechanism == "knorm" and not demand,
             "mechanism", "with perturbation 'demand' only: its noise is on pairs (p, q)"),
            (self.power_factor is not None and not demand,
             "power_factor", f"left out: perturbation {self.perturbation!r} is for changes at any"),
            (self.acceleration not in (None, "none") and not self.repeats(),
             "acceleration",
             "'none', or beside rounds that repeat one map: update exact, penalty balanced, "
             "start proxy, coordination rounds, and noise that is not fresh"),
            (central and noisy and not demand,
             "coordination",
             f"'rounds' with perturbation {self.perturbation!r}: only demand can be gathered"),
            (central and self.refresh not in (None, "run"),
             "refresh", "'run': coordination central has one round"),
            (noisy and demand and self.calibration == "paper",
             "calibration",
             "'sound' with perturbation 'demand': the paper has no such calibration"),
        ):  # fmt: skip
            if wrong:
                raise not_allowed(name, getattr(self, name), allowed)

    def effective_perturbation(self) -> Perturbation:
        """Return what is perturbed, with the refresh that applies."""
        target: Target = "none" if self.mechanism == "none" else self.perturbation
        if target == "demand":
            return Perturbation(target, self.refresh or "run")
        return Perturbation(target)

    @property
    def drawn(self) -> str:
        """What a run draws: noise of its budget, ``nothing`` (it releases nothing), or ``none``.

        What is released of demand has a meaning where demand is perturbed, and nowhere else.
        """
        silent = self.release == NOTHING and self.effective_perturbation().target == "demand"
        return NOTHING if silent else super().drawn

    def case_objective(self, case: Case) -> Objective:
        """Return what the zones of a case minimise.

        A weight M multiplies the sensitivity of gradients, and the square root of it that of
        exact minimisers: only noise on demand is the same with cost as without.
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

    def told_of(self, case: Case) -> Json:
        """Return every effective setting of a run of a case, as JSON can hold it."""
        objective = self.case_objective(case)  # None stands for what the case asks for
        shown = self.as_dict() | {"objective": objective.kind}
        if objective.kind != "imbalance":
            shown["imbalance_weight"] = objective.weight
        return shown

    def effective_start(self) -> Start:
        """Return the start that applies."""
        return self.start or ("proxy" if self.update == "exact" else "flat")

    def repeats(self) -> bool:
        """Return whether every round is the same map, with penalties that a rehearsal has found."""
        balanced = isinstance(self.penalty, BalancedPenalty) and self.effective_start() == "proxy"
        rounds = self.coordination == "rounds" and self.update == "exact"
        return balanced and rounds and not self.noise_is_fresh()

    def effective_tolerance(self) -> float:
        """Return the largest disagreement below which rounds stop; 0 runs all of them."""
        still = STILL if self.accuracy == "matched" and self.repeats() else 0.0
        return still if self.tolerance is None else self.tolerance

    def effective_acceleration(self) -> Acceleration:
        """Return the acceleration that applies."""
        return self.acceleration or ("anderson" if self.repeats() else "none")

    def noise_is_fresh(self) -> bool:
        """Return whether every round draws new noise, which a penalty rule must not chase."""
        perturbation = self.effective_perturbation()
        return self.drawn not in QUIET and perturbation.refresh != "run"

    def planned_releases(self) -> int:
        """Return the number of releases of one zone."""
        return self.effective_perturbation().releases(self.rounds, self.local_updates)

    def as_dict(self) -> Json:
        """Return every effective setting, as JSON can hold it."""
        perturbation = self.effective_perturbation()
        return self.as_given() | {
            "perturbation": perturbation.target,
            "refresh": perturbation.refresh if perturbation.target == "demand" else None,
            "start": self.effective_start(),
            "acceleration": self.effective_acceleration(),
            "tolerance": self.effective_tolerance(),
        }


NOTHING_RELEASED: Json = {
    "mechanism": "knorm", "perturbation": "demand", "refresh": "run", "release": NOTHING,
    "calibration": "sound",
}  # fmt: skip
"""What makes of a run one in which everybody goes by what is public."""

PRESETS: dict[str, Settings] = {
    "ryu-kim": Settings(
        objective="imbalance",
        perturbation="objective",
        calibration="paper",
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
    """Return settings: the defaults, a preset over them, and what is given over both.

    Parameters
    ----------
    preset : str, optional
        ``ryu-kim``.
    **given
        Settings by name, as values or as the command line writes them.

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
    gridpriv.core.errors.InputError: setting = 'bta' is not allowed: did you mean 'beta'?
    """
    check_names(given, names(Settings))
    if preset is None:
        return Settings(**given)
    one_of("preset", preset, PRESETS)
    base = PRESETS[preset]
    if given.get("perturbation") == "demand" and "calibration" not in given:
        raise InputError(
            f"perturbation = 'demand' has no calibration {base.calibration!r} (the preset's): "
            "add --calibration sound"
        )
    return replace(base, **given)
