"""Coordinates of buses: read from a net, kept by conversions, not part of a case's identity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from gridpriv.core.errors import InputError
from gridpriv.grid.case import Case
from gridpriv.grid.layout import _least_stress
from gridpriv.grid.pandapower import case_from_pandapower
from gridpriv.grid.pandapower_writer import write_net

networks = pytest.importorskip("pandapower.networks")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def test_geojson_of_a_net_arrives_bus_by_bus() -> None:
    net = networks.case14()
    net.bus.loc[3, "geo"] = '{"coordinates": [7.25, -3.5], "type": "Point"}'
    case = case_from_pandapower(net)
    assert case.xy is not None
    np.testing.assert_array_equal(case.xy[case.index_of[3]], [7.25, -3.5])


def test_the_older_table_of_coordinates_is_read() -> None:
    import pandas as pd

    net = networks.case14()
    net.bus["geo"] = None
    net["bus_geodata"] = pd.DataFrame({"x": np.arange(14.0), "y": -1.0}, index=net.bus.index)
    case = case_from_pandapower(net)
    assert case.xy is not None
    np.testing.assert_array_equal(case.xy[:, 0], case.bus_id)


def test_a_bus_without_a_place_stands_amid_its_neighbours() -> None:
    net = networks.case14()
    whole = case_from_pandapower(net)
    net.bus.loc[7, "geo"] = None  # MATPOWER's bus 8, at the end of one transformer from bus 7
    case = case_from_pandapower(net)
    assert case.xy is not None
    assert whole.xy is not None
    np.testing.assert_array_equal(case.xy[case.index_of[7]], whole.xy[whole.index_of[6]])


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "not json",
        '{"type": "Point"}',
        3.0,
        '{"coordinates": ["a", 1]}',
        '{"coordinates": [NaN, 1]}',
    ],
)
def test_unusable_places_are_none_not_an_error(bad: Any) -> None:
    net = networks.case14()
    net.bus["geo"] = net.bus["geo"].astype(object)
    net.bus.loc[net.bus.index[:7], "geo"] = bad
    assert case_from_pandapower(net).xy is None


def test_a_written_net_keeps_the_places() -> None:
    case = case_from_pandapower(networks.case118())
    back = case_from_pandapower(write_net(case)[0])
    assert case.xy is not None
    np.testing.assert_array_equal(back.xy, case.xy)
    other = case.scale_load(2.0).without(("branch:1",))
    np.testing.assert_array_equal(other.xy, case.xy)


def test_places_are_no_part_of_the_fingerprint(case14: Case) -> None:
    placed = replace(case14, xy=np.arange(28.0).reshape(14, 2))
    assert placed.fingerprint == case14.fingerprint
    assert not placed.xy.flags.writeable  # type: ignore[union-attr]


def test_places_of_another_shape_or_not_finite_are_refused(case14: Case) -> None:
    with pytest.raises(InputError, match=r"xy has shape \(3, 2\), not \(14, 2\)"):
        replace(case14, xy=np.zeros((3, 2)))
    wrong = np.zeros((14, 2))
    wrong[4, 1] = np.inf
    with pytest.raises(InputError, match="bus 5: xy"):
        replace(case14, xy=wrong)


def test_positions_of_a_small_grid_are_of_least_stress_over_all_pairs_once():
    """No position's stress falls to first order, every pair weighed by its distance alone."""
    n = 12
    tail, head = np.arange(n - 1) // 2, np.arange(1, n)
    lengths = csr_array((1.0 + 0.1 * np.arange(n - 1), (tail, head)), shape=(n, n))
    wanted = dijkstra(lengths, directed=False)
    start = np.random.default_rng(1).normal(size=(n, 2))
    placed = _least_stress(start, np.arange(n), wanted, lengths.tocoo())
    gap = placed[:, None] - placed[None]
    long, distant = np.linalg.norm(gap, axis=2) + np.eye(n), wanted + np.eye(n)
    slope = (((long - distant) / distant**2 / long)[:, :, None] * gap).sum(axis=1)
    assert np.abs(slope).max() < 1e-2
