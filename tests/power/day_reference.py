"""A central multi-period AC optimum in polar voltages, differentiated by CasADi."""

from __future__ import annotations

import casadi as ca
import numpy as np


class Program:
    """Variables and rows of a nonlinear program."""

    def __init__(self):
        self.x, self.low, self.high, self.start = [], [], [], []
        self.g, self.lower, self.upper = [], [], []
        self.cost = 0

    def var(self, count, low, high, start):
        v = ca.MX.sym("v", count)
        low, high, start = (np.broadcast_to(a, count) for a in (low, high, start))
        for bounds, given in ((self.low, low), (self.high, high)):
            bounds.append(given)
        self.x.append(v)
        self.start.append(np.clip(start, low, high))
        return v

    def row(self, expression, low, high):
        count = expression.shape[0]
        self.g.append(expression)
        self.lower.append(np.broadcast_to(low, count))
        self.upper.append(np.broadcast_to(high, count))

    def solve(self):
        x = ca.vertcat(*self.x)
        options = {"print_time": 0, "ipopt.print_level": 0, "ipopt.sb": "yes", "ipopt.tol": 1e-8}
        problem = {"x": x, "f": self.cost / 1e3, "g": ca.vertcat(*self.g)}
        solver = ca.nlpsol("day", "ipopt", problem, options)
        parts = (self.start, self.low, self.high, self.lower, self.upper)
        x0, lbx, ubx, lbg, ubg = (np.concatenate(part) for part in parts)
        solution = solver(x0=x0, lbx=lbx, ubx=ubx, lbg=lbg, ubg=ubg)
        assert solver.stats()["success"]
        return 1e3 * float(solution["f"])


def _at(count, places):
    places = [int(i) for i in places]
    return ca.DM.triplet(
        places, list(range(len(places))), ca.DM.ones(len(places)), count, len(places)
    )


def _flow(near, far, angle, own, mutual):
    c, s = ca.cos(angle), ca.sin(angle)
    p = own.real * near**2 + near * far * (mutual.real * c + mutual.imag * s)
    return p, -own.imag * near**2 + near * far * (mutual.real * s - mutual.imag * c)


def _step(program, case, pd, qd):
    """Add one step; return its outputs."""
    n, f, t = case.n_bus, case.f_bus, case.t_bus
    y = 1 / (case.r + 1j * case.x)
    tap, half = case.tap * np.exp(1j * case.shift), 0.5j * case.b
    fixed = np.zeros(n, bool)
    fixed[np.flatnonzero(case.reference)[:1]] = True
    va = program.var(n, np.where(fixed, 0, -np.inf), np.where(fixed, 0, np.inf), 0.0)
    vm = program.var(n, case.vmin, case.vmax, 1.0)
    pg = program.var(case.n_gen, case.pmin, case.pmax, (case.pmin + case.pmax) / 2)
    qg = program.var(case.n_gen, case.qmin, case.qmax, (case.qmin + case.qmax) / 2)
    i, j = [int(k) for k in f], [int(k) for k in t]
    angle = va[i] - va[j]
    pf, qf = _flow(vm[i], vm[j], angle, (y + half) / case.tap**2, -y / np.conj(tap))
    pt, qt = _flow(vm[j], vm[i], -angle, y + half, -y / tap)
    at_gen, at_f, at_t = _at(n, case.gen_bus), _at(n, f), _at(n, t)
    for output, demand, shunt, out, back in (
        (pg, pd, -case.gs, pf, pt),
        (qg, qd, case.bs, qf, qt),
    ):
        flows = ca.mtimes(at_f, out) + ca.mtimes(at_t, back)
        program.row(ca.mtimes(at_gen, output) - demand + shunt * vm**2 - flows, 0, 0)
    k = np.flatnonzero(case.rate > 0).tolist()
    if k:
        for p, q in ((pf, qf), (pt, qt)):
            program.row(p[k] ** 2 + q[k] ** 2, -np.inf, case.rate[k] ** 2)
    for g, cost in enumerate(case.cost):
        power = case.base_mva * pg[g]
        order = len(cost.values) - 1
        program.cost += sum(v * power ** (order - e) for e, v in enumerate(cost.values))
    return pg


def day_cost(case, pd, qd, chronology):
    """Return the least cost of a day in $; demand (steps, n) per unit."""
    program, hours = Program(), chronology.hours
    pg = ca.horzcat(*(_step(program, case, p, q) for p, q in zip(pd, qd, strict=True)))
    steps = len(pd)
    for g in np.flatnonzero(np.isfinite(chronology.ramp_up)).tolist():
        change = (pg[g, 1:] - pg[g, :-1]).T
        program.row(change, -chronology.ramp_down[g] * hours, chronology.ramp_up[g] * hours)
    for s in chronology.storages:
        charge = program.var(steps, 0, s.charge, 0.0)
        discharge = program.var(steps, 0, s.discharge, 0.0)
        energy, energies = s.start, []
        for t in range(steps):
            gained = s.charge_efficiency * charge[t] - discharge[t] / s.discharge_efficiency
            energy = (1 - s.loss) ** hours * energy + hours * gained
            energies.append(energy)
        program.row(ca.vertcat(*energies), np.r_[np.zeros(steps - 1), s.end], s.energy)
        program.row(pg[s.gen, :].T - discharge + charge, 0, 0)
    total = [0, 0]
    for g in np.flatnonzero((chronology.reserve_most > 0).any(axis=0)).tolist():
        up, down = (program.var(steps, 0, m, 0.0) for m in chronology.reserve_most[:, g])
        program.row(pg[g, :].T + up, -np.inf, case.pmax[g])
        program.row(pg[g, :].T - down, case.pmin[g], np.inf)
        for k, reserve in enumerate((up, down)):
            total[k] += reserve
            program.cost += case.base_mva * chronology.reserve_price[k, g] * ca.sum1(reserve)
    for k in (0, 1):
        if chronology.reserve_required[k].any():
            program.row(total[k], chronology.reserve_required[k], np.inf)
    return hours * program.solve()
