"""The same rounds in a co-simulation with a federate of another program."""

from __future__ import annotations

import os
import subprocess
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
    return ended, times


@pytest.mark.slow
@pytest.mark.parametrize("name", ["case14", "case118"])
def test_the_same_rounds_in_a_cosimulation(name, tmp_path):
    """In a separate process, because HELICS may hang when its library is closed."""
    words = [sys.executable, __file__, name, str(tmp_path / "here")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300.0, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def main(name, place):
    case = load_case(name)
    zoning = shipped_zoning(case)
    folder = laid_out(case, zoning, Path(place))
    ended, times = cosimulate(folder, zoning.names)
    assert not [end for end in ended if isinstance(end, GridprivError)], ended
    same_rounds(ended[0], run(case, zoning, settings()))
    assert times == pytest.approx([0.1 * step for step in range(1, 11)])


if __name__ == "__main__":
    code = 1
    try:
        main(*sys.argv[1:])
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)
