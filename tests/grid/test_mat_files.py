"""MATLAB files: what scipy wrote is read as scipy reads it, and damage is an error, not a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import loadmat, savemat

from gridpriv.core.errors import InputError
from gridpriv.grid.library import case_files
from gridpriv.grid.matpower import parse_matpower
from gridpriv.grid.pypower import MatFileError, Unread, read_variables


def written(path: Path, content: dict[str, Any], **options: Any) -> bytes:
    savemat(path, content, **options)
    return path.read_bytes()


@pytest.mark.parametrize("packed", [False, True])
def test_every_kind_of_value_is_read_as_written(tmp_path: Path, packed: bool) -> None:
    cells = np.empty(2, dtype=object)
    cells[:] = ["north", "south east"]
    given_content = {
        "mpc": {
            "bus": np.arange(6.0).reshape(2, 3),
            "small": np.array([[1, 2]], dtype=np.uint8),
            "whole": np.array([[-5]], dtype=np.int64),
            "name": "Zürich",
            "inner": {"cost": np.array([[1.5]])},
            "names": cells,
            "none": np.zeros((0, 3)),
            "z": np.array([[1 + 2j]]),
        },
        "flag": np.array([[True]]),
    }
    read = read_variables(written(tmp_path / "a.mat", given_content, do_compression=packed))
    mpc = read["mpc"]
    np.testing.assert_array_equal(mpc["bus"], [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(mpc["small"], [[1, 2]])
    assert mpc["whole"][0, 0] == -5
    assert mpc["name"] == "Zürich"
    assert mpc["inner"] == Unread(1)
    assert mpc["names"] == Unread(1), "savemat writes a row of cells"
    assert mpc["none"].size == 0
    assert mpc["z"][0, 0] == 1 + 2j
    assert read["flag"][0, 0] == 1


@given(
    st.lists(st.lists(st.floats(allow_nan=False), min_size=3, max_size=3), min_size=1, max_size=5),
    st.sampled_from([np.float64, np.float32]),
)
@settings(max_examples=40)
def test_tables_equal_scipys(tmp_path: Path, rows: list[list[float]], kind: type) -> None:
    with np.errstate(over="ignore"):
        table = np.array(rows).astype(kind)
    content = written(tmp_path / "a.mat", {"t": table}, do_compression=len(rows) % 2 == 0)
    np.testing.assert_array_equal(read_variables(content)["t"], loadmat(tmp_path / "a.mat")["t"])


@given(st.data())
@settings(max_examples=300)
def test_no_damage_does_more_than_raise(tmp_path: Path, data: st.DataObject) -> None:
    """Bytes that make compiled readers crash end here as MatFileError, or as another value."""
    content = bytearray(
        written(
            tmp_path / "a.mat",
            {"mpc": {"bus": np.ones((3, 4)), "name": "x", "s": {"t": np.array([[2]], np.int16)}}},
            do_compression=data.draw(st.booleans()),
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    try:
        found = read_variables(bytes(content))
    except MatFileError as error:
        assert str(error)
        return
    assert isinstance(found, dict)


def test_a_file_may_not_unpack_to_much_more_than_itself(tmp_path: Path) -> None:
    bomb = written(tmp_path / "a.mat", {"t": np.zeros((8000, 100))}, do_compression=True)
    assert len(bomb) < 10_000
    with pytest.raises(MatFileError, match="unpacks to more than"):
        read_variables(bomb)
    small = np.zeros((2000, 1000), dtype=np.uint8)  # a byte a number: within the bytes allowed
    with pytest.raises(MatFileError, match="numbers, more than 2 per byte"):
        read_variables(written(tmp_path / "a.mat", {"t": small}, do_compression=True))


@pytest.mark.large
def test_every_case_of_the_extras_fits_the_limits(tmp_path: Path) -> None:
    """As scipy packs them; MATLAB's files are of the same format and compression."""
    read = 0
    for path in case_files().values():
        try:
            tables = parse_matpower(path.read_text(errors="replace"), path.stem)
        except InputError:
            continue
        names = ("bus", "gen", "branch")
        content = {"mpc": {name: getattr(tables, name) for name in names}}
        read_variables(written(tmp_path / "a.mat", content, do_compression=True))
        read += 1
    assert read > 200
