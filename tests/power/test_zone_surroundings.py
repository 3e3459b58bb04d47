from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dispatch import dispatch_of

from gridpriv import load_case, partition
from gridpriv.grid.network import islands, laplacian
from gridpriv.power.ac.flow import ac_flow
from gridpriv.power.ac.part import external_equivalent, lossless


@pytest.mark.parametrize("zone", range(3))
def test_the_grid_beyond_reacts_as_an_ac_power_flow_says(case118, zones118, zone):
    """20 MW moved from one generator of a zone to another; a is what the reference gives."""
    inside = zones118.zone_of == zone
    f, t = case118.f_bus, case118.t_bus
    ties = inside[f] != inside[t]
    ends = np.unique(np.where(inside[f], t, f)[ties])
    beyond = external_equivalent(lossless(case118), np.flatnonzero(inside), np.flatnonzero(ties))
    dispatch = dispatch_of(case118)
    own_gens = np.flatnonzero(inside[case118.gen_bus] & (case118.pmax > 0.3))
    pg = dispatch.pg.copy()
    pg[own_gens[[0, -1]]] += 0.2, -0.2
    before, after = (ac_flow(case118, item) for item in (dispatch, replace(dispatch, pg=pg)))

    def into_ties(state):
        flow = np.where(inside[f], state.s_to, state.s_from).real
        return np.array([flow[ties & ((f == j) | (t == j))].sum() for j in ends])

    change = into_ties(after) - into_ties(before)
    turned = (after.va - before.va)[ends]
    expected = -beyond.susceptance @ turned
    expected += beyond.share * (change - expected).sum()
    assert np.abs(change).max() > 0.005  # half a MW at least flows around
    assert np.abs(change - expected).max() < 0.15 * np.abs(change).max()
    assert beyond.share.sum() == pytest.approx(1.0)
    assert np.abs(beyond.susceptance @ np.ones(len(ends))).max() < 1e-8


@pytest.mark.parametrize("zone", range(3))
def test_reactive_flow_follows_voltages_as_an_ac_power_flow_says(case118, zones118, zone):
    """A zone's generators all raise their voltages by 0.005 p.u.; none is at a reactive limit."""
    free = np.full(case118.n_gen, 50.0)
    case = replace(case118, qmin=-free, qmax=free)
    inside = zones118.zone_of == zone
    f, t = case.f_bus, case.t_bus
    ties = inside[f] != inside[t]
    ends = np.unique(np.where(inside[f], t, f)[ties])
    beyond = external_equivalent(lossless(case), np.flatnonzero(inside), np.flatnonzero(ties))
    dispatch = dispatch_of(case)
    raised = replace(dispatch, vm=dispatch.vm + np.where(inside, 0.005, 0.0))
    before, after = (ac_flow(case, item) for item in (dispatch, raised))

    def into_ties(state):
        flow = np.where(inside[f], state.s_to, state.s_from).imag
        return np.array([flow[ties & ((f == j) | (t == j))].sum() for j in ends])

    change, voltage = into_ties(after) - into_ties(before), (after.vm - before.vm)[ends]
    regulated = np.isin(ends, case.gen_bus)  # a generator gives whatever its voltage needs
    assert np.abs(voltage[regulated]).max(initial=0.0) < 1e-9 and not regulated.all()
    expected = -(beyond.stiffness @ voltage)
    assert np.abs(change - expected)[~regulated].max() < 0.15 * np.abs(change).max()
    assert (np.diag(beyond.stiffness)[regulated] > 100).all()


def test_a_zone_around_which_nothing_generates_is_given_nothing(case14):
    inside = np.isin(np.arange(14), case14.gen_bus)
    f, t = case14.f_bus, case14.t_bus
    ties = inside[f] != inside[t]
    beyond = external_equivalent(lossless(case14), np.flatnonzero(inside), np.flatnonzero(ties))
    assert (beyond.share == 0).all()


def test_lines_of_resistance_only_have_no_equivalent(case14):
    none = replace(case14, r=np.full(case14.n_branch, 0.1), x=np.zeros(case14.n_branch))
    assert lossless(none) is None


def test_another_island_gives_nothing(case14):
    case = case14.without(("branch:14",))  # with the generator at bus 8
    assert islands(case).tolist().count(1) == 1
    own = np.arange(5)
    inside = np.isin(np.arange(case.n_bus), own)
    ties = np.flatnonzero(inside[case.f_bus] != inside[case.t_bus])
    assert external_equivalent(lossless(case), own, ties).share.sum() == pytest.approx(1.0)


def kron(case, own, ends):
    """The grid outside, by elimination of its other buses in a dense matrix."""
    b = case.x / (case.r**2 + case.x**2) / case.tap
    beyond = ~np.isin(np.arange(case.n_bus), own)
    there = beyond[case.f_bus] & beyond[case.t_bus]
    matrix = laplacian(case.f_bus[there], case.t_bus[there], b[there], case.n_bus).toarray()
    span = np.bincount(case.gen_bus, case.pmax - case.pmin, case.n_bus) * beyond
    deep = np.setdiff1d(np.flatnonzero(beyond), ends)
    through = matrix[np.ix_(ends, deep)] @ np.linalg.inv(matrix[np.ix_(deep, deep)])
    share = (span[ends] - through @ span[deep]) / span.sum()
    return matrix[np.ix_(ends, ends)] - through @ matrix[np.ix_(deep, ends)], share


@pytest.mark.parametrize(
    "name", ["case14", "case118", pytest.param("case300", marks=pytest.mark.large)]
)
def test_what_is_beyond_is_what_a_dense_elimination_leaves(name):
    case = load_case(name)
    zoning, grid = partition(case, 5), lossless(case)
    for zone in range(5):
        own = np.flatnonzero(zoning.zone_of == zone)
        inside = zoning.zone_of == zone
        ties = np.flatnonzero(inside[case.f_bus] != inside[case.t_bus])
        result = external_equivalent(grid, own, ties)
        susceptance, share = kron(case, own, result.ends)
        np.testing.assert_allclose(result.susceptance, susceptance, atol=1e-7)
        np.testing.assert_allclose(result.share, share, atol=1e-9)
