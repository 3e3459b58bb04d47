"""Cases that several grid tests read once."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from pandapower_nets import keep_networks

from gridpriv.grid.case import Case
from gridpriv.grid.library import load_case

keep_networks()
settings.register_profile(
    "grid",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("grid")


@pytest.fixture(scope="session")
def case14() -> Case:
    return load_case("case14")


@pytest.fixture(scope="session")
def case118() -> Case:
    return load_case("case118")
