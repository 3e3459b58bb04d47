"""Figures that a report ranks and draws: title, unit, and origin."""

from __future__ import annotations

from dataclasses import dataclass

from gridpriv.core.text import figure

UNITS = ("%", "$/h", "MW", "p.u.", "p.u. squared")
"""Units that sentences write after a number; others are words, which a name's noun implies."""


@dataclass(frozen=True)
class Metric:
    """A figure: column, title, unit and origin.

    Values below ``least`` are shown as "under" it and count as equal: solvers are no more exact.
    """

    key: str
    title: str
    unit: str
    origin: str
    least: float = 0.0

    @property
    def label(self) -> str:
        """Title with unit, for an axis."""
        return f"{self.title} ({self.unit})"

    def text(self, value: float) -> str:
        """Return a value with its unit, for a sentence."""
        unit = f" {self.unit}" if self.unit in UNITS else ""
        return (
            f"under {self.least:g}{unit}" if abs(value) < self.least else f"{figure(value)}{unit}"
        )

    @property
    def noun(self) -> str:
        """Name of the quantity, for a sentence."""
        return self.title.lower()

    @property
    def signed(self) -> bool:
        """True of a difference: it may be negative, and zero means no effect."""
        return self.key == "cost_of_privacy"


DEMAND, SAMPLES, TEST = "from private demand", "from private samples", "from test samples"
RELEASES = "from releases only"
OF_LEARNING = (
    Metric("normalized_error", "Normalized error", "of the centralized solution", SAMPLES),
    Metric("augmented_objective", "Augmented objective", "sum over clients", SAMPLES),
    Metric("test_error_pct", "Test error", "%", TEST),
    Metric("test_mse", "Mean squared test error", "squared units", TEST),
    Metric("mean_objective", "Mean loss", "per sample", SAMPLES),
    Metric("local_error_pct", "Test error of local models", "%", TEST),
    Metric("local_loss", "Loss of local models", "per sample", SAMPLES),
)
RESIDUAL = Metric("consensus_residual", "Consensus residual", "p.u.", RELEASES)
COST = Metric("cost", "Cost", "$/h", DEMAND)
PLAN_COST = Metric("cost", "Generation cost of the plan", "$/h", DEMAND)
REDISPATCH_SHED = Metric("redispatch_shed_mw", "Load shedding", "MW", DEMAND, 1e-3)
# the first that a study has is what sentences are about: of classifiers, then of grids
COSTS = (
    *OF_LEARNING,
    Metric("cost_of_privacy", "Cost of privacy", "$/h", DEMAND, 0.01),
    REDISPATCH_SHED,
    Metric("imbalance_mw", "Imbalance of the convex model", "MW", DEMAND, 1e-3),
    RESIDUAL,
)
BY_ROUND = (
    *OF_LEARNING,
    Metric("consensus_residual_max", "Distance of local models", "2-norm", RELEASES),
    PLAN_COST,
    Metric("objective", "Squared imbalance", "p.u. squared", DEMAND, 1e-6),
    RESIDUAL,
    Metric("dual_residual", "Dual residual", "relative to the mean marginal cost", RELEASES),
)
ROUND_SHED = Metric("shed_mw", "Shortage in the convex model", "MW", DEMAND)
BY_STEP = (Metric("demand_mw", "Demand", "MW", DEMAND), COST, REDISPATCH_SHED, RESIDUAL)
"""Figures of a series, the residual last: where there are others, its table is enough."""
