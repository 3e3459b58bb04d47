"""``gridpriv audit``: whether the code delivers the epsilon that it states."""

from __future__ import annotations

import argparse
import itertools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gridpriv.cli.flags import REAL, WHOLE, hide_what_runs_only, studied_run
from gridpriv.cli.output import output_folder, print_table, tell, write_results
from gridpriv.cli.progress import progress
from gridpriv.cli.run import add_arguments as add_run_arguments
from gridpriv.core.document import Json
from gridpriv.core.errors import InputError
from gridpriv.core.settings import settings_of
from gridpriv.grid.case import Case
from gridpriv.zonal.settings import Settings

if TYPE_CHECKING:
    from gridpriv.assurance.audit_result import AuditPlan, AuditResult
    from gridpriv.grid.zoning import Zoning

FAILED = 1
LEARNING = "learning"  # in the place of a case: the algorithms of gridpriv learn
SWEPT = ("perturbation", "mechanism", "update")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``run`` and the audit's own."""
    add_run_arguments(parser)
    hide_what_runs_only(parser)
    parser.add_argument(
        "--runs",
        type=WHOLE,
        metavar="N",
        help=(
            "runs on each of two neighbouring demands (default: 50000 at level release, 10000 "
            "at solution, 3000 at messages)"
        ),
    )
    parser.add_argument(
        "--confidence", type=REAL, default=0.999, metavar="C", help="confidence of the bound"
    )
    parser.add_argument(
        "--audit-rounds",
        type=WHOLE,
        default=5,
        metavar="R",
        help="number of rounds that are replayed",
    )
    parser.add_argument(
        "--levels",
        default="release,solution,messages",
        metavar="A,B",
        help="what the adversary observes, comma-separated: release | solution | messages",
    )
    parser.add_argument(
        "--bus",
        type=WHOLE,
        metavar="BUS",
        help=(
            "bus whose demand differs between the neighbours (default: the bus of largest "
            "sensitivity)"
        ),
    )
    parser.add_argument(
        "--sweep", action="store_true", help="audit every perturbation, mechanism and update"
    )


def execute(args: argparse.Namespace) -> int:
    """Audit; print or write the verdict; return 1 if what is certified does not hold."""
    if args.case == LEARNING:
        return _learning(args)
    from gridpriv.assurance.audit import RUNS
    from gridpriv.assurance.audit_result import AuditPlan

    case, zoning, settings = studied_run(args)
    levels = tuple(args.levels.split(","))
    runs = None if args.runs is None else dict.fromkeys(RUNS, args.runs)
    plan = AuditPlan(runs, args.confidence, args.audit_rounds, levels=levels, bus=args.bus)
    folder = output_folder(args.out)
    chosen = sweep(settings) if args.sweep else [settings]
    results = [_one(case, zoning, each, plan, args) for each in chosen]
    documents = [result.as_dict() for result in results]
    document = {"audits": documents} if args.sweep else documents[0]
    if folder is not None:
        write_results(folder, "audit", document)
        if not args.sweep:
            _draw(results[0], folder)
    tell(args, document, lambda: _print(results, args.sweep), folder)
    return 0 if all(result.passed for result in results) else FAILED


def _learning(args: argparse.Namespace) -> int:
    """Audit the algorithms of ``gridpriv learn`` on made samples."""
    from gridpriv.assurance.learned import audit_learning

    checks = audit_learning()
    failed = [check for check in checks if not check.passed]
    verdict = "violation" if failed else "consistent"
    document: Json = {"case": LEARNING, "checks": [c.as_dict() for c in checks], "verdict": verdict}
    folder = output_folder(args.out)
    if folder is not None:
        write_results(folder, "audit", document)
    title = "gridpriv learn: replay on a neighbour, total by numerical integration, law of noise"
    rows = [[c.lane, c.check, c.measured, c.allowed, "yes" if c.passed else "NO"] for c in checks]
    heads = ["algorithm", "check", "measured", "allowed", "passed"]

    def show() -> None:
        print_table(title, heads, rows)
        print(f"Verdict: {verdict}; {len(failed)} of {len(checks)} checks failed.")

    tell(args, document, show, folder)
    return FAILED if failed else 0


def sweep(settings: Settings) -> list[Settings]:
    """Return the settings with every perturbation, mechanism and update (sound calibration)."""
    if settings.mechanism == "none" or settings.sensitivity == "published":
        raise InputError("--sweep needs a mechanism and --sensitivity proven")
    budget = settings.budget
    if budget.scope == "total" and budget.delta is None:
        budget = replace(budget, scope="per-release")
    held = settings_of(type(settings))
    found = []
    for place in itertools.product(*(held[name].choices for name in SWEPT)):
        changes: Json = dict(zip(SWEPT, place, strict=True))
        changes["noise_schedule"] = (
            settings.noise_schedule if changes["perturbation"] == "demand" else None
        )
        if changes["mechanism"] in ("laplace", "gaussian"):
            found.append(replace(settings, budget=budget, **changes))
    return found


def _one(
    case: Case, zoning: Zoning, settings: Settings, plan: AuditPlan, args: argparse.Namespace
) -> AuditResult:
    from gridpriv.assurance.audit import audit
    from gridpriv.zonal.prepared import prepare

    total = 100 * len(plan.levels) + zoning.n_zone
    label = f"{case.name} {settings.perturbation}"
    with progress(args, label, total) as advance:
        return audit(prepare(case, zoning, settings), plan, watch=advance)


def _draw(result: AuditResult, folder: Path) -> None:
    from gridpriv.report.assurance import audit_bars
    from gridpriv.report.figures import write_figure

    write_figure(audit_bars(result), folder / "audit.png", private=True)


def _print(results: list[AuditResult], many: bool) -> None:
    if many:
        print_table(
            f"{results[0].prepared.case.name}: audit of {len(results)} configurations",
            ["configuration", "level", "nominal", "certified", "measured", "verdict"],
            [row for result in results for row in _sweep_rows(result)],
        )
        failed = sum(not result.passed for result in results)
        print(f"{len(results) - failed} of {len(results)} configurations hold what is certified.")
        return
    document = results[0].as_dict()
    _print_replay(document)
    print_table(
        f"Statistical audit, bus {document['neighbour']['bus']} of zone {document['zone']}, "
        f"{100 * document['confidence']:g} % confidence",
        ["observed", "delta", "nominal", "cert.", "measured", "runs", "sees", "verdict"],
        [
            [
                r["level"],
                r["delta"],
                r["nominal"],
                r["certified"],
                r["measured"],
                r["runs"],
                r["detectable"],
                r["verdict"].removeprefix("claim "),
            ]
            for r in document["statistical"]
        ],
    )
    print(
        "nominal: epsilon according to the settings; cert.: certified epsilon, as charged;\n"
        "measured: lower bound of epsilon; sees: least epsilon above the nominal one that\n"
        "this number of runs detects."
    )
    print(f"Verdict: {document['verdict']}.")


def _sweep_rows(result: AuditResult) -> list[list[object]]:
    document: Json = result.as_dict()
    name = " ".join(str(document["settings"][k]) for k in ("perturbation", "mechanism", "update"))
    replayed = all(row["passed"] for row in document["replay"])
    rows: list[list[object]] = [
        [name, r["level"], r["nominal"], r["certified"], r["measured"], r["verdict"]]
        for r in document["statistical"]
    ]
    ratio = next(row["ratio"] for row in document["replay"] if row["check"] == "values")
    verdict = "consistent" if replayed else "violation"
    return [*rows, [name, "replay (of declared)", None, 1.0, ratio, verdict]]


def _print_replay(document: Json) -> None:
    what = {
        "calls": "releases asked for differently",
        "values": "private value moved, at most",
        "messages": "messages moved",
        "history": "state that outlives a release",
        "noise": "coordinates without noise",
        "coordinator": "orders that differ on other data",
        "rounds": "coordinates without noise, all rounds",
        "outputs": "exact minimiser moved, of what is declared",
        "law": "noise against its law, -log10 of chance",
        "independence": "agreement of noise, from a half",
        "public state": "public state that follows demand",
        "public bytes": "messages and files that follow demand",
        "series": "statistics of a series moved, at most",
        "stream": "loss of a window of a stream",
        "low bits": "sums with secure noise on the value's grid",
    }
    print_table(
        f"{document['case']}: replay on neighbouring demand, releases frozen",
        ["check", "neighbours", "measured", "allowed", "passed"],
        [
            [what[r["check"]], r["neighbours"], r["measured"], r["allowed"], r["passed"]]
            for r in document["replay"]
        ],
    )
