"""Commands of these tests write their pictures unpainted: painting takes longer than a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridpriv.core.files import write_bytes
from gridpriv.report import plots

SIGNATURE = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def painted() -> None:
    """Have a test's commands paint their pictures."""


@pytest.fixture(autouse=True)
def unpainted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def blank(_figure: object, path: str | Path, *, private: bool) -> None:
        write_bytes(Path(path), SIGNATURE, private=private)

    if "painted" not in request.fixturenames:
        monkeypatch.setattr(plots, "write_figure", blank)
