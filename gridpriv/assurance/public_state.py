"""Everything public is a function of releases and public data: prepared and run on other demand.

public state   The run is prepared again from a case with other demand. Sensitivities, scales,
               statistics, priors, warm starts, penalties and the order sent to every zone in round
               1 must be equal: none of them may have read demand.
public bytes   The prepared run is carried out on other demand while every release returns what it
               returned before. The document and the tables that ``--public`` would write must be
               equal byte by byte.

Both are exact. The demands are the two corners of the box at the bus that moves the gradient most,
no demand, and demand of which buses have exchanged their parts.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from pandas import DataFrame

from gridpriv.assurance.eavesdrop import Eavesdropper
from gridpriv.assurance.replay import Finding, Tape
from gridpriv.assurance.whole import on_tape
from gridpriv.consensus.transport import AgentFactory, in_process
from gridpriv.core.errors import GridprivError
from gridpriv.core.tables import publish_table
from gridpriv.grid.case import Case
from gridpriv.power.fleet import public_proxy
from gridpriv.privacy.release import Release
from gridpriv.zonal import rows
from gridpriv.zonal.meter import Hold, make_hold
from gridpriv.zonal.prepared import Prepared, prepare
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.run import open_rounds, run_prepared, zone_agents

Compared = Sequence[tuple[str, Case]]
"""Cases that differ in demand only, by the name of the difference."""


def other_demands(prepared: Prepared) -> list[tuple[str, Case]]:
    """Return the cases on which public state must not change, the run's own case first."""
    case, beta = prepared.case, prepared.moved.beta
    bus = int(np.argmax(np.bincount(np.concatenate([case.f_bus, case.t_bus]))))
    unit = np.zeros(case.n_bus)
    unit[bus] = beta
    turned = np.roll(np.arange(case.n_bus), 1)
    return [
        ("-", case),
        ("p and q up", replace(case, pd=case.pd + unit, qd=case.qd + unit)),
        ("p up, q down", replace(case, pd=case.pd + unit, qd=case.qd - unit)),
        ("no demand", replace(case, pd=0.0 * case.pd, qd=0.0 * case.qd)),
        ("exchanged", replace(case, pd=case.pd[turned].copy(), qd=case.qd[turned].copy())),
    ]


def prepared_again(prepared: Prepared, case: Case) -> Prepared:
    """Return the same run prepared from a case with other demand.

    The case holds the demand that is run, so its scale is the run's and outages are out already.
    """
    settings = replace(prepared.settings, load_scale=1.0, outage=())
    ready = prepare(case, prepared.zoning, settings, prepared.scale)
    return replace(ready, seed=prepared.seed)


def public_state(prepared: Prepared) -> dict[str, Any]:
    """Return the public state of a run before its first release."""
    with closing(in_process(zone_agents(prepared))) as zones:
        opening = open_rounds(prepared, zones)
    return {
        "rules": prepared.rules,
        "expected demand": prepared.expected,
        "statistics": prepared.disclosures,
        "shared coordinates": prepared.shared,
        "held interchange": hold_of(prepared),
        "warm start": [public_proxy(zone) for zone in prepared.zones],
        "planning": (prepared.planning, prepared.firmness(1.0)),
        "first iterate": opening.state,
        "releases": opening.releases,
        "rounds": (opening.plan.rounds, opening.plan.tolerance),
        "step": [opening.plan.step(t) for t in (1, 2, 3)],
    }


def hold_of(prepared: Prepared) -> Hold:
    """Return the reserves that zones set aside, or would under ``--hold interchange``."""
    rules = prepared.rules
    given = prepared.zones, prepared.disclosures, rules.noise, rules.adjacency
    return prepared.hold or make_hold(*given)


def state_findings(prepared: Prepared, demands: Compared) -> list[Finding]:
    """Compare the public state on every demand with that on the first."""
    (_, base), *twins = [
        (name, public_state(prepared_again(prepared, case))) for name, case in demands
    ]
    return [unchanged("public state", name, base, twin) for name, twin in twins]


def unchanged(check: str, label: str, base: Any, twin: Any, zone: str = "all") -> Finding:
    """Return the number of places where two public values differ; the first is named."""
    paths = list(differences(base, twin))
    return none_of(check, label + (f": {paths[0]}" if paths else ""), len(paths), zone)


def none_of(check: str, label: str, count: float, zone: str = "all") -> Finding:
    """Return a count that must be 0."""
    return Finding(check, zone, label, float(count), 0.0)


def differences(a: Any, b: Any, path: str = "") -> Iterator[str]:
    """Yield where two values differ: arrays, numbers, and parts of what has parts."""
    if isinstance(a, Tape):
        return
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        same = np.array_equal(a, b)
    elif type(a) is type(b) and (here := _parts(a)) is not None:
        there = _parts(b) or {}
        same = here.keys() == there.keys()
        for key in here if same else ():
            yield from differences(here[key], there[key], f"{path}.{key}".lstrip("."))
    else:
        same = type(a) is type(b) and bool(a is b or a == b)
    if not same:
        yield path


def _parts(value: Any) -> Mapping[Any, Any] | None:
    """Return the parts of a dataclass, a mapping or a sequence by name; None of other values."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    return value if isinstance(value, Mapping) else None


def bytes_findings(prepared: Prepared, demands: Compared, lane: str) -> list[Finding]:
    """Compare all that is public on every demand with that on the first; releases are frozen."""
    (_, own), *others = demands
    tape = Tape()
    base = published_run(prepared_again(prepared, own), tape)
    frozen = [draw.output for draw in tape.drawn]
    label = f"{lane}, draws that were not charged"
    findings = [none_of("public bytes", label, len(base["uncharged"]))]
    for name, case in others:
        twin = published_run(prepared_again(prepared, case), Tape(frozen))
        findings.append(unchanged("public bytes", f"{lane}, {name}", base, twin))
    return findings


def published_run(prepared: Prepared, tape: Tape) -> dict[str, Any]:
    """Run on a tape; return what crossed the network, and what ``--public`` would write."""
    run = on_tape(prepared, tape)
    charged: dict[str, Counter[Release]] = {}

    def charge(owner: str, releases: Mapping[Release, int]) -> None:
        charged.setdefault(owner, Counter()).update(releases)

    recorders: list[Eavesdropper] = []
    early: list[RunResult] = []

    def connect(factory: AgentFactory) -> Eavesdropper:
        recorders.append(Eavesdropper(in_process(factory), len(factory.sizes)))
        return recorders[-1]

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other demand, for the terminal of its owner
            result = run_prepared(run, leave=early.append, transport=connect, charge=charge)
    except GridprivError:
        if not early:
            raise
        result = early[0]
    drawn = {zone: Counter(each) for zone, each in result.trace.releases.items() if each}
    frames = [(table, getattr(result, table.name, None)) for table in rows.TABLES]
    return {
        "messages": recorders[0].crossed,
        "uncharged": list(differences(drawn, charged)),
        "document": json.dumps(result.as_dict(public=True), sort_keys=True),
        **{
            table.name: publish_table(frame, table).to_csv()
            for table, frame in frames
            if isinstance(frame, DataFrame)
        },
    }
