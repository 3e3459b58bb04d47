"""What these tests share; without the ``network`` extra only those of messages are run."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "consensus"))  # the water tanks
if find_spec("grpc") is None or find_spec("cryptography") is None:
    collect_ignore = [
        "test_consortium.py",
        "test_dask_tls.py",
        "test_faults.py",
        "test_helics.py",
        "test_kills.py",
    ]
