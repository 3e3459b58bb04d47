"""The result of a run: immutable figures, with tables at the edge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.lazy import Above
from gridpriv.core.text import html_page
from gridpriv.power.ac.state import limit_table
from gridpriv.power.objective import has_convex_costs
from gridpriv.power.zone import Network, tie_prices
from gridpriv.zonal import summary
from gridpriv.zonal.run_document import FinishedRun

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.zonal.solution import GridSolution


@dataclass(frozen=True, eq=False, repr=False)
class RunResult(FinishedRun):
    """A finished (or failed) run, with tables and plots.

    Figures that come from private demand are *local*: the owner may see them, a public
    export leaves them out. ``rounds`` and ``buses`` say which is which in ``local_columns``.

    Attributes
    ----------
    case : Case
        As it was run: with its load scale and outages.
    zoning : Zoning
    settings : Settings
    shared : tuple of (n,) bool
        Which coordinates of each zone have another holder, in the order of ``zone_models``.
    seed : int
        Of the simulated noise.
    rules : AgentRules
        What every zone draws and by which update it goes on.
    hold : Hold or None
        Generation that zones set aside to keep the scheduled interchange.
    zone_models : tuple of Zone
        In the order of their keys, which no zone map changes.
    consensus : Consensus
        Which global variable each shared coordinate is.
    trace : Trace
        The finished rounds and every zone's releases.
    outcomes : tuple of ZoneOutcome
        What each zone ended with; local.
    disclosures : tuple
        What zones release of demand, zone by zone; None without a release.
    settlement : Settlement or None
        The grid after all zones have acted; None for a run that ended early.
    ac_rounds : AcRounds or None
        In which zones solved the AC optimal power flow; None where they did not.
    statements : tuple of ZoneStatement
        The zones' privacy losses in the order of the zone map; empty without noise.
    timing : Timing
        Seconds.
    early : str or None
        Why the run ended before its last round.
    reference : Reference or None
        Baselines of the run, where requested.
    """

    plot = Above("gridpriv.report.plots", "RunPlots")

    def __repr__(self) -> str:
        return f"RunResult({summary.line(self.as_dict())})"

    def _repr_html_(self) -> str:
        document = self.as_dict()
        return html_page(
            [summary.figures(document), summary.privacy_figures(document["privacy"])],
            summary.sentences(document),
        )

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row per round: objective (p.u. squared), residual, noise, shed in MW and MVAr."""
        import pandas as pd

        return pd.DataFrame(self.round_rows)

    @cached_property
    def zones(self) -> pd.DataFrame:
        """One row per zone: size, ties, and its own figures after the last round."""
        import pandas as pd

        return pd.DataFrame(self.zone_rows)

    @cached_property
    def buses(self) -> pd.DataFrame:
        """One row per bus: zone, demand, balance and voltage of the plan, shed after redispatch."""
        import pandas as pd

        base = self.case.base_mva
        p, q, w = (np.full(self.case.n_bus, np.nan) for _ in range(3))
        for zone, after in zip(self.zone_models, self.outcomes, strict=True):
            p[zone.own], q[zone.own] = after.p_imbalance, after.q_imbalance
            w[zone.own] = after.z[np.searchsorted(zone.buses, zone.own)]
        table = pd.DataFrame(
            {
                "bus": self.case.bus_id,
                "zone": [self.zoning.names[z] for z in self.zoning.zone_of],
                "pd_mw": base * self.case.pd,
                "qd_mvar": base * self.case.qd,
                "plan_shortage_mw": base * p,
                "plan_shortage_mvar": base * q,
                "vm_pu": np.sqrt(np.maximum(w, 0.0)),
            }
        )
        if self.settlement is not None:
            cut = self._of_buses("p_shed"), self._of_buses("q_shed")
            table["redispatch_shed_mw"], table["redispatch_shed_mvar"] = (
                base * cut[0],
                base * cut[1],
            )
        return table

    def _of_buses(self, name: str) -> Floats:
        """Return a figure that the zones' plans have of their own buses."""
        assert self.settlement is not None
        full = np.full(self.case.n_bus, np.nan)
        for zone, plan in zip(self.zone_models, self.settlement.plans, strict=True):
            full[zone.own] = getattr(plan, name)
        return full

    @property
    def network(self) -> Network:
        """The grid as every zone numbers it."""
        return self.zone_models[0].network

    @cached_property
    def prices(self) -> pd.DataFrame:
        """Price of one more MW (MVAr) of demand at each bus to its zone; local.

        Columns ``bus``, ``zone``, ``p_price``, ``q_price``, ``unit``: multipliers of the balance
        in the zone's own AC optimum, at its true demand, so they include the balancing price where
        the zone deviates from its schedule. Empty for a run that ended early.
        """
        import pandas as pd

        if self.settlement is None:
            return pd.DataFrame(columns=["bus", "zone", "p_price", "q_price", "unit"])
        return self.buses[["bus", "zone"]].assign(
            p_price=self._of_buses("p_price"),
            q_price=self._of_buses("q_price"),
            unit="$/MWh" if has_convex_costs(self.case) else "MW per MW",
        )

    @cached_property
    def tie_prices(self) -> pd.DataFrame:
        """Price of one more unit of flow on a tie line to each zone: duals, public.

        Without rows where the schedule is of AC rounds: the relaxation's rounds end before theirs.
        """
        import pandas as pd

        duals = self.consensus.split(self.trace.dual)
        current = zip(self.zone_models, self.shared, duals, strict=True)
        table = pd.concat([tie_prices(*item) for item in current], ignore_index=True)
        return table if self.ac_rounds is None else table.iloc[:0]

    @cached_property
    def binding(self) -> pd.DataFrame:
        """Limits that the settled grid stands at, one row each; local."""
        settled = self.settlement
        return limit_table(settled.state.binding if settled and settled.state else ())

    def to_pandapower(self, net: Any = None) -> Any:
        """Return a pandapower net that carries the dispatch after redispatch; local.

        Parameters
        ----------
        net : pandapowerNet, optional
            The net the case came from; a new one is made without it.
        """
        from gridpriv.zonal.export import to_pandapower

        return to_pandapower(self.solution, net)

    @cached_property
    def solution(self) -> GridSolution:
        """The settled grid, or where a run has none, what the last round's variables say; local.

        A variable that several zones hold is then the mean of their copies.
        """
        from gridpriv.zonal.solution import GridSolution, solution_of_variables

        if self.settlement is not None and self.settlement.state is not None:
            state = self.settlement.state
            return GridSolution(
                state.case,
                state.vm,
                state.va,
                state.s_from,
                state.s_to,
                state.pg,
                state.qg,
                state.p_shed - state.curtailment,
                state.q_shed,
                "settled grid",
            )
        size = self.network.offsets["end"]
        total, holders = np.zeros(size), np.zeros(size)
        for zone, after in zip(self.zone_models, self.outcomes, strict=True):
            total[zone.coordinates] += after.z
            holders[zone.coordinates] += 1.0
        return solution_of_variables(self.network, total / np.maximum(holders, 1.0), "last round")
