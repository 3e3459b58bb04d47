"""Linear cuts on the set points of all generators, in the joint AC optimal power flow of zones.

A cut bounds a sum over zones, sum_z t_z <= bound + slack, where t_z is linear in the outputs and
squared voltages of zone z. Zones and the coordinator share the t_z: they belong to the border.
The coordinator's own block holds the cuts and their slacks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gridpriv.core.arrays import Floats, Ints
from gridpriv.power.ac.block import Block
from gridpriv.power.ac.model import AcModel
from gridpriv.power.ac.part import SubCase
from gridpriv.power.ac.quadratic import QuadraticProgram


@dataclass(frozen=True, eq=False)
class Cuts:
    """Cuts by_pg pg + by_w w <= bound; a passed one costs ``price`` per unit; public.

    Attributes
    ----------
    by_pg : (k, g)
        By the outputs of the case's generators.
    by_w : (k, n)
        By the squared voltages of its buses.
    bound, price : (k,)
    """

    by_pg: Floats
    by_w: Floats
    bound: Floats
    price: Floats

    def block(self, zones: int, first: int) -> tuple[Block, Ints]:
        """Return the coordinator's block, and the numbers of its border entries from ``first``."""
        count = len(self.bound)
        program, none = QuadraticProgram(), np.zeros(count)
        endless = np.full(zones * count, np.inf)
        part = program.add_variables(-endless, endless, np.zeros(zones * count))
        slack = program.add_variables(none, none + np.inf, none)
        row = program.add_rows(none - np.inf, self.bound)
        program.add_linear(np.tile(row, zones), part, 1.0)
        program.add_linear(row, slack, -1.0)
        program.add_cost(slack, self.price)
        block = Block(program.form(), part, np.zeros(0, dtype=np.int64), program.start)
        return block, first + np.arange(zones * count)


@dataclass(frozen=True, eq=False)
class ZoneCuts:
    """A zone's part of cuts.

    Attributes
    ----------
    cuts : Cuts
    at : (k,) int
        Numbers in the border of the zone's t.
    """

    cuts: Cuts
    at: Ints

    def added(self, model: AcModel, part: SubCase, own: Ints) -> Ints:
        """Add the zone's t to its model; return these variables.

        Parameters
        ----------
        own : int array
            Buses of the part that belong to the zone.
        """
        program, count = model.program, len(self.at)
        by_pg, by_w = self.cuts.by_pg[:, part.gens], self.cuts.by_w[:, part.buses[own]]
        endless = np.full(count, np.inf)
        # a border entry starts at the same value in all blocks, as they take the same steps
        total = program.add_variables(-endless, endless, np.zeros(count))
        row = program.add_rows(np.zeros(count), np.zeros(count))
        program.add_linear(row, total, -1.0)
        cut, gen = np.nonzero(by_pg)
        program.add_linear(row[cut], model.pg[gen], by_pg[cut, gen])
        cut, bus = np.nonzero(by_w)
        for part_of_voltage in (model.e, model.f):
            variable = part_of_voltage[own[bus]]
            program.add_product(row[cut], variable, variable, by_w[cut, bus])
        return total
