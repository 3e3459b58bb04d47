from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gridpriv.power.ac.flow import ac_flow
from gridpriv.power.ac.state import dispatch_of
from gridpriv.power.ac.surroundings import surroundings


@pytest.mark.parametrize("zone", range(3))
def test_the_grid_beyond_reacts_as_an_ac_power_flow_says(case118, zones118, zone):
    """20 MW moved from one generator of a zone to another; a is what the reference gives."""
    inside = zones118.zone_of == zone
    f, t = case118.f_bus, case118.t_bus
    ties = inside[f] != inside[t]
    ends = np.unique(np.where(inside[f], t, f)[ties])
    beyond = surroundings(case118, inside, ends)
    asked = dispatch_of(case118)
    mine = np.flatnonzero(inside[case118.gen_bus] & (case118.pmax > 0.3))
    pg = asked.pg.copy()
    pg[mine[[0, -1]]] += 0.2, -0.2
    before, after = (ac_flow(case118, one) for one in (asked, replace(asked, pg=pg)))

    def into_ties(state):
        flow = np.where(inside[f], state.s_to, state.s_from).real
        return np.array([flow[ties & ((f == j) | (t == j))].sum() for j in ends])

    moved = into_ties(after) - into_ties(before)
    turned = (after.va - before.va)[ends]
    expected = -beyond.susceptance @ turned
    expected += beyond.share * (moved - expected).sum()
    assert np.abs(moved).max() > 0.005  # half a MW at least flows around
    assert np.abs(moved - expected).max() < 0.15 * np.abs(moved).max()
    assert beyond.share.sum() == pytest.approx(1.0)
    assert np.abs(beyond.susceptance @ np.ones(len(ends))).max() < 1e-8


def test_a_zone_around_which_nothing_generates_is_given_nothing(case14):
    inside = np.isin(np.arange(14), case14.gen_bus)
    f, t = case14.f_bus, case14.t_bus
    ties = inside[f] != inside[t]
    beyond = surroundings(case14, inside, np.unique(np.where(inside[f], t, f)[ties]))
    assert (beyond.share == 0).all()


def test_lines_of_resistance_only_have_no_equivalent(case14):
    inside = np.arange(14) == 0
    none = replace(case14, r=np.full(case14.n_branch, 0.1), x=np.zeros(case14.n_branch))
    assert surroundings(none, inside, np.array([1, 4])) is None
