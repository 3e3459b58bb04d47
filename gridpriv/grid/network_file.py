"""A grid without its demand, as one JSON file: what every party of a consortium may have.

The format has no place for demand, nor for what demand could be computed from: voltages, angles
and outputs of a solved state. Numbers are per unit and radians, as in :class:`Case`, and are read
back to the last bit; a limit that is not there is ``null``.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.files import write_text
from gridpriv.core.reading import read_document
from gridpriv.core.text import Json
from gridpriv.grid.case import BRANCH_FIELDS, BUS_FIELDS, GEN_FIELDS, Case, GenCost, SourceNames

FORMAT = "gridpriv network 1"
WHOLE = ("bus_id", "f_bus", "t_bus", "gen_bus", "branch_row", "gen_row")
REAL = ("gs", "bs", "vmin", "vmax", "base_kv", "r", "x", "b", "tap", "shift", "rate")
OPEN = {  # limits that may be missing, and what stands for that
    "angmin": -math.inf,
    "angmax": math.inf,
    "pmin": -math.inf,
    "pmax": math.inf,
    "qmin": -math.inf,
    "qmax": math.inf,
}
STATE = {"pd": 0.0, "qd": 0.0, "vm": 1.0, "va": 0.0, "vg": 1.0, "pg": 0.0}
KEYS = ("format", "name", "base_mva", *WHOLE, *REAL, *OPEN, "reference", "cost")


def public_network(case: Case) -> Case:
    """Return a case without demand, without a solved state, and without places to draw it."""
    sizes = {name: len(getattr(case, name)) for name in STATE}
    flat = {name: np.full(sizes[name], value) for name, value in STATE.items()}
    kept = {field.name: getattr(case, field.name) for field in fields(case)}
    return Case(**kept | flat | {"xy": None, "groups": {}, "names": SourceNames()})


def network_text(case: Case) -> str:
    """Return the file of a case's network."""
    document: Json = {"format": FORMAT, "name": case.name, "base_mva": case.base_mva}
    document |= {name: getattr(case, name).tolist() for name in (*WHOLE, *REAL, "reference")}
    for name, none in OPEN.items():
        document[name] = [None if v == none else v for v in getattr(case, name).tolist()]
    document["cost"] = [[cost.model, *cost.values] for cost in case.cost]
    lines = (f"{json.dumps(key)}: {json.dumps(document[key])}" for key in KEYS)
    return "{\n" + ",\n".join(lines) + "\n}\n"


def network_digest(case: Case) -> str:
    """Return the SHA-256 of a case's network; public, as no demand is in it."""
    return hashlib.sha256(network_text(case).encode()).hexdigest()


def write_network(case: Case, path: Path) -> None:
    """Write a case's network."""
    write_text(path, network_text(case), private=False)


def read_network(path: Path) -> Case:
    """Return the network that a file holds, as a case without demand.

    Raises
    ------
    InputError
        If it cannot be read, or is no network.
    """
    return read_document(path, "network", FORMAT, KEYS, _case)


def _case(document: Json) -> Case:
    arrays: dict[str, Any] = {name: np.array(document[name], dtype=np.int64) for name in WHOLE}
    arrays |= {name: np.array(document[name], dtype=float) for name in REAL}
    for name, none in OPEN.items():
        arrays[name] = np.array([none if v is None else v for v in document[name]], dtype=float)
    sizes = {"pd": "bus_id", "qd": "bus_id", "vm": "bus_id", "va": "bus_id"}
    for name, value in STATE.items():
        arrays[name] = np.full(len(arrays[sizes.get(name, "gen_bus")]), value)
    _check_shapes(arrays)
    return Case(
        name=str(document["name"]),
        base_mva=float(document["base_mva"]),
        reference=np.array(document["reference"], dtype=bool),
        cost=tuple(GenCost(int(m), tuple(map(float, v))) for m, *v in document["cost"]),
        **arrays,
    )


def _check_shapes(arrays: dict[str, Floats]) -> None:
    """Refuse arrays of other lengths than their table's, and ends that are no bus."""
    tables = {"bus_id": BUS_FIELDS, "f_bus": BRANCH_FIELDS, "gen_bus": GEN_FIELDS}
    for first, rest in tables.items():
        for name in (column for column in rest if column in arrays):
            if arrays[name].shape != (len(arrays[first]),):
                raise ValueError(f"{name} is not as long as {first}")
    for name in ("f_bus", "t_bus", "gen_bus"):
        if ((arrays[name] < 0) | (arrays[name] >= len(arrays["bus_id"]))).any():
            raise ValueError(f"{name} has an index that is no bus")
