"""The engine of every study: tasks to rows, in a folder that any of them can be resumed in.

It knows neither grids nor learning: a task has an identity, and what works on the tasks that are
left hands back rows.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol, TypeVar

from gridpriv.core.document import Json
from gridpriv.core.errors import GridprivError, not_allowed, notes
from gridpriv.core.store import Store, open_store
from gridpriv.core.stored import TABLES, Rows, Study, read_study
from gridpriv.study.total import told_totals

Advance = Callable[[str], None]
Progress = Callable[[int], AbstractContextManager[Advance]]
"""From a number of tasks to what shows them: ``advance(note)``."""


def unseen(_total: int) -> AbstractContextManager[Advance]:
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
    common: Callable[[], Rows] = dict,
    check: Callable[[list[Kind]], None] = lambda _: None,
    progress: Progress = unseen,
) -> Study:
    """Run tasks into a folder, or those that it lacks, and return the study.

    Parameters
    ----------
    work : callable
        Works on the tasks that are left and adds the rows of each to the store.
    common : callable
        Rows of no run, such as the network.
    check : callable
        Refuses tasks that are left, before anything is forgotten or run.
    """
    with open_store(out, manifest, resume=resume, common=common) as store:
        stored = store.stored()
        failed = {run for run, status in stored.items() if retry_failed and status == "failed"}
        left = [task for task in tasks if task.id in failed or task.id not in stored]
        check(left)
        store.forget(failed)
        with progress(len(left)) as advance:
            work(left, store, advance)
        store.finish(told_totals)
    return read_study(out)


def add_each(batches: Iterable[Rows], store: Store, advance: Advance) -> None:
    """Store the rows of every run as it is finished."""
    for rows in batches:
        store.add(rows)
        advance(note(rows))


def note(rows: Rows) -> str:
    """Return a run in a few words, for the progress bar."""
    row = rows["runs"][0]
    words = f"{row['case']}, {row['method']}, {row['budget']}"
    return words if row["status"] == "done" else f"{words}: failed"


def reason_of(error: GridprivError) -> str:
    """Return the reason of a failed run: the error with its notes."""
    return f"{error}{notes(error)}"


def failed_rows(identity: Json, reason: str) -> Rows:
    """Return the rows of a failed run with its reason; ``identity`` identifies it."""
    status = {"status": "failed", "reason": reason, "finished_rounds": 0}
    return {name: [] for name in TABLES} | {"runs": [identity | status]}


PACKAGES = (
    "gridpriv",
    "numpy",
    "scipy",
    "pandas",
    "pyomo",
    "casadi",
    "clarabel",
    "pandapower",
    "dp-accounting",
    "pyarrow",
)
LEARNING_RUN = "learning run"
"""Kind of a folder that holds one run of learning."""


def header(kind: str, title: str, question: str, plan: Json, planned: int) -> Json:
    """Return the header of the manifest of any study; ``plan`` is JSON.

    Raises
    ------
    InputError
        For text that no file could hold: half of a character, or bytes that are no UTF-8.
    """
    for name, text in {"title": title, "question": question, **plan}.items():
        try:
            json.dumps(text, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise not_allowed(name, ascii(text), "text that UTF-8 can hold") from None
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


def versions() -> dict[str, str]:
    """Return the version of Python and of every package that figures depend on."""
    entries = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            entries[package] = version(package)
        except PackageNotFoundError:
            continue
    return entries


def machine() -> Json:
    """Return system and processor of this machine; no name or address."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
    }
