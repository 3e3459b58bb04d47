"""What a run returns: immutable figures, with tables at the edge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.agent import AgentRules
from gridpriv.consensus.coordinator import Consensus
from gridpriv.core.display import html_page
from gridpriv.core.lazy import Above
from gridpriv.core.tables import publish
from gridpriv.grid.case import Case
from gridpriv.grid.zoning import Zoning, zone_rows
from gridpriv.power.accheck import AcCheck
from gridpriv.power.binding import (
    SHED_TOLERANCE_MW,
    Binding,
    binding_limits,
    binding_sentence,
    binding_table,
)
from gridpriv.power.fleet import ZoneOutcome
from gridpriv.power.objective import generation_cost
from gridpriv.power.prices import balance_prices, price_unit, tie_prices
from gridpriv.power.recourse import Recourse
from gridpriv.power.solvers import solver_version
from gridpriv.power.zone import Network, Zone
from gridpriv.privacy.statement import ZoneStatement, noise_caveat
from gridpriv.zonal import summary
from gridpriv.zonal.schema import RUN_DOCUMENT
from gridpriv.zonal.settings import Settings
from gridpriv.zonal.trace import Trace

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Timing:
    """Seconds of a run's parts."""

    load: float
    build: float
    solve: float
    total: float


@dataclass(frozen=True, eq=False, repr=False)
class RunResult:
    """A finished (or failed) run.

    Figures that come from private demand are *local*: the owner may see them, a public
    export leaves them out. ``rounds`` and ``buses`` say which is which in ``local_columns``.
    ``statements`` are the zones' privacy losses in the order of the zone map; empty without noise.
    ``early`` is why the run ended before its last round, None where it did not.
    """

    case: Case
    zoning: Zoning
    settings: Settings
    zone_models: tuple[Zone, ...]
    shared: tuple[NDArray[np.bool_], ...]
    consensus: Consensus
    trace: Trace
    outcomes: tuple[ZoneOutcome, ...]
    seed: int
    rules: AgentRules
    recourse: Recourse | None
    ac: AcCheck | None
    statements: tuple[ZoneStatement, ...]
    timing: Timing
    early: str | None = None

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

        return pd.DataFrame(self._rounds)

    @cached_property
    def _rounds(self) -> list[dict[str, Any]]:
        return [
            {
                "round": r.round,
                "objective": r.figures["objective"],
                "consensus_residual": r.consensus_residual,
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
    def _zones(self) -> list[dict[str, Any]]:
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
        """One row per bus: zone, demand, shed (positive) or surplus, voltage; before recourse."""
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
        if self.recourse is not None:
            table["recourse_shed_mw"] = base * self.recourse.p_imbalance
            table["recourse_shed_mvar"] = base * self.recourse.q_imbalance
        return table

    @property
    def network(self) -> Network:
        """The grid as every zone numbers it."""
        return self.zone_models[0].network

    @cached_property
    def prices(self) -> pd.DataFrame:
        """What one more MW (MVAr) of demand at a bus costs its zone; local.

        Columns ``bus``, ``zone``, ``p_price``, ``q_price``, ``unit``
        (:mod:`gridpriv.power.prices`). After recourse, at the true demand: after a noisy round
        they would price the noise. Empty without recourse.
        """
        import pandas as pd

        buses = self.buses
        if self.recourse is None:
            return pd.DataFrame(columns=["bus", "zone", "p_price", "q_price", "unit"])
        active = balance_prices(self.network, self.recourse.p_imbalance)
        reactive = balance_prices(self.network, self.recourse.q_imbalance)
        table = buses[["bus", "zone"]].copy()
        return table.assign(p_price=active, q_price=reactive, unit=price_unit(self.network)[1])

    @cached_property
    def tie_prices(self) -> pd.DataFrame:
        """What one more unit of flow on a tie line costs each zone: duals, public."""
        import pandas as pd

        duals = self.consensus.split(self.trace.dual)
        held = zip(self.zone_models, self.shared, duals, strict=True)
        return pd.concat([tie_prices(*one) for one in held], ignore_index=True)

    @cached_property
    def binding(self) -> pd.DataFrame:
        """Limits that the dispatch after recourse stands at, one row each; local."""
        return binding_table(self._binding)

    @cached_property
    def _binding(self) -> tuple[Binding, ...]:
        if self.recourse is None:
            return ()
        return binding_limits(self.network, self.recourse.solution)

    @property
    def dispatch_cost(self) -> float | None:
        """Cost of the dispatch after recourse in $/h; local. None without costs or recourse."""
        if self.recourse is None or self.recourse.failed:
            return None
        start = self.network.offsets
        return generation_cost(self.case, self.recourse.solution[start["pg"] : start["qg"]])

    def explanation(self) -> str | None:
        """Return in a sentence how much is unserved after recourse and what binds; local."""
        if self.recourse is None:
            return None
        shed = float(self.recourse.as_dict(self.case.base_mva)["shed_mw"])
        bound = binding_sentence(self._binding)
        if not math.isfinite(shed):
            return f"no dispatch of zone {', '.join(self.recourse.failed)} fits what was agreed"
        if shed <= SHED_TOLERANCE_MW:
            return f"all load is served; {bound}"
        return f"{shed:.4g} MW cannot be served; {bound}"

    def as_dict(self, *, public: bool = False) -> dict[str, Any]:
        """Return the run as JSON can hold it.

        ``public`` leaves null whatever depends on private demand beyond the releases, solver
        effort and times included, and the seed, which would undo the noise.
        """
        document = {
            "case": self.case.name,
            "buses": self.case.n_bus,
            "zones": self._zone_rows(),
            "settings": self._settings(),
            "rounds": self._round_rows(),
            "ended": "early" if self.early else "finished",
            "reason": self.early,
            "final": self._final(),
            "privacy": self._privacy(),
            "solver": self._solver(),
            "timing": vars(self.timing),
            "seed": None if self.settings.noise == "secure" else self.seed,
            "version": _version(),
        }
        if public:
            protected = self.settings.mechanism != "none"
            document = publish(document, RUN_DOCUMENT, protected=protected)
        cleaned: dict[str, Any] = json_ready(document)
        return cleaned

    def to_pandapower(self, net: Any = None) -> Any:
        """Return a pandapower net that carries the dispatch after recourse; local.

        Parameters
        ----------
        net : pandapowerNet, optional
            The net the case came from; a new one is made without it.
        """
        from gridpriv.zonal.export import run_to_pandapower

        return run_to_pandapower(self, net)

    def _zone_rows(self) -> list[dict[str, Any]]:
        columns = ["zone", "buses", "variables", "shared", "tie_lines", "generators", "connected"]
        return [{key: row[key] for key in columns} for row in self._zones]

    def _round_rows(self) -> list[dict[str, Any]]:
        columns = (
            "round", "objective", "consensus_residual", "noise_magnitude", "shed_mw",
            "surplus_mw", "seconds", "cost",
        )  # fmt: skip
        return [{key: row[key] for key in columns if key in row} for row in self._rounds]

    def _final(self) -> dict[str, Any]:
        last = self.trace.rounds[-1] if self.trace.rounds else None
        figures = last.figures if last else {}
        keys = ("objective", "shed_mw", "surplus_mw", "shed_mvar", "surplus_mvar", "cost")
        final: dict[str, Any] = {key: figures.get(key) for key in keys}
        final["explanation"] = self.explanation()
        final["consensus_residual"] = last.consensus_residual if last else None
        final["recourse"] = {"objective": None, "shed_mw": None, "cost": None}
        final["ac"] = {"converged": None, "slack_mw": None, "vm_violations": None}
        if self.recourse is not None:
            final["recourse"] = self.recourse.as_dict(self.case.base_mva)
            final["recourse"]["cost"] = self.dispatch_cost
        if self.ac is not None:
            final["ac"] = self.ac.as_dict()
        return final

    def _privacy(self) -> dict[str, Any]:
        settings, statements = self.settings, self.statements
        worst = max(statements, key=lambda s: s.total, default=None)
        release = max(statements, key=lambda s: s.certified, default=None)
        return {
            "mechanism": settings.mechanism,
            "perturbation": self.rules.perturbation.target,
            "calibration": settings.calibration,
            "noise": settings.noise,
            "caveat": noise_caveat(settings.mechanism, settings.noise),
            "adjacency": str(self.rules.adjacency.protection(self.case.base_mva)),
            "beta": self.rules.adjacency.beta,
            "protects": settings.protects,
            "releases_per_zone": max((s.releases for s in statements), default=0),
            "per_release": {
                "claimed": release.claimed if release else None,
                "certified": release.certified if release else None,
                "delta": settings.release_delta if settings.mechanism == "gaussian" else 0.0,
            },
            "noise_multiplier": self.rules.noise.multiplier if self.rules.noise else None,
            "total_pure": max((s.total_pure for s in statements), default=None),
            "total": {"epsilon": worst.total if worst else None, "delta": settings.target_delta},
            "paper_total": self._paper_total(),
            "sensitivity": [vars(s) | {"ratio": s.ratio} for s in statements],
        }

    def _paper_total(self) -> float | None:
        """RK's theorem 4.6, under calibration ``paper`` with Gaussian noise; no certificate."""
        from gridpriv.privacy.accounting import paper_total

        settings = self.settings
        if settings.mechanism != "gaussian" or settings.calibration != "paper":
            return None
        return paper_total(
            settings.budget.epsilon,
            settings.release_delta,
            settings.planned_releases(),
            settings.target_delta,
        )

    def _settings(self) -> dict[str, Any]:
        shown = self.settings.as_dict() | {"zoning": self.zoning.source}
        if self.settings.objective == "cost":  # None stands for a default of the case's base
            shown["imbalance_weight"] = self.network.objective.weight
        return shown

    def _solver(self) -> dict[str, Any]:
        solves = sum(r.solves for r in self.trace.rounds)
        seconds = sum(r.seconds for r in self.trace.rounds)
        return {
            "name": self.settings.solver,
            "version": solver_version(self.settings.solver),
            "solves": solves,
            "failures": sum(r.retries for r in self.trace.rounds),
            "seconds_per_solve": seconds / solves if solves else None,
        }


def json_ready(value: Any) -> Any:
    """Replace numbers that JSON cannot hold by null, and numpy scalars by Python's."""
    if isinstance(value, dict):
        return {k: json_ready(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _version() -> str:
    from importlib.metadata import version

    return version("gridpriv")
