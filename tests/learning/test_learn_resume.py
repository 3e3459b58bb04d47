"""An interrupted run continues and ends with the same result as an undisturbed one."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import made
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.learning import LearnSettings, learn, stored
from gridpriv.learning.algorithms import NON_PRIVATE, READS
from gridpriv.learning.algorithms.base import Task, planned
from gridpriv.learning.run import make_task
from gridpriv.learning.stored import INTERRUPTED_FILE, make_checkpoint_writer

PRIVATE = sorted(set(READS) - set(NON_PRIVATE))


@pytest.fixture(autouse=True)
def every_round(monkeypatch):
    monkeypatch.setattr(stored, "EVERY_SECONDS", 0.0)


def settings_of(algorithm, **more):
    given = {"rounds": 6, "clients": 4, "evaluate_every": 2, "regularizer": "l2:0.1"}
    if "graph" in READS[algorithm]:
        given["graph"] = "regular:3"
    if "penalty" in READS[algorithm]:
        given["penalty"] = "20"
    if "batch" in READS[algorithm] and algorithm != "dpsgd":
        given |= {"sampled_clients": 2, "batch": 5}
    if algorithm == "ryu-kim":
        given["local_updates"] = 3
    return LearnSettings(algorithm=algorithm, **(given | more))


def stop_after(rounds):
    def watch(done):
        if done.number == rounds:
            raise KeyboardInterrupt

    return watch


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_every_algorithm_ends_as_if_it_had_not_been_interrupted(tmp_path, algorithm):
    data, settings = made.binary(), settings_of(algorithm)
    whole = learn(data, settings)
    checkpoints = make_checkpoint_writer(tmp_path, settings)
    with pytest.raises(KeyboardInterrupt):
        learn(data, settings, stop_after(3), checkpoints=checkpoints)
    again = make_checkpoint_writer(tmp_path, settings)
    assert again.checkpoint.rounds == 3
    task, _ = make_task(data, settings)
    every, left = planned(task), planned(replace(task, checkpoint=again.checkpoint))
    assert sum(sum(c.values()) for c in left.values()) > 0
    # what a ledger is asked for is what the rounds that are left release
    first = planned(replace(task, settings=replace(task.settings, rounds=3)))
    for client, whole_cost in every.items():
        done = sum(first.get(client, Counter()).values())
        assert sum(left.get(client, Counter()).values()) == sum(whole_cost.values()) - done
    rest = learn(data, settings, checkpoints=again)
    np.testing.assert_array_equal(rest.w, whole.w)
    np.testing.assert_array_equal(rest.local, whole.local)
    columns = [name for name in whole.rounds if name != "seconds"]
    pd.testing.assert_frame_equal(rest.rounds[columns], whole.rounds[columns])
    assert rest.charges == whole.charges
    assert rest.privacy == whole.privacy


def dying_after(monkeypatch, draws):
    """Kill the process after a number of draws; return the draws by round."""
    drawn, real = Counter(), Task.with_noise

    def counted(self, t, values, releases):
        noisy = real(self, t, values, releases)
        drawn[t] += 1
        if sum(drawn.values()) in draws:
            raise KeyboardInterrupt
        return noisy

    monkeypatch.setattr(Task, "with_noise", counted)
    return drawn


def attempt(folder, data, settings):
    checkpoints = make_checkpoint_writer(folder, settings)
    with pytest.raises(KeyboardInterrupt):
        learn(data, settings, checkpoints=checkpoints)


@pytest.mark.parametrize("deaths", [{1}, {1, 2, 3}, {3, 4, 5, 6}, {1, 4, 5, 9}])
def test_secure_noise_counts_every_draw_however_often_it_was_lost(tmp_path, monkeypatch, deaths):
    data, settings = made.binary(), settings_of("dpsgd", noise="secure")
    drawn = dying_after(monkeypatch, deaths)
    for _ in deaths:
        attempt(tmp_path, data, settings)
    rest = learn(
        data,
        settings,
        checkpoints=make_checkpoint_writer(tmp_path, settings),
    )
    draws = sum(drawn.values())
    assert draws == settings.rounds + len(deaths)
    assert rest.privacy["releases_per_client"] == draws
    # draws of equal noise compose to a Gaussian of sqrt(draws) times the sensitivity
    mu = math.sqrt(draws) / rest.privacy["noise_multiplier"]
    stated = rest.privacy["total"]["epsilon"]
    exact = norm.cdf(mu / 2 - stated / mu) - math.exp(stated) * norm.cdf(-mu / 2 - stated / mu)
    assert exact <= rest.privacy["total"]["delta"] * (1 + 1e-9)


def test_the_state_of_secure_noise_is_on_disk_before_a_round_is_drawn(tmp_path, monkeypatch):
    data, settings = made.binary(), settings_of("dpsgd", noise="secure")
    dying_after(monkeypatch, {1})
    attempt(tmp_path, data, settings)
    content = (tmp_path / INTERRUPTED_FILE).read_bytes()
    assert make_checkpoint_writer(tmp_path, settings).draws == [1]
    (tmp_path / INTERRUPTED_FILE).write_bytes(content[:200])
    with pytest.raises(InputError, match=r"is damaged.* put back a copy of it, or start again"):
        make_checkpoint_writer(tmp_path, settings)


def test_what_is_kept_is_private_and_a_damaged_file_is_refused(tmp_path):
    data, settings = made.binary(), settings_of("dpsgd")
    checkpoints = make_checkpoint_writer(tmp_path, settings)
    assert checkpoints.checkpoint.rounds == 0
    with pytest.raises(KeyboardInterrupt):
        learn(data, settings, stop_after(2), checkpoints=checkpoints)
    assert (tmp_path / INTERRUPTED_FILE).stat().st_mode & 0o077 == 0
    content = (tmp_path / INTERRUPTED_FILE).read_bytes()
    for damaged in (content[:200], b"", b"nothing", content[:-30] + bytes(30)):
        (tmp_path / INTERRUPTED_FILE).write_bytes(damaged)
        with pytest.raises(InputError, match="is damaged"):
            make_checkpoint_writer(tmp_path, settings)


def test_the_command_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    x = np.random.default_rng(1).normal(size=(40, 3)) / 4
    np.savez(tmp_path / "own.npz", x=x, y=np.resize((-1, 1), 40), client=np.repeat(range(4), 10))
    out, spent = tmp_path / "out", Counter()
    words = [
        "learn",
        "run",
        str(tmp_path / "own.npz"),
        "--norm",
        "2",
        "--split",
        "writer",
        "--algorithm",
        "dpsgd",
        "--rounds",
        "5",
        "--out",
        str(out),
        "--quiet",
    ]
    charge_release = learn.__globals__["Task"].charge_release

    def stopped(self, client, release):
        if spent[client] == 3:
            raise KeyboardInterrupt
        spent[client] += 1
        charge_release(self, client, release)

    with monkeypatch.context() as patch:
        patch.setattr(learn.__globals__["Task"], "charge_release", stopped)
        assert main(words) == 130
    assert "with --resume goes on from there" in " ".join(capsys.readouterr().err.split())
    assert main(words) == 2
    assert "add --resume" in capsys.readouterr().err
    stored_data = (tmp_path / "own.npz").read_bytes()
    np.savez(tmp_path / "own.npz", x=2 * x, y=np.resize((-1, 1), 40), client=np.arange(40) // 10)
    assert main([*words, "--resume"]) == 2  # other data
    (tmp_path / "own.npz").write_bytes(stored_data)
    assert main([*words, "--resume", "--seed", "9"]) == 2
    assert main([*words, "--resume"]) == 0
    assert not (out / INTERRUPTED_FILE).exists()
    assert main([*words[:-2], str(tmp_path / "other"), "--quiet"]) == 0
    item, other = (json.loads((d / "run.json").read_text()) for d in (out, tmp_path / "other"))
    assert item["final"] == other["final"] and item["privacy"] == other["privacy"]


@pytest.mark.parametrize("noise", ["simulated", "secure"])
@pytest.mark.parametrize("deaths", [{1}, {3, 4}])
def test_a_certificate_states_every_draw_that_a_ledger_was_charged_for(
    tmp_path, monkeypatch, capsys, noise, deaths
):
    monkeypatch.setattr(stored, "EVERY_SECONDS", 60.0)  # no state is due within this test
    x = np.random.default_rng(1).normal(size=(40, 3)) / 4
    np.savez(tmp_path / "own.npz", x=x, y=np.resize((-1, 1), 40))
    book, out = str(tmp_path / "book"), tmp_path / "out"
    source = [str(tmp_path / "own.npz"), "--norm", "2", "--clients", "4", "--quiet"]
    grant = ["learn", "grant", *source, "--ledger", book, "--total", "50,1e-3"]
    assert main(grant) == 0
    words = ["learn", "run", *source, "--algorithm", "dpsgd", "--rounds", "5", "--noise", noise]
    words += ["--budget", "total:1,1e-5", "--out", str(out)]
    drawn = dying_after(monkeypatch, deaths)
    for number in range(len(deaths)):
        assert main([*words, "--ledger", book, *["--resume"][:number]]) == 130
    assert main([*words, "--resume"]) == 2
    assert "begun with --ledger: give the path of that ledger" in capsys.readouterr().err
    other = tmp_path / "elsewhere"
    other.mkdir()
    grant[grant.index(book)] = str(other / "book")
    assert main(grant) == 0
    assert main([*words, "--ledger", str(other / "book"), "--resume"]) == 2
    assert "begun with another --ledger" in capsys.readouterr().err
    assert main([*words, "--ledger", book, "--resume"]) == 0
    capsys.readouterr()
    assert main(["ledger", "show", book, "--json"]) == 0
    charged = {owner["releases"] for owner in json.loads(capsys.readouterr().out)["owners"]}
    privacy = json.loads((out / "run.json").read_text())["privacy"]
    assert charged == {privacy["releases_per_client"]} == {sum(drawn.values())} == {5 + len(deaths)}
