"""Names are imported on first use."""

from __future__ import annotations

import compileall
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = """
from typing import TYPE_CHECKING

from gridpriv.core.lazy import lazily

if TYPE_CHECKING:
    from shelf.books import author as author, title as title
__getattr__, __dir__ = lazily(__name__)
"""
QUERY = """
import sys, shelf
assert "shelf.books" not in sys.modules
assert dir(shelf) == shelf.__all__ == ["author", "title"] and shelf.author == "Boole"
assert not hasattr(shelf, "TYPE") and not hasattr(shelf, "price")
"""


def archived(folder: Path) -> Path:
    place = folder.with_suffix(".zip")
    with zipfile.ZipFile(place, "w") as file:
        for path in folder.rglob("*.py"):
            file.write(path, path.relative_to(folder))
    return place


def compiled(folder: Path) -> Path:
    assert compileall.compile_dir(folder, quiet=2, legacy=True)
    for path in folder.rglob("*.py"):
        path.unlink()
    return folder


@pytest.mark.parametrize("remaining", [lambda folder: folder, archived, compiled])
def test_names_are_found_in_sources_in_an_archive_and_without_a_source(remaining, tmp_path):
    loader = tmp_path / "library" / "shelf"
    loader.mkdir(parents=True)
    (loader / "__init__.py").write_text(PACKAGE)
    (loader / "books.py").write_text("author, title, price = 'Boole', 'Laws of Thought', 3")
    requested = f"import sys; sys.path.insert(0, {str(remaining(loader.parent))!r}){QUERY}"
    subprocess.run([sys.executable, "-c", requested], check=True)
