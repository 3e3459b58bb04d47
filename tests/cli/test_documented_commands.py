"""Every command line in the documentation is one that the command understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import gridpriv
from gridpriv.cli.flags import given_settings
from gridpriv.cli.main import COMMANDS, _parser
from gridpriv.privacy.settings import NAMES

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def command_lines(page: Path) -> list[str]:
    """Return the command lines of a page's code blocks; a backslash joins lines."""
    text = page.read_text().replace("\\\n", " ")
    fenced = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = []
    for block in fenced:
        for line in block.splitlines():
            for part in re.split(r"&|\||;|>", line.partition(" #")[0]):
                words = part.strip().removeprefix("$ ")
                if re.match(r"(\S*/)?gridpriv [a-z]", words):
                    lines.append(words)
    return lines


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_documented_commands_parse(page: Path, request: pytest.FixtureRequest) -> None:
    if page.name == "mechanism.md":  # its commands name the mechanism that it registers
        NAMES.append("ball")
        request.addfinalizer(lambda: NAMES.remove("ball"))
    for line in command_lines(page):
        words = shlex.split(line)[1:]
        if any(word.isupper() and word in ("ACTION", "COMMAND") for word in words):
            continue
        assert words[0] in COMMANDS, (page.name, line)
        try:
            args = _parser(words[0]).read(words)
            if words[0] == "run":
                gridpriv.make_settings(args.preset, **given_settings(args, gridpriv.Settings))
        except (SystemExit, gridpriv.InputError) as error:
            raise AssertionError(f"{page.name}: {line}: {error}") from None


def test_the_pages_are_read() -> None:
    assert sum(len(command_lines(page)) for page in PAGES) > 25
