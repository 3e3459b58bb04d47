"""README and every page of docs/: each block is run unchanged.

A block of ``python`` or ``sh`` is run in the page's order, in one empty folder and one namespace a
page. A comment right above it selects the suite: ``<!-- run -->`` in the default suite, ``<!-- not
run: why -->`` never, no comment with ``-m slow``. Any other language shows text and is not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gridpriv.grid.partition import METHODS
from gridpriv.privacy.mechanism import MECHANISMS

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"(?:^<!-- ([^\n]*?) -->\n)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RUN = ("python", "sh")
SHOWN = ("text", "toml", "csv", "json")
MADE = {  # by docs/site_pages.py
    "reference/commands.md",
    "reference/settings.md",
    "reference/tables.md",
    "reference/api.md",
    "decisions/index.md",
}
WHY = re.compile(r"not run: \S+ .{8}")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    mark: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Return a page's fenced blocks in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[2], match[3], match[1] or "", text.count("\n", 0, match.start(3)))
        for match in FENCE.finditer(text)
    ]


def due(page: Path, *, slow: bool) -> list[Block]:
    names = ("run", "") if slow else ("run",)
    return [b for b in blocks(page) if b.language in RUN and b.mark in names]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(blocks(page)), "a fence that is not one of FENCE"
    assert not re.search(r"\n\n    \s*(gridpriv|python|pip|\$) ", text), "an indented command"
    for block in blocks(page):
        assert block.language in (*RUN, *SHOWN), block.text
        assert block.mark in ("", "run") or WHY.match(block.mark), block.mark
        assert block.mark == "" or block.language in RUN, block.text


def play(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, *, slow: bool) -> None:
    monkeypatch.chdir(folder)
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = os.environ | {"PATH": os.pathsep.join(paths)}
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in due(page, slow=slow):
        if block.language == "python":
            placed = "\n" * block.line + block.text  # so that a traceback names the page's line
            exec(compile(placed, name(page), "exec", dont_inherit=True), namespace)
        else:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=900,
            )
            assert done.returncode == 0, (block.text, done.stdout, done.stderr)


@pytest.fixture(autouse=True)
def lists_of_names() -> Iterator[None]:
    """Restore the lists of names: pages add to them."""
    lists: list[dict[Any, Any]] = [METHODS, MECHANISMS]
    before = [dict(names) for names in lists]
    yield
    for names, was in zip(lists, before, strict=True):
        names.clear()
        names.update(was)


@pytest.mark.parametrize("page", [p for p in PAGES if due(p, slow=False)], ids=name)
def test_what_is_quick_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(page, tmp_path, monkeypatch, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if due(p, slow=True)], ids=name)
def test_everything_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(page, tmp_path, monkeypatch, slow=True)


def test_the_ways_to_add_something_run_in_the_default_suite() -> None:
    pages = sorted((ROOT / "docs" / "extend").glob("*.md"))
    assert len(pages) == 6
    assert all(due(page, slow=False) for page in pages)


def test_the_files_to_hand_over_have_no_seed(tmp_path: Path) -> None:
    page = ROOT / "docs" / "consortium.md"
    (script,) = [block.text for block in blocks(page) if "consortium verify" in block.text]
    for zone in "123":
        folder = tmp_path / "trial" / zone
        (folder / "state").mkdir(parents=True)
        (folder / "zone.toml").write_text('zone = "1"\nseed = 7\n')
        for file in ("agreement.json", "state/transcript"):
            (folder / file).touch()
    quiet = f"gridpriv() {{ :; }}\n{script}"
    subprocess.run(["bash", "-euo", "pipefail", "-c", quiet], cwd=tmp_path, check=True)
    shown = [path.read_text() for path in (tmp_path / "shown").rglob("*.toml")]
    assert shown == ['zone = "1"\n'] * 3


def test_a_decisions_number_is_its_own() -> None:
    numbers = [page.name[:4] for page in PAGES if page.parent.name == "decisions"]
    assert len(set(numbers)) == len(numbers) > 20


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_to_files_of_the_repository_are_there(page: Path) -> None:
    text = re.sub(r"```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target:
            path = (page.parent / target).resolve()
            assert path.exists() or path.relative_to(ROOT / "docs").as_posix() in MADE, target


def test_what_files_say_of_pages_is_there() -> None:
    """Pages named in source, tests and settings exist."""
    folders = [ROOT / part for part in ("gridpriv", "tests", "examples", "benchmarks")]
    files = [p for folder in folders for p in folder.rglob("*.py")]
    files += [ROOT / part for part in ("SECURITY.md", "pyproject.toml", "mkdocs.yml")]
    for path in files:
        for named in re.findall(r"\bdocs/[\w./-]+\.(?:md|py)\b", path.read_text(encoding="utf-8")):
            assert (ROOT / named).exists(), (name(path), named)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_pages_say_of_files_is_there(page: Path) -> None:
    files = r"\b(?:gridpriv|tests|benchmarks|examples)/[\w/-]+\.(?:py|toml)\b"
    for named in re.findall(files, page.read_text(encoding="utf-8")):
        assert (ROOT / named).exists(), named
