"""The parser of a command line, and flags common to several commands.

Help shows every default, and an error is one sentence that names the nearest flag.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import gridpriv
from gridpriv.cli.output import warn
from gridpriv.core import errors
from gridpriv.core.settings import (
    Part,
    as_flags,
    check_names,
    defaults,
    names,
    parts_of,
    reading,
    settings_of,
)
from gridpriv.core.text import Json, counted, sections
from gridpriv.report import check_formats

if TYPE_CHECKING:
    from gridpriv.grid.scenarios import DemandSeries


RUNNING = (
    *("study", "dry_run", "jobs", "cluster", "resume", "retry_failed"),
    *("format", "out", "json", "quiet", "data", "download"),
)
"""Arguments on the execution of a study, not its content."""
COUPLING = ("storage", "ramps", "reserves", "commitment")
"""Files that couple the steps of a series."""
ZONE_FLAGS = ("zones", "zoning", "zones_from", "partition", "zone_size")
LEDGER_FLAGS = ("ledger", "ledger_key")
TITLES = {"Service": "prices and balancing", "FlowBased": "flow-based analysis"}
"""Titles of parts in the help; by default the name of the class."""


def number(kind: Callable[[str], Any], what: str) -> Callable[[str], Any]:
    """Return an argparse type that raises gridpriv's errors."""

    def parse(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}: must be {what}") from None

    return parse


def _whole(text: str) -> int:
    value = int(text)
    if abs(value) > errors.MOST_WHOLE:
        raise ValueError
    return value


WHOLE = number(_whole, "a whole number below 2^64")
REAL = number(float, "a number")


def listed(text: str) -> list[str]:
    """Split a comma-separated text."""
    return [part.strip() for part in text.split(",") if part.strip()]


HELP, EXAMPLES = (Path(__file__).with_name(name) for name in ("help.txt", "examples.txt"))


@cache
def help_texts() -> dict[str, str]:
    """Return the help of arguments by ``NAME`` or, where commands differ, ``COMMAND NAME``."""
    texts = sections(HELP).items()
    return {name: " ".join(text.split()) for head, text in texts for name in head.split(", ")}


def help_of(parser: Any, name: str, otherwise: str = "") -> str:
    """Return the help of an argument of a parser; a group has the arguments of all commands."""
    command = getattr(parser, "prog", "").removeprefix("gridpriv ")
    return help_texts().get(f"{command} {name}") or otherwise or help_texts()[name]


def flag(
    parser: Any, name: str, metavar: str, kind: Any = None, default: Any = None, **more: Any
) -> None:
    """Add an argument with a value to a parser or one of its groups."""
    given = {"help": more.get("help") or help_of(parser, name)}
    parser.add_argument(name, metavar=metavar, type=kind, default=default, **more | given)


def switch(parser: Any, name: str, action: Any = "store_true", **more: Any) -> None:
    """Add a flag without a value."""
    parser.add_argument(name, action=action, help=help_of(parser, name), **more)


def add_settings(
    parser: argparse.ArgumentParser,
    kind: type[Part],
    presets: Iterable[str],
    without: Collection[str] = (),
    **options: Any,
) -> None:
    """Add ``--preset``, ``--epsilon`` and the flags of settings; see :func:`add_flags`."""
    preset = f"base settings, overridden by other flags: {' | '.join(presets)} (default: none)"
    flag(parser, "--preset", "NAME", help=help_of(parser, "--preset", preset))
    if "budget" not in without:
        flag(parser, "--epsilon", "E", reading(float))
    add_flags(parser, kind, without, **options)


def add_flags(
    parser: argparse.ArgumentParser,
    kind: type[Part],
    without: Collection[str] = (),
    hidden: Collection[str] = (),
    *,
    axis: bool = False,
) -> None:
    """Add a flag for every setting, one group per part; the default is None.

    For a setting with fewer allowed values than in a run the help is in ``help.txt``.

    Parameters
    ----------
    hidden : collection of str
        Settings that are refused with a reason, and left out of the help.
    axis : bool
        True if a flag takes several values, by commas or repeated: an axis of a study.
    """
    standard, current = defaults(kind), settings_of(kind)
    for part, declared in parts_of(kind).items():
        flagged = [name for name in declared if name not in without]
        if not flagged:
            continue
        title = TITLES.get(part.__name__) or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", part.__name__)
        group = parser.add_argument_group(title.lower(), part.__doc__)
        for name in flagged:
            item, option = current[name], f"--{name.replace('_', '-')}"
            several = axis and not item.repeated
            own = f"{parser.prog.removeprefix('gridpriv ')} {option}" in help_texts()
            value = item.metavar if own else item.placeholder()
            value = f"{item.metavar},..." if several else value
            described = item.described(standard[name], value).replace("%", "%%")
            flag(
                group,
                option,
                value,
                str if axis else item.read,
                action="append" if axis or item.repeated else "store",
                help=argparse.SUPPRESS if name in hidden else help_of(parser, option, described),
            )


def refer(parser: argparse.ArgumentParser, command: str, first: int = 1) -> None:
    """Name the flags so far in one group, and leave their help to the command that explains them.

    Flags with a text of their own in ``help.txt`` keep it, and so do those before the ``first``.
    """
    own, named = parser.prog.removeprefix("gridpriv "), []
    for action in parser._actions[first:]:  # by default all after --help
        option = next(iter(action.option_strings), "")
        if option and action.help != argparse.SUPPRESS and f"{own} {option}" not in help_texts():
            action.help = argparse.SUPPRESS
            named.append(option)
    for group in parser._action_groups:
        if all(action.help == argparse.SUPPRESS for action in group._group_actions):
            group.description = None
    text = f"'gridpriv {command} --help' explains {', '.join(named)}."
    parser.add_argument_group(f"as in gridpriv {command}", text)


def given_settings(args: argparse.Namespace, kind: type[Part]) -> Json:
    """Return the settings on the command line."""
    values = {name: getattr(args, name, None) for name in names(kind)}
    given = {name: value for name, value in values.items() if value is not None}
    if "budget" in values and getattr(args, "epsilon", None) is not None:
        if "budget" in given:
            raise errors.InputError("--epsilon and --budget exclude each other")
        from gridpriv.privacy.settings import Budget

        given["budget"] = Budget("per-release", args.epsilon)
    return given


def run_settings(args: argparse.Namespace) -> gridpriv.Settings:
    """Return the settings of a run on the command line, including a preset's."""
    return gridpriv.make_settings(args.preset, **given_settings(args, gridpriv.Settings))


def named_settings(text: str, kind: type[Part], example: str, *also: str) -> tuple[str, Json]:
    """Return name and settings of ``NAME: SETTING=VALUE ...``; names in ``also`` are allowed."""
    name, colon, rest = text.partition(":")
    pairs = [word.partition("=") for word in rest.split()]
    if not (name.strip() and colon and all(equals for _, equals, _ in pairs)):
        raise errors.not_allowed("method", text, f"NAME: SETTING=VALUE ..., such as {example!r}")
    current, given = settings_of(kind), {}
    check_names([key for key, _, _ in pairs], (*current, *also))
    for key, _, value in pairs:
        plain = key.replace("-", "_")
        item = current.get(plain)
        read = value if item is None else item.read(value)
        given[plain] = tuple(value.split(",")) if item is not None and item.repeated else read
    return name.strip(), given


def study_words(args: argparse.Namespace) -> dict[str, list[str]]:
    """Return the words of a command that define its study, by argument."""
    words: dict[str, list[str]] = {}
    for action in args.parser.actions():
        value = getattr(args, action.dest, None)
        if action.dest in RUNNING or action.dest in words or value in (None, [], action.default):
            continue
        values = value if isinstance(value, list) else [value]
        flag = action.option_strings[:1]
        words[action.dest] = [word for item in values for word in (*flag, str(item))]
    return words


def refuse_beside_study(args: argparse.Namespace) -> None:
    """Refuse arguments that a study file replaces: all except those on execution."""
    if words := study_words(args):
        named = ", ".join(given[0] for given in words.values())
        raise errors.InputError(
            f"--study reads a whole study. Move these settings into the file: {named}"
        )


def command_again(args: argparse.Namespace, settings: gridpriv.Settings) -> str:
    """Return the command that repeats a run: files by their full path, every setting.

    Some defaults are included too: those that a later version may change.
    """
    from gridpriv.privacy.settings import NO_BUDGET

    words = ["gridpriv", args.command, _full(args.case)]
    words += given_words(args, *ZONE_FLAGS, "demand", "series", *COUPLING, *LEDGER_FLAGS)
    words += ["--step-hours", f"{args.step_hours:g}"] if args.step_hours != 1.0 else []
    if args.reference is not None:
        words.append("--reference" if args.reference else "--no-reference")
    current = settings_of(type(settings))
    files = {
        name: getattr(settings, name) for name in current if current[name].metavar[:4] == "FILE"
    }
    full: Json = {name: _full(path) for name, path in files.items() if path is not None}
    budget = () if settings.noise_budget in NO_BUDGET else ("budget",)
    schedule = settings.as_dict()["noise_schedule"] or settings.noise_schedule
    same = replace(settings, noise_schedule=schedule, **full)
    return shlex.join([*words, *as_flags(same, ("release", "noise_schedule", "rounds", *budget))])


def given_words(args: argparse.Namespace, *names: str) -> list[str]:
    """Return those of some flags that were given, with their values."""
    given = {name: getattr(args, name) for name in names}
    pairs = [(name, _full(str(value))) for name, value in given.items() if value is not None]
    return [word for name, text in pairs for word in (f"--{name.replace('_', '-')}", text)]


def _full(text: str) -> str:
    path = Path(text)
    return str(path.resolve()) if path.is_file() else text


def add_case_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the case and its demand."""
    flag(parser, "case", "CASE")
    flag(parser, "--demand", "FILE.csv")


def given_case(args: argparse.Namespace, load_scale: float = 1.0) -> gridpriv.Case:
    """Return the case of the arguments, with their demand before scaling."""
    case = gridpriv.load_case(args.case)
    if not case.reference.any():
        warn("no-reference-bus", case=args.case)
    if hasattr(args, "beta") and ((case.pmin < 0.0) & (case.pmax == 0.0)).any():
        warn("dispatchable-loads", case=args.case)
    if getattr(args, "demand", None) is not None:
        from gridpriv.grid.scenarios import read_bus_demand, unlisted_buses

        unlisted = unlisted_buses(case, read_bus_demand(args.demand, case))
        warn_of_unlisted(f"--demand {args.demand}", unlisted)
        case = gridpriv.override_demand(case, args.demand)
    if getattr(args, "series", None) is None:
        question_demand(args, case, load_scale)
    return case


def read_series(
    args: argparse.Namespace, case: gridpriv.Case, load_scale: float = 1.0
) -> DemandSeries:
    """Return the series of ``--series``."""
    from gridpriv.grid.pandapower import is_profiles, profile_series

    if is_profiles(args.series):
        series = profile_series(args.series, args.case, case)
    else:
        series = gridpriv.read_demand_series(args.series, case)
    question_series(args, series, f"--series {args.series}", load_scale)
    return series


def question_series(
    args: argparse.Namespace, series: DemandSeries, source: str, load_scale: float = 1.0
) -> None:
    """Warn of buses without rows, and of implausible demand in the largest and the least step."""
    warn_of_unlisted(source, series.unlisted)
    sizes = abs(series.pd).sum(axis=1)
    for step in dict.fromkeys((int(sizes.argmax()), int(sizes.argmin()))):
        name, scale = series.steps[step], load_scale * (series.scale(step) or 1.0)
        question_demand(args, series.at(step), load_scale, f"{source}, step {name}", scale)


def warn_of_unlisted(source: str, buses: Sequence[int]) -> None:
    """Warn of buses that a file of demand leaves out."""
    if buses:
        first = ", ".join(map(str, buses[:5])) + (" and others" if len(buses) > 5 else "")
        warn("demand-unlisted", source=source, number=counted(len(buses), "bus"), first=first)


def question_demand(
    args: argparse.Namespace,
    case: gridpriv.Case,
    load_scale: float = 1.0,
    source: str = "",
    scale: float | None = None,
) -> None:
    """Warn of implausible demand; for public output only on its flags.

    Parameters
    ----------
    case : Case
        Before its demand is multiplied by ``load_scale``.
    source : str
        Of the demand; by default the case or ``--demand``.
    scale : float, optional
        ``load_scale`` times that of a series' step.
    """
    from gridpriv.power.prior import warn_of_demand

    if load_scale == 0.0:
        warn("load-scale-zero")
    elif not getattr(args, "public", False):
        given = getattr(args, "demand", None)
        source = source or (f"case {args.case}" if given is None else f"--demand {given}")
        source += f", --load-scale {load_scale:g}" if load_scale != 1.0 else ""
        scale = load_scale if scale is None else scale
        warn_of_demand(case.scale_load(load_scale), source, scale)


def add_zone_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose zones."""
    zones = parser.add_argument_group("zones", "Zone map.")
    count = number(_whole, "a number of zones; a map of them is named by --zoning FILE.csv")
    flag(zones, "--zones", "K", count)
    flag(zones, "--zoning", "FILE.csv")
    flag(zones, "--zones-from", "NAME")
    flag(zones, "--partition", "NAME")
    flag(zones, "--method", "NAME", help=argparse.SUPPRESS, dest="partition")  # its older name
    flag(zones, "--zone-size", "N", WHOLE)


def chosen_zoning(case: gridpriv.Case, args: argparse.Namespace) -> gridpriv.Zoning:
    """Return the zone map of the arguments."""
    from gridpriv.grid.zoning import zoning_from_source
    from gridpriv.zonal.prepared import zoning_for

    given = [name for name in ("zoning", "zones_from") if getattr(args, name)]
    if given and (len(given) > 1 or args.zones or args.partition or args.zone_size):
        raise errors.InputError(
            f"--{given[0].replace('_', '-')} names a map; leave out --zones, --zone-size, "
            "--partition and every other map"
        )
    if args.zones_from:
        return zoning_from_source(case, args.zones_from)
    if args.zoning:
        return zoning_for(case, Path(args.zoning))
    if args.zone_size is not None and args.zone_size < 1:
        raise errors.not_allowed("zone-size", args.zone_size, "1 or more buses")
    if args.zones is not None and args.zones < 1:
        raise errors.not_allowed("zones", args.zones, f"1 to {case.n_bus}, the number of buses")
    if args.zones and args.zone_size:
        raise errors.InputError("--zones and --zone-size exclude each other")
    zones = max(1, round(case.n_bus / args.zone_size)) if args.zone_size else args.zones
    zoning = zoning_for(
        case, zones if args.partition is None else f"{args.partition}:{zones or ''}"
    )
    if zoning.n_zone == 1:
        warn("one-zone")
    return zoning


def add_ledger_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--ledger`` and ``--ledger-key``."""
    for name in LEDGER_FLAGS:
        flag(parser, f"--{name.replace('_', '-')}", "FILE")


def add_formats(parser: argparse.ArgumentParser) -> None:
    """Add ``--format``, the reports to write."""
    flag(parser, "--format", "A,B,...", default="html")


def wanted_formats(args: argparse.Namespace) -> list[str]:
    """Return the formats of ``--format``; ``none`` is no report."""
    formats = [name for name in listed(args.format) if name != "none"]
    check_formats(formats)
    return formats


def add_output(
    parser: argparse.ArgumentParser, metavar: str = "", default: str | None = None
) -> None:
    """Add ``--out`` if the command writes files, ``--json`` and ``--quiet``."""
    if metavar:
        flag(parser, "--out", metavar, default=default)
    switch(parser, "--json")
    switch(parser, "--quiet")


INSTEAD = {
    "total": ("budget", "budget total:E"),
    "budget": ("total", "total E"),
    "epsilon": ("total", "total E"),
    "epsilons": ("totals", "totals E,E"),
}
"""By a flag that a command does not have: the flag to use, and its notation."""


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
            For a flag that the command does not have, or text that no file system allows.
        """
        for word in words:
            if "\0" in word:
                raise errors.not_allowed("argument", word, "a text without null characters")
            if word.startswith("--") and word.endswith("=--"):  # argparse would fail on it
                raise errors.InputError(f"{word}: must have a value after =")
        args, unknown = self.parse_known_args(words)
        for flag in (word.partition("=")[0] for word in unknown if word.startswith("-")):
            name, known = flag.lstrip("-").replace("_", "-"), args.parser.flags()
            other, instead = INSTEAD.get(name, ("", ""))
            near = instead if other in known else errors.nearest(name, known)
            hint = f"did you mean --{near}?" if near else f"use {args.parser.prog} --help"
            raise errors.InputError(f"unknown flag {flag}: {hint}")
        if unknown:
            args.parser.error(f"{unknown[0]!r} is one word too many")
        return args

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an unknown command, with the error of any other bad value."""
        if action.choices is not None:
            errors.check_choice(action.dest, value, action.choices)

    def actions(self) -> list[argparse.Action]:
        """Return the arguments, in the order of the help."""
        return self._actions

    def flags(self) -> list[str]:
        """Return the names of the flags, without their hyphens in front."""
        return [flag[2:] for flag in self._option_string_actions if flag.startswith("--")]

    def name_flag(self, error: errors.InputError) -> None:
        """Name the flag in the error of its parameter."""
        if error.setting is None or error.setting[0].replace("_", "-") not in self.flags():
            return
        name, value, allowed = error.setting
        text = str(value).removesuffix(".0") or "''"
        text = f"{text[: errors.LONGEST]}..." if len(text) > errors.LONGEST else text
        shown = "" if value is None or value is True else f" {text}"
        error.args = (f"--{name.replace('_', '-')}{shown}: must be {allowed}",)

    def examples(self) -> str:
        """Return example command lines; empty for a group."""
        return examples().get(self.prog.partition(" ")[2], "")

    def format_help(self) -> str:
        """Return the help, examples last."""
        shown = textwrap.indent(self.examples(), "  ")
        return super().format_help() + (f"\nexamples:\n{shown}\n" if shown else "")

    def print_help(self, file: Any = None) -> None:
        """Print the help; argparse's own method ignores a full disk."""
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Print the error and end with exit code 2."""
        self.exit(2, f"{self.prog}: {message} ({self.prog} --help says what it takes)\n")


class Help(argparse.HelpFormatter):
    """Help with every default and a short usage, without breaks in names such as dp-admm."""

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Any, prefix: Any = None
    ) -> None:
        """Add required arguments; the options are listed below."""
        every = list(actions)
        needed = [item for item in every if not item.option_strings or item.required]
        if usage is None and len(needed) < len(every):
            usage = " ".join(["%(prog)s", *map(_needed, needed), "[options]"])
        super().add_usage(usage, every, groups, prefix)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        if not text or not action.option_strings or action.nargs == 0:
            return text
        if "default" in text or "(required" in text:
            return text
        if action.required:
            return f"{text} (required)"
        default = "none" if action.default in (None, "", ()) else action.default
        return f"{text} (default: {str(default).replace('%', '%%')})"

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent("\n".join(self._split_lines(text, width - len(indent))), indent)


def _needed(action: argparse.Action) -> str:
    """Return a positional, or a required flag, in the form of the usage line."""
    name = str(action.metavar or action.dest)
    if action.option_strings:
        return f"{action.option_strings[0]} {name}"
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} ..."}.get(str(action.nargs), name)
