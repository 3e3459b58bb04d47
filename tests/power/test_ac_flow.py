from __future__ import annotations

import warnings
from dataclasses import fields, replace

import numpy as np
import pytest
from ac_reference import chain_admittance, classic, rectangular_newton
from dispatch import dispatch_of
from scipy import sparse
from scipy.sparse.linalg import splu

import gridpriv
from gridpriv import load_case, partition
from gridpriv.core.errors import GridprivError
from gridpriv.grid.case import Case
from gridpriv.grid.library import case_files
from gridpriv.grid.network import branch_flows, deenergized_buses, islands
from gridpriv.power.ac import newton
from gridpriv.power.ac.areas import AreaGrid
from gridpriv.power.ac.flow import _starts, ac_flow
from gridpriv.power.ac.newton import KAPPA, FlowEquations, Jacobian, Point, PowerFlowError, residual
from gridpriv.power.ac.part import part_of
from gridpriv.power.ac.state import Schedule

PGLIB = "tests/data/pglib/"
SHIPPED = (
    "case14", "case118",
    *(f"{PGLIB}pglib_opf_{n}.m" for n in ("case14_ieee", "case30_ieee", "case118_ieee")),
)  # fmt: skip
NETS = (
    "case4gs", "case9", "case24_ieee_rts", "case39", "case145", "case33bw",
    "create_cigre_network_mv", "iceland",
)  # fmt: skip
MORE_NETS = (
    "case5", "case6ww", "case14", "case30", "case57", "case118", "case_ieee30", "case89pegase",
)  # fmt: skip


def two_buses(tap: float) -> Case:
    """138 kV feeding 230 kV through a pure reactance with a tap at the from end."""
    ones, two = np.ones(1), np.ones(2)
    return Case(
        name="two", base_mva=100.0, bus_id=np.array([1, 2]),
        pd=np.array([0.0, 0.5]), qd=np.array([0.0, 0.2]), gs=0 * two, bs=0 * two,
        vmin=0.9 * two, vmax=1.1 * two, vm=two, va=0 * two, base_kv=np.array([138.0, 230.0]),
        reference=np.array([True, False]), f_bus=np.array([0]), t_bus=np.array([1]),
        r=0 * ones, x=0.1 * ones, b=0 * ones, tap=tap * ones, shift=0 * ones, rate=0 * ones,
        angmin=-np.inf * ones, angmax=np.inf * ones, gen_bus=np.array([0]), pmin=0 * ones,
        pmax=2 * ones, qmin=-np.inf * ones, qmax=np.inf * ones, vg=ones, pg=0 * ones,
        branch_row=np.array([1]), gen_row=np.array([1]),
    )  # fmt: skip


def largest_difference(case: Case, state, voltage) -> float:
    """Largest distance of two voltage vectors whose references differ."""
    slack = int(np.flatnonzero(case.reference)[0])
    return float(
        np.abs(
            state.voltage * np.exp(-1j * state.va[slack])
            - voltage * np.exp(-1j * np.angle(voltage[slack]))
        ).max()
    )


def test_a_tap_at_the_lower_voltage_end_stays_there():
    # V1 / tap feeds V2 through x: |V2|^2 = (E^2 - 2 q x + sqrt(E^4 - 4 x (q E^2 + p^2 x))) / 2
    source, p, q, x = 1 / 1.05, 0.5, 0.2, 0.1
    inner = source**4 - 4 * x * (q * source**2 + p**2 * x)
    expected = np.sqrt((source**2 - 2 * q * x + np.sqrt(inner)) / 2)
    case = two_buses(1.05)
    state = ac_flow(case, dispatch_of(case))
    assert expected == pytest.approx(0.9297, abs=1e-3)
    assert state.vm[1] == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("name", SHIPPED)
def test_voltages_are_those_of_an_independent_newton_method(name):
    case = classic(load_case(name))
    dispatch = dispatch_of(case)
    voltage = rectangular_newton(case, dispatch.vm * np.exp(1j * dispatch.va))
    assert voltage is not None
    assert largest_difference(case, ac_flow(case, dispatch), voltage) < 1e-8


@pytest.mark.large
def test_voltages_are_those_of_an_independent_newton_method_on_the_library():
    compared, wrong = 0, []
    for name, path in case_files().items():
        if path.stat().st_size > 1.5e6:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                case = load_case(name)
            except GridprivError:
                continue
        if case.n_bus > 3000 or case.n_gen == 0 or islands(case).max() > 0:
            continue
        case = classic(case)
        dispatch = dispatch_of(case)
        voltage = rectangular_newton(case, dispatch.vm * np.exp(1j * dispatch.va))
        if voltage is None:
            continue
        compared += 1
        try:
            distance = largest_difference(case, ac_flow(case, dispatch), voltage)
        except PowerFlowError:
            distance = np.inf
        if not distance < 1e-8:
            wrong.append((name, distance))
    assert compared > 90
    assert not wrong


@pytest.mark.parametrize(
    "name", [*NETS, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE_NETS)]
)
def test_voltages_are_those_of_pandapower(name):
    import pandapower as pp
    import pandapower.networks as nets

    from gridpriv.grid.pandapower import convert_net

    net = getattr(nets, name)()
    pp.runpp(net, tolerance_mva=1e-9, calculate_voltage_angles=True, init="dc", numba=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = convert_net(net)
    case = converted.case
    state = ac_flow(classic(case), dispatch_of(case))
    for bus, number in converted.link.bus.items():
        if number in case.index_of and bus in net.res_bus.index:
            expected = net.res_bus.vm_pu[bus]
            if np.isfinite(expected):
                assert state.vm[case.index_of[number]] == pytest.approx(expected, abs=1e-8)


def balance(case, state):
    """Mismatch of every bus, from independently computed admittances."""
    drawn = state.voltage * np.conj(chain_admittance(case) @ state.voltage)
    drawn += case.pd + 1j * case.qd - state.p_shed - 1j * state.q_shed + state.curtailment
    np.subtract.at(drawn, case.gen_bus, state.pg + 1j * state.qg)
    return np.abs(drawn).max()


def test_a_grid_without_a_dc_power_flow_starts_elsewhere_and_warns_of_nothing():
    """Reactances in parallel that take each other away: resistances carry the power."""
    first, two = two_buses(1.0), np.zeros(2, int)
    pair = {name: np.repeat(getattr(first, name), 2) for name in ("b", "tap", "shift", "rate",
            "angmin", "angmax")}  # fmt: skip
    case = replace(
        first, f_bus=two, t_bus=two + 1, r=np.full(2, 0.02), x=np.array([0.05, -0.05]),
        branch_row=np.arange(1, 3), **pair,
    )  # fmt: skip
    dispatch = dispatch_of(case)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        starts = list(_starts(AreaGrid(case, dispatch, Schedule(np.zeros(2, int), np.zeros(1)))))
        state = ac_flow(case, dispatch)
    assert len(starts) == 2 and np.isfinite(starts).all()
    assert balance(case, state) < 1e-8
    assert state.vm[1] == pytest.approx(0.96, abs=0.01)


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("scale", [0.8, 1.0, 1.1])
def test_reactive_limits_hold_or_the_voltage_has_left_its_set_point_to_the_right_side(name, scale):
    case = load_case(name).scale_load(scale)
    dispatch = dispatch_of(case)
    state = ac_flow(case, dispatch)
    assert balance(case, state) < 1e-8
    bus = case.gen_bus
    total, low, high = (
        np.bincount(bus, q, minlength=case.n_bus) for q in (state.qg, case.qmin, case.qmax)
    )
    for i in np.unique(bus):
        at_set_point = abs(state.vm[i] - dispatch.vm[i]) < 1e-9
        assert low[i] - 1e-6 <= total[i] <= high[i] + 1e-6
        exhausted = abs(total[i] - high[i]) < 1e-6 and state.vm[i] <= dispatch.vm[i] + 1e-9
        saturated = abs(total[i] - low[i]) < 1e-6 and state.vm[i] >= dispatch.vm[i] - 1e-9
        assert at_set_point or exhausted or saturated


@pytest.fixture
def factored(monkeypatch):
    """How many Jacobians were factored."""
    count = []

    def counted(*given, **how):
        count.append(1)
        return splu(*given, **how)

    monkeypatch.setattr(newton, "splu", counted)
    return count


@pytest.mark.parametrize("scale", [1.36, 1.38, 1.4])
def test_limits_that_are_not_met_at_once_are_met_near_the_state_before(case14, factored, scale):
    loaded, less = (case14.scale_load(item) for item in (scale, scale - 0.02))
    before = ac_flow(less, dispatch_of(less))
    factored.clear()
    alone, steps = ac_flow(loaded, dispatch_of(loaded)), len(factored)
    factored.clear()
    near = ac_flow(loaded, dispatch_of(loaded), before=before)
    assert balance(loaded, near) < 1e-8
    assert np.abs(near.voltage - alone.voltage).max() < 1e-8
    assert len(factored) < 0.6 * steps


def test_no_grid_stands_where_charging_is_all_that_holds_its_voltage():
    """An open line: its generator absorbs c vm^2, within its range at the set point of 1 p.u.

    At 1.1 p.u. it absorbs all it can, and the least rise would let the voltage run away.
    """
    b, x = 1.0, 0.1
    absorbed = b / 2 + (b / 2) / (1 - x * b / 2)
    ones = np.ones(1)
    line = replace(
        two_buses(1.0), pd=np.zeros(2), qd=np.zeros(2), b=b * ones, qmin=-absorbed * 1.1**2 * ones
    )
    dispatch = dispatch_of(line)
    high = ac_flow(line, replace(dispatch, vm=1.1 * np.ones(2)))
    assert high.vm[0] == pytest.approx(1.1)
    after = ac_flow(line, dispatch, before=high)
    assert after.vm[0] == pytest.approx(1.0)
    assert after.qg[0] == pytest.approx(-absorbed)


def test_a_generator_stands_at_its_lower_reactive_limit_where_a_reactor_holds_the_voltage():
    """A reactor r vm^2 absorbs the power of a constant source that the generator cannot absorb."""
    r, source, absorbed = 0.7, 1.0, 0.2
    grid = replace(
        two_buses(1.0),
        pd=np.zeros(2),
        qd=np.array([-source, 0.0]),
        bs=np.array([-r, 0.0]),
        b=np.zeros(1),
        qmin=-absorbed * np.ones(1),
    )
    state = ac_flow(grid, dispatch_of(grid))
    assert state.vm[0] == pytest.approx(np.sqrt((source - absorbed) / r))
    assert state.qg[0] == pytest.approx(-absorbed)


def test_two_generators_that_circulate_reactive_power_keep_their_limits():
    """One stays at its limit, the other regulates: both at limits would leave no balance."""
    case = meshed([0.15, 0.15], 0.05, [0, 1], [0.0, 0.0], [0.3, 0.3], ([0], [1]), [0.01], [0.02])
    case = replace(case, vg=np.array([1.02, 1.0]), pg=np.array([0.15, 0.15]))
    state = ac_flow(case, dispatch_of(case))
    assert np.abs(state.qg).max() <= 0.05 + 1e-9
    assert balance(case, state) < 1e-8
    assert state.qg[0] == pytest.approx(0.05) and state.vm[0] < 1.02
    assert state.vm[1] == pytest.approx(1.0) and -0.05 < state.qg[1] < 0.0


def test_generators_of_a_bus_share_reactive_power_by_range_and_infinite_limits_take_it_all():
    case = replace(two_buses(1.0), gen_bus=np.zeros(3, int), gen_row=np.arange(1, 4), vg=np.ones(3),
                   pg=np.zeros(3), pmin=np.zeros(3), pmax=np.ones(3),
                   qmin=np.array([-0.1, -0.3, 0.05]), qmax=np.array([0.1, 0.3, 0.05]))  # fmt: skip
    state = ac_flow(case, dispatch_of(case))
    assert state.qg[1] == pytest.approx(3 * state.qg[0])
    assert state.qg[2] == pytest.approx(0.05)
    assert balance(case, state) < 1e-8
    endless = replace(case, qmax=np.array([0.1, np.inf, 0.05]))
    state = ac_flow(endless, dispatch_of(endless))
    assert state.qg[0] == pytest.approx(0.0)
    assert balance(endless, state) < 1e-8


def test_imbalance_is_taken_up_by_share_of_headroom(case118):
    state = ac_flow(case118.scale_load(1.03), dispatch_of(case118))
    taken, room = state.regulation, case118.pmax - case118.pg
    assert taken.sum() > 1.0
    assert np.allclose(taken / taken.sum(), room / room.sum(), atol=1e-9)


def interchange_of(state, zone_of):
    """Export of every zone over its tie lines, metered in their middle, line by line."""
    case, out = state.case, np.zeros(zone_of.max() + 1)
    s_from, s_to = branch_flows(case, state.voltage)
    for k in range(case.n_branch):
        near, far = zone_of[case.f_bus[k]], zone_of[case.t_bus[k]]
        if near != far:
            out[near] += (s_from[k].real - s_to[k].real) / 2
            out[far] += (s_to[k].real - s_from[k].real) / 2
    return out


def shifted(case, rng, size):
    """A dispatch as of a noisy run: set points shifted within their limits."""
    dispatch = dispatch_of(case)
    pg = np.clip(case.pg + rng.normal(0, size, case.n_gen), case.pmin, case.pmax)
    return replace(dispatch, pg=pg)


@pytest.mark.parametrize("seed", range(3))
def test_every_zone_keeps_its_interchange_or_has_nothing_left(case118, zones118, seed):
    rng = np.random.default_rng(seed)
    agreed = interchange_of(ac_flow(case118, dispatch_of(case118)), zones118.zone_of)
    dispatch = shifted(case118, rng, 0.2)
    state = ac_flow(case118, dispatch, Schedule(zones118.zone_of, agreed))
    assert balance(case118, state) < 1e-8
    assert np.abs(state.interchange - agreed).max() * 100 < 0.1
    assert np.allclose(state.deviation, state.interchange - agreed)
    assert np.abs(dispatch.pg + state.regulation - state.pg).max() < 1e-12
    for zone in range(3):  # one fraction of the headroom for all generators of a zone
        own = zones118.zone_of[case118.gen_bus] == zone
        taken = state.regulation[own]
        room = np.where(taken.sum() > 0, case118.pmax - dispatch.pg, dispatch.pg - case118.pmin)[
            own
        ]
        assert np.allclose(taken * room.sum(), taken.sum() * room, atol=1e-7)


def test_a_zone_with_hardly_any_headroom_still_keeps_its_interchange(case118, zones118):
    """Set points of an optimum are just below their limits; this zone must reduce generation."""
    dispatch = dispatch_of(case118)
    agreed = interchange_of(ac_flow(case118, dispatch), zones118.zone_of)
    own_gens = zones118.zone_of[case118.gen_bus] == 0
    tight = replace(case118, pmax=np.where(own_gens, dispatch.pg + 1e-9, case118.pmax))
    agreed[:2] += -0.3, 0.3
    state = ac_flow(tight, dispatch, Schedule(zones118.zone_of, agreed))
    assert balance(tight, state) < 1e-8
    assert np.abs(state.deviation).max() < 1e-6
    assert state.regulation[own_gens].sum() < -0.1


def test_a_zone_without_headroom_draws_balancing_power(case118, zones118):
    dispatch = dispatch_of(case118)
    own_gens = zones118.zone_of[case118.gen_bus] == 0
    tight = replace(case118, pmax=np.where(own_gens, case118.pg, case118.pmax))
    as_it_is = ac_flow(tight, dispatch)
    zone_of = zones118.zone_of
    exports = interchange_of(as_it_is, zone_of)
    lean = Schedule(zone_of, exports + np.array([0.5, -0.25, -0.25]))
    state = ac_flow(tight, dispatch, lean)
    assert balance(tight, state) < 1e-8
    assert np.all(state.regulation[own_gens] <= 1e-9)
    assert state.deviation[0] < -0.4
    assert np.all(state.deviation[1:] > 0)
    assert not [limit for limit in state.violations if limit.kind == "generator P"]


@pytest.mark.parametrize(
    ("spread", "seed"),  # p.u.; at 12 there is no power flow that holds areas without their limits
    [(3.0, 2), (4.0, 1), (6.0, 1), (6.0, 3), (12.0, 1), (12.0, 2)],
)
def test_limits_of_areas_are_met_by_the_same_search_as_those_of_buses(
    case118, factored, spread, seed
):
    rng, zone_of = np.random.default_rng(seed), partition(case118, 8, "spectral").zone_of
    dispatch = dispatch_of(case118)
    agreed = interchange_of(ac_flow(case118, dispatch), zone_of) + rng.normal(0, spread, 8)
    agreed -= agreed.mean()
    factored.clear()
    state = ac_flow(case118, dispatch, Schedule(zone_of, agreed))
    assert len(factored) <= 30
    assert balance(case118, state) < 1e-8

    def of_zones(values):
        return np.bincount(zone_of[case118.gen_bus], values, minlength=8)

    taken = of_zones(state.regulation)
    most, least = of_zones(case118.pmax - dispatch.pg), of_zones(case118.pmin - dispatch.pg)
    assert np.all((least - 1e-9 <= taken) & (taken <= most + 1e-9))
    upper, lower = taken > most - 1e-7, taken < least + 1e-7
    assert (upper | lower).any()
    beyond = state.deviation / (most - least)
    shared = np.median(beyond[~upper & ~lower])  # what the others lack, by regulating range
    assert beyond[~upper & ~lower] == pytest.approx(shared, abs=1e-7)
    assert np.all(beyond[upper] <= shared + 1e-7)
    assert np.all(beyond[lower] >= shared - 1e-7)


def chain(demand, least, most) -> Case:
    """Buses in a row on lines without losses, a generator and an area at each."""
    n, two = len(demand), two_buses(1.0)
    ones, none, at = np.ones(n), np.zeros(n), np.arange(n)
    lines = {
        name: np.repeat(getattr(two, name), n - 1)
        for name in ("r", "b", "tap", "shift", "rate", "angmin", "angmax")
    }
    return replace(
        two, **lines, x=np.full(n - 1, 0.01), bus_id=at + 1, pd=demand, qd=none, gs=none, bs=none,
        vmin=0.9 * ones, vmax=1.1 * ones, vm=ones, va=none, base_kv=ones, reference=at == n - 1,
        f_bus=at[:-1], t_bus=at[1:], branch_row=at[1:], gen_row=at + 1, gen_bus=at, pmin=least,
        pmax=most, qmin=-np.inf * ones, qmax=np.inf * ones, vg=ones, pg=none,
    )  # fmt: skip


def shared(demand, least, most, agreed, bias):
    """Regulation of areas that keep their interchange up to K delta, or are at a limit."""
    low, high = -1e6, 1e6
    for _ in range(100):
        delta = (low + high) / 2
        given = np.clip(bias * delta + demand + agreed, least, most)
        low, high = (low, delta) if given.sum() > demand.sum() else (delta, high)
    return given


@pytest.mark.parametrize(
    ("demand", "least", "most", "agreed", "bias"),
    [
        # two want too much of each other: what is left of it is the first one's to lower
        ([0.5, -1.0], [0, -2], [2, 0], [10, -10], [2, 2]),
        # each of the others runs out, in whatever order it is found
        ([0.1, 0.1, 0.1], [0, 0, -1], [1, 1, 1], [3.5, 7.4, -10.9], [1, 1, 2]),
        # the second could give without end and bears what the third lacks, or can take little
        ([0.1, 0.1, 0.1], [-1, -1, 0], [1, np.inf, 0], [0, 0, 0], [2, 3e4, 0]),
        ([0.5, -1.0], [-2, -0.2], [0, np.inf], [0, 0], [2, 3e4]),
    ],
)
def test_areas_that_run_out_leave_the_rest_to_those_that_have_not(
    demand, least, most, agreed, bias
):
    given = [np.array(each, float) for each in (demand, least, most)]
    agreed = np.array(agreed, float)
    case = chain(*given)
    state = ac_flow(case, dispatch_of(case), Schedule(np.arange(len(agreed)), agreed))
    assert state.pg == pytest.approx(shared(*given, agreed, np.array(bias)), abs=1e-8)


@pytest.mark.parametrize("seed", range(60))
def test_what_areas_give_on_a_grid_without_losses_is_known(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    room = rng.choice([0.0, 0.1, 1.0], n) * rng.random(n), rng.choice([0.0, 1.0, 3.0], n)
    least, most = -room[0], room[1]
    agreed = rng.normal(0.0, rng.choice([0.1, 1.0, 5.0]), n)
    agreed -= agreed.mean()
    demand = rng.normal(size=n)
    total = least.sum() + rng.uniform(0.05, 0.95) * (most - least).sum()  # they have room together
    demand += (total - demand.sum()) / n
    case = chain(demand, least, most)
    state = ac_flow(case, dispatch_of(case), Schedule(np.arange(n), agreed))
    assert state.pg == pytest.approx(shared(demand, least, most, agreed, most - least), abs=1e-7)


def meshed(demand, q, at, least, most, ends, r, x) -> Case:
    """Lines of resistances and reactances, generators of reactive power up to ``q``."""
    lines, gens = np.zeros(len(x)), np.zeros(len(at))
    n, base = len(demand), chain(np.array(demand), np.zeros(len(demand)), np.ones(len(demand)))
    return replace(
        base, f_bus=np.array(ends[0]), t_bus=np.array(ends[1]), r=np.array(r), x=np.array(x),
        b=lines, tap=lines + 1, shift=lines, rate=lines, angmin=lines - np.inf,
        angmax=lines + np.inf, branch_row=np.arange(len(x)) + 1, gen_row=np.arange(len(at)) + 1,
        gen_bus=np.array(at), pmin=np.array(least), pmax=np.array(most), qmin=gens - q,
        qmax=gens + q, vg=gens + 1, pg=np.array(most), reference=np.arange(n) == at[0],
    )  # fmt: skip


def test_areas_are_solved_from_another_start_where_no_shared_state_exists():
    case = meshed(
        [0.0, 2.31, 0.0, 0.31, 1.44], 2.0, [1, 2, 2, 2, 0, 3, 4],
        [0.0, -0.1, -0.11, -0.1, 0.0, 0.0, 0.0], [0.04, 0.0, 0.0, 0.35, 0.0, 0.46, 0.51],
        ([0, 0, 2, 3, 4, 2], [1, 2, 3, 4, 3, 4]),
        [0.01, 0.04, 0.01, 0.13, 0.0, 0.0], [0.01, 0.0, 0.09, 0.0, 0.24, 0.15],
    )  # fmt: skip
    dispatch = replace(dispatch_of(case), va=np.array([-0.55, 0.12, -1.17, 0.33, -0.48]))
    with pytest.raises(PowerFlowError):
        ac_flow(case, dispatch)
    agreed = Schedule(np.array([0, 1, 0, 2, 2]), np.array([-0.03, 0.15, -0.12]))
    state = ac_flow(case, dispatch, agreed)
    assert balance(case, state) < 1e-8 and np.abs(state.vm - 1).max() < 0.1


def test_areas_are_solved_from_another_start_before_all_generators_share():
    case = meshed(
        [3.31, 1.61, 2.02, 0.59, 2.38, 0.18], 0.0, [4, 2, 4, 0, 3],
        [-0.08, 0.0, -0.17, 0.0, 0.0], [0.58, 1.12, 0.27, 0.97, 0.42],
        ([0, 1, 2, 1, 2, 2], [1, 2, 3, 4, 5, 0]),
        [0.11, 0.0, 0.01, 0.12, 0.02, 0.0], [0.0, 0.18, 0.0, 0.23, 0.16, 0.11],
    )  # fmt: skip
    case = replace(
        case, qd=np.array([0.66, 0.32, 0.4, 0.12, 0.48, 0.04]),
        tap=np.array([1.0, 1.0, 0.98, 1.02, 1.0, 1.0]), shift=0.1 * (np.arange(6) == 4),
    )  # fmt: skip
    dispatch = replace(dispatch_of(case), va=np.array([0.08, 0.01, -0.01, 0.16, 0.05, 0.09]))
    agreed = Schedule(np.array([0, 4, 0, 2, 2, 3]), np.array([0.81, 1.02, -0.61, 0.6, -1.82]))
    state = ac_flow(case, dispatch, agreed)
    assert balance(case, state) < 1e-8
    assert np.abs(state.deviation).sum() == pytest.approx(3.60, abs=0.01)  # 4.25 if all share


def test_areas_are_solved_within_all_limits_at_once_where_not_within_their_own():
    case = meshed(
        [0.0, 0.32, 1.45, 0.34, 0.5], 2.0, [1, 3, 2, 3, 3, 4, 0, 4],
        [-0.08, 0.0, 0.0, 0.0, 0.0, -0.12, -0.16, 0.0],
        [0.32, 0.5, 0.0, 0.03, 0.0, 0.34, 0.7, 0.85],
        ([0, 0, 0, 0, 3, 1], [1, 2, 3, 4, 2, 4]),
        [0.01, 0.05, 0.12, 0.0, 0.0, 0.07], [0.0, 0.0, 0.23, 0.04, 0.21, 0.14],
    )  # fmt: skip
    case = replace(
        case, qd=np.array([0.0, 0.16, 0.73, 0.17, 0.25]), shift=0.1 * (np.arange(6) == 0),
        tap=np.array([1.02, 1.0, 1.0, 0.91, 1.0, 1.0]),
    )  # fmt: skip
    dispatch = replace(
        dispatch_of(case), pg=np.array([0.3, 0.48, 0.0, 0.02, 0.0, 0.33, 0.67, 0.81]),
        vm=np.array([1.02, 0.97, 1.0, 0.93, 0.99]), va=np.array([-0.49, -0.03, -0.46, 0.92, 1.11]),
    )  # fmt: skip
    agreed = Schedule(np.array([1, 0, 2, 1, 1]), np.array([-0.57, -0.51, 1.08]))
    state = ac_flow(case, dispatch, agreed)
    assert balance(case, state) < 1e-8
    assert np.abs(state.deviation).sum() == pytest.approx(5.24, abs=0.01)  # 9.10 if all share


def test_load_beyond_all_capacity_is_reported(case14):
    case = replace(case14, pmax=np.minimum(case14.pmax, 0.5))
    state = ac_flow(case, replace(dispatch_of(case), pg=case.pmax))
    short = [limit for limit in state.violations if limit.kind == "generator P"]
    assert [limit.element for limit in short] == [1]
    missing = case14.pd.sum() * 100 + state.losses_mw - 100 * case.pmax.sum()
    assert short[0].amount == pytest.approx(missing, abs=1e-6)


@pytest.mark.large
def test_an_island_has_a_reference_of_its_own():
    case = load_case("case300").without(("branch:307",))
    island = islands(case)
    assert island.max() == 1
    state = ac_flow(case, dispatch_of(case))
    assert balance(case, state) < 1e-7
    assert not state.deenergized.any()
    assert np.isfinite(state.vm).all() and (state.vm > 0.5).all()
    for i in range(2):  # each island is in balance by itself
        buses = island == i
        own_gens = buses[case.gen_bus]
        lines = buses[case.f_bus]
        lost = (state.s_from + state.s_to).real[lines].sum() + (state.vm**2 * case.gs)[buses].sum()
        assert state.pg[own_gens].sum() == pytest.approx(case.pd[buses].sum() + lost, abs=1e-8)


@pytest.mark.large
def test_two_islands_that_generate_both_live():
    case = load_case("case39").without(("branch:32",))
    assert islands(case).max() == 1
    state = ac_flow(case, dispatch_of(case))
    assert not state.deenergized.any()
    assert balance(case, state) < 1e-8


def test_reactive_limits_that_one_island_cannot_meet_hold_in_the_other():
    ends = ([0, 2], [1, 3])
    case = meshed([0.0, 0.5] * 2, 0.0, [0, 2], [0.0] * 2, [2.0] * 2, ends, [0.0] * 2, [0.1] * 2)
    case = replace(case, qd=np.array([0.0, 0.3, 0.0, 0.0]), qmin=np.full(2, -0.2))
    # a reactor of 0.1: with losses the second generator needs 0.125 to hold its voltage
    case = replace(case, bs=np.array([0.0, 0.0, 0.0, -0.1]), qmax=np.array([0.2, 0.12]))
    state = ac_flow(case, replace(dispatch_of(case), pg=np.array([0.5, 0.5])))
    assert {(v.kind, v.element) for v in state.violations if v.kind == "generator Q"} == {
        ("generator Q", 1)
    }
    assert state.qg[1] == pytest.approx(0.12, abs=1e-6) and state.vm[2] < 1.0


def test_an_island_without_generation_is_deenergized_and_its_demand_is_shed(case14):
    case = case14.without(("branch:17", "branch:20"))  # bus 14 alone
    assert list(case.bus_id[deenergized_buses(case)]) == [14]
    state = ac_flow(case, dispatch_of(case))
    at = case.index_of[14]
    assert state.vm[at] == 0
    assert state.shed_mw == state.deenergized_mw == pytest.approx(14.9)
    assert state.q_shed[at] == pytest.approx(0.05)
    assert balance(case, state) < 1e-8
    assert not [limit for limit in state.violations if limit.at == "14"]


def test_a_part_has_its_own_rows_of_every_field(case14):
    groups = tuple("abcdefg" * 2)
    case = replace(case14, groups={"area": groups}, xy=np.arange(28.0).reshape(14, 2))
    buses, gens = np.array([1, 4, 7]), np.array([1, 4])
    rows = {14: buses, 20: np.array([1, 4]), 5: gens}
    part = part_of(case, buses, rows[20], gens).case
    renumbered = {"f_bus", "t_bus", "gen_bus"}
    for field in fields(case):
        whole, here = getattr(case, field.name), getattr(part, field.name)
        if isinstance(whole, (np.ndarray, tuple)) and field.name not in renumbered:
            assert list(map(str, here)) == [str(whole[i]) for i in rows[len(whole)]], field.name
    assert part.groups == {"area": tuple(groups[i] for i in buses)}


def test_a_grid_without_any_generator_is_deenergized(case14):
    case = case14.without(tuple(f"gen:{row}" for row in case14.gen_row))
    state = ac_flow(case, dispatch_of(case))
    assert state.deenergized.all()
    assert state.shed_mw == pytest.approx(100 * case14.pd.sum())


def test_a_grid_without_a_power_flow_says_where_it_fails(case14):
    case = case14.scale_load(30.0)
    with pytest.raises(PowerFlowError, match=r"largest mismatch .* MVA at bus") as caught:
        ac_flow(case, dispatch_of(case))
    assert caught.value.exit_code == 3
    assert caught.value.bus in case.bus_id
    assert caught.value.mismatch > 1.0


def test_the_amount_outside_every_limit_is_named(case14):
    case = replace(case14, rate=np.where(case14.branch_row == 1, 1.0, 0.0))
    state = ac_flow(case, dispatch_of(case))
    result = {(limit.kind, limit.element): limit for limit in state.violations}
    flow = 100 * max(abs(state.s_from[0]), abs(state.s_to[0]))
    line = result["line", 1]
    assert (line.at, line.unit, line.limit) == ("1-2", "MVA", "upper")
    assert line.amount == pytest.approx(flow - 100.0)
    outside = {
        i for i in range(14) if not case.vmin[i] - 1e-4 <= state.vm[i] <= case.vmax[i] + 1e-4
    }
    assert {e for kind, e in result if kind == "voltage"} == {int(case.bus_id[i]) for i in outside}


@pytest.mark.parametrize("zones", [2, 7])
def test_zones_cut_by_an_island_have_an_ac_state(case118, zones):
    case = case118.without(("branch:9",))  # bus 10 and its generator alone
    assert islands(case).max() == 1
    zoning = (
        partition(case118, zones, "louvain") if zones == 2 else partition(case118, 7, "spectral")
    )
    state = ac_flow(case, dispatch_of(case), Schedule(zoning.zone_of, np.zeros(zoning.n_zone)))
    assert balance(case, state) < 1e-8


def test_negative_demand_feeds_in_and_may_be_spilt_but_never_shed(case14):
    fed = replace(case14, pd=np.where(case14.bus_id == 14, -0.4, case14.pd))
    state = ac_flow(fed, dispatch_of(fed))
    assert balance(fed, state) < 1e-8
    plain = ac_flow(case14, dispatch_of(case14))
    assert state.pg.sum() < plain.pg.sum() - 0.5  # 14.9 MW are not drawn, 40 are fed in
    cut = gridpriv.acopf(fed.scale_load(3.0), "shed").state
    assert cut.p_shed[case14.bus_id == 14] == 0.0
    assert (cut.p_shed <= np.maximum(3 * fed.pd, 0) + 1e-9).all()


def test_infinite_limits_take_up_everything_and_are_never_outside(case14):
    endless = np.full(5, np.inf)
    case = replace(case14, pmax=endless, pmin=-endless, qmax=endless, qmin=-endless)
    state = ac_flow(case.scale_load(1.2), dispatch_of(case))
    assert balance(state.case, state) < 1e-8
    assert np.isfinite(state.pg).all() and np.isfinite(state.regulation).all()
    assert not [limit for limit in state.violations if limit.kind.startswith("generator")]


@pytest.mark.parametrize("seed", range(20))
def test_the_jacobian_is_what_small_differences_of_the_residual_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, ends, areas, islands = (int(rng.integers(*of)) for of in ((2, 9), (0, 5), (1, 4), (1, 3)))

    def some(*shape: int) -> sparse.csr_array:
        return sparse.random_array(shape, density=0.5, rng=rng).tocsr()

    equations = FlowEquations(
        injected=some(n + ends, n) + 1j * some(n + ends, n),
        at=np.concatenate([np.arange(n), rng.integers(0, n, ends)]),
        tie_area=some(areas, ends), p=rng.normal(size=n), q=rng.normal(size=n),
        q_low=np.full(n, -1.0), q_high=np.full(n, 1.0), setpoint=np.ones(n),
        reference=np.isin(np.arange(n), rng.permutation(n)[:islands]), up=some(n, areas),
        down=some(n, areas), least=np.full(areas, -1.0), most=np.full(areas, 1.0),
        interchange=rng.normal(size=areas), bias=some(areas, islands), slack=some(n, islands),
        exhausted=rng.random(islands) < 0.3,
    )  # fmt: skip
    point = Point(rng.normal(size=n), rng.uniform(0.8, 1.2, n), rng.normal(size=areas),
                  rng.normal(size=islands))  # fmt: skip
    at = residual(equations, point)
    jacobian = Jacobian(equations)
    exact = np.zeros((2 * n + areas, 2 * n + areas))
    filled = jacobian.at(equations, point, at.regulating).toarray()
    exact[jacobian.row_order] = filled[:, jacobian.column_place]
    for column, change in zip(exact.T, 1e-6 * np.eye(exact.shape[1]), strict=True):
        forward, back = (
            residual(equations, point.plus(way * change, equations.reference)).values
            for way in (1, -1)
        )
        assert (forward - back) / 2e-6 == pytest.approx(column, abs=1e-6)


def test_places_of_a_large_grids_jacobian_are_no_32_bit_numbers() -> None:
    n = 24_000
    equations = FlowEquations(
        injected=sparse.eye_array(n, format="csr") * 1j, at=np.arange(n),
        tie_area=sparse.csr_array((1, 0)), p=np.zeros(n), q=np.zeros(n), q_low=np.zeros(n),
        q_high=np.zeros(n), setpoint=np.ones(n), reference=np.arange(n) == 0,
        up=sparse.csr_array(([1.0], ([n - 1], [0])), shape=(n, 1)), down=sparse.csr_array((n, 1)),
        least=np.full(1, -np.inf), most=np.full(1, np.inf), interchange=np.zeros(1),
        bias=sparse.csr_array((1, 1)), slack=sparse.csr_array((n, 1)),
        exhausted=np.zeros(1, dtype=bool),
    )  # fmt: skip
    point = Point(np.zeros(n), np.ones(n), np.ones(1), np.zeros(1))
    jacobian = Jacobian(equations)
    matrix, row = (
        jacobian.at(equations, point, np.ones(n + 1, bool)),
        np.argsort(jacobian.row_order),
    )
    assert matrix[row[n - 1], jacobian.column_place[2 * n - 1]] == -1.0
    buses = np.arange(n)  # by the magnitude at its own bus
    by_magnitude = matrix[row[n + buses], jacobian.column_place[n - 1 + buses]]
    assert (np.asarray(by_magnitude) == KAPPA).all()
