"""``gridpriv``: find the command, run it, turn errors into messages and exit codes.

Errors of a user or a machine end in one sentence. Anything else is a defect and is reported as one
(exit code 70); with ``GRIDPRIV_TRACEBACK`` set, and for callers of :func:`main` with arguments, the
exception itself is raised.
"""

from __future__ import annotations

import argparse
import errno
import gc
import io
import os
import signal
import sys
import traceback
import warnings
from pathlib import Path
from pkgutil import resolve_name
from typing import NoReturn

from gridpriv.cli.flags import Parser, help_of
from gridpriv.core.errors import GridprivError, GridprivWarning, InputError, SolverError, notes
from gridpriv.core.text import clean
from gridpriv.core.threads import one_thread

COMMANDS = {
    "run": "run:add_arguments",
    "compare": "study:add_compare",
    "plan": "plan:add_arguments",
    "publish": "publish:add_arguments",
    "report": "study:add_report",
    "reproduce": "study:add_reproduce",
    "audit": "assurance:add_audit",
    "attack": "assurance:add_attack",
    "relax": "optimum:add_relax",
    "acopf": "optimum:add_acopf",
    "security": "analysis:add_security",
    "exchange": "analysis:add_exchange",
    "zones": "grids:add_zones",
    "cases": "grids:add_cases",
    "convert": "grids:add_convert",
    "learn": "learn:add_arguments",
    "ledger": "budgets:add_ledger",
    "schema": "study:add_schema",
    "consortium": "consortium:add_consortium",
    "coordinator": "consortium:add_coordinator",
    "zone-agent": "consortium:add_zone",
    "keys": "consortium:add_keys",
    "account": "budgets:add_account",
}
"""The functions that add the arguments of commands, in the order of the help."""
RARELY = 100_000  # new objects between two collections: imports make many and drop few
TRACEBACK = "GRIDPRIV_TRACEBACK"
DEFECT, PIPE_CLOSED = 70, 141
# errors of a user's path, or of exhausted resources
OF_INPUT = {"ENOENT", "EACCES", "EPERM", "EISDIR", "ENOTDIR", "ENAMETOOLONG", "ELOOP"}
OF_INPUT |= {"EEXIST", "ENOTEMPTY", "ENXIO"}
OF_MACHINE = {"ENOSPC", "EDQUOT", "EIO", "EROFS", "EMFILE", "ENFILE", "ENOMEM", "EFBIG", "EAGAIN"}


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Returns
    -------
    int
        Exit code: 0 done, 2 input, 3 solver or storage, 4 budget; 130 interrupted, 143
        terminated, 141 closed output.
    """
    own = arguments is None  # this process is the command's own: it may start others
    words = sys.argv[1:] if arguments is None else arguments
    command = words[0] if words and words[0] in COMMANDS else ""
    try:
        if own:
            _open_closed_streams()
            _decode_as_utf8(words)
            gc.set_threshold(RARELY)
            one_thread(os.environ)
            signal.signal(signal.SIGTERM, _terminate)
            if isinstance(sys.stdout, io.TextIOWrapper):
                _drop_native_output(sys.stdout.encoding)
        try:
            return _run(words, command, own=own)
        finally:  # a full disk is detected when output is flushed, for help too
            sys.stdout.flush()
            if own:
                gc.freeze()  # Python would collect cycles at exit for 0.06 s
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # it would replace the exit code
    except (Exception, KeyboardInterrupt) as error:
        if own:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        text = _expected_error(error)
        if text is None and (not own or TRACEBACK in os.environ):
            raise
        sentence, code = text or (_defect(error), DEFECT)
        if own:
            _discard_output()
        if sentence:
            from gridpriv.cli.output import wrapped

            line = f"{' '.join(['gridpriv', command]).strip()}: {clean(sentence)}"
            print(wrapped(line, sys.stderr, "  "), file=sys.stderr)
        return code


def _run(words: list[str], command: str, *, own: bool) -> int:
    parser = _parser(command)
    args = parser.read(words)
    args.process = own
    if args.command is None:
        parser.print_help()
        return 2
    show_warnings(quiet=args.quiet)
    try:
        code: int = args.execute(args)
        return code
    except InputError as error:
        if not getattr(args, "study", None):  # a file's settings are keys
            args.parser.name_flag(error)
        raise


def _expected_error(error: BaseException) -> tuple[str, int] | None:
    """Return the sentence and exit code of an expected error; None for a defect."""
    if isinstance(error, GridprivError):
        return f"{error}{notes(error)}", error.exit_code
    if isinstance(error, KeyboardInterrupt):
        sentence, code = error.args or ("interrupted", 130)
        return f"{sentence}{notes(error)}", int(code)
    if isinstance(error, BrokenPipeError):
        return "", PIPE_CLOSED
    if isinstance(error, MemoryError):
        return f"out of memory{notes(error)}", SolverError.exit_code
    name = errno.errorcode.get(error.errno or 0) if isinstance(error, OSError) else None
    if isinstance(error, OSError) and name in OF_INPUT | OF_MACHINE:
        where = f"{error.filename}: " if error.filename else ""
        code = (InputError if name in OF_INPUT else SolverError).exit_code
        return f"{where}{error.strerror}{notes(error)}", code
    return None


def _defect(error: BaseException) -> str:
    """Return the message for an unexpected exception, without its text: it may quote demand."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"this is a defect of gridpriv or of a plugin: {type(error).__name__} "
        f"({Path(last.filename).name}, line {last.lineno}). Please report it with the command "
        f"line; {TRACEBACK}=1 shows the traceback, which may hold values for the data owner only"
    )


def _open_closed_streams() -> None:
    """Replace missing standard streams.

    Otherwise the next opened file would have their number, and a solver's output would go into it.
    """
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _decode_as_utf8(words: list[str]) -> None:
    """Start again in Python's UTF-8 mode where the locale cannot decode a word, such as a path."""
    undecoded = any("\udc80" <= letter <= "\udcff" for word in words for letter in word)
    if undecoded and not sys.flags.utf8_mode:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def _drop_native_output(encoding: str) -> None:
    """Drop output of compiled libraries: HiGHS prints lines that no option turns off.

    Standard output of Python has another number from then on. A locale may lack characters of a
    name.
    """
    number, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    sys.stdout = os.fdopen(number, "w", 1, encoding, "backslashreplace")
    sys.__dict__["__stdout__"] = sys.stdout  # for the width of the terminal


def _discard_output() -> None:
    """Discard buffered standard output, so that the interpreter does not fail on it."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _terminate(*_: object) -> NoReturn:
    """End as after Ctrl-C, with cleanup; a second SIGTERM ends at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt("terminated", 128 + signal.SIGTERM)


def _parser(command: str) -> Parser:
    """Return the parser of a command, or of all commands' names; help imports no command."""
    parser = Parser(
        prog="gridpriv",
        description="Differentially private distributed optimal power flow for power grids.",
        epilog="gridpriv COMMAND --help describes a command.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in [command] if command else COMMANDS:
        summary = help_of(parser, name)
        described = commands.add_parser(name, help=summary, description=summary)
        if name == command:
            add_arguments(name, described)
    return parser


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a command, and as a default the function that executes it."""
    resolve_name(f"gridpriv.cli.{COMMANDS[name]}")(parser)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"gridpriv {version('gridpriv')}")
        parser.exit()


def show_warnings(*, quiet: bool = False) -> None:
    """Print gridpriv's warnings on standard error, one line each; hide those of other packages."""
    warnings.simplefilter("ignore")
    if not quiet:
        warnings.simplefilter("always", GridprivWarning)

    distinct: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in distinct:  # runs of a study have the same warnings
            distinct.add(str(message))
            from gridpriv.cli.output import wrapped

            line = f"warning: {clean(str(message))}"
            print(wrapped(line, sys.stderr, "  "), file=sys.stderr)

    warnings.showwarning = show


if __name__ == "__main__":
    sys.exit(main())
