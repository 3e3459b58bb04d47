"""Successive runs of the same zones: their results, and work that is not repeated."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from gridpriv import make_settings
from gridpriv.consensus.agent import WarmStart
from gridpriv.consensus.messages import Order, Reply
from gridpriv.consensus.transport import ReusedAgents, call, in_process
from gridpriv.core.errors import SolverError, WorkerError
from gridpriv.power import zone_agent
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.zone_agent import ZoneAgent
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.run import default_transport, run_prepared

pytestmark = pytest.mark.usefixtures("no_replans")

NOISY = make_settings(rounds=3, planning="soc", acceleration="anderson", seed=4, objective="cost")


def last(result):
    """Everything zones ended with and sent, to the last bit."""
    return [item.z.tobytes() for item in result.outcomes], result.trace.sent.tobytes()


@pytest.fixture()
def counted(monkeypatch):
    """How often zones are compiled and problems solved."""
    made: Counter[str] = Counter()
    compiled, solved = zone_agent.compile_zone, ZoneProblem.minimise_exact

    def compile_zone(zone):
        made["compiled"] += 1
        return compiled(zone)

    def minimise_exact(self, linear, metric, *, near=False, within=np.inf):
        made["solved"] += 1
        return solved(self, linear, metric, near=near, within=within)

    monkeypatch.setattr(zone_agent, "compile_zone", compile_zone)
    monkeypatch.setattr(ZoneProblem, "minimise_exact", minimise_exact)
    return made


@pytest.mark.parametrize(
    ("given", "workers"),
    [
        ({"mechanism": "none"}, 1),
        ({"noise_schedule": "once", "mechanism": "knorm"}, 1),
        ({"acceleration": "newton"}, 2),
        ({"acceleration": None, "penalty": make_settings(penalty="geometric:1,2,2,8").penalty}, 1),
        ({"acceleration": None, "start": "flat"}, 1),
    ],
)
def test_a_run_after_another_is_what_it_is_alone(case14, zones14, given, workers):
    later = replace(NOISY, **given)
    alone = run_prepared(prepare(case14, zones14, later))
    with closing(ReusedAgents(default_transport(workers))) as zones:
        run_prepared(prepare(case14, zones14, NOISY), transport=zones)
        after = run_prepared(prepare(case14, zones14, later), transport=zones)
    assert last(after) == last(alone)
    assert after.trace.releases == alone.trace.releases


def test_zones_are_compiled_and_rehearse_once(case14, zones14, counted):
    with closing(ReusedAgents(in_process)) as zones:
        for settings in (NOISY, replace(NOISY, mechanism="none"), replace(NOISY, seed=5)):
            run_prepared(prepare(case14, zones14, settings), transport=zones)
    assert counted == {"compiled": 3, "solved": 3 * (20 + 3 * 3)}


def test_zones_of_a_lost_process_are_made_again():
    """A transport that cannot restart is closed, and another one is used for the next run."""

    class Lost:
        def __init__(self, factory):
            carried.append(factory)

        def call_all(self, calls):
            name = calls[0].method.__name__
            return [WorkerError("a worker was lost") if name == "reset" else name]

        def close(self):
            closed.append(self)

    class Factory:
        model = "the same"

        def resets(self):
            return [call(ZoneAgent.reset)]

    carried, closed = [], []
    first, second = Factory(), Factory()
    zones = ReusedAgents(Lost)
    zones(first).close()
    assert closed == []
    assert zones(second).call_all([call(ZoneAgent.round)]) == ["round"]
    assert carried == [first, second]
    assert len(closed) == 1
    zones.close()
    assert len(closed) == 2


def test_a_run_that_rehearses_less_goes_on_from_there(case14, zones14, monkeypatch):
    from gridpriv.zonal import opening

    with closing(ReusedAgents(in_process)) as zones:
        run_prepared(prepare(case14, zones14, NOISY), transport=zones)
        monkeypatch.setattr(opening, "WARM_START_ROUNDS", 7)
        after = run_prepared(prepare(case14, zones14, NOISY), transport=zones)
    alone = run_prepared(prepare(case14, zones14, NOISY))
    assert last(after) == last(alone)
    assert not np.isnan(after.outcomes[0].z).any()


class Adds:
    """Agent whose state is the sum of its orders, weighted by step and penalty."""

    def __init__(self):
        self.iterate = 0.0

    def warm_start(self, order):
        if order.w[0] == 99.0:
            raise SolverError("no solution")
        self.iterate += order.w[0] * order.penalty[0] * order.step
        return Reply(np.array([self.iterate]), {})


def order(number, w, penalty=1.0, step=1.0):
    return Order(number, np.array([float(w)]), np.array([penalty]), step)


def test_a_warm_start_that_failed_leaves_the_next_one_where_it_alone_would_stand():
    warm_start = WarmStart()
    for text in ((1, 10, 100), (1, 99), (1, 5)):
        agent = Adds()
        warm_start.reset()
        try:
            replies = [warm_start.reply(agent, order(n, w)).sent[0] for n, w in enumerate(text)]
        except SolverError:
            continue
        assert replies == list(np.cumsum(text))
        assert agent.iterate == sum(text)


@pytest.mark.parametrize("other", [order(1, 7), order(1, 2, penalty=3.0), order(1, 2, step=5.0)])
def test_an_order_that_differs_in_anything_is_rehearsed(other):
    warm_start = WarmStart()
    for second in (order(1, 2), other, order(1, 2), order(1, 2)):
        agent, alone = Adds(), Adds()
        warm_start.reset()
        for text in (order(0, 1), second, order(2, 4)):
            assert warm_start.reply(agent, text).sent == alone.warm_start(text).sent
        warm_start.leave(agent)
        assert agent.iterate == alone.iterate
