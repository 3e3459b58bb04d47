"""PYPOWER dicts and .mat files: the same case as the .m file, or a clear refusal.

MATLAB files: what scipy wrote is read as scipy reads it, and damage is an error, not a crash.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import loadmat, savemat

from gridpriv.core.errors import GridprivWarning, InputError
from gridpriv.grid.library import case_files, load_case, read_report, shipped_folder
from gridpriv.grid.matpower import parse_matpower
from gridpriv.grid.pypower import (
    MatFileError,
    Unread,
    case_from_pypower,
    read_pypower,
    read_variables,
)


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
        loaded = read_variables(bytes(content))
    except MatFileError as error:
        assert str(error)
        return
    assert isinstance(loaded, dict)


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


TABLES = parse_matpower((shipped_folder("cases") / "case14.m").read_text(), "case14")
CASE14 = load_case("case14")


def ppc() -> dict[str, Any]:
    return {
        "version": "2",
        "baseMVA": TABLES.base_mva,
        "bus": TABLES.bus.copy(),
        "gen": TABLES.gen.copy(),
        "branch": TABLES.branch.copy(),
        "gencost": np.array(TABLES.gencost),
    }


def test_a_dict_is_the_case_of_the_file() -> None:
    assert case_from_pypower(ppc()).fingerprint == CASE14.fingerprint
    as_lists = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in ppc().items()}
    assert case_from_pypower(as_lists).fingerprint == CASE14.fingerprint


def test_a_mat_file_is_the_case_of_the_file(tmp_path: Path) -> None:
    savemat(tmp_path / "case14.mat", {"mpc": ppc()})
    assert load_case(tmp_path / "case14.mat").fingerprint == CASE14.fingerprint
    savemat(tmp_path / "flat.mat", ppc())
    assert load_case(tmp_path / "flat.mat").fingerprint == CASE14.fingerprint
    assert read_report(tmp_path / "flat.mat").format == "MATPOWER .mat"


def test_buses_may_count_from_zero_as_in_pandapowers_ppc() -> None:
    shifted = ppc()
    for table, columns in (("bus", [0]), ("gen", [0]), ("branch", [0, 1])):
        shifted[table][:, columns] -= 1
    shifted["branch"] = shifted["branch"].astype(complex)  # as pandapower's
    case = case_from_pypower(shifted)
    assert case.bus_id.tolist() == list(range(14))
    np.testing.assert_array_equal(case.f_bus, CASE14.f_bus)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bus": None}, "mpc.bus: must be|mpc.bus has"),
        ({"bus": [[1, 2], [3]]}, "mpc.bus: must be a table of numbers"),
        ({"bus": "text"}, "mpc.bus: must be"),
        ({"bus": [1, 2, 3]}, "mpc.bus has 1 dimensions"),
        ({"bus": np.zeros((2, 5))}, "mpc.bus has 5 columns; at least 13"),
        ({"branch": TABLES.branch + 1j}, "mpc.branch has complex entries"),
        ({"baseMVA": [1.0, 2.0]}, "baseMVA has 2 entries"),
        ({"baseMVA": "x"}, "baseMVA: must be"),
        ({"version": "1"}, "version = '1': must be"),
        ({"gencost": [[2, 0, 0, 3, 1]] * 5}, "mpc.gencost row 1: 3 finite numbers"),
        ({"dcline": [[1, 2]]}, "mpc.dcline has 2 columns"),
    ],
)
def test_damaged_dicts_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        case_from_pypower(ppc() | change)


def test_missing_tables_and_other_types_are_refused() -> None:
    for name in ("baseMVA", "bus", "gen", "branch"):
        with pytest.raises(InputError, match=f"{name} is missing"):
            case_from_pypower({k: v for k, v in ppc().items() if k != name})
    with pytest.raises(InputError, match="is a dict, not list"):
        case_from_pypower([])  # type: ignore[arg-type]


def test_a_program_is_never_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "case9.py").write_text(f"open({str(marker)!r}, 'w')\n")
    with pytest.raises(InputError, match=r"is a program and is not run; .*case_from_pypower"):
        load_case(tmp_path / "case9.py")
    assert not marker.exists()


@settings(max_examples=80)
@given(st.data())
def test_truncated_or_altered_mat_files_are_refused_or_read_whole(
    tmp_path: Path, data: st.DataObject
) -> None:
    whole = tmp_path / "whole.mat"
    if not whole.exists():
        savemat(whole, {"mpc": ppc()})
    content = bytearray(whole.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, 700))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.mat"
    path.write_bytes(bytes(content))
    try:
        case = load_case(path)
    except InputError as error:
        assert "damaged.mat" in str(error)
        return
    except GridprivWarning:
        return
    assert case.n_bus > 0


def test_the_report_names_what_is_not_modelled() -> None:
    source = ppc()
    source["gen"][2, [8, 9, 4]] = [0.0, -50.0, -20.0]  # a dispatchable load with reactive power
    source["gen"] = np.vstack([source["gen"], source["gen"][1]])  # two machines on bus 2
    source["gen"] = np.hstack([source["gen"], np.zeros((6, 11))])
    source["gen"][0, 10:16] = [0, 50, -10, 20, -5, 10]  # capability curve
    source["gencost"] = [[2, 10, 0, 4, 1, 1, 20, 0]] + [[2, 0, 0, 1, 0]] * 11
    source["gencost"] = [row + [0] * (8 - len(row)) for row in source["gencost"]]
    source["branch"][0, [11, 12]] = [-30, 30]
    source["branch"][1, 10] = 0
    source["branch"][2, 6] = 50
    source["dcline"] = [[1, 2, 1, 10, 10, 0, 0, 1, 1]]
    source["bus_name"] = ["a"] * 14
    source["reserves"] = {"cost": [1]}
    _, report = read_pypower(source)
    actual = {note.field: (note.status, note.count) for note in report.notes}
    assert actual["gen: dispatchable loads (Pmin < 0 = Pmax)"] == ("read", 1)
    assert actual["gen: power factor of dispatchable loads"] == ("unsupported", 1)
    assert actual["several generators on a bus"] == ("read", 1)
    assert actual["gen: Pc1 to Qc2max (capability curve)"] == ("unsupported", 1)
    assert actual["gencost: powers above 2"] == ("unsupported", 1)
    assert actual["gencost: reactive power"] == ("unsupported", 6)
    assert actual["gencost: startup, shutdown"] == ("ignored", 1)
    assert actual["branch: angmin, angmax"] == ("read", 1)
    assert actual["branch: angmin, angmax at or beyond 90 degrees"] == ("ignored", 18)
    assert actual["branch: out of service"] == ("read", 1)
    assert actual["branch: rateB, rateC"] == ("read", 1)
    assert actual["dcline"] == ("unsupported", 1)
    assert actual["bus_name"] == ("ignored", 14)
    assert actual["reserves"][0] == "unsupported"
    assert actual["reference bus"] == ("read", 1)
    with pytest.warns(GridprivWarning, match="DC lines are fixed demand at both ends"):
        report.warn()
    assert len(report.table()) == len(report.notes) == len(report.as_dict()["fields"])


def test_a_dcline_of_a_m_file_warns(tmp_path: Path) -> None:
    text = (shipped_folder("cases") / "case14.m").read_text()
    dc = "mpc.dcline = [\n 1 2 1 10 9 2 -3 1 1 0 10 0 0 0 0 0 0;\n 2 3 0 50 50 0 0 1 1;\n];\n"
    dc = dc.replace("1 1;", "1 1 0 10 0 0 0 0 0 0;")
    (tmp_path / "dc.m").write_text(text + dc)
    with pytest.warns(GridprivWarning, match="dc.m: dcline"):
        case = load_case(tmp_path / "dc.m")
    changed = np.zeros((14, 2))
    changed[0], changed[1] = (10, -2), (-9, 3)  # taken from bus 1, given to bus 2; MVAr are given
    np.testing.assert_allclose(100 * (case.pd - CASE14.pd), changed[:, 0], atol=1e-12)
    np.testing.assert_allclose(100 * (case.qd - CASE14.qd), changed[:, 1], atol=1e-12)
    assert replace(case, pd=CASE14.pd, qd=CASE14.qd).fingerprint == CASE14.fingerprint
