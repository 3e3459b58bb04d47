from __future__ import annotations

from contextlib import ExitStack

import numpy as np  # noqa: F401  # has BLAS loaded
from threadpoolctl import threadpool_info, threadpool_limits

from gridpriv.core.threads import one_blas_thread


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_of_runs_that_overlap_the_last_to_end_gives_threads_back():
    """Two threads of a program: the second begins with one thread and ends after the first."""
    with threadpool_limits(2, user_api="blas"):
        first, second = ExitStack(), ExitStack()
        for run in (first, second):
            run.enter_context(one_blas_thread())
        first.close()
        assert threads() == {1}, "the second goes on"
        second.close()
        assert threads() == {2}
        with one_blas_thread():
            assert threads() == {1}
        assert threads() == {2}
