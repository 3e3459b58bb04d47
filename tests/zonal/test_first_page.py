"""The first page of a run: interpretable values, and the warnings next to them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from sentences import series_sentences

from gridpriv.cli.main import main
from gridpriv.cli.run import summarise
from gridpriv.core.text import amount, shown
from gridpriv.power import schedule
from gridpriv.power.ac.optimum import acopf
from gridpriv.zonal.physical import extremes
from gridpriv.zonal.summary import series_messages, series_notes, series_summary

pytestmark = pytest.mark.usefixtures("few_replans")

TIGHT = Path(__file__).parent.parent / "data" / "tight.m"
HEAVY = [
    "run",
    "case14",
    "--load-scale",
    "2.5",
    "--mechanism",
    "none",
    "--rounds",
    "10",
    "--planning",
    "soc",
    "--no-reference",
]


@pytest.fixture(scope="module")
def heavy(tmp_path_factory) -> dict:
    """Return the document of a run in which a zone exports and yet sheds."""
    folder = tmp_path_factory.mktemp("heavy")
    assert main([*HEAVY, "--quiet", "--out", str(folder / "run")]) == 0
    return json.loads((folder / "run" / "run.json").read_text()) | {"folder": folder / "run"}


def test_load_that_exporting_zones_shed_is_reported(heavy, capsys):
    """By the run's own tables of buses and branches, added up here."""
    import pandas as pd

    buses = pd.read_csv(heavy["folder"] / "buses.csv", dtype={"zone": str})
    shed = buses.groupby("zone").redispatch_shed_mw.sum()
    rows = {row["zone"]: row for row in heavy["final"]["physical"]["interchange"]}
    assert {zone: row["shed_mw"] for zone, row in rows.items()} == pytest.approx(shed.to_dict())
    exporting = [z for z, row in rows.items() if row["actual_mw"] > 1 and shed[z] > 1]
    assert exporting, "this grid is meant to have a zone that exports and sheds"
    summarise(heavy)
    text = " ".join(capsys.readouterr().out.split())
    match = re.search(
        r"Zones? ([\d, ]+) sheds? ([\d.]+) MW of load while (?:it|they) exports?", text
    )
    assert match and match[1].split(", ") == sorted(exporting)
    assert ("Zones" in match[0]) == (len(exporting) > 1)
    assert float(match[2]) == pytest.approx(shed[exporting].sum(), rel=1e-3)


def test_the_ac_optimum_sheds_in_zones_that_export_too(case14, zones14):
    """The zones' plans are correct: the grid lacks reactive power."""
    optimum = acopf(case14.scale_load(2.5), "shed").state
    for z in range(zones14.n_zone):
        inside = zones14.zone_of == z
        f, t = inside[optimum.case.f_bus], inside[optimum.case.t_bus]
        middle = 0.5 * (optimum.s_from - optimum.s_to).real
        export = middle[f & ~t].sum() - middle[~f & t].sum()
        if export > 0.05 and optimum.p_shed[inside].sum() > 0.1:
            return
    pytest.fail("no zone exports and sheds in the AC optimum")


def test_nobody_is_said_to_export_who_serves_all(capsys, heavy):
    final = heavy["final"]
    rows = [row | {"shed_mw": 0.0} for row in final["physical"]["interchange"]]
    served = heavy | {"final": final | {"physical": final["physical"] | {"interchange": rows}}}
    summarise(served)
    assert "and shed" not in " ".join(capsys.readouterr().out.split())


def test_interchange_and_releases_keep_the_maps_order(heavy, capsys):
    turned = heavy | {"final": json.loads(json.dumps(heavy["final"]))}
    turned["final"]["physical"]["interchange"].reverse()
    turned["released"] = [
        {"zone": zone, "statistics": "tree", "expected_error_mw": 1.0} for zone in "132"
    ]
    summarise(turned)
    text = capsys.readouterr().out
    table = text[text.index("Interchange") :]
    assert table.startswith("Interchange (MW, exports positive; each zone bears half")
    assert re.findall(r"^  (\d)  ", table, re.M) == ["1", "2", "3"]
    assert "Released: bus values and zone total by zones 1, 2, 3 (--release tree)." in table


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1.35e-12, "MW", "0.000"),
        (-1.35e-12, "MW", "0.000"),
        (0.0, "MW", "0"),
        (0.00123456, "MW", "0.0012"),
        (0.99996, "MW", "1.000"),
        (65.29635, "MW", "65.30"),
        (-34.8679, "MW", "-34.87"),
        (1536637.889, "$/h", "1536640"),
        (8114.3199, "$/h", "8114.32"),
        (-0.114967, "$/h", "-0.11"),
        (0.0071, "$/h", "0.01"),
        (3.593e6, "$/h", "3593000"),
        (float("nan"), "MW", "-"),
        (None, "$/h", "-"),
    ],
)
def test_one_format_for_one_kind_of_figure(value, unit, expected):
    assert shown(amount(value, unit)) == expected


def test_a_public_summary_has_no_rows_without_a_figure(capsys):
    words = ["run", "case14", "--rounds", "2", "--public", "--solver", "clarabel"]
    assert main([*words, "--noise", "secure"]) == 0
    text = capsys.readouterr().out
    table = text.partition("Privacy:")[0]
    assert "largest AC mismatch" in text
    cells = [line.split() for line in table.splitlines() if line.startswith(" ")]
    assert not [row for row in cells if "-" in row]
    assert not re.search(r"shedding|feasible|cost|losses|violated|time", table)


def test_figures_of_the_first_page_are_those_of_the_document(heavy, capsys):
    summarise(heavy)
    text, physical = capsys.readouterr().out, heavy["final"]["physical"]
    for name, key in (
        ("load shedding", "shed_mw"),
        ("losses", "losses_mw"),
        ("balancing power", "balancing_mw"),
    ):
        shown_mw = float(re.search(rf"^ *{name} +([\d.]+) +MW", text, re.M)[1])
        assert shown_mw == pytest.approx(physical[key], rel=1e-3)
    cost = float(re.search(r"^ *cost +([\d.]+)", text, re.M)[1])
    assert np.isclose(cost, physical["cost"], rtol=1e-5)


def test_power_outside_the_cost_is_reported_with_its_value(heavy, capsys):
    """Summed here: generation and shed load; balancing power separately, at its price."""
    summarise(heavy)
    text, physical = " ".join(capsys.readouterr().out.split()), heavy["final"]["physical"]
    voll, price = heavy["settings"]["voll"], heavy["settings"]["balancing_price"]
    expected = physical["generation_cost"] + voll * physical["shed_mw"]
    value = price * sum(row["balancing_mw"] for row in physical["interchange"])
    assert physical["cost"] == pytest.approx(expected, rel=1e-9) and value > 1.0
    match = re.search(rf"At {price:g} \$/MWh .* that power is worth ([\d.]+) \$/h", text)
    assert match and float(match[1]) == pytest.approx(value, rel=1e-5)
    printed = float(re.search(r"balancing power +([\d.]+) +MW", text)[1])
    assert value == pytest.approx(price * printed, rel=1e-3)
    assert f"load shedding at {voll:g} $/MWh" in text


def test_a_run_without_a_cost_has_no_message_on_costs(heavy, capsys):
    final = heavy["final"] | {"physical": heavy["final"]["physical"] | {"cost": None}}
    summarise(heavy | {"final": final})
    assert "balancing power included" not in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("known", [True, False])
def test_a_series_with_costs_states_what_they_include(known):
    step = {"step": "1", "consensus_residual": 0.0, "cost": 10.0 if known else None}
    text = " ".join(series_sentences([step], 1, {"voll": 5000.0, "objective": "cost"}))
    assert ("generation (balancing power included)" in text) is known
    assert ("load shedding at 5000 $/MWh" in text) is known


def test_a_mean_over_some_steps_says_of_how_many():
    """One step has no figure: its cost is in one mean and not in the other."""
    steps = [
        {"cost": 10.0, "prior_only_cost": 12.0},
        {"cost": 30.0, "prior_only_cost": None},
    ]
    rows = {name: float(str(value)) for name, value, _ in series_summary(steps)}
    assert rows == {
        "cost, mean": 20.0,
        "cost, prior-only (epsilon = 0), mean of 1 of 2 steps": 12.0,
    }


def newton(capsys, *words):
    """Run six zones of one bus; return the cost and codes of messages on convergence."""
    network = ["run", str(TIGHT), "--zones", "6", "--no-reference"]
    settings = ["--planning", "soc", "--mechanism", "none", *words]
    assert main([*network, *settings, "--json", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out)
    codes = {item["code"] for item in document["messages"]}
    ends = {"ended-early-newton", "newton-stalled", "not-converged-newton", "not-converged"}
    return document["rounds"][-1]["cost"], codes & ends


OPTIMUM = pytest.approx(8295.99, rel=1e-4)  # Clarabel's, of the whole grid


@pytest.mark.usefixtures("no_replans")
@pytest.mark.parametrize(("tolerance", "zones"), [("1e-5", "3"), ("0", "6")])
def test_newton_steps_end_at_the_optimum(capsys, tolerance, zones):
    """Also where rounding errors end them; of 3 zones they leave a dual residual of 1.03e-5."""
    cost, ends = newton(capsys, "--rounds", "80", "--tolerance", tolerance, "--zones", zones)
    assert (cost, ends) == (OPTIMUM, {"ended-early-newton"})


@pytest.mark.usefixtures("no_replans")
def test_too_few_newton_steps_are_reported_with_a_remedy(capsys):
    """A penalty, which ADMM has, is none of theirs."""
    cost, ends = newton(capsys, "--rounds", "3")
    assert (cost, ends) == (cost, {"not-converged-newton"}) and cost != OPTIMUM


@pytest.mark.usefixtures("no_replans")
def test_newton_steps_that_end_before_the_optimum_are_reported(capsys, monkeypatch):
    monkeypatch.setattr(schedule, "SHORTEST", 0.9)
    cost, ends = newton(capsys, "--rounds", "80")
    assert (cost, ends) == (cost, {"newton-stalled"}) and cost != OPTIMUM


def test_loading_and_voltages_are_named_with_their_places(tmp_path, capsys):
    """By the run's own tables of branches and buses, searched here."""
    import pandas as pd

    words = ["--zones", "2", "--seed", "1", "--no-reference", "--out", str(tmp_path)]
    assert main(["run", str(TIGHT), *words]) == 0
    text = " ".join(capsys.readouterr().out.split())
    lines, buses = (pd.read_csv(tmp_path / f"res_{of}.csv") for of in ("line", "bus"))
    line = lines.loc[lines.loading_percent.idxmax()]
    ends = f"{line.from_bus:.0f}-{line.to_bus:.0f}"
    match = re.search(rf"largest loading \({ends}\) ([\d.]+) %", text)
    assert match and float(match[1]) == pytest.approx(line.loading_percent, rel=1e-2)
    for end, at in (("lowest", buses.vm_pu.idxmin()), ("highest", buses.vm_pu.idxmax())):
        number, value = buses.iloc[at, 0], buses.vm_pu[at]
        assert f"{end} voltage (bus {number:.0f}) {value:.3f} p.u." in text


def test_places_without_a_rating_or_a_voltage_have_no_figure(case14):
    """case14 has no ratings; de-energized buses have no voltage."""
    vm, flow = np.linspace(0.0, 1.04, case14.n_bus), np.ones(case14.n_branch)
    values = extremes(case14, vm, flow)
    assert values["worst_loading_percent"] is None and values["worst_branch"] is None
    assert values["lowest_vm_bus"] == case14.bus_id[1] and values["highest_vm_pu"] == 1.04
    dark = extremes(case14, 0.0 * vm, flow)
    assert dark["lowest_vm_pu"] is None and dark["highest_vm_bus"] is None


@pytest.mark.parametrize(("demand", "sheds"), [(0.068, True), (6000.0, False)])
def test_a_series_that_sheds_kilowatts_says_so_where_they_are_its_load(demand, sheds):
    step = {"step": "1", "redispatch_shed_mw": 0.005, "demand_mw": demand}
    text = " ".join(series_sentences([step], 1, {"voll": 5000.0, "objective": "cost"}))
    assert ("at step 1" in text) is sheds


@pytest.mark.parametrize(("demand", "curtails"), [(0.068, True), (6000.0, False)])
def test_a_series_states_curtailed_generation_above_rounding(demand, curtails):
    steps = [
        {"step": "1", "curtailed_mw": 0.005, "demand_mw": demand},
        {"step": "2", "curtailed_mw": 0.001, "demand_mw": demand},
    ]
    notes = series_messages(steps, 2, {"voll": 5000.0, "objective": "cost"})
    stated = [note.values for note in notes if note.code == "steps-curtailed"]
    assert [tuple(map(str, v.values())) for v in stated] == [("0.0030", "0.0050", "1")] * curtails
    document = {"steps": steps, "planned": 2, "settings": {"voll": 5000.0, "objective": "cost"}}
    plan = {"storage": "a", "step": "2", "energy_mwh": 4.0, "soc_percent": 50.0}
    privacy = {"interrupted_releases_per_zone": 0}
    notes = series_notes(document | {"storage": [plan], "privacy": privacy, "released_once": []})
    assert ("storage-as-planned" in {note.code for note in notes}) is curtails
