"""The same rounds inside a co-simulation, beside a federate that is not gridpriv's."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
from parties import laid_out, same_rounds, settings

from gridpriv import load_case, run, shipped_zoning
from gridpriv.core.errors import GridprivError

if find_spec("helics") is None:
    pytest.skip("needs the extra helics", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from helics_run import coordinate, helics, weather, zone


def cosimulate(folder, zones):
    federates = len(zones) + 2  # with the coordinator and the weather
    broker = helics.helicsCreateBroker("inproc", "", f"-f {federates} --name=gridpriv_test")
    options = "--federates=1 --broker=gridpriv_test"
    with ThreadPoolExecutor(federates) as pool:
        parties = [pool.submit(coordinate, folder, options, "error")]
        parties += [pool.submit(zone, folder, name, options) for name in zones]
        other = pool.submit(weather, options)
        ended = [party.exception(120.0) or party.result() for party in parties]
        times = other.result(60.0)
    helics.helicsBrokerDisconnect(broker)
    helics.helicsCloseLibrary()
    return ended, times


@pytest.mark.parametrize("name", ["case14", pytest.param("case118", marks=pytest.mark.slow)])
def test_the_same_rounds_in_a_cosimulation(name, tmp_path):
    case = load_case(name)
    zoning = shipped_zoning(case)
    folder = laid_out(case, zoning, tmp_path / "here")
    ended, times = cosimulate(folder, zoning.names)
    assert not [end for end in ended if isinstance(end, GridprivError)]
    same_rounds(ended[0], run(case, zoning, settings()))
    assert times == pytest.approx([0.1 * step for step in range(1, 11)])
