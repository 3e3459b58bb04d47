"""1 MB of any input costs at most 5 s and 500 MB; endless input is not awaited.

The default run reads files of a fifth of that in a fifth of the time; `pytest -m slow` 1 MB.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from gridpriv.core.errors import InputError
from gridpriv.core.files import read_bytes, read_text
from gridpriv.grid.library import load_case, shipped_folder
from gridpriv.grid.pandapower_json import LARGEST_INDEX
from gridpriv.grid.scenarios import override_demand
from gridpriv.grid.zoning import read_zoning

pp = pytest.importorskip("pandapower")
CASE14 = load_case("case14")
HERE = Path(__file__).parent
MEGABYTE = 1_000_000
MOST_S, MOST_MB = 5.0, 500.0
TABLES = (
    "mpc.version = '2';\nmpc.baseMVA = 100;\nmpc.bus = [{bus}];\nmpc.gen = [{gen}];\n"
    "mpc.branch = [{branch}];\n"
)


def fill(piece: str, size: int) -> str:
    """Return a text repeated up to a size."""
    return piece * (size // len(piece))


def rows(make: Callable[[int], str], size: int) -> str:
    """Return as many rows as fit."""
    lines: list[str] = []
    stored = 0
    while stored < size:
        lines.append(make(len(lines) + 1))
        stored += len(lines[-1]) + 1
    return "\n".join(lines)


def bus(number: int) -> str:
    return f"{number} 1 0 0 0 0 1 1 0 1 1 2 0;"


def grid(**tables: str) -> str:
    stored = {"bus": bus(1) + bus(2), "gen": "", "branch": ""} | tables
    return TABLES.format(**stored)


MATPOWER: dict[str, Callable[[int], str]] = {
    "a header of blanks": lambda size: "function " + fill(" ", size) + "x",
    "a header of letters": lambda size: "function " + fill("a", size) + " = b c",
    "a header of brackets": lambda size: "function [" + fill(" [", size) + "]",
    "blanks": lambda size: grid() + fill(" ", size),
    "empty lines": lambda size: grid() + fill("\n", size),
    "carriage returns": lambda size: grid() + fill("\r", size),
    "comments": lambda size: grid() + fill("%'\n", size),
    "quotes": lambda size: "mpc.x = " + fill("'", size) + ";",
    "blocks": lambda size: fill("%{\n", size),
    "closed blocks": lambda size: fill("%{\n", size // 2) + fill("%}\n", size // 2),
    "a row without end": lambda size: grid(bus=fill("1 ", size)),
    "rows of one": lambda size: grid(bus=fill("1;", size)),
    "semicolons": lambda size: grid(bus=fill(";", size)),
    "brackets": lambda size: grid(bus=fill("[", size)),
    "open": lambda size: "mpc.bus = [" + fill("1 2 3\n", size),
    "a number of digits": lambda size: grid(bus=fill("9", size)),
    "signs": lambda size: grid(bus=fill("-", size)),
    "points": lambda size: grid(bus=fill(".", size)),
    "fields": lambda size: grid() + rows(lambda n: f"mpc.f{n}=1;", size),
    "a name": lambda size: "mpc." + fill("a", size) + " = 1;",
    "names": lambda size: fill("mpc.a = [\n", size),
    "parentheses": lambda size: "mpc.baseMVA = " + fill("(", size) + "1;",
    "sums": lambda size: "mpc.baseMVA = 1" + fill("+1", size) + ";",
    "minuses": lambda size: "mpc.baseMVA = " + fill("-", size) + "1;",
    "powers": lambda size: "mpc.baseMVA = 9" + fill("^9", size) + ";",
    "slices": lambda size: grid() + fill("mpc.bus(:, 1) = mpc.bus(:, 1);\n", size),
    "growth": lambda size: grid() + fill("mpc.bus = [mpc.bus; mpc.bus];\n", size),
    "buses": lambda size: grid(bus=rows(bus, size)),
    "generators": lambda size: grid(gen=fill("1 0 0 0 0 1 0 1 0 0\n", size)),
    "parallel branches": lambda size: grid(branch=fill("1 2 1 1 0 0 0 0 0 0 1\n", size)),
    "a path": lambda size: grid(
        bus=rows(bus, size // 2),
        branch=rows(lambda n: f"{n} {n + 1} 1 1 0 0 0 0 0 0 1;", size // 2).rsplit(
            "\n", size // 312
        )[0],
    ),
    "costs": lambda size: (
        grid(gen="1 0 0 0 0 1 0 1 0 0") + f"mpc.gencost = [2 0 0 9 {fill('1 ', size)}];"
    ),
    "zero bytes": lambda size: fill("\0", size),
}


def element(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def variable(name: bytes, kind: int, shape: tuple[int, ...], *parts: bytes) -> bytes:
    head = element(6, struct.pack("<II", kind, 0)) + element(
        5, struct.pack(f"<{len(shape)}i", *shape)
    )
    return element(14, head + element(1, name) + b"".join(parts))


def mat(*elements: bytes) -> bytes:
    return b"x".ljust(124) + b"\x00\x01IM" + b"".join(elements)


def packed(data: bytes) -> bytes:
    payload = zlib.compress(data, 9)
    return struct.pack("<II", 15, len(payload)) + payload


def packed_zeros(megabytes: int) -> bytes:
    """Return zeros packed as by :func:`packed`, from one megabyte packed once."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = deflate.compress(bytes(MEGABYTE)) + deflate.flush(zlib.Z_FULL_FLUSH)
    checksum = megabytes * MEGABYTE % 65521 << 16 | 1  # Adler-32 of zeros
    payload = b"\x78\xda" + megabytes * piece + deflate.flush() + struct.pack(">I", checksum)
    return struct.pack("<II", 15, len(payload)) + payload


def saved(content: dict[str, Any], folder: Path) -> bytes:
    savemat(folder / "made.mat", content, do_compression=True)
    return (folder / "made.mat").read_bytes()


def incompressible_grid(folder: Path) -> bytes:
    """Return the grid with the largest number of rows in a packed file of the size."""
    n = 40_000
    table = np.zeros((n, 13))
    table[:, :2] = np.column_stack([np.arange(1, n + 1), np.ones(n)])
    table[:, 7] = table[:, 11] = 1
    lines = np.zeros((n, 11))
    lines[:, 0], lines[:, 1] = np.arange(1, n + 1), np.roll(np.arange(1, n + 1), 1)
    lines[:, 2] = lines[:, 10] = 1
    padding = np.frombuffer(os.urandom(700_000), dtype=np.uint8)
    tables = {"baseMVA": 1.0, "bus": table, "branch": lines, "gen": np.zeros((0, 10))}
    return saved({"mpc": tables, "padding": padding}, folder)


MAT: dict[str, Callable[[Path], bytes]] = {
    "zeros": lambda f: saved({"mpc": {"bus": np.zeros((80_000_000, 1), np.uint8)}}, f)[:MEGABYTE],
    "a bomb": lambda _: mat(packed_zeros(400)),
    "bombs": lambda _: mat(
        *[packed(variable(b"a", 9, (1, 9_000_000), element(2, bytes(9_000_000))))] * 100
    ),
    "a bomb of cells": lambda _: mat(
        packed(variable(b"mpc", 1, (4_000_000, 1), element(14, b"") * 4_000_000))
    ),
    "a bomb of structs": lambda _: mat(
        packed(
            variable(
                b"mpc",
                2,
                (1_000_000, 1),
                element(5, struct.pack("<i", 2)),
                element(1, b"a\0"),
                element(14, b"") * 1_000_000,
            )
        )
    ),
    "fields": lambda _: mat(
        packed(
            variable(
                b"mpc",
                2,
                (1, 1),
                element(5, struct.pack("<i", 1)),
                element(1, b"a" * 9_000_000),
                element(14, b"") * 1_000_000,
            )
        )
    ),
    "text of many rows": lambda _: mat(
        packed(variable(b"mpc", 4, (9_000_000, 1), element(1, b"a" * 9_000_000)))
    ),
    "variables": lambda _: mat(*[variable(b"a", 6, (0, 0), element(9, b""))] * 17_000),
    "empty variables": lambda _: mat(*[element(14, b"")] * 120_000),
    "packed variables": lambda _: mat(
        *[packed(variable(b"a", 6, (0, 0), element(9, b"")))] * 12_000
    ),
    "dimensions": lambda _: mat(variable(b"a", 6, (2**31 - 1,) * 200_000, element(9, b""))),
    "structs in structs": lambda _: mat(element(14, element(14, b"") * 100_000)),
    "a whole grid": incompressible_grid,
}


def net_of(entries: dict[str, Any]) -> str:
    payload = {"format_version": "3.0.0", "sn_mva": 1.0, "f_hz": 50.0, "name": ""} | entries
    return json.dumps(
        {"_module": "pandapower.auxiliary", "_class": "pandapowerNet", "_object": payload}
    )


def table(columns: dict[str, str], data: str, count: int, first: int = 0) -> dict[str, Any]:
    index = ",".join(map(str, range(first, first + count)))
    content = f'{{"columns":{json.dumps(list(columns))},"index":[{index}],"data":[{data}]}}'
    return {
        "_module": "pandas",
        "_class": "DataFrame",
        "_object": content,
        "orient": "split",
        "dtype": columns,
    }


BUS_TYPES = {"vn_kv": "float64", "in_service": "bool"}
LINE_TYPES = {
    "from_bus": "uint32",
    "to_bus": "uint32",
    "length_km": "float64",
    "r_ohm_per_km": "float64",
    "x_ohm_per_km": "float64",
    "c_nf_per_km": "float64",
    "g_us_per_km": "float64",
    "max_i_ka": "float64",
    "df": "float64",
    "parallel": "uint32",
    "in_service": "bool",
}
GRID_TYPES = {
    "bus": "uint32",
    "vm_pu": "float64",
    "va_degree": "float64",
    "slack_weight": "float64",
    "in_service": "bool",
}


def long_line(count: int, first: int = 0) -> dict[str, Any]:
    lines = ",".join(
        f"[{first + n},{first + n + 1},1,1,1,1,0,1,1,1,true]" for n in range(count - 1)
    )
    return {
        "bus": table(BUS_TYPES, ",".join(["[1,true]"] * count), count, first),
        "line": table(LINE_TYPES, lines, count - 1),
        "ext_grid": table(GRID_TYPES, f"[{first},1,0,1,true]", 1),
    }


def switched(count: int) -> dict[str, Any]:
    types = {
        "bus": "uint32",
        "element": "uint32",
        "et": "object",
        "closed": "bool",
        "z_ohm": "float64",
    }
    cells = ",".join(f'[{n},{n + 1},"b",true,0]' for n in range(count - 1))
    return long_line(2) | {
        "bus": table(BUS_TYPES, ",".join(["[1,true]"] * count), count),
        "switch": table(types, cells, count - 1),
    }


def texts(depth: int) -> str:
    payload: Any = "x" * 400
    for _ in range(depth):
        payload = json.dumps([payload])
    return str(payload)


JSON: dict[str, Callable[[int], str]] = {
    "lists": lambda size: fill("[", size),
    "objects": lambda size: fill('{"a":', size),
    "empty lists": lambda size: net_of({})[:-2] + ',"x":[' + fill("[],", size) + "[]]}}",
    "empty objects": lambda size: net_of({})[:-2] + ',"x":[' + fill("{},", size) + "{}]}}",
    "texts of lists": lambda size: net_of({"x": [fill("[", size) for _ in range(1)]}),
    "texts of empty lists": lambda size: net_of({"x": "[" + fill("[],", size) + "[]]"}),
    "texts in texts": lambda size: net_of({"x": [texts(9)] * (size // len(texts(9)) // 2)}),
    "many texts": lambda size: net_of({"x": ["[1"] * (size // 6)}),
    "digits": lambda size: net_of({"sn_mva": 1})[:-2] + ',"x":' + fill("9", size) + "}}",
    "numbers": lambda size: net_of({"x": [9] * (size // 3)}),
    "keys": lambda size: net_of({f"k{n}": 0 for n in range(size // 12)}),
    "tables": lambda size: net_of(
        {f"t{n}": table({"a": "int64"}, "[1]", 1) for n in range(size // 222)}
    ),
    "columns": lambda size: net_of(
        long_line(2) | {"load": table(dict.fromkeys(map(str, range(size // 33)), "x"), "", 0)}
    ),
    "rows of none": lambda size: net_of(
        long_line(2) | {"mine": table({}, ",".join(["[]"] * (size // 10)), size // 10)}
    ),
    "wide rows": lambda size: net_of(
        long_line(2)
        | {
            "mine": table(
                {f"c{n}": "int64" for n in range(400)},
                ",".join(["[" + ",".join("1" * 400) + "]"] * (size // 909)),
                size // 909,
            )
        }
    ),
    "a long line": lambda size: net_of(long_line(size // 80)),
    "a long line, numbered high": lambda size: net_of(long_line(size // 105, first=990_000)),
    "a bus of a high number": lambda _: net_of(long_line(2, first=2**32 - 9)),
    "a bus of the highest number": lambda _: net_of(long_line(2, first=LARGEST_INDEX - 1)),
    "a chain of switches": lambda size: net_of(switched(size // 53)),
    "loads": lambda size: net_of(
        long_line(2)
        | {
            "load": table(
                {
                    "bus": "uint32",
                    "p_mw": "float64",
                    "q_mvar": "float64",
                    "scaling": "float64",
                    "in_service": "bool",
                },
                ",".join(["[0,1,1,1,true]"] * (size // 22)),
                size // 22,
            )
        }
    ),
    "costs": lambda size: net_of(
        long_line(2)
        | {
            "poly_cost": table(
                {
                    "element": "uint32",
                    "et": "object",
                    "cp0_eur": "float64",
                    "cp1_eur_per_mw": "float64",
                    "cp2_eur_per_mw2": "float64",
                },
                ",".join(['[0,"ext_grid",0,1,0]'] * (size // 33)),
                size // 33,
            )
        }
    ),
    "profiles": lambda size: net_of(
        long_line(2)
        | {
            "profiles": {
                "load": table({"a_pload": "float64"}, ",".join(["[1]"] * (size // 11)), size // 11)
            }
        }
    ),
}
CSV: dict[str, Callable[[int], str]] = {
    "steps": lambda size: "step,load_scale\n" + rows(lambda n: f"{n},1", size),
    "steps of a bus": lambda size: "step,bus,pd_mw\n" + rows(lambda n: f"{n},1,1", size),
    "a map of one line": lambda size: "bus,zone\n" + fill("1,", size),
    "a map of a long name": lambda size: "bus,zone\n1," + fill("a", size),
    "a map of many lines": lambda size: "bus,zone\n" + fill("1,1\n", size),
    "an open quote": lambda size: 'bus,pd_mw\n9,"' + fill("1\n", size),
    "quotes": lambda size: "bus,pd_mw\n" + fill('"",""\n', size),
    "many quotes": lambda size: "bus,pd_mw\n" + fill('"', size),
    "line ends": lambda size: "bus,pd_mw\n" + fill("\x0b", size),
    "a header": lambda size: fill("bus,", size),
    "digits": lambda size: "bus,pd_mw\n9," + fill("9", size // 8),
    "a bus": lambda size: "bus,pd_mw\n" + fill("9", size // 8) + ",1",
}


@pytest.mark.parametrize("share", [0.1, pytest.param(1.0, marks=pytest.mark.slow)])
def test_a_megabyte_of_anything_is_read_within_bounds(tmp_path: Path, share: float) -> None:
    size = int(share * MEGABYTE)
    calm = [shipped_folder("cases") / "case14.m", tmp_path / "calm.json", tmp_path / "calm.csv"]
    calm[1].write_text(net_of(long_line(3)))
    calm[2].write_text("bus,zone\n1,1\n")
    files = []
    for suffix, makers in ((".m", MATPOWER), (".json", JSON), (".csv", CSV)):
        for name, make in makers.items():
            files.append(tmp_path / (name + suffix))
            files[-1].write_text(make(size))
    for name, pack in MAT.items():
        files.append(tmp_path / f"{name}.mat")
        files[-1].write_bytes(pack(tmp_path))
    too_large = [path.name for path in files if path.stat().st_size > 1.1 * MEGABYTE]
    assert too_large == [], "each is about 1 MB or less"
    words = [str(HERE / "measured_reading.py"), *map(str, calm), "--", *map(str, files)]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent.parent), str(HERE)])},
    )
    assert done.returncode == 0, done.stderr
    document = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(document) == len(files)

    def longest(entry: dict[str, Any]) -> float:  # a bomb in a .mat unpacks to the same size
        return MOST_S * (1.0 if entry["file"].endswith(".mat") else share)

    over = [
        entry
        for entry in document
        if entry["seconds"] > longest(entry) or entry["megabytes"] > MOST_MB
    ]
    assert over == []
    assert [e for e in document if not e["outcome"].startswith(("read", "refused (2)"))] == []
    unread = {Path(e["file"]).name: e["outcome"] for e in document if e["outcome"] != "read"}
    for name in ("buses.m", "generators.m", "a long line.json", "a whole grid.mat", "loads.json"):
        assert name not in unread, "the heavy but honest ones are read to their end"


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.m")
    (tmp_path / "folder.m").mkdir()
    (tmp_path / "device.m").symlink_to("/dev/zero")
    (tmp_path / "to a pipe.m").symlink_to(tmp_path / "pipe.m")
    (tmp_path / "nowhere.m").symlink_to(tmp_path / "missing")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.m"))
    for name, kind in (
        ("pipe.m", "is a pipe"),
        ("folder.m", "is a folder"),
        ("device.m", "is a device"),
        ("to a pipe.m", "is a pipe"),
        ("s.m", "is a socket"),
        ("nowhere.m", "does not exist"),
    ):
        for suffix in (".m", ".mat", ".json"):
            path = (tmp_path / name).with_suffix(suffix)
            if suffix != ".m":
                path.symlink_to(tmp_path / name)
            with pytest.raises(InputError, match=kind):
                load_case(path)
        for read in (override_demand, lambda case, path: read_zoning(path, case)):
            with pytest.raises(InputError, match=kind):
                read(CASE14, tmp_path / name)


def test_a_file_that_becomes_a_pipe_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the name and the opening, somebody puts a pipe in its place."""
    (tmp_path / "case.m").write_text("x")
    seen = (tmp_path / "case.m").stat()
    (tmp_path / "case.m").unlink()
    os.mkfifo(tmp_path / "case.m")
    monkeypatch.setattr(Path, "stat", lambda *_, **__: seen)
    with pytest.raises(InputError, match="is a pipe"):
        read_bytes(tmp_path / "case.m", "case file", 10)


def test_sizes_and_encodings_are_stated(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(InputError, match=r"zone map .*a\.csv: must be at most 1 MiB"):
        read_bytes(path, "zone map", 2**20)
    assert len(read_bytes(path, "zone map", 2**20 + 1)) == 2**20 + 1
    with pytest.raises(FileNotFoundError, match=r"^zone map .*none\.csv does not exist$"):
        read_bytes(tmp_path / "none.csv", "zone map", 1)
    path.write_bytes(b"bus,zone\n1,\xff\n")
    with pytest.raises(InputError, match=r"zone map .*a\.csv, line 2: not UTF-8 text"):
        read_text(path, "zone map", 100)
    path.write_bytes("bus,zone".encode("utf-16"))
    with pytest.raises(InputError, match="line 1: not UTF-8"):
        read_text(path, "zone map", 100)
    path.write_bytes(b"\xef\xbb\xbfbus")
    assert read_text(path, "zone map", 100) == "bus"
    text = (shipped_folder("cases") / "case14.m").read_bytes()
    (tmp_path / "bom.m").write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    assert load_case(tmp_path / "bom.m").fingerprint == CASE14.fingerprint


@pytest.mark.parametrize("name", ["x" * 300 + ".m", "a/" * 3000 + "b.m", "a\0b.m", "\ud800.m"])
def test_hostile_names_are_sentences(tmp_path: Path, name: str) -> None:
    for read in (
        load_case,
        lambda path: override_demand(CASE14, path),
        lambda path: read_zoning(path, CASE14),
    ):
        with pytest.raises(InputError):
            read(str(tmp_path) + "/" + name)


def test_what_may_not_be_read_is_a_sentence(tmp_path: Path) -> None:
    """As somebody who is not root: in a child process that gives its rights up."""
    (tmp_path / "a.m").write_text("x")
    (tmp_path / "a.m").chmod(0)
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "b.m").write_text("x")
    folder.chmod(0)
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        parent.chmod(0o755)
    code = (
        "import os, sys\n"
        "from gridpriv.grid.library import load_case\n"
        "from gridpriv.core.errors import InputError\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "for path in sys.argv[1:]:\n"
        "    try: load_case(path)\n"
        "    except InputError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.m"), str(folder / "b.m")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(HERE.parent.parent)},
    )
    folder.chmod(0o755)
    assert done.stdout.count("Permission denied") == 2, done.stdout + done.stderr
