"""A client of a Dask cluster."""

from __future__ import annotations

from typing import Any

from gridpriv.core.errors import InputError, missing_extra


def connect(address: str) -> Any:  # distributed has no types of its own
    """Return a client of the scheduler at ``address``; a context manager.

    Raises
    ------
    InputError
        Where nothing answers, or the ``cluster`` extra is not installed.
    """
    try:
        from distributed import Client
    except ImportError:
        raise missing_extra("distributed", "cluster", "--cluster") from None
    try:
        return Client(address, timeout="10s")
    except (OSError, ValueError, TypeError) as error:  # TypeError: tls:// without certificates
        raise InputError(
            f"cluster = {address!r} cannot be reached: {error}; start one with "
            "'dask scheduler' and 'dask worker ADDRESS'"
        ) from error
