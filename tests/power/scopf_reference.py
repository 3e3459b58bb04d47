"""A central preventive SCOPF in polar voltages: all states after outages are variables of one NLP.

Independent code: CasADi differentiates, Ipopt solves; admittances of ``ac_reference``.
Generators hold their voltage set points after every outage unless they are at a reactive limit:
v0 - v = a - b with a, b >= 0, a (qmax - q) <= s and b (q - qmin) <= s for a small s. They share
missing power by their upward headroom.
"""

from __future__ import annotations

import casadi as ca
import numpy as np
from ac_reference import chain_matrix

SLACK = 1e-7


class Scopf:
    """Variables and rows of the problem."""

    def __init__(self, case):
        self.case, self.chain = case, [chain_matrix(case, k) for k in range(case.n_branch)]
        self.x, self.low, self.high, self.start = [], [], [], []
        self.g, self.lower, self.upper = [], [], []
        self.reference = int(np.flatnonzero(case.reference)[0])
        self.held = np.unique(case.gen_bus)

    def variables(self, name, low, high, start):
        v = ca.SX.sym(name, len(low))
        self.x.append(v)
        for values, given in ((self.low, low), (self.high, high), (self.start, start)):
            values.append(np.asarray(given, float))
        return v

    def rows(self, expressions, low, high):
        self.g += expressions
        self.lower += [low] * len(expressions)
        self.upper += [high] * len(expressions)

    def state(self, name, pg, rate, lost_branches=(), lost_gens=(), setpoint=None):
        """Add one AC state; return its voltage magnitudes."""
        case, n = self.case, self.case.n_bus
        reach = np.where(np.arange(n) == self.reference, 0.0, np.pi)
        va = self.variables(f"va{name}", -reach, reach, np.zeros(n))
        vm = self.variables(f"vm{name}", case.vmin, case.vmax, np.ones(n))
        in_service = np.ones(case.n_gen, bool)
        in_service[list(lost_gens)] = False
        qg = self.variables(
            f"q{name}",
            np.where(in_service, case.qmin, 0.0),
            np.where(in_service, case.qmax, 0.0),
            np.zeros(case.n_gen),
        )
        p = [case.pd[i] + case.gs[i] * vm[i] ** 2 for i in range(n)]
        q = [case.qd[i] - case.bs[i] * vm[i] ** 2 for i in range(n)]
        for g in np.flatnonzero(in_service):
            p[case.gen_bus[g]] -= pg[g]
            q[case.gen_bus[g]] -= qg[g]
        for k in sorted(set(range(case.n_branch)) - set(lost_branches)):
            y, f, t = self.chain[k], case.f_bus[k], case.t_bus[k]
            for a, b, near, far in ((0, 1, f, t), (1, 0, t, f)):
                turn = va[near] - va[far] - np.angle(y[a, b])
                size = abs(y[a, b]) * vm[near] * vm[far]
                p_in = y[a, a].real * vm[near] ** 2 + size * ca.cos(turn)
                q_in = -y[a, a].imag * vm[near] ** 2 + size * ca.sin(turn)
                p[near] += p_in
                q[near] += q_in
                if 0 < rate[k] < np.inf:
                    self.rows([p_in**2 + q_in**2], -np.inf, rate[k] ** 2)
        self.rows([*p, *q], 0.0, 0.0)
        if setpoint is not None:
            self._holding(name, in_service, vm, qg, setpoint)
        return vm

    def _holding(self, name, in_service, vm, qg, setpoint):
        """Add the complementarity of voltages and reactive limits, bus by bus."""
        buses = np.unique(self.case.gen_bus[in_service]).tolist()
        none = np.zeros(len(buses))
        below, above = (self.variables(f"{s}{name}", none, none + 1.0, none) for s in "ab")
        for j, i in enumerate(buses):
            own = np.flatnonzero(in_service & (self.case.gen_bus == i)).tolist()
            total = sum(qg[g] for g in own)
            self.rows([setpoint[i] - vm[i] - below[j] + above[j]], 0.0, 0.0)
            self.rows([below[j] * (self.case.qmax[own].sum() - total)], -np.inf, SLACK)
            self.rows([above[j] * (total - self.case.qmin[own].sum())], -np.inf, SLACK)


def scopf_cost(case, outages, rate_after):
    """Return the cost in $/h; ``outages`` are pairs of (branch indices, generator indices)."""
    problem = Scopf(case)
    middle = (case.pmin + case.pmax) / 2
    pg = problem.variables("pg", case.pmin, case.pmax, middle)
    setpoint = problem.state("0", pg, case.rate)
    for number, (branches, gens) in enumerate(outages, start=1):
        alpha = problem.variables(f"a{number}", [-1.0], [1.0], [0.0])
        pg_after = [pg[g] + alpha[0] * (case.pmax[g] - pg[g]) for g in range(case.n_gen)]
        problem.state(str(number), pg_after, rate_after, branches, gens, setpoint)
    cost = 0
    for g, item in enumerate(case.cost):
        degree, output = len(item.values) - 1, case.base_mva * pg[g]
        cost += sum(c * output ** (degree - k) for k, c in enumerate(item.values))
    x = ca.vertcat(*problem.x)
    quiet = {"print_time": 0, "ipopt.print_level": 0, "ipopt.sb": "yes", "ipopt.tol": 1e-8}
    nlp = {"x": x, "f": cost / 1e3, "g": ca.vertcat(*problem.g)}
    solver = ca.nlpsol("scopf", "ipopt", nlp, quiet)
    parts = (problem.start, problem.low, problem.high)
    x0, lbx, ubx = (np.concatenate(part) for part in parts)
    solution = solver(x0=x0, lbx=lbx, ubx=ubx, lbg=problem.lower, ubg=problem.upper)
    assert solver.stats()["success"], solver.stats()["return_status"]
    return 1e3 * float(solution["f"])
