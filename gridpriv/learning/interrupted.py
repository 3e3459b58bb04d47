"""A run that is kept while it goes on, so that it goes on where it was interrupted.

What is kept is what the next round starts from, the rounds' figures, and what says that the run is
the same: settings and data. Noise streams are keyed by round, so that a simulated run ends as if
nothing had happened. What was released is a function of the settings and is counted anew; with
secure noise the round in flight may have been drawn, so that it counts twice. The file is private.
"""

from __future__ import annotations

import io
import json
import time
import zipfile
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.document import Json
from gridpriv.core.errors import InputError
from gridpriv.core.files import make_folder, remove, write_bytes
from gridpriv.core.reading import read_bytes
from gridpriv.learning.algorithms.base import Begun, Round
from gridpriv.learning.arrays import to_numpy
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
    """

    folder: Path
    identity: Json
    every: float = EVERY_SECONDS
    begun: Begun = field(default_factory=Begun)
    rows: list[Json] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._last = time.perf_counter()

    def keep(self, done: Round, rows: list[Json]) -> None:
        """Write the state after a round if it is time."""
        if time.perf_counter() - self._last < self.every:
            return
        told = {"identity": self.identity, "rounds": done.number, "rows": rows}
        arrays = {f"state_{k}": to_numpy(array) for k, array in enumerate(done.state())}
        buffer = io.BytesIO()
        np.savez(buffer, told=np.frombuffer(json.dumps(told).encode(), np.uint8), **arrays)
        make_folder(self.folder)
        write_bytes(self.folder / FILE, buffer.getvalue(), private=True)
        self._last = time.perf_counter()

    def done(self) -> None:
        """Remove what was kept: the run came to its end."""
        remove(self.folder / FILE)


def make_keeper(folder: Path, dataset: Dataset, settings: LearnSettings, *, resume: bool) -> Keeper:
    """Return what keeps a run in a folder, and with ``resume`` goes on with the one that is there.

    Raises
    ------
    InputError
        If the folder holds a run that was interrupted and ``resume`` is not asked for; with it, if
        there is none, it is another one, or it is damaged.
    """
    identity = {
        "settings": settings.as_given(), "dataset": dataset.name,
        "fingerprint": dataset.fingerprint, "version": version("gridpriv"),
    }  # fmt: skip
    every = 0.0 if settings.noise == "secure" else EVERY_SECONDS
    path = folder / FILE
    if not resume:
        if path.exists():
            raise InputError(
                f"out = {str(folder)!r} holds a run that was interrupted: add --resume to go on "
                "with it, or name another folder"
            )
        return Keeper(folder, identity, every)
    if not path.exists():
        raise InputError(f"resume = True is not allowed: {folder} holds no interrupted run")
    told, state = _read(path)
    for what, value in identity.items():
        if told["identity"].get(what) != value:
            raise InputError(f"resume = True is not allowed: {folder} holds a run of other {what}")
    return Keeper(folder, identity, every, Begun(told["rounds"], state), told["rows"])


def _read(path: Path) -> tuple[Json, tuple[Floats, ...]]:
    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as held:
            told = json.loads(held["told"].tobytes())
            state = tuple(held[f"state_{k}"] for k in range(len(held.files) - 1))
        if not isinstance(told["identity"], dict) or not isinstance(told["rounds"], int):
            raise ValueError("no run")
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is damaged ({error}): remove it and start again") from error
    return told, state
