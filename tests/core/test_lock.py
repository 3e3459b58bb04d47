"""One writer per folder, whatever process it is and however it ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gridpriv.core.errors import InputError
from gridpriv.core.files import StorageError, locked_folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


HOLD = """
import sys
from pathlib import Path
from gridpriv.core.files import locked_folder
with locked_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_writer_is_reported_who_holds_the_folder(tmp_path: Path) -> None:
    first = holder(tmp_path / "out")
    message = f"written to by process {first.pid} on {socket.gethostname()}"
    with pytest.raises(InputError, match=message), locked_folder(tmp_path / "out"):
        pass
    first.communicate("")
    with locked_folder(tmp_path / "out"):
        pass
    assert not (tmp_path / "out").exists()  # made for the lock, and nothing was written


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    first = holder(tmp_path)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert names(tmp_path) == [".lock"]
    with locked_folder(tmp_path):
        assert (tmp_path / ".lock").read_text().startswith(f"process {os.getpid()} on ")
    assert names(tmp_path) == []


def test_one_process_locks_a_folder_once(tmp_path: Path) -> None:
    with locked_folder(tmp_path):
        with pytest.raises(InputError, match=f"process {os.getpid()}"), locked_folder(tmp_path):
            pass
        assert names(tmp_path) == [".lock"]


def test_a_lock_that_is_removed_while_it_is_waited_for_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # between our opening the file and locking it, its holder ends and another takes the folder
    import fcntl

    real, remaining = fcntl.flock, []

    def flock(handle: int, how: int) -> None:
        if not remaining:
            (tmp_path / ".lock").unlink()
            remaining.append(holder(tmp_path))
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(InputError, match="is being written to by process"), locked_folder(tmp_path):
        pass
    remaining[0].communicate("")


def test_a_link_in_the_locks_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StorageError, match="cannot lock"), locked_folder(tmp_path):
        pass
    assert (tmp_path / "victim").read_text() == "precious"
