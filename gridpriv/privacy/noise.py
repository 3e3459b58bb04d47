"""Randomness of noise: streams of a simulation, and exact draws of integers.

A simulation has one independent stream per (run, zone, round, update): a draw depends only on where
it is used, so results do not depend on the order of zones or the number of workers.

Floating-point logarithms and exponentials leave traces in the low bits of noise, which can reveal
the input (Mironov, CCS 2012). The integers of secure noise are built from uniform integers, so
their distributions are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np


@dataclass(frozen=True)
class NoiseStreams:
    """Streams of one run, from its seed."""

    seed: int

    def stream(self, zone: int, round_: int, update: int) -> np.random.Generator:
        """Return the generator of a zone's update; it depends on the arguments only."""
        spawned = np.random.SeedSequence(self.seed, spawn_key=(zone, round_, update))
        return np.random.Generator(np.random.PCG64(spawned))


Below = Callable[[int], int]
"""Uniform integer of 0..n-1, such as :func:`secrets.randbelow`."""


def bernoulli(chance: Fraction, below: Below) -> bool:
    """Return True with a rational probability."""
    return below(chance.denominator) < chance.numerator


def bernoulli_exp(rate: Fraction, below: Below) -> bool:
    """Return True with probability exp(-rate), 0 <= rate <= 1 (Canonne, Kamath and Steinke 2020).

    The alternating series of exp(-rate): the first failure of a chain of Bernoulli(rate/k) comes
    at an odd k with that probability.
    """
    k = 1
    while bernoulli(rate / k, below):
        k += 1
    return k % 2 == 1


def geometric(rate: Fraction, below: Below) -> int:
    """Return x of 0, 1, ... with probability proportional to exp(-rate x).

    Canonne, Kamath and Steinke (2020), algorithm 2: with rate = s/t, X is drawn with P[X]
    proportional to exp(-X/t) as a remainder below t and a number of whole t, and X // s has the
    required distribution.
    """
    s, t = rate.numerator, rate.denominator
    while True:
        remainder = below(t)
        if bernoulli_exp(Fraction(remainder, t), below):
            break
    wholes = 0
    while bernoulli_exp(Fraction(1), below):
        wholes += 1
    return (remainder + t * wholes) // s


def box_integers(rate: Fraction, dimension: int, below: Below) -> tuple[int, ...]:
    """Return an integer point z with probability proportional to exp(-rate max|z_i|).

    As the sum over radii j >= max|z| of exp(-rate j)(1 - exp(-rate)) is exp(-rate max|z|), z is
    uniform in the cube of a radius j that has P[j] proportional to (2j + 1)^k exp(-rate j). A sum
    of k + 1 geometric draws has P[j] proportional to (j + 1)...(j + k) exp(-rate j); it is kept
    with probability prod (2j + 1)/(2j + 2i), which is at most 1 and rational.
    """
    while True:
        j = sum(geometric(rate, below) for _ in range(dimension + 1))
        acceptance = Fraction(
            (2 * j + 1) ** dimension, prod(2 * (j + i) for i in range(1, dimension + 1))
        )
        if bernoulli(acceptance, below):
            return tuple(below(2 * j + 1) - j for _ in range(dimension))
