"""Rounds in which zones solve the relaxation together, against one solve of the whole grid."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import block_diag

from gridpriv import InputError, load_case, make_settings, partition, relax, run
from gridpriv.consensus.transport import answers, call, each, in_process
from gridpriv.power.conic_block import ConeScaling
from gridpriv.power.objective import generation_cost
from gridpriv.power.schedule import conic_rounds
from gridpriv.power.solvers.clarabel import Cones
from gridpriv.power.zone_agent import ZoneAgent
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.run import open_rounds, run_prepared, zone_agents

pytestmark = pytest.mark.usefixtures("no_replans")

DATA = Path(__file__).parent.parent / "data"
PGLIB, TIGHT = DATA / "pglib", DATA / "tight.m"
CONES = Cones(np.array([1, 3, 1, 4, 2]))


def interior(generator):
    """Return a point inside the cones."""
    v = generator.normal(size=len(CONES.block))
    return v - (np.minimum(CONES.depth(v)[0], 0.0) - 0.1)[CONES.block] * CONES.unit


def arrow(v):
    """Return the matrix of the Jordan product with v, cone by cone."""
    blocks = []
    for part in np.split(v, CONES.head[1:]):
        block = part[0] * np.eye(len(part))
        block[0], block[:, 0] = part, part
        blocks.append(block)
    return block_diag(*blocks)


@pytest.mark.parametrize("seed", range(5))
def test_the_scaling_is_that_of_nesterov_and_todd(seed):
    generator = np.random.default_rng(seed)
    s, z = interior(generator), interior(generator)
    scaling = ConeScaling.of(CONES, s, z)
    np.testing.assert_allclose(scaling.times(z), scaling.inverse_times(s), atol=1e-10)
    w = np.array([scaling.times(unit) for unit in np.eye(len(s))])
    np.testing.assert_allclose(w, w.T, atol=1e-10)
    np.testing.assert_allclose(scaling.matrix().toarray(), w, atol=1e-10)
    inverse = scaling.matrix(inverse=True).toarray()
    np.testing.assert_allclose(w @ inverse, np.eye(len(s)), atol=1e-9)
    np.testing.assert_allclose(scaling.inverse_times(w @ s), s, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_products_and_quotients_are_those_of_arrow_matrices(seed):
    generator = np.random.default_rng(seed)
    u, v = interior(generator), generator.normal(size=len(CONES.block))
    np.testing.assert_allclose(CONES.product(u, v), arrow(u) @ v, atol=1e-12)
    np.testing.assert_allclose(CONES.quotient(v, u), np.linalg.solve(arrow(u), v), atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_the_longest_step_ends_at_the_boundary(seed):
    generator = np.random.default_rng(seed)
    v, change = interior(generator), generator.normal(size=len(CONES.block))
    length = CONES.longest(v, change)
    at = [CONES.depth(v + share * length * change)[0].min() for share in (0.999, 1.001)]
    assert at[0] > 0.0 > at[1]
    assert CONES.longest(v, CONES.unit) == np.inf


@pytest.mark.parametrize(
    ("name", "zones"),
    [
        ("case14", 3),
        ("case9", 2),
        ("case57", 4),
        pytest.param("case14", 14, marks=pytest.mark.slow),
        pytest.param("case118", 10, marks=pytest.mark.slow),
    ],
)
def test_zones_find_the_optimum_of_the_whole_relaxation(name, zones):
    """Clarabel's optimum of the whole grid, its imbalance at the price that it has in rounds."""
    compare_with_whole(load_case(name), zones)


@pytest.mark.parametrize(
    "zones", [1, 6, *(pytest.param(zones, marks=pytest.mark.slow) for zones in (2, 3, 4))]
)
def test_zones_of_one_bus_find_the_optimum_of_a_congested_grid(zones):
    """Cones that hold border variables alone: W^2 would lose the step's digits."""
    compare_with_whole(load_case(TIGHT), zones)


@pytest.mark.parametrize(
    "name",
    [
        "case5",
        "case9",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("case24_ieee_rts", "case30", "case39")
        ),
    ],
)
def test_zones_of_one_bus_find_the_optimum(name):
    case = load_case(name)
    compare_with_whole(case, case.n_bus)


@pytest.mark.parametrize(
    ("name", "zones"),
    [
        ("case5", 2),
        ("case9", 1),
        ("case14", "all"),
        (TIGHT, 2),
        *(
            pytest.param(name, zones, marks=pytest.mark.slow)
            for name, zones in (
                ("case5", "all"),
                ("case9", "all"),
                ("case14", 4),
                (TIGHT, 4),
                (TIGHT, "all"),
            )
        ),
    ],
)
def test_rounds_without_a_tolerance_end_at_the_optimum(name, zones):
    """The last points are on the cones' boundaries but for rounding: no step is left to compute."""
    case = load_case(name)
    compare_with_whole(case, case.n_bus if zones == "all" else zones, rounds=150, tolerance=0.0)


def test_a_gradient_of_rounding_errors_is_none():
    """At an imbalance weight of 1e9 rounding keeps the gradient at 8e-4, and it is optimal."""
    case = load_case("case14")
    words = {"mechanism": "none", "planning": "soc", "objective": "cost", "tolerance": 1e-5}
    result = run(case, partition(case, 14), make_settings(rounds=60, imbalance_weight=1e9, **words))
    whole, last = relax(case, "cost", imbalance_weight=1e9), result.trace.rounds[-1]
    assert len(result.trace.rounds) < 20
    gens = slice(*(result.network.offsets[name] for name in ("pg", "qg")))
    assert last.metrics["cost"] == pytest.approx(generation_cost(case, whole.z[gens]), rel=2e-5)


def compare_with_whole(case, zones, rounds=60, tolerance=1e-5):
    """Compare rounds with Clarabel's optimum of the whole grid."""
    settings = make_settings(mechanism="none", planning="soc", rounds=rounds, tolerance=tolerance)
    result = run(case, partition(case, zones), settings)
    weight = result.network.objective.weight
    whole, last = relax(case, "cost", imbalance_weight=weight), result.trace.rounds[-1]
    assert last.consensus_residual_max < 1e-5
    assert last.dual_residual < 1e-4
    gens = slice(*(result.network.offsets[name] for name in ("pg", "qg")))
    cost = generation_cost(case, whole.z[gens])
    assert last.metrics["cost"] == pytest.approx(cost, rel=2e-5)
    squares = np.sum(np.square([whole.p_imbalance, whole.q_imbalance]))
    assert last.metrics["objective"] == pytest.approx(squares, rel=0.05, abs=1e-9)


@pytest.mark.parametrize(("name", "zones", "published"), [("14_ieee", 2, 12), ("30_ieee", 3, 12)])
def test_rounds_to_powermodelsadas_criterion(name, zones, published):
    """Residual below 1e-2 and cost within 1 % of the bound, from a round on that it needs, too."""
    case = load_case(PGLIB / f"pglib_opf_case{name}.m")
    settings = make_settings(mechanism="none", planning="soc", rounds=60, tolerance=1e-6)
    rounds = run(case, partition(case, zones), settings).rounds.iloc[published - 1 :]
    assert len(rounds) and (rounds.consensus_residual < 1e-2).all()
    np.testing.assert_allclose(rounds.cost, relax(case, "cost").bound, rtol=1e-2)


class Recording:
    """A transport that keeps every answer."""

    def __init__(self, inner):
        self.inner, self.replies_by_call = inner, []

    def call_all(self, calls):
        replies = answers(self.inner, calls)
        name = each(calls, 1)[0].method.__name__
        parts = [tuple(x) if isinstance(x, tuple) else (x,) for x in replies]
        self.replies_by_call.append(
            (name, [np.concatenate([np.ravel(p) for p in x]) for x in parts])
        )
        return replies


def played(case, other=None):
    """Return the answers of ten rounds on a release; with ``other``, on its demand all the same."""
    settings = make_settings(seed=5, planning="soc", noise_schedule="once", mechanism="laplace")
    prepared = prepare(case, partition(case, 3), settings)
    transport = in_process(zone_agents(prepared))
    open_rounds(prepared, transport)
    answers(transport, call(ZoneAgent.disclose))
    if other is not None:
        for agent, there in zip(transport.agents, other.agents, strict=True):
            releases = there.agent.releases
            agent.agent.releases.draw = releases.draw
            agent.agent.releases.estimate = releases.released_data
            assert not np.array_equal(agent.agent.data, there.agent.data)
    recording = Recording(transport)
    number = np.concatenate([zone.coordinates for zone in prepared.zones])
    number, holders = np.unique(
        number[number < prepared.network.offsets["p_from"]], return_counts=True
    )
    assert len(list(islice(conic_rounds(recording, number[holders > 1]), 10))) == 10
    return recording.replies_by_call, transport


def test_rounds_read_released_demand_only():
    """On other demand with the releases frozen, every message is the same to the bit."""
    case = load_case("case14")
    replies_by_call, transport = played(case)
    for (verb, here), (again, there) in zip(
        replies_by_call, played(case.scale_load(0.6), transport)[0], strict=True
    ):
        assert verb == again
        for item, other in zip(here, there, strict=True):
            assert np.array_equal(item, other), verb
    changed = played(case.scale_load(0.6))[0]
    assert any(
        not np.array_equal(a[1][0], b[1][0]) for a, b in zip(replies_by_call, changed, strict=True)
    )


def test_each_zone_is_charged_for_one_release(case14, zones14):
    charged = []
    settings = make_settings(seed=1, planning="soc", rounds=30)
    result = run_prepared(
        prepare(case14, zones14, settings), charge=lambda name, _: charged.append(name)
    )
    assert sorted(charged) == sorted(zones14.names)
    assert 5 < len(result.rounds) < 30


def test_fresh_noise_allows_no_newton_steps():
    with pytest.raises(InputError, match="acceleration"):
        make_settings(acceleration="newton", noise_schedule="round")
    settings = make_settings(planning="soc", noise_schedule="round")
    assert settings.as_dict()["acceleration"] == "none"
    assert make_settings(planning="soc").as_dict()["acceleration"] == "newton"
