from __future__ import annotations

import pytest

from gridpriv import load_case, shipped_zoning


@pytest.fixture(scope="session")
def case14():
    return load_case("case14")


@pytest.fixture(scope="session")
def case118():
    return load_case("case118")


@pytest.fixture(scope="session")
def zones14(case14):
    return shipped_zoning(case14)


@pytest.fixture(scope="session")
def zones118(case118):
    return shipped_zoning(case118)
