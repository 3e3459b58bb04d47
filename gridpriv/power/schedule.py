"""The schedule of the whole grid for a demand that is public: who holds all of it needs no rounds.

The schedule is in the grid's coordinates (:mod:`gridpriv.power.zone`), so that every zone reads
its own part of it as it would read what rounds agree on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.power.ac.optimum import acopf
from gridpriv.power.ac.state import AcState
from gridpriv.power.centralized import relax
from gridpriv.power.objective import cost_at
from gridpriv.power.zone import Network, Zone


def central_schedule(
    network: Network, zones: Sequence[Zone], demands: Sequence[Floats], voll: float
) -> Floats:
    """Return the schedule (end,) that is best for the zones' demands taken together.

    With cost or losses it is the AC optimum. For imbalance, and for demand that has no optimum (a
    noisy one may ask for what no AC state gives), it is the relaxation's.

    Parameters
    ----------
    network : Network
        Of its case the demand is not read.
    demands : sequence of (2 |N_z|,) array
        p, then q, of every zone's own buses; public.
    voll : float
        Value of lost load in $/MWh.

    Raises
    ------
    SolverError
        If no optimum is found.
    """
    pd, qd = np.zeros(network.case.n_bus), np.zeros(network.case.n_bus)
    for zone, demand in zip(zones, demands, strict=True):
        pd[zone.own], qd[zone.own] = np.split(demand, 2)
    case = replace(network.case, pd=pd, qd=qd)
    objective = network.objective
    if objective.kind == "imbalance":
        return relax(case).z
    try:
        return coordinates(network, acopf(case, objective.kind, voll).state)
    except SolverError:
        priced = objective.kind == "cost"
        return relax(case, "cost", imbalance_weight=objective.weight).z if priced else relax(case).z


def coordinates(network: Network, state: AcState) -> Floats:
    """Return an AC state in the coordinates of a network, shape (end,)."""
    case, voltage = network.case, state.voltage
    product = voltage[network.pair_i] * np.conj(voltage[network.pair_j])
    costs = [
        cost_at(case.cost[g], case.base_mva, state.pg[g]) / network.objective.cost_unit
        for g in network.piecewise.tolist()
    ]
    families = {
        "w": state.vm**2, "wr": product.real, "wi": product.imag,
        "p_from": state.s_from.real, "q_from": state.s_from.imag,
        "p_to": state.s_to.real, "q_to": state.s_to.imag,
        "pg": state.pg, "qg": state.qg, "pc": np.array(costs),
    }  # fmt: skip
    z = np.zeros(network.offsets["end"])
    for (name, start), (_, end) in pairwise(network.offsets.items()):
        z[start:end] = families[name]
    return z
