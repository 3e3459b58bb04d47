"""Draw report.png: the first page of a study's report, as the documentation shows it.

python docs/images/make_report.py [STUDY]    needs chromium; without STUDY it runs one into a folder
                                             of its own (a minute)

The text of the page up to its charts is stored in the picture, for a test.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from gridpriv.cli.main import main

WORDS = ["compare", "case14", "--beta", "10MW", "--budgets", "1,5", "--seeds", "5", "--quiet"]
PLACE = Path(__file__).with_name("report.png")
SIZE = "1280,1440"


def written(folder: Path) -> Path:
    """Return the report of a study, which is run first if the folder has none."""
    if not (folder / "manifest.json").exists() and main([*WORDS, "--out", str(folder)]):
        sys.exit("the study was not run")
    if main(["report", str(folder), "--quiet"]):
        sys.exit("the report was not written")
    return folder / "report.html"


def shown_text(page: str) -> str:
    """Return the text of a report from its title to its first chart."""
    body = page[page.index("<h1") : page.index("<svg", page.index("<h1"))]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def draw(report: Path) -> None:
    """Draw a report, with its text."""
    words = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--hide-scrollbars",
        f"--screenshot={PLACE}",
        f"--window-size={SIZE}",
        report.resolve().as_uri(),
    ]
    subprocess.run(words, check=True, capture_output=True)
    text = PngInfo()
    text.add_itxt("Description", shown_text(report.read_text(encoding="utf-8")))
    with Image.open(PLACE) as picture:
        picture.load()
    picture.save(PLACE, pnginfo=text, optimize=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        draw(written(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as place:
            draw(written(Path(place) / "study"))
