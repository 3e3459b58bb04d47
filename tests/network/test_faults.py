"""Refused parties, awaited parties, and undisturbed results."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from parties import Consortium, laid_out, same_rounds, settings, total

from gridpriv.consensus import client
from gridpriv.consensus.credentials import NAME, Channel, Credentials, KeySigner, tls, unsigned
from gridpriv.consensus.messages import (
    BEFORE,
    Answer,
    Failure,
    Hello,
    Order,
    Refusal,
    Reply,
    Request,
    Shutdown,
    TurnId,
    Welcome,
    decode,
    encode,
)
from gridpriv.consensus.server import Server
from gridpriv.consensus.sessions import LateError
from gridpriv.consortium.agreement import read_agreement
from gridpriv.consortium.parties import make_keys, write_keys
from gridpriv.core.errors import BudgetError, InputError
from gridpriv.power.ac.grid_redispatch import agreed_boundaries
from gridpriv.privacy.ledger import grant, read_book
from gridpriv.privacy.release import Release
from gridpriv.zonal.prepared import zone_datasets

ZONES = ("1", "2", "3")


class Caller:
    """Somebody with a zone's certificate (or none) who sends whatever they like."""

    def __init__(self, parties, name):
        place, self.address, self.context = parties.folder / name, parties.address, None
        if parties.secure:
            self.context = tls(read_pair(place), server=False)

    def dial(self, timeout=10.0):
        host, _, port = self.address.rpartition(":")
        channel = Channel(socket.create_connection((host, int(port)), timeout), 1 << 16)
        channel.deadline = time.monotonic() + timeout
        if self.context is not None:
            channel.secure(self.context, NAME)
        return channel

    def say(self, *messages, expected=1, timeout=10.0):
        """Send messages, each after ``expected`` answers; return the answers, or the refusal."""
        answers, channel = [], None
        try:
            channel = self.dial(timeout)
            for message in messages:
                channel.send(message)
                for _ in range(expected):
                    if (content := channel.read()) is None:
                        return answers
                    if content[:8] == b"gridpriv" and isinstance(decode(content), Refusal):
                        return decode(content)
                    answers.append(content)
            return answers
        except OSError as error:
            return error
        finally:
            if channel is not None:
                channel.close()


def read_pair(place):
    names = ("certificate.pem", "key.pem", "authority.pem")
    return Credentials(*((place / name).read_bytes() for name in names))


def hello(folder, name="1", **changes):
    agreement = read_agreement(folder / name / "agreement.json")
    public = agreement.public
    given = {
        "zone": name,
        "version": public.version,
        "run": public.run,
        "topology": public.topology,
        "settings": json.dumps(agreement.agreed_settings),
    }
    return encode(Hello(**given | changes))


# ---- who may take part


def replaced(folder, **changes):
    agreement = read_agreement(folder / "1" / "agreement.json").agreed_settings
    return json.dumps(agreement | changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": "0.0.9"}, "its gridpriv is 0.0.9"),
        ({"run": "another"}, "its run is 'another', the coordinator's 'trial'"),
        ({"topology": "00" * 32}, "networks or zone maps differ"),
        ({"settings": "rounds"}, "its setting rounds is 9, the coordinator's 3"),
        ({"zone": "2"}, "a certificate of '1' does not speak for zone '2'"),
        ({"zone": "9"}, "a certificate of '1' does not speak for zone '9'"),
        ({"settings": "no JSON"}, "settings that are no JSON"),
    ],
)
def test_a_zone_with_another_agreement_gets_the_difference_and_others_continue(
    folder, in_one_process, changes, reason
):
    parties = Consortium(folder).coordinator()
    if changes.get("settings") == "rounds":
        changes = {"settings": replaced(folder, rounds=9)}
    refusal = Caller(parties, "1").say(hello(folder, "1", **changes))
    assert reason in refusal.reason
    results = parties.zones(*ZONES).results()
    same_rounds(results[NAME], in_one_process)


def test_an_agent_that_is_refused_ends_with_the_reason(folder):
    path = folder / "2" / "agreement.json"
    path.write_text(path.read_text().replace('"solver": "clarabel"', '"solver": "ipopt"'))
    parties = Consortium(folder, timeout=3.0).coordinator().zones("2")
    result = parties.result("2")
    assert isinstance(result, InputError)
    assert "its setting solver is 'ipopt', the coordinator's 'clarabel'" in str(result)
    assert not parties.notes["2"].named("answered")


def test_other_networks_terms_and_demands_are_refused_before_the_network(folder):
    parties = Consortium(folder, timeout=2.0).coordinator()
    network = folder / "1" / "network.json"
    network.write_text(network.read_text().replace('"base_mva": 100.0', '"base_mva": 101.0'))
    demand = folder / "2" / "demand.csv"
    demand.write_text(demand.read_text() + "1,0.5,0.5\n")
    terms = folder / "3" / "agreement.json"
    document = json.loads(terms.read_text())
    next(item for item in document["zones"] if item["zone"] == "3")["start"][0] = 0.5
    terms.write_text(json.dumps(document))
    results = parties.zones(*ZONES).results()
    assert "is not the one of the agreement" in str(results["1"])
    assert "bus 1 is not in zone '2'" in str(results["2"])
    assert "shares other variables, or starts or weighs them otherwise" in str(results["3"])
    lines = demand.read_text().splitlines()
    demand.write_text("\n".join([lines[0], *lines[2:-1]]))
    assert "misses pd_mw or qd_mvar of bus" in str(parties.zones("2").result("2"))


def test_a_second_agent_for_a_zone_is_refused(folder, in_one_process):
    parties = Consortium(folder).coordinator().zones("1")
    while not parties.notes.get("1", []) or not parties.notes["1"].named("welcome"):
        time.sleep(0.01)
    refusal = Caller(parties, "1").say(hello(folder, "1"))
    assert refusal.reason == "another process takes part for zone '1' already"
    shutil.copytree(folder / "1", folder / "again", ignore=shutil.ignore_patterns("state"))
    second = Consortium(folder)
    second._address = parties.address
    second._here.set()
    result = second.zones("again", timeout=1.0).result("again")
    # its folder's name is no matter: its certificate and configuration say 1
    assert "does not speak for 'again'" in str(result)
    results = parties.zones("2", "3").results()
    same_rounds(results[NAME], in_one_process)


def test_invalid_certificates(folder):
    """Each is refused by its own party, or else by TLS."""
    now = datetime.now(UTC)
    others = make_keys(ZONES)
    old = make_keys(ZONES, 1, now - timedelta(days=3))
    early = make_keys(ZONES, 1, now + timedelta(days=3))
    authority = (folder / "1" / "authority.pem").read_bytes()
    own = (folder / "1" / "certificate.pem").read_bytes(), (folder / "1" / "key.pem").read_bytes()
    parties = Consortium(folder, timeout=0.7).coordinator(timeout=12.0)

    def shown(certificate, key, authority):
        for name, text in zip(
            ("certificate", "key", "authority"), (certificate, key, authority), strict=True
        ):
            (folder / "1" / f"{name}.pem").write_bytes(text)
        return str(parties.zones("1").result("1"))

    def pair(keys, name="1"):
        return keys[name].certificate, keys[name].key

    assert "not signed by its authority" in shown(*pair(others), authority)
    assert "is not its certificate's" in shown(own[0], others["1"].key, authority)
    for keys, word in ((old, "expired on"), (early, "holds from")):
        # an authority of that time, so that nothing but the time is wrong
        root = make_keys(ZONES, 1, now - timedelta(days=3) if keys is old else now + timedelta(3))
        assert word in shown(*pair(root), root["1"].authority)
    assert "does not speak for '1'" in shown(*pair(others, "2"), others["1"].authority)
    assert "not usable" in shown(b"none", b"none", authority)
    # consistent in itself, but of another consortium: the coordinator ends the connection
    message = shown(*pair(others), others["1"].authority)
    assert "waited 0.7 s for the coordinator" in message
    assert "handshake" in message.lower()
    (folder / "1" / "certificate.pem").unlink()
    assert "does not exist" in str(parties.zones("1").result("1"))
    assert not parties.notes[NAME].named("seated")


def test_tls_itself_asks_for_a_certificate_of_the_authority(folder):
    """Past gridpriv's own checks: no certificate, a stranger's, an expired one."""
    parties = Consortium(folder, timeout=4.0).coordinator()
    strangers = make_keys(ZONES)
    own = read_pair(folder / "1")

    def dial(context):
        caller = Caller(parties, "1")
        caller.context = context
        reply = caller.say(hello(folder))
        assert isinstance(reply, OSError) or reply == [], reply

    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(cadata=own.authority.decode())
    dial(bare)
    pair = strangers["1"]
    dial(tls(Credentials(pair.certificate, pair.key, own.authority), server=False))
    old = tls(own, server=False)
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
    dial(old)
    dial(None)
    assert not parties.notes[NAME].named("seated")


def test_a_zones_certificate_is_no_coordinators(folder):
    """A zone that listens at the coordinator's address is refused."""
    shutil.copytree(folder / "coordinator", folder / "false")
    for name in ("certificate.pem", "key.pem"):
        shutil.copy(folder / "3" / name, folder / "false" / name)
    from gridpriv.consensus.sessions import Sessions

    agreement = read_agreement(folder / "1" / "agreement.json")
    sessions = Sessions(agreement.public, lambda *_, **__: None)
    server = Server(sessions, "127.0.0.1:0", read_pair(folder / "false"), 3, 100)
    parties = Consortium(folder, timeout=1.5)
    parties._address = server.address
    parties._here.set()
    assert isinstance(parties.zones("1").result("1"), LateError)
    assert not sessions.zones["1"].joined
    server.close(None)


def test_without_certificates_only_loopback_and_only_on_request(folder):
    parties = Consortium(folder, secure=False)
    result = parties.coordinator(listen="0.0.0.0:0").result(NAME)
    assert "a loopback address" in str(result)
    parties._address = "10.0.0.1:50051"
    parties._here.set()
    assert "a loopback address" in str(parties.zones("1").result("1"))
    text = (folder / "1" / "zone.toml").read_text().replace("certificate =", "# certificate =")
    (folder / "1" / "zone.toml").write_text(text)
    secure = Consortium(folder)
    secure._address = parties._address
    secure._here.set()
    assert "only --insecure-loopback" in str(secure.zones("1").result("1"))


# ---- who is waited for


def test_a_zone_that_never_comes_holds_nobody_past_the_timeout(folder):
    began = time.monotonic()
    parties = Consortium(folder, timeout=2.0).coordinator().zones("1", "3", timeout=60.0)
    results = parties.results()
    assert time.monotonic() - began < 10.0
    assert isinstance(results[NAME], LateError)
    text = "warm-start round 1: the coordinator waited 2 s for zone 2 (not connected)"
    assert str(results[NAME]).startswith(text)
    for name in ("1", "3"):
        assert str(results[name]) == f"zone {name!r}: the run was stopped: {text}"


def silent_from(monkeypatch, place, seconds, name="2"):
    """Let a zone sit on its first answer to a turn."""
    honest, asleep = client.ZoneClient.answer, []

    def answer(self, content):
        result = honest(self, content)
        if self.zone == name and str(self.last) == place and not asleep:
            asleep.append(place)
            time.sleep(seconds)
        return result

    monkeypatch.setattr(client.ZoneClient, "answer", answer)
    return asleep


def test_a_zone_that_falls_silent_is_named_with_the_round(folder, monkeypatch):
    silent_from(monkeypatch, "round 2", 6.0)
    parties = Consortium(folder, timeout=1.5).coordinator().zones(*ZONES, timeout=30.0)
    text = "round 2: the coordinator waited 1.5 s for zone 2 (no answer)"
    assert str(parties.result(NAME)).startswith(text)
    assert text in str(parties.result("1"))


def test_a_round_can_go_on_with_the_last_release_and_it_is_accounted(folder, monkeypatch):
    """The late zone returns, updates its dual, and reports every draw in its last answer."""
    asleep = silent_from(monkeypatch, "round 2", 3.0)
    parties = Consortium(folder, timeout=2.0, late="last").coordinator()
    results = parties.zones(*ZONES, timeout=30.0).results()
    assert asleep
    outcome = results[NAME]
    assert [about["turn"] for about in parties.notes[NAME].named("late")][:1] == ["round 2"]
    assert len(outcome.turns) == 3
    drawn = {name: total(counts) for name, counts in outcome.releases.items()}
    assert drawn["1"] == drawn["3"] == 3
    answered = [row["round"] for row in results["2"]["rounds"]]
    assert drawn["2"] == len(answered)
    assert 2 in answered  # it was drawn, though nobody used it
    # what the zone keeps of its dual is what the coordinator keeps
    state = client.read_state(folder / "2" / "state" / "zone")
    agreement = read_agreement(folder / "2" / "agreement.json")
    part = agreement.public_inputs.consensus.split(outcome.turns[-1].state.dual)[
        list(agreement.zones).index("2")
    ]
    dual = state.memory.at.dual
    assert np.sort(dual[dual != 0.0]) == pytest.approx(np.sort(part[part != 0.0]), rel=1e-12)


@pytest.mark.parametrize("silent", [False, True])
def test_rounds_stop_at_the_tolerance_once_all_have_answered(
    case14, zones14, tmp_path, monkeypatch, silent
):
    folder = laid_out(case14, zones14, tmp_path / "here", rounds=3, tolerance=1e9)
    if silent:
        silent_from(monkeypatch, "round 2", 3.0)
    parties = Consortium(folder, timeout=2.0, late="last").coordinator()
    results = parties.zones(*ZONES, timeout=30.0).results()
    # the second round is the first whose dual residual is known
    assert len(results[NAME].turns) == (3 if silent else 2)
    rounds = [row["round"] for row in results["1"]["rounds"]]
    assert rounds == [turn.number for turn in results[NAME].turns]


def test_a_zone_that_is_lost_can_stop_the_run_at_once(folder, monkeypatch):
    class Gone(BaseException):
        pass

    honest = client.ZoneClient.answer

    def answer(self, content):
        if self.zone == "2" and decode(content).turn == TurnId("round", 2):
            raise Gone
        return honest(self, content)

    monkeypatch.setattr(client.ZoneClient, "answer", answer)
    began = time.monotonic()
    parties = Consortium(folder, timeout=60.0, late="stop").coordinator().zones(*ZONES)
    assert "stopped for zone 2 (not connected)" in str(parties.result(NAME))
    assert "stopped for zone 2" in str(parties.result("3"))
    assert time.monotonic() - began < 20.0


def test_answers_leave_at_fixed_times(folder, in_one_process):
    began = time.monotonic()
    parties = Consortium(folder).coordinator().zones(*ZONES, beat=0.05)
    same_rounds(parties.results()[NAME], in_one_process)
    assert time.monotonic() - began > 24 * 0.05  # 20 warm_starts, 3 rounds, what was agreed


# ---- the ledger


def with_ledgers(folder, case, zoning, epsilon):
    adjacency = settings().adjacency(case)
    for dataset in zone_datasets(case, zoning, adjacency):
        grant(folder / dataset.owner / "ledger", [dataset], epsilon)
    return Consortium(folder, ledger="ledger")


def charged(folder, name):
    return sum(
        count for _, row in read_book(folder / name / "ledger").charged for _, count in row.charges
    )


def test_a_zone_charges_its_own_ledger_once_a_release(folder, case14, zones14, in_one_process):
    parties = with_ledgers(folder, case14, zones14, 5.0).coordinator().zones(*ZONES)
    same_rounds(parties.results()[NAME], in_one_process)
    assert [charged(folder, name) for name in ZONES] == [3, 3, 3]


def test_a_budget_that_does_not_hold_the_run_stops_it_before_it_starts(folder, case14, zones14):
    parties = with_ledgers(folder, case14, zones14, 4.0).coordinator(timeout=2.0)
    result = parties.zones("1").result("1")
    assert isinstance(result, BudgetError)
    assert charged(folder, "1") == 0
    assert not parties.notes[NAME].named("seated")


def test_a_state_that_does_not_go_with_its_ledger_is_refused(folder, case14, zones14):
    parties = with_ledgers(folder, case14, zones14, 50.0).coordinator().zones(*ZONES)
    parties.results()
    shutil.rmtree(folder / "1" / "state")
    again = Consortium(folder, ledger="ledger", timeout=2.0).coordinator()
    assert "the zone's state has 0" in str(again.zones("1").result("1"))
    assert charged(folder, "1") == 3


def test_an_older_ledger_and_state_together_are_refused_by_the_register(folder, case14, zones14):
    parties = with_ledgers(folder, case14, zones14, 50.0)
    older = (folder / "1" / "ledger").read_bytes()
    parties.coordinator().zones(*ZONES).results()
    shutil.rmtree(folder / "1" / "state")
    (folder / "1" / "ledger").write_bytes(older)
    again = Consortium(folder, ledger="ledger", timeout=2.0).coordinator()
    assert "older than" in str(again.zones("1").result("1"))


class Crash(BaseException):
    """A process that ends where it stands."""


@pytest.mark.parametrize(
    ("point", "nth"),
    [("before the charge", 3), ("after it", 1), ("before the state", 3), ("after", 1)],
)
def test_a_zone_that_ends_anywhere_in_a_round_pays_once(
    folder, case14, zones14, in_one_process, monkeypatch, point, nth
):
    """The worst places to be killed at, one by one; its process is started again."""
    from gridpriv.privacy.ledger import Ledger

    left = [nth]
    charge, keep = Ledger.charge, client.ZoneClient._store

    def crash():
        left[0] -= 1
        if not left[0]:
            raise Crash

    def charging(self, owner, *given):
        if owner == "2" and point == "before the charge":
            crash()
        charge(self, owner, *given)
        if owner == "2" and point == "after it":
            crash()

    def keeping(self, state):
        own = self.zone == "2" and state.last.phase == "round"
        if own and point == "before the state":
            crash()
        keep(self, state)
        if own and point == "after":
            crash()

    monkeypatch.setattr(Ledger, "charge", charging)
    monkeypatch.setattr(client.ZoneClient, "_store", keeping)
    parties = with_ledgers(folder, case14, zones14, 5.0).coordinator().zones(*ZONES)
    with pytest.raises(Crash):
        parties.futures["2"].result(60.0)
    results = parties.zones("2").results()
    same_rounds(results[NAME], in_one_process)
    assert [charged(folder, name) for name in ZONES] == [3, 3, 3]


def test_a_coordinator_that_ends_anywhere_goes_on(folder, in_one_process, monkeypatch):
    """Before and after its journal's file of a turn is written, early and late in the run."""
    from gridpriv.consensus.server import Journal

    honest = Journal.write
    points = {3: "before", 9: "after", 21: "before", 22: "after", 24: "after"}
    crashed = []

    def write(self, *given):
        point = points.pop(self._turns, None)
        if point == "before":
            crashed.append(self._turns)
            raise Crash
        honest(self, *given)
        if point == "after":
            crashed.append(self._turns)
            raise Crash

    monkeypatch.setattr(Journal, "write", write)
    monkeypatch.setattr(Server, "close", lambda self, _: self.stop(None))
    parties = Consortium(folder).coordinator()
    address = parties.address
    parties.zones(*ZONES)
    for _ in range(5):
        with pytest.raises(Crash):
            parties.futures[NAME].result(60.0)
        parties.coordinator(listen=address)
    # zones too: who has answered last calls once more, to see whether the run is over
    same_rounds(parties.results()[NAME], in_one_process)
    assert len(crashed) == 5


# ---- what crosses


def wire(monkeypatch, drop=None):
    """Record every byte that zones hand to the network, by address and zone.

    By address: a zone of another run may still be calling a coordinator that has left. With
    ``drop``, the connection of zone 2 breaks once it has answered that turn.
    """
    from gridpriv.consensus import client

    sent, breaks = {}, [] if drop is None else [drop]
    honest_messages, honest_send = client._Connection.messages, client._Connection.send

    def record(line, content):
        message = decode(content)
        sent.setdefault(line._address, {}).setdefault(message.zone, []).append(content)
        return message

    def messages(self, first, deadline):
        record(self, first)
        return honest_messages(self, first, deadline)

    def send(self, content):
        text = record(self, content)
        honest_send(self, content)
        if text.zone == "2" and text.turn in breaks:
            breaks.remove(text.turn)
            self._channel.end()

    monkeypatch.setattr(client._Connection, "messages", messages)
    monkeypatch.setattr(client._Connection, "send", send)
    return sent


def messages_once(messages):
    """Messages of a zone: its first message, then each answer once.

    A connection may break, and the zone connects again. It then repeats only earlier messages: its
    first message with the turn that it answered last, and that answer, byte for byte.
    """
    first, last, answers = decode(messages[0]), BEFORE, {}
    assert first.last == BEFORE
    for content in messages:
        message = decode(content)
        if isinstance(message, Hello):
            assert content == encode(replace(first, last=last))
        else:
            assert answers.setdefault(message.turn, content) == content
            last = message.turn
    # keys, and with them signatures, are other ones in the other run
    return messages[0], [unsigned(item, decode(item).signature) for item in answers.values()]


CALLS = {"seated": {"zone", "last"}, "left": {"zone"}, "welcome": {"run"}, "lost": {"reason"}}


def logged(notes):
    """Log entries of a party, once each, except calls; of those only the number of the last turn.

    Without order: threads of a coordinator log concurrently.
    """
    for _, event, about in notes:
        assert about.keys() == CALLS.get(event, about.keys())
    return {
        str((level, event, {k: v for k, v in about.items() if k != "address"}))
        for level, event, about in notes
        if event not in CALLS
    }


@pytest.mark.parametrize("perturbation", ["demand", "objective", "output"])
def test_every_byte_is_a_function_of_releases(case14, zones14, tmp_path, monkeypatch, perturbation):
    """Other demand everywhere, the same released values: same bytes, same logs, same report.

    So it is where a connection breaks in one of the two runs.
    """
    tape: dict[tuple[str, int], np.ndarray] = {}
    honest = Release.apply
    values = {}

    def runs(name, case, apply, drop=None):
        monkeypatch.setattr(Release, "apply", apply)
        folder = laid_out(case, zones14, tmp_path / name, perturbation=perturbation)
        sent = wire(monkeypatch, drop)
        parties = Consortium(folder).coordinator().zones(*ZONES)
        results = parties.results()
        assert results[NAME].turns, results
        report = (folder / NAME / "report" / "run.json").read_bytes()
        logs = {party: logged(notes) for party, notes in parties.notes.items()}
        monkeypatch.undo()
        return sent[parties.address], logs, report, results

    def key(stream):
        generator = stream()
        return generator.bit_generator.state["state"]["state"]

    def recorded(self, value, stream):
        result = honest(self, value, stream)
        tape[key(stream)] = result
        values[key(stream)] = value
        return result

    def replayed(_, value, stream):
        assert not np.array_equal(value, values[key(stream)])
        return tape[key(stream)]

    here = runs("here", case14, recorded)
    rng = np.random.default_rng(3)
    other = replace(
        case14, pd=rng.uniform(0.0, 0.3, case14.n_bus), qd=rng.uniform(0.0, 0.1, case14.n_bus)
    )
    there = runs("there", other, replayed, drop=TurnId("round", 2))
    assert here[0].keys() == there[0].keys() == set(ZONES)
    for name in ZONES:
        assert messages_once(here[0][name]) == messages_once(there[0][name])
        assert here[3][name]["plan"] != there[3][name]["plan"]
    assert len([1 for content in there[0]["2"] if isinstance(decode(content), Hello)]) > 1
    assert here[1] == there[1]
    assert here[2] == there[2]


def test_what_a_zone_does_next_is_its_redispatch_by_what_was_agreed(
    folder, in_one_process, case14, zones14
):
    """Against the plan that one process makes from all zones' averages."""
    from gridpriv.zonal.prepared import prepare
    from gridpriv.zonal.run import NoiseStreams, ZoneAgentFactory

    results = Consortium(folder).coordinator().zones(*ZONES).results()
    done = in_one_process
    prepared = prepare(case14, zones14, settings())
    averages = [item.z for item in done.outcomes]
    agreed = agreed_boundaries(prepared.network, prepared.zones, averages)
    factory = ZoneAgentFactory(
        prepared.zones,
        prepared.shared,
        prepared.rules,
        "clarabel",
        NoiseStreams(11),
        prepared.disclosures,
        None,
        prepared.settings,
    )
    for position, zone in enumerate(prepared.zones):
        (member,) = factory.make([position])
        member.set_iterate(averages[position])
        plan, text = member.plan(agreed[position]), results[zone.name]["plan"]
        base = case14.base_mva
        assert text["interchange_mw"] == pytest.approx(base * agreed[position].interchange)
        assert text["shed_mw"] == pytest.approx(base * plan.p_shed.sum(), abs=1e-3)
        assert text["generation_mw"] == pytest.approx(base * plan.pg.sum(), abs=1e-2)


# ---- garbage


def garbage(folder, count, party="1", seed=1):
    """Messages with something wrong, of every kind that somebody with a certificate can send."""
    rng = np.random.default_rng(seed)
    size = read_agreement(folder / "1" / "agreement.json").public.zones["1"].size
    answer = Answer("trial", "1", TurnId("warm_start", 1), Reply(np.zeros(size), {}))
    key = KeySigner((folder / party / "key.pem").read_bytes())

    def sign(message):
        return key(encode(message))

    whole = sign(answer)
    nan = np.zeros(size)
    nan[0] = np.nan
    kinds = [
        lambda: whole[: rng.integers(len(whole))],
        lambda: whole + rng.bytes(int(rng.integers(1, 50))),
        lambda: whole[:8] + bytes([int(rng.integers(2, 255))]) + whole[9:],
        lambda: sign(Answer("trial", "1", TurnId("warm_start", 1), Reply(nan, {}))),
        lambda: sign(Answer("trial", "2", TurnId("warm_start", 1), Reply(np.zeros(size), {}))),
        lambda: sign(Answer("last", "1", TurnId("warm_start", 1), Reply(np.zeros(size), {}))),
        lambda: sign(Answer("trial", "1", TurnId("round", 1), Reply(np.zeros(size), {}))),
        lambda: sign(Answer("trial", "1", TurnId("warm_start", 7), Reply(np.zeros(size), {}))),
        lambda: sign(Answer("trial", "1", TurnId("warm_start", 1), Reply(np.zeros(size + 1), {}))),
        lambda: sign(Failure("trial", "2", TurnId("warm_start", 1), "solver")),
        lambda: sign(Failure("trial", "1", TurnId("round", 3), "solver")),
        lambda: sign(Welcome("trial")),
        lambda: sign(Shutdown("trial", True, "")),
        lambda: sign(Request("trial", "1", "round", Order(1, np.ones(1), np.ones(1), 1.0))),
        lambda: hello(folder),
        lambda: rng.bytes(int(rng.integers(0, 3000))),
    ]
    for number in range(count):
        yield kinds[number % len(kinds)]()
    yield bytes(1 << 20)  # larger than any message may be


def throw(folder, in_one_process, count):
    parties = Consortium(folder, timeout=120.0).coordinator().zones("2", "3")
    caller = Caller(parties, "1")
    for message in garbage(folder, count):
        # an order is waiting after the welcome; the place of the message before is free once its
        # connection has ended
        while getattr(reply := caller.say(hello(folder), message, expected=2), "taken", False):
            pass
        ended = isinstance(reply, OSError) and len(message) == 1 << 20  # before all of it is sent
        assert ended or (isinstance(reply, Refusal) and not reply.taken), (reply, message[:100])
    results = parties.zones("1").results()
    assert not isinstance(results["1"], Exception), results
    same_rounds(results[NAME], in_one_process)


def test_garbage_of_a_zone_is_refused_and_nobody_is_disturbed(folder, in_one_process):
    throw(folder, in_one_process, 48)


@pytest.mark.slow
def test_a_thousand_malformed_messages(folder, in_one_process):
    throw(folder, in_one_process, 1000)


def test_garbage_of_a_coordinator_is_refused_and_the_agent_lives(folder, monkeypatch):
    """A coordinator that sends garbage first: the agent logs it and continues the run."""
    from gridpriv.consensus.sessions import Sessions

    honest, left = Sessions.messages, list(garbage(folder, 32, NAME))[:-1]
    left = [m for m in left if m[:8] != b"gridpriv" or not _ends_or_welcomes(m)]
    count = len(left)

    def messages(self, zone, here):
        if zone == "1" and left:
            yield left.pop()
            return
        yield from honest(self, zone, here)

    monkeypatch.setattr(Sessions, "messages", messages)
    monkeypatch.setattr("gridpriv.consensus.client.PAUSES", (0.01,))
    parties = Consortium(folder, timeout=60.0).coordinator().zones(*ZONES)
    results = parties.results()
    assert len(results[NAME].turns) == 3
    assert len(parties.notes["1"].named("lost")) == count
    assert results["1"]["rounds"]


def _ends_or_welcomes(message):
    try:
        return isinstance(decode(message), Shutdown | Welcome)
    except Exception:
        return False


def test_keys_are_their_owners_alone(tmp_path):
    parties = make_keys(["a"])
    write_keys(tmp_path, parties)
    assert (tmp_path / "a" / "key.pem").stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in repr(parties["a"]).encode()
    for name in ("coordinator", "a/b", "", "x" * 65, ".."):
        with pytest.raises(InputError, match="zone"):
            make_keys([name])
