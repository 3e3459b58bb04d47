"""Damaged files of every kind: read, or refused with exit code 2, never a traceback or a crash.

Each reader reads files with one to four damages, drawn from a generator whose seed is the number of
the batch, so that a failure can be repeated. A batch runs in a separate process.

    pytest -m slow tests/grid/test_reader_mutations.py

runs 20,000 per reader; the default suite runs a sample.
"""

from __future__ import annotations

import io
import json
import random
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from mutations import VALUES, damaged, in_a_process
from scipy.io import savemat

from gridpriv.core.errors import GridprivError
from gridpriv.grid.library import load_case, read_report, shipped_folder
from gridpriv.grid.matpower import parse_matpower
from gridpriv.grid.pandapower import profile_series
from gridpriv.grid.scenarios import override_demand, read_demand_series
from gridpriv.grid.zoning import read_zoning, zone_report

pp = pytest.importorskip("pandapower")
BATCH, SAMPLE, ALL = 500, 40, 20_000
CASE14 = load_case("case14")
TEXT14 = (shipped_folder("cases") / "case14.m").read_bytes()


def net() -> Any:
    """Return a net with a row in every table that is read."""
    created = pp.create_empty_network(sn_mva=10.0, add_stdtypes=False)
    for number in range(5):
        pp.create_bus(
            created,
            vn_kv=20.0 if number < 4 else 0.4,
            index=number,
            min_vm_pu=0.9,
            max_vm_pu=1.1,
            geodata=(float(number), 0.5),
        )
    for f, t in ((0, 1), (1, 2)):
        pp.create_line_from_parameters(created, f, t, 1.0, 0.4, 0.3, 100.0, 0.2)
    pp.create_switch(created, 2, 3, et="b")
    pp.create_switch(created, 0, 0, et="l")
    pp.create_transformer_from_parameters(
        created,
        3,
        4,
        sn_mva=1.0,
        vn_hv_kv=20.0,
        vn_lv_kv=0.4,
        vkr_percent=1.0,
        vk_percent=6.0,
        pfe_kw=1.0,
        i0_percent=0.1,
        tap_side="hv",
        tap_neutral=0,
        tap_min=-2,
        tap_max=2,
        tap_step_percent=2.5,
        tap_pos=1,
    )
    pp.create_load(created, 1, p_mw=1.0, q_mvar=0.2, const_z_p_percent=10.0)
    pp.create_load(created, 4, p_mw=0.1)
    pp.create_sgen(created, 2, p_mw=0.3)
    pp.create_sgen(created, 1, p_mw=0.3, controllable=True, min_p_mw=0.0, max_p_mw=1.0)
    pp.create_gen(created, 2, p_mw=0.5, vm_pu=1.0, min_p_mw=0.0, max_p_mw=1.0)
    pp.create_shunt(created, 1, q_mvar=-0.1)
    pp.create_ext_grid(created, 0)
    pp.create_storage(created, 1, p_mw=0.1, max_e_mwh=1.0)
    pp.create_ward(created, 1, ps_mw=0.1, qs_mvar=0.1, pz_mw=0.1, qz_mvar=0.1)
    pp.create_impedance(created, 0, 2, rft_pu=0.1, xft_pu=0.1, sn_mva=1.0)
    pp.create_dcline(created, 0, 1, p_mw=0.1, loss_percent=1, loss_mw=0, vm_from_pu=1, vm_to_pu=1)
    pp.create_poly_cost(created, 0, "ext_grid", cp1_eur_per_mw=1.0)
    pp.create_pwl_cost(created, 0, "gen", [[0.0, 0.5, 1.0], [0.5, 1.0, 2.0]])
    pp.runpp(created, numba=False)
    return created


@cache
def document() -> dict[str, Any]:
    """Return the net as JSON, without empty tables; profiles as simbench has them."""
    stored = net()
    stored["load"]["profile"] = "a"
    stored["sgen"]["profile"] = "a"
    whole: dict[str, Any] = json.loads(pp.to_json(stored))
    entries = whole["_object"]
    filled = {key: value for key, value in entries.items() if '"index":[]' not in str(value)}
    profile = {
        "_module": "pandas",
        "_class": "DataFrame",
        "orient": "split",
        "dtype": {"a_pload": "float64", "a_qload": "float64", "a": "float64"},
        "_object": '{"columns":["a_pload","a_qload","a"],"index":[0,1],"data":[[1,1,1],[2,2,2]]}',
    }
    whole["_object"] = filled | {"profiles": {"load": profile, "renewables": profile}}
    return whole


TYPES = ["float64", "bool", "uint32", "int8", "Int64", "boolean", "object", "x", 3, None]


def damaged_net(draw: random.Random) -> bytes:
    """Return the document with cells, columns, row numbers, types or entries changed."""
    if draw.random() < 0.3:
        return damaged(json.dumps(document()).encode(), draw)
    whole = json.loads(json.dumps(document()))
    entries = whole["_object"]
    for _ in range(draw.randint(1, 3)):
        key = draw.choice(sorted(entries))
        entry = entries[key]
        content = entry.get("_object") if isinstance(entry, dict) else None
        if not isinstance(content, str) or draw.random() < 0.03:
            entries[key] = draw.choice(VALUES)
            continue
        content = json.loads(content)
        if not all(isinstance(content[part], list) for part in ("columns", "index", "data")):
            continue  # damaged in an earlier turn
        if not all(isinstance(name, str) for name in content["columns"]):
            continue  # damaged in an earlier turn
        kind = draw.randrange(10)
        column = draw.randrange(len(content["columns"])) if content["columns"] else 0
        if kind < 6 and content["data"] and content["columns"]:
            draw.choice(content["data"])[column] = draw.choice(VALUES)
            if draw.random() < 0.6:  # so that the type allows it
                entry["dtype"][content["columns"][column]] = "object"
        elif kind == 6 and content["columns"]:
            del content["columns"][column]
            for row in content["data"]:
                del row[column]
        elif kind == 7 and content["index"]:
            content["index"][draw.randrange(len(content["index"]))] = draw.choice(VALUES)
        elif kind == 8 and content["columns"]:
            entry["dtype"][content["columns"][column]] = draw.choice(TYPES)
        else:
            content[draw.choice(["columns", "index", "data"])] = draw.choice(VALUES)
        entry["_object"] = json.dumps(content)
    return json.dumps(whole).encode()


@cache
def packed_case14(compressed: bool) -> bytes:
    tables = parse_matpower(TEXT14.decode(), "case14")
    content = {
        "version": "2",
        "baseMVA": tables.base_mva,
        "bus": tables.bus,
        "gen": tables.gen,
        "branch": tables.branch,
        "gencost": tables.gencost,
        "bus_name": ["a", "b"],
        "reserves": {"cost": [1.0]},
    }
    file = io.BytesIO()
    savemat(file, {"mpc": content}, do_compression=compressed)
    return file.getvalue()


def damaged_mat(draw: random.Random) -> bytes:
    if draw.random() < 0.2:
        return damaged(packed_case14(True), draw)
    stored = bytearray(
        damaged(packed_case14(False), draw) if draw.random() < 0.3 else packed_case14(False)
    )
    for _ in range(draw.randint(1, 5)):
        at = draw.randrange(128, max(len(stored), 129))
        stored[at : at + 1] = bytes([draw.choice([0, 1, 2, 5, 6, 9, 14, 15, 127, 255])])
    return bytes(stored)


MAP14 = b"bus,zone\n" + b"".join(b"%d,%d\n" % (bus, 1 + bus % 3) for bus in range(1, 15))
DEMAND = b"bus,pd_mw,qd_mvar\n" + b"".join(b"%d,%d,1.5\n" % (bus, bus) for bus in range(1, 15))
SCALES = b"step,load_scale\n" + b"".join(b"%d,0.%d\n" % (step, step) for step in range(1, 9))
STEPS = b"step,bus,pd_mw\n" + b"".join(b"%d,%d,2.5\n" % (s, bus) for s in (1, 2) for bus in (3, 9))


def read_case(path: Path) -> None:
    load_case(path)
    read_report(path).table()


def read_net(path: Path) -> None:
    profile_series("profiles:0,2", str(path), load_case(path))


def read_map(path: Path) -> None:
    zone_report(CASE14, read_zoning(path, CASE14))


READERS: dict[str, tuple[str, Callable[[random.Random], bytes], Callable[[Path], Any]]] = {
    "matpower": (".m", lambda draw: damaged(TEXT14, draw), read_case),
    "mat": (".mat", damaged_mat, read_case),
    "pandapower": (".json", damaged_net, read_net),
    "zone map": (".csv", lambda draw: damaged(MAP14, draw), read_map),
    "demand": (".csv", lambda draw: damaged(DEMAND, draw), lambda p: override_demand(CASE14, p)),
    "series of factors": (
        ".csv",
        lambda draw: damaged(SCALES, draw),
        lambda p: read_demand_series(p, CASE14),
    ),
    "series of buses": (
        ".csv",
        lambda draw: damaged(STEPS, draw),
        lambda p: read_demand_series(p, CASE14),
    ),
}


def failures(reader: str, batch: int, count: int, folder: Path) -> tuple[list[str], int]:
    """Return the failures of a batch, and the number of its files that were read completely."""
    suffix, make, read = READERS[reader]
    draw = random.Random(f"{reader} {batch}")
    path = folder / f"damaged{suffix}"
    wrong, whole = [], 0
    for number in range(count):
        path.write_bytes(make(draw))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(path)
            whole += 1
        except GridprivError as error:
            if error.exit_code != 2 or not str(error).strip():
                wrong.append(f"batch {batch}, file {number}: exit code {error.exit_code}: {error}")
        except BaseException as error:
            wrong.append(f"batch {batch}, file {number}: {type(error).__name__}: {error}"[:300])
            path.with_name(f"wrong {batch} {number}{suffix}").write_bytes(path.read_bytes())
    return wrong, whole


@pytest.mark.parametrize("reader", READERS)
def test_a_sample_of_damaged_files(reader: str, tmp_path: Path) -> None:
    wrong, whole = in_a_process(partial(failures, reader, 0, SAMPLE, tmp_path))
    assert wrong == []
    assert 0 < whole < SAMPLE, "some damage is harmless, most is not"


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_twenty_thousand_damaged_files(reader: str, tmp_path: Path) -> None:
    actual = [
        in_a_process(partial(failures, reader, batch, BATCH, tmp_path))
        for batch in range(ALL // BATCH)
    ]
    assert [line for wrong, _ in actual for line in wrong] == []
    assert 0 < sum(whole for _, whole in actual) < ALL
