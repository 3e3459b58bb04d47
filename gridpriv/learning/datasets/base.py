"""A data set (features of bounded norm, labels, source), its files, and a synthetic one."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.errors import InputError, not_allowed, positive, whole
from gridpriv.core.files import MIB, StorageError, atomic_file, make_folder, read_text

MOST_TARGET = 1e12
Task = Literal["binary", "multiclass", "regression"]
Features = NDArray[np.floating]
Dtype = type[np.floating]
Labels = NDArray[np.integer] | NDArray[np.floating]

BLOCK = 4096
# relative; rows that were scaled in float32 are some 1e-7 too long, and are scaled again
NORM_TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class Dataset:
    """Train and test samples; rows of ``x_train`` have 2-norm ``norm`` or less.

    Attributes
    ----------
    name : str
    task : {'binary', 'multiclass', 'regression'}
    x_train, x_test : (N, J) float32 or float64
    y_train, y_test : (N,)
        Class numbers 0..K-1 (multiclass), -1 or +1 (binary), targets (regression).
    classes : int
        K; 2 for binary, 0 for regression.
    norm : float
        Public bound R of ||x||_2.
    writer_of : (N,) int or None
        Writer of each training sample, where the data set has it.
    clipped : int
        Training rows that were changed to satisfy a public bound: scaled down to ``norm`` by
        :meth:`clip_to`, or read with a number outside its column's bounds (Adult).
    source : str
        Files and their source, for the record of a run.
    labels : tuple of str
        Names of the classes in the order of their numbers; empty where they are the numbers.
    columns : tuple of str
        Names of the features; empty where they have none.
    content : str
        Digest of the training data of own files, before rows are clipped, for the register of
        ledgers; local. Empty for a data set that is known by its name.

    Raises
    ------
    InputError
        Naming the row that is not a sample of the task, not finite or longer than ``norm``.
    """

    name: str
    task: Task
    x_train: Features
    y_train: Labels
    x_test: Features
    y_test: Labels
    classes: int
    norm: float
    writer_of: NDArray[np.int64] | None = None
    clipped: int = 0
    source: str = ""
    labels: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    content: str = ""

    def __post_init__(self) -> None:
        positive(f"{self.name} norm", self.norm)
        for part in ("train", "test"):
            x, y = getattr(self, f"x_{part}"), getattr(self, f"y_{part}")
            self._check_shapes(part, x, y)
            check_finite(self.name, part, x)
            check_labels(self.name, part, y, self.task, self.classes)
        if len(self.x_train) == 0:
            raise InputError(f"{self.name}: no training sample; give at least one")
        check_norms(self.name, self.x_train, self.norm)
        object.__setattr__(self, "x_train", clip_rows(self.x_train, self.norm)[0])

    def _check_shapes(self, part: str, x: Features, y: Labels) -> None:
        """Raise :class:`InputError` unless features, labels and writers belong together."""
        writers, fault = self.writer_of, ""
        if x.dtype.kind != "f" or x.ndim != 2 or x.shape[1] == 0:
            fault = f"{part} features are {x.dtype} of shape {x.shape}, "
            fault += "floating-point rows of 1 or more columns expected"
        elif y.shape != x.shape[:1]:
            fault = f"{len(x)} rows of {part} features but labels of shape {y.shape}"
            fault += "; give one label per row"
        elif x.shape[1] != self.features:
            fault = f"{part} features have {x.shape[1]} columns, those of training {self.features}"
            fault += "; give the same columns"
        elif part == "train" and writers is not None and writers.shape != y.shape:
            fault = f"{len(y)} rows of train features but writers of shape {writers.shape}"
            fault += "; give one writer per row"
        if fault:
            raise InputError(f"{self.name}: {fault}")

    @property
    def features(self) -> int:
        """J."""
        return int(self.x_train.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of a SHA-256 over the arrays and ``norm``.

        It depends on samples, order and precision.
        """
        digest = hashlib.sha256(repr(float(self.norm)).encode())
        for array in (self.x_train, self.y_train, self.x_test, self.y_test, self.writer_of):
            if array is None:
                digest.update(b"none")
                continue
            digest.update(f"{array.dtype.str} {array.shape} ".encode())
            for start in range(0, len(array), BLOCK):  # a copy of a view is a block, not the whole
                block = np.ascontiguousarray(array[start : start + BLOCK])
                digest.update(block.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()[:16]

    def clip_to(self, norm: float) -> Dataset:
        """Return the data set with rows scaled down to a smaller public norm, and counted.

        Rows clipped before are not added: they have the old norm, so they are clipped again.
        Test rows are left as they are: nothing of them is released.
        """
        positive("norm", norm)
        if norm >= self.norm:
            return self
        x, count = clip_rows(self.x_train, norm)
        return replace(self, x_train=x, norm=norm, clipped=max(self.clipped, count))

    def in_double(self) -> Dataset:
        """Return the data set in float64: rounding of sums is far below the effect of a sample."""
        x, x_test = (item.astype(np.float64) for item in (self.x_train, self.x_test))
        return replace(self, x_train=x, x_test=x_test)

    def take(self, rows: NDArray[np.int64]) -> Dataset:
        """Return the data set with some of the training rows, in the order given."""
        writers = None if self.writer_of is None else self.writer_of[rows]
        return replace(
            self, x_train=self.x_train[rows], y_train=self.y_train[rows], writer_of=writers
        )


def clip_rows(x: Features, norm: float) -> tuple[Features, int]:
    """Return rows scaled to 2-norm ``norm`` where they are longer, and how many were.

    Rounding may leave a row above the bound by some 1e-7 of it; the scale aims below.
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", x, x, dtype=np.float64))
    long = lengths > norm
    if not long.any():
        return x, 0
    scale = np.where(long, norm * (1.0 - 1e-6) / np.maximum(lengths, 1e-300), 1.0)
    return x * scale[:, None].astype(x.dtype), int(long.sum())


def check_finite(name: str, part: str, x: Features) -> None:
    """Raise :class:`InputError` naming the first feature that is not a finite number."""
    with np.errstate(invalid="ignore"):
        if x.size == 0 or (np.isfinite(x.min()) and np.isfinite(x.max())):  # no array is made
            return
    row, column = np.argwhere(~np.isfinite(x))[0].tolist()
    place = f"{name} {part} feature of row {row}, column {column}"
    raise not_allowed(place, x[row, column].item(), "a finite number")


def check_norms(name: str, x: Features, norm: float) -> None:
    """Raise :class:`InputError` naming the longest row if it is longer than the public norm."""
    with np.errstate(over="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", x, x, dtype=np.float64))
    row = int(lengths.argmax())
    if lengths[row] > norm * (1.0 + NORM_TOLERANCE):
        raise not_allowed(
            f"{name} 2-norm of train row {row}", float(lengths[row]), f"{norm:.9g} or less"
        )


def check_labels(name: str, part: str, y: Labels, task: Task, classes: int) -> None:
    """Raise :class:`InputError` naming the first label that is outside the classes."""
    if task == "multiclass":
        right, allowed = (y >= 0) & (y < classes), f"a class number 0 to {classes - 1}"
        if y.dtype.kind == "f":
            right &= y == np.floor(y)
    elif task == "binary":
        right, allowed = (y == 1) | (y == -1), "-1 or +1"
    else:
        # a float32 residual overflows far above, so one sample could end a run
        right, allowed = np.abs(y) <= MOST_TARGET, f"a number within {MOST_TARGET:g}"
    if not right.all():
        row = int(np.flatnonzero(~right)[0])
        place = " ".join(filter(None, (name, part, f"label of row {row}")))
        raise not_allowed(place, y[row].item(), allowed)


Indices = NDArray[np.int64]
SPLITS = "iid, contiguous, writer or dirichlet:A"
TRIES = 100


def split(dataset: Dataset, how: str, clients: int | None, seed: int) -> list[Indices]:
    """Return the training rows of every client.

    Parameters
    ----------
    how : str
        ``iid`` (random, equal sizes), ``contiguous`` (equal parts in file order),
        ``writer`` (one client per writer), ``dirichlet:A`` (class shares drawn per client).
    clients : int or None
        None with ``writer``: all of them; a number keeps the first so many writers.
    seed : int
        Of the random splits.

    Raises
    ------
    InputError
        If a client would have no sample.
    """
    rows = len(dataset.y_train)
    if how == "writer":
        return _by_writer(dataset, clients)
    if clients is None:
        raise not_allowed("clients", None, f"a number, with split {how!r}")
    if not 1 <= clients <= rows:
        raise not_allowed(
            "clients", clients, f"1 to {rows}, the number of samples: no client may be empty"
        )
    random = np.random.Generator(np.random.PCG64(seed))
    if how == "contiguous":
        return list(np.array_split(np.arange(rows), clients))
    if how == "iid":
        return [np.sort(part) for part in np.array_split(random.permutation(rows), clients)]
    match = re.fullmatch(r"dirichlet:([\d.eE+-]+)", how)
    try:
        concentration = float(match[1]) if match else float("nan")
    except ValueError:
        concentration = float("nan")
    if not (np.isfinite(concentration) and concentration > 0):
        raise not_allowed("split", how, SPLITS + " with A a positive number")
    return _dirichlet(dataset, clients, concentration, random)


def _by_writer(dataset: Dataset, clients: int | None) -> list[Indices]:
    if dataset.writer_of is None:
        raise not_allowed("split", "writer", f"another: {dataset.name} names no writers")
    writers = np.unique(dataset.writer_of)
    if clients is not None and not 1 <= clients <= len(writers):
        raise not_allowed("clients", clients, f"1 to {len(writers)}, the number of writers")
    return [np.flatnonzero(dataset.writer_of == w) for w in writers[:clients]]


def _dirichlet(
    dataset: Dataset, clients: int, concentration: float, random: np.random.Generator
) -> list[Indices]:
    """Split every class by shares drawn from Dirichlet(A); draw again while a client is empty."""
    if dataset.task == "regression":
        raise not_allowed("split", f"dirichlet:{concentration:g}", "another: there are no classes")
    for _ in range(TRIES):
        client_of = np.empty(len(dataset.y_train), np.int64)
        for label in np.unique(dataset.y_train):
            rows = random.permutation(np.flatnonzero(dataset.y_train == label))
            shares = random.dirichlet(np.full(clients, concentration))
            client_of[rows] = np.searchsorted(np.cumsum(shares)[:-1], random.random(len(rows)))
        if len(np.unique(client_of)) == clients:
            return [np.flatnonzero(client_of == c) for c in range(clients)]
    raise InputError(
        f"split = 'dirichlet:{concentration:g}' leaves a client with no samples "
        f"({TRIES} draws for {clients} clients): use fewer clients or a larger A"
    )


VARIABLE = "GRIDPRIV_DATA"
SUMS = "SHA256SUMS"
FETCH_SECONDS = 60.0


def data_folder(name: str, root: str | Path | None) -> Path:
    """Return the folder of a data set: ``--data DIR``, else $GRIDPRIV_DATA.

    ``DIR/name`` if it exists, else ``DIR`` itself.
    """
    root = root if root is not None else os.environ.get(VARIABLE)
    if not root:
        raise InputError(
            f"no folder with data: give --data DIR or set {VARIABLE}; "
            f"{name} is looked for in DIR/{name}"
        )
    folder = Path(root)
    if not folder.is_dir():
        raise InputError(f"data = {str(folder)!r}: must be a folder that exists")
    return folder / name if (folder / name).is_dir() else folder


def need(folder: Path, names: Iterable[str], origin: str) -> list[Path]:
    """Return the paths of required files; an error names missing ones and their folder."""
    paths = [folder / name for name in names]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise InputError(f"{folder} lacks {', '.join(missing)}: put them there, from {origin}")
    return paths


def check_sum(path: Path, key: str) -> None:
    """Compare a file with its published SHA-256.

    A SHA256SUMS file in the same folder replaces the packaged list, for user data. Files in neither
    list are accepted.
    """
    own = path.parent / SUMS
    sums, name = (read_sums(own), path.name) if own.is_file() else (packaged_sums(), key)
    expected = sums.get(name)
    if expected is not None and (result := sha256(path)) != expected:
        raise InputError(
            f"{path} is corrupted or incomplete: its SHA-256 is {result}, expected {expected} "
            f"({path.stat().st_size} bytes; for data of your own write a {SUMS} file beside it)"
        )


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error}; check the path and the file") from error


def read_sums(path: Path) -> dict[str, str]:
    """Return file names and sums of a file in the format of ``sha256sum``."""
    lines = read_text(path, "list of checksums", MIB).split("\n")
    sums = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        pair = re.fullmatch(r"([0-9a-fA-F]{64})\s+\*?(?:\./)*(\S.*)", line.strip())
        if pair is None:
            raise not_allowed(
                f"{path} line {number}", line, "a SHA-256 of 64 digits and a file name"
            )
        sums[pair[2]] = pair[1].lower()
    return sums


def packaged_sums() -> dict[str, str]:
    """Return the sums of the published files, by ``dataset/path``."""
    return read_sums(Path(__file__).with_name("checksums.sha256"))


def fetch(url: str, path: Path) -> None:
    """Download a file completely or not at all."""
    from http.client import HTTPException
    from urllib.error import URLError
    from urllib.request import urlopen

    make_folder(path.parent)
    try:
        with (
            urlopen(url, timeout=FETCH_SECONDS) as answer,
            atomic_file(path, private=False) as file,
        ):
            while block := answer.read(1 << 20):
                file.write(block)
    except (URLError, HTTPException, OSError, StorageError) as error:
        raise InputError(f"cannot fetch {url}: {error}; put the file at {path} by hand") from error


AGENTS, SAMPLES, TESTED, FEATURES, NOISE_VARIANCE = 50, 50, 1000, 8, 0.1


def make_lasso(seed: int = 0, dtype: Dtype = np.float32) -> Dataset:
    """Return y = X theta + noise with normal X, theta and noise of variance 0.1.

    Agent k's 50 samples are rows ``50*k`` to ``50*(k+1)``. Rows longer than a public bound,
    2.2 sqrt(8), are scaled down to it: one row in 180,000.
    """
    whole("seed", seed, 0)
    cut = AGENTS * SAMPLES
    random = np.random.Generator(np.random.PCG64(seed))
    theta = random.normal(size=FEATURES)
    features = random.normal(size=(cut + TESTED, FEATURES))
    bound = 2.2 * float(np.sqrt(FEATURES))
    x, _ = clip_rows(features, bound)
    y = x @ theta + np.sqrt(NOISE_VARIANCE) * random.normal(size=len(x))
    x, y = x.astype(dtype, copy=False), y.astype(dtype)
    parts, writers = (x[:cut], y[:cut], x[cut:], y[cut:]), np.repeat(np.arange(AGENTS), SAMPLES)
    source = f"synthetic, seed {seed}"
    return Dataset("lasso", "regression", *parts, 0, bound, writers, source=source)
