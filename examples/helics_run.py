"""Run three zones in a HELICS co-simulation, with a federate of another simulator.

    python examples/helics_run.py

Needs the extras ``network`` (for the folders' certificates) and ``helics``. The other federate
represents a weather or market simulator; it steps through a second of simulated time.

The transport is in this file, as an example of a transport. Coordinator and zones are message
federates with one endpoint each, ``gridpriv/coordinator`` and ``gridpriv/ZONE``. A zone is granted
time when an order arrives, the coordinator when an answer arrives and at the latest after a period.
Turns therefore take almost no simulated time. HELICS neither encrypts nor authenticates: use it for
simulations only, on one machine or in a private network.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# import casadi before HELICS: otherwise casadi's library uses functions of HELICS's library and
# writes numbers as empty texts: "Duplicate IO name: i" (helics 3.6.1, casadi 3.7)
import casadi  # noqa: F401
import helics

from gridpriv import load_case, make_settings, shipped_zoning
from gridpriv.consensus.client import ZoneClient
from gridpriv.consensus.credentials import digest
from gridpriv.consensus.messages import (
    Answer,
    Exchange,
    Failure,
    Hello,
    MessageError,
    Order,
    Phase,
    Reply,
    Request,
    Shutdown,
    TurnId,
    decode,
    encode,
)
from gridpriv.consensus.sessions import PublicAgreement, RefusedError, ZoneError
from gridpriv.consortium.agreement import read_agreement
from gridpriv.consortium.parties import ZoneParty, notes, read_party, write_folders
from gridpriv.consortium.take_part import CoordinatedRun, play, take_part_as_zone
from gridpriv.core.errors import GridprivError

COORDINATOR = "coordinator"
BROKER = "example"
OPTIONS = f"--federates=1 --broker={BROKER}"  # on other machines: --broker_address=HOST


class Federate:
    """Message federate and endpoint of one party.

    Parameters
    ----------
    party : str
        ``coordinator``, or a zone's name.
    core, options : str
        Type and options of the HELICS core, such as ``zmq`` and ``--broker=HOST``.
    """

    def __init__(self, party: str, core: str = "zmq", options: str = "--federates=1") -> None:
        how = helics.helicsCreateFederateInfo()
        helics.helicsFederateInfoSetCoreTypeFromString(how, core)
        helics.helicsFederateInfoSetCoreInitString(how, options)
        self.federate = helics.helicsCreateMessageFederate(f"gridpriv-{party}", how)
        self._endpoint = helics.helicsFederateRegisterGlobalEndpoint(
            self.federate, f"gridpriv/{party}", ""
        )

    def begin(self) -> None:
        """Enter the co-simulation: returns when all its federates have."""
        helics.helicsFederateEnterExecutingMode(self.federate)

    def send(self, party: str, content: bytes) -> None:
        """Send a message to a party."""
        helics.helicsEndpointSendBytesTo(self._endpoint, content, f"gridpriv/{party}")

    def wait(self, until: float | None = None) -> float:
        """Wait for a message, or until a time; return the granted time."""
        most = helics.HELICS_TIME_MAXTIME if until is None else until
        return float(helics.helicsFederateRequestTime(self.federate, most))

    def messages(self) -> Iterator[tuple[str, bytes]]:
        """Yield the received messages, each with the endpoint of its sender."""
        while helics.helicsEndpointHasMessage(self._endpoint):
            message = helics.helicsEndpointGetMessage(self._endpoint)
            sender = str(helics.helicsMessageGetOriginalSource(message))
            yield sender, bytes(helics.helicsMessageGetBytes(message))

    def leave(self) -> None:
        """Leave the co-simulation."""
        helics.helicsFederateDisconnect(self.federate)
        helics.helicsFederateFree(self.federate)


class FederateServer:
    """Server of the coordinator: sends orders to the zones' federates and returns their replies.

    Parameters
    ----------
    federate : Federate
        Federate of the coordinator, in the co-simulation.
    period : float
        Longest wait for messages, in seconds of simulated time.
    """

    def __init__(self, public: PublicAgreement, federate: Federate, period: float) -> None:
        self._public, self._federate, self._period = public, federate, period
        self._now = 0.0
        for zone, content in self._each(lambda _: True):
            hello = decode(content)
            if not isinstance(hello, Hello) or hello.zone != zone:
                raise MessageError(f"zone {zone!r} began with no first message")
            try:
                public.check(hello)
            except RefusedError as error:
                self.close(error)
                raise

    def carry(self, phase: Phase) -> Exchange:
        """Return a function that sends orders of a phase to the zones and returns their replies."""

        def exchange(orders: Sequence[Order]) -> list[Reply]:
            requests = {
                zone: Request(self._public.run, zone, phase, order)
                for zone, order in zip(self._public.zones, orders, strict=True)
            }
            for zone, request in requests.items():
                self._federate.send(zone, encode(request))
            replies = {zone: self._reply(requests[zone], data) for zone, data in self._each(len)}
            return [replies[zone] for zone in self._public.zones]

        return exchange

    def close(self, error: GridprivError | None) -> None:
        """Send the shutdown to all zones, and leave."""
        for zone in self._public.zones:
            self._federate.send(zone, encode(self._public.shutdown(error)))
        self._federate.wait(self._now + self._period)
        self._federate.leave()

    def _each(self, whole: Callable[[bytes], Any]) -> Iterator[tuple[str, bytes]]:
        """Yield one message of every zone, in the order of arrival."""
        missing = set(self._public.zones)
        while missing:
            self._now = self._federate.wait(self._now + self._period)
            for sender, content in self._federate.messages():
                zone = sender.removeprefix("gridpriv/")
                if zone not in missing or not whole(content):
                    raise MessageError(f"a message of {sender!r} that is not due")
                missing.remove(zone)
                yield zone, content

    def _reply(self, request: Request, content: bytes) -> Reply:
        answer, zone, turn = decode(content), request.zone, TurnId("none", 0)
        if isinstance(answer, Answer | Failure):
            turn = answer.turn
        if isinstance(answer, Failure) and answer.zone == zone:
            raise ZoneError(f"{turn}: zone {zone!r} cannot answer: {answer.reason}")
        if not isinstance(answer, Answer) or (answer.run, answer.zone) != (request.run, zone):
            raise MessageError("an answer for another zone or run")
        if turn != request.turn or answer.request != digest(encode(request), b""):
            raise MessageError(f"an answer to {turn}, or to an order, that is not due")
        self._public.zones[zone].check(answer)
        return answer.reply


def take_part(client: ZoneClient, hello: Callable[[], bytes], federate: Federate) -> Shutdown:
    """Answer requests for a zone in a co-simulation until the run is over."""
    try:
        federate.send(COORDINATOR, hello())
        while True:
            federate.wait()
            for sender, content in federate.messages():
                if sender != f"gridpriv/{COORDINATOR}":
                    raise MessageError(f"a message of {sender!r}, which is no coordinator")
                message = decode(content)
                if isinstance(message, Shutdown):
                    return message
                federate.send(COORDINATOR, client.answer(content))
                if client.failed is not None:
                    raise client.failed
    finally:
        federate.leave()


def coordinate(folder: Path, options: str = OPTIONS, level: str = "info") -> CoordinatedRun:
    """Coordinate a run from configuration folders."""
    agreement = read_agreement(folder / COORDINATOR / "agreement.json")
    federate = Federate(COORDINATOR, "inproc", options)
    federate.begin()
    server = FederateServer(agreement.public, federate, period=0.01)
    outcome = play(agreement, server.carry, notes(COORDINATOR, level))
    server.close(None)
    return outcome


def zone(folder: Path, name: str, options: str = OPTIONS) -> dict[str, Any]:
    """Take part as a zone, from its configuration folder."""
    place = folder / name
    party = read_party(place / "zone.toml", ZoneParty)
    agreement = read_agreement(place / "agreement.json")
    federate = Federate(name, "inproc", options)

    def serving(client: ZoneClient, hello: Callable[[], bytes]) -> Shutdown:
        federate.begin()
        return take_part(client, hello, federate)

    return take_part_as_zone(agreement, party, place, serving, notes(name, "warning"))


def weather(options: str = OPTIONS) -> list[float]:
    """Step the federate of another simulator ten times by a tenth of a second."""
    how = helics.helicsCreateFederateInfo()
    helics.helicsFederateInfoSetCoreTypeFromString(how, "inproc")
    helics.helicsFederateInfoSetCoreInitString(how, options)
    federate = helics.helicsCreateValueFederate("weather", how)
    helics.helicsFederateEnterExecutingMode(federate)
    times = [helics.helicsFederateRequestTime(federate, 0.1 * step) for step in range(1, 11)]
    helics.helicsFederateDisconnect(federate)
    helics.helicsFederateFree(federate)
    return times


def main() -> int:
    """Run three zones of case14 together with the other federate."""
    case = load_case("case14")
    zoning = shipped_zoning(case)
    settings = make_settings(rounds=5, seed=7, solver="clarabel")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "consortium"
        write_folders(case, zoning, settings, "example", "127.0.0.1:0", folder)
        with ThreadPoolExecutor(5) as parties:
            broker = helics.helicsCreateBroker("inproc", "", f"-f 5 --name={BROKER}")
            rounds = parties.submit(coordinate, folder)
            zones = [parties.submit(zone, folder, name) for name in zoning.names]
            other = parties.submit(weather)
            for future in zones:
                plan = future.result()["plan"]
                print(future.result()["zone"], {k: plan[k] for k in ("interchange_mw", "shed_mw")})
            print(
                f"{len(rounds.result().turns)} rounds; the other federate is at "
                f"{other.result()[-1]} s"
            )
            helics.helicsBrokerDisconnect(broker)
    helics.helicsCloseLibrary()
    return 0


if __name__ == "__main__":
    sys.exit(main())
