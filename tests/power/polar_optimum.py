"""A second AC optimum: polar voltages, CasADi's own derivatives, admittances of ``ac_reference``.

It shares only Ipopt with gridpriv's: no rectangular rows, no analytic derivatives.
"""

from __future__ import annotations

import casadi as ca
import numpy as np
from ac_reference import chain_matrix


def polar_optimum(case, shed_price=None, cost=None, power_factor=True):
    """(value, shed in p.u. per bus) of min cost(pg) + shed_price * shed, or of min shed."""
    n, g = case.n_bus, case.n_gen
    va, vm = ca.SX.sym("va", n), ca.SX.sym("vm", n)
    pg, qg, shed = ca.SX.sym("pg", g), ca.SX.sym("qg", g), ca.SX.sym("shed", n)
    lack_p = [float(p) for p in case.pd]
    lack_q = [float(q) for q in case.qd]
    rows, low, high = [], [], []
    for i in range(n):
        lack_p[i] += case.gs[i] * vm[i] ** 2 - shed[i]
        ratio = case.qd[i] / case.pd[i] if case.pd[i] > 0 and power_factor else 0.0
        lack_q[i] += -case.bs[i] * vm[i] ** 2 - ratio * shed[i]
    for k in range(g):
        lack_p[case.gen_bus[k]] -= pg[k]
        lack_q[case.gen_bus[k]] -= qg[k]
    for k in range(case.n_branch):
        y = chain_matrix(case, k)
        for a, b, near, far in (
            (0, 1, case.f_bus[k], case.t_bus[k]),
            (1, 0, case.t_bus[k], case.f_bus[k]),
        ):
            own, mutual = y[a, a], y[a, b]
            turn = va[near] - va[far] - np.angle(mutual)
            p = own.real * vm[near] ** 2 + abs(mutual) * vm[near] * vm[far] * ca.cos(turn)
            q = -own.imag * vm[near] ** 2 + abs(mutual) * vm[near] * vm[far] * ca.sin(turn)
            lack_p[near] += p
            lack_q[near] += q
            if 0 < case.rate[k] < np.inf:
                rows.append(p**2 + q**2)
                low.append(-np.inf)
                high.append(case.rate[k] ** 2)
        if np.isfinite(case.angmin[k]) or np.isfinite(case.angmax[k]):
            rows.append(va[case.f_bus[k]] - va[case.t_bus[k]])
            low.append(case.angmin[k])
            high.append(case.angmax[k])
    rows += lack_p + lack_q
    low += [0.0] * 2 * n
    high += [0.0] * 2 * n
    reference = np.flatnonzero(case.reference)[0]
    reach = np.where(np.arange(n) == reference, 0.0, np.pi)
    x = ca.vertcat(va, vm, pg, qg, shed)
    most = np.maximum(case.pd, 0.0)
    if shed_price == np.inf:
        most = 0 * most
    lower = np.concatenate([-reach, case.vmin, case.pmin, case.qmin, 0 * most])
    upper = np.concatenate([reach, case.vmax, case.pmax, case.qmax, most])
    f = ca.sum1(shed) * (1.0 if shed_price in {None, np.inf} else shed_price)
    if cost is not None:
        f += sum(cost(k, pg[k]) for k in range(g))
    quiet = {"print_time": False, "ipopt.print_level": 0, "ipopt.sb": "yes"}
    solver = ca.nlpsol("polar", "ipopt", {"x": x, "f": f, "g": ca.vertcat(*rows)}, quiet)
    middle = [
        np.where(np.isfinite(a + b), (a + b) / 2, 0.0)
        for a, b in ((case.pmin, case.pmax), (case.qmin, case.qmax))
    ]
    start = np.concatenate([np.zeros(n), np.ones(n), *middle, most / 2])
    solution = solver(x0=start, lbx=lower, ubx=upper, lbg=low, ubg=high)
    assert solver.stats()["success"], solver.stats()["return_status"]
    return float(solution["f"]), np.asarray(solution["x"]).ravel()[-n:]
