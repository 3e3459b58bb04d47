"""Averaging attack: error against the number of observed rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from gridpriv.assurance.adversary import (
    AttackPlan,
    attacked_zones,
    forward_model,
    heard_noise,
    zone_prior,
)
from gridpriv.assurance.eavesdrop import listen, varied
from gridpriv.assurance.inversion import fit
from gridpriv.assurance.stationarity import StationarityModel, all_heard
from gridpriv.privacy.perturbation import Perturbation
from gridpriv.zonal.prepared import Prepared, noise_rule


def averaging(
    prepared: Prepared,
    plan: AttackPlan,
    rounds: Sequence[int],
    watch: Callable[[str], None] = lambda _: None,
) -> pd.DataFrame:
    """Return error against rounds heard, for demand noise drawn each round and drawn once.

    The fit is of optimality conditions where every variable is heard, else of messages. One draw
    has the same scale in both, so what differs is only how often it is drawn. Columns:
    noise_schedule, rounds, seed, mae_mw.
    """
    rows, settings = [], prepared.settings
    multiplier_of = noise_rule(
        replace(settings, rounds=1, noise_schedule="once"), prepared.rules.adjacency
    )
    zones = attacked_zones(prepared, plan.bus)
    for noise_schedule in ("round", "once"):
        rules = replace(
            prepared.rules, perturbation=Perturbation("demand", noise_schedule), noise=multiplier_of
        )
        run = varied(prepared, settings=replace(settings, rounds=max(rounds)), rules=rules)
        for seed in range(plan.seeds):
            network = listen(run, run.seed + seed)
            for count in rounds:
                errors = []
                for zone in zones:
                    own = run.zones[zone].own
                    script = [h for h in network.heard[zone] if h.warm_start or h.number <= count]
                    noise = heard_noise(run, network.heard[zone])
                    forward, prior = forward_model(run, zone, script), zone_prior(run, plan, zone)
                    model = StationarityModel(forward) if all_heard(run) else forward
                    result = fit(model, prior, noise, np.random.default_rng([run.seed, seed]))
                    errors.append(np.abs(result.demand[: len(own)] - run.case.pd[own]))
                mae = float(np.concatenate(errors).mean()) * run.case.base_mva
                rows.append(
                    {"noise_schedule": noise_schedule, "rounds": count, "seed": seed, "mae_mw": mae}
                )
                watch(f"averaging, {noise_schedule}, {count} rounds")
    return pd.DataFrame(rows)
