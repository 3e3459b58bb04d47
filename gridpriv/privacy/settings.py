"""The settings of privacy that every application has: what noise is drawn, and how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gridpriv.core.errors import not_allowed
from gridpriv.core.settings import Part, choice, notation, number
from gridpriv.privacy.accounting import check_delta, classical_gaussian_multiplier
from gridpriv.privacy.budget import NO_NOISE, Budget, parse_budget
from gridpriv.privacy.mechanism import has_secure_sampler
from gridpriv.privacy.perturbation import Target
from gridpriv.privacy.plugins import NAMES, load_plugins

Mechanism = Literal["none", "laplace", "gaussian", "knorm", "staircase"]
SensitivityBound = Literal["proven", "published"]
Noise = Literal["simulated", "secure"]
PERTURBED: tuple[Target, ...] = ("objective", "output", "demand")


@dataclass(frozen=True, kw_only=True)
class Privacy(Part):
    """Noise of a run: mechanism, perturbed quantity, scale and budget."""

    mechanism: Mechanism | None = choice(
        None,
        NAMES,
        "noise mechanism; knorm has the shape of the box in which p and q of a bus change",
        unset="knorm for demand with p and q protected, else laplace",
    )
    perturbation: Target = choice("demand", PERTURBED, "perturbed quantity")
    sensitivity: SensitivityBound = choice(
        "proven",
        get_args(SensitivityBound),
        "sensitivity bound that sets the noise scale: proven here, or as published with the "
        "algorithm",
    )
    budget: Budget = notation(
        Budget("total", 5.0),
        parse_budget,
        "BUDGET",
        "privacy budget, of all releases or of each: total:E[,D] or per-release:E[,D], with "
        "epsilon E and delta D (E;D in lists)",
    )
    delta: float = number(
        1e-5, "delta of one Gaussian release, if the budget names none", check_delta
    )
    target_delta: float = number(1e-5, "delta at which total epsilon is reported", check_delta)
    noise: Noise = choice(
        "simulated",
        get_args(Noise),
        "source of randomness: simulated (repeatable, no protection) or secure (system "
        "entropy; not for staircase or registered mechanisms)",
    )

    @property
    def release_delta(self) -> float:
        """Delta at which one release's epsilon is stated."""
        per_release = self.budget.scope == "per-release"
        return self.budget.delta if per_release and self.budget.delta else self.delta

    def effective_mechanism(self) -> Mechanism:
        """Return the mechanism that draws the noise: the given one, or Laplace."""
        return self.mechanism or "laplace"

    @property
    def drawn(self) -> str:
        """Noise of a run: its budget, or ``none``."""
        return NO_NOISE if self.mechanism == NO_NOISE else str(self.budget)

    def agree(self) -> None:
        """Refuse a budget that the Gaussian mechanism cannot have."""
        super().agree()
        mechanism = self.mechanism or "laplace"  # the default ones all have a secure sampler
        if self.noise == "secure" and not has_secure_sampler(mechanism) and mechanism != NO_NOISE:
            raise not_allowed(
                "noise",
                self.noise,
                f"simulated with mechanism {mechanism!r}, for which no secure sampler exists "
                "(secure noise: knorm, laplace, gaussian)",
            )
        if self.mechanism != "gaussian":
            return
        if self.budget.scope == "total" and self.budget.delta is None:
            raise not_allowed(
                "budget",
                str(self.budget),
                "total:E,D with the Gaussian mechanism, which has no pure epsilon (did you mean "
                f"{self.budget},1e-5?)",
            )
        if self.sensitivity == "published" and self.budget.scope == "per-release":
            classical_gaussian_multiplier(self.budget.epsilon, self.release_delta)


load_plugins()
