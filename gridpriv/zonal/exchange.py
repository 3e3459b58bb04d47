"""Exchange between the zones of a run: flow-based domain, redispatch cost and payments.

The shared view uses released demand under its AC optimum, on the public network. It is a function
of releases and public data, so it may be published and costs no epsilon. The other views use true
demand and are local.

Redispatch is the difference between copper-plate merit-order dispatch and the AC optimum of the
same demand. Its cost is assigned to the zones where generation changes. At
tie prices, the mean of the bus prices at both ends of a tie line, the importing zone pays the
exporting one; payments add up to zero.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.text import Json
from gridpriv.grid.case import Case
from gridpriv.grid.network import islands
from gridpriv.grid.scenarios import branch_ends
from gridpriv.power.ac.optimum import AcOptimum
from gridpriv.power.exchange import FlowDomain, flow_domain, merit_order
from gridpriv.power.objective import cost_at, has_convex_costs, marginal_segments
from gridpriv.zonal.documents import ExchangeDocument
from gridpriv.zonal.result import RunAnalysis, RunResult
from gridpriv.zonal.security import viewed_case, viewed_optimum
from gridpriv.zonal.settings import LOCAL, SHARED, FlowBased, FlowModel

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class ExchangeResult(RunAnalysis):
    """Exchange between the zones of a run.

    Attributes
    ----------
    settings : FlowBased
    zones : tuple of str
    optimum : AcOptimum
        Of the demand of the view.
    domain : FlowDomain
    market : (g,) float or None
        Outputs of the market without a network, p.u.; None without convex costs.
    """

    schema = ExchangeDocument.table
    settings: FlowBased
    zones: tuple[str, ...]
    optimum: AcOptimum
    domain: FlowDomain
    market: Floats | None

    @cached_property
    def branches(self) -> list[Json]:
        """One row per branch whose flow an exchange changes: flow, margins, PTDFs."""
        domain, base = self.domain, self.domain.case.base_mva
        spread = np.ptp(domain.ptdf, axis=1)
        case = domain.case
        return [
            {
                "branch": f"branch:{case.branch_row[k]}",
                "at": branch_ends(case, k),
                "tie_line": bool(domain.zone_of[case.f_bus[k]] != domain.zone_of[case.t_bus[k]]),
                "rating_mva": base * case.rate[k],
                "flow_mw": base * domain.flow[row],
                "margin_mw": base * domain.margin[row, 0],
                "opposite_margin_mw": base * domain.margin[row, 1],
                "largest_ptdf": float(spread[row]),
                "ptdf": [
                    {"zone": zone, "ptdf": float(value)}
                    for zone, value in zip(self.zones, domain.ptdf[row], strict=True)
                ],
            }
            for row, k in enumerate(domain.branch.tolist())
            if 100.0 * spread[row] >= self.settings.threshold
        ]

    @cached_property
    def exchanges(self) -> list[Json]:
        """One row per ordered pair of zones: the largest sale from the first to the second."""
        case, rows = self.domain.case, []
        for seller, buyer in permutations(range(len(self.zones)), 2):
            amount, limit = self.domain.exchange(seller, buyer)
            rows.append(
                {
                    "from_zone": self.zones[seller],
                    "to_zone": self.zones[buyer],
                    "most_mw": case.base_mva * amount if np.isfinite(amount) else None,
                    "limit": f"branch:{case.branch_row[limit]}" if limit >= 0 else "",
                    "limit_at": branch_ends(case, limit) if limit >= 0 else "",
                    "generation_mw": case.base_mva * self._generation_room(seller, buyer),
                }
            )
        return rows

    def _generation_room(self, seller: int, buyer: int) -> float:
        """Return the upward room of the seller and the downward room of the buyer, p.u."""
        state, zone = self.optimum.state, self.domain.zone_of[self.domain.case.gen_bus]
        up = np.maximum(state.case.pmax - state.pg, 0.0)[zone == seller].sum()
        down = np.maximum(state.pg - state.case.pmin, 0.0)[zone == buyer].sum()
        return float(min(up, down, 1e9))

    @cached_property
    def zone_rows(self) -> list[Json]:
        """One row per zone: net position and its range, redispatch and its cost, revenue."""
        domain, base = self.domain, self.domain.case.base_mva
        rows = []
        for z, name in enumerate(self.zones):
            least, most = domain.position_range(z)
            rows.append(
                {"zone": name, "net_position_mw": base * domain.net_position[z]}
                | {"least_mw": base * least if np.isfinite(least) else None}
                | {"most_mw": base * most if np.isfinite(most) else None}
                | self._congestion(z)
                | {"tie_revenue": self._revenue(name)}
            )
        return rows

    def _congestion(self, zone: int) -> Json:
        case, pg = self.optimum.state.case, self.optimum.state.pg
        gens = np.flatnonzero(self.domain.zone_of[case.gen_bus] == zone)
        names = ("market_cost", "generation_cost", "congestion_mw", "congestion_cost")
        if self.market is None:
            return dict.fromkeys(names)
        before, after = (
            sum(cost_at(case.cost[g], case.base_mva, p[g]) for g in gens) for p in (self.market, pg)
        )
        congestion = case.base_mva * np.maximum(pg - self.market, 0.0)[gens].sum()
        return dict(zip(names, (before, after, congestion, after - before), strict=True))

    def _revenue(self, zone: str) -> float | None:
        if self.market is None:
            return None
        received = sum(row["amount"] for row in self.payments if row["to_zone"] == zone)
        paid = sum(row["amount"] for row in self.payments if row["from_zone"] == zone)
        return float(received - paid)

    @cached_property
    def payments(self) -> list[Json]:
        """One row per pair of zones: energy and payment per hour at tie prices."""
        if self.market is None:
            return []
        case, state, zone_of = self.domain.case, self.optimum.state, self.domain.zone_of
        price = 0.5 * (self.optimum.p_price[case.f_bus] + self.optimum.p_price[case.t_bus])
        first, second, count = zone_of[case.f_bus], zone_of[case.t_bus], len(self.zones)
        sold = np.sign(second - first) * 0.5 * case.base_mva * (state.s_from - state.s_to).real
        pairs = count * np.minimum(first, second) + np.maximum(first, second)
        sums = [np.bincount(pairs, each) for each in (sold, sold * np.nan_to_num(price))]
        rows = []
        for pair in np.unique(pairs[first != second]).tolist():
            (energy, amount), ends = (float(total[pair]) for total in sums), divmod(pair, count)
            payer, paid = ends[::-1] if amount >= 0 else ends
            rows.append(
                {
                    "from_zone": self.zones[payer],
                    "to_zone": self.zones[paid],
                    "energy_mwh": energy if amount >= 0 else -energy,
                    "amount": abs(amount),
                }
            )
        return rows

    @property
    def slice(self) -> Json:
        """Corners of the domain in the net positions of the first two zones; the last balances."""
        case, names, corners = self.domain.case, self.zones, np.zeros((0, 2))
        slices = len(names) > 2
        if slices:
            most = float(np.minimum(np.maximum(case.pmax, 0.0), 1e6).sum())
            corners = case.base_mva * self.domain.slice(0, 1, len(names) - 1, most)
        return {
            "first_zone": names[0],
            "second_zone": names[1 if slices else -1],
            "balancing_zone": names[-1] if slices else None,
            "corners": [{"first_mw": x, "second_mw": y} for x, y in corners.tolist()],
        }

    @property
    def table(self) -> pd.DataFrame:
        """One row per branch, a column per zone's PTDF."""
        import pandas as pd

        rows = [
            {key: value for key, value in row.items() if key != "ptdf"}
            | {f"ptdf_{part['zone']}": part["ptdf"] for part in row["ptdf"]}
            for row in self.branches
        ]
        return pd.DataFrame(rows)

    def content(self) -> tuple[Case, Json]:
        """Return the analysed case, and its description."""
        return self.domain.case, {
            "ptdf_model": self.settings.ptdf,
            "zones": self.zone_rows,
            "branches": self.branches,
            "exchanges": self.exchanges,
            "domain": self.slice,
            "payments": self.payments,
        }


def exchange(
    result: RunResult, *, view: str = SHARED, ptdf: FlowModel = "dc", threshold: float = 5.0
) -> ExchangeResult:
    """Return the exchange between the zones of a run.

    Parameters
    ----------
    result : RunResult
    view : str
        ``shared``: the released demand of all zones; public. ``local``: the true demand.
        ``zone:NAME``: the true demand of one zone and the released demand of the others.
    ptdf : {'dc', 'ac'}
        Power flow of the PTDFs.
    threshold : float
        Percent of zone-to-zone PTDF above which a branch is listed; all rated branches limit.

    Raises
    ------
    InputError
        For a view that the run does not have, or a grid without ratings.
    SolverError
        If the demand has no AC optimum.
    """
    settings = FlowBased(view=view, ptdf=ptdf, threshold=threshold)
    began = time.perf_counter()
    case = result.case if view == LOCAL else viewed_case(result, view)
    optimum = viewed_optimum(result, case)
    domain = flow_domain(optimum.state, result.zoning.zone_of, ptdf)
    own = result.zoning.names, optimum, domain, _market(case, optimum.state.pg)
    return ExchangeResult(settings, *own, result=result, seconds=time.perf_counter() - began)


def _market(case: Case, pg: Floats) -> Floats | None:
    """Return the outputs of a market without a network in each island, p.u.

    Its total generation in an island is the same.
    """
    if not has_convex_costs(case):
        return None
    low = np.where(np.isfinite(case.pmin), case.pmin, pg)
    high = np.where(np.isfinite(case.pmax), case.pmax, pg)
    segments = np.array(
        [
            (g, *segment)
            for g, (cost, least, most) in enumerate(zip(case.cost, low, high, strict=True))
            for segment in marginal_segments(cost, case.base_mva, least, most)
        ]
    ).reshape(-1, 4)
    market, island = np.zeros(case.n_gen), islands(case)[case.gen_bus]
    for here in (island == number for number in np.unique(island)):
        own = segments[here[segments[:, 0].astype(np.int64)]]
        market += merit_order(np.where(here, low, 0.0), float(pg[here].sum()), own)
    return market
