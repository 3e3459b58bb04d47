"""Comparison of algorithms: a study of learning in the common store.

A *method* is an algorithm with its settings. Each is run at every budget with every seed; where a
grid is declared, each method first chooses from the values of the settings that it reads
(:mod:`gridpriv.learning.run`). Methods are comparable only if they protect the same unit and train
with equally many client-rounds; differences are refused unless they are allowed by name. The tables
have the columns of a study of grids where these mean the same. The plan of a study is a TOML or
JSON file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridpriv.core.errors import InputError, check_choice, not_allowed, whole
from gridpriv.core.files import read_sealed, read_table, sealed
from gridpriv.core.processes import unordered
from gridpriv.core.store import MANIFEST, Store, Study, Tables, open_store
from gridpriv.core.tables import publish_table
from gridpriv.core.text import Json, frame_csv, json_ready
from gridpriv.learning.accounting import client_datasets, protected
from gridpriv.learning.algorithms import NON_PRIVATE, READS, SPECIFIC
from gridpriv.learning.algorithms.base import MEASURES, WHOLE_BUDGET, Checkpoint, Measure, planned
from gridpriv.learning.datasets import SEEDED_DATASETS, dataset_name, load_dataset
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.result import LearnResult, LearnRound
from gridpriv.learning.run import Tuning, learn, make_task, split_for, tune
from gridpriv.learning.settings import LearnSettings, make_learn_settings
from gridpriv.learning.stored import MODEL_FILE, CheckpointWriter, make_checkpoint_writer
from gridpriv.privacy.certificate import Certificate
from gridpriv.privacy.settings import NO_BUDGET, NO_NOISE, parse_budget
from gridpriv.study import engine
from gridpriv.study import plan as plans
from gridpriv.study.context import open_charge
from gridpriv.study.record import publish_manifest, publish_tables
from gridpriv.study.run_folder import RUN_FILE

if TYPE_CHECKING:
    from gridpriv.privacy.ledger import ReleaseCharge
    from gridpriv.privacy.ledger_rows import LedgerDataset


TITLE = "{}: algorithms at equal certified totals"
QUESTION = "Which algorithm errs least at equal certified privacy?"
# allowed differences of methods, by name
DIFFERENCES = ("client-rounds", "units")

WHOLE: plans.Kind = (lambda value: type(value) is int and value >= 0, "a whole number, 0 or more")
KINDS: dict[str, plans.Kind] = {
    "budgets": (plans.each(str), "a list of texts"),
    "allow": (plans.each(str), "a list of texts"),
    "seeds": (
        lambda value: (
            plans.each(int)(value) and all(seed >= 0 and seed is not True for seed in value)
        ),
        "a list of whole numbers, 0 or more",
    ),
    "methods": (plans.each(dict), "tables"),
    "settings": plans.SETTINGS,
    "tuning": (plans.SETTINGS[0], "a table of lists"),
    "client_rounds": WHOLE,
    "data_seed": WHOLE,
}
TEXTS = ("title", "question", "dataset", "measure")


@dataclass(frozen=True)
class LearnPlan:
    """Plan of a study of learning.

    Attributes
    ----------
    dataset : str
        Default of methods without their own.
    methods : tuple of Method
        Named settings over the common ones; ``preset``, ``dataset`` and ``budgets`` among them.
    budgets : tuple of str
        Default of methods without their own: ``total:E,D`` or ``per-release:E[,D]``.
    settings : mapping
        Common to all methods; each gets those that its algorithm reads.
    tuning : Tuning or None
        The grid of settings for the choice of every method, where it reads them.
    client_rounds : int or None
        Rounds of every method are this over its clients of a round.
    allowed : tuple of str
        Allowed differences of methods: ``client-rounds``, ``units``.
    measure : str
        A further measure of every evaluated round (:mod:`gridpriv.learning.algorithms.base`).
    data_seed : int or None
        See :class:`DatasetLoader`.
    """

    dataset: str
    methods: tuple[plans.Method, ...]
    budgets: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Json = field(default_factory=dict)
    tuning: Tuning | None = None
    client_rounds: int | None = None
    allowed: tuple[str, ...] = ()
    measure: str = ""
    data_seed: int | None = None
    title: str = ""
    question: str = QUESTION

    def __post_init__(self) -> None:
        for axis in ("methods", "seeds"):
            if not getattr(self, axis):
                raise plans.empty_axis(axis)
        names = [method.name for method in self.methods]
        if len(set(names)) < len(names):
            raise not_allowed("methods", names, "each name once")
        for name in self.allowed:
            check_choice("allow", name, DIFFERENCES)
        if self.measure:
            check_choice("measure", self.measure, MEASURES)
        if self.client_rounds is not None:
            whole("client-rounds", self.client_rounds)

    def trials(self) -> list[Trial]:
        """Return every run once; raise for the first setting that no run can have."""
        listed: list[Trial] = []
        for method in self.methods:
            given = dict(self.settings) | dict(method.settings)
            own = {name: given.pop(name, None) for name in ("dataset", "preset", "budgets")}
            dataset, budgets = own["dataset"] or self.dataset, own["budgets"] or self.budgets
            make = partial(make_learn_settings, dataset_name(dataset), own["preset"])
            algorithm = given.setdefault("algorithm", make().algorithm)
            check_choice("algorithm", algorithm, READS)
            unread = SPECIFIC - READS[algorithm] - dict(method.settings).keys()
            given = {name: value for name, value in given.items() if name not in unread}
            noises: list[Json] = [{"mechanism": NO_NOISE}]
            if given.get("mechanism") != NO_NOISE and algorithm not in NON_PRIVATE:
                noises = [{"budget": parse_budget(budget)} for budget in budgets]
            if not noises:
                raise plans.empty_axis("budgets")
            for noise, seed in product(noises, self.seeds):
                settings = self._effort(make(**given | noise, seed=seed))
                candidates = self.tuning.candidates(settings) if self.tuning else ()
                listed.append(
                    Trial(len(listed), dataset, method.name, settings, candidates, self.measure)
                )
        self._refuse_unlike(listed)
        return listed

    def _effort(self, settings: LearnSettings) -> LearnSettings:
        """Return settings with the number of rounds from the plan's client-rounds."""
        if self.client_rounds is None or settings.algorithm == "centralized":
            return settings
        return replace(settings, rounds=max(1, self.client_rounds // _participants(settings)))

    def _refuse_unlike(self, trials: Sequence[Trial]) -> None:
        """Refuse methods that cannot be compared: other units of privacy, or other effort."""
        noisy = [t for t in trials if t.budget != NO_NOISE]
        trained = [t for t in trials if t.settings.algorithm != "centralized"]
        other_units = "protect different things, so that their budgets do not compare"
        for difference, value_of, why, trials_compared in (
            ("units", _unit, other_units, noisy),
            ("client-rounds", client_rounds, "train with unequal client-rounds", trained),
        ):
            for dataset in dict.fromkeys(t.dataset for t in trials_compared):
                by_unit = {
                    value_of(t.settings): t.method
                    for t in reversed(trials_compared)
                    if t.dataset == dataset
                }
                if len(by_unit) > 1 and difference not in self.allowed:
                    units = "; ".join(f"{method}: {unit}" for unit, method in by_unit.items())
                    more = " give --client-rounds N, or" if difference == "client-rounds" else ""
                    raise InputError(
                        f"these methods {why} ({units}):{more} leave one out, or allow it by name "
                        f"(--allow {difference})"
                    )

    def as_dict(self) -> Json:
        """Return the plan with the keys of a study file."""
        document = {
            "dataset": self.dataset,
            "budgets": list(self.budgets),
            "seeds": list(self.seeds),
            "settings": plans.as_written(self.settings),
            "methods": [method.as_dict() for method in self.methods],
            "tuning": None if self.tuning is None else self.tuning.as_dict(),
            "client-rounds": self.client_rounds,
            "allow": list(self.allowed),
            "measure": self.measure,
            "data-seed": self.data_seed,
        }
        return {key: value for key, value in document.items() if value not in (None, [], {}, "")}


@dataclass(frozen=True)
class Trial:
    """One run of a study.

    Attributes
    ----------
    number : int
        Position in the tables.
    settings : LearnSettings
        With candidates, their common settings.
    candidates : tuple of LearnSettings
        Candidates of the choice; empty without tuning.
    """

    number: int
    dataset: str
    method: str
    settings: LearnSettings
    candidates: tuple[LearnSettings, ...] = ()
    measure: str = ""

    @property
    def budget(self) -> str:
        """Noise of the run."""
        return self.settings.noise_budget

    @property
    def id(self) -> str:
        """Identity: the same settings have the same name in every session."""
        given = [s.as_given() for s in (self.settings, *self.candidates)]
        identity = json.dumps([self.dataset, self.method, self.budget, given], sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()[:16]


def read_learn_plan(path: Path, scale: str = "quick") -> LearnPlan:
    """Return the plan of a study file; its table ``full`` changes it at that scale."""
    given = read_table(path, "study file")
    document = plans.plain(plans.at_scale(given, scale, (*TEXTS, *KINDS)))
    plans.check_kinds(document, KINDS, (lambda value: isinstance(value, str), "a text"))
    tuning = document.pop("tuning", None)
    return LearnPlan(
        dataset=document.pop("dataset", ""),
        methods=tuple(map(plans.method_of, document.pop("methods", []))),
        budgets=tuple(document.pop("budgets", ())),
        seeds=tuple(document.pop("seeds", (0,))),
        settings=plans.plain(document.pop("settings", {})),
        tuning=None if tuning is None else Tuning.of(dict(tuning)),
        allowed=tuple(document.pop("allow", ())),
        **document,
    )


def _participants(settings: LearnSettings) -> int:
    return settings.sampled_clients or settings.clients or 1


def client_rounds(settings: LearnSettings) -> int:
    """Return the total number of client-rounds of a run."""
    return settings.rounds * _participants(settings)


def _unit(settings: LearnSettings) -> str:
    return protected(settings.algorithm, settings.adjacency, settings.trust)


# from a data set's name and a run's settings to the data set
Datasets = Callable[[str, LearnSettings], Dataset]


@dataclass(frozen=True)
class DatasetLoader:
    """Source of data sets; each is read once per process.

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
        path = Path(name)  # a changed file is read again
        state = (path.stat().st_mtime_ns, path.stat().st_size) if path.is_file() else (0, 0)
        seed = seed if dataset_name(name) in SEEDED_DATASETS else 0
        given = {key: getattr(settings, key) for key in ("missing", "scaling", "norm")}
        return _read(state, name, self.folder, download=self.download, seed=seed, **given)


@lru_cache(maxsize=4)
def _read(state: tuple[int, int], name: str, folder: str | None, **given: Any) -> Dataset:
    """Return a data set; the state of its file, if any, is a part of the cache's key."""
    del state
    return load_dataset(name, folder, **given)


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
    progress: engine.Progress = engine.no_progress,
) -> Study:
    """Run a study of learning into a folder, or the rest of one; return it.

    A run that fails is stored with its reason.

    Parameters
    ----------
    out : path
        New or empty unless ``resume``, which runs the missing runs.
    datasets : callable, optional
        From a name and settings to a data set; with several ``jobs`` it is sent to processes.
    jobs : int
        Processes.
    progress : callable
        Given the number of runs, returns a context that yields ``advance(note)``.

    Raises
    ------
    InputError
        For settings that no run can have, or a folder with other content.
    """
    whole("jobs", jobs)
    loader = datasets or DatasetLoader(data_seed=plan.data_seed)
    trials = plan.trials()
    for trial in {(t.dataset, t.method): t for t in reversed(trials)}.values():
        split_for(loader(trial.dataset, trial.settings), trial.settings)
    first = loader(trials[0].dataset, trials[0].settings)
    title = plan.title or TITLE.format(first.name)
    manifest = engine.header(kind, title, plan.question, plan.as_dict() | _data(first), len(trials))
    run = partial(attempted, loader, tuning=plan.tuning)
    resumed = (out / MANIFEST).exists()

    def check(remaining: list[Trial]) -> None:  # a study on grids has no secure noise
        given = [trial.settings for trial in remaining if resumed]
        if any(s.noise == "secure" and s.noise_budget not in NO_BUDGET for s in given):
            raise InputError(
                f"{out} has runs with secure noise to do that may have drawn it already, which "
                "nothing can make again or count: name another folder; what this one released "
                "stays released"
            )

    def work(remaining: list[Trial], store: Store, advance: engine.Advance) -> None:
        with closing(unordered(run, remaining, jobs)) as outcomes:
            for tables in outcomes:
                store.add(tables)
                advance(engine.note(tables))

    return engine.run_study(
        out,
        manifest | {"repeat": repeat},
        trials,
        work,
        resume=resume,
        retry_failed=retry_failed,
        check=check,
        progress=progress,
    )


def _data(dataset: Dataset) -> Json:
    """Return the size and the digest of a data set, for a manifest."""
    return {"samples": len(dataset.y_train), "fingerprint": dataset.fingerprint}


def attempted(datasets: Datasets, trial: Trial, tuning: Tuning | None = None) -> Tables:
    """Return a run's tables; a failed run has a row with the reason."""
    row = _identity(trial)

    def run() -> Tables:
        settings, shared = trial.settings, WHOLE_BUDGET
        dataset = datasets(trial.dataset, settings)
        if trial.candidates and tuning is not None:
            chosen = tune(dataset, trial.candidates, tuning)
            dataset, settings, shared = chosen.dataset, chosen.settings, chosen.shared
            row["tuned"] = chosen.choice
        measure = None
        if trial.measure:
            measure = MEASURES[trial.measure](make_task(dataset, settings, shared=shared)[0])
        result = learn(dataset, settings, measure or (lambda _: None), shared=shared)
        return _result_tables(row, result, measure)

    return engine.attempted(run, partial(engine.failed_tables, row))


def _identity(trial: Trial) -> Json:
    """Return the identity of a run as a row."""
    settings = trial.settings
    return {
        "run": trial.id,
        "number": trial.number,
        "case": dataset_name(trial.dataset),
        "zoning": "",
        "load_scale": 1.0,
        "method": trial.method,
        "budget": trial.budget,
        "seed": settings.seed,
        "mechanism": settings.mechanism,
        "sensitivity": settings.sensitivity,
        "adjacency": protected(settings.algorithm, settings.adjacency, settings.trust),
        "local_updates": settings.local_updates,
        "client_rounds": client_rounds(settings),
        "tuned": "",
    }


def _result_tables(row: Json, result: LearnResult, measure: Measure | None) -> Tables:
    """Return the tables of a finished run."""
    notes, rounds = "; ".join(result.privacy["notes"]), _rounds(result, measure)
    last = {k: v for k, v in rounds[-1].items() if k not in ("round", "noise_magnitude")}
    charges = {client + 1: spent for client, spent in result.charges.items()}
    seconds = {"round_seconds": float(result.rounds["seconds"].median())}
    return json_ready(
        {
            "runs": [row | _finals(result) | last | {"status": "done", "reason": notes}],
            "rounds": rounds,
            "certificates": result.privacy["sensitivity"],
            "charges": engine.charge_rows(charges),
            "timing": [{"process": os.getpid(), **result.timing.as_dict(), **seconds}],
        }
    )


def store_learning_run(
    out: Path,
    name: str,
    dataset: Dataset,
    settings: LearnSettings,
    run: Callable[[CheckpointWriter], LearnResult],
    *,
    public: bool = False,
    resume: bool = False,
    ledger: str = "",
    repeat: str = "",
) -> Json:
    """Run and store one run on a data set, or read a stored run; return its document.

    Parameters
    ----------
    out : path
        New or empty, or with ``resume`` this run's.
    name : str
        Of the data set, as given.
    run : callable
        Returns the result, given the checkpoint writer of the run.
    public : bool
        Leave out values computed from private data, and seeds.
    ledger : str
        Identity of the ledger that is charged for every attempt at a round; empty without one.
    repeat : str
        The command that repeats the run.

    Raises
    ------
    InputError
        If the folder has other content.
    """
    trial = Trial(0, name, settings.algorithm, settings)
    given = {key: value for key, value in settings.as_given().items() if key != "seed"}
    plan_document = {
        "dataset": dataset.name,
        **_data(dataset),
        "settings": plans.as_written(given),
        "seeds": [settings.seed],
        "ledger": ledger,
    }
    title = f"A run of {settings.algorithm} on {dataset.name}"
    question = "How well does this run learn, and what does it protect?"
    manifest = engine.header(engine.LEARNING_RUN, title, question, plan_document, 1)
    manifest["repeat"] = repeat
    if public:
        manifest = publish_manifest(manifest)
    with open_store(out, manifest, resume=resume) as store:
        if not store.stored():
            checkpoints = make_checkpoint_writer(out, settings, charged=bool(ledger))
            result = run(checkpoints)
            row = _identity(trial) | {"run": "0"}  # a digest covers the seed
            tables = _result_tables(row, result, None)
            rounds = publish_table(result.rounds, LearnRound.table) if public else result.rounds
            store.text(RUN_FILE, sealed(result.as_dict(public=public), indent=2))
            store.text("rounds.csv", frame_csv(rounds))
            (result.public_model if public else result.model).save(out / MODEL_FILE)
            store.add(publish_tables(tables) if public else tables)
            checkpoints.done()
        store.finish(engine.manifest_totals)
    return read_sealed(out / RUN_FILE)


def _finals(result: LearnResult) -> Json:
    epsilons = Certificate.read({"privacy": result.privacy})
    epsilons.pop("published_total", None)
    return epsilons | {
        "noise_magnitude": float(result.rounds["noise_magnitude"].mean()),
        "finished_rounds": len(result.rounds),
    }


def _rounds(result: LearnResult, measure: Measure | None) -> list[Json]:
    """Return the rounds that were evaluated."""
    table = result.rounds
    if measure is not None:
        table = table.assign(**{measure.name: measure.values})
    unit, share = ("error_pct", 100.0) if result.dataset["classes"] else ("mse", 1.0)
    return [
        {
            "round": row["round"],
            "noise_magnitude": row["noise_magnitude"],
            f"test_{unit}": share * row["test_error"],
            f"local_{unit}": share * row["local_error"],
            "mean_objective": row["objective"],
            "local_loss": row["local_loss"],
            "consensus_residual_max": row["consensus_residual"],
        }
        | ({} if measure is None else {measure.name: row[measure.name]})
        for row in table[table["objective"].notna()].to_dict("records")
    ]


@contextmanager
def charging(
    ledger: str | Path | None,
    key: str | Path | None,
    dataset: Dataset,
    settings: LearnSettings,
    checkpoint: Checkpoint,
) -> Iterator[ReleaseCharge | None]:
    """Open a ledger, refuse a run beyond its grants, and yield its charging function."""

    def owners() -> Sequence[LedgerDataset]:
        return client_datasets(dataset, split_for(dataset, settings), settings)

    with open_charge(ledger, key, owners, noisy=settings.mechanism != "none") as charge:
        if charge is not None:
            task, _ = make_task(dataset, settings)
            drawn = planned(replace(task, checkpoint=checkpoint))
            releases = chain.from_iterable(drawn.values())
            if any(release.certified.kind == "uncertified" for release in releases):
                raise not_allowed(
                    "ledger", ledger, "left out with this run: nothing is proved of its releases"
                )
            charge.admit(drawn)
        yield charge
