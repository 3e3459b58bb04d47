"""The preventive plan of zones beside a central SCOPF that holds every state as variables."""

from __future__ import annotations

import numpy as np
import pytest
from scopf_reference import scopf_cost

from gridpriv import load_case, partition
from gridpriv.grid.contingencies import branch_rating, contingencies
from gridpriv.grid.islands import islands
from gridpriv.power.ac.redispatch import operating_unit
from gridpriv.power.objective import generation_cost
from gridpriv.power.secure import SecureProblem, secure_plan
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.settings import make_settings


def split(case, contingency):
    """Return whether an outage splits the grid."""
    on = np.ones(case.n_branch, bool)
    on[contingency.elements(case)[0]] = False
    return islands(case, on).max() > islands(case).max()


@pytest.mark.parametrize(
    ("name", "kind", "without", "left"),
    [
        ("case14", "all", {"branch:1"}, set()),  # branch 1 leaves no state within reactive limits
        pytest.param(
            "case24_ieee_rts",
            "branches",
            set(),
            {"branch:7", "branch:10", "branch:27"},  # no set points secure these
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_zones_plan_costs_what_a_central_one_does(name, kind, without, left):
    case = load_case(name)
    prepared = prepare(case, partition(case, 3), make_settings(mechanism="none"))
    case = prepared.case
    listed = [c for c in contingencies(case, kind) if not split(case, c) and c.name not in without]
    unit = operating_unit(case)
    first, plan = secure_plan(SecureProblem(case, prepared.zones, listed, "C", 1e4, unit))
    assert plan.left == left
    assert any(c.violations for c in first.contingencies)
    assert all(c.secure for c in plan.contingencies if c.contingency.name not in left)
    outages = [c.elements(case) for c in listed if c.name not in left]
    best = scopf_cost(case, outages, branch_rating(case, "C"))
    cost, alone = (generation_cost(case, p.before.state.pg) for p in (plan, first))
    assert cost == pytest.approx(best, rel=1e-4)
    assert cost > alone
