"""The state after an outage, compared with other power flows and with closed forms.

The preventive plan of zones, compared with a central SCOPF with all states as variables.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from ac_reference import chain_admittance, classic, rectangular_newton
from dispatch import dispatch_of
from scopf_reference import scopf_cost
from test_ac_flow import meshed

from gridpriv import load_case, partition
from gridpriv.core.errors import InputError
from gridpriv.grid.network import branch_flows, islands, islands_by
from gridpriv.grid.scenarios import Contingency, branch_rating, contingencies
from gridpriv.power import secure
from gridpriv.power.ac.newton import PowerFlowError
from gridpriv.power.ac.part import part_of
from gridpriv.power.ac.state import Limit
from gridpriv.power.ac.zone_redispatch import operating_unit
from gridpriv.power.corrective import correct
from gridpriv.power.objective import generation_cost
from gridpriv.power.secure import SecureProblem, secure_plan
from gridpriv.power.security import (
    DcOutages,
    Outage,
    PostContingency,
    assess,
    post_contingency,
    pre_contingency,
    security_analysis,
)
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.settings import make_settings


def split(case, contingency):
    """Return whether an outage splits the grid."""
    on = np.ones(case.n_branch, bool)
    on[contingency.elements(case)[0]] = False
    return islands_by(case, on).max() > islands(case).max()


@pytest.mark.parametrize(
    ("name", "kind", "without", "left"),
    [
        ("case14", "all", {"branch:1"}, set()),  # branch 1 leaves no state within reactive limits
        pytest.param(
            "case24_ieee_rts",
            "branches",
            set(),
            {"branch:7", "branch:10", "branch:27"},  # no set points secure these
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_zones_plan_costs_what_a_central_one_does(name, kind, without, left):
    case = load_case(name)
    prepared = prepare(case, partition(case, 3), make_settings(mechanism="none"))
    case = prepared.case
    listed = [c for c in contingencies(case, kind) if not split(case, c) and c.name not in without]
    unit = operating_unit(case)
    first, plan = secure_plan(SecureProblem(case, prepared.zones, listed, "C", 1e4, unit))
    assert plan.corrective == left
    assert any(c.violations for c in first.contingencies)
    assert all(c.secure for c in plan.contingencies if c.contingency.name not in left)
    outages = [c.elements(case) for c in listed if c.name not in left]
    best = scopf_cost(case, outages, branch_rating(case, "C"))
    cost, alone = (generation_cost(case, p.before.state.pg) for p in (plan, first))
    assert cost == pytest.approx(best, rel=1e-4)
    assert cost > alone


PGLIB = "tests/data/pglib/pglib_opf_case30_ieee.m"


def case39():
    import pandapower.networks as nets

    from gridpriv.grid.pandapower import convert_net

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return convert_net(nets.case39()).case


GRIDS = {
    "case14": lambda: load_case("case14"),
    "case30": lambda: load_case(PGLIB),
    "case39": case39,
    "case118": lambda: load_case("case118"),
}


def grids_but(*large):
    """Return the grids' names; tests of large ones are slow."""
    slow = pytest.mark.slow
    return [pytest.param(name, marks=slow) if name in large else name for name in GRIDS]


def analysed(case, rating="C"):
    return pre_contingency(case, dispatch_of(case), rating)


def single(outage):
    return Contingency(outage, "branch", (outage,))


def energized_part(outage):
    """The elements in service after an outage, as a case."""
    case, live = outage.case, ~outage.deenergized
    return part_of(
        case,
        np.flatnonzero(live),
        np.flatnonzero(live[case.f_bus] & live[case.t_bus]),
        np.flatnonzero(live[case.gen_bus]),
    )


def splits(outage):
    """Return True where a part that the outage separates stays energized, or others do not."""
    return not np.array_equal(outage.deenergized, outage.separated)


@pytest.mark.parametrize("name", grids_but("case39", "case118"))
def test_every_single_outage_has_the_state_of_an_independent_power_flow(name):
    """One slack bus and no reactive limits: a textbook power flow after the outage."""
    case = classic(GRIDS[name]())
    before, compared = analysed(case), 0
    for contingency in contingencies(case, "all"):
        outage = Outage(before, contingency)
        part = energized_part(outage)
        slack = np.flatnonzero(part.case.reference)
        if splits(outage) or not np.isin(slack, part.case.gen_bus).any():
            continue  # two grids, or none that has the slack bus
        expected = rectangular_newton(part.case, before.state.voltage[part.buses].copy())
        if expected is None:
            with pytest.raises(PowerFlowError):
                post_contingency(before, outage)
            continue
        state = post_contingency(before, outage)
        compared += 1
        turn = np.exp(1j * (state.va[part.buses][slack[0]] - np.angle(expected[slack[0]])))
        assert np.abs(state.voltage[part.buses] - expected * turn).max() < 1e-8, contingency
        ends = branch_flows(part.case, expected)
        for flow, other in zip((state.s_from, state.s_to), ends, strict=True):
            assert np.abs(flow[part.branches] - other).max() < 1e-7, contingency
    assert compared > 0.8 * (case.n_branch + case.n_gen)


@pytest.mark.parametrize("name", grids_but("case118"))
def test_generators_take_up_an_outage_in_proportion_to_headroom_within_reactive_limits(name):
    case = GRIDS[name]()
    before, within = analysed(case), 0
    for contingency in contingencies(case, "all"):
        outage = Outage(before, contingency)
        try:
            state = post_contingency(before, outage)
        except PowerFlowError:
            continue
        left = outage.case
        drawn = state.voltage * np.conj(chain_admittance(left) @ state.voltage)
        drawn += left.pd + 1j * left.qd - state.p_shed - 1j * state.q_shed + state.curtailment
        np.subtract.at(drawn, left.gen_bus, state.pg + 1j * state.qg)
        assert np.abs(drawn).max() < 1e-8, contingency
        if outage.island.max() > 0 and splits(outage):
            continue
        taken = state.pg - before.state.pg[outage.in_service]
        up = taken.sum() > 0
        room = left.pmax - before.state.pg[outage.in_service] if up else state.pg * 0
        room = room if up else before.state.pg[outage.in_service] - left.pmin
        room = np.maximum(room, 0.0)
        if state.shed_mw == before.state.shed_mw:
            assert np.allclose(taken * room.sum(), taken.sum() * room, atol=1e-6), contingency
        if any(limit.kind == "generator Q" for limit in state.violations):
            continue  # no state within reactive limits was found, and the row says so
        within += 1
        bus = np.unique(left.gen_bus[~outage.deenergized[left.gen_bus]])
        total, low, high = (
            np.bincount(left.gen_bus, q, left.n_bus)[bus] for q in (state.qg, left.qmin, left.qmax)
        )
        lacks = state.vm[bus] - before.dispatch.vm[bus]
        assert np.all((low - 1e-6 <= total) & (total <= high + 1e-6)), contingency
        assert np.all((lacks > -1e-8) | (total > high - 1e-6)), contingency
        assert np.all((lacks < 1e-8) | (total < low + 1e-6)), contingency
    assert within > 0.8 * (case.n_branch + case.n_gen)


@pytest.mark.parametrize("name", [pytest.param("case30", marks=pytest.mark.slow), "case39"])
def test_loadings_and_voltages_are_those_of_pandapower_after_each_line_outage(name):
    import pandapower as pp
    import pandapower.networks as nets

    from gridpriv.grid.pandapower import convert_net

    net = getattr(nets, name)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = convert_net(net)
    case, link = classic(converted.case), converted.link
    before, compared = analysed(case), 0
    for contingency in contingencies(case, "branches"):
        element = link.branch[contingency.elements(case)[0][0]]
        if element.table != "line":
            continue
        net.line.loc[element.index, "in_service"] = False
        try:
            pp.runpp(net, tolerance_mva=1e-9, calculate_voltage_angles=True, numba=False)
        except pp.LoadflowNotConverged:
            continue
        finally:
            net.line.loc[element.index, "in_service"] = True
        state = post_contingency(before, Outage(before, contingency))
        for bus, number in link.bus.items():
            if np.isfinite(net.res_bus.vm_pu[bus]):
                vm = state.vm[case.index_of[number]]
                assert vm == pytest.approx(net.res_bus.vm_pu[bus], abs=1e-6), contingency
        for k, row in enumerate(state.case.branch_row.tolist()):
            other = link.branch[row - 1]
            if other.table == "line":
                expected = net.res_line.loc[other.index]
                flow = case.base_mva * state.s_from[k]
                assert flow.real == pytest.approx(expected.p_from_mw, abs=1e-4), contingency
                assert flow.imag == pytest.approx(expected.q_from_mvar, abs=1e-4), contingency
        compared += 1
    assert compared > 20


def chain3():
    """1 - 2 - 3, demand 0.1, 0.3, 0.2; generators of 1.0 at bus 1 and 0.15 at bus 3; no losses."""
    case = meshed(
        [0.1, 0.3, 0.2],
        1.0,
        [0, 2],
        [0.0, 0.0],
        [1.0, 0.15],
        ([0, 1], [1, 2]),
        [0.0, 0.0],
        [0.1, 0.1],
    )
    return replace(case, qd=np.array([0.0, 0.03, 0.04]), pg=np.array([0.5, 0.1]))


def test_an_island_sheds_what_its_generators_cannot_give_at_constant_power_factor():
    before = analysed(chain3())
    outcome = assess(before, single("branch:1"))  # 2 and 3 are left with 0.15 for 0.5
    assert outcome.shed_mw == pytest.approx(35.0, abs=1e-3)
    assert outcome.islanded_mw == pytest.approx(10.0)  # bus 1 is the smaller part
    state = post_contingency(before, Outage(before, single("branch:1")))
    assert state.p_shed == pytest.approx([0.0, 0.21, 0.14], abs=1e-5)
    assert state.q_shed == pytest.approx([0.0, 0.021, 0.028], abs=1e-6)
    assert state.pg == pytest.approx([0.1, 0.15], abs=1e-6)
    assert not outcome.secure and not outcome.violations


def test_an_island_counts_negative_demand_as_supply_when_it_sheds():
    case = replace(chain3(), pd=np.array([0.1, 0.3, -0.1]), pg=np.array([0.2, 0.1]))
    before, outage = analysed(case), single("branch:1")  # 0.15 and 0.1 supply 0.3
    assert assess(before, outage).shed_mw == pytest.approx(5.0, abs=1e-3)
    assert correct(before, outage, [("all", np.arange(3))], 1e4).shed_mw == pytest.approx(5.0)
    state = post_contingency(before, Outage(before, outage))
    assert state.p_shed == pytest.approx([0.0, 0.05, 0.0], abs=1e-5)
    assert state.curtailed_mw == 0.0


@pytest.mark.parametrize("branch", [1, 2, 5, 20])
def test_islanded_demand_is_what_loses_the_only_source_of_a_feeder(branch):
    """case33bw has one generator, at its first bus; networkx finds what it still reaches."""
    case = load_case("case33bw")
    outcome = assess(analysed(case), single(f"branch:{branch}"))
    graph = nx.Graph()
    graph.add_nodes_from(range(case.n_bus))
    kept = case.branch_row != branch
    graph.add_edges_from(zip(case.f_bus[kept], case.t_bus[kept], strict=True))
    lost = set(range(case.n_bus)) - nx.node_connected_component(graph, int(case.gen_bus[0]))
    demand = case.base_mva * case.pd[list(lost)].sum()
    assert (outcome.islanded_mw, outcome.shed_mw) == pytest.approx((demand, demand))


def test_an_island_without_generation_or_demand_is_de_energized():
    case = chain3()
    alone = replace(case, pmax=np.array([1.0, 0.0]), pg=np.array([0.6, 0.0]))
    outcome = assess(analysed(alone), single("branch:2"))
    assert (outcome.islanded_mw, outcome.shed_mw) == pytest.approx((20.0, 20.0))
    unused = replace(case, pd=np.array([0.1, 0.3, 0.0]), pg=np.array([0.3, 0.1]))
    state = post_contingency(before := analysed(unused), Outage(before, single("branch:2")))
    assert state.deenergized.tolist() == [False, False, True] and state.vm[2] == 0.0
    assert state.pg == pytest.approx([0.4]) and state.shed_mw == 0.0


@pytest.mark.parametrize("degrees", [30.0, 150.0, 180.0, -150.0])
def test_a_transformer_outage_leaves_the_grid_that_fed_it_with_less_load(degrees):
    """Whatever the vector group of a transformer, its feeding line loses the load behind it."""
    case = chain3()
    small = {"x": np.array([0.1, 1.0]), "shift": np.array([0.0, np.deg2rad(degrees)])}
    fed = replace(case, pmax=np.array([1.0, 0.0]), pg=np.array([0.6, 0.0]), **small)
    before = analysed(fed)
    state = post_contingency(before, Outage(before, single("branch:2")))
    # r = 0, x = 0.1, v_1 = 1: the line carries 0.3 + 0.03j to bus 2 alone
    v2 = np.roots([1.0, 0.0, 2 * 0.1 * 0.03 - 1.0, 0.0, 0.1**2 * (0.3**2 + 0.03**2)]).max()
    assert state.vm == pytest.approx([1.0, v2.real, 0.0], abs=1e-6)
    assert state.s_from[0].real == pytest.approx(0.3, abs=1e-6)


def test_an_outage_of_every_generator_sheds_all_demand():
    before = analysed(chain3())
    outcome = assess(before, Contingency("both", "multiple", ("gen:1", "gen:2")))
    assert (outcome.status, outcome.shed_mw) == ("converged", pytest.approx(60.0))


def test_a_demand_beyond_every_line_has_no_state():
    # two lines of 0.1 p.u. carry 2 * V^2 / (2 x) = 10 at most to a load without reactive support
    case = meshed([0.0, 7.0], 99.0, [0], [0.0], [20.0], ([0, 0], [1, 1]), [0.0, 0.0], [0.1, 0.1])
    outcome = assess(analysed(replace(case, pg=np.array([7.0]))), single("branch:2"))
    assert (outcome.status, outcome.secure, outcome.worst_loading_percent) == (
        "diverged",
        False,
        None,
    )


def test_worst_loading_is_by_the_emergency_rating_and_ranks_first():
    lines = [0.1, 0.2, 0.2]
    case = meshed([0.0, 0.9], 9.0, [0], [0.0], [2.0], ([0, 0, 0], [1, 1, 1]), [0.0] * 3, lines)
    case = replace(
        case,
        pg=np.array([0.9]),
        rate=np.array([0.6, 0.4, 0.4]),
        rate_b=np.zeros(3),
        rate_c=np.array([0.0, 0.8, 0.0]),
    )
    assert branch_rating(case, "B").tolist() == [0.6, 0.4, 0.4]
    assert branch_rating(case, "C").tolist() == [0.6, 0.8, 0.4]
    rows = security_analysis(analysed(case), contingencies(case, "branches"))
    # without branch 1 the others take half each: 0.45 of 0.4 on branch 3
    assert rows[0].contingency.name == "branch:1"
    assert rows[0].worst_branch == "1-2"
    reactive = (
        post_contingency(before := analysed(case), Outage(before, single("branch:1")))
        .s_from[1]
        .imag
    )
    assert rows[0].worst_loading_percent == pytest.approx(
        100 * np.hypot(0.45, reactive) / 0.4, abs=1e-3
    )
    assert [limit.kind for limit in rows[0].violations] == ["line"]
    assert len(security_analysis(analysed(case, "A"), [single("branch:1")])[0].violations) == 2


def dc_flows(case, injected, in_service):
    """Flows of a DC power flow by a dense least-squares solution."""
    b = in_service / case.x / case.tap
    rows = np.arange(case.n_branch)
    incidence = np.zeros((case.n_branch, case.n_bus))
    incidence[rows, case.f_bus], incidence[rows, case.t_bus] = 1.0, -1.0
    angles = np.linalg.lstsq(incidence.T @ np.diag(b) @ incidence, injected, rcond=None)[0]
    return b * (incidence @ angles)


def test_a_grid_whose_reactances_cancel_is_not_screened():
    case = load_case("case14")
    before = analysed(case)
    f, t, x = case.f_bus.copy(), case.t_bus.copy(), case.x.copy()
    f[19], t[19], x[19] = f[13], t[13], -x[13]  # beside the only branch of bus 8
    twice = replace(case, f_bus=f, t_bus=t, x=x, tap=np.ones(case.n_branch))
    screening = DcOutages(replace(before.state, case=twice))
    assert screening.after(np.array([0]), np.array([], int)) is None


def test_the_screening_is_the_dc_power_flow_without_the_elements():
    case = load_case("case14")
    before = analysed(case)
    rng = np.random.default_rng(0)
    listed = [
        *contingencies(case, "all"),
        Contingency("two", "multiple", ("branch:1", "branch:7")),
        Contingency("both", "multiple", ("branch:3", "gen:2")),
    ]
    flow = rng.normal(size=case.n_bus)
    flow -= flow.mean()
    start = dc_flows(case, flow, np.ones(case.n_branch))
    state = replace(before.state, s_from=start + 0j, s_to=-start + 0j)
    screening = DcOutages(state)
    compared = 0
    for contingency in listed:
        branches, gens = contingency.elements(case)
        in_service = np.ones(case.n_branch)
        in_service[branches] = 0.0
        result = screening.after(branches, gens)
        if "branch:14" in contingency.outages:  # bus 8 hangs on it alone
            assert result is None
            continue
        room = np.maximum(case.pmax - before.state.pg, 0.0)
        room[gens] = 0.0
        lost = before.state.pg[gens].sum()
        change = np.bincount(case.gen_bus, lost * room / room.sum(), case.n_bus)
        np.subtract.at(change, case.gen_bus[gens], before.state.pg[gens])
        expected = np.abs(dc_flows(case, flow + change, in_service))
        assert result == pytest.approx(expected, abs=1e-9), contingency
        compared += 1
    assert compared == len(listed) - 1


def test_screened_outages_are_those_whose_estimate_is_below_the_threshold():
    before = analysed(case39())
    listed = contingencies(before.case, "all")
    full = {row.contingency: row for row in security_analysis(before, listed)}
    threshold = float(np.median([row.worst_loading_percent or 0.0 for row in full.values()]))
    rows = security_analysis(before, listed, screen=threshold)
    screened = [row for row in rows if row.status == "screened"]
    assert 0.2 * len(listed) < len(screened) < 0.8 * len(listed)
    for row in screened:
        exact = full[row.contingency]
        assert row.worst_loading_percent < threshold
        assert exact.worst_loading_percent == pytest.approx(row.worst_loading_percent, rel=0.1)
        assert exact.islanded_mw == exact.shed_mw == 0.0
    assert all(full[row.contingency] == row for row in rows if row.status != "screened")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,outage\na,branch:99\n", "line 2: outage = 'branch:99': must be"),
        ("name,outage\na,line:1\n", "line 2: outage = 'line:1': must be"),
        ("name,outage\na,branch:1\nb,gen:9\n", "line 3: outage = 'gen:9'"),
        ("name,outage\na,gen:1\na,gen:1\n", "line 3: a: outage gen:1 is repeated"),
        ("name,outage\n,gen:1\n", "line 2: name"),
        ("name,outage\n", "lists no contingency"),
        ("bus,zone\n1,2\n", "it must be name,outage"),
    ],
)
def test_a_wrong_contingency_list_is_refused_with_its_line(text, message, tmp_path, case14):
    path = tmp_path / "list.csv"
    path.write_text(text)
    with pytest.raises(InputError, match="contingency list") as refused:
        contingencies(case14, path)
    assert message in str(refused.value)


def test_rows_of_one_name_fail_together(tmp_path, case14):
    path = tmp_path / "list.csv"
    path.write_text("name,outage\nnorth,branch:1\nplant,gen:2\nnorth,branch:2\n")
    north, plant = contingencies(case14, path)
    assert (north.kind, north.outages) == ("multiple", ("branch:1", "branch:2"))
    assert (plant.kind, plant.outages) == ("generator", ("gen:2",))
    assert north.places(case14) == ("1-2", "1-5") and plant.places(case14) == ("2",)


def test_marginal_violations_rank_after_all_others() -> None:
    """0.0002 p.u. beyond a band of 1.06 is 0.02 %; 0.7 MVAr beyond 10 MVAr is no rounding."""
    place = {"element": 1, "limit": "upper", "at": "1"}
    voltage = Limit(
        kind="voltage", **place, value=1.0602, bound=1.06, amount=2e-4, unit="p.u.", rating=1.06
    )
    reactive = Limit(
        kind="generator Q", **place, value=10.7, bound=10.0, amount=0.7, unit="MVAr", rating=10.0
    )
    assert voltage.marginal and not reactive.marginal
    smaller = voltage._replace(value=1.0601, amount=1e-4)
    none, nearer, near, clear = (
        PostContingency(
            Contingency("x", "branch", ("branch:1",)), "converged", None, "", limits, 0.0, 0.0
        ).severity
        for limits in ((), (smaller,), (voltage,), (reactive,))
    )
    assert clear > near > nearer > none


def test_a_contingency_without_an_ac_state_is_the_one_that_no_plan_prevents():
    """It has no violations whose sizes could be compared."""
    limit = SimpleNamespace(kind=next(iter(secure.SLACK_PRICE)), amount=0.3, bound=1.0)
    analysed = [
        SimpleNamespace(contingency=SimpleNamespace(name=name), status=status, violations=violated)
        for name, status, violated in (("a", "converged", [limit]), ("b", "diverged", []))
    ]
    passes = Counter({"a": secure.MOST_VIOLATED_PLANS, "b": secure.MOST_VIOLATED_PLANS})
    assert secure._repeatedly_violating(analysed, frozenset(), passes) == {"b"}
    assert not passes
