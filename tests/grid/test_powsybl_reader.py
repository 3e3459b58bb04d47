"""Files and networks that pypowsybl reads: compared with its own load flow."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dispatch import dispatch_of
from powsybl_files import answer_here, samples

from gridpriv.core.errors import InputError
from gridpriv.grid import powsybl
from gridpriv.grid.case import Case
from gridpriv.grid.library import load_case, read_case
from gridpriv.grid.network import bus_admittance
from gridpriv.grid.powsybl import case_from_powsybl
from gridpriv.grid.zoning import zoning_from_source
from gridpriv.power.ac.flow import ac_flow

pypowsybl = pytest.importorskip("pypowsybl")
networks = pypowsybl.network
NETWORKS: dict[str, Callable[[], Any]] = {
    **{f"ieee{n}": getattr(networks, f"create_ieee{n}") for n in (9, 14, 30, 57, 118, 300)},
    "microgrid BE": networks.create_micro_grid_be_network,
    "microgrid NL": networks.create_micro_grid_nl_network,
    "four substations": networks.create_four_substations_node_breaker_network,
    "metrix": networks.create_metrix_tutorial_six_buses_network,
    "tie lines": networks.create_eurostag_tutorial_example1_with_tie_lines_and_areas,
}
LARGEST_DIFFERENCE = 1e-6


def test_only_star_points_and_points_inside_tie_lines_can_have_no_load() -> None:
    case = case_from_powsybl(networks.create_micro_grid_be_network())
    assert case.auxiliary is not None
    named = [case.names.bus[bus] for bus in case.bus_id[case.auxiliary].tolist()]
    assert len(named) == 1 and named[0].endswith("(star)")
    boundary = [at for at, bus in enumerate(case.bus_id) if "(boundary)" in case.names.bus[bus]]
    assert boundary and case.load_buses[boundary].all()
    ties = case_from_powsybl(NETWORKS["tie lines"]())
    assert ties.auxiliary is not None
    assert all("(boundary)" in ties.names.bus[bus] for bus in ties.bus_id[ties.auxiliary].tolist())
    assert case_from_powsybl(networks.create_ieee14()).auxiliary is None


def solved(network: Any) -> tuple[Any, int]:
    """Return the buses in PowSyBl's load flow, and its slack bus."""
    gens, stated = network.get_generators(), network.get_extensions("slackTerminal")
    largest = gens[gens["voltage_regulator_on"]].sort_values("target_p")["bus_id"].iloc[-1]
    slack = stated["bus_id"].iloc[0] if len(stated) else largest
    parameters = pypowsybl.loadflow.Parameters(
        distributed_slack=False,
        use_reactive_limits=False,
        hvdc_ac_emulation=False,
        read_slack_bus=False,
        provider_parameters={
            "slackBusSelectionMode": "NAME",
            "slackBusesIds": slack,
            "newtonRaphsonConvEpsPerEq": "1e-9",
        },
    )
    result = pypowsybl.loadflow.run_ac(network, parameters)[0]
    assert result.status.name == "CONVERGED"
    network.per_unit = True
    buses = network.get_buses()
    network.per_unit = False
    return buses, list(buses.index).index(slack)


def flow(case: Case, slack: int) -> Any:
    """Return the AC state of the source's set points, balanced at one bus."""
    balancing = np.zeros(case.n_gen, dtype=bool)
    balancing[np.argmax(case.gen_bus == slack)] = True
    stored = case.qmin == case.qmax
    open_ended = replace(
        case,
        pmin=np.where(balancing, -np.inf, case.pg),
        pmax=np.where(balancing, np.inf, case.pg),
        qmin=np.where(stored, case.qmin, -np.inf),
        qmax=np.where(stored, case.qmax, np.inf),
    )
    return ac_flow(open_ended, dispatch_of(open_ended))


def assert_same_state(network: Any, case: Case, *, own_voltage: bool = False) -> None:
    """Compare the case's AC state with PowSyBl's."""
    buses, slack = solved(network)
    vm, va = buses["v_mag"].to_numpy(), buses["v_angle"].to_numpy()
    if own_voltage:
        case = replace(case, vg=vm[case.gen_bus])
    state = flow(case, slack)
    energized = np.isfinite(vm)
    difference = np.abs(state.vm[: len(vm)] - vm)[energized].max()
    turned = (state.va[: len(vm)] - state.va[slack]) - (va - va[slack])
    assert max(difference, np.abs(turned[energized]).max()) < LARGEST_DIFFERENCE


@pytest.mark.parametrize("name", NETWORKS)
def test_the_power_flow_is_that_of_powsybl(name: str) -> None:
    """Lines, transformers, phase shifters, HVDC, SVC, three windings, tie and boundary lines."""
    network = NETWORKS[name]()
    case = case_from_powsybl(network)
    # a generator of this one regulates another bus, whose voltage depends on who balances
    assert_same_state(network, case, own_voltage=name == "microgrid BE")


def test_the_state_of_default_parameters_satisfies_the_equations_of_the_case() -> None:
    """Remote voltage control included: the local set point is that of PowSyBl's load flow."""
    network = networks.create_micro_grid_be_network()
    case = case_from_powsybl(network)
    results = pypowsybl.loadflow.run_ac(network)  # kept: what follows points into it
    slack = results[0].slack_bus_results[0]
    network.per_unit = True
    buses, gens = network.get_buses(), network.get_generators()
    vm = buses["v_mag"].to_numpy()
    assert np.abs(case.vg - vm[case.gen_bus]).max() < LARGEST_DIFFERENCE
    pd = case.pd.copy()  # PowSyBl leaves up to 1 MW at the slack bus
    pd[list(buses.index).index(slack.id)] -= slack.active_power_mismatch / 100.0
    case = replace(case, pd=pd)
    state = ac_flow(case, replace(dispatch_of(case), pg=-gens["p"].to_numpy()))
    assert np.abs(state.regulation).max() < 1e-4
    assert np.abs(state.vm[: len(vm)] - vm).max() < LARGEST_DIFFERENCE


def changed(change: Callable[[Any], object]) -> Any:
    network = networks.create_ieee14()
    change(network)
    return network


CHANGES: dict[str, Callable[[Any], object]] = {
    "one end open": lambda n: n.update_lines(id="L1-2-1", connected2=False),
    "the other end open": lambda n: n.update_lines(id="L1-5-1", connected1=False),
    "both ends open": lambda n: n.update_lines(id="L2-3-1", connected1=False, connected2=False),
    "unequal charging": lambda n: n.update_lines(id="L1-2-1", b1=2e-4, b2=1e-5, g1=1e-5, g2=3e-5),
    "negative reactance": lambda n: n.update_lines(id="L6-12-1", x=-0.4, r=-0.01),
    "magnetizing current": lambda n: n.update_2_windings_transformers(id="T4-7-1", g=1e-4, b=-9e-4),
    "regulator off": lambda n: n.update_generators(
        id="B3-G", voltage_regulator_on=False, target_q=11.0
    ),
    "generator off": lambda n: n.update_generators(id="B8-G", connected=False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_elements_out_of_the_ordinary(name: str) -> None:
    network = changed(CHANGES[name])
    assert_same_state(network, case_from_powsybl(network))


def test_a_branch_without_impedance_joins_its_buses() -> None:
    network = changed(lambda n: n.update_lines(id="L12-13-1", r=0.0, x=0.0))
    case = case_from_powsybl(network)
    assert case.n_bus == 13
    assert 13 not in case.bus_id.tolist(), "the smaller number stays"
    buses, slack = solved(network)
    remaining = [i for i, name in enumerate(buses.index) if name != "VL13_0"]
    assert (
        np.abs(flow(case, slack).vm - buses["v_mag"].to_numpy()[remaining]).max()
        < LARGEST_DIFFERENCE
    )


def test_names_numbers_and_ratings_are_kept() -> None:
    case = case_from_powsybl(networks.create_ieee14())
    assert case.bus_id.tolist() == list(range(1, 15)), "the numbers of the IEEE file"
    assert case.names.bus[4] == "Bus 4 HV"
    assert case.names.gen[0] == "B1-G"
    assert not case.rate.any(), "no rating is no limit"
    network = networks.create_micro_grid_be_network()
    case, raw = case_from_powsybl(network), network.get_loading_limits().reset_index()
    ends = network.get_lines(all_attributes=True)
    for row, name in zip(case.branch_row.tolist()[:2], ends.index[:2], strict=True):
        level = network.get_voltage_levels().loc[ends.loc[name, "voltage_level1_id"], "nominal_v"]
        members = raw[raw["element_id"] == name]
        for rate, some in (
            (case.rate, members[members["acceptable_duration"] == -1]["value"]),
            (
                case.rate_c,
                members[members["acceptable_duration"] > -1].groupby("side")["value"].max(),
            ),
        ):
            assert rate is not None
            expected = np.sqrt(3.0) * level * some.min() / 1000.0
            assert case.base_mva * rate[row - 1] == pytest.approx(expected)
    assert case.rate_b is not None and case.rate_c is not None
    assert (case.rate_b >= case.rate).all() and (case.rate_c >= case.rate_b).all()


def test_zones_from_countries_areas_and_substations() -> None:
    case = case_from_powsybl(NETWORKS["tie lines"]())
    areas = zoning_from_source(case, "area")
    assert areas.names == ("ControlArea_A", "ControlArea_B"), "control areas, not regions"
    assert sum(len(buses) for buses in areas.members) == 4 + 2, "and two boundary points"
    assert zoning_from_source(case_from_powsybl(NETWORKS["metrix"]()), "substation").n_zone == 5
    with pytest.raises(InputError, match="has one country at most"):
        zoning_from_source(case_from_powsybl(NETWORKS["microgrid BE"]()), "country")


def test_files_of_every_format_are_read_as_their_networks(tmp_path: Path) -> None:
    for suffix, content in samples().items():
        path = tmp_path / f"case{suffix}"
        path.write_bytes(content)
        answer = powsybl.answer(tmp_path, {"source": path.name})
        case, notes = powsybl._case(answer, "case")
        network = networks.load(path)
        assert case.fingerprint == case_from_powsybl(network).fingerprint
        assert_same_state(network, case)
        assert {note.status for note in notes} >= {"read", "unsupported"}


@pytest.mark.parametrize(("number", "share"), [(30, 1.0), (118, 1.0), (300, 0.5)])
def test_cgmes_of_grids_whose_export_has_no_power_flow(
    number: int, share: float, tmp_path: Path
) -> None:
    """PowSyBl's export averages the charging of a line between two nominal voltages.

    The rest of such a grid (of 300 buses: at half its load) has a power flow, which is the judge.
    """
    network = getattr(networks, f"create_ieee{number}")()
    lines = network.get_lines(all_attributes=True)
    network.remove_elements(list(lines.index[(lines["b1"] - lines["b2"]).abs() > 1e-6]))
    loads, gens = network.get_loads(), network.get_generators()
    network.update_loads(id=list(loads.index), p0=share * loads["p0"], q0=share * loads["q0"])
    network.update_generators(id=list(gens.index), target_p=share * gens["target_p"])
    path = tmp_path / "case.zip"
    network.save(path, format="CGMES")
    case, _ = powsybl._case(powsybl.answer(tmp_path, {"source": path.name}), "case")
    assert_same_state(networks.load(path), case)


def test_a_file_is_read_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "ucte.uct"
    path.write_bytes(samples()[".uct"])
    case, report = read_case(path)
    assert report.format == "UCTE by pypowsybl"
    assert case.names.bus[1] == "FAAAAA1"
    assert "generator costs" in {note.field for note in report.unsupported}
    zones = zoning_from_source(case, "country")
    assert zones.names == ("BE", "FR")
    network = networks.load(path)
    assert np.abs(bus_admittance(case) - bus_admittance(case_from_powsybl(network))).max() == 0.0


def test_a_network_in_memory_is_not_changed() -> None:
    network = networks.create_micro_grid_be_network()
    before = network.save_to_string()
    case_from_powsybl(network)
    assert network.save_to_string() == before
    assert not network.per_unit


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xiidm", b'<!DOCTYPE n [<!ENTITY e SYSTEM "file:///etc/passwd">]><n>&e;</n>', "DOCTYPE"),
        (
            "a.xiidm",
            '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE n><n/>'.encode("utf-16"),
            "DOCTYPE",
        ),
        ("a.xiidm", b"", "is no XML"),
        ("a.xiidm", b"<network>", "not readable"),
        ("a.zip", b"PK", "no readable zip archive"),
        ("a.uct", b"##N\n", "not readable"),
        ("a.raw", b"0, 100.0, 35 / x\n", "no bus in service"),
        ("a.txt", b"a text\n", "not readable"),
    ],
)
def test_files_that_are_refused(
    tmp_path: Path, name: str, content: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_here(monkeypatch)
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_case(path)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"a.py": b"x"}, "a CGMES archive holds .xml files"),
        ({"a.xml": b"<!DOCTYPE a><a/>"}, "DOCTYPE"),
        ({"a.xml": b"<a>" + b" " * (60 * 2**20)}, "unpacks to more than"),
        ({f"{i}.xml": b"<a/>" for i in range(201)}, "201 files"),
    ],
)
def test_archives_that_are_refused(tmp_path: Path, entries: dict[str, bytes], message: str) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    with pytest.raises(InputError, match=message):
        powsybl.checked_content(path)


def test_a_process_that_takes_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.uct"
    path.write_bytes(samples()[".uct"])
    monkeypatch.setattr(powsybl, "LONGEST_WAIT", 0.01)
    with pytest.raises(InputError, match="ended without an answer"):
        load_case(path)


def test_without_pypowsybl_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(powsybl, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"pip install 'gridpriv\[powsybl\]'"):
        load_case(tmp_path / "a.raw")
