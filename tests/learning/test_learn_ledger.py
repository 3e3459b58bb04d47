"""A ledger for training samples: releases are charged before a draw, and refused above a grant."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from gridpriv.cli.main import main
from gridpriv.learning import LearnSettings, load_dataset
from gridpriv.learning.algorithms.base import planned
from gridpriv.learning.run import make_task
from gridpriv.privacy.accounting import total_epsilon

EPSILON = 4.0


@pytest.fixture
def data(tmp_path):
    random = np.random.default_rng(5)
    x = random.normal(size=(40, 3))
    np.savez(tmp_path / "mine.npz", x=x, y=(x[:, 0] > 0).astype(int))
    return tmp_path / "mine.npz"


def learn(action, data, ledger, *given):
    return main(
        [
            "learn",
            action,
            str(data),
            "--norm",
            "1",
            "--clients",
            "4",
            "--ledger",
            str(ledger),
            "--json",
            *given,
        ]
    )


def spent(ledger, capsys):
    capsys.readouterr()
    assert main(["ledger", "show", str(ledger), "--json"]) == 0
    owners = json.loads(capsys.readouterr().out)["owners"]
    return {owner["owner"]: (owner["releases"], owner["total"]["epsilon"]) for owner in owners}


CHEAP = ("--rounds", "3", "--budget", "total:1,1e-5", "--evaluate-every", "3")


@pytest.mark.parametrize("noise", ["simulated", "secure"])
@pytest.mark.parametrize(
    "given",
    [
        ("--algorithm", "ryu-kim"),
        ("--algorithm", "ryu-kim", "--perturbation", "output", "--local-updates", "2"),
        ("--algorithm", "dp-admm"),
        ("--algorithm", "pvp", "--penalty", "1"),
        ("--algorithm", "dpsgd"),
        ("--algorithm", "dpsgd", "--batch", "4"),
        ("--algorithm", "cdp-admm", "--graph", "regular:2"),
        ("--algorithm", "ddp-admm", "--graph", "regular:2"),
        ("--algorithm", "fedspd-dp", "--penalty", "2", "--local-updates", "2"),
        ("--algorithm", "dp-fedavg", "--clip", "0.5"),
    ],
)
def test_every_algorithm_charges_what_it_certifies(tmp_path, data, capsys, given, noise):
    """The ledger's total of charges is at least the run's certificate."""
    ledger = tmp_path / "l.db"
    of_samples = given[:2] if "dp-fedavg" in given else ()
    granted = ("--total", f"{EPSILON},1e-5", *of_samples)
    assert learn("grant", data, ledger, *granted) == 0
    capsys.readouterr()
    assert learn("run", data, ledger, *CHEAP, *given, "--noise", noise) == 0
    privacy = json.loads(capsys.readouterr().out)["privacy"]
    for releases, total in spent(ledger, capsys).values():
        assert releases == privacy["releases_per_client"]
        if "--batch" in given:  # amplified by secret batches, which no ledger counts
            assert total >= privacy["total"]["epsilon"]
        else:
            assert total == pytest.approx(privacy["total"]["epsilon"], rel=1e-3)


def test_a_run_whose_unit_is_a_client_says_so(tmp_path, data, capsys):
    ledger = tmp_path / "l.db"
    assert learn("grant", data, ledger, "--total", "5,1e-5") == 0
    assert learn("run", data, ledger, *CHEAP, "--algorithm", "dp-fedavg", "--clip", "0.5") == 4
    output = " ".join(capsys.readouterr().err.split())
    assert "holds no grant for client '1' (the unit of this run is a whole client)" in output


def test_a_run_that_does_not_fit_releases_and_charges_nothing(tmp_path, data, capsys):
    ledger = tmp_path / "l.db"
    assert learn("grant", data, ledger, "--total", "0.5,1e-5") == 0
    assert learn("run", data, ledger, *CHEAP, "--algorithm", "dp-admm") == 4
    assert "the run was not started" in capsys.readouterr().err
    assert all(releases == 0 for releases, _ in spent(ledger, capsys).values())


DVP = ("--algorithm", "dvp", "--penalty", "40", "--regularizer", "l2:0.1", *CHEAP)


def test_releases_of_an_epsilon_and_delta_count_as_the_plan_of_a_grant(tmp_path, data, capsys):
    """Alone they fit into the grant, once."""
    ledger, small, used = (tmp_path / name / "l.db" for name in ("enough", "small", "used"))
    for file, epsilon in ((ledger, "1.01"), (small, "0.9"), (used, "9")):
        file.parent.mkdir()  # with a register of its own
        assert learn("grant", data, file, "--total", f"{epsilon},1e-5") == 0
    capsys.readouterr()
    assert learn("run", data, ledger, *DVP) == 0
    certified = json.loads(capsys.readouterr().out)["privacy"]["total"]["epsilon"]
    for releases, total in spent(ledger, capsys).values():
        assert releases == 3 and total == pytest.approx(certified, rel=1e-6) and total <= 1.01
    assert learn("run", data, used, "--algorithm", "dp-admm", *CHEAP) == 0
    before = spent(used, capsys)
    # not past what is granted, not again, and not beside others
    for file in (small, ledger, used):
        assert learn("run", data, file, *DVP, "--seed", "3") == 4
        assert "the run was not started" in capsys.readouterr().err
    assert spent(used, capsys) == before
    assert all(releases == 0 for releases, _ in spent(small, capsys).values())
    assert all(releases == 3 for releases, _ in spent(ledger, capsys).values())


def test_neighbours_further_apart_are_charged_as_a_group(data):
    settings = LearnSettings(
        algorithm="dvp", penalty="40", regularizer="l2:0.1", rounds=3, clients=4
    )
    task, _ = make_task(load_dataset(str(data), norm=1.0), settings)
    (release,) = next(iter(planned(task).values()))
    item, two = release.certified, release.certified_within(2.0)
    # the chain rule of group privacy, by two applications of the definition
    assert two.parameter == pytest.approx(2.0 * item.parameter)
    assert two.second == pytest.approx(item.second + np.exp(item.parameter) * item.second, rel=0.5)
    assert two.second >= item.second + np.exp(item.parameter) * item.second


def test_budgets_belong_to_samples_however_they_are_split(tmp_path, data):
    """With another number of clients every sample keeps its remaining budget."""
    ledger = tmp_path / "l.db"
    assert learn("grant", data, ledger, "--total", "1.2,1e-5") == 0
    run = ("--algorithm", "dp-admm", *CHEAP)
    assert learn("run", data, ledger, *run) == 0
    assert learn("run", data, ledger, *run, "--seed", "9") == 4
    assert learn("run", data, ledger, *run, "--clients", "2") == 4


@pytest.mark.parametrize(
    "given",
    [(), ("--clients", "2"), ("--algorithm", "dp-fedavg")],
    ids=["same", "split", "clients"],
)
def test_a_second_ledger_grants_nothing_to_the_same_samples(tmp_path, data, capsys, given):
    ledger, second = tmp_path / "l.db", tmp_path / "second.db"
    assert learn("grant", data, ledger, "--total", "1,1e-5") == 0
    assert learn("grant", data, second, "--total", "1,1e-5", *given) == 2
    assert f"on this machine already, in ledger {ledger}" in " ".join(
        capsys.readouterr().err.split()
    )
    assert not second.exists()


@pytest.mark.parametrize("given", [(), ("--norm", "2")], ids=["renamed", "other norm"])
def test_a_second_ledger_grants_nothing_to_a_copy_under_another_name(tmp_path, data, capsys, given):
    ledger, second, copy = (tmp_path / name for name in ("l.db", "second.db", "copy.npz"))
    shutil.copy(data, copy)
    assert learn("grant", data, ledger, "--total", "1,1e-5") == 0
    assert learn("grant", copy, second, "--total", "1,1e-5", *given) == 2
    assert "on this machine already" in " ".join(capsys.readouterr().err.split())
    assert not second.exists()


def test_a_second_ledger_grants_nothing_to_the_same_samples_in_single_precision(tmp_path, data):
    """Training reads both files as the same numbers."""
    single, arrays = tmp_path / "single.npz", dict(np.load(data))
    np.savez(single, **arrays | {"x": arrays["x"].astype(np.float32)})
    assert learn("grant", data, tmp_path / "l.db", "--total", "1,1e-5") == 0
    assert learn("grant", single, tmp_path / "second.db", "--total", "1,1e-5") == 2


def test_other_data_in_a_file_of_the_same_name_have_their_own_grants(tmp_path, data):
    other = tmp_path / "other" / data.name
    other.parent.mkdir()
    arrays = dict(np.load(data))
    np.savez(other, **arrays | {"x": arrays["x"][::-1]})
    assert learn("grant", data, tmp_path / "l.db", "--total", "1,1e-5") == 0
    assert learn("grant", other, tmp_path / "second.db", "--total", "1,1e-5") == 0


def test_an_older_copy_of_a_ledger_of_samples_is_not_charged(tmp_path, data, capsys):
    ledger, older = tmp_path / "l.db", tmp_path / "older"
    assert learn("grant", data, ledger, "--total", "9,1e-5") == 0
    shutil.copy(ledger, older)
    assert learn("run", data, ledger, *CHEAP, "--algorithm", "dp-admm") == 0
    shutil.copy(older, ledger)
    assert learn("run", data, ledger, *CHEAP, "--algorithm", "dp-admm") == 2
    assert "older than the last time" in " ".join(capsys.readouterr().err.split())


def test_other_samples_in_their_place_are_refused(tmp_path, data, capsys):
    ledger = tmp_path / "l.db"
    assert learn("grant", data, ledger, "--total", "9,1e-5") == 0
    arrays = dict(np.load(data))
    arrays["x"][3] += 0.01
    np.savez(data, **arrays)
    assert learn("run", data, ledger, *CHEAP, "--algorithm", "dp-admm") == 2
    assert "is for other data" in capsys.readouterr().err
    assert (
        learn("run", data, ledger, *CHEAP, "--algorithm", "dp-admm", "--adjacency", "zero-out") == 2
    )


def test_what_is_not_certified_does_not_fit(tmp_path, data, capsys):
    ledger = tmp_path / "l.db"
    assert learn("grant", data, ledger, "--total", "100,1e-5") == 0
    given = ("--algorithm", "fedspd-dp", "--sensitivity", "published", "--budget", "per-release:1")
    assert learn("run", data, ledger, "--rounds", "2", *given) == 2
    assert "nothing is proved" in capsys.readouterr().err
    assert all(releases == 0 for releases, _ in spent(ledger, capsys).values())


def test_a_sampled_release_is_charged_without_amplification(tmp_path):
    """No filter adds up sampled releases: their noise alone is counted, which costs more."""
    x = np.random.default_rng(1).normal(size=(40, 3)) / 4
    np.savez(tmp_path / "own.npz", x=x, y=np.resize((-1, 1), 40), client=np.repeat(range(4), 10))
    file, out = tmp_path / "samples.ledger", tmp_path / "out"
    own = [str(tmp_path / "own.npz"), "--norm", "2", "--split", "writer", "--adjacency", "zero-out"]
    assert (
        main(
            [
                "learn",
                "grant",
                *own,
                "--total",
                "9,1e-5",
                "--ledger",
                str(file),
                "--algorithm",
                "dpsgd",
            ]
        )
        == 0
    )
    run = [
        "learn",
        "run",
        *own,
        "--algorithm",
        "dpsgd",
        "--batch",
        "3",
        "--rounds",
        "4",
        "--ledger",
        str(file),
        "--out",
        str(out),
        "--quiet",
    ]
    assert main(run) == 0
    certified = json.loads((out / "run.json").read_text())["privacy"]
    task, _ = make_task(
        load_dataset(str(tmp_path / "own.npz"), norm=2.0),
        LearnSettings(
            algorithm="dpsgd", batch=3, rounds=4, split="writer", adjacency="zero-out", norm=2.0
        ),
    )
    (cost, *_) = planned(task).values()
    assert {release.certified.kind for release in cost} == {"gaussian"}
    plain = total_epsilon({r.certified: n for r, n in cost.items()}, 1e-5)
    assert certified["total"]["epsilon"] == pytest.approx(1.0, rel=0.02) and plain > 1.3
