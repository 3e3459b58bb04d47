"""A consortium over loopback: the same as one process, and what becomes of faults."""

from __future__ import annotations

import json

import pytest
from parties import Consortium, same_rounds

ZONES = ("1", "2", "3")


@pytest.mark.parametrize("secure", [True, False])
def test_three_zones_over_grpc_are_a_run_in_one_process(folder, in_one_process, secure):
    parties = Consortium(folder, secure=secure).coordinator().zones(*ZONES)
    results = parties.results()
    same_rounds(results["coordinator"], in_one_process)
    for name in ZONES:
        own = results[name]["rounds"]
        theirs = [r.by_agent[name] for r in in_one_process.trace.rounds]
        assert [{k: one[k] for k in two} for one, two in zip(own, theirs, strict=True)] == theirs
    public = json.loads((folder / "coordinator" / "report" / "run.json").read_text())
    assert [row["consensus_residual"] for row in public["rounds"]] == [
        r.consensus_residual for r in in_one_process.trace.rounds
    ]
    assert [row["releases"] for row in public["privacy"]] == [3, 3, 3]
