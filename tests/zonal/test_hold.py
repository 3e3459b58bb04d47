"""Held interchange: equal on adjacent demands, and its probability against the distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import gridpriv
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.grid.case import Case
from gridpriv.zonal.messages import message
from gridpriv.zonal.meter import hold_messages, total_errors
from gridpriv.zonal.prepared import Prepared, ReleasedPosterior, prepare
from gridpriv.zonal.run import run_prepared

SEED = 4
"""Of a release that leaves zone 2 of case14 without generation to regulate."""


def ready_for(case: Case, hold: str | None, release: str = "auto") -> Prepared:
    given = gridpriv.make_settings(
        seed=SEED,
        beta="10MW",
        budget="total:3",
        hold=hold,
        release=release,
        coordination="central",
        objective="cost",
    )
    zoning = gridpriv.shipped_zoning(case)
    assert zoning is not None
    return prepare(case, zoning, given)


def released(ready: Prepared) -> tuple[ReleasedPosterior, ...]:
    """Return the estimates after one draw of every zone."""
    rule, result = ready.rules.noise, []
    assert rule is not None
    for zone, disclosure in zip(ready.zones, ready.disclosures, strict=True):
        release = rule.release(disclosure.sensitivity(ready.rules.adjacency, rule.norm))
        generator = np.random.default_rng([SEED, zone.key])
        noisy = release.apply(disclosure.measure(zone.demand), lambda own=generator: own)
        result.append(ReleasedPosterior(disclosure, disclosure.estimate(noisy, release)))
    return tuple(result)


def interchanges(hold: str | None, moves: Sequence[tuple[int, float, float]]) -> Floats:
    """Return every zone's interchange in MW on demands adjacent to case14's, releases frozen."""
    case = gridpriv.load_case("case14")
    known, results = released(ready_for(case, hold)), []
    for bus, dp, dq in moves:
        pd, qd = case.pd.copy(), case.qd.copy()
        pd[bus] += dp / case.base_mva
        qd[bus] += dq / case.base_mva
        ready = ready_for(replace(case, pd=pd, qd=qd), hold)
        result = run_prepared(replace(ready, posteriors=known))
        results.append(case.base_mva * result.redispatch.state.interchange)
    return np.array(results)


def test_neighbouring_demands_have_the_same_interchange_to_a_hundredth_of_a_megawatt() -> None:
    moves = [(0, 0.0, 0.0), (13, 10.0, -10.0)]
    free = interchanges(None, moves)
    assert np.ptp(free, axis=0).max() > 1.0, "a zone without room shows its load"
    corners = [(bus, dp, dq) for bus in (4, 9) for dp, dq in ((10.0, 10.0), (-10.0, 10.0))]
    interchange = interchanges("interchange", [*moves, *corners])
    assert np.ptp(interchange, axis=0).max() <= 0.01


def test_the_chance_is_that_of_the_mechanism() -> None:
    """K-norm noise on a total, of scale b: P(|p| > t) = exp(-t/b) (1 + t/2b)."""
    ready = ready_for(gridpriv.load_case("case118"), None, "total")
    rule, disclosure = ready.rules.noise, ready.disclosures[0]
    assert rule is not None and disclosure is not None
    errors = total_errors(disclosure, rule, ready.rules.adjacency)
    scale = ready.rules.adjacency.beta / 3.0
    for t in (1.0, 3.0, 6.0):
        exact = np.exp(-t) * (1.0 + t / 2.0)
        assert (errors > t * scale).mean() == pytest.approx(exact, rel=0.1)


def test_what_is_set_aside_is_public() -> None:
    case = gridpriv.load_case("case14")
    other = replace(case, pd=case.pd[::-1].copy(), qd=0.0 * case.qd)
    here, there = ready_for(case, "interchange").hold, ready_for(other, "interchange").hold
    assert here is not None and there is not None
    np.testing.assert_array_equal(here.reserve, there.reserve)
    np.testing.assert_array_equal(here.probability, there.probability)
    assert (here.probability[here.band > here.band.min() + 1e-9] <= 1.1e-3).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"perturbation": "output", "rounds": 3}, "perturbation"),
        ({"perturbation": "objective", "rounds": 3}, "perturbation"),
        ({"zones": 1}, "zones"),
    ],
)
def test_hold_is_refused_where_it_could_state_nothing(
    changes: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        gridpriv.run("case14", hold="interchange", seed=1, **{"zones": 3, **changes})


def test_zones_without_generation_are_reported_without_a_band() -> None:
    result = gridpriv.run("case14", zones=14, hold="interchange", seed=1)
    text = {each["code"]: each["text"] for each in result.as_dict()["messages"]}
    empty = text["hold-empty"].partition(": ")[2].partition(".")[0].split(", ")
    assert empty and not any(f"zone {name}:" in text["hold"] for name in empty)


def test_every_zone_s_band_is_stated_with_its_probability() -> None:
    rows = [
        {"zone": "1", "band_mw": 2.0, "probability": 0.001},
        {"zone": "2", "band_mw": 25.0 / 1.05, "probability": 0.2},
        {"zone": "3", "band_mw": 0.0, "probability": 1.0},
    ]
    text = {code: str(message(code, values)) for code, values in hold_messages(rows)}
    assert "zone 1: 2 MW, 0.001;" in text["hold"]
    assert "zone 2: 23.8 MW, 0.2" in text["hold"]
    assert "zone 3" not in text["hold"] and "3" in text["hold-empty"]
    assert "With losses, this covers an error of 23.8 MW" in text["hold-short"]
    many = [{"zone": str(k), "band_mw": 1.0 + k, "probability": 0.001} for k in range(40)]
    ((_, values),) = hold_messages(many)
    assert values["bands"].startswith("40 zones: 1 to 40 MW")
