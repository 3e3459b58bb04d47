"""Finding, checking and fetching the files of a data set."""

from __future__ import annotations

import hashlib
import os
import re
import reprlib
from collections.abc import Iterable
from http.client import HTTPException
from pathlib import Path

from gridpriv.core.errors import InputError
from gridpriv.core.files import StorageError, beside, make_folder
from gridpriv.core.reading import MIB, read_text

VARIABLE = "GRIDPRIV_DATA"
SUMS = "SHA256SUMS"
FETCH_SECONDS = 60.0


def data_folder(name: str, given: str | Path | None) -> Path:
    """Return the folder of a data set: ``--data DIR``, else $GRIDPRIV_DATA.

    ``DIR/name`` if it exists, else ``DIR`` itself.
    """
    root = given if given is not None else os.environ.get(VARIABLE)
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
    """Return the paths of files that must be there, or say which to put where."""
    paths = [folder / name for name in names]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise InputError(f"{folder} lacks {', '.join(missing)}: put them there, from {origin}")
    return paths


def check_sum(path: Path, key: str) -> None:
    """Compare a file with its published SHA-256.

    A SHA256SUMS file beside it takes the place of the packaged list, for data of one's own.
    Files that neither names are accepted.
    """
    value = path.parent / SUMS
    expected = (read_sums(value) if value.is_file() else packaged_sums()).get(
        path.name if value.is_file() else key
    )
    if expected is None:
        return
    result = sha256(path)
    if result != expected:
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
            raise refused(f"{path} line {number}", line, "a SHA-256 of 64 digits and a file name")
        sums[pair[2]] = pair[1].lower()
    return sums


def refused(place: str, value: object, allowed: str) -> InputError:
    """Return the error of a value that a file holds at a place; long values are shortened."""
    return InputError(f"{place} = {reprlib.repr(value)}: must be {allowed}")


def packaged_sums() -> dict[str, str]:
    """Return the sums of the published files, by ``dataset/path``."""
    return read_sums(Path(__file__).with_name("checksums.sha256"))


def fetch(url: str, path: Path) -> None:
    """Download a file whole or not at all."""
    from urllib.error import URLError
    from urllib.request import urlopen

    make_folder(path.parent)
    try:
        with urlopen(url, timeout=FETCH_SECONDS) as answer, beside(path, private=False) as file:
            while block := answer.read(1 << 20):
                file.write(block)
    except (URLError, HTTPException, OSError, StorageError) as error:
        raise InputError(f"cannot fetch {url}: {error}; put the file at {path} by hand") from error
