"""The learning module's noise under the statistical audit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from learned_models import LearnedModels, with_sample

from gridpriv.assurance.audit import audit_mechanism
from gridpriv.core.errors import InputError
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.settings import LearnSettings
from gridpriv.privacy.mechanism import Gaussian, Laplace

RUNS = 1000


def models(**given: Any) -> LearnedModels:
    """Eight samples of one feature; a flipped label changes a clipped gradient fully."""
    x, y = np.ones((8, 1)), np.where(np.arange(8) % 2, 1, -1)
    data = Dataset("made", "binary", x, y, x[:2], y[:2], classes=2, norm=1.0)
    settings: dict[str, Any] = {
        "intercept": "off",
        "clients": 1,
        "split": "contiguous",
        "rounds": 1,
        "clip": 0.5,
        "workers": 1,
    } | given
    return LearnedModels(data, with_sample(data, 0, np.ones(1), 1), LearnSettings(**settings))


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(
            {"algorithm": "ryu-kim", "mechanism": "laplace", "budget": "total:2"},
            marks=pytest.mark.slow,
        ),
        {"algorithm": "dp-admm", "mechanism": "gaussian", "budget": "total:3,1e-5"},
    ],
)
def test_sound_noise_holds_and_moves_what_is_sent(given: dict[str, Any]) -> None:
    audited = audit_mechanism(models(**given), RUNS)
    assert audited.verdict == "consistent"
    assert audited.measured.epsilon > 0.15 * audited.certified


@pytest.mark.slow
def test_half_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Laplace.perturb
    monkeypatch.setattr(
        Laplace, "perturb", lambda self, value, stream: 0.5 * (value + whole(self, value, stream))
    )
    mechanism = models(algorithm="ryu-kim", mechanism="laplace", budget="total:1.5")
    assert audit_mechanism(mechanism, RUNS).verdict == "violation"


def test_a_tenth_of_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Gaussian.perturb
    monkeypatch.setattr(
        Gaussian,
        "perturb",
        lambda self, *given: whole(replace(self, scale=0.1 * self.scale), *given),
    )
    mechanism = models(algorithm="dp-admm", mechanism="gaussian", budget="total:1,1e-5")
    assert audit_mechanism(mechanism, RUNS).verdict == "violation"


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="mechanism"):
        models(mechanism="none", algorithm="ryu-kim")
    with pytest.raises(InputError, match="split"):
        models(split="iid")
    with pytest.raises(InputError, match="batch"):
        models(algorithm="dpsgd", batch=4)
