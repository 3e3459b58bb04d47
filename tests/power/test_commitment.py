"""The commitment against every pattern of running generators, priced by merit order."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from gridpriv import load_case
from gridpriv.core.errors import InputError, SolverError
from gridpriv.grid.case import POLYNOMIAL, GenCost
from gridpriv.grid.chronology import Chronology
from gridpriv.power.ac.day import commitment

NEED = np.array([1.2, 2.4, 0.9, 1.3])
SLOPES, FIXED = (20.0, 35.0, 30.0, 60.0, 80.0), (0.0, 250.0, 100.0, 50.0, 0.0)
PMIN = (0.5, 0.4, 0.3, 0.0, 0.0)
HEADER = "gen,start_cost,min_up_hours,min_down_hours\n"


def grid():
    costs = tuple(GenCost(POLYNOMIAL, pair) for pair in zip(SLOPES, FIXED, strict=True))
    return replace(load_case("case14"), pmin=np.array(PMIN), cost=costs)


def chronology(case, folder, text):
    path = folder / "commitment.csv"
    path.write_text(HEADER + text)
    return Chronology.of(case, steps=len(NEED), switches=path)


def merit_order(case, need, running):
    """Return the cost in $/h of one step, inf if the running generators do not meet the demand."""
    on = np.flatnonzero(running)
    output = case.pmin[on].copy()
    left = need - output.sum()
    for k in np.argsort([SLOPES[g] for g in on]):
        more = min(max(left, 0.0), case.pmax[on[k]] - output[k])
        output[k] += more
        left -= more
    if abs(left) > 1e-9:
        return np.inf
    return sum(FIXED[g] + SLOPES[g] * case.base_mva * p for g, p in zip(on, output, strict=True))


def least(case, switches):
    """Return the cost of the best of all patterns, and the pattern."""
    gens = [s.gen for s in switches]
    best, pattern = np.inf, None
    for bits in product([0, 1], repeat=len(gens) * len(NEED)):
        on = np.ones((len(NEED), case.n_gen), bool)
        on[:, gens] = np.reshape(bits, (len(NEED), len(gens)))
        if not all(lasting(on[:, s.gen], s) for s in switches):
            continue
        total = sum(merit_order(case, n, o) for n, o in zip(NEED, on, strict=True))
        total += sum(s.start_cost * (np.diff(on[:, s.gen].astype(int)) > 0).sum() for s in switches)
        if total < best:
            best, pattern = total, on
    return best, pattern


def lasting(on, switch):
    """Return whether a start lasts min_up and a stop min_down steps, to the end of the series."""
    for t in range(1, len(on)):
        if on[t] != on[t - 1]:
            length = int(switch.min_up if on[t] else switch.min_down)
            if (on[t : t + length] != on[t]).any():
                return False
    return True


@pytest.mark.parametrize(
    "text",
    ["2,0,0,0\n3,0,0,0\n", "2,900,0,0\n3,400,0,0\n", "2,100,3,0\n3,50,0,2\n", "2,0,0,3\n"],
)
def test_what_runs_costs_least_of_all_patterns(tmp_path, text):
    case = grid()
    given = chronology(case, tmp_path, text)
    running = commitment(case, given, NEED)
    best, _ = least(case, given.switches)
    cost = sum(merit_order(case, n, on) for n, on in zip(NEED, running, strict=True))
    for s in given.switches:
        assert lasting(running[:, s.gen], s)
        cost += s.start_cost * (np.diff(running[:, s.gen].astype(int)) > 0).sum()
    assert cost == pytest.approx(best, rel=2e-4)
    assert not running.all()


def test_a_need_that_nothing_meets_is_refused(tmp_path):
    case = grid()
    with pytest.raises(SolverError, match="no commitment"):
        commitment(case, chronology(case, tmp_path, "2,0,0,0\n"), 100 * NEED)


@pytest.mark.parametrize(
    ("text", "message"),
    [("9,0,0,0\n", "gen = '9'"), ("2,-1,0,0\n", "0 or more"), ("", "names no generator")],
)
def test_files_that_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        chronology(grid(), tmp_path, text)
