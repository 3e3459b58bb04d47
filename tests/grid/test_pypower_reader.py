"""PYPOWER dicts and .mat files: the same case as the .m file, or a clear refusal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from gridpriv.core.errors import GridprivWarning, InputError
from gridpriv.grid.library import load_case, read_report, shipped_folder
from gridpriv.grid.matpower import parse_matpower
from gridpriv.grid.pypower import case_from_pypower, read_pypower

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
    found = {note.field: (note.status, note.count) for note in report.notes}
    assert found["gen: dispatchable loads (Pmin < 0 = Pmax)"] == ("read", 1)
    assert found["gen: power factor of dispatchable loads"] == ("unsupported", 1)
    assert found["several generators on a bus"] == ("read", 1)
    assert found["gen: Pc1 to Qc2max (capability curve)"] == ("unsupported", 1)
    assert found["gencost: powers above 2"] == ("unsupported", 1)
    assert found["gencost: reactive power"] == ("unsupported", 6)
    assert found["gencost: startup, shutdown"] == ("ignored", 1)
    assert found["branch: angmin, angmax"] == ("read", 1)
    assert found["branch: angmin, angmax at or beyond 90 degrees"] == ("ignored", 18)
    assert found["branch: out of service"] == ("read", 1)
    assert found["branch: rateB, rateC"] == ("read", 1)
    assert found["dcline"] == ("unsupported", 1)
    assert found["bus_name"] == ("ignored", 14)
    assert found["reserves"][0] == "unsupported"
    assert found["reference bus"] == ("read", 1)
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
    moved = np.zeros((14, 2))
    moved[0], moved[1] = (10, -2), (-9, 3)  # taken from bus 1, given to bus 2; MVAr are given
    np.testing.assert_allclose(100 * (case.pd - CASE14.pd), moved[:, 0], atol=1e-12)
    np.testing.assert_allclose(100 * (case.qd - CASE14.qd), moved[:, 1], atol=1e-12)
    assert replace(case, pd=CASE14.pd, qd=CASE14.qd).fingerprint == CASE14.fingerprint
