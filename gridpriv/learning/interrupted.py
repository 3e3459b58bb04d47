"""A run that is kept while it goes on, so that it goes on where it was interrupted.

What is kept is what the next round starts from, the rounds' figures, and what says that the run is
the same: settings and data. Noise streams are keyed by round, so that a simulated run ends as if
nothing had happened: what it released is a function of the settings and is counted anew. Secure
noise is another each time, so a file of its own says of every round how often it may have been
drawn: it is written before a round is, and a round that was lost counts again. Both are private.
"""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.core.files import (
    DamagedError,
    MissingFileError,
    make_folder,
    read_bytes,
    read_sealed,
    remove,
    sealed,
    write_bytes,
    write_text,
)
from gridpriv.core.text import Json, counted
from gridpriv.learning.algorithms.base import Begun, Round
from gridpriv.learning.clients import to_numpy
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.settings import LearnSettings
from gridpriv.privacy.accounting import total_epsilon
from gridpriv.privacy.mechanism import Charge

FILE = "interrupted.npz"
DRAWN = "drawn.json"
EVERY_SECONDS = 15.0


@dataclass(eq=False)
class Keeper:
    """Writes a run's state to a folder from time to time.

    Attributes
    ----------
    identity : dict
        What makes two runs the same.
    every : float
        Seconds between two writes; 0 writes every round.
    begun : Begun
        Where the run goes on.
    rows : list of dict
        Figures of the rounds that are done.
    drawn : list of int
        How often each round may have been drawn already, from the first.
    """

    folder: Path
    identity: Json
    every: float = EVERY_SECONDS
    begun: Begun = field(default_factory=Begun)
    rows: list[Json] = field(default_factory=list)
    drawn: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._last = time.perf_counter()

    def keep(self, done: Round, rows: list[Json]) -> None:
        """Write the state after a round if it is time."""
        if time.perf_counter() - self._last < self.every:
            return
        entries = {"identity": self.identity, "rounds": done.number, "rows": rows}
        arrays = {f"state_{k}": to_numpy(array) for k, array in enumerate(done.state())}
        buffer = io.BytesIO()
        np.savez(buffer, told=np.frombuffer(json.dumps(entries).encode(), np.uint8), **arrays)
        make_folder(self.folder)
        write_bytes(self.folder / FILE, buffer.getvalue(), private=True)
        self._last = time.perf_counter()

    def draw(self, t: int, charges: Sequence[Mapping[Charge, int]], delta: float) -> None:
        """Write that round t may be drawn, before it is.

        Parameters
        ----------
        charges : sequence of mapping
            What clients will have released then, equal ones once.
        delta : float
            At which their total is stated.
        """
        self.drawn += [0] * (t - len(self.drawn))
        self.drawn[t - 1] += 1
        spent = [
            [[c.kind, c.parameter, c.second, count] for c, count in charge.items()]
            for charge in charges
        ]
        entries = {"identity": self.identity, "drawn": self.drawn, "charges": spent, "delta": delta}
        make_folder(self.folder)
        write_text(self.folder / DRAWN, sealed(entries), private=True)

    def done(self) -> None:
        """Remove what was kept: the run came to its end."""
        remove(self.folder / FILE)
        remove(self.folder / DRAWN)


def is_begun(folder: Path) -> bool:
    """Test for the folder of an interrupted run."""
    return (folder / FILE).exists() or (folder / DRAWN).exists()


def released(folder: Path) -> str:
    """Return a sentence on the possible releases of an interrupted run with secure noise.

    Raises
    ------
    MissingFileError
        If nothing is noted.
    DamagedError
        If what is noted is not what was written.
    """
    text = read_sealed(folder / DRAWN)
    spent = [{Charge(*charge): count for *charge, count in item} for item in text["charges"]]
    releases = max(sum(item.values()) for item in spent)
    total = max(total_epsilon(item, text["delta"]) for item in spent)
    return (
        f"up to {counted(releases, 'release')} of a client, which together certify epsilon "
        f"{total:.3g} (delta {text['delta']:g})"
    )


def make_keeper(folder: Path, dataset: Dataset, settings: LearnSettings, *, resume: bool) -> Keeper:
    """Return the checkpoint writer of a run; with ``resume`` it continues the stored run.

    Raises
    ------
    InputError
        If the folder holds a run that was interrupted and ``resume`` is not asked for; with it, if
        there is none, it is another one, or it is damaged.
    """
    identity = {
        "settings": settings.as_given(),
        "dataset": dataset.name,
        "fingerprint": dataset.fingerprint,
        "version": version("gridpriv"),
    }
    secure = settings.noise == "secure" and settings.mechanism != "none"
    every = 0.0 if secure else EVERY_SECONDS
    if not resume:
        if is_begun(folder):
            raise InputError(
                f"out = {str(folder)!r} holds a run that was interrupted: add --resume to continue "
                "with it, or name another folder"
            )
        return Keeper(folder, identity, every)
    if not is_begun(folder):
        raise InputError(f"resume = True: must be left out, {folder} holds no interrupted run")
    drawn = _read_drawn(folder, identity) if secure else []
    if not (folder / FILE).exists():
        return Keeper(folder, identity, every, drawn=drawn)
    try:
        text, state = _read(folder / FILE)
    except DamagedError as error:
        rest = "remove it and start again"
        if secure:
            rest = (
                f"this run cannot continue. It released {released(folder)}; a run in another "
                "folder releases in addition to that"
            )
        raise InputError(f"{error}: {rest}") from error
    _refuse_other(folder, text["identity"], identity)
    return Keeper(folder, identity, every, Begun(text["rounds"], state), text["rows"], drawn)


def _read_drawn(folder: Path, identity: Json) -> list[int]:
    """Return an upper bound on the draws of each round."""
    try:
        text = read_sealed(folder / DRAWN)
    except (MissingFileError, DamagedError) as error:
        raise InputError(
            f"{error}. What it said of releases cannot be made again: put back a copy of it, or "
            "name another folder"
        ) from error
    _refuse_other(folder, text["identity"], identity)
    drawn: list[int] = text["drawn"]
    return drawn


def _refuse_other(folder: Path, current: Json, identity: Json) -> None:
    for what, value in identity.items():
        if current.get(what) != value:
            raise InputError(
                f"resume = True: must be left out, {folder} holds a run of other {what}"
            )


def _read(path: Path) -> tuple[Json, tuple[Floats, ...]]:
    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as current:
            document = json.loads(current["told"].tobytes())
            state = tuple(current[f"state_{k}"] for k in range(len(current.files) - 1))
        if not isinstance(document["identity"], dict) or not isinstance(document["rounds"], int):
            raise ValueError("no run")
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise DamagedError(f"{path} is damaged ({error})") from error
    return document, state
