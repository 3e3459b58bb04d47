"""Parts of a consortium's run: the coordinator's, and a zone agent's.

The coordinator runs the same rounds as in one process, over a network. A zone's agent reads its
files, runs, and writes the outcome for its owner.

A release that left a zone is charged once across restarts, wherever a process ended. The ledger is
charged before a draw; the zone's state is written after it, and its number of releases is noted in
the ledger before one of them is sent. A process killed in between was charged for draws that were
not sent; the process that continues from the state draws them again without a second charge: the
ledger's charges of the run less those in the state. A state with fewer releases than the ledger
notes is an older copy and refused: some of the missing ones may have been sent. The first note, of
0 releases, is written before the first charge. A ledger with charges of the run and without a note
is of an earlier version: all charged releases may have been sent.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from gridpriv.consensus.client import Transcript, ZoneClient, read_state, take_part
from gridpriv.consensus.coordinator import Turn, rounds
from gridpriv.consensus.credentials import Credentials, signer
from gridpriv.consensus.messages import Hello, Order, Reply, Shutdown, encode
from gridpriv.consensus.server import Journal, Server, Turns
from gridpriv.consensus.sessions import LateError, Note, Sessions
from gridpriv.consortium.agreement import Agreement, SharedVariables, zone_member
from gridpriv.consortium.parties import CoordinatorParty, ZoneParty
from gridpriv.core.errors import GridprivError, InputError, check_choice, not_allowed
from gridpriv.core.files import locked_folder, make_folder, read_text, write_text
from gridpriv.core.text import Json, csv_text, json_ready
from gridpriv.grid.case import Case, network_digest, read_network
from gridpriv.grid.scenarios import read_bus_demand
from gridpriv.grid.zoning import Zoning, read_zoning
from gridpriv.power.ac.grid_redispatch import agreed_boundaries
from gridpriv.power.prior import warn_of_demand
from gridpriv.power.zone import Zone
from gridpriv.power.zone_agent import ZoneAgent
from gridpriv.privacy.certificate import all_planned, noise_caveat, zone_certificate
from gridpriv.privacy.ledger import Ledger, ReleaseCharge, read_book
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.release import Charging, Release
from gridpriv.zonal.opening import PhaseExchange, initial_rounds
from gridpriv.zonal.prepared import Prepared, prepare, zone_certificates, zone_datasets

COLUMNS = ("round", "consensus_residual", "consensus_residual_max", "penalty_min", "penalty_max")
CERTIFICATE, CERTIFICATES = "certificate.pem", "certificates"


@dataclass(frozen=True, eq=False)
class CoordinatedRun:
    """A run according to its coordinator; public if messages have noise.

    Attributes
    ----------
    releases : mapping of str to mapping
        Per zone, as stated after the last round, or else those of its replies.
    """

    turns: tuple[Turn, ...]
    releases: Mapping[str, Mapping[Release, int]]


def play(agreement: Agreement, carry: PhaseExchange, note: Note) -> CoordinatedRun:
    """Run the rounds over an exchange, and send all zones the final values."""
    inputs, names = agreement.public_inputs, list(agreement.zones)
    state, plan = initial_rounds(inputs, carry)
    releases: dict[str, Counter[Release]] = {name: Counter() for name in names}

    def counted(orders: Sequence[Order]) -> list[Reply]:
        replies = list(carry("round")(orders))
        for name, reply in zip(names, replies, strict=True):
            releases[name].update(reply.releases)
        return replies

    turns = []
    for turn in rounds(counted, inputs.consensus, state, plan):
        turns.append(turn)
        note("info", "round", number=turn.number, residual=turn.residual)
    last = turns[-1]
    consensus = inputs.consensus
    mean = consensus.spread(consensus.average(last.state.sent))
    rho = consensus.spread(last.penalty)
    parts = zip(consensus.split(mean), consensus.split(rho), strict=True)
    orders = [Order(last.number, w, penalty, 1.0) for w, penalty in parts]
    for name, reply in zip(names, carry("agreed")(orders), strict=True):
        releases[name] |= Counter(reply.releases)  # including those of late answers
    return CoordinatedRun(tuple(turns), releases)


def coordinate(
    agreement: Agreement,
    party: CoordinatorParty,
    folder: Path,
    credentials: Credentials | None,
    note: Note,
) -> CoordinatedRun:
    """Coordinate a run over a network, from its start or from where it was stopped.

    Parameters
    ----------
    folder : Path
        Of its configuration.
    note : callable
        Its event ``listening`` has the ``address`` when zones can connect.

    Raises
    ------
    LateError
        If a zone does not answer in time; it names the zone.
    ZoneError, BudgetError
        If a zone cannot answer.
    LostStateError
        If a zone has answered a turn that the journal does not have.
    InputError
        If the state is another run's, or the address is in use.
    """
    state = folder / party.state
    make_folder(state)
    with locked_folder(state):
        public, sign = agreement.public, signer(credentials)
        if credentials is not None:
            write_text(state / CERTIFICATE, credentials.certificate.decode(), private=False)
        sessions = Sessions(public, note, sign)
        turns = Turns(
            sessions, Journal(state), agreement.public_inputs.start, party.timeout, party.late
        )
        zones, most = len(agreement.zones), max(zone.size for zone in public.zones.values())
        keep = partial(_keep_certificate, state / CERTIFICATES)
        server = Server(sessions, party.listen, credentials, zones, most, keep)
        note("info", "listening", address=server.address, run=agreement.run, zones=zones)
        try:
            outcome = play(agreement, turns.exchange_of, note)
        except GridprivError as error:
            note("error", "stopped", reason=str(error))
            server.close(error)
            raise
        except BaseException:
            server.close(GridprivError("the coordinator was stopped"))
            raise
        try:
            write_report(agreement, outcome, folder / party.report)
        finally:
            server.close(None)
        note("info", "finished", rounds=len(outcome.turns))
    return outcome


def _keep_certificate(folder: Path, zone: str, certificate: bytes) -> None:
    """Store a zone's certificate with the journal, for the verification of its signatures."""
    path = folder / f"{zone}.pem"
    if not path.exists() or path.read_bytes() != certificate:
        make_folder(folder)
        write_text(path, certificate.decode(), private=False)


def report(agreement: Agreement, outcome: CoordinatedRun) -> Json:
    """Return the public report of a run: without noise, its settings only."""
    settings = agreement.settings
    protected = settings.mechanism != "none"
    deltas, number = (settings.release_delta, settings.total_delta), settings.planned_releases()
    certificates = [
        asdict(
            zone_certificate(zone, drawn, agreement.epsilon, *deltas, all_planned(drawn, number))
        )
        for zone, drawn in outcome.releases.items()
        if drawn
    ]
    return {
        "run": agreement.run,
        "case": agreement.case,
        "settings": agreement.agreed_settings,
        "zones": [
            {"zone": zone, "shared": limits.size} for zone, limits in agreement.public.zones.items()
        ],
        "noise": noise_caveat(
            settings.noise_budget, settings.noise, settings.effective_mechanism()
        ),
        "rounds": [dict(zip(COLUMNS, row, strict=True)) for row in _rows(outcome)]
        if protected
        else None,
        "privacy": json_ready(certificates) if protected else None,
    }


def write_report(agreement: Agreement, outcome: CoordinatedRun, folder: Path) -> None:
    """Write the public report: run.json, and rounds.csv if messages have noise."""
    make_folder(folder)
    document = report(agreement, outcome)
    write_text(folder / "run.json", json.dumps(document, indent=2) + "\n", private=False)
    if document["rounds"] is not None:
        write_text(folder / "rounds.csv", csv_text(COLUMNS, _rows(outcome)), private=False)


def _rows(outcome: CoordinatedRun) -> list[tuple[int, float, float, float, float]]:
    return [
        (t.number, t.residual, t.farthest, float(np.min(t.penalty)), float(np.max(t.penalty)))
        for t in outcome.turns
    ]


@dataclass(frozen=True, eq=False)
class ChargedOnce:
    """Charges releases, except those that were charged before and not sent.

    Attributes
    ----------
    paid : Counter of Charge
        Charges without a sent release.
    """

    charge: ReleaseCharge
    owner: str
    paid: Counter[Charge]

    def note_stored(self, releases: int) -> None:
        """Note in the ledger how many releases the zone's state has."""
        if releases:
            self.charge.ledger.note_stored(self.owner, self.charge.run_id, releases)

    def __call__(self, owner: str, releases: Mapping[Release, int]) -> None:
        """Charge the releases that have not been charged."""
        cost = Counter(self.charge.cost(owner, releases))
        covered = cost & self.paid
        self.paid.subtract(covered)
        if rest := cost - covered:
            # a ledger with charges and without this note is of an earlier version
            self.charge.ledger.note_stored(self.owner, self.charge.run_id, 0)
            self.charge.ledger.charge(owner, self.charge.run_id, rest)


def charged_once(
    ledger: Ledger,
    key: Path | None,
    run: str,
    owner: str,
    drawn: Mapping[Release, int],
) -> ChargedOnce:
    """Return the charging of a zone's releases in a run that may have started before.

    Parameters
    ----------
    key : Path or None
        The ledger's.
    drawn : mapping of Release to int
        The releases in the zone's state.

    Raises
    ------
    InputError
        If the state does not match the ledger: continuing would draw sent releases again.
    """
    charge = ReleaseCharge(ledger, run)
    charged: Counter[Charge] = Counter()
    book = read_book(ledger.path, key)
    for _, row in book.charged:
        if row.run == run and row.owner == owner:
            charged.update(dict(row.charges))
    stored, number = Counter(charge.cost(owner, drawn)), sum(drawn.values())
    # without a note, of an earlier version, all charged releases may have been sent
    required = book.stored.get((owner, run), charged.total())
    if stored - charged or number < required:
        raise InputError(
            f"ledger {ledger.path} was charged {charged.total()} releases of {owner!r} in run "
            f"{run!r}, of which {required} may have been sent; the zone's state has "
            f"{number}: one of them is an older copy, or not this run's. Put back the "
            "newer copy; a new run needs another name in the agreement"
        )
    return ChargedOnce(charge, owner, charged - stored)


Serving = Callable[[ZoneClient, Callable[[], bytes]], Shutdown | None]
STATE, SEED, OUTCOME, TRANSCRIPT = "zone", "seed", "outcome.json", "transcript"


@dataclass(frozen=True, eq=False)
class OwnZone:
    """A zone with its own demand only.

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

    def member(self, seed: int, charge: Charging | None) -> ZoneAgent:
        """Return the zone, compiled, with its agent."""
        return zone_member(self.prepared, self.prepared.zones.index(self.zone), seed, charge)


def read_own(agreement: Agreement, party: ZoneParty, folder: Path) -> OwnZone:
    """Return a zone from its files.

    Raises
    ------
    InputError
        If a file is not the agreement's, or the demand is not that of exactly its own buses.

    Warns
    -----
    GridprivWarning
        Of implausible demand, before any release.
    """
    name = str(party.zone)
    check_choice("zone", name, agreement.zones)
    network = read_network(folder / party.network)
    if network_digest(network) != agreement.network:
        raise InputError(
            f"network {folder / party.network} is not the one of the agreement"
            ": use the file of the zone's folder"
        )
    zoning = read_zoning(folder / party.zoning, network)
    case = own_demand(network, zoning, name, folder / party.demand)
    prepared = prepare(case, zoning, replace(agreement.settings, workers=1))
    position = [zone.name for zone in prepared.zones].index(name)
    if not SharedVariables.of(prepared, position).same(agreement.zones[name]):
        raise InputError(
            f"zone {name!r} shares other variables, or starts or weighs them otherwise, than the "
            "agreement says: it was not made for this network and zone map"
            "; make the folders again (gridpriv consortium)"
        )
    own, scale = prepared.zones[position], agreement.settings.load_scale
    warn_of_demand(case.scale_load(scale), f"demand file {folder / party.demand}", scale, own)
    return OwnZone(prepared, own, case)


def own_demand(network: Case, zoning: Zoning, name: str, path: Path) -> Case:
    """Return a network with the demand of one zone, for exactly its buses."""
    check_choice("zone", name, zoning.names)
    own = zoning.members[zoning.names.index(name)]
    given = read_bus_demand(path, network)
    missing = [int(network.bus_id[i]) for i in own if not np.isfinite(given[:, i]).all()]
    foreign = np.setdiff1d(np.flatnonzero(np.isfinite(given).any(axis=0)), own)
    if missing:
        raise InputError(
            f"demand file {path} misses pd_mw or qd_mvar of bus {missing[0]}: give both"
        )
    if len(foreign):
        bus = int(network.bus_id[foreign[0]])
        raise InputError(
            f"demand file {path}: bus {bus} is not in zone {name!r}; leave the row out"
        )
    return replace(network, pd=np.nan_to_num(given[0]), qd=np.nan_to_num(given[1]))


def take_part_as_zone(
    agreement: Agreement,
    party: ZoneParty,
    folder: Path,
    serving: Serving,
    note: Note,
    credentials: Credentials | None = None,
) -> Json:
    """Take part in a run as a zone; return its outcome for the zone, which is local.

    After the first draw an outcome is written however the run ends.

    Parameters
    ----------
    folder : Path
        Of its configuration.
    serving : callable
        Answers requests until the run is over, given the zone's client and its first message
        (:func:`over_network`).
    credentials : Credentials, optional
        To sign messages with.

    Raises
    ------
    InputError
        If a file is wrong, or the coordinator refuses.
    LateError
        If the coordinator does not answer in time, or stopped the run; with the reason.
    GridprivError
        Failure of the zone's answer.
    """
    own, name = read_own(agreement, party, folder), str(party.zone)
    _refuse_uncharged(agreement, party)
    state = folder / party.state
    make_folder(state)
    with ExitStack() as stack:
        stack.enter_context(locked_folder(state))
        charge = _charging(own, agreement, party, folder, stack)
        member = own.member(_seed(agreement, party, state), charge)
        about = {"zone": name, "run": agreement.run}
        if credentials is not None:
            about["certificate"] = credentials.certificate.decode()
        limits, transcript = agreement.request_limits(name), Transcript(state / TRANSCRIPT, about)
        run, agent, signing = agreement.run, member.agent, signer(credentials)
        note_stored = (lambda _: None) if charge is None else charge.note_stored
        client = ZoneClient(
            name, run, agent, limits, state / STATE, signing, transcript, note_stored
        )
        public, settings = agreement.public, json.dumps(agreement.agreed_settings)

        def hello() -> bytes:
            terms = (public.version, public.run, public.topology, settings, client.last)
            return encode(Hello(name, *terms))

        note("info", "ready", zone=name, run=agreement.run, last=str(client.last))
        try:
            _check_end(serving(client, hello), client)
        except GridprivError as error:
            if client.drawn():
                # its privacy cost, without a plan
                stopped = {"status": "stopped", "reason": str(error), "plan": None}
                _write_outcome(state, _certified(own, client) | stopped)
            raise
        document = outcome(own, member, client)
        _write_outcome(state, document)
        note("info", "finished", zone=name, run=agreement.run)
    return document


def over_network(party: ZoneParty, credentials: Credentials | None, note: Note) -> Serving:
    """Return a function that answers a coordinator's requests over a network."""
    return partial(
        take_part,
        address=party.coordinator,
        credentials=credentials,
        timeout=party.timeout,
        beat=party.beat,
        note=note,
    )


def outcome(own: OwnZone, member: ZoneAgent, client: ZoneClient) -> Json:
    """Return a finished run for its zone, with its redispatch; local.

    The redispatch uses the final values and the zone's true demand.
    """
    zone, agent, prepared = own.zone, member.agent, own.prepared
    z = agent.average.copy()
    z[agent.shared] = client.final_values
    (boundary,) = agreed_boundaries(prepared.network, [zone], [z])
    plan = member.plan(boundary)
    assert plan is not None
    base = own.case.base_mva
    return _certified(own, client) | {
        "status": "finished",
        "reason": None,
        "plan": {
            "solved": plan.solved,
            "interchange_mw": base * boundary.interchange,
            "generation_mw": base * float(plan.pg.sum()),
            "shed_mw": base * float(plan.p_shed.sum()),
            "curtailed_mw": base * float(plan.curtailment.sum()),
            "generators": [
                {"row": int(row), "pg_mw": base * float(p), "qg_mvar": base * float(q)}
                for row, p, q in zip(own.case.gen_row[zone.gens], plan.pg, plan.qg, strict=True)
            ],
        },
    }


def _certified(own: OwnZone, client: ZoneClient) -> Json:
    prepared, drawn = own.prepared, {own.zone.name: client.drawn()}
    planned_rounds = prepared.settings.planned_releases()
    planned = {zone: all_planned(counts, planned_rounds) for zone, counts in drawn.items()}
    certificates = zone_certificates(drawn, prepared.settings, prepared.rules, planned)
    return {
        "zone": own.zone.name,
        "run": client.run,
        "rounds": list(client.metrics),
        "privacy": json_ready(list(map(asdict, certificates))),
    }


def _write_outcome(state: Path, document: Json) -> None:
    write_text(state / OUTCOME, json.dumps(document, indent=2) + "\n", private=True)


def _check_end(last: Shutdown | None, client: ZoneClient) -> None:
    """Raise :class:`LateError` where a run ended before the zone had the final values."""
    if last is not None and not last.finished:
        raise LateError(f"zone {client.zone!r}: the run was stopped: {last.reason}")
    if client.final_values is None:
        raise LateError(
            f"zone {client.zone!r}: the coordinator ended the run after {client.last}, before "
            "values were agreed"
        )


def _refuse_uncharged(agreement: Agreement, party: ZoneParty) -> None:
    """Refuse the published sensitivity of secure noise without a ledger.

    Its certified cost depends on the penalties of later rounds, which are not known before: only a
    ledger stops a run that would exceed the owner's grant.
    """
    settings = agreement.settings
    if settings.sensitivity == "published" and settings.noise == "secure" and party.ledger is None:
        raise not_allowed(
            "ledger",
            None,
            "a ledger: with sensitivity published and secure noise the certified "
            "cost of a release is not known before the run",
        )


def _charging(
    own: OwnZone, agreement: Agreement, party: ZoneParty, folder: Path, stack: ExitStack
) -> ChargedOnce | None:
    """Open the zone's ledger and check that the run fits before the first draw."""
    if party.ledger is None:
        return None
    prepared, name = own.prepared, str(party.zone)
    if prepared.rules.noise is None:
        raise InputError(
            "ledger charges releases; this run has none (mechanism none): leave the ledger out"
        )
    adjacency = prepared.settings.protected(own.case)
    (dataset,) = (d for d in zone_datasets(own.case, prepared.zoning, adjacency) if d.owner == name)
    key = None if party.ledger_key is None else folder / party.ledger_key
    ledger = stack.enter_context(Ledger(folder / party.ledger, [dataset], key))
    state = read_state(folder / party.state / STATE)
    drawn = {} if state is None else state.memory.drawn
    charge = charged_once(ledger, key, agreement.run, name, drawn)
    has_drawn = bool(drawn) or charge.paid.total() > 0
    agent, step = own.member(0, None).agent, agreement.public_inputs.step
    release = agent.release(agreement.first_penalty(name), step(1))
    if not has_drawn and release is not None:
        planned = {release: agreement.settings.planned_releases()}
        ledger.plan({name: charge.charge.cost(name, planned)})
    return charge


def _seed(agreement: Agreement, party: ZoneParty, state: Path) -> int:
    """Return the seed of a zone's simulated noise, the same after every restart."""
    if agreement.settings.noise == "secure":
        return 0  # not read
    if party.seed is not None:
        return party.seed
    path = state / SEED
    try:
        return int(read_text(path, "seed"))
    except FileNotFoundError:
        seed = secrets.randbits(64)
        write_text(path, f"{seed}\n", private=True)
        return seed
