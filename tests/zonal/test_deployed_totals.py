"""Certificates of simulated runs hold for the same settings with secure noise."""

import pytest

from gridpriv.zonal.prepared import prepare, zone_certificates
from gridpriv.zonal.settings import make_settings

pytest.importorskip("opendp")


def certificate(case, zoning, given, noise):
    """Return the certificates of the zones for all releases that a run may draw."""
    settings = make_settings(
        **given, noise=noise, rounds=20, local_updates=2, release="tree", planning="soc"
    )
    prepared = prepare(case, zoning, settings)
    rule, adjacency = prepared.rules.noise, prepared.rules.adjacency
    releases = {
        zone: {
            rule.release(disclosure.sensitivity(adjacency, rule.norm)): settings.planned_releases()
        }
        for zone, disclosure in zip(zoning.names, prepared.disclosures, strict=True)
    }
    return zone_certificates(releases, settings, prepared.rules)


@pytest.mark.parametrize("protects", ["p", "p+q"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian", "knorm"])
@pytest.mark.parametrize("schedule", ["once", "round", "update"])
def test_a_simulated_run_certifies_what_secure_noise_does(
    case14, zones14, schedule, mechanism, protects
):
    given = {
        "noise_schedule": schedule,
        "mechanism": mechanism,
        "protects": protects,
        "budget": "total:5,1e-5",
    }
    simulated = certificate(case14, zones14, given, "simulated")
    secure = certificate(case14, zones14, given, "secure")
    for first, other in zip(simulated, secure, strict=True):
        for name in ("total", "total_pure", "certified", "scale", "releases"):
            assert getattr(first, name) == pytest.approx(getattr(other, name), rel=1e-7), name
        assert 3.5 < first.total <= 5.0 * (1 + 1e-6)  # a tree loses less than its whole distance
