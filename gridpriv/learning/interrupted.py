"""A run that is kept while it goes on, so that it goes on where it was interrupted.

What is kept is what the next round starts from, the rounds' figures, and what says that the run is
the same: settings and data. Noise streams are keyed by round, so that a simulated run ends as if
nothing had happened: what it released is a function of the settings and is counted anew. The file
is private. Secure noise is another each time it is drawn, so the file of such a run is written
before every round and says how often each round may have been drawn: one that was lost counts
again.
"""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.core.files import DamagedError, make_folder, read_bytes, remove, write_bytes
from gridpriv.core.text import Json
from gridpriv.learning.algorithms.base import Begun, Round
from gridpriv.learning.clients import Array, to_numpy
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.settings import LearnSettings

FILE = "interrupted.npz"
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
    drawn : list of int or None
        How often each round may have been drawn, from the first; None where a seed draws it again.
    """

    folder: Path
    identity: Json
    every: float = EVERY_SECONDS
    begun: Begun = field(default_factory=Begun)
    rows: list[Json] = field(default_factory=list)
    drawn: list[int] | None = None

    def __post_init__(self) -> None:
        self._last = time.perf_counter()

    def start(self) -> None:
        """Write that the next round may be drawn, before it is, where no seed draws it again."""
        if self.drawn is not None:
            self._write(self.begun.rounds, self.begun.state, self.rows)

    def keep(self, done: Round, rows: list[Json]) -> None:
        """Write the state after a round if it is time."""
        if time.perf_counter() - self._last >= self.every:
            self._write(done.number, done.state(), rows)

    def _write(self, rounds: int, state: Sequence[Array], rows: list[Json]) -> None:
        if self.drawn is not None:
            self.drawn += [0] * (rounds + 1 - len(self.drawn))
            self.drawn[rounds] += 1
        entries = {"identity": self.identity, "rounds": rounds, "rows": rows, "drawn": self.drawn}
        arrays = {f"state_{k}": to_numpy(array) for k, array in enumerate(state)}
        buffer = io.BytesIO()
        np.savez(buffer, told=np.frombuffer(json.dumps(entries).encode(), np.uint8), **arrays)
        make_folder(self.folder)
        write_bytes(self.folder / FILE, buffer.getvalue(), private=True)
        self._last = time.perf_counter()

    def done(self) -> None:
        """Remove what was kept: the run came to its end."""
        remove(self.folder / FILE)


def make_keeper(folder: Path, dataset: Dataset, settings: LearnSettings, *, resume: bool) -> Keeper:
    """Return the checkpoint writer of a run; with ``resume`` it continues the stored run.

    Raises
    ------
    InputError
        If the folder holds a run that was interrupted and ``resume`` is not asked for; with it, if
        that is another one, or damaged.
    """
    identity = {
        "settings": settings.as_given(),
        "dataset": dataset.name,
        "fingerprint": dataset.fingerprint,
        "version": version("gridpriv"),
    }
    secure = settings.noise == "secure" and settings.mechanism != "none"
    keeper = Keeper(
        folder, identity, 0.0 if secure else EVERY_SECONDS, drawn=[] if secure else None
    )
    if not (folder / FILE).exists():
        return keeper
    if not resume:
        raise InputError(
            f"out = {str(folder)!r} holds a run that was interrupted: add --resume to continue "
            "with it, or name another folder"
        )
    try:
        text, state = _read(folder / FILE)
    except DamagedError as error:
        raise InputError(
            f"{error}: put back a copy of it, or start again in another folder"
        ) from error
    for what, value in identity.items():
        if text["identity"].get(what) != value:
            raise InputError(
                f"resume = True: must be left out, {folder} holds a run of other {what}"
            )
    begun = Begun(text["rounds"], state)
    return replace(keeper, begun=begun, rows=text["rows"], drawn=text["drawn"])


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
