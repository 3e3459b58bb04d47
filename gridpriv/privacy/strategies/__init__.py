"""Strategies of a release: statistics of demand, their noise, and the estimate.

A strategy is a matrix of statistics. It is applied to the private demand before the noise, and
the demand is estimated from what was released and from public priors after it: everything after
the release is post-processing. Strategies know vectors of units and groups of them, not grids.
"""

MOST_COSINES = 6
"""Of a sum over time, that are released at most."""
