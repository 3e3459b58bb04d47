"""``gridpriv learn``: run and compare algorithms of federated learning."""

from __future__ import annotations

import argparse
import shlex
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gridpriv.cli.charging import add_ledger_arguments
from gridpriv.cli.flags import (
    WHOLE,
    add_formats,
    add_output,
    add_settings,
    given_settings,
    named_settings,
    refuse_beside_study,
    wanted_formats,
)
from gridpriv.cli.learn_forecast import forecast, forecast_arguments
from gridpriv.cli.learn_ledger import OF_SAMPLES, charging, grant, grant_arguments
from gridpriv.cli.learn_predict import predict, predict_arguments
from gridpriv.cli.output import output_folder, print_table, tell, tell_finished
from gridpriv.cli.progress import progress
from gridpriv.core.document import Json
from gridpriv.core.errors import InputError, not_allowed, one_of
from gridpriv.core.settings import as_flags, check_names, settings_of, written
from gridpriv.learning.algorithms.names import READS, SPECIFIC
from gridpriv.learning.settings import (
    PRESETS,
    SET_BY_COMPARISON,
    LearnSettings,
    make_learn_settings,
    preset_names,
)
from gridpriv.privacy.statement import refuse_unprotected

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.learning.datasets.base import Dataset
    from gridpriv.learning.interrupted import Keeper
    from gridpriv.learning.result import LearnResult
    from gridpriv.learning.tuning import Tuning
    from gridpriv.report.document import Report
    from gridpriv.study import Study
    from gridpriv.study.learn_plan import LearnPlan
    from gridpriv.study.methods import Method

EXAMPLE = "slow: algorithm=dpsgd clip=1"
ALGORITHMS, TOTALS, SEEDS = "ryu-kim,dp-admm,dpsgd", "0.5,1,5", 3
METHOD = "method to compare, as 'NAME: SETTING=VALUE ...'; repeatable (default: none)"
TUNE = "values among which every method with this setting is tuned; repeatable (default: none)"
TUNE_ON = (
    "rows for tuning: public:S (a share S of the training rows, declared public) or charged "
    "(private rows; tuning takes part of the budget) (default: public:0.1)"
)
CLIENT_ROUNDS = "rounds times clients per round, equal for every method (default: --rounds for all)"
OF_PLANS = (
    "algorithms",
    "method",
    "totals",
    "seeds",
    "tune",
    "tune_on",
    "client_rounds",
    "allow",
    "preset",
)

ACTIONS = {
    "run": "run one algorithm on a data set",
    "compare": "compare algorithms at equal certified totals; each takes the settings that it has",
    "predict": "predict rows with a model that learn run --out has written",
    "forecast": "forecast demand from the zones' history, as a public prior of demand",
    "grant": "grant a total budget to each sample of a data set, in a ledger",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    adds = (
        _run_arguments,
        _compare_arguments,
        predict_arguments,
        forecast_arguments,
        _grant_arguments,
    )
    for (name, summary), add in zip(ACTIONS.items(), adds, strict=True):
        add(actions.add_parser(name, help=summary, description=summary, allow_abbrev=False))


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    _source_arguments(parser)
    add_settings(parser, LearnSettings, preset_names())
    add_ledger_arguments(parser)
    parser.add_argument(
        "--public",
        action="store_true",
        help="write public figures only (releases and public data)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue the interrupted run of --out"
    )
    add_output(parser, "write model.npz, tables, run.json and rounds.csv")


def _grant_arguments(parser: argparse.ArgumentParser) -> None:
    _source_arguments(parser)
    grant_arguments(parser)


def _compare_arguments(parser: argparse.ArgumentParser) -> None:
    _source_arguments(parser, nargs="?")
    add_settings(parser, LearnSettings, preset_names(), SET_BY_COMPARISON)
    parser.add_argument("--study", metavar="FILE", help="read the study from a TOML file instead")
    parser.add_argument(
        "--algorithms",
        metavar="A,B",
        help=f"algorithms; ryu-kim:output is its output perturbation (default: {ALGORITHMS})",
    )
    parser.add_argument("--method", action="append", metavar="METHOD", help=METHOD)
    parser.add_argument(
        "--totals",
        metavar="E,E",
        help=f"certified total epsilons, comma-separated (default: {TOTALS})",
    )
    parser.add_argument(
        "--seeds",
        type=WHOLE,
        metavar="N",
        help=f"number of seeds (default: {SEEDS})",
    )
    parser.add_argument("--tune", action="append", metavar="SETTING=V,V", help=TUNE)
    parser.add_argument("--tune-on", metavar="ROWS", help=TUNE_ON)
    parser.add_argument("--client-rounds", type=WHOLE, metavar="N", help=CLIENT_ROUNDS)
    parser.add_argument(
        "--allow",
        action="append",
        metavar="NAME",
        help="accepted differences between methods: client-rounds | units",
    )
    parser.add_argument(
        "--jobs", type=WHOLE, default=1, metavar="N", help="processes (default: %(default)s)"
    )
    parser.add_argument("--resume", action="store_true", help="run only what the folder lacks")
    parser.add_argument(
        "--retry-failed", action="store_true", help="with --resume, also repeat failed runs"
    )
    add_formats(parser)
    add_output(parser, "folder of the study", default="learn-compare")


def _source_arguments(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    parser.add_argument(
        "dataset",
        metavar="DATASET",
        nargs=nargs,
        help="mnist | femnist | adult | lasso | a folder of one of these names | data of your own: "
        "FILE.npz (x, y, client), FILE.csv or FILE.parquet (y, client), a folder of images",
    )
    parser.add_argument(
        "--data", metavar="DIR", help="folder of data sets (default: $GRIDPRIV_DATA)"
    )
    parser.add_argument("--download", action="store_true", help="fetch missing files")


def execute(args: argparse.Namespace) -> int:
    """Run the action."""
    acts = {
        "run": _run,
        "compare": _compare,
        "predict": predict,
        "forecast": forecast,
        "grant": _grant,
    }
    return acts[args.action](args)


def _grant(args: argparse.Namespace) -> int:
    from gridpriv.learning.datasets import dataset_name

    given = {k: v for k, v in given_settings(args, LearnSettings).items() if k in OF_SAMPLES}
    settings = make_learn_settings(dataset_name(args.dataset), **given)
    return grant(args, _dataset(args, settings), settings)


def _dataset(args: argparse.Namespace, settings: LearnSettings) -> Dataset:
    from gridpriv.learning import load_dataset

    return load_dataset(
        args.dataset,
        args.data,
        download=args.download,
        missing=settings.missing,
        scaling=settings.scaling,
        seed=settings.seed,
        norm=settings.norm,
    )


def _run(args: argparse.Namespace) -> int:
    from gridpriv.learning import learn
    from gridpriv.learning.algorithms.base import Begun
    from gridpriv.learning.datasets import dataset_name

    if args.resume and args.out is None:
        raise InputError("--resume continues the run of a folder. Name the folder with --out")
    given = given_settings(args, LearnSettings)
    name = dataset_name(args.dataset)
    settings = make_learn_settings(name, args.preset, **given)
    folder = output_folder(args.out)
    if args.public:
        refuse_unprotected(settings.mechanism)
        if settings.sensitivity == "published":
            raise InputError(
                "public = True: must be left out with sensitivity 'published': messages may depend "
                "on more than certified releases; choose sensitivity proven"
            )
    began = time.perf_counter()
    dataset = _dataset(args, settings)
    load_seconds = time.perf_counter() - began

    was_finished = True

    def run(keeper: Keeper | None = None) -> LearnResult:
        nonlocal was_finished
        was_finished = False
        begun = Begun() if keeper is None else keeper.begun
        with (
            charging(args, dataset, settings, begun) as charge,
            progress(args, dataset.name, settings.rounds) as advance,
        ):
            advance("", begun.rounds)
            return learn(
                dataset,
                settings,
                lambda _: advance(""),
                load_seconds,
                charge=charge,
                keeper=keeper,
            )

    if folder is None:
        document = run().as_dict(public=args.public)
    else:
        from gridpriv.study.learned import keep_learning_run

        document = keep_learning_run(
            folder,
            args.dataset,
            dataset,
            settings,
            run,
            public=args.public,
            resume=args.resume,
            repeat=shlex.join(["gridpriv", "learn", "run", args.dataset, *as_flags(settings)]),
        )
        if was_finished:
            tell_finished(args)
    tell(args, document, lambda: summarise(document), folder)
    return 0


def summarise(document: Json) -> None:
    """Print a run's summary."""
    from gridpriv.learning.summary import figures, privacy_figures, sentences

    print_table(*figures(document))
    if document["settings"]["mechanism"] != "none":
        print_table(*privacy_figures(document["privacy"]))
    for sentence in sentences(document):
        print(sentence)


def _compare(args: argparse.Namespace) -> int:
    from gridpriv.study.learned import Shelf, compare_learning

    formats = wanted_formats(args)
    plan = _plan(args)
    folder = output_folder(args.out)
    assert folder is not None
    shelf = Shelf(args.data, args.download, plan.data_seed)
    study = compare_learning(
        plan,
        folder,
        shelf,
        jobs=args.jobs,
        resume=args.resume,
        retry_failed=args.retry_failed,
        repeat=_again(args),
        progress=partial(progress, args, "study"),
    )
    return finish_learning(study, args, formats)


def _plan(args: argparse.Namespace) -> LearnPlan:
    """Return the plan of the arguments, or of the file that they name."""
    from gridpriv.study.learn_plan import DELTA, LearnPlan, read_learn_plan
    from gridpriv.study.methods import make_method

    given = given_settings(args, LearnSettings)
    if args.study is not None:
        told = [*given, *(name for name in OF_PLANS if getattr(args, name) is not None)]
        flags = [f"--{name.replace('_', '-')}" for name in told]
        refuse_beside_study([*([args.dataset] if args.dataset else []), *flags])
        return read_learn_plan(Path(args.study))
    if not args.dataset:
        raise InputError("name a data set, or a study file with --study FILE.toml")
    named = args.algorithms or (None if args.method else ALGORITHMS)
    ways = [_way(name.strip()) for name in named.split(",")] if named else []
    methods = (named_settings(text, LearnSettings, EXAMPLE) for text in args.method or ())
    ways += [make_method(name, **own) for name, own in methods]
    for name in SET_BY_COMPARISON:
        if name in given or any(name in dict(way.settings) for way in ways if name != "algorithm"):
            raise InputError(f"{name}: must be left out, a comparison sets it itself")
    read = frozenset().union(*(_read_by(dict(way.settings), args.preset) for way in ways))
    for name, value in given.items():
        if name in SPECIFIC - read:
            raise not_allowed(name, value, "left out: none of these algorithms reads it")
    preset = {} if args.preset is None else {"preset": args.preset}
    totals = TOTALS if args.totals is None else args.totals
    seeds = SEEDS if args.seeds is None else args.seeds
    budgets = [f"total:{total!r},{DELTA:g}" for total in _numbers(totals)]
    return LearnPlan(
        args.dataset,
        tuple(ways),
        tuple(budgets),
        tuple(range(seeds)),
        given | preset | {"sensitivity": "proven"},
        tuning=_tuning(args),
        client_rounds=args.client_rounds,
        allowed=tuple(args.allow or ()),
    )


def _way(name: str) -> Method:
    """Return a way of an algorithm's name; ``ryu-kim:output`` is its output perturbation."""
    from gridpriv.study.methods import make_method

    algorithm, _, perturbation = name.partition(":")
    own = {"algorithm": algorithm, "perturbation": perturbation}
    return make_method(name, **{key: value for key, value in own.items() if value})


def _read_by(way: Json, preset: str | None) -> frozenset[str]:
    """Return the settings that a way's algorithm reads."""
    algorithm = way.get("algorithm")
    if algorithm is None:
        fitting = [s.algorithm for (name, _), s in PRESETS.items() if name == preset]
        algorithm = fitting[0] if fitting else LearnSettings.algorithm
    one_of("algorithm", algorithm, READS)
    return READS[algorithm]


def _tuning(args: argparse.Namespace) -> Tuning | None:
    from gridpriv.learning.tuning import Tuning

    if not args.tune:
        if args.tune_on is not None:
            raise InputError("--tune-on says how a grid is searched: declare one with --tune")
        return None
    held, grid = settings_of(LearnSettings), {}
    for text in args.tune:
        name, equals, values = text.partition("=")
        check_names([name], held)
        if not equals or not values:
            raise not_allowed("tune", text, "SETTING=VALUE,VALUE,..., such as radius=1,23")
        plain = name.replace("-", "_")
        grid[plain] = [held[plain].settled(plain, held[plain].read(v)) for v in values.split(",")]
    return Tuning.of(grid | ({} if args.tune_on is None else {"on": args.tune_on}))


def _again(args: argparse.Namespace) -> str:
    """Return the command that makes the same study."""
    if args.study is not None:
        return f"gridpriv learn compare --study {args.study}"
    words = {
        "preset": args.preset,
        "totals": args.totals,
        "seeds": args.seeds,
        "algorithms": args.algorithms,
        "client-rounds": args.client_rounds,
        "tune-on": args.tune_on,
    }
    words |= {k: written(v) for k, v in given_settings(args, LearnSettings).items()}
    flags = [f"--{k.replace('_', '-')} {v}" for k, v in words.items() if v is not None]
    for name in ("method", "tune", "allow"):
        flags += [f"--{name} {shlex.quote(text)}" for text in getattr(args, name) or ()]
    return " ".join(["gridpriv learn compare", args.dataset, *flags])


def finish_learning(study: Study, args: argparse.Namespace, formats: list[str]) -> int:
    """Write the reports and print the means over seeds and the answer."""
    from gridpriv.cli.compare import reported, tell_failures, verdict

    reports, table, report = reported(study, formats)
    files = [str(file) for file in reports]
    kept = table.dropna(axis=1, how="all").astype(object)
    rows = kept.where(kept.notna(), None).to_dict("records")
    document = {"folder": args.out, **verdict(report), "runs": rows, "files": files}
    written = "\n  ".join([str(args.out), *files])
    tell(args, document, lambda: _print_means(study, table, report), written)
    tell_failures(study)
    return 0


def _print_means(study: Study, table: pd.DataFrame, report: Report) -> None:
    from gridpriv.cli.compare import print_cards, print_messages

    print_cards(report)
    error = "test_mse" if table["test_error_pct"].isna().all() else "test_error_pct"
    columns = {
        "series": "algorithm",
        "total_epsilon": "total",
        error: "squared error" if error == "test_mse" else "error %",
        f"{error}_high": "95 % to",
        "mean_objective": "objective",
        "seeds": "seeds",
    }
    if study.failed.size:
        columns["failed"] = "failed"
    kept = table[list(columns)].astype(object)
    rows = kept.where(kept.notna(), None).values.tolist()
    print_table(study.manifest["title"], list(columns.values()), rows)
    print_messages(report)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"totals = {text!r}: must be numbers, by commas") from None
