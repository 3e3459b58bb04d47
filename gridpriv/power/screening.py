"""Active flows after outages by the DC power flow: factors of the whole grid, once.

With X the inverse of the susceptance matrix B, an outage of the branches L is a change of the
injections at their ends. It is such that each of them carries, in the grid as it was, what is
injected at its ends, so that it might as well not be there:

    phi = (1 - b_L A_L X A_L')^-1 (p_L + b_L A_L X dp)        injected at the ends of L
    p_after = p + b A X (dp + A_L' phi)

with p the flows before and dp the change of injections by lost generators and those that replace
them. For one branch phi / p_L is 1 / (1 - PTDF), and b A X A_L' phi / p_L are its LODFs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gridpriv.core.arrays import Floats, Ints
from gridpriv.grid.admittance import DcPowerFlow
from gridpriv.grid.islands import islands
from gridpriv.power.ac.state import AcState

SPLIT = 1e-8
"""1 - PTDF of an outage that splits the grid, but for rounding."""


@dataclass(frozen=True, eq=False)
class DcOutages:
    """A grid's DC power flow around an AC state.

    Attributes
    ----------
    dc : DcPowerFlow or None
        None where reactances of both signs cancel: nothing is estimated.
    island : (n,) int
        The island of every bus.
    """

    state: AcState
    dc: DcPowerFlow | None
    island: Ints

    @staticmethod
    def of(state: AcState) -> DcOutages:
        """Return the DC power flow of a grid around an AC state."""
        try:
            dc = DcPowerFlow.of(state.case)
        except RuntimeError:
            dc = None
        return DcOutages(state, dc, islands(state.case))

    def after(self, branches: Ints, gens: Ints) -> Floats | None:
        """Return the estimated apparent power of every branch, p.u.; None if the grid splits.

        None also without a DC power flow.

        Active flows change as by the DC power flow; reactive ones stay.
        """
        case, state = self.state.case, self.state
        if self.dc is None or state.dead.any() or (change := self._replaced(gens)) is None:
            return None
        p, k = state.s_from.real, len(branches)
        ends = np.zeros((case.n_bus, k))
        ends[case.f_bus[branches], np.arange(k)] = 1.0
        ends[case.t_bus[branches], np.arange(k)] -= 1.0
        flows = self.dc.flows(np.column_stack([change, ends]))
        own = np.eye(k) - flows[branches, 1:]
        if k and np.linalg.cond(own) * SPLIT > 1.0:
            return None
        size = np.abs(own).max(initial=0.0)
        if k and size < SPLIT:
            return None
        phi = np.linalg.solve(own, p[branches] + flows[branches, 0])
        changed = flows[:, 0] + flows[:, 1:] @ phi
        after = np.maximum(np.abs(state.s_from + changed), np.abs(state.s_to - changed))
        after[branches] = 0.0
        return np.asarray(after)

    def _replaced(self, gens: Ints) -> Floats | None:
        """Return the change of injections by lost generators; None where headroom is short."""
        case, pg = self.state.case, self.state.pg
        change, island = np.zeros(case.n_bus), self.island[case.gen_bus]
        room = np.maximum(case.pmax - pg, 0.0)
        room[gens] = 0.0
        lost = np.bincount(island[gens], pg[gens], self.island.max() + 1)
        total = np.bincount(island, room, self.island.max() + 1)
        if (lost < 0).any() or (lost > total).any():
            return None
        share = np.where(total > 0, lost / np.where(total > 0, total, 1.0), 0.0)[island]
        given = np.where(np.isinf(total[island]), np.isinf(room) * lost[island], share * room)
        np.add.at(change, case.gen_bus, given)
        np.subtract.at(change, case.gen_bus[gens], pg[gens])
        return change
