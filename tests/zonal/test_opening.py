"""Which rule a run's penalties follow, and what of a grid are reactive flows."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from gridpriv import Settings, run
from gridpriv.consensus.in_process import in_process
from gridpriv.consensus.schedules import BalancedPenalty, EvenedPenalty, InUnits, KeptPenalty
from gridpriv.power.ac.settle import agreed_boundaries
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.run import crew, open_rounds
from gridpriv.zonal.summary import BOUGHT, sentences


def penalties(case, zoning, **given):
    prepared = prepare(case, zoning, Settings(seed=1, rounds=2, **given))
    with closing(in_process(crew(prepared))) as zones:
        return prepared, open_rounds(prepared, zones).plan.penalty


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({}, KeptPenalty),
        ({"acceleration": "anderson"}, KeptPenalty),
        ({"acceleration": "evened"}, EvenedPenalty),
        ({"acceleration": "evened", "mechanism": "none"}, EvenedPenalty),
        ({"acceleration": "none"}, InUnits),
        ({"refresh": "round"}, KeptPenalty),
    ],
)
def test_penalties_are_evened_where_that_is_asked_for(case14, zones14, given, rule):
    _, chosen = penalties(case14, zones14, **given)
    assert type(chosen) is rule
    if rule is InUnits:
        assert isinstance(chosen.given, BalancedPenalty)


def test_what_has_no_price_is_what_a_settlement_reads_as_reactive(case14, zones14):
    prepared, chosen = penalties(case14, zones14, acceleration="evened")
    numbers = np.unique(np.concatenate([zone.coordinates[s] for zone, s in prepared.held]))
    marked = set(numbers[chosen.unpriced].tolist())
    sent = [np.isin(zone.coordinates, list(marked)).astype(float) for zone in prepared.zones]
    for boundary in agreed_boundaries(prepared.network, prepared.zones, sent):
        assert (boundary.q == 1.0).all()
        assert not np.concatenate([boundary.p, boundary.w_near, boundary.w_far]).any()


@pytest.mark.parametrize("acceleration", ["anderson", "evened"])
def test_agreement_that_is_bought_is_said_to_be(case14, zones14, acceleration):
    given = {"mechanism": "none", "acceleration": acceleration, "rounds": 200}
    told = " ".join(sentences(run(case14, zones14, Settings(seed=1, **given)).as_dict()))
    assert "Rounds stopped after" in told
    assert (BOUGHT in told) == (acceleration == "evened")
