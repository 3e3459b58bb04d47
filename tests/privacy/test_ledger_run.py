"""A run of case14 that charges a ledger: every release was charged, a refused one was not sent."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gridpriv.core.errors import BudgetError, InputError, SolverError
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.grid.scenarios import read_demand_series
from gridpriv.grid.zoning import Zoning
from gridpriv.power.problem import ZoneProblem
from gridpriv.privacy.accounting import gaussian_multiplier
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.ledger import Ledger, ReleaseCharge, grant, read_book
from gridpriv.privacy.ledger_rows import Account, LedgerDataset
from gridpriv.privacy.mechanism import Charge
from gridpriv.zonal.horizon import run_series
from gridpriv.zonal.prepared import prepare, zone_datasets
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.run import run, run_prepared
from gridpriv.zonal.settings import Settings

CASE = load_case("case14")


def read_accounts(path: Path) -> tuple[Account, ...]:
    return read_book(path).accounts


@pytest.fixture
def zoning() -> Zoning:
    zones = shipped_zoning(CASE)
    assert zones is not None
    return zones


@pytest.fixture
def datasets(zoning: Zoning) -> tuple[LedgerDataset, ...]:
    return zone_datasets(CASE, zoning, DemandAdjacency(0.01))


@pytest.mark.parametrize(
    ("perturbation", "releases"), [("demand", 1), ("objective", 3), ("output", 3)]
)
def test_a_run_is_charged_what_it_states(
    tmp_path: Path,
    zoning: Zoning,
    datasets: tuple[LedgerDataset, ...],
    perturbation: str,
    releases: int,
) -> None:
    path = tmp_path / "l.db"
    grant(path, datasets, 3.0)
    settings = Settings(perturbation=perturbation, budget="total:3", rounds=3, seed=1, start="flat")
    with Ledger(path, datasets) as ledger:
        result = run(CASE, zoning, settings, charge=ReleaseCharge(ledger, "run-1"))
        for account, stated in zip(read_accounts(path), result.certificates, strict=True):
            assert account.owner == stated.zone
            assert sum(account.spent.values()) == stated.releases == releases
            assert account.total_pure == pytest.approx(stated.total_pure)
            assert account.total_pure == pytest.approx(3.0)
        with pytest.raises(BudgetError, match="room for 0"):
            run(CASE, zoning, settings, charge=ReleaseCharge(ledger, "run-1"))
    assert [sum(a.spent.values()) for a in read_accounts(path)] == [releases] * 3


def test_a_gaussian_run_planned_at_the_whole_grant_finishes(
    tmp_path: Path,
    zoning: Zoning,
    datasets: tuple[LedgerDataset, ...],
) -> None:
    path = tmp_path / "l.db"
    grant(path, datasets, 1.0, 1e-5)
    settings = Settings(
        mechanism="gaussian",
        budget="total:1,1e-5",
        noise_schedule="round",
        rounds=4,
        seed=1,
        start="flat",
    )
    plan = {Charge("gaussian", gaussian_multiplier(1.0, 1e-5, 4)): 4}
    planned = dict.fromkeys(zoning.names, plan)
    with Ledger(path, datasets) as ledger:
        ledger.plan(planned)
        run(CASE, zoning, settings, charge=ReleaseCharge(ledger, "run-1"))
        assert [a.total for a in read_accounts(path)] == pytest.approx([1.0] * 3, rel=1e-7)
        with pytest.raises(BudgetError, match="not started"):
            ledger.plan(planned)


def test_a_run_refused_on_the_way_keeps_what_it_was_charged_for(
    tmp_path: Path,
    zoning: Zoning,
    datasets: tuple[LedgerDataset, ...],
) -> None:
    path = tmp_path / "l.db"
    grant(path, datasets, 1.0)
    settings = Settings(
        budget="per-release:0.3", noise_schedule="round", rounds=10, seed=1, start="flat"
    )
    with Ledger(path, datasets) as ledger, pytest.raises(BudgetError) as refused:
        run(CASE, zoning, settings, charge=ReleaseCharge(ledger, "run-1"))
    assert "3 of 10 rounds were finished" in str(refused.value.__notes__)
    assert [sum(a.spent.values()) for a in read_accounts(path)] == [3, 3, 3]


@pytest.mark.parametrize("perturbation", ["demand", "objective", "output"])
def test_a_solver_that_fails_leaves_every_draw_charged_and_stated(
    tmp_path: Path,
    zoning: Zoning,
    datasets: tuple[LedgerDataset, ...],
    perturbation: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Zone 3 fails in round 4: zones 1 and 2 have drawn four times by then, and zone 3 as often
    unless it draws after it has solved.
    """
    path = tmp_path / "l.db"
    grant(path, datasets, 3.0)
    solve, calls = ZoneProblem.minimise_exact, Counter[str]()

    def failing(problem: ZoneProblem, *given: Any, **how: Any) -> Any:
        calls[problem.name] += 1
        if calls["3"] == 1 + 4:  # one trial before the first charge
            raise SolverError("injected")
        return solve(problem, *given, **how)

    monkeypatch.setattr(ZoneProblem, "minimise_exact", failing)
    settings = Settings(
        perturbation=perturbation,
        noise_schedule="round" if perturbation == "demand" else None,
        budget="total:3",
        rounds=6,
        seed=1,
        start="flat",
    )
    early: list[RunResult] = []
    with Ledger(path, datasets) as ledger, pytest.raises(SolverError, match="zone 3"):
        run_prepared(
            prepare(CASE, zoning, settings),
            charge=ReleaseCharge(ledger, "run-1"),
            leave=early.append,
        )
    stated = {s.zone: s.releases for s in early[0].certificates}
    assert stated == {"1": 4, "2": 4, "3": 3 if perturbation == "output" else 4}
    assert [sum(a.spent.values()) for a in read_accounts(path)] == list(stated.values())


@pytest.mark.slow
def test_worker_processes_charge_the_same_ledger(
    tmp_path: Path, zoning: Zoning, datasets: tuple[LedgerDataset, ...]
) -> None:
    path = tmp_path / "l.db"
    grant(path, datasets, 1.0)
    settings = Settings(
        budget="per-release:0.25", noise_schedule="round", rounds=4, seed=1, start="flat", workers=2
    )
    with Ledger(path, datasets) as ledger:
        run(CASE, zoning, settings, charge=ReleaseCharge(ledger, "run-1"))
        with pytest.raises(BudgetError, match="left 0 %"):
            run(CASE, zoning, settings, charge=ReleaseCharge(ledger, "run-2"))
    assert [sum(a.spent.values()) for a in read_accounts(path)] == [4, 4, 4]


def test_a_ledger_of_another_case_stops_the_run_before_it_starts(
    tmp_path: Path, zoning: Zoning, datasets: tuple[LedgerDataset, ...]
) -> None:
    path = tmp_path / "l.db"
    grant(path, datasets, 1.0)
    renumbered = replace(CASE, bus_id=np.append(CASE.bus_id[:-1], 15))
    other = zone_datasets(renumbered, zoning, DemandAdjacency(0.01))
    with pytest.raises((InputError, BudgetError), match=r"for other data|holds no grant"):
        Ledger(path, other)


@pytest.mark.parametrize("perturbation", ["objective", "output", "demand"])
@pytest.mark.parametrize("scale", [0.5, 1.2])
def test_scaled_demand_is_the_same_data_and_costs_what_is_stated(
    tmp_path: Path,
    zoning: Zoning,
    datasets: tuple[LedgerDataset, ...],
    perturbation: Any,
    scale: float,
) -> None:
    """Beta is of the owner's demand: noise grows with the scale, the ledger and run.json agree."""
    path = tmp_path / "l.db"
    grant(path, datasets, 10.0)
    settings = Settings(
        budget="total:2",
        rounds=2,
        seed=1,
        start="flat",
        load_scale=scale,
        perturbation=perturbation,
    )
    with Ledger(path, datasets) as ledger:
        outcome = run(CASE, zoning, settings, charge=ReleaseCharge(ledger, "r"))
    spent = [a.total_pure for a in read_accounts(path)]
    assert spent == pytest.approx([2.0] * 3)
    reported = outcome.as_dict()["privacy"]
    assert reported["total_pure"] == pytest.approx(max(spent), rel=1e-12)
    assert reported["beta"] == 0.01


@pytest.mark.parametrize("scale", [0.5, 2.5])
def test_what_noise_is_calibrated_to_covers_a_move_of_the_owners_demand(
    zoning: Zoning, scale: float
) -> None:
    """By brute force: every corner of every bus, as the owner has it, scaled as the run does."""
    settings = Settings(perturbation="objective", load_scale=scale, solver="clarabel")
    prepared = prepare(CASE, zoning, settings)
    beta = settings.protected(CASE).beta
    for problem in prepared.problems:
        own = problem.program.zone.own
        owned = np.concatenate([CASE.pd[own], CASE.qd[own]])
        here, worst = problem.gradient(problem.start(), scale * owned), 0.0
        for bus, (p, q) in itertools.product(range(len(own)), [(1, 1), (1, -1)]):
            changed = owned.copy()
            changed[[bus, bus + len(own)]] += beta * np.array([p, q])
            there = problem.gradient(problem.start(), scale * changed)
            worst = max(worst, float(np.abs(there - here).sum()))
        declared = problem.gradient_sensitivity(prepared.rules.adjacency, 1).value
        assert worst == pytest.approx(declared, rel=1e-9)


def test_every_step_of_scaled_demand_costs_what_a_step_is_to_cost(
    tmp_path: Path, zoning: Zoning, datasets: tuple[LedgerDataset, ...]
) -> None:
    path, file = tmp_path / "l.db", tmp_path / "day.csv"
    grant(path, datasets, 10.0)
    file.write_text("step,load_scale\n0,0.4\n1,0.75\n2,0.5\n")
    settings = Settings(
        budget="per-release:0.5",
        rounds=2,
        seed=1,
        start="flat",
        load_scale=0.5,
        perturbation="objective",
    )
    with Ledger(path, datasets) as ledger:
        charge = ReleaseCharge(ledger, "r")
        run_result = run_series(read_demand_series(file, CASE), zoning, settings, charge=charge)
    charges = [entry.charges[0] for _, entry in read_book(path).charged if entry.owner == "1"]
    assert [count / charge.parameter for charge, count in charges] == pytest.approx([0.5] * 6)
    assert [s.total_pure for s in run_result.certificates] == pytest.approx([3.0] * 3)
    sizes = [max(s.sensitivity for s in item.certificates) for item in run_result.results]
    assert np.array(sizes) / sizes[2] == pytest.approx([0.8, 1.5, 1.0])
