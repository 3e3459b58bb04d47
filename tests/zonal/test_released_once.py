"""Steps that scale one demand share its release: one draw, one charge, also when interrupted."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gridpriv import load_case, make_settings, run_series, shipped_zoning
from gridpriv.cli.main import main
from gridpriv.core.errors import BudgetError, InputError, SolverError
from gridpriv.core.store import read_study
from gridpriv.grid.scenarios import read_demand_series
from gridpriv.privacy.ledger import ReleaseCharge
from gridpriv.privacy.release import Release
from gridpriv.privacy.temporal import TemporalDisclosure
from gridpriv.report.contents import contents
from gridpriv.report.source import summary
from gridpriv.study import context
from gridpriv.study.run_folder import RunFolder, Runs, open_runs
from gridpriv.zonal import run as run_module
from gridpriv.zonal.horizon import Horizon, make_horizon
from gridpriv.zonal.prepared import noise_rule, prepare
from gridpriv.zonal.summary import series_notes

pytestmark = pytest.mark.usefixtures("few_replans", "no_replans")

ONCE = {
    "mechanism": "knorm",
    "noise_schedule": "once",
    "release": "total",
    "budget": "total:1",
    "beta": "10MW",
    "rounds": 2,
    "seed": 3,
    "solver": "clarabel",
}
FLAGS = [
    word for name, value in ONCE.items() for word in (f"--{name.replace('_', '-')}", str(value))
]
FLAGS += ["--no-reference", "--coordination", "central", "--planning", "soc"]
DAY = "step,load_scale\ndark,0\nnight,0.6\nmorning,1.0\nnoon,1.2\n"
PROFILE = "step,bus,pd_mw,qd_mvar\ndark,2,0,0\nnight,2,12,6\nmorning,2,22,13\nnoon,2,28,15\n"
LIT = PROFILE.replace("dark,2,0,0\n", "")


def fails_at_noon(words, monkeypatch):
    """Run a day whose second step fails; return the exit code."""
    honest = Horizon.run_step

    def failing(self, number, *given, **named):
        if number == 1:
            raise SolverError("the lights go out")
        return honest(self, number, *given, **named)

    with monkeypatch.context() as broken:
        broken.setattr(Horizon, "run_step", failing)
        return main(words)


@pytest.fixture
def day(tmp_path):
    (tmp_path / "day.csv").write_text(DAY)
    return str(tmp_path / "day.csv")


@pytest.fixture(params=[DAY, PROFILE], ids=["factors", "profile"])
def either(request, tmp_path):
    """Return two steps: factors on one demand, or demands of their own."""
    return written(request.param, tmp_path)


def written(steps, folder):
    names, _, _, *lines = steps.splitlines(keepends=True)
    (folder / "either.csv").write_text("".join([names, *lines]))
    return str(folder / "either.csv")


def grant(ledger, epsilon):
    words = ["ledger", "grant", ledger, "--case", "case14", "--total", epsilon]
    assert main([*words, "--beta", "10MW", "--quiet"]) == 0


class Counting:
    """A ledger that counts its charges."""

    def __init__(self):
        self.told = []

    def __call__(self, owner, releases):
        self.told.append((owner, sum(releases.values())))


def test_a_day_costs_one_release_at_the_noise_of_one_step(day):
    case = load_case("case14")
    zoning, settings = shipped_zoning(case), make_settings(**ONCE)
    charge = Counting()
    result = run_series(read_demand_series(day, case), zoning, settings, charge=charge)
    assert sorted(charge.told) == sorted((name, 1) for name in zoning.names)
    assert [s.total_pure for s in result.certificates] == pytest.approx([1.0] * 3)
    alone = noise_rule(settings, settings.adjacency(case))
    assert result.results[1].rules.noise == alone
    horizon = make_horizon(read_demand_series(day, case), zoning, settings)
    known = horizon.draw()
    base = horizon.prepared(2, known).posteriors
    for number, scale in enumerate((0.0, 0.6, 1.0, 1.2)):
        for item, whole in zip(horizon.prepared(number, known).posteriors, base, strict=True):
            np.testing.assert_allclose(item.demand, scale * whole.demand, rtol=1e-12)


@pytest.mark.parametrize(("temporal_basis", "draws"), [("auto", 1), ("0", 1), ("per-step", 2)])
def test_steps_of_their_own_demand_share_a_release_unless_per_step(
    temporal_basis, draws, tmp_path, monkeypatch
):
    case = load_case("case14")
    path = tmp_path / "own.csv"
    path.write_text("step,bus,pd_mw,qd_mvar\na,2,20,10\nb,2,30,12\n")
    charge, applied, honest = Counting(), [], Release.apply

    def counted(self, value, stream):
        applied.append(self)
        return honest(self, value, stream)

    monkeypatch.setattr(Release, "apply", counted)
    settings = make_settings(**(ONCE | {"temporal_basis": temporal_basis}))
    result = run_series(
        read_demand_series(path, case), shipped_zoning(case), settings, charge=charge
    )
    assert len(charge.told) == len(applied) == draws * 3
    assert [s.total_pure for s in result.certificates] == pytest.approx([1.0] * 3)


def test_an_interrupted_day_with_secure_noise_goes_on_without_a_second_draw(
    either, tmp_path, monkeypatch
):
    """Secure noise cannot be repeated: the release is that of the folder."""
    pytest.importorskip("opendp")
    ledger = str(tmp_path / "owner.ledger")
    grant(ledger, "1.01")
    words = ["run", "case14", "--series", either, *FLAGS, "--noise", "secure", "--quiet"]
    at = words.index("--seed")
    words = [*words[:at], *words[at + 2 :], "--out", str(tmp_path / "out"), "--ledger", ledger]
    if "bus" in Path(either).read_text():
        words += ["--temporal-basis", "1"]
    assert fails_at_noon(words, monkeypatch) == 3
    names = ("released", "temporal_coefficients")
    before = read_study(tmp_path / "out").tables
    assert main([*words, "--resume"]) == 0
    after = read_study(tmp_path / "out").tables
    for name in before.keys() & names:
        pd.testing.assert_frame_equal(before[name], after[name])
    assert ("temporal_coefficients" in after) == ("bus" in Path(either).read_text())
    document = json.loads((tmp_path / "out" / "horizon.json").read_text())
    assert document["finished"] == 2
    assert document["privacy"]["releases_per_zone"] == 1
    assert (
        "temporal_coefficients" in after
        or "before the public factors" in document["privacy"]["adjacency"]
    )


def test_a_day_says_what_it_released_once(either, tmp_path, capsys):
    words = ["run", "case14", "--series", either, *FLAGS, "--release", "auto"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    document = json.loads((tmp_path / "out" / "horizon.json").read_text())
    assert [row["zone"] for row in document["released_once"]] == ["1", "2", "3"]
    assert document["privacy"]["releases_per_zone"] == 1
    assert "Released once for all steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    "either", [PROFILE, pytest.param(DAY, marks=pytest.mark.slow)], indirect=True
)
def test_a_ledger_admits_a_day_that_its_grant_covers_once(either, tmp_path):
    ledger = str(tmp_path / "owner.ledger")
    grant(ledger, "1.01")
    words = ["run", "case14", "--series", either, *FLAGS, "--quiet", "--ledger", ledger]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    assert main([*words, "--out", str(tmp_path / "b")]) == 4


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_scaled_demand_is_released_as_its_owner_has_it(scale):
    """With negligible noise the estimate is the scaled sum; a corner changes by beta unscaled."""
    case = load_case("case14")
    settings = make_settings(**(ONCE | {"budget": "total:1e6", "load_scale": scale}))
    prepared = prepare(case, shipped_zoning(case), settings)
    for zone, disclosure in zip(prepared.zones, prepared.disclosures, strict=True):
        owner = np.concatenate([case.pd[zone.own], case.qd[zone.own]])
        adjacent = owner.copy()
        adjacent[[0, len(zone.own)]] += prepared.rules.adjacency.beta
        difference = disclosure.measure(scale * adjacent) - disclosure.measure(zone.demand)
        stated = disclosure.sensitivity(prepared.rules.adjacency, "box").value
        assert np.abs(difference).max() == pytest.approx(stated)
        estimate = disclosure.estimate(disclosure.measure(zone.demand), None)
        assert np.split(estimate, 2)[0].sum() == pytest.approx(np.split(zone.demand, 2)[0].sum())


def test_what_zones_send_in_a_day_is_a_function_of_its_one_release(tmp_path):
    """Two days of other private demand and the same release: messages are the same to the bit."""
    case, settings = load_case("case14"), make_settings(**(ONCE | {"temporal_basis": "2"}))
    known, sent = None, []
    for name, text in (("a", PROFILE), ("b", PROFILE.replace("22,13", "61,2"))):
        (tmp_path / f"{name}.csv").write_text(text)
        series = read_demand_series(tmp_path / f"{name}.csv", case)
        horizon = make_horizon(series, shipped_zoning(case), settings)
        known = known or horizon.draw()
        sent.append([horizon.run_step(n, estimates=known).trace for n in range(len(series))])
    for item, other in zip(*sent, strict=True):
        np.testing.assert_array_equal(item.sent, other.sent)
        assert [r.consensus_residual for r in item.rounds] == [
            r.consensus_residual for r in other.rounds
        ]
    demand = [[t.rounds[-1].metrics["plan_shortage_mw"] for t in traces] for traces in sent]
    assert demand[0][2] != demand[1][2]


@pytest.mark.parametrize(
    ("steps", "temporal_basis"),
    [
        (DAY, "auto"),
        (LIT, "per-step"),
        (LIT, "2"),
        pytest.param(PROFILE, "auto", marks=pytest.mark.slow),
    ],
)
def test_a_series_may_release_nothing(steps, temporal_basis, tmp_path, capsys):
    (tmp_path / "steps.csv").write_text("".join(steps.splitlines(keepends=True)[:3]))
    words = ["run", "case14", "--series", str(tmp_path / "steps.csv"), *FLAGS]
    words += ["--release", "nothing", "--temporal-basis", temporal_basis]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    document = json.loads((tmp_path / "out" / "horizon.json").read_text())
    assert document["privacy"]["total_pure"] == 0.0
    zones = [] if temporal_basis == "per-step" else ["1", "2", "3"]
    assert [row["zone"] for row in document["released_once"]] == zones
    assert all(row["cosines"] == 0 for row in document["released_once"])
    assert document["privacy"]["releases_per_zone"] == 0
    assert "Released once for all steps" not in capsys.readouterr().out


def test_a_step_of_a_factor_errs_by_what_one_run_expects_to(tmp_path):
    """Nothing of a public factor is left to guess."""
    series, single, steps = (str(tmp_path / name) for name in ("series", "single", "steps.csv"))
    Path(steps).write_text("step,load_scale\ndark,0\nnoon,1.2\n")
    assert main(["run", "case14", "--series", steps, *FLAGS, "--out", series, "--quiet"]) == 0
    assert main(["run", "case14", *FLAGS, "--out", single, "--quiet"]) == 0
    once = json.loads((Path(series) / "horizon.json").read_text())["released_once"]
    alone = json.loads((Path(single) / "run.json").read_text())["released"]
    assert [row["expected_error_mw"] for row in once] == pytest.approx(
        [row["expected_error_mw"] for row in alone]
    )


FACTORS = "left out: the steps of this series are factors on one demand"
NOT_ONCE = "left out, or with perturbation demand and noise_schedule once"


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("'auto' without a series", ()),
        (FACTORS, ("--series", DAY)),
        (NOT_ONCE, ("--series", PROFILE, "--noise-schedule", "round")),
        (NOT_ONCE, ("--series", PROFILE, "--mechanism", "laplace", "--perturbation", "output")),
        (NOT_ONCE, ("--series", PROFILE, "--mechanism", "none")),
    ],
)
def test_a_temporal_basis_is_refused_where_it_has_no_meaning(why, words, tmp_path, capsys):
    (tmp_path / "steps.csv").write_text(words[1] if words else "")
    given = [str(tmp_path / "steps.csv") if "\n" in word else word for word in words]
    for basis in ("per-step", "3"):
        assert (
            main(["run", "case14", *given, "--temporal-basis", basis, "--out", str(tmp_path / "o")])
            == 2
        )
        assert f"--temporal-basis {basis}: must be {why}" in capsys.readouterr().err
        assert not (tmp_path / "o").exists()


def test_more_coefficients_than_a_series_has_are_named(tmp_path, capsys):
    (tmp_path / "steps.csv").write_text(PROFILE)
    words = ["run", "case14", "--series", str(tmp_path / "steps.csv"), *FLAGS, "--json"]
    for basis, text in (("3", False), ("6", True)):
        assert main([*words, "--temporal-basis", basis]) == 0
        shown = capsys.readouterr()
        assert {zone["cosines"] for zone in json.loads(shown.out)["released_once"]} == {3}
        message = "temporal_basis = 6: 4 steps have 3 cosine coefficients at most; 3 are released"
        assert (message in shown.err) == text


def test_a_single_run_has_no_temporal_basis():
    case = load_case("case14")
    with pytest.raises(InputError, match="temporal_basis = '2': must be"):
        prepare(case, shipped_zoning(case), make_settings(temporal_basis="2"))


@pytest.mark.parametrize("place", ["run_trial", "run_prepared", "reference", "_planned"])
def test_an_interrupted_series_states_its_release(place, tmp_path, monkeypatch, capsys):
    """Before the release, in a step after it, in a step's baseline, and in a resumed series."""
    series, out = written(DAY, tmp_path), tmp_path / "out"
    words = ["run", "case14", "--series", series, *FLAGS, "--quiet", "--out", str(out)]

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    def message(resumed=()):
        assert main([*words, *resumed]) == 130
        return " ".join(capsys.readouterr().err.split())

    with monkeypatch.context() as broken:
        if place == "run_trial":
            broken.setattr(Horizon, "run_trial", interrupted)
            assert "releases drawn" not in message()
            return
        module = {"run_prepared": run_module, "reference": context, "_planned": context}[place]
        if place == "reference":
            words[words.index("--no-reference")] = "--reference"
        broken.setattr(module, "run_rounds" if place == "run_prepared" else place, interrupted)
        stated = message()
        assert stated.count("most releases drawn by a zone: 1") == 1
        assert "drawn by a zone: 0" not in stated and "--resume goes on from there)" in stated
        assert message(["--resume"]).count("most releases drawn by a zone: 1") == 1
    assert main([*words, "--resume"]) == 0


@pytest.mark.parametrize("charged", [True, False])
def test_an_interrupted_run_states_the_releases_of_all_attempts(
    charged, tmp_path, monkeypatch, capsys
):
    """With a ledger a resumed run uses its stored release; without, it has the same draw."""
    grant(ledger := str(tmp_path / "owner.ledger"), "5")
    words = ["run", "case14", *FLAGS, "--quiet", "--out", str(tmp_path / "out")]
    words += ["--ledger", ledger] if charged else []

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "round_record", interrupted)
    for resumed in ((), ("--resume",)):
        assert main([*words, *resumed]) == 130
        stated = " ".join(capsys.readouterr().err.split())
        assert "drawn by a zone: 1)" in stated
        assert f"starts the run again{', from its stored release' if charged else ''})" in stated
    assert main(words) == 2
    assert "already holds this run: add --resume to run it again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "steps"), [(BudgetError("no more"), DAY), (KeyboardInterrupt(), PROFILE)]
)
def test_an_interrupted_draw_is_counted_as_it_was_charged(error, steps, tmp_path, monkeypatch):
    """One zone was charged when the second is refused: folder and ledger record it by zone."""
    either = written(steps, tmp_path)
    ledger, out = str(tmp_path / "owner.ledger"), tmp_path / "out"
    grant(ledger, "5")
    words = [
        "run",
        "case14",
        "--series",
        either,
        *FLAGS,
        "--quiet",
        "--ledger",
        ledger,
        "--out",
        str(out),
    ]
    honest, paid = ReleaseCharge.__call__, []

    def second_fails(self, owner, releases):
        if paid:
            raise error
        paid.append(owner)
        honest(self, owner, releases)

    def charged():
        table = read_study(out).tables["releases"]
        return table.groupby("zone")["count"].sum().to_dict()

    monkeypatch.setattr(ReleaseCharge, "__call__", second_fails)
    assert main(words) == (4 if isinstance(error, BudgetError) else 130)
    assert charged() == {paid[0]: 1}
    monkeypatch.setattr(ReleaseCharge, "__call__", honest)
    assert main([*words, "--resume"]) == 0
    others = set(shipped_zoning(load_case("case14")).names) - {paid[0]}
    assert charged() == {paid[0]: 2} | dict.fromkeys(others, 1)
    document = json.loads((out / "horizon.json").read_text())
    assert document["privacy"]["total_pure"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    "either", [DAY, pytest.param(PROFILE, marks=pytest.mark.slow)], indirect=True
)
def test_steps_whose_release_is_gone_are_not_joined_by_others(
    either, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("opendp")
    out = tmp_path / "out"
    at = FLAGS.index("--seed")
    words = [
        "run",
        "case14",
        "--series",
        either,
        *FLAGS[:at],
        *FLAGS[at + 2 :],
        "--quiet",
        "--noise",
        "secure",
        "--out",
        str(out),
    ]
    assert fails_at_noon(words, monkeypatch) == 3
    (out / "parts" / "once-drawn.json").unlink()
    capsys.readouterr()
    assert main([*words, "--resume"]) == 2
    assert "once-drawn is missing" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("charged", "steps"), [(True, DAY), (False, PROFILE)])
def test_a_day_killed_once_it_has_drawn_counts_the_draw(charged, steps, tmp_path, capsys):
    """With a ledger an unread draw is charged again; without, the seed repeats the same draw."""
    either = written(steps, tmp_path)
    ledger, out = str(tmp_path / "owner.ledger"), tmp_path / "out"
    words = ["run", "case14", "--series", either, *FLAGS, "--quiet", "--out", str(out)]
    if charged:
        grant(ledger, "5")
        words += ["--ledger", ledger]
    child = os.fork()
    if child == 0:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RunFolder, "add_once", lambda *_: os._exit(137))
            main(words)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 137
    early = read_study(out).tables["releases"]
    assert early["early"].all() and early["count"].tolist() == [1] * 3
    assert main([*words, "--resume"]) == 0
    document = json.loads((out / "horizon.json").read_text())
    assert document["privacy"]["releases_per_zone"] == 1 + charged
    assert document["privacy"]["total_pure"] == pytest.approx(1.0 + charged)
    if charged:
        capsys.readouterr()
        assert main(["ledger", "show", ledger, "--json"]) == 0
        owners = json.loads(capsys.readouterr().out)["owners"]
        assert [owner["total_pure"] for owner in owners] == pytest.approx([2.0] * 3)


def test_a_stored_release_of_a_series_is_read_as_it_was_drawn(tmp_path):
    """The estimate of every bus and every cosine coefficient, which a resumed series uses."""
    (tmp_path / "own.csv").write_text(PROFILE)
    case, settings = load_case("case14"), make_settings(**(ONCE | {"temporal_basis": "2"}))
    series, zoning = read_demand_series(tmp_path / "own.csv", case), shipped_zoning(case)
    horizon = make_horizon(series, zoning, settings)
    drawn, runs = horizon.draw(), Runs(case, zoning, settings, horizon.seed, series)
    with open_runs(tmp_path / "out", runs, public=False, resume=False, ledger="") as folder:
        folder.add_once(horizon, horizon.planned, drawn)
        known = folder.known(horizon)
    assert len(drawn) == 3
    for item, stored in zip(drawn, known, strict=True):
        assert item.temporal_coefficients.shape == (2, 2) and item.temporal_coefficients.all()
        np.testing.assert_array_equal(stored.temporal_coefficients, item.temporal_coefficients)
        np.testing.assert_array_equal(stored.mean, item.mean)


def test_every_statistic_has_noise_of_its_own(tmp_path, monkeypatch):
    """Over many seeds: of the stated variance, and none of it shared by p and q or by zones."""
    (tmp_path / "own.csv").write_text(PROFILE)
    case, noises = load_case("case14"), []
    series = read_demand_series(tmp_path / "own.csv", case)
    settings = make_settings(
        **(ONCE | {"temporal_basis": "1", "mechanism": "laplace", "budget": "total:2"})
    )
    horizon = make_horizon(series, shipped_zoning(case), settings)
    fixed, honest = horizon.disclosures, TemporalDisclosure.estimate

    def recorded(self, released, release):
        own = horizon.owned.zones[[item is self for item in fixed].index(True)].own
        days = np.hstack([series.pd[:, own], series.qd[:, own]])
        noises.append(
            (released - self.measure(days)) / self.sensitivity(settings.adjacency(case), 1).value
        )
        return honest(self, released, release)

    monkeypatch.setattr(TemporalDisclosure, "estimate", recorded)
    for seed in range(300):
        again = replace(horizon, seed=seed)
        vars(again).update(owned=horizon.owned, disclosures=fixed)
        again.draw()
    noise = np.array(noises).reshape(300, -1)  # seeds, statistics of three zones
    assert noise.shape[1] == 3 * 2 * 2
    scale = np.sqrt((noise**2).mean(axis=0) / 2.0)  # of Laplace noise b, in sensitivities: 1/2
    np.testing.assert_allclose(scale, 0.5, rtol=0.3)
    together = np.corrcoef(noise.T) - np.eye(noise.shape[1])
    assert np.abs(together).max() < 0.3


def test_what_is_released_is_chosen_from_public_data(either, tmp_path):
    """Another owner, of other demand in the case and in every step, releases the same things."""
    case = load_case("case14")
    other = replace(case, pd=1.7 * case.pd[::-1], qd=0.4 * case.qd[::-1])
    text = Path(either).read_text()
    (tmp_path / "other.csv").write_text(text.replace("22,13", "61,2").replace("0,0", "9,-4"))
    settings = make_settings(**(ONCE | {"release": "auto", "beta": "1MW"}))
    result = []
    for item, path in ((case, either), (other, tmp_path / "other.csv")):
        series = read_demand_series(path, item)
        horizon = make_horizon(series, shipped_zoning(case), settings)
        result.append((horizon.released_rows(), horizon.planned, horizon.multiplier))
    assert result[0] == result[1]
    assert any(row["cosines"] for row in result[0][0]) == ("bus" in text)


@pytest.mark.parametrize(("temporal_basis", "releases"), [("auto", 1), ("per-step", 2)])
def test_a_series_report_states_the_total_of_all_steps(temporal_basis, releases, tmp_path):
    words = [
        "run",
        "case14",
        "--series",
        written(PROFILE, tmp_path),
        *FLAGS,
        "--temporal-basis",
        temporal_basis,
    ]
    assert main([*words, "--quiet", "--out", str(tmp_path / "out")]) == 0
    study = read_study(tmp_path / "out")
    text = next(t for t in contents(study, summary(study)) if t.name == "privacy")
    (row,) = (dict(zip((c.name for c in text.columns), r, strict=True)) for r in text.rows)
    assert row["releases_per_zone"] == releases
    assert row["total_pure"] == pytest.approx(1.0)
    assert study.manifest["totals"][0]["unknown"] == 0


def test_a_stream_releases_in_blocks_and_not_once(tmp_path, capsys):
    (tmp_path / "day.csv").write_text("step,load_scale\n0,0.6\n1,1\n2,0.9\n")
    words = ["run", "case14", "--series", str(tmp_path / "day.csv"), "--stream", "24h"]
    assert main([*words, "--seed", "1", "--no-reference", "--json"]) == 0
    document = {note.code for note in series_notes(json.loads(capsys.readouterr().out))}
    assert {"released-in-blocks", "stream"} <= document and "released-once" not in document
