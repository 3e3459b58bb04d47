"""The HTML report in headless Chromium; skipped where it is not installed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def page(browser, study_folder: Path):
    browser.set_window_size(1280, 900)
    browser.get((study_folder / "report.html").as_uri())
    assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
    return browser


def find(page, selector: str):
    from selenium.webdriver.common.by import By

    return page.find_elements(By.CSS_SELECTOR, selector)


def test_no_console_error_and_no_network(page) -> None:
    assert page.get_log("browser") == []
    loaded = page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_charts_are_drawn_where_they_should_be(page) -> None:
    charts = find(page, "svg.chart")
    assert len(charts) >= 2 + 2 * 3
    inside = """
        const box = arguments[0].getBoundingClientRect();
        const marks = [...arguments[0].querySelectorAll('.series path, .series use')];
        return marks.filter(e => !e.closest('defs')).map(e => {
          const b = e.getBoundingClientRect();
          return [b.left - box.left, b.right - box.right];
        })"""
    for chart in charts:
        assert chart.rect["width"] > 200 and chart.rect["height"] > 120
        ends = page.execute_script(inside, chart)
        assert ends
        assert all(left > 0 and right < 0 for left, right in ends)
    texts = "return [...arguments[0].querySelectorAll('text')].map(t => t.textContent)"
    maps = [set(page.execute_script(texts, chart)) for chart in find(page, "svg.map")]
    assert any({str(bus) for bus in range(1, 15)} <= numbers for numbers in maps)


def test_a_legend_button_hides_its_series_in_every_chart(page) -> None:
    button = next(b for b in find(page, "button[data-series]") if b.text == "demand, one-shot")
    count = (
        "return [...document.querySelectorAll('svg.chart .series')]"
        ".filter(g => g.style.display !== 'none').length"
    )
    before = page.execute_script(count)
    button.click()
    after = page.execute_script(count)
    assert after < before
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert page.execute_script(count) == before


def test_a_header_sorts_its_column_as_numbers(page) -> None:
    table, column = next(
        (table, column)
        for table in find(page, "table")
        for column, head in enumerate(table.find_elements("css selector", "th"))
        if head.get_attribute("textContent").startswith("Cost (")
    )
    button = table.find_elements("css selector", "th button")[column]
    read = "return [...arguments[0].tBodies[0].rows].map(r => r.cells[arguments[1]].dataset.v)"
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    up = [float(v) for v in page.execute_script(read, table, column) if v]
    button.click()
    down = [float(v) for v in page.execute_script(read, table, column) if v]
    assert up == sorted(up)
    assert down == sorted(up, reverse=True)
    assert len(set(up)) > 3


BROKEN_WORDS = r"""
const broken = [];
for (const cell of document.querySelectorAll('td, th')) {
  const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let node; node = walk.nextNode();)
    for (const word of node.data.matchAll(/\w+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = [...range.getClientRects()].filter(r => r.width > 0).map(r => r.top);
      if (Math.max(...lines) - Math.min(...lines) > 5) broken.push(word[0]);
    }
}
return broken;
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_its_width(page, width: int, tmp_path: Path) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    try:
        inner = page.execute_script("return document.documentElement.clientWidth")
        assert width - 20 <= inner <= width  # a scroll bar may take some
        assert page.execute_script("return document.documentElement.scrollWidth") <= inner
        beyond = """
            const ends = e => [e.getBoundingClientRect().left, e.getBoundingClientRect().right];
            return [...document.querySelectorAll('svg.chart text, svg.map text')].filter(t => {
              const [a, b] = ends(t), [c, d] = ends(t.closest('svg.chart, svg.map'));
              return a < b && (a < c - 1 || b > d + 1);
            }).map(t => t.textContent)"""
        assert page.execute_script(beyond) == []
        outcome = page.execute_script(
            "return [...document.querySelectorAll('.scroll')].filter(s => "
            "s.scrollWidth > s.clientWidth && s.querySelectorAll('tr:first-child th').length < 4)"
            ".map(s => s.ariaLabel)"
        )
        assert outcome == []  # a table of three columns needs no scrolling
        assert page.execute_script(BROKEN_WORDS) == []
        assert page.save_screenshot(str(tmp_path / "page.png"))
        assert (tmp_path / "page.png").stat().st_size > 20_000
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_headings_and_alternatives_are_there_for_those_who_cannot_see(page) -> None:
    levels = page.execute_script(
        "return [...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])"
    )
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    for drawing in find(page, "svg.chart, svg.map"):
        assert drawing.get_attribute("role") == "img"
        ids = drawing.get_attribute("aria-labelledby").split()
        words = [
            page.execute_script("return document.getElementById(arguments[0]).textContent", i)
            for i in ids
        ]
        assert all(words) and any(c.isdigit() for c in words[1])
    assert page.execute_script("return document.documentElement.lang") == "en"
    ids = page.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_names_with_markup_are_shown_as_text(page) -> None:
    assert find(page, "td b, button b") == []
    assert any("a <b>bold</b> & 100 % name" in b.text for b in find(page, "button[data-series]"))
