"""Anderson steps: known properties, and accelerated rounds compared with plain ones."""

import numpy as np
import pytest
from tanks import Waterworks, rules

from gridpriv.consensus.agent import Agent
from gridpriv.consensus.coordinator import Anderson, Plan, State, Step, make_consensus, rounds
from gridpriv.consensus.messages import Reply
from gridpriv.consensus.schedules import ConstantPenalty, GeometricPenalty, nonsmooth_step
from gridpriv.consensus.transport import exchange, in_process

SLOW = {"demands": (3.0, 4.0), "capacities": (2.0, 1.5)}


def test_on_a_linear_map_the_fixed_point_is_there_after_as_many_steps_as_dimensions():
    """Walker and Ni (2011), theorem 2.2: it is GMRES, which is exact after n steps."""
    rng = np.random.default_rng(5)
    n = 6
    q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    matrix = q @ np.diag(np.linspace(-0.9, 0.99, n)) @ q.T  # plain steps lose 1 % a round
    offset, rho = rng.normal(size=n), rng.uniform(0.5, 2.0, n)
    fixed = np.linalg.solve(np.eye(n) - matrix, offset)
    rule, past, y = Anderson(memory=n, growth=np.inf, regular=0.0), [], np.zeros(n)
    for _ in range(n + 1):
        g = matrix @ y + offset - y
        past = rule.window([*past, Step(y, g)])
        y = y + g + rule.extrapolation(past, rho)
    assert y == pytest.approx(fixed, abs=1e-8)


def test_the_first_step_is_plain_and_memory_is_bounded():
    rule, rho = Anderson(memory=2), np.ones(1)
    past = [Step(np.array([float(i)]), np.array([1.0 / (i + 1)])) for i in range(5)]
    assert rule.extrapolation(past[:1], rho) == pytest.approx([0.0])
    assert len(rule.window(past)) == 3


def test_a_step_that_raises_the_residual_is_dropped():
    """The next round is the plain step from the best one: y + g = 0.5 + 1."""
    rule, rho = Anderson(growth=1.5), np.ones(1)
    good, bad = Step(np.array([0.5]), np.ones(1)), Step(np.array([4.0]), np.array([1.6]))
    lead = rule.extrapolation([good, bad], rho)
    assert bad.y + bad.g + lead == pytest.approx([1.5])
    accepted = Step(np.array([4.0]), np.array([1.4]))
    lead = rule.extrapolation([good, accepted], rho)
    assert accepted.y + accepted.g + lead != pytest.approx([1.5])


def drifting(penalty):
    """Return the number of rounds, of 50, of two agents whose values drift by 5e-4 per round."""
    consensus = make_consensus([np.array([0]), np.array([0])])
    plan = Plan(50, nonsmooth_step(), ConstantPenalty(penalty), tolerance=1e-3)

    def exchanged(orders):
        return [Reply(np.array([5e-4 * orders[0].number]), {}) for _ in orders]

    begin = State(np.zeros(2), np.zeros(2), np.array([penalty]))
    return len(list(rounds(exchanged, consensus, begin, plan)))


def test_rounds_stop_on_the_primal_and_the_dual_residual():
    assert drifting(penalty=1.0) < 5
    assert drifting(penalty=1000.0) == 50


TOO_LARGE = ConstantPenalty(30.0)


def played(acceleration, count, penalty=TOO_LARGE):
    """Return the rounds of two tanks with a penalty far too large."""
    transport = in_process(Waterworks(**SLOW, rules=rules("exact")))
    consensus = make_consensus([np.array([0]), np.array([0])])
    plan = Plan(count, nonsmooth_step(), penalty, acceleration=acceleration)
    begin = State(np.zeros(2), np.zeros(2), np.array([30.0]))
    return list(rounds(exchange(transport, Agent.round), consensus, begin, plan))


def test_accelerated_rounds_reach_the_optimum_that_plain_ones_are_far_from():
    """0.75 through the pipe, by hand."""
    plain, fast = played(None, 12), played(Anderson(), 12)
    assert abs(plain[-1].w[0] - 0.75) > 0.05
    assert fast[-1].w == pytest.approx([0.75], abs=1e-6)
    assert fast[-1].farthest < 1e-6
    # the coordinator's duals are the agents': both add rho (told - sent) of every round
    assert fast[-1].state.dual.sum() == pytest.approx(0.0, abs=1e-5)


class Recorded(Anderson):
    """Anderson's step that records its arguments."""

    def __init__(self, arguments):
        super().__init__(memory=2)
        object.__setattr__(self, "arguments", arguments)

    def extrapolation(self, past, rho):
        self.arguments.append((past, rho))
        return super().extrapolation(past, rho)


def test_every_round_in_the_window_is_a_step_at_the_next_penalty():
    arguments = []
    turns = played(Recorded(arguments), 6, GeometricPenalty(30.0, 2.0, 1, 1e6))
    for number, (past, rho) in enumerate(arguments):
        state = turns[number].state
        assert state.rho[0] == pytest.approx(30.0 * 2.0 ** (number + 2))
        np.testing.assert_array_equal(rho, np.repeat(state.rho, 2))
        assert len(past) == min(number, 2) + 1
        for step, turn in zip(past[::-1], turns[number::-1], strict=False):
            # where y = sent + dual/rho attracts, sent is the minimiser: its gradient is the dual
            np.testing.assert_allclose(rho * (step.y - turn.state.sent), turn.state.dual)


def test_rounds_of_another_penalty_are_steps_of_the_same_map():
    """Twice the penalty each round: the memory is expressed in the new penalty and stays exact."""
    grown = played(Anderson(), 9, GeometricPenalty(30.0, 2.0, 1, 1e6))
    assert grown[-1].w == pytest.approx([0.75], abs=1e-6)
    assert abs(played(None, 9, GeometricPenalty(30.0, 2.0, 1, 1e6))[-1].w[0] - 0.75) > 0.05
