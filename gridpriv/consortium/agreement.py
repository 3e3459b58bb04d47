"""The agreement of a run: settings, zones and coupling variables; all public.

Its size is that of the coupling variables, not of the grid. A coordinator has no other data of a
grid.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gridpriv.consensus.coordinator import make_consensus
from gridpriv.consensus.sessions import AnswerLimits, PublicAgreement, RequestLimits
from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.files import read_document, write_text
from gridpriv.core.text import Json
from gridpriv.power.zone import flat_start
from gridpriv.power.zone_agent import ZoneAgent, ZoneAgentFactory
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Charging
from gridpriv.zonal import opening
from gridpriv.zonal.settings import Settings, make_settings

if TYPE_CHECKING:
    from gridpriv.zonal.prepared import Prepared

FORMAT = "gridpriv agreement 4"
KEYS = ("format", "run", "case", "network", "settings", "smoothness", "epsilon", "zones")
OF_ONE_PARTY = ("seed", "workers")  # settings that may differ between parties
LONGEST_RUN = 100


@dataclass(frozen=True, eq=False)
class SharedVariables:
    """The coupling variables of a zone.

    Attributes
    ----------
    coordinates : (shared,) int
        Their numbers in the whole grid (:mod:`gridpriv.power.zone`).
    start, units : (shared,)
        Start of each, and its unit of rho.
    reactive : (shared,) bool
        True for reactive flows.
    """

    coordinates: Ints
    start: Floats
    units: Floats
    reactive: Bools

    @staticmethod
    def of(prepared: Prepared, position: int) -> SharedVariables:
        """Return those of the zone at a position of a run."""
        zone, mask = prepared.zones[position], prepared.shared[position]
        network, numbers = prepared.network, zone.coordinates[mask]
        return SharedVariables(
            numbers,
            flat_start(zone)[mask],
            opening.coordinate_units(network, numbers, len(prepared.zones)),
            opening.reactive_flows(network, numbers),
        )

    def same(self, other: SharedVariables) -> bool:
        """Return True if coordinates, start, units and kinds equal another's exactly."""
        names = ("coordinates", "start", "units", "reactive")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    def as_document(self, zone: str) -> Json:
        """Return the zone's part of the agreement's file."""
        return {
            "zone": zone,
            "coordinates": self.coordinates.tolist(),
            "start": self.start.tolist(),
            "units": self.units.tolist(),
            "reactive": np.flatnonzero(self.reactive).tolist(),
        }


@dataclass(frozen=True, eq=False)
class Agreement:
    """The agreement of one run.

    Attributes
    ----------
    run : str
        Its name, different for every run.
    case, network : str
        Name and digest of the public network.
    settings : Settings
        All except those of single parties (seed, workers).
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
        """The common settings of all parties."""
        given = self.settings.as_given()
        return {name: value for name, value in given.items() if name not in OF_ONE_PARTY}

    @cached_property
    def public_inputs(self) -> opening.PublicInputs:
        """The public inputs of the rounds."""
        zones = self.zones.values()
        numbers = np.concatenate([zone.coordinates for zone in zones])
        _, first = np.unique(numbers, return_index=True)
        return opening.PublicInputs(
            settings=self.settings,
            consensus=make_consensus([zone.coordinates for zone in zones]),
            start=[zone.start for zone in zones],
            units=np.concatenate([zone.units for zone in zones])[first],
            step=self._step,
        )

    def request_limits(self, zone: str) -> RequestLimits:
        """Return the requests that a coordinator may send to a zone."""
        own, settings = self.zones[zone], self.settings
        start = settings.effective_start()
        return RequestLimits(
            warm_starts=opening.WARM_START_ROUNDS if start == "warm" else 0,
            trial=start == "flat" or settings.effective_perturbation().target == "output",
            rounds=settings.rounds,
            size=len(own.coordinates),
        )

    def first_penalty(self, zone: str) -> Floats:
        """Return rho of a zone's variables in the first round."""
        units = self.zones[zone].units
        _, schedule = opening.schedules(self.settings, units)
        return schedule.first(len(units))

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
            zones={
                name: AnswerLimits(len(zone.coordinates), *self._most_releases)
                for name, zone in self.zones.items()
            },
        )

    def as_document(self) -> Json:
        """Return the content of the agreement's file."""
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
        return opening.step_size(self.settings, lambda: (smoothness, self.epsilon))

    @property
    def _most_releases(self) -> tuple[int, int]:
        """Largest numbers of releases of a zone in one round, and in the run."""
        settings, perturbation = self.settings, self.settings.effective_perturbation()
        if settings.mechanism == "none":
            return 0, 0
        of_round, of_run = (
            perturbation.releases(rounds, settings.local_updates) for rounds in (1, settings.rounds)
        )
        return of_round, of_run


def check_run(run: str) -> str:
    """Return the name of a run; refuse an invalid one."""
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
    """Return the agreement in a file.

    Raises
    ------
    InputError
        If it cannot be read, or is not an agreement.
    """
    return read_document(path, "agreement", FORMAT, KEYS, _agreement)


def _agreement(document: Json) -> Agreement:
    try:
        settings = make_settings(None, **document["settings"])
    except InputError as error:
        raise ValueError(
            f"{error}. If it was written by an earlier development version, make it again, with "
            "gridpriv consortium"
        ) from error
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
        zones={str(zone["zone"]): _zone(zone) for zone in document["zones"]},
    )


def _zone(zone: Mapping[str, Any]) -> SharedVariables:
    name = zone["zone"]
    numbers = np.array(zone["coordinates"], dtype=np.int64)
    start, units = (np.array(zone[key], dtype=float) for key in ("start", "units"))
    if not numbers.shape == start.shape == units.shape or numbers.ndim != 1:
        raise ValueError(f"zone {name!r}: coordinates, start and units differ in length")
    if not ((units > 0.0).all() and np.isfinite(start).all() and np.isfinite(units).all()):
        raise ValueError(f"zone {name!r}: a start or a unit that is no usable number")
    reactive = np.zeros(len(numbers), dtype=bool)
    places = zone["reactive"]
    whole = isinstance(places, list) and all(type(position) is int for position in places)
    if not whole or len(set(places)) < len(places) or not set(places) <= set(range(len(numbers))):
        raise ValueError(f"zone {name!r}: reactive is not a list of places in coordinates")
    reactive[places] = True
    return SharedVariables(numbers, start, units, reactive)


def zone_member(prepared: Prepared, position: int, seed: int, charge: Charging | None) -> ZoneAgent:
    """Return the zone at a position of a run, compiled, with its agent."""
    zone = prepared.zones[position]
    factory = ZoneAgentFactory(
        (zone,),
        (prepared.shared[position],),
        prepared.rules,
        prepared.settings.solver,
        NoiseStreams(seed),
        (prepared.disclosure(zone),),
        charge,
        prepared.settings,
        prepared.solver_tolerance,
    )
    (member,) = factory.make([0])
    assert isinstance(member, ZoneAgent)
    return member
