"""The penalty rule of a run, and the rounds after which it stops."""

from __future__ import annotations

from contextlib import closing

import pytest

from gridpriv import Settings, run
from gridpriv.consensus.schedules import FrozenPenalty, InUnits, ResidualBalancing
from gridpriv.consensus.transport import in_process
from gridpriv.zonal.messages import messages
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.run import open_rounds, zone_agents


def penalties(case, zoning, **given):
    prepared = prepare(case, zoning, Settings(seed=1, rounds=2, planning="soc", **given))
    with closing(in_process(zone_agents(prepared))) as zones:
        return prepared, open_rounds(prepared, zones).plan.penalty


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"acceleration": "anderson"}, FrozenPenalty),
        ({"acceleration": "none"}, InUnits),
        ({"noise_schedule": "round"}, FrozenPenalty),
    ],
)
def test_penalties_are_frozen_for_a_stationary_iteration(case14, zones14, given, rule):
    _, chosen = penalties(case14, zones14, **given)
    assert type(chosen) is rule
    if rule is InUnits:
        assert isinstance(chosen.schedule, ResidualBalancing)


def test_rounds_that_stop_at_the_tolerance_say_so(case14, zones14):
    settings = Settings(
        seed=1, mechanism="none", rounds=200, planning="soc", acceleration="anderson"
    )
    result = run(case14, zones14, settings)
    last = result.rounds.iloc[-1]
    assert last.consensus_residual_max < settings.effective_tolerance()
    assert 0 < last.dual_residual < 0.1
    assert "ended-early" in [message.code for message in messages(result.as_dict())]
