"""A run inside a HELICS co-simulation, beside a federate of another simulator.

    python examples/helics_run.py

Needs the extras ``network`` (for the folders' certificates) and ``helics``. The other federate
stands for a weather or market simulator; it steps through a second of simulated time.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gridpriv import load_case, make_settings, shipped_zoning
from gridpriv.consensus.helics_transport import Meeting, Seat, attend, load
from gridpriv.consortium.coordinate import Outcome, play
from gridpriv.consortium.folders import lay_out
from gridpriv.consortium.log import notes
from gridpriv.consortium.parties import ZoneParty, read_party
from gridpriv.consortium.speak import speak
from gridpriv.consortium.terms import read_terms

helics = load()
BROKER = "example"
OPTIONS = f"--federates=1 --broker={BROKER}"  # on other machines: --broker_address=HOST


def coordinate(folder: Path) -> Outcome:
    terms = read_terms(folder / "coordinator" / "terms.json")
    seat = Seat("coordinator", "inproc", OPTIONS)
    seat.begin()
    meeting = Meeting(terms.public, seat, period=0.01)
    outcome = play(terms, meeting.carry, notes("coordinator", "info"))
    meeting.close(None)
    return outcome


def zone(folder: Path, name: str) -> dict[str, Any]:
    place = folder / name
    party = read_party(place / "zone.toml", ZoneParty)
    terms = read_terms(place / "terms.json")
    seat = Seat(name, "inproc", OPTIONS)

    def attending(speaker: Any, hello: Any) -> Any:
        seat.begin()
        return attend(speaker, hello, seat)

    return speak(terms, party, place, attending, notes(name, "warning"))


def weather() -> float:
    how = helics.helicsCreateFederateInfo()
    helics.helicsFederateInfoSetCoreTypeFromString(how, "inproc")
    helics.helicsFederateInfoSetCoreInitString(how, OPTIONS)
    federate = helics.helicsCreateValueFederate("weather", how)
    helics.helicsFederateEnterExecutingMode(federate)
    now = 0.0
    for step in range(1, 11):
        now = helics.helicsFederateRequestTime(federate, 0.1 * step)
    helics.helicsFederateDisconnect(federate)
    return now


def main() -> int:
    case = load_case("case14")
    zoning = shipped_zoning(case)
    settings = make_settings(rounds=5, seed=7, solver="clarabel")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "consortium"
        lay_out(case, zoning, settings, "example", "127.0.0.1:0", folder)
        with ThreadPoolExecutor(5) as parties:
            broker = helics.helicsCreateBroker("inproc", "", f"-f 5 --name={BROKER}")
            rounds = parties.submit(coordinate, folder)
            zones = [parties.submit(zone, folder, name) for name in zoning.names]
            other = parties.submit(weather)
            for told in zones:
                plan = told.result()["plan"]
                print(told.result()["zone"], {k: plan[k] for k in ("interchange_mw", "shed_mw")})
            print(
                f"{len(rounds.result().turns)} rounds; the other federate is at {other.result()} s"
            )
            helics.helicsBrokerDisconnect(broker)
    helics.helicsCloseLibrary()
    return 0


if __name__ == "__main__":
    sys.exit(main())
