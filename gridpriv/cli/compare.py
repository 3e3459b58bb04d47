"""``gridpriv compare``: a study over budgets, mechanisms and seeds, and its report."""

from __future__ import annotations

import argparse
import math
import os
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridpriv.cli.flags import (
    REAL,
    WHOLE,
    add_formats,
    add_output,
    add_settings,
    listed,
    named_settings,
    refuse_beside_study,
    wanted_formats,
)
from gridpriv.cli.output import console, output_folder, print_table, tell
from gridpriv.cli.progress import progress
from gridpriv.core.display import amount, counted
from gridpriv.core.document import Json
from gridpriv.core.errors import InputError, SolverError, not_allowed
from gridpriv.core.settings import Setting, names, reading, settings_of
from gridpriv.zonal.settings import PRESETS, Settings

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.report.document import Report
    from gridpriv.study import Study, StudyPlan

OWN_FLAGS = ("budget", "seed", "load_scale", "local_updates")
KINDS = {"local-updates": reading(int), "load-scales": reading(float), "seeds": reading(int)}
AXES = {
    "budgets": (
        "certified total epsilons, or budgets as total:E[;D] or per-release:E[;D] (default: "
        "0.5,1,5,10)"
    ),
    "local-updates": "numbers of local updates E of a round (default: that of each method)",
    "load-scales": "factors on the demand of every bus (default: 1)",
    "zonings": "zone maps: K, PARTITION:K or FILE.csv (default: the shipped map of each case)",
    "seeds": "number of seeds N (1 to N), or a list (default: 1,2,3,4,5)",
}
EXAMPLE = "once: noise_schedule=once"
METHOD = (
    "method to compare, as 'NAME: SETTING=VALUE ...'; repeatable (default: the recommended and "
    "the published methods)"
)

EPILOG = (
    "A setting with one value applies to every run. With several values, comma-separated or "
    "repeated, every method runs at each of them. A method's own value takes precedence. If "
    "mechanism, perturbation, noise_schedule or update is given, the combinations of their "
    "values replace the default methods."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("case", nargs="*", metavar="CASE", help="cases by name, or paths")
    parser.add_argument(
        "--study", metavar="FILE", help="read the study from a TOML or JSON file (default: none)"
    )
    parser.add_argument("--method", action="append", metavar="METHOD", help=METHOD)
    axes = parser.add_argument_group("axes", "Values at which every method runs, comma-separated.")
    for name, text in AXES.items():
        axes.add_argument(f"--{name}", metavar="A,B,...", help=text)
    axes.add_argument(
        "--per-release",
        action="store_true",
        help="read budgets as epsilons per release, as in the paper, not as totals",
    )
    parser.epilog = EPILOG
    add_settings(
        parser, Settings, PRESETS, without=(*OWN_FLAGS, "temporal_basis", "stream"), axis=True
    )
    for name in ("mechanism", "perturbation", "update"):  # as they were called before
        parser.add_argument(f"--{name}s", dest=name, action="append", help=argparse.SUPPRESS)
    add_running(parser)
    parser.add_argument(
        "--no-reference",
        dest="reference",
        action="store_false",
        default=None,
        help="leave out the noise-free and the prior-only baseline",
    )
    dry = "check the study, print its runs and the estimated time, run nothing"
    parser.add_argument("--dry-run", action="store_true", help=dry)
    parser.add_argument(
        "--title", metavar="TEXT", help="title of the report (default: a general one)"
    )
    question = "question that the report answers (default: a general one)"
    parser.add_argument("--question", metavar="TEXT", help=question)


def add_running(parser: argparse.ArgumentParser) -> None:
    """Add how a study is run and where it goes."""
    parser.add_argument("--jobs", type=WHOLE, metavar="N", help="processes (default: all cores)")
    parser.add_argument(
        "--cluster", metavar="ADDRESS", help=("address of a Dask cluster that runs the study")
    )
    parser.add_argument("--resume", action="store_true", help="run only what the folder lacks")
    parser.add_argument(
        "--retry-failed", action="store_true", help="with --resume, also repeat failed runs"
    )
    parser.add_argument("--time-limit", type=REAL, metavar="SECONDS", help="time limit of one run")
    add_formats(parser)
    add_output(parser, "folder of the study (default: study-NAME)")


def execute(args: argparse.Namespace) -> int:
    """Run the study, write its folder and report, print the answer."""
    from gridpriv.study import compare, read_plan

    formats = wanted_formats(args)
    if args.study:
        _refuse_axes(args)
        plan = read_plan(args.study)
    else:
        plan = _plan(args)
    if args.dry_run:
        return _dry_run(plan, args)
    if args.out is None:
        args.out = f"study-{plan.name or '-'.join(Path(c).stem for c in plan.cases)}"
    output_folder(args.out)
    study = compare(
        plan,
        out=args.out,
        jobs=args.jobs,
        cluster=args.cluster,
        resume=args.resume,
        retry_failed=args.retry_failed,
        time_limit=args.time_limit,
        progress=partial(progress, args, "study"),
    )
    return finish(study, args, formats)


def _dry_run(plan: StudyPlan, args: argparse.Namespace) -> int:
    """Check a study and print how many runs it has and their time."""
    from gridpriv.study.estimate import estimate
    from gridpriv.study.grids import load_grids

    grids = load_grids(plan)
    tasks = [(grids[task.case, task.zoning].case, task.settings) for task in plan.tasks()]
    jobs = args.jobs or os.cpu_count() or 1
    found = estimate(tasks, jobs)
    tell(args, vars(found) | {"jobs": jobs}, lambda: print(f"{found} in {counted(jobs, 'job')}"))
    return 0


def finish(study: Study, args: argparse.Namespace, formats: list[str]) -> int:
    """Write the reports and print the answer; exit code 3 if every run failed."""
    files, table, report = reported(study, formats)
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    document = {
        "folder": str(args.out),
        **verdict(report),
        "summary": rows,
        "runs": len(study.runs),
        "failed": len(study.failed),
        "files": [str(f) for f in files],
    }

    def summarise() -> None:
        print_cards(report)
        print_summary(table)
        print_messages(report)

    tops = [str(f) for f in files if f.parent == study.folder]
    tell(args, document, summarise, "\n  ".join([str(args.out), *tops]))
    tell_failures(study)
    return 0


def reported(study: Study, formats: list[str]) -> tuple[list[Path], pd.DataFrame, Report]:
    """Write the reports of a study; return them, its summary and the report."""
    from gridpriv.report.document import make_report
    from gridpriv.report.export import export
    from gridpriv.report.source import read_source
    from gridpriv.report.summary import summary

    files = export(study.folder, formats) if formats else []
    return files, summary(study), make_report(read_source(study.folder))


def verdict(report: Report) -> Json:
    """Return the cards and messages of a report as JSON can hold them."""
    return {
        "verdict": [{"title": c.title, "facts": [vars(f) for f in c.facts]} for c in report.cards],
        "messages": [message.as_dict() for message in report.messages],
    }


def print_cards(report: Report) -> None:
    """Print the verdict cards and the warnings of a report."""
    for card in report.cards:
        console().print(card.title, style="bold", soft_wrap=True)
        width = max(len(fact.label) for fact in card.facts) + 4
        for fact in card.facts:
            label = f"  {fact.label}".ljust(width)
            for part in filter(None, (fact.value, fact.note)):
                print(textwrap.fill(part, 80, initial_indent=label, subsequent_indent=" " * width))
                label = " " * width
        print()
    print_messages(report, ("warning",))


def print_messages(report: Report, severities: tuple[str, ...] = ("info", "next")) -> None:
    """Print the messages of some severities."""
    for message in report.messages:
        if message.severity in severities:
            head = HEADS.get(message.severity, "")
            print(textwrap.fill(f"{head}{message}", 80, subsequent_indent="  "))


HEADS = {"warning": "warning: ", "next": "next: "}


def tell_failures(study: Study) -> None:
    """Warn of failed runs with the first one's reason; raise if every run failed."""
    if study.failed.empty:
        return
    words = f"{len(study.failed)} of {len(study.runs)} runs failed: {study.failed.reason.iloc[0]}"
    if study.done.empty:
        raise SolverError(words)
    console(error=True).print(f"warning: {words}")


def print_summary(table: pd.DataFrame) -> None:
    """Print the means over seeds, one table a case; what no run has is no column."""
    for panel, rows in table.groupby("panel", sort=False):
        seeds = sorted({int(n) for n in rows.seeds})
        many = "" if len(seeds) == 1 else f"{seeds[0]} to "
        beyond = rows.cost_of_privacy_high - rows.cost_of_privacy
        told = {
            "method": list(rows.series),
            "eps": [_number(x) for x in rows.total_epsilon],
            "privacy $/h": [amount(x, "$/h") for x in rows.cost_of_privacy],
            "95 % +-": [amount(x, "$/h") for x in beyond],
            "shed MW": [amount(x, "MW") for x in rows.redispatch_shed_mw],
            "deviation MW": [amount(x, "MW") for x in rows.interchange_deviation_mw],
            "ok %": [None if _number(x) is None else round(100.0 * x) for x in rows.ac_feasible],
        }
        known = {name: cells for name, cells in told.items() if any(c is not None for c in cells)}
        print_table(
            f"{panel}: means over {many}{counted(seeds[-1], 'seed')} after AC redispatch; "
            "ok: AC-feasible",
            list(known),
            list(zip(*known.values(), strict=True)),
        )
    if table.cost_of_privacy.notna().any():
        console().print(
            "privacy $/h: generation and load shedding over the cheapest noise-free method, "
            "without payments between zones for balancing power"
        )


def _plan(args: argparse.Namespace) -> StudyPlan:
    from gridpriv.study import make_plan
    from gridpriv.study.methods import WAYS, make_method

    if not args.case:
        raise InputError("name at least one case, or a study file with --study FILE.toml")
    settings = {} if args.preset is None else {"preset": args.preset}
    axes: Json = {}
    for name, one in settings_of(Settings).items():
        texts = getattr(args, name, None)
        if texts is None or name in OWN_FLAGS:
            continue
        values = tuple(texts) if one.repeated else values_of(name, one, texts)
        single = one.repeated or (len(values) == 1 and name not in WAYS)
        (settings if single else axes)[name] = values if one.repeated or not single else values[0]
    own = ("title", "question", "reference")
    told = {k: getattr(args, k) for k in own if getattr(args, k) is not None}
    read = [named_settings(text, Settings, EXAMPLE, "preset") for text in args.method or ()]
    methods = [make_method(name, **given) for name, given in read]
    return make_plan(
        args.case,
        per_release=args.per_release,
        methods=methods,
        settings=settings,
        **_own_axes(args),
        **told,
        **axes,
    )


def values_of(name: str, setting: Setting, texts: Sequence[str]) -> list[Any]:
    """Return the values that a flag names: each text is one, or several by commas."""
    found: list[Any] = []
    for text in texts:
        try:
            found.append(setting.settled(name, setting.read(text)))
        except InputError:  # a notation such as geometric:1,2,3,4 has commas of its own
            parts = listed(text)
            if not parts:
                raise
            found += [setting.settled(name, setting.read(part)) for part in parts]
    return found


def _own_axes(args: argparse.Namespace) -> Json:
    found: Json = {}
    for name in AXES:
        axis = name.replace("-", "_")
        text = getattr(args, axis)
        if text is None:
            continue
        found[axis] = [KINDS.get(name, str)(part) for part in listed(text)]
        if not found[axis]:
            raise not_allowed(name, text, "one value or more")
    if "budgets" in found:
        found["budgets"] = [part.replace(";", ",") for part in found["budgets"]]
    if len(found.get("seeds", ())) == 1 and "," not in args.seeds:
        found["seeds"] = found["seeds"][0]
    return found


def _refuse_axes(args: argparse.Namespace) -> None:
    """Refuse what a study file says itself."""
    flags = (*AXES, *(n.replace("_", "-") for n in names(Settings)), "method", "preset")
    alone = {"--per-release": args.per_release, "--no-reference": args.reference is False}
    given = [f"--{n}" for n in flags if getattr(args, n.replace("-", "_"), None) is not None]
    given += [flag for flag, told in alone.items() if told]
    refuse_beside_study([*args.case, *given])


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
