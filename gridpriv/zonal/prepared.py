"""Inputs of a run before its start: case, zones, settings, public data, accounts and losses.

No noise is drawn, and zones are not compiled yet.

In a ledger the units of a grid's demand are its physical buses. The identity of a bus is its number
and the numbers of all buses of its grid, not demand, zones, base or elements in service. So demand
of another hour, under another zone map, scaled or on another base is charged to the same account.
Two grids with the same bus numbers share accounts on a machine, which is conservative.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.agent import AgentRules
from gridpriv.consensus.coordinator import Consensus, make_consensus
from gridpriv.consensus.schedules import SolverTolerance
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, check_choice, not_allowed, warn
from gridpriv.core.settings import check_names, names
from gridpriv.grid.case import Case
from gridpriv.grid.library import load_case, zoning_of
from gridpriv.grid.zoning import Zoning, read_zoning
from gridpriv.power.objective import BASE_MVA, check_service
from gridpriv.power.prior import (
    DirectCurrent,
    PublicDemand,
    disclose,
    public_demand,
    zone_prior,
)
from gridpriv.power.problem import ZoneProblem, check_solver
from gridpriv.power.program import compile_zone
from gridpriv.power.zone import Network, Zone, make_network, make_zones
from gridpriv.privacy.accounting import epsilon_of
from gridpriv.privacy.adjacency import DemandAdjacency, PowerFactors
from gridpriv.privacy.certificate import ZoneCertificate, zone_certificate
from gridpriv.privacy.linear import Disclosure
from gridpriv.privacy.mechanism import MECHANISMS, make_mechanism
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.release import Release
from gridpriv.privacy.settings import noise_multiplier
from gridpriv.zonal.meter import Hold, unreserved
from gridpriv.zonal.settings import AUTO, FEW_ZONES, Planning, Settings, make_settings

if TYPE_CHECKING:
    from gridpriv.power.schedule import CentralSchedule
    from gridpriv.privacy.ledger_rows import LedgerDataset, Unit

FIRMEST = 1e4
"""Largest factor on the terms that keep zones near an AC schedule: that of exact demand."""
SOFTEST, SOFT_ERROR = 0.01, 0.02
"""Least factor without a value of tie-end voltages, and the expected error (p.u. on 100 MVA) at
which it is 1."""
PAPER_SENSITIVITY = {"objective": 2.0, "output": 1.0}  # times beta, RK section 6.1.1


@dataclass(frozen=True, eq=False)
class Instance:
    """A case under a zone map, with settings.

    Attributes
    ----------
    case : Case
        With its load scale and outages.
    shared : tuple of (n,) bool
        True for coupling variables, by zone.
    seed : int
        Of the simulated noise.
    rules : AgentRules
        Noise and local update of every zone.
    hold : Hold or None
        Generation that zones set aside to keep the scheduled interchange.
    """

    case: Case
    zoning: Zoning
    settings: Settings
    shared: tuple[NDArray[np.bool_], ...]
    seed: int
    rules: AgentRules
    hold: Hold | None


@dataclass(frozen=True, eq=False)
class ReleasedPosterior:
    """Posterior of a zone's demand after an earlier release.

    Attributes
    ----------
    disclosure : Disclosure
        Released statistics.
    demand : (2n,)
        In per unit.
    """

    disclosure: Disclosure
    demand: Floats


@dataclass(frozen=True, eq=False)
class Prepared(Instance):
    """A run ready to start: its public inputs, and the zones.

    ``zones``, ``shared`` and ``problems`` are in the order of the zones' keys, which does not
    depend on order or names in a zone map.

    Attributes
    ----------
    network : Network
        The grid's model, with its objective.
    zones : tuple of Zone
        Each with its true demand.
    scale : float
        Factor on the owners' demand.
    expected : PublicDemand or None
        Public prior of demand, under demand perturbation.
    posteriors : tuple of ReleasedPosterior, optional
        Estimates from earlier releases, by zone: then no noise is drawn.
    scheduled : CentralSchedule, optional
        Schedule from a plan of several steps: then there are no rounds.
    """

    network: Network
    zones: tuple[Zone, ...]
    scale: float
    expected: PublicDemand | None
    posteriors: tuple[ReleasedPosterior, ...] | None = None
    scheduled: CentralSchedule | None = None

    @property
    def run_adjacency(self) -> DemandAdjacency:
        """Adjacency of the demand of this run."""
        return self.settings.protected(self.case).scaled(self.scale)

    def disclosure(self, zone: Zone) -> Disclosure | None:
        """Return a zone's release strategy; None where demand is not perturbed."""
        expected, noise = self.expected, self.rules.noise
        if expected is None or noise is None:
            return None
        prior = zone_prior(unreserved(zone, self.case), expected)
        inputs = prior, noise, self.rules.adjacency, self.direct_current
        return replace(disclose(zone, self.settings.release, *inputs).level, scale=self.scale)

    @cached_property
    def direct_current(self) -> DirectCurrent:
        """The whole grid's DC power flow, from topology, impedances and capacities only."""
        return DirectCurrent(self.case)

    @cached_property
    def disclosures(self) -> tuple[Disclosure | None, ...]:
        """Release strategies of all zones; None where demand is not perturbed."""
        if self.posteriors is not None:
            return tuple(earlier.disclosure for earlier in self.posteriors)
        return tuple(self.disclosure(zone) for zone in self.zones)

    @cached_property
    def problems(self) -> tuple[ZoneProblem, ...]:
        """The zones' problems, compiled in this process."""
        return tuple(
            ZoneProblem(compile_zone(zone), self.settings.solver, disclosure, self.solver_tolerance)
            for zone, disclosure in zip(self.zones, self.disclosures, strict=True)
        )

    @property
    def solver_tolerance(self) -> SolverTolerance:
        """Solver tolerance of zones where a point near the minimizer suffices.

        On few zones a loose solve costs more rounds than it saves (docs/decisions/0005-solvers.md).
        """
        return self.settings.solver_tolerance if len(self.zones) > FEW_ZONES else "tight"

    @cached_property
    def planning(self) -> Planning:
        """Equations of the schedule."""
        return self.settings.case_planning(self.case)

    @property
    def in_ac_rounds(self) -> bool:
        """True where zones solve the AC optimal power flow of released demand in rounds."""
        rounds = self.settings.coordination == "rounds" and self.scheduled is None
        return rounds and self.planning == "ac"

    @property
    def in_conic_rounds(self) -> bool:
        """True where zones solve the relaxation of released demand in rounds of Newton steps."""
        newton = self.settings.effective_acceleration() == "newton"
        return newton and self.planning == "soc" and self.scheduled is None

    @property
    def _errors(self) -> list[float]:
        return [0.0 if d is None else d.expected for d in self.disclosures]

    @property
    def plans_on_true_demand(self) -> bool:
        """True where zones disclose their demand without error (public)."""
        return not any(self._errors)

    @property
    def _mean_error(self) -> float:
        """Expected error of neighbours' estimates of each other, in p.u. on 100 MVA (public)."""
        mean = float(np.sqrt(np.mean(np.square(self._errors)))) * self.case.base_mva / BASE_MVA
        return max(mean, 1.0 / FIRMEST)

    def firmness(self, price_level: float) -> float:
        """Return the factor on the terms that keep zones near an AC schedule (public).

        It falls with the expected error of neighbours' estimates, and rises with the price level of
        the schedule (docs/decisions/0031-ac-rounds.md).
        """
        return min(FIRMEST, price_level * max(1.0, 1.0 / self._mean_error))

    @property
    def soft_firmness(self) -> float:
        """Factor on these terms for a start without values of tie-end voltages (public).

        Zones have that start where it is below 1 (docs/decisions/0031-ac-rounds.md).
        """
        return min(1.0, max(SOFTEST, SOFT_ERROR / self._mean_error))

    @property
    def zone_coupling(self) -> Iterator[tuple[Zone, NDArray[np.bool_]]]:
        """Every zone with the mask of its coupling variables."""
        return zip(self.zones, self.shared, strict=True)

    @cached_property
    def consensus(self) -> Consensus:
        """Global variable of each of the zones' coupling variables."""
        return make_consensus([zone.coordinates[s] for zone, s in self.zone_coupling])


def prepare(case: Case, zoning: Zoning, settings: Settings, scale: float = 1.0) -> Prepared:
    """Return everything a run needs before its zones are compiled.

    Adjacent data differ by beta in the owner's demand. ``case`` has ``scale`` times the owner's
    demand, and the run ``load_scale`` times that of ``case``. Statistics are released of the
    owner's demand and scaled afterwards; other perturbed quantities change with the demand of the
    run.

    Parameters
    ----------
    case : Case
        Without the load scale and outages of ``settings``.
    zoning : Zoning
    settings : Settings
    scale : float
        Factor from the owner's demand to that of ``case``.

    Returns
    -------
    Prepared
        Before any draw.

    Raises
    ------
    InputError
        For settings that this case or machine cannot have.
    """
    scale = scale * settings.load_scale
    check_single(settings, zoning)
    check_solver(settings.solver)
    case = case.scale_load(settings.load_scale).without(settings.outage)
    check_service(case, settings)
    network = make_network(case, settings.case_objective(case))
    zones = tuple(sorted(make_zones(network, zoning), key=lambda zone: zone.key))
    perturbation, owned = settings.effective_perturbation(), settings.adjacency(case)
    adjacency = owned if perturbation.target == "demand" else owned.scaled(scale)
    _refuse_without_minimiser(case, settings)
    _warn_of_large_delta(settings, 2 * case.n_bus)
    rules = AgentRules(
        update=settings.update,
        local_updates=settings.local_updates,
        perturbation=perturbation,
        noise=noise_rule(settings, adjacency),
        adjacency=adjacency,
    )
    disclosed = rules.perturbation.target == "demand" and rules.noise is not None
    expected = public_demand(case, settings.public_demand) if disclosed else None
    if expected is not None and settings.public_demand is not None:
        _check_power_factors(adjacency.power_factors, expected, case)
    ready = Prepared(
        case=case,
        zoning=zoning,
        settings=settings,
        network=network,
        zones=zones,
        shared=shared_coordinates(zones, settings.consensus),
        seed=secrets.randbits(64) if settings.seed is None else settings.seed,
        rules=rules,
        scale=scale,
        expected=expected,
        hold=None,
    )
    if settings.hold is None:
        return ready
    check_hold(settings, perturbation.target, zoning)
    return _with_reserve(ready, Hold(ready.zones, ready.disclosures, rules.noise, adjacency))


def _with_reserve(prepared: Prepared, hold: Hold) -> Prepared:
    """Return a run whose schedule sets generation aside."""
    network = make_network(hold.narrowed(prepared.case), prepared.network.objective)
    zones = tuple(sorted(make_zones(network, prepared.zoning), key=lambda zone: zone.key))
    return replace(prepared, network=network, zones=zones, hold=hold)


def check_single(settings: Settings, zoning: Zoning) -> None:
    """Refuse settings that no run of one demand on so many zones can have."""
    if settings.temporal_basis != AUTO:
        alone = f"{AUTO!r} without a series: one step has none"
        raise not_allowed("temporal_basis", settings.temporal_basis, alone)
    if settings.stream is not None:
        raise not_allowed("stream", settings.stream, "given with a series (--series FILE)")
    if settings.workers > zoning.n_zone:
        most = f"at most {zoning.n_zone}, the number of zones"
        raise not_allowed("workers", settings.workers, most)


def check_hold(settings: Settings, target: str, zoning: Zoning) -> None:
    """Refuse ``--hold interchange`` without an interchange, or without a release of demand."""
    if settings.mechanism != "none" and target != "demand":
        raise not_allowed(
            "perturbation",
            target,
            f"'demand' with hold = {settings.hold!r}: the chance to leave the band is that of a "
            "released total. Leave --hold out",
        )
    if zoning.n_zone == 1:
        least = f"2 or more with hold = {settings.hold!r}: one zone has no interchange"
        raise not_allowed("zones", 1, least)


def _refuse_without_minimiser(case: Case, settings: Settings) -> None:
    """Refuse noise on an objective that is flat in a direction without end.

    Opposite changes of two generators without limits at a bus do not change the imbalance; a
    linear term in that direction, which is what the noise adds, has no minimum. Only an exact
    update without a penalty on generation is that flat.
    """
    exact = settings.update == "exact" and settings.consensus == "boundary"
    if not exact or settings.effective_perturbation().target != "objective":
        return
    for low, high in ((case.pmin, case.pmax), (case.qmin, case.qmax)):
        for bus in np.unique(case.gen_bus):
            here = case.gen_bus == bus
            up, down = np.isposinf(high[here]), np.isneginf(low[here])
            if here.sum() > 1 and up.any() and down.any() and (up | down).sum() > 1:
                raise not_allowed(
                    "perturbation",
                    "objective",
                    f"demand or output here: two generators of bus {case.bus_id[bus]} have no "
                    "limits against each other, so an objective with noise has no minimum",
                )


def _check_power_factors(factors: PowerFactors | None, expected: PublicDemand, case: Case) -> None:
    """Refuse power factors that the published demand does not have; true demand is not read."""
    if factors is None:
        return
    for bus, p, q in zip(case.bus_id, *expected.mean, strict=True):
        if not factors.holds(float(p), float(q)):
            raise not_allowed(
                "power_factor",
                str(factors),
                f"a band that the public demand keeps to: bus {bus} has "
                f"{case.base_mva * p:.6g} MW, {case.base_mva * q:.6g} MVAr",
            )


def _warn_of_large_delta(settings: Settings, entries: int) -> None:
    """Warn of a delta that allows one of ``entries`` demand values to be published unchanged."""
    if settings.mechanism == "none":
        return
    in_use = {"target_delta": settings.total_delta}
    if settings.mechanism == "gaussian" and settings.budget.scope == "per-release":
        in_use["delta"] = settings.release_delta
    for name, delta in in_use.items():
        if delta >= 1.0 / entries:
            warn(
                f"{name} = {delta:g} is at least 1/{entries}, one over the number of demand "
                "entries: it would allow one entry to be published",
                3,
            )


def shared_coordinates(zones: Sequence[Zone], consensus: str) -> tuple[NDArray[np.bool_], ...]:
    """Return a mask per zone: coordinates of two or more zones, or all of them."""
    if consensus == "all":
        return tuple(np.ones(len(zone.coordinates), dtype=bool) for zone in zones)
    holders = np.bincount(np.concatenate([zone.coordinates for zone in zones]))
    return tuple(holders[zone.coordinates] > 1 for zone in zones)


def noise_rule(settings: Settings, adjacency: DemandAdjacency) -> NoiseRule | None:
    """Return the noise that the budget allows, or None without a mechanism."""
    multiplier, assumed = horizon_multiplier(settings), None
    if multiplier is None:
        return None
    if settings.sensitivity == "published":
        assumed = PAPER_SENSITIVITY[settings.perturbation] * adjacency.beta
    return NoiseRule(settings.noise_name(), settings.noise, multiplier, assumed)


def horizon_multiplier(settings: Settings, steps: int = 1) -> float | None:
    """Return noise scale over sensitivity of one release, or None without a mechanism."""
    if settings.mechanism == "none":
        return None
    noise, releases = settings.noise_name(), settings.planned_releases() * steps
    return noise_multiplier(
        settings.budget, noise, settings.sensitivity, releases, settings.delta, settings.noise
    )


Zones = Zoning | int | str | Path | None
"""A zone map, a number of zones, ``METHOD:K``, a CSV file, or None for the shipped map."""


def case_of(case: Case | str | Path) -> Case:
    """Return a case, loaded if a name or a path is given."""
    return case if isinstance(case, Case) else load_case(str(case))


def zoning_for(case: Case, zones: Zones) -> Zoning:
    """Return the zone map: given, read, computed, or shipped with the case.

    Raises
    ------
    InputError
        For another text, or where no map is given and none is shipped.
    """
    if isinstance(zones, Zoning):
        return zones
    if isinstance(zones, Path) or (isinstance(zones, str) and zones.endswith(".csv")):
        return read_zoning(zones, case)
    method, _, count = str("" if zones is None else zones).rpartition(":")
    if method:
        from gridpriv.grid.partition import METHODS  # imports networkx: slow

        check_choice("partition", method, METHODS)
    if count and not count.isdigit():
        raise not_allowed("zones", zones, "K, METHOD:K, or a CSV file with columns bus,zone")
    zoning = zoning_of(case, int(count) if count else None, method or None)
    if zoning is None:
        own = "".join(f", --zones-from {name}" for name in case.groups)
        raise InputError(
            f"Case {case.name} has no shipped zone map: give --zones K{own} or --zoning FILE.csv "
            "(in Python zones=K, zones='METHOD:K' or zones='FILE.csv')."
        )
    return zoning


def settings_from(settings: Settings | None, given: dict[str, Any]) -> Settings:
    """Return settings with changes by name; a number as budget is a total epsilon."""
    check_names(given, ("preset", *names(Settings)))
    budget = given.get("budget")
    if isinstance(budget, int | float) and not isinstance(budget, bool):
        given = given | {"budget": f"total:{budget:g}"}
    if settings is None:
        return make_settings(**given)
    own = {name: getattr(settings, name) for name in names(Settings)}
    return make_settings(**own | given)


Releases: TypeAlias = Mapping[str, Mapping[Release, int]]


def zone_certificates(
    releases: Releases, settings: Settings, rules: AgentRules, planned: Releases | None = None
) -> tuple[ZoneCertificate, ...]:
    """Return the privacy loss of every zone with releases; empty without noise.

    ``planned`` has the zones that did not draw all planned releases, with all of them.
    """
    if rules.noise is None:
        return ()
    nominal = nominal_epsilon(settings, rules)
    deltas, more = (settings.release_delta, settings.total_delta), planned or {}
    return tuple(
        zone_certificate(zone, counts, nominal, *deltas, more.get(zone))
        for zone, counts in releases.items()
        if counts
    )


def nominal_epsilon(settings: Settings, rules: AgentRules) -> float:
    """Return the epsilon of one release according to the settings; inf without noise."""
    if rules.noise is None:
        return math.inf
    if settings.budget.scope == "per-release":
        return settings.budget.epsilon
    kind = MECHANISMS[rules.noise.mechanism, "simulated"]
    nominal = make_mechanism(kind, rules.noise.multiplier, 1.0).charge(1.0)
    return epsilon_of(nominal, settings.release_delta)


def zone_datasets(
    case: Case, zoning: Zoning, adjacency: DemandAdjacency
) -> tuple[LedgerDataset, ...]:
    """Return every zone's dataset: its buses.

    Parameters
    ----------
    case : Case
    adjacency : DemandAdjacency
        Of the run or the grant, for the owner's demand, before ``load_scale`` or a series.
    """
    from gridpriv.privacy.ledger_rows import LedgerDataset

    protection, network = adjacency.protection(case.base_mva), network_identity(case)
    buses = [np.sort(case.bus_id[members]).tolist() for members in zoning.members]
    return tuple(
        LedgerDataset(name, tuple(_bus(bus, network) for bus in own), protection, "zone")
        for name, own in zip(zoning.names, buses, strict=True)
    )


def network_identity(case: Case) -> bytes:
    """Return the identity of a grid: a digest of the numbers of its buses (public)."""
    return sha256(np.sort(case.bus_id).astype("<i8").tobytes()).digest()


def _bus(number: int, network: bytes) -> Unit:
    from gridpriv.privacy.ledger_rows import Unit

    name = f"bus {number}"
    return Unit(name, network, sha256(network + name.encode()).hexdigest()[:32])
