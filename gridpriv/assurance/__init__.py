"""Checks of privacy by attack: audits and demand reconstruction, and the rows of their tables.

All results use private data, so none is public: errors of an attack show the accuracy of a guess,
and an audit runs the mechanism on the data.
"""

from __future__ import annotations

from gridpriv.core.tables import Number, Row, Text, key, private


class Audit(Row, name="audit"):
    """One level that a configuration was audited at."""

    configuration: Text = key("Configuration: perturbation, mechanism, update of the audited run")
    level: Text = key("Observed: observations of the adversary")
    nominal: Number = private("Nominal epsilon: epsilon according to the settings")
    certified: Number = private("Certified epsilon: epsilon under a proven sensitivity")
    measured: Number = private("Measured, at least: lower bound of epsilon")
    runs: Number = private("Runs: number of runs on each of two adjacent demands")
    verdict: Text = private("Verdict: result of the comparison of measured with certified epsilon")


class Attack(Row, name="attack"):
    """One adversary against one configuration."""

    configuration: Text = key("Noise: noise of the attacked run")
    adversary: Text = key("Reads: observations of the adversary")
    mae_mw: Number = private("Mean error: mean absolute error of a bus's active demand", "MW")
    interval_mw: Number = private("95 % +-: half width of the 95 % interval over seeds", "MW")
    recovered_pct: Number = private("Within 5 %: share within 5 % of the true demand", "% of buses")
    of_prior_pct: Number = private("Of the prior's error: mean error over that of the prior", "%")


TABLES = (Audit.table, Attack.table)
