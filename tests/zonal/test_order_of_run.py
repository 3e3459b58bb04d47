"""The order of a run: everything that can fail on public data fails before anything is charged."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from gridpriv import InputError, SolverError, load_case, make_settings
from gridpriv.cli.main import main
from gridpriv.core.errors import GridprivWarning
from gridpriv.grid.partition import partition
from gridpriv.grid.zoning import zoning_from_groups
from gridpriv.power.problem import ZoneProblem
from gridpriv.privacy.ledger import read_book
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.run import run_prepared

pytestmark = pytest.mark.usefixtures("few_replans")


def granted(path, *words):
    assert main(["ledger", "grant", str(path), "--case", "case14", "--total", "50", *words]) == 0
    return path


def spent(path):
    """Releases charged, owner by owner, as the ledger counts them."""
    book = read_book(path)
    return {account.owner: sum(account.spent.values()) for account in book.accounts}


class Charged(list):
    """Charges that a run makes, in order; nothing is refused."""

    def __call__(self, owner, releases):
        self.append((owner, releases))

    def totals(self):
        total = {}
        for owner, releases in self:
            total.setdefault(owner, Counter()).update(releases)
        return total


def test_zones_of_one_bus_lose_no_budget(tmp_path):
    """case14 in ten zones ended with a traceback after the charge, and without a folder."""
    ledger, out = granted(tmp_path / "z.db", "--zones", "10"), tmp_path / "zout"
    words = ["--zones", "10", "--rounds", "3", "--noise-schedule", "round", "--budget", "total:5"]
    words += ["--no-reference", "--ledger", str(ledger), "--out", str(out), "--quiet"]
    assert main(["run", "case14", *words]) == 0
    stated = json.loads((out / "run.json").read_text())
    assert stated["ended"] == "finished"
    assert stated["privacy"]["releases_per_zone"] == 3
    assert set(spent(ledger).values()) == {3}


@pytest.mark.parametrize("start", ["flat", "warm"])
@pytest.mark.parametrize("error", [SolverError("no"), ValueError("a defect")])
def test_what_fails_on_public_data_fails_before_a_charge(
    case14, zones14, monkeypatch, start, error
):
    """A fault of a zone's solver on any data also occurs on the public scenario."""

    def broken(*_, **__):
        raise error

    monkeypatch.setattr(ZoneProblem, "minimise_exact", broken)
    charged = Charged()
    acceleration = "anderson" if start == "warm" else "none"
    settings = make_settings(
        rounds=2, seed=1, start=start, planning="soc", acceleration=acceleration
    )
    with pytest.raises(type(error)):
        run_prepared(
            prepare(case14, zones14, settings),
            charge=charged,
            admit=charged.append,
            leave=charged.append,
        )
    assert charged == []


def test_an_empty_feasible_set_is_refused_before_a_charge(zones14):
    """Angle limits that no voltage satisfies are public, and so is that nothing fits them."""
    case = load_case("case14")
    far = np.full(case.n_branch, 1.5)
    empty = replace(case, angmin=far, angmax=far, vmin=case.vmin * 0 + 0.9, rate=far * 0 + 0.01)
    charged = Charged()
    settings = make_settings(rounds=2, seed=1, solver="clarabel")
    with pytest.raises(SolverError, match="trial on public data, round 1"):
        run_prepared(prepare(empty, zones14, settings), charge=charged)
    assert charged == []


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"noise_schedule": "update", "local_updates": 3},
        {"noise_schedule": "round"},
        {"perturbation": "objective", "update": "linearized"},
        {"perturbation": "output", "penalty": "geometric:1,2,2,8"},
        {"preset": "ryu-kim", "perturbation": "output", "local_updates": 2},
        {"preset": "ryu-kim", "mechanism": "gaussian", "perturbation": "output"},
        {"preset": "ryu-kim"},
    ],
)
def test_the_plan_is_what_will_be_charged(case14, given):
    """Release by release: the admitted releases before the first draw equal the drawn ones."""
    settings = make_settings(**({"rounds": 4, "seed": 1, "solver": "clarabel"} | given))
    charged, plans = Charged(), []

    def admit(planned):
        assert charged == []
        plans.append(planned)

    run_prepared(prepare(case14, partition(case14, 4), settings), charge=charged, admit=admit)
    assert plans == [charged.totals()]


def test_an_interrupt_leaves_what_was_drawn(case14, zones14):
    charged, early = Charged(), []

    def watch(record):
        if record.round == 2:
            raise KeyboardInterrupt

    settings = make_settings(noise_schedule="round", rounds=5, seed=1, start="flat")
    with pytest.raises(KeyboardInterrupt):
        run_prepared(
            prepare(case14, zones14, settings), watch=watch, charge=charged, leave=early.append
        )
    (done,) = early
    assert {s.zone: s.releases for s in done.certificates} == {"1": 2, "2": 2, "3": 2}
    assert done.trace.releases == charged.totals()
    assert done.as_dict()["reason"] == "interrupted"
    assert len(done.rounds) == 2


def test_a_defect_after_the_last_round_leaves_all_rounds(case14, zones14, monkeypatch):
    from gridpriv.zonal import run

    def broken(*_):
        raise ZeroDivisionError("while settling")

    monkeypatch.setattr(run, "redispatch_grid", broken)
    early = []
    settings = make_settings(rounds=3, seed=1, start="flat", planning="soc")
    with pytest.raises(ZeroDivisionError):
        run_prepared(prepare(case14, zones14, settings), leave=early.append)
    assert len(early[0].rounds) == 3
    assert "ZeroDivisionError" in early[0].as_dict()["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 1, 1, 2, 2])
def test_ctrl_c_leaves_a_folder_that_says_what_the_ledger_says(tmp_path, workers):
    ledger, out = granted(tmp_path / "l.db"), tmp_path / "out"
    words = [
        "run",
        "case14",
        "--rounds",
        "100000",
        "--noise-schedule",
        "round",
        "--epsilon",
        "0.0001",
        "--workers",
        str(workers),
        "--ledger",
        str(ledger),
        "--out",
        str(out),
    ]
    command = subprocess.Popen(
        [sys.executable, "-m", "gridpriv.cli.main", *words], stderr=subprocess.PIPE, text=True
    )
    while not any(spent(ledger).values()):
        assert command.poll() is None
    command.send_signal(signal.SIGINT)
    _, text = command.communicate(timeout=120)
    assert command.returncode == 130, text
    stated = json.loads((out / "run.json").read_text())
    releases = {row["zone"]: row["releases"] for row in stated["privacy"]["sensitivity"]}
    assert releases == {zone: count for zone, count in spent(ledger).items() if count}
    assert stated["ended"] == "early"


def test_two_zones_that_share_nothing_run_and_draw_nothing_they_would_send():
    """Output perturbation of an exact update draws noise on sent values; islands send none."""
    case = load_case("case14").without(("branch:8", "branch:9", "branch:10"))
    zoning = zoning_from_groups(case, [[0, 1, 2, 3, 4], list(range(5, 14))], "islands")
    settings = make_settings(perturbation="output", rounds=2, seed=1, solver="clarabel")
    charged = Charged()
    result = run_prepared(prepare(case, zoning, settings), charge=charged)
    assert charged == []
    assert result.certificates == ()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--ledger", "l.db"], "a ledger is a file of one machine"),
        (["--workers", "2"], "the cluster has its own"),
    ],
)
def test_a_cluster_has_its_own_workers_and_no_ledger(capsys, words, sentence):
    assert main(["run", "case14", "--cluster", "tcp://127.0.0.1:1", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_noise_on_an_objective_without_a_minimum_is_refused():
    """Two generators of bus 1 that may go against each other for ever change no imbalance."""
    case = load_case("case14")
    endless = {
        "gen_bus": np.zeros_like(case.gen_bus),
        "pmin": np.full(case.n_gen, -np.inf),
        "pmax": np.full(case.n_gen, np.inf),
    }
    case = replace(case, **endless)
    settings = make_settings(perturbation="objective", rounds=1, solver="clarabel")
    with pytest.raises(InputError, match="bus 1 have no limits against each other"):
        prepare(case, partition(case, 2), settings)
    with pytest.warns(GridprivWarning, match="prior of demand is uninformative"):
        prepare(case, partition(case, 2), make_settings(perturbation="demand"))
    for other in ({"update": "linearized"}, {"consensus": "all"}):
        prepare(case, partition(case, 2), make_settings(**({"perturbation": "objective"} | other)))
