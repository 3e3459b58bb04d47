"""Result tables: angles relative to the reference bus, no current without a base voltage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gridpriv import acopf, load_case
from gridpriv.power.ac.state import GridState
from gridpriv.zonal.tables import result_tables


def test_currents_need_a_base_voltage_and_angles_a_reference() -> None:
    case = load_case("case14")  # its baseKV are 0
    state = acopf(case).state
    turned = GridState(
        case, state.vm, state.va - 0.001, state.s_from, state.s_to, state.pg, state.qg,
        state.p_shed, state.q_shed,
    )  # fmt: skip
    tables = result_tables(turned)
    assert tables["res_bus"]["va_degree"].loc[1] == 0.0
    assert np.isnan(tables["res_line"]["i_ka"]).all()
    known = replace(case, base_kv=np.where(np.arange(case.n_bus) < 5, 132.0, 0.0))
    line = result_tables(replace(turned, case=known))["res_line"]
    inside = (line["from_bus"] <= 5) & (line["to_bus"] <= 5)
    assert line["i_ka"].notna().equals(inside)
    first = line.iloc[0]
    apparent = np.hypot(first.p_from_mw, first.q_from_mvar)
    np.testing.assert_allclose(first.i_from_ka, apparent / (3**0.5 * 132.0 * first.vm_from_pu))
