"""Degenerate grids run: no traceback, the right exit code, and correct results.

Results of the command are compared with the centralized relaxation (another program, another solver
path), and with the load that an unreachable bus must shed.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from degenerate import BASE, grid

from gridpriv import load_case
from gridpriv.cli.main import main
from gridpriv.cli.run import summarise
from gridpriv.core.errors import SolverError
from gridpriv.power.centralized import relax

pytestmark = pytest.mark.usefixtures("few_replans")


def attempt(seed, tmp_path, capsys):
    """Run a seed's grid; return its words, exit code, document (or None) and error text."""
    made = grid(seed)
    words = made.write(tmp_path)
    out = ("--out", str(tmp_path / "out")) if seed % 10 == 0 else ()
    out += ("--no-reference",) if seed % 3 else ()
    capsys.readouterr()  # what an earlier grid's summary printed
    code = main([*words, *out, "--json"])
    text = capsys.readouterr()
    document = json.loads(text.out) if text.out.strip() else None
    return made, words, code, document, text.err


def check(seed, tmp_path, capsys):
    made, words, code, document, text = attempt(seed, tmp_path, capsys)
    about = f"seed {seed}: {' '.join(words)}\n{text}"
    assert "Traceback" not in text, about
    assert "internal error" not in text, about
    case = load_case(words[1])
    try:
        whole = relax(case)
    except SolverError:
        whole = None
    if "no error of the solver can be proven" in text:
        assert (code, "output" in words) == (3, True), about
        assert made.text.count("Inf") > 0, about
        return
    if "the solver is not accurate enough" in text:  # its noise must cover what a solver errs
        assert (code, "output" in words) == (3, True), about
        return
    if code == 3:
        assert whole is None or whole.status == "Infeasible", f"{about}: there is a solution"
        return
    if code == 2:
        assert "no limits against each other" in text, about
        assert made.text.count("Inf") > 1, about
        return
    assert code == 0, about
    summarise(document)
    assert document["ended"] == "finished"
    assert len(document["zones"]) == made.zones
    physical = document["final"]["physical"]
    unreached = sum(made.demand[bus] for bus in made.lone if made.demand[bus] > 0)
    if physical["ac_feasible"]:
        assert physical["shed_mw"] >= unreached - 1e-3, f"{about}: served without a line"
    last = document["rounds"][-1]
    if document["settings"]["mechanism"] == "none" and last["consensus_residual"] < 1e-6:
        imbalance = document["settings"]["objective"] == "imbalance"
        exact = document["settings"]["update"] == "exact"
        if imbalance and exact and whole is not None:
            # a branch of 1e-4 p.u. turns an error of 1e-8 in w into 1e-4 p.u. of power
            assert last["objective"] >= whole.bound - 1e-3 * max(1.0, whole.bound), about
        if imbalance:
            assert last["plan_shortage_mw"] >= unreached - 1e-3, f"{about}: served without a line"


@pytest.mark.parametrize("planning", ["ac", "soc"])
def test_a_grid_without_load_prints_its_run(planning, capsys):
    words = ["run", "case14", "--zones", "3", "--load-scale", "0", "--planning", planning]
    assert main([*words, "--mechanism", "none", "--no-reference"]) == 0
    printed = capsys.readouterr().out
    assert "no load shedding." in printed
    assert "of the gross demand" not in printed


def test_balancing_power_without_load_has_a_value_but_no_share(capsys):
    words = ["run", "case14", "--zones", "3", "--load-scale", "0", "--mechanism", "none"]
    assert main([*words, "--no-reference", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    document["final"]["physical"] |= {"balancing_mw": 5.0, "balancing_cost": 5000.0}
    summarise(document)
    printed = " ".join(capsys.readouterr().out.split())
    assert "that power is worth 5000.00 $/h." in printed
    assert "of the gross demand" not in printed


# 21: one bus without a branch; 53: nothing generates; 68: no load. Slow ones are below
@pytest.mark.parametrize("seed", [0, 1, 5, 6, 9, 11, 21, 53, 68])
def test_a_degenerate_grid_runs(seed, tmp_path, capsys):
    check(seed, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.usefixtures("all_replans")
@pytest.mark.parametrize("first", range(0, 525, 25))
def test_five_hundred_degenerate_grids_run(first, tmp_path, capsys):
    for seed in range(first, first + 25):
        folder = tmp_path / str(seed)
        folder.mkdir()
        check(seed, folder, capsys)


def test_the_generator_reaches_every_edge():
    """The grids of the acceptance list are among the first 525."""
    edges = {"one bus": 0, "no generator": 0, "lone bus": 0, "one-bus zones": 0, "negative": 0}
    for seed in range(525):
        made = grid(seed)
        edges["one bus"] += len(made.demand) == 1
        edges["no generator"] += "mpc.gen = [\n];" in made.text
        edges["lone bus"] += bool(made.lone)
        edges["one-bus zones"] += made.zones == len(made.demand) > 1
        edges["negative"] += min(made.demand.values()) < 0
    assert min(edges.values()) > 40, edges
    assert np.isfinite(BASE)
