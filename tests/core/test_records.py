"""Records of one file: reading after writing, after a kill and after damage."""

from __future__ import annotations

import os

import pytest

from gridpriv.core import files as module
from gridpriv.core.files import HEAD, DamagedError, Records

THREE = [b"first", b"", b"third" * 100]


@pytest.fixture
def path(tmp_path):
    file = Records(tmp_path / "r", private=True)
    assert file.read() == []
    for content in THREE:
        file.add(content)
    return tmp_path / "r"


def test_records_are_read_back_and_are_their_owners(path):
    file = Records(path, private=True)
    assert file.read() == THREE
    assert path.stat().st_mode & 0o777 == 0o600
    file.add(b"fourth")
    assert Records(path, private=True).read() == [*THREE, b"fourth"]
    file.renew(b"alone")
    file.add(b"next")
    assert Records(path, private=True).read() == [b"alone", b"next"]


def test_a_record_cut_short_at_any_byte_never_was_and_the_next_takes_its_place(path):
    content = path.read_bytes()
    first = HEAD.size + len(THREE[0])
    for size in range(first, len(content)):
        path.write_bytes(content[:size])
        file = Records(path, private=True)
        remaining = file.read()
        assert remaining == THREE[: len(remaining)]
        assert len(remaining) == (1 if size < first + HEAD.size else 2)
        file.add(b"next")
        assert Records(path, private=True).read() == [*remaining, b"next"]


def test_a_first_record_that_is_not_whole_is_damage(path):
    content = path.read_bytes()
    for size in range(HEAD.size + len(THREE[0])):
        path.write_bytes(content[:size])
        with pytest.raises(DamagedError):
            Records(path, private=True).read()


def test_any_bit_that_changed_is_damage_and_never_an_older_record(path):
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in (0, 7):
            other = bytearray(content)
            other[place] ^= 1 << bit
            path.write_bytes(bytes(other))
            with pytest.raises(DamagedError):
                Records(path, private=True).read()


def test_a_record_is_flushed_once_and_before_anybody_is_reported(path, monkeypatch):
    seen = []

    def flush(handle):
        seen.append(os.fstat(handle).st_size)

    monkeypatch.setattr(module, "flush", flush)
    monkeypatch.setattr(module, "write_bytes", None)  # would flush twice
    file = Records(path, private=True)
    file.read()
    file.add(b"x")
    assert seen == [path.stat().st_size]
