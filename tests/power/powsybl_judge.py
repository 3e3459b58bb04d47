"""Reference of outages: pypowsybl's security analysis of the same grid and dispatch."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gridpriv.grid.scenarios import branch_rating

ENDLESS = 1e6
"""MVAr or MW that stand for no limit."""


def ids(case):
    """Return the names of branches and generators in the judge's network."""
    return [f"X{row}" for row in case.branch_row], [f"G{row}" for row in case.gen_row]


def kilovolts(case):
    return np.where(case.base_kv > 0, case.base_kv, 100.0)


def network(case, state, setpoint, rating):
    """Return the grid as a pypowsybl network, with a bus and a voltage level per bus."""
    import pypowsybl as pp

    base, n, kv = case.base_mva, case.n_bus, kilovolts(case)
    net = pp.network.create_empty("judge")
    net.create_substations(id="S")
    bus, level = [f"B{i}" for i in range(n)], [f"V{i}" for i in range(n)]

    def at(buses, end=""):
        return {
            f"voltage_level{end}_id": [level[i] for i in buses],
            f"bus{end}_id": [bus[i] for i in buses],
        }

    net.create_voltage_levels(
        id=level,
        substation_id=["S"] * n,
        topology_kind=["BUS_BREAKER"] * n,
        nominal_v=kv,
        high_voltage_limit=case.vmax * kv,
        low_voltage_limit=case.vmin * kv,
    )
    net.create_buses(id=bus, voltage_level_id=level)
    pd_, qd = case.pd - state.p_shed, case.qd - state.q_shed
    k = np.flatnonzero((pd_ != 0) | (qd != 0))
    net.create_loads(id=[f"L{i}" for i in k], p0=base * pd_[k], q0=base * qd[k], **at(k))
    k = np.flatnonzero((case.gs != 0) | (case.bs != 0))
    if len(k):
        names, ones = [f"C{i}" for i in k], [1] * len(k)
        shunts = {"id": names, "section_count": ones, "model_type": ["LINEAR"] * len(k), **at(k)}
        model = {
            "id": names,
            "g_per_section": base * case.gs[k] / kv[k] ** 2,
            "b_per_section": base * case.bs[k] / kv[k] ** 2,
            "max_section_count": ones,
        }
        net.create_shunt_compensators(
            pd.DataFrame(shunts).set_index("id"), pd.DataFrame(model).set_index("id")
        )
    _add_generators(net, case, state, setpoint, at)
    _add_branches(net, case, at, branch_rating(case, rating))
    return net


def _add_generators(net, case, state, setpoint, at):
    base, (_, names) = case.base_mva, ids(case)
    low, high, qlow, qhigh = (
        np.clip(base * x, -ENDLESS, ENDLESS) for x in (case.pmin, case.pmax, case.qmin, case.qmax)
    )
    regulating, output = (qhigh - qlow) > 1e-6, base * state.pg
    net.create_generators(
        id=names,
        target_p=output,
        min_p=np.minimum(low, output),
        max_p=np.maximum(high, output),
        target_v=setpoint[case.gen_bus] * kilovolts(case)[case.gen_bus],
        target_q=np.where(regulating, 0.0, qlow),
        voltage_regulator_on=regulating.tolist(),
        **at(case.gen_bus),
    )
    reactive = pd.DataFrame({"id": names, "min_q": qlow, "max_q": qhigh})
    net.create_minmax_reactive_limits(reactive.set_index("id"))


def _add_branches(net, case, at, rate):
    base, kv = case.base_mva, kilovolts(case)
    f, t, names = case.f_bus, case.t_bus, np.array(ids(case)[0])
    plain = (case.tap == 1) & (case.shift == 0) & (kv[f] == kv[t])
    k = np.flatnonzero(plain)
    z = kv[f[k]] ** 2 / base
    net.create_lines(
        id=names[k],
        r=case.r[k] * z,
        x=case.x[k] * z,
        g1=0 * z,
        g2=0 * z,
        b1=case.b[k] / 2 / z,
        b2=case.b[k] / 2 / z,
        **at(f[k], 1),
        **at(t[k], 2),
    )
    k = np.flatnonzero(~plain)
    z = kv[t[k]] ** 2 / base
    if len(k):
        net.create_2_windings_transformers(
            id=names[k],
            rated_u1=case.tap[k] * kv[f[k]],
            rated_u2=kv[t[k]],
            r=case.r[k] * z,
            x=case.x[k] * z,
            g=0 * z,
            b=case.b[k] / z,
            **at(f[k], 1),
            **at(t[k], 2),
        )
    s = np.flatnonzero(case.shift != 0)
    if len(s):
        changer = {
            "id": names[s],
            "target_deadband": 1.0,
            "regulation_mode": "CURRENT_LIMITER",
            "low_tap": 0,
            "tap": 0,
        }
        step = {
            "id": names[s],
            "b": 0.0,
            "g": 0.0,
            "r": 0.0,
            "x": 0.0,
            "rho": 1.0,
            "alpha": -np.degrees(case.shift[s]),
        }
        net.create_phase_tap_changers(
            pd.DataFrame(changer).set_index("id"), pd.DataFrame(step).set_index("id")
        )
    rows = [
        {
            "element_id": names[i],
            "side": side,
            "name": "permanent",
            "type": "APPARENT_POWER",
            "value": base * rate[i],
            "acceptable_duration": -1,
            "fictitious": False,
            "group_name": "DEFAULT",
        }
        for i in np.flatnonzero(rate > 0)
        for side in ("ONE", "TWO")
    ]
    if rows:
        net.create_operational_limits(pd.DataFrame(rows).set_index("element_id"))


def parameters(case):
    import pypowsybl.loadflow as lf

    reference = np.flatnonzero(case.reference)
    reference = reference[np.isin(reference, case.gen_bus)]
    slack = int(reference[0]) if len(reference) else int(case.gen_bus[np.argmax(case.pmax)])
    return lf.Parameters(
        distributed_slack=True,
        use_reactive_limits=True,
        twt_split_shunt_admittance=True,
        balance_type=lf.BalanceType.PROPORTIONAL_TO_GENERATION_REMAINING_MARGIN,
        voltage_init_mode=lf.VoltageInitMode.DC_VALUES,
        read_slack_bus=False,
        provider_parameters={
            "slackBusSelectionMode": "NAME",
            "slackBusesIds": f"V{slack}_0",
            "generatorsWithZeroMwTargetAreNotStarted": "false",
            "plausibleActivePowerLimit": "1000000",
            "newtonRaphsonConvEpsPerEq": "1e-6",
            "slackBusPMaxMismatch": "0.001",
            "maxOuterLoopIterations": "100",
            "maxNewtonRaphsonIterations": "60",
            "minPlausibleTargetVoltage": "0.5",
            "maxPlausibleTargetVoltage": "1.5",
            "lowImpedanceThreshold": "1e-12",
            "maxReactivePowerMismatch": "1e-5",
            "maxVoltageMismatch": "1e-7",
            "maxActivePowerMismatch": "1e-5",
            "slackDistributionFailureBehavior": "LEAVE_ON_SLACK_BUS",
        },
    )


def judged(case, state, setpoint, listed, rating="C"):
    """Return {contingency: {(kind, element): (value, bound)}} of passed limits; None: no state."""
    import pypowsybl.security as sa

    net = network(case, state, setpoint, rating)
    analysis = sa.create_analysis()
    branches, _ = ids(case)
    levels = [f"V{i}" for i in range(case.n_bus)]
    analysis.add_monitored_elements(branch_ids=branches, voltage_level_ids=levels)
    for c in listed:
        elements = [
            ("X" if e.startswith("branch") else "G") + e.partition(":")[2] for e in c.outages
        ]
        analysis.add_multiple_elements_contingency(elements, c.name)
    result = analysis.run_ac(net, parameters=sa.Parameters(load_flow_parameters=parameters(case)))
    status = result.post_contingency_results
    passed = {
        c.name: {} if str(status[c.name].status).endswith("CONVERGED") else None for c in listed
    }
    rate = case.base_mva * branch_rating(case, rating)
    flows, volts, kv = (
        result.branch_results.reset_index(),
        result.bus_results.reset_index(),
        None,
    )
    limit = dict(zip(case.branch_row.tolist(), rate.tolist(), strict=True))
    size = np.maximum(np.hypot(flows.p1, flows.q1), np.hypot(flows.p2, flows.q2))
    for name, branch, s in zip(flows.contingency_id, flows.branch_id, size, strict=True):
        bound = limit[int(branch[1:])]
        if passed.get(name) is not None and 0 < bound < s:
            passed[name]["line", int(branch[1:])] = (float(s), bound)
    kv = kilovolts(case)
    for name, where, v in zip(
        volts.contingency_id, volts.voltage_level_id, volts.v_mag, strict=True
    ):
        i = int(where[1:])
        bound = case.vmin[i] if v / kv[i] < case.vmin[i] else case.vmax[i]
        if passed.get(name) is not None and not case.vmin[i] <= v / kv[i] <= case.vmax[i]:
            passed[name]["voltage", int(case.bus_id[i])] = (float(v / kv[i]), float(bound))
    return passed
