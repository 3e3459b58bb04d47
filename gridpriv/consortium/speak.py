"""A zone's agent: what it knows, where it keeps it, and what it tells its owner."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from gridpriv.consensus.grpc_transport import Credentials, attend
from gridpriv.consensus.speaker import Speaker, read_standing
from gridpriv.consensus.table import LateError, Note
from gridpriv.consensus.wire import Farewell, Hello, encode
from gridpriv.consortium.charged import charged_once
from gridpriv.consortium.parties import ZoneParty
from gridpriv.consortium.terms import Shared, Terms
from gridpriv.core.document import Json
from gridpriv.core.errors import InputError, one_of
from gridpriv.core.files import make_folder, write_text
from gridpriv.core.lock import held
from gridpriv.core.reading import read_text
from gridpriv.core.text import json_ready
from gridpriv.grid.case import Case
from gridpriv.grid.network_file import network_digest, read_network
from gridpriv.grid.overrides import read_bus_demand
from gridpriv.grid.zoning import Zoning, read_zoning
from gridpriv.power.ac.settle import agreed_boundaries
from gridpriv.power.fleet import Fleet, ZoneMember
from gridpriv.power.zone import Zone
from gridpriv.privacy.ledger import Ledger
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Charging
from gridpriv.zonal.checks import zone_statements
from gridpriv.zonal.datasets import zone_datasets
from gridpriv.zonal.prepared import Prepared, prepare

Attending = Callable[[Speaker, Callable[[], bytes]], Farewell | None]
STANDING, SEED, OUTCOME = "standing", "seed", "outcome.json"


@dataclass(frozen=True, eq=False)
class Own:
    """A zone with its own demand, and nobody else's.

    Attributes
    ----------
    prepared : Prepared
        On a case whose demand is 0 elsewhere.
    case : Case
        The same before any scaling.
    """

    prepared: Prepared
    zone: Zone
    case: Case

    def member(self, seed: int, charge: Charging | None) -> ZoneMember:
        """Return the zone, compiled, with its agent."""
        prepared = self.prepared
        position = prepared.zones.index(self.zone)
        fleet = Fleet(
            (self.zone,), (prepared.shared[position],), prepared.rules, prepared.settings.solver,
            NoiseStreams(seed), (prepared.disclosure(self.zone),), charge, prepared.settings,
            prepared.accuracy,
        )  # fmt: skip
        (member,) = fleet.members([0])
        assert isinstance(member, ZoneMember)
        return member


def read_own(terms: Terms, party: ZoneParty, folder: Path) -> Own:
    """Return a zone by its files.

    Raises
    ------
    InputError
        If a file is not what the terms say, or the demand is not that of exactly its own buses.
    """
    name = str(party.zone)
    one_of("zone", name, terms.zones)
    network = read_network(folder / party.network)
    if network_digest(network) != terms.network:
        raise InputError(f"network {folder / party.network} is not the one of the terms")
    zoning = read_zoning(folder / party.zoning, network)
    case = own_demand(network, zoning, name, folder / party.demand)
    prepared = prepare(case, zoning, replace(terms.settings, workers=1))
    place = [zone.name for zone in prepared.zones].index(name)
    if not Shared.of(prepared, place).same(terms.zones[name]):
        raise InputError(
            f"zone {name!r} shares other variables, or starts or weighs them otherwise, than the "
            "terms say: they were not made for its network and zone map"
        )
    return Own(prepared, prepared.zones[place], case)


def own_demand(network: Case, zoning: Zoning, name: str, path: Path) -> Case:
    """Return a network with the demand of one zone, of each of its buses and no other."""
    one_of("zone", name, zoning.names)
    own = zoning.members[zoning.names.index(name)]
    given = read_bus_demand(path, network)
    missing = [int(network.bus_id[i]) for i in own if not np.isfinite(given[:, i]).all()]
    others = np.setdiff1d(np.flatnonzero(np.isfinite(given).any(axis=0)), own)
    if missing:
        raise InputError(f"demand file {path} misses pd_mw or qd_mvar of bus {missing[0]}")
    if len(others):
        bus = int(network.bus_id[others[0]])
        raise InputError(f"demand file {path}: bus {bus} is not in zone {name!r}")
    return replace(network, pd=np.nan_to_num(given[0]), qd=np.nan_to_num(given[1]))


def speak(terms: Terms, party: ZoneParty, folder: Path, attending: Attending, note: Note) -> Json:
    """Take part in a run as a zone; return what it means to the zone, which is local.

    Parameters
    ----------
    folder : Path
        Of its configuration.
    attending : callable
        Speaks for the zone, given its speaker and what it begins with (:func:`over_grpc`).

    Raises
    ------
    InputError
        If a file is wrong, or the coordinator refuses.
    LateError
        If the coordinator is waited for in vain, or stopped the run; it says for whom.
    GridprivError
        What kept the zone from answering.
    """
    own, name = read_own(terms, party, folder), str(party.zone)
    state = folder / party.state
    make_folder(state)
    with ExitStack() as stack:
        stack.enter_context(held(state))
        charge = _charging(own, terms, party, folder, stack)
        member = own.member(_seed(terms, party, state), charge)
        speaker = Speaker(name, terms.run, member.agent, terms.settings.rounds, state / STANDING)
        public = terms.public
        settings = json.dumps(terms.agreed_settings)

        def hello() -> bytes:
            told = (public.version, public.run, public.topology, settings, speaker.last)
            return encode(Hello(name, *told))

        note("info", "ready", zone=name, run=terms.run, last=str(speaker.last))
        last = attending(speaker, hello)
        if last is not None and not last.finished:
            raise LateError(f"zone {name!r}: the run was stopped: {last.reason}")
        document = outcome(own, member, speaker)
        write_text(state / OUTCOME, json.dumps(document, indent=2) + "\n", private=True)
        note("info", "finished", zone=name, run=terms.run)
    return document


def over_grpc(
    terms: Terms, party: ZoneParty, credentials: Credentials | None, note: Note
) -> Attending:
    """Return what speaks for a zone over gRPC."""
    size = terms.public.sizes.get(str(party.zone), 0)
    return partial(
        attend, address=party.coordinator, credentials=credentials, variables=size,
        patience=party.timeout, beat=party.beat, note=note,
    )  # fmt: skip


def outcome(own: Own, member: ZoneMember, speaker: Speaker) -> Json:
    """Return a run as its zone sees it, with what it would do now; local.

    The zone acts on what was agreed: its AC recourse with its true demand.
    """
    zone, agent, prepared = own.zone, member.agent, own.prepared
    z = agent.average.copy()
    assert speaker.agreed is not None
    z[agent.shared] = speaker.agreed
    (boundary,) = agreed_boundaries(prepared.network, [zone], [z])
    plan = member.plan(boundary)
    assert plan is not None
    base = own.case.base_mva
    drawn = {zone.name: agent.drawn()}
    statements = zone_statements(drawn, prepared.settings, prepared.rules)
    return {
        "zone": zone.name,
        "run": speaker.run,
        "rounds": list(speaker.figures),
        "privacy": json_ready([asdict(one) for one in statements]),
        "plan": {
            "solved": plan.solved,
            "interchange_mw": base * boundary.interchange,
            "generation_mw": base * float(plan.pg.sum()),
            "shed_mw": base * float(plan.p_shed.sum()),
            "spill_mw": base * float(plan.spill.sum()),
            "generators": [
                {"row": int(row), "pg_mw": base * float(p), "qg_mvar": base * float(q)}
                for row, p, q in zip(own.case.gen_row[zone.gens], plan.pg, plan.qg, strict=True)
            ],
        },
    }


def _charging(
    own: Own, terms: Terms, party: ZoneParty, folder: Path, stack: ExitStack
) -> Charging | None:
    """Open the zone's ledger and see that the run fits before anything is drawn."""
    if party.ledger is None:
        return None
    prepared, name = own.prepared, str(party.zone)
    if prepared.rules.noise is None:
        raise InputError("ledger charges releases; this run has none (mechanism none)")
    adjacency = prepared.settings.protected(own.case)
    (dataset,) = (
        one for one in zone_datasets(own.case, prepared.zoning, adjacency) if one.owner == name
    )
    key = None if party.ledger_key is None else folder / party.ledger_key
    ledger = stack.enter_context(Ledger(folder / party.ledger, [dataset], key))
    found = read_standing(folder / party.state / STANDING)
    most = terms.settings.local_updates
    kept = None if found is None else found.memory.drawn
    charge = charged_once(ledger, key, terms.run, name, kept, most)
    begun = bool(kept) or charge.paid.total() > 0
    if not begun and prepared.rules.perturbation.target != "output":
        # any penalty and step: only output perturbation reads them
        agent = own.member(0, None).agent
        release = agent.release(np.ones(int(agent.shared.sum())), 1.0)
        if release is not None:
            planned = {release: terms.settings.planned_releases()}
            ledger.plan({name: charge.charge.cost(name, planned)})
    return charge


def _seed(terms: Terms, party: ZoneParty, state: Path) -> int:
    """Return the seed of a zone's simulated noise, the same after every restart."""
    if terms.settings.noise == "secure":
        return 0  # nobody reads it
    if party.seed is not None:
        return party.seed
    path = state / SEED
    try:
        return int(read_text(path, "seed"))
    except FileNotFoundError:
        seed = secrets.randbits(64)
        write_text(path, f"{seed}\n", private=True)
        return seed
