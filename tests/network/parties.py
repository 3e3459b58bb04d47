"""A consortium's parties as threads of the test, over loopback."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from gridpriv.consortium.agreement import read_agreement
from gridpriv.consortium.parties import (
    CoordinatorParty,
    ZoneParty,
    credentials,
    read_party,
    write_folders,
)
from gridpriv.consortium.take_part import coordinate, over_network, take_part_as_zone
from gridpriv.zonal.settings import make_settings

LOOPBACK = "127.0.0.1:0"


def settings(**given):
    """A release in every round, unless given otherwise."""
    rounds = {} if given.get("perturbation", "demand") != "demand" else {"noise_schedule": "round"}
    return make_settings(**{"solver": "clarabel", "rounds": 3, "seed": 11} | rounds | given)


def laid_out(case, zoning, folder: Path, **given) -> Path:
    write_folders(case, zoning, settings(**given), "trial", LOOPBACK, folder)
    return folder


class Notes(list):
    """Log of a party."""

    def __call__(self, level, event, **about):
        self.append((level, event, about))

    def named(self, event):
        return [about for _, name, about in self if name == event]


class Consortium:
    """Parties started from configuration folders; ``done`` has each result or exception."""

    def __init__(self, folder: Path, *, secure=True, timeout=30.0, late="wait", **zone):
        self.folder, self.secure = folder, secure
        self.timeout, self.late, self.zone = timeout, late, zone
        self.notes = {}
        self._address = None
        self._here = Event()
        self._pool = ThreadPoolExecutor(200)
        self.futures = {}

    @property
    def address(self):
        assert self._here.wait(20.0), "no coordinator"
        return self._address

    def coordinator(self, **changes):
        self.futures["coordinator"] = self._pool.submit(self._coordinate, changes)
        return self

    def zones(self, *names, **changes):
        for name in names:
            self.futures[name] = self._pool.submit(self._take_part, name, changes)
        return self

    def _coordinate(self, changes):
        folder = self.folder / "coordinator"
        given = {"listen": LOOPBACK, "timeout": self.timeout, "late": self.late} | changes
        party = changed(read_party(folder / "coordinator.toml", CoordinatorParty), **given)
        proved = credentials(party, folder, "coordinator", insecure=not self.secure)
        notes = self.notes.setdefault("coordinator", Notes())

        def note(level, event, **about):
            notes(level, event, **about)
            if event == "listening":
                self._address = about["address"]
                self._here.set()

        agreement = read_agreement(folder / party.agreement)
        return coordinate(agreement, party, folder, proved, note)

    def _take_part(self, name, changes):
        folder = self.folder / name
        given = {"coordinator": self.address, "timeout": self.timeout} | self.zone | changes
        party = changed(read_party(folder / "zone.toml", ZoneParty), **given)
        proved = credentials(party, folder, name, insecure=not self.secure)
        note = self.notes.setdefault(name, Notes())
        agreement = read_agreement(folder / party.agreement)
        serving = over_network(party, proved, note)
        return take_part_as_zone(agreement, party, folder, serving, note, proved)

    def result(self, name, timeout=90.0):
        """Result of a party, or its exception."""
        try:
            return self.futures[name].result(timeout)
        except Exception as error:
            return error

    def results(self):
        return {name: self.result(name) for name in self.futures}


def changed(party, **changes):
    return type(party)(**{**party.as_given(), **changes})


def same_rounds(outcome, result):
    """A coordinator's outcome is a run in one process, to the last bit."""
    if isinstance(outcome, Exception):
        raise outcome
    rounds = result.trace.rounds
    assert [turn.residual for turn in outcome.turns] == [r.consensus_residual for r in rounds]
    assert [(turn.penalty.min(), turn.penalty.max()) for turn in outcome.turns] == [
        r.penalty for r in rounds
    ]
    last = outcome.turns[-1].state
    assert last.sent.tobytes() == result.trace.sent.tobytes()
    assert last.dual.tobytes() == result.trace.dual.tobytes()
    assert {k: dict(v) for k, v in outcome.releases.items()} == {
        k: dict(v) for k, v in result.trace.releases.items()
    }


def total(counts):
    return sum(Counter(counts).values())
