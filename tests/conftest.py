from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from gridpriv import load_case, shipped_zoning
from gridpriv.core.files import write_bytes
from gridpriv.power.ac import settle
from gridpriv.report import plots
from gridpriv.report.figures import write_figure

# a shell's background job is started with interrupts ignored, and every process that a test starts
# would inherit that; tests of interrupts are about a command that was started in the foreground
signal.signal(signal.SIGINT, signal.default_int_handler)

# readline, which pytest imports, puts the terminal's width into the environment of its workers
os.environ.pop("COLUMNS", None)


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


SIGNATURE = b"\x89PNG\r\n\x1a\n"


def blank(_figure: object, path: str | Path, *, private: bool) -> None:
    """Write a picture unpainted: painting takes longer than a run."""
    write_bytes(Path(path), SIGNATURE, private=private)


@pytest.fixture(scope="module")
def unpainted():
    """Have commands write the pictures of a run unpainted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "write_figure", blank)
        yield


@pytest.fixture
def painted(monkeypatch):
    """Have a test's commands paint their pictures."""
    monkeypatch.setattr(plots, "write_figure", write_figure)


REPLANS = {name: getattr(settle, name) for name in ("MOST_REPLANS", "MOST_TURNS", "SOFTER")}


@pytest.fixture(scope="module")
def few_replans():
    """Let zones replan a few times only, for tests of what is said, stored or charged.

    What all replans reach, the other modules of tests/zonal and tests/power hold.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settle, "MOST_REPLANS", 3)
        patch.setattr(settle, "MOST_TURNS", 1)
        patch.setattr(settle, "SOFTER", settle.SOFTER[:1])
        yield


SHORTENED = {
    "cli": ["few_replans", "unpainted"],
    "faults": ["few_replans"],
    "network": ["few_replans"],
    "privacy": ["few_replans"],
    "report": ["few_replans"],
    "study": ["few_replans"],
}
"""Fixtures of every module in a folder of tests; other modules ask with ``usefixtures``."""


@pytest.fixture(scope="module", autouse=True)
def shortened(request):
    for fixture in SHORTENED.get(request.path.parent.name, []):
        request.getfixturevalue(fixture)


@pytest.fixture
def all_replans(monkeypatch):
    """Have zones replan as often as they do for users, in a module of ``few_replans``."""
    for name, value in REPLANS.items():
        monkeypatch.setattr(settle, name, value)


@pytest.fixture(scope="session")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver")
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("chromium and chromium-driver are not installed")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ):
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    os.environ.setdefault("SE_OFFLINE", "true")
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield driver
    driver.quit()
