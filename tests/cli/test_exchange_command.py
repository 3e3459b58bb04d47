"""``gridpriv exchange``: document, published values, refused input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gridpriv
from gridpriv.cli.analysis import _no_room
from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.grid.convert import write_case

NOISE = {
    "beta": "10 MW",
    "budget": "total:5",
    "noise_schedule": "once",
    "rounds": 3,
    "seed": 3,
    "solver": "clarabel",
}


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A case14 with ratings that bind."""
    case = gridpriv.load_case("case14")
    path = tmp_path_factory.mktemp("rated") / "rated14.m"
    write_case(replace(case, rate=np.full(20, 1.4)), path)
    return path


@pytest.fixture(scope="module")
def noisy(rated: Path) -> Any:
    case = gridpriv.load_case(rated)
    zones = gridpriv.partition(case, 3, "louvain")
    return gridpriv.run(case, zones, gridpriv.make_settings(**NOISE))


def test_the_document_balances(noisy: Any) -> None:
    document = gridpriv.exchange(noisy).as_dict()
    zones, base = document["zones"], 1e-6
    assert abs(sum(row["net_position_mw"] for row in zones)) < base
    assert abs(sum(row["tie_revenue"] for row in zones)) < base, "payments add up to zero"
    assert sum(row["congestion_cost"] for row in zones) >= -1e-6, "the market is the cheapest"
    generated = sum(row["generation_cost"] for row in zones)
    optimum = gridpriv.acopf(
        replace(
            noisy.case,
            pd=gridpriv.exchange(noisy).domain.case.pd,
            qd=gridpriv.exchange(noisy).domain.case.qd,
        )
    )
    assert generated == pytest.approx(optimum.generation_cost, rel=1e-4)
    for row in document["exchanges"]:
        assert row["most_mw"] is None or row["most_mw"] >= 0.0
    for row in zones:
        assert row["least_mw"] - 1e-6 <= row["net_position_mw"] <= row["most_mw"] + 1e-6
    assert all(row["largest_ptdf"] >= 0.05 for row in document["branches"])


def test_private_demand_moves_no_byte_of_the_shared_view(noisy: Any) -> None:
    """With fixed releases, every value of the shared view is the same for any demand."""
    draw = np.random.default_rng(7)
    other = replace(
        noisy.case,
        pd=draw.permutation(noisy.case.pd),
        vm=noisy.case.vm[::-1].copy(),
        pg=draw.permutation(noisy.case.pg),
        vg=noisy.case.vg[::-1].copy(),
    )
    scrambled = replace(noisy, case=other)
    documents = [gridpriv.exchange(run).as_dict(public=True) for run in (noisy, scrambled)]
    texts = [json.dumps(document | {"seconds": None}) for document in documents]
    assert texts[0] == texts[1]
    local = [gridpriv.exchange(run, view="local").as_dict() for run in (noisy, scrambled)]
    assert local[0]["zones"] != local[1]["zones"], "the test would see a difference"
    with pytest.raises(InputError, match="Take --view shared of a run with noise"):
        gridpriv.exchange(noisy, view="local").as_dict(public=True)


def test_the_folder_has_table_document_and_figure(
    tmp_path: Path, rated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = [
        "--zones",
        "3",
        "--method",
        "louvain",
        "--rounds",
        "3",
        "--seed",
        "1",
        "--solver",
        "clarabel",
    ]
    assert main(["exchange", str(rated), *words, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Largest exchange" in printed and "smaller of network limit and headroom" in printed
    assert "at both ends of each tie line" in printed
    assert "simulated noise" in printed and "; seed 1." in printed
    assert {path.name for path in out.iterdir()} == {"exchange.json", "branches.csv", "domain.png"}
    document = json.loads((out / "exchange.json").read_text())
    assert document["visibility"] == "public"
    assert document["domain"]["balancing_zone"] == "3"


def test_what_is_refused(tmp_path: Path, rated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zones = ["--zones", "2", "--method", "louvain"]
    for words, message in (
        (["case14", *zones], "has no branch with a rating"),
        ([str(rated), "--zones", "1"], "at least two zones"),
        ([str(rated), *zones, "--public", "--view", "local"], "Choose --view shared"),
        ([str(rated), *zones, "--ptdf", "lossless"], "ptdf"),
        ([str(rated), *zones, "--threshold", "-1"], "threshold"),
        ([str(rated), *zones, "--perturbation", "objective"], "needs released demand"),
    ):
        assert main(["exchange", *words]) == 2, words
        assert message in " ".join(capsys.readouterr().err.split()), words
    assert not list(tmp_path.iterdir())


def test_a_domain_of_one_point_names_the_branches_at_their_limit():
    rows = [{"most_mw": 1e-4, "limit_at": "6-8"}, {"most_mw": 0.0, "limit_at": "25-27"}]
    assert "branches 6-8, 25-27 up to their ratings" in _no_room(rows)
    assert _no_room([*rows, {"most_mw": 5.0, "limit_at": "1-2"}]) == ""


def test_zones_of_different_islands_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without branches 5-6 and 7-8 of case9 buses 3, 6 and 7 are an island."""
    case = gridpriv.load_case("case9").without(("branch:3", "branch:6"))
    write_case(case, tmp_path / "islands.m")
    (tmp_path / "zones.csv").write_text(
        "bus,zone\n"
        + "".join(f"{bus},{'a' if bus in (3, 6, 7) else 'b'}\n" for bus in range(1, 10))
    )
    words = ["exchange", str(tmp_path / "islands.m"), "--zoning", str(tmp_path / "zones.csv")]
    assert main([*words, "--mechanism", "none"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "are on different islands: they cannot exchange power" in printed
    assert "No exchange has room" not in printed
