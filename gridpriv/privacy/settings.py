"""The settings of privacy that every application has: what noise is drawn, and how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gridpriv.core.errors import not_allowed
from gridpriv.core.settings import Part, choice, notation, number
from gridpriv.privacy.accounting import check_delta, classical_gaussian_multiplier
from gridpriv.privacy.budget import NO_NOISE, Budget, parse_budget
from gridpriv.privacy.perturbation import Target

Mechanism = Literal["none", "laplace", "gaussian", "knorm"]
Calibration = Literal["sound", "paper"]
Noise = Literal["simulated", "secure"]
PERTURBED: tuple[Target, ...] = ("objective", "output", "demand")


@dataclass(frozen=True, kw_only=True)
class Privacy(Part):
    """What noise is drawn, on what, and from whose sensitivity."""

    mechanism: Mechanism = choice("laplace", get_args(Mechanism), "noise that is drawn")
    perturbation: Target = choice("demand", PERTURBED, "what carries the noise")
    calibration: Calibration = choice(
        "sound", get_args(Calibration), "whose sensitivity the noise is calibrated to"
    )
    budget: Budget = notation(
        Budget("total", 5.0), parse_budget, "BUDGET",
        "epsilon and delta of one release or of all, per-release:E[,D] or total:E[,D]",
    )  # fmt: skip
    delta: float = number(
        1e-5, "delta of one Gaussian release where the budget states none", check_delta
    )
    target_delta: float = number(1e-5, "delta at which totals are stated", check_delta)
    noise: Noise = choice(
        "simulated", get_args(Noise), "source of the noise; secure is OpenDP on system entropy"
    )

    @property
    def release_delta(self) -> float:
        """Delta at which one release's epsilon is stated."""
        per_release = self.budget.scope == "per-release"
        return self.budget.delta if per_release and self.budget.delta else self.delta

    @property
    def drawn(self) -> str:
        """What a run draws: noise of its budget, or ``none``."""
        return NO_NOISE if self.mechanism == NO_NOISE else str(self.budget)

    def agree(self) -> None:
        """Refuse a budget that the Gaussian mechanism cannot have."""
        super().agree()
        if self.mechanism != "gaussian":
            return
        if self.budget.scope == "total" and self.budget.delta is None:
            raise not_allowed(
                "budget",
                str(self.budget),
                "total:E,D with the Gaussian mechanism (it has no pure epsilon)",
            )
        if self.calibration == "paper" and self.budget.scope == "per-release":
            classical_gaussian_multiplier(self.budget.epsilon, self.release_delta)
