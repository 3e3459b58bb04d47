"""Tables of audits and attacks: figures and units; none of them is public.

Both look at private data: an attack's errors tell how close a guess is, and an audit runs the
mechanism on the data themselves.
"""

from __future__ import annotations

from gridpriv.core.tables import Column, TableSchema

AUDIT = TableSchema(
    "audit",
    "one level that a configuration was audited at",
    (
        Column(
            "configuration",
            "settings",
            "Configuration",
            "perturbation, mechanism, update",
            dtype="text",
        ),
        Column("level", "settings", "Observed", "what the adversary sees", dtype="text"),
    ),
    (
        Column("nominal", "private", "Claimed epsilon", "that the settings state"),
        Column("certified", "private", "Certified epsilon", "under a proven sensitivity"),
        Column("measured", "private", "Measured, at least", "lower bound of epsilon"),
        Column("runs", "private", "Runs", "on either of two neighbours"),
        Column("verdict", "private", "Verdict", "of the comparison", dtype="text"),
    ),
)
ATTACK = TableSchema(
    "attack",
    "one adversary against one configuration",
    (
        Column("configuration", "settings", "Noise", "of the run attacked", dtype="text"),
        Column("adversary", "settings", "Reads", "what the adversary sees", dtype="text"),
    ),
    (
        Column("mae_mw", "private", "Mean error", "absolute, of a bus's active demand", "MW"),
        Column("interval_mw", "private", "95 % +-", "half width over seeds", "MW"),
        Column("recovered_pct", "private", "Within 5 %", "of its true demand", "% of buses"),
        Column("of_prior_pct", "private", "Of the prior's error", "mean error over it", "%"),
    ),
)
TABLES = (AUDIT, ATTACK)
