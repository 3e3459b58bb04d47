"""Pictures in the documentation equal those of a run today."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

IMAGES = Path(__file__).parents[2] / "docs" / "images"


@pytest.mark.large
def test_the_picture_of_zones_shows_released_totals_of_today() -> None:
    script = runpy.run_path(str(IMAGES / "make_zones.py"))
    drawn = (IMAGES / "zones.svg").read_text(encoding="utf-8")
    shown = [float(text.replace(",", "")) for text in re.findall(r"releases ([\d,]+) MW", drawn)]
    assert shown == [round(total) for _, total in script["released_totals"]().values()]
