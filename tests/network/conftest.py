"""Fixtures of these tests; without the ``network`` extra only those of messages are run."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gridpriv import run

sys.path.insert(0, str(Path(__file__).parents[1] / "consensus"))  # the water tanks
if find_spec("cryptography") is None:
    collect_ignore = [
        "test_bad_faith.py",
        "test_verify.py",
        "test_namespaces.py",
        "test_consortium.py",
        "test_dask_tls.py",
        "test_faults.py",
        "test_helics.py",
        "test_kills.py",
    ]


@pytest.fixture(scope="module")
def template(case14, zones14, tmp_path_factory):
    from parties import laid_out

    return laid_out(case14, zones14, tmp_path_factory.mktemp("consortium"))


@pytest.fixture
def folder(template, tmp_path):
    return Path(shutil.copytree(template, tmp_path / "here"))


@pytest.fixture(scope="module")
def in_one_process(case14, zones14):
    from parties import settings

    return run(case14, zones14, settings())
