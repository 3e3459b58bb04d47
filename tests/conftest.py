from __future__ import annotations

import signal

import pytest

from gridpriv import load_case, shipped_zoning

# a shell's background job is started with interrupts ignored, and every process that a test starts
# would inherit that; tests of interrupts are about a command that was started in the foreground
signal.signal(signal.SIGINT, signal.default_int_handler)


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
