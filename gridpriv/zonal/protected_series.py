"""A series of demand with protected steps, for publication.

One release serves all steps (:mod:`gridpriv.zonal.horizon`): of the demand that the steps scale, or
of the temporal basis of a demand that has its own in every step. Every step's estimate is projected
to the nearest demand that an AC optimum serves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import not_allowed
from gridpriv.grid.case import Case, public_network
from gridpriv.grid.overrides import DemandSeries
from gridpriv.power.ac.optimum import Served, nearest_served
from gridpriv.privacy.release import Charging
from gridpriv.privacy.release import Release as DrawnRelease
from gridpriv.zonal.certificate import Drawn, Made
from gridpriv.zonal.horizon import Horizon, make_horizon
from gridpriv.zonal.protected_case import (
    WHOLE_GRID,
    prepare_publication,
    solved_case,
    whole_grid,
    without_state,
)
from gridpriv.zonal.settings import Release, Settings


@dataclass(frozen=True, eq=False)
class ProtectedSeries:
    """A published series.

    Attributes
    ----------
    horizon : Horizon
        Its demand is private.
    release : DrawnRelease
    served : tuple of Served
        Step by step.
    """

    horizon: Horizon
    release: DrawnRelease
    served: tuple[Served, ...]

    def case(self, name: str) -> Case:
        """Return the case of the first step, in the state of its AC optimum."""
        return solved_case(self.served[0], name)

    @property
    def made(self) -> Made:
        """Contents of the certificate."""
        owned, statistics = self.horizon.owned, self.horizon.disclosures[0].level.strategy.name
        steps = len(self.horizon.series)
        drawn = Drawn(
            f"demand of {steps} steps: {statistics}", self.release, owned.case.base_mva, "MW"
        )
        return Made(owned, self.horizon.adjacency, (drawn,), self.served[0])


def prepare_series(series: DemandSeries, settings: Settings) -> Horizon:
    """Return a series that is ready to be released once.

    ``release`` auto is the choice for the first step's case (public).
    """
    if settings.release == "auto":
        chosen = prepare_publication(series.at(0), settings).disclosure.strategy.name
        settings = replace(settings, release=cast(Release, chosen))
    horizon = make_horizon(
        replace(series, case=without_state(series.case)), whole_grid(series.case), settings
    )
    if not horizon.released_once:
        raise not_allowed("noise-schedule", settings.noise_schedule, "once for a published series")
    return horizon


def protect_series(horizon: Horizon, charge: Charging = lambda *_: None) -> ProtectedSeries:
    """Draw once, estimate every step and project it.

    Raises
    ------
    SolverError
        If no demand is found that an AC optimum serves; what was drawn stays charged.
    """
    (release,) = horizon.planned[WHOLE_GRID]
    known = horizon.draw(charge)
    network = public_network(horizon.series.case)

    def served(step: int) -> Served:
        earlier = horizon.prepared(step, known).known
        assert earlier is not None
        demand: Floats = earlier[0].demand.reshape(2, -1)
        case = replace(network, pd=demand[0].copy(), qd=demand[1].copy())
        return nearest_served(case, release.mechanism.norm)

    return ProtectedSeries(horizon, release, tuple(map(served, range(len(horizon.series)))))
