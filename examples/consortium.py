"""Run a coordinator and three zones as four processes on this machine, over mutual TLS.

    python examples/consortium.py

Each zone's demand is in its own folder only; messages contain released values. The script prints
the coordinator's public report and each zone's own outcome. Needs the extra ``network``.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from gridpriv import load_case, make_settings, shipped_zoning
from gridpriv.consortium.parties import write_folders


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def main() -> int:
    case = load_case("case14")
    zoning = shipped_zoning(case)
    settings = make_settings(rounds=5, seed=7, solver="clarabel")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "consortium"
        write_folders(case, zoning, settings, "example", free_address(), folder)
        configured = [("coordinator", folder / "coordinator" / "coordinator.toml")]
        configured += [("zone-agent", folder / name / "zone.toml") for name in zoning.names]
        parties = [
            subprocess.Popen(
                [sys.executable, "-m", "gridpriv.cli.main", command, "--config", file],
                stdout=subprocess.PIPE,
                text=True,
            )
            for command, file in configured
        ]
        for party in parties:
            output, _ = party.communicate()
            print(output)
        return max(party.returncode for party in parties)


if __name__ == "__main__":
    sys.exit(main())
