"""A zone's part of the grid (buses, neighbour buses, lines, generators), and prices of tie lines.

Everything here is public topology; the zone's demand is not part of it.

Coordinates. The variables of the whole grid are numbered by family::

    w | wr | wi | p_from | q_from | p_to | q_to | pg | qg | pc
    n   P    P    m        m        m      m      g    g    h

with n buses, P connected bus pairs, m branches, g generators, and h generators whose cost is
piecewise linear (pc is that cost; h is 0 where the objective has no cost). A zone has the variables
of its buses, their neighbours and the lines between; a variable of two zones is a coupling
variable.

Prices. The dual lambda of a zone's copy of a coupling variable is the derivative of f by that
variable, as its local problem minimizes f(z) - <lambda, z> + rho/2 ||w - z||^2: the zone's price of
one more unit. At consensus the duals of the copies of a variable add up to 0: the payment of one
zone is the revenue of the other. The prices are functions of releases, so they are public. With
objective ``cost`` the unit is $/MWh (reactive: $/MVArh), with ``losses`` MW of generation per MW,
with ``imbalance`` p.u. squared per p.u.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.arrays import Complexes, Floats, Ints, sums_at
from gridpriv.grid.case import PIECEWISE, Case
from gridpriv.grid.network import BranchAdmittance, branch_admittance, islands, nearest_angles
from gridpriv.grid.zoning import Zoning, grouped
from gridpriv.power.objective import IMBALANCE, Objective, cost_at

if TYPE_CHECKING:
    import pandas as pd

FLOWS = ("p_from", "q_from", "p_to", "q_to")


@dataclass(frozen=True, eq=False)
class Network:
    """A case with its connected bus pairs (i < j) and the numbering of its variables.

    Attributes
    ----------
    pair_i, pair_j : (P,) int
        Bus indices of the pairs, i < j.
    pair_of : (m,) int
        Pair of each branch; parallel branches have the same pair.
    forward : (m,) bool
        True if the branch is from i to j (else wi changes sign in its flows).
    objective : Objective
        What its zones minimize.
    """

    case: Case
    pair_i: Ints
    pair_j: Ints
    pair_of: Ints
    forward: NDArray[np.bool_]
    objective: Objective = IMBALANCE

    @cached_property
    def piecewise(self) -> Ints:
        """Generators that have a variable pc: a piecewise linear cost in the objective."""
        costs = enumerate(self.case.cost if self.objective.kind == "cost" else ())
        return np.array([g for g, cost in costs if cost.model == PIECEWISE], dtype=np.int64)

    @cached_property
    def admittance(self) -> BranchAdmittance:
        """Two-port admittances of the branches."""
        return branch_admittance(self.case)

    @cached_property
    def offsets(self) -> dict[str, int]:
        """First coordinate of each family, and ``end`` for their total number."""
        n, pairs, m, g = self.case.n_bus, len(self.pair_i), self.case.n_branch, self.case.n_gen
        sizes = {"w": n, "wr": pairs, "wi": pairs} | dict.fromkeys(FLOWS, m) | {"pg": g, "qg": g}
        sizes["pc"] = len(self.piecewise)
        starts = np.concatenate([[0], np.cumsum(list(sizes.values()))])
        return dict(zip([*sizes, "end"], map(int, starts), strict=True))

    def families(self, z: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the variables of the whole grid by family."""
        return {name: z[a:b] for (name, a), (_, b) in pairwise(self.offsets.items())}

    def angles(self, z: Floats) -> Floats:
        """Return the bus angles (rad) nearest to those between pairs, by wi/wr, (n,).

        The first bus of every island has angle 0.
        """
        part, ends = self.families(z), (self.pair_i, self.pair_j)
        first = np.unique(islands(self.case), return_index=True)[1]
        difference, weight = np.arctan2(part["wi"], part["wr"]), np.ones(len(self.pair_i))
        return nearest_angles(ends, difference, weight, first, self.case.n_bus)

    @cached_property
    def angle_limits(self) -> tuple[Floats, Floats]:
        """(min, max) angle difference of each pair, the tightest of its branches, in rad."""
        low, high = self.case.angmin, self.case.angmax
        lower = np.full(len(self.pair_i), -np.inf)
        upper = np.full(len(self.pair_i), np.inf)
        np.maximum.at(lower, self.pair_of, np.where(self.forward, low, -high))
        np.minimum.at(upper, self.pair_of, np.where(self.forward, high, -low))
        return lower, upper


@dataclass(frozen=True, eq=False)
class Zone:
    """One zone of a network (RK appendix D): N_z, V_z, its pairs, L_z and its generators.

    Attributes
    ----------
    key : int
        Smallest bus number of the zone: its identity for noise streams, independent of the order.
    own : int array
        Bus indices N_z; only these have a balance and a demand.
    buses, pairs, branches, gens : int arrays
        V_z, the pairs of L_z, L_z, and the zone's generators, as indices of the network.
    """

    network: Network
    name: str
    key: int
    own: Ints
    buses: Ints
    pairs: Ints
    branches: Ints
    gens: Ints

    @cached_property
    def priced(self) -> Ints:
        """The zone's generators with a variable pc."""
        return np.intersect1d(self.gens, self.network.piecewise)

    @property
    def elements(self) -> dict[str, Ints]:
        """Elements of the grid with variables of the zone, by family."""
        return (
            {"w": self.buses, "wr": self.pairs, "wi": self.pairs}
            | dict.fromkeys(FLOWS, self.branches)
            | {"pg": self.gens, "qg": self.gens, "pc": self.priced}
        )

    @cached_property
    def coordinates(self) -> Ints:
        """Number of each of the zone's variables in the whole grid, in the zone's order."""
        value = self.elements | {"pc": np.searchsorted(self.network.piecewise, self.priced)}
        start = self.network.offsets
        return np.concatenate([start[family] + index for family, index in value.items()])

    def outputs(self, z: Floats) -> tuple[Floats, Floats]:
        """Return (pg, qg) of the zone's generators at its variables z."""
        start, number = self.network.offsets, self.coordinates
        first, middle, end = np.searchsorted(number, [start["pg"], start["qg"], start["pc"]])
        return z[first:middle], z[middle:end]

    @cached_property
    def demand(self) -> Floats:
        """The zone's true demand: (pd, qd) of its own buses, shape (2 |N_z|,)."""
        case = self.network.case
        return np.concatenate([case.pd[self.own], case.qd[self.own]])


def make_network(case: Case, objective: Objective = IMBALANCE) -> Network:
    """Return the network of a case: its pairs, the orientation of its branches, its objective."""
    low, high = np.minimum(case.f_bus, case.t_bus), np.maximum(case.f_bus, case.t_bus)
    pairs, pair_of = np.unique(np.stack([low, high], axis=1), axis=0, return_inverse=True)
    forward = case.f_bus < case.t_bus
    return Network(case, pairs[:, 0], pairs[:, 1], pair_of.reshape(-1), forward, objective)


def make_zones(network: Network, zoning: Zoning) -> tuple[Zone, ...]:
    """Return the zones of a network under a zone map, in the map's order."""
    case, zone_of = network.case, zoning.zone_of
    f_zone, t_zone = zone_of[case.f_bus], zone_of[case.t_bus]
    ends = grouped(np.concatenate([f_zone, t_zone]), zoning.n_zone)
    gens = grouped(zone_of[case.gen_bus], zoning.n_zone)
    lines = [np.unique(end % max(case.n_branch, 1)) for end in ends]
    parts = zip(zoning.names, zoning.members, lines, gens, strict=True)
    return tuple(_zone(network, *part) for part in parts)


def _zone(network: Network, name: str, own: Ints, branches: Ints, gens: Ints) -> Zone:
    case = network.case
    buses = np.unique(np.concatenate([own, case.f_bus[branches], case.t_bus[branches]]))
    pairs, key = np.unique(network.pair_of[branches]), int(case.bus_id[own].min())
    return Zone(network, name, key, own, buses, pairs, branches, gens)


def owner_of(case: Case, zones: Sequence[Zone]) -> Ints:
    """Return the position of every bus's zone."""
    owner = np.zeros(case.n_bus, dtype=np.int64)
    for z, zone in enumerate(zones):
        owner[zone.own] = z
    return owner


def mean_of_copies(network: Network, zones: Sequence[Zone], copies: Sequence[Floats]) -> Floats:
    """Return the variables of the grid, each the mean of its copies; 0 without any."""
    number, size = np.concatenate([zone.coordinates for zone in zones]), network.offsets["end"]
    total = sums_at(number, np.concatenate(copies), size)
    return np.asarray(total / np.maximum(np.bincount(number, minlength=size), 1.0))


def with_demand(case: Case, zones: Sequence[Zone], demands: Sequence[Floats]) -> Case:
    """Return a case with the demands (2 own,) of its zones, and none at other buses."""
    pd, qd = np.zeros((2, case.n_bus))
    for zone, demand in zip(zones, demands, strict=True):
        pd[zone.own], qd[zone.own] = np.split(demand, 2)
    return replace(case, pd=pd, qd=qd)


def whole_grid(network: Network) -> Zone:
    """Return the zone that owns every bus, pair, branch and generator."""
    case = network.case
    every = (np.arange(number) for number in (case.n_bus, case.n_branch, case.n_gen))
    return _zone(network, "whole grid", *every)


def flat_start(zone: Zone) -> Floats:
    """Return the flat start: w = wr = 1, wi and flows 0, generation 0 clipped to its box.

    A pc starts at its cost there.
    """
    case, unit = zone.network.case, zone.network.objective.cost_unit
    pg = np.clip(0.0, case.pmin[zone.gens], case.pmax[zone.gens])
    qg = np.clip(0.0, case.qmin[zone.gens], case.qmax[zone.gens])
    ones = np.ones(len(zone.buses) + len(zone.pairs))
    zeros = np.zeros(len(zone.pairs) + 4 * len(zone.branches))
    output = dict(zip(zone.gens.tolist(), pg.tolist(), strict=True))
    pc = [cost_at(case.cost[g], case.base_mva, output[g]) / unit for g in zone.priced.tolist()]
    return np.concatenate([ones, zeros, pg, qg, pc])


def coordinates(
    network: Network,
    voltage: Complexes,
    pg: Floats,
    qg: Floats,
    elements: dict[str, Ints] | None = None,
) -> Floats:
    """Return an AC state in the coordinates of a network, or of a zone of it.

    Parameters
    ----------
    voltage : (n,) complex
    pg, qg : (g,)
    elements : dict, optional
        As :attr:`Zone.elements`; by default every element of the grid.
    """
    case, y = network.case, network.admittance
    elements = whole_grid(network).elements if elements is None else elements
    pair, line, gens = elements["wr"], elements["p_from"], elements["pg"]
    product = voltage[network.pair_i[pair]] * np.conj(voltage[network.pair_j[pair]])
    f, t = voltage[case.f_bus[line]], voltage[case.t_bus[line]]
    s_from = f * np.conj(y.ff[line] * f + y.ft[line] * t)
    s_to = t * np.conj(y.tf[line] * f + y.tt[line] * t)
    unit = network.objective.cost_unit
    costs = [cost_at(case.cost[g], case.base_mva, pg[g]) / unit for g in elements["pc"].tolist()]
    w = np.abs(voltage[elements["w"]]) ** 2
    flows = (s_from.real, s_from.imag, s_to.real, s_to.imag)
    return np.concatenate([w, product.real, product.imag, *flows, pg[gens], qg[gens], costs])


def within_limits_without_load(zone: Zone) -> bool:
    """Return True where voltages near 1 p.u. at equal angles satisfy all branch limits of a zone.

    Its feasible set, which does not depend on demand, then has a point.
    """
    case, lines = zone.network.case, zone.branches
    v = np.clip(1.0, case.vmin, case.vmax).astype(complex)
    places = zone.elements | {"pc": np.zeros(0, dtype=np.int64)}
    output = np.zeros(case.n_gen)
    z = coordinates(zone.network, v, output, output, places)
    at = len(zone.buses) + 2 * len(zone.pairs)
    p_from, q_from, p_to, q_to = z[at : at + 4 * len(lines)].reshape(4, -1)
    flow = np.maximum(np.hypot(p_from, q_from), np.hypot(p_to, q_to))
    rate = np.where(case.rate[lines] > 0, case.rate[lines], np.inf)
    low, high = (limit[zone.pairs] for limit in zone.network.angle_limits)
    return bool((flow <= rate).all() and (low <= 0.0).all() and (high >= 0.0).all())


def price_unit(network: Network) -> tuple[float, str]:
    """Return the factor from the objective's derivative to a price, and the price's unit."""
    if network.objective.kind == "cost":
        return network.objective.cost_unit / network.case.base_mva, "$/MWh"
    return 1.0, "MW per MW" if network.objective.kind == "losses" else "p.u.^2 per p.u."


def tie_prices(zone: Zone, shared: np.ndarray, dual: Floats) -> pd.DataFrame:
    """Return a zone's prices of flows on its tie lines.

    Parameters
    ----------
    shared : (n,) bool
        True for coupling variables.
    dual : (shared,)
        Their duals.

    Returns
    -------
    DataFrame
        ``zone``, ``branch_row``, ``from_bus``, ``to_bus``, ``flow`` (p_from, ...), ``price``,
        ``unit``.
    """
    import pandas as pd

    network, start = zone.network, zone.network.offsets
    case = network.case
    factor, unit = price_unit(network)
    number = zone.coordinates[shared] - start["p_from"]
    positions = np.flatnonzero((number >= 0) & (number < len(FLOWS) * case.n_branch))
    family, branch = np.divmod(number[positions], max(case.n_branch, 1))
    return pd.DataFrame(
        {
            "zone": zone.name,
            "branch_row": case.branch_row[branch],
            "from_bus": case.bus_id[case.f_bus[branch]],
            "to_bus": case.bus_id[case.t_bus[branch]],
            "flow": np.array(FLOWS, dtype=object)[family],
            "price": factor * dual[positions],
            "unit": unit,
        }
    )
