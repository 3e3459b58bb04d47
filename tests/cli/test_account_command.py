"""``gridpriv account`` against published and cross-checked totals."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from gridpriv.cli.main import main
from gridpriv.grid.case import Case
from gridpriv.grid.zoning import Zoning
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.settings import make_settings


def account(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["account", *words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


# Checked with two other accountants; the printed digits are all asserted.
REFERENCE = [
    ("laplace", 100, 0.1, None, 1e-5, "4.220", "10", None),
    ("laplace", 500, 0.1, None, 1e-5, "11.191", "50", None),
    ("gaussian", 100, 0.1, 1e-2, 1e-5, "1.2227", None, "1.544"),
    ("gaussian", 500, 0.1, 1e-2, 1e-2, "1.4929", None, "2.184"),
    ("gaussian", 100, 1.0, 1e-5, 1e-5, "10.394", None, "9.904"),
    ("gaussian", 500, 1.0, 1e-5, 1e-5, "29.629", None, "22.147"),
]


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("multiplier", ["1e-308", "5e-324", "1e-160", "1e-9", "0.01"])
def test_too_little_noise_is_refused_with_its_epsilon(
    capsys: pytest.CaptureFixture[str], mechanism: str, multiplier: str
) -> None:
    words = ["--mechanism", mechanism, "--noise-multiplier", multiplier, "--releases", "3"]
    assert main(["account", *words]) == 2
    assert "at most 30 can be accounted for" in capsys.readouterr().err


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_very_much_noise_is_accounted_for(
    capsys: pytest.CaptureFixture[str], mechanism: str
) -> None:
    words = ["--mechanism", mechanism, "--noise-multiplier", "1e9", "--releases", "3"]
    assert account(capsys, *words)["total"]["epsilon"] < 1e-3
    assert main(["account", *words[:3], "1e300", *words[4:]]) == 2
    assert "a positive number up to 1e+09" in capsys.readouterr().err


def printed(value: float, like: str) -> str:
    return f"{value:.{len(like.partition('.')[2])}f}"


@pytest.mark.parametrize(
    ("mechanism", "releases", "epsilon", "delta", "target", "pld", "basic", "paper"), REFERENCE
)
def test_the_reference_totals_to_their_digits(
    capsys: pytest.CaptureFixture[str],
    mechanism: str,
    releases: int,
    epsilon: float,
    delta: float | None,
    target: float,
    pld: str,
    basic: str | None,
    paper: str | None,
) -> None:
    words = ["--mechanism", mechanism, "--epsilon", str(epsilon), "--releases", str(releases)]
    words += ["--target-delta", str(target), "--calibration", "classical"]
    document = account(capsys, *words, *(["--delta", str(delta)] if delta else []))
    assert printed(document["total"]["epsilon"], pld) == pld
    assert document["total"]["delta"] == target
    if basic is not None:
        assert printed(document["total_pure"], basic) == basic
        assert document["published_total"] is None
    if paper is not None:
        assert document["total_pure"] is None
        assert printed(document["published_total"], paper) == paper


@pytest.mark.parametrize(("releases", "multiplier"), [(100, "37.3"), (1, "3.73")])
def test_the_noise_for_a_total(
    capsys: pytest.CaptureFixture[str], releases: int, multiplier: str
) -> None:
    words = ["--total", "1,1e-5", "--mechanism", "gaussian", "--releases", str(releases)]
    document = account(capsys, *words)
    assert printed(document["noise_multiplier"], multiplier) == multiplier
    assert document["total"]["epsilon"] == pytest.approx(1.0, rel=1e-9)
    assert document["total"]["delta"] == 1e-5


def test_the_noise_for_a_total_costs_that_total(capsys: pytest.CaptureFixture[str]) -> None:
    """The inverse command confirms the result, and the total is never exceeded."""
    for total, releases in (("2,1e-6", "50"), ("5", "10")):
        noise = account(capsys, "--total", total, "--releases", releases)
        epsilon = float(total.partition(",")[0])
        words = ["--noise-multiplier", repr(noise["noise_multiplier"]), "--releases", releases]
        words += ["--target-delta", "1e-6"]
        back = account(capsys, *words)
        figure = back["total"]["epsilon"] if "," in total else back["total_pure"]
        assert 0.999 * epsilon < figure <= epsilon * (1 + 1e-12)


def test_analytic_gaussian_needs_less_noise_than_the_classical(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--mechanism", "gaussian", "--epsilon", "1", "--delta", "1e-5", "--releases", "1"]
    sound = account(capsys, *words)
    classical = account(capsys, *words, "--calibration", "classical")
    assert sound["per_release"]["certified"] == pytest.approx(1.0, rel=1e-6)
    assert classical["noise_multiplier"] == pytest.approx(math.sqrt(2 * math.log(1.25e5)))
    assert sound["noise_multiplier"] < classical["noise_multiplier"]
    assert classical["per_release"]["certified"] < classical["per_release"]["nominal"] == 1.0


def test_the_papers_formula_is_labelled(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["account", "--mechanism", "gaussian", "--epsilon", "1", "--delta", "1e-5"]
    assert main([*words, "--releases", "100", "--calibration", "classical"]) == 0
    text = capsys.readouterr().out
    assert "theorem 4.6 (not a certificate)" in text
    assert "below the true total" in text
    assert "10.394" in text
    assert main([*words, "--releases", "100"]) == 0
    assert "Theorem" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epsilon", "1", "--releases", "0"], "--releases 0"),
        (["--epsilon", "-1", "--releases", "2"], "--epsilon -1"),
        (["--epsilon", "nan", "--releases", "2"], "--epsilon nan"),
        (["--epsilon", "1e6", "--releases", "2"], "use more noise"),
        (["--noise-multiplier", "0", "--releases", "2"], "--noise-multiplier 0"),
        (["--noise-multiplier", "inf", "--releases", "2"], "--noise-multiplier inf"),
        (["--total", "five", "--releases", "2"], "--total five"),
        (["--total", "1", "--mechanism", "gaussian", "--releases", "2"], "no pure epsilon"),
        (["--epsilon", "1", "--mechanism", "cauchy", "--releases", "2"], "cauchy"),
        (["--epsilon", "1", "--target-delta", "1", "--releases", "2"], "target-delta"),
        (["--epsilon", "1", "--delta", "0", "--releases", "2"], "--delta 0"),
        (["--epsilon", "1", "--calibration", "clasical", "--releases", "2"], "did you mean"),
        (["--total", "1", "--calibration", "classical", "--releases", "2"], "give --epsilon"),
        (
            [
                "--epsilon",
                "2",
                "--mechanism",
                "gaussian",
                "--calibration",
                "classical",
                "--releases",
                "2",
            ],
            "at most 1",
        ),
    ],
)
def test_wrong_questions_are_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["account", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ([], "one of the arguments --epsilon --noise-multiplier --total is required"),
        (["--epsilon", "1", "--total", "5"], "--total: not allowed with argument --epsilon"),
    ],
)
def test_an_account_takes_exactly_one_noise(
    capsys: pytest.CaptureFixture[str], noise: list[str], message: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["account", *noise, "--releases", "10"])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian", "knorm"])
def test_an_account_sizes_noise_as_runs_do(
    capsys: pytest.CaptureFixture[str], case14: Case, zones14: Zoning, mechanism: str
) -> None:
    words = ["--total", "5,1e-5", "--releases", "20", "--mechanism", mechanism]
    settings = make_settings(
        mechanism=mechanism, budget="total:5,1e-5", noise_schedule="round", rounds=20
    )
    rule = prepare(case14, zones14, settings).rules.noise
    assert rule is not None
    multiplier = account(capsys, *words)["noise_multiplier"]
    assert multiplier == pytest.approx(rule.multiplier, rel=1e-12)
