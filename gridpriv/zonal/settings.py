"""Every choice of a run, validated once."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from gridpriv.consensus.schedules import (
    BalancedPenalty,
    ConstantPenalty,
    GrowingPenalty,
    PenaltySchedule,
)
from gridpriv.core.errors import InputError, not_allowed, not_negative, one_of, positive, whole
from gridpriv.grid.case import Case
from gridpriv.power.objective import (
    IMBALANCE,
    OBJECTIVES,
    Objective,
    ObjectiveKind,
    cost_objective,
)
from gridpriv.privacy.accounting import check_delta, classical_gaussian_multiplier
from gridpriv.privacy.adjacency import PROTECTS, Protects, parse_beta
from gridpriv.privacy.budget import Budget, parse_budget
from gridpriv.privacy.perturbation import Perturbation, Refresh, Target

CHOICES = {
    "objective": OBJECTIVES,
    "mechanism": ("none", "laplace", "gaussian", "knorm"),
    "perturbation": ("objective", "output", "demand"),
    "refresh": ("update", "round", "run"),
    "calibration": ("sound", "paper"),
    "protects": PROTECTS,
    "update": ("linearized", "exact"),
    "consensus": ("boundary", "all"),
    "start": ("flat", "proxy"),
    "step": ("nonsmooth", "smooth", "strongly-convex"),
    "noise": ("simulated", "secure"),
}


@dataclass(frozen=True)
class Settings:
    """Settings of a run; the defaults are the recommended way (docs/decisions/0003-defaults.md).

    Attributes
    ----------
    objective : {'imbalance', 'cost'}
        ``imbalance`` minimises the squared imbalance, ``cost`` the cost of generation with the
        squared imbalance as a penalty (:mod:`gridpriv.power.objective`).
    imbalance_weight : float or None
        M, of that penalty; None means 1e4 on a base of 100 MVA. For objective ``cost`` only.
    mechanism, perturbation, refresh, calibration
        What noise is drawn, on what, how often, and from whose sensitivity. ``refresh`` is
        for perturbation ``demand`` only; None means ``round`` there.
    budget : str
        ``per-release:E[,D]`` or ``total:E[,D]``.
    delta : float
        Of one Gaussian release where the budget states none.
    target_delta : float
        At which totals are stated.
    beta : str
        Adjacency distance, per unit or with a unit (``1MW``).
    protects : {'p+q', 'p', 'q'}
    update : {'exact', 'linearized'}
    consensus : {'boundary', 'all'}
    start : {'flat', 'proxy'} or None
        ``proxy`` first rehearses, without noise, on a public stand-in for the demand and
        hands over iterates, duals and penalties; None means ``proxy`` for exact updates.
    step : {'nonsmooth', 'smooth', 'strongly-convex'}
        Step size rule of the linearized update.
    convexity : float
        Modulus alpha of the strongly convex step.
    penalty : str
        A number, ``balanced``, or ``growing:START,FACTOR,EVERY,MOST``.
    rounds, local_updates : int
        T and E.
    tolerance : float
        Stop below this consensus residual (a public figure); 0 runs all rounds.
    solver : str
        ``ipopt``, ``clarabel`` or ``pyomo:NAME``.
    noise : {'simulated', 'secure'}
    load_scale : float
    outage : tuple of str
    workers : int
        Processes over zones; results do not depend on it.
    seed : int or None
        Of the simulated noise; None draws one from the operating system and records it.
    """

    objective: ObjectiveKind = "imbalance"
    imbalance_weight: float | None = None
    mechanism: Literal["none", "laplace", "gaussian", "knorm"] = "laplace"
    perturbation: Literal["objective", "output", "demand"] = "demand"
    refresh: Refresh | None = None
    calibration: Literal["sound", "paper"] = "sound"
    budget: str = "total:5"
    delta: float = 1e-5
    target_delta: float = 1e-5
    beta: str = "0.01"
    protects: Protects = "p+q"
    update: Literal["linearized", "exact"] = "exact"
    consensus: Literal["boundary", "all"] = "boundary"
    start: Literal["flat", "proxy"] | None = None
    step: Literal["nonsmooth", "smooth", "strongly-convex"] = "nonsmooth"
    convexity: float = 1.0
    penalty: str = "balanced"
    rounds: int = 10
    local_updates: int = 1
    tolerance: float = 0.0
    solver: str = "ipopt"
    noise: Literal["simulated", "secure"] = "simulated"
    load_scale: float = 1.0
    outage: tuple[str, ...] = ()
    workers: int = 1
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if not (name in ("refresh", "start") and value is None):
                one_of(name, value, choices)
        for name in ("rounds", "local_updates", "workers"):
            whole(name, getattr(self, name))
        check_delta("delta", self.delta)
        check_delta("target_delta", self.target_delta)
        not_negative("tolerance", self.tolerance)
        positive("convexity", self.convexity)
        not_negative("load_scale", self.load_scale)
        if self.seed is not None:
            whole("seed", self.seed, least=0)
        self._check_weight()
        self.penalty_schedule()
        parse_beta(self.beta, 1.0)
        self._check_privacy()

    def _check_weight(self) -> None:
        weight = self.imbalance_weight
        if weight is None:
            return
        if self.objective != "cost":
            raise not_allowed(
                "imbalance_weight", weight, "left out: objective imbalance has no other term"
            )
        positive("imbalance_weight", weight)

    def _check_privacy(self) -> None:
        budget = self.privacy_budget
        if self.refresh is not None and self.perturbation != "demand":
            raise not_allowed(
                "refresh", self.refresh, f"left out: perturbation {self.perturbation} has none"
            )
        if self.noise == "secure" and self.seed is not None:
            raise not_allowed("seed", self.seed, "left out: secure noise has no seed")
        if self.mechanism == "none":
            return
        if self.mechanism == "knorm" and self.perturbation != "demand":
            raise not_allowed(
                "mechanism",
                "knorm",
                "with perturbation 'demand' only: its noise is on pairs (p, q)",
            )
        if self.calibration == "paper" and self.perturbation == "demand":
            raise not_allowed(
                "calibration",
                "paper",
                "'sound' with perturbation 'demand': the paper has no such calibration",
            )
        if self.mechanism == "gaussian" and budget.scope == "total" and budget.delta is None:
            raise not_allowed(
                "budget",
                self.budget,
                "total:E,D with the Gaussian mechanism (it has no pure epsilon)",
            )
        if (
            self.mechanism == "gaussian"
            and self.calibration == "paper"
            and budget.scope == "per-release"
        ):
            classical_gaussian_multiplier(budget.epsilon, budget.delta or self.delta)

    @property
    def privacy_budget(self) -> Budget:
        """The parsed budget."""
        return parse_budget(self.budget)

    @property
    def release_delta(self) -> float:
        """Delta at which one release's epsilon is stated."""
        budget = self.privacy_budget
        return budget.delta if budget.scope == "per-release" and budget.delta else self.delta

    def effective_perturbation(self) -> Perturbation:
        """Return what is perturbed, with the refresh that applies."""
        target: Target = "none" if self.mechanism == "none" else self.perturbation
        if target == "demand":
            return Perturbation(target, self.refresh or "round")
        return Perturbation(target)

    def case_objective(self, case: Case) -> Objective:
        """Return what the zones of a case minimise."""
        if self.objective == "imbalance":
            return IMBALANCE
        return cost_objective(case, self.imbalance_weight)

    def effective_start(self) -> str:
        """Return the start that applies."""
        return self.start or ("proxy" if self.update == "exact" else "flat")

    def noise_is_fresh(self) -> bool:
        """Return whether every round draws new noise, which a penalty rule must not chase."""
        perturbation = self.effective_perturbation()
        return perturbation.target != "none" and perturbation.refresh != "run"

    def planned_releases(self) -> int:
        """Return the number of releases of one zone."""
        return self.effective_perturbation().releases(self.rounds, self.local_updates)

    def penalty_schedule(self) -> PenaltySchedule:
        """Return the schedule of ``penalty``."""
        kind, _, rest = self.penalty.partition(":")
        if self.penalty == "balanced":
            return BalancedPenalty()
        try:
            numbers = [float(part) for part in (rest if kind == "growing" else kind).split(",")]
        except ValueError:
            numbers = []
        if kind == "growing" and len(numbers) == 4:
            return GrowingPenalty(numbers[0], numbers[1], int(numbers[2]), numbers[3])
        if len(numbers) == 1 and kind != "growing":
            return ConstantPenalty(numbers[0])
        raise not_allowed(
            "penalty", self.penalty, "a number, 'balanced', or growing:START,FACTOR,EVERY,MOST"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return every effective setting, as JSON can hold it."""
        shown = asdict(self)
        perturbation = self.effective_perturbation()
        shown["perturbation"] = perturbation.target
        shown["refresh"] = perturbation.refresh if perturbation.target == "demand" else None
        shown["start"] = self.effective_start()
        shown["outage"] = list(self.outage)
        return shown


PRESETS: dict[str, dict[str, Any]] = {
    "ryu-kim": {
        "mechanism": "laplace",
        "perturbation": "objective",
        "calibration": "paper",
        "budget": "per-release:0.1",
        "delta": 1e-2,
        "beta": "0.01",
        "update": "linearized",
        "consensus": "all",
        "start": "flat",
        "step": "nonsmooth",
        "penalty": "100",
        "rounds": 100,
    }
}


def make_settings(preset: str | None = None, **given: Any) -> Settings:
    """Return settings: the defaults, a preset over them, and what is given over both.

    A preset's refresh or calibration never blocks what is given beside it.
    """
    if preset is not None:
        one_of("preset", preset, PRESETS)
    values = dict(PRESETS[preset]) if preset else {}
    known = {field.name for field in fields(Settings)}
    for name in given:
        if name not in known:
            one_of("setting", name, known)
    values |= given
    if preset and given.get("perturbation") == "demand" and "calibration" not in given:
        raise InputError(
            "perturbation = 'demand' has no calibration 'paper' (the preset's): "
            "add --calibration sound"
        )
    return Settings(**values)
