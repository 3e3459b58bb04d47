"""Ways to break the guarantee, each seen by ``gridpriv audit case14``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from audit_mutants import MUTANTS

FAST = ("--levels", "release", "--runs", "8000", "--seed", "4", "--json")
SEES = {
    "penalty_reads_private_figures": "coordinator",
    "stopping_reads_private_figures": "coordinator",
    "same_noise_in_every_round": "independence",
    "same_noise_in_every_zone": "independence",
    "third_zone_reuses_noise_of_the_first": "independence",
    "noise_ends_after_round_6": "rounds",
    "last_round_on_true_demand": "messages",
    "exact_output_sensitivity_halved": "outputs",
    "secure_noise_halved": "law",
    "secure_noise_of_floats": "low bits",
    "auto_by_private_demand": "public state",
    "prior_by_private_demand": "public state",
    "warm_start_on_private_demand": "public state",
    "p_and_q_share_noise": "independence",
    "no_noise_on_zero_buses": "noise",
    "noise_scale_by_value": "law",
    "course_sensitivity_of_the_mean": "series",
    "central_on_true_demand": "public bytes",
    "estimate_kept_near_true_demand": "public bytes",
    "staircase_with_a_wrong_step": "law",
    "tree_sensitivity_of_a_leaf": "values",
    "stream_without_its_band": "stream",
    "stream_repeats_its_noise": "stream",
}


def audited(mutant):
    script = Path(__file__).with_name("audit_mutants.py")
    done = subprocess.run(
        [sys.executable, str(script), mutant, *FAST], capture_output=True, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout)


QUICK = ("penalty_reads_private_figures", "same_noise_in_every_zone")


def marked(mutant):
    """The rest takes minutes: pytest -m slow tests/assurance/test_audit_mutants.py."""
    marks = () if mutant.__name__ in QUICK else (pytest.mark.slow,)
    return pytest.param(mutant.__name__, marks=marks)


@pytest.mark.parametrize("mutant", [marked(mutant) for mutant in MUTANTS])
def test_the_audit_of_case14_sees_a_broken_gridpriv(mutant):
    code, document = audited(mutant)
    assert code == 1, document["verdict"]
    assert not document["passed"]
    failed = {row["check"] for row in document["replay"] if not row["passed"]}
    assert SEES[mutant] in failed


@pytest.mark.slow
def test_the_audit_of_case14_passes_as_it_is():
    code, document = audited("none")
    assert code == 0
    assert document["passed"]
