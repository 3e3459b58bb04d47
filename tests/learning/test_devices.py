"""Runs on torch (on the CPU and on CUDA) against runs on numpy; skipped where there is none."""

from __future__ import annotations

import made
import numpy as np
import pytest

from gridpriv.learning import learn

CASES = {
    "ryu-kim": {"local_updates": 2, "box": 0.5, "penalty": "1"},
    "ryu-kim output": {"perturbation": "output", "penalty": "1"},
    "dp-admm": {"penalty": "1", "regularizer": "l1:0.01"},
    "admm": {"mechanism": "none", "penalty": "1", "regularizer": "l2:0.01"},
    "pvp": {"penalty": "1", "regularizer": "l2:0.01"},
    "dvp": {"penalty": "1", "regularizer": "l2:0.01"},
    "dpsgd": {"batch": 5, "clip": 0.5},
    "dp-fedavg": {"local_updates": 2, "sampled_clients": 2},
    "fedspd-dp": {"batch": 5, "local_updates": 3, "penalty": "2", "sampled_clients": 3},
    "cdp-admm": {"graph": "regular:2", "penalty": "0.5"},
    "ddp-admm": {"graph": "regular:2", "penalty": "0.5"},
    "centralized": {"mechanism": "none", "regularizer": "l2:0.01"},
}


@pytest.mark.parametrize("device", ["torch", "cuda"])
@pytest.mark.parametrize("name", CASES)
def test_torch_and_numpy_agree(name, device):
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    data = made.multiclass() if name.startswith("ryu-kim") else made.binary()
    given = {
        "algorithm": name.split()[0],
        "clients": 4,
        "rounds": 20,
        "evaluate_every": 20,
        "budget": "total:5,1e-5",
        **CASES[name],
    }
    ours, reference = (learn(data, made.plain(**given, device=d)) for d in ("cpu", device))
    scale = np.abs(ours.w).max()
    assert np.abs(ours.w - reference.w).max() < 1e-4 * scale
    assert np.abs(ours.local - reference.local).max() < 1e-4 * np.abs(ours.local).max()
    assert reference.final["objective"] == pytest.approx(ours.final["objective"], rel=1e-4)
    assert reference.privacy["total"] == ours.privacy["total"]
