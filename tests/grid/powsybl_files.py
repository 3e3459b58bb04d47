"""Files of the formats that pypowsybl reads, for tests: written by hand or by pypowsybl."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gridpriv.core.errors import InputError
from gridpriv.grid import powsybl

UCTE = """\
##C 2007.05.01
A grid of two countries, a phase shifter and a tie line through an X-node
##N
##ZFR
FAAAAA1  NORTH        0 2 400.00 150.000 40.0000 -200.00 0.00000 -1000.0 0.00000 -500.00 500.000
FBBBBB1  SOUTH        0 0        250.000 60.0000 0.00000 0.00000
FCCCCC2  CITY         0 0        80.0000 20.0000 0.00000 0.00000
##ZBE
BAAAAA1  WEST         0 3 400.00 100.000 20.0000 0.00000 0.00000 -2000.0 2000.00 -900.00 900.000
BBBBBB1  EAST         0 0        120.000 30.0000 0.00000 0.00000
##ZXX
XFRBE11  BORDER       0 0        0.00000 0.00000 0.00000 0.00000
##L
FAAAAA1  FBBBBB1  1 0 1.5000 15.000 120.0000   1200
FBBBBB1  BAAAAA1  1 0 2.0000 20.000 150.0000   1000
BAAAAA1  BBBBBB1  1 0 1.2000 12.000 100.0000   1500
FAAAAA1  XFRBE11  1 0 1.0000 10.000 80.00000   1100
XFRBE11  BBBBBB1  1 0 1.0000 10.000 80.00000   1100
##T
FAAAAA1  BBBBBB1  1 0 400.0 400.0 500.0 0.3000 14.000 0.000000 0.0000   1000
FBBBBB1  FCCCCC2  1 0 400.0 225.0 400.0 0.4000 12.000 0.000000 0.0000    900
##R
FBBBBB1  FCCCCC2  1 1.250  9   3
FAAAAA1  BBBBBB1  1                    1.000 90.00 10   4 100.0
"""


def cdf_text(case: Any) -> str:
    """Return a case in the IEEE common data format (IEEE Trans. PAS-92, 1973): fixed columns."""
    base = case.base_mva
    lines = [f" 08/19/93 GRIDPRIV TESTS       {base:<6.1f} 1962 W {case.name}"]
    lines += [f"BUS DATA FOLLOWS                            {case.n_bus} ITEMS"]
    for i, bus in enumerate(case.bus_id.tolist()):
        gens = (case.gen_bus == i).nonzero()[0]
        kind = 3 if case.reference[i] else 2 if len(gens) else 0
        vg = case.vg[gens[0]] if len(gens) else 0.0
        q = (case.qmax[gens[0]], case.qmin[gens[0]]) if len(gens) else (0.0, 0.0)
        pg = base * case.pg[gens].sum()
        lines.append(
            f"{bus:4d} {f'Bus {bus}':12s} {1:2d}{1:3d} {kind:2d} {case.vm[i]:6.4f}"
            f"{0.0:7.2f}{base * case.pd[i]:9.2f}{base * case.qd[i]:9.2f} {pg:8.2f}{0.0:8.2f} "
            f"{100.0:7.1f} {vg:6.4f}{base * q[0]:8.2f}{base * q[1]:8.2f}{case.gs[i]:8.4f}"
            f"{case.bs[i]:8.4f} {0:4d}"
        )
    lines += ["-999", f"BRANCH DATA FOLLOWS                         {case.n_branch} ITEMS"]
    for k in range(case.n_branch):
        f, t = case.bus_id[case.f_bus[k]], case.bus_id[case.t_bus[k]]
        turned = case.tap[k] != 1.0
        lines.append(
            f"{f:4d} {t:4d} {1:2d}{1:3d} {1:1d} {int(turned):1d}{case.r[k]:10.6f}{case.x[k]:11.6f}"
            f"{case.b[k]:10.5f}{0:5d} {0:5d} {0:5d} {0:4d} {0:1d}  "
            f"{case.tap[k] if turned else 0.0:6.4f} {0.0:7.2f}{0.0:7.4f}{0.0:7.4f} {0.0:6.4f} "
            f"{0.0:6.4f}{0.0:7.4f}"
        )
    return "\n".join(
        [
            *lines,
            "-999",
            "LOSS ZONES FOLLOWS                     0 ITEMS",
            "-99",
            "INTERCHANGE DATA FOLLOWS                 0 ITEMS",
            "-9",
            "TIE LINES FOLLOWS                     0 ITEMS",
            "-999",
            "END OF DATA",
            "",
        ]
    )


@cache
def samples() -> dict[str, bytes]:
    """Return a file of every format by the ending of its name."""
    import pypowsybl.network as networks

    from gridpriv.grid.library import load_case

    loaded = {".uct": UCTE.encode(), ".txt": cdf_text(load_case("case14")).encode()}
    saved = {
        ".xiidm": (networks.create_four_substations_node_breaker_network(), "XIIDM"),
        ".zip": (networks.create_metrix_tutorial_six_buses_network(), "CGMES"),
        ".raw": (networks.create_ieee14(), "PSS/E"),
    }
    with TemporaryDirectory() as folder:
        for suffix, (network, form) in saved.items():
            path = Path(folder) / f"sample{suffix}"
            network.save(path, format=form)
            loaded[suffix] = path.read_bytes()
    return loaded


def answer_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read and write files in this process: starting another takes two seconds."""

    def answer(directory: Path, source: str) -> dict[str, Any]:
        request = json.loads((directory / "request.json").read_text(encoding="utf-8"))
        document = json.loads(json.dumps(powsybl.answer(directory, request)))
        if "error" in document:
            raise InputError(f"case file {source} {document['error']}")
        return dict(document)

    monkeypatch.setattr(powsybl, "_answer", answer)
