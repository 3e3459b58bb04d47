"""Rows of audits and attacks: figures and units; none of them is public.

Both look at private data: an attack's errors tell how close a guess is, and an audit runs the
mechanism on the data themselves.
"""

from __future__ import annotations

from gridpriv.core.tables import Number, Row, Text, key, private


class Audit(Row, name="audit"):
    """One level that a configuration was audited at."""

    configuration: Text = key("Configuration: perturbation, mechanism, update")
    level: Text = key("Observed: what the adversary sees")
    nominal: Number = private("Claimed epsilon: that the settings state")
    certified: Number = private("Certified epsilon: under a proven sensitivity")
    measured: Number = private("Measured, at least: lower bound of epsilon")
    runs: Number = private("Runs: on either of two neighbours")
    verdict: Text = private("Verdict: of the comparison")


class Attack(Row, name="attack"):
    """One adversary against one configuration."""

    configuration: Text = key("Noise: of the run attacked")
    adversary: Text = key("Reads: what the adversary sees")
    mae_mw: Number = private("Mean error: absolute, of a bus's active demand", "MW")
    interval_mw: Number = private("95 % +-: half width over seeds", "MW")
    recovered_pct: Number = private("Within 5 %: of its true demand", "% of buses")
    of_prior_pct: Number = private("Of the prior's error: mean error over it", "%")


TABLES = (Audit.table, Attack.table)
