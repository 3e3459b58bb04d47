"""Released values in files, so that an interrupted run does not draw and charge them again.

A value is on disk before it is used. Using it again is post-processing: it costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.core.files import make_folder, read_sealed, sealed, write_text
from gridpriv.privacy.release import Release


@dataclass(frozen=True)
class KeptReleases:
    """Released values of a run that draws once, from their draw until the run is stored.

    Files have mode 0600, also in a public folder: they are removed when it is finished.

    Attributes
    ----------
    folder : Path
    network : str
        Digest of the grid without its demand.
    reuses : bool
        True if all values are stored: then none is drawn or charged.
    """

    folder: Path
    network: str
    reuses: bool

    def value(self, owner: int, release: Release) -> Floats | None:
        """Return the value of a zone's release; None if it is to be drawn.

        Raises
        ------
        GridprivError
            If values are reused, and this one is missing, damaged or of another release.
        """
        if not self.reuses:
            return None
        document = read_sealed(self._file(owner))
        if document["release"] != self._identity(release):
            raise InputError(f"{self.folder} has a release of another grid: name another folder")
        return np.array(document["value"], dtype=float)

    def keep(self, owner: int, release: Release, value: Floats) -> None:
        """Store a released value; return when it is on disk."""
        make_folder(self.folder)
        document = {"release": self._identity(release), "value": value.tolist()}
        write_text(self._file(owner), sealed(document), private=True)

    def _file(self, owner: int) -> Path:
        return self.folder / f"{owner}.json"

    def _identity(self, release: Release) -> str:
        return f"{release!r} on {self.network}"
