"""Attacks on TLS and on frames in it: strangers, a relay between parties, a false server."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from contextlib import contextmanager, suppress
from threading import Thread

import pytest
from parties import Consortium, same_rounds
from test_bad_faith import certificate
from test_faults import Caller, charged, hello, read_pair, with_ledgers

from gridpriv.consensus import server as servers
from gridpriv.consensus.credentials import LENGTH, NAME, Channel, Credentials, tls
from gridpriv.consensus.messages import Refusal, Welcome, decode
from gridpriv.consensus.server import Server
from gridpriv.consensus.sessions import LateError, Sessions
from gridpriv.consortium.agreement import read_agreement
from gridpriv.consortium.parties import make_keys

ZONES = ("1", "2", "3")
IGNORE_NOTES = lambda *_, **__: None  # noqa: E731


@pytest.fixture(scope="module")
def coordinator(template):
    """A server that waits for zones, its folders and its address."""
    agreement = read_agreement(template / NAME / "agreement.json")
    sessions = Sessions(agreement.public, IGNORE_NOTES)
    serving = Server(sessions, "127.0.0.1:0", read_pair(template / NAME), 3, 100)
    serving.folder, serving.sessions = template, sessions
    yield serving
    sessions.close(None)
    serving.stop(0.0)


def connected(address, timeout=5.0):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout)


def is_over(address, *parts, within=5.0):
    """Send bytes, and return True once the other side has ended the connection."""
    with connected(address, within) as plain, suppress(ConnectionError):
        for part in parts:
            plain.sendall(part)
        while plain.recv(1 << 16):
            pass
    return True


def check_undisturbed(serving):
    """No stranger was admitted, nothing remains of the attack, and a member is admitted."""
    assert not any(session.joined for session in serving.sessions.zones.values())
    until = time.monotonic() + 5.0
    while serving._connections and time.monotonic() < until:
        time.sleep(0.01)
    assert not serving._connections
    assert not serving._pending
    caller = Caller.__new__(Caller)
    caller.address, caller.context = (
        serving.address,
        tls(read_pair(serving.folder / "1"), server=False),
    )
    channel = caller.dial()
    channel.send(hello(serving.folder))
    assert isinstance(decode(channel.read()), Welcome)
    channel.close()
    session = serving.sessions.zones["1"]
    while session.connected:
        time.sleep(0.01)
    session.joined = False


# ---- who may shake hands


def shown(folder, who):
    """The context of a client that shows another certificate than it should."""
    own = read_pair(folder / "1")
    if who == "none":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=own.authority.decode())
        return context
    if who == "TLS 1.2":
        context = tls(own, server=False)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context
    if who == "other authority":
        pair = make_keys(ZONES)["1"]
        return tls(Credentials(pair.certificate, pair.key, own.authority), server=False)
    usage, since, until = {
        "expired": ("client", -600, -300),
        "not valid yet": ("client", 300, 600),
        "server's usage": ("server", -1, 60),
        "no usage": ("none", -1, 60),
        "authority's": ("authority", -1, 60),
    }[who]
    return tls(
        Credentials(*certificate(folder, ["1"], usage, since, until), own.authority), server=False
    )


@pytest.mark.parametrize(
    "who",
    [
        "none",
        "other authority",
        "expired",
        "not valid yet",
        "server's usage",
        "no usage",
        "authority's",
        "TLS 1.2",
    ],
)
def test_a_false_certificate_is_not_let_in(coordinator, who):
    caller = Caller.__new__(Caller)
    caller.address, caller.context = coordinator.address, shown(coordinator.folder, who)
    reply = caller.say(hello(coordinator.folder))
    if who in ("no usage", "authority's"):  # which TLS lets pass
        assert isinstance(reply, Refusal | OSError) or reply == []
    else:
        assert isinstance(reply, OSError) or reply == []
    check_undisturbed(coordinator)


def test_no_ticket_lets_a_client_in_again_without_its_certificate(coordinator):
    context = tls(read_pair(coordinator.folder / "1"), server=False)
    secured = context.wrap_socket(connected(coordinator.address), server_hostname=NAME)
    secured.sendall(LENGTH.pack(len(hello(coordinator.folder))) + hello(coordinator.folder))
    assert secured.recv(4)  # tickets come before the first byte
    assert not secured.session.has_ticket
    secured.close()
    while coordinator.sessions.zones["1"].connected:
        time.sleep(0.01)
    coordinator.sessions.zones["1"].joined = False
    check_undisturbed(coordinator)


# ---- handshakes that do not end


def client_hello(folder):
    """The first flight of a zone's handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = tls(read_pair(folder / "1"), server=False)
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=NAME).do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    "how", ["byte by byte", "half", "no answer", "early close", "reset", "long record", "text"]
)
def test_a_handshake_that_does_not_end_is_ended(coordinator, monkeypatch, how):
    monkeypatch.setattr(servers, "PENDING", 0.6)
    monkeypatch.setattr(servers, "SILENT", 0.4)
    first, address = client_hello(coordinator.folder), coordinator.address
    if how == "byte by byte":
        began = time.monotonic()
        with connected(address) as plain, suppress(ConnectionError):
            for byte in first:
                plain.sendall(bytes([byte]))
                time.sleep(0.05)
        assert time.monotonic() - began < 3.0  # the whole of it would take 15 s
    elif how in ("early close", "reset"):
        plain = connected(address)
        plain.sendall(first)
        if how == "reset":
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        plain.close()
    else:
        sent = {
            "half": first[: len(first) // 2],
            "no answer": first,
            "long record": b"\x16\x03\x01\xff\xff" + b"\0" * 100,
            "text": b"GET / HTTP/1.1\r\n\r\n",
        }[how]
        assert is_over(address, sent)
    check_undisturbed(coordinator)


def test_a_connection_that_nobody_ends_ends_by_its_own_deadline(coordinator, monkeypatch):
    """While its socket is handed over to TLS, an end from another thread can be lost."""
    monkeypatch.setattr(servers, "PENDING", 0.5)
    monkeypatch.setattr(servers, "SILENT", 0.4)
    honest = Channel.end
    monkeypatch.setattr(Channel, "end", lambda _: None)
    first = client_hello(coordinator.folder)
    with connected(coordinator.address) as silent, connected(coordinator.address) as half:
        half.sendall(first)
        for plain in (silent, half):
            with suppress(ConnectionError):
                while plain.recv(1 << 16):
                    pass
    monkeypatch.setattr(Channel, "end", honest)
    check_undisturbed(coordinator)


# ---- frames


@pytest.mark.parametrize(
    "how", ["too long", "half a length", "half a message", "empty", "without a farewell"]
)
def test_a_frame_that_is_none_ends_the_connection(coordinator, monkeypatch, how):
    monkeypatch.setattr(servers, "PENDING", 0.6)
    context = tls(read_pair(coordinator.folder / "1"), server=False)
    secured = context.wrap_socket(connected(coordinator.address), server_hostname=NAME)
    content = hello(coordinator.folder)
    secured.sendall(
        {
            "too long": LENGTH.pack(2**32 - 1) + b"x",
            "half a length": b"\1\0",
            "half a message": LENGTH.pack(len(content)) + content[:-1],
            "empty": LENGTH.pack(0),
            "without a farewell": LENGTH.pack(len(content)) + content[:9],
        }[how]
    )
    if how == "without a farewell":
        socket.socket.shutdown(secured, socket.SHUT_WR)  # a FIN without TLS's close_notify
    received = b""
    with suppress(OSError):
        while part := secured.recv(1 << 16):
            received += part
    secured.close()
    if how in ("too long", "empty"):
        assert isinstance(decode(received[LENGTH.size :]), Refusal)
    else:
        assert not received
    check_undisturbed(coordinator)


# ---- a relay between zone and coordinator


END = b"the connection ends here"


class Relay:
    """Relay that forwards the bytes of connections and changes those of zones."""

    def __init__(self, address, change):
        self._there, self._change = address, change
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.recorded = []
        Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        with suppress(OSError):
            while True:
                here = self._listener.accept()[0]
                there = connected(self._there, None)
                number = len(self.recorded)
                self.recorded.append([])
                Thread(target=self._pass, args=(here, there, number), daemon=True).start()
                Thread(target=self._pass, args=(there, here, None), daemon=True).start()

    def _pass(self, source, target, number):
        with suppress(OSError):
            while part := source.recv(1 << 16):
                if number is not None:
                    self.recorded[number].append(part)
                    part = self._change(number, len(self.recorded[number]), part)
                target.sendall(part.removesuffix(END))
                if part.endswith(END):
                    break
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.close()


CHANGES = {
    "repeated": lambda part: part + part,
    "flipped": lambda part: part[:-1] + bytes([part[-1] ^ 1]),
    "cut": lambda part: part[:-3] + END,
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_relay_that_changes_records_only_breaks_connections(
    folder, case14, zones14, in_one_process, how
):
    """The zone calls again and sends the same bytes: nothing is drawn or charged twice."""
    parties = with_ledgers(folder, case14, zones14, 5.0).coordinator()

    def change(number, n, part):
        # in a warm start, and in the second round on the second connection
        return CHANGES[how](part) if (number, n) in ((0, 5), (1, 21)) else part

    relay = Relay(parties.address, change)
    results = parties.zones("1", "3").zones("2", coordinator=relay.address).results()
    relay.close()
    same_rounds(results[NAME], in_one_process)
    assert len(relay.recorded) == 3
    assert [charged(folder, name) for name in ZONES] == [3, 3, 3]


def test_recorded_connections_are_no_use_to_who_replays_them(folder, in_one_process):
    parties = Consortium(folder).coordinator()
    relay = Relay(parties.address, lambda *given: given[-1])
    parties.zones("1", coordinator=relay.address)
    while not parties.notes.get("1") or len(parties.notes["1"].named("answered")) < 1:
        time.sleep(0.01)
    (recorded,) = relay.recorded
    seated = len(parties.notes[NAME].named("seated"))
    for parts in (recorded, recorded[1:], recorded[-1:], recorded[:1] + recorded[-1:]):
        assert is_over(parties.address, *parts)
    assert len(parties.notes[NAME].named("seated")) == seated
    results = parties.zones("2", "3").results()
    relay.close()
    same_rounds(results[NAME], in_one_process)


# ---- a false server


@contextmanager
def false_server(context, act):
    """A server whose every connection, after its handshake, is handed to ``act``."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(plain):
        with suppress(OSError), plain:
            if context is None:
                act(plain)
            else:
                with context.wrap_socket(plain, server_side=True) as secured:
                    act(secured)

    def listen():
        with suppress(OSError):
            while True:
                Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    Thread(target=listen, daemon=True).start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.close()


def gives_up(folder, address):
    """Let zone 1 connect to a server; return its exception and the time."""
    parties = Consortium(folder, timeout=0.8)
    parties._address = address
    parties._here.set()
    began = time.monotonic()
    result = parties.zones("1").result("1")
    assert time.monotonic() - began < 5.0
    assert not parties.notes["1"].named("answered")
    return result


def drip(secured):
    for byte in LENGTH.pack(50) + b"\0" * 50:
        secured.sendall(bytes([byte]))
        time.sleep(0.2)


FALSE_FRAMES = {
    "too long": lambda s: s.sendall(LENGTH.pack(2**32 - 1)) or s.recv(1),
    "cut": lambda s: s.sendall(LENGTH.pack(50) + b"gridpriv"),
    "close": lambda _: None,
    "byte by byte": drip,
    "nothing": lambda s: s.recv(1) and time.sleep(3.0),
    "own words": lambda s: s.sendall(s.recv(1 << 16)) or s.recv(1),
}


@pytest.mark.parametrize("how", FALSE_FRAMES)
def test_a_zone_gives_up_on_false_frames(folder, how):
    context = tls(read_pair(folder / NAME), server=True)
    with false_server(context, FALSE_FRAMES[how]) as address:
        assert isinstance(gives_up(folder, address), LateError)


@pytest.mark.parametrize(
    "who", ["silent", "other authority", "expired", "client's usage", "other name", "TLS 1.2"]
)
def test_a_zone_refuses_a_false_server(folder, who):
    own = read_pair(folder / NAME)
    if who == "silent":
        context = None
    elif who == "TLS 1.2":
        context = tls(own, server=True)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif who == "other authority":
        pair = make_keys(ZONES)[NAME]
        context = tls(Credentials(pair.certificate, pair.key, own.authority), server=True)
    else:
        given = {
            "expired": ([NAME], "server", -600, -300),
            "client's usage": ([NAME], "client"),
            "other name": (["1"], "server"),
        }[who]
        context = tls(Credentials(*certificate(folder, *given), own.authority), server=True)
    received = []

    def act(secured):
        if who == "silent":
            time.sleep(2.0)
        else:
            received.append(secured.recv(1))

    with false_server(context, act) as address:
        result = gives_up(folder, address)
    assert isinstance(result, LateError)
    assert not any(received)  # not even its first message
