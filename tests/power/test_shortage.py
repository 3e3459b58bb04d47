from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from polar_optimum import polar_optimum

from gridpriv import SolverError, load_case, make_settings, partition, prepare, run
from gridpriv.cli.main import main
from gridpriv.power.ac.optimum import acopf, overloaded
from gridpriv.power.ac.state import Limit
from gridpriv.power.centralized import least_shed_mw, relax, shortage, without_limits
from gridpriv.power.prior import bus_ranges
from gridpriv.power.schedule import central_schedule, estimated_optimum

TIGHT = (
    ("case14", 3.0),
    ("tests/data/pglib/pglib_opf_case30_ieee.m", 1.3),
    ("tests/data/pglib/pglib_opf_case118_ieee__api.m", 1.05),
)


@pytest.mark.parametrize(
    ("name", "scale"), [*TIGHT[:2], pytest.param(*TIGHT[2], marks=pytest.mark.slow)]
)
def test_the_least_shed_lies_between_the_bound_and_the_plan(name, scale):
    case = load_case(name).scale_load(scale)
    value, shed = polar_optimum(case)
    least, enough = least_shed_mw(case), shortage(case).shed_mw
    assert least <= case.base_mva * value + 1e-3
    assert enough == pytest.approx(case.base_mva * value, abs=0.1)
    assert (shed <= np.maximum(case.pd, 0) + 1e-6).all()


@pytest.mark.parametrize(("name", "scale"), TIGHT[:2])
def test_every_limit_that_is_named_lowers_the_shed_once_it_is_gone(name, scale):
    case = load_case(name).scale_load(scale)
    result = shortage(case)
    assert result.causes
    for cause in result.causes:
        at = set(cause.places)
        free = without(case, cause.kind, at)
        value, _ = polar_optimum(free)
        assert case.base_mva * value < 0.99 * result.shed_mw
        # both sides of the elements are freed here, only the ones that bind there
        assert case.base_mva * value <= cause.without_mw + 0.1
        assert f"it would shed {cause.without_mw:.4g} MW" in result.sentence()


def without(case, kind, at):
    """The case without any limit of a kind at some places."""
    gens = np.isin(case.bus_id[case.gen_bus].astype(str), list(at))
    ends = zip(case.bus_id[case.f_bus], case.bus_id[case.t_bus], strict=True)
    lines = np.isin([f"{f}-{t}" for f, t in ends], list(at))
    buses = np.isin(case.bus_id.astype(str), list(at))
    if kind == "generator P":
        return replace(case, pmax=np.where(gens, 1e3, case.pmax))
    if kind == "generator Q":
        return replace(
            case, qmin=np.where(gens, -1e3, case.qmin), qmax=np.where(gens, 1e3, case.qmax)
        )
    if kind == "line":
        return replace(case, rate=np.where(lines, 0.0, case.rate))
    if kind == "angle":
        return replace(
            case,
            angmin=np.where(lines, -np.inf, case.angmin),
            angmax=np.where(lines, np.inf, case.angmax),
        )
    return replace(case, vmin=np.where(buses, 0.5, case.vmin), vmax=np.where(buses, 1.5, case.vmax))


def test_exactly_the_limits_that_are_named_go():
    case = load_case("case14")
    first = Limit("generator P", 2, "upper", "2", 0.0, 0.0, 0.0, "MW")
    other = Limit("voltage", 8, "lower", "8", 0.0, 0.0, 0.0, "p.u.")
    free = without_limits(case, [first, other])
    assert (free.pmax != case.pmax).nonzero()[0].tolist() == [1]
    assert (free.vmin != case.vmin).nonzero()[0].tolist() == [case.index_of[8]]
    assert free.vmax.tolist() == case.vmax.tolist()


def test_what_lies_on_a_dead_island_is_said_apart(case14):
    case = case14.without(("branch:17", "branch:20"))
    result = shortage(case)
    assert result.shed_mw == result.deenergized_mw == pytest.approx(14.9)
    assert result.causes == ()
    assert "14.9 MW of the shed load is on de-energized islands" in result.sentence()


def test_a_bus_without_demand_sheds_nothing_and_no_bus_more_than_it_has(case14):
    case = case14.scale_load(4.0)
    state = pytest.importorskip("gridpriv").acopf(case, "shed").state
    assert (state.p_shed[case.pd <= 0] == 0).all()
    assert (state.p_shed <= case.pd + 1e-9).all()
    ratio = state.q_shed * case.pd - state.p_shed * case.qd
    assert np.abs(ratio).max() < 1e-9


def test_generation_that_cannot_go_low_enough_is_no_shortage_of_demand(case14):
    case = replace(case14.scale_load(0.2), pmin=np.minimum(case14.pmax, 1.0))
    relaxation = relax(case, "cost")
    assert relaxation.least_shed_mw in {0.0, None}
    assert "It curtails" in relaxation.explanation()
    assert "would shed" not in relaxation.explanation()


def test_a_grid_that_can_serve_all_load_has_no_shortage(case14):
    assert relax(case14).explanation().startswith("the relaxation serves all demand")
    assert shortage(case14).sentence() == "An AC schedule serves all demand"


CONTRADICTION = """function mpc = bad
mpc.baseMVA = 100;
mpc.bus = [1 3 20 5 0 0 1 1 0 230 1 1.1 1.09; 2 1 40 5 0 0 1 1 0 230 1 0.91 0.9];
mpc.gen = [1 60 0 50 -50 1 100 1 120 0];
mpc.branch = [1 2 0.01 0.1 0 20 0 0 0 0 1 -360 360];
mpc.gencost = [2 0 0 3 0.01 20 0];
"""


def test_acopf_names_violated_limits_and_a_remedy(tmp_path, capsys):
    """1.09 and 0.91 p.u. over a line of 0.1 p.u. drives 180 MVAr through a rating of 20 MVA."""
    grid = tmp_path / "bad.m"
    grid.write_text(CONTRADICTION)
    assert main(["acopf", str(grid)]) == 3
    text = capsys.readouterr().err
    assert re.search(r"(voltage at [12]|line at 1-2) is [\d.]+ (p\.u\.|MVA) outside", text)
    assert "gridpriv relax" in text
    assert main(["acopf", "case14", "--load-scale", "2.5"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Binding limits where load is shed: active output at its upper limit" in text
    assert main(["acopf", "case14"]) == 0
    assert "Binding limits" not in capsys.readouterr().out


def test_an_estimate_above_the_ratings_at_a_bus_is_scheduled_though_nothing_serves_it():
    case = load_case("tests/data/pglib/pglib_opf_case30_ieee.m")
    bus = case.index_of[26]  # at the end of one line, without a generator
    (rating,) = case.rate[(case.f_bus == bus) | (case.t_bus == bus)]
    assert not overloaded(case).any()
    for p, q in ((rating + 0.01, 0.0), (-0.001, rating + 0.01)):
        pd, qd = case.pd.copy(), case.qd.copy()
        pd[bus], qd[bus] = p, q
        estimate = replace(case, pd=pd, qd=qd)
        assert overloaded(estimate).tolist() == (np.arange(case.n_bus) == bus).tolist()
        with pytest.raises(SolverError):
            acopf(estimate, shedding=False)
        optimum = estimated_optimum(estimate, "cost", 10_000.0)
        assert optimum is not None
        if p > 0:
            value, _ = polar_optimum(estimate)
            assert optimum.state.shed_mw == pytest.approx(case.base_mva * value, abs=0.1)


@pytest.mark.parametrize(("name", "scale"), [("case6ww", 1.5), ("case30", 2.0)])
@pytest.mark.parametrize("coordination", ["central", "rounds"])
def test_zones_shed_the_least_where_a_load_exceeds_the_ratings_of_its_lines(
    name, scale, coordination
):
    """A schedule that paid for reactive power of nowhere shed 1 and 7 % more."""
    case = load_case(name).scale_load(scale)
    assert overloaded(case).any()
    least, _ = polar_optimum(case)
    result = run(case, 3, mechanism="none", coordination=coordination)
    assert result.redispatch.status == "feasible"
    assert result.physical["shed_mw"] == pytest.approx(case.base_mva * least, abs=0.05)


@pytest.mark.parametrize("name", ["case14", "case30", "case39", "case57", "case118", "case300"])
def test_a_demand_within_its_ranges_is_not_moved(name):
    case = load_case(name)
    demand = np.concatenate([case.pd, case.qd])
    assert bus_ranges(case).within(demand, np.arange(case.n_bus)).tolist() == demand.tolist()


def test_an_estimate_above_the_ratings_of_a_bus_is_moved_within_them():
    """A small plant at one line: 5 MW and 3 MVAr of generation, at least 1 MW, rating 2 MVA."""
    case = load_case("tests/data/pglib/pglib_opf_case30_ieee.m")
    bus = case.index_of[26]  # at the end of one line, without a generator
    k = np.flatnonzero((case.f_bus == bus) | (case.t_bus == bus))
    rate, charging = case.rate.copy(), case.b.copy()
    rate[k], charging[k] = 0.02, 0.0
    gens = {
        name: getattr(case, name).copy() for name in ("gen_bus", "pmin", "pmax", "qmin", "qmax")
    }
    for name, value in zip(gens, (bus, 0.01, 0.05, -0.03, 0.03), strict=True):
        gens[name][-1] = value
    small = replace(case, rate=rate, b=charging, **gens)
    ranges, at = bus_ranges(small), np.array([bus])
    for demand, moved in (
        ((0.06, 0.0), (0.06, 0.0)),  # 5 MW of its own, 1 MW by the line
        ((0.08, 0.0), (0.05 + 0.9 * 0.02, 0.0)),
        ((-0.02, 0.0), (0.01 - 0.9 * 0.02, 0.0)),
        ((0.03, 0.06), (0.03, 0.03 + 0.9 * 0.02)),
    ):
        assert ranges.within(np.array(demand), at) == pytest.approx(moved)
    # half of a cable's charging, at the lowest voltage, and 3 MVAr of generation serve a load
    cable = bus_ranges(replace(small, b=np.where(np.arange(case.n_branch) == k, 0.5, charging)))
    assert cable.within(np.array([0.03, 0.25]), at) == pytest.approx([0.03, 0.25])
    least = 0.25 * case.vmin[bus] ** 2 - 0.03 - 0.9 * 0.02
    assert cable.within(np.array([0.03, -0.25]), at) == pytest.approx([0.03, least])


def with_a_load_above_its_rating():
    """A load of 6 MW at one line of 5 MVA."""
    case = load_case("tests/data/pglib/pglib_opf_case30_ieee.m")
    bus, rate, pd, qd = case.index_of[26], case.rate.copy(), case.pd.copy(), case.qd.copy()
    rate[(case.f_bus == bus) | (case.t_bus == bus)] = 0.05
    pd[bus], qd[bus] = 0.06, 0.0
    return replace(case, rate=rate, pd=pd, qd=qd)


@pytest.mark.parametrize("noisy", [False, True])
def test_noisy_demand_is_moved_below_the_ratings_of_its_bus(noisy):
    """Exact demand is planned as it is, and load is shed."""
    case = with_a_load_above_its_rating()
    prepared = prepare(case, partition(case, 3), make_settings(mechanism="none"))
    network, zones = prepared.network, prepared.zones
    demands = [zone.demand for zone in zones]
    schedule = central_schedule(network, zones, demands, 10_000.0, ac=True, noisy=noisy)
    shed = schedule.schedule.shed.sum()
    assert shed < 1e-4 if noisy else shed > 0.01 - 1e-6


@pytest.mark.parametrize("mechanism", ["none", "laplace"])
def test_rounds_move_noisy_demand_too(mechanism):
    """Noise of 0.001 MW: the estimate is 6 MW, of which a schedule of exact demand sheds 1 MW."""
    noise = {"mechanism": mechanism, "release": "bus", "budget": "total:1000", "beta": "1MW"}
    rounds = run(
        with_a_load_above_its_rating(), 3, coordination="rounds", seed=1, **noise
    ).ac_rounds
    shed = rounds.schedule.shed.sum()
    assert shed > 0.0099 if mechanism == "none" else shed < 1e-4
