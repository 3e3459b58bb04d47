"""Pictures in the documentation equal those of a run today."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import gridpriv

IMAGES = Path(__file__).parents[2] / "docs" / "images"
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@pytest.mark.large
def test_the_picture_of_zones_shows_released_totals_of_today() -> None:
    script = runpy.run_path(str(IMAGES / "make_zones.py"))
    drawn = (IMAGES / "zones.svg").read_text(encoding="utf-8")
    shown = [float(text.replace(",", "")) for text in re.findall(r"releases ([\d,]+) MW", drawn)]
    assert shown == [round(total) for _, total in script["released_totals"]().values()]


def report_text() -> str:
    """Return the text of the report in the picture, as its script stored it."""
    with Image.open(IMAGES / "report.png") as picture:
        return str(picture.text["Description"])


def test_the_picture_of_a_report_shows_costs_of_today() -> None:
    case = gridpriv.load_case("case14")
    zones = gridpriv.shipped_zoning(case)

    def cost(**given: object) -> float:
        return float(gridpriv.run(case, zones, gridpriv.make_settings(**given)).physical["cost"])

    noise_free = cost(mechanism="none")
    noisy = np.mean([cost(beta="10MW", budget="total:5", seed=seed) for seed in range(1, 6)])
    text = report_text()
    assert f"Cost of privacy +{noisy - noise_free:.2f} $/h" in text
    assert f"prior-only +{cost(release='nothing') - noise_free:.2f} $/h" in text


@pytest.mark.slow
def test_the_picture_of_a_report_has_the_words_of_today(tmp_path: Path) -> None:
    script = runpy.run_path(str(IMAGES / "make_report.py"))
    page = script["written"](tmp_path / "study").read_text(encoding="utf-8")
    assert NUMBER.sub("#", script["shown_text"](page)) == NUMBER.sub("#", report_text())
