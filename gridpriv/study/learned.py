"""Algorithms side by side: a study of learning in the shared store.

A *way* is an algorithm with its settings. Every way is run at every budget with every seed; where
a grid is declared, each way first chooses among the values of the settings that it reads
(:mod:`gridpriv.learning.tuning`). Ways are comparable only if they protect the same unit and
train with equally many client-rounds; what differs is refused unless it is allowed by name. The
tables have the columns of a study of grids where they mean the same; ``scheme`` is the way.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from gridpriv.core.errors import GridprivError, InputError, not_allowed, one_of, whole
from gridpriv.core.processes import unordered
from gridpriv.core.settings import check_names
from gridpriv.core.store import TABLES, Rows, Study, open_store, read_study
from gridpriv.core.tables import publish_table
from gridpriv.core.text import frame_csv, json_ready
from gridpriv.learning.algorithms.base import ALONE
from gridpriv.learning.algorithms.names import NON_PRIVATE, READS, SPECIFIC
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.datasets.library import DRAWN, dataset_name, load_dataset
from gridpriv.learning.interrupted import FILE as INTERRUPTED
from gridpriv.learning.interrupted import Keeper, make_keeper
from gridpriv.learning.measures import MEASURES, Measure
from gridpriv.learning.result import LearnResult
from gridpriv.learning.run import learn, split_for
from gridpriv.learning.schema import ROUNDS
from gridpriv.learning.settings import LearnSettings, make_learn_settings
from gridpriv.learning.tuning import Tuning, tune
from gridpriv.privacy.budget import parse_budget
from gridpriv.study.manifest import header
from gridpriv.study.plan import Scheme
from gridpriv.study.publish import publish_manifest, publish_rows
from gridpriv.study.record import privacy_figures
from gridpriv.study.total import charge_rows, told_totals

DELTA = 1e-5
NO_NOISE = "none"
TITLE = "{}: algorithms at equal certified totals"
QUESTION = "Which algorithm errs least at equal certified privacy?"
# what ways may differ in, if it is allowed by name
DIFFERENCES = ("client-rounds", "units")

# kinds of a study file's entries that are no texts
KINDS: dict[str, tuple[type, str]] = {
    "budgets": (list, "a list of texts"), "allow": (list, "a list of texts"),
    "seeds": (list, "a list of whole numbers, 0 or more"), "schemes": (list, "tables"),
    "settings": (dict, "a table of settings"), "tuning": (dict, "a table of lists"),
    "client_rounds": (int, "a whole number"), "data_seed": (int, "a whole number"),
}  # fmt: skip

# from a data set's name and a run's settings to the data set
Datasets = Callable[[str, LearnSettings], Dataset]
Progress = Callable[[int], AbstractContextManager[Callable[[str], None]]]


@dataclass(frozen=True)
class Shelf:
    """Where data sets are read from; each is read once a process.

    Attributes
    ----------
    folder : str or None
        Default $GRIDPRIV_DATA.
    download : bool
        Fetch missing files.
    data_seed : int or None
        Draws samples, or their division into training and test rows; None: a run's own seed.
    """

    folder: str | None = None
    download: bool = False
    data_seed: int | None = None

    def __call__(self, name: str, settings: LearnSettings) -> Dataset:
        """Return the data set that ``learn run`` with these settings has."""
        seed = settings.seed if self.data_seed is None else self.data_seed
        return _read(
            self, name, settings.missing, settings.scaling, settings.norm,
            seed if dataset_name(name) in DRAWN else 0,
        )  # fmt: skip


@lru_cache(maxsize=4)
def _read(
    shelf: Shelf, name: str, missing: str, scaling: str, norm: float | None, seed: int
) -> Dataset:
    return load_dataset(
        name, shelf.folder, download=shelf.download, missing=missing, scaling=scaling, seed=seed,
        norm=norm,
    )  # fmt: skip


@dataclass(frozen=True)
class LearnPlan:
    """What a study of learning runs.

    Attributes
    ----------
    dataset : str
        Of ways that name none.
    ways : tuple of Scheme
        Named settings over the common ones; ``preset``, ``dataset`` and ``budgets`` among them.
    budgets : tuple of str
        Of ways that name none: ``total:E,D`` or ``per-release:E[,D]``.
    seeds : tuple of int
    settings : mapping
        Common to all ways, of which each gets what its algorithm reads.
    tuning : Tuning or None
        The grid that every way chooses from as far as it reads it.
    client_rounds : int or None
        Rounds of every way are this over its clients of a round.
    allowed : tuple of str
        What ways may differ in: ``client-rounds``, ``units``.
    measure : str
        A further figure of every evaluated round (:mod:`gridpriv.learning.measures`).
    data_seed : int or None
        See :class:`Shelf`.
    """

    dataset: str
    ways: tuple[Scheme, ...]
    budgets: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    tuning: Tuning | None = None
    client_rounds: int | None = None
    allowed: tuple[str, ...] = ()
    measure: str = ""
    data_seed: int | None = None
    title: str = ""
    question: str = QUESTION

    def __post_init__(self) -> None:
        for axis in ("ways", "seeds"):
            if not getattr(self, axis):
                raise InputError(f"{axis} = [] is not allowed: at least one is needed")
        names = [way.name for way in self.ways]
        if len(set(names)) < len(names):
            raise not_allowed("schemes", names, "each name once")
        for name in self.allowed:
            one_of("allow", name, DIFFERENCES)
        if self.measure:
            one_of("measure", self.measure, MEASURES)
        if self.client_rounds is not None:
            whole("client-rounds", self.client_rounds)

    def trials(self) -> list[Trial]:
        """Return every run once; raises on the first setting that no run can have."""
        found: list[Trial] = []
        for way in self.ways:
            given = dict(self.settings) | dict(way.settings)
            own = {name: given.pop(name, None) for name in ("dataset", "preset", "budgets")}
            budgets = tuple(own["budgets"] or self.budgets)
            dataset = own["dataset"] or self.dataset
            for budget, seed in _repeated(given, own["preset"], dataset, budgets, self.seeds):
                settings = self._settings(way, given, own["preset"], dataset, budget, seed)
                trial = Trial(
                    len(found), dataset, way.name, budget, settings, self._candidates(settings),
                    self.measure,
                )  # fmt: skip
                found.append(trial)
        self._refuse_unlike(found)
        return found

    def _settings(
        self, way: Scheme, given: dict[str, Any], preset: str | None, dataset: str, budget: str,
        seed: int,
    ) -> LearnSettings:  # fmt: skip
        """Return a run's settings: of the common ones those that its algorithm reads."""
        own = dict(way.settings)
        base = make_learn_settings(dataset_name(dataset), preset)
        algorithm = given.get("algorithm", base.algorithm)
        one_of("algorithm", algorithm, READS)
        unread = SPECIFIC - READS[algorithm]
        chosen = {k: v for k, v in given.items() if k in own or k not in unread}
        chosen |= {"mechanism": NO_NOISE} if budget == NO_NOISE else {"budget": budget}
        if budget != NO_NOISE and parse_budget(budget).scope == "total":
            chosen.setdefault("target_delta", parse_budget(budget).delta or DELTA)
        settings = make_learn_settings(
            dataset_name(dataset), preset, **(chosen | {"algorithm": algorithm, "seed": seed})
        )
        if self.client_rounds is None or algorithm == "centralized":
            return settings
        return replace(settings, rounds=max(1, self.client_rounds // _participants(settings)))

    def _candidates(self, settings: LearnSettings) -> tuple[LearnSettings, ...]:
        if self.tuning is None:
            return ()
        return self.tuning.candidates(settings)

    def _refuse_unlike(self, trials: Sequence[Trial]) -> None:
        """Refuse ways that cannot be compared: other units of privacy, or other effort."""
        noisy = [t for t in trials if t.budget != NO_NOISE]
        trained = [t for t in trials if t.settings.algorithm != "centralized"]
        for what, of, why, some in (
            ("units", _unit, "protect different things, so that their budgets do not compare",
             noisy),
            ("client-rounds", _client_rounds, "train with unequal client-rounds", trained),
        ):  # fmt: skip
            for dataset in dict.fromkeys(t.dataset for t in some):
                found = {of(t.settings): t.way for t in reversed(some) if t.dataset == dataset}
                if len(found) > 1 and what not in self.allowed:
                    told = "; ".join(f"{way}: {unit}" for unit, way in found.items())
                    more = " give --client-rounds N, or" if what == "client-rounds" else ""
                    raise InputError(
                        f"these ways {why} ({told}):{more} leave one out, or allow it by name "
                        f"(--allow {what})"
                    )

    def as_dict(self) -> dict[str, Any]:
        """Return the plan with the keys of a study file."""
        told = {
            "dataset": self.dataset, "budgets": list(self.budgets), "seeds": list(self.seeds),
            "settings": _shown(self.settings),
            "schemes": [{"name": way.name} | _shown(dict(way.settings)) for way in self.ways],
            "tuning": None if self.tuning is None else self.tuning.as_dict(),
            "client-rounds": self.client_rounds, "allow": list(self.allowed),
            "measure": self.measure, "data-seed": self.data_seed,
        }  # fmt: skip
        return {key: value for key, value in told.items() if value not in (None, [], {}, "")}


@dataclass(frozen=True)
class Trial:
    """One run of a study.

    Attributes
    ----------
    number : int
        Position in the tables.
    dataset, way, budget : str
    settings : LearnSettings
        Where candidates are given, what they share.
    candidates : tuple of LearnSettings
        What the run chooses from; empty without tuning.
    measure : str
    """

    number: int
    dataset: str
    way: str
    budget: str
    settings: LearnSettings
    candidates: tuple[LearnSettings, ...] = ()
    measure: str = ""

    @property
    def id(self) -> str:
        """Identity: the same settings have the same name in every session."""
        given = [s.as_given() for s in (self.settings, *self.candidates)]
        told = json.dumps([self.dataset, self.way, self.budget, given], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]


def read_learn_plan(text: str, scale: str = "quick") -> LearnPlan:
    """Return the plan of a study file (TOML); its table ``full`` changes it at that scale."""
    try:
        given = tomllib.loads(text)
    except ValueError as error:
        raise InputError(f"study file: {error}") from error
    full = given.pop("full", {})
    if scale == "full":
        given["schemes"] = given.get("schemes", []) + full.pop("schemes", [])
        given["settings"] = given.get("settings", {}) | full.pop("settings", {})
        given |= full
    known = ("title", "question", "dataset", "budgets", "seeds", "settings", "schemes", "tuning",
             "client_rounds", "allow", "measure", "data_seed")  # fmt: skip
    check_names(given, known)
    told = _plain(given)
    for key, value in told.items():
        kind, words = KINDS.get(key, (str, "a text"))
        if not isinstance(value, kind) or (isinstance(value, list) and not _alike(value)):
            raise not_allowed(key.replace("_", "-"), value, words)
    tuning = told.get("tuning")
    return LearnPlan(
        dataset=told.get("dataset", ""),
        ways=tuple(make_way(dict(table)) for table in told.get("schemes", [])),
        budgets=tuple(told.get("budgets", ())),
        seeds=tuple(told.get("seeds", (0,))),
        settings=_plain(told.get("settings", {})),
        tuning=None if tuning is None else Tuning.of(dict(tuning)),
        client_rounds=told.get("client_rounds"),
        allowed=tuple(told.get("allow", ())),
        measure=told.get("measure", ""),
        data_seed=told.get("data_seed"),
        title=told.get("title", ""),
        question=told.get("question", QUESTION),
    )


def _alike(values: list[Any]) -> bool:
    """Return whether all are texts, all are tables, or all are whole numbers, 0 or more."""
    return any(all(isinstance(v, kind) for v in values) for kind in (str, dict)) or all(
        isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values
    )


def make_way(table: dict[str, Any]) -> Scheme:
    """Return a way of its name and settings."""
    name = table.pop("name", None)
    if not isinstance(name, str) or not name:
        raise not_allowed("schemes.name", name, "a text that names the way")
    held = {k: tuple(v) if isinstance(v, list) else v for k, v in _plain(table).items()}
    return Scheme(name, tuple(sorted(held.items())))


def compare_learning(
    plan: LearnPlan,
    out: Path,
    datasets: Datasets | None = None,
    *,
    jobs: int = 1,
    resume: bool = False,
    retry_failed: bool = False,
    kind: str = "comparison of algorithms",
    repeat: str = "",
    progress: Progress = lambda _: nullcontext(lambda _: None),
) -> Study:
    """Run a study of learning into a folder, or the rest of one; return it.

    A run that fails is stored with its reason.

    Parameters
    ----------
    out : path
        New or empty unless ``resume``, which runs what it does not hold yet.
    datasets : callable, optional
        From a name and settings to a data set; with several ``jobs`` it is sent to processes.
    jobs : int
        Processes.
    progress : callable
        Given the number of runs, returns a context that yields ``advance(note)``.

    Raises
    ------
    InputError
        For settings that no run can have, or a folder that holds something else.
    """
    whole("jobs", jobs)
    shelf = datasets or Shelf(data_seed=plan.data_seed)
    trials = plan.trials()
    for trial in {(t.dataset, t.way): t for t in reversed(trials)}.values():
        split_for(shelf(trial.dataset, trial.settings), trial.settings)
    first = shelf(trials[0].dataset, trials[0].settings)
    told = plan.as_dict() | {"samples": len(first.y_train), "fingerprint": first.fingerprint}
    manifest = header(
        kind, plan.title or TITLE.format(first.name), plan.question, told, len(trials)
    )
    with open_store(out, manifest | {"repeat": repeat}, resume=resume) as store:
        if retry_failed:
            store.forget(run for run, status in store.stored().items() if status == "failed")
        stored = store.stored()
        left = [trial for trial in trials if trial.id not in stored]
        with progress(len(left)) as advance, closing(_done(left, shelf, jobs, plan)) as results:
            for rows in results:
                store.add(rows)
                row = rows["runs"][0]
                advance(f"{row['scheme']}, {row['budget']}")
        store.finish(told_totals)
    return read_study(out)


def _done(trials: Sequence[Trial], datasets: Datasets, jobs: int, plan: LearnPlan) -> Any:
    """Yield every trial's rows, by several processes if asked for."""
    run = partial(attempted, datasets, tuning=plan.tuning)
    if jobs == 1:
        return (run(trial) for trial in trials)
    return unordered(run, trials, jobs)


def attempted(datasets: Datasets, trial: Trial, tuning: Tuning | None = None) -> Rows:
    """Return a run's rows; a failure becomes a row that says why."""
    settings, row = trial.settings, _identity(trial)
    try:
        dataset = datasets(trial.dataset, settings)
        shared = ALONE
        if trial.candidates and tuning is not None:
            chosen = tune(dataset, trial.candidates, tuning)
            dataset, settings, shared = chosen.dataset, chosen.settings, chosen.shared
            row["tuned"] = chosen.told
        measure = MEASURES[trial.measure](dataset, settings) if trial.measure else None
        result = learn(dataset, settings, measure or (lambda _: None), shared=shared)
    except GridprivError as error:
        rows: Rows = {name: [] for name in TABLES}
        rows["runs"] = [row | {"status": "failed", "reason": str(error), "finished_rounds": 0}]
        return rows
    return _result_rows(row, result, measure)


def _identity(trial: Trial) -> dict[str, Any]:
    """Return what a run is, as a row."""
    settings = trial.settings
    return {
        "run": trial.id, "number": trial.number, "case": dataset_name(trial.dataset), "zoning": "",
        "load_scale": 1.0, "scheme": trial.way, "budget": trial.budget, "seed": settings.seed,
        "mechanism": settings.mechanism, "calibration": settings.calibration,
        "adjacency": settings.adjacency, "local_updates": settings.local_updates,
        "client_rounds": _client_rounds(settings), "tuned": "",
    }  # fmt: skip


def _result_rows(row: dict[str, Any], result: LearnResult, measure: Measure | None) -> Rows:
    """Return the rows of a finished run."""
    run, notes, rounds = row["run"], "; ".join(result.privacy["notes"]), _rounds(result, measure)
    last = {k: v for k, v in rounds[-1].items() if k not in ("round", "noise_magnitude")}
    charges = {client + 1: spent for client, spent in result.charges.items()}
    seconds = {"round_seconds": float(result.rounds["seconds"].median())}
    rows: Rows = json_ready(
        {
            "runs": [row | _finals(result) | last | {"status": "done", "reason": notes}],
            "rounds": [{"run": run} | one for one in rounds],
            "zones": [],
            "buses": [],
            "statements": [{"run": run} | one for one in result.privacy["sensitivity"]],
            "charges": charge_rows(run, charges),
            "timing": [{"run": run, "process": os.getpid(), **vars(result.timing), **seconds}],
        }
    )
    return rows


def keep_learning_run(
    out: Path,
    name: str,
    dataset: Dataset,
    settings: LearnSettings,
    run: Callable[[Keeper], LearnResult],
    *,
    public: bool = False,
    resume: bool = False,
    repeat: str = "",
) -> dict[str, Any]:
    """Run and keep one run on a data set; return its document, of one that is there too.

    Parameters
    ----------
    out : path
        New or empty, or with ``resume`` this run's.
    name : str
        Of the data set, as given.
    run : callable
        Returns the result, given what keeps the run while it goes on.
    public : bool
        Leave out whatever is computed from private data, and seeds.
    repeat : str
        The command that makes the same run again.

    Raises
    ------
    InputError
        If the folder holds something else.
    """
    budget = NO_NOISE if settings.mechanism == NO_NOISE else str(settings.budget)
    trial = Trial(0, name, settings.algorithm, budget, settings)
    given = {key: value for key, value in settings.as_given().items() if key != "seed"}
    told = {
        "dataset": dataset.name, "samples": len(dataset.y_train),
        "fingerprint": dataset.fingerprint, "settings": _shown(given), "seeds": [settings.seed],
    }  # fmt: skip
    title = f"A run of {settings.algorithm} on {dataset.name}"
    question = "How well does this run learn, and what does it protect?"
    manifest = header("learning run", title, question, told, 1) | {"repeat": repeat}
    if public:
        manifest = publish_manifest(manifest)
    with open_store(out, manifest, resume=resume) as store:
        if not store.stored():
            going_on = resume and (out / INTERRUPTED).exists()
            keeper = make_keeper(out, dataset, settings, resume=going_on)
            result, row = run(keeper), _identity(trial) | {"run": "0"}  # a digest covers the seed
            document = json.dumps(result.as_dict(public=public), indent=2)
            rows = _result_rows(row, result, None)
            rounds = publish_table(result.rounds, ROUNDS) if public else result.rounds
            store.text("run.json", f"{document}\n")
            store.text("rounds.csv", frame_csv(rounds))
            kept = [{"run": row["run"], "document": document}]
            store.add((publish_rows(rows) if public else rows) | {"documents": kept})
            keeper.done()
        store.finish(told_totals)
    found: dict[str, Any] = json.loads(read_study(out).tables["documents"]["document"].iloc[0])
    return found


def _finals(result: LearnResult) -> dict[str, Any]:
    privacy = result.privacy
    return privacy_figures(privacy) | {
        "noise_magnitude": float(result.rounds["noise_magnitude"].mean()),
        "finished_rounds": len(result.rounds),
        "releases_per_client": privacy["releases_per_client"],
    }


def _rounds(result: LearnResult, measure: Measure | None) -> list[dict[str, Any]]:
    """Return the rounds that were evaluated."""
    table = result.rounds
    if measure is not None:
        table = table.assign(**{measure.name: measure.values})
    error = "test_error_pct" if result.dataset["classes"] else "test_mse"
    local = "local_error_pct" if result.dataset["classes"] else "local_mse"
    share = 100.0 if result.dataset["classes"] else 1.0
    return [
        {
            "round": row["round"], "noise_magnitude": row["noise_magnitude"],
            error: share * row["test_error"], local: share * row["local_error"],
            "mean_objective": row["objective"], "local_loss": row["local_loss"],
            "disagreement": row["consensus_residual"],
        }
        | ({} if measure is None else {measure.name: row[measure.name]})
        for row in table[table["objective"].notna()].to_dict("records")
    ]  # fmt: skip


def _repeated(
    given: dict[str, Any], preset: str | None, dataset: str, budgets: tuple[str, ...],
    seeds: tuple[int, ...],
) -> list[tuple[str, int]]:  # fmt: skip
    """Return the budgets and seeds of a way; without noise no budget."""
    base = make_learn_settings(dataset_name(dataset), preset)
    quiet = given.get("mechanism") == NO_NOISE
    if quiet or given.get("algorithm", base.algorithm) in NON_PRIVATE:
        return [(NO_NOISE, seed) for seed in seeds]
    if not budgets:
        raise InputError("budgets = [] is not allowed: at least one is needed")
    return [(str(parse_budget(budget)), seed) for budget in budgets for seed in seeds]


def _participants(settings: LearnSettings) -> int:
    return settings.sampled_clients or settings.clients or 1


def _client_rounds(settings: LearnSettings) -> int:
    return settings.rounds * _participants(settings)


def _unit(settings: LearnSettings) -> str:
    if settings.algorithm == "dp-fedavg":
        return "one client, with a trusted server"
    return f"one sample, {settings.adjacency}"


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in given.items()}


def _shown(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key.replace("_", "-"): list(value) if isinstance(value, tuple) else value
        for key, value in given.items()
    }
