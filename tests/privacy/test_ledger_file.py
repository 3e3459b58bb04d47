"""The ledger's file under bit flips, truncation, forgery, disk faults and killed processes."""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import random
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ledgers import (
    NORTH,
    ONE_MW,
    SOUTH,
    TENTH,
    charge_once,
    dataset,
    error_of_child,
    granted,
    in_child,
    spent,
)

from gridpriv.cli.main import main
from gridpriv.core.errors import BudgetError, GridprivError, InputError
from gridpriv.core.files import StorageError
from gridpriv.privacy.ledger import Ledger, grant, read_book, verify
from gridpriv.privacy.ledger_file import HEAD_BYTES, Head, parse_head


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return granted(tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A ledger of one bus and two charges."""
    path, item = tmp_path / "small", dataset("z", [7])
    grant(path, [item], 1.0)
    for _ in range(2):
        charge_once(path, item)
    return path


def test_a_ledger_is_never_made_through_a_link(tmp_path: Path) -> None:
    path, target = tmp_path / "ledger", tmp_path / "elsewhere" / "file"
    target.parent.mkdir()
    path.symlink_to(target)
    with pytest.raises(InputError, match="is a link to a file that does not exist"):
        grant(path, [dataset("z", [7])], 1.0)
    assert not target.exists()
    assert not Path(f"{path}.key").exists()
    path.unlink()
    grant(target, [dataset("z", [7])], 1.0)
    path.symlink_to(target)  # a link to a ledger that is there is followed
    grant(path, [dataset("y", [8])], 1.0, key=Path(f"{target}.key"))
    assert len(read_book(target).accounts) == 2


def test_what_follows_the_last_row_is_no_charge_and_a_line_is_refused(small: Path) -> None:
    """docs/ledger.md: bytes without a line end are a killed writer's, and are cut off."""
    whole, each = small.read_bytes(), dataset("z", [7])
    small.write_bytes(whole + b"0123 no row")
    assert len(read_book(small).charged) == 2
    with Ledger(small, [each]):
        pass
    assert small.read_bytes() == whole
    small.write_bytes(whole + b"0123 no row\n")
    refuses(small)


def refuses(path: Path) -> None:
    """Reading and writing of the ledger are refused; nothing is written."""
    before = path.read_bytes()
    for act in (lambda: read_book(path), lambda: Ledger(path, [dataset("z", [7])])):
        with pytest.raises(InputError) as refused:
            act()
        assert refused.value.exit_code == 2
        assert "\n" not in str(refused.value)
    assert path.read_bytes() == before


# What the file is, by a second implementation


def chain(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a ledger, checked by the documented format and nothing else."""
    key = bytes.fromhex(Path(f"{path}.key").read_text().strip())
    head, *lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    last, rows = bytes(32), []
    for number, line in enumerate(lines, start=1):
        mac, row = line.split(b" ", 1)
        reported = b"gridpriv ledger 2 row\0" + number.to_bytes(8, "big") + last + row
        last = hmac.new(key, reported, hashlib.sha256).digest()
        assert mac.decode() == last.hex()
        rows.append(json.loads(row))
    sealed = b"gridpriv ledger 2 head\0" + len(rows).to_bytes(8, "big") + last
    seal = hmac.new(key, sealed, hashlib.sha256).hexdigest()
    assert head == f"gridpriv ledger 2 {len(rows):012d} {seal}".encode()
    return rows


def test_the_file_is_what_its_format_says(file: Path) -> None:
    charge_once(file)
    charge_once(file, SOUTH)
    first, *charges = chain(file)
    assert list(first) == ["grant"]
    assert [c["charge"]["units"] for c in charges] == [[[0, 2]], [[3, 4]]]
    assert charges[0]["charge"]["charges"] == [["laplace", 10.0, 0.0, 1]]


def test_names_and_data_stand_in_the_file_only_as_marks_under_the_key(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    texts = []
    for path in (granted(tmp_path / "a"), granted(tmp_path / "b")):
        text = path.read_bytes()
        unit = NORTH.units[0]
        assert unit.name.encode() not in text
        for known in (unit.name.encode(), unit.record, unit.name.encode() + b"\0" + unit.record):
            for digest in (hashlib.sha256(known), hmac.new(b"", known, hashlib.sha256)):
                assert digest.hexdigest()[:32].encode() not in text
        texts.append(chain(path)[0]["grant"])
    marks = [set(t["units"] + t["records"]) for t in texts]
    assert len(marks[0]) == 10
    assert not marks[0] & marks[1]  # another key, other marks
    assert unit.record.decode() not in repr(NORTH)


def test_a_ledger_and_its_key_are_their_owners_alone(file: Path) -> None:
    for path in (file, Path(f"{file}.key")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


# Flips, cuts, forgery


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)


def put(path: Path, content: bytes) -> None:
    """Write over a file in place, which is much faster than truncating it first."""
    with path.open("r+b", buffering=0) as file:
        file.write(content)
        file.truncate(len(content))


def test_every_flipped_bit_of_ledger_and_key_is_refused(small: Path) -> None:
    for path in (small, Path(f"{small}.key")):
        whole = path.read_bytes()
        for bit in range(8 * len(whole)):
            put(path, flipped(whole, bit))
            with pytest.raises(InputError):
                read_book(small)
        put(path, whole)
    assert spent(small, "z") == 2


def test_whoever_would_charge_a_flipped_ledger_is_refused_and_does_not_change_it(
    small: Path,
) -> None:
    whole = small.read_bytes()
    for bit in random.Random(5).sample(range(8 * len(whole)), 200):
        put(small, flipped(whole, bit))
        refuses(small)


def test_a_ledger_that_was_cut_anywhere_is_refused(small: Path) -> None:
    whole = small.read_bytes()
    for length in range(len(whole)):
        put(small, whole[:length])
        with pytest.raises(InputError):
            read_book(small)
    refuses(small)


def test_without_the_key_no_row_is_dropped_moved_repeated_or_added(small: Path) -> None:
    head, *lines = small.read_bytes().splitlines(keepends=True)
    seal_of = {2: lines[1][:64], 3: lines[2][:64]}
    forged = [
        [head, *lines[:2]],
        [head[:29] + b"2 " + seal_of[2] + b"\n", *lines[:2]],
        [head[:29] + b"2 " + head[31:], *lines[:2]],
        [head, lines[0], lines[2], lines[1]],
        [head, lines[0], lines[1], lines[1]],
        [head, lines[0], lines[2]],
        [head, *lines, lines[2]],
        [head[:29] + b"4 " + seal_of[3] + b"\n", *lines, lines[2]],
        [head, *lines, seal_of[3] + b" {}\n"],
    ]
    for parts in forged:
        small.write_bytes(b"".join(parts))
        refuses(small)


def test_an_older_copy_is_reported_by_a_head_kept_elsewhere(file: Path) -> None:
    charge_once(file)
    older, remaining = file.read_bytes(), verify(file).head
    charge_once(file)
    newer = verify(file, remaining).head
    assert (remaining.count, newer.count) == (2, 3)
    assert verify(file, newer).head == newer == parse_head(str(newer))
    file.write_bytes(older)
    assert spent(file) == 1  # the file alone cannot know
    with pytest.raises(InputError, match=r"does not go on from the head 3:.*its own head is 2:"):
        verify(file, newer)
    assert verify(file, Head()).head == remaining
    for text in ("", "3", "3:ab", f"3:{'g' * 64}", f"-1:{'0' * 64}", f"3:{'0' * 64}\n"):
        with pytest.raises(InputError, match="head = "):
            parse_head(text)


def test_an_older_copy_put_back_during_a_run_is_refused(file: Path) -> None:
    older = file.read_bytes()
    with Ledger(file, [NORTH]) as ledger:
        ledger.charge("north", "r", {TENTH: 1})
        newer = file.read_bytes()
        file.write_bytes(older)  # the same inode
        with pytest.raises(InputError, match="nothing charged"):
            ledger.charge("north", "r", {TENTH: 1})
        file.write_bytes(newer)
        ledger.charge("north", "r", {TENTH: 1})
        shutil.copy(file, f"{file}.copy")
        Path(f"{file}.copy").replace(file)  # another inode: its lock would be another
        with pytest.raises(InputError, match="moved or replaced"):
            ledger.charge("north", "r", {TENTH: 1})
        file.unlink()
        with pytest.raises(InputError, match="no ledger"):
            ledger.charge("north", "r", {TENTH: 1})


def mutated(content: bytes, dice: random.Random) -> bytes:
    """Return content with one mutation of a dozen kinds; it may be the same by chance."""
    at, to = sorted(dice.randrange(len(content) + 1) for _ in range(2))
    some = dice.choice([b"", b"\0", b"\n", b" ", b"{", b"1", b"\xff", dice.randbytes(9), b"9" * 40])
    lines = content.splitlines(keepends=True)
    a, b = dice.randrange(len(lines)), dice.randrange(len(lines))
    return dice.choice(
        [
            lambda: content[:at] + some + content[at:],
            lambda: content[:at] + some + content[to:],
            lambda: content[:at] + content[to:],
            lambda: content[:at] + content[at:to] * 2 + content[to:],
            lambda: content[:at] + content[at:to][::-1] + content[to:],
            lambda: content[:at],
            lambda: content[at:],
            lambda: b"".join([*lines[:a], lines[b], *lines[a + 1 :]]),
            lambda: b"".join([*lines[:a], *lines[a + 1 :]]),
            lambda: content.replace(b"charge", b"grant"),
            lambda: dice.randbytes(dice.randrange(300)),
            content.swapcase,
        ]
    )()


def survive_mutations(path: Path, count: int, seed: int, capsys: pytest.CaptureFixture[str]) -> int:
    """Return how many of the mutations were refused; whatever was not is the ledger itself."""
    dice, refused = random.Random(seed), 0
    whole = {p: p.read_bytes() for p in (path, Path(f"{path}.key"))}
    true = [e for _, e in read_book(path).charged]
    for number in range(count):
        victim = dice.choice(list(whole))
        put(victim, mutated(whole[victim], dice))
        words = dice.choice([["show"], ["verify"], ["export"], ["export", "--format", "json"]])
        code = main(["ledger", words[0], str(path), *words[1:]])
        assert code in (0, 2), f"mutation {number} of seed {seed}"
        output = capsys.readouterr().err
        assert "Traceback" not in output
        assert output.count("\n") == (1 if code else 0)
        if code == 0:  # the same bytes, or the end of a row that nobody was told of
            assert [e for _, e in read_book(path).charged] == true
            with Ledger(path, [NORTH]):
                pass
            assert victim.read_bytes() == whole[victim]
        else:
            with pytest.raises(GridprivError):
                Ledger(path, [NORTH])
        refused += code == 2
        put(victim, whole[victim])
    return refused


def test_mutations_are_refused_in_a_sentence(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    charge_once(file)
    assert survive_mutations(file, 100, 1, capsys) > 75


@pytest.mark.slow
def test_twenty_thousand_mutations_are_refused_in_a_sentence(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    charge_once(file)
    assert survive_mutations(file, 20_000, 2, capsys) > 15_000


# What is no ledger


@pytest.mark.parametrize("length", [252, 255, 256])
def test_a_name_too_long_for_its_key_leaves_nothing(tmp_path: Path, length: int) -> None:
    with pytest.raises(InputError, match="a shorter name"):
        grant(tmp_path / ("l" * length), [NORTH], 1.0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", [1, 251])
def test_a_name_with_room_for_its_key_is_granted(tmp_path: Path, length: int) -> None:
    grant(tmp_path / ("l" * length), [NORTH], 1.0)
    assert len(list(tmp_path.iterdir())) == 2


def write_garbage(path: Path) -> None:
    path.write_bytes(b"no ledger " * 1000)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def database(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE grants (owner, epsilon)")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (write_garbage, "not a gridpriv ledger"),
        (empty, "not a gridpriv ledger"),
        (database, "not a gridpriv ledger"),
        (folder, "not a regular file|Is a directory"),
        (pipe, "regular file"),
        (device, "regular file"),
        (loop, "symbolic links"),
        (Path.unlink, "there is no ledger"),
        (lambda path: Path(f"{path}.key").unlink(), "there is no key"),
        (lambda path: folder(Path(f"{path}.key")), "key"),
        (lambda path: pipe(Path(f"{path}.key")), "regular file"),
        (lambda path: Path(f"{path}.key").write_text("ab" * 32 + "\n"), "another ledger's key"),
        (lambda path: Path(f"{path}.key").chmod(0o640), "other users.*0640.*chmod 600"),
        (lambda path: Path(f"{path}.key").chmod(0o602), "other users"),
    ],
)
def test_what_is_no_ledger_or_no_key_is_refused(
    file: Path, spoil: Callable[[Path], None], message: str
) -> None:
    charge_once(file)
    spoil(file)
    before = file.read_bytes() if file.is_file() else None
    west = dataset("west", [9])
    acts: list[Callable[[], Any]] = [lambda: charge_once(file), lambda: read_book(file)]
    if spoil not in (empty, Path.unlink):  # there a grant makes a ledger
        acts.append(lambda: grant(file, [west], 1.0))
    for act in acts:
        with pytest.raises(InputError, match=message) as refused:
            act()
        assert refused.value.exit_code == 2
    assert (file.read_bytes() if file.is_file() else None) == before


def test_a_key_kept_elsewhere_is_the_owners_and_never_made(tmp_path: Path) -> None:
    path, key = tmp_path / "ledger", tmp_path / "owner.key"
    with pytest.raises(InputError, match="there is no key"):
        grant(path, [NORTH], 1.0, key=key)
    assert list(tmp_path.iterdir()) == []
    key.write_text("5a" * 32 + "\n")
    key.chmod(0o600)
    grant(path, [NORTH], 1.0, key=key)
    with Ledger(path, [NORTH], key) as ledger:
        ledger.charge("north", "r", {TENTH: 1})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger", "owner.key"]
    assert len(read_book(path, key).charged) == 1
    with pytest.raises(InputError, match="no key"):
        read_book(path)
    (tmp_path / "new.key").write_text("old shopping list\n")
    with pytest.raises(InputError, match="other users"):
        grant(tmp_path / "new", [NORTH], 1.0)
    assert not (tmp_path / "new").exists()


def test_a_row_of_another_version_is_refused(file: Path) -> None:
    with Ledger(file, [NORTH]) as ledger, ledger._held.file.writing():
        ledger._held.file.append(b'{"gift":{}}')
    for act in (lambda: charge_once(file), lambda: read_book(file)):
        with pytest.raises(InputError, match="row 2: it was written by another version"):
            act()


# Rights


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter, unlike pytest's."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def as_nobody(act: Callable[[], object]) -> str:
    """Return the message to a user without these rights, who owns the files."""

    def drop_rights() -> object:
        if os.geteuid() == 0:
            os.setegid(65534)
            os.seteuid(65534)
        return act()

    return error_of_child(drop_rights)


def give_away(path: Path, mode: int) -> None:
    for part in (path, Path(f"{path}.key")):
        part.chmod(mode)
        if os.geteuid() == 0:
            os.chown(part, 65534, 65534)


def test_a_read_only_ledger_is_shown_and_not_charged(open_folder: Path) -> None:
    path = granted(open_folder)
    charge_once(path)
    give_away(path, 0o400)
    open_folder.chmod(0o555)
    assert as_nobody(lambda: spent(path)) == "1"
    printed = as_nobody(lambda: charge_once(path))
    assert printed.startswith("InputError")
    assert "cannot be written: Permission denied; nothing charged" in printed
    assert as_nobody(lambda: granted(open_folder / "x")).startswith("InputError")


def test_another_users_ledger_is_refused(open_folder: Path) -> None:
    path = granted(open_folder)
    if os.geteuid() != 0:
        pytest.skip("needs two users")
    for act in (lambda: spent(path), lambda: charge_once(path)):
        assert "Permission denied" in as_nobody(act)
    assert spent(path) == 0


def test_a_folder_that_cannot_be_written_to_is_refused(open_folder: Path) -> None:
    if os.geteuid() != 0:
        open_folder.chmod(0o555)
    reported = as_nobody(lambda: granted(open_folder))
    assert reported.startswith("InputError")
    assert "Permission denied" in reported
    with pytest.raises(InputError, match="no folder"):
        granted(open_folder / "absent")


# Faults and ends at every file operation

OPERATIONS = ("open", "pwrite", "pread", "fsync", "ftruncate", "close", "fstat")


def struck(act: Callable[[], None], strike: Callable[[str, int, Any, Any], Any]) -> None:
    """Act with every file operation passed through ``strike(name, number, real, arguments)``."""
    number = 0

    def passed(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            nonlocal number
            number += 1
            return strike(name, number, real, given)

        return call

    real = {name: getattr(os, name) for name in OPERATIONS}
    for name, function in real.items():
        setattr(os, name, passed(name, function))
    try:
        act()
    finally:
        for name, function in real.items():
            setattr(os, name, function)


def operations(act: Callable[[], None]) -> list[str]:
    """Return the file operations of an act, from a fork that takes them."""

    def names() -> str:
        seen = []

        def strike(name: str, _: int, real: Any, given: Any) -> Any:
            seen.append(name)
            return real(*given)

        struck(act, strike)
        return " ".join(seen)

    return error_of_child(names).split()


def ends(act: Callable[[], None], at: int, how: str) -> int:
    """Return the exit code of a fork that ends at its ``at``-th file operation."""

    def strike(name: str, number: int, real: Any, given: Any) -> Any:
        if number != at:
            return real(*given)
        if how == "after":
            real(*given)
        if how == "half" and name == "pwrite" and given[2] >= HEAD_BYTES:  # a row, not the head
            real(given[0], given[1][: len(given[1]) // 2], given[2])
        os._exit(9)

    return in_child(lambda: struck(act, strike))


WAYS = pytest.mark.parametrize(
    "how", ["before", "half", pytest.param("after", marks=pytest.mark.slow)]
)
"""Ends after an operation leave what ends before the next one leave; half a write is its own."""


def ends_at(names: list[str], how: str) -> list[int]:
    """Return the numbers of operations to end at: half an operation is a write's alone."""
    return [n for n, name in enumerate(names, start=1) if how != "half" or name == "pwrite"]


@WAYS
def test_a_charge_that_ends_at_any_file_operation_leaves_a_valid_ledger(
    tmp_path: Path, how: str
) -> None:
    start = granted(tmp_path)
    charge_once(start)
    names = {p.name for p in tmp_path.iterdir()}
    whole = start.read_bytes()

    def two_charges() -> None:
        with Ledger(start, [NORTH]) as ledger:
            for run in ("first", "second"):
                ledger.charge("north", run, {TENTH: 2})
                with (tmp_path / "told").open("a") as reason:
                    reason.write(f"{run}\n")

    taken = operations(two_charges)
    assert len(taken) > 20
    for at in ends_at(taken, how):
        put(start, whole)
        (tmp_path / "told").unlink(missing_ok=True)
        ends(two_charges, at, how)
        reason = (tmp_path / "told").read_text().split() if (tmp_path / "told").exists() else []
        (tmp_path / "told").unlink(missing_ok=True)
        runs = [entry.run for _, entry in read_book(start).charged][1:]
        assert runs[: len(reason)] == reason
        assert len(reason) <= len(runs) <= len(reason) + 1
        charge_once(start)
        assert len(chain(start)) == 3 + len(runs)
        assert {p.name for p in tmp_path.iterdir()} == names


@WAYS
def test_a_first_grant_that_ends_at_any_file_operation_can_be_made_again(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "new" / "ledger"

    def first_grant() -> None:
        granted(path.parent)

    path.parent.mkdir()
    for at in ends_at(operations(first_grant), how):
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        ends(first_grant, at, how)
        try:
            first_grant()
        except InputError as error:  # it had been made: nothing was lost
            assert "have a grant already" in str(error)
        assert sorted(p.name for p in path.parent.iterdir()) == ["ledger", "ledger.key"]
        assert [len(row["grant"]["units"]) for row in chain(path)] == [5]
        charge_once(path)


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_disk_that_fails_anywhere_is_refused_and_loses_nothing(
    tmp_path: Path, fault: int
) -> None:
    path = granted(tmp_path)
    charge_once(path)
    whole = path.read_bytes()

    def charge() -> None:
        charge_once(path)

    count, failed = len(operations(charge)), 0
    for at in range(1, count + 1):
        put(path, whole)

        def strike(name: str, number: int, real: Any, given: Any, at: int = at) -> Any:
            if number == at and name in ("pwrite", "fsync", "ftruncate", "pread", "open"):
                if name == "pwrite" and given[2] >= HEAD_BYTES:
                    real(given[0], given[1][:50], given[2])
                raise OSError(fault, os.strerror(fault))
            return real(*given)

        acknowledged = True
        try:
            struck(charge, strike)
        except GridprivError as error:
            acknowledged, failed = False, failed + 1
            assert error.exit_code == (3 if isinstance(error, StorageError) else 2)
            assert os.strerror(fault) in str(error)
        assert 1 + acknowledged <= spent(path) <= 2
        charge_once(path)
        chain(path)
    assert failed >= 4


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_in_the_first_grant_leaves_one_that_can_be_made(
    tmp_path: Path, fault: int
) -> None:
    path = tmp_path / "new" / "ledger"
    path.parent.mkdir()
    count, failed = len(operations(lambda: granted(path.parent) and None)), 0
    for at in range(1, count + 1):
        shutil.rmtree(path.parent)
        path.parent.mkdir()

        def strike(name: str, number: int, real: Any, given: Any, at: int = at) -> Any:
            if number == at and name in ("pwrite", "fsync", "pread", "open"):
                raise OSError(fault, os.strerror(fault))
            return real(*given)

        try:
            struck(lambda: granted(path.parent) and None, strike)
        except GridprivError as error:
            failed += 1
            assert os.strerror(fault) in str(error)
        try:
            granted(path.parent)
        except InputError as error:  # the row had been written before its flush failed
            assert "have a grant already" in str(error)
        assert [len(row["grant"]["units"]) for row in chain(path)] == [5]
        charge_once(path)
    assert failed >= 6


def test_a_full_disk_is_refused_through_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A separate file system, if this user may mount one; else a limit on file size."""
    import resource

    path = granted(tmp_path)
    size = path.stat().st_size

    def charge_beyond() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        charge_once(path)

    assert "StorageError: cannot write" in error_of_child(charge_beyond)
    assert path.stat().st_size == size + 100  # half a row
    assert main(["ledger", "verify", str(path)]) == 0
    assert "100 bytes of an unfinished row follow" in capsys.readouterr().out
    charge_once(path)
    assert (spent(path), len(chain(path))) == (1, 2)


def test_a_row_that_the_head_does_not_count_yet_counts(file: Path) -> None:
    """The file of a process that was killed after its row was on disk."""
    before = file.read_bytes()[:HEAD_BYTES]
    charge_once(file)
    file.write_bytes(before + file.read_bytes()[HEAD_BYTES:])
    assert spent(file) == 1
    assert file.read_bytes()[:HEAD_BYTES] == before  # a reader writes nothing
    charge_once(file)
    assert len(chain(file)) == 3


def test_the_head_is_brought_to_disk_when_the_ledger_is_closed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = []
    fsync = os.fsync
    with Ledger(file, [NORTH]) as ledger:
        ledger.charge("north", "r", {TENTH: 1})
        monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(fsync(handle)))
    assert len(flushed) == 1


def test_a_charge_is_flushed_before_it_returns(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, pwrite = os.fsync, os.pwrite
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("flush"), fsync(handle))[1])
    monkeypatch.setattr(
        os, "pwrite", lambda *a: (done.append("head" if a[2] == 0 else "row"), pwrite(*a))[1]
    )
    with Ledger(file, [NORTH]) as ledger:
        ledger.charge("north", "r", {TENTH: 1})
        assert done == ["row", "flush", "head"]


def test_the_grant_stands_after_all_that(file: Path) -> None:
    """The figures that the other tests rest on: ten releases of a tenth and not one more."""
    for _ in range(10):
        charge_once(file)
    with pytest.raises(BudgetError):
        charge_once(file)
    assert str(ONE_MW) == "any change of one bus's active demand by at most 1 MW"
