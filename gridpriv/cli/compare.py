"""``gridpriv compare``: a study over budgets, mechanisms and seeds, and its report."""

from __future__ import annotations

import argparse
import math
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridpriv.cli.common import (
    REAL,
    STUDY_KEPT,
    WHOLE,
    console,
    output_folder,
    print_table,
    progress,
    resumable,
    write_json,
)
from gridpriv.core.errors import InputError, SolverError, missing_extra

if TYPE_CHECKING:
    from gridpriv.study import Study, StudyPlan

# packages without which a format cannot be written: asked for before the runs, not after
NEEDED = {"pdf": "typst", "xlsx": "openpyxl"}
LISTS: tuple[tuple[str, Any, str], ...] = (
    ("budgets", str, "certified totals, or total:E[;D] and per-release:E[;D]"),
    ("mechanisms", str, "none, laplace, gaussian"),
    ("perturbations", str, "objective, output, demand"),
    ("refresh", str, "update, round, run (demand only)"),
    ("updates", str, "exact, linearized"),
    ("local-updates", int, "values of E"),
    ("zonings", str, "K, METHOD:K or FILE.csv"),
    ("load-scales", float, "factors on every demand"),
    ("seeds", int, "N for 1 to N, or a list"),
)
COMMON: tuple[tuple[str, Any, str], ...] = (
    ("calibration", str, "sound | paper"),
    ("delta", REAL, "delta of one Gaussian release"),
    ("target-delta", REAL, "delta at which totals are stated"),
    ("beta", str, "adjacency distance: per unit, or such as 1MW"),
    ("protects", str, "p+q | p | q"),
    ("consensus", str, "boundary | all"),
    ("step", str, "nonsmooth | smooth | strongly-convex"),
    ("penalty", str, "a number, balanced, or growing:START,FACTOR,EVERY,MOST"),
    ("rounds", WHOLE, "number of rounds T"),
    ("solver", str, "clarabel (default) | ipopt | pyomo:NAME"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("case", nargs="*", metavar="CASE", help="cases by name, or paths")
    parser.add_argument("--study", metavar="FILE.toml", help="read the study from a file")
    axes = parser.add_argument_group("axes (comma-separated; without them, the default schemes)")
    for name, _, text in LISTS:
        axes.add_argument(f"--{name}", metavar="A,B,...", help=text)
    axes.add_argument("--per-release", action="store_true",
                      help="budgets are per release, as in the paper, not totals")  # fmt: skip
    common = parser.add_argument_group("settings of every run")
    common.add_argument("--preset", help="ryu-kim: the paper's settings")
    for name, kind, text in COMMON:
        common.add_argument(f"--{name}", type=kind, metavar=name.upper()[:12], help=text)
    common.add_argument("--outage", action="append", metavar="gen:N|branch:N",
                        help="take a row out of service")  # fmt: skip
    add_running(parser)
    parser.add_argument("--title", help="title of the report")
    parser.add_argument("--question", help="question that the report answers")


def add_running(parser: argparse.ArgumentParser) -> None:
    """Add how a study is run and where it goes."""
    parser.add_argument("--out", metavar="DIR", help="folder of the study (default: study-NAME)")
    parser.add_argument("--jobs", type=WHOLE, metavar="N", help="processes (default: all cores)")
    parser.add_argument("--cluster", metavar="ADDRESS", help="run on a Dask cluster instead")
    parser.add_argument("--resume", action="store_true", help="run what the folder does not hold")
    parser.add_argument(
        "--retry-failed", action="store_true", help="with --resume: failed runs too"
    )
    parser.add_argument("--time-limit", type=REAL, metavar="SECONDS", help="stop a run after this")
    parser.add_argument("--format", metavar="A,B,...", default="html",
                        help="reports to write: html, pdf, xlsx, csv, tex, none")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")


def execute(args: argparse.Namespace) -> int:
    """Run the study, write its folder and report, print the answer."""
    from gridpriv.study import read_plan

    formats = wanted_formats(args.format)
    if args.study:
        _refuse_axes(args)
        plan = read_plan(args.study)
    else:
        plan = _plan(args)
    if args.out is None:
        args.out = f"study-{plan.name or '-'.join(Path(c).stem for c in plan.cases)}"
    return finish(run_plan(plan, args), args, formats)


def run_plan(plan: StudyPlan, args: argparse.Namespace) -> Study:
    """Run a plan as the arguments say."""
    from gridpriv.study import compare

    output_folder(args.out)

    def bar(total: int) -> AbstractContextManager[Any]:
        return progress("study", total, quiet=args.quiet or args.json)

    with resumable(STUDY_KEPT):
        return compare(
            plan,
            out=args.out,
            jobs=args.jobs,
            cluster=args.cluster,
            resume=args.resume,
            retry_failed=args.retry_failed,
            time_limit=args.time_limit,
            progress=bar,
        )


def finish(study: Study, args: argparse.Namespace, formats: list[str]) -> int:
    """Write the reports and print the answer; exit code 3 if every run failed."""
    from gridpriv.report.export import export
    from gridpriv.report.summary import answers, summary

    files = export(args.out, formats) if formats else []
    table = summary(study)
    told = answers(study, table)
    if args.json:
        rows = table.astype(object).where(table.notna(), None).to_dict("records")
        write_json(
            {"folder": str(args.out), "answer": told, "summary": rows,
             "runs": len(study.runs), "failed": len(study.failed), "files": [str(f) for f in files]}
        )  # fmt: skip
    elif not args.quiet:
        print_summary(table)
        for line in told:
            console().print(line)
        tops = [f for f in files if f.parent == study.folder]
        console().print(f"\nWritten to {args.out}" + "".join(f"\n  {f}" for f in tops))
    tell_failures(study)
    return 0


def tell_failures(study: Study) -> None:
    """Warn of failed runs with the first one's reason; raise if every run failed."""
    if study.failed.empty:
        return
    words = f"{len(study.failed)} of {len(study.runs)} runs failed: {study.failed.reason.iloc[0]}"
    if study.done.empty:
        raise SolverError(words)
    console(error=True).print(f"warning: {words}")


def print_summary(table: Any) -> None:
    """Print the means over seeds, one table a case."""
    for panel, rows in table.groupby("panel", sort=False):
        print_table(
            f"{panel}: means over seeds, MW; shed is after local recourse",
            ["way", "budget", "total eps", "shed", "95 % +-", "imbalance", "seeds"],
            [
                [
                    r.series,
                    r.budget.partition(",")[0].replace("per-release:", "each "),
                    _number(r.total_epsilon),
                    _number(r.recourse_shed_mw),
                    _number(r.recourse_shed_mw_high - r.recourse_shed_mw),
                    _number(r.imbalance_mw),
                    int(r.seeds),
                ]
                for r in rows.itertuples()
            ],
        )


def wanted_formats(text: str) -> list[str]:
    """Return the formats of a comma-separated list; ``none`` for no report."""
    from gridpriv.core.errors import one_of
    from gridpriv.report.export import FORMATS

    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        one_of("format", name, (*FORMATS, "none"))
        if name in NEEDED and find_spec(NEEDED[name]) is None:
            raise missing_extra(NEEDED[name], "report", f"--format {name}")
    return [name for name in names if name != "none"]


def _plan(args: argparse.Namespace) -> StudyPlan:
    from gridpriv.study import make_plan

    if not args.case:
        raise InputError("name at least one case, or a study file with --study FILE.toml")
    given: dict[str, Any] = {}
    for name, kind, text in LISTS:
        value = getattr(args, name.replace("-", "_"))
        if value is not None:
            given[name.replace("-", "_")] = _values(name, value, kind, text)
    seeds = given.get("seeds")
    if seeds is not None and len(seeds) == 1 and "," not in args.seeds:
        given["seeds"] = seeds[0]
    settings = {
        name.replace("-", "_"): getattr(args, name.replace("-", "_"))
        for name, _, _ in (*COMMON, ("preset", str, ""))
        if getattr(args, name.replace("-", "_")) is not None
    }
    if args.outage:
        settings["outage"] = tuple(args.outage)
    told = {k: getattr(args, k) for k in ("title", "question") if getattr(args, k)}
    return make_plan(args.case, per_release=args.per_release, settings=settings, **told, **given)


def _values(name: str, text: str, kind: Any, allowed: str) -> list[Any]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InputError(f"--{name} = {text!r} is not allowed: an axis needs at least one value")
    try:
        return [kind(part.replace(";", ",") if name == "budgets" else part) for part in parts]
    except ValueError:
        raise InputError(f"--{name} = {text!r} is not allowed: {allowed}") from None


def _refuse_axes(args: argparse.Namespace) -> None:
    names: list[str] = [*(n for n, *_ in LISTS), *(n for n, *_ in COMMON), "preset", "outage"]
    given = [f"--{n}" for n in names if getattr(args, n.replace("-", "_")) is not None]
    if args.case or given or args.per_release:
        raise InputError(
            "--study names a whole study; put into the file what you give beside it: "
            + ", ".join([*args.case, *given, *(["--per-release"] if args.per_release else [])])
        )


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
