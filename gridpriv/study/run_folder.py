"""The folder of a run, or of a series of runs under one budget: runs of a store.

Before a run draws its first noise, its planned releases are on disk; its actual releases replace
them when it ends, early or not. So a killed run counts with its planned releases. The planned ones
of a run that ended early are kept next to its actual ones, for its total at a delta.

A public folder has neither seed nor digest of demand, which identify an interrupted run so that it
draws nothing twice. Until all runs are finished they are in ``.NAME.unfinished``, readable by the
owner only.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.files import read_sealed, remove, sealed, write_text
from gridpriv.core.store import MANIFEST as MANIFEST_FILE
from gridpriv.core.store import (
    Store,
    Study,
    Tables,
    open_store,
    read_manifest,
    read_study,
    times_noted,
)
from gridpriv.core.text import Json
from gridpriv.grid.case import Case, public_network
from gridpriv.grid.scenarios import DemandSeries
from gridpriv.grid.zoning import Zoning
from gridpriv.power.prior import public_demand
from gridpriv.privacy.certificate import refuse_unprotected
from gridpriv.privacy.mechanism import MECHANISMS, make_mechanism
from gridpriv.privacy.release import KeptReleases, Release
from gridpriv.privacy.sensitivity import Sensitivity
from gridpriv.privacy.temporal import TemporalEstimate
from gridpriv.study import record
from gridpriv.study.comparison import ZonedCase, describe, network_rows
from gridpriv.study.engine import charge_rows, header, manifest_totals
from gridpriv.zonal.day import DayPlan
from gridpriv.zonal.horizon import ONCE as DRAWN_ONCE
from gridpriv.zonal.horizon import DemandEstimates, Horizon, series_protection, step_row
from gridpriv.zonal.opening import Trace
from gridpriv.zonal.prepared import Prepared
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.settings import Settings
from gridpriv.zonal.summary import noise
from gridpriv.zonal.tables import result_tables

RUN, SERIES = "run", "series"
RUN_FILE = "run.json"
KEPT = "kept-releases"
RELEASED, TEMPORAL_COEFFICIENTS = "released", "temporal_coefficients"
ONCE, EVERY = "once-drawn", "every step"

Released = Mapping[str, Mapping[Release, int]]
NO_ATTEMPTS: tuple[Released, Released] = ({}, {})
"""Drawn and planned releases of a run without earlier attempts."""


@dataclass(frozen=True, eq=False)
class Runs:
    """One run of a case, or one per step of a series.

    Attributes
    ----------
    case : Case
        As read, or that of a series.
    repeat : str
        The command that repeats the run; it includes the seed.
    """

    case: Case
    zoning: Zoning
    settings: Settings
    seed: int
    series: DemandSeries | None = None
    repeat: str = ""

    @property
    def kind(self) -> str:
        """``run`` or ``series``."""
        return RUN if self.series is None else SERIES

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the steps; empty for a single run."""
        return ("",) if self.series is None else tuple(self.series.steps)

    @property
    def known_seed(self) -> int | None:
        """The seed of the noise; secure noise has none."""
        return None if self.settings.noise == "secure" else self.seed

    def kept(self, folder: Path) -> KeptReleases:
        """Return the store of the zones' released values in a folder."""
        network = public_network(self.case.without(self.settings.outage)).fingerprint
        keys = tuple(int(self.case.bus_id[own].min()) for own in self.zoning.members)
        return KeptReleases(folder / KEPT, network, keys)


class RunFolder:
    """A folder of runs, locked by this process (:func:`open_runs`).

    Parameters
    ----------
    repeats : bool
        True if a repeated run draws the same noise and is not charged: it then has no new release.
    stores : bool
        True if zones can store their released values in the folder: they work on this machine.

    Attributes
    ----------
    reuses : bool
        True if the run continues from its stored release: it is not drawn or charged again.
    """

    def __init__(self, store: Store, runs: Runs, *, repeats: bool, stores: bool) -> None:
        self.store, self.runs, self._repeats = store, runs, repeats
        self._stores = stores and not repeats
        self._finished: Study | None = None
        self._earlier: dict[int, tuple[Released, Released]] | None = None
        self.reuses = False

    def kept(self, prepared: Prepared) -> KeptReleases | None:
        """Return the store of the releases of a run that draws once; None for others.

        If some zones have not stored their release, all of them draw again.
        """
        once = prepared.rules.noise is not None and prepared.rules.perturbation == DRAWN_ONCE
        if not (self._stores and once):
            return None
        kept = self.runs.kept(self.store.folder)
        self.reuses = kept.complete
        if not self.reuses:
            remove(kept.folder)
        return replace(kept, reuses=self.reuses, run_id=self.attempt(0, stored=self.reuses))

    def attempt(self, number: int | None, *, stored: bool) -> str:
        """Return the random identity of the next attempt at a run, or of the one that stored."""
        folder = self.store.folder
        place = read_sealed(_unfinished(folder)) if self.store.public else self.store.manifest
        if "run_id" not in place:
            raise InputError(f"{folder} was begun by an older gridpriv: name another folder")
        attempt = times_noted(folder, _drawn(number)) + (not stored)
        return f"{place['run_id']}-{attempt}"

    def resumption(self, ledger: str) -> str:
        """Return the effect of the same command with ``--resume``, as the end of a sentence."""
        does = "starts the run again" if self.runs.series is None else "goes on from there"
        if self._stores and self.runs.kept(self.store.folder).complete:
            return f"{does}, from its stored release"
        study, statuses = read_study(self.store.folder), self.store.stored().values()
        lost = releases_in(study)[2] and RELEASED not in study.tables
        if self._repeats or not lost or (statuses and "failed" not in statuses):
            return does
        charges = " and charges" if ledger else ""
        room = ": the grant must have room for both" if ledger else ""
        return f"{does}, and draws{charges} the interrupted releases again{room}"

    def remaining(self) -> list[int]:
        """Return the numbers of the remaining runs."""
        done = {run for run, status in self.store.stored().items() if status == "done"}
        return [n for n in range(len(self.runs.steps)) if _run(n) not in done]

    def _attempts(self, present: Released | None = None) -> dict[int, tuple[Released, Released]]:
        """Return the drawn and the planned releases of the stored attempts, by run.

        A repeated draw is no further release.

        Parameters
        ----------
        present : mapping of str to mapping of Release to int
            Of every zone, the stored releases that this attempt has used: it counts them itself.
        """
        rows = _release_rows(read_study(self.store.folder))
        if self._repeats or rows.empty:
            return {}
        if "step" in rows:  # a release for all steps is no step's
            rows = rows[rows["step"] != EVERY]
        attempts = {int(run): of_run.to_dict("records") for run, of_run in rows.groupby("run")}
        less = present or {}
        return {
            n: (_less(_releases(own), less), _less(_releases(own, "planned"), less))
            for n, own in attempts.items()
        }

    def begin(self, number: int | None, planned: Released) -> None:
        """Store planned releases before their draw; releases of earlier attempts stay.

        They are those of a run, or (None) a series' release for all steps.
        """
        if number is not None:
            if self._earlier is None:
                self._earlier = self._attempts()
            self.store.forget([_run(number)])
            remove(self.store.folder / RUN_FILE)
        if not (self._repeats or self.reuses):
            self.store.set_aside(_drawn(number))
        self._note(number, _drawn_tables(planned, planned, early=True))

    def add(self, number: int, result: RunResult, plan: DayPlan | None = None) -> RunResult:
        """Store a run's releases and results; a run that ended early remains to be done.

        Return the result with the releases of earlier attempts in its totals.
        """
        trace, early = result.trace, result.early is not None
        earlier = self._attempts(trace.releases) if self.reuses else self._earlier
        result = result.including(*(earlier or {}).get(number, NO_ATTEMPTS))
        if not (early and self.reuses):  # all zones stored their releases, of which it used a part
            self._note(number, _drawn_tables(trace.releases, trace.counted, early=early))
        tables = self._tables(number, result, plan)
        if self.runs.series is None:
            document = result.as_dict(public=self.store.public)
            document |= {} if self.store.public else {"repeat": self.runs.repeat}
            self.store.text(RUN_FILE, sealed(document, indent=2))
        shown = record.publish_tables(tables) if self.store.public else tables
        self.store.add(shown, **self._step(number))
        return result

    def add_once(
        self, horizon: Horizon, drawn: Released, known: DemandEstimates | None = None
    ) -> None:
        """Store a series' release for all steps and its estimate; nothing after an early end."""
        estimates = {} if known is None else _known_tables(horizon, known)
        releases = _drawn_tables(drawn, horizon.planned_of(drawn), early=known is None)
        self._note(None, {**releases, **estimates})

    def drawn(self) -> str:
        """Return the number of releases of all attempts at all runs, as a sentence if any."""
        drawn, _, _ = releases_in(self.study())
        return Trace(releases=drawn).drawn() if drawn else ""

    def known(self, horizon: Horizon) -> DemandEstimates | None:
        """Return the estimate of every step's demand from a stored release."""
        tables = read_study(self.store.folder).tables
        if RELEASED not in tables:
            if self.store.stored() and not self._repeats:  # steps depend on a release
                raise InputError(
                    f"{self.store.folder} holds steps, and not what all of them share: its part "
                    f"{ONCE} is missing and cannot be made again; name another folder"
                )
            return None
        of_bus = tables[RELEASED].set_index("bus")[["pd_pu", "qd_pu"]]
        pair = ["p_pu", "q_pu"]
        coefficients = tables.get(TEMPORAL_COEFFICIENTS, pd.DataFrame(columns=["zone", *pair]))
        bases = []
        for zone in horizon.owned.zones:
            mean = of_bus.loc[horizon.series.case.bus_id[zone.own]].to_numpy(float)
            own = coefficients.loc[coefficients["zone"] == zone.name, pair].to_numpy(float)
            bases.append(TemporalEstimate(mean.T.ravel(), own.T))
        return tuple(bases)

    def study(self) -> Study:
        """Return the study in the folder."""
        return self._finished or read_study(self.store.folder)

    def finish(self) -> None:
        """Make the tables, when every run is finished; none is run afterwards."""
        if not self.remaining():
            self._finished = self.store.finish(manifest_totals)
            remove(_unfinished(self.store.folder))
            remove(self.store.folder / KEPT)

    def _tables(self, number: int, result: RunResult, plan: DayPlan | None) -> Tables:
        settings = self.runs.settings
        identity = {
            "run": _run(number),
            "number": number,
            "case": self.runs.case.name,
            "zoning": "",
            "method": noise(settings.as_dict()),
            "seed": self.runs.known_seed,
            "budget": settings.noise_budget,
        }
        identity |= record.settings_shown(settings)
        tables = dict(record.run_tables(identity, result, result.early or ""))
        del tables["charges"]  # with its releases
        tables |= {"zone_prices": result.zone_prices, "binding": result.binding}
        if result.trace.rounds:
            if len(result.tie_prices):  # AC rounds and Newton steps have no duals of tie flows
                tables["tie_prices"] = result.tie_prices
            state = result_tables(result.solution)
            tables |= {k: t.rename_axis("index").reset_index() for k, t in state.items()}
        series = self.runs.series
        if series is not None and tables["runs"][0]["protection"] is not None:
            tables["runs"][0]["protection"] = series_protection(series, settings)
        if series is not None and not result.early:
            step = step_row(self.runs.steps[number], result, number, plan)
            del step["seconds"]  # with values that differ between two machines
            tables["steps"] = [step]
        return tables

    def _note(self, number: int | None, tables: Tables) -> None:
        self.store.note(_drawn(number), tables, run=_run(number or 0), **self._step(number))

    def _step(self, number: int | None) -> dict[str, str]:
        """Return the name of a step in a series, as the common column of its tables."""
        if self.runs.series is None:
            return {}
        return {"step": EVERY if number is None else self.runs.steps[number]}


@contextmanager
def open_runs(
    folder: Path, runs: Runs, *, public: bool, resume: bool, ledger: str, stores: bool = True
) -> Iterator[RunFolder]:
    """Lock a folder for a run or series; start it, or continue it.

    Parameters
    ----------
    public : bool
        Leave out whatever is computed from true demand, and seeds.
    resume : bool
        Go on with what the folder holds.
    ledger : str
        Identity of the ledger that is charged for every attempt at a run; empty without one.
    stores : bool
        True if the zones work on this machine and can store their released values.

    Raises
    ------
    InputError
        If the folder has other content, or the same and ``resume`` is not set.
    """
    if public:
        refuse_unprotected(runs.settings.effective_mechanism())
    manifest = _manifest(runs, public=public, ledger=ledger)
    # the grid of the run: branches out of service are not in its tables
    drawn = ZonedCase(runs.case.without(runs.settings.outage), runs.zoning)
    network = partial(network_rows, {(runs.case.name, ""): drawn})
    repeats = runs.known_seed is not None and not ledger

    def run_folder(store: Store) -> RunFolder:
        return RunFolder(store, runs, repeats=repeats, stores=stores)

    def resumes(store: Store) -> str:
        return run_folder(store).resumption(ledger)

    with open_store(folder, manifest, resume=resume, common=network, resumes=resumes) as store:
        if public:
            _check_identity(store, runs)
        recorded = recorded_seed(folder)
        if recorded is not None and recorded != runs.known_seed:
            raise not_allowed(
                "seed", runs.known_seed, f"{recorded}, with which the {runs.kind} was begun"
            )
        try:
            yield run_folder(store)
        finally:
            if public and not store.has_runs:
                remove(_unfinished(folder))


def run_document(folder: Path) -> Json | None:
    """Return the document of a run in its folder; None without one."""
    try:
        return read_sealed(folder / RUN_FILE)
    except FileNotFoundError:
        return None


def _unfinished(folder: Path) -> Path:
    resolved = folder.resolve()
    return resolved.with_name(f".{resolved.name}.unfinished")


def _check_identity(store: Store, runs: Runs) -> None:
    """Store the identity of a run next to a public folder, or compare it with the stored one."""
    path = _unfinished(store.folder)
    if store.manifest["finished"]:
        remove(path)
        return
    if not store.has_runs:
        identity = {"seed": runs.known_seed, "demand_sha256": _sha256(*_demand(runs))}
        identity |= {"run_id": secrets.token_hex(16)}
        write_text(path, sealed(identity), private=True)
        return
    try:
        stored = read_sealed(path)
    except FileNotFoundError:
        raise InputError(
            f"{path} is missing: it states the demand and the seed with which "
            f"{store.folder} was begun; name another folder"
        ) from None
    if stored["demand_sha256"] != _sha256(*_demand(runs)):
        other = f"another folder; it holds a {runs.kind} of other demand"
        raise not_allowed("out", str(store.folder), other)


def _demand(runs: Runs) -> tuple[Floats, Floats]:
    demand = runs.case if runs.series is None else runs.series
    return demand.pd, demand.qd


def _prior(runs: Runs) -> Json:
    """Return the digest of a file of public demand: a run is not continued with another one."""
    if runs.settings.public_demand is None:
        return {}
    prior = public_demand(runs.case, runs.settings.public_demand)
    spreads = [] if prior.own_spreads is None else [prior.own_spreads]
    return {"public_demand_sha256": _sha256(*prior.mean, *spreads)}


def _sha256(*values: Floats) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def recorded_seed(folder: Path) -> int | None:
    """Return the seed of a started folder, or None if none is recorded."""
    if not (folder / MANIFEST_FILE).exists():
        return None
    manifest = read_manifest(folder)
    seed = (manifest.get("seeds") or [None])[0]
    if manifest["public"] and not manifest["finished"]:
        with suppress(FileNotFoundError):
            seed = read_sealed(_unfinished(folder))["seed"]
    return None if seed is None else int(seed)


def _manifest(runs: Runs, *, public: bool, ledger: str) -> Json:
    """Return the manifest of a run or series.

    A public manifest has no seed, which would reveal the noise, and no digest of demand, which
    could confirm a guess.
    """
    case, series = runs.case.name, runs.series
    settings = runs.settings.effective_values(runs.case.without(runs.settings.outage))
    title = f"A run of {case}" if series is None else f"{case}: {series.source}"
    does = f"this {runs.kind} of {case} release" if public else f"this {runs.kind} of {case} cost"
    question = f"What does {does}, and what does it protect?"
    plan = {
        "settings": {key: value for key, value in settings.items() if key != "seed"},
        "ledger": ledger,
        "seeds": [] if runs.known_seed is None else [runs.known_seed],
        **({} if series is None else {"series": series.source, "steps": list(series.steps)}),
        **({} if public else {"demand_sha256": _sha256(*_demand(runs))}),
        **_prior(runs),
    }
    manifest = header(runs.kind, title, question, plan, len(runs.steps))
    cases = describe({(case, ""): ZonedCase(runs.case, runs.zoning)})
    manifest |= {"cases": cases, "repeat": runs.repeat, "run_id": secrets.token_hex(16)}
    del plan["seeds"]  # a different seed is refused by name
    return record.publish_manifest(manifest) if public else manifest


def _run(number: int) -> str:
    return f"{number:06d}"


def _drawn(number: int | None) -> str:
    """Return the name in the store of a run's releases, or of those for all steps (None)."""
    return ONCE if number is None else f"{_run(number)}-drawn"


def _drawn_tables(releases: Released, planned: Released, *, early: bool) -> Tables:
    rows = [
        {
            "early": early,
            "zone": zone,
            "mechanism": type(release.mechanism).__name__,
            "scale": release.mechanism.scale,
            "sensitivity": release.sensitivity.value,
            "norm": str(release.sensitivity.norm),
            "bound_source": release.sensitivity.bound_source,
            "assumed": release.assumed,
            "share": release.sensitivity.share,
            "count": releases.get(zone, {}).get(release, 0),
            "planned": count,
        }
        for zone, counts in planned.items()
        for release, count in (Counter(counts) | Counter(releases.get(zone, {}))).items()
    ]
    charges = charge_rows(record.certified(planned), record.certified(releases))
    return {"releases": rows, "charges": charges}


def _known_tables(horizon: Horizon, known: DemandEstimates) -> Tables:
    """Return the estimate of demand over all steps from one release."""
    bus_id, zones = horizon.series.case.bus_id, horizon.owned.zones
    return {
        RELEASED: [
            {"zone": zone.name, "bus": int(bus), "pd_pu": p, "qd_pu": q}
            for zone, basis in zip(zones, known, strict=True)
            for bus, p, q in zip(bus_id[zone.own], *basis.mean.reshape(2, -1).tolist(), strict=True)
        ],
        TEMPORAL_COEFFICIENTS: [
            {"zone": zone.name, "cosine": j, "p_pu": p, "q_pu": q}
            for zone, basis in zip(zones, known, strict=True)
            for j, (p, q) in enumerate(basis.temporal_coefficients.T.tolist(), start=1)
        ],
    }


def releases_in(study: Study) -> tuple[Released, Released, int]:
    """Return the releases of every zone in all runs, including those that ended early.

    Drawn ones, planned ones, and the largest number of a zone in interrupted attempts.
    """
    table = _release_rows(study)
    rows = table.to_dict("records")
    early = Counter[str]()
    for row in rows:
        early[row["zone"]] += row["count"] * bool(row["early"])
    return _releases(rows), _releases(rows, "planned"), max(early.values(), default=0)


def _release_rows(study: Study) -> pd.DataFrame:
    return study.tables.get("releases", pd.DataFrame())


def _releases(
    rows: Iterable[Mapping[str, Any]], number: str = "count"
) -> dict[str, Counter[Release]]:
    """Return the releases of every zone."""
    norms: Json = {"1": 1, "2": 2}
    kinds = {kind.__name__: kind for kind in MECHANISMS.values()}
    counts: dict[str, Counter[Release]] = {}
    for row in rows:
        mechanism = make_mechanism(kinds[row["mechanism"]], row["scale"], row["assumed"])
        norm = norms.get(row["norm"], row["norm"])
        sensitivity = Sensitivity(row["sensitivity"], norm, row["bound_source"], row["share"])
        release = Release(mechanism, sensitivity, row["assumed"])
        if count := row[number]:
            counts.setdefault(row["zone"], Counter())[release] += count
    return counts


def _less(releases: Released, part: Released) -> dict[str, Counter[Release]]:
    """Return releases without a part of them."""
    return {z: Counter(own) - Counter(part.get(z, {})) for z, own in releases.items()}
