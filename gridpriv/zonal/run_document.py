"""Parts of a run's document; :mod:`gridpriv.zonal.documents` declares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gridpriv.consensus.memory import AgentRules
from gridpriv.core.document import Json
from gridpriv.grid.case import Case
from gridpriv.power.solvers import solver_version
from gridpriv.privacy.accounting import published_total
from gridpriv.privacy.statement import ZoneStatement, noise_caveat
from gridpriv.zonal.settings import Settings
from gridpriv.zonal.trace import Trace

if TYPE_CHECKING:
    from gridpriv.power.schedule import AcRounds


def redispatch_document(physical: Json) -> Json:
    """Return the zones' own plans in short; squared imbalance no longer applies to them."""
    return {
        "objective": None,
        "shed_mw": physical["shed_mw"],
        "surplus_mw": physical["curtailed_mw"],
        "cost": physical["generation_cost"],
        "failed_zones": physical["fallback_zones"],
    }


def ac_document(physical: Json) -> Json:
    """Return the AC state in short."""
    failure, outside = physical["failure"], physical["violations"] or ()
    band = [row["amount"] for row in outside if row["kind"] == "voltage"]
    lines = sum(row["kind"] == "line" for row in outside)
    state = (len(band), max(band, default=0.0), lines) if failure == "" else (None, None, None)
    return {
        "converged": None if failure is None else not failure,
        "slack_mw": physical["regulation_mw"],
        **dict(zip(("vm_violations", "vm_worst_pu", "loading_violations"), state, strict=True)),
    }


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


def totals(settings: Settings, statements: Sequence[ZoneStatement]) -> Json:
    """Return the certified total of the worst zone: 0 of no release, None without noise."""
    least = None if settings.mechanism == "none" else 0.0
    total = max((s.total for s in statements), default=least)
    return {
        "releases_per_zone": max((s.releases for s in statements), default=0),
        "total_pure": max((s.total_pure for s in statements), default=least),
        "total": {"epsilon": total, "delta": settings.target_delta},
    }


def privacy_document(
    settings: Settings, case: Case, rules: AgentRules, statements: Sequence[ZoneStatement]
) -> Json:
    """Return the privacy block of a run: certified totals of the worst zone and of every zone."""
    protected, paper = settings.protected(case), None
    if settings.mechanism == "gaussian" and settings.sensitivity == "published":
        planned = settings.planned_releases()  # RK's theorem 4.6; no certificate
        paper = published_total(
            settings.budget.epsilon, settings.release_delta, planned, settings.target_delta
        )
    release = max(statements, key=lambda s: s.certified, default=None)
    return {
        "mechanism": settings.effective_mechanism(),
        "perturbation": rules.perturbation.target,
        "sensitivity_bound": settings.sensitivity,
        "noise": settings.noise,
        "caveat": noise_caveat(settings.drawn, settings.noise),
        "adjacency": str(protected.protection(case.base_mva)),
        "beta": protected.beta,
        "protects": settings.protects,
        **totals(settings, statements),
        "per_release": {
            "nominal": release.nominal if release else None,
            "certified": release.certified if release else None,
            "delta": settings.release_delta if settings.mechanism == "gaussian" else 0.0,
        },
        "noise_multiplier": rules.noise.multiplier if rules.noise else None,
        "published_total": paper,
        "sensitivity": [s.as_dict() for s in statements],
    }


def solver_document(name: str, trace: Trace) -> Json:
    """Return a solver by name and version, and what its solves took."""
    solves = sum(r.solves for r in trace.rounds)
    seconds = sum(r.seconds for r in trace.rounds)
    return {
        "name": name,
        "version": solver_version(name),
        "solves": solves,
        "failures": sum(r.retries for r in trace.rounds),
        "seconds_per_solve": seconds / solves if solves else None,
    }
