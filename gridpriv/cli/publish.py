"""``gridpriv publish``: a case file with protected demand, its certificate and its data sheet."""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from gridpriv.cli import flags
from gridpriv.cli.output import print_records, print_result, print_table, say, worded
from gridpriv.core.errors import InputError, not_allowed, positive
from gridpriv.core.files import (
    DamagedError,
    MissingFileError,
    StorageError,
    locked_files,
    read_bytes,
    read_sealed,
    sealed,
    write_texts,
)
from gridpriv.core.settings import Part, changed, choice, count, names, number
from gridpriv.core.text import Json, amount, counted, csv_text
from gridpriv.privacy.adjacency import Beta, Protects
from gridpriv.privacy.settings import Budget, Mechanism, Noise, Privacy
from gridpriv.zonal.settings import Adjacency, Release, ReleaseSchedule, Settings, make_settings

if TYPE_CHECKING:
    from gridpriv.grid.case import Case
    from gridpriv.power.ac.optimum import Served
    from gridpriv.privacy.ledger import ReleaseCharge
    from gridpriv.privacy.ledger_rows import LedgerDataset
    from gridpriv.privacy.release import Release as Drawn
    from gridpriv.zonal.protected_case import ProtectedCase, ProtectedSeries

VERIFY, DIFFERS = "verify", 1
MOST_SCENARIOS = 1000
ENDINGS = (".scenarios.csv", ".series.csv", ".datasheet.md", ".certificate.json")
"""Endings of the files written with the case."""
READ = {
    "case": "CASE",
    "demand": "--demand",
    "series": "--series",
    "public_demand": "--public-demand",
}
"""Arguments that name a file to read."""
MECHANISMS = ("knorm", "laplace", "staircase")
RELEASES = tuple(name for name in get_args(Release) if name != "nothing")
OF_RUNS = names(Settings)
DEMAND_COLUMNS = ("bus", "pd_mw", "qd_mvar")
SIMULATED = "SIMULATED NOISE, NO PRIVACY: anyone with the seed can subtract the noise"


def _pure(name: str, value: object) -> None:
    """Refuse a budget that is not a total epsilon, or has a delta."""
    if isinstance(value, str) and "," in value:
        raise not_allowed(name, value, "epsilon alone: publish gives pure privacy, without a delta")
    positive(name, value)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Publishing(Part):
    """Release of a case's demand (defaults differ from those of gridpriv run)."""

    beta: Beta = changed(Adjacency, "beta", Beta(10.0, "MW"))
    total: float = number(1.0, "total epsilon (pure DP)", _pure)
    protects: Protects = changed(Adjacency, "protects", "p+q")
    release: Release = changed(
        ReleaseSchedule,
        "release",
        "auto",
        choices=RELEASES,
        help="released statistics of demand: every bus, the total of the grid, both (tree), or the "
        "one of least expected error (auto)",
    )
    mechanism: Mechanism | None = choice(
        None,
        MECHANISMS,
        "noise mechanism",
        unset="knorm or laplace, the one of smaller expected error; knorm with --series",
    )
    noise: Noise = changed(Privacy, "noise", "simulated")
    seed: int | None = changed(ReleaseSchedule, "seed", None)
    public_demand: str | None = changed(ReleaseSchedule, "public_demand", None)
    fidelity: str | None = choice(
        None,
        ("cost",),
        "cost: release also the sum of demand times public prices, at 30 % of the total epsilon; "
        "with --release bus, the optimal cost is nearer the true one",
        unset="none",
    )
    scenarios: int = count(
        0,
        "also write N demand scenarios sampled from the release and public data, at no further "
        "epsilon",
        least=0,
    )

    def settings(self) -> Settings:
        """Return the settings of the release."""
        given = {name: getattr(self, name) for name in names(Publishing) if name in OF_RUNS}
        return make_settings(budget=Budget("total", self.total), coordination="central", **given)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.usage = "%(prog)s CASE --out FILE [options]\n       %(prog)s verify FILE"
    flags.add_case_arguments(parser)
    flags.flag(parser, "file", "FILE", nargs="?")
    flags.add_flags(parser, Publishing)
    flags.flag(parser, "--protect", "BETA", help=argparse.SUPPRESS, dest="beta")  # its older name
    flags.flag(parser, "--series", "FILE.csv")
    flags.add_ledger_arguments(parser)
    flags.add_output(parser, "FILE")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Release, project, write the files, and list them; or verify the files of a publication."""
    if args.case == VERIFY:
        return _verify(args)
    if args.file is not None:
        raise InputError(
            f"{args.file!r} follows the case; give it to 'gridpriv publish verify FILE', without a "
            "case, or name the file to write with --out"
        )
    path, chosen = _out_path(args), _chosen(args)
    companions = _companions(path)
    _refuse_inputs(args, [path, *companions])
    settings = chosen.settings()
    case = flags.given_case(args)
    settings.adjacency(case)  # refuses, or warns of, a distance outside this grid's range
    with locked_files(path, *companions):
        planned, draw = _prepared(args, chosen, case, settings)
        with _charged(args, case, settings, planned) as charge:
            copy = draw(charge or (lambda *_: None))
            run = None if charge is None else charge.run_id
        document = _write(chosen, path, _earlier(companions), copy, run)

    def show() -> None:
        summarise(document)
        if chosen.noise == "simulated":
            say(f"--seed {copy.contents.ready.seed} draws the same simulated noise again.")

    return print_result(args, document, show, path)


def _verify(args: argparse.Namespace) -> int:
    """Compare the files of a publication with its certificate; exit code 1 if they differ."""
    from gridpriv.zonal.certificate import verify

    if args.file is None:
        raise InputError("publish verify needs a file: the published .m, or its certificate")
    document = verify(Path(args.file))
    wrong = [row for row in document["files"] if row["status"] != "unchanged"]

    def show() -> None:
        columns = {"name": "file", "status": "status"}
        print_records(f"Files of {document['certificate']}", columns, document["files"])
        say(worded("publish-verify-differs" if wrong else "publish-verify", **document))

    return print_result(args, document, show, code=DIFFERS if wrong else 0)


def _chosen(args: argparse.Namespace) -> Publishing:
    chosen = Publishing(**flags.given_settings(args, Publishing))
    if chosen.scenarios > MOST_SCENARIOS:
        raise not_allowed("scenarios", chosen.scenarios, f"0 to {MOST_SCENARIOS}")
    for name in ("fidelity", "scenarios"):
        if args.series and getattr(chosen, name):
            raise not_allowed(name, getattr(chosen, name), "left out with --series")
    return chosen


def _out_path(args: argparse.Namespace) -> Path:
    """Return the file of ``--out``, refused early where it cannot be written."""
    if args.out is None:
        raise InputError("--out is missing: name the MATPOWER file to write, such as private.m")
    path = Path(args.out)
    if path.suffix != ".m" or not path.stem:
        raise not_allowed("out", args.out, "a file name that ends in .m")
    if path.is_dir():
        raise not_allowed("out", args.out, "a file, not a folder")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {path}: permission denied")
    return path


def _companions(path: Path) -> list[Path]:
    """Return the paths of the files written with the case."""
    return [path.with_name(path.stem + ending) for ending in ENDINGS]


def _refuse_inputs(args: argparse.Namespace, files: Sequence[Path]) -> None:
    """Refuse a path at which an output file would replace an input file."""
    for name, given in READ.items():
        source = Path(getattr(args, name, None) or "")
        for file in files:
            if source.is_file() and file.exists() and file.samefile(source):
                raise InputError(f"{file} is read as {given}. Give another --out.")


def _earlier(companions: Sequence[Path]) -> list[Path]:
    """Return the unchanged companion files of an earlier publication, as its certificate says."""
    try:
        listed = {row["name"]: row["sha256"] for row in read_sealed(companions[-1])["files"]}
    except (MissingFileError, DamagedError, LookupError, TypeError):  # none, or another file
        return []
    return [
        file
        for file in companions
        if file.name in listed
        and file.exists()
        and hashlib.sha256(read_bytes(file)).hexdigest() == listed[file.name]
    ]


def _prepared(
    args: argparse.Namespace, chosen: Publishing, case: Case, settings: Settings
) -> tuple[Mapping[Drawn, int], Callable[[Any], ProtectedCase | ProtectedSeries]]:
    """Return the releases that a publication draws, and the function that draws them."""
    from gridpriv.zonal import protected_case as publishing

    if args.series:
        horizon = publishing.prepare_series(flags.read_series(args, case), settings)
        planned = horizon.planned[publishing.WHOLE_GRID]
        return planned, partial(publishing.protect_series, horizon)
    priced = chosen.fidelity is not None
    publication = publishing.prepare_publication(case, settings, priced=priced)
    return publication.planned, partial(publishing.protect, publication)


@contextmanager
def _charged(
    args: argparse.Namespace, case: Case, settings: Settings, planned: Mapping[Drawn, int]
) -> Iterator[ReleaseCharge | None]:
    """Open ``--ledger`` and check that all releases fit before the first is drawn."""
    from gridpriv.study.context import open_charge
    from gridpriv.zonal.prepared import zone_datasets
    from gridpriv.zonal.protected_case import WHOLE_GRID, whole_grid

    def owners() -> Sequence[LedgerDataset]:
        return zone_datasets(case, whole_grid(case), settings.protected(case))

    with open_charge(args.ledger, args.ledger_key, owners, noisy=True) as charge:
        if charge is not None:
            charge.admit({WHOLE_GRID: planned})
        yield charge


def _write(
    chosen: Publishing,
    path: Path,
    earlier: Collection[Path],
    copy: ProtectedCase | ProtectedSeries,
    run: str | None,
) -> Json:
    """Write the case and its accompanying files; return the certificate."""
    from gridpriv.grid.convert import function_name, matpower_text
    from gridpriv.zonal.certificate import COPIES, certificate, data_sheet, file_rows
    from gridpriv.zonal.protected_case import ProtectedCase, ProtectedSeries

    contents, published = copy.contents, copy.case(function_name(path.stem))
    header = [
        f"{COPIES[chosen.noise].capitalize()} of {contents.ready.case.name}: noise of "
        f"total epsilon {contents.epsilon:.6g} (pure DP)",
        f"Protected: {contents.adjacency}",
        *([SIMULATED] if chosen.noise == "simulated" else []),
        f"Made by gridpriv publish; see {path.stem}.certificate.json",
    ]
    files = {
        path.name: matpower_text(published, header, contents.served.optimum.state.qg, rounded=True)
    }
    notes = [*_group_notes(published), *_bus_notes(published)]
    if chosen.scenarios:
        name = f"{path.stem}.scenarios.csv"
        scenarios = copy.scenarios(chosen.scenarios) if isinstance(copy, ProtectedCase) else ()
        files[name] = _demands("scenario", map(str, range(1, chosen.scenarios + 1)), scenarios)
        notes.append(
            f"{name} holds {counted(chosen.scenarios, 'demand')} drawn from the posterior."
        )
    if isinstance(copy, ProtectedSeries):
        name = f"{path.stem}.series.csv"
        files[name] = _demands("step", copy.horizon.series.steps, copy.served)
        notes.append(
            f"{name} holds the demand of {counted(len(copy.served), 'step')}; the case has "
            "that of the first."
        )
    document = certificate(contents, published, files, run)
    notes += caveats(document)
    files[f"{path.stem}.datasheet.md"] = data_sheet(document, notes)
    document["files"] = file_rows(files)
    files[f"{path.stem}.certificate.json"] = sealed(document, indent=2)
    _write_files({path.with_name(name): text for name, text in files.items()}, earlier, run)
    return document


def _write_files(files: Mapping[Path, str], earlier: Collection[Path], run: str | None) -> None:
    """Write a publication's files in place of earlier ones; an error states what was charged."""
    try:
        write_texts(files, set(earlier) - set(files))
    except StorageError as error:
        paid = "" if run is None else "; its release is drawn and charged to the ledger"
        raise StorageError(
            f"{error}: the publication is not written{paid}. Free space or name "
            "another --out, and publish again."
        ) from error


def _group_notes(case: Case) -> list[str]:
    """Return the names of a case's areas and zones by their numbers in the file."""
    from gridpriv.grid.convert import group_numbers

    return [
        f"Numbers of the column {kind}: "
        + ", ".join(f"{place:.0f} is {name or 'without a name'}" for name, place in numbers.items())
        + "."
        for kind in ("area", "zone")
        if (numbers := group_numbers(case.groups.get(kind, ())))
    ]


def _bus_notes(case: Case) -> list[str]:
    """Return the buses that closed switches join, and those without load, by their numbers."""
    from gridpriv.grid.convert import bus_numbers, bus_shift

    shift, notes = bus_shift(case), []
    if joined := case.names.joined:
        parts = (f"{own + shift} is part of bus {bus + shift}" for own, bus in joined.items())
        notes.append(worded("publish-joined", parts=", ".join(parts)))
    if not case.load_buses.all():
        numbers = ", ".join(map(str, bus_numbers(case)[~case.load_buses]))
        notes.append(worded("publish-auxiliary", buses=numbers))
    return notes


def _demands(column: str, names: Iterable[str], served: Iterable[Served]) -> str:
    """Return demands as CSV, one row per name and bus, numbered as in the case file."""
    from gridpriv.grid.convert import bus_numbers

    rows: list[tuple[object, ...]] = []
    for name, item in zip(names, served, strict=True):
        numbers, base = bus_numbers(item.case).tolist(), item.case.base_mva
        demand = zip(numbers, base * item.case.pd, base * item.case.qd, strict=True)
        rows += [(name, bus, f"{p:.6f}", f"{q:.6f}") for bus, p, q in demand]
    return csv_text((column, *DEMAND_COLUMNS), rows)


OF_DEMAND = {
    "total_mw": "published demand",
    "expected_total_error_mw": "posterior standard deviation of the total",
    "expected_bus_error_mw": "posterior standard deviation of one bus (RMS)",
    "projected_mw": "change to the nearest AC-feasible demand",
}
"""Names of the values of a published demand."""


def summarise(document: Json) -> None:
    """Print the published files, their guarantees and their accuracy."""
    from gridpriv.zonal.certificate import COPIES, UNITS, before, holds, rounded_bounds

    guard, demand, optimum = document["protected"], document["demand"], document["optimum"]
    pair = {"beta": guard["beta_mw"], "unit": UNITS[guard["protects"]], "before": before(document)}
    bounds = rounded_bounds(guard)
    figures = [(name, demand[key], "MW") for key, name in OF_DEMAND.items()]
    figures.append(("optimal cost", optimum["cost"], "$/h"))
    figures += [
        (f"true optimal cost, 95 % range {end}", cost, "$/h")
        for end, cost in zip(("from", "to"), optimum["cost_range"] or (), strict=False)
    ]
    print_table(
        f"{document['case']}: {COPIES[guard['noise']]} of {document['source']}, and its "
        f"certificate{holds(document)}",
        ["figure", "value", "unit"],
        [
            ["total epsilon (pure DP)", guard["total_epsilon"], ""],
            [worded("publish-best-guess", **pair), bounds["best_guess"], ""],
            [worded("publish-inversion", **pair), bounds["inversion_error_mw"], pair["unit"]],
            *([name, amount(value, unit), unit] for name, value, unit in figures),
        ],
    )
    say(*sentences(document))


def caveats(document: Json) -> list[str]:
    """Return the caveats in the terminal and in the data sheet."""
    from gridpriv.zonal.certificate import UNITS

    lines, number = [], document["demand"]["negative_loads"]
    if document["bus_shift"]:
        lines.append(worded("publish-renumbered", shift=document["bus_shift"]))
    if any(release["quantity"].startswith("demand of") for release in document["releases"]):
        lines.append(worded("publish-series-errors"))
    if factors := document["demand"]["factors"]:
        guard = document["protected"]
        scaled = {"scaled": factors[0] * guard["beta_mw"], "unit": UNITS[guard["protects"]]}
        ends = {"least": min(factors), "most": max(factors), "first": factors[0]}
        lines.append(worded("publish-factors", **ends, **scaled))
    if any(release["quantity"].endswith("total") for release in document["releases"]):
        lines.append(worded("publish-total-only"))
    if number:  # other programs may refuse negative loads or read them as generation
        lines.append(worded("publish-negative", buses=counted(number, "bus")))
    if not document["optimum"]["rated_branches"]:
        lines.append(worded("publish-no-ratings"))
    return lines


def sentences(document: Json) -> list[str]:
    """Return the sentences of a published case for the terminal."""
    from gridpriv.zonal.certificate import OTHER

    guard, demand = document["protected"], document["demand"]
    lines = [f"Protected: {guard['adjacency']}. {guard['caveat'].capitalize()}."]
    if other := OTHER.get(guard["protects"]):
        lines.append(f"Not protected{other.replace(';', ':', 1)}.")
    lines += caveats(document)
    if demand["margin"]:
        lines.append(worded("publish-moved", **demand))
    return lines
