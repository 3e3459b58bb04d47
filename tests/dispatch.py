"""Dispatches for tests of power flows."""

from __future__ import annotations

import numpy as np

from gridpriv.power.ac.state import Dispatch


def dispatch_of(case):
    """Return the dispatch that the source of a case states, with all demand served."""
    vm = case.vm.copy()
    vm[case.gen_bus[::-1]] = case.vg[::-1]  # generators of one bus hold the first one's
    none = np.zeros(case.n_bus)
    return Dispatch(case.pg, np.where(vm > 0, vm, 1.0), case.va, none, none, none)
