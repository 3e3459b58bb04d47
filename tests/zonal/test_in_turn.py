"""Zones that replan in turn (decision 0038), on a grid that sheds load."""

from __future__ import annotations

import pytest

from gridpriv import load_case, make_settings, partition, run
from gridpriv.power.ac import settle


def test_replans_in_turn_shed_no_more_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, honest = [], settle._in_turn

    def watched(case, zones, agreed, settlement, plan):
        after = honest(case, zones, agreed, settlement, plan)
        seen.append((settlement, after))
        return after

    monkeypatch.setattr(settle, "_in_turn", watched)
    case = load_case("tests/data/pglib/pglib_opf_case30_ieee.m").scale_load(1.3)
    settings = make_settings(
        objective="cost", budget="total:1", beta="10 MW", coordination="central", seed=1
    )
    run(case, partition(case, 3), settings)
    shed = [(before.state.shed_mw, after.state.shed_mw) for before, after in seen]
    assert max(before for before, _ in shed) > 0.1  # else nothing would replan in turn
    assert all(after <= before + 1e-6 for before, after in shed)
