"""No digest that an adversary could compute from guessed data is published under --public.

Every hash computed while public output is made is recorded. None of them, nor a prefix, may occur
in the output, unless it is the hash of something published.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gridpriv.cli.main import main
from gridpriv.privacy.ledger import ledger_identity
from gridpriv.privacy.ledger_file import Key
from gridpriv.study import Method, compare, make_plan

SHA256 = hashlib.sha256
LEAST = 8  # hexadecimal digits that would give a guess away


class Tapped:
    """A hash object that notes every digest it gives."""

    def __init__(self, real: Any, noted: set[str]) -> None:
        self._real, self._noted = real, noted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def hexdigest(self, *given: int) -> str:
        reported: str = self._real.hexdigest(*given)
        self._noted.add(reported)
        return reported

    def digest(self, *given: int) -> bytes:
        printed: bytes = self._real.digest(*given)
        self._noted.add(printed.hex())
        return printed


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The digests of everything that is hashed from here on."""
    seen: set[str] = set()

    def tapped(real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: Tapped(real(*given, **named), seen)

    for name in ("sha256", "sha1", "md5", "sha512", "blake2b", "sha3_256", "new", "file_digest"):
        monkeypatch.setattr(hashlib, name, tapped(getattr(hashlib, name)))
    yield seen


def published(folder: Path) -> dict[str, str]:
    return {str(p): p.read_bytes().decode("latin-1") for p in folder.rglob("*") if p.is_file()}


def of_public(folder: Path) -> set[str]:
    """Return the digests of published files, and of documents that end with their own."""
    files = [p for p in folder.rglob("*") if p.is_file()]
    loaded = {SHA256(p.read_bytes()).hexdigest() for p in files}
    for path in files:
        if path.suffix == ".json":
            document = json.loads(path.read_text())
            document.pop("checksum", None)
            loaded.add(SHA256(json.dumps(document, sort_keys=True).encode()).hexdigest())
    return loaded


def leaks(text: str, noted: set[str]) -> list[str]:
    """Return the digests of which at least ``LEAST`` digits occur in a text."""
    tokens = re.findall(rf"(?<![0-9a-f])[0-9a-f]{{{LEAST},}}(?![0-9a-f])", text.lower())
    return [t for t in set(tokens) for digest in noted if t[:LEAST] == digest[:LEAST]]


RUN = ["run", "case14", "--rounds", "2", "--solver", "clarabel", "--public", "--quiet"]


def test_the_tap_hears_a_digest(noted: set[str]) -> None:
    digest = hashlib.sha256(b"pd 29.5 MW").hexdigest()
    assert noted == {digest}
    assert leaks(f'"case": "{digest[:16]}",', noted)
    assert not leaks(f'"case": "{digest[1:17]}",', noted)


def test_a_public_run_and_series_hold_no_digest(tmp_path: Path, noted: set[str]) -> None:
    book = str(tmp_path / "book")
    assert main(["ledger", "grant", book, "--case", "case14", "--total", "50"]) == 0
    day = tmp_path / "day.csv"
    day.write_text("step,load_scale\n0,1\n1,0.9\n")
    out, horizon = tmp_path / "public" / "run", tmp_path / "public" / "day"
    assert main([*RUN, "--ledger", book, "--out", str(out)]) == 0
    assert main([*RUN, "--ledger", book, "--series", str(day), "--out", str(horizon)]) == 0
    assert noted  # case fingerprints at least
    files = published(tmp_path / "public")
    assert len(files) > 5
    identity = ledger_identity(book)  # an HMAC whose key is in the owner's file
    private = noted - of_public(tmp_path / "public") - {identity}
    assert private
    for name, text in files.items():
        assert not leaks(text, private), name


def test_a_public_report_holds_no_digest(tmp_path: Path, noted: set[str]) -> None:
    plan = make_plan(
        ["case14"],
        budgets=[5],
        seeds=(3,),
        settings={"rounds": 2},
        reference=False,
        methods=[
            Method("demand, one-shot", (("perturbation", "demand"), ("noise_schedule", "once")))
        ],
    )
    compare(plan, out=tmp_path / "study", jobs=1)
    words = ["report", str(tmp_path / "study"), "--public", "--out", str(tmp_path / "public")]
    assert main([*words, "--format", "html,csv,tex"]) == 0
    private = noted - of_public(tmp_path / "public")
    for name, text in published(tmp_path / "public").items():
        assert not leaks(text, private), name


def test_what_a_ledger_exports_holds_no_mark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marks are keyed, and stay in it all the same."""
    marks: set[str] = set()
    digest = Key.digest

    def noting(key: Key, purpose: str, content: bytes) -> bytes:
        recorded = digest(key, purpose, content)
        if purpose in ("unit", "record"):
            marks.add(recorded.hex())
        return recorded

    monkeypatch.setattr(Key, "digest", noting)
    book = str(tmp_path / "book")
    assert main(["ledger", "grant", book, "--case", "case14", "--total", "50"]) == 0
    assert main([*RUN, "--ledger", book]) == 0
    assert len(marks) == 28
    assert leaks(Path(book).read_text(), marks)
    capsys.readouterr()
    for words in (
        ["show"],
        ["show", "--json"],
        ["export"],
        ["export", "--format", "json"],
        ["verify", "--json"],
    ):
        assert main(["ledger", words[0], book, *words[1:]]) == 0
        assert not leaks(capsys.readouterr().out, marks)
