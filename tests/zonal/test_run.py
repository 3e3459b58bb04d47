"""Whole runs compared with published values, and changes that must not affect a run."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from gridpriv import InputError, SolverError, load_case, make_settings, run, shipped_zoning
from gridpriv.consensus.transport import Cluster
from gridpriv.grid.partition import partition
from gridpriv.grid.zoning import zoning_from_groups
from gridpriv.power.centralized import relax
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.run import run_prepared, zone_agents

pytestmark = pytest.mark.usefixtures("few_replans")


def preset(**given):
    return make_settings("ryu-kim", **({"solver": "clarabel"} | given))


@pytest.mark.usefixtures("no_replans")
@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("case14", {1: 1.332, 10: 0.8904, 50: 0.2936, 100: 0.1557}),
        ("case118", {1: 35.50, 10: 20.63, 50: 7.689, 100: 4.304}),
    ],
)
def test_the_nonprivate_preset_reaches_the_published_objectives(name, published):
    case = load_case(name)
    result = run(case, shipped_zoning(case), preset(mechanism="none"))
    objective = result.rounds.set_index("round").objective
    for round_, value in published.items():
        assert objective[round_] == pytest.approx(value, rel=0.01)
    if name == "case14":
        assert result.rounds.consensus_residual.iloc[-1] < 1e-3


@pytest.mark.usefixtures("no_replans")
@pytest.mark.parametrize(("name", "least"), [("case14", 1e-5), ("case118", 1e-8)])
def test_exact_boundary_updates_need_few_rounds(name, least):
    case = load_case(name)
    settings = make_settings(
        objective="imbalance", mechanism="none", penalty="1", start="flat", solver="clarabel"
    )
    result = run(case, shipped_zoning(case), settings)
    assert result.rounds.objective.iloc[9] < least


@pytest.mark.parametrize("name", ["case14", "case118"])
def test_one_default_rule_converges_within_15_rounds(name):
    case = load_case(name)
    settings = make_settings(objective="imbalance", mechanism="none", rounds=15, tolerance=0.0)
    result = run(case, shipped_zoning(case), settings)
    good = (result.rounds.objective < 1e-5) & (result.rounds.consensus_residual < 1e-4)
    assert good.any()
    assert result.as_dict()["final"]["physical"]["shed_mw"] < 1e-3


def test_a_converged_run_is_within_every_limit_after_redispatch(case14, zones14):
    result = run(case14, zones14, make_settings(mechanism="none", rounds=15, solver="clarabel"))
    final = result.as_dict()["final"]
    assert final["physical"]["violations"] == []
    assert final["physical"]["fallback_zones"] == []
    assert final["physical"]["ac_feasible"] is True
    served = result.buses.pd_mw - result.buses.redispatch_shed_mw
    assert served.sum() == pytest.approx(259.0, abs=1e-2)


@pytest.mark.usefixtures("no_replans")
@pytest.mark.parametrize("name", ["case14"])
def test_objective_perturbation_beats_output_perturbation_tenfold(name):
    """RK section 6.1.2 at epsilon 0.05, mean of 2 seeds, 30 rounds; E = 5 lowers the residual."""
    case = load_case(name)
    zoning = shipped_zoning(case)

    def last(perturbation, seed, updates=1, mechanism="laplace"):
        settings = preset(
            mechanism=mechanism,
            perturbation=perturbation,
            budget="per-release:0.05",
            seed=seed,
            rounds=30,
            local_updates=updates,
        )
        return run(case, zoning, settings).rounds.iloc[-1]

    seeds = range(2)
    objective, output = ([last(p, s) for s in seeds] for p in ("objective", "output"))
    mean = [np.mean([row.objective for row in rows]) for rows in (objective, output)]
    assert mean[1] > 10 * mean[0]
    five = np.mean([last("objective", s, 5).consensus_residual for s in seeds])
    assert five < np.mean([row.consensus_residual for row in objective])
    gaussian = [last(p, 0, mechanism="gaussian") for p in ("objective", "output")]
    noise = [row.noise_magnitude for row in (*gaussian, objective[0], output[0])]
    assert noise == sorted(noise, reverse=True)


@pytest.mark.usefixtures("no_replans")
def test_the_order_and_names_of_zones_change_nothing(case14, zones14):
    groups = [list(members) for members in zones14.members]
    shuffled = zoning_from_groups(case14, groups[::-1], "shuffled", ["a", "c", "b"])
    settings = make_settings(rounds=4, seed=11, solver="clarabel")
    first, other = run(case14, zones14, settings), run(case14, shuffled, settings)
    columns = ["objective", "consensus_residual", "noise_magnitude", "plan_shortage_mw"]
    assert first.rounds[columns].equals(other.rounds[columns])
    assert first.buses.plan_shortage_mw.equals(other.buses.plan_shortage_mw)


def test_workers_change_nothing(case14, zones14):
    settings = {"rounds": 3, "seed": 5, "solver": "clarabel", "local_updates": 2}
    first = run(case14, zones14, make_settings(**settings))
    two = run(case14, zones14, make_settings(**settings, workers=2))
    columns = ["objective", "consensus_residual", "noise_magnitude", "plan_shortage_mw"]
    assert first.rounds[columns].equals(two.rounds[columns])
    assert first.buses.equals(two.buses)
    assert first.as_dict()["privacy"] == two.as_dict()["privacy"]


@pytest.mark.slow
def test_a_cluster_changes_nothing(case14, zones14):
    distributed = pytest.importorskip("distributed")
    settings = make_settings(rounds=3, seed=5, solver="clarabel", local_updates=2)
    here = run(case14, zones14, settings)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        carry = partial(Cluster, address=cluster.scheduler_address)
        there = run(case14, zones14, settings, transport=carry)
    assert same_document(here) == same_document(there)
    assert here.buses.equals(there.buses)


def test_zones_plan_in_rounds_where_the_central_search_finds_nothing(case14, zones14, monkeypatch):
    """As on MATPOWER's case2848rte, where Ipopt ends infeasible and rounds find the optimum."""
    in_rounds = run(case14, zones14, make_settings(mechanism="none"))
    monkeypatch.setattr("gridpriv.power.schedule.estimated_optimum", lambda *_, **__: None)
    central = run(case14, zones14, make_settings(mechanism="none", coordination="central"))
    assert central.physical["ac_feasible"]
    assert central.physical["cost"] == in_rounds.physical["cost"]
    assert "AC rounds" in repr(central)
    private = run(case14, zones14, make_settings(coordination="central", budget="total:5", seed=1))
    assert [item.releases for item in private.certificates] == [1, 1, 1]


def same_document(result):
    """A run's document without its times."""
    document = result.as_dict()
    rounds = [row | {"seconds": None} for row in document["rounds"]]
    solver = document["solver"] | {"seconds_per_solve": None}
    return document | {"rounds": rounds, "timing": None, "solver": solver}


@pytest.mark.usefixtures("no_replans")
def test_different_seeds_differ_and_none_is_drawn_and_recorded(case14, zones14):
    settings = {"rounds": 2, "solver": "clarabel"}
    a = run(case14, zones14, make_settings(**settings, seed=1))
    b = run(case14, zones14, make_settings(**settings, seed=2))
    c = run(case14, zones14, make_settings(**settings))
    d = run(case14, zones14, make_settings(**settings))
    assert a.rounds.objective.iloc[0] != b.rounds.objective.iloc[0]
    assert c.seed != d.seed
    again = run(case14, zones14, make_settings(**settings, seed=c.seed))
    assert again.rounds.objective.equals(c.rounds.objective)


@pytest.mark.usefixtures("no_replans")
def test_the_warm_start_and_the_public_figures_do_not_see_the_demand(case14, zones14):
    """Another demand, same releases budget: penalties after the warm_start are the same."""
    settings = make_settings(rounds=1, seed=1, solver="clarabel")
    first = run(case14, zones14, settings)
    other = run(case14.scale_load(0.5), zones14, settings)
    columns = ["penalty_min", "penalty_max"]
    assert first.rounds[columns].equals(other.rounds[columns])


@pytest.mark.usefixtures("no_replans")
def test_demand_scales_and_outages_change_the_case(case14, zones14):
    settings = make_settings(
        objective="imbalance", mechanism="none", rounds=5, load_scale=4.0, solver="clarabel"
    )
    more = run(case14, zones14, settings)
    assert more.case.pd.sum() == pytest.approx(4 * case14.pd.sum())
    assert more.rounds.plan_shortage_mw.iloc[-1] > 200.0  # 1,036 MW of load on 772 MW of capacity
    out = make_settings(mechanism="none", rounds=2, outage=("gen:1", "branch:3"), solver="clarabel")
    assert prepare(case14, zones14, out).case.n_gen == 4
    with pytest.raises(InputError, match="gen:99"):
        run(case14, zones14, make_settings(outage=("gen:99",)))


@pytest.mark.usefixtures("no_replans")
def test_stopping_reads_the_public_consensus_residual(case14, zones14):
    settings = make_settings(
        mechanism="none", rounds=50, tolerance=1e-2, planning="soc", acceleration="anderson"
    )
    result = run(case14, zones14, settings)
    assert len(result.rounds) < 50
    assert result.rounds.consensus_residual_max.iloc[-1] < 1e-2
    assert (result.rounds.consensus_residual_max.iloc[:-1] >= 1e-2).all()


@pytest.mark.usefixtures("no_replans")
def test_the_largest_residual_is_between_the_norm_and_its_share(case14, zones14):
    """A 2-norm of S numbers is between the largest and the square root of S times the largest."""
    settings = make_settings(mechanism="none", rounds=6, planning="soc", acceleration="anderson")
    result = run(case14, zones14, settings)
    most, residual = result.rounds.consensus_residual_max, result.rounds.consensus_residual
    assert (most <= residual).all()
    assert (residual <= most * np.sqrt(len(result.trace.sent)) * (1 + 1e-12)).all()


@pytest.mark.usefixtures("no_replans")
def test_accelerated_rounds_converge_to_the_optimum_of_the_whole_grid(case14, zones14):
    """The least squared imbalance at four times the load, by one solve of the whole relaxation."""
    settings = make_settings(
        objective="imbalance", mechanism="none", rounds=30, load_scale=4.0, acceleration="anderson"
    )
    result = run(case14, zones14, settings)
    assert result.rounds.consensus_residual_max.iloc[-1] < 1e-3
    bound = relax(case14.scale_load(4.0)).bound
    assert result.rounds.objective.iloc[-1] == pytest.approx(bound, rel=1e-3)


@pytest.mark.parametrize(
    "other",
    [
        {"update": "linearized", "objective": "imbalance"},
        {"penalty": "3"},
        {"start": "flat"},
        {"noise_schedule": "round"},
        {"perturbation": "output"},
        {"coordination": "central"},
    ],
)
def test_acceleration_is_for_rounds_that_repeat_one_map(other):
    assert make_settings(**other).as_dict()["acceleration"] == "none"
    with pytest.raises(InputError, match="acceleration = 'anderson': must be"):
        make_settings(acceleration="anderson", **other)
    assert make_settings().as_dict()["acceleration"] == "anderson"


def test_a_failing_solver_names_zone_and_round_and_keeps_the_trace(case14, zones14, monkeypatch):
    from gridpriv.power.problem import ZoneProblem

    solve = ZoneProblem.minimise_exact
    calls = {"n": 0}

    def failing(self, linear, metric, **how):
        calls["n"] += 1
        if calls["n"] > 3 + 8:  # every zone is tried once before the first round
            raise SolverError("clarabel ended NumericalError")
        return solve(self, linear, metric, **how)

    monkeypatch.setattr(ZoneProblem, "minimise_exact", failing)
    settings = make_settings(rounds=5, seed=1, start="flat", planning="soc")
    early = []
    with pytest.raises(SolverError, match=r"zone 2|zone 3") as caught:
        run_prepared(prepare(case14, zones14, settings), leave=early.append)
    assert "round 3" in str(caught.value)
    assert caught.value.exit_code == 3
    assert len(early[0].rounds) == 2
    document = early[0].as_dict()
    assert (document["ended"], document["reason"]) == ("early", str(caught.value))


def test_a_delta_that_allows_one_entry_to_be_published_is_warned_of(case118, zones118):
    from gridpriv.core.errors import GridprivWarning

    with pytest.warns(GridprivWarning, match="1/236"):
        prepare(case118, zones118, preset(mechanism="gaussian", budget="per-release:0.1"))


@pytest.mark.parametrize(
    ("zones", "solver"), [(1, "clarabel"), (7, "ipopt"), (10, "clarabel"), (14, "ipopt")]
)
def test_a_zone_of_one_bus_runs_to_the_end_and_sheds_what_it_cannot_serve(case14, zones, solver):
    zoning = partition(case14, zones)
    result = run(case14, zoning, make_settings(mechanism="none", rounds=2, solver=solver))
    assert result.physical["fallback_zones"] == []
    assert np.isfinite(result.buses.redispatch_shed_mw).all()
    assert result.physical["failure"] == ""


@pytest.mark.parametrize(("zones", "solver_tolerance"), [(100, "tight"), (101, "matched")])
def test_zones_are_solved_loosely_where_there_are_more_than_a_hundred(
    case118, zones, solver_tolerance
):
    groups = np.array_split(np.arange(case118.n_bus), zones)
    prepared = prepare(case118, zoning_from_groups(case118, groups, "many"), make_settings())
    assert prepared.solver_tolerance == zone_agents(prepared).solver_tolerance == solver_tolerance


def test_a_scripts_linear_algebra_has_one_thread_while_a_run_runs_and_its_own_again_after(
    case14, zones14
):
    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    counts = set()
    with threadpool_limits(2, user_api="blas"):
        settings = make_settings(mechanism="none", rounds=1)
        run(case14, zones14, settings, watch=lambda _: counts.update(threads()))
        assert counts == {1}
        assert threads() == {2}
