"""Islands of a grid: buses that branches join, and those on which nothing can generate."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from gridpriv.core.arrays import Bools, Ints
from gridpriv.grid.case import Case


@lru_cache(maxsize=16)
def islands(case: Case) -> Ints:
    """Return the number of the island of every bus; read-only."""
    island = islands_by(case, np.ones(case.n_branch, bool))
    island.setflags(write=False)
    return island


def islands_by(case: Case, lines: Bools) -> Ints:
    """Return the number of the island of every bus, by some of the branches only."""
    ends = (case.f_bus[lines], case.t_bus[lines])
    links = sparse.coo_array((np.ones(len(ends[0])), ends), shape=(case.n_bus, case.n_bus))
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)


@lru_cache(maxsize=16)
def dead_buses(case: Case) -> Bools:
    """Return the buses of islands in which no generator can give active power; read-only."""
    island = islands(case)
    alive = np.zeros(island.max() + 1, bool)
    alive[island[case.gen_bus[case.pmax > 0]]] = True
    dead: Bools = ~alive[island]
    dead.setflags(write=False)
    return dead
