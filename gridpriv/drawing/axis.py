"""A scale from values to pixels, and its round values."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """A scale from values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def at(self, value: float) -> float:
        """Return the pixel of a value; what lies beyond the axis lies on its edge."""
        return self.start + min(max(self._share(value), 0.0), 1.0) * (self.end - self.start)

    def beyond(self, value: float) -> float:
        """Return the pixel of a value, also outside the axis (on a log axis, up to 3 decades)."""
        return self.start + self._share(value) * (self.end - self.start)

    def _share(self, value: float) -> float:
        a, b, v = self.low, self.high, value
        if self.log:
            a, b, v = math.log10(a), math.log10(b), math.log10(max(value, self.low / 1000.0))
        return (v - a) / (b - a) if b > a else 0.5

    def ticks(self, fewest: int = 1) -> list[float]:
        """Return round values along the axis; a log axis too short for decades has even steps."""
        found = _log_ticks(self.low, self.high, fewest) if self.log else []
        for steps in (5, 8, 12):
            if len(found) < fewest:
                found = _linear_ticks(self.low, self.high, steps)
        return found


def _log_ticks(low: float, high: float, fewest: int) -> list[float]:
    """Return powers of ten, with 3s, or 2s and 5s, between them where there are too few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = max(1, (last - first) // 6)
    found: list[float] = []
    for steps in ((1, 2, 5),) if math.log10(high / low) <= 2.1 else ((1,), (1, 3), (1, 2, 5)):
        powers = range(first, last + 1, stride)
        found = [v for d in powers for s in steps if low <= (v := s * 10.0**d) <= high]
        if len(found) >= fewest:
            break
    return found


def _linear_ticks(low: float, high: float, steps: int) -> list[float]:
    raw = (high - low) / steps
    if raw <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= raw * 0.999)
    first = math.ceil(low / step)
    return [float(f"{k * step:.10g}") for k in range(first, math.floor(high / step) + 1)]
