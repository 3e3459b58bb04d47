"""Compare rounds over mutual TLS, one process per zone, with one process: time and equality.

    python benchmarks/consortium.py FOLDER CASE [ZONES [ROUNDS]]

Parties store their state in FOLDER (a flush to its disk is part of a round); it is empty again at
the end. Zones are forked from a process that has imported their modules. The numbers are used in
docs/decisions/0060-network.md.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import casadi  # noqa: F401
import clarabel  # noqa: F401

from gridpriv import load_case, make_settings, partition, run, shipped_zoning
from gridpriv.consortium.agreement import read_agreement
from gridpriv.consortium.parties import (
    CoordinatorParty,
    ZoneParty,
    credentials,
    read_party,
    write_folders,
)
from gridpriv.consortium.take_part import coordinate, over_network, take_part_as_zone

ADDRESS = "127.0.0.1:50933"


def zone(place: Path, name: str) -> int:
    """Take part as a zone in a separate process; return its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        party = read_party(place / "zone.toml", ZoneParty)
        agreement = read_agreement(place / "agreement.json")
        proved = credentials(party, place, name, insecure=False)
        serving = over_network(party, proved, unheard)
        take_part_as_zone(agreement, party, place, serving, unheard, proved)
        code = 0
    finally:
        os._exit(code)


def unheard(*_: Any, **__: Any) -> None:
    """Log nothing."""


def median_ms(times: list[float]) -> str:
    """Return the median and the least difference of successive times."""
    rounds = [1000.0 * (after - before) for before, after in pairwise(times)]
    return f"{statistics.median(rounds):.1f} ms a round (least {min(rounds):.1f})"


def main(folder: str, name: str, zones: str = "", rounds: str = "30") -> None:
    """Run both, and print their times and their equality."""
    case = load_case(name)
    zoning = partition(case, int(zones), "metis") if zones else shipped_zoning(case)
    assert zoning is not None
    settings = make_settings(rounds=int(rounds), seed=7, planning="soc", acceleration="anderson")
    over_network: list[float] = []
    in_one_process: list[float] = []

    def note(_: str, event: str, **__: Any) -> None:
        if event == "round":
            over_network.append(time.perf_counter())

    with tempfile.TemporaryDirectory(dir=folder) as place:
        root = Path(place) / "consortium"
        write_folders(case, zoning, settings, "benchmark", ADDRESS, root)
        children = [zone(root / child, child) for child in zoning.names]
        own = root / "coordinator"
        party = read_party(own / "coordinator.toml", CoordinatorParty)
        proved = credentials(party, own, "coordinator", insecure=False)
        began = time.perf_counter()
        outcome = coordinate(read_agreement(own / "agreement.json"), party, own, proved, note)
        codes = [os.waitpid(child, 0)[1] for child in children]
        took = time.perf_counter() - began
    result = run(case, zoning, settings, lambda _: in_one_process.append(time.perf_counter()))
    same = [turn.residual for turn in outcome.turns] == [
        record.consensus_residual for record in result.trace.rounds
    ]
    print(f"{name}, {zoning.n_zone} zones: {codes.count(0)} ended well, {took:.1f} s in all")
    print(f"network: {median_ms(over_network)}")
    print(f"one process: {median_ms(in_one_process)}")
    print(f"the same to the last bit: {same}")


if __name__ == "__main__":
    main(*sys.argv[1:])
