"""Files that pypowsybl reads, looked at before it meets them.

A document type declaration can name other files and addresses (external entities), or expand to
any size (nested entities); XIIDM and CGMES use none, so any is refused. An archive is unpacked in
memory, so what it unpacks to is bounded.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from xml.parsers import expat

from gridpriv.core.errors import InputError
from gridpriv.core.reading import LARGEST, read_bytes, unpacked_bound

FORMATS = {
    ".xiidm": "XIIDM",
    ".iidm": "XIIDM",
    ".zip": "CGMES",
    ".uct": "UCTE",
    ".raw": "PSS/E",
    ".cdf": "IEEE-CDF",
    ".txt": "IEEE-CDF",
}
"""PowSyBl's name of the format by the ending of a file's name."""
ENDINGS = {"IEEE-CDF": ".txt", "XIIDM": ".xiidm"}
"""Endings by which PowSyBl knows a format, where the file may have another."""
MOST_ENTRIES = 200
"""Files of an archive: a European merged model has four for each of forty operators."""


ENCODINGS = ("utf-8", "utf-16", "us-ascii", "iso-8859-1")
"""Those that expat reads itself: any other might be read differently by another parser."""


class _BodyError(Exception):
    """The first element of a document: what stands before it has been looked at."""


def checked_content(path: Path) -> bytes:
    """Return the bytes of a file that pypowsybl may read.

    Raises
    ------
    InputError
        If it cannot be read, is too large, declares a document type, or is no archive of XML.
    """
    content = read_bytes(path, "case file", LARGEST)
    kind = FORMATS.get(path.suffix.lower())
    if kind == "XIIDM":
        refuse_declarations(content, str(path))
    if kind == "CGMES":
        _check_archive(content, str(path))
    return content


def refuse_declarations(content: bytes, where: str) -> None:
    """Refuse a document with a document type declaration, or one that is no XML."""
    parser = expat.ParserCreate()

    def declared(*_: object) -> None:
        raise InputError(
            f"{where} declares a document type (DOCTYPE), which can name other files and "
            "addresses. Case files need none: remove it."
        )

    def element(*_: object) -> None:
        raise _BodyError

    def encoded(_: str, encoding: str | None, __: int) -> None:
        if (encoding or "utf-8").lower() not in ENCODINGS:
            raise InputError(f"{where} has the encoding {str(encoding)[:50]!r}: must be UTF-8")

    parser.XmlDeclHandler = encoded
    parser.StartDoctypeDeclHandler = declared
    parser.StartElementHandler = element
    try:
        parser.Parse(content, True)
    except _BodyError:
        return
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise InputError(f"{where} is no XML: {error}; give a CIM XML file") from None
    raise InputError(f"{where} is no XML: it has no element; give a CIM XML file")


def _check_archive(content: bytes, where: str) -> None:
    """Refuse an archive that holds anything but XML, or unpacks to too much."""
    room = unpacked_bound(len(content))
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            if not 0 < len(entries) <= MOST_ENTRIES:
                raise InputError(
                    f"{where} has {len(entries)} files; 1 to {MOST_ENTRIES} CGMES files are read"
                    ": leave the others out"
                )
            for entry in entries:
                if not entry.filename.lower().endswith(".xml"):
                    raise InputError(
                        f"{where} holds {entry.filename[:100]!r}; a CGMES archive holds .xml files"
                        ": leave the others out"
                    )
                with archive.open(entry) as file:
                    text = file.read(room + 1)
                room -= len(text)
                if room < 0:
                    raise InputError(
                        f"{where} unpacks to more than {unpacked_bound(len(content))} bytes"
                        ": give a smaller file"
                    )
                refuse_declarations(text, f"{where}, {entry.filename[:100]!r}")
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
        EOFError,
        OSError,
        zlib.error,
        ValueError,
    ) as error:
        raise InputError(
            f"{where} is no readable zip archive: {error}; give a .zip file of CGMES profiles"
        ) from error
