"""User data sets: numpy archives, tables, folders of images.

Three forms, by the path:

- ``NAME.npz``: arrays ``x`` (N, ...) and ``y`` (N,), and if wanted ``client`` (N,), ``x_test`` and
  ``y_test``. Archives with Python objects are refused; nothing is unpickled.
- ``NAME.csv`` or ``NAME.parquet``: a column ``y``, if wanted ``client`` and ``split`` (``train`` or
  ``test``); every other column is a feature and must be numeric.
- a folder with ``train/CLASS/`` and, if wanted, ``test/CLASS/``, each of PNG or JPEG images of one
  size; pixels are divided by 255.

Labels that are whole numbers or texts are classes (two of them: binary), others are targets of a
regression. *Public* are the names of columns and classes, hence the number of classes, the number
of samples of each client, and the bound on a row's 2-norm. So the bound is given and never computed
from the data (images have their own: the root of the number of pixels). Adjacent data have all of
this in common: the list of classes discloses a sample that is the only one of its class.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import zipfile
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.files import LARGEST, read_bytes, read_parquet, unpacked_bound
from gridpriv.learning.datasets.base import Dataset, Dtype, Features, Labels, clip_rows

Array = NDArray[Any]
TABLES = (".csv", ".parquet")
IMAGES = (".png", ".jpg", ".jpeg")
MOST_COLUMNS = 10_000  # of a table
MOST_PIXELS = 1 << 22  # of an image
PARTS = ("train", "test")


def is_own(path: Path) -> bool:
    """Return True for a path to user data, by its form."""
    return path.suffix in (".npz", *TABLES) or (path / "train").is_dir()


def load_own(path: Path, norm: float | None, dtype: Dtype = np.float32) -> Dataset:
    """Read a user data set.

    Parameters
    ----------
    norm : float or None
        Public bound of a row's 2-norm; longer rows are scaled down to it. Required except for
        images.

    Raises
    ------
    InputError
        Naming the array, column, file or row, its value and what is allowed.
    """
    if path.is_dir():
        arrays = _read_images(path)
        norm = math.sqrt(arrays["x"].shape[1]) if norm is None else norm
    elif not path.is_file():
        raise InputError(f"dataset = {str(path)!r}: must be a file or folder that exists")
    else:
        arrays = _read_archive(path) if path.suffix == ".npz" else _read_table(path)
    if norm is None:
        raise not_allowed("norm", norm, "a public bound of a row's 2-norm, such as --norm 1")
    return _dataset(path, arrays, norm, dtype)


def _dataset(path: Path, arrays: dict[str, Array], norm: float, dtype: Dtype) -> Dataset:
    """Return the data set of arrays ``x``, ``y`` and, where there are, the others."""
    x = _features(path, "x", arrays["x"], dtype)
    y, known, labels = _labels(path, arrays["y"])
    whole = _features(path, "x", arrays["x"], np.float32)  # whatever the precision of the file
    data = repr(whole.shape).encode() + whole.tobytes() + y.astype(np.float64).tobytes()
    content = hashlib.sha256(data).hexdigest()
    x_test, y_test = x[:0], y[:0]
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise InputError(f"{path} has one of x_test and y_test: both, or neither; add the other")
    if "x_test" in arrays:
        x_test = _features(path, "x_test", arrays["x_test"], dtype)
        y_test = known(arrays["y_test"])
    x, clipped = clip_rows(x, norm) if np.isfinite(x).all() else (x, 0)
    task, classes = _task(y)
    writer_of = arrays.get("client")
    if writer_of is not None and writer_of.dtype.kind == "f":
        missing = np.isnan(writer_of)
        if missing.any():
            raise not_allowed(f"{path} client of row {missing.argmax()}", math.nan, "a name")
    writers = None if writer_of is None else np.unique(writer_of, return_inverse=True)[1]
    parts, source = (x, y, x_test, y_test), f"own data, {path.name}"
    columns = tuple(map(str, arrays.get("columns", ())))
    return Dataset(
        path.stem, task, *parts, classes, norm, writers, clipped, source, labels, columns, content
    )


def _features(path: Path, name: str, x: Array, dtype: Dtype) -> Features:
    if x.dtype.kind not in "fiub" or x.ndim < 2:
        raise InputError(
            f"{path} {name} holds {x.dtype} of shape {x.shape}: rows of numbers expected"
        )
    flat: Features = x.reshape(len(x), math.prod(x.shape[1:])).astype(dtype, copy=False)
    return flat


def _labels(path: Path, y: Array) -> tuple[Labels, Callable[[Array], Labels], tuple[str, ...]]:
    """Return training labels as numbers, the map for test labels, and class names."""
    if y.ndim != 1:
        raise InputError(f"{path} y has shape {y.shape}: one label a row expected")
    if y.dtype.kind == "f" and not (np.isfinite(y).all() and (y == np.floor(y)).all()):
        return y, lambda other: other, ()
    names = np.unique(y)
    if len(names) < 2:
        raise not_allowed(f"{path} y", names.tolist(), "two classes or more")

    def number(other: Array) -> Labels:
        indices = np.searchsorted(names, other).clip(max=len(names) - 1)
        unknown = np.flatnonzero(names[indices] != other)
        if len(unknown):
            label = other[unknown[0]].item()
            raise not_allowed(
                f"{path} test label of row {unknown[0]}", label, "a class of training"
            )
        return 2 * indices - 1 if len(names) == 2 else indices

    return number(y), number, tuple(map(str, names))


def _task(y: Labels) -> tuple[Any, int]:
    if y.dtype.kind == "f":
        return "regression", 0
    return ("binary", 2) if y.min() < 0 else ("multiclass", int(y.max()) + 1)


def _read_archive(path: Path, needed: tuple[str, ...] = ("x", "y")) -> dict[str, Array]:
    """Return the arrays of an ``.npz``; their sizes are checked before they are read."""
    known = ("x", "y", "client", "x_test", "y_test")
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {i.filename.removesuffix(".npy"): i.file_size for i in archive.infolist()}
            for part in archive.infolist():
                _check_header(path, archive, part)
        for name in sizes:
            if name not in known:
                raise not_allowed(f"{path} array", name, f"one of {', '.join(known)}")
        most = unpacked_bound(path.stat().st_size)
        if sum(sizes.values()) > most:
            text = f"{sum(sizes.values())} bytes"
            raise not_allowed(
                f"{path} unpacked", text, f"at most {most} (save it unpacked: np.savez)"
            )
        for name in needed:
            if name not in sizes:
                raise InputError(
                    f"{path} has no array {name}: it holds {', '.join(sizes) or '-'}; add the array"
                )
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in sizes}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise InputError(
            f"{path} is no archive of plain arrays: {error}; save it with numpy.savez"
        ) from error


def _check_header(path: Path, archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    """Refuse an array whose header states another size than it has in the archive.

    numpy allocates the size in the header before it reads data.
    """
    from numpy.lib import format as npy

    with archive.open(part) as file:
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        version = npy.read_magic(file)
        if version not in read:
            return
        shape, _, dtype = read[version](file)
        stated = file.tell() + math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and stated != part.file_size:
        raise not_allowed(
            f"{path} array {part.filename.removesuffix('.npy')}",
            f"{shape} of {dtype}, {stated} bytes",
            f"what the archive holds of it, {part.file_size} bytes",
        )


def _table_of(path: Path) -> Any:
    """Return the table of a CSV or Parquet file."""
    content = read_bytes(path, "data set", LARGEST)
    try:
        if path.suffix == ".csv":
            return _read_csv(path, content)
        return read_parquet(path, content).to_pandas()
    except (OSError, ValueError, OverflowError, csv.Error) as error:
        raise InputError(f"{path} is no table: {error}; give a CSV or Parquet file") from error


def _check_columns(path: Path, table: Any, features: Any) -> None:
    """Raise :class:`InputError` naming the first cell of a feature that is not a number."""
    for column in features:
        if table[column].dtype.kind not in "fiub":
            import pandas as pd

            text = pd.to_numeric(table[column], errors="coerce").isna()
            _check_cells(path, table, column, text, "numbers only (encode texts)")
            raise not_allowed(f"{path} column {column!r}", table[column].dtype, "numbers")
    for column in features:
        wrong = ~np.isfinite(table[column].to_numpy(float, na_value=math.nan))
        _check_cells(path, table, column, wrong, "a finite number")


def _check_cells(path: Path, table: Any, column: str, wrong: Any, allowed: str) -> None:
    """Raise :class:`InputError` naming the first wrong cell; of a CSV file its line and text."""
    if not wrong.any():
        return
    row = int(np.asarray(wrong).argmax())
    place, value = f"{path}, row {row}, column {column!r}", table[column].iloc[row]
    value = value.item() if isinstance(value, np.generic) else value
    if path.suffix == ".csv":
        content = io.BytesIO(read_bytes(path, "data set", LARGEST))
        lines = csv.reader(io.TextIOWrapper(content, "utf-8", newline=""))
        written = ((lines.line_num, line) for line in lines if line[1:] or "".join(line).strip())
        with suppress(csv.Error):  # a cell that is too long for this reader
            number, cells = next(islice(written, row + 1, None))  # after the header
            place = f"{path}, line {number}, column {column!r}"
            value = dict(zip(table, cells, strict=False)).get(column, "")
    raise not_allowed(place, value, allowed)


def _read_table(path: Path) -> dict[str, Array]:
    """Return the arrays of a table."""
    table = _table_of(path)
    if "y" not in table:
        shown = ", ".join(map(str, table.columns[:8]))
        raise InputError(f"{path} has no column y (the label): it has {shown}; add it")
    if not len(table):
        raise InputError(f"{path} has no row: give at least one")
    features = table.drop(columns=["y", "client", "split"], errors="ignore")
    _check_columns(path, table, features)
    test = np.zeros(len(table), bool)
    if "split" in table:
        _check_cells(path, table, "split", ~table["split"].isin(PARTS), "train or test")
        test = (table["split"] == "test").to_numpy()
    for named, allowed in (("y", "a label"), ("client", "a name")):
        if named in table:
            _check_cells(path, table, named, table[named].isna(), allowed)
    x, y = features.to_numpy(), table["y"].to_numpy()
    y = y.astype(str) if y.dtype.kind == "O" else y
    arrays = {"x": x[~test], "y": y[~test], "columns": features.columns.to_numpy(str)}
    if test.any():
        arrays |= {"x_test": x[test], "y_test": y[test]}
    if "client" in table:
        arrays["client"] = table["client"].to_numpy().astype(str)[~test]
    return arrays


def _read_csv(path: Path, content: bytes) -> Any:
    """Return the table of a CSV file; refuse files whose table is far larger than their text."""
    import pandas as pd

    header = next(csv.reader(io.TextIOWrapper(io.BytesIO(content), "utf-8")), [])
    if len(header) > MOST_COLUMNS:
        raise not_allowed(f"{path} columns", len(header), f"at most {MOST_COLUMNS}")
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise not_allowed(f"{path} column", twice, "a name once")
    table = pd.read_csv(io.BytesIO(content))
    # pandas would use a column without a name as index
    if not isinstance(table.index, pd.RangeIndex):
        raise InputError(
            f"{path} has rows of more values than its {len(header)} columns"
            ": give every row the same columns"
        )
    return table


def _read_images(path: Path) -> dict[str, Array]:
    """Return the images of a folder as rows, in the order of their names."""
    arrays: dict[str, Array] = {}
    shape: tuple[int, ...] | None = None
    for part, suffix in zip(PARTS, ("", "_test"), strict=True):
        files = sorted(f for f in (path / part).glob("*/*") if f.suffix.lower() in IMAGES)
        if not files:
            continue
        rows = [_image(file) for file in files]
        shape = shape or rows[0].shape
        for file, row in zip(files, rows, strict=True):
            if row.shape != shape:
                raise not_allowed(f"{file} size", row.shape, f"{shape}, as of the first image")
        arrays[f"x{suffix}"] = np.stack(rows).reshape(len(rows), -1)
        arrays[f"y{suffix}"] = np.array([file.parent.name for file in files])
    if "x" not in arrays:
        raise InputError(f"{path} holds no images train/CLASS/NAME.png: give at least one")
    return arrays


def _image(file: Path) -> Array:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(read_bytes(file, "image", LARGEST))) as image:
            if image.width * image.height > MOST_PIXELS:
                raise not_allowed(f"{file} pixels", image.size, f"{MOST_PIXELS} in all")
            plain = image.convert("L" if image.mode in ("1", "L", "I", "I;16", "F") else "RGB")
            return np.asarray(plain, dtype=np.float32) / np.float32(255.0)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, ValueError) as error:
        raise InputError(
            f"{file} is no image: {error}; remove the file or save it as PNG"
        ) from error


def read_rows(path: Path, columns: tuple[str, ...]) -> tuple[Features, Array | None]:
    """Return the rows of a file to predict, and its labels where it has a ``y``.

    Parameters
    ----------
    columns : tuple of str
        Columns of a table to take, in this order; empty for all but y, client and split.

    Raises
    ------
    InputError
        Naming the column, array or row that is missing or not a number.
    """
    if path.is_dir():
        images = _read_images(path)
        return images.get("x_test", images["x"]), images.get("y_test", images["y"])
    if not path.is_file():
        raise not_allowed("data", str(path), "a file or folder that exists")
    if path.suffix == ".npz":
        arrays = _read_archive(path, needed=("x",))
        return _features(path, "x", arrays["x"], np.float64), arrays.get("y")
    table = _table_of(path)
    missing = [name for name in columns if name not in table]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]!r}: the model was trained on "
            f"{', '.join(columns[:8])}; add the column"
        )
    names = [*columns] or [name for name in table if name not in ("y", "client", "split")]
    _check_columns(path, table, names)
    return table[names].to_numpy(np.float64), table["y"].to_numpy() if "y" in table else None
