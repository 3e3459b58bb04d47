"""One learning run: data set and settings in, :class:`LearnResult` out.

Settings may be chosen from a declared grid (:func:`tune`), so that trials are accounted for, in two
ways. ``public:S`` declares a share S of the training rows public (drawn by the seed, not by their
values): half of them trains every candidate and half of them tests it; the run trains on the other
rows. A client then has a fraction r of its rows. Its batch shrinks with them and the noise is r
times that of its sensitivity, so candidates have the noise of the run. Public rows are not
protected, so nothing is charged. ``charged`` trains every candidate on the private rows: all
candidates and the run share the budget, as one composition. They are compared on the test rows,
which count as public: no certificate covers them, and the choice is released.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError, not_allowed
from gridpriv.core.settings import check_names
from gridpriv.core.text import Json
from gridpriv.core.threads import one_blas_thread
from gridpriv.learning.accounting import Tally, noise_rule, privacy_certificate
from gridpriv.learning.algorithms import LINEAR, READS, load_module
from gridpriv.learning.algorithms.base import (
    WHOLE_BUDGET,
    BudgetShare,
    Round,
    Task,
    Watch,
    charged,
    make_algorithm,
    planned,
)
from gridpriv.learning.algorithms.dpsgd import participants
from gridpriv.learning.clients import Clients, check_device, make_clients, to_numpy
from gridpriv.learning.datasets.base import Dataset, Indices, split
from gridpriv.learning.modules import check_module, module_clients
from gridpriv.learning.result import LearnResult, LearnTiming
from gridpriv.learning.settings import LearnSettings, parse_regularizer
from gridpriv.learning.stored import CheckpointWriter, prepare_dataset, trained_model
from gridpriv.privacy.certificate import charges_of
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Charging

DEFAULT_CLIENTS = 10
EVALUATED = ("train_loss", "test_accuracy", "test_error", "local_loss", "local_error")


def learn(
    dataset: Dataset,
    settings: LearnSettings,
    watch: Watch = lambda _: None,
    module: Any = None,
    charge: Charging | None = None,
    shared: BudgetShare = WHOLE_BUDGET,
    checkpoints: CheckpointWriter | None = None,
) -> LearnResult:
    """Train a linear model, or a torch module, with an algorithm.

    Parameters
    ----------
    dataset : Dataset
    settings : LearnSettings
    watch : callable
        Called after every round with its :class:`Round`, which is private.
    module : torch.nn.Module, optional
        From rows (m, J) to scores (m, K), or (m, 1) for binary labels and regression; its own
        parameters are the public start (:mod:`gridpriv.learning.modules`).
    charge : Charging, optional
        Called with a client's name and its new releases before they are drawn (a ledger).
    shared : BudgetShare
        The runs that this one shares its budget with.
    checkpoints : CheckpointWriter, optional
        Stores the state of the run (:mod:`gridpriv.learning.stored`).

    Returns
    -------
    LearnResult

    Raises
    ------
    InputError
        For settings that this data set, module or machine cannot have.
    SolverError
        If the iterates stop being finite numbers.

    References
    ----------
    Each algorithm names its paper (:mod:`gridpriv.learning.algorithms`); docs/papers/.
    """
    began = time.perf_counter()
    original = dataset
    task, dataset = make_task(dataset, settings, module, charge, shared)
    if checkpoints is not None:
        task = replace(task, checkpoint=checkpoints.checkpoint)
        _recount(task, checkpoints.draws)
    log = _Log(dataset, task, watch, checkpoints)
    build = time.perf_counter() - began
    if checkpoints is not None:
        checkpoints.start()
    log.resume()
    linear = settings.device == "cpu" and task.module is None
    with one_blas_thread() if linear else nullcontext():
        make_algorithm(task).run(log)
        clients = _client_table(task, log.w)
    rounds = pd.DataFrame(log.rows)
    described = _described(original, dataset.clipped, settings.norm)
    privacy = privacy_certificate(task.settings, task.multiplier, task.tally)
    solve, total = float(rounds["seconds"].sum()), time.perf_counter() - began
    timing = LearnTiming(load=0.0, build=build, solve=solve, total=total)
    return LearnResult(
        dataset=described,
        settings=task.settings,
        clients=clients,
        rounds=rounds,
        w=log.w,
        local=log.local,
        privacy=privacy,
        model=trained_model(original, dataset, log.w, task.settings, privacy, task.module),
        timing=timing,
        charges=dict(sorted(task.tally.charges.items())),  # clients run in threads, in any order
    )


def make_task(
    dataset: Dataset,
    settings: LearnSettings,
    module: Any = None,
    charge: Charging | None = None,
    shared: BudgetShare = WHOLE_BUDGET,
) -> tuple[Task, Dataset]:
    """Return the task of a data set under settings, and the data set with clipped features."""
    parts = split_for(dataset, settings)
    if module is None and settings.model != LINEAR:
        module = load_module(settings.model, settings.seed)
    dataset = prepare_dataset(dataset, settings, linear=module is None)
    clients: Clients
    if module is None:
        clients = make_clients(dataset, parts, settings.device)
    else:
        check_module(module, dataset, settings)
        linear = make_clients(dataset, parts)
        device = "torch" if settings.device == "cpu" else settings.device
        clients = module_clients(linear, module, dataset, device)
    settings = replace(settings, clients=clients.number)
    streams = shared.streams or NoiseStreams(settings.seed)
    releases = shared.runs * planned_releases(settings, streams, clients.number)
    task = Task(
        clients=clients,
        regularizer=parse_regularizer(settings.regularizer),
        norm=dataset.norm,
        settings=settings,
        streams=streams,
        rule=noise_rule(settings, releases),
        tally=Tally({client: Counter(spent) for client, spent in shared.charges.items()}),
        charge=charge,
        shared=shared,
        module=module,
    )
    return task, dataset


def split_for(dataset: Dataset, settings: LearnSettings) -> list[Indices]:
    """Return the rows of every client.

    Raises
    ------
    InputError
        For settings that this data set or machine cannot have.
    """
    check_device(settings.device)
    count = settings.clients
    if count is None and settings.split != "writer":
        count = DEFAULT_CLIENTS
    parts = split(dataset, settings.split, count, settings.seed)
    number, smallest = len(parts), min(len(part) for part in parts)
    chosen, batch = settings.sampled_clients, settings.batch
    if chosen is not None and chosen > number:
        raise not_allowed("sampled_clients", chosen, f"at most {number}, the number of clients")
    if batch is not None and batch > smallest:
        raise not_allowed("batch", batch, f"at most {smallest}, the smallest client's samples")
    return parts


def planned_releases(settings: LearnSettings, streams: NoiseStreams, clients: int) -> int:
    """Return the releases of the client with most; the participants are drawn in public."""
    if settings.algorithm == "ryu-kim":
        return settings.rounds * settings.local_updates
    everybody = settings.sampled_clients is None or settings.participation == "secret"
    if everybody or settings.mechanism == "none":
        return settings.rounds
    rounds = np.zeros(clients, int)
    for t in range(1, settings.rounds + 1):
        rounds[participants(settings, streams, clients, t)] += 1
    return int(rounds.max())


@dataclass(eq=False)
class _Log:
    """Evaluates rounds and records their values; its own time is not counted."""

    dataset: Dataset
    task: Task
    watch: Callable[[Round], None]
    checkpoints: CheckpointWriter | None = None

    def __post_init__(self) -> None:
        self.rows: list[Json] = [] if self.checkpoints is None else list(self.checkpoints.rows)
        self.w: Floats = np.zeros(self.task.clients.shape)
        self.local: Floats = np.zeros((0, *self.task.clients.shape))
        self.resume()

    def resume(self) -> None:
        """Start the clock of the next round."""
        self._began = time.perf_counter()

    def __call__(self, done: Round) -> None:
        """Record one round."""
        seconds = time.perf_counter() - self._began
        difference = done.consensus_residual
        if not math.isfinite(difference):
            raise SolverError(
                f"{self.task.settings.algorithm} diverged in round {done.number}: "
                "take smaller steps (--step-scale, --learning-rate) or a larger --penalty"
            )
        row: Json = {
            "round": done.number,
            "objective": math.nan,
            "consensus_residual": difference,
            "noise_magnitude": done.noise_magnitude,
            **dict.fromkeys(EVALUATED, math.nan),
            "seconds": seconds,
        }
        settings = self.task.settings
        if done.number % settings.evaluate_every == 0 or done.number == settings.rounds:
            row |= self._evaluated(done)
        self.rows.append(row)
        if done.number == settings.rounds:
            self.w, self.local = to_numpy(done.w), to_numpy(done.local)
        if self.checkpoints is not None and done.number < settings.rounds:
            self.checkpoints.keep(done, self.rows)
        self.watch(done)
        self.resume()

    def _evaluated(self, done: Round) -> dict[str, float]:
        clients = self.task.clients
        w = to_numpy(done.w)
        weights = np.full(clients.number, 1.0 / clients.number)
        if self.task.settings.algorithm == "ryu-kim":
            weights = clients.counts / clients.counts.sum()
        loss = float(weights @ clients.values(done.w))
        error = float(clients.errors(self.dataset, done.w[None])[0])
        accuracy = 1.0 - error if self.dataset.task != "regression" else math.nan
        return {
            "objective": loss + self.task.regularizer.value(w),
            "train_loss": loss,
            "test_accuracy": accuracy,
            "test_error": error,
            "local_loss": float(weights @ clients.values(done.each)),
            "local_error": float(np.mean(clients.errors(self.dataset, done.each))),
        }


def _recount(task: Task, draws: Sequence[int] | None) -> None:
    """Charge the releases before an interruption, which are a function of the settings.

    Every round counts as often as it may have been drawn (``draws``); once where a repeated draw is
    the same and not charged again.
    """
    times = [1] * task.checkpoint.rounds if draws is None else draws
    if task.rule is None or not times:
        return
    algorithm = make_algorithm(task)
    for t, count in enumerate(times, start=1):
        for client, release in charged(algorithm.releases(t)):
            task.tally.add(client, release, count)


def _described(dataset: Dataset, clipped: int, norm: float | None) -> Json:
    """Return the data set as given; without the additions of training to its rows."""
    return {
        "name": dataset.name,
        "train_samples": len(dataset.y_train),
        "test_samples": len(dataset.y_test),
        "features": dataset.features,
        "classes": dataset.classes,
        "clipped": clipped,
        "norm": dataset.norm if norm is None else min(norm, dataset.norm),
        "source": dataset.source,
    }


def _client_table(task: Task, w: Floats) -> pd.DataFrame:
    clients = task.clients
    return pd.DataFrame(
        {
            "client": [str(p + 1) for p in range(clients.number)],
            "samples": clients.counts.astype(int),
            "variables": task.size,
            "train_loss": clients.values(w),
        }
    )


CHARGED = "charged"
SEED_GAP = 2**32  # between seeds of independent streams
TUNABLE = (
    *("learning_rate", "radius", "step_scale", "penalty"),
    *("diameter", "proximity", "decay", "clip"),
)


@dataclass(frozen=True)
class Tuning:
    """A grid of settings, and the data that select a candidate.

    Attributes
    ----------
    on : str
        ``public:S`` or ``charged``.
    grid : tuple of (name, values)
    """

    on: str
    grid: tuple[tuple[str, tuple[Any, ...]], ...]

    def __post_init__(self) -> None:
        _ = self.share
        check_names([name for name, _ in self.grid], TUNABLE)
        for name, values in self.grid:
            if not values:
                raise not_allowed(f"tune {name}", [], "at least one value")

    @classmethod
    def of(cls, table: Json) -> Tuning:
        """Return the tuning of a study file's table: ``on``, and a list for every setting."""
        on = table.pop("on", "public:0.1")
        grid = {key.replace("-", "_"): value for key, value in table.items()}
        for name, values in grid.items():
            if not isinstance(values, list):
                raise not_allowed(f"tuning.{name}", values, "a list")
        return cls(str(on), tuple((name, tuple(values)) for name, values in grid.items()))

    @property
    def share(self) -> float | None:
        """Share of the training rows that is public; None where trials are charged."""
        if self.on == CHARGED:
            return None
        kind, _, number = self.on.partition(":")
        try:
            share = float(number)
        except ValueError:
            share = 0.0
        if kind != "public" or not 0.0 < share < 1.0:
            raise not_allowed("tune-on", self.on, f"public:S with S above 0, below 1, or {CHARGED}")
        return share

    def candidates(self, settings: LearnSettings) -> tuple[LearnSettings, ...]:
        """Return the settings at every combination of the values that its algorithm reads."""
        read = [(name, values) for name, values in self.grid if name in READS[settings.algorithm]]
        combined = product(*(values for _, values in read))
        return tuple(
            replace(settings, **dict(zip([name for name, _ in read], values, strict=True)))
            for values in combined
            if read
        )

    def as_dict(self) -> Json:
        """Return it as a study file has it."""
        return {"on": self.on} | {k.replace("_", "-"): list(v) for k, v in self.grid}


@dataclass(frozen=True, eq=False)
class TuningResult:
    """Result of tuning.

    Attributes
    ----------
    settings : LearnSettings
        Of the run.
    dataset : Dataset
        Training data of the run.
    shared : BudgetShare
        Number of runs that share its budget, and the charges of the others.
    choice : str
        The choice in words.
    """

    settings: LearnSettings
    dataset: Dataset
    shared: BudgetShare = WHOLE_BUDGET
    choice: str = ""


def tune(dataset: Dataset, candidates: Sequence[LearnSettings], tuning: Tuning) -> TuningResult:
    """Return the candidate of the lowest error; the first if several are equal.

    Raises
    ------
    SolverError
        If every candidate diverges.
    """
    if tuning.share is None:
        if candidates[0].mechanism == "none":
            raise not_allowed("tune-on", CHARGED, "public:S for a method without noise")
        return _charged(dataset, candidates)
    private, public, ratio = split_public_rows(dataset, tuning.share, candidates[0].seed)
    errors = []
    for candidate in candidates:  # clients have a fraction of their rows
        batch = candidate.batch and max(1, round(candidate.batch * ratio))
        errors.append(_trial(public, replace(candidate, batch=batch), BudgetShare(noise=ratio))[0])
    return TuningResult(_best(candidates, errors), private, choice=_choice(candidates, errors))


def _charged(dataset: Dataset, candidates: Sequence[LearnSettings]) -> TuningResult:
    runs, spent, errors = len(candidates) + 1, dict[int, Counter[Charge]](), []
    for k, candidate in enumerate(candidates):
        # separate streams: two runs with the same noise would reveal it
        streams = NoiseStreams(candidate.seed + (k + 1) * SEED_GAP)
        error, charges = _trial(dataset, candidate, BudgetShare(runs, streams=streams))
        errors.append(error)
        for client, cost in charges.items():
            spent.setdefault(client, Counter()).update(cost)
    shared = BudgetShare(runs, charges=spent)
    return TuningResult(_best(candidates, errors), dataset, shared, _choice(candidates, errors))


def _trial(
    dataset: Dataset, settings: LearnSettings, shared: BudgetShare
) -> tuple[float, Mapping[int, Mapping[Charge, int]]]:
    """Return a candidate's error and charges; a run that diverges is charged for as a whole."""
    evaluated_once = replace(settings, evaluate_every=settings.rounds)
    try:
        result = learn(dataset, evaluated_once, shared=shared)
    except SolverError:
        task, _ = make_task(dataset, evaluated_once, shared=shared)
        return math.inf, {
            int(client) - 1: charges_of(releases) for client, releases in planned(task).items()
        }
    error = result.final["test_error"]
    return (error if math.isfinite(error) else math.inf), result.charges


def split_public_rows(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset, float]:
    """Return the private rows, the public rows, and the ratio of public training to private rows.

    Half of the public rows trains, half of them tests.
    """
    rows = np.random.default_rng((seed, SEED_GAP)).permutation(len(dataset.y_train))
    cut = max(2, round(share * len(rows)))
    train, test_rows, private_rows = rows[: cut // 2], rows[cut // 2 : cut], np.sort(rows[cut:])
    if len(private_rows) == 0:
        raise not_allowed("tune-on", f"public:{share:g}", "a share that leaves rows to protect")
    private, public = dataset.take(private_rows), dataset.take(np.sort(train))
    judged = replace(public, x_test=dataset.x_train[test_rows], y_test=dataset.y_train[test_rows])
    return private, judged, len(train) / len(private_rows)


def _best(candidates: Sequence[LearnSettings], errors: Sequence[float]) -> LearnSettings:
    if not math.isfinite(min(errors)):
        raise SolverError("every setting of the grid diverges: declare smaller steps")
    return candidates[int(np.argmin(errors))]


def _choice(candidates: Sequence[LearnSettings], errors: Sequence[float]) -> str:
    """Return the chosen values of the settings in which candidates differ."""
    best = _best(candidates, errors).as_given()
    settings = [candidate.as_given() for candidate in candidates]
    varied = [name for name in best if any(candidate[name] != best[name] for candidate in settings)]
    values = " ".join(f"{name.replace('_', '-')} {best[name]}" for name in varied)
    return f"{values} of {len(candidates)}".strip()
