"""The agreement of a run: settings, zones, the variables that they share, limits; all public.

It grows with what zones share, not with the grid, and is all of a grid that a coordinator has.

A zone's limits in an agreement, from the public network: computed once, and checked by the zone.

A shared variable's magnitude is bounded by the case. Voltages have bounds, and with them the
products wr and wi; a flow is bounded by its rating and by Ohm's law at those bounds. A generator
without a limit has none in the case, and gets UNLIMITED.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gridpriv.consensus.coordinator import make_consensus
from gridpriv.consensus.limits import (
    ROUNDING,
    AnswerLimits,
    ReleaseLimits,
    RequestLimits,
    same_release,
)
from gridpriv.consensus.sessions import PublicAgreement
from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.files import read_document, write_text
from gridpriv.core.text import Json
from gridpriv.power.fleet import Fleet, ZoneMember
from gridpriv.power.program import ZoneProgram
from gridpriv.power.zone import flat_start
from gridpriv.privacy.mechanism import MECHANISMS, make_mechanism
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Charging, Release
from gridpriv.privacy.sensitivity import Sensitivity
from gridpriv.zonal.opening import (
    WARM_START_ROUNDS,
    PublicInputs,
    coordinate_units,
    reactive_flows,
    schedules,
    step_size,
)
from gridpriv.zonal.settings import Settings, make_settings

if TYPE_CHECKING:
    from gridpriv.consensus.schedules import StepSize
    from gridpriv.zonal.prepared import Prepared

FORMAT = "gridpriv agreement 3"
KEYS = ("format", "run", "case", "network", "settings", "smoothness", "epsilon", "zones")
OF_ONE_PARTY = ("seed", "workers")  # settings that no two parties need to share
LONGEST_RUN = 100


@dataclass(frozen=True, eq=False)
class SharedVariables:
    """The variables that a zone shares with others, and what of them an agreement allows.

    Attributes
    ----------
    coordinates : (shared,) int
        Their numbers in the whole grid (:mod:`gridpriv.power.zone`).
    start, units : (shared,)
        Where each starts, and its unit of rho.
    reactive : (shared,) bool
        Which are reactive flows.
    largest : (shared,)
        Magnitude that the case's limits allow.
    release : Release or None
        The zone's release; with output perturbation the one of the largest sensitivity.
    """

    coordinates: Ints
    start: Floats
    units: Floats
    reactive: Bools
    largest: Floats
    release: Release | None

    @staticmethod
    def of(prepared: Prepared, place: int) -> SharedVariables:
        """Return those of the zone at a place of a run, without its limits."""
        zone, mask = prepared.zones[place], prepared.shared[place]
        network, numbers = prepared.network, zone.coordinates[mask]
        return SharedVariables(
            numbers,
            flat_start(zone)[mask],
            coordinate_units(network, numbers, len(prepared.zones)),
            reactive_flows(network, numbers),
            np.full(len(numbers), np.inf),
            None,
        )

    def same(self, other: SharedVariables) -> bool:
        """Return True if coordinates, start, units and kinds are another's to the last bit."""
        names = ("coordinates", "start", "units", "reactive")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    def as_document(self, zone: str) -> Json:
        """Return the zone's part of the agreement's file."""
        release = self.release
        return {
            "zone": zone,
            "coordinates": self.coordinates.tolist(),
            "start": self.start.tolist(),
            "units": self.units.tolist(),
            "reactive": np.flatnonzero(self.reactive).tolist(),
            "largest": self.largest.tolist(),
            "release": None
            if release is None
            else {
                "scale": release.mechanism.scale,
                "sensitivity": release.sensitivity.value,
                "norm": release.sensitivity.norm,
                "share": release.sensitivity.share,
                "bound_source": release.sensitivity.bound_source,
                "assumed": release.assumed,
            },
        }


@dataclass(frozen=True, eq=False)
class Agreement:
    """The agreement of one run.

    Attributes
    ----------
    run : str
        Its name; a second run has another.
    case, network : str
        Name and digest of the public network.
    settings : Settings
        All but those of one party (seed, workers).
    smoothness : float or None
        The largest L of the zones, where the step size needs it.
    epsilon : float
        Nominal epsilon of one release; inf without noise.
    zones : mapping of str to SharedVariables
        In the order of the zones' keys.
    """

    run: str
    case: str
    network: str
    settings: Settings
    smoothness: float | None
    epsilon: float
    zones: Mapping[str, SharedVariables]

    @cached_property
    def agreed_settings(self) -> Json:
        """The settings as all parties have them."""
        given = self.settings.as_given()
        return {name: value for name, value in given.items() if name not in OF_ONE_PARTY}

    @cached_property
    def ground(self) -> PublicInputs:
        """The public inputs of the rounds."""
        zones = self.zones.values()
        numbers = np.concatenate([zone.coordinates for zone in zones])
        _, first = np.unique(numbers, return_index=True)
        return PublicInputs(
            settings=self.settings,
            consensus=make_consensus([zone.coordinates for zone in zones]),
            start=[zone.start for zone in zones],
            units=np.concatenate([zone.units for zone in zones])[first],
            step=self._step,
        )

    def request_limits(self, zone: str) -> RequestLimits:
        """Return the requests that a coordinator may send to a zone."""
        own, settings = self.zones[zone], self.settings
        return request_limits(settings, own, self._step)

    @cached_property
    def public(self) -> PublicAgreement:
        """The part that both sides compare before the first release, and every zone's limits."""
        document = self.as_document()
        compared = {key: document[key] for key in ("network", "smoothness", "epsilon", "zones")}
        return PublicAgreement(
            version=version("gridpriv"),
            run=self.run,
            topology=hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest(),
            settings=self.agreed_settings,
            zones={name: self._answer_limits(zone) for name, zone in self.zones.items()},
        )

    def as_document(self) -> Json:
        """Return the agreement as its file holds it."""
        return {
            "format": FORMAT,
            "run": self.run,
            "case": self.case,
            "network": self.network,
            "settings": self.agreed_settings,
            "smoothness": self.smoothness,
            "epsilon": None if math.isinf(self.epsilon) else self.epsilon,
            "zones": [zone.as_document(name) for name, zone in self.zones.items()],
        }

    @cached_property
    def _step(self) -> Any:
        smoothness = math.nan if self.smoothness is None else self.smoothness
        return step_size(self.settings, lambda: (smoothness, self.epsilon))

    def _answer_limits(self, zone: SharedVariables) -> AnswerLimits:
        settings, perturbation = self.settings, self.settings.effective_perturbation()
        noisy = perturbation.target == "output"
        releases = None
        if zone.release is not None:
            releases = ReleaseLimits(
                zone.release,
                noisy,
                perturbation.releases(1, settings.local_updates),
                perturbation.releases(settings.rounds, settings.local_updates),
            )
        return AnswerLimits(zone.largest, releases, noisy)


def request_limits(settings: Settings, zone: SharedVariables, step: Any) -> RequestLimits:
    """Return the requests that settings allow for a zone."""
    warm_start, schedule = schedules(settings, zone.units)
    start = settings.effective_start()
    return RequestLimits(
        warm_starts=WARM_START_ROUNDS if start == "warm" else 0,
        trial=start == "flat" or settings.effective_perturbation().target == "output",
        rounds=settings.rounds,
        size=len(zone.coordinates),
        step=step,
        warm_start=warm_start,
        schedule=schedule,
    )


def check_run(run: str) -> str:
    """Return the name of a run, or refuse it."""
    if not (isinstance(run, str) and 0 < len(run) <= LONGEST_RUN and run.isprintable()):
        raise not_allowed("run", run, f"1 to {LONGEST_RUN} printable characters")
    return run


def write_agreement(agreement: Agreement, path: Path) -> None:
    """Write an agreement."""
    document = agreement.as_document()
    zones = ",\n".join(json.dumps(zone) for zone in document.pop("zones"))
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]
    text = "{\n" + ",\n".join([*lines, f'"zones": [\n{zones}\n]']) + "\n}\n"
    write_text(path, text, private=False)


def read_agreement(path: Path) -> Agreement:
    """Return the agreement that a file holds.

    Raises
    ------
    InputError
        If it cannot be read, or holds no agreement.
    """
    return read_document(path, "agreement", FORMAT, KEYS, _agreement)


def _agreement(document: Json) -> Agreement:
    settings = make_settings(None, **document["settings"])
    if settings.noise_schedule is None and settings.effective_perturbation().target == "demand":
        raise ValueError(
            "it does not state noise_schedule (when demand noise is drawn): make it again, with "
            "gridpriv consortium"
        )
    smoothness = document["smoothness"]
    return Agreement(
        run=check_run(document["run"]),
        case=str(document["case"]),
        network=str(document["network"]),
        settings=settings,
        smoothness=None if smoothness is None else float(smoothness),
        epsilon=math.inf if document["epsilon"] is None else float(document["epsilon"]),
        zones={str(zone["zone"]): _zone(zone, settings) for zone in document["zones"]},
    )


def _zone(zone: Mapping[str, Any], settings: Settings) -> SharedVariables:
    name = zone["zone"]
    numbers = np.array(zone["coordinates"], dtype=np.int64)
    start, units, largest = (
        np.array(zone[key], dtype=float) for key in ("start", "units", "largest")
    )
    if not numbers.shape == start.shape == units.shape == largest.shape or numbers.ndim != 1:
        raise ValueError(f"zone {name!r}: coordinates, start, units and largest differ in length")
    positive = (units > 0.0).all() and (largest >= 0.0).all()
    if not (positive and all(np.isfinite(part).all() for part in (start, units, largest))):
        raise ValueError(f"zone {name!r}: a start, a unit or a limit that is no usable number")
    reactive = np.zeros(len(numbers), dtype=bool)
    places = zone["reactive"]
    whole = isinstance(places, list) and all(type(place) is int for place in places)
    if not whole or len(set(places)) < len(places) or not set(places) <= set(range(len(numbers))):
        raise ValueError(f"zone {name!r}: reactive is not a list of places in coordinates")
    reactive[places] = True
    stated = zone["release"]
    release = None if stated is None else _release(stated, settings)
    return SharedVariables(numbers, start, units, reactive, largest, release)


def _release(stated: Mapping[str, Any], settings: Settings) -> Release:
    figures = [float(stated[key]) for key in ("scale", "sensitivity", "assumed", "share")]
    if not all(math.isfinite(figure) and figure > 0.0 for figure in figures):
        raise ValueError("a release with a figure that is not positive")
    scale, value, assumed, share = figures
    mechanism = make_mechanism(MECHANISMS[settings.law(), settings.noise], scale, assumed)
    if stated["norm"] != mechanism.norm:
        raise ValueError(f"a release in norm {stated['norm']!r}, not {mechanism.norm!r}")
    sensitivity = Sensitivity(value, mechanism.norm, str(stated["bound_source"]), share)
    return Release(mechanism, sensitivity, assumed)


UNLIMITED = 1e6  # p.u.


def zone_member(prepared: Prepared, place: int, seed: int, charge: Charging | None) -> ZoneMember:
    """Return the zone at a place of a run, compiled, with its agent."""
    zone = prepared.zones[place]
    fleet = Fleet(
        (zone,),
        (prepared.shared[place],),
        prepared.rules,
        prepared.settings.solver,
        NoiseStreams(seed),
        (prepared.disclosure(zone),),
        charge,
        prepared.settings,
        prepared.solver_tolerance,
    )
    (member,) = fleet.make([0])
    assert isinstance(member, ZoneMember)
    return member


def with_limits(prepared: Prepared, place: int, step: StepSize) -> SharedVariables:
    """Return the shared variables of the zone at a place of a run, with their limits."""
    shared = SharedVariables.of(prepared, place)
    member = zone_member(prepared, place, 0, None)
    largest = largest_values(member.problem.program)[prepared.shared[place]]
    limits = request_limits(prepared.settings, shared, step)
    release = member.agent.release(limits.least_penalty(), limits.largest_step())
    return replace(shared, largest=largest, release=release)


def largest_values(program: ZoneProgram) -> Floats:
    """Return the magnitude that the case's limits allow every variable, shape (n,)."""
    largest = np.maximum(np.abs(program.lower), np.abs(program.upper))
    size = abs(program.a_eq).tocsr()
    for row in range(size.shape[0]):  # Ohm's law: one flow of each row, and bounded products
        columns = size.indices[size.indptr[row] : size.indptr[row + 1]]
        factors = size.data[size.indptr[row] : size.indptr[row + 1]]
        free = np.isinf(largest[columns])
        if free.sum() == 1:
            bound = factors[~free] @ largest[columns[~free]] + abs(program.b_eq[row])
            largest[columns[free]] = bound / factors[free]
    zone = program.zone
    rate = zone.network.case.rate[zone.branches]
    rate = np.where((rate > 0.0) & np.isfinite(rate), rate, np.inf)
    first = len(zone.buses) + 2 * len(zone.pairs)
    flows = slice(first, first + 4 * len(rate))
    largest[flows] = np.minimum(largest[flows], np.tile(rate, 4))
    return np.minimum(largest, UNLIMITED)


def check_limits(own: SharedVariables, agreed: SharedVariables, zone: str) -> None:
    """Refuse an agreement whose limits or release are not those of the zone's own network."""
    same = np.allclose(own.largest, agreed.largest, rtol=ROUNDING, atol=0.0)
    mine, theirs = own.release, agreed.release
    if mine is None or theirs is None:
        same = same and mine is theirs
    else:
        same = same and same_release(theirs, mine)
    if not same:
        raise InputError(
            f"zone {zone!r} has other limits or another release than the agreement states: it was "
            "not made for this network and zone map"
            "; make the folders anew (gridpriv consortium)"
        )
