"""An AC power flow that shares no code with gridpriv's: reference of the tests.

Rectangular coordinates (V = e + jf) with |V|^2 rows at voltage-controlled buses, admittances
multiplied out branch by branch from chain matrices of an ideal transformer and a pi section.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve


def chain_matrix(case, k):
    """[y_ff y_ft; y_tf y_tt] of a branch, from the A B C D parameters of its chain."""
    z, shunt = complex(case.r[k], case.x[k]), 0.5j * case.b[k]
    ratio = case.tap[k] * np.exp(1j * case.shift[k])
    pi = np.array([[1 + z * shunt, z], [shunt * (2 + z * shunt), 1 + z * shunt]])
    transformer = np.array([[ratio, 0], [0, 1 / np.conj(ratio)]])
    (a, b), (c, d) = transformer @ pi  # [v_f; i_f] = chain [v_t; -i_t]
    return np.array([[d / b, c - d * a / b], [-1 / b, a / b]])


def chain_admittance(case):
    """Y of the buses, sparse."""
    rows, columns, values = [], [], []
    for k in range(case.n_branch):
        f, t = int(case.f_bus[k]), int(case.t_bus[k])
        rows += [f, f, t, t]
        columns += [f, t, f, t]
        values += list(chain_matrix(case, k).ravel())
    for i in range(case.n_bus):
        rows.append(i)
        columns.append(i)
        values.append(complex(case.gs[i], case.bs[i]))
    return sparse.csr_matrix((values, (rows, columns)), shape=(case.n_bus, case.n_bus))


def classic(case):
    """The case as a textbook power flow sees it: one slack, generators at their set points."""
    references = np.flatnonzero(case.reference)
    generating = references[np.isin(references, case.gen_bus)]
    first = int(generating[0] if len(generating) else case.gen_bus[np.argmax(case.pmax)])
    slack = case.gen_bus == first
    endless = np.full(case.n_gen, np.inf)
    return replace(
        case,
        qmin=-endless,
        qmax=endless,
        pmin=np.where(slack, -np.inf, case.pg),
        pmax=np.where(slack, np.inf, case.pg),
        reference=np.arange(case.n_bus) == first,
    )


def rectangular_newton(case, voltage, most=40):
    """Voltages of the textbook power flow (one slack bus), or None where it does not converge."""
    y, n = chain_admittance(case), case.n_bus
    slack = int(np.flatnonzero(case.reference)[0])
    pv = np.zeros(n, bool)
    pv[case.gen_bus] = True
    target = np.abs(voltage) ** 2
    power = -(case.pd + 1j * case.qd)
    np.add.at(power, case.gen_bus, case.pg)
    others = np.flatnonzero(np.arange(n) != slack)
    for _ in range(most):
        current = y @ voltage
        mismatch = voltage * np.conj(current) - power
        magnitude = np.abs(voltage) ** 2 - target
        residual = np.concatenate(
            [mismatch.real[others], np.where(pv, magnitude, mismatch.imag)[others]]
        )
        if not np.isfinite(residual).all() or np.abs(residual).max() > 1e8:
            return None
        if np.abs(residual).max() < 1e-11:
            return voltage
        # S = V conj(YV): dS/de = diag(conj I) + diag(V) conj(Y), dS/df = j(diag(conj I) - ...)
        own, far = sparse.diags(np.conj(current)), sparse.diags(voltage) @ y.conj()
        by_e, by_f = (own + far).tocsr(), (1j * (own - far)).tocsr()
        hold, free = sparse.diags(pv.astype(float)), sparse.diags((~pv).astype(float))
        lower_e = hold @ sparse.diags(2 * voltage.real) + free @ by_e.imag
        lower_f = hold @ sparse.diags(2 * voltage.imag) + free @ by_f.imag
        jacobian = sparse.bmat(
            [
                [by_e.real[others][:, others], by_f.real[others][:, others]],
                [lower_e.tocsr()[others][:, others], lower_f.tocsr()[others][:, others]],
            ],
            format="csc",
        )
        try:
            step = spsolve(jacobian, -residual)
        except RuntimeError:
            return None
        voltage = voltage.copy()
        voltage[others] += step[: len(others)] + 1j * step[len(others) :]
    return voltage if np.abs(residual).max() < 1e-9 else None
