"""The same messages as HELICS federates: a run inside a co-simulation with others' simulators.

Coordinator and zones are message federates with one endpoint each, ``gridpriv/coordinator`` and
``gridpriv/ZONE``. A zone is granted time when an order comes, the coordinator when an answer comes
and at the latest after a period; so turns take next to none of the co-simulation's time. HELICS
encrypts nothing and asks nobody who they are: it is for simulations, on one machine or in a
network that is one's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gridpriv.consensus.messages import Exchange, Order, Phase, Reply
from gridpriv.consensus.speaker import Speaker
from gridpriv.consensus.table import Public, RefusedError, ZoneError
from gridpriv.consensus.wire import (
    Answer,
    Asked,
    Failure,
    Farewell,
    Hello,
    MessageError,
    Place,
    decode,
    encode,
)
from gridpriv.core.errors import GridprivError, missing_extra

if TYPE_CHECKING:
    from typing import TypeAlias

    Federate: TypeAlias = Any  # helics has no types of its own

COORDINATOR = "coordinator"


class Seat:
    """One party's federate and endpoint.

    Parameters
    ----------
    party : str
        ``coordinator``, or a zone's name.
    core, options : str
        Type and options of the HELICS core, such as ``zmq`` and ``--broker=HOST``.
    """

    def __init__(self, party: str, core: str = "zmq", options: str = "--federates=1") -> None:
        self._helics = load()
        how = self._helics.helicsCreateFederateInfo()
        self._helics.helicsFederateInfoSetCoreTypeFromString(how, core)
        self._helics.helicsFederateInfoSetCoreInitString(how, options)
        self.federate: Federate = self._helics.helicsCreateMessageFederate(f"gridpriv-{party}", how)
        self._endpoint = self._helics.helicsFederateRegisterGlobalEndpoint(
            self.federate, f"gridpriv/{party}", ""
        )

    def begin(self) -> None:
        """Enter the co-simulation: returns when all its federates have."""
        self._helics.helicsFederateEnterExecutingMode(self.federate)

    def send(self, party: str, content: bytes) -> None:
        """Send a message to a party."""
        self._helics.helicsEndpointSendBytesTo(self._endpoint, content, f"gridpriv/{party}")

    def wait(self, until: float | None = None) -> float:
        """Let time pass until a message comes, or until a time; return the time that is granted."""
        most = self._helics.HELICS_TIME_MAXTIME if until is None else until
        return float(self._helics.helicsFederateRequestTime(self.federate, most))

    def messages(self) -> Iterator[tuple[str, bytes]]:
        """Yield what has come: the endpoint that sent it, and the message."""
        while self._helics.helicsEndpointHasMessage(self._endpoint):
            message = self._helics.helicsEndpointGetMessage(self._endpoint)
            sender = str(self._helics.helicsMessageGetOriginalSource(message))
            yield sender, bytes(self._helics.helicsMessageGetBytes(message))

    def leave(self) -> None:
        """Leave the co-simulation."""
        self._helics.helicsFederateDisconnect(self.federate)
        self._helics.helicsFederateFree(self.federate)


class Meeting:
    """The coordinator's side: carries orders to the zones' federates and their replies back.

    Parameters
    ----------
    seat : Seat
        The coordinator's, in the co-simulation.
    period : float
        Seconds of the co-simulation's time after which it asks again for what has come.
    """

    def __init__(self, public: Public, seat: Seat, period: float) -> None:
        self._public, self._seat, self._period = public, seat, period
        self._now = 0.0
        for zone, content in self._each(lambda _: True):
            hello = decode(content)
            if not isinstance(hello, Hello) or hello.zone != zone:
                raise MessageError(f"zone {zone!r} began with no message to begin with")
            try:
                public.check(hello)
            except RefusedError as error:
                self.close(error)
                raise

    def carry(self, phase: Phase) -> Exchange:
        """Return what carries orders of a kind to the zones and their replies back."""

        def exchange(orders: Sequence[Order]) -> list[Reply]:
            place = Place(phase, orders[0].number)
            for zone, order in zip(self._public.sizes, orders, strict=True):
                self._seat.send(zone, encode(Asked(self._public.run, phase, order)))
            found = {zone: self._reply(zone, place, told) for zone, told in self._each(len)}
            return [found[zone] for zone in self._public.sizes]

        return exchange

    def close(self, error: GridprivError | None) -> None:
        """Tell all zones that the run is over, and leave."""
        for zone in self._public.sizes:
            self._seat.send(zone, self._public.farewell(error))
        self._seat.wait(self._now + self._period)
        self._seat.leave()

    def _each(self, whole: Callable[[bytes], Any]) -> Iterator[tuple[str, bytes]]:
        """Yield one message of every zone, as they come."""
        missing = set(self._public.sizes)
        while missing:
            self._now = self._seat.wait(self._now + self._period)
            for sender, content in self._seat.messages():
                zone = sender.removeprefix("gridpriv/")
                if zone not in missing or not whole(content):
                    raise MessageError(f"a message of {sender!r} that is not due")
                missing.remove(zone)
                yield zone, content

    def _reply(self, zone: str, place: Place, content: bytes) -> Reply:
        told = decode(content)
        if isinstance(told, Failure) and told.zone == zone:
            raise ZoneError(f"{place}: zone {zone!r} cannot answer: {told.reason}")
        if not isinstance(told, Answer) or (told.run, told.zone) != (self._public.run, zone):
            raise MessageError("an answer for another zone or run")
        if told.place != place:
            raise MessageError(f"an answer to {told.place}, which is not due")
        self._public.check_size(told)
        return told.reply


def attend(speaker: Speaker, hello: Callable[[], bytes], seat: Seat) -> Farewell:
    """Speak for a zone in a co-simulation until the run is over.

    Raises
    ------
    MessageError
        For what is no order that is due.
    GridprivError
        What kept the zone from answering.
    """
    try:
        seat.send(COORDINATOR, hello())
        while True:
            seat.wait()
            for sender, content in seat.messages():
                if sender != f"gridpriv/{COORDINATOR}":
                    raise MessageError(f"a message of {sender!r}, which is no coordinator")
                told = decode(content)
                if isinstance(told, Farewell):
                    return told
                seat.send(COORDINATOR, speaker.answer(content))
                if speaker.failed is not None:
                    raise speaker.failed
    finally:
        seat.leave()


def load() -> Any:
    """Return the helics module.

    Raises
    ------
    InputError
        Where the ``helics`` extra is not installed.
    """
    try:
        # loaded after HELICS, casadi's library takes functions of its own from HELICS's and
        # writes numbers as nothing: "Duplicate IO name: i" (helics 3.6.1, casadi 3.7)
        import casadi  # noqa: F401
        import helics
    except ImportError:
        raise missing_extra("helics", "helics", "a run in a co-simulation") from None
    return helics
