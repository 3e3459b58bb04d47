"""Output of ``learn run --public`` depends on releases and public numbers only."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from gridpriv.cli.main import main
from gridpriv.learning.algorithms import NON_PRIVATE, READS
from gridpriv.privacy.release import Release

PRIVATE = sorted(set(READS) - set(NON_PRIVATE))


def write(path, x, y):
    np.savez(path, x=x, y=y, client=np.repeat(np.arange(4), 10))


def run(path, out, algorithm, *more):
    graph = ["--graph", "regular:2"] if algorithm in ("cdp-admm", "ddp-admm") else []
    clip = ["--clip", "1"] if algorithm == "dp-fedavg" else []
    words = [
        "learn",
        "run",
        str(path),
        "--algorithm",
        algorithm,
        "--rounds",
        "4",
        "--norm",
        "2",
        "--split",
        "writer",
        "--penalty",
        "20",
        "--regularizer",
        "l2:0.1",
        "--workers",
        "1",
        "--evaluate-every",
        "1",
        "--quiet",
        "--public",
        "--out",
        str(out),
    ]
    if "penalty" not in READS[algorithm]:
        del words[words.index("--penalty") : words.index("--penalty") + 2]
    return main([*words, *graph, *clip, *more])


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_other_samples_under_the_same_releases_change_no_byte(tmp_path, monkeypatch, algorithm):
    """Releases are fixed; features, labels and their order are others."""
    monkeypatch.chdir(tmp_path)
    counter = iter(())

    def fixed(_, value, __):
        return np.random.default_rng(next(counter)).normal(size=value.shape)

    monkeypatch.setattr(Release, "apply", fixed)
    random, written = np.random.default_rng(3), []
    for scale in (1.0, 0.01):
        x = scale * random.normal(size=(40, 3)) / 4
        y = np.where(random.random(40) < 0.5, -1, 1)
        y[:2] = (-1, 1)
        write(tmp_path / "own.npz", x, y)
        counter = iter(range(10_000))
        assert run(tmp_path / "own.npz", tmp_path / f"out{scale}", algorithm) == 0
        folder = tmp_path / f"out{scale}"
        written.append({p.name: p.read_bytes() for p in sorted(folder.iterdir())})
    assert written[0] == written[1] and set(written[0]) >= {"run.json", "rounds.csv"}
    document = json.loads(written[0]["run.json"])
    assert document["privacy"]["total"]["epsilon"] and document["seed"] is None
    assert (
        document["final"]["train_loss"] is None
        and document["final"]["consensus_residual"] is not None
    )
    assert list(pd.read_csv(tmp_path / "out1.0" / "rounds.csv").columns) == [
        "round",
        "consensus_residual",
    ]
    assert (tmp_path / "out1.0" / "run.json").stat().st_mode & 0o044


def test_another_test_label_changes_no_byte(tmp_path, capsys):
    """A certificate covers training samples: measurements on test rows are not published."""
    x, y = np.random.default_rng(3).normal(size=(40, 3)) / 4, np.resize((-1, 1), 40)
    written, private = [], []
    for first in (-1, 1):
        given = {"x": x, "y": y, "x_test": x[:10], "y_test": np.r_[first, y[1:10]]}
        np.savez(tmp_path / "own.npz", client=np.repeat(np.arange(4), 10), **given)
        out = tmp_path / f"out{first}"
        assert run(tmp_path / "own.npz", out, "dpsgd", "--json") == 0
        assert main(["report", str(out), "--format", "html"]) == 0
        output = capsys.readouterr().out.replace(str(out), "")
        written.append([output, *(p.read_bytes() for p in sorted(out.iterdir()))])
        words = ["learn", "run", str(tmp_path / "own.npz"), "--norm", "2", "--split", "writer"]
        assert main([*words, "--rounds", "4", "--json", "--quiet"]) == 0
        private.append(json.loads(capsys.readouterr().out)["final"]["test_error"])
    assert written[0] == written[1]
    assert private[0] != private[1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--mechanism", "none"], "but --mechanism is none"),
        (["--sensitivity", "published"], "Choose proven"),
    ],
)
def test_what_is_not_certified_is_not_published(tmp_path, capsys, more, message):
    write(tmp_path / "own.npz", np.eye(40, 3), np.resize((-1, 1), 40))
    assert run(tmp_path / "own.npz", tmp_path / "out", "dp-admm", *more) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_papers_noise_that_is_scaled_to_samples_is_not_reported_in_a_public_report(tmp_path):
    """Its scale is the norm of the largest gradient: another sample is seen in it."""
    x, y = np.random.default_rng(3).normal(size=(40, 3)) / 4, np.resize((-1, 1), 40)
    text, assumed = [], []
    for scale in (1.0, 0.5):
        x[0] *= scale
        write(tmp_path / "own.npz", x, y)
        out = tmp_path / f"out{scale}"
        words = [
            "learn",
            "run",
            str(tmp_path / "own.npz"),
            "--norm",
            "2",
            "--split",
            "writer",
            "--rounds",
            "2",
            "--seed",
            "1",
            "--sensitivity",
            "published",
            "--quiet",
        ]
        assert main([*words, "--out", str(out)]) == 0
        assumed.append(json.loads((out / "run.json").read_text())["privacy"]["sensitivity"])
        assert main(["report", str(out), "--public", "--format", "csv"]) == 0
        text.append({path.name: path.read_text() for path in (out / "public").rglob("*.csv")})
    assert assumed[0] != assumed[1]
    assert text[0] == text[1] and "sensitivity" not in text[0]["privacy.csv"]
    assert "1 without certified noise are withheld" in text[0]["provenance.csv"]


def test_a_public_summary_says_nothing_of_what_it_leaves_out(tmp_path, capsys):
    write(tmp_path / "own.npz", np.eye(40, 3), np.resize((-1, 1), 40))
    words = ["learn", "run", str(tmp_path / "own.npz"), "--norm", "2", "--split", "writer"]
    assert main([*words, "--rounds", "2", "--public"]) == 0
    printed = capsys.readouterr().out
    assert (
        "consensus residual" in printed and "training loss" not in printed and "None" not in printed
    )
    assert "seed" not in printed.replace("even if the seed stays secret", "")
