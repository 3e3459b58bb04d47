"""What all parties of a run agree on before it: settings, zones, what they share; all public.

It grows with what zones share, not with the grid, and is all of a grid that a coordinator has.
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
from gridpriv.consensus.table import Public
from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.core.document import Json
from gridpriv.core.errors import not_allowed
from gridpriv.core.files import write_text
from gridpriv.core.reading import read_document
from gridpriv.power.zone import flat_start
from gridpriv.zonal.opening import Ground, coordinate_units, reactive_flows, step_size
from gridpriv.zonal.settings import Settings, make_settings

if TYPE_CHECKING:
    from gridpriv.zonal.prepared import Prepared

FORMAT = "gridpriv terms 2"
KEYS = ("format", "run", "case", "network", "settings", "smoothness", "epsilon", "zones")
OF_ONE_PARTY = ("seed", "workers")  # settings that no two parties need to share
LONGEST_RUN = 100


@dataclass(frozen=True, eq=False)
class Shared:
    """What a zone shares with others.

    Attributes
    ----------
    coordinates : (shared,) int
        Their numbers in the whole grid (:mod:`gridpriv.power.zone`).
    start, units : (shared,)
        Where each starts, and its unit of rho.
    reactive : (shared,) bool
        Which are reactive flows.
    """

    coordinates: Ints
    start: Floats
    units: Floats
    reactive: Bools

    @staticmethod
    def of(prepared: Prepared, place: int) -> Shared:
        """Return what the zone at a place of a run shares."""
        zone, mask = prepared.zones[place], prepared.shared[place]
        network, numbers = prepared.network, zone.coordinates[mask]
        return Shared(
            numbers, flat_start(zone)[mask],
            coordinate_units(network, numbers, len(prepared.zones)),
            reactive_flows(network, numbers),
        )  # fmt: skip

    def same(self, other: Shared) -> bool:
        """Return whether another is the same to the last bit."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return all(np.array_equal(mine, theirs) for mine, theirs in pairs)


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of one run.

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
        Of one release, as stated; inf without noise.
    zones : mapping of str to Shared
        In the order of the zones' keys.
    """

    run: str
    case: str
    network: str
    settings: Settings
    smoothness: float | None
    epsilon: float
    zones: Mapping[str, Shared]

    @cached_property
    def agreed_settings(self) -> Json:
        """The settings as all parties have them."""
        given = self.settings.as_given()
        return {name: value for name, value in given.items() if name not in OF_ONE_PARTY}

    @cached_property
    def ground(self) -> Ground:
        """What the rounds start from."""
        held = self.zones.values()
        numbers = np.concatenate([one.coordinates for one in held])
        _, first = np.unique(numbers, return_index=True)
        smoothness = math.nan if self.smoothness is None else self.smoothness
        return Ground(
            settings=self.settings,
            consensus=make_consensus([one.coordinates for one in held]),
            start=[one.start for one in held],
            units=np.concatenate([one.units for one in held])[first],
            reactive=np.concatenate([one.reactive for one in held])[first],
            step=step_size(self.settings, lambda: (smoothness, self.epsilon)),
        )

    @cached_property
    def public(self) -> Public:
        """What both sides compare before the first release."""
        document = self.as_document()
        told = {key: document[key] for key in ("network", "smoothness", "epsilon", "zones")}
        return Public(
            version=version("gridpriv"),
            run=self.run,
            topology=hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest(),
            settings=self.agreed_settings,
            sizes={name: len(one.coordinates) for name, one in self.zones.items()},
        )

    def as_document(self) -> Json:
        """Return the terms as their file holds them."""
        zones = [
            {
                "zone": name, "coordinates": one.coordinates.tolist(),
                "start": one.start.tolist(), "units": one.units.tolist(),
                "reactive": np.flatnonzero(one.reactive).tolist(),
            }
            for name, one in self.zones.items()
        ]  # fmt: skip
        return {
            "format": FORMAT, "run": self.run, "case": self.case, "network": self.network,
            "settings": self.agreed_settings, "smoothness": self.smoothness,
            "epsilon": None if math.isinf(self.epsilon) else self.epsilon, "zones": zones,
        }  # fmt: skip


def check_run(run: str) -> str:
    """Return the name of a run, or refuse it."""
    if not (isinstance(run, str) and 0 < len(run) <= LONGEST_RUN and run.isprintable()):
        raise not_allowed("run", run, f"1 to {LONGEST_RUN} printable characters")
    return run


def write_terms(terms: Terms, path: Path) -> None:
    """Write terms."""
    document = terms.as_document()
    zones = ",\n".join(json.dumps(zone) for zone in document.pop("zones"))
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]
    text = "{\n" + ",\n".join([*lines, f'"zones": [\n{zones}\n]']) + "\n}\n"
    write_text(path, text, private=False)


def read_terms(path: Path) -> Terms:
    """Return the terms that a file holds.

    Raises
    ------
    InputError
        If it cannot be read, or holds no terms.
    """
    return read_document(path, "terms", FORMAT, KEYS, _terms)


def _terms(document: Json) -> Terms:
    settings = make_settings(None, **document["settings"])
    if settings.refresh is None and settings.effective_perturbation().target == "demand":
        raise ValueError(
            "they do not say how often demand noise is drawn (refresh), which an earlier version "
            "took to be every round: make them again, with gridpriv consortium"
        )
    smoothness = document["smoothness"]
    return Terms(
        run=check_run(document["run"]),
        case=str(document["case"]),
        network=str(document["network"]),
        settings=settings,
        smoothness=None if smoothness is None else float(smoothness),
        epsilon=math.inf if document["epsilon"] is None else float(document["epsilon"]),
        zones={str(zone["zone"]): _shared(zone) for zone in document["zones"]},
    )


def _shared(zone: Mapping[str, Any]) -> Shared:
    numbers = np.array(zone["coordinates"], dtype=np.int64)
    start, units = (np.array(zone[key], dtype=float) for key in ("start", "units"))
    if not numbers.shape == start.shape == units.shape or numbers.ndim != 1:
        raise ValueError(f"zone {zone['zone']!r}: coordinates, start and units differ in length")
    if not (np.isfinite(start).all() and (units > 0.0).all() and np.isfinite(units).all()):
        raise ValueError(f"zone {zone['zone']!r}: a start or a unit that is no usable number")
    reactive = np.zeros(len(numbers), dtype=bool)
    places = zone["reactive"]
    whole = isinstance(places, list) and all(type(place) is int for place in places)
    if not whole or len(set(places)) < len(places) or not set(places) <= set(range(len(numbers))):
        raise ValueError(f"zone {zone['zone']!r}: reactive is not a list of places in coordinates")
    reactive[places] = True
    return Shared(numbers, start, units, reactive)
