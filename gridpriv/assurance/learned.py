"""Audit of the learning module: replay on adjacent data, total, and distribution of the noise.

A lane is an algorithm with its settings on synthetic samples. It runs on D, where every value
before noise is recorded, and on adjacent data D' with the same releases. The differences before
noise are then the effect of one sample (with dp-fedavg: one client). Four checks of each lane:

- ``values``: no value changes by more than its charge covers;
- ``total``: Gaussian noise at the measured changes, composed by a separate numerical integration,
  costs at most the certified total. Every draw counts, so draws without a charge are detected;
- ``distribution``: noise over its declared scale has standard deviation 1;
- ``independence``: noise of other rounds and clients is uncorrelated.

The change is extreme: sample 1 has features of full norm, reversed in D', which reverses its
clipped gradient. Measured values are near the allowed ones where the bound is tight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gridpriv.assurance.whole import gaussian_epsilon
from gridpriv.core.arrays import Floats
from gridpriv.core.text import Json
from gridpriv.learning.algorithms.base import WHOLE_BUDGET, BudgetShare, Task
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.run import Tuning, learn, tune
from gridpriv.learning.settings import LearnSettings, make_learn_settings
from gridpriv.privacy.accounting import total_epsilon
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.release import Release

CLIENTS, SAMPLES, FEATURES = 3, 8, 40
CLIP, ROUNDS, DELTA = 0.05, 12, 1e-5
SLACK = 1e-2  # of a total: two grids of losses
DEVIATIONS = 5.0  # of the distribution and independence: one in two million
LOSS_STEP, LOSS_REACH = 2e-4, 40.0


@dataclass(frozen=True)
class Lane:
    """Settings that are audited.

    Attributes
    ----------
    name : str
    arguments : mapping
        Settings that replace those common to all lanes.
    batch : {'', 'poisson', 'fixed'}
        Method of sampling; a batch contains the sample with probability b/m.
    tuned : bool
        Charged tuning chooses the learning rate first.
    module : bool
        A torch module on clients with more samples than a chunk.
    """

    name: str
    arguments: Mapping[str, Any]
    batch: str = ""
    tuned: bool = False
    module: bool = False


DPSGD = {"algorithm": "dpsgd", "learning_rate": 1.0}
FIXED = {"batch": 2, "sampling": "without-replacement"}
ADMM = {"penalty": "0.5"}
LANES = (
    Lane("dpsgd", DPSGD),
    Lane("dpsgd, zero-out", DPSGD | {"adjacency": "zero-out"}),
    Lane("dpsgd, Poisson batches", DPSGD | {"batch": 2}, "poisson"),
    Lane("dpsgd, batches without replacement", DPSGD | FIXED, "fixed"),
    Lane("dpsgd, central", DPSGD | {"trust": "central"}),
    Lane("dpsgd, secure sum", DPSGD | {"trust": "secure-sum"}),
    Lane("dpsgd, centring", DPSGD | {"centring": "on"}),
    Lane("dpsgd, charged tuning", DPSGD, tuned=True),
    Lane("dp-admm", {"algorithm": "dp-admm", **ADMM}),
    Lane("pvp", {"algorithm": "pvp", **ADMM}),
    Lane("fedspd-dp", {"algorithm": "fedspd-dp", "local_updates": 2, **ADMM}),
    Lane("cdp-admm", {"algorithm": "cdp-admm", "graph": "regular:2", "decay": 0.9, **ADMM}),
    Lane("ddp-admm", {"algorithm": "ddp-admm", "graph": "regular:2", **ADMM}),
    Lane("dp-fedavg", {"algorithm": "dp-fedavg", "learning_rate": 1.0, "local_updates": 2}),
    Lane("torch module", DPSGD, module=True),
)


@dataclass(eq=False)
class DrawTape:
    """Every draw of a run in order: values before noise, released values, and releases.

    ``outputs``, where given, are released instead of fresh draws.
    """

    outputs: Sequence[Floats] = ()
    values: list[Floats] = field(default_factory=list)
    released: list[Floats] = field(default_factory=list)
    releases: list[Sequence[Release]] = field(default_factory=list)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record draws of every task, including those of tuning."""
        original = Task.with_noise

        def with_noise(task: Task, t: int, values: Floats, releases: Sequence[Release]) -> Floats:
            k = len(self.values)
            self.values.append(values.copy())
            self.releases.append(releases)
            out = original(task, t, values, releases) if not self.outputs else self.outputs[k]
            self.released.append(out)
            return out.copy()

        setattr(Task, "with_noise", with_noise)  # noqa: B010 (mypy refuses an assignment to a method)
        try:
            yield
        finally:
            setattr(Task, "with_noise", original)  # noqa: B010


@dataclass(frozen=True)
class LearnedCheck:
    """One check of a lane: it passes where ``measured`` is at most ``allowed``."""

    lane: str
    check: str
    measured: float
    allowed: float

    @property
    def passed(self) -> bool:
        """True where ``measured`` is at most ``allowed``."""
        return self.measured <= self.allowed

    def as_dict(self) -> Json:
        """Return the check as a JSON value."""
        return vars(self) | {"passed": self.passed}


def audit_learning() -> list[LearnedCheck]:
    """Return the checks of all lanes; a lane of a torch module needs torch."""
    lanes = (lane for lane in LANES if not lane.module or _module() is not None)
    return [check for lane in lanes for check in audit_lane(lane)]


def audit_lane(lane: Lane) -> list[LearnedCheck]:
    """Run a lane on D and on D', and return its checks."""
    settings = lane_settings(lane)
    here, there = neighbours(lane, settings)
    first = DrawTape()
    charges = _trained(lane, here, settings, first)
    second = DrawTape(first.released)
    _trained(lane, there, settings, second)
    shifts, excess = [], 0.0
    for k, releases in enumerate(first.releases):
        difference = first.values[k] - second.values[k]
        release, distance = releases[0], float(np.linalg.norm(difference[0]))
        scale = release.mechanism.scale
        shifts.append(distance / scale)
        excess = max(excess, distance * release.certified.parameter / scale)
        other_changes = np.linalg.norm(difference.reshape(len(difference), -1)[1:], axis=1)
        # they use no sample
        excess = max(excess, float(other_changes.max(initial=0.0)) / scale * 1e6)
    certified = total_epsilon(charges, DELTA)
    rate = 2.0 / SAMPLES if lane.batch else 1.0
    measured = exact_total(np.array(shifts), lane.batch, rate, DELTA)
    noise = [
        (out - value).reshape(len(value), -1)
        / np.array([math.sqrt(r.mechanism.variance) for r in releases])[:, None]
        for out, value, releases in zip(first.released, first.values, first.releases, strict=True)
    ]
    return [
        LearnedCheck(lane.name, "values", excess, 1.0 + 1e-4),
        LearnedCheck(lane.name, "total", measured, certified * (1.0 + SLACK)),
        LearnedCheck(lane.name, "distribution", *_deviation(noise)),
        LearnedCheck(lane.name, "independence", *_independence(noise)),
    ]


def lane_settings(lane: Lane) -> LearnSettings:
    """Return the settings of a lane."""
    common: dict[str, Any] = {
        "clip": CLIP,
        "rounds": 6 if lane.module else ROUNDS,
        "clients": CLIENTS,
        "split": "contiguous",
        "budget": f"total:2,{DELTA:g}",
        "target_delta": DELTA,
        "intercept": "on" if lane.arguments.get("centring") == "on" else "off",
    }
    return make_learn_settings("made", None, **common | dict(lane.arguments))


def neighbours(lane: Lane, settings: LearnSettings) -> tuple[Dataset, Dataset]:
    """Return D and D': sample 1 of client 1 reversed, blank, or all of client 1 blank."""
    random = np.random.default_rng(0)
    size = 300 if lane.module else SAMPLES
    x = random.normal(size=(CLIENTS * size, FEATURES))
    x *= 0.3 / np.linalg.norm(x, axis=1, keepdims=True)
    row = size - 1 if lane.module else 0  # the last sample of a client's last chunk
    x[row] = 1.0 / math.sqrt(FEATURES)
    y = np.where(random.random(len(x)) > 0.5, 1, -1)
    here = Dataset("made", "binary", x, y, x[:4], y[:4], 2, 1.0)
    other = x.copy()
    if settings.algorithm == "dp-fedavg":
        other[:size] = 0.0
    else:
        other[row] *= -1.0 if settings.adjacency == "replace-one" else 0.0
    return here, replace(here, x_train=other)


def _trained(
    lane: Lane, dataset: Dataset, settings: LearnSettings, tape: DrawTape
) -> Mapping[Charge, int]:
    """Run a lane under a tape; return the total charges of the first client."""
    shared: BudgetShare = WHOLE_BUDGET
    with tape.recording():
        if lane.tuned:
            grid = Tuning("charged", (("learning_rate", (0.5, 1.0)),))
            chosen = tune(dataset, grid.candidates(settings), grid)
            dataset, settings, shared = chosen.dataset, chosen.settings, chosen.shared
        module = _module() if lane.module else None
        return learn(dataset, settings, module=module, shared=shared).charges[0]


def _module() -> Any:
    """Return a small linear module in double precision; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    module = torch.nn.Linear(FEATURES, 1).double()
    torch.nn.init.zeros_(module.weight)
    torch.nn.init.zeros_(module.bias)
    return module


def exact_total(shifts: Floats, batch: str, rate: float, delta: float) -> float:
    """Return the epsilon of Gaussian releases, each changed by so many standard deviations.

    Without batches in closed form (they compose to one Gaussian of mu = sqrt(sum shifts^2)); with
    them by convolving the distribution of the loss on a grid. A batch contains the sample with
    probability ``rate``; rounds without it are counted with the change of rounds with it.

    Parameters
    ----------
    shifts : (releases,)
    batch : {'', 'poisson', 'fixed'}
    """
    if not batch:
        return gaussian_epsilon(float(np.linalg.norm(shifts)), delta)
    most = float(shifts.max())
    x = np.linspace(-40.0, 40.0, 400_001)

    def normal(mean: float) -> Floats:
        return np.asarray(np.exp(-0.5 * (x - mean) ** 2))

    # with either value the sample changes a Poisson batch without it; in a batch of fixed size it
    # replaces another sample
    if batch == "poisson":
        p = (1.0 - rate) * normal(0.0) + rate * normal(most / 2.0)
        q = (1.0 - rate) * normal(0.0) + rate * normal(-most / 2.0)
    else:
        p, q = (1.0 - rate) * normal(0.0) + rate * normal(most), normal(0.0)
    return max(_composed(p, q, len(shifts), delta), _composed(q, p, len(shifts), delta))


def _composed(p: Floats, q: Floats, count: int, delta: float) -> float:
    """Return epsilon of ``count`` equal releases of densities p against q on one grid."""
    from scipy.fft import irfft, rfft
    from scipy.optimize import brentq

    support = (p > 1e-300) & (q > 1e-300)
    weights, losses = p[support] / p.sum(), np.log(p[support] / q[support])
    size = int(2 * LOSS_REACH / LOSS_STEP)
    bins = np.rint(losses / LOSS_STEP).astype(int) % size
    law = np.bincount(bins, weights, size)
    law = np.maximum(irfft(rfft(law) ** count, size), 0.0)
    grid = LOSS_STEP * ((np.arange(size) + size // 2) % size - size // 2)

    def excess(e: float) -> float:
        above = grid > e
        return float((law[above] * -np.expm1(e - grid[above])).sum()) - delta

    return 0.0 if excess(0.0) <= 0.0 else float(brentq(excess, 0.0, LOSS_REACH - 1.0))


def _deviation(noise: Sequence[Floats]) -> tuple[float, float]:
    """Return the distance of the mean square of standardized noise from 1, and its bound."""
    pooled = np.concatenate([item.ravel() for item in noise])
    return abs(float((pooled**2).mean()) - 1.0), DEVIATIONS * math.sqrt(2.0 / len(pooled))


def _independence(noise: Sequence[Floats]) -> tuple[float, float]:
    """Return the largest correlation of two draws of equal length, and its bound."""
    by_length: dict[int, list[Floats]] = {}
    for item in noise:
        by_length.setdefault(item.shape[1], []).append(item)
    worst, allowed = 0.0, 1.0
    for length, parts in by_length.items():
        rows = np.concatenate(parts)
        if len(rows) < 2:
            continue
        products = rows @ rows.T / length
        worst = max(worst, float(np.abs(products[np.triu_indices(len(rows), 1)]).max()))
        allowed = min(allowed, (DEVIATIONS + 1.0) / math.sqrt(length))
    return worst, allowed
