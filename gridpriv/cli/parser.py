"""Command lines: parsing, help with every default, and one sentence for what is wrong."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from gridpriv.core.errors import not_allowed, one_of
from gridpriv.core.settings import check_names
from gridpriv.core.text import sections

EXAMPLES = Path(__file__).with_name("examples.txt")


def examples() -> dict[str, str]:
    """Return the examples of each command, by the words after ``gridpriv``."""
    return sections(EXAMPLES)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and name the nearest flag; ``parser`` is the leaf's."""

    def __init__(self, **given: Any) -> None:
        given.setdefault("formatter_class", Help)
        given.setdefault("allow_abbrev", False)
        super().__init__(**given)
        self.set_defaults(parser=self)
        self._negative_number_matcher = re.compile(r"-\.?\d")  # -1MW is a value, not a flag

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the arguments of a command line.

        Raises
        ------
        InputError
            For a flag that the command does not have, or text that no file system can hold.
        """
        for word in words:
            if "\0" in word:
                raise not_allowed("argument", word, "a text without null characters")
            if word.startswith("--") and word.endswith("=--"):  # argparse would fail on it
                raise not_allowed(word[2:-3].replace("-", "_"), "--", "a value")
        args, left = self.parse_known_args(words)
        for flag in (word.partition("=")[0] for word in left if word.startswith("-")):
            name, known = flag.lstrip("-").replace("-", "_"), args.parser.flags()
            if not get_close_matches(name, known, n=1):
                raise not_allowed("flag", flag, f"one that {args.parser.prog} --help lists")
            check_names([name], known)
        if left:
            args.parser.error(f"{left[0]!r} is one word too many")
        return args

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a command that there is none of, in the words of any other bad value."""
        if action.choices is not None:
            one_of(action.dest, value, action.choices)

    def actions(self) -> list[argparse.Action]:
        """Return the arguments, in the order of the help."""
        return self._actions

    def flags(self) -> list[str]:
        """Return the names of the flags, as settings are named."""
        matches = [flag for flag in self._option_string_actions if flag.startswith("--")]
        return [flag[2:].replace("-", "_") for flag in matches]

    def examples(self) -> str:
        """Return the command lines that show what the command is for; empty for a group."""
        return examples().get(self.prog.partition(" ")[2], "")

    def format_help(self) -> str:
        """Return the help, examples last."""
        shown = textwrap.indent(self.examples(), "  ")
        return super().format_help() + (f"\nexamples:\n{shown}\n" if shown else "")

    def print_help(self, file: Any = None) -> None:
        """Print the help; argparse's own says nothing of a full disk."""
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Print the error and end with exit code 2."""
        self.exit(2, f"{self.prog}: {message} ({self.prog} --help says what it takes)\n")


class Help(argparse.HelpFormatter):
    """Help with every default and a short usage, that does not break names such as dp-admm."""

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Any, prefix: Any = None
    ) -> None:
        """Add what must be given; the options stand below."""
        every = list(actions)
        needed = [item for item in every if not item.option_strings or item.required]
        if usage is None and len(needed) < len(every):
            usage = " ".join(["%(prog)s", *map(_needed, needed), "[options]"])
        super().add_usage(usage, every, groups, prefix)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        if not text or not action.option_strings or action.nargs == 0 or "default" in text:
            return text
        if action.required:
            return f"{text} (required)"
        default = "none" if action.default in (None, "", ()) else action.default
        return f"{text} (default: {str(default).replace('%', '%%')})"

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _needed(action: argparse.Action) -> str:
    """Return a positional, or a flag that must be given, as usage shows it."""
    name = str(action.metavar or action.dest)
    if action.option_strings:
        return f"{action.option_strings[0]} {name}"
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} ..."}.get(str(action.nargs), name)


class Command(NamedTuple):
    """A command: what adds its arguments, and what executes it and returns the exit status."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], int]
