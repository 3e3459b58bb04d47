"""``gridpriv learn``: run, compare and reproduce the learning papers."""

from __future__ import annotations

import argparse
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from gridpriv.cli.charging import add_ledger_arguments
from gridpriv.cli.common import (
    WHOLE,
    add_formats,
    add_output,
    add_scale,
    add_settings,
    console,
    given_settings,
    output_folder,
    print_table,
    progress,
    ready,
    resumable,
    tell,
    tell_names,
    wanted_formats,
    write_csv,
    write_json,
)
from gridpriv.cli.learn_ledger import OF_SAMPLES, charging, grant, grant_arguments
from gridpriv.core.errors import InputError
from gridpriv.learning.settings import PRESETS, SET_BY_COMPARISON, LearnSettings

if TYPE_CHECKING:
    from gridpriv.learning.datasets.base import Dataset
    from gridpriv.learning.reproduce import Reproduction
    from gridpriv.study import Study

ACTIONS = {
    "run": "one run on a data set",
    "compare": "algorithms side by side at equal certified totals; each gets the settings it reads",
    "reproduce": "a figure or table of a learning paper",
    "grant": "grant a total budget to each sample of a data set, in a ledger",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in ACTIONS.items():
        described = actions.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        {
            "run": _run_arguments,
            "compare": _compare_arguments,
            "reproduce": _reproduce_arguments,
            "grant": _grant_arguments,
        }[name](described)


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    _data_arguments(parser)
    add_ledger_arguments(parser)
    add_output(parser, "write run.json and rounds.csv")


def _grant_arguments(parser: argparse.ArgumentParser) -> None:
    _source_arguments(parser)
    grant_arguments(parser)


def _compare_arguments(parser: argparse.ArgumentParser) -> None:
    _data_arguments(parser, without=SET_BY_COMPARISON)
    parser.add_argument(
        "--algorithms", default="ryu-kim,dp-admm,dpsgd", metavar="A,B",
        help="names, by commas; ryu-kim:output is its output perturbation (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--totals", default="0.5,1,5", metavar="E,E",
        help="certified total epsilons, by commas (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=WHOLE, default=3, metavar="N",
        help="repetitions, each with a seed of its own (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="run what the folder does not hold")
    add_formats(parser)
    add_output(parser, "folder of the study", default="learn-compare")


def _reproduce_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="such as rk-fig5; none: list them")
    add_scale(parser)
    parser.add_argument("--data", metavar="DIR", help="folder of data sets")
    add_output(parser, "folder; resumes (default: learn-NAME)")


def _data_arguments(parser: argparse.ArgumentParser, without: tuple[str, ...] = ()) -> None:
    _source_arguments(parser)
    add_settings(parser, LearnSettings, sorted({name for name, _ in PRESETS}), without)


def _source_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dataset", metavar="DATASET",
        help="mnist | femnist | adult | lasso | a folder of one of these names | data of your own: "
        "FILE.npz (x, y, client), FILE.csv or FILE.parquet (y, client), a folder of images",
    )  # fmt: skip
    parser.add_argument(
        "--data", metavar="DIR", help="folder of data sets (default: $GRIDPRIV_DATA)"
    )
    parser.add_argument("--download", action="store_true", help="fetch missing files")


def execute(args: argparse.Namespace) -> int:
    """Run the action."""
    acts = {"run": _run, "compare": _compare, "reproduce": _reproduce, "grant": _grant}
    return acts[args.action](args)


def _grant(args: argparse.Namespace) -> int:
    from gridpriv.learning import make_learn_settings
    from gridpriv.learning.datasets import dataset_name

    given = {k: v for k, v in given_settings(args, LearnSettings).items() if k in OF_SAMPLES}
    settings = make_learn_settings(dataset_name(args.dataset), **given)
    return grant(args, _dataset(args, settings), settings)


def _dataset(args: argparse.Namespace, settings: LearnSettings) -> Dataset:
    from gridpriv.learning import load_dataset

    return load_dataset(
        args.dataset, args.data, download=args.download, missing=settings.missing,
        scaling=settings.scaling, seed=settings.seed, norm=settings.norm,
    )  # fmt: skip


def _run(args: argparse.Namespace) -> int:
    from gridpriv.learning import learn, make_learn_settings
    from gridpriv.learning.datasets import dataset_name

    given = given_settings(args, LearnSettings)
    name = dataset_name(args.dataset)
    settings = make_learn_settings(name, args.preset, **given)
    folder = output_folder(args.out)
    began = time.perf_counter()
    dataset = _dataset(args, settings)
    load_seconds = time.perf_counter() - began
    with (
        charging(args, dataset, settings) as charge,
        progress(dataset.name, settings.rounds, quiet=args.quiet or args.json) as advance,
    ):
        result = learn(dataset, settings, lambda _: advance(""), load_seconds, charge=charge)
    document = result.as_dict()
    if folder is not None:
        write_json(document, ready(folder) / "run.json")
        write_csv(result.rounds, folder / "rounds.csv")
    tell(args, document, lambda: summarise(document), folder)
    return 0


def summarise(document: dict[str, Any]) -> None:
    """Print a run's summary."""
    from gridpriv.learning.summary import figures, privacy_figures, sentences

    print_table(*figures(document))
    if document["settings"]["mechanism"] != "none":
        print_table(*privacy_figures(document["privacy"]))
    for sentence in sentences(document):
        print(sentence)


def _compare(args: argparse.Namespace) -> int:
    from gridpriv.learning import make_learn_settings
    from gridpriv.learning.compare import compare
    from gridpriv.learning.datasets import dataset_name, load_by_seed

    formats = wanted_formats(args)
    given = given_settings(args, LearnSettings)
    preset = make_learn_settings(dataset_name(args.dataset), args.preset)
    datasets = load_by_seed(
        args.dataset, args.data, download=args.download,
        missing=given.get("missing", preset.missing),
        scaling=given.get("scaling", preset.scaling), norm=given.get("norm", preset.norm),
    )  # fmt: skip
    folder = output_folder(args.out)
    assert folder is not None
    study = compare(
        datasets,
        args.preset,
        [name.strip() for name in args.algorithms.split(",")],
        _numbers(args.totals),
        args.seeds,
        folder,
        given,
        resume=args.resume,
        progress=lambda total: progress("study", total, quiet=args.quiet or args.json),
    )
    return _tell(study, args, formats)


def _tell(study: Study, args: argparse.Namespace, formats: list[str]) -> int:
    """Write the reports and print the means over seeds and the answer."""
    from gridpriv.cli.compare import tell_failures
    from gridpriv.report.export import export
    from gridpriv.report.summary import answers, summary

    files = [str(file) for file in export(study.folder, formats)]
    table = summary(study)
    told = answers(study, table)
    kept = table.dropna(axis=1, how="all").astype(object)
    rows = kept.where(kept.notna(), None).to_dict("records")
    document = {"folder": args.out, "answer": told, "runs": rows, "files": files}
    written = "\n  ".join([str(args.out), *files])
    tell(args, document, lambda: _print_means(study, table, told), written)
    tell_failures(study)
    return 0


def _print_means(study: Study, table: Any, told: list[str]) -> None:
    error = "test_mse" if table["test_error_pct"].isna().all() else "test_error_pct"
    columns = {
        "series": "algorithm", "total_epsilon": "total",
        error: "squared error" if error == "test_mse" else "error %",
        f"{error}_high": "95 % to", "mean_objective": "objective", "seeds": "seeds",
    }  # fmt: skip
    if study.failed.size:
        columns["failed"] = "failed"
    kept = table[list(columns)].astype(object)
    rows = kept.where(kept.notna(), None).values.tolist()
    print_table(study.manifest["title"], list(columns.values()), rows)
    for line in told:
        console().print(line)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"totals = {text!r} is not allowed: numbers, by commas") from None


def _reproduce(args: argparse.Namespace) -> int:
    from gridpriv.core.errors import one_of
    from gridpriv.learning.papers import REPRODUCTIONS

    if args.name is None:
        tell_names(args, {name: one.title for name, one in REPRODUCTIONS.items()})
        return 0
    one_of("name", args.name, REPRODUCTIONS)
    return reproduce(REPRODUCTIONS[args.name], args)


def reproduce(which: Reproduction, args: argparse.Namespace) -> int:
    """Reproduce a figure or table of a learning paper and print what it says."""
    from gridpriv.core.errors import one_of
    from gridpriv.learning.reproduce import SCALES, claim_table
    from gridpriv.learning.result import finite

    one_of("scale", args.scale, SCALES)
    folder = output_folder(args.out or f"learn-{which.name}")
    assert folder is not None

    def bar(total: int) -> AbstractContextManager[Any]:
        return progress(which.name, total, quiet=args.quiet or args.json)

    with resumable("finished runs are kept; the same command goes on"):
        outcome = which.run(args.scale, args.data, folder, bar)
    claims = claim_table(outcome)
    tables = {"table": outcome.table, "claims": claims}
    document = {
        "name": which.name, "scale": args.scale, "folder": str(folder), "notes": outcome.notes,
        **{name: finite(table.to_dict("records")) for name, table in tables.items()},
    }  # fmt: skip

    def summarise() -> None:
        print_table(which.title, list(outcome.table.columns), outcome.table.values.tolist())
        print_table(
            "What the paper states, and whether it holds here",
            list(claims.columns),
            claims.values.tolist(),
        )
        for text in outcome.notes:
            print(text)

    tell(args, document, summarise, folder)
    return 0
