from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import gridpriv
from gridpriv import report
from gridpriv.assurance.audit import RUNS
from gridpriv.assurance.statistic import LEVELS
from gridpriv.cli import learn
from gridpriv.cli.flags import Parser, examples, given_settings, help_texts
from gridpriv.cli.main import COMMANDS, _parser, add_arguments, main
from gridpriv.consortium import parties
from gridpriv.grid import partition
from gridpriv.learning import LearnSettings, make_learn_settings
from gridpriv.study import make_plan, plan, read_plan


def leaves(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.Namespace]]:
    actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in actions:
        for word, below in action.choices.items():
            yield from leaves(below, f"{name} {word}")
    if not actions:
        yield name, parser


def every_command() -> list[tuple[str, argparse.ArgumentParser]]:
    commands = []
    for name in COMMANDS:
        parser = Parser(prog=f"gridpriv {name}")
        add_arguments(name, parser)
        commands += leaves(parser, name)
    return commands


EVERY = every_command()
EXAMPLES = examples()


@pytest.mark.parametrize(("name", "parser"), EVERY, ids=[name for name, _ in EVERY])
def test_every_flag_of_every_command_says_its_default_and_what_it_takes(name, parser):
    help_text = parser.format_help()
    assert max(map(len, help_text.splitlines())) <= 80
    assert "..." not in re.sub(
        r"\[(CASE|FOLDER) \.\.\.\]", "", help_text.partition("\n\n")[0]
    )  # the usage is short
    entries = [" ".join(entry.split()) for entry in re.split(r"\n  (?=-)", help_text)]
    for action in parser._actions:
        if action.help is argparse.SUPPRESS:
            continue
        assert action.help, (name, action.dest)
        if action.option_strings and action.nargs != 0:
            assert action.metavar, (name, action.dest)  # else argparse shouts the flag's name
            flag = f"{action.option_strings[0]} {action.metavar} "
            entry = next(entry for entry in entries if entry.startswith(flag))
            assert "(default: " in entry or "(required" in entry, entry


@pytest.mark.parametrize(("name", "parser"), EVERY, ids=[name for name, _ in EVERY])
def test_json_quiet_and_out_mean_the_same_on_every_command(name, parser):
    actions = {flag: a for a in parser._actions for flag in a.option_strings}
    for flag in ("--json", "--quiet"):
        assert (flag, actions[flag].help) == (flag, dict(_said())[flag]), name
        assert actions[flag].nargs == 0
    if "--out" in actions:
        assert actions["--out"].metavar in ("DIR", "FILE", "F.csv")


@pytest.mark.parametrize(("name", "parser"), EVERY, ids=[name for name, _ in EVERY])
def test_help_names_one_flag_for_a_value(name: str, parser: argparse.ArgumentParser) -> None:
    """An older name of a flag is still parsed, and help does not show it."""
    shown = [a.dest for a in parser._actions if a.help != argparse.SUPPRESS]
    assert sorted(set(shown)) == sorted(shown), name


@pytest.mark.parametrize(
    ("command", "flag", "value"),
    [
        ("compare", "--noise", "secure"),
        ("attack", "--noise", "secure"),
        ("attack", "--release", "nothing"),
        ("consortium", "--acceleration", "newton"),
    ],
)
def test_help_offers_no_value_that_the_command_refuses(
    command: str, flag: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    help_text = " ".join(dict(EVERY)[command].format_help().split())
    _, _, entry = help_text.partition(f" {flag} ")
    assert value not in re.split(r"\(default|(?= --)", entry)[0]
    words = [command, "case14", flag, value, "--out", str(tmp_path / "out")]
    assert main([*words, *(["--bus", "12"] if command == "attack" else [])]) == 2
    assert f"{flag} {value}: must be " in capsys.readouterr().err


def test_every_command_has_examples_of_it_in_its_help() -> None:
    assert set(EXAMPLES) == {name for name, _ in EVERY}
    for name, parser in EVERY:
        help_text = parser.format_help()
        lines = EXAMPLES[name].strip().replace("\\\n", " ").splitlines()
        commands = [line for line in lines if not line.startswith("#")]
        assert commands, name
        assert all(line.startswith(f"gridpriv {name}") for line in commands)
        assert textwrap.indent(EXAMPLES[name].strip("\n"), "  ") in help_text


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_of_the_help_parse(name: str) -> None:
    for line in EXAMPLES[name].replace("\\\n", " ").splitlines():
        if not line.startswith("gridpriv"):
            continue
        words = shlex.split(line)[1:]
        args = _parser(words[0]).read(words)
        hidden = [a for a in args.parser._actions if a.help is argparse.SUPPRESS]
        flags = {flag for a in hidden for flag in a.option_strings} & set(words)
        assert not flags - referred(args.parser), line
        if words[0] in ("run", "audit", "attack", "consortium"):
            gridpriv.make_settings(args.preset, **given_settings(args, gridpriv.Settings))
        if name in ("learn run", "learn grant"):
            given = given_settings(args, LearnSettings)
            make_learn_settings(Path(args.dataset).stem, getattr(args, "preset", None), **given)


def test_every_text_of_the_help_is_of_a_command_or_an_argument() -> None:
    names = set(COMMANDS)
    for name, parser in EVERY:
        names.add(name)
        for action in parser._actions:
            option = action.option_strings[0] if action.option_strings else action.dest
            names |= {option, f"{name} {option}"}
    assert set(help_texts()) <= names


def referred(parser: argparse.ArgumentParser) -> set[str]:
    """Return the flags that the help of a command leaves to another command."""
    text = parser.format_help().partition("\nas in gridpriv ")[2].partition("\n\n")[0]
    return set(re.findall(r"--[a-z-]+", text)) - {"--help"}


@pytest.mark.parametrize("parser", [parser for _, parser in EVERY], ids=[name for name, _ in EVERY])
def test_a_flag_is_explained_once_and_named_where_another_command_explains_it(parser) -> None:
    help_text = parser.format_help()
    other = re.search(r"\nas in gridpriv (.*):\n", help_text)
    if other is None:
        return
    explained = {
        flag: action.help
        for action in dict(EVERY)[other[1]]._actions
        for flag in action.option_strings
        if action.help is not argparse.SUPPRESS
    }
    flags = referred(parser)
    assert flags and flags <= set(explained)
    own = {flag for a in parser._actions for flag in a.option_strings}
    assert flags <= own
    assert not [flag for flag in flags if re.search(rf"\n  {flag} ", help_text)]


def test_the_help_of_all_commands_is_short() -> None:
    words = {name: len(parser.format_help().split()) for name, parser in EVERY}
    assert sum(words.values()) < 9_000
    assert max(words, key=lambda name: words[name]) == "run"


def _said() -> list[tuple[str, str]]:
    help_texts = {flag: a.help for a in EVERY[0][1]._actions for flag in a.option_strings}
    return [(flag, help_texts[flag]) for flag in ("--json", "--quiet")]


SENTENCE = "setting = 'objectve' is unknown: did you mean 'objective'?"


def test_a_misspelt_setting_is_the_same_sentence_in_all_notations(tmp_path: Path, capsys) -> None:
    def refused(make) -> str:
        with pytest.raises(gridpriv.InputError) as caught:
            make()
        return str(caught.value)

    assert main(["run", "case14", "--objectve", "cost"]) == 2
    flag = capsys.readouterr().err
    assert main(["compare", "case14", "--objectve=cost"]) == 2
    assert main(["compare", "case14", "--method", "a: objectve=cost"]) == 2
    axis, method = capsys.readouterr().err.splitlines()
    files = {
        "study.toml": 'cases = ["case14"]\n[settings]\nobjectve = "cost"\n',
        "study.json": json.dumps({"cases": ["case14"], "settings": {"objectve": "cost"}}),
    }
    messages = [method]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        messages.append(refused(lambda name=name: read_plan(tmp_path / name)))
    messages += [
        refused(lambda: gridpriv.Settings(objectve="cost")),
        refused(lambda: gridpriv.make_settings(objectve="cost")),
        refused(lambda: make_plan(["case14"], objectve=["cost"])),
        refused(lambda: gridpriv.Settings(**json.loads('{"objectve": "cost"}'))),
    ]
    assert [text.strip().endswith(SENTENCE) for text in messages] == [True] * len(messages), (
        messages
    )
    unknown = "unknown flag --objectve: did you mean --objective?"
    assert [text.strip().endswith(unknown) for text in (flag, axis)] == [True, True]
    assert "did you mean 'algorithm'?" in refused(
        lambda: make_learn_settings("adult", algoritm="pvp")
    )
    assert main(["learn", "run", "lasso", "--algoritm", "pvp"]) == 2
    assert "did you mean --algorithm?" in capsys.readouterr().err


def test_what_is_one_word_too_many_is_named(capsys) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["relax", "case14", "case118"])
    assert stopped.value.code == 2
    assert "'case118' is one word too many" in capsys.readouterr().err


def test_reproductions_of_learning_have_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["learn", "reproduce", "huang-fig1", "--cluster", "host:1"]) == 2
    assert "unknown flag --cluster" in capsys.readouterr().err


def test_an_unknown_flag_is_quoted_as_it_was_written(capsys):
    assert main(["run", "case14", "-5"]) == 2
    assert "unknown flag -5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnu", "case14"], "command = 'rnu': must be one of run, compare, "),
        (["ledger", "shwo", "l"], "'shwo': must be one of "),
    ],
)
def test_a_command_that_is_nearly_one_is_corrected(words, message, capsys) -> None:
    assert main(words) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert f"(did you mean {'run' if words[0] == 'rnu' else 'show'!r}?)" in errors


@pytest.mark.parametrize("word", ["take", "data", "owner", "load", "that"])
def test_a_word_that_is_no_near_miss_gets_no_suggestion(word: str, capsys) -> None:
    assert main([word]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_help_of_a_command_imports_nothing_slow() -> None:
    code = (
        "import sys\n"
        "from gridpriv.cli.main import COMMANDS, add_arguments\n"
        "from gridpriv.cli.flags import Parser\n"
        "for name in COMMANDS:\n"
        "    add_arguments(name, Parser(prog=name))\n"
        "slow = {'pandas', 'scipy', 'pyomo', 'casadi', 'matplotlib', 'torch', 'pandapower'}\n"
        "print(sorted(slow & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_command_solves_with_the_same_and_its_help_says_with_what() -> None:
    parsers = dict(EVERY)
    used = gridpriv.Settings().solver
    for name in ("run", "relax", "plan"):
        help_text = " ".join(parsers[name].format_help().split()).partition("--solver NAME")[2][:90]
        assert f"(default: {used})" in help_text, name
    assert {task.settings.solver for task in make_plan(["case14"]).tasks()} == {used}


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["run", "case14", "--total", "1"], "--budget total:E"),
        (["plan", "case14", "--budget", "1"], "--total E"),
        (["plan", "case14", "--epsilon", "1"], "--total E"),
        (["attack", "case14", "--epsilons", "1"], "--totals E,E"),
    ],
)
def test_a_total_that_the_command_names_otherwise_is_offered(words, hint, capsys):
    assert main(words) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["plan", "case14", "--protect", "5MW"], "beta", "5MW"),
        (["publish", "case14", "--protect", "5MW"], "beta", "5MW"),
        (["zones", "case14", "--method", "louvain"], "partition", "louvain"),
        (["run", "case14", "--method", "louvain"], "partition", "louvain"),
        (["run", "case14", "--step", "strongly-convex"], "step", "strongly-convex"),
    ],
)
def test_older_names_of_flags_are_read(words: list[str], name: str, value: str) -> None:
    """Scripts and outside checks use them; help names the newer ones only."""
    args = _parser(words[0]).read(words)
    assert str(getattr(args, name)) == value


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("--budgets", f"(default: {','.join(f'{b:g}' for b in plan.DEFAULT_BUDGETS)})"),
        ("--seeds", f"(default: {','.join(map(str, plan.DEFAULT_SEEDS))})"),
        ("--partition", f"{' | '.join(partition.METHODS)} (default: spectral)"),
        ("--format", f"{' | '.join([*report.FORMATS, 'none'])}"),
        ("report --format", f"{' | '.join(report.FORMATS)}"),
        ("report --figures", f": {' | '.join(report.PICTURES)}"),
        ("--log", f": {' | '.join(parties.LEVELS)}"),
        *(("audit --levels", f"{level} (") for level in LEVELS),
        (
            "audit --runs",
            "(default: {release} at level release, {solution} at solution, {messages} at messages)",
        ),
        ("learn compare --algorithms", f"(default: {learn.ALGORITHMS})"),
        ("learn compare --totals", f"(default: {learn.TOTALS})"),
        ("learn compare --seeds", f"(default: {learn.SEEDS})"),
        ("consortium --rounds", f"(default: {gridpriv.Settings().rounds})"),
    ],
)
def test_a_text_of_the_help_names_the_constants_of_the_program(key: str, words: str) -> None:
    assert words.format(**RUNS) in help_texts()[key]
