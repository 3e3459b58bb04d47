"""The result of a run: its values, document and tables.

:mod:`gridpriv.zonal.documents` declares the document.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from gridpriv.consensus.agent import AgentRules
from gridpriv.consensus.coordinator import Consensus
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.core.lazy import LazyAttribute
from gridpriv.core.tables import TableSchema, publish
from gridpriv.core.text import Json, html_page, json_ready
from gridpriv.grid.case import Case
from gridpriv.grid.zoning import zone_rows
from gridpriv.power.ac.grid_redispatch import GridRedispatch
from gridpriv.power.ac.state import GridState, limit_table
from gridpriv.power.objective import has_convex_costs
from gridpriv.power.problem import solver_version
from gridpriv.power.zone import Network, Zone, mean_of_copies, tie_prices
from gridpriv.power.zone_agent import ZoneOutcome
from gridpriv.privacy.accounting import published_total
from gridpriv.privacy.certificate import ZoneCertificate, noise_caveat
from gridpriv.privacy.linear import Disclosure
from gridpriv.zonal import summary
from gridpriv.zonal.documents import (
    Physical,
    Plans,
    Residuals,
    RoundRow,
    RunDocument,
    Timing,
    ZoneSize,
)
from gridpriv.zonal.messages import protected_change
from gridpriv.zonal.meter import message_noise_mw, meter_rows
from gridpriv.zonal.opening import Trace
from gridpriv.zonal.physical import (
    Reference,
    ac_state_summary,
    cost_of_privacy,
    solution_of_variables,
    verdict,
)
from gridpriv.zonal.prepared import Instance, Releases, zone_certificates
from gridpriv.zonal.settings import SHARED, FlowBased, Security, Settings
from gridpriv.zonal.summary import notes

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.power.schedule import AcRounds


def ac_rounds_document(rounds: AcRounds | None) -> Json | None:
    """Return number, residual and status of the AC rounds; None without them."""
    if rounds is None or not rounds.iterations:
        return None
    last = rounds.iterations[-1]
    return {
        "rounds": len(rounds.iterations),
        "converged": rounds.schedule is not None,
        "primal_residual": last.primal,
        "dual_residual": last.dual,
    }


def totals(settings: Settings, certificates: Sequence[ZoneCertificate]) -> Json:
    """Return the certified total of the worst zone: 0 without a release, None without noise."""
    least = None if settings.mechanism == "none" else 0.0
    total = max((s.total for s in certificates), default=least)
    return {
        "releases_per_zone": max((s.releases for s in certificates), default=0),
        "total_pure": max((s.total_pure for s in certificates), default=least),
        "total": {"epsilon": total, "delta": settings.total_delta},
    }


def privacy_document(
    settings: Settings, case: Case, rules: AgentRules, certificates: Sequence[ZoneCertificate]
) -> Json:
    """Return the privacy block of a run: certified totals of the worst zone and of every zone."""
    protected, paper = settings.protected(case), None
    if settings.mechanism == "gaussian" and settings.sensitivity == "published":
        planned = settings.planned_releases()  # RK's theorem 4.6; no certificate
        paper = published_total(
            settings.budget.epsilon, settings.release_delta, planned, settings.total_delta
        )
    release = max(certificates, key=lambda s: s.certified, default=None)
    return {
        "mechanism": settings.effective_mechanism(),
        "perturbation": rules.perturbation.target,
        "sensitivity_bound": settings.sensitivity,
        "noise": settings.noise,
        "caveat": noise_caveat(
            settings.noise_budget, settings.noise, settings.effective_mechanism()
        ),
        "adjacency": protected_change(settings, case),
        "beta": protected.beta,
        "protects": settings.protects,
        **totals(settings, certificates),
        "per_release": {
            "nominal": release.nominal if release else None,
            "certified": release.certified if release else None,
            "delta": settings.release_delta if settings.mechanism == "gaussian" else 0.0,
        },
        "noise_multiplier": rules.noise.multiplier if rules.noise else None,
        "published_total": paper,
        "sensitivity": [s.as_dict() for s in certificates],
    }


def solver_document(name: str, trace: Trace) -> Json:
    """Return a solver by name and version, and the effort of its solves."""
    solves = sum(r.solves for r in trace.rounds)
    seconds = sum(r.seconds for r in trace.rounds)
    return {
        "name": name,
        "version": solver_version(name),
        "solves": solves,
        "failures": sum(r.retries for r in trace.rounds),
        "seconds_per_solve": seconds / solves if solves else None,
    }


@dataclass(frozen=True, eq=False, repr=False)
class FinishedRun(Instance):
    """Values of a finished (or failed) run, and its document.

    Fields: see :class:`gridpriv.zonal.result.RunResult`, which adds tables and plots.
    """

    zone_models: tuple[Zone, ...]
    consensus: Consensus
    trace: Trace
    outcomes: tuple[ZoneOutcome, ...]
    disclosures: tuple[Disclosure | None, ...]
    redispatch: GridRedispatch | None
    ac_rounds: AcRounds | None
    certificates: tuple[ZoneCertificate, ...]
    timing: Timing
    early: str | None = None
    reference: Reference | None = None
    interrupted: int = 0

    def including(self, earlier: Releases, planned_earlier: Releases) -> Self:
        """Return the result with the releases of interrupted attempts at this run in its totals."""
        if not earlier:
            return self
        pairs = (self.trace.releases, earlier), (self.trace.counted, planned_earlier)
        drawn, planned = (
            {
                zone: Counter(releases.get(zone, {})) + Counter(before.get(zone, {}))
                for zone in self.zoning.names
                if zone in releases or zone in before
            }
            for releases, before in pairs
        )
        return replace(
            self,
            certificates=zone_certificates(drawn, self.settings, self.rules, planned),
            interrupted=max((sum(counts.values()) for counts in earlier.values()), default=0),
        )

    @property
    def consensus_residual(self) -> float | None:
        """Residual of the coupling constraints at the schedule, p.u.; public.

        ADMM's primal residual in the last round. Where zones solved the AC optimal power flow in
        rounds there are no copies of tie-end voltages: it is the largest residual of the equations.
        """
        return self.round_rows[-1]["consensus_residual"] if self.round_rows else None

    @cached_property
    def round_rows(self) -> list[Json]:
        """One row per round (:class:`gridpriv.zonal.documents.RoundRow`).

        Rounds on the AC equations have residuals only: the largest of the equations and of the
        Lagrangian's gradient. The last has the values of the plan that zones then exchanged.
        """
        rows = [
            {
                "round": r.round,
                "objective": r.metrics["objective"],
                "consensus_residual": r.consensus_residual,
                "consensus_residual_max": r.consensus_residual_max,
                "dual_residual": r.dual_residual,
                "noise_magnitude": r.noise_magnitude,
                **{k: v for k, v in r.metrics.items() if k != "objective"},
                "penalty_min": r.penalty[0],
                "penalty_max": r.penalty[1],
                "solver_iterations": r.iterations,
                "solver_retries": r.retries,
                "seconds": r.seconds,
            }
            for r in self.trace.rounds
        ]
        if self.ac_rounds is None or self.ac_rounds.schedule is None:
            return rows
        iterations = self.ac_rounds.iterations
        unknown: Json = dict.fromkeys(RoundRow.table.names)
        last = unknown | (rows[-1] if rows else {})  # none where the exchange failed
        names = ("round", *Residuals.table.names)
        rows = [unknown] * (len(iterations) - 1) + [last]
        return [
            row | dict(zip(names, (item.number, item.primal, item.primal, item.dual), strict=True))
            for row, item in zip(rows, iterations, strict=True)
        ]

    @cached_property
    def zone_rows(self) -> list[Json]:
        """One row per zone (:class:`gridpriv.zonal.documents.ZoneRow`)."""
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
    def physical(self) -> Json:
        """The AC state after redispatch in MW and $/h (:mod:`gridpriv.zonal.physical`); local."""
        if self.redispatch is None:
            return Physical().as_dict()
        return ac_state_summary(self.case, self.zone_models, self.redispatch, self.settings)

    @cached_property
    def privacy(self) -> Json:
        """Certified totals of the worst zone and of every zone (:func:`privacy_document`)."""
        block = privacy_document(self.settings, self.case, self.rules, self.certificates)
        return block | {"interrupted_releases_per_zone": self.interrupted}

    def explanation(self) -> str | None:
        """Return AC feasibility and load shedding in a sentence; local."""
        return None if self.redispatch is None else verdict(self.physical)

    def as_dict(self, *, public: bool = False) -> Json:
        """Return the run as a JSON value.

        With ``public`` everything is null that depends on true demand beyond the releases,
        including solver effort and times, and the seed, which would reveal the noise.
        """
        case, settings = self.case, self.settings
        document: Json = {
            "case": case.name,
            "buses": case.n_bus,
            "zones": [{name: row[name] for name in ZoneSize.table.names} for row in self.zone_rows],
            "released": [
                {
                    "zone": zone.name,
                    "statistics": disclosure.strategy.name,
                    "expected_error_mw": case.base_mva * disclosure.scale * disclosure.expected,
                }
                for zone, disclosure in zip(self.zone_models, self.disclosures, strict=True)
                if disclosure is not None
            ],
            "settings": settings.effective_values(case) | {"zoning": self.zoning.source},
            "rounds": self.round_rows,
            "ended": "early" if self.early else "finished",
            "reason": self.early,
            "messages": [],
            **self._outcome(self._meter()),
            "timing": self.timing.as_dict(),
            "seed": None if settings.noise == "secure" else self.seed,
            "version": version("gridpriv"),
        }
        document["messages"] = [note.as_dict() for note in notes(document)]
        if public:
            protected = self.settings.mechanism != "none"
            document = publish(document, RunDocument.table, protected=protected)
        return json_ready(document)

    def outcome(self) -> Json:
        """Return the part of :meth:`as_dict` that is not by round, setting or meter."""
        return json_ready(self._outcome(None))

    def _meter(self) -> list[Json] | None:
        """Return the disclosure by zones' meters (:class:`gridpriv.zonal.documents.Meter`)."""
        drawn = [self.trace.releases.get(zone.name, {}) for zone in self.zone_models]
        noises = [
            message_noise_mw(disclosure, self.rules, releases, self.case.base_mva)
            for disclosure, releases in zip(self.disclosures, drawn, strict=True)
        ]
        return meter_rows(self.zone_models, self.redispatch, noises)

    def _outcome(self, meter: list[Json] | None) -> Json:
        settings = self.settings
        return {
            "final": self._final(meter),
            "privacy": self.privacy,
            "solver": solver_document(settings.solver, self.trace),
        }

    def _final(self, meter: list[Json] | None) -> Json:
        """Return the values of a run after its last round and after redispatch."""
        last = self.round_rows[-1] if self.round_rows else {}
        costs = self.reference and cost_of_privacy(self.physical, self.reference)
        return {
            **{name: last.get(name) for name in Plans.table.names},
            "explanation": self.explanation(),
            **{name: last.get(name) for name in Residuals.table.names},
            "ac_rounds": ac_rounds_document(self.ac_rounds),
            "physical": self.physical | {"optimality_gap": costs and costs["optimality_gap"]},
            "meter": meter,
            "hold": self.hold and self.hold.rows(self.case.base_mva),
            "cost_of_privacy": costs,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class RunAnalysis(ABC):
    """An analysis of a run, on the demand of a view.

    Attributes
    ----------
    settings : FlowBased or Security
        With the view.
    result : FinishedRun
        The run.
    seconds : float
        Wall clock of the analysis.
    """

    schema: ClassVar[TableSchema]
    settings: FlowBased | Security
    result: FinishedRun
    seconds: float

    @abstractmethod
    def content(self) -> tuple[Case, Json]:
        """Return the analysed case, and its description."""

    @property
    def public(self) -> bool:
        """True if every value is a function of noisy releases and public data."""
        return self.settings.view == SHARED and self.result.settings.mechanism != "none"

    def as_dict(self, *, public: bool = False) -> Json:
        """Return the analysis as a JSON value; with ``public`` local values are null.

        Raises
        ------
        InputError
            If ``public`` is given for a local view.
        """
        if public and not self.public:
            raise InputError(
                "--public exports figures of releases with noise only, but --view "
                f"{self.settings.view} of this run follows from true demand. Take --view {SHARED} "
                "of a run with noise."
            )
        case, content = self.content()
        document: Json = {
            "case": case.name,
            "buses": case.n_bus,
            "view": self.settings.view,
            "visibility": "public" if self.public else "local",
            **content,
            "privacy": self.result.privacy,
            "seconds": self.seconds,
            "version": version("gridpriv"),
        }
        return json_ready(publish(document, self.schema, protected=True) if public else document)


@dataclass(frozen=True, eq=False, repr=False)
class RunResult(FinishedRun):
    """A finished (or failed) run, with tables and plots.

    Values that depend on true demand are *local*: the owner may see them, and a public export
    omits them. ``rounds`` and ``buses`` list them in ``local_columns``.

    Attributes
    ----------
    case : Case
        With the load scale and outages of the run.
    zoning : Zoning
    settings : Settings
    shared : tuple of (n,) bool
        True for coupling variables of each zone, in the order of ``zone_models``.
    seed : int
        Of the simulated noise.
    rules : AgentRules
        Noise and local update of every zone.
    hold : Hold or None
        Generation that zones set aside to keep the scheduled interchange.
    zone_models : tuple of Zone
        In the order of their keys, independent of the zone map.
    consensus : Consensus
        Global variable of each coupling coordinate.
    trace : Trace
        The finished rounds and every zone's releases.
    outcomes : tuple of ZoneOutcome
        Final state of each zone; local.
    disclosures : tuple
        Released statistics of each zone's demand; None without a release.
    redispatch : GridRedispatch or None
        The grid after AC redispatch; None for a run that ended early.
    ac_rounds : AcRounds or None
        Rounds on the AC equations; None without.
    certificates : tuple of ZoneCertificate
        The zones' privacy losses in the order of the zone map; empty without noise.
    timing : Timing
        Seconds.
    early : str or None
        Reason of an end before the last round.
    reference : Reference or None
        Baselines of the run, where requested.
    interrupted : int
        Largest number of releases of a zone in interrupted attempts; the certificates include them.
    """

    plot = LazyAttribute("gridpriv.report.plots", "RunPlots")

    def __repr__(self) -> str:
        return f"RunResult({summary.line(self.as_dict())})"

    def _repr_html_(self) -> str:
        document = self.as_dict()
        return html_page(
            [summary.summary_table(document), summary.privacy_table(document["privacy"])],
            [str(note) for note in notes(document)],
        )

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row per round: objective (p.u.^2), residual, noise, shed in MW and MVAr."""
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
        if self.redispatch is not None:
            table["redispatch_shed_mw"] = base * self._of_buses("p_shed")
            table["redispatch_shed_mvar"] = base * self._of_buses("q_shed")
        return table

    def _of_buses(self, name: str) -> Floats:
        """Return a value of zones' plans at their own buses."""
        assert self.redispatch is not None
        full = np.full(self.case.n_bus, np.nan)
        for zone, plan in zip(self.zone_models, self.redispatch.plans, strict=True):
            full[zone.own] = getattr(plan, name)
        return full

    @property
    def network(self) -> Network:
        """The grid in the numbering of the zones."""
        return self.zone_models[0].network

    @cached_property
    def zone_prices(self) -> pd.DataFrame:
        """Price of one more MW (MVAr) of demand at each bus to its zone; local.

        Columns ``bus``, ``zone``, ``p_price``, ``p_unit``, ``q_price``, ``q_unit``: multipliers of
        the balance in the zone's own AC optimum, at its true demand. They include the balancing
        price where the zone deviates from its schedule, so they are not nodal prices (LMP) of the
        grid. Empty for a run that ended early.
        """
        import pandas as pd

        if self.redispatch is None:
            return pd.DataFrame(columns=["bus", "zone", "p_price", "p_unit", "q_price", "q_unit"])
        priced = has_convex_costs(self.case)
        return self.buses[["bus", "zone"]].assign(
            p_price=self._of_buses("p_price"),
            p_unit="$/MWh" if priced else "MW per MW",
            q_price=self._of_buses("q_price"),
            q_unit="$/MVArh" if priced else "MW per MVAr",
        )

    @cached_property
    def tie_prices(self) -> pd.DataFrame:
        """Price of one more unit of flow on a tie line to each zone: duals, public.

        Without rows where the schedule is of AC rounds or of Newton steps: flows have no duals.
        """
        import pandas as pd

        duals = self.consensus.split(self.trace.dual)
        current = zip(self.zone_models, self.shared, duals, strict=True)
        table = pd.concat([tie_prices(*item) for item in current], ignore_index=True)
        newton = self.settings.effective_acceleration() == "newton"
        return table.iloc[:0] if newton or self.ac_rounds is not None else table

    @cached_property
    def binding(self) -> pd.DataFrame:
        """Binding limits of the grid after redispatch, one row each; local."""
        redispatch = self.redispatch
        return limit_table(redispatch.state.binding if redispatch and redispatch.state else ())

    def to_pandapower(self, net: Any = None) -> Any:
        """Return a pandapower net with the dispatch after redispatch; local.

        Parameters
        ----------
        net : pandapowerNet, optional
            The net that the case was converted from; without it a new net is made.
        """
        from gridpriv.zonal.tables import to_pandapower

        return to_pandapower(self.solution, net)

    @cached_property
    def solution(self) -> GridState:
        """The AC state after redispatch, or else the state of the last round's variables; local.

        A coupling variable is then the mean of its copies.
        """
        if self.redispatch is not None and self.redispatch.state is not None:
            s = self.redispatch.state
            shed = s.p_shed - s.curtailment, s.q_shed
            return GridState(s.case, s.vm, s.va, s.s_from, s.s_to, s.pg, s.qg, *shed)
        copies = [outcome.z for outcome in self.outcomes]
        z = mean_of_copies(self.network, self.zone_models, copies)
        return solution_of_variables(self.network, z)
