"""Two owners with equal releases: published output does not distinguish them.

The second owner has other demand (and another operating point) or other training samples, and
another seed; the releases are forced to be those of the first. Any difference between their
public bytes was computed from private data.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gridpriv.cli.main import main
from gridpriv.core.arrays import Floats
from gridpriv.privacy.release import Release

pytestmark = pytest.mark.usefixtures("painted")

SHIPPED = Path(__file__).parents[2] / "cases" / "case14.m"


def scrambled(text: str) -> str:
    """Return a case with other demand, dispatch and voltages, which are private."""
    random = np.random.default_rng(5)
    head, bus, rest = re.split(r"(?<=mpc\.bus = \[\n)(.*?)(?=\];)", text, maxsplit=1, flags=re.S)
    before, gen, after = re.split(r"(?<=mpc\.gen = \[\n)(.*?)(?=\];)", rest, maxsplit=1, flags=re.S)

    def changed(table: str, columns: tuple[int, ...]) -> str:
        rows = [line.strip().rstrip(";").split("\t") for line in table.strip().splitlines()]
        for row in rows:
            for column in columns:
                row[column] = repr(float(row[column]) * random.uniform(0.4, 1.6) + 0.01)
        return "".join("\t" + "\t".join(row) + ";\n" for row in rows)

    return head + changed(bus, (2, 3, 7, 8)) + before + changed(gen, (1, 2)) + after


Tape = list[Floats]
"""What releases gave, in the order of their draws."""


def recorded(words: list[str], tape: Tape, *, replay: bool) -> str:
    """Run a command; return its output. Its releases are recorded, or replayed."""
    honest, outputs, out = Release.apply, Tape(), io.StringIO()

    def apply(self: Release, value: Floats, stream: Any) -> Floats:
        if replay:
            outputs.append(tape[len(outputs)])
            assert outputs[-1].shape == value.shape
        else:
            outputs.append(honest(self, value, stream))
        return outputs[-1].copy()

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(out):
        patch.setattr(Release, "apply", apply)
        assert main(words) == 0, out.getvalue()
    if replay:
        assert len(outputs) == len(tape)
    else:
        tape[:] = outputs
    return out.getvalue()


def published(place: Path) -> dict[str, bytes]:
    """Return every public file."""
    files = [p for p in (place / "public").rglob("*") if p.is_file()]
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(files)}


def differing(tmp_path: Path, owners: list[list[list[str]]], data: list[dict[str, bytes]]) -> None:
    """Run both owners' commands on their data and compare all that they publish, byte for byte."""
    seen, tapes = [], [Tape() for _ in owners[0]]
    for number, (words, files) in enumerate(zip(owners, data, strict=True)):
        place = tmp_path / f"owner{number}" / "work"
        place.mkdir(parents=True)
        for name, content in files.items():
            (place / name).write_bytes(content)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            patch.setenv("COLUMNS", "100")
            texts = [
                recorded(command, tape, replay=number > 0)
                for command, tape in zip(words, tapes, strict=True)
            ]
        public = [text for text, command in zip(texts, words, strict=True) if "--public" in command]
        seen.append((public, published(place)))
    (texts, files), (other_told, other_files) = seen
    assert files and set(files) == set(other_files)
    assert [name for name in files if files[name] != other_files[name]] == []
    assert texts == other_told


def grids() -> list[dict[str, bytes]]:
    text = SHIPPED.read_text()
    other = scrambled(text)
    assert other.count("\n") == text.count("\n") and other != text
    return [{"case14.m": text.encode()}, {"case14.m": other.encode()}]


RUN = ["run", "case14.m", "--rounds", "3", "--solver", "clarabel", "--public"]
NOISES = [
    ["--objective", "cost"],
    ["--perturbation", "objective", "--update", "linearized", "--consensus", "all"],
    ["--perturbation", "output", "--mechanism", "gaussian", "--budget", "total:1,1e-5"],
    ["--perturbation", "demand", "--noise-schedule", "once", "--objective", "cost"],
    ["--noise", "secure"],
    ["--preset", "ryu-kim", "--penalty", "auto"],
]


def seeded(words: list[str], seed: int) -> list[str]:
    return words if "secure" in words else [*words, "--seed", str(seed)]


@pytest.mark.parametrize(
    "words",
    [NOISES[0], *(pytest.param(words, marks=pytest.mark.slow) for words in NOISES[1:])],
    ids=" ".join,
)
def test_a_public_run(words: list[str], tmp_path: Path) -> None:
    both = [*RUN, *words, "--json", "--out", "public"]
    owners = [[seeded(both, seed)] for seed in (1, 2)]
    differing(tmp_path, owners, grids())


def test_a_public_contingency_analysis(tmp_path: Path) -> None:
    words = ["security", "case14.m", "--rounds", "2", "--planning", "soc", "--public"]
    both = [*words, "--json", "--out", "public"]
    owners = [[seeded(both, seed)] for seed in (1, 2)]
    differing(tmp_path, owners, grids())


DAYS = {
    "factors": ("step,load_scale\n1,1.0\n2,0.9\n",) * 2,  # public, like --load-scale
    "buses": ("step,bus,pd_mw\n1,3,94\n2,9,20\n", "step,bus,pd_mw\n1,3,41\n2,9,33\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["imbalance", "cost"])
@pytest.mark.parametrize("day", DAYS)
def test_a_public_series(day: str, objective: str, tmp_path: Path) -> None:
    files = [
        grid_files | {"day.csv": steps.encode()}
        for grid_files, steps in zip(grids(), DAYS[day], strict=True)
    ]
    words = [*RUN, "--series", "day.csv", "--objective", objective, "--out", "public"]
    differing(tmp_path, [[seeded(words, seed)] for seed in (1, 2)], files)


FORMATS = ["--format", "html,csv,tex,xlsx,pdf"]


QUICK = ["--format", "html,csv,tex,xlsx"]


@pytest.mark.parametrize("objective", ["cost", pytest.param("imbalance", marks=pytest.mark.slow)])
def test_a_public_report_of_a_study(objective: str, tmp_path: Path) -> None:
    if slow := objective == "imbalance":
        pytest.importorskip("typst")
    owners = [
        [
            [
                "compare",
                "case14.m",
                "--mechanism",
                "none,laplace",
                "--perturbation",
                "demand",
                "--budgets",
                "5",
                "--rounds",
                "2",
                "--planning",
                "soc",
                "--seeds",
                seeds,
                "--jobs",
                "1",
                "--objective",
                objective,
                "--format",
                "none",
                "--quiet",
                "--out",
                "study",
            ],
            ["report", "study", "--public", "--out", "public", *(FORMATS if slow else QUICK)],
        ]
        for seeds in ("11,", "21,")
    ]
    differing(tmp_path, owners, grids())


@pytest.mark.slow
def test_a_public_report_of_a_run(tmp_path: Path) -> None:
    pytest.importorskip("typst")
    private = [word for word in RUN if word != "--public"]
    owners = [
        [
            [*private, "--seed", seed, "--objective", "cost", "--quiet", "--out", "run"],
            ["report", "run", "--public", "--out", "public", *FORMATS],
        ]
        for seed in ("1", "2")
    ]
    differing(tmp_path, owners, grids())


def samples(tmp_path: Path) -> list[dict[str, bytes]]:
    """Return the training samples of two owners and one public test set."""
    random = np.random.default_rng(1)
    test = {"x_test": random.normal(size=(20, 3)), "y_test": np.arange(20) % 2}
    files = []
    for seed in (1, 2):
        own = np.random.default_rng(seed)
        x, y = own.normal(size=(60, 3)), np.arange(60) % 2
        np.savez(tmp_path / f"{seed}.npz", x=x, y=y, client=np.arange(60) // 2 % 5, **test)
        files.append({"own.npz": (tmp_path / f"{seed}.npz").read_bytes()})
    return files


LEARN = [
    "--rounds",
    "3",
    "--clip",
    "1",
    "--norm",
    "1",
    "--split",
    "contiguous",
    "--clients",
    "5",
    "--quiet",
    "--out",
    "private",
]
# the tape is in the order of draws, so clients draw in theirs
COMPARE = [*LEARN, "--totals", "2", "--seeds", "2", "--format", "none", "--workers", "1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["compare", "own.npz", "--algorithms", "ryu-kim,dpsgd", *COMPARE],
        ["compare", "own.npz", "--algorithms", "dp-admm,fedspd-dp", *COMPARE],
        ["compare", "own.npz", "--algorithms", "cdp-admm,ddp-admm", *COMPARE],
        [
            "compare",
            "own.npz",
            "--algorithms",
            "dpsgd",
            "--tune",
            "learning-rate=0.01,1",
            "--tune-on",
            "charged",
            *COMPARE,
        ],
    ],
    ids=" ".join,
)
def test_a_public_report_of_learning(words: list[str], tmp_path: Path) -> None:
    pytest.importorskip("typst")
    owners = [
        [
            ["learn", *(seed if word == "SEED" else word for word in words)],
            ["report", "private", "--public", "--out", "public", *FORMATS],
        ]
        for seed in ("1", "2")
    ]
    differing(tmp_path, owners, samples(tmp_path))
