"""Test of the low-order bits of values with secure noise.

A float that is drawn and added to an unrounded one leaves a trace (Mironov, CCS 2012). Let v be
the value, u its last place, L the draw. Where |v + L| < v/16, |L| is between v/2 and 2v, so both
are multiples of u/2, and so is their sum, which is exact (Sterbenz): the sum's own last place is
u/32 or finer, and its last bits, all zero, tell v's. A secure mechanism rounds v to a grid of its
own that is finer than u/32 (at most scale/2^60) and adds a whole number of its steps, whose law
is all but level over u/2: such a sum is a multiple of u/2 with probability at most 1/8.

So many values are released at once, and the multiples among the small sums counted; the bound on
their number is exact.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
from scipy import stats

from gridpriv.assurance.replay import Finding
from gridpriv.privacy.mechanism import MECHANISMS
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.sensitivity import Sensitivity

LOW_BITS = "low bits"
VALUES = 2_000
MANTISSA = 4.0 / 3.0  # of the value over the scale: all its bits are in use
CHANCE = 1e-9  # of a finding where there is nothing to find: secure noise has no seed


def low_bits(rule: NoiseRule) -> list[Finding]:
    """Return the counts of noisy values on the value's own grid; [] without OpenDP."""
    if (rule.mechanism, "secure") not in MECHANISMS:
        return []
    if rule.mechanism != "knorm" and find_spec("opendp") is None:
        return []
    secure = NoiseRule(rule.mechanism, "secure", rule.multiplier)
    mechanism = secure.release(Sensitivity(1.0, rule.norm, "any value")).mechanism
    value = np.full(VALUES, MANTISSA * mechanism.scale)
    noisy = mechanism.perturb(value, np.random.default_rng)
    small = noisy[np.abs(noisy) < value / 16.0]
    on_grid = np.fmod(small, np.spacing(value[0]) / 2.0) == 0.0
    allowed = float(stats.binom.isf(CHANCE, len(small), 1.0 / 8.0))
    return [Finding(LOW_BITS, "-", "-", float(on_grid.sum()), allowed)]
