"""A folder a party, made from a case: what each needs, and nothing of another's.

::

    DIR/coordinator/   coordinator.toml, terms.json, its certificate and key
    DIR/ZONE/          zone.toml, terms.json, network.json, zones.csv, demand.csv, the same
    DIR/authority/     what signs certificates; nobody needs it during a run

A zone's demand is in its own folder only.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from gridpriv.consensus.grpc_transport import NAME
from gridpriv.consortium.keys import check_name, make_keys, write_pair
from gridpriv.consortium.parties import CoordinatorParty, Party, ZoneParty, party_text
from gridpriv.consortium.terms import Shared, Terms, check_run, write_terms
from gridpriv.core.document import Json
from gridpriv.core.errors import not_allowed
from gridpriv.core.files import make_folder, refuse_used, write_text
from gridpriv.core.text import csv_text
from gridpriv.grid.case import Case
from gridpriv.grid.network_file import network_digest, public_network, write_network
from gridpriv.grid.zoning import Zoning, write_zoning
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.program import compile_zone
from gridpriv.zonal.checks import claimed_epsilon
from gridpriv.zonal.prepared import Prepared, prepare
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
    for name in zoning.names:
        check_name(name)
    network = public_network(case)
    terms = make_terms(network, prepare(network, zoning, settings), run)
    authority, pairs = make_keys(list(zoning.names))
    parties: dict[str, Party] = {NAME: CoordinatorParty(listen=address, **CERTIFIED)}
    for name in zoning.names:
        parties[name] = ZoneParty(zone=name, coordinator=address, seed=settings.seed, **CERTIFIED)
    make_folder(folder)
    refuse_used(folder)
    write_pair(folder / "authority", authority, authority.certificate)
    for name, party in parties.items():
        place = folder / name
        write_pair(place, pairs[name], authority.certificate)
        write_terms(terms, place / "terms.json")
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


def make_terms(network: Case, prepared: Prepared, run: str) -> Terms:
    """Return the terms of a run that was prepared on a public network."""
    settings = prepared.settings
    if settings.public_demand is not None:
        raise not_allowed("public_demand", settings.public_demand, "left out: terms carry no file")
    if settings.coordination != "rounds":
        raise not_allowed("coordination", settings.coordination, "'rounds' over a network")
    perturbation = settings.effective_perturbation()
    if perturbation.target == "demand":  # said, as what is left out may come to mean another
        settings = replace(settings, refresh=perturbation.refresh)
    zones = {zone.name: Shared.of(prepared, z) for z, zone in enumerate(prepared.zones)}
    smooth = settings.step == "smooth" and settings.update == "linearized"
    problems = (ZoneProblem(compile_zone(zone), settings.solver) for zone in prepared.zones)
    return Terms(
        run=check_run(run),
        case=prepared.case.name,
        network=network_digest(network),
        settings=settings,
        smoothness=max(problem.smoothness for problem in problems) if smooth else None,
        epsilon=claimed_epsilon(settings, prepared.rules),
        zones=zones,
    )


def in_mw(value: float, base_mva: float) -> float:
    """Return a per-unit value in MW that reads back to the same per-unit value."""
    near = value * base_mva
    tries = (near, math.nextafter(near, math.inf), math.nextafter(near, -math.inf))
    return next((mw for mw in tries if mw / base_mva == value), near)
