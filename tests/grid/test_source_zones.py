"""Zones of the source: MATPOWER's areas, pandapower's bus.zone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.grid.case import Case
from gridpriv.grid.library import shipped_folder
from gridpriv.grid.matpower import parse_matpower
from gridpriv.grid.pandapower import case_from_pandapower
from gridpriv.grid.tables import case_from_tables
from gridpriv.grid.zoning import zoning_from_source

networks = pytest.importorskip("pandapower.networks")


def test_areas_and_zones_of_matpower(case14: Case) -> None:
    text = (shipped_folder("cases") / "case14.m").read_text(encoding="utf-8")
    tables = parse_matpower(text, "case14")
    bus = tables.bus.copy()
    south = [6, 11, 12, 13]
    bus[:, 6] = [1 + (number in south) for number in bus[:, 0]]
    bus[:, 10] = [10 if number < 6 else 7 for number in bus[:, 0]]
    case = case_from_tables(replace(tables, bus=bus))
    areas = zoning_from_source(case, "area")
    assert areas.names == ("1", "2")
    assert [int(b) for b in case.bus_id[areas.members[1]]] == south
    zones = zoning_from_source(case, "zone")
    assert zones.names == ("7", "10")
    assert case.bus_id[zones.members[1]].tolist() == [1, 2, 3, 4, 5]
    assert case.fingerprint == case14.fingerprint, "groups are no part of the model"


def test_the_flag_takes_the_sources_groups(tmp_path: Path, capsys: Any) -> None:
    text = (shipped_folder("cases") / "case14.m").read_text(encoding="utf-8")
    for bus in (6, 11, 12, 13):  # area is the seventh column
        text = re.sub(rf"(?m)^(\t{bus}(\t[^\t]+){{5}}\t)1\t", r"\g<1>2\t", text)
    (tmp_path / "areas.m").write_text(text)
    case = str(tmp_path / "areas.m")
    assert main(["zones", case, "--zones-from", "area", "--json"]) == 0
    zones = json.loads(capsys.readouterr().out)
    assert [row["buses"] for row in zones["zones"]] == [10, 4]
    run = ["run", case, "--mechanism", "none", "--rounds", "1", "--quiet"]
    assert main([*run, "--zones-from", "area"]) == 0
    for wrong, message in (
        (["--zones-from", "zone"], "--zones-from zone: must be area"),
        (["--zones-from", "areas"], "--zones-from areas: must be"),
        (["--zones-from", "area", "--zones", "2"], "--zones-from names a map; leave out"),
        (["--zones-from", "area", "--zoning", "x.csv"], "leave out"),
        ([], "give --zones K, --zones-from area or --zoning"),
    ):
        assert main([*run, *wrong]) == 2
        assert message in capsys.readouterr().err


def test_a_source_without_groups_says_so(case14: Case) -> None:
    with pytest.raises(
        InputError, match="zones_from = 'area': must be left out: case14 has one area"
    ):
        zoning_from_source(case14, "area")
    with pytest.raises(InputError, match="zones_from = 'areas'"):
        zoning_from_source(case14, "areas")
    with pytest.raises(InputError, match=r"zone = 'a\\x1b'"):
        zoning_from_source(replace(case14, groups={"zone": ("a\x1b", *"b" * 13)}), "zone")
    with pytest.raises(InputError, match="3 zone names for 14 buses"):
        replace(case14, groups={"zone": ("a", "b", "c")})


def test_zones_of_a_pandapower_net() -> None:
    net = networks.case14()
    net.bus["zone"] = ["west" if bus < 5 else "east" for bus in net.bus.index]
    zoning = zoning_from_source(case_from_pandapower(net), "zone")
    assert zoning.names == ("east", "west")
    assert zoning.members[1].tolist() == [0, 1, 2, 3, 4]
    net.bus.loc[3, "zone"] = None
    assert case_from_pandapower(net).groups == {}, "one bus without a zone: no map"


def test_star_points_belong_to_a_neighbour() -> None:
    net = networks.example_multivoltage()
    net.xward.in_service = False
    net.bus["zone"] = ["high" if kv > 50 else "low" for kv in net.bus.vn_kv]
    case = case_from_pandapower(net)
    assert len(case.groups["zone"]) == case.n_bus
    assert set(case.groups["zone"]) == {"high", "low"}
