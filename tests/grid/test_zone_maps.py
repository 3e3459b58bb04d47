"""Zone maps: shipped maps, refused input, and warnings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpriv.core.errors import GridprivWarning, InputError
from gridpriv.core.files import StorageError
from gridpriv.grid.case import Case
from gridpriv.grid.library import (
    case_files,
    load_case,
    shipped_folder,
    shipped_zoning,
    zoning_of,
)
from gridpriv.grid.zoning import (
    read_zoning,
    tie_lines,
    write_zoning,
    zone_report,
    zoning_from_groups,
)

CASE14 = load_case("case14")
SHIPPED = (shipped_folder("zoning") / "case14_3.csv").read_text()


def write(folder: Path, text: str) -> Path:
    path = folder / "map.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "zones", "ties", "sizes"),
    [
        ("case14", 3, 5, [5, 4, 5]),
        ("case14", 2, 3, [5, 9]),  # the usual split cuts the three transformers
        ("case118", 3, 8, [35, 38, 45]),  # 1-23,25-32,113-115,117 | 33-69,116 | 24,70-112,118
        ("case30", 3, 7, [11, 10, 9]),
        ("case39", 3, 4, [13, 14, 12]),
        ("case57", 4, 12, [17, 12, 14, 14]),
        ("case300", 4, 11, [122, 80, 63, 35]),
    ],
)
def test_shipped_maps(name: str, zones: int, ties: int, sizes: list[int]) -> None:
    if name not in case_files():
        pytest.skip(f"{name} comes with the extra cases")
    case = load_case(name)
    zoning = shipped_zoning(case, zones)
    assert zoning is not None
    report = zone_report(case, zoning)
    assert int(tie_lines(case, zoning).sum()) == ties
    assert report.buses.tolist() == sizes
    assert report.connected.all()
    assert report.tie_lines.sum() == 2 * ties
    assert report.load_mw.sum() == pytest.approx(100 * case.pd.sum())
    assert report.generators.sum() == case.n_gen
    for z, row in enumerate(report.itertuples()):
        members = zoning.zone_of == z
        assert row.tie_lines == (members[case.f_bus] != members[case.t_bus]).sum()
        assert row.generators == members[case.gen_bus].sum()
        assert row.capacity_mw == pytest.approx(100 * case.pmax[members[case.gen_bus]].sum())


@pytest.mark.skipif("case39" not in case_files(), reason="case39 comes with the extra cases")
def test_maps_of_the_libraries_follow_the_areas_of_their_sources() -> None:
    """case30's areas and case300's loss zones as they are; case39's area 3 falls into two parts."""
    for name, groups in (("case30", "area"), ("case300", "zone")):
        case = load_case(name)
        zoning = shipped_zoning(case)
        assert zoning is not None
        assert [zoning.names[z] for z in zoning.zone_of] == list(case.groups[groups])
    case = load_case("case39")
    zoning = shipped_zoning(case)
    assert zoning is not None
    difference = np.isin(case.bus_id, (28, 29, 38))
    pairs = {
        (area, zoning.names[z]) for area, z in zip(case.groups["area"], zoning.zone_of, strict=True)
    }
    assert pairs == {("1", "2"), ("2", "1"), ("3", "3"), ("3", "1")}
    assert (np.array(case.groups["area"])[difference] == "3").all()
    assert set(zoning.zone_of[difference]) == set(
        zoning.zone_of[~difference & (np.array(case.groups["area"]) == "2")]
    )


def test_a_map_of_other_bus_numbers_is_none_of_the_case() -> None:
    other = replace(CASE14, bus_id=CASE14.bus_id - 1)
    assert shipped_zoning(other) is None
    assert shipped_zoning(CASE14) is not None


def test_the_two_zone_ties_of_case14_are_its_transformers(case14: Case) -> None:
    zoning = shipped_zoning(case14, 2)
    assert zoning is not None
    cut = tie_lines(case14, zoning)
    ends = {
        (int(case14.bus_id[f]), int(case14.bus_id[t]))
        for f, t in zip(case14.f_bus[cut], case14.t_bus[cut], strict=True)
    }
    assert ends == {(4, 7), (4, 9), (5, 6)}


@pytest.mark.parametrize(
    ("rewrite", "message"),
    [
        (lambda t: t.replace("bus,zone", "Bus;Zone"), r"line 1 is .*it must be bus,zone"),
        (lambda _: "", r"line 1 is ''"),
        (lambda t: t.replace("\n9,3\n", "\n"), r"misses 1 of the 14 buses: 9"),
        (lambda _: "bus,zone\n1,1\n", r"misses 13 of the 14 buses: 2, 3, 4, 5, 6, \.\.\."),
        (lambda t: t.replace("\n9,3\n", "\n8,3\n"), r"line 10: bus 8 is repeated .*line 9"),
        (lambda t: t.replace("\n9,3\n", "\n90,3\n"), r"bus = '90': must be a bus in serv"),
        (lambda t: t.replace("\n9,3\n", "\n-9,3\n"), r"line 10: bus = '-9': must be"),
        (lambda t: t.replace("\n9,3\n", "\n9.0,3\n"), r"line 10: bus = '9.0': must be"),
        (lambda t: t.replace("\n9,3\n", "\nnine,3\n"), r"line 10: bus = 'nine': must be"),
        (lambda t: t.replace("\n9,3\n", "\n9,\n"), r"line 10: zone = '': must be"),
        (lambda t: t.replace("\n9,3\n", "\n9\n"), r"line 10: '9'; it must be bus,zone"),
        (lambda t: t.replace("\n9,3\n", "\n9,3,1\n"), r"line 10: '9,3,1'"),
    ],
)
def test_a_wrong_map_is_refused_with_its_line(  # type: ignore[no-untyped-def]
    tmp_path: Path, rewrite, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_zoning(write(tmp_path, rewrite(SHIPPED)), CASE14)


def test_unreadable_maps_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.csv"):
        read_zoning(tmp_path / "nothing.csv", CASE14)
    (tmp_path / "map.csv").write_bytes(b"bus,zone\n\xff\xfe,1\n")
    with pytest.raises(InputError, match=r"map\.csv"):
        read_zoning(tmp_path / "map.csv", CASE14)


def test_a_disconnected_zone_warns_and_is_read(tmp_path: Path) -> None:
    text = "bus,zone\n" + "".join(f"{b},{'a' if b in (1, 14) else 'b'}\n" for b in range(1, 15))
    with pytest.warns(GridprivWarning, match="zone a is not connected: its 2 buses .* 2 parts"):
        zoning = read_zoning(write(tmp_path, text), CASE14)
    assert [len(m) for m in zoning.members] == [2, 12]
    assert zone_report(CASE14, zoning).connected.tolist() == [False, True]


def test_groups_that_are_no_partition_are_refused() -> None:
    whole = set(range(14))
    with pytest.raises(InputError, match="bus 14 is in no zone"):
        zoning_from_groups(CASE14, [whole - {13}], "test")
    with pytest.raises(InputError, match="bus 14 is in more than one zone"):
        zoning_from_groups(CASE14, [whole, {13}], "test")
    with pytest.raises(InputError, match="zone 2 of 2 has no buses"):
        zoning_from_groups(CASE14, [whole, set()], "test")


@given(st.permutations(range(14)), st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\ufeff"]))
def test_the_order_of_lines_does_not_matter(
    tmp_path: Path, order: list[int], end: str, mark: str
) -> None:
    lines = SHIPPED.split()[1:]
    text = mark + end.join(["bus,zone", *(lines[i] for i in order)]) + end
    path = tmp_path / "map.csv"
    path.write_bytes(text.encode())
    shipped = shipped_zoning(CASE14, 3)
    assert shipped is not None
    zoning = read_zoning(path, CASE14)
    assert zoning.names == shipped.names
    np.testing.assert_array_equal(zoning.zone_of, shipped.zone_of)


@given(st.lists(st.sampled_from(["north", "7", "70", "zone, 1", "é"]), min_size=14, max_size=14))
@pytest.mark.filterwarnings("ignore::gridpriv.core.errors.GridprivWarning")
def test_a_written_map_is_read_back(tmp_path: Path, names: list[str]) -> None:
    groups: dict[str, list[int]] = {}
    for bus, name in enumerate(names):
        groups.setdefault(name, []).append(bus)
    zoning = zoning_from_groups(CASE14, groups.values(), "test", groups.keys())
    write_zoning(zoning, CASE14, tmp_path / "out.csv")
    again = read_zoning(tmp_path / "out.csv", CASE14)
    assert [again.names[z] for z in again.zone_of] == names


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    zoning = shipped_zoning(CASE14, 3)
    assert zoning is not None
    with pytest.raises(StorageError, match="cannot write"):
        write_zoning(zoning, CASE14, tmp_path / "missing" / "out.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_shipped_map_needs_the_branches_of_its_case() -> None:
    """A converted file has the same numbers 1 to 14, but of other buses."""
    mixed = replace(CASE14, bus_id=np.roll(CASE14.bus_id, 1))
    assert shipped_zoning(mixed) is None
    with pytest.warns(GridprivWarning, match=r"case14_3.csv not used: buses or branches"):
        zoning = zoning_of(mixed, None, None)
    assert zoning is not None and zone_report(mixed, zoning).connected.all()
    assert shipped_zoning(CASE14.without(("branch:1",))) is not None
    joined = replace(CASE14, t_bus=np.where(np.arange(CASE14.n_branch) == 0, 13, CASE14.t_bus))
    with pytest.warns(GridprivWarning, match="not used: buses or branches"):  # the buses are equal
        zoning_of(joined, None, None)
