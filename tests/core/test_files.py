"""Files are complete or absent, private ones have mode 0600, links and pipes are not followed."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from pathlib import Path

import pytest

from gridpriv.core.errors import InputError
from gridpriv.core.files import (
    StorageError,
    atomic_file,
    make_folder,
    read_bytes,
    read_text,
    sweep,
    write_bytes,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "zwölf\n", private=False)
    assert read_text(tmp_path / "a") == "zwölf\n"
    write_bytes(tmp_path / "a", b"\xff", private=False)
    assert read_bytes(tmp_path / "a") == b"\xff"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("umask", "private", "mode"),
    [
        (0o022, False, 0o644),
        (0o027, False, 0o640),
        (0o022, True, 0o600),
        (0o000, True, 0o600),
    ],
)
def test_private_files_are_their_owners(
    tmp_path: Path, umask: int, private: bool, mode: int
) -> None:
    path = tmp_path / "a"
    path.write_text("was for all")
    path.chmod(0o666)
    before = os.umask(umask)
    try:
        write_text(path, "new", private=private)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_failure_in_the_middle_leaves_the_old_content_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_file(path, private=True) as file:
        file.write(b"new")
        _ = 1 / 0
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_a_link_in_the_place_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "a").symlink_to(tmp_path / "victim")
    write_text(tmp_path / "a", "new", private=False)
    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "a").read_text() == "new"
    assert not (tmp_path / "a").is_symlink()


def test_a_link_that_was_there_first_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # even if somebody guessed the name of the file beside
    monkeypatch.setattr("secrets.token_hex", lambda n: "ab" * n)
    (tmp_path / "victim").write_text("precious")
    digest = hashlib.sha256(b"a").hexdigest()[:16]
    (tmp_path / f".{digest}{'ab' * 8}.part").symlink_to(tmp_path / "victim")
    with pytest.raises(StorageError):
        write_text(tmp_path / "a", "new", private=False)
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "a").exists()


def test_two_temporary_files_never_share_a_name(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "a", private=False), atomic_file(tmp_path / "a", private=False):
        assert len(names(tmp_path)) == 2


def test_storage_that_fails_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot write .*no/a: No such file"):
        write_text(tmp_path / "no" / "a", "x", private=False)
    with pytest.raises(StorageError, match="File name too long"):
        write_text(tmp_path / ("a" * 300), "x", private=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot make"):
        make_folder(tmp_path / "file" / "under")


def test_only_our_own_litter_is_swept(tmp_path: Path) -> None:
    reference = ["thesis.part", ".part", f".{'0' * 31}.part", f"x.{'0' * 32}.part", "a.json.part"]
    for name in [*reference, f".{'0' * 32}.part"]:
        (tmp_path / name).write_text("")
    sweep(tmp_path, [tmp_path / "a"])
    assert len(names(tmp_path)) == len(reference) + 1
    sweep(tmp_path)
    assert names(tmp_path) == sorted(reference)
    sweep(tmp_path / "nothing")


def test_pipes_devices_and_folders_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    actual: list[BaseException] = []

    def read(path: Path) -> None:
        try:
            read_bytes(path)
        except InputError as error:
            actual.append(error)

    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        thread = threading.Thread(target=read, args=(path,), daemon=True)
        thread.start()
        thread.join(timeout=5)
        assert not thread.is_alive(), path
    assert len(actual) == 3


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"])
def test_impossible_names_are_reported(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        read_bytes(tmp_path / name)


def test_text_that_is_none_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="line 1: not UTF-8 text"):
        read_text(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "b")


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a device"])
def test_what_is_no_regular_file_is_not_replaced(tmp_path, kind):
    """As root a rename would take /dev/zero away from everybody."""
    place = tmp_path / "there"
    make = {
        "pipe": os.mkfifo,
        "folder": Path.mkdir,
        "link to a device": lambda path: path.symlink_to("/dev/null"),
    }
    make[kind](place)
    before = place.lstat()
    with pytest.raises(StorageError, match="no regular file"):
        write_text(place, "text", private=True)
    assert place.lstat() == before
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
