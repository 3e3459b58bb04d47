"""``gridpriv compare``, ``reproduce``, ``report`` and ``schema``: studies and tables."""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import gridpriv
from gridpriv.cli import flags, output
from gridpriv.core.errors import InputError, SolverError, check_choice, not_allowed
from gridpriv.core.settings import Setting, reading, settings_of
from gridpriv.core.text import Json, amount, counted, frame_records, json_ready, shown
from gridpriv.privacy.settings import NO_NOISE, nominal_epsilon
from gridpriv.zonal.settings import PRESETS, Settings

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.report.export import Report
    from gridpriv.study import Study, StudyPlan

UNUSED = 0.98
"""Share of a budget below which a certified total is printed with the budget."""
NEGLIGIBLE_MW = 1e-3
"""MW below which a mean is rounding."""
LONG_SECONDS = 20.0
"""Estimated seconds above which a study prints its time before it starts."""
OWN_FLAGS = ("budget", "seed", "load_scale", "local_updates")
KINDS = {"local-updates": reading(int), "load-scales": reading(float), "seeds": reading(int)}
AXES = ("budgets", "local-updates", "load-scales", "zonings", "seeds")
EXAMPLE = "once: noise_schedule=once"
HEADS = {"warning": "warning: ", "next": "Next: "}


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``compare``."""
    flags.flag(parser, "case", "CASE", nargs="*")
    flags.flag(parser, "--study", "FILE")
    flags.flag(parser, "--method", "METHOD", action="append")
    axes = parser.add_argument_group("axes", "Values at which every method runs, comma-separated.")
    for name in AXES:
        flags.flag(axes, f"--{name}", "A,B,...")
    flags.switch(axes, "--per-release")
    parser.epilog = output.worded("compare-epilog")
    without = (*OWN_FLAGS, "temporal_basis", "stream")
    flags.flag(parser, "--cluster", "ADDRESS")
    hidden, first = ("noise",), len(parser._actions)  # secure noise is refused with the reason
    flags.add_settings(parser, Settings, PRESETS, without, hidden=hidden, axis=True)
    flags.refer(parser, "run", first)
    add_running(parser)
    flags.switch(parser, "--no-reference", "store_false", dest="reference", default=None)
    flags.switch(parser, "--dry-run")
    parser.set_defaults(execute=execute_compare)


def add_running(
    parser: argparse.ArgumentParser, jobs: int | None = None, out: str | None = None
) -> None:
    """Add the arguments on execution and output of a study."""
    flags.flag(parser, "--jobs", "N", flags.WHOLE, jobs)
    flags.switch(parser, "--resume")
    flags.switch(parser, "--retry-failed")
    flags.add_formats(parser)
    flags.add_output(parser, "DIR", out)


def execution(args: argparse.Namespace, label: str) -> Json:
    """Return the arguments of :func:`add_running` as keywords of a study; label its progress."""
    keywords: Json = {name: getattr(args, name) for name in ("jobs", "resume", "retry_failed")}
    return keywords | {"progress": partial(output.progress, args, label)}


def execute_compare(args: argparse.Namespace) -> int:
    """Run the study, write its folder and report, print the answer."""
    from gridpriv.study.comparison import estimate_plan

    formats = flags.wanted_formats(args)
    if args.study:
        flags.refuse_beside_study(args)
        plan = gridpriv.read_plan(args.study)
    else:
        plan = _plan(args)
    work = estimate_plan(plan, args.jobs)
    if args.dry_run:
        return output.print_result(args, vars(work), lambda: print(f"{work} on idle cores"))
    if args.out is None:
        args.out = f"study-{plan.name or '-'.join(Path(c).stem for c in plan.cases)}"
    output.output_folder(args.out)
    if not args.quiet and work.seconds >= LONG_SECONDS:
        output.console(error=True).print(f"{work} on idle cores")
    study = gridpriv.compare(plan, out=args.out, cluster=args.cluster, **execution(args, "study"))
    return report_study(study, args, formats)


Show: TypeAlias = "Callable[[Study, pd.DataFrame], None]"


def report_study(
    study: Study, args: argparse.Namespace, formats: list[str], show: Show | None = None
) -> int:
    """Write the reports and print the answer, its table by ``show``; exit code 3 if all failed."""
    from gridpriv.report.export import make_report, report_files, write_files
    from gridpriv.report.source import fitting, read_source

    with fitting(study.folder):
        source = read_source(study.folder)
        report = make_report(source)
        contents = report_files(report, source, formats)
    files, table = write_files(contents, study.folder), report.summary
    document = {
        "folder": str(args.out),
        "verdict": [{"title": c.title, "facts": [vars(f) for f in c.facts]} for c in report.cards],
        "messages": [message.as_dict() for message in report.messages],
        "summary": frame_records(table.dropna(axis=1, how="all")),
        "runs": len(study.runs),
        "failed": len(study.failed),
        "files": [str(f) for f in files],
    }

    def summarise() -> None:
        print_cards(report)
        print_summary(table) if show is None else show(study, table)
        print_messages(report)

    made = dict.fromkeys(str(f if f.parent == study.folder else f.parent) for f in files)
    output.print_result(args, document, summarise, "\n  ".join([str(args.out), *made]))
    return warn_of_failures(study)


def print_means(study: Study, table: pd.DataFrame) -> None:
    """Print the means over seeds of algorithms."""
    error = "test_mse" if table["test_error_pct"].isna().all() else "test_error_pct"
    columns = {
        "series": "algorithm",
        "total_epsilon": "total",
        error: "squared error" if error == "test_mse" else "error %",
        f"{error}_high": "upper end, 95 %",
        "mean_objective": "objective",
        "seeds": "seeds",
    }
    columns |= {"failed": "failed"} if study.failed.size else {}
    output.print_records(study.manifest["title"], columns, frame_records(table[list(columns)]))


def print_cards(report: Report) -> None:
    """Print the verdict cards and the warnings of a report."""
    for card in report.cards:
        output.console().print(card.title, style="bold", soft_wrap=True)
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
            output.say(f"{HEADS.get(message.severity, '')}{message}", indent="  ")


def warn_of_failures(study: Study) -> int:
    """Warn of failed runs with the first one's reason; raise if every run failed."""
    if not study.failed.empty:
        first = study.failed.iloc[0]
        cases = ", ".join(study.failed["case"].unique()) if "case" in study.failed else ""
        number = f"{len(study.failed)} of {len(study.runs)} runs failed"
        words = f"{number}{cases and f' ({cases})'}; the first: {first.reason}"
        if study.done.empty:
            raise SolverError(words)
        print(output.wrapped(f"warning: {words}", sys.stderr, "  "), file=sys.stderr)
    return 0


def print_summary(table: pd.DataFrame) -> None:
    """Print the means over seeds, one table per case, without empty columns."""
    for panel, rows in table.groupby("panel", sort=False):
        seeds = sorted({int(n) for n in rows.seeds})
        equal = len(seeds) == 1
        number = (
            counted(seeds[0], "seed") if equal else f"finished runs (at most {seeds[-1]} seeds)"
        )
        beyond = rows.cost_of_privacy_high - rows.cost_of_privacy
        own = rows.get("method_cost", rows.cost_of_privacy).where(rows.budget == NO_NOISE)
        cost = rows.cost_of_privacy.fillna(own)
        power = {
            name: [amount(0.0 if abs(x) < NEGLIGIBLE_MW else x, "MW") for x in rows[name]]
            for name in ("redispatch_shed_mw", "balancing_mw")
        }
        text = {
            "method": list(rows.series.mask(rows.series == rows.series.shift(), "")),
            "epsilon": [_epsilon(row) for row in rows.itertuples()],
            "cost above noise-free $/h": [amount(x, "$/h") for x in cost],
            "95 % +- $/h": [amount(x, "$/h") for x in beyond],
            "shed MW": power["redispatch_shed_mw"],
            "balancing MW": power["balancing_mw"],
        }
        every = bool((rows.ac_feasible == 1.0).all())
        if not every:
            shares = zip(rows.ac_feasible, rows.seeds, strict=True)
            text["AC-feasible %"] = [
                _share(share) if seeds else "failed" for share, seeds in shares
            ]
        filled = {name: cells for name, cells in text.items() if any(c is not None for c in cells)}
        title = f"{panel}: means after AC redispatch over {number}"
        feasible = "all AC-feasible" if every else "costs: of AC-feasible runs"
        output.print_table(
            f"{title}; {feasible}", list(filled), list(zip(*filled.values(), strict=True))
        )
    if len(deltas := table.target_delta.dropna().unique()):
        at = " or ".join(f"{delta:g}" for delta in deltas)
        output.say(f"epsilon: total at delta = {at}; 'X of E': a total of X at budget E")
    if table.cost_of_privacy.notna().any():
        output.say(output.worded("compare-cost-of-privacy"))
    output.say(output.worded("compare-balancing"))
    most = table.iloc[int(table.curtailed_mw.fillna(0.0).argmax())]
    if most.curtailed_mw >= NEGLIGIBLE_MW:
        values = {"most": amount(most.curtailed_mw, "MW"), "of": f"{most.panel}, {most.series}"}
        output.say(output.worded("compare-curtailed", **values))


def _plan(args: argparse.Namespace) -> StudyPlan:
    from gridpriv.study.plan import OF_RELEASE, make_method

    if not args.case:
        raise InputError("name at least one case, or a study file with --study FILE.toml")
    settings = {} if args.preset is None else {"preset": args.preset}
    axes: Json = {}
    for name, item in settings_of(Settings).items():
        texts = getattr(args, name, None)
        if texts is None or name in OWN_FLAGS:
            continue
        values = [tuple(texts)] if item.repeated else values_of(name, item, texts)
        if item.repeated or (len(values) == 1 and name not in OF_RELEASE):
            settings[name] = values[0]
        else:
            axes[name] = values
    read = [flags.named_settings(text, Settings, EXAMPLE, "preset") for text in args.method or ()]
    return gridpriv.make_plan(
        args.case,
        per_release=args.per_release,
        methods=[make_method(name, **given) for name, given in read],
        settings=settings,
        reference=args.reference is not False,
        **_own_axes(args),
        **axes,
    )


def values_of(name: str, setting: Setting, texts: Sequence[str]) -> list[Any]:
    """Return the values of a flag: each text is one value, or several by commas."""
    values: list[Any] = []
    for text in texts:
        try:
            values.append(setting.validated(name, setting.read(text)))
        except InputError:  # a notation such as geometric:1,2,3,4 has commas of its own
            parts = flags.listed(text)
            if not parts:
                raise
            values += [setting.validated(name, setting.read(part)) for part in parts]
    return values


def _own_axes(args: argparse.Namespace) -> Json:
    axes: Json = {}
    for name in AXES:
        axis = name.replace("-", "_")
        text = getattr(args, axis)
        if text is None:
            continue
        axes[axis] = [KINDS.get(name, str)(part) for part in flags.listed(text)]
        if not axes[axis]:
            raise not_allowed(name, text, "one value or more")
        for value, after in pairwise(axes[axis]) if axis == "budgets" else ():
            if ":" in value and ";" not in value + after and ":" not in after:
                form = (
                    f"a list with numbers before totals ('{after},{value}'), or a total with its "
                    "delta after ';' ('total:1;1e-5')"
                )
                raise not_allowed(name, text, form)
    if len(axes.get("seeds", ())) == 1 and "," not in args.seeds:
        axes["seeds"] = axes["seeds"][0]
    return axes


def _share(share: float) -> int | None:
    """Return a share in percent; None without a value."""
    return None if math.isnan(share) else round(100.0 * share)


def _epsilon(row: Any) -> object:
    """Return the certified total of a row's runs and a larger budget; nominal if all failed."""
    of_total = str(row.budget).startswith("total:")
    if row.seeds == 0 and of_total:
        return nominal_epsilon(row.budget)
    total = _number(row.total_epsilon)
    if total is None or not of_total or total >= UNUSED * nominal_epsilon(row.budget):
        return total
    return f"{shown(total)} of {nominal_epsilon(row.budget):g}"


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def add_reproduce(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``reproduce``."""
    flags.flag(parser, "name", "NAME", nargs="?")
    flags.flag(parser, "--data", "DIR")
    flags.flag(parser, "--scale", "NAME", default="quick")
    if "learn" not in parser.prog:
        flags.flag(parser, "--cluster", "ADDRESS")
    add_running(parser)
    parser.set_defaults(execute=execute_reproduce)


def execute_reproduce(args: argparse.Namespace) -> int:
    """Reproduce, check the paper's statements, print and write the outcome."""
    from gridpriv.study.papers import COMPUTED, learns, reads_scale, reproduce, reproductions

    every = args.command != "learn"
    known = {n: title for n, title in reproductions().items() if every or learns(n)}
    if args.name is None:
        rows = [{"name": name, "content": title} for name, title in known.items()]
        listed_ = list(known.items())
        show = partial(output.print_table, "Reproductions", ["name", "content"], listed_)
        return output.print_result(args, {"reproductions": rows}, show)
    check_choice("name", args.name, known)
    if args.name in COMPUTED:
        _refuse(args, ("data", "scale", "cluster", "resume"))
        return _computed(args)
    learning = learns(args.name)
    _refuse(args, ("cluster",) if learning else ("data",))
    if not reads_scale(args.name):
        _refuse(args, ("scale",))
    formats = flags.wanted_formats(args)
    args.out = args.out or f"study-{args.name}"
    output.output_folder(args.out)
    study = reproduce(
        args.name,
        Path(args.out),
        scale=args.scale,
        data=args.data,
        **execution(args, args.name),
        **({} if learning else {"cluster": args.cluster}),
    )
    if not (args.quiet or args.json):
        print_claims(study.tables["claims"])
    return report_study(study, args, formats, print_means if learning else None)


def _refuse(args: argparse.Namespace, names: tuple[str, ...]) -> None:
    """Refuse arguments that this reproduction does not read."""
    for name in names:
        value = getattr(args, name, None)
        if value != args.parser.get_default(name):
            raise not_allowed(name, value, f"left out with {args.name}, which does not read it")


def _computed(args: argparse.Namespace) -> int:
    from gridpriv.study.papers import COMPUTED

    title, compute = COMPUTED[args.name]
    output.output_folder(args.out)
    computed = compute()
    document = {name: json_ready(t.to_dict("records")) for name, t in vars(computed).items()}

    def summarise() -> None:
        columns = [name.replace("_", " ") for name in computed.table]
        output.print_table(title, columns, computed.table.values.tolist())
        print_claims(computed.claims, "Claims of the paper, checked here")

    return output.finish(args, document, summarise, lambda: vars(computed))


def print_claims(
    claims: pd.DataFrame, header: str = "What the paper states, and whether it holds here"
) -> None:
    """Print claims and their outcomes, one paragraph each."""
    out = output.console()
    out.print(f"{header}\n")
    for row in claims.to_dict("records"):
        noise = f" ({row['sensitivity']} noise)" if row["sensitivity"] else ""
        noise += " (a question of gridpriv's)" * bool(row.get("ours"))
        outcome = f"{row['outcome']} ({row['holding']} of {row['comparisons']})"
        lines = [f"{outcome}: {row['claim']}{noise}"]
        if row.get("detail"):
            lines.append(f"    {row['detail']}")
        if row.get("settled"):
            cause = f", because of {row['cause']}: {row['why']}" if row["cause"] else ""
            same = row["settled"] == row["outcome"]
            lines.append(f"    {'as recorded' if same else 'recorded: ' + row['settled']}{cause}")
        output.say(*lines, indent="    ")
    out.print()


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``report``."""
    flags.flag(parser, "folder", "DIR")
    flags.add_formats(parser)
    flags.flag(parser, "--figures", "FORMAT")
    flags.flag(parser, "--pivot", "ROWS,COLUMNS")
    flags.flag(parser, "--values", "A,B")
    flags.switch(parser, "--public")
    flags.add_output(parser, "DIR")
    parser.set_defaults(execute=execute_report)


def execute_report(args: argparse.Namespace) -> int:
    """Write the report in every requested format."""
    output.output_folder(args.out)
    formats = flags.wanted_formats(args)
    if not formats:
        raise not_allowed("format", args.format, "one or more of html, pdf, xlsx, csv, tex")
    try:
        files = gridpriv.export(
            args.folder,
            formats,
            public=args.public,
            out=args.out,
            figures=args.figures,
            pivot=_pivot(args.pivot),
            values=(args.values or "").split(",") if args.values else (),
        )
    except InputError as error:
        if error.setting and error.setting[0] in ("rows", "columns"):
            error.setting = ("pivot", *error.setting[1:])
        raise
    names = [str(file) for file in files]
    document = {"folder": args.folder, "files": names}
    return output.print_result(args, document, lambda: print("\n".join(names)))


def _pivot(text: str | None) -> tuple[list[str], list[str]] | None:
    """Return the columns for rows and columns of a table."""
    if text is None:
        return None
    parts = [part.split("+") for part in text.split(",")]
    if len(parts) != 2 or not all(all(names) for names in parts):
        raise InputError(
            f"--pivot must name rows and columns, such as method,budget; got {text!r}. Join "
            "several columns by +: case+method,budget."
        )
    return parts[0], parts[1]


def add_schema(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``schema``."""
    flags.flag(parser, "table", "TABLE", nargs="?")
    flags.flag(parser, "--json-schema", "DIR")
    flags.add_output(parser)
    parser.set_defaults(execute=execute_schema)


def execute_schema(args: argparse.Namespace) -> int:
    """Print the requested table, or all."""
    from gridpriv.report.schema import described_tables, write_json_schemas

    if args.json_schema is not None:
        write_json_schemas(folder := Path(args.json_schema))
        return output.print_result(args, {"written": str(folder)}, lambda: None, folder)
    tables = described_tables()
    if args.table is not None:
        check_choice("table", args.table, tables)
        tables = {args.table: tables[args.table]}

    def show() -> None:
        columns = {"name": "column"} | {n: n for n in ("unit", "visibility", "meaning")}
        for name, table in tables.items():
            output.print_records(f"{name}: {table['row']}", columns, table["columns"])

    return output.print_result(args, {"tables": list(tables.values())}, show)
