"""Eight ways to break the guarantee, each seen by ``gridpriv audit case14``."""

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
    "noise_ends_after_round_6": "rounds",
    "exact_output_sensitivity_halved": "outputs",
    "secure_noise_of_floats": "low bits",
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
    if mutant in SEES:
        failed = {row["check"] for row in document["replay"] if not row["passed"]}
        assert SEES[mutant] in failed
    else:
        verdicts = {row["level"]: row["verdict"] for row in document["statistical"]}
        assert verdicts == {"release": "consistent", "secure": "violation"}


@pytest.mark.slow
def test_the_audit_of_case14_passes_as_it_is():
    code, document = audited("none")
    assert code == 0
    assert document["passed"]
