from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from gridpriv.report.export import export
from gridpriv.report.source import read_source
from gridpriv.study import Method, Study, compare, make_plan

SCHEMES = [
    Method("noise-free", (("mechanism", "none"),)),
    Method(
        "demand, one-shot",
        (("perturbation", "demand"), ("noise_schedule", "once")),
    ),
    Method(
        "a <b>bold</b> & 100 % name",
        (("perturbation", "demand"), ("noise_schedule", "once"), ("rounds", 3)),
    ),
]


@pytest.fixture(scope="session")
def study_folder(tmp_path_factory: pytest.TempPathFactory, paint: Any) -> Path:
    folder = tmp_path_factory.mktemp("study")
    plan = make_plan(
        ["case14"],
        budgets=[0.5, 5],
        methods=SCHEMES,
        seeds=[1, 2, 3],
        settings={"rounds": 5, "planning": "soc"},
        reference=False,
    )
    with paint():
        compare(plan, out=folder, jobs=1)
        export(folder, ["html", "xlsx", "csv", "tex"])
    return folder


@pytest.fixture(scope="session")
def study(study_folder: Path) -> Study:
    return read_source(study_folder)


@pytest.fixture
def copied(study_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(study_folder, tmp_path / "copy"))
