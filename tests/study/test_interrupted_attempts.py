"""Totals of a run that was killed after its releases were charged, and then continued."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gridpriv.cli.main import main
from gridpriv.consensus import coordinator
from gridpriv.core.store import read_manifest, read_study
from gridpriv.grid.scenarios import FORECAST
from gridpriv.privacy.accounting import total_epsilon
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.release import KeptReleases
from gridpriv.study.run_folder import RunFolder
from gridpriv.zonal import run as zonal_run

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
    assert main(["ledger", "grant", str(book), "--case", "case14", "--total", "9", "--quiet"]) == 0
    words = [*RUN, *public, "--noise", "secure", "--ledger", str(book), "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(KeptReleases, "keep", killed)
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


SERIES = "step,load_scale\n" + "".join(f"{hour},1\n" for hour in range(4))


def test_every_killed_attempt_at_a_stream_counts_as_a_stream_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps, out = tmp_path / "steps.csv", tmp_path / "out"
    steps.write_text(SERIES)
    words = [*RUN, "--series", str(steps), "--stream", "2h", "--noise", "secure", "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "add_once", killed)
        with pytest.raises(Killed):
            main(words)
    words.remove("--quiet")
    capsys.readouterr()
    assert main([*words, "--resume", "--json"]) == 0
    privacy = json.loads(capsys.readouterr().out)["privacy"]
    drawn = privacy["releases_per_zone"] - privacy["interrupted_releases_per_zone"]
    assert privacy["interrupted_releases_per_zone"] == drawn > 0
    assert privacy["stream"]["total_per_window"] == 2.0
    assert privacy["stream"]["delta_per_window"] == 0.0
    assert privacy["total_pure"] == pytest.approx(2.0 * 2.0, rel=1e-9)


def test_every_killed_attempt_at_a_stream_adds_its_delta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps, out = tmp_path / "steps.csv", tmp_path / "out"
    steps.write_text(SERIES)
    words = ["run", "case14", "--budget", "total:2,1e-5", "--mechanism", "gaussian"]
    words += [
        "--no-reference",
        "--noise",
        "secure",
        "--series",
        str(steps),
        "--stream",
        "2h",
        "--out",
        str(out),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "add_once", killed)
        for more in ([], ["--resume"]):
            with pytest.raises(Killed):
                main([*words, *more])
    capsys.readouterr()
    assert main([*words, "--resume"]) == 0
    assert "total epsilon 6 at delta 3e-05 (w-event" in " ".join(capsys.readouterr().out.split())
    stream = json.loads((out / "horizon.json").read_text())["privacy"]["stream"]
    assert stream["total_per_window"] == pytest.approx(6.0)
    assert stream["delta_per_window"] == pytest.approx(3e-5)


def test_a_step_states_the_releases_of_its_killed_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, out = tmp_path / "steps.csv", tmp_path / "out"
    steps.write_text("step,bus,pd_mw,qd_mvar\n" + "".join(f"{s},2,2{s},12\n" for s in range(2)))
    words = [*RUN, "--series", str(steps), "--temporal-basis", "per-step", "--noise", "secure"]
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "add", killed)
        with pytest.raises(Killed):
            main([*words, "--out", str(out)])
    assert main([*words, "--out", str(out), "--resume"]) == 0
    certificates = read_study(out).tables["certificates"]
    assert certificates.groupby("run")["releases"].max().tolist() == [2, 1]


PRIOR = [f"{bus},10,5" for bus in range(1, 15)]


def begun_with_ledger_and_prior(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *public: str
) -> list[str]:
    """Return the words, without a ledger, of a run that was killed with one."""
    book, prior = folder / "book", folder / "prior.csv"
    grant = ["ledger", "grant", str(book), "--case", "case14", "--total", "9", "--quiet"]
    assert main(grant) == 0
    prior.write_text("\n".join(["bus,pd_mw,qd_mvar", *PRIOR]))
    words = [*RUN, *public, "--seed", "1", "--out", str(folder / "out")]
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "add", killed)
        with pytest.raises(Killed):
            main([*words, "--public-demand", str(prior), "--ledger", str(book)])
    return words


@pytest.mark.parametrize("public", [[], ["--public"]], ids=" ".join)
def test_a_run_is_not_continued_without_its_ledger(
    tmp_path: Path,
    public: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = begun_with_ledger_and_prior(tmp_path, monkeypatch, *public)
    words += ["--public-demand", str(tmp_path / "prior.csv")]
    for resume in ([], ["--resume"]):
        capsys.readouterr()
        assert main([*words, *resume]) == 2
        assert "begun with --ledger: give the path of that ledger" in capsys.readouterr().err


def granted(folder: Path) -> Path:
    """Return a new ledger for case14, whose register knows no other."""
    folder.mkdir()
    grant = ["ledger", "grant", str(folder / "book"), "--case", "case14", "--total", "9"]
    assert main([*grant, "--quiet"]) == 0
    return folder / "book"


@pytest.mark.parametrize("public", [[], ["--public"]], ids=" ".join)
def test_a_run_is_not_continued_with_another_ledger(
    tmp_path: Path,
    public: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = begun_with_ledger_and_prior(tmp_path, monkeypatch, *public)
    words += ["--public-demand", str(tmp_path / "prior.csv"), "--resume", "--ledger"]
    other = granted(tmp_path / "elsewhere")
    capsys.readouterr()
    assert main([*words, str(other)]) == 2
    assert "begun with another --ledger" in capsys.readouterr().err
    assert releases(other, capsys) == 0
    (tmp_path / "book").rename(tmp_path / "moved")  # the same ledger at another path
    (tmp_path / "book.key").rename(tmp_path / "moved.key")
    assert main([*words, str(tmp_path / "moved")]) == 0
    privacy = json.loads((tmp_path / "out" / "run.json").read_text())["privacy"]
    assert releases(tmp_path / "moved", capsys) == privacy["releases_per_zone"] == 1


@pytest.mark.parametrize("public", [[], ["--public", "--noise", "secure"]], ids=" ".join)
def test_a_run_that_a_ledger_refuses_leaves_no_folder_and_can_use_another_ledger(
    tmp_path: Path, public: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "case14", "--budget", "total:10", "--no-reference", "--quiet", *public]
    words += ["--out", str(tmp_path / "out"), "--ledger"]
    assert main([*words, str(granted(tmp_path / "small"))]) == 4
    assert "--resume" not in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["small"]
    (tmp_path / "large").mkdir()
    book = str(tmp_path / "large" / "book")
    assert main(["ledger", "grant", book, "--case", "case14", "--total", "11", "--quiet"]) == 0
    assert main([*words, book]) == 0


def test_the_command_that_repeats_a_run_names_its_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_with_ledger_and_prior(tmp_path, monkeypatch)
    repeat = read_manifest(tmp_path / "out")["repeat"]
    assert f"--ledger {tmp_path / 'book'}" in repeat


def test_a_run_without_ledger_is_not_continued_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*RUN, "--seed", "1", "--out", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "add", killed)
        with pytest.raises(Killed):
            main(words)
    assert main([*words, "--ledger", str(granted(tmp_path / "own")), "--resume"]) == 2
    assert "begun without --ledger: leave it out" in capsys.readouterr().err


@pytest.mark.parametrize("public", [[], ["--public"]], ids=" ".join)
def test_a_run_is_continued_with_the_same_prior_at_any_path_and_not_with_another(
    tmp_path: Path,
    public: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = begun_with_ledger_and_prior(tmp_path, monkeypatch, *public)
    words += ["--ledger", str(tmp_path / "book"), "--resume", "--public-demand"]
    (tmp_path / "other.csv").write_text("\n".join(["bus,pd_mw,qd_mvar", *PRIOR[:-1], "14,20,5"]))
    capsys.readouterr()
    assert main([*words, str(tmp_path / "other.csv")]) == 2
    assert "other settings (public_demand)" in capsys.readouterr().err
    assert main(words[:-1]) == 2
    assert "other settings (public_demand)" in capsys.readouterr().err
    (tmp_path / "prior.csv").rename(tmp_path / "copy.csv")
    monkeypatch.chdir(tmp_path)
    assert main([*words, "copy.csv"]) == 0


def test_a_forecast_with_other_spreads_is_another_prior(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forecast = tmp_path / "forecast.csv"
    words = [*RUN, "--seed", "1", "--out", str(tmp_path / "out"), "--public-demand", str(forecast)]

    def write(spread: float) -> None:
        rows = [f"noon,{row},1,1,{spread}" for row in PRIOR]
        forecast.write_text("\n".join([",".join(FORECAST), *rows]))

    write(0.1)
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "add", killed)
        with pytest.raises(Killed):
            main(words)
    write(0.2)
    capsys.readouterr()
    assert main([*words, "--resume"]) == 2
    assert "other settings (public_demand)" in capsys.readouterr().err
    write(0.1)
    assert main([*words, "--resume"]) == 0


@pytest.mark.parametrize("steps", [1, 2])
def test_an_attempt_that_ended_early_counts_with_its_planned_releases(
    tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a delta, in the certificate of the continued run, or series, as in its folder."""
    words = ["run", "case14", "--noise-schedule", "round", "--rounds", "60", "--noise", "secure"]
    words += ["--budget", "per-release:0.1", "--no-reference", "--quiet"]
    words += ["--out", str(tmp_path / "out")]
    (tmp_path / "day.csv").write_text("step,load_scale\na,1.0\nb,0.9\n")
    words += ["--series", str(tmp_path / "day.csv")] if steps > 1 else []
    rounds = coordinator.rounds

    def interrupted(*given: Any) -> Iterator[Any]:
        for turn in rounds(*given):
            yield turn
            if turn.number == 50:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(zonal_run, "rounds", interrupted)
        assert main(words) == 130
    assert main([*words, "--resume"]) == 0
    name = "run.json" if steps == 1 else "horizon.json"
    privacy = json.loads((tmp_path / "out" / name).read_text())["privacy"]
    drawn = 50 + 60 * steps
    assert (privacy["releases_per_zone"], privacy["interrupted_releases_per_zone"]) == (drawn, 50)
    assert privacy["total_pure"] == pytest.approx(0.1 * drawn)
    (charge,) = {tuple(row) for row in charged(tmp_path / "out")}
    planned = total_epsilon({Charge(*charge): 60 + 60 * steps}, 1e-5)
    assert privacy["total"]["epsilon"] == pytest.approx(planned, rel=1e-9)
    (total,) = read_manifest(tmp_path / "out")["totals"]
    assert total["epsilon"] == pytest.approx(planned, rel=1e-9)
    assert total["pure"] == pytest.approx(0.1 * drawn)


def charged(folder: Path) -> list[list[Any]]:
    """Return kind and parameters of every charge."""
    table = read_study(folder).tables["charges"]
    return table[["kind", "parameter", "second"]].values.tolist()
