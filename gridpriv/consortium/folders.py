"""One configuration folder per party, made from a case; a folder holds nothing of another's.

::

    DIR/coordinator/   coordinator.toml, agreement.json, its certificate and key
    DIR/ZONE/          zone.toml, agreement.json, network.json, zones.csv, demand.csv, the same
    DIR/authority/     what signs certificates; nobody needs it during a run

A zone's demand is in its own folder only.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from gridpriv.consensus.credentials import NAME
from gridpriv.consortium.agreement import Agreement, check_run, write_agreement
from gridpriv.consortium.keys import make_keys, write_keys
from gridpriv.consortium.limits import with_limits
from gridpriv.consortium.parties import CoordinatorParty, Party, ZoneParty, party_text
from gridpriv.core.errors import not_allowed
from gridpriv.core.files import make_folder, refuse_used, write_text
from gridpriv.core.text import Json, csv_text
from gridpriv.grid.case import Case, network_digest, public_network, write_network
from gridpriv.grid.zoning import Zoning, write_zoning
from gridpriv.zonal.opening import step_size
from gridpriv.zonal.prepared import Prepared, nominal_epsilon, prepare
from gridpriv.zonal.settings import Settings

CERTIFIED: Json = {name: f"{name}.pem" for name in ("certificate", "key", "authority")}


def lay_out(
    case: Case, zoning: Zoning, settings: Settings, run: str, address: str, folder: Path
) -> None:
    """Make the folders of a consortium that runs a case.

    Parameters
    ----------
    settings : Settings
        A seed among them is given to every zone.
    address : str
        Where the coordinator listens, HOST:PORT.
    folder : Path
        New or empty.
    """
    keys = make_keys(list(zoning.names))
    network = public_network(case)
    agreement = make_agreement(network, prepare(network, zoning, settings), run)
    parties: dict[str, Party] = {NAME: CoordinatorParty(listen=address, **CERTIFIED)}
    for name in zoning.names:
        parties[name] = ZoneParty(zone=name, coordinator=address, seed=settings.seed, **CERTIFIED)
    make_folder(folder)
    refuse_used(folder)
    write_keys(folder, keys)
    for name, party in parties.items():
        place = folder / name
        write_agreement(agreement, place / "agreement.json")
        kind = "coordinator" if name == NAME else "zone"
        write_text(place / f"{kind}.toml", party_text(party), private=True)
    for name, own in zip(zoning.names, zoning.members, strict=True):
        write_network(network, folder / name / "network.json")
        write_zoning(zoning, network, folder / name / "zones.csv")
        rows = [
            (int(case.bus_id[i]), *(in_mw(float(d[i]), case.base_mva) for d in (case.pd, case.qd)))
            for i in own
        ]
        text = csv_text(("bus", "pd_mw", "qd_mvar"), rows)
        write_text(folder / name / "demand.csv", text, private=True)


def make_agreement(network: Case, prepared: Prepared, run: str) -> Agreement:
    """Return the agreement of a run that was prepared on a public network."""
    settings = prepared.settings
    if settings.public_demand is not None:
        raise not_allowed(
            "public_demand", settings.public_demand, "left out: an agreement carries no file"
        )
    if settings.coordination != "rounds":
        raise not_allowed("coordination", settings.coordination, "'rounds' over a network")
    perturbation = settings.effective_perturbation()
    if perturbation.target == "demand":  # stated, as what is left out may come to mean another
        settings = replace(settings, noise_schedule=perturbation.noise_schedule)
    smooth = settings.step == "smooth" and settings.update == "linearized"
    smoothness = max(problem.smoothness for problem in prepared.problems) if smooth else None
    epsilon = nominal_epsilon(settings, prepared.rules)
    step = step_size(settings, lambda: (smoothness or 0.0, epsilon))
    return Agreement(
        run=check_run(run),
        case=prepared.case.name,
        network=network_digest(network),
        settings=settings,
        smoothness=smoothness,
        epsilon=epsilon,
        zones={
            zone.name: with_limits(prepared, place, step)
            for place, zone in enumerate(prepared.zones)
        },
    )


def in_mw(value: float, base_mva: float) -> float:
    """Return a per-unit value in MW that reads back to the same per-unit value."""
    near = value * base_mva
    tries = (near, math.nextafter(near, math.inf), math.nextafter(near, -math.inf))
    return next((mw for mw in tries if mw / base_mva == value), near)
