"""From a run to rows of tables.

Every table has the column ``run`` (the task's identity). Whatever differs between two machines
or two attempts (seconds, process) stands in ``timing`` alone, so that the other tables of a
study are the same however it was run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gridpriv.core.document import Json
from gridpriv.core.stored import TABLES, Rows
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.release import Release
from gridpriv.study.plan import Task
from gridpriv.study.total import charge_rows
from gridpriv.zonal.settings import Settings

if TYPE_CHECKING:
    from pandas import DataFrame

    from gridpriv.zonal.result import RunResult

OUT_OF_ORDER = ("seconds",)
FINALS = (
    "objective", "consensus_residual", "shed_mw", "surplus_mw", "imbalance_mw", "shed_mvar",
    "recourse_shed_mw", "recourse_surplus_mw", "recourse_objective", "noise_magnitude",
    "recourse_cost", "cost", "balancing_mw", "interchange_deviation_mw", "carried", "explanation",
    "ac_converged", "ac_slack_mw", "ac_vm_violations", "ac_loading_violations",
    "releases_per_zone", "epsilon_claimed", "epsilon_certified", "release_delta", "total_pure",
    "total_epsilon", "target_delta", "paper_total", "solves", "solver_retries",
)  # fmt: skip
SETTINGS_SHOWN = (
    "mechanism", "perturbation", "refresh", "calibration", "protects", "power_factor", "beta",
    "update", "consensus", "local_updates", "rounds", "penalty", "solver", "load_scale", "noise",
)  # fmt: skip


def run_rows(told: Json, result: RunResult, reason: str = "") -> Rows:
    """Return a finished run's rows, or those of what a failed one finished.

    ``told`` is what the run is (:func:`identity`).
    """
    run = told["run"]
    rounds = result.rounds.drop(columns=list(OUT_OF_ORDER), errors="ignore")
    return {
        "runs": [told | _measured(result) | _status(result, reason)],
        "rounds": with_run(run, rounds),
        "zones": with_run(run, result.zones),
        "buses": with_run(run, result.buses),
        "statements": [
            {"run": run, **vars(s), "norm": str(s.norm), "ratio": s.ratio}
            for s in result.statements
        ],
        "charges": charge_rows(run, certified(result.trace.releases)),
        "timing": [{"run": run, "process": os.getpid(), **vars(result.timing)}],
    }


def certified(
    releases: Mapping[str, Mapping[Release, int]],
) -> dict[str, dict[Charge, int]]:
    """Return what every zone is charged for its releases."""
    found: dict[str, dict[Charge, int]] = {}
    for zone, counts in releases.items():
        spent = found.setdefault(zone, {})
        for release, count in counts.items():
            spent[release.certified] = spent.get(release.certified, 0) + count
    return found


def failed_rows(task: Task, reason: str) -> Rows:
    """Return the rows of a run that left nothing but a reason."""
    rows: Rows = {name: [] for name in TABLES}
    nothing = dict.fromkeys(FINALS)
    status = {"status": "failed", "reason": reason, "finished_rounds": 0}
    rows["runs"] = [identity(task) | nothing | status]
    return rows


def identity(task: Task) -> Json:
    """Return what a run is, as a row."""
    return {
        "run": task.id,
        "number": task.number,
        "case": task.case,
        "zoning": task.zoning,
        "scheme": task.scheme,
        "budget": task.budget,
        "seed": task.settings.seed,
    } | settings_shown(task.settings)


def settings_shown(settings: Settings) -> Json:
    """Return those of a run's settings that a row of the table of runs has."""
    told = settings.as_dict()
    return {name: told[name] for name in SETTINGS_SHOWN} | {"outage": " ".join(settings.outage)}


def _measured(result: RunResult) -> Json:
    noise = _mean(result.rounds.get("noise_magnitude", ()))
    return finals(result.as_dict()) | {"noise_magnitude": noise}


def finals(document: Json) -> Json:
    """Return a run's figures, from its document."""
    final, privacy = document["final"], document["privacy"]
    recourse, ac, physical = final["recourse"], final["ac"], final.get("physical", {})
    told = ("cost", "balancing_mw", "interchange_deviation_mw", "carried")
    return {
        "objective": final["objective"],
        "consensus_residual": final["consensus_residual"],
        "shed_mw": final["shed_mw"],
        "surplus_mw": final["surplus_mw"],
        "imbalance_mw": _sum(final["shed_mw"], final["surplus_mw"]),
        "shed_mvar": final["shed_mvar"],
        "recourse_shed_mw": recourse["shed_mw"],
        "recourse_surplus_mw": recourse.get("surplus_mw"),
        "recourse_objective": recourse["objective"],
        "recourse_cost": recourse.get("cost"),
        **{name: physical.get(name) for name in told},
        "explanation": final.get("explanation"),
        "ac_converged": ac["converged"],
        "ac_slack_mw": ac["slack_mw"],
        "ac_vm_violations": ac["vm_violations"],
        "ac_loading_violations": ac.get("loading_violations"),
        "releases_per_zone": privacy["releases_per_zone"],
        **privacy_figures(privacy),
        "paper_total": privacy.get("paper_total"),
        "solves": document["solver"]["solves"],
        "solver_retries": document["solver"]["failures"],
    }


def privacy_figures(privacy: Json) -> Json:
    """Return what a run's privacy block says of one release and of the total."""
    return {
        "epsilon_claimed": privacy["per_release"]["claimed"],
        "epsilon_certified": privacy["per_release"]["certified"],
        "release_delta": privacy["per_release"]["delta"],
        "total_pure": privacy["total_pure"],
        "total_epsilon": privacy["total"]["epsilon"],
        "target_delta": privacy["total"]["delta"],
    }


def _status(result: RunResult, reason: str) -> Json:
    finished = len(result.trace.rounds)
    return {
        "status": "failed" if reason else "done",
        "reason": reason or _warning(result),
        "finished_rounds": finished,
    }


def _warning(result: RunResult) -> str:
    """Return what a reader of a finished run should know: it moved away from agreement."""
    rounds = result.trace.rounds
    if len(rounds) > 1:
        first, last = rounds[0].consensus_residual, rounds[-1].consensus_residual
        if not math.isfinite(last) or last > max(first, 1e-6):
            return (
                f"did not converge: consensus residual {last:.3g} after round {len(rounds)}, "
                f"{first:.3g} after round 1"
            )
    if result.physical["fallback_zones"]:
        return f"no AC plan in zone {', '.join(result.physical['fallback_zones'])}"
    return ""


def with_run(run: str, table: DataFrame) -> list[Json]:
    """Return a table's rows, each with its run's identity."""
    return [{"run": run, **row} for row in table.to_dict("records")]


def _sum(*values: float | None) -> float | None:
    given = [v for v in values if v is not None]
    return math.fsum(given) if len(given) == len(values) else None


def _mean(values: Any) -> float | None:
    return float(sum(values) / len(values)) if len(values) else None
