"""Read and write XIIDM, CGMES, UCTE, PSS/E and IEEE CDF through pypowsybl.

Files are read in a process of their own (:mod:`gridpriv.grid.powsybl_worker`); a network in
memory is read here. docs/decisions/0064-powsybl.md says why.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gridpriv.core.errors import InputError, missing_extra
from gridpriv.core.files import write_bytes
from gridpriv.core.reading import read_bytes
from gridpriv.grid.case import Case, SourceNames
from gridpriv.grid.powsybl_files import ENDINGS, FORMATS, checked_content
from gridpriv.grid.powsybl_tables import BASE_MVA
from gridpriv.grid.powsybl_worker import ANSWER, MOST_MEMORY, MOST_SECONDS
from gridpriv.grid.readreport import FieldNote, ReadReport, grid_notes
from gridpriv.grid.tables import MatpowerTables, case_from_tables

LONGEST_WAIT = 3 * MOST_SECONDS
"""Seconds on the clock: a busy machine takes longer than its processor time."""
WRITTEN = {
    ".xiidm": "XIIDM",
    ".zip": "CGMES",
    ".uct": "UCTE",
    ".raw": "PSS/E",
}
"""Formats that pypowsybl writes."""


def load_powsybl(path: Path) -> tuple[Case, ReadReport]:
    """Read a file through pypowsybl.

    Raises
    ------
    InputError
        If pypowsybl is not installed, the file is damaged, or reading takes too much time or
        memory.
    """
    case, report = _case(_ask(path)[0], path.stem)
    kind = FORMATS[path.suffix.lower()]
    return case, ReadReport(path.name, f"{kind} by pypowsybl", report)


def case_from_powsybl(network: Any, name: str | None = None) -> Case:
    """Return the case of a pypowsybl network, which is not changed.

    Parameters
    ----------
    network : pypowsybl.network.Network
    name : str, optional
        Of the case; the network's own name by default.

    Raises
    ------
    InputError
        Naming the row of the element, if the network holds what a grid cannot have.
    """
    from gridpriv.grid.powsybl_tables import network_tables

    tables = network_tables(network)
    return _case(vars(tables), name or str(network.name or network.id or "network"))[0]


def write_powsybl(
    source: Path,
    path: Path,
    result: dict[str, Any] | None = None,
    *,
    private: bool = True,
    label: str = "",
) -> None:
    """Write a file that pypowsybl reads in a format that it writes, with set points or without.

    Parameters
    ----------
    source, path : path
    result : dict, optional
        Set points to write into it (:func:`gridpriv.grid.powsybl_worker.apply`).
    private : bool
        Whether only its owner may read the file.
    label : str
        Name of the source in errors; its path by default.

    Raises
    ------
    InputError
        If the source cannot be read, or the network has no place in the format.
    """
    target = path.suffix.lower()
    request: dict[str, Any] = {"target": f"written{target}", "format": WRITTEN[target]}
    request |= {} if result is None else {"result": result}
    write_bytes(path, _ask(source, request, label)[1], private=private)


def need_powsybl(path: Path) -> None:
    """Refuse a file of a format that only pypowsybl has, where that is not installed."""
    if find_spec("pypowsybl") is None:
        raise missing_extra("pypowsybl", "powsybl", f"a {path.suffix} file")


def _ask(
    source: Path, writing: dict[str, Any] | None = None, label: str = ""
) -> tuple[dict[str, Any], bytes]:
    """Return the answer of a process of its own about a file, and the file that it wrote."""
    need_powsybl(source)
    suffix = source.suffix.lower()
    content = checked_content(source)
    with TemporaryDirectory(prefix="gridpriv-") as folder:
        place = Path(folder)
        request = {"source": f"case{ENDINGS.get(FORMATS.get(suffix, ''), suffix)}"}
        request |= writing or {}
        (place / request["source"]).write_bytes(content)
        (place / "request.json").write_text(json.dumps(request), encoding="utf-8")
        answer = _answer(place, label or str(source))
        made = read_bytes(place / request["target"], "written file") if writing else b""
    return answer, made


def _answer(place: Path, source: str) -> dict[str, Any]:
    boot = f"import sys; sys.path[:] = {sys.path!r}; from gridpriv.grid.powsybl_worker import main"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", f"{boot}; main({str(place)!r})"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=place,
            timeout=LONGEST_WAIT,
            check=False,
        )
        code = str(done.returncode)
    except subprocess.TimeoutExpired:
        code = "time out"
    answer: dict[str, Any] = {}
    with suppress(ValueError, InputError):
        answer = json.loads(read_bytes(place / ANSWER, "answer"))
    if "error" in answer:
        raise InputError(f"case file {source} {answer['error']}")
    if not answer:
        raise InputError(
            f"case file {source} is not readable: pypowsybl ended without an answer ({code}). It "
            f"may take {MOST_SECONDS} s of processor time and {MOST_MEMORY / 2**30:g} GiB."
        )
    return answer


def _case(answer: dict[str, Any], name: str) -> tuple[Case, tuple[FieldNote, ...]]:
    """Return the case of the tables of a network, and the account of it."""
    bus, branch, gen = (
        np.array(answer[table], dtype=float).reshape(-1, width)
        for table, width in (("bus", 13), ("branch", 13), ("gen", 10))
    )
    names = answer["names"]
    if isinstance(names, dict):
        by_bus = {int(number): str(label) for number, label in names["bus"].items()}
        names = SourceNames(by_bus, tuple(names["branch"]), tuple(names["gen"]))
    groups = {kind: tuple(values) for kind, values in answer["groups"].items()}
    case = case_from_tables(MatpowerTables(name, BASE_MVA, bus, gen, branch))
    case = replace(case, groups=groups, names=names)
    notes = (note if isinstance(note, FieldNote) else FieldNote(**note) for note in answer["notes"])
    return case, (*notes, *grid_notes(case))
