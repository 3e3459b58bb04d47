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
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import closing
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from pandas import DataFrame

from gridpriv.assurance.replay import Finding, Tape, taped
from gridpriv.consensus.transport import AgentFactory, Calls, R, Transport, each, in_process
from gridpriv.core.errors import GridprivError
from gridpriv.core.tables import publish_table
from gridpriv.grid.case import Case
from gridpriv.power.fleet import public_proxy
from gridpriv.privacy.release import Release
from gridpriv.zonal import rows
from gridpriv.zonal.hold import Hold, make_hold
from gridpriv.zonal.prepared import Prepared, prepare
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.run import open_rounds, run_prepared, zone_agents

PUBLIC_CHECKS = ("public state", "public bytes")
OWN = ("figures", "outcome", "drawn", "plan")
"""Methods of a simulation that a zone's owner answers to itself."""
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
    (_, own), *others = demands
    base = public_state(prepared_again(prepared, own))
    found = []
    for name, case in others:
        twin = public_state(prepared_again(prepared, case))
        paths = list(differences(base, twin))
        label = f"{name}: {paths[0]}" if paths else name
        found.append(Finding("public state", "all", label, float(len(paths)), 0.0))
    return found


def differences(a: Any, b: Any, path: str = "") -> Iterator[str]:
    """Yield where two values of the same shape differ: arrays, numbers, dataclasses, mappings."""
    if isinstance(a, Tape):
        return
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if not np.array_equal(a, b):
            yield path
    elif is_dataclass(a) and type(a) is type(b):
        for field in fields(a):
            inside = f"{path}.{field.name}".lstrip(".")
            yield from differences(getattr(a, field.name), getattr(b, field.name), inside)
    elif type(a) is not type(b) or (isinstance(a, Sized) and len(a) != len(b)):
        yield path
    elif isinstance(a, Mapping):
        if a.keys() != b.keys():
            yield path
            return
        for key in a:
            yield from differences(a[key], b[key], f"{path}.{key}".lstrip("."))
    elif isinstance(a, list | tuple):
        for place, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from differences(x, y, f"{path}[{place}]")
    elif a is not b and a != b:
        yield path


class Recorder:
    """A transport that keeps everything that crosses the network.

    Every argument of a call comes from the coordinator. Answers are kept but for those that an
    owner gives to itself (:data:`OWN`). Of plans the first is kept: replans follow measurements.
    """

    def __init__(self, inner: Transport, zones: int) -> None:
        self._inner, self._zones = inner, zones
        self.crossed: list[tuple[str, Any, Any]] = []
        self._planned = False

    def ask(self, calls: Calls[R]) -> list[R | Exception]:
        """Call every zone and keep the calls, and the answers that are sent."""
        outcomes = self._inner.ask(calls)
        sent = each(calls, self._zones)
        name, given = sent[0].method.__name__, [one.given for one in sent]
        if name not in OWN:
            self.crossed.append((name, given, outcomes))
        elif name == "plan" and not self._planned:
            self._planned = True
            self.crossed.append((name, given, None))
        return outcomes

    def close(self) -> None:
        """Close the transport."""
        self._inner.close()


def bytes_findings(prepared: Prepared, demands: Compared, lane: str) -> list[Finding]:
    """Compare all that is public on every demand with that on the first; releases are frozen."""
    (_, own), *others = demands
    tape = Tape()
    base = published_run(prepared_again(prepared, own), tape)
    frozen = [draw.output for draw in tape.drawn]
    uncharged = base["uncharged"]
    label = f"{lane}, draws that were not charged" + (f": {uncharged[0]}" if uncharged else "")
    found = [Finding("public bytes", "all", label, float(len(uncharged)), 0.0)]
    for name, case in others:
        twin = published_run(prepared_again(prepared, case), Tape(frozen))
        paths = list(differences(base, twin))
        label = f"{lane}, {name}" + (f": {paths[0]}" if paths else "")
        found.append(Finding("public bytes", "all", label, float(len(paths)), 0.0))
    return found


def published_run(prepared: Prepared, tape: Tape) -> dict[str, Any]:
    """Run on a tape; return what crossed the network, and what ``--public`` would write."""
    rule = prepared.rules.noise
    assert rule is not None
    run = replace(prepared, rules=replace(prepared.rules, noise=taped(rule, tape)))
    charged: dict[str, Counter[Release]] = {}

    def charge(owner: str, releases: Mapping[Release, int]) -> None:
        charged.setdefault(owner, Counter()).update(releases)

    recorders: list[Recorder] = []
    early: list[RunResult] = []

    def connect(factory: AgentFactory) -> Recorder:
        recorders.append(Recorder(in_process(factory), len(factory.sizes)))
        return recorders[-1]

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other demand, for the terminal of its owner
            result = run_prepared(run, leave=early.append, transport=connect, charge=charge)
    except GridprivError:
        if not early:
            raise
        result = early[0]
    missed = {zone: drawn for zone, drawn in result.trace.releases.items() if drawn}
    uncharged = list(differences({k: Counter(v) for k, v in missed.items()}, charged))
    return {"messages": recorders[0].crossed, "uncharged": uncharged, **_texts(result)}


def _texts(result: RunResult) -> dict[str, str]:
    """Return the text of the document and of each table that ``--public`` keeps of a run."""
    texts = {"document": json.dumps(result.as_dict(public=True), sort_keys=True)}
    for table in rows.TABLES:
        frame = getattr(result, table.name, None)
        if isinstance(frame, DataFrame):
            texts[table.name] = publish_table(frame, table).to_csv()
    return texts
