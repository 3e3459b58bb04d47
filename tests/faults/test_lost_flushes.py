"""A simulated disk under ledger, records and store: power fails, flushes are lost or reordered.

Every write of a file is recorded, with the flushes between them. After a power failure
every write before the last flush remains. Any write after it may be complete, cut in half or
missing. On a disk whose flush does nothing, any write may be missing.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from harness import content as content_of
from test_store_faults import toy_study

from gridpriv.core.errors import InputError
from gridpriv.core.files import Records
from gridpriv.privacy import ledger_file
from gridpriv.privacy.ledger import Ledger, grant, read_book

sys.path.insert(0, str(Path(__file__).parents[1] / "privacy"))
from ledgers import TENTH, dataset

CHARGES = 4
Write = tuple[str, int, bytes]


class Disk:
    """Operations on one file: ('write', offset, content), ('cut', size, b''), ('flush', 0, b'')."""

    def __init__(self, path: Path) -> None:
        self.path, self.log, self.done = path, [], {}  # type: ignore[var-annotated]

    def acknowledge(self, number: int) -> None:
        """Note that ``number`` changes were acknowledged at this place of the log."""
        self.done[len(self.log)] = number

    def states(self, *, honest: bool) -> Iterator[tuple[int, int, bytes]]:
        """Yield the acknowledged writes, the begun writes, and a possible content."""
        for end in range(1, len(self.log) + 1):
            past = self.log[:end]
            flushes = [k for k, (kind, *_) in enumerate(past) if kind == "flush"]
            safe = flushes[-1] if honest and flushes else -1
            loose = [k for k in range(safe + 1, end) if past[k][0] != "flush"][-5:]
            known = max((n for at, n in self.done.items() if at <= end), default=0)
            # a head is within one sector, which a disk writes whole or not at all (ledger_file.py)
            ways = [
                ("whole", "lost") if past[k][1] == 0 else ("whole", "half", "lost") for k in loose
            ]
            for kept in itertools.product(*ways):
                fate = dict(zip(loose, kept, strict=True))
                yield known, known + 1, content(past, fate)


def content(log: list[Write], fate: dict[int, str]) -> bytes:
    held = bytearray()
    for k, (kind, at, data) in enumerate(log):
        how = fate.get(k, "whole")
        if kind == "flush" or how == "lost":
            continue
        if kind == "cut":
            del held[at:]
            continue
        part = data if how == "whole" else data[: len(data) // 2]
        if len(held) < at:
            held.extend(bytes(at - len(held)))
        held[at : at + len(part)] = part
    return bytes(held)


@pytest.fixture
def charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Disk]:
    path, data = tmp_path / "ledger", dataset("z", [7])
    disk = Disk(path)
    fsync, cut, write = os.fsync, os.ftruncate, ledger_file.write_at

    def ours(handle: int) -> bool:
        return Path(f"/proc/self/fd/{handle}").readlink() == path

    def write_at(handle: int, data: bytes, offset: int) -> None:
        if ours(handle):
            disk.log.append(("write", offset, data))
        write(handle, data, offset)

    def flush(handle: int) -> None:
        if ours(handle):
            disk.log.append(("flush", 0, b""))
        fsync(handle)

    def truncate(handle: int, size: int) -> None:
        disk.log.append(("cut", size, b""))
        cut(handle, size)

    monkeypatch.setattr(ledger_file, "write_at", write_at)
    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "ftruncate", truncate)
    grant(path, [data], 1.0)
    disk.acknowledge(0)
    with Ledger(path, [data]) as ledger:
        for number in range(1, CHARGES + 1):
            ledger.charge("z", "r", {TENTH: 1})
            disk.acknowledge(number)
    monkeypatch.undo()
    return path, disk


def after_failures(
    disk: Disk, path: Path, number: Callable[[], int], *, honest: bool
) -> tuple[int, int]:
    """Open the state after every failure; return the numbers of read and of refused states."""
    begun, read, refused = False, 0, 0
    for known, most, left in dict.fromkeys(disk.states(honest=honest)):
        begun = begun or known > 0
        path.write_bytes(left)
        try:
            found = number()
        except InputError:
            assert not honest or known == 0, "what was acknowledged is refused"
            refused += 1
            continue
        read += 1
        if honest:
            assert known <= found <= most, (known, found, most)
        else:
            assert found <= most
    return read, refused


def test_a_ledger_after_a_power_failure_holds_every_charge(charged: tuple[Path, Disk]) -> None:
    path, disk = charged
    read, _ = after_failures(disk, path, lambda: len(read_book(path).charged), honest=True)
    assert read > 3 * CHARGES


def test_a_ledger_on_a_disk_that_lies_is_refused_or_an_older_one(
    charged: tuple[Path, Disk],
) -> None:
    """A charge that such a disk lost cannot be seen; none is made up, and no other is changed."""
    path, disk = charged
    read, refused = after_failures(disk, path, lambda: len(read_book(path).charged), honest=False)
    assert read > 10
    assert refused > 10


@pytest.mark.parametrize("honest", [True, False])
def test_records_after_a_power_failure(tmp_path: Path, honest: bool) -> None:
    path = tmp_path / "records"
    disk, records = Disk(path), [b"first" * 9, b"second" * 30, b"third" * 3, b"fourth"]
    file = Records(path, private=True)
    file.read()
    file.add(records[0])
    disk.log.append(("write", 0, path.read_bytes()))
    disk.log.append(("flush", 0, b""))
    disk.acknowledge(1)
    for number, record in enumerate(records[1:], start=2):
        size = file.size
        file.add(record)
        disk.log.append(("cut", size, b""))
        disk.log.append(("write", size, path.read_bytes()[size:]))
        disk.log.append(("flush", 0, b""))
        disk.acknowledge(number)

    def number() -> int:
        stored = Records(path, private=True).read()
        assert stored == records[: len(stored)]
        return len(stored)

    read, _ = after_failures(disk, path, number, honest=honest)
    assert read > 5


# ---- the store: names and contents reach the disk by flushes of their own


class NamesAndContents:
    """Possible content of a written folder after a power failure.

    A content is safe once its file was flushed, a name once its folder was. Anything else may be
    present or not, in any order. After every change ``failures`` is called with this disk.
    """

    def __init__(self, folder: Path, failures: Callable[[NamesAndContents], None]) -> None:
        self.folder, self.failures = folder, failures
        self.contents: dict[int, bytes] = {}
        self.names: dict[str, int] = {}

    def now(self) -> dict[str, int]:
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.folder)): path.stat().st_ino for path in files}

    def flushed(self, handle: int) -> None:
        place = Path(f"/proc/self/fd/{handle}").readlink()
        if place.is_dir():
            names = {n: i for n, i in self.names.items() if (self.folder / n).parent != place}
            here = {n: i for n, i in self.now().items() if (self.folder / n).parent == place}
            self.names = names | here
        elif self.folder in place.parents:
            self.contents[os.fstat(handle).st_ino] = place.read_bytes()
        self.failures(self)

    def left(self, random: Random) -> dict[str, bytes]:
        """Return one folder that a failure may leave: each change there or not."""
        now = self.now()
        held = {}
        for name in now.keys() | self.names.keys():
            inode = random.choice([self.names.get(name), now.get(name)])
            if inode is not None:
                held[name] = self.contents.get(inode, random.choice([b"", b"PAR1 a part of it"]))
        return held


@pytest.mark.parametrize("each", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_a_study_after_a_power_failure_resumes_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, each: int
) -> None:
    folder, random = tmp_path / "out", Random(7)
    assert toy_study(tmp_path / "whole", resume=False) == 0
    whole, fsync, replaced = content_of(tmp_path / "whole"), os.fsync, Path.replace
    remaining: list[dict[str, bytes]] = []

    def failures(disk: NamesAndContents) -> None:
        remaining.extend(disk.left(random) for _ in range(each))

    disk = NamesAndContents(folder, failures)

    def flush(handle: int) -> None:
        fsync(handle)
        disk.flushed(handle)

    def replace(path: Path, target: Path) -> Path:
        there = replaced(path, target)
        disk.failures(disk)
        return there

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(Path, "replace", replace)
    assert toy_study(folder, resume=False) == 0
    monkeypatch.undo()
    assert len(remaining) > 20 * each
    for number, files in enumerate(remaining):
        again = tmp_path / f"again{number}"
        again.mkdir()
        for name, data in files.items():
            (again / name).parent.mkdir(exist_ok=True)
            (again / name).write_bytes(data)
        resume = (again / "manifest.json").exists()
        assert toy_study(again, resume=resume) == 0, (number, sorted(files))
        assert content_of(again) == whole, number
