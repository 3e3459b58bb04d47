"""``gridpriv``: find the command, run it, turn errors into messages and exit codes."""

from __future__ import annotations

import argparse
import gc
import io
import signal
import sys
import textwrap
import warnings
from importlib import import_module
from typing import Any, NoReturn

from gridpriv.core.errors import GridprivError, GridprivWarning

COMMANDS = {
    "run": "one private run of a case",
    "compare": "a study over budgets, mechanisms and seeds, with its report",
    "report": "build the report of a study or a run: html, pdf, xlsx, csv, tex",
    "reproduce": "a figure or table of a paper, from a bundled study",
    "audit": "does the code deliver the epsilon that it states?",
    "attack": "what somebody who hears every message learns about a bus's demand",
    "relax": "the centralized SOC relaxation of a case: its bound, prices, what binds",
    "acopf": "the AC optimum of a case: cost, prices, losses, demand that cannot be served",
    "zones": "partition a case into zones, check and draw them",
    "cases": "the cases that can be found by name",
    "learn": "federated learning of linear models: run, compare, reproduce",
    "ledger": "grants of data owners, and what was charged: grant, show, export, verify",
    "account": "total privacy of T releases, or the noise for a total",
}


RARELY = 100_000  # new objects between two collections: imports make many and drop few


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code (0 done, 2 input, 3 solver or storage, 4 budget)."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = _parser(words[0] if words else "")
    args = parser.parse_args(words)
    args.process = arguments is None  # the process is ours: a command may start others beside it
    if args.process:
        gc.set_threshold(RARELY)
        signal.signal(signal.SIGTERM, _terminate)
        if isinstance(sys.stdout, io.TextIOWrapper):  # a locale may lack a name's characters
            sys.stdout.reconfigure(errors="backslashreplace")
    if args.command is None:
        parser.print_help()
        return 2
    show_warnings()
    try:
        return int(import_module(f"gridpriv.cli.{args.command}").execute(args))
    except GridprivError as error:
        print(f"gridpriv {args.command}: {error}{_notes(error)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as stop:
        words, code = stop.args or ("interrupted", 130)
        print(f"gridpriv {args.command}: {words}{_notes(stop)}", file=sys.stderr)
        return int(code)
    except BrokenPipeError:
        return 0


def _terminate(*_: object) -> NoReturn:
    """End as after Ctrl-C: whoever began something ends it; a second SIGTERM does not wait."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt("terminated", 128 + signal.SIGTERM)


def _notes(error: BaseException) -> str:
    return "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


def _parser(command: str) -> argparse.ArgumentParser:
    """Return the parser; only the named command's module is imported, so that help is fast."""
    parser = Parser(
        prog="gridpriv",
        description="Differentially private distributed control of power grids.",
        epilog="gridpriv COMMAND --help says what a command takes.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        described = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        if name == command:
            import_module(f"gridpriv.cli.{name}").add_arguments(described)
    return parser


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and whose help does not break words at hyphens."""

    def __init__(self, **given: Any) -> None:
        given.setdefault("formatter_class", WholeWords)
        given.setdefault("allow_abbrev", False)
        super().__init__(**given)

    def error(self, message: str) -> NoReturn:
        """Print the error and end with exit code 2."""
        self.exit(2, f"{self.prog}: {message} ({self.prog} --help says what it takes)\n")


class WholeWords(argparse.HelpFormatter):
    """Help that does not break names such as dp-admm."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"gridpriv {version('gridpriv')}")
        parser.exit()


def show_warnings() -> None:
    """Print what a user should know on standard error, one line each; hide other packages'."""
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", GridprivWarning)

    told: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in told:  # runs of a study warn alike
            told.add(str(message))
            print(f"warning: {message}", file=sys.stderr)

    warnings.showwarning = show


if __name__ == "__main__":
    sys.exit(main())
