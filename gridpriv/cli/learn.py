"""``gridpriv learn``: run and compare algorithms of federated learning."""

from __future__ import annotations

import argparse
import shlex
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import gridpriv
from gridpriv.cli import flags
from gridpriv.cli.budgets import grant_units
from gridpriv.cli.output import (
    output_folder,
    print_records,
    print_result,
    print_table,
    progress,
    say,
    worded,
)
from gridpriv.cli.study import (
    add_reproduce,
    add_running,
    execution,
    print_means,
    report_study,
)
from gridpriv.core.errors import InputError, check_choice, not_allowed, positive, whole
from gridpriv.core.files import write_text
from gridpriv.core.settings import as_flags, check_names, names, settings_of
from gridpriv.core.text import Json, frame_csv, json_ready, shown
from gridpriv.learning.algorithms import READS, SPECIFIC
from gridpriv.learning.datasets import DATASETS, dataset_name, load_dataset
from gridpriv.learning.datasets.own import is_own, read_rows
from gridpriv.learning.settings import (
    PRESETS,
    SET_BY_COMPARISON,
    LearnSettings,
    make_learn_settings,
)
from gridpriv.privacy.certificate import refuse_unprotected
from gridpriv.study.forecast import Forecasting, forecast_series

if TYPE_CHECKING:
    from gridpriv.learning.datasets.base import Dataset
    from gridpriv.learning.result import LearnResult
    from gridpriv.learning.run import Tuning
    from gridpriv.learning.stored import CheckpointWriter, TrainedModel
    from gridpriv.study.learned import LearnPlan

EXAMPLE = "slow: algorithm=dpsgd clip=1"
ALGORITHMS, TOTALS, SEEDS = "ryu-kim,dp-admm,dpsgd", "0.5,1,5", 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, add in ACTIONS.items():
        summary = flags.help_of(parser, name)
        add(actions.add_parser(name, help=summary, description=summary, allow_abbrev=False))


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    _source_arguments(parser)
    flags.add_settings(parser, LearnSettings, sorted(PRESETS))
    flags.add_ledger_arguments(parser)
    flags.switch(parser, "--public")
    flags.switch(parser, "--resume")
    flags.add_output(parser, "DIR")
    parser.set_defaults(execute=_run)


def _compare_arguments(parser: argparse.ArgumentParser) -> None:
    _source_arguments(parser, nargs="?")
    first = len(parser._actions)
    flags.add_settings(parser, LearnSettings, sorted(PRESETS), SET_BY_COMPARISON)
    flags.refer(parser, "learn run", first)
    flags.flag(parser, "--study", "FILE")
    flags.flag(parser, "--algorithms", "A,B")
    flags.flag(parser, "--method", "METHOD", action="append")
    flags.flag(parser, "--totals", "E,E")
    flags.flag(parser, "--seeds", "N", flags.WHOLE)
    flags.flag(parser, "--tune", "SETTING=V,V", action="append")
    flags.flag(parser, "--tune-on", "ROWS")
    flags.flag(parser, "--client-rounds", "N", flags.WHOLE)
    flags.flag(parser, "--allow", "NAME", action="append")
    add_running(parser, jobs=1, out="learn-compare")
    parser.set_defaults(execute=_compare)


def _source_arguments(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    flags.flag(parser, "dataset", "DATASET", nargs=nargs)
    flags.flag(parser, "--data", "DIR")
    flags.switch(parser, "--download")


def _dataset(args: argparse.Namespace, settings: LearnSettings) -> Dataset:
    from gridpriv.study.learned import DatasetLoader

    return DatasetLoader(args.data, args.download)(args.dataset, settings)


def _run(args: argparse.Namespace) -> int:
    from gridpriv.learning.algorithms.base import Checkpoint
    from gridpriv.privacy.ledger import ledger_identity
    from gridpriv.study.learned import charging, store_learning_run
    from gridpriv.study.run_folder import RUN_FILE

    if args.resume and args.out is None:
        raise InputError("--resume continues the run of a folder. Name the folder with --out")
    given = flags.given_settings(args, LearnSettings)
    name = dataset_name(args.dataset)
    settings = make_learn_settings(name, args.preset, **given)
    folder = output_folder(args.out)
    if args.public:
        refuse_unprotected(settings.mechanism)
        if settings.sensitivity == "published":
            raise InputError(
                "--public exports certified releases only, but --sensitivity is published. Choose "
                "proven, or drop --public."
            )
    began = time.perf_counter()
    dataset = _dataset(args, settings)
    load = time.perf_counter() - began

    def run(checkpoints: CheckpointWriter | None = None) -> LearnResult:
        checkpoint = Checkpoint() if checkpoints is None else checkpoints.checkpoint
        with (
            charging(args.ledger, args.ledger_key, dataset, settings, checkpoint) as charge,
            progress(args, dataset.name, settings.rounds) as advance,
        ):
            advance("", checkpoint.rounds)
            result = gridpriv.learn(
                dataset, settings, lambda _: advance(""), charge=charge, checkpoints=checkpoints
            )
        timing = replace(result.timing, load=load, total=load + result.timing.total)
        return replace(result, timing=timing)

    if folder is None:
        document = run().as_dict(public=args.public)
    else:
        was_finished = (folder / RUN_FILE).exists()
        words = [args.dataset, *as_flags(settings), *flags.given_words(args, *flags.LEDGER_FLAGS)]
        repeat = shlex.join(["gridpriv", "learn", "run", *words])
        options: Json = {"public": args.public, "resume": args.resume, "repeat": repeat}
        options["ledger"] = ledger_identity(args.ledger, args.ledger_key)
        document = store_learning_run(folder, args.dataset, dataset, settings, run, **options)
        if was_finished:
            with progress(args, dataset.name, 0):
                pass
    return print_result(args, document, lambda: summarise(document), folder)


def summarise(document: Json) -> None:
    """Print a run's summary."""
    from gridpriv.learning.result import privacy_table, results_table, sentences

    print_table(*results_table(document))
    if document["settings"]["mechanism"] != "none":
        print_table(*privacy_table(document["privacy"]))
    say(*sentences(document))


def _compare(args: argparse.Namespace) -> int:
    from gridpriv.study.learned import DatasetLoader, compare_learning

    formats = flags.wanted_formats(args)
    plan = _plan(args)
    folder = output_folder(args.out)
    assert folder is not None
    loader = DatasetLoader(args.data, args.download, plan.data_seed)
    study = compare_learning(plan, folder, loader, repeat=_again(args), **execution(args, "study"))
    return report_study(study, args, formats, print_means)


def _plan(args: argparse.Namespace) -> LearnPlan:
    """Return the plan of the arguments, or of their file."""
    from gridpriv.privacy.settings import TOTAL_DELTA
    from gridpriv.study.learned import LearnPlan, read_learn_plan
    from gridpriv.study.plan import make_method

    given = flags.given_settings(args, LearnSettings)
    if args.study is not None:
        flags.refuse_beside_study(args)
        return read_learn_plan(Path(args.study))
    if not args.dataset:
        raise InputError("name a data set, or a study file with --study FILE.toml")
    named = args.algorithms or (None if args.method else ALGORITHMS)
    methods = []
    for name in map(str.strip, named.split(",") if named else ()):  # ryu-kim:output has two words
        words = zip(("algorithm", "perturbation"), filter(None, name.split(":", 1)), strict=False)
        methods.append(make_method(name, **dict(words)))
    named_ones = (flags.named_settings(text, LearnSettings, EXAMPLE) for text in args.method or ())
    methods += [make_method(name, **own) for name, own in named_ones]
    for name in SET_BY_COMPARISON:
        own = name != "algorithm" and any(name in dict(method.settings) for method in methods)
        if name in given or own:
            raise InputError(f"{name}: must be left out, a comparison sets it itself")
    usual = make_learn_settings(dataset_name(args.dataset), args.preset).algorithm
    algorithms = [dict(method.settings).get("algorithm", usual) for method in methods]
    for algorithm in algorithms:
        check_choice("algorithm", algorithm, READS)
    read = frozenset().union(*(READS[algorithm] for algorithm in algorithms))
    for name, value in given.items():
        if name in SPECIFIC - read:
            raise not_allowed(name, value, "left out: none of these algorithms reads it")
    preset = {} if args.preset is None else {"preset": args.preset}
    totals = TOTALS if args.totals is None else args.totals
    seeds = SEEDS if args.seeds is None else args.seeds
    whole("seeds", seeds)
    try:
        numbers = [float(total) for total in totals.split(",")]
    except ValueError:
        raise not_allowed("totals", totals, "numbers, by commas") from None
    for number in numbers:
        positive("totals", number)
    budgets = [f"total:{number!r},{TOTAL_DELTA:g}" for number in numbers]
    return LearnPlan(
        args.dataset,
        tuple(methods),
        tuple(budgets),
        tuple(range(seeds)),
        given | preset | {"sensitivity": "proven"},
        tuning=_tuning(args),
        client_rounds=args.client_rounds,
        allowed=tuple(args.allow or ()),
    )


def _tuning(args: argparse.Namespace) -> Tuning | None:
    from gridpriv.learning.run import Tuning

    if not args.tune:
        if args.tune_on is not None:
            raise InputError("--tune-on says how a grid is searched: declare one with --tune")
        return None
    fields, grid = settings_of(LearnSettings), {}
    for text in args.tune:
        name, equals, values = text.partition("=")
        check_names([name], fields)
        if not equals or not values:
            raise not_allowed("tune", text, "SETTING=VALUE,VALUE,..., such as radius=1,23")
        plain = name.replace("-", "_")
        item = fields[plain]
        grid[plain] = [item.validated(plain, item.read(value)) for value in values.split(",")]
    return Tuning.of(grid | ({} if args.tune_on is None else {"on": args.tune_on}))


def _again(args: argparse.Namespace) -> str:
    """Return the command that makes the same study."""
    words = [] if args.study is None else ["--study", args.study]
    words += [word for given in flags.study_words(args).values() for word in given]
    return shlex.join(["gridpriv", "learn", "compare", *words])


# settings of samples and of their protection
OF_SAMPLES = frozenset(
    {"adjacency", "algorithm", "norm", "clients", "split", "missing", "scaling", "seed"}
)


def grant_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``learn grant``."""
    _source_arguments(parser)
    flags.flag(parser, "--total", "E[,D]", required=True)
    flags.flag(parser, "--ledger", "FILE", required=True)
    flags.flag(parser, "--ledger-key", "FILE")
    flags.add_flags(parser, LearnSettings, without=set(names(LearnSettings)) - OF_SAMPLES)
    flags.add_output(parser)
    parser.set_defaults(execute=grant)


def grant(args: argparse.Namespace) -> int:
    """Grant a total to every sample (with dp-fedavg: every client) of a data set."""
    from gridpriv.learning.accounting import client_datasets
    from gridpriv.learning.run import split_for

    given = {k: v for k, v in flags.given_settings(args, LearnSettings).items() if k in OF_SAMPLES}
    settings = make_learn_settings(dataset_name(args.dataset), **given)
    dataset = _dataset(args, settings)
    owners = client_datasets(dataset, split_for(dataset, settings), settings)
    key = None if args.ledger_key is None else Path(args.ledger_key)
    return grant_units(args, args.ledger, key, owners, f"of {dataset.name}")


def predict_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``learn predict``."""
    flags.flag(parser, "model", "MODEL")
    flags.flag(parser, "dataset", "DATA")
    flags.flag(parser, "--data", "DIR")
    flags.add_output(parser, "F.csv")
    parser.set_defaults(execute=predict)


def predict(args: argparse.Namespace) -> int:
    """Predict every row, and print the error if the data have labels."""
    import pandas as pd

    from gridpriv.learning.stored import load_model

    model = load_model(args.model)
    x, y = _prediction_rows(args, model)
    predictions = model.predict(x)
    document = json_ready(
        {"model": args.model, "dataset": Path(args.dataset).stem, "rows": len(predictions)}
        | model.errors(predictions, y)
        | {"certificate": model.description.certificate, "predictions": predictions.tolist()}
    )
    if args.out is not None:
        table = pd.DataFrame({"row": range(len(predictions)), "prediction": predictions})
        write_text(Path(args.out), frame_csv(table), private=True)
    return print_result(args, document, lambda: _print_predictions(document, model), args.out)


def _prediction_rows(args: argparse.Namespace, model: TrainedModel) -> tuple[Any, Any]:
    """Return rows, and labels by the model's names, or None."""
    known, path = model.description, Path(args.dataset)
    if is_own(path):
        x, y = read_rows(path, known.columns)
        return x.reshape(len(x), -1), y
    name = dataset_name(args.dataset)
    if name in DATASETS and name != known.dataset:
        raise not_allowed("model", args.model, f"a model of {name}; it is one of {known.dataset}")
    dataset = load_dataset(args.dataset, args.data)
    return dataset.x_test, dataset.y_test


def _print_predictions(document: Json, model: TrainedModel) -> None:
    total = model.description.certificate["total"]
    say(f"{document['rows']} rows predicted with a model of {model.description.dataset}")
    for name in ("accuracy", "mean_squared_error"):
        if document[name] is not None:
            print(f"{name.replace('_', ' ').capitalize()}: {shown(document[name])}")
    if total["epsilon"] is None:
        say("The model was trained without noise: it protects no training row.")
    else:
        say(
            f"Privacy of the training rows: epsilon {shown(total['epsilon'])} at delta "
            f"{total['delta']:g}; {model.description.certificate['adjacency']}"
        )


def _forecast_arguments(parser: argparse.ArgumentParser) -> None:
    flags.flag(parser, "case", "CASE")
    flags.add_zone_arguments(parser)
    flags.refer(parser, "zones")
    flags.flag(parser, "--history", "FILE.csv", required=True)
    flags.flag(parser, "--weather", "FILE.csv")
    flags.add_flags(parser, Forecasting)
    flags.add_ledger_arguments(parser)
    flags.add_output(parser, "F.csv")
    parser.set_defaults(execute=_forecast)


def _forecast(args: argparse.Namespace) -> int:
    """Forecast, write and print."""
    settings = Forecasting(**flags.given_settings(args, Forecasting))
    case = gridpriv.load_case(args.case)
    zoning = flags.chosen_zoning(case, args)
    series = gridpriv.read_demand_series(args.history, case)
    flags.question_series(args, series, f"--history {args.history}")
    result = forecast_series(settings, series, zoning, args.weather, args.ledger, args.ledger_key)
    document = result.as_dict()
    if args.out is not None:
        write_text(Path(args.out), frame_csv(result.table()), private=False)
    return print_result(args, document, lambda: _print_forecast(document), args.out)


def _print_forecast(document: Json) -> None:
    from gridpriv.zonal.messages import message

    rows = [
        [zone["zone"], zone["buses"], fmean(zone["mean_mw"]), fmean(zone["spread_mw"])]
        for zone in document["zones"]
    ]
    first, last = document["steps"][0], document["steps"][-1]
    title = f"{document['case']}: forecast of {len(document['steps'])} steps, {first} to {last}"
    print_table(title, ["zone", "buses", "mean MW", "std MW"], rows)
    if dominated := [str(zone) for zone, _, mean, spread in rows if spread > abs(mean)]:
        say(message("forecast-drowned", {"zones": ", ".join(dominated)}))
    if document["test"]:
        columns = {"zone": "zone", "mape": "MAPE %", "pinball_mw": "pinball MW"}
        columns |= {"naive_mape": "seasonal-naive MAPE %"}
        columns |= {"naive_pinball_mw": "seasonal-naive pinball MW"}
        print_records("On the steps left out (for the data owner only)", columns, document["test"])
    privacy = document["privacy"]
    if privacy["total_pure"] is None:
        say("No noise: the forecast protects nothing.")
    else:
        say(f"Privacy: {privacy['adjacency']}; total epsilon {privacy['total_pure']:g} (pure)")
    if privacy["noise"] == "simulated":
        say(worded("learn-forecast-simulated", seed=document["seed"]))


ACTIONS = {
    "run": _run_arguments,
    "compare": _compare_arguments,
    "predict": predict_arguments,
    "forecast": _forecast_arguments,
    "reproduce": add_reproduce,
    "grant": grant_arguments,
}
"""The functions that add the arguments of actions, in the order of the help."""
