"""A publication of the run's demand, replayed on other demand.

public state   statistics and noise scale are equal on other demand;
publish        the priced query moves by its declared sensitivity at most, at every corner of every
               box; what is charged is what is drawn; secure statistics and prices charge the
               rounding of demand;
public bytes   with every release frozen, the published case and its certificate are the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from gridpriv.assurance.neighbours import corners
from gridpriv.assurance.public_state import differences
from gridpriv.assurance.replay import ROUNDING, Finding
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, SolverError
from gridpriv.grid.case import Case
from gridpriv.grid.matpower_writer import matpower_text
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import length
from gridpriv.zonal.certificate import certificate
from gridpriv.zonal.prepared import Prepared
from gridpriv.zonal.price_query import PriceQuery, price_query
from gridpriv.zonal.protected_case import (
    PricedRelease,
    ProtectedCase,
    Publication,
    prepare_publication,
    protect,
)

PUBLISH_CHECKS = ("publish",)
MOST_BUSES = 150
"""Largest grid of which a publication is audited: each demand is projected."""
TINY = 1e-9
"""beta in p.u. at which the rounding of demand is seen: a step of the grid is 1.5 % of it."""


@dataclass(frozen=True, eq=False)
class Frozen(Publication):
    """A publication whose releases are kept, or are those of an earlier one."""

    drawn: list[Floats]
    frozen: Sequence[Floats] | None

    def draw(self, release: Release, value: Floats, number: int) -> Floats:
        """Return the noisy value, or what the earlier publication released."""
        if self.frozen is None:
            self.drawn.append(super().draw(release, value, number))
        else:
            self.drawn.append(self.frozen[len(self.drawn)])
        return self.drawn[-1]


def publish_findings(prepared: Prepared) -> list[Finding]:
    """Return the findings on a publication; none where the settings or the grid have none."""
    if prepared.case.n_bus > MOST_BUSES:
        return []
    own = prepared.case
    try:
        base = _ready(prepared, own)
    except InputError:
        return []
    turned = replace(own, pd=np.roll(own.pd, 1), qd=np.roll(own.qd, 1))
    twin = _ready(prepared, turned)
    charged: Counter[Release] = Counter()
    try:
        made = protect(base, lambda _, releases: charged.update(releases))
        again = protect(replace(twin, frozen=base.drawn))
    except SolverError:
        return []
    state = [
        *differences(base.disclosure, twin.disclosure),
        *differences(base.planned, twin.planned),
    ]
    paths = list(differences(_published(made), _published(again)))
    return [
        Finding("public state", "all", "publish, exchanged", float(len(state)), 0.0),
        Finding("public bytes", "all", "publish, exchanged", float(len(paths)), 0.0),
        Finding("publish", "all", "draws not charged", float(charged != made.releases), 0.0),
        _query(made, own, base.ready.rules.adjacency),
        *_rounding(made, own),
    ]


def _ready(prepared: Prepared, case: Case) -> Frozen:
    settings = replace(
        prepared.settings, load_scale=1.0, outage=(), coordination="rounds", hold=None,
        seed=prepared.seed,
    )  # fmt: skip
    one = prepare_publication(case, settings, priced=bool(case.cost))
    given = {field.name: getattr(one, field.name) for field in fields(one)}
    return Frozen(**given, drawn=[], frozen=None)


def _published(made: ProtectedCase) -> dict[str, str]:
    """Return the text of the published case and of its certificate."""
    case = made.case("audit")
    document = certificate(made.made, case, {}, None)
    return {"case": matpower_text(case), "certificate": json.dumps(document, sort_keys=True)}


def _query(made: ProtectedCase, case: Case, adjacency: DemandAdjacency) -> Finding:
    """Return the largest move of the priced demand, over every bus and corner of the box."""
    if not isinstance(made.posterior, PricedRelease):
        return Finding("publish", "all", "no priced query", 0.0, 0.0)
    query, demand = made.posterior.query, np.stack([case.pd, case.qd])
    return _moved(query, demand, adjacency)


def _moved(query: PriceQuery, demand: Floats, adjacency: DemandAdjacency) -> Finding:
    here, worst, where = query.value(demand), 0.0, 0
    for bus in range(demand.shape[1]):
        for dp, dq in corners(adjacency):
            moved = demand.copy()
            moved[:, bus] += dp, dq
            distance = abs(query.value(moved) - here)
            if distance > worst:
                worst, where = distance, bus
    declared = query.release.sensitivity.value
    allowed = declared + (0.0 if query.exact else ROUNDING * abs(here))
    return Finding("publish", "all", f"priced query, bus {where}", worst, allowed, worst / declared)


def _rounding(made: ProtectedCase, case: Case) -> list[Finding]:
    """Return the moves of secure statistics and prices between neighbours at a tiny distance."""
    tiny, demand = DemandAdjacency(TINY), np.stack([case.pd, case.qd])
    exact = replace(made.first.disclosure, exact=True)
    norm = made.first.release.mechanism.norm
    declared, here = exact.sensitivity(tiny, norm).value, exact.measure(demand.ravel())
    worst = 0.0
    for bus in range(case.n_bus):
        for dp, dq in corners(tiny):
            moved = demand.copy()
            moved[:, bus] += dp, dq
            worst = max(worst, length(exact.measure(moved.ravel()) - here, norm))
    found = [Finding("publish", "all", "rounding of statistics", worst, declared)]
    if isinstance(made.posterior, PricedRelease):
        query = price_query(made.served.optimum, tiny, 1.0, "secure")
        found.append(replace(_moved(query, demand, tiny), neighbour="rounding of prices"))
    return found
