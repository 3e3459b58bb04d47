"""Agent, coordinator and every transport on an application without a grid."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
from tanks import FLOW, INFLOW, Waterworks, rules

from gridpriv.consensus import coordinator
from gridpriv.consensus.agent import Agent
from gridpriv.consensus.coordinator import Plan, State, make_consensus, rounds
from gridpriv.consensus.messages import Exchange, Order, Reply, Stale
from gridpriv.consensus.schedules import ConstantPenalty, nonsmooth_step
from gridpriv.consensus.transport import Workers, answers, call, equal_shares, exchange, in_process
from gridpriv.core.errors import InputError, SolverError, WorkerError
from gridpriv.privacy.release import Release

CONSENSUS = make_consensus([np.array([0]), np.array([0])])
SHORT = {"demands": (3.0, 4.0), "capacities": (2.0, 1.5)}  # 3.5 are lacking


def start(rho=1.0):
    return State(np.zeros(2), np.zeros(2), np.array([rho]))


def play(transport, count):
    plan = Plan(count, nonsmooth_step(), ConstantPenalty(1.0))
    return list(rounds(exchange(transport, Agent.round), CONSENSUS, start(), plan))


@pytest.mark.parametrize(("update", "count"), [("exact", 60), ("linearized", 1000)])
def test_the_tanks_share_what_is_lacking(update, count):
    """Against the optimum by hand: lacks of 1.75 each, and 0.75 through the pipe."""
    transport = in_process(Waterworks(**SHORT, rules=rules(update)))
    turns = play(transport, count)
    near = 1e-6 if update == "exact" else 0.05
    assert turns[-1].w == pytest.approx([0.75], abs=near)
    assert turns[-1].residual < near
    metrics = answers(transport, call(Agent.metrics))
    assert sum(f.values["objective"] for f in metrics) == pytest.approx(2 * 1.75**2, abs=10 * near)


def test_one_exact_round_is_the_minimiser_by_hand():
    """At w = 1, rho = 2, dual 0: min (d - x + q)^2 + (q - 1)^2, x at its capacity of 2."""
    (agent,) = Waterworks(**SHORT, rules=rules()).make([0])
    reply = agent.round(Order(1, np.array([1.0]), np.array([2.0]), 1.0))
    assert agent.average[INFLOW] == pytest.approx(2.0)
    # 2 (d - x + q) + 2 (q - 1) = 0 at d - x = 1
    assert agent.average[FLOW] == pytest.approx(0.0, abs=1e-12)
    assert reply.sent == pytest.approx(agent.average[[FLOW]])
    # the dual is now rho (w - q) = 2, so with w = 1 again: 2 (1 + q) + 2 (q - 1) - 2 = 0
    agent.round(Order(2, np.array([1.0]), np.array([2.0]), 1.0))
    assert agent.average[FLOW] == pytest.approx(0.5)


def test_several_updates_send_their_average_and_go_on_from_the_last():
    """Two linearized updates by hand, without a bound in reach."""
    (agent,) = Waterworks(**SHORT, rules=rules("linearized", local_updates=2)).make([1])
    agent.round(Order(1, np.array([0.0]), np.array([1.0]), 0.1))
    # z <- (z/eta + 2 b (d - b'z)) / (1/eta + [0, rho]), d = 4
    z, updates = np.zeros(2), []
    for _ in range(2):
        pull = 10.0 * z + 2.0 * np.ones(2) * (4.0 - z.sum())
        z = np.minimum(pull / np.array([10.0, 11.0]), [1.5, 4.0])
        updates.append(z)
    assert agent.average == pytest.approx(np.mean(updates, axis=0))
    again = agent.twin(np.array([4.0]), None)
    assert again.iterate.z == pytest.approx(z)


def test_rehearsing_and_getting_ready_touch_nothing_private():
    def twin(demand):
        works = Waterworks((demand, 4.0), (2.0, 1.5), rules(target="demand"))
        return works.make([0])[0]

    here, there = twin(3.0), twin(300.0)
    order = Order(1, np.array([0.3]), np.array([1.0]), 1.0)
    for agent in (here, there):
        agent.ready(order)
        assert agent.average == pytest.approx([0.0, 0.0])
        assert agent.warm_start(order).releases == {}
        assert agent.drawn() == {}
    assert np.array_equal(here.average, there.average)
    assert here.average[FLOW] != 0.0


@pytest.mark.parametrize(
    ("target", "noise_schedule", "updates", "expected"),
    [
        ("demand", "once", 3, 1),
        ("demand", "round", 3, 4),
        ("demand", "update", 3, 12),
        ("objective", "update", 2, 8),
        ("output", "update", 2, 8),
        ("none", "update", 2, 0),
    ],
)
def test_every_draw_is_in_a_reply_counted_and_planned(target, noise_schedule, updates, expected):
    works = Waterworks(**SHORT, rules=rules("linearized", target, updates, noise_schedule))
    transport = in_process(works)
    port, text = exchange(transport, Agent.round), [Counter(), Counter()]
    ones = transport.call_all(call(Agent.release, np.ones(1), 1.0))

    def listening(orders):
        replies = port(orders)
        for total, reply in zip(text, replies, strict=True):
            total.update(reply.releases)
        return replies

    plan = Plan(4, nonsmooth_step(), ConstantPenalty(1.0))
    assert len(list(rounds(listening, CONSENSUS, start(), plan))) == 4
    drawn = answers(transport, call(Agent.drawn))
    assert [dict(total) for total in text] == drawn
    assert [sum(counts.values()) for counts in drawn] == [expected] * 2
    assert [set(counts) for counts in drawn] == [{r} if expected else set() for r in ones]


@pytest.mark.parametrize("update", ["exact", "linearized"])
@pytest.mark.parametrize("target", ["none", "demand", "objective", "output"])
def test_only_an_output_may_not_rest_on_a_point_near_the_minimiser(target, update, monkeypatch):
    """Its noise covers changes of the minimizer; a point near it may change more.

    Demand and gradients are released before the solver, and a warm_start releases nothing. The
    trial before any charge has the accuracy that rounds require.
    """
    agent = Waterworks(**SHORT, rules=rules(update, target)).agent(1)
    name = "minimise_exact" if update == "exact" else "minimise"
    solve, calls = getattr(agent.problem, name), []

    def noted(linear, metric, *, near, within):
        calls.append((near, within))
        return solve(linear, metric)

    monkeypatch.setattr(agent.problem, name, noted)
    monkeypatch.setattr(agent.problem, "solver_error", 0.5)
    order = Order(1, np.array([1.0]), np.array([2.0]), 1.0)
    agent.warm_start(order)
    agent.ready(order)
    agent.round(order)
    assert [near for near, _ in calls] == [True, target != "output", target != "output"]
    proven = [within < np.inf for _, within in calls]
    assert proven == [False, target == "output", target == "output"]


def test_a_charge_comes_before_its_draw_and_a_refusal_leaves_nothing():
    class Purse(list):
        def __call__(self, owner, releases):
            if len(self) == 2:
                raise InputError("no more")
            self.append((owner, releases))

    works = Waterworks(**SHORT, rules=rules("linearized", "objective", 3))
    agent = works.agent(1)
    agent.releases.charge = Purse()
    streams = []

    class Watched:
        def stream(self, *place):
            streams.append((place, len(agent.releases.charge)))
            return np.random.default_rng(0)

    agent.releases.streams = Watched()
    with pytest.raises(InputError, match="no more"):
        agent.round(Order(1, np.zeros(1), np.ones(1), 1.0))
    assert streams == [((1, 1, 1), 1), ((1, 1, 2), 2)]
    assert sum(agent.drawn().values()) == 2
    assert agent.average == pytest.approx([0.0, 0.0])


# ---- what a coordinator can see


def test_a_coordinator_is_given_replies_and_nothing_else():
    """By its types: orders and replies have no field for a figure, and no agent is imported."""
    assert {f.name for f in fields(Reply)} == {"sent", "releases"}
    assert {f.name for f in fields(Order)} == {"number", "w", "penalty", "step"}
    hints = get_type_hints(rounds)
    assert hints["exchange"] is Exchange
    assert set(hints) == {"exchange", "consensus", "state", "plan", "return"}
    source = ast.parse(Path(coordinator.__file__).read_text(encoding="utf-8"))
    imported = {
        node.module for node in ast.walk(source) if isinstance(node, ast.ImportFrom) and node.module
    }
    assert {m for m in imported if m.startswith("gridpriv.consensus")} == {
        "gridpriv.consensus.messages",
        "gridpriv.consensus.schedules",
    }


@pytest.mark.parametrize("away", [1, 3])
def test_rounds_go_on_while_an_agent_is_away(away):
    """The others converge to its last sent value; the absent agent does not take part."""
    zones = in_process(Waterworks(**SHORT, rules=rules("exact")))
    last, back = np.zeros(1), 60

    def carried(given):
        nonlocal last
        replies = exchange(zones, Agent.round)(given)
        if away <= given[0].number < back:
            return [replies[0], Stale(last, {})]
        last = replies[1].sent
        return replies

    plan = Plan(100, nonsmooth_step(), ConstantPenalty(1.0), tolerance=1e-3)
    turns = list(rounds(carried, CONSENSUS, start(), plan))
    assert min(turn.farthest for turn in turns[: back - 1]) < plan.tolerance
    assert back <= len(turns) < 100


def test_what_a_coordinator_does_follows_from_what_was_sent():
    """Another waterworks that sends the same gets the same orders: penalties and stopping too."""
    first = in_process(Waterworks(**SHORT, rules=rules()))
    orders, tape = [], []

    def recorded(given):
        replies = exchange(first, Agent.round)(given)
        orders.append(given)
        tape.append([Reply(reply.sent.copy(), {}) for reply in replies])
        return replies

    plan = Plan(50, nonsmooth_step(), ConstantPenalty(1.0), tolerance=1e-3)
    length = len(list(rounds(recorded, CONSENSUS, start(), plan)))
    assert 1 < length < 50
    again, played = [], iter(tape)

    def frozen(given):
        again.append(given)
        return next(played)

    assert len(list(rounds(frozen, CONSENSUS, start(), plan))) == length
    for item, other in zip(chain(*orders), chain(*again), strict=True):
        assert (item.number, item.step) == (other.number, other.step)
        assert np.array_equal(item.w, other.w)
        assert np.array_equal(item.penalty, other.penalty)


# ---- transports


PROCESSES = [partial(Workers, workers=1), partial(Workers, workers=2)]


@pytest.fixture(scope="module")
def dask():
    """The address of a Dask cluster of three processes; two tanks leave one of them idle."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


def same_everywhere(make):
    """A noisy run is the same to the last bit, figures and draws included."""
    works = Waterworks(**SHORT, rules=rules("linearized", "demand", 2, "round"))
    near = in_process(works)
    far = make(works)
    try:
        here, there = play(near, 12), play(far, 12)
        for item, other in zip(here, there, strict=True):
            assert item.residual == other.residual
            assert np.array_equal(item.w, other.w)
            assert np.array_equal(item.state.dual, other.state.dual)
        for method in (Agent.drawn, Agent.smoothness):
            assert far.call_all(call(method)) == near.call_all(call(method))
        text = [
            [vars(each) for each in where.call_all(call(Agent.metrics))] for where in (near, far)
        ]
        assert text[0] == text[1]
    finally:
        far.close()


@pytest.mark.parametrize("make", PROCESSES)
def test_worker_processes_change_nothing(make):
    same_everywhere(make)


@pytest.mark.slow
def test_a_dask_cluster_changes_nothing(dask):
    from gridpriv.consensus.transport import Cluster

    same_everywhere(partial(Cluster, address=dask))


def the_others_go_on(make):
    """A tank that fails in round 3 does not stop the other, and both report their draws.

    The rounds end with its error; the other has drawn in round 3 as well.
    """
    works = Waterworks(**SHORT, rules=rules("exact", "demand", 1, "round"), breaks=(1, 3))
    transport = make(works)
    try:
        with pytest.raises(SolverError, match="zone tank 1, round 3, local update 1: the pipe"):
            play(transport, 5)
        drawn = answers(transport, call(Agent.drawn))
        assert [sum(item.values()) for item in drawn] == [3, 3]
    finally:
        transport.close()


@pytest.mark.parametrize("make", [in_process, *PROCESSES])
def test_a_failure_is_one_agents_only(make):
    the_others_go_on(make)


@pytest.mark.slow
def test_a_failure_on_a_dask_cluster_is_one_agents_only(dask):
    from gridpriv.consensus.transport import Cluster

    the_others_go_on(partial(Cluster, address=dask))


def test_a_lost_worker_is_an_error_in_its_place():
    transport = Workers(Waterworks(**SHORT, rules=rules()), workers=2)
    try:
        os.kill(transport._workers[0].process.pid, signal.SIGKILL)
        lost, smoothness = transport.call_all(call(Agent.smoothness))
        assert isinstance(lost, WorkerError)
        assert "killed by signal 9" in str(lost)
        assert smoothness == 4.0
    finally:
        transport.close()


def test_an_answer_that_nobody_waited_for_is_dropped():
    """As after Ctrl-C between a question and its answer."""
    transport = Workers(Waterworks(**SHORT, rules=rules()), workers=2)
    try:
        answer, Workers._answer = Workers._answer, None
        try:
            with pytest.raises(TypeError):
                transport.call_all(call(Agent.metrics))
        finally:
            Workers._answer = answer
        assert answers(transport, call(Agent.smoothness)) == [4.0, 4.0]
    finally:
        transport.close()


class NoAgents:
    """A factory that fails."""

    @property
    def sizes(self):
        return [1, 1]

    def make(self, positions):
        raise SolverError(f"no member {positions}")


@pytest.mark.parametrize("make", [in_process, *PROCESSES])
def test_a_factory_that_fails_says_why(make):
    with pytest.raises(SolverError, match="no member"):
        make(NoAgents())


@pytest.mark.slow
def test_nothing_answers_at_an_address():
    pytest.importorskip("distributed")
    from gridpriv.consensus.transport import Cluster

    with pytest.raises(InputError, match="cannot be reached"):
        Cluster(Waterworks(**SHORT, rules=rules()), "tcp://127.0.0.1:1")


def test_shares_are_even_and_whole():
    shares = equal_shares([5, 1, 1, 1, 4, 3], 3)
    assert sorted(chain(*shares)) == list(range(6))
    assert sorted(sum([5, 1, 1, 1, 4, 3][k] for k in share) for share in shares) == [5, 5, 5]


def test_a_script_without_a_main_guard_works(tmp_path):
    """It used to be run again in every worker: two tracebacks and a hang."""
    script = tmp_path / "script.py"
    script.write_text(
        "from gridpriv import load_case, make_settings, run, shipped_zoning\n"
        "case = load_case('case14')\n"
        "settings = make_settings(mechanism='none', rounds=1, solver='clarabel', workers=2)\n"
        "print(run(case, shipped_zoning(case), settings).as_dict()['ended'])\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("finished", "", 0)


def test_a_reply_holds_releases_only():
    works = Waterworks(**SHORT, rules=rules("exact", "demand", 1, "round"))
    replies = exchange(in_process(works), Agent.round)([Order(1, np.zeros(1), np.ones(1), 1.0)] * 2)
    for reply in replies:
        assert reply.sent.shape == (1,)
        assert all(isinstance(release, Release) for release in reply.releases)
