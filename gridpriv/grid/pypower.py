"""Read PYPOWER dictionaries, and MATPOWER cases saved as ``.mat``.

Both hold MATPOWER's tables, so nothing here knows a unit: :mod:`gridpriv.grid.tables` does.
A PYPOWER case file is a Python program; it is never run here. Import it yourself and hand
the dictionary to :func:`case_from_pypower`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.core.reading import LARGEST, read_bytes, shown
from gridpriv.grid.case import Case
from gridpriv.grid.matfile import MatFileError, Unread, read_variables
from gridpriv.grid.readreport import ReadReport, report_tables
from gridpriv.grid.tables import READ_FIELDS, MatpowerTables, case_from_tables

HDF5 = b"\x89HDF"


def case_from_pypower(ppc: Mapping[str, object], name: str = "pypower") -> Case:
    """Return the case of a PYPOWER dictionary.

    Parameters
    ----------
    ppc : mapping
        Format version 2, in MW, MVAr and p.u. (:func:`read_pypower`, which also reports).
    name : str
        Of the case.

    Raises
    ------
    InputError
        Naming table, row and column.
    """
    return read_pypower(ppc, name)[0]


def read_pypower(ppc: Mapping[str, object], name: str = "pypower") -> tuple[Case, ReadReport]:
    """Read a PYPOWER case dictionary (format version 2).

    Parameters
    ----------
    ppc : mapping
        With ``baseMVA``, ``bus``, ``gen``, ``branch`` and, where there are costs, ``gencost``.
        Bus numbers may count from 0.
    name : str
        Of the case.

    Raises
    ------
    InputError
        Naming the table and the row.

    Examples
    --------
    >>> from gridpriv.grid.library import load_case
    >>> ppc = {"version": "2", "baseMVA": 100.0, "branch": [[1, 2, 0, 0.1, 0, 0, 0, 0, 0, 0, 1]],
    ...        "bus": [[1, 3, 0, 0, 0, 0, 1, 1, 0, 110, 1, 1.1, 0.9],
    ...                [2, 1, 50, 10, 0, 0, 1, 1, 0, 110, 1, 1.1, 0.9]],
    ...        "gen": [[1, 50, 0, 90, -90, 1, 100, 1, 200, 0]]}
    >>> case, report = read_pypower(ppc)
    >>> case.n_bus, float(case.pd.sum()), report.unsupported
    (2, 0.5, ())
    """
    if not isinstance(ppc, Mapping):
        raise InputError(f"{name}: a PYPOWER case is a dict, not {type(ppc).__name__}; give a dict")
    tables = _tables(ppc, name)
    case = case_from_tables(tables)
    return case, report_tables(tables, case, name, "PYPOWER dict")


def load_mat(path: Path) -> tuple[Case, ReadReport]:
    """Read a MATPOWER case saved as ``.mat`` (a struct ``mpc``, as MATPOWER's savecase writes).

    Raises
    ------
    InputError
        For a file that is no such case, naming the table and the row where one is at fault.
    """
    tables = mat_tables(path)
    try:
        case = case_from_tables(tables)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return case, report_tables(tables, case, path.name, "MATPOWER .mat")


def mat_tables(path: Path) -> MatpowerTables:
    """Return the tables of a MATPOWER ``.mat`` file."""
    fields = _struct(path)
    try:
        return _tables(fields, path.stem)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _tables(fields: Mapping[str, object], name: str) -> MatpowerTables:
    for needed in ("baseMVA", "bus", "gen", "branch"):
        if needed not in fields:
            raise InputError(f"{name}: {needed} is missing; is this a MATPOWER version 2 case?")
    version = fields.get("version")
    if version is not None and _text(version) != "2":
        raise InputError(f"{name}: version = {shown(_text(version))}: must be '2'")
    return MatpowerTables(
        name=name,
        base_mva=_scalar(fields["baseMVA"]),
        bus=_matrix(fields["bus"], "bus"),
        gen=_matrix(fields["gen"], "gen"),
        branch=_matrix(fields["branch"], "branch"),
        gencost=_rows(fields.get("gencost")),
        dcline=_matrix(fields.get("dcline", []), "dcline"),
        others=tuple(
            (key, _length(value)) for key, value in fields.items() if key not in READ_FIELDS
        ),
        first_bus=0,
    )


def _struct(path: Path) -> dict[str, object]:
    """Return the fields of the file's ``mpc`` struct."""
    content = read_bytes(path, "case file", LARGEST)
    if HDF5 in content[:1024]:
        raise InputError(f"{path}: a v7.3 .mat file; save it with '-v7' and read that")
    try:
        variables = read_variables(content)
    except MatFileError as error:
        raise InputError(
            f"{path}: not a readable .mat file ({error}); save it anew from MATLAB or Octave"
        ) from error
    mpc = variables.get("mpc")
    if mpc is None and {"baseMVA", "bus", "gen", "branch"} <= set(variables):
        return variables
    if not isinstance(mpc, dict):
        names = ", ".join(repr(name[:30]) for name in list(variables)[:10] if name) or "nothing"
        raise InputError(f"{path}: no struct mpc; the file holds {names}; save the case as mpc")
    return mpc


def _numbers(value: object, field: str) -> Floats:
    try:
        array = np.asarray(value)
        if array.dtype.kind == "c":
            if np.any(array.imag):
                raise InputError(f"mpc.{field} has complex entries; real numbers are needed")
            array = array.real
        return np.asarray(array, dtype=float)
    except (TypeError, ValueError):  # text, or rows of different lengths
        raise InputError(
            f"mpc.{field}: must be a table of numbers with rows of one length"
        ) from None


def _matrix(value: object, field: str) -> Floats:
    table = _numbers(value, field)
    if table.size and table.ndim != 2:
        raise InputError(f"mpc.{field} has {table.ndim} dimensions; a table has 2: give a matrix")
    return table if table.size else np.zeros((0, 0))


def _rows(value: object) -> tuple[tuple[float, ...], ...]:
    if value is None:
        return ()
    return tuple(tuple(map(float, row)) for row in _matrix(value, "gencost"))


def _scalar(value: object) -> float:
    numbers = _numbers(value, "baseMVA").reshape(-1)
    if len(numbers) != 1:
        raise InputError(f"mpc.baseMVA has {len(numbers)} entries; one number is needed")
    return float(numbers[0])


def _text(value: object) -> str:
    flat = np.asarray(value).reshape(-1)
    text = str(flat[0]) if len(flat) else ""
    return text.removesuffix(".0")


def _length(value: object) -> int:
    if isinstance(value, Unread):
        return value.rows
    array = np.asarray(value, dtype=object)
    return len(array) if array.ndim else 1
