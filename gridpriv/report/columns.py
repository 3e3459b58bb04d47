"""The columns of a report's tables, with their units."""

from __future__ import annotations

from gridpriv.report.tables import Column


def columns(*described: tuple[str, ...]) -> tuple[Column, ...]:
    """Return columns from (key, title) or (key, title, unit)."""
    return tuple(Column(*words) for words in described)


def with_interval(key: str, title: str, unit: str) -> tuple[Column, ...]:
    """Return a mean and the ends of its 95 % interval."""
    return columns(
        (key, title, unit), (f"{key}_low", "95 % from", unit), (f"{key}_high", "95 % to", unit)
    )


WAY = columns(("panel", "Case"), ("series", "Way"), ("budget_shown", "Budget"))
SUMMARY = (
    *WAY,
    *columns(("total_epsilon", "Total epsilon")),
    *with_interval("test_error_pct", "Test error", "%"),
    *with_interval("test_mse", "Test mean squared error", ""),
    *columns(("mean_objective", "Objective", "mean loss"),
             ("disagreement", "Distance of local models")),
    *with_interval("recourse_shed_mw", "Shed after recourse", "MW"),
    *columns(
        ("imbalance_mw", "Imbalance", "MW"),
        ("shed_mw", "Shed in the last round", "MW"),
        ("objective", "Objective", "p.u. squared"),
        ("consensus_residual", "Residual", "p.u."),
        ("seeds", "Seeds"),
        ("failed", "Failed"),
    ),
)  # fmt: skip
PRIVACY = (
    *WAY,
    *columns(
        ("releases_per_zone", "Releases per zone"),
        ("releases_per_client", "Releases per client"),
        ("epsilon_claimed", "Claimed epsilon per release"),
        ("epsilon_certified", "Certified epsilon per release"),
        ("release_delta", "Delta per release"),
        ("total_pure", "Pure total epsilon"),
        ("total_epsilon", "Total epsilon"),
        ("target_delta", "at delta"),
        ("paper_total", "Paper's theorem 4.6 (no certificate)"),
        ("sensitivity_ratio", "Sound over assumed sensitivity"),
    ),
)
AC = (
    *WAY,
    *columns(
        ("ac_converged_pct", "AC power flow converged", "% of runs"),
        ("ac_slack_mw", "Mean slack deviation", "MW"),
        ("ac_vm_violations", "Most voltage violations", "buses"),
        ("ac_loading_violations", "Most loading violations", "branches"),
    ),
)
ZONES = columns(
    ("panel", "Case"),
    ("series", "Way"),
    ("zone", "Zone"),
    ("buses", "Buses"),
    ("tie_lines", "Tie lines"),
    ("generators", "Generators"),
    ("load_mw", "Load", "MW"),
    ("variables", "Variables"),
    ("shared", "Shared"),
    ("shed_mw", "Shed", "MW"),
    ("surplus_mw", "Surplus", "MW"),
    ("objective", "Objective", "p.u. squared"),
)
CLAIMS = columns(
    ("claim", "What the paper states"),
    ("calibration", "Calibration"),
    ("outcome", "Outcome"),
    ("holding", "Comparisons that hold"),
    ("comparisons", "Comparisons"),
    ("detail", "Where not, or how far"),
)
FAILED = columns(
    ("case", "Case"),
    ("scheme", "Way"),
    ("budget_shown", "Budget"),
    ("status", "Status"),
    ("count", "Runs"),
    ("finished_rounds", "Rounds finished"),
    ("reason", "Reason (of the first)"),
)
PROVENANCE = columns(("what", "What"), ("value", "Value"))
SETTINGS = columns(("where", "Where"), ("setting", "Setting"), ("value", "Value"))
GRIDS = columns(
    ("case", "Case"),
    ("zoning", "Zoning"),
    ("source", "Zone map"),
    ("buses", "Buses"),
    ("branches", "Branches"),
    ("zones", "Zones"),
    ("tie_lines", "Tie lines"),
    ("load_mw", "Load", "MW"),
    ("fingerprint", "Fingerprint (SHA-256, first 16)"),
)
