from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from types import ModuleType

import pytest

from gridpriv import load_case, shipped_zoning
from gridpriv.core import files
from gridpriv.core.files import write_bytes
from gridpriv.power.ac import grid_redispatch
from gridpriv.report import figures, plots
from gridpriv.zonal import run as zonal_run
from gridpriv.zonal.result import RunResult

# a shell's background job is started with interrupts ignored, and every process that a test starts
# would inherit that; tests of interrupts are about a command that was started in the foreground
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave out of garbage collection what was imported; it takes 12 % of the time otherwise."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


# readline, which pytest imports, puts the terminal's width into the environment of its workers
os.environ.pop("COLUMNS", None)


FSTAT = os.fstat


def to_cache(handle: int) -> None:
    """Check the handle of a file that is to be flushed; no test sees if the disk has its content.

    A run in a folder flushes seventy times, which takes longer than its rounds on a busy disk.
    """
    FSTAT(handle)


os.fsync = files.flush = to_cache


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


def blank_svg(plot: figures.Plot, kind: str, name: str = "", *, legend: bool = True) -> str:
    """Return the element of a figure with its texts for readers, and nothing drawn."""
    title, description = escape(plot.title), escape(plot.alt)
    return (
        f'<svg class="{kind}" id="{name}" data-legend="{legend}">'
        f"<title>{title}</title><desc>{description}</desc></svg>"
    )


BLANK = {
    (plots, "write_figure"): blank,
    (plots, "stacked"): lambda *_: None,
    (plots, "horizon_figure"): lambda *_: None,
    (figures, "to_svg"): blank_svg,
}
PAINTED = {place: getattr(*place) for place in BLANK}


@contextmanager
def replaced(values: dict[tuple[ModuleType, str], object]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in values.items():
            patch.setattr(module, name, value)
        yield


@pytest.fixture(scope="module")
def unpainted():
    """Have commands write the pictures of a run and of a report's page unpainted."""
    with replaced(BLANK):
        yield


@pytest.fixture(scope="session")
def paint():
    """Return a context in which pictures are painted, for fixtures of a module or a session."""
    return partial(replaced, PAINTED)


@pytest.fixture
def painted(paint):
    """Have a test's commands paint their pictures."""
    with paint():
        yield


REPLANS = {
    name: getattr(grid_redispatch, name)
    for name in ("MOST_REPLANS", "MOST_PASSES", "FIRMNESS_FACTORS", "MOST_DAMPED")
}


@pytest.fixture(scope="module")
def few_replans():
    """Let zones replan a few times only, for tests of messages, storage or charges.

    The other modules of tests/zonal and tests/power test the result of all replans.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid_redispatch, "MOST_REPLANS", 3)
        patch.setattr(grid_redispatch, "MOST_PASSES", 1)
        patch.setattr(grid_redispatch, "FIRMNESS_FACTORS", grid_redispatch.FIRMNESS_FACTORS[:1])
        patch.setattr(grid_redispatch, "MOST_DAMPED", 1)
        yield


OF_NOISE = {"budget", "delta", "target_delta", "beta", "protects", "noise"}
BASELINES: dict[tuple[object, ...], RunResult | None] = {}


@pytest.fixture(scope="module")
def shared_baselines():
    """Compute the baselines of a grid's runs once per process, for tests of other things.

    The seed has no effect: baselines have no noise (tests/zonal/test_baselines.py). Settings of
    noise have none where nothing is drawn.
    """
    honest = zonal_run._baseline

    def shared(result, scale, zones, given):
        grid = (result.case.fingerprint, result.zoning.names, result.zoning.zone_of.tobytes())
        settings = replace(result.settings, **({"seed": None} | given)).as_given()
        if settings["mechanism"] == "none":
            settings = {key: value for key, value in settings.items() if key not in OF_NOISE}
        replans = [getattr(grid_redispatch, name) for name in REPLANS]
        key = (*grid, result.network.objective.kind, scale, repr((settings, replans)))
        if key not in BASELINES:
            BASELINES[key] = honest(result, scale, zones, given)
        return BASELINES[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zonal_run, "_baseline", shared)
        yield


SHORTENED = {
    "assurance": ["few_replans"],
    "cli": ["few_replans", "unpainted", "shared_baselines"],
    "docs": ["unpainted", "shared_baselines"],
    "faults": ["few_replans", "unpainted", "shared_baselines"],
    "learning": ["unpainted"],
    "network": ["few_replans", "unpainted", "shared_baselines"],
    "power": ["unpainted"],
    "privacy": ["few_replans", "unpainted", "shared_baselines"],
    "report": ["few_replans", "unpainted", "shared_baselines"],
    "study": ["few_replans", "unpainted", "shared_baselines"],
    "zonal": ["unpainted"],
}
"""Fixtures of every module in a folder of tests; other modules ask with ``usefixtures``."""


@pytest.fixture(scope="module", autouse=True)
def shortened(request):
    for fixture in SHORTENED.get(request.path.parent.name, []):
        request.getfixturevalue(fixture)


@pytest.fixture
def no_replans(monkeypatch):
    """Have zones keep their first plans, for tests of rounds, releases or messages on them."""
    for name, none in zip(REPLANS, (0, 0, (), 0), strict=True):
        monkeypatch.setattr(grid_redispatch, name, none)


@pytest.fixture
def all_replans(monkeypatch):
    """Have zones replan as often as they do for users, in a module of ``few_replans``."""
    for name, value in REPLANS.items():
        monkeypatch.setattr(grid_redispatch, name, value)


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
