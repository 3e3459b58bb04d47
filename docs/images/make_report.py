"""Draw report.png: the first page of a study's report, as README and the documentation show it.

python docs/images/make_report.py [STUDY]    needs chromium; without STUDY it runs one into a folder
                                             of its own (a minute)
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from gridpriv.cli.main import main

WORDS = ["compare", "case14", "--beta", "10MW", "--budgets", "1,5", "--seeds", "5", "--quiet"]
PLACE = Path(__file__).with_name("report.png")
SIZE = "1280,1400"


def draw(folder: Path) -> None:
    """Draw the report of a study, or of one that is run first."""
    if not (folder / "manifest.json").exists() and main([*WORDS, "--out", str(folder)]):
        sys.exit("the study was not run")
    if main(["report", str(folder), "--quiet"]):
        sys.exit("the report was not written")
    words = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--hide-scrollbars",
        f"--screenshot={PLACE}",
        f"--window-size={SIZE}",
        (folder / "report.html").resolve().as_uri(),
    ]
    subprocess.run(words, check=True, capture_output=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        draw(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as place:
            draw(Path(place) / "study")
