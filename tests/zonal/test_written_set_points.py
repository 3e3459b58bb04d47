"""``run --write``: the set points of a run in the source's format, checked by other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dispatch import dispatch_of

import gridpriv
from gridpriv.cli.main import main
from gridpriv.grid.case import Case
from gridpriv.grid.convert import write_case
from gridpriv.power.ac.flow import ac_flow
from gridpriv.zonal.tables import settled_case, write_set_points

RUN = {"rounds": 15, "mechanism": "none", "solver": "clarabel", "seed": 1}


def redispatched(case: Case, **settings: Any) -> Any:
    zones = gridpriv.partition(case, 2, "louvain")
    return gridpriv.run(case, zones, gridpriv.make_settings(**RUN | settings)).solution


def test_matpower_file_holds_the_state(tmp_path: Path, case14: Case) -> None:
    solution = redispatched(case14, load_scale=1.1)
    path = tmp_path / "out.m"
    write_set_points(solution, "case14", path)
    again = gridpriv.load_case(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert again.pd.sum() == pytest.approx(1.1 * case14.pd.sum() - solution.p_shed.sum())
    state = ac_flow(again, dispatch_of(again))
    assert np.abs(state.vm - solution.vm).max() < 1e-6
    assert np.abs(state.regulation).max() < 1e-6


def test_a_net_holds_the_state(tmp_path: Path, case14: Case) -> None:
    pandapower = pytest.importorskip("pandapower")
    write_case(case14, tmp_path / "own.json")
    case = gridpriv.load_case(tmp_path / "own.json")
    solution = redispatched(case)
    path = tmp_path / "out.json"
    write_set_points(solution, tmp_path / "own.json", path)
    net = pandapower.from_json(path)
    pandapower.runpp(net, tolerance_mva=1e-9, numba=False)
    assert np.abs(net.res_bus.vm_pu.to_numpy() - solution.vm).max() < 1e-6


@pytest.mark.parametrize("outage", [(), ("branch:5", "gen:2")])
def test_powsybl_reproduces_the_state(
    tmp_path: Path, outage: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pypowsybl = pytest.importorskip("pypowsybl")
    from gridpriv.grid import powsybl

    def here(place: Path, _: str) -> dict[str, Any]:
        return powsybl.answer(place, json.loads((place / "request.json").read_text()))

    monkeypatch.setattr(powsybl, "_answer", here)  # starting another process takes two seconds
    source, path = tmp_path / "own.xiidm", tmp_path / "out.xiidm"
    pypowsybl.network.create_ieee14().save(source, format="XIIDM")
    solution = redispatched(gridpriv.load_case(source), load_scale=1.2, outage=outage)
    write_set_points(solution, source, path)
    network = pypowsybl.network.load(path)
    parameters = pypowsybl.loadflow.Parameters(
        distributed_slack=False, provider_parameters={"newtonRaphsonConvEpsPerEq": "1e-9"}
    )
    results = pypowsybl.loadflow.run_ac(network, parameters)
    assert results[0].status.name == "CONVERGED"
    assert abs(results[0].slack_bus_results[0].active_power_mismatch) < 1e-3
    network.per_unit = True
    buses = network.get_buses()
    assert np.abs(buses["v_mag"].to_numpy() - solution.vm).max() < 1e-6
    turned = (buses["v_angle"] - buses["v_angle"].iloc[0]).to_numpy()
    assert np.abs(turned - (solution.va - solution.va[0])).max() < 1e-6


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["--write", str(tmp_path / "a.csv")], "ending of the file to write"),
        (["--write", str(tmp_path / "a.m"), "--public"], "Drop --public or --write"),
        (["--write", str(tmp_path / "none" / "a.m")], "its folder does not exist"),
    ):
        assert main(["run", "case14", *words]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_served_demand_is_what_was_asked_for_less_what_was_shed(case14: Case) -> None:
    solution = redispatched(case14)
    case = settled_case(solution)
    assert np.array_equal(case.pd, case14.pd - solution.p_shed)
    assert np.array_equal(case.vg, solution.vm[case.gen_bus])
