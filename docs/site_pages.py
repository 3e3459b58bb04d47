"""Pages of the reference, made while the site is built, and mathematics as MathML (a mkdocs hook).

Commands come from their parsers, settings from their fields, tables from their declarations and
the Python interface from docstrings: what the site says of them is what the installed package
does, and no copy of it is kept.
"""

from __future__ import annotations

import argparse
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

import gridpriv
from gridpriv.cli.flags import Parser, help_texts
from gridpriv.cli.main import COMMANDS, add_arguments
from gridpriv.core.settings import Part, defaults, parts_of, settings_of
from gridpriv.learning.settings import LearnSettings
from gridpriv.report.export import template
from gridpriv.report.schema import described_tables, json_schemas
from gridpriv.zonal.settings import Settings

# what somebody who adds something implements or returns, by what is added
SEAMS = {
    "Mechanisms and releases": (
        "privacy.mechanism.Mechanism",
        "privacy.mechanism.Charge",
        "privacy.release.Release",
        "privacy.sensitivity.Sensitivity",
        "privacy.adjacency.DemandAdjacency",
        "privacy.settings.Budget",
    ),
    "Strategies of a release": (
        "privacy.linear.Statistics",
        "privacy.linear.Prior",
        "privacy.linear.Disclosure",
        "power.prior.disclose",
    ),
    "Solvers of a zone": (
        "power.problem.ZoneSolver",
        "power.program.ZoneProgram",
        "power.presolve.ReducedProgram",
    ),
    "Local problems and rounds": (
        "consensus.agent.LocalProblem",
        "consensus.agent.Minimiser",
        "consensus.agent.Agent",
        "consensus.coordinator.rounds",
        "consensus.coordinator.Plan",
        "consensus.messages.Order",
        "consensus.messages.Reply",
    ),
}


FULL = "    options:\n      show_root_full_path: true\n"


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    pages = {"commands": commands, "settings": settings, "tables": tables, "api": api}
    for name, page in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=page()))
    for name, schema in json_schemas().items():
        text = json.dumps(schema, indent=1, ensure_ascii=False)
        files.append(File.generated(config, f"reference/schemas/{name}", content=text))
    kept = decisions(Path(config.docs_dir) / "decisions")
    files.append(File.generated(config, "decisions/index.md", content=kept))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Link the folder of decisions, which a checkout has, to the list that is made of it."""
    return markdown.replace("](decisions)", "](decisions/index.md)")


def on_page_content(text: str, **_: Any) -> str:
    r"""Replace what arithmatex left as \(...\) and \[...\] by MathML, which browsers draw."""
    return re.sub(
        r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>',
        lambda found: _mathml(html.unescape(found[2]), block=found[1] == "div"),
        text,
        flags=re.DOTALL,
    )


def _mathml(latex: str, *, block: bool) -> str:
    drawn = convert(latex, display="block" if block else "inline")
    return f'<div class="equation">{drawn}</div>' if block else drawn


def tables() -> str:
    """Return the page of every table, column by column."""
    return template("tables.md").render(tables=described_tables().values())


def commands() -> str:
    """Return the page of every command: what it takes, by its own parser."""
    lines = [
        "# Commands",
        "",
        "Made from the parsers of the commands: what `gridpriv COMMAND "
        "--help` says. `--preset` and study files take the same names "
        "([settings](settings.md)).",
        "",
    ]
    for name in COMMANDS:
        purpose = help_texts()[name]
        parser = Parser(prog=f"gridpriv {name}")
        add_arguments(name, parser)
        for words, leaf, said in _leaves(parser, f"gridpriv {name}", purpose):
            usage = leaf.format_usage().partition(" ")[2]
            lines += [
                f"## {words}",
                "",
                _sentence(said),
                "",
                "```text",
                " ".join(usage.split()),
                "```",
                "",
            ]
            lines += _arguments(leaf)
            lines += ["```text", leaf.examples(), "```", ""]
    return "\n".join(lines)


def _leaves(parser: Parser, words: str, said: str) -> Iterator[tuple[str, Parser, str]]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        yield words, parser, said
    for action in below:
        purposes = {choice.dest: choice.help or said for choice in action._choices_actions}
        for word, leaf in action.choices.items():
            yield from _leaves(leaf, f"{words} {word}", purposes.get(word, said))


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    for group in parser._action_groups:
        actions = [a for a in group._group_actions if a.help is not argparse.SUPPRESS]
        if group.description and not group._group_actions:  # flags of another command
            yield f"{_cell(group.description)}\n"
        if not actions or [a.dest for a in actions] == ["help"]:
            continue
        if group.title not in ("positional arguments", "options"):
            yield f"**{group.title}.** {_cell(group.description or '').partition(chr(10))[0]}"
            yield ""
        yield "| argument | meaning |"
        yield "| --- | --- |"
        for action in actions:
            if action.dest != "help":
                yield f"| {_written(action)} | {_cell(_meaning(parser, action))} |"
        yield ""


def _written(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    name = ", ".join(action.option_strings) + value if action.option_strings else value.strip()
    return f"`{name.replace('|', chr(92) + '|')}`"


def _meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = parser._get_formatter()
    return formatter._expand_help(action) if action.help else ""


def settings() -> str:
    """Return the page of every setting of a run and of a learning run."""
    lines = [
        "# Settings",
        "",
        "Made from the fields of the settings. A setting is a keyword of `make_settings` or "
        "`make_learn_settings`, a flag (`--` and hyphens for underscores), and a key of study "
        "files and JSON, by one name.",
        "",
    ]
    for title, kind in (("A run of a grid", Settings), ("A learning run", LearnSettings)):
        lines += [f"## {title}", ""]
        for part, names in parts_of(kind).items():
            lines += [*_part(kind, part, names), ""]
    return "\n".join(lines)


def _part(kind: type[Part], part: type[Part], names: list[str]) -> Iterator[str]:
    held, standard = settings_of(kind), defaults(kind)
    yield (part.__doc__ or "").partition("\n")[0]
    yield ""
    yield "| setting | meaning |"
    yield "| --- | --- |"
    for name in names:
        yield f"| `{name}` | {_cell(held[name].described(standard[name]))} |"


def decisions(folder: Path) -> str:
    """Return the list of decisions, by their titles."""
    lines = ["# Decisions", "", "Why things are as they are: options, measurements, choice.", ""]
    for path in sorted(folder.glob("[0-9]*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines)


def api() -> str:
    """Return the page of the Python interface: public names, then the seams."""
    lines = [
        "# Python",
        "",
        "Made from docstrings. What `dir(gridpriv)` lists comes first; then "
        "what somebody implements who adds something. Fields of `Settings` are "
        "[settings](settings.md).",
        "",
        "## gridpriv",
        "",
    ]
    for name in gridpriv.__all__:
        lines += [f"::: {getattr(gridpriv, name).__module__}.{name}", ""]
    for title, names in SEAMS.items():
        lines += [f"## {title}", "", *(f"::: gridpriv.{name}\n{FULL}" for name in names)]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(("?", ".")) else ".")


def _cell(text: str) -> str:
    return re.sub(r"([|<>*_])", r"\\\1", " ".join(text.split()))
