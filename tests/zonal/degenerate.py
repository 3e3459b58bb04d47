"""Small degenerate grids from a seed, as MATPOWER text and a zone map.

One bus, two buses, buses without lines, islands, zones of one bus, zones without ties, no
generators, no demand, negative demand, equal or infinite limits, parallel lines, shunts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

BASE = 100.0


@dataclass(frozen=True)
class Grid:
    """A grid, its zone map and the words of a run on it.

    Attributes
    ----------
    lone : frozenset of int
        Bus numbers without line, generator or shunt: they can be served by nothing.
    demand : dict of int to float
        MW.
    """

    text: str
    zoning: str
    words: tuple[str, ...]
    lone: frozenset[int]
    demand: dict[int, float]
    zones: int

    def write(self, folder: Path) -> tuple[str, ...]:
        """Write the files; return the words of the command."""
        case, zones = folder / "grid.m", folder / "zones.csv"
        case.write_text(self.text, encoding="utf-8")
        zones.write_text(self.zoning, encoding="utf-8")
        return ("run", str(case), "--zoning", str(zones), *self.words)


PRIVACY = (
    ("--mechanism", "none"),
    (),
    ("--noise-schedule", "once"),
    ("--release", "total"),
    ("--release", "tree"),
    ("--release", "auto", "--noise-schedule", "once"),
    ("--release", "nothing"),
    ("--perturbation", "objective"),
    ("--perturbation", "output"),
    ("--perturbation", "output", "--mechanism", "gaussian", "--budget", "total:2,1e-5"),
    ("--perturbation", "objective", "--protects", "q", "--epsilon", "0.3"),
    ("--update", "linearized", "--step", "smooth", "--mechanism", "none"),
    ("--update", "linearized", "--consensus", "all", "--perturbation", "output"),
    ("--consensus", "all", "--start", "flat"),
    ("--preset", "ryu-kim"),
    ("--preset", "ryu-kim", "--perturbation", "output", "--mechanism", "gaussian"),
)


def grid(seed: int) -> Grid:
    """Return the grid of a seed."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([1, 2, 2, 3, 4, 6, 9]))
    numbers = np.sort(rng.choice(np.arange(1, 40), size=n, replace=False))
    lines = _lines(rng, n)
    gens = rng.integers(0, n, size=int(rng.choice([0, 0, 1, 1, 2, 4])))
    pd = rng.normal(10.0, 10.0, n) * rng.choice([0.0, 1.0, 1.0, -1.0, 30.0])
    qd = 0.3 * pd * rng.choice([0.0, 1.0, -1.0])
    shunt = rng.normal(0.0, 5.0, (n, 2)) * (rng.random((n, 2)) < 0.2)
    band = rng.choice([0.0, 0.05, 0.1])
    rows = [
        [
            numbers[i],
            3 if i == 0 else 1,
            pd[i],
            qd[i],
            *shunt[i],
            1,
            1,
            0,
            135,
            1,
            1 + band,
            1 - band,
        ]
        for i in range(n)
    ]
    objective = "cost" if len(gens) and rng.random() < 0.2 else "imbalance"
    text = "\n".join(
        [
            "function mpc = degenerate",
            "mpc.version = '2';",
            f"mpc.baseMVA = {BASE};",
            _table("bus", rows),
            _table("gen", [_gen(rng, numbers[g]) for g in gens]),
            _table("branch", [_branch(rng, numbers[i], numbers[j]) for i, j in lines]),
            _table(
                "gencost",
                [[2, 0, 0, 3, *rng.choice([[0.01, 20, 0], [0, 5, 1], [0, 0, 0]])] for _ in gens],
            ),
        ]
    )
    zone_of = _zones(rng, n)
    zoning = "bus,zone\n" + "".join(f"{b},{z}\n" for b, z in zip(numbers, zone_of, strict=True))
    touched = {i for line in lines for i in line} | set(gens.tolist())
    lone = {int(numbers[i]) for i in range(n) if i not in touched and not shunt[i].any()}
    privacy = PRIVACY[rng.integers(len(PRIVACY))]
    # a linearized step of 1/sqrt(t) diverges on the penalty of a cost, and ends in a solver's error
    paper = {"ryu-kim", "linearized"} & set(privacy)
    objective_words = () if paper else ("--objective", objective)
    words = (
        *privacy,
        *objective_words,
        "--rounds",
        str(rng.choice([1, 3, 25])),
        "--seed",
        str(seed),
        "--solver",
        str(rng.choice(["clarabel", "ipopt"])),
    )
    demand = {int(b): float(p) for b, p in zip(numbers, pd, strict=True)}
    return Grid(text, zoning, words, frozenset(lone), demand, len(set(zone_of)))


def _lines(rng: np.random.Generator, n: int) -> list[tuple[int, int]]:
    """A forest, a tree, or a tree with more lines, some of them parallel or turned round."""
    if n == 1:
        return []
    tree = [(int(rng.integers(0, i)), i) for i in range(1, n)]
    subset = [line for line in tree if rng.random() < rng.choice([0.3, 0.7, 1.0])]
    more = [tuple(int(k) for k in rng.choice(n, 2, replace=False)) for _ in range(rng.integers(3))]
    return subset + more if rng.random() < 0.5 else subset


def _zones(rng: np.random.Generator, n: int) -> list[int]:
    """Every bus alone, all in one, or anything between; zones need not be connected."""
    kind = rng.integers(3)
    if kind == 0:
        return list(range(n))
    if kind == 1:
        return [0] * n
    return [int(z) for z in rng.integers(0, n, n)]


def _gen(rng: np.random.Generator, bus: int) -> list[object]:
    low, high = sorted(rng.normal(10.0, 30.0, 2))
    boxes = [(0, 50), (low, high), (20, 20), (0, 0), ("-Inf", "Inf"), (0, "Inf")]
    pmin, pmax = boxes[rng.integers(len(boxes))]
    qmin, qmax = boxes[rng.integers(len(boxes))]
    return [bus, 0, 0, qmax, qmin, 1, BASE, 1, pmax, pmin]


def _branch(rng: np.random.Generator, f: int, t: int) -> list[object]:
    r, x = rng.choice([[0.01, 0.1], [0.0, 0.2], [0.1, 0.0], [1e-4, 1e-4], [0.5, -0.1]])
    rate = rng.choice([0, 0, 1, 100])
    tap, shift = rng.choice([[0, 0], [0, 0], [0.95, 0], [1.05, 10]])
    angle = rng.choice([0, 30, 60, 360])
    return [f, t, r, x, rng.choice([0, 0.02]), rate, 0, 0, tap, shift, 1, -angle, angle]


def _table(name: str, rows: list[list[object]]) -> str:
    lines = "".join("\t" + "\t".join(str(cell) for cell in row) + ";\n" for row in rows)
    return f"mpc.{name} = [\n{lines}];"
