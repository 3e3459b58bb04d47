"""Settings of a learning run, validated once, with penalties, regularizers and presets."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from gridpriv.consensus.schedules import GeometricPenalty, Rounds, penalty_numbers
from gridpriv.core.errors import InputError, check_choice, not_allowed, positive
from gridpriv.core.files import read_table
from gridpriv.core.settings import (
    Part,
    changed,
    check_names,
    choice,
    count,
    defaults,
    documented,
    names,
    notation,
    number,
    shortest,
    words,
)
from gridpriv.core.text import Json
from gridpriv.learning.algorithms import (
    ALGORITHMS,
    LINEAR,
    NON_PRIVATE,
    PERTURBED,
    READS,
    SPECIFIC,
    check_model,
)
from gridpriv.learning.clients import DEVICES, Array, namespace
from gridpriv.learning.features import TRANSFORMS
from gridpriv.privacy.accounting import check_delta
from gridpriv.privacy.settings import Budget, Noise, Privacy

Kind = Literal["replace-one", "zero-out"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SAMPLING = ("poisson", "without-replacement", "with-replacement")
SWITCH = ("on", "off")

# set by a comparison
SET_BY_COMPARISON = ("algorithm", "budget", "sensitivity", "target_delta", "seed")


def fraction(name: str, value: float) -> None:
    """Raise :class:`InputError` unless a number is at least 0 and below 1."""
    if not 0.0 <= value < 1.0:
        raise not_allowed(name, value, "a number from 0, below 1")


def unread_setting(name: str, value: Any, algorithm: str) -> InputError:
    """Return the error for a setting that the algorithm would ignore."""
    return not_allowed(name, value, f"left out with {algorithm}, which does not read it")


@dataclass(frozen=True)
class BudgetedPenalty(GeometricPenalty):
    """rho^t = min(most, start factor^floor(t/every) + over_epsilon/epsilon), RK (E.1)."""

    factor: float = 1.0
    every: int = 1
    most: float = 1e9
    over_epsilon: float = 0.0
    epsilon: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.over_epsilon) and self.over_epsilon >= 0):
            raise not_allowed("penalty over epsilon", self.over_epsilon, "a number of 0 or more")

    def __str__(self) -> str:
        if (self.factor, self.every, self.over_epsilon) == (1.0, 1, 0.0):
            return shortest(self.start)
        tail = f",{shortest(self.over_epsilon)}" if self.over_epsilon else ""
        return super().__str__() + tail

    def at(self, t: int) -> float:
        """Return rho^t."""
        return min(self.most, super().at(t) + self.over_epsilon / self.epsilon)

    def for_epsilon(self, epsilon: float) -> BudgetedPenalty:
        """Return the schedule at a release's epsilon; inf without noise."""
        return replace(self, epsilon=epsilon)


def parse_penalty(text: str) -> BudgetedPenalty:
    """Return the penalty of a number or ``geometric:INITIAL,FACTOR,INTERVAL,MAX[,C]``."""
    numbers = penalty_numbers(text)
    if len(numbers) in (4, 5):
        return BudgetedPenalty(numbers[0], numbers[1], int(numbers[2]), *numbers[3:])
    if len(numbers) == 1:
        return BudgetedPenalty(numbers[0], most=max(numbers[0], BudgetedPenalty.most))
    raise not_allowed("penalty", text, "a number or geometric:INITIAL,FACTOR,INTERVAL,MAX[,C]")


@dataclass(frozen=True)
class Regularizer:
    """Lambda R(w) with R(w) = ||w||_1 or ||w||_2^2 / 2.

    Attributes
    ----------
    kind : {'none', 'l1', 'l2'}
    strength : float
        Lambda; ``l2:2e-6`` is Ryu and Kim's 1e-6 ||w||^2.
    """

    kind: Literal["none", "l1", "l2"] = "none"
    strength: float = 0.0

    def value(self, w: Array) -> float:
        """Return lambda R(w)."""
        xp = namespace(w)
        if self.kind == "none":
            return 0.0
        total = xp.sum(xp.abs(w)) if self.kind == "l1" else 0.5 * xp.sum(w * w)
        return self.strength * float(total)

    def subgradient(self, w: Array) -> Array:
        """Return lambda sign(w), with 0 at 0, or lambda w."""
        if self.kind == "none":
            return namespace(w).zeros_like(w)
        return self.strength * (namespace(w).sign(w) if self.kind == "l1" else w)

    def prox(self, w: Array, step: float) -> Array:
        """Return argmin over v of lambda R(v) + ||v - w||^2 / (2 step)."""
        xp = namespace(w)
        if self.kind == "l1":
            shrunk = xp.abs(w) - step * self.strength
            return xp.sign(w) * xp.where(shrunk > 0, shrunk, xp.zeros_like(shrunk))
        return w / (1.0 + step * self.strength) if self.kind == "l2" else w

    @property
    def modulus(self) -> float:
        """Strong convexity."""
        return self.strength if self.kind == "l2" else 0.0

    def subgradient_bound(self, size: int, radius: float) -> float:
        """Return the largest 2-norm of R' (without lambda) over ||w|| <= radius."""
        return {"none": 0.0, "l1": math.sqrt(size), "l2": radius}[self.kind]


def parse_regularizer(text: str) -> Regularizer:
    """Return the regularizer of ``none``, ``l1:L`` or ``l2:L``."""
    if text == "none":
        return Regularizer()
    kind, _, number = text.partition(":")
    try:
        strength = float(number)
    except ValueError:
        strength = math.nan
    if kind not in ("l1", "l2") or not (math.isfinite(strength) and strength >= 0):
        raise not_allowed("regularizer", text, "none, l1:L or l2:L with L 0 or more")
    return Regularizer("l1" if kind == "l1" else "l2", strength)


@dataclass(frozen=True, kw_only=True)
class Samples(Part):
    """Samples, their split over clients, and the adjacency of one sample."""

    adjacency: Kind = choice(
        "replace-one",
        KINDS,
        "adjacent data sets: one sample replaced by any other (replace-one) or by a blank one "
        "(zero-out); sample counts are public",
    )
    norm: float | None = number(
        None, "clip features to this 2-norm", positive, unset="the data set's public bound"
    )
    clip: float | None = number(
        None,
        "clip every sample's gradient (dp-fedavg: a client's update) to this 2-norm",
        positive,
        unset="no clipping",
    )
    clients: int | None = count(
        None, "number of clients", unset="every writer with split writer, else 10"
    )
    split: str = words(
        "iid", "split of samples over clients: iid, contiguous, writer or dirichlet:A", "SPLIT"
    )
    batch: int | None = count(None, "samples of a local step", unset="all")
    sampling: str = choice("poisson", SAMPLING, "sampling of a batch")
    sampled_clients: int | None = count(None, "number of clients sampled in a round", unset="all")
    participation: str = choice(
        "public",
        ("public", "secret"),
        "sampling of clients by dp-fedavg: public, or secret by its trusted server (Poisson "
        "sampling, which amplifies privacy)",
    )
    missing: str = choice("drop", ("drop", "mode"), "missing values in Adult")
    scaling: str = choice("bounds", ("bounds", "standard"), "scaling of numeric features in Adult")
    features: str = choice("raw", TRANSFORMS, "public transform of image features")
    intercept: str = choice(
        "on",
        SWITCH,
        "add a constant feature, as large as the bound on the norm of the others",
    )
    seed: int = count(0, "seed of splits, lasso's data, simulated noise and its batches", least=0)


@dataclass(frozen=True, kw_only=True)
class Model(Part):
    """Model and optimization steps."""

    model: str = words(
        LINEAR, f"{LINEAR}, or a torch module as module:FILE.py:CLASS", "MODEL", check_model
    )
    algorithm: str = choice("ryu-kim", ALGORITHMS, "learning algorithm")
    step_scale: float = number(
        1.0,
        "step-size factor a in eta = a/sqrt(t) (ryu-kim), or the constant eta (cdp-admm, ddp-admm)",
        positive,
    )
    regularizer: str = words(
        "none", "regularizer of the loss: none, l1:L or l2:L", "REGULARIZER", parse_regularizer
    )
    box: float | None = number(
        None, "bound U of the box constraint [-U, U] on every parameter", positive, unset="no box"
    )
    radius: float = number(
        23.0, "bound on the norm of the solution in dp-admm's step size", positive
    )
    learning_rate: float | None = number(
        0.1,
        "learning rate of dpsgd and of dp-fedavg's local steps",
        positive,
        unset="chosen from the noise, with dpsgd",
    )
    momentum: float = number(0.0, "momentum of dpsgd (0.9 averages about ten gradients)", fraction)
    averaging: float = number(
        0.0, "share of dpsgd's rounds, the last ones, whose models are averaged", fraction
    )
    centring: str = choice(
        "off",
        SWITCH,
        "subtract the clients' noisy mean features before dpsgd's steps; its release is charged",
    )
    trust: str = choice(
        "local",
        ("local", "central", "secure-sum"),
        "source of dpsgd's noise: local (each client; the server need not be trusted, but only a "
        "sample is protected: not local DP), secure-sum (shares of clients in a masked sum), or "
        "central (a trusted server)",
    )
    colluding: int | None = count(
        None,
        "number of clients that may collude with the server of a secure sum",
        least=0,
        unset="a tenth of the clients of a round",
    )
    dropouts: int = count(
        0, "number of clients that may drop out of a round of a secure sum", least=0
    )
    diameter: float = number(
        1.0, "diameter d_X of the set of models in fedspd-dp's step size", positive
    )
    proximity: float | None = number(
        None,
        "gamma_0 of fedspd-dp's step size gamma_0 sqrt(t)",
        positive,
        unset="eqs. 26 and 27 of Li et al.",
    )
    gradient_change: str | None = choice(
        None,
        ("2G", "2G/b"),
        "published sensitivity of a gradient over b samples",
        unset="2G with fedspd-dp, 2G/b with dp-admm",
    )
    output_step: str = choice(
        "paper",
        ("paper", "common"),
        "step size of ryu-kim's output perturbation: as in the paper, or a/sqrt(t)",
    )
    decay: float = number(
        0.975, "factor by which cdp-admm's noise variance shrinks per round", check_delta
    )
    graph: str = words(
        "regular:4",
        "communication graph of cdp-admm and ddp-admm: regular:D or a file of edges",
        "GRAPH",
    )
    device: str = choice(
        "cpu", DEVICES, "NumPy (cpu), or PyTorch on a GPU (cuda) or the CPU (torch)"
    )
    evaluate_every: int = count(10, "rounds between evaluations; the last is always evaluated")


@documented
@dataclass(frozen=True, kw_only=True)
class LearnSettings(Model, Samples, Rounds, Privacy):
    """Settings of a learning run.

    Settings of the same name mean the same in :class:`gridpriv.zonal.settings.Settings`.
    """

    mechanism: Literal["none", "laplace", "gaussian"] = changed(
        Privacy,
        "mechanism",
        "gaussian",
        choices=("none", "laplace", "gaussian"),
        help="noise mechanism; laplace with ryu-kim only",
        unset="",
    )
    noise: Noise = changed(
        Privacy,
        "noise",
        "simulated",
        help="source of the noise: simulated (repeatable, no privacy) or secure (system "
        "entropy; not with dvp, nor with published sensitivity)",
    )
    perturbation: Literal["objective", "output"] = changed(
        Privacy,
        "perturbation",
        "objective",
        choices=("objective", "output"),
        help="perturbed quantity of ryu-kim",
    )
    budget: Budget = changed(Privacy, "budget", Budget("total", 1.0, 1e-5))
    rounds: int = changed(Rounds, "rounds", 100, help="number of rounds T")
    local_updates: int = changed(
        Rounds,
        "local_updates",
        1,
        help="number of local updates per round",
    )
    step: Literal["nonsmooth", "smooth"] = changed(
        Rounds,
        "step",
        "nonsmooth",
        choices=("nonsmooth", "smooth"),
        help="step-size rule of dp-admm (theorems of Huang et al.)",
    )
    penalty: BudgetedPenalty = notation(
        BudgetedPenalty(2.0, 1.2, 10_000, 1e9, 5.0),
        parse_penalty,
        "PENALTY",
        "penalty rho: a number, or geometric:INITIAL,FACTOR,INTERVAL,MAX[,C]; C / epsilon is added",
    )
    workers: int = changed(Rounds, "workers", 2, help="threads over clients")

    def agree(self) -> None:
        """Refuse settings that the algorithm does not read or allow."""
        super().agree()
        if self.learning_rate is None and self.algorithm == "dp-fedavg":
            raise not_allowed("learning_rate", None, "a positive number with dp-fedavg")
        if self.noise == "secure" and self.algorithm == "dvp":
            allowed = "'simulated' with dvp: its certificate needs noise that has a density"
            raise not_allowed("noise", self.noise, allowed)
        if self.noise == "secure" and self.sensitivity == "published":
            raise not_allowed("noise", self.noise, "'simulated' with sensitivity 'published'")
        usual = defaults(LearnSettings)
        for name in names(LearnSettings):
            if name in SPECIFIC - READS[self.algorithm] and getattr(self, name) != usual[name]:
                raise unread_setting(name, getattr(self, name), self.algorithm)
        if self.mechanism != "none" and self.algorithm in NON_PRIVATE:
            raise not_allowed("mechanism", self.mechanism, f"none with {self.algorithm}")
        if self.mechanism == "laplace" and self.algorithm != "ryu-kim":
            raise not_allowed("mechanism", "laplace", f"gaussian or none with {self.algorithm}")

    def as_dict(self) -> Json:
        """Return every effective setting, as JSON can hold it."""
        perturbed, _ = PERTURBED.get(self.algorithm, (self.perturbation, ""))
        target = "none" if self.mechanism == "none" else perturbed
        return self.as_given() | {"perturbation": target, "target_delta": self.total_delta}


EVERY, ANYWHERE = "every", "accurate"
"""Key of the settings of a preset for every data set; the preset that fits any."""
PRESETS = read_table(Path(__file__).with_name("presets.toml"), "presets")
"""By name, the settings of a preset on a data set: those for every one, and its own."""


def make_learn_settings(dataset: str, preset: str | None = None, **given: Any) -> LearnSettings:
    """Return settings: the defaults, a preset over them, and what is given over both.

    With another algorithm than the preset's, settings that it does not read are left out of the
    preset; given explicitly they are refused. ``admm`` and ``centralized`` have no noise unless
    set.

    Parameters
    ----------
    dataset : str
        By name; presets are for some of them.
    preset : str, optional
    **given
        Settings by name.

    Raises
    ------
    InputError
        For an unknown setting (with the nearest known one), one that the algorithm does not read,
        a value that is not allowed, or a preset of another data set.
    """
    check_names(given, names(LearnSettings))
    base = LearnSettings()
    if preset is not None:
        check_choice("preset", preset, sorted(PRESETS))
        fitting = PRESETS[preset]
        known = [name for name in fitting if name != EVERY]
        if dataset not in known and preset != ANYWHERE:
            allowed = f"with data set {', '.join(known)}, not {dataset}"
            raise not_allowed("preset", preset, allowed)
        base = LearnSettings(**fitting.get(EVERY, {}) | fitting.get(dataset, {}))
    algorithm = given.get("algorithm", base.algorithm)
    check_choice("algorithm", algorithm, ALGORITHMS)
    usual = defaults(LearnSettings)
    unread = SPECIFIC - READS[algorithm]
    for name, value in given.items():
        if name in unread:
            raise unread_setting(name, value, algorithm)
    values = {name: usual[name] for name in unread}
    if algorithm in NON_PRIVATE:
        values |= {"mechanism": "none"}
    if (values | given).get("mechanism") == "none" and "budget" in given:
        raise not_allowed("budget", given["budget"], "left out without noise")
    return replace(base, **(values | given))
