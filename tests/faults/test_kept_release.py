"""A run killed at any point draws and charges its release again only where it was not stored."""

from __future__ import annotations

import json
import os
import shutil
import stat
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import gridpriv
from gridpriv.cli.main import main
from gridpriv.consensus.transport import in_process
from gridpriv.core.errors import GridprivWarning
from gridpriv.core.files import atomic_file, is_temporary, read_sealed, sealed
from gridpriv.core.store import Store
from gridpriv.privacy.ledger import Ledger, read_book
from gridpriv.privacy.mechanism import KNorm, SecureKNorm
from gridpriv.privacy.release import KeptReleases
from gridpriv.study import run_folder
from gridpriv.study.context import RunContext, run_case
from gridpriv.study.run_folder import KEPT, RunFolder
from gridpriv.zonal import run as run_module
from gridpriv.zonal.documents import PLAN_FILE
from gridpriv.zonal.prepared import zone_datasets

ZONES, KILLED = 3, 137
OF_A_ZONE = ("charge", "charged", "drawn", "keep", "kept")
AFTER = ("redispatch", "add", "added", "finish", "finished")
POINTS = [f"{event} 1" for event in (*OF_A_ZONE, *AFTER)] + [f"keep {ZONES}", f"kept {ZONES}"]
LIKE_ZONE_1 = [f"{event} {zone}" for zone in range(2, ZONES + 1) for event in OF_A_ZONE]
PUBLIC = {"kept 1", f"kept {ZONES}", "redispatch 1", "added 1", "finished 1"}
"""Points of a public run by default; zones store and charge as in a private one."""
CASES = [((), point, point not in POINTS) for point in dict.fromkeys(POINTS + LIKE_ZONE_1)]
CASES += [(("--public",), point, point not in PUBLIC) for point in POINTS]
CASES_BY_NAME = [
    pytest.param(flags, point, id=f"{point}{''.join(flags)}", marks=[pytest.mark.slow] * slow)
    for flags, point, slow in CASES
]
pytestmark = pytest.mark.usefixtures("no_replans")
RUN = ("run", "case14", "--coordination", "central", "--budget", "total:2", "--no-reference")


def dying(patch: pytest.MonkeyPatch, point: str, draws: Path) -> None:
    """Have this process end as by SIGKILL at a point, and log every draw."""
    reached: Counter[str] = Counter()

    def reach(event: str) -> None:
        reached[event] += 1
        if f"{event} {reached[event]}" == point:
            os._exit(KILLED)

    def between(owner: Any, name: str, before: str, after: str) -> None:
        method: Callable[..., Any] = getattr(owner, name)

        def replaced(*values: Any, **named: Any) -> Any:
            reach(before)
            result = method(*values, **named)
            if name == "perturb":
                with draws.open("a") as file:
                    file.write(f"{result.tolist()}\n")
            reach(after)
            return result

        patch.setattr(owner, name, replaced)

    between(Ledger, "charge", "charge", "charged")
    for kind in (SecureKNorm, KNorm):
        between(kind, "perturb", "-", "drawn")
    between(KeptReleases, "keep", "keep", "kept")
    between(run_module, "redispatch_grid", "redispatch", "-")
    between(RunFolder, "add", "add", "added")
    between(Store, "finish", "finish", "finished")


def run_in_child(words: tuple[str, ...], point: str, draws: Path) -> int:
    child = os.fork()
    if child == 0:
        with pytest.MonkeyPatch.context() as patch:
            dying(patch, point, draws)
            os._exit(main([*words, "--quiet"]))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def granted(path: Path, epsilon: float) -> tuple[str, ...]:
    case = gridpriv.load_case("case14")
    zoning = gridpriv.shipped_zoning(case)
    assert zoning is not None
    data = zone_datasets(case, zoning, gridpriv.make_settings().protected(case))
    gridpriv.grant(path, data, epsilon)
    return "--ledger", str(path)


def charges_of(ledger: Path) -> Counter[str]:
    return Counter(row.owner for _, row in read_book(ledger).charged)


@pytest.mark.parametrize(("public", "point"), CASES_BY_NAME)
def test_a_stored_release_is_used_again(
    public: tuple[str, ...], point: str, tmp_path: Path
) -> None:
    event = point.split(maxsplit=1)[0]
    draws, ledger, out = tmp_path / "draws", tmp_path / "l", tmp_path / "out"
    words = (*RUN, "--noise", "secure", *granted(ledger, 4.001), *public, "--out", str(out))
    assert run_in_child(words, point, draws) == KILLED
    for file in (out / KEPT).glob("*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    stored = event in AFTER or point == f"kept {ZONES}"
    assert run_in_child((*words, "--resume"), "", draws) == 0
    assert not (out / KEPT).exists()
    drawn = draws.read_text().splitlines()
    assert len(set(drawn)) == len(drawn) <= charges_of(ledger).total()
    document = json.loads((out / "run.json").read_text())
    attempts = 1 if stored else 2
    assert document["privacy"]["total_pure"] == pytest.approx(2.0 * attempts)
    assert max(charges_of(ledger).values()) <= attempts
    if stored:
        assert len(drawn) == charges_of(ledger).total() == ZONES
        assert document["privacy"]["interrupted_releases_per_zone"] == 0


def test_a_release_of_an_earlier_attempt_still_counts(tmp_path: Path) -> None:
    """Killed before all zones stored, then after it: one draw is reused, the first one counts."""
    draws, ledger, out = tmp_path / "draws", tmp_path / "l", tmp_path / "out"
    words = (*RUN, "--noise", "secure", *granted(ledger, 6.001), "--out", str(out))
    assert run_in_child(words, "kept 1", draws) == KILLED
    for _ in range(2):
        assert run_in_child((*words, "--resume"), "redispatch 1", draws) == KILLED
    assert run_in_child((*words, "--resume"), "", draws) == 0
    assert charges_of(ledger) == {"1": 2, "2": 1, "3": 1}
    assert json.loads((out / "run.json").read_text())["privacy"]["total_pure"] == pytest.approx(4.0)


@pytest.mark.parametrize("used", [0, 1, 2])
def test_stored_releases_count_where_a_resumed_run_ends_before_it_used_them(
    used: int, tmp_path: Path
) -> None:
    """Three draws before, three stored: a run that read some of the latter states both."""
    draws, ledger, out = tmp_path / "draws", tmp_path / "l", tmp_path / "out"
    words = (*RUN, "--noise", "secure", *granted(ledger, 4.001), "--out", str(out))
    assert run_in_child(words, f"keep {ZONES}", draws) == KILLED
    assert run_in_child((*words, "--resume"), "redispatch 1", draws) == KILLED
    read, values = KeptReleases.value, []

    def interrupted(kept: KeptReleases, *place: Any) -> Any:
        if len(values) == used:
            raise KeyboardInterrupt
        values.append(read(kept, *place))
        return values[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeptReleases, "value", interrupted)
        assert main([*words, "--resume", "--quiet"]) == 130
    for resumed in (False, True):
        assert not resumed or run_in_child((*words, "--resume"), "", draws) == 0
        privacy = json.loads((out / "run.json").read_text())["privacy"]
        assert privacy["total_pure"] == pytest.approx(4.0)
        of_zones = {row["zone"]: row["total_pure"] for row in privacy["sensitivity"]}
        assert of_zones == pytest.approx(dict.fromkeys("123", 4.0))
    assert set(charges_of(ledger).values()) == {2}


def test_a_reused_release_gives_the_run_that_was_not_interrupted(tmp_path: Path) -> None:
    draws, words = tmp_path / "draws", (*RUN, "--seed", "7")
    assert main([*words, *granted(tmp_path / "a", 9.0), "--out", str(tmp_path / "A")]) == 0
    again = (*words, *granted_again(tmp_path), "--out", str(tmp_path / "B"))
    assert run_in_child(again, "redispatch 1", draws) == KILLED
    assert run_in_child((*again, "--resume"), "", draws) == 0
    first, second = (json.loads((tmp_path / name / "run.json").read_text()) for name in "AB")
    assert first["final"] == second["final"]
    assert first["privacy"] == second["privacy"]


def granted_again(folder: Path) -> tuple[str, ...]:
    """Return the same ledger, which a second run charges too."""
    return "--ledger", str(folder / "a")


@pytest.mark.parametrize("change", ["grid", "value"])
def test_a_stored_release_of_another_grid_is_refused_and_nothing_is_drawn(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws, ledger, out = tmp_path / "draws", tmp_path / "l", tmp_path / "out"
    words = (*RUN, "--noise", "secure", *granted(ledger, 4.001), "--out", str(out))
    assert run_in_child(words, "redispatch 1", draws) == KILLED
    file = next((out / KEPT).glob("*.json"))
    if change == "value":
        file.write_text(file.read_text().replace("value", "valve"))
    else:
        monkeypatch.setattr(run_folder, "public_network", lambda case: case.scale_load(2.0))
    assert run_in_child((*words, "--resume"), "", draws) in (2, 3)
    assert set(charges_of(ledger).values()) == {1}
    assert len(draws.read_text().splitlines()) == ZONES


def test_the_value_of_another_zone_is_not_the_one_that_is_missing(tmp_path: Path) -> None:
    """As many files as zones, but one of them is of no zone: all zones draw again."""
    draws, ledger, out = tmp_path / "draws", tmp_path / "l", tmp_path / "out"
    words = (*RUN, "--noise", "secure", *granted(ledger, 4.001), "--out", str(out))
    assert run_in_child(words, "redispatch 1", draws) == KILLED
    next((out / KEPT).glob("*.json")).rename(out / KEPT / "99.json")
    assert run_in_child((*words, "--resume"), "", draws) == 0
    assert set(charges_of(ledger).values()) == {2}
    assert json.loads((out / "run.json").read_text())["privacy"]["total_pure"] == pytest.approx(4.0)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()}


KINDS = "older", "older elsewhere", "copy", "copy elsewhere"
BY_DEFAULT = {("none", "older"), (f"keep {ZONES}", "older elsewhere")}


@pytest.mark.parametrize(
    ("killed", "kind"),
    [
        pytest.param(*given, marks=[] if given in BY_DEFAULT else [pytest.mark.slow])
        for given in product(("none", f"keep {ZONES}"), KINDS)
    ],
)
def test_a_stored_release_needs_its_charge_in_the_ledger(
    kind: str,
    killed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An older ledger, also where no register knows it, and one of an earlier attempt only."""
    draws, ledger, out = tmp_path / "draws", tmp_path / "l", tmp_path / "out"
    words = [*RUN, "--noise", "secure", *granted(ledger, 6.001), "--out", str(out), "--quiet"]
    if killed != "none":  # an attempt that was charged, and did not store all of its releases
        assert run_in_child(tuple(words), killed, draws) == KILLED
    older = ledger.read_bytes()
    assert run_in_child((*words, "--resume"), "redispatch 1", draws) == KILLED
    given = ledger if kind.startswith("older") else tmp_path / "copy"
    newer, stored = ledger.read_bytes(), files_in(out)
    given.write_bytes(older)
    shutil.copy(f"{ledger}.key", tmp_path / "copy.key")
    if kind.endswith("elsewhere"):
        monkeypatch.setenv("GRIDPRIV_STATE", str(tmp_path / "another machine"))
    capsys.readouterr()
    assert main([*words, "--ledger", str(given), "--resume"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "put back the copy" in message and "nothing charged" in message
    assert files_in(out) == stored and given.read_bytes() == older
    ledger.write_bytes(newer)
    assert main([*words, "--resume"]) == 0
    assert ledger.read_bytes() == newer


def test_a_stored_release_of_an_older_version_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder has no identity of the run; the ledger and the stored release are not to blame."""
    out = tmp_path / "out"
    words = (*RUN, "--noise", "secure", "--out", str(out), "--quiet")
    assert run_in_child(words, "redispatch 1", tmp_path / "draws") == KILLED
    manifest = read_sealed(out / "manifest.json")
    del manifest["run_id"]
    (out / "manifest.json").write_text(sealed(manifest))
    stored = files_in(out)
    assert main([*words, "--resume"]) == 2
    assert "was begun by an older gridpriv" in " ".join(capsys.readouterr().err.split())
    assert files_in(out) == stored


@pytest.mark.parametrize("stream", [False, True])
def test_a_series_needs_all_charges_of_its_stored_releases_in_the_ledger(
    stream: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The older ledger lacks the last one: of two in a stream of two blocks."""
    draws, ledger, out = tmp_path / "draws", tmp_path / "l", tmp_path / "out"
    (tmp_path / "day.csv").write_text("step,load_scale\na,1.0\nb,0.9\n")
    words = [*RUN, "--noise", "secure", *granted(ledger, 6.001), "--out", str(out), "--quiet"]
    (tmp_path / "storage.csv").write_text("name,bus,p_mw,energy_mwh\nbattery,9,20,40\n")
    coupled = ["--stream", "2h"] if stream else ["--storage", str(tmp_path / "storage.csv")]
    words += ["--series", str(tmp_path / "day.csv"), *coupled]
    charge = Ledger.charge

    def copied(self: Ledger, *values: Any) -> None:
        shutil.copy(ledger, tmp_path / "older")
        charge(self, *values)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "charge", copied)
        assert run_in_child(tuple(words), "add 1", draws) == KILLED
    newer, stored, older = ledger.read_bytes(), files_in(out), (tmp_path / "older").read_bytes()
    assert len(draws.read_text().splitlines()) == (2 if stream else 1) * ZONES
    if not stream:
        (out / PLAN_FILE).unlink()  # it is not planned before the ledger was checked
    ledger.write_bytes(older)
    monkeypatch.setenv("GRIDPRIV_STATE", str(tmp_path / "another machine"))
    assert main([*words, "--resume"]) == 2
    assert "lacks charges of the stored releases" in " ".join(capsys.readouterr().err.split())
    assert ledger.read_bytes() == older
    stored.pop(str(out / PLAN_FILE), None)
    assert files_in(out) == stored
    ledger.write_bytes(newer)
    assert main([*words, "--resume"]) == 0
    assert ledger.read_bytes() == newer


@pytest.mark.parametrize(
    "public",
    [
        pytest.param((), id="private"),
        pytest.param(("--public",), id="public", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "other",
    [
        "zone",
        "demand",
        *(pytest.param(other, marks=pytest.mark.slow) for other in ("same demand", "folder")),
    ],
)
def test_a_stored_release_of_another_zone_or_run_is_refused(
    other: str, public: tuple[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Zones 2 and 3 release two numbers each; the other run has the same grid and settings."""
    draws, words = tmp_path / "draws", [*RUN, "--release", "total", "--noise", "secure", *public]
    words += granted(tmp_path / "l", 6.001)
    own, another = ([*words, "--out", str(tmp_path / name)] for name in "AB")
    if other in ("demand", "folder"):
        (tmp_path / "d.csv").write_text("bus,pd_mw,qd_mvar\n2,60,12\n")
        another += ["--demand", str(tmp_path / "d.csv")]
    for run in (own, another):
        assert run_in_child(tuple(run), "redispatch 1", draws) == KILLED
    kept = tmp_path / "B" / KEPT
    if other == "zone":
        shutil.copy(kept / "6.json", kept / "7.json")
    else:
        whole = tmp_path / "A"
        folder, target = (whole, kept.parent) if other == "folder" else (whole / KEPT, kept)
        shutil.copytree(folder, target, dirs_exist_ok=True)
    capsys.readouterr()
    assert main([*another, "--resume", "--quiet"]) == 2
    assert "name another folder" in " ".join(capsys.readouterr().err.split())
    assert len(draws.read_text().splitlines()) == 2 * ZONES
    assert set(charges_of(tmp_path / "l").values()) == {2}


@pytest.mark.parametrize(
    "value", ["[0.1]", "null", '[0.1, "x"]', "[[1], [2, 3]]", "[1, NaN]", "1e3"]
)
def test_a_value_that_is_no_release_of_its_zone_is_refused(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*RUN, "--release", "total", "--noise", "secure", "--out", str(tmp_path / "out")]
    assert run_in_child(tuple(words), "redispatch 1", tmp_path / "draws") == KILLED
    file = tmp_path / "out" / KEPT / "7.json"
    file.write_text(sealed(read_sealed(file) | {"value": json.loads(value)}))
    capsys.readouterr()
    assert main([*words, "--resume", "--quiet"]) == 2
    assert str(file) in " ".join(capsys.readouterr().err.split())


def test_files_of_a_public_run_and_rows_of_a_ledger_do_not_depend_on_demand(tmp_path: Path) -> None:
    """A digest of demand beside public data would confirm a guess."""
    draws, ledger, out = tmp_path / "draws", tmp_path / "l", tmp_path / "out"
    words = (*RUN, "--noise", "secure", "--public", *granted(ledger, 4.001), "--out", str(out))
    assert run_in_child(words, "redispatch 1", draws) == KILLED
    digest = read_sealed(tmp_path / ".out.unfinished")["demand_sha256"]
    names = {json.loads(path.read_text())["release"] for path in (out / KEPT).iterdir()}
    runs = {row.run for _, row in read_book(ledger).charged}
    (run_id,) = runs
    assert all(run_id in name for name in names) and len(names) == ZONES
    shutil.rmtree(out)
    assert run_in_child(words, "redispatch 1", draws) == KILLED
    assert len({row.run for _, row in read_book(ledger).charged}) == 2
    assert digest not in "".join(map(str, files_in(out).values()))


def test_a_release_of_an_incomplete_attempt_is_not_used_with_those_of_the_next(
    tmp_path: Path,
) -> None:
    """The first attempt leaves zones 2 and 3, the second one stores zone 1: the third draws."""
    draws, ledger, out = tmp_path / "draws", tmp_path / "l", tmp_path / "out"
    words = (*RUN, "--noise", "secure", *granted(ledger, 6.001), "--out", str(out))
    assert run_in_child(words, "redispatch 1", draws) == KILLED
    (out / KEPT / "1.json").unlink()
    assert run_in_child((*words, "--resume"), "kept 1", draws) == KILLED
    assert [path.name for path in (out / KEPT).iterdir()] == ["1.json"]
    assert run_in_child((*words, "--resume"), "", draws) == 0
    assert charges_of(ledger) == {"1": 3, "2": 2, "3": 2}


def test_a_run_on_other_machines_does_not_promise_the_stored_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a transport of the caller's, zones neither store nor reuse their releases."""
    settings = gridpriv.make_settings(coordination="central", budget="total:2", noise="secure")
    case = gridpriv.load_case("case14")
    zoning = gridpriv.shipped_zoning(case)
    assert zoning is not None
    prepared = gridpriv.prepare(case, zoning, settings)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "redispatch_grid", interrupted)
    here = RunContext(out=tmp_path / "out", resume=True)
    for context, promised in ((here, True), (replace(here, transport=in_process), False)):
        with pytest.raises(KeyboardInterrupt) as ended, warnings.catch_warnings():
            warnings.simplefilter("ignore", GridprivWarning)
            run_case(context, case, prepared)
        hint = " ".join(ended.value.__notes__)
        assert ("from its stored release" in hint) == promised
        assert ("draws the interrupted releases again" in hint) != promised


def test_a_file_that_was_not_completed_is_no_stored_release(tmp_path: Path) -> None:
    draws, ledger, out = tmp_path / "draws", tmp_path / "l", tmp_path / "out"
    words = (*RUN, "--noise", "secure", *granted(ledger, 4.001), "--out", str(out))
    assert run_in_child(words, "keep 3", draws) == KILLED
    with suppress(RuntimeError), atomic_file(out / KEPT / "7.json", private=True) as file:
        file.write(b"{")
        left = next(path for path in (out / KEPT).iterdir() if is_temporary(path))
        shutil.copy(left, tmp_path / "left")
        raise RuntimeError
    shutil.copy(tmp_path / "left", left)
    assert run_in_child((*words, "--resume"), "", draws) == 0
    assert set(charges_of(ledger).values()) == {2}


def test_zones_in_worker_processes_store_and_use_their_releases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, out = tmp_path / "l", tmp_path / "out"
    words = [*RUN, "--noise", "secure", "--workers", "2", *granted(ledger, 2.001)]
    words += ["--out", str(out)]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "redispatch_grid", interrupted)
        assert main(words) == 130
    hint = " ".join(capsys.readouterr().err.split())
    assert "with --resume starts the run again, from its stored release" in hint
    assert main([*words, "--resume"]) == 0
    assert charges_of(ledger) == {"1": 1, "2": 1, "3": 1}
    assert json.loads((out / "run.json").read_text())["privacy"]["total_pure"] == pytest.approx(2.0)
