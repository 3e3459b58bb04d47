from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gridpriv.study import Method, StudyPlan, compare, make_plan

ONCE = Method("demand, one-shot", (("perturbation", "demand"), ("noise_schedule", "once")))
NO_BUDGET = Method("noise-free", (("mechanism", "none"),))


@pytest.fixture
def small_plan() -> StudyPlan:
    return plan_of(seeds=[1, 2])


def plan_of(**changes: Any) -> StudyPlan:
    given: dict[str, Any] = {
        "budgets": [1, 5],
        "methods": [NO_BUDGET, ONCE],
        "seeds": [1, 2],
        "settings": {"rounds": 3},
        "reference": False,
    }
    return make_plan(["case14"], **(given | changes))


@pytest.fixture
def make_small_plan() -> Any:
    return plan_of


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "study"
    compare(plan_of(), out=folder, jobs=1)
    return folder


@pytest.fixture
def finished(finished_study: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder of the small plan's study."""
    return Path(shutil.copytree(finished_study, tmp_path / "finished"))


def same_tables(a: Any, b: Any) -> None:
    """Assert that two studies have the same tables; only ``timing`` may differ."""
    for name in ("runs", "rounds", "zones", "buses", "certificates"):
        pd.testing.assert_frame_equal(a.tables[name], b.tables[name], check_exact=True)
    assert list(a.tables["timing"].run) == list(b.tables["timing"].run)


@pytest.fixture
def assert_same_tables() -> Any:
    return same_tables
