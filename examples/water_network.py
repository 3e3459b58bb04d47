"""Run another network on the same core: three water districts share the flow in their pipes.

    python examples/water_network.py

District k pumps x (m3/h, at most its capacity) from its own well and takes b'q from its pipes, to
meet its true demand d: f(x, q; d) = (d - x - b'q)^2 + 0.01 x^2. Protected is a change of one
district's demand by at most BETA m3/h. Each district releases its demand once, with Laplace noise;
the rounds read only this release. In the end a district takes its deficit (by its true demand) from
its own tank; a negative deficit overflows.
"""

import numpy as np
from scipy.optimize import lsq_linear

from gridpriv.consensus.agent import Agent, AgentRules, Minimiser
from gridpriv.consensus.coordinator import Plan, State, make_consensus, rounds
from gridpriv.consensus.schedules import ConstantPenalty, nonsmooth_step
from gridpriv.consensus.transport import InProcess, exchange
from gridpriv.privacy.accounting import total_pure
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import NoiseRule, Perturbation
from gridpriv.privacy.sensitivity import Sensitivity

BETA, EPSILON = 5.0, 1.0  # m3/h; total epsilon of a district
DEMAND = np.array([120.0, 80.0, 40.0])  # m3/h, protected
CAPACITY = np.array([60.0, 90.0, 130.0])  # m3/h of each well, public
PIPES = [(0, 1), (1, 2), (0, 2)]  # positive from the first to the second
MOST = 50.0  # m3/h through a pipe
PUMPING, ROUNDS = 0.01, 100


class District:
    """Local problem of a district, in z = (x, q of its two pipes)."""

    def __init__(self, place):
        self.name, self.key = f"district {place + 1}", place + 1
        at_hand = [k for k, ends in enumerate(PIPES) if place in ends]
        self.coordinates = np.array([place, *(len(DEMAND) + k for k in at_hand)])
        inflow = [1.0 if PIPES[k][1] == place else -1.0 for k in at_hand]
        self.supply = np.array([1.0, *inflow])  # supply of the district is supply'z
        self.curvature = 2.0 * np.outer(self.supply, self.supply)
        self.curvature[0, 0] += 2.0 * PUMPING
        self.smoothness = float(np.linalg.eigvalsh(self.curvature)[-1])
        self.box = [0.0, -MOST, -MOST], [CAPACITY[place], MOST, MOST]

    def start(self):
        return np.zeros(3)

    def gradient(self, z, data):
        return self.curvature @ z - 2.0 * self.supply * data[0]

    def minimise_exact(self, linear, metric, *, near=False, within=np.inf):
        factor = np.linalg.cholesky(self.curvature + np.diag(metric)).T
        target = np.linalg.solve(factor.T, -linear)
        return Minimiser(lsq_linear(factor, target, self.box, tol=1e-12).x)

    def metrics(self, z, data):
        deficit = float(data[0] - self.supply @ z)
        return {"objective": deficit**2 + PUMPING * z[0] ** 2, "deficit": deficit}

    @property
    def disclosure(self):
        return self  # the district releases its demand by the three methods below

    def measure(self, data):
        return data

    def sensitivity(self, adjacency, norm):
        return Sensitivity(adjacency, norm, "one demand changes by beta")

    def estimate(self, released, release):
        return released


def run(noise):
    """Return the agents after the last round, and the last round."""
    target = Perturbation("none") if noise is None else Perturbation("demand", "once")
    rules = AgentRules("exact", 1, target, noise, adjacency=BETA)
    shared = np.array([False, True, True])
    agents = [
        Agent(District(k), DEMAND[[k]], shared, rules, NoiseStreams(1), proxy=np.array([80.0]))
        for k in range(len(DEMAND))
    ]
    consensus = make_consensus([agent.problem.coordinates[shared] for agent in agents])
    ends = np.zeros(2 * len(PIPES))  # copies of each pipe's flow in its two districts
    begin = State(ends, ends, np.ones(len(PIPES)))
    plan = Plan(ROUNDS, nonsmooth_step(), ConstantPenalty(1.0))
    *_, last = rounds(exchange(InProcess(agents), Agent.round), consensus, begin, plan)
    return agents, last


for name, noise in {
    "noise-free": None,
    f"epsilon {EPSILON:g}": NoiseRule("laplace", "simulated", multiplier=1.0 / EPSILON),
}.items():
    agents, last = run(noise)
    print(f"{name}: pipes {last.w.round(1)} m3/h, consensus residual {last.residual:.1e} m3/h")
    for agent in agents:
        metrics, drawn = agent.metrics().values, agent.drawn()
        certified = total_pure({release.certified: n for release, n in drawn.items()})
        privacy = f"certified epsilon {certified:g}" if drawn else "no privacy"
        print(f"  {agent.problem.name}: deficit {metrics['deficit']:6.2f} m3/h; {privacy}")
print(f"Protected: one district's demand changes by {BETA:g} m3/h at most.")
