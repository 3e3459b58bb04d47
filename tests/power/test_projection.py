"""The nearest demand that a grid serves, against closed forms and a second AC optimum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from polar_optimum import polar_optimum

from gridpriv.core.errors import SolverError
from gridpriv.grid.library import load_case
from gridpriv.grid.matpower import parse_matpower
from gridpriv.grid.tables import case_from_tables
from gridpriv.power.ac.optimum import MARGINS, nearest_served, tightened

# a lossless line of 1 p.u. at most, a generator of 1.5 p.u.; reactive power is plenty
TWO_BUSES = """
mpc.version = '2';
mpc.baseMVA = 100;
mpc.bus = [
 1 3 {near} 0 0 0 1 1 0 138 1 1.1 0.9;
 2 1 {far} 0 0 0 1 1 0 138 1 1.1 0.9;
];
mpc.gen = [ 1 0 0 300 -300 1 100 1 150 0; 2 0 0 300 -300 1 100 1 0 0; ];
mpc.branch = [ 1 2 0 0.1 0 100 100 100 0 0 1 -360 360; ];
mpc.gencost = [ 2 0 0 3 0.01 20 0; 2 0 0 3 0.01 20 0; ];
"""


def two_buses(near: float, far: float):
    return case_from_tables(parse_matpower(TWO_BUSES.format(near=near, far=far), "two"))


def test_a_demand_that_is_served_stays() -> None:
    served = nearest_served(two_buses(20.0, 90.0), "box")
    assert served.margin == 0.0
    assert not served.moved.any()


@pytest.mark.parametrize("norm", ["box", 1, 2])
def test_a_line_caps_the_demand_behind_it(norm) -> None:
    served = nearest_served(two_buses(20.0, 130.0), norm)
    assert served.margin == MARGINS[0]
    np.testing.assert_allclose(served.moved[0], [0.0, -0.3], atol=2e-3)


@pytest.mark.parametrize(("norm", "least"), [("box", 0.6), (1, 0.6), (2, 2 * 0.3**2)])
def test_the_norm_is_least(norm, least) -> None:
    """80 and 130 MW pass the line's 100 and the generator's 150: 60 MW must go, 30 at the far end.

    The 1-norm is 0.6 wherever the other 30 go; the 2-norm shares them so that each bus has 30.
    """
    size = np.abs(nearest_served(two_buses(80.0, 130.0), norm).moved)
    assert (size**2 if norm == 2 else size).sum() == pytest.approx(least, rel=0.02)


def test_pairs_move_together() -> None:
    """Noise on pairs lets reactive demand of a bus move as far as its active demand for nothing."""
    case = load_case("case14").scale_load(4.0)
    pairs, numbers = nearest_served(case, "box"), nearest_served(case, 1)
    box = [np.abs(one.moved).max(axis=0).sum() for one in (pairs, numbers)]
    total = [np.abs(one.moved).sum() for one in (pairs, numbers)]
    assert box[0] <= box[1] * 1.001
    assert total[1] <= total[0] * 1.001


@pytest.mark.parametrize(("name", "scale"), [("case14", 4.0), ("case30", 3.0)])
def test_another_optimum_serves_what_is_projected(name: str, scale: float) -> None:
    served = nearest_served(load_case(name).scale_load(scale), "box")
    _, shed = polar_optimum(served.case)
    assert np.abs(shed).sum() * 100.0 < 1e-3
    assert served.margin > 0.0


def test_limits_are_tightened_by_a_share_of_their_width() -> None:
    case = load_case("case30")
    tight = tightened(case, 0.1)
    np.testing.assert_allclose(tight.rate, 0.9 * case.rate)
    np.testing.assert_allclose(tight.vmax - tight.vmin, 0.9 * (case.vmax - case.vmin))


def test_a_grid_that_serves_nothing_says_so() -> None:
    case = two_buses(20.0, 90.0)
    with pytest.raises(SolverError, match="no demand near the released"):
        nearest_served(
            replace(case, angmin=np.array([0.5]), angmax=np.array([0.5]), rate=np.array([0.01])),
            "box",
        )
