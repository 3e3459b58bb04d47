"""The same rounds inside a co-simulation, beside a federate that is not gridpriv's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest
from parties import laid_out, same_rounds, settings

from gridpriv import load_case, run, shipped_zoning
from gridpriv.consensus.helics_transport import Meeting, Seat, attend, load
from gridpriv.consortium.coordinate import play
from gridpriv.consortium.parties import ZoneParty, read_party
from gridpriv.consortium.speak import speak
from gridpriv.consortium.terms import read_terms
from gridpriv.core.errors import GridprivError

if find_spec("helics") is None:
    pytest.skip("needs the extra helics", allow_module_level=True)
helics = load()


def nothing(*_, **__):
    pass


def weather(core, options, seen):
    """Another simulator's federate: it steps by a tenth of a second, ten times."""
    how = helics.helicsCreateFederateInfo()
    helics.helicsFederateInfoSetCoreTypeFromString(how, core)
    helics.helicsFederateInfoSetCoreInitString(how, options)
    federate = helics.helicsCreateValueFederate("weather", how)
    helics.helicsFederateEnterExecutingMode(federate)
    for step in range(1, 11):
        seen.append(helics.helicsFederateRequestTime(federate, 0.1 * step))
    helics.helicsFederateDisconnect(federate)
    helics.helicsFederateFree(federate)


def cosimulate(folder, zones):
    federates = len(zones) + 2  # with the coordinator and the weather
    broker = helics.helicsCreateBroker("inproc", "", f"-f {federates} --name=gridpriv_test")
    options, seen = "--federates=1 --broker=gridpriv_test", []

    def coordinate():
        terms = read_terms(folder / "coordinator" / "terms.json")
        seat = Seat("coordinator", "inproc", options)
        seat.begin()
        meeting = Meeting(terms.public, seat, 0.01)
        outcome = play(terms, meeting.carry, nothing)
        meeting.close(None)
        return outcome

    def zone(name):
        place = folder / name
        party = read_party(place / "zone.toml", ZoneParty)
        seat = Seat(name, "inproc", options)

        def attending(speaker, hello):
            seat.begin()
            return attend(speaker, hello, seat)

        return speak(read_terms(place / "terms.json"), party, place, attending, nothing)

    with ThreadPoolExecutor(federates) as pool:
        parties = [pool.submit(coordinate), *(pool.submit(zone, name) for name in zones)]
        other = pool.submit(weather, "inproc", options, seen)
        found = [party.exception(120.0) or party.result() for party in parties]
        other.result(60.0)
    helics.helicsBrokerDisconnect(broker)
    helics.helicsCloseLibrary()
    return found, seen


@pytest.mark.parametrize("name", ["case14", pytest.param("case118", marks=pytest.mark.slow)])
def test_the_same_rounds_in_a_cosimulation(name, tmp_path):
    case = load_case(name)
    zoning = shipped_zoning(case)
    folder = laid_out(case, zoning, tmp_path / "here")
    found, seen = cosimulate(folder, zoning.names)
    assert not [one for one in found if isinstance(one, GridprivError)]
    same_rounds(found[0], run(case, zoning, settings()))
    assert seen == pytest.approx([0.1 * step for step in range(1, 11)])
