"""A coordinator, a member or a stranger in bad faith; each test is a finding of a review."""

from __future__ import annotations

import json
import shutil
import socket
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from parties import LOOPBACK, Consortium, changed, laid_out, same_rounds, settings
from test_faults import Caller, hello

from gridpriv.consensus import server
from gridpriv.consensus.client import ZoneClient
from gridpriv.consensus.credentials import NAME, certificate_name
from gridpriv.consensus.messages import (
    Answer,
    MessageError,
    Order,
    Reply,
    Request,
    Shutdown,
    TurnId,
    Welcome,
    decode,
    encode,
)
from gridpriv.consensus.server import Journal, Turns
from gridpriv.consensus.sessions import (
    DivergedError,
    LateError,
    LostStateError,
    Sessions,
)
from gridpriv.consortium.agreement import read_agreement
from gridpriv.consortium.parties import ZoneParty, credentials, read_party, write_folders
from gridpriv.consortium.take_part import read_own, take_part_as_zone
from gridpriv.core.errors import InputError
from gridpriv.privacy.accounting import epsilon_of
from gridpriv.privacy.ledger import grant
from gridpriv.zonal.prepared import zone_datasets

ZONES = ("1", "2", "3")
IGNORE_NOTES = lambda *_, **__: None  # noqa: E731


def zone_client(folder, agreement, name="1", **more):
    """A zone with its client, and the party of its configuration folder."""
    place = folder / name
    party = read_party(place / "zone.toml", ZoneParty)
    own = read_own(agreement, party, place)
    agent = own.member(1, None).agent
    limits = agreement.request_limits(name)
    return ZoneClient(name, agreement.run, agent, limits, place / "client", **more)


def opening(agreement, name="1"):
    """Every honest request up to the first round, with the penalties that a schedule starts at."""
    limits, own = agreement.request_limits(name), agreement.zones[name]
    penalty = agreement.first_penalty(name)
    turns = [TurnId("warm_start", t) for t in range(1, limits.warm_starts + 1)]
    turns += [TurnId("ready", 1)] * limits.trial
    return [request(agreement, turn, own.start, penalty, name) for turn in turns], penalty


def request(agreement, turn, w, penalty, name="1", step=None):
    given = agreement.public_inputs.step(turn.number) if step is None else step
    return encode(Request(agreement.run, name, turn.phase, Order(turn.number, w, penalty, given)))


# ---- 1: an order beyond the agreement


@pytest.mark.parametrize("update", ["exact", "linearized"])
def test_what_a_release_costs_does_not_follow_from_the_order(case14, zones14, tmp_path, update):
    """Penalty and step set the scale of the noise, not its cost; rounds are as many as agreed."""
    given = {
        "perturbation": "output",
        "mechanism": "laplace",
        "budget": "per-release:1",
        "update": update,
        "rounds": 3,
    }
    folder = laid_out(case14, zones14, tmp_path / "here", **given)
    agreement = read_agreement(folder / "1" / "agreement.json")
    client = zone_client(folder, agreement)
    requests, penalty = opening(agreement)
    for content in requests:
        client.answer(content)
    w = agreement.zones["1"].start
    with pytest.raises(MessageError, match="round 4 of 3"):
        client.answer(request(agreement, TurnId("round", 4), w, penalty))
    assert not client.drawn()
    for number, factor, step in ((1, 1.0, None), (2, 0.5, None), (3, 1.0, 3.0)):
        turn = TurnId("round", number)
        client.answer(request(agreement, turn, w, factor * penalty, step=step))
    assert sum(client.drawn().values()) == 3
    for release in client.drawn():
        assert epsilon_of(release.certified, 1e-5) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("noise", ["simulated", "secure"])
def test_the_published_calibration_of_secure_noise_needs_a_ledger(case14, zones14, tmp_path, noise):
    given = {
        "perturbation": "output",
        "sensitivity": "published",
        "mechanism": "laplace",
        "noise": noise,
        "seed": None,
        "rounds": 3,
    }
    folder = tmp_path / "here"
    write_folders(case14, zones14, settings(**given), "trial", LOOPBACK, folder)
    agreement = read_agreement(folder / "1" / "agreement.json")
    party = read_party(folder / "1" / "zone.toml", ZoneParty)

    def serving(*_):
        raise LateError("nobody")

    allowed = LateError if noise == "simulated" else InputError
    with pytest.raises(allowed, match=r"nobody|a ledger: with sensitivity published"):
        take_part_as_zone(agreement, party, folder / "1", serving, IGNORE_NOTES)
    (dataset,) = (
        d
        for d in zone_datasets(case14, zones14, agreement.settings.protected(case14))
        if d.owner == "1"
    )
    grant(folder / "1" / "ledger", [dataset], 1e9)
    charged = changed(party, ledger="ledger")
    with pytest.raises(LateError, match="nobody"):
        take_part_as_zone(agreement, charged, folder / "1", serving, IGNORE_NOTES)


def test_every_honest_order_is_allowed(case14, zones14, tmp_path):
    """Of every schedule and update: a run over the network is the one in one process."""
    for number, given in enumerate(
        (
            {"update": "linearized", "perturbation": "output", "penalty": "geometric:1,1.5,2,9"},
            {"update": "exact", "perturbation": "output"},
            {"update": "linearized", "perturbation": "objective", "penalty": "2"},
            {"noise_schedule": "once", "rounds": 8, "acceleration": "none"},
            {"noise_schedule": "once", "start": "flat", "acceleration": "none", "rounds": 4},
            {"update": "linearized", "perturbation": "output", "start": "warm"},
            {
                "consensus": "all",
                "mechanism": "none",
                "perturbation": "demand",
                "noise_schedule": None,
            },
        )
    ):
        folder = laid_out(case14, zones14, tmp_path / str(number), **given)
        results = Consortium(folder, secure=False).coordinator().zones(*ZONES).results()
        assert not any(isinstance(r, Exception) for r in results.values()), (given, results)


# ---- 2: an answer that the agreement cannot have


def test_answers_have_the_agreed_size_and_number_of_releases(folder):
    agreement = read_agreement(folder / NAME / "agreement.json")
    limits, sent = agreement.public.zones["1"], agreement.zones["1"].start
    turn, last = TurnId("round", 1), TurnId("agreed", 3)
    agent = zone_client(folder, agreement)._agent
    release = agent.release(np.ones(len(sent)), 1.0)

    def answer(releases, turn=turn, numbers=sent):
        limits.check(Answer("trial", "1", turn, Reply(numbers, releases)))

    answer({release: 1})
    answer({release: 3}, last, np.zeros(0))
    for releases, when, numbers in (
        ({release: 2}, turn, sent),
        ({release: 4}, last, np.zeros(0)),
        ({release: 1}, TurnId("warm_start", 1), sent),
        ({release: 1}, turn, sent[1:]),
        ({}, last, sent),
    ):
        with pytest.raises(MessageError):
            answer(releases, when, numbers)


# ---- 3: connections


def silent(address, count):
    host, _, port = address.rpartition(":")
    return [socket.create_connection((host, int(port)), timeout=5.0) for _ in range(count)]


def test_silent_connections_lock_nobody_out(folder, in_one_process):
    parties = Consortium(folder, timeout=60.0).coordinator()
    idle = silent(parties.address, 900)
    results = parties.zones(*ZONES).results()
    same_rounds(results[NAME], in_one_process)
    for connection in idle:
        connection.close()


def test_connections_that_speak_and_never_finish_end_by_themselves(folder, monkeypatch):
    monkeypatch.setattr(server, "PENDING", 1.0)
    parties = Consortium(folder, timeout=60.0).coordinator()
    (idle, half) = silent(parties.address, 2)
    half.sendall(b"\x16\x03\x01")
    idle.settimeout(10.0)
    half.settimeout(10.0)
    for connection in (half, idle):
        with pytest.raises(ConnectionResetError):
            assert connection.recv(1) == b""
            raise ConnectionResetError
    same = Consortium(folder)
    assert same is not parties
    parties.zones(*ZONES)
    assert not any(isinstance(r, Exception) for r in parties.results().values())


def test_streams_of_one_member_lock_nobody_out(folder, in_one_process):
    parties = Consortium(folder, timeout=60.0).coordinator()
    caller = Caller(parties, "3")
    calls = [caller.dial() for _ in range(30)]  # each says nothing after its handshake
    parties.zones("1", "2")
    for call in calls:
        call.close()
    results = parties.zones("3").results()
    same_rounds(results[NAME], in_one_process)


# ---- 4: a coordinator that makes no progress


def test_a_zone_gives_up_on_a_coordinator_that_only_welcomes_it(folder, monkeypatch):
    honest = Sessions.messages

    def nothing(self, zone, here):
        if zone == "1":
            return
        yield from honest(self, zone, here)

    monkeypatch.setattr(Sessions, "messages", nothing)
    parties = Consortium(folder, timeout=30.0).coordinator().zones("1", timeout=2.0)
    began = time.monotonic()
    assert isinstance(parties.result("1"), LateError)
    assert time.monotonic() - began < 8.0
    assert len(parties.notes["1"].named("welcome")) < 20


def test_a_zone_gives_up_on_a_coordinator_that_repeats_itself(folder, monkeypatch):
    honest = Sessions.messages

    def again(self, zone, here):
        for message in honest(self, zone, here):
            while True:
                yield message

    monkeypatch.setattr(Sessions, "messages", again)
    monkeypatch.setattr(Sessions, "take", lambda *_: None)
    parties = Consortium(folder, timeout=30.0).coordinator().zones("1", timeout=2.0)
    began = time.monotonic()
    assert isinstance(parties.result("1"), LateError)
    assert time.monotonic() - began < 8.0
    assert len(parties.notes["1"].named("answered")) < 20


def test_the_number_of_warm_starts_is_that_of_the_agreement(folder):
    agreement = read_agreement(folder / "1" / "agreement.json")
    client = zone_client(folder, agreement)
    requests, penalty = opening(agreement)
    for content in requests:
        client.answer(content)
    w = agreement.zones["1"].start
    for turn in (TurnId("warm_start", len(requests) + 1), TurnId("warm_start", 1)):
        with pytest.raises(Exception, match="an order for warm-start round"):
            client.answer(request(agreement, turn, w, penalty))


def test_a_coordinator_without_its_state_stops_the_run_of_every_zone(folder):
    parties = Consortium(folder, timeout=20.0).coordinator().zones(*ZONES)
    parties.results()
    shutil.rmtree(folder / NAME / "state")
    again = Consortium(folder, timeout=20.0).coordinator()
    began = time.monotonic()
    results = again.zones(*ZONES).results()
    assert isinstance(results[NAME], LostStateError)
    assert "its state was lost or is an older copy" in str(results[NAME])
    for name in ZONES:
        assert "which the coordinator's journal does not hold" in str(results[name])
    assert time.monotonic() - began < 15.0


# ---- 5: an end before there is anything to agree on


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("finished", [True, False])
def test_an_early_end_loses_no_outcome(folder, case14, zones14, after, finished):
    agreement = read_agreement(folder / "1" / "agreement.json")
    party = changed(read_party(folder / "1" / "zone.toml", ZoneParty), ledger="ledger")
    for dataset in zone_datasets(case14, zones14, settings().adjacency(case14)):
        if dataset.owner == "1":
            grant(folder / "1" / "ledger", [dataset], 9.0)

    def serving(client, hello):
        del hello
        requests, penalty = opening(agreement)
        w = agreement.zones["1"].start
        rounds = [request(agreement, TurnId("round", t), w, penalty) for t in range(1, after + 1)]
        for content in (*requests, *rounds):
            assert isinstance(decode(client.answer(content)), Answer)
        return Shutdown("trial", finished, "" if finished else "the coordinator was stopped")

    with pytest.raises(LateError, match=r"the coordinator ended the run|the run was stopped"):
        take_part_as_zone(agreement, party, folder / "1", serving, IGNORE_NOTES)
    path = folder / "1" / "state" / "outcome.json"
    assert path.exists() == (after > 0)
    if after:
        document = json.loads(path.read_text())
        assert document["status"] == "stopped"
        assert document["plan"] is None
        assert [row["round"] for row in document["rounds"]] == [1, 2]
        assert document["privacy"][0]["releases"] == after


# ---- 6: an answer of another size


def test_a_run_can_go_on_without_a_zone_whose_answers_have_another_size(folder, monkeypatch):
    honest = ZoneClient._execute

    def performed(self, request):
        reply = honest(self, request)
        lies = self.zone == "2" and str(request.turn) == "round 2"
        return Reply(reply.sent[1:], reply.releases) if lies else reply

    monkeypatch.setattr(ZoneClient, "_execute", performed)
    parties = Consortium(folder, timeout=2.0, late="last").coordinator()
    results = parties.zones(*ZONES, timeout=8.0).results()
    assert len(results[NAME].turns) == 3
    refused = [about["reason"] for about in parties.notes[NAME].named("refused")]
    assert any("an answer of" in reason for reason in refused)
    late = [about["turn"] for about in parties.notes[NAME].named("late")]
    assert "round 2" in late


def test_rounds_that_diverge_blame_nobody_and_are_not_journalled(folder):
    agreement = read_agreement(folder / NAME / "agreement.json")
    sessions = Sessions(agreement.public, IGNORE_NOTES)
    own = Turns(sessions, Journal(folder), agreement.public_inputs.start, 1.0, "wait")
    orders = [
        Order(1, zone.start * 1e14 + 1e13, zone.units, 1.0) for zone in agreement.zones.values()
    ]
    with pytest.raises(DivergedError, match="beyond 1e"):
        own.exchange_of("round")(orders)
    assert not (folder / "turns").exists()


# ---- 7 and 8: keys and certificates


def test_a_key_that_others_can_read_is_refused(folder):
    path = folder / "1" / "key.pem"
    party = read_party(folder / "1" / "zone.toml", ZoneParty)
    for mode in (0o644, 0o640, 0o602):
        path.chmod(mode)
        with pytest.raises(InputError, match="can be read or changed by other users"):
            credentials(party, folder / "1", "1", insecure=False)
    path.chmod(0o400)
    assert credentials(party, folder / "1", "1", insecure=False) is not None


def certificate(folder, names, usage, since=-1, until=24 * 60):
    """A certificate that the consortium's authority signed, with these common names.

    Times are minutes from now.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    root = x509.load_pem_x509_certificate((folder / "authority" / "certificate.pem").read_bytes())
    signer = serialization.load_pem_private_key(
        (folder / "authority" / "key.pem").read_bytes(), None
    )
    own = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer_name=root.subject,
        subject_name=x509.Name(
            [x509.NameAttribute(x509.NameOID.COMMON_NAME, name) for name in names]
        ),
        public_key=own.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now + timedelta(minutes=since),
        not_valid_after=now + timedelta(minutes=until),
    )
    ca = usage == "authority"
    builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), True)
    if usage in ("client", "server"):
        purpose = x509.oid.ExtendedKeyUsageOID
        kind = purpose.CLIENT_AUTH if usage == "client" else purpose.SERVER_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([kind]), False)
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return (builder.sign(signer, hashes.SHA256()).public_bytes(pem), own.private_bytes(pem, *plain))


@pytest.mark.parametrize(
    ("names", "usage", "reason"),
    [
        (["2", "1"], "client", "2 common names"),
        (["1", "2"], "client", "2 common names"),
        ([], "client", "0 common names"),
        (["2"], "none", "extended key usage client"),
        (["2"], "server", "extended key usage client"),
        (["2"], "authority", "extended key usage client"),
    ],
)
def test_a_certificate_is_of_one_zone_and_for_clients(folder, names, usage, reason):
    shown, key = certificate(folder, names, usage)
    with pytest.raises(InputError, match=reason):
        certificate_name(shown, "client")
    shutil.copytree(folder / "2", folder / "odd")
    (folder / "odd" / "certificate.pem").write_bytes(shown)
    (folder / "odd" / "key.pem").write_bytes(key)
    parties = Consortium(folder, timeout=10.0).coordinator()
    refusal = Caller(parties, "odd").say(hello(folder, "2"))
    assert reason in str(refusal) or isinstance(refusal, OSError)  # by TLS itself
    assert not parties.notes[NAME].named("seated")
    party = read_party(folder / "odd" / "zone.toml", ZoneParty)
    with pytest.raises(InputError, match=reason):
        credentials(party, folder / "odd", "2", insecure=False)


def test_a_welcome_needs_the_coordinators_certificate_and_orders_its_signature(folder, monkeypatch):
    """Zone 3 cannot sign in the coordinator's place, even past TLS."""
    third = (folder / "3" / "certificate.pem").read_bytes()
    monkeypatch.setattr("gridpriv.consensus.server.Welcome", lambda run, _: Welcome(run, third))
    parties = Consortium(folder, timeout=3.0).coordinator().zones("1", timeout=1.0)
    assert isinstance(parties.result("1"), LateError)
    reasons = [about["reason"] for about in parties.notes["1"].named("lost")]
    assert any("a certificate that is not its own" in reason for reason in reasons)
    assert isinstance(parties.result(NAME), LateError)
    monkeypatch.undo()
    unsigned = Sessions.__init__

    def plain(self, *given, **more):
        unsigned(self, *given, **more)
        self._sign = lambda content: content

    monkeypatch.setattr(Sessions, "__init__", plain)
    again = Consortium(folder, timeout=10.0).coordinator().zones("1", timeout=1.0)
    assert isinstance(again.result("1"), LateError)
    reasons = [about["reason"] for about in again.notes["1"].named("lost")]
    assert "the coordinator sent a message that its sender has not signed" in reasons
