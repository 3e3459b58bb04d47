"""The result of a run: immutable figures, with tables at the edge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from gridpriv.consensus.coordinator import Consensus
from gridpriv.core.arrays import Floats
from gridpriv.core.display import html_page
from gridpriv.core.document import Json
from gridpriv.core.lazy import Above
from gridpriv.core.tables import publish
from gridpriv.core.text import json_ready
from gridpriv.grid.zoning import zone_rows
from gridpriv.power.ac.limits import limit_table
from gridpriv.power.ac.settle import Settlement
from gridpriv.power.fleet import ZoneOutcome
from gridpriv.power.objective import has_convex_costs
from gridpriv.power.prices import tie_prices
from gridpriv.power.zone import Network, Zone
from gridpriv.privacy.statement import ZoneStatement
from gridpriv.privacy.strategies.disclosure import Disclosure
from gridpriv.zonal import summary
from gridpriv.zonal.documents import Physical, RunDocument
from gridpriv.zonal.meter import meter_rows
from gridpriv.zonal.physical import (
    Reference,
    cost_of_privacy,
    optimality_gap,
    physical_figures,
    verdict,
)
from gridpriv.zonal.prepared import Instance
from gridpriv.zonal.rows import Timing, ZoneSize
from gridpriv.zonal.run_document import (
    ac_document,
    ac_rounds_document,
    privacy_document,
    redispatch_document,
    solver_document,
)
from gridpriv.zonal.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.power.schedule import AcRounds
    from gridpriv.zonal.solution import GridSolution


@dataclass(frozen=True, eq=False, repr=False)
class RunResult(Instance):
    """A finished (or failed) run.

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

    zone_models: tuple[Zone, ...]
    consensus: Consensus
    trace: Trace
    outcomes: tuple[ZoneOutcome, ...]
    disclosures: tuple[Disclosure | None, ...]
    settlement: Settlement | None
    ac_rounds: AcRounds | None
    statements: tuple[ZoneStatement, ...]
    timing: Timing
    early: str | None = None
    reference: Reference | None = None

    plot = Above("gridpriv.report.plots", "RunPlots")

    def __repr__(self) -> str:
        return f"RunResult({summary.line(self.as_dict())})"

    def _repr_html_(self) -> str:
        document = self.as_dict()
        return html_page(
            [summary.figures(document), summary.privacy_figures(document["privacy"])],
            summary.sentences(document),
        )

    @property
    def consensus_residual(self) -> float | None:
        """Residual of the coupling constraints at the schedule, p.u.; public.

        ADMM's primal residual in the last round. Where zones then solved the AC optimal power flow
        together they share tie-end voltages without copies: it is the largest residual of its
        equations.
        """
        if self.ac_rounds is not None and self.ac_rounds.schedule is not None:
            return self.ac_rounds.iterations[-1].primal
        return self.trace.rounds[-1].consensus_residual if self.trace.rounds else None

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row per round: objective (p.u. squared), residual, noise, shed in MW and MVAr."""
        import pandas as pd

        return pd.DataFrame(self._rounds)

    @cached_property
    def _rounds(self) -> list[Json]:
        return [
            {
                "round": r.round,
                "objective": r.figures["objective"],
                "consensus_residual": r.consensus_residual,
                "consensus_residual_max": r.consensus_residual_max,
                "dual_residual": r.dual_residual,
                "noise_magnitude": r.noise_magnitude,
                **{k: v for k, v in r.figures.items() if k != "objective"},
                "penalty_min": r.penalty[0],
                "penalty_max": r.penalty[1],
                "solver_iterations": r.iterations,
                "solver_retries": r.retries,
                "seconds": r.seconds,
            }
            for r in self.trace.rounds
        ]

    @cached_property
    def zones(self) -> pd.DataFrame:
        """One row per zone: size, ties, and its own figures after the last round."""
        import pandas as pd

        return pd.DataFrame(self._zones)

    @cached_property
    def _zones(self) -> list[Json]:
        size = {
            zone.name: {"variables": len(zone.coordinates), "shared": int(shared.sum())}
            for zone, shared in zip(self.zone_models, self.shared, strict=True)
        }
        last = self.trace.rounds[-1].by_agent if self.trace.rounds else {}
        return [
            row | size[row["zone"]] | last.get(row["zone"], {})
            for row in zone_rows(self.case, self.zoning)
        ]

    @cached_property
    def buses(self) -> pd.DataFrame:
        """One row per bus: zone, demand, shed (positive) or surplus, voltage; before redispatch."""
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
                "shed_mw": base * p,
                "shed_mvar": base * q,
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
        found = np.full(self.case.n_bus, np.nan)
        for zone, plan in zip(self.zone_models, self.settlement.plans, strict=True):
            found[zone.own] = getattr(plan, name)
        return found

    @property
    def network(self) -> Network:
        """The grid as every zone numbers it."""
        return self.zone_models[0].network

    @cached_property
    def prices(self) -> pd.DataFrame:
        """Price of one more MW (MVAr) of demand at each bus to its zone; local.

        Columns ``bus``, ``zone``, ``p_price``, ``q_price``, ``unit``: multipliers of the balance
        in the zone's AC optimum, at its true demand. Empty for a run that ended early.
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
        """Price of one more unit of flow on a tie line to each zone: duals, public."""
        import pandas as pd

        duals = self.consensus.split(self.trace.dual)
        held = zip(self.zone_models, self.shared, duals, strict=True)
        return pd.concat([tie_prices(*one) for one in held], ignore_index=True)

    @cached_property
    def binding(self) -> pd.DataFrame:
        """Limits that the settled grid stands at, one row each; local."""
        settled = self.settlement
        return limit_table(settled.state.binding if settled and settled.state else ())

    @cached_property
    def physical(self) -> Json:
        """The AC state after redispatch in MW and $/h (:mod:`gridpriv.zonal.physical`); local."""
        if self.settlement is None:
            return Physical().as_dict()
        return physical_figures(self.case, self.zone_models, self.settlement, self.settings)

    def explanation(self) -> str | None:
        """Return AC feasibility and load shedding in a sentence; local."""
        return None if self.settlement is None else verdict(self.physical)

    def as_dict(self, *, public: bool = False) -> Json:
        """Return the run as JSON can hold it.

        ``public`` leaves null whatever depends on private demand beyond the releases, solver
        effort and times included, and the seed, which would undo the noise.
        """
        document = {
            "case": self.case.name,
            "buses": self.case.n_bus,
            "zones": [{name: row[name] for name in ZoneSize.table.names} for row in self._zones],
            "released": self._released_rows(),
            "settings": self.settings.told_of(self.case) | {"zoning": self.zoning.source},
            "rounds": self._rounds,
            "ended": "early" if self.early else "finished",
            "reason": self.early,
            "messages": [],
            "final": self._final(),
            "privacy": privacy_document(self.settings, self.case, self.rules, self.statements),
            "solver": solver_document(self.settings.solver, self.trace),
            "timing": self.timing.as_dict(),
            "seed": None if self.settings.noise == "secure" else self.seed,
            "version": version("gridpriv"),
        }
        document["messages"] = [note.as_dict() for note in summary.notes(document)]
        if public:
            protected = self.settings.mechanism != "none"
            document = publish(document, RunDocument.table, protected=protected)
        cleaned: Json = json_ready(document)
        return cleaned

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

    def _released_rows(self) -> list[Json]:
        return [
            {
                "zone": zone.name,
                "statistics": found.strategy.name,
                "expected_error_mw": self.case.base_mva * found.scale * found.expected,
            }
            for zone, found in zip(self.zone_models, self.disclosures, strict=True)
            if found is not None
        ]

    def _final(self) -> Json:
        last = self.trace.rounds[-1] if self.trace.rounds else None
        figures = last.figures if last else {}
        keys = ("objective", "shed_mw", "surplus_mw", "shed_mvar", "surplus_mvar", "cost")
        final: Json = {key: figures.get(key) for key in keys}
        final["explanation"] = self.explanation()
        final["consensus_residual"] = self.consensus_residual
        for name in ("consensus_residual_max", "dual_residual"):
            final[name] = getattr(last, name, None)
        final["ac_rounds"] = on_ac = ac_rounds_document(self.ac_rounds)
        if on_ac is not None and on_ac["converged"]:
            final["consensus_residual_max"] = on_ac["primal_residual"]
            final["dual_residual"] = on_ac["dual_residual"]
        final["redispatch"] = redispatch_document(self.physical)
        final["ac"] = ac_document(self.physical)
        gap = None if self.reference is None else optimality_gap(self.physical, self.reference)
        final["physical"] = self.physical | {"optimality_gap": gap}
        final["meter"] = meter_rows(self)
        final["hold"] = None if self.hold is None else self.hold.rows(self.case.base_mva)
        final["cost_of_privacy"] = None
        if self.reference is not None:
            final["cost_of_privacy"] = cost_of_privacy(self.physical, self.reference)
        return final
