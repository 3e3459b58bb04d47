"""Messages by code: the same list in the terminal, a notebook, a report and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gridpriv.core.document import Json
from gridpriv.core.text import sections

Severity = Literal["warning", "info", "next"]
"""A figure must be read differently; it is explained; what to do next."""
SEVERITIES: Mapping[str, Severity] = {"warning": "warning", "info": "info", "next": "next"}
"""By name, in the order in which messages are shown."""
Templates = Mapping[str, tuple[Severity, str]]


@dataclass(frozen=True)
class Message:
    """A message by code.

    Attributes
    ----------
    code : str
    severity : {'warning', 'info', 'next'}
    template : str
        One or two sentences with places for the values.
    values : mapping
    """

    code: str
    severity: Severity
    template: str
    values: Mapping[str, object]

    def __str__(self) -> str:
        return self.template.format(**self.values)

    def as_dict(self) -> Json:
        """Return the message as JSON can hold it."""
        return {"code": self.code, "severity": self.severity, "text": str(self)}


def read_templates(path: Path) -> Templates:
    """Return the templates of a catalog by code: the line ``== CODE: SEVERITY``, then the text."""
    entries = ((head.partition(": "), text) for head, text in sections(path).items())
    return {
        code: (SEVERITIES[severity], " ".join(text.split()))
        for (code, _, severity), text in entries
    }


def make_message(templates: Templates, code: str, values: Mapping[str, object]) -> Message:
    """Return the message of a code with its values."""
    return Message(code, *templates[code], values)


def by_severity(messages: list[Message]) -> list[Message]:
    """Return messages with the warnings first and what to do next last."""
    order = list(SEVERITIES)
    return sorted(messages, key=lambda message: order.index(message.severity))
