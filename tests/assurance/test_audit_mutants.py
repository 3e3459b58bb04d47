"""Faults that break the guarantee; the audit of case14 detects each."""

from __future__ import annotations

import json
import subprocess
import sys
from inspect import getattr_static
from pathlib import Path

import pytest
from assurance_broken import few_draws
from audit_mutants import MUTANTS, PATCHED

from gridpriv.assurance.adversary import with_fresh_noise
from gridpriv.assurance.independence import low_bits, noise_checks, other_demands, state_findings
from gridpriv.assurance.whole import publish_findings, stream_findings, whole_run
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.settings import make_settings

FAST = ("--levels", "release", "--runs", "8000", "--seed", "4", "--json")
QUICK = {
    "penalty_reads_private_figures": whole_run,
    "stopping_reads_private_figures": whole_run,
    "same_noise_in_every_zone": lambda run: noise_checks(with_fresh_noise(run), 0.999),
    "secure_noise_of_floats": lambda run: low_bits(run.rules.noise),
    "prior_by_private_demand": lambda run: state_findings(run, other_demands(run)),
    "range_of_the_sum_around_the_true_one": lambda run: state_findings(run, other_demands(run)),
    "stream_without_its_band": stream_findings,
    "stream_repeats_its_noise": stream_findings,
    "zones_of_a_stream_share_noise": stream_findings,
    "adjacency_of_half_beta": whole_run,
    "noise_of_more_than_the_budget": whole_run,
    "half_of_the_loss_is_charged": whole_run,
    "second_zone_pays_nothing": whole_run,
    "reactive_prices_are_free": publish_findings,
}
"""Mutants that the default tests run, each with the part of the audit that sees it."""


@pytest.mark.parametrize("name", QUICK)
def test_a_part_of_the_audit_sees_a_broken_gridpriv(name, monkeypatch):
    few_draws(monkeypatch)
    for owner, attribute in PATCHED:  # restored after the test
        monkeypatch.setattr(owner, attribute, getattr_static(owner, attribute))
    mutate, check = MUTANTS[name]
    mutate()
    case = load_case("case14")
    run = prepare(case, shipped_zoning(case), make_settings(seed=4, rounds=5))
    assert check in {finding.check for finding in QUICK[name](run) if not finding.passed}


def audited(mutant):
    script = Path(__file__).with_name("audit_mutants.py")
    done = subprocess.run(
        [sys.executable, str(script), mutant, *FAST], capture_output=True, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_audit_of_case14_sees_a_broken_gridpriv(name):
    code, document = audited(name)
    assert code == 1, document["verdict"]
    assert not document["passed"]
    failed = {row["check"] for row in document["replay"] if not row["passed"]}
    assert MUTANTS[name][1] in failed


@pytest.mark.slow
def test_the_audit_of_case14_passes_as_it_is():
    code, document = audited("none")
    assert code == 0
    assert document["passed"]
