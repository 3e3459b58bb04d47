"""Totals of a run that was killed after its releases were charged, and then continued."""

import json
from pathlib import Path

import pytest

from gridpriv.cli.main import main
from gridpriv.study.run_folder import RunFolder

RUN = ["run", "case14", "--budget", "total:1", "--no-reference", "--quiet"]


class Killed(BaseException):
    """End of a process before it stores anything more."""


def killed(*_: object, **__: object) -> None:
    raise Killed


def releases(book: Path, capsys: pytest.CaptureFixture[str]) -> int:
    capsys.readouterr()
    assert main(["ledger", "show", str(book), "--json"]) == 0
    return max(owner["releases"] for owner in json.loads(capsys.readouterr().out)["owners"])


@pytest.mark.parametrize("public", [[], ["--public"]], ids=" ".join)
def test_a_certificate_includes_what_killed_attempts_were_charged_for(
    tmp_path: Path,
    public: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    book, out = tmp_path / "book", tmp_path / "out"
    assert (
        main(["ledger", "grant", str(book), "--case", "case14", "--epsilon", "9", "--quiet"]) == 0
    )
    words = [*RUN, *public, "--noise", "secure", "--ledger", str(book), "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "add", killed)
        for more in ([], ["--resume"]):
            with pytest.raises(Killed):
                main([*words, *more])
    assert main([*words, "--resume"]) == 0
    privacy = json.loads((out / "run.json").read_text())["privacy"]
    assert releases(book, capsys) == privacy["releases_per_zone"] == 3
    assert privacy["interrupted_releases_per_zone"] == 2
    assert privacy["total_pure"] == pytest.approx(3.0, rel=1e-9)
    words.remove("--quiet")
    assert main([*words, "--resume"]) == 0
    assert "total epsilon 3" in capsys.readouterr().out


def test_a_repeated_attempt_with_the_same_seed_is_no_further_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*RUN, "--seed", "1", "--out", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "add", killed)
        with pytest.raises(Killed):
            main(words)
    assert main([*words, "--resume"]) == 0
    privacy = json.loads((tmp_path / "out" / "run.json").read_text())["privacy"]
    assert privacy["releases_per_zone"] == 1
    assert privacy["interrupted_releases_per_zone"] == 0
