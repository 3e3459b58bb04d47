"""The engine of every study: tasks to rows in a folder that can be resumed, and their total.

The rows of tables and the manifest declare every entry, and who may see it.

It is independent of grids and learning: a task has an identity, and a function runs the remaining
tasks and returns rows.

Each run states its own total, but all of them are computed from the same data. A unit of the data
(a bus, a training sample) is charged for the releases of its zone or client in every run. For grids
the zone maps define that zone, so the total is that of the worst combination of zones of a bus. In
learning a sample's client may differ between runs: each charge counts as often as for the client
with most such charges, which is at least the cost of any sample.
"""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import cache, partial, reduce
from importlib.metadata import PackageNotFoundError, version
from operator import or_
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pandas as pd

from gridpriv.core.errors import GridprivError, InputError, not_allowed, notes
from gridpriv.core.store import Store, Study, Tables, as_columns, open_store, read_study
from gridpriv.core.tables import (
    Column,
    Flag,
    Number,
    Row,
    TableSchema,
    Text,
    key,
    known,
    like,
    part,
    private,
    released,
)
from gridpriv.core.text import Json, json_ready
from gridpriv.privacy.accounting import Charges, total_of, total_pure
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.settings import NO_BUDGET

SEED = "Seed: seed of simulated noise, which protects nothing"


class OfData(Row):
    """One case."""

    case: Text = key("Case: name or path of the grid or data set")
    zoning: Text = key("Zoning: zone map of the run; empty for the shipped map of the case")


class Identity(OfData):
    """One run of a study."""

    run: Text = key("Run: identifier of the run in the study; a number in published tables")
    number: Number = key("Number: position of the run in the plan")
    method: Text = key("Method: name of the settings that are compared")
    budget: Text = key("Budget: privacy budget; none: noise-free; nothing: prior-only")
    configuration: Text = key("Configuration: digest of the settings that a noise-free run has too")
    seed: Any = private(SEED)


class Ending(Row):
    """End of a run."""

    status: Text = released("Status: done, failed, or withheld (published without certified noise)")
    finished_rounds: Number = released("Rounds finished: number of rounds finished")
    reason: Text = private("Reason: reason of a failure, or remark on a finished run")


class ClaimRow(Row, name="claims"):
    """One statement of a paper, checked."""

    claim: Text = key("Claim: claim of the paper")
    case: Text = like(OfData, "case")
    sensitivity: Text = key("Sensitivity bound: bound that sets the noise in the compared runs")
    outcome: Text = private("Outcome: holds, does not hold, or no information (near chance)")
    holding: Number = private("Comparisons that hold: comparisons for which the claim holds")
    comparisons: Number = private("Comparisons: number of comparisons")
    detail: Text = private("Details: figures compared, and exceptions")
    ours: Any = known("Own question: true for a question of gridpriv's, not a paper's statement")
    settled: Text = known("Recorded outcome: outcome recorded with gridpriv's reference run")
    cause: Text = known("Cause: cause of the outcome: paper, data or gridpriv")
    why: Text = known("Why: explanation of the cause")


class GridRow(OfData, name="cases"):
    """One case under one zone map."""

    name: Text = known("Name: name of the case inside its file")
    source: Text = known("Zone map: source of the zone map")
    buses: Number = known("Buses: number of buses")
    branches: Number = known("Branches: number of branches")
    zones: Number = known("Zones: number of zones")
    tie_lines: Number = known("Tie lines: branches between zones")
    rated_branches: Number = known("Rated branches: number of branches with a rating")
    base_mva: Number = known("Base: base of per-unit figures")
    load_mw: Number = private("Demand: total active demand")
    fingerprint: Text = private("Case digest: SHA-256 of the case, its demand included")
    map: Any = known("Map: zone of every bus")


class StudyTotal(Row, name="totals"):
    """Total of all noisy runs on one data set."""

    case: str = like(OfData, "case")
    runs: int = released("Runs: number of noisy runs with releases")
    epsilon: Number = released(
        "Total epsilon: total epsilon at the delta of the same row; none without a "
        "certificate, and for runs that protect different changes"
    )
    pure: Number = released("Pure total epsilon: total epsilon (pure DP) by basic composition")
    delta: float = known("Delta: smallest target delta of the runs")
    unknown: int = released("Unknown: failed runs without a record of releases")


class ChargeRow(Row, name="charges"):
    """Equal releases of one zone or client in one run."""

    run: Text = like(Identity, "run")
    owner: Text = key("Zone or client: zone or client that owns the protected data")
    kind: Text = known("Mechanism: mechanism in the accountant's terms")
    parameter: Number = released("Parameter: noise over sensitivity, or a stated epsilon or rho")
    second: Number = released("Second parameter: sampling rate, or delta")
    count: Number = released("Count: number of equal planned releases")
    drawn: Number = released("Drawn: number of them that were drawn, or may have been")


class Seeds(Row):
    """Seeds of the noise."""

    seeds: Any = private(SEED)


class Data(Seeds):
    """The plan of a study, and its data."""

    samples: Number = known("Samples: number of training samples")
    fingerprint: Text = private("Data digest: SHA-256 of the data")
    demand_sha256: Text = private("Digest: SHA-256 of the demand")
    public_demand_sha256: Text = known("Public digest: SHA-256 of the given public demand")
    ledger: Text = known("Ledger: identity of the charged ledger, the MAC of its first row")


PLANNED = (
    *("title", "question", "cases", "zonings", "budgets", "local-updates", "load-scales"),
    *("reference", "settings", "methods"),
    *("dataset", "tuning", "client-rounds", "allow", "measure", "data-seed"),  # of learning
    *("series", "steps"),
)
"""Keys of a study file."""
PLAN = TableSchema(
    "study",
    "the plan of a study",
    (),
    (
        *(Column(name, "settings", name.capitalize(), f"{name} of the study") for name in PLANNED),
        *Data.table.value_columns,
    ),
)


class Manifest(Seeds, name="manifest"):
    """One study."""

    format: Number = known("Format: version of the folder format")
    kind: Text = known("Kind: kind of run")
    title: Text = known("Title: title of the report")
    question: Text = known("Question: question that the report answers")
    study: Any = part(PLAN)
    cases: list[GridRow] = part(GridRow)
    totals: list[StudyTotal] = part(StudyTotal)
    planned: Number = known("Planned: number of planned runs")
    finished: Flag = known("Finished: completeness of the planned runs")
    tables: Any = private("Tables: rows and checksum of each")
    checksum: Text = private("Checksum: checksum of the manifest")
    public: Flag = known("Public: flag of a folder without figures for the data owner only")
    version: Text = known("Version: version of gridpriv")
    versions: Any = known("Versions: versions of the packages that figures depend on")
    machine: Any = private("Machine: system, processor")
    created: Text = private("Created: start time of the study")
    run_id: Text = private("Run: random identity of a run or series, as in its ledger")
    repeat: Text = private("To repeat: command that repeats the run, with its seed")


def study_totals(study: Study) -> list[StudyTotal]:
    """Return the total of every data set of a study with its noisy runs' charges."""
    charges = study.tables.get("charges", pd.DataFrame())
    if charges.empty:
        return []
    runs = _with_killed(study, charges)
    noisy = runs[runs["run"].isin(charges["run"]) | ~runs["budget"].isin(NO_BUDGET)]
    return [_total(study, str(case), r, charges) for case, r in noisy.groupby("case", sort=False)]


def manifest_totals(study: Study) -> Json:
    """Return the totals for a manifest; None without a certificate."""
    return {"totals": json_ready([total.as_dict() for total in study_totals(study)])}


def _with_killed(study: Study, charges: pd.DataFrame) -> pd.DataFrame:
    """Return the runs, including killed steps of a series with their possible charges."""
    killed = sorted(set(charges["run"]) - set(study.runs["run"]))
    if not killed or "budget" not in study.manifest["study"]["settings"]:
        return study.runs
    text = study.manifest["study"]["settings"] | {"case": study.manifest["cases"][0]["case"]}
    names = ("case", "budget", "target_delta", "beta", "protects")
    common = {name: text[name] for name in names} | {"power_factor": text.get("power_factor")}
    rows = [{"run": run, "zoning": ""} | common for run in killed]
    extra = pd.DataFrame(rows)
    return extra if study.runs.empty else pd.concat([study.runs, extra], ignore_index=True)


def _total(study: Study, case: str, noisy: pd.DataFrame, charges: pd.DataFrame) -> StudyTotal:
    runs = noisy[noisy["run"].isin(charges["run"])]
    # finished runs drew their charges: a step of a series may have drawn nothing
    ended = noisy["status"].eq("done") if "status" in noisy else False
    delta, unknown = float(runs["target_delta"].min()), len(noisy) - len(runs)
    unknown -= int((ended & ~noisy["run"].isin(runs["run"])).sum())
    total_of_case = partial(StudyTotal, case=case, runs=len(runs), delta=delta, unknown=unknown)
    if differing(runs):
        return total_of_case()
    planned_by_run, drawn_by_run = _by_run(charges, "count"), _by_run(charges, "drawn")
    units: set[tuple[frozenset[tuple[Charge, int]], frozenset[tuple[Charge, int]]]] = set()
    for owner_of in _owners(study, case, runs):
        planned, drawn = Counter[Charge](), Counter[Charge]()
        for run, zoning in runs[["run", "zoning"]].itertuples(index=False):
            for total, by_run in ((planned, planned_by_run), (drawn, drawn_by_run)):
                if owner_of is None:  # each charge as often as for the owner with most of them
                    total.update(reduce(or_, by_run[run].values()))
                else:
                    total.update(by_run[run].get(owner_of[zoning], {}))
        units.add((frozenset(planned.items()), frozenset(drawn.items())))
    spent = [(dict(planned), dict(drawn)) for planned, drawn in units]
    epsilon = max((_epsilon(*unit, delta) for unit in spent), default=0.0)
    pure = max((total_pure(drawn) for _, drawn in spent), default=0.0)
    return total_of_case(epsilon=epsilon, pure=pure)


def _epsilon(planned: Charges, drawn: Charges, delta: float) -> float:
    """Return the total at delta of planned releases, or the pure sum of drawn ones if smaller."""
    total = total_of(planned, delta)
    return total if planned == drawn else min(total, total_pure(drawn))


def differing(runs: pd.DataFrame) -> list[str]:
    """Return the settings in which the protection of runs on one data set differs."""
    values = [name for name in ("protects", "power_factor", "adjacency") if name in runs]
    varied = [name for name in values if runs[name].nunique(dropna=False) > 1]
    # a killed run has no results, and the settings of its series
    same = "beta_pu" not in runs or runs["beta_pu"].nunique() <= 1
    return varied if same else ["beta", *varied]


def _owners(study: Study, case: str, runs: pd.DataFrame) -> list[dict[str, str] | None]:
    """Return, for every class of buses, its zone by zone map; None without a map."""
    maps = {
        grid["zoning"]: grid["map"]
        for grid in study.manifest.get("cases", [])
        if grid["case"] == case and grid.get("map")
    }
    used = [zoning for zoning in dict.fromkeys(runs["zoning"]) if zoning in maps]
    if not used or set(used) < set(runs["zoning"]):
        return [None]
    kinds = {tuple(maps[zoning][bus] for zoning in used) for bus in maps[used[0]]}
    return [dict(zip(used, kind, strict=True)) for kind in sorted(kinds)]


def _by_run(charges: pd.DataFrame, number: str) -> dict[str, dict[str, Counter[Charge]]]:
    """Return the charges of every run by owner; ``number`` is ``count`` or ``drawn``."""
    by_run: dict[str, dict[str, Counter[Charge]]] = {}
    columns = charges[["run", "owner", "kind", "parameter", "second", number]]
    for run, owner, kind, parameter, second, count in columns.itertuples(index=False):
        charge = Charge(str(kind), float(parameter), float(second))
        by_run.setdefault(run, {}).setdefault(str(owner), Counter())[charge] += int(count)
    return by_run


def charge_rows(
    planned: Mapping[Any, Charges], drawn: Mapping[Any, Charges] | None = None
) -> list[Json]:
    """Return the rows of the table ``charges`` of one run, by owner; all are drawn by default."""
    actual = planned if drawn is None else drawn
    of = {owner: Counter(actual.get(owner, {})) for owner in planned}
    return [
        {"owner": str(owner), **vars(charge), "count": count, "drawn": of[owner][charge]}
        for owner, spent in planned.items()
        for charge, count in (Counter(spent) | of[owner]).items()
    ]


Advance = Callable[[str], None]
Progress = Callable[[int], AbstractContextManager[Advance]]
"""From a number of tasks to a display with ``advance(note)``."""


def no_progress(_total: int) -> AbstractContextManager[Advance]:
    """Show no progress."""
    return nullcontext(lambda _: None)


class StudyRun(Protocol):
    """One run of a study."""

    @property
    def id(self) -> str: ...  # noqa: D102


Kind = TypeVar("Kind", bound=StudyRun)


def run_study(
    out: Path,
    manifest: Json,
    tasks: Sequence[Kind],
    work: Callable[[list[Kind], Store, Advance], None],
    *,
    resume: bool = False,
    retry_failed: bool = False,
    common: Callable[[], Tables] = dict,
    check: Callable[[list[Kind]], None] = lambda _: None,
    progress: Progress = no_progress,
) -> Study:
    """Run tasks, or those that a folder lacks, into the folder; return the study.

    Parameters
    ----------
    work : callable
        Runs the remaining tasks and adds the tables of each to the store.
    common : callable
        Returns tables that are not of a run, such as the network.
    check : callable
        Refuses remaining tasks, before anything is removed or run.
    """
    with open_store(out, manifest, resume=resume, common=common) as store:
        stored = store.stored()
        if stored.keys() - {task.id for task in tasks}:
            raise InputError(
                f"out = {str(out)!r}: must be another folder; it was written by an earlier "
                "development version, with other settings of its runs"
            )
        failed = {run for run, status in stored.items() if retry_failed and status == "failed"}
        remaining = [task for task in tasks if task.id in failed or task.id not in stored]
        check(remaining)
        store.forget(failed)
        with progress(len(remaining)) as advance:
            work(remaining, store, advance)
        store.finish(manifest_totals)
    return read_study(out)


def note(tables: Tables) -> str:
    """Return a run in a few words, for the progress bar."""
    row = {name: cells[0] for name, cells in as_columns(tables["runs"]).items()}
    words = f"{row['case']}, {row['method']}, {row['budget']}"
    return words if row["status"] == "done" else f"{words}: failed"


def attempted(run: Callable[[], Tables], failed: Callable[[str], Tables]) -> Tables:
    """Return a run's tables, or those of its failure with the reason.

    A defect in one combination must not stop the others; the reason names it as a defect.
    """
    try:
        return run()
    except GridprivError as error:
        return failed(reason_of(error))
    except (ArithmeticError, ValueError, LookupError, MemoryError, RuntimeError) as error:
        return failed(f"internal error, {type(error).__name__}: {error}")


def reason_of(error: GridprivError) -> str:
    """Return the reason of a failed run: the error with its notes."""
    return f"{error}{notes(error)}"


def failed_tables(identity: Json, reason: str) -> Tables:
    """Return the tables of a failed run with its reason; ``identity`` identifies it."""
    return {"runs": [identity | {"status": "failed", "reason": reason, "finished_rounds": 0}]}


PACKAGES = (
    *("gridpriv", "numpy", "scipy", "pandas", "pyomo", "casadi", "clarabel", "pandapower"),
    *("dp-accounting", "pyarrow"),
)
LEARNING_RUN = "learning run"
"""Kind of a folder with one run of learning."""


def header(kind: str, title: str, question: str, plan: Json, planned: int) -> Json:
    """Return the header of the manifest of any study; ``plan`` is JSON.

    Raises
    ------
    InputError
        For text that cannot be encoded in UTF-8.
    """
    for name, text in {"title": title, "question": question, **plan}.items():
        try:
            json.dumps(text, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            allowed = "text that UTF-8 can hold (rename a file whose name is in it)"
            raise not_allowed(name, ascii(text), allowed) from None
    return {
        "kind": kind,
        "public": False,
        "title": title,
        "question": question,
        "study": plan,
        "seeds": plan["seeds"],
        "cases": [],
        "planned": planned,
        "version": version("gridpriv"),
        "versions": versions(),
        "machine": machine(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of every package that affects results."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def machine() -> Json:
    """Return system and processor of this machine; no name or address."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
    }
