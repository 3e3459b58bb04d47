"""Islands of a grid: buses that branches join, and those on which nothing can generate."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from gridpriv.core.arrays import Bools, Ints
from gridpriv.grid.case import Case


def islands(case: Case, lines: Bools | None = None) -> Ints:
    """Return the number of the island of every bus; with ``lines``, of those branches only."""
    joined = np.arange(case.n_branch) if lines is None else np.flatnonzero(lines)
    ends = (case.f_bus[joined], case.t_bus[joined])
    links = sparse.coo_array((np.ones(len(joined)), ends), shape=(case.n_bus, case.n_bus))
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
