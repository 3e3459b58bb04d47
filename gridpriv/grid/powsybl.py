"""Read and write XIIDM, CGMES, UCTE, PSS/E and IEEE CDF through pypowsybl.

pypowsybl is native code that parses untrusted files. So files are read in a separate process
(:func:`main`) with limits on time and memory, which returns numbers and texts in JSON: neither a
crash nor an endless loop affects the caller. A network in memory is read in this process. Reasons:
docs/decisions/0064-powsybl.md.

Files are checked before pypowsybl reads them. A document type declaration can name other files
and addresses (external entities), or expand to any size (nested entities); XIIDM and CGMES use
none, so any is refused. An archive is unpacked in memory, so its unpacked size is bounded.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
import zlib
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

import numpy as np

from gridpriv.core.errors import InputError, missing_extra
from gridpriv.core.files import LARGEST, read_bytes, unpacked_bound, write_bytes
from gridpriv.grid import tables as mpc
from gridpriv.grid.case import Case, SourceNames
from gridpriv.grid.library import POWSYBL_FORMATS, FieldNote, ReadReport, grid_notes
from gridpriv.grid.tables import MatpowerTables, case_from_tables

if TYPE_CHECKING:
    from gridpriv.grid.powsybl_tables import PowsyblNetwork, PowsyblTables

ENDINGS = {"IEEE-CDF": ".txt", "XIIDM": ".xiidm"}
"""PowSyBl's file endings of formats, where a file may have another."""
MOST_ENTRIES = 200
"""Files of an archive: a European merged model has four for each of forty operators."""


ENCODINGS = ("utf-8", "utf-16", "us-ascii", "iso-8859-1")
"""Encodings of expat itself: another parser may read others differently."""


class _BodyError(Exception):
    """Raised at the first element of a document, after the check of its prolog."""


def checked_content(path: Path) -> bytes:
    """Return the bytes of a file that pypowsybl may read.

    Raises
    ------
    InputError
        If it cannot be read, is too large, declares a document type, or is not an archive of XML.
    """
    content = read_bytes(path, "case file", LARGEST)
    kind = POWSYBL_FORMATS.get(path.suffix.lower())
    if kind == "XIIDM":
        refuse_declarations(content, str(path))
    if kind == "CGMES":
        _check_archive(content, str(path))
    return content


def refuse_declarations(content: bytes, where: str) -> None:
    """Refuse a document with a document type declaration, or one that is not XML."""
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
    """Refuse an archive with files other than XML, or of too large an unpacked size."""
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


MOST_MEMORY = 6 * 2**30
"""Bytes of address space: Java reserves far more than it uses (0.4 GB of 4 GB for 300 buses)."""
MOST_SECONDS = 120
"""Of processor time. 9,241 buses take eight."""
MOST_WRITTEN = 2**30
ANSWER = "answer.json"
LONGEST_REASON = 300
SMALLEST_MVA = 1e-9
"""Differences of served demand below this are rounding."""


def main(folder: str) -> None:
    """Execute ``request.json`` in a folder; write the answer there."""
    import resource  # of Unix only

    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN, MOST_WRITTEN))
    directory = Path(folder)
    request = json.loads((directory / "request.json").read_text(encoding="utf-8"))
    (directory / ANSWER).write_text(json.dumps(answer(directory, request)), encoding="utf-8")


def answer(directory: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Return the tables of a file and the written file, or the reason it cannot be read."""
    from gridpriv.grid.powsybl_tables import network_tables

    step = "is not readable"
    try:
        network = load(directory / request["source"])
        tables = network_tables(network)
        if "target" in request:
            step = f"has no place in the format {request['format']}"
            if "result" in request:
                apply(network, tables, request["result"])
            # others are not names of UCTE buses
            naming = {"ucte.export.naming-strategy": "Counter"}
            form, target = request["format"], directory / request["target"]
            network.save(target, format=form, parameters=naming if form == "UCTE" else {})
    except Exception as error:  # native code may raise anything for a damaged file
        reason = " ".join(str(error).split()) or type(error).__name__
        return {"error": f"{step}: {reason[:LONGEST_REASON]}"}
    written = asdict(tables)
    return {key: v.tolist() if hasattr(v, "tolist") else v for key, v in written.items()}


def load(path: Path) -> PowsyblNetwork:
    """Return the network of a file, independent of the user's configuration."""
    import pypowsybl as powsybl

    powsybl.set_config_read(False)
    own_base = {"matpower.import.ignore-base-voltage": "false"}
    return powsybl.network.load(path, parameters=own_base if path.suffix == ".mat" else {})


def apply(network: PowsyblNetwork, tables: PowsyblTables, result: dict[str, Any]) -> None:
    """Write set points into a network.

    Parameters
    ----------
    result : dict
        ``gens``: row, MW, MVAr and voltage (p.u.) of every generator in service; ``demand``: bus
        number, served MW and MVAr; ``branches``: rows in service.
    """
    write_generators(network, tables, result["gens"])
    write_outages(network, tables, {row for row, *_ in result["gens"]}, set(result["branches"]))
    write_demand(network, tables, result["demand"])


def write_generators(
    network: PowsyblNetwork, tables: PowsyblTables, gens: list[list[float]]
) -> None:
    """Write active and reactive output, and the voltage of the own bus as the set point.

    Parameters
    ----------
    gens : list of (row, MW, MVAr, voltage in p.u.)
        Of every generator in service.
    """
    kilovolt = dict(zip(tables.bus[:, mpc.BUS_I], tables.bus[:, mpc.BASE_KV], strict=True))
    for row, p, q, vm in gens:
        kind, name = tables.gen_ids[int(row) - 1]
        target_v = vm * kilovolt[tables.gen[int(row) - 1, mpc.GEN_BUS]]
        target = {"id": name, "target_v": target_v, "regulated_element_id": name}
        if kind == "generator":
            network.update_generators(target_p=p, target_q=q, **target)
        elif kind == "converter":
            network.update_vsc_converter_stations(**target)
        elif kind == "svc":
            network.update_static_var_compensators(**target)


def write_outages(
    network: PowsyblNetwork, tables: PowsyblTables, gens: set[int], branches: set[int]
) -> None:
    """Disconnect the elements in service whose rows are not among those given."""
    off = [row for row in range(len(tables.gen)) if row + 1 not in gens]
    for row in off:
        if tables.gen[row, mpc.GEN_STATUS]:
            network.disconnect(tables.gen_ids[row][1])
    for row, status in enumerate(tables.branch[:, mpc.BR_STATUS]):
        if status and row + 1 not in branches:
            network.disconnect(tables.branch_ids[row][1])


def write_demand(network: PowsyblNetwork, tables: PowsyblTables, demand: list[list[float]]) -> None:
    """Write served demand into the loads of each bus, in proportion to their active demand.

    Parameters
    ----------
    demand : list of (bus, MW, MVAr)
        Served demand.
    """
    stated = {int(row[mpc.BUS_I]): row[[mpc.PD, mpc.QD]] for row in tables.bus}
    loads = network.get_loads()
    for number, p, q in demand:
        change = np.array([p, q]) - stated[int(number)]
        if np.abs(change).max() <= SMALLEST_MVA:
            continue
        here = loads.loc[tables.loads.get(int(number), [])]
        if not len(here):
            raise InputError(
                f"bus {int(number)} serves {-change[0]:.6g} MW less than the source states, and "
                "has no load to write that into"
            )
        weight = here["p0"].abs().to_numpy()
        share = weight / weight.sum() if weight.sum() > 0 else np.full(len(here), 1 / len(here))
        network.update_loads(
            id=list(here.index),
            p0=(here["p0"] + share * change[0]).to_list(),
            q0=(here["q0"] + share * change[1]).to_list(),
        )


LONGEST_WAIT = 3 * MOST_SECONDS
"""Seconds of wall-clock time: longer than processor time on a busy machine."""
WRITTEN = {ending: POWSYBL_FORMATS[ending] for ending in (".xiidm", ".zip", ".uct", ".raw")}
"""Formats that pypowsybl writes."""


def load_powsybl(path: Path) -> tuple[Case, ReadReport]:
    """Read a file through pypowsybl.

    Raises
    ------
    InputError
        If pypowsybl is not installed, the file is damaged, or reading takes too much time or
        memory.
    """
    case, report = _case(_in_process(path)[0], path.stem)
    kind = POWSYBL_FORMATS[path.suffix.lower()]
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
        Naming the row of the element, if the network has values that a grid cannot have.
    """
    from gridpriv.grid.powsybl_tables import network_tables

    tables = network_tables(network)
    return _case(asdict(tables), name or str(network.name or network.id or "network"))[0]


def write_powsybl(
    source: Path,
    path: Path,
    result: dict[str, Any] | None = None,
    *,
    private: bool = True,
    label: str = "",
) -> None:
    """Convert a file by pypowsybl, with set points or without.

    Parameters
    ----------
    source, path : path
    result : dict, optional
        Set points to write into it (:func:`gridpriv.grid.powsybl.apply`).
    private : bool
        True if only its owner may read the file.
    label : str
        Name of the source in errors; its path by default.

    Raises
    ------
    InputError
        If the source cannot be read, or the format cannot represent the network.
    """
    target = path.suffix.lower()
    request: dict[str, Any] = {"target": f"written{target}", "format": WRITTEN[target]}
    request |= {} if result is None else {"result": result}
    write_bytes(path, _in_process(source, request, label)[1], private=private)


def need_powsybl(path: Path) -> None:
    """Refuse a file of a format that only pypowsybl has, where that is not installed."""
    if find_spec("pypowsybl") is None:
        raise missing_extra("pypowsybl", "powsybl", f"a {path.suffix} file")


def _in_process(
    source: Path, writing: dict[str, Any] | None = None, label: str = ""
) -> tuple[dict[str, Any], bytes]:
    """Return the answer of a separate process on a file, and the file that it wrote."""
    need_powsybl(source)
    suffix = source.suffix.lower()
    content = checked_content(source)
    with TemporaryDirectory(prefix="gridpriv-") as folder:
        directory = Path(folder)
        request = {"source": f"case{ENDINGS.get(POWSYBL_FORMATS.get(suffix, ''), suffix)}"}
        request |= writing or {}
        (directory / request["source"]).write_bytes(content)
        (directory / "request.json").write_text(json.dumps(request), encoding="utf-8")
        answer = _answer(directory, label or str(source))
        output = read_bytes(directory / request["target"], "written file") if writing else b""
    return answer, output


def _answer(directory: Path, source: str) -> dict[str, Any]:
    boot = f"import sys; sys.path[:] = {sys.path!r}; from gridpriv.grid.powsybl import main"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", f"{boot}; main({str(directory)!r})"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            timeout=LONGEST_WAIT,
            check=False,
        )
        code = str(done.returncode)
    except subprocess.TimeoutExpired:
        code = "time out"
    answer: dict[str, Any] = {}
    with suppress(ValueError, InputError):
        answer = json.loads(read_bytes(directory / ANSWER, "answer"))
    if "error" in answer:
        raise InputError(f"case file {source} {answer['error']}")
    if not answer:
        raise InputError(
            f"case file {source} is not readable: pypowsybl ended without an answer ({code}). It "
            f"may take {MOST_SECONDS} s of processor time and {MOST_MEMORY / 2**30:g} GiB."
        )
    return answer


def _case(answer: dict[str, Any], name: str) -> tuple[Case, tuple[FieldNote, ...]]:
    """Return the case of the tables of a network, and the report on it."""
    bus, branch, gen = (
        np.array(answer[table], dtype=float).reshape(-1, width)
        for table, width in (("bus", 13), ("branch", 13), ("gen", 10))
    )
    names = answer["names"]
    by_bus = {int(number): str(label) for number, label in names["bus"].items()}
    groups = {kind: tuple(values) for kind, values in answer["groups"].items()}
    case = case_from_tables(MatpowerTables(name, answer["base_mva"], bus, gen, branch))
    auxiliary = np.array(answer["auxiliary"], dtype=bool)
    added = auxiliary if auxiliary.any() else None
    sources = SourceNames(by_bus, tuple(names["branch"]), tuple(names["gen"]))
    case = replace(case, groups=groups, names=sources, auxiliary=added)
    return case, (*(FieldNote(**note) for note in answer["notes"]), *grid_notes(case))
