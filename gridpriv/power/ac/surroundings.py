"""What the rest of a grid does with what a zone sends: its equivalent at the zone's tie ends.

The far ends of tie lines are not free. While everything beyond them injects what it does, the
active flow p_j into the tie lines at far end j follows the angles of the far ends,

    p_j = p0_j - sum_k B_jk (theta_k - theta0_k) + s_j a,

with B the susceptances of the network beyond, reduced to the far ends (Kron), and a what the
generators beyond give in all, by their share of the range. So a flow that a zone pushes into one
tie line comes back through the others. All of it is public; p0 and theta0 a zone measures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import splu

from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.grid.admittance import laplacian
from gridpriv.grid.case import Case
from gridpriv.grid.islands import islands
from gridpriv.power.ac.part import part_of

ENDLESS = 1e6
"""p.u.: the range of a generator without limits, beside which others give nothing."""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """The network beyond a zone, reduced to the far ends of its tie lines.

    Attributes
    ----------
    ends : (k,) int
        Far ends, as buses of the whole case, in increasing order.
    susceptance : (k, k)
        B in p.u. per rad.
    share : (k,)
        s of the far ends; they add up to 1 where something generates beyond them, else to 0.
    """

    ends: Ints
    susceptance: Floats
    share: Floats


def surroundings(case: Case, inside: Bools, ends: Ints) -> Surroundings | None:
    """Return what is beyond a zone; None where its susceptances add up to nothing somewhere.

    Parameters
    ----------
    inside : (n,) bool
        The zone's own buses.
    ends : (k,) int
        Far ends of its live tie lines, in increasing order.
    """
    beyond = part_of(
        case,
        np.flatnonzero(~inside),
        np.flatnonzero(~inside[case.f_bus] & ~inside[case.t_bus]),
        np.flatnonzero(~inside[case.gen_bus]),
    )
    grid, place = beyond.case, np.searchsorted(beyond.buses, ends)
    island = islands(grid)
    deep = np.setdiff1d(np.flatnonzero(np.isin(island, island[place])), place)
    # a lossless grid near nominal voltage
    susceptance = grid.x / (grid.r**2 + grid.x**2) / grid.tap
    matrix = laplacian(grid.f_bus, grid.t_bus, susceptance, grid.n_bus)
    span = np.clip(grid.pmax - grid.pmin, 0.0, ENDLESS)
    given = np.bincount(grid.gen_bus, span, minlength=grid.n_bus).astype(float)
    given[~np.isin(island, island[place])] = 0.0
    given /= max(given.sum(), np.finfo(float).tiny)
    across = matrix[place][:, deep]
    rest = np.column_stack([across.T.toarray(), given[deep]])
    if len(deep):
        try:
            rest = splu(matrix[deep][:, deep].tocsc()).solve(rest)
        except RuntimeError:  # lines of resistance only, or capacitors that cancel their lines
            return None
    within = matrix[place][:, place].toarray()
    return Surroundings(ends, within - across @ rest[:, :-1], given[place] - across @ rest[:, -1])
