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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product

import numpy as np

from gridpriv.assurance.neighbours import corners
from gridpriv.assurance.public_state import none_of, unchanged
from gridpriv.assurance.replay import ROUNDING, Finding
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, SolverError
from gridpriv.grid.case import Case
from gridpriv.grid.convert import matpower_text
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm, length
from gridpriv.zonal.certificate import certificate
from gridpriv.zonal.prepared import Prepared
from gridpriv.zonal.protected_case import (
    PricedRelease,
    PriceQuery,
    ProtectedCase,
    Publication,
    prepare_publication,
    price_query,
    protect,
)

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
    label = "publish, exchanged"
    chosen, other = ((publication.disclosure, publication.planned) for publication in (base, twin))
    return [
        unchanged("public state", label, chosen, other),
        unchanged("public bytes", label, _published(made), _published(again)),
        none_of("publish", "draws not charged", charged != made.releases),
        *_sensitivities(made, np.stack([own.pd, own.qd]), base.ready.rules.adjacency),
    ]


def _ready(prepared: Prepared, case: Case) -> Frozen:
    settings = replace(
        prepared.settings,
        load_scale=1.0,
        outage=(),
        coordination="rounds",
        hold=None,
        seed=prepared.seed,
    )
    publication = prepare_publication(case, settings, priced=bool(case.cost))
    given = {field.name: getattr(publication, field.name) for field in fields(publication)}
    return Frozen(**given, drawn=[], frozen=None)


def _published(made: ProtectedCase) -> dict[str, str]:
    """Return the text of the published case and of its certificate."""
    case = made.case("audit")
    document = certificate(made.made, case, {}, None)
    return {"case": matpower_text(case), "certificate": json.dumps(document, sort_keys=True)}


def _moved(
    measure: Callable[[Floats], Floats], demand: Floats, adjacency: DemandAdjacency, norm: Norm
) -> float:
    """Return the largest move of statistics, over every bus and corner of its box."""
    here, worst = measure(demand), 0.0
    for bus, change in product(range(demand.shape[1]), corners(adjacency)):
        moved = demand.copy()
        moved[:, bus] += change
        worst = max(worst, length(measure(moved) - here, norm))
    return worst


def _query(query: PriceQuery, demand: Floats, adjacency: DemandAdjacency, label: str) -> Finding:
    """Return the largest move of the priced demand."""
    worst = _moved(lambda at: np.array([query.value(at)]), demand, adjacency, 1)
    declared = query.release.sensitivity.value
    allowed = declared + (0.0 if query.exact else ROUNDING * abs(query.value(demand)))
    return Finding("publish", "all", label, worst, allowed, worst / declared)


def _sensitivities(
    made: ProtectedCase, demand: Floats, adjacency: DemandAdjacency
) -> list[Finding]:
    """Return moves of the priced query, and of secure sums between neighbours that are close."""
    tiny, exact = DemandAdjacency(TINY), replace(made.first.disclosure, exact=True)
    norm = made.first.release.mechanism.norm
    worst = _moved(lambda at: exact.measure(at.ravel()), demand, tiny, norm)
    declared = exact.sensitivity(tiny, norm).value
    findings = [Finding("publish", "all", "rounding of statistics", worst, declared)]
    if isinstance(made.posterior, PricedRelease):
        secure = price_query(made.served.optimum, tiny, 1.0, "secure")
        findings += [
            _query(made.posterior.query, demand, adjacency, "priced query"),
            _query(secure, demand, tiny, "rounding of prices"),
        ]
    return findings
