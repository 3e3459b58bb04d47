"""The accounts of one machine: which ledger holds the grant of a physical unit, and its last head.

A ledger knows nothing of another one. So every ledger that is made on a machine is entered in a
register, which the processes of one user share:

- a unit of which any ledger holds a grant is granted nothing by a second ledger, whatever zones the
  map has, however the demand is scaled, and on whatever base the case is;
- a ledger that is older than the last head seen of it (a copy that was put back) is not charged.

A unit is entered by a digest of public data: the numbers of its bus and of all buses of the grid.
Another user's register, another machine, and somebody who deletes the register are out of reach.

The register is the folder ``$GRIDPRIV_STATE``, by default ``$XDG_STATE_HOME/gridpriv`` or
``~/.local/state/gridpriv``. Ledgers in the folder of temporary files are for trials: they are
entered in a register beside them.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gridpriv.core.errors import GridprivWarning, InputError
from gridpriv.core.files import StorageError, write_text
from gridpriv.privacy.ledger_file import UNDONE, Head

ACCOUNTS, LOCK = "accounts.json", "lock"
TRIAL = ".gridpriv-register"


class Register:
    """The register that a ledger at a path is entered in.

    A ledger is known by the MAC of its first row, so that a copy at another path is the same one.
    """

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger.absolute()
        self._folder = register_folder(self._ledger)

    @contextmanager
    def granting(self, units: Iterable[str], identity: Callable[[], str]) -> Iterator[None]:
        """Refuse units of another ledger; enter them as this ledger's once the grant is written.

        Parameters
        ----------
        units : iterable of str
            Their public digests.
        identity : callable
            Returns the MAC of the ledger's first row, or an empty text before there is one.

        Raises
        ------
        InputError
            For a unit of another ledger; nothing is entered then.
        """
        asked = list(units)
        if not asked or not self._made():
            yield
            return
        with (self._folder / LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entered, own = self._accounts(), identity()
            others = [entered[u] for u in asked if u in entered and entered[u][0] != own]
            if others:
                where = ", ".join(sorted({path for _, path in others}))
                raise InputError(
                    f"ledger {self._ledger}: {len(others)} of {len(asked)} buses have a grant on "
                    f"this machine already, in ledger {where}; a second grant for the same buses "
                    "would refill their budget. Charge that ledger, or put it back from a backup; "
                    "nothing was granted"
                )
            try:
                yield
            except BaseException:
                if not entered:  # nothing was here before
                    with suppress(OSError):
                        (self._folder / LOCK).unlink()
                        self._folder.rmdir()
                raise
            entered |= dict.fromkeys(asked, (identity(), str(self._ledger)))
            write_text(self._folder / ACCOUNTS, json.dumps(entered, indent=0), private=True)

    def check(self, identity: str, heads: Iterable[Head]) -> None:
        """Refuse a ledger that does not hold the last head seen of it.

        Raises
        ------
        InputError
            For an older copy.
        """
        try:
            last = self._head_file(identity).read_text()
        except OSError:
            return
        if last not in {str(head) for head in heads}:
            raise InputError(
                f"ledger {self._ledger} is older than the last time that it was charged on this "
                f"machine (head {last}): put back the copy that goes on from there; {UNDONE}"
            )

    def note(self, identity: str, head: Head) -> None:
        """Keep the head of a ledger as the last one seen; what was charged stays charged."""
        if self._made():
            with suppress(StorageError):
                write_text(self._head_file(identity), str(head), private=True)

    def _head_file(self, identity: str) -> Path:
        return self._folder / f"{identity[:32]}.head"

    def _accounts(self) -> dict[str, tuple[str, str]]:
        """Return the identity and the path of the ledger that holds each unit's grant."""
        path = self._folder / ACCOUNTS
        try:
            return {unit: (mac, at) for unit, (mac, at) in json.loads(path.read_text()).items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise InputError(f"register {path} cannot be read: {error}; {UNDONE}") from error

    def _made(self) -> bool:
        """Make the folder; warn where that is not allowed."""
        if not self._ledger.parent.is_dir():
            return False
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            warnings.warn(
                f"the register of grants {self._folder} cannot be made ({error.strerror}): a "
                "second ledger for the same buses would not be noticed. Set GRIDPRIV_STATE to a "
                "folder that can be written",
                GridprivWarning,
                stacklevel=3,
            )
            return False
        return True


def register_folder(ledger: Path) -> Path:
    """Return the folder of the register for a ledger at an absolute path."""
    given = os.environ.get("GRIDPRIV_STATE")
    if given:
        return Path(given)
    place = Path(os.path.realpath(ledger.parent))
    trials = Path(os.path.realpath(tempfile.gettempdir()))
    if trials in (place, *place.parents):
        return ledger.parent / TRIAL
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "gridpriv"
