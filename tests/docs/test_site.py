"""The site in a browser: strict build, no network access, nothing wider than the page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(needed)
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_nothing_is_fetched_and_no_latex_is_left(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="(https?:[^"]*)', text)
        assert not loaded, (page, loaded)
        assert "arithmatex" not in text, page
        assert not re.search(r"<m[ion]>\\", text), page


def test_the_reference_has_every_command_setting_and_public_name(site: Path) -> None:
    import gridpriv
    from gridpriv.cli.main import COMMANDS

    def text_of(page: str) -> str:
        return (site / "reference" / page / "index.html").read_text(encoding="utf-8")

    assert all(f"gridpriv {name}" in text_of("commands") for name in COMMANDS)
    fields = gridpriv.Settings.__dataclass_fields__
    assert all(f"<code>{name}</code>" in text_of("settings") for name in fields)
    assert all(f'.{name}"' in text_of("api") for name in gridpriv.__all__)


WIDE = """
const free = "pre, .md-typeset__scrollwrap, .equation, code";
return [...document.querySelectorAll("article *")]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(free))
  .map(e => e.tagName + " " + e.textContent.slice(0, 40));
"""
FLAT = """
return [...document.querySelectorAll("math")]
  .filter(m => m.getBoundingClientRect().height < 4).length;
"""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    "page",
    [
        ".",
        "start",
        "concepts/admm",
        "explanation/equations",
        "explanation/sensitivity",
        "reference/commands",
        "reference/tables",
        "reference/api",
        "extend/solver",
        "learning",
        "peers",
    ],
)
def test_a_page_fits_the_screen(browser, site: Path, page: str, width: int) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 800},
    )
    try:
        browser.get((site / page / "index.html").as_uri())
        wide = browser.execute_script("return document.scrollingElement.scrollWidth")
        assert wide <= width
        assert browser.execute_script(WIDE) == []
        assert browser.execute_script(FLAT) == 0
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
