"""A series of runs: one budget for all steps, new noise in every step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gridpriv
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.grid.scenarios import DemandSeries
from gridpriv.privacy.release import Release
from gridpriv.zonal.horizon import run_series, step_seed
from gridpriv.zonal.prepared import horizon_multiplier
from gridpriv.zonal.run import run

CASE14 = load_case("case14")
SETTINGS = gridpriv.Settings(
    mechanism="laplace", solver="clarabel", rounds=3, seed=7, budget="total:2"
)


def flat(steps: int, case: gridpriv.Case = CASE14) -> DemandSeries:
    """Return a series that repeats the case's own demand."""
    names = tuple(map(str, range(steps)))
    return DemandSeries(
        case, names, np.tile(case.pd, (steps, 1)), np.tile(case.qd, (steps, 1)), "test"
    )


def zoning() -> gridpriv.Zoning:
    zones = shipped_zoning(CASE14, 2)
    assert zones is not None
    return zones


@pytest.mark.parametrize(
    ("given", "releases"),
    [({}, 1), ({"temporal_basis": "per-step"}, 4), ({"noise_schedule": "round"}, 4 * 3)],
)
def test_the_total_of_the_horizon_is_the_budget(given: dict[str, Any], releases: int) -> None:
    """Steps with different demand have one release, or the configured number of draws."""
    result = run_series(flat(4), zoning(), replace(SETTINGS, **given))
    assert len(result.certificates) == 2
    for certificate in result.certificates:
        assert certificate.releases == releases
        assert certificate.total_pure == pytest.approx(2.0, rel=1e-9), "basic composition"
    for step in result.results:
        assert all(s.total_pure == pytest.approx(0.5, rel=1e-9) for s in step.certificates)


def test_figures_of_a_horizon_draw_its_table() -> None:
    result = run_series(flat(3), zoning(), replace(SETTINGS, rounds=1))
    table = result.table()
    columns = {
        "demand": "demand_mw",
        "shedding": "redispatch_shed_mw",
        "residual": "consensus_residual",
    }
    for name, column in columns.items():
        ax = getattr(result.plot, name)()
        assert list(ax.lines[0].get_ydata()) == list(table[column])
        assert ax.get_ylabel().endswith("(p.u.)" if name == "residual" else "(MW)")


def test_a_gaussian_horizon_meets_its_epsilon_and_delta() -> None:
    settings = replace(
        SETTINGS, mechanism="gaussian", budget="total:2,1e-5", target_delta=1e-5, rounds=2
    )
    result = run_series(flat(3), zoning(), settings)
    worst = max(s.total for s in result.certificates)
    assert 1.9 < worst <= 2.0 * (1 + 1e-6)


def test_more_steps_need_more_noise_and_per_release_budgets_do_not_change() -> None:
    item, day = (horizon_multiplier(SETTINGS, steps) for steps in (1, 96))
    assert item is not None
    assert day == pytest.approx(96 * item)
    fixed = replace(SETTINGS, budget="per-release:0.5")
    assert horizon_multiplier(fixed, 1) == horizon_multiplier(fixed, 96)
    assert horizon_multiplier(replace(SETTINGS, mechanism="none"), 5) is None


def test_no_step_repeats_the_noise_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    apply, noise = Release.apply, list[float]()

    def recorded(self: Release, value: Any, stream: Any) -> Any:
        output = apply(self, value, stream)
        noise.extend(np.round((output - value) / self.mechanism.scale, 9).tolist())
        return output

    monkeypatch.setattr(Release, "apply", recorded)
    run_series(flat(3), zoning(), replace(SETTINGS, temporal_basis="per-step", rounds=1))
    assert len(noise) >= 3 * 2 * 2, "every step and zone draws noise on p and q"
    assert len(set(noise)) == len(noise)
    assert len({step_seed(7, step) for step in range(1000)}) == 1000


def test_a_seed_gives_the_same_horizon_again() -> None:
    first, second = (run_series(flat(2), zoning(), SETTINGS).table() for _ in range(2))
    columns = ["consensus_residual", "objective", "plan_shortage_mw"]
    np.testing.assert_array_equal(first[columns], second[columns])


def test_without_noise_every_step_is_its_own_run() -> None:
    settings = replace(SETTINGS, mechanism="none", seed=None)
    demand = np.stack([0.5 * CASE14.pd, 1.2 * CASE14.pd])
    series = DemandSeries(CASE14, ("a", "b"), demand, np.stack([CASE14.qd] * 2), "test")
    table = run_series(series, zoning(), settings).table()
    alone = run(series.at(1), zoning(), settings)
    assert table.objective[1] == alone.rounds.objective.iloc[-1]
    assert table.demand_mw.tolist() == pytest.approx([129.5, 310.8])


@pytest.mark.slow
def test_a_day_of_case14_under_one_budget() -> None:
    hours = np.arange(96) / 4.0
    shape = 0.8 + 0.3 * np.sin((hours - 9.0) * np.pi / 12.0)
    series = DemandSeries(
        CASE14,
        tuple(map(str, hours)),
        np.outer(shape, CASE14.pd),
        np.outer(shape, CASE14.qd),
        "test",
    )
    result = run_series(series, zoning(), replace(SETTINGS, rounds=10, budget="total:5"))
    assert len(result.results) == 96
    assert result.table().seconds.sum() < 120
    assert max(s.total_pure for s in result.certificates) == pytest.approx(5.0)
