"""A function in another process: same answers, failures heard, nothing left behind."""

import math
import os
import time

import pytest

from gridpriv.core.errors import GridprivError
from gridpriv.core.processes import Beside


def test_answers_are_the_functions_and_the_process_is_gone_afterwards():
    with Beside(math.sqrt, os.getcwd) as root:
        assert [root(x) for x in (4.0, 2.0)] == [2.0, math.sqrt(2.0)]
        process = root._process
        assert process.is_alive()
    assert not process.is_alive()


def test_a_failure_there_is_raised_here():
    with Beside(math.sqrt, os.getcwd) as root, pytest.raises(ValueError, match="math domain"):
        root(-1.0)


def test_a_failure_to_get_ready_is_raised_at_the_first_question():
    with Beside(math.sqrt, {}.popitem) as root, pytest.raises(KeyError):
        root(1.0)


def test_a_process_that_dies_is_no_answer():
    with Beside(os._exit, os.getcwd) as last, pytest.raises(GridprivError, match="ended before"):
        last(1)


def test_leaving_does_not_wait_for_a_process_that_is_busy():
    began = time.perf_counter()
    with Beside(math.sqrt, sleep_long):
        pass
    assert time.perf_counter() - began < 10.0


def sleep_long():
    time.sleep(60.0)
