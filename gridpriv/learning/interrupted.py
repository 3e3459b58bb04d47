"""A run that is kept while it goes on, so that it goes on where it was interrupted.

What is kept is what the next round starts from, the rounds' figures, and what says that the run is
the same: settings and data. Noise streams are keyed by round, so that a simulated run ends as if
nothing had happened: what it released is a function of the settings and is counted anew. The file
is private. Secure noise is another each time it is drawn, so a run with it is not continued: what
it released is at most its budget, and a new run releases in addition to that.
"""

from __future__ import annotations

import io
import json
import math
import time
import zipfile
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.core.files import DamagedError, make_folder, read_bytes, remove, write_bytes
from gridpriv.core.text import Json
from gridpriv.learning.algorithms.base import Begun, Round
from gridpriv.learning.clients import to_numpy
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
        Seconds between two writes; 0 writes every round, inf none.
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
        entries = {"identity": self.identity, "rounds": done.number, "rows": rows}
        arrays = {f"state_{k}": to_numpy(array) for k, array in enumerate(done.state())}
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
        that is another one, it is damaged, or noise is secure.
    """
    identity = {
        "settings": settings.as_given(),
        "dataset": dataset.name,
        "fingerprint": dataset.fingerprint,
        "version": version("gridpriv"),
    }
    if settings.noise == "secure" and settings.mechanism != "none":
        if resume:
            raise InputError(
                "resume = True: must be left out with secure noise, which cannot be drawn again: "
                f"what an interrupted run in {folder} released is at most its budget, and a run in "
                "another folder releases in addition to that"
            )
        return Keeper(folder, identity, math.inf)
    if not (folder / FILE).exists():
        return Keeper(folder, identity, EVERY_SECONDS)
    if not resume:
        raise InputError(
            f"out = {str(folder)!r} holds a run that was interrupted: add --resume to continue "
            "with it, or name another folder"
        )
    try:
        text, state = _read(folder / FILE)
    except DamagedError as error:
        raise InputError(f"{error}: remove it and start again") from error
    for what, value in identity.items():
        if text["identity"].get(what) != value:
            raise InputError(
                f"resume = True: must be left out, {folder} holds a run of other {what}"
            )
    return Keeper(folder, identity, EVERY_SECONDS, Begun(text["rounds"], state), text["rows"])


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
