"""Low bits of secure noise, compared with the same distributions drawn as floats."""

from __future__ import annotations

import pytest

from gridpriv.assurance.independence import low_bits
from gridpriv.privacy import mechanism
from gridpriv.privacy.perturbation import NoiseRule

LAWS = {
    "laplace": (mechanism.SecureLaplace, mechanism.Laplace),
    "gaussian": (mechanism.SecureGaussian, mechanism.Gaussian),
    "knorm": (mechanism.SecureKNorm, mechanism.KNorm),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("multiplier", [1e-4, 0.37, 2.0, 300.0])
def test_secure_noise_hides_them_and_floats_do_not(name, multiplier, monkeypatch):
    rule = NoiseRule(name, "simulated", multiplier)
    (finding,) = low_bits(rule)
    assert finding.passed, finding
    secure, of_floats = LAWS[name]

    def floats(self, value, stream):
        return of_floats(self.scale).perturb(value, stream)

    monkeypatch.setattr(secure, "perturb", floats)
    (finding,) = low_bits(rule)
    assert not finding.passed, finding
