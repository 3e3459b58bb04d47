"""Figures that a report ranks and draws: title, unit, and origin."""

from __future__ import annotations

from dataclasses import dataclass

from gridpriv.core.display import figure


@dataclass(frozen=True)
class Metric:
    """A figure: column, title, unit and origin.

    Values below ``least`` are shown as "under" it and count as equal: solvers are no more exact.
    ``spoken`` is the name, for sentences, of a quantity whose unit is words.
    """

    key: str
    title: str
    unit: str
    origin: str
    least: float = 0.0
    spoken: str = ""

    @property
    def label(self) -> str:
        """Title with unit, for an axis."""
        return f"{self.title} ({self.unit})"

    def text(self, value: float) -> str:
        """Return a value with its unit, for a sentence."""
        unit = "" if self.spoken else f" {self.unit}"
        if abs(value) < self.least:
            return f"under {self.least:g}{unit}"
        return f"{figure(value)}{unit}"

    @property
    def noun(self) -> str:
        """Name of the quantity, for a sentence."""
        return self.spoken or self.title.lower()

    @property
    def signed(self) -> bool:
        """True of a difference: it may be negative, and zero means no effect."""
        return self.key == "cost_of_privacy"


OF_LEARNING = (
    Metric(
        "normalized_error",
        "Normalized error",
        "of the centralized solution",
        "from private samples",
        spoken="normalized error",
    ),
    Metric(
        "augmented_objective",
        "Augmented objective",
        "sum over clients",
        "from private samples",
        spoken="augmented objective",
    ),
    Metric("test_error_pct", "Test error", "%", "from test samples"),
    Metric(
        "test_mse",
        "Test error",
        "mean squared error",
        "from test samples",
        spoken="mean squared test error",
    ),
    Metric("mean_objective", "Objective", "mean loss", "from private samples", spoken="mean loss"),
    Metric("local_error_pct", "Test error of local models", "%", "from test samples"),
    Metric(
        "local_loss",
        "Loss of local models",
        "mean loss",
        "from private samples",
        spoken="loss of local models",
    ),
)
RESIDUAL = Metric("consensus_residual", "Consensus residual", "p.u.", "from releases only")
REDISPATCH_SHED = Metric("redispatch_shed_mw", "Load shedding", "MW", "from private demand", 1e-3)
# the first that a study has is what sentences are about: of classifiers, then of grids
COSTS = (
    *OF_LEARNING,
    Metric("cost_of_privacy", "Cost of privacy", "$/h", "from private demand", 0.01),
    REDISPATCH_SHED,
    Metric("imbalance_mw", "Imbalance in the last round", "MW", "from private demand", 1e-3),
    RESIDUAL,
)
BY_ROUND = (
    *OF_LEARNING,
    Metric("consensus_residual_max", "Distance of local models", "2-norm", "from releases only"),
    Metric("cost", "Cost of generation", "$/h", "from private demand"),
    Metric("objective", "Squared imbalance", "p.u. squared", "from private demand"),
    RESIDUAL,
    Metric("dual_residual", "Dual residual", "multiples of the mean price", "from releases only"),
    Metric("noise_magnitude", "Noise magnitude", "sum of |noise|", "from private noise"),
)
ROUND_SHED = Metric("shed_mw", "Shed", "MW", "from private demand")
BY_STEP = (Metric("demand_mw", "Demand", "MW", "from private demand"), REDISPATCH_SHED, RESIDUAL)
