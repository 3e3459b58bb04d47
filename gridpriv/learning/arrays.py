"""The one place that knows which array library runs: numpy, or torch through array-api-compat."""

from __future__ import annotations

from typing import Any

import numpy as np

from gridpriv.core.errors import missing_extra, not_allowed, one_of

DEVICES = ("cpu", "cuda", "torch")

# an array of whichever library runs; the array API standard has no common static type
Array = Any


def namespace(x: Array) -> Any:
    """Return the array API of ``x``; numpy needs no other package."""
    if isinstance(x, np.ndarray):
        return np
    from array_api_compat import array_namespace

    return array_namespace(x)


def on_device(x: Array, device: str) -> Array:
    """Return a numpy array on a device: ``cpu`` (numpy), ``cuda``, or ``torch`` on the CPU."""
    if device == "cpu":
        return x
    torch = _torch(device)
    return torch.as_tensor(np.ascontiguousarray(x), device="cuda" if device == "cuda" else "cpu")


def check_device(device: str) -> None:
    """Raise :class:`InputError` if the device cannot be used here."""
    one_of("device", device, DEVICES)
    if device != "cpu":
        torch = _torch(device)
        if device == "cuda" and not torch.cuda.is_available():
            raise not_allowed("device", device, "cpu: this machine has no CUDA device")


def to_numpy(x: Array) -> Any:
    """Return a float64 numpy array of any array."""
    if isinstance(x, np.ndarray):
        return x.astype(np.float64, copy=False)
    return x.detach().cpu().numpy().astype(np.float64)


def like(values: Array, x: Array) -> Array:
    """Return ``values`` in the library, the type and on the device of ``x``."""
    if isinstance(x, np.ndarray):
        return values.astype(x.dtype, copy=False)
    import torch

    return torch.as_tensor(values, dtype=x.dtype, device=x.device)


def precise(x: Array) -> Array:
    """Return ``x`` in float64, in its library and on its device."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) else x.double()


def transposed(x: Array) -> Array:
    """Return ``x`` with its last two axes swapped."""
    return np.swapaxes(x, -1, -2) if isinstance(x, np.ndarray) else x.mT


def _torch(device: str) -> Any:
    try:
        import array_api_compat  # noqa: F401
        import torch
    except ImportError as error:
        raise missing_extra(str(error.name), "learning", f"--device {device}") from None
    return torch
