"""Files that name a bus which a closed switch joins to another bus of a pandapower net."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gridpriv.core.errors import GridprivWarning, InputError
from gridpriv.grid.case import Case
from gridpriv.grid.chronology import with_storage
from gridpriv.grid.pandapower import case_from_pandapower
from gridpriv.grid.scenarios import override_demand, read_demand_series, read_forecast

pandapower = pytest.importorskip("pandapower")


def joined_net() -> Any:
    """Return a net of buses 0, 1, 2 and 7; a closed switch joins 7 to 1."""
    net = pandapower.create_empty_network(sn_mva=10.0)
    for number in (0, 1, 2, 7):
        pandapower.create_bus(net, 20.0, index=number)
    pandapower.create_ext_grid(net, 0)
    for far in (1, 2):
        pandapower.create_line(net, 0, far, 1.0, "NA2XS2Y 1x240 RM/25 12/20 kV")
    pandapower.create_switch(net, 7, 1, "b", closed=True)
    for bus, p in ((1, 2.0), (2, 1.0), (7, 3.0)):
        pandapower.create_load(net, bus, p, 0.1 * p)
    return net


@pytest.fixture
def case() -> Case:
    return case_from_pandapower(joined_net(), "joined")


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_demand_of_joined_buses_is_the_sum_of_their_rows(case: Case, tmp_path: Path) -> None:
    """The same loads in the net give the same demand."""
    net = joined_net()
    net.load.loc[[0, 2], "p_mw"] = [4.0, 1.5]
    rows = "bus,pd_mw,qd_mvar\n1,4,\n7,1.5,\n2,,0.1\n"
    changed = override_demand(case, write(tmp_path / "demand.csv", rows))
    np.testing.assert_allclose(changed.pd, case_from_pandapower(net, "joined").pd)
    rows = "step,bus,pd_mw\na,7,1.5\na,1,4\nb,2,9\n"
    series = read_demand_series(write(tmp_path / "day.csv", rows), case)
    np.testing.assert_allclose(series.pd * case.base_mva, [[0.0, 5.5, 1.0], [0.0, 5.0, 9.0]])


def test_a_row_of_a_bus_is_still_the_only_one(case: Case, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 4: bus 7 is repeated \(first on line 2\)"):
        override_demand(case, write(tmp_path / "d.csv", "bus,pd_mw\n7,1\n1,4\n7,2\n"))
    with pytest.raises(InputError, match=r"line 2: bus = '3': must be a bus in service of joined"):
        override_demand(case, write(tmp_path / "d.csv", "bus,pd_mw\n3,1\n"))


def test_a_storage_at_a_joined_bus_is_at_the_bus_of_the_case(case: Case, tmp_path: Path) -> None:
    path = write(tmp_path / "storage.csv", "name,bus,p_mw,energy_mwh\nbattery,7,2,4\n")
    grown, (storage,) = with_storage(case, path)
    assert grown.bus_id[grown.gen_bus[storage.gen]] == 1


def test_a_forecast_of_joined_buses_is_the_sum_of_their_rows(case: Case, tmp_path: Path) -> None:
    head = "step,bus,pd_mw,qd_mvar,pd_std_mw,qd_std_mvar,zone_spread\n"
    rows = "1,1,2,0.5,0.1,0.1,0.1\n1,7,3,0.5,0.1,0.1,0.1\n"
    mean, _ = read_forecast(write(tmp_path / "ahead.csv", head + rows), case, "1")
    assert mean[:, case.index_of[1]] * case.base_mva == pytest.approx([5.0, 1.0])
    with pytest.raises(InputError, match="bus"):
        read_forecast(write(tmp_path / "twice.csv", head + rows + rows), case, "1")


def test_a_bus_without_rows_leaves_the_spread_of_a_forecast_finite(
    case: Case, tmp_path: Path
) -> None:
    """A star point has none; 2 and 4 MW are 3 MW with a standard deviation of a third."""
    text = "step,bus,pd_mw,qd_mvar,pd_std_mw,qd_std_mvar,zone_spread\n"
    text += "1,1,2,0,0.1,0.1,0.001\n2,1,4,0,0.1,0.1,0.001\n"
    with pytest.warns(GridprivWarning, match="2 steps"):
        _, spread = read_forecast(write(tmp_path / "ahead.csv", text), case, "")
    assert spread == pytest.approx(1.0 / 3.0, rel=1e-4)
