"""Every choice of a learning run, validated once, and the papers' presets."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from gridpriv.core.errors import not_allowed, one_of, positive, whole
from gridpriv.learning.adjacency import KINDS, Kind
from gridpriv.learning.algorithms.names import (
    ALGORITHMS,
    NON_PRIVATE,
    PERTURBED,
    READS,
    SPECIFIC,
)
from gridpriv.learning.arrays import DEVICES
from gridpriv.learning.regularizers import parse_regularizer
from gridpriv.learning.schedules import BudgetedPenalty, parse_penalty
from gridpriv.privacy.accounting import check_delta, classical_gaussian_multiplier
from gridpriv.privacy.budget import Budget, parse_budget

CHOICES: dict[str, tuple[str, ...]] = {
    "algorithm": ALGORITHMS,
    "mechanism": ("none", "laplace", "gaussian"),
    "perturbation": ("objective", "output"),
    "calibration": ("sound", "paper"),
    "adjacency": KINDS,
    "step": ("nonsmooth", "smooth"),
    "sampling": ("poisson", "without-replacement", "with-replacement"),
    "missing": ("drop", "mode"),
    "device": DEVICES,
}
WHOLE_NUMBERS = (
    "rounds", "local_updates", "evaluate_every", "workers", "clients", "batch", "sampled_clients",
)  # fmt: skip
POSITIVE = ("step_scale", "radius", "learning_rate", "box", "norm", "clip")
OPTIONAL = ("clients", "batch", "sampled_clients", "box", "norm", "clip")


# what a comparison sets itself
SET_BY_COMPARISON = ("algorithm", "budget", "calibration", "target_delta", "seed")


@dataclass(frozen=True)
class LearnSettings:
    """Settings of a learning run.

    Attributes
    ----------
    algorithm : str
        One of :data:`gridpriv.learning.algorithms.names.ALGORITHMS`.
    mechanism, perturbation, calibration, budget, delta, target_delta
        As in :class:`gridpriv.zonal.settings.Settings`; ``perturbation`` is ryu-kim's only.
    adjacency : {'replace-one', 'add-one'}
        What one sample may do.
    norm : float or None
        Clip features to this 2-norm; None for the data set's own public bound.
    clip : float or None
        Clip every sample's gradient (or, for dp-fedavg, every client's update) to this.
    clients : int or None
        None for every writer; 10 where the data set names none.
    split : str
        iid, contiguous, writer or dirichlet:A.
    rounds, local_updates : int
        T; E of ryu-kim, Q of fedspd-dp and dp-fedavg.
    step : {'nonsmooth', 'smooth'}
        Huang et al.'s theorem 3 or 4 for dp-admm.
    step_scale : float
        a of ryu-kim's eta^t = a / sqrt(t); the constant eta of cdp-admm and ddp-admm.
    penalty : str
        A number, or ``growing:START,FACTOR,EVERY,MOST[,OVER_EPSILON]``.
    batch, sampling : int or None, str
        Samples of a local step (None: all) and how they are drawn.
    sampled_clients : int or None
        K clients of a round, drawn in public; None: all.
    regularizer : str
        none, l1:L or l2:L.
    box : float or None
        u of [-u, u]^n.
    radius : float
        c_w, the norm of a solution, in dp-admm's step size.
    learning_rate : float
        Of dpsgd and of dp-fedavg's local steps.
    decay : float
        R of cdp-admm's variance.
    graph : str
        Of cdp-admm and ddp-admm: ring, complete, regular:D or a file of links.
    missing : {'drop', 'mode'}
        Of Adult's missing values.
    device : {'cpu', 'cuda', 'torch'}
    workers : int
        Threads over clients.
    evaluate_every : int
        Rounds between evaluations of loss and test error; the last is always evaluated.
    seed : int
        Of splits, samples and noise: simulations only.
    """

    algorithm: str = "ryu-kim"
    mechanism: Literal["none", "laplace", "gaussian"] = "gaussian"
    perturbation: Literal["objective", "output"] = "objective"
    calibration: Literal["sound", "paper"] = "sound"
    budget: str = "total:1,1e-5"
    delta: float = 1e-5
    target_delta: float = 1e-5
    adjacency: Kind = "replace-one"
    norm: float | None = None
    clip: float | None = None
    clients: int | None = None
    split: str = "iid"
    rounds: int = 100
    local_updates: int = 1
    step: Literal["nonsmooth", "smooth"] = "nonsmooth"
    step_scale: float = 1.0
    penalty: str = "growing:2,1.2,10000,1e9,5"
    batch: int | None = None
    sampling: str = "poisson"
    sampled_clients: int | None = None
    regularizer: str = "none"
    box: float | None = None
    radius: float = 23.0
    learning_rate: float = 0.1
    decay: float = 0.975
    graph: str = "regular:4"
    missing: Literal["drop", "mode"] = "drop"
    device: str = "cpu"
    workers: int = 2
    evaluate_every: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            one_of(name, getattr(self, name), choices)
        for names, check in ((WHOLE_NUMBERS, whole), (POSITIVE, positive)):
            for name in names:
                value = getattr(self, name)
                if value is not None or name not in OPTIONAL:
                    check(name, value)
        whole("seed", self.seed, least=0)
        if not 0.0 < self.decay < 1.0:
            raise not_allowed("decay", self.decay, "a number above 0 and below 1")
        check_delta("delta", self.delta)
        check_delta("target_delta", self.target_delta)
        parse_regularizer(self.regularizer)
        self.penalty_schedule()
        self._check_read()
        self._check_privacy()

    def _check_read(self) -> None:
        """Refuse a setting that the algorithm does not read: it would be ignored."""
        for field in fields(self):
            if field.name in SPECIFIC - READS[self.algorithm]:
                value = getattr(self, field.name)
                if value != field.default:
                    raise not_allowed(
                        field.name, value, f"left out with {self.algorithm}, which does not read it"
                    )

    def _check_privacy(self) -> None:
        budget = self.privacy_budget
        if self.mechanism != "none" and self.algorithm in NON_PRIVATE:
            raise not_allowed("mechanism", self.mechanism, f"none with {self.algorithm}")
        if self.mechanism == "laplace" and self.algorithm != "ryu-kim":
            raise not_allowed("mechanism", "laplace", f"gaussian or none with {self.algorithm}")
        if self.mechanism != "gaussian":
            return
        if budget.scope == "total" and budget.delta is None:
            raise not_allowed(
                "budget",
                self.budget,
                "total:E,D with the Gaussian mechanism (it has no pure epsilon)",
            )
        if self.calibration == "paper" and budget.scope == "per-release":
            classical_gaussian_multiplier(budget.epsilon, budget.delta or self.delta)

    @property
    def privacy_budget(self) -> Budget:
        """The parsed budget."""
        return parse_budget(self.budget)

    @property
    def release_delta(self) -> float:
        """Delta at which one release's epsilon is stated."""
        budget = self.privacy_budget
        return budget.delta if budget.scope == "per-release" and budget.delta else self.delta

    def penalty_schedule(self) -> BudgetedPenalty:
        """Return the schedule of ``penalty``, before it knows epsilon."""
        return parse_penalty(self.penalty)

    def as_dict(self) -> dict[str, Any]:
        """Return every effective setting, as JSON can hold it."""
        shown = asdict(self)
        perturbed = PERTURBED.get(self.algorithm, self.perturbation)
        return shown | {"perturbation": "none" if self.mechanism == "none" else perturbed}


RYU_KIM: dict[str, Any] = {
    "algorithm": "ryu-kim", "mechanism": "gaussian", "perturbation": "objective",
    "calibration": "paper", "budget": "per-release:1", "delta": 1e-6, "adjacency": "add-one",
    "regularizer": "l2:2e-6", "rounds": 5000, "evaluate_every": 50,
}  # fmt: skip
HUANG: dict[str, Any] = {
    "algorithm": "dp-admm", "calibration": "paper", "budget": "per-release:0.1", "delta": 1e-3,
    "clients": 100, "penalty": "0.1", "rounds": 100, "evaluate_every": 1,
}  # fmt: skip
LI: dict[str, Any] = {
    "algorithm": "fedspd-dp", "calibration": "paper", "budget": "per-release:1", "delta": 1e-4,
    "clients": 100, "sampled_clients": 20, "penalty": "20", "local_updates": 5, "batch": 10,
    "sampling": "without-replacement", "regularizer": "l1:1e-4", "rounds": 100,
    "missing": "mode", "evaluate_every": 1,
}  # fmt: skip
GAUTHIER: dict[str, Any] = {
    "algorithm": "cdp-admm", "calibration": "sound", "budget": "total:10,1e-5", "split": "writer",
    "penalty": "4", "rounds": 300, "clip": 20.0, "evaluate_every": 1,
}  # fmt: skip

# preset and data set -> settings; Ryu and Kim's constants are those of section 6.2 and E.1
PRESETS: dict[tuple[str, str], dict[str, Any]] = {
    ("ryu-kim", "mnist"): RYU_KIM
    | {"clients": 10, "split": "contiguous", "box": 0.1, "penalty": "growing:2,1.2,10000,1e9,5"},
    ("ryu-kim", "femnist"): RYU_KIM
    | {"split": "writer", "box": 1.0, "penalty": "growing:0.005,1.2,2000,1e9,0.05",
       "step_scale": 100.0},
    ("huang-l1", "adult"): HUANG | {"regularizer": "l1:1e-6", "radius": 23.0},
    ("huang-l2", "adult"): HUANG | {"regularizer": "l2:1e-6", "radius": 89.0, "step": "smooth"},
    ("li", "adult"): LI,
    ("gauthier", "lasso"): GAUTHIER,
}  # fmt: skip


def make_learn_settings(dataset: str, preset: str | None = None, **given: Any) -> LearnSettings:
    """Return settings: the defaults, a preset over them, and what is given over both.

    With another algorithm than the preset's, what that algorithm does not read is left out of the
    preset; given, it is refused. ``admm`` and ``centralized`` have no noise unless told otherwise.
    """
    values: dict[str, Any] = {}
    if preset is not None:
        known = sorted({name for name, _ in PRESETS})
        one_of("preset", preset, known)
        if (preset, dataset) not in PRESETS:
            fitting = ", ".join(d for p, d in PRESETS if p == preset)
            raise not_allowed("preset", preset, f"with data set {fitting}, not {dataset}")
        values = dict(PRESETS[preset, dataset])
    names = {field.name for field in fields(LearnSettings)}
    for name in given:
        if name not in names:
            one_of("setting", name, names)
    algorithm = given.get("algorithm", values.get("algorithm", LearnSettings.algorithm))
    one_of("algorithm", algorithm, ALGORITHMS)
    values = {k: v for k, v in values.items() if k not in SPECIFIC - READS[algorithm]}
    if algorithm in NON_PRIVATE:
        values |= {"mechanism": "none"}
    if (values | given).get("mechanism") == "none" and "budget" in given:
        raise not_allowed("budget", given["budget"], "left out without noise")
    return LearnSettings(**(values | given))
