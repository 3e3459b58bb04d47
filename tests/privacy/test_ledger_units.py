"""Budgets belong to units: other maps, other distances, scaled data."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ledgers import NORTH, ONE_MW, TENTH, dataset, granted

from gridpriv.core.errors import BudgetError, InputError
from gridpriv.grid.library import load_case
from gridpriv.grid.zoning import zoning_from_groups
from gridpriv.privacy.accounting import total_epsilon
from gridpriv.privacy.adjacency import DemandAdjacency, Move, Protection
from gridpriv.privacy.ledger import Ledger, ReleaseCharge, grant, read_book
from gridpriv.privacy.mechanism import Charge, Gaussian, Laplace, SecureLaplace
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity
from gridpriv.zonal.prepared import zone_datasets

# Maps


def test_a_renamed_or_redrawn_map_refills_nothing(tmp_path: Path) -> None:
    path = granted(tmp_path)
    with Ledger(path, [NORTH]) as ledger:
        ledger.charge("north", "r", {TENTH: 10})
    renamed, redrawn = dataset("new name", (1, 2, 3)), dataset("west", (2, 3, 4, 5))
    with Ledger(path, [renamed]) as ledger, pytest.raises(BudgetError, match="all 3 buses"):
        ledger.charge("new name", "r", {TENTH: 1})
    with Ledger(path, [redrawn]) as ledger:
        with pytest.raises(BudgetError) as refused:
            ledger.charge("west", "r", {TENTH: 1})
        assert "'west'" in str(refused.value)
        assert "2 of the 4 buses lack the budget" in str(refused.value)
        assert "left 0 % of epsilon 1" in str(refused.value)
    with Ledger(path, [dataset("rest", (4, 5))]) as ledger:
        ledger.charge("rest", "r", {TENTH: 10})


def test_accounts_are_shown_by_who_was_granted_and_what_was_charged(tmp_path: Path) -> None:
    path = granted(tmp_path)
    with Ledger(path, [dataset("west", (3, 4))]) as ledger:
        ledger.charge("west", "r", {TENTH: 2})
    loaded = {(a.owner, a.units, sum(a.spent.values())) for a in read_book(path).accounts}
    assert loaded == {("north", 2, 0), ("north", 1, 2), ("south", 1, 2), ("south", 1, 0)}


def partition(buses: Iterable[int], dice: random.Random) -> list[list[int]]:
    shuffled = list(buses)
    dice.shuffle(shuffled)
    cuts = sorted(dice.sample(range(1, len(shuffled)), dice.randrange(4)))
    return [shuffled[a:b] for a, b in itertools.pairwise([0, *cuts, len(shuffled)])]


@pytest.mark.parametrize("seed", range(6))
def test_every_bus_keeps_its_own_book_whatever_the_maps(tmp_path: Path, seed: int) -> None:
    """Against a book of plain lists, one for each bus, under random maps and charges."""
    dice, buses = random.Random(seed), range(1, 10)
    grants = {bus: 1.0 if bus < 6 else 2.0 for bus in buses}
    path = tmp_path / "ledger"
    grant(path, [dataset("low", range(1, 6))], 1.0)
    grant(path, [dataset("high", range(6, 10))], 2.0)
    books: dict[int, list[float]] = {bus: [] for bus in buses}
    refused = 0
    for run in range(25):
        zones = partition(buses, dice)
        with Ledger(path, [dataset(f"zone {i}", z) for i, z in enumerate(zones)]) as ledger:
            for i, zone in enumerate(zones):
                epsilon, count = dice.choice([0.04, 0.1, 0.25]), dice.randrange(1, 3)
                short = [b for b in zone if sum(books[b]) + epsilon * count > grants[b] + 1e-9]
                try:
                    ledger.charge(f"zone {i}", f"{run}", {Charge("pure", epsilon): count})
                except BudgetError as error:
                    refused += 1
                    share = "all" if len(short) == len(zone) else f"{len(short)} of the"
                    assert f"{share} {len(zone)} buses" in str(error)
                else:
                    assert not short
                    for bus in zone:
                        books[bus] += [epsilon] * count
    assert refused > 10
    loaded = sorted(
        (a.grant.epsilon, round(a.total_pure, 9))
        for a in read_book(path).accounts
        for _ in range(a.units)
    )
    assert loaded == sorted((grants[bus], round(sum(books[bus]), 9)) for bus in buses)


def test_with_a_delta_no_bus_passes_its_grant_whatever_the_maps(tmp_path: Path) -> None:
    dice, path = random.Random(3), granted(tmp_path, 1.0, 1e-5)
    books: dict[int, dict[Charge, int]] = {bus: {} for bus in range(1, 6)}
    for run in range(40):
        zone = dice.sample(range(1, 6), dice.randrange(1, 6))
        charge = dice.choice([Charge("gaussian", 15.0), Charge("laplace", 20.0)])
        with Ledger(path, [dataset("z", zone)]) as ledger:
            try:
                ledger.charge("z", f"{run}", {charge: 2})
            except BudgetError:
                continue
        for bus in zone:
            books[bus][charge] = books[bus].get(charge, 0) + 2
    totals = [total_epsilon(book, 1e-5) for book in books.values()]
    assert 0.7 < max(totals) <= 1.0
    spent = sorted(sum(b.values()) for b in books.values())
    accounts = read_book(path).accounts
    assert sorted(sum(a.spent.values()) for a in accounts for _ in range(a.units)) == spent


def test_a_bus_of_a_grid_is_known_by_its_number_whatever_its_demand() -> None:
    case = load_case("case14")
    everybody = zoning_from_groups(case, [range(case.n_bus)], "one zone")
    adjacency = DemandAdjacency(0.01)
    (whole,) = zone_datasets(case, everybody, adjacency)
    assert len(set(whole.units)) == 14
    outage = case.without(("gen:2", "branch:1"))
    assert zone_datasets(outage, everybody, adjacency) == (whole,)
    (hour,) = zone_datasets(replace(case, pd=case.pd[::-1].copy()), everybody, adjacency)
    assert hour == whole
    renumbered = replace(case, bus_id=np.append(case.bus_id[:-1], 15))
    (other,) = zone_datasets(renumbered, everybody, adjacency)
    assert not set(whole.units) & set(other.units)
    halves = zoning_from_groups(case, [range(0, 14, 2), range(1, 14, 2)], "two", ["odd", "even"])
    units = [unit for zone in zone_datasets(case, halves, adjacency) for unit in zone.units]
    assert set(units) == set(whole.units)


# Distances


def demand(active: float, reactive: float | None = None) -> Protection:
    moves = (Move("active demand", active, "MW"),)
    if reactive is not None:
        moves += (Move("reactive demand", reactive, "MVAr"),)
    return Protection("bus", "buses", moves)


def worst_loss(granted: Protection, b: float) -> float:
    """Return the largest log ratio of densities of (p, q) + Laplace(b), by corners."""
    corners = itertools.product(*[(-m.most, 0.0, m.most) for m in granted.moves])
    at = np.random.default_rng(0).laplace(0.0, 100.0 * b, (4000, len(granted.moves)))
    return max(
        float((np.abs(at - np.array(corner)) - np.abs(at)).sum(axis=1).max()) / b
        for corner in corners
    )


@pytest.mark.parametrize(
    ("of_grant", "of_run"),
    [
        (demand(1.0, 1.0), demand(1.0, 1.0)),
        (demand(1.0, 1.0), demand(2.0, 2.0)),
        (demand(1.0, 1.0), demand(0.4, 0.4)),
        (demand(3.0, 1.0), demand(2.0, 2.0)),
        (demand(1.0), demand(1.0, 1.0)),
        (demand(1.0), demand(0.5, 0.1)),
    ],
)
def test_what_is_charged_is_at_least_the_loss_between_granted_neighbours(
    of_grant: Protection, of_run: Protection
) -> None:
    """The run draws for its own distance; the owner's adjacent data are those of the grant."""
    b = 7.0
    stated = sum(m.most for m in of_run.moves)
    release = Release(Laplace(b), Sensitivity(stated, 1, "demand"), stated)
    factor = of_grant.factor(of_run)
    charged = 1.0 / release.certified_within(factor).parameter
    assert charged >= worst_loss(of_grant, b) - 1e-12
    if len(of_grant.moves) == len(of_run.moves) and factor > 1.0 and of_grant == demand(1.0, 1.0):
        assert charged == pytest.approx(worst_loss(of_grant, b))  # and no more


@pytest.mark.parametrize(("mechanism", "norm"), [(Gaussian(3.0), 2), (SecureLaplace(3.0), 1)])
def test_other_noise_is_charged_at_the_distance_of_the_grant(
    tmp_path: Path, mechanism: Gaussian | SecureLaplace, norm: int
) -> None:
    path = granted(tmp_path, 50.0, 1e-5)
    release = Release(mechanism, Sensitivity(0.5, norm, "demand"), 0.5)  # type: ignore[arg-type]
    half = dataset("north", (1, 2, 3), demand(0.5))
    with Ledger(path, [half]) as ledger:
        ReleaseCharge(ledger, "r")("north", {release: 1})
    costs = [entry.charges[0][0] for _, entry in read_book(path).charged]
    assert costs == [mechanism.charge(1.0)]


def test_distances_are_compared_as_numbers() -> None:
    assert DemandAdjacency(0.01).protection(100.0) == demand(1.0, 1.0)
    assert DemandAdjacency(0.02, "p").protection(50.0) == demand(1.0)
    third = 100.0 * (1.0 / 3.0)
    assert demand(third).factor(demand(33.333333333333336)) == 1.0
    assert demand(1.0).factor(demand(1.0 + 1e-12)) == 1.0
    assert demand(1.0 + 1e-6).factor(demand(1.0)) == pytest.approx(1.0 + 1e-6)
    whole = Protection("sample", "samples", (Move("value", math.inf, ""),))
    assert whole.factor(whole) == 1.0
    assert math.isinf(whole.factor(replace(whole, moves=(Move("value", 1.0, ""),))))


@pytest.mark.parametrize(
    "other",
    [
        Protection("bus", "buses", (Move("reactive demand", 1.0, "MVAr"),)),
        Protection("bus", "buses", (Move("active demand", 1.0, "kW"),)),
        Protection("sample", "samples", ONE_MW.moves),
    ],
)
def test_a_run_that_protects_other_figures_is_refused(tmp_path: Path, other: Protection) -> None:
    path = granted(tmp_path)
    with pytest.raises(InputError, match="granted for: any change of one bus's active demand"):
        Ledger(path, [replace(NORTH, protection=other)])
    grant(path, [dataset("both", (8,), demand(1.0, 1.0))], 1.0)
    with pytest.raises(InputError, match="the run is for"):
        Ledger(path, [dataset("both", (8,), demand(1.0))])
