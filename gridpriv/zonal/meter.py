"""Disclosure of demand by zones' metered interchange, and generation set aside to keep it constant.

Readings of neighbouring zones' meters are compared with the noise of a zone's message.

A zone without headroom draws balancing power, so its metered interchange follows its demand. Noise
on messages does not hide that. These values are computed from the AC state after redispatch and are
local.

With ``--hold interchange`` zones keep their scheduled interchange themselves. A schedule is planned
on estimated demand; a zone without generation for the rest draws it from its neighbours, whose
meters then disclose its demand. So before the schedule every zone sets generation aside for the
error of its total, up and down, except with probability

    probability = P(|w'n + e| > band),     e ~ N(0, (1 - S'w)' C (1 - S'w)),

over the noise n of its release and the public prior of covariance C, with w the weights by which
the best linear estimate of the total reads the statistics S. All of it is public: no value depends
on demand or on draws. After the release the zone redispatches with all of its generation and keeps
its interchange.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.text import Json
from gridpriv.grid.case import Case
from gridpriv.grid.scenarios import branch_ends
from gridpriv.power.zone import Zone, owner_of
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.linear import DEVIATION, Disclosure
from gridpriv.privacy.perturbation import NoiseRule

if TYPE_CHECKING:
    from gridpriv.consensus.agent import AgentRules
    from gridpriv.power.ac.flow import MeterDerivatives
    from gridpriv.power.ac.grid_redispatch import GridRedispatch
    from gridpriv.privacy.release import Release

CHANCE = 1e-3
"""Target probability of an error outside the band."""
LOSSES = 1.05
"""Generation set aside per MW of demand, as losses change with it."""
MOST_SHARE = 0.25
"""Largest part of a zone's generating range that is set aside in each direction."""
MOST_ZONES_NAMED = 12
DRAWS, NUMBERS = 100_000, 6_000_000
"""Number of draws of the noise for the estimate of a probability, and of their numbers in total."""


class Hold:
    """Generation that zones set aside, and the probability that it does not suffice; public.

    Attributes
    ----------
    band : (zones,)
        Error of a zone's estimated total that its own generation covers, per unit.
    probability : (zones,)
        Probability of a larger error.
    reserve : (gens,)
        Set aside of every generator, up and down, per unit.
    """

    def __init__(
        self,
        zones: Sequence[Zone],
        disclosures: Sequence[Disclosure | None],
        rule: NoiseRule | None,
        adjacency: DemandAdjacency,
    ) -> None:
        case, (self.band, self.probability) = zones[0].network.case, np.zeros((2, len(zones)))
        self.zones, self.reserve = tuple(zone.name for zone in zones), np.zeros(case.n_gen)
        for z, (zone, disclosure) in enumerate(zip(zones, disclosures, strict=True)):
            errors = np.zeros(1)
            if disclosure is not None and rule is not None:
                errors = total_errors(disclosure, rule, adjacency)
            ranges = case.pmax[zone.gens] - case.pmin[zone.gens]
            target = LOSSES * float(np.quantile(errors, 1.0 - CHANCE))
            if disclosure is not None and not len(disclosure.strategy.matrix):
                target = 0.0  # no release: no reserve covers the error of the prior
            reserved = min(target, MOST_SHARE * float(ranges.sum()))
            self.reserve[zone.gens] = reserved * _shares(ranges)
            self.band[z] = reserved / LOSSES
            self.probability[z] = (errors > self.band[z]).mean()

    def narrowed(self, case: Case) -> Case:
        """Return the case with the reserve outside the limits of its generators."""
        return replace(case, pmin=case.pmin + self.reserve, pmax=case.pmax - self.reserve)

    def rows(self, base_mva: float) -> list[Json]:
        """Return a row per zone (:class:`gridpriv.zonal.documents.HoldRow`)."""
        result = zip(self.zones, base_mva * self.band, self.probability, strict=True)
        return [{"zone": z, "band_mw": float(b), "probability": float(p)} for z, b, p in result]


def _shares(ranges: Floats) -> Floats:
    """Return the shares of generators in a reserve, by range; an unlimited one takes it all."""
    infinite = np.isinf(ranges)
    size = infinite.astype(float) if infinite.any() else ranges
    return size / max(float(size.sum()), 1e-300)


def total_errors(disclosure: Disclosure, rule: NoiseRule, adjacency: DemandAdjacency) -> Floats:
    """Return draws of the size of a zone's estimation error of its total, per unit (public)."""
    matrix, prior = disclosure.strategy.matrix, disclosure.prior.active
    release = replace(rule, source="simulated").release(
        disclosure.sensitivity(adjacency, rule.norm)
    )
    mechanism, count = release.mechanism, len(matrix)
    common = prior.spread**2 * np.outer(prior.shares, prior.shares)
    prior_cov: Floats = common + DEVIATION**2 * prior.deviations
    covariance = matrix @ prior_cov
    weights = np.linalg.solve(
        covariance @ matrix.T + mechanism.variance * np.eye(count), covariance.sum(axis=1)
    )
    residual_weights = np.ones(matrix.shape[1]) - matrix.T @ weights
    draws, generator = min(DRAWS, NUMBERS // max(count, 1)), np.random.default_rng(0)
    noise = mechanism.perturb(np.zeros(2 * count * draws), lambda: generator)
    errors = noise[: count * draws].reshape(draws, count) @ weights
    residual_spread = math.sqrt(max(float(residual_weights @ prior_cov @ residual_weights), 0.0))
    errors = errors + residual_spread * generator.standard_normal(draws)
    return np.asarray(disclosure.scale * np.abs(errors))


def unreserved(zone: Zone, case: Case) -> Zone:
    """Return a zone with the full limits of its generators."""
    return replace(zone, network=replace(zone.network, case=case))


def hold_messages(rows: Sequence[Json] | None) -> Iterator[tuple[str, Json]]:
    """Yield codes and values of the messages on ``--hold interchange``.

    ``hold`` states the bands; ``hold-short`` the zone most likely to leave its band, where its
    generation is too little for the target, ``hold-empty`` the zones without a band.
    """
    below_target = [row for row in rows or () if row["probability"] > CHANCE]
    empty = [row["zone"] for row in below_target if row["band_mw"] == 0.0]
    if empty:
        yield "hold-empty", {"zones": ", ".join(empty)}
    banded = [row for row in rows or () if row["zone"] not in empty]
    if banded:
        yield "hold", {"bands": _bands(banded)}
    if insufficient := [row for row in below_target if row in banded]:
        row = max(insufficient, key=lambda row: (row["probability"], -row["band_mw"]))
        values = {"band": f"{row['band_mw']:.3g}", "probability": f"{row['probability']:.2g}"}
        yield "hold-short", {"zone": row["zone"]} | values


def _bands(rows: Sequence[Json]) -> str:
    """Return every zone's band and the probability of a larger error; for many zones the ranges."""
    if len(rows) <= MOST_ZONES_NAMED:
        return "; ".join(
            f"zone {row['zone']}: {row['band_mw']:.3g} MW, {row['probability']:.2g}" for row in rows
        )
    bands, chance = [row["band_mw"] for row in rows], max(row["probability"] for row in rows)
    return f"{len(rows)} zones: {min(bands):.3g} to {max(bands):.3g} MW, {chance:.2g} at most"


MOST_BUSES = 3_000
"""Largest grid with values of meters: derivatives are dense, ties times buses."""
MOST = "interchange_mw_per_mw"
LEAST_MOVE = 1e-3
"""Least MW of interchange per MW of load that counts as disclosure."""
METER_ERROR_MW = 0.01
"""Assumed error of a zone's metered interchange."""


def derivatives(
    zones: Sequence[Zone], redispatch: GridRedispatch | None
) -> MeterDerivatives | None:
    """Return the derivatives at a run's AC state, or None.

    None without a state, with a single zone, and on grids of more than :data:`MOST_BUSES`.
    """
    from gridpriv.power.ac.flow import meter_derivatives  # imports solvers
    from gridpriv.power.ac.grid_redispatch import joint_dispatch
    from gridpriv.power.ac.newton import PowerFlowError
    from gridpriv.power.ac.state import Schedule

    if redispatch is None or redispatch.state is None or len(zones) < 2:
        return None
    state = redispatch.state
    if state.deenergized.all() or state.case.n_bus > MOST_BUSES:
        return None
    dispatch = joint_dispatch(state.case, zones, redispatch.plans)
    schedule = Schedule(owner_of(state.case, zones), redispatch.scheduled)
    try:
        return meter_derivatives(state, dispatch, schedule)
    except (PowerFlowError, RuntimeError):  # no state, or a singular Jacobian: at the nose
        return None


def least_response(responses: Floats) -> float:
    """Return the least size of some responses; 0 where they have both signs."""
    same_sign = (responses > 0.0).all() or (responses < 0.0).all()
    return float(np.abs(responses).min()) if same_sign else 0.0


MOST_AMBIGUITY = 0.5
"""Error of a total read by meters, relative to its change, above which it is not shown where there
is no release to compare it with."""


def shows_total(least: float, most: float, noise: float) -> bool:
    """Return True where a zone's interchange shows its total load more precisely than its release.

    A change of one bus's load by ``noise`` changes the interchange by ``least`` to ``most`` times
    as much. At (least + most)/2 per MW it is read with an error of at most (most - least)/(most +
    least) times its size, and the error of the meter.

    Parameters
    ----------
    least, most : float
        Response of the interchange to the load of a bus, MW/MW; ``least`` is 0 where buses change
        it in both directions.
    noise : float
        Standard deviation of the total in the release, MW; infinite without a release.
    """
    if least <= LEAST_MOVE:
        return False
    ambiguity = (most - least) / (most + least)
    if noise == np.inf and ambiguity > MOST_AMBIGUITY:
        return False
    return METER_ERROR_MW / least < (1.0 - ambiguity) * noise


def meter_rows(
    zones: Sequence[Zone], redispatch: GridRedispatch | None, noises: Sequence[float]
) -> list[Json] | None:
    """Return a row per zone (``documents.Meter``); None without an AC state.

    Parameters
    ----------
    noises : sequence of float
        By zone, as of :func:`message_noise_mw`.
    """
    meters = derivatives(zones, redispatch)
    if meters is None:
        return None
    case, rows = zones[0].network.case, []
    for number, (zone, noise) in enumerate(zip(zones, noises, strict=True)):
        responses = meters.interchange[number, zone.own]
        moves, least = np.abs(responses), least_response(responses)
        flows = np.abs(meters.flow[:, zone.own])
        place = int(np.argmax(flows.max(axis=1))) if len(meters.ties) else None
        rows.append(
            {
                "zone": zone.name,
                "interchange_mw_per_mw": float(moves.max()),
                "least_interchange_mw_per_mw": least,
                "bus": int(case.bus_id[zone.own[int(np.argmax(moves))]]),
                "tie_mw_per_mw": 0.0 if place is None else float(flows[place].max()),
                "tie": None if place is None else branch_ends(case, meters.ties[place]),
                "noise_mw": noise if math.isfinite(noise) else None,
                "meter_tells_more": shows_total(least, float(moves.max()), noise),
            }
        )
    return rows


def message_noise_mw(
    disclosure: Disclosure | None, rules: AgentRules, drawn: Mapping[Release, int], base_mva: float
) -> float:
    """Return the standard deviation of the noise in a zone's released total, in MW.

    Infinite without a release of it, 0 without noise.
    """
    if rules.noise is None:
        return 0.0
    if disclosure is None:
        return math.inf
    release = next(iter(drawn), None) or rules.noise.release(
        disclosure.sensitivity(rules.adjacency, rules.noise.norm)
    )
    return disclosure.scale * base_mva * total_noise(disclosure, release)


def total_noise(disclosure: Disclosure, release: Release) -> float:
    """Return the standard deviation of the noise in a zone's released total, per unit.

    Of the best linear unbiased estimate of the sum from the released statistics; infinite where
    there are none.
    """
    matrix = disclosure.strategy.matrix
    if not len(matrix):
        return math.inf
    weights = np.asarray(np.linalg.lstsq(matrix.T, np.ones(matrix.shape[1]), rcond=None)[0])
    return math.sqrt(release.mechanism.variance) * float(np.linalg.norm(weights))


def meter_messages(
    rows: Sequence[Json] | None, *, holding_interchange: bool
) -> Iterator[tuple[str, Json]]:
    """Yield codes and values of messages on zones whose meters show more than their releases.

    Parameters
    ----------
    holding_interchange : bool
        Zones keep their scheduled interchange already, so there is no advice.
    """
    more = [row for row in rows or () if row["meter_tells_more"]]
    released = [row for row in more if row["noise_mw"] is not None]
    unreleased = [row for row in more if row["noise_mw"] is None]
    for code, shown in (("meter", released), ("meter-unreleased", unreleased)):
        if shown:
            names = named_zones([row["zone"] for row in shown])
            values = {"zones": _responses(shown), "error": f"{METER_ERROR_MW:g}"}
            yield code, values | {"names": names}
    if released and not holding_interchange:  # others could not set any aside
        yield "meter-advice", {}


def _responses(rows: Sequence[Json]) -> str:
    """Return the response of each zone's interchange, and the error of its released total."""
    groups = [[row] for row in rows] if len(rows) <= MOST_ZONES_NAMED else [list(rows)]
    parts = []
    for group in groups:
        moves = [row[key] for row in group for key in ("least_interchange_mw_per_mw", MOST)]
        noises = [row["noise_mw"] for row in group if row["noise_mw"] is not None]
        released = f" (released total: standard deviation {_range(noises)} MW)" if noises else ""
        parts.append(
            f"{_range(moves)} MW per MW in {named_zones([r['zone'] for r in group])}{released}"
        )
    return "; ".join(parts)


def named_zones(zones: Sequence[str]) -> str:
    """Return the names of zones; of many, their number."""
    if len(zones) > MOST_ZONES_NAMED:
        return f"{len(zones)} zones"
    return f"zone{'s' * (len(zones) > 1)} {', '.join(zones)}"


def _range(values: Sequence[float]) -> str:
    """Return the least and the largest of some values, once if they look the same."""
    return " to ".join(dict.fromkeys(f"{value:.3g}" for value in (min(values), max(values))))
