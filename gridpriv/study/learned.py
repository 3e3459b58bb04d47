"""Algorithms side by side: a study of learning in the shared store.

A *method* is an algorithm with its settings. Each is run at every budget with every seed; where
a grid is declared, each method first chooses among the values of the settings that it reads
(:mod:`gridpriv.learning.run`). Ways are comparable only if they protect the same unit and
train with equally many client-rounds; what differs is refused unless it is allowed by name. The
tables have the columns of a study of grids where they mean the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from gridpriv.core.errors import InputError, whole
from gridpriv.core.files import read_sealed, sealed
from gridpriv.core.processes import unordered
from gridpriv.core.store import MANIFEST, Rows, Store, Study, open_store
from gridpriv.core.tables import publish_table
from gridpriv.core.text import Json, frame_csv, json_ready
from gridpriv.learning.algorithms.base import ALONE, MEASURES, Measure
from gridpriv.learning.datasets import DRAWN, dataset_name, load_dataset
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.releases import protected
from gridpriv.learning.result import LearnResult, LearnRound
from gridpriv.learning.run import Tuning, learn, split_for, tune
from gridpriv.learning.settings import LearnSettings
from gridpriv.learning.stored import MODEL_FILE, Keeper, make_keeper
from gridpriv.privacy.settings import QUIET
from gridpriv.privacy.statement import Certificate
from gridpriv.study import engine
from gridpriv.study.learn_plan import TITLE, LearnPlan, Trial, client_rounds
from gridpriv.study.methods import as_written
from gridpriv.study.record import publish_manifest, publish_rows
from gridpriv.study.run_folder import RUN_FILE

# from a data set's name and a run's settings to the data set
Datasets = Callable[[str, LearnSettings], Dataset]


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
        path = Path(name)  # a changed file is read anew
        state = (path.stat().st_mtime_ns, path.stat().st_size) if path.is_file() else (0, 0)
        return _read(
            state,
            name,
            self.folder,
            download=self.download,
            missing=settings.missing,
            scaling=settings.scaling,
            seed=seed if dataset_name(name) in DRAWN else 0,
            norm=settings.norm,
        )


@lru_cache(maxsize=4)
def _read(state: tuple[int, int], name: str, folder: str | None, **given: Any) -> Dataset:
    """Return a data set; the state of its file, if it is one, is a part of the cache's key."""
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
    progress: engine.Progress = engine.unseen,
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
    for trial in {(t.dataset, t.method): t for t in reversed(trials)}.values():
        split_for(shelf(trial.dataset, trial.settings), trial.settings)
    first = shelf(trials[0].dataset, trials[0].settings)
    title = plan.title or TITLE.format(first.name)
    manifest = engine.header(kind, title, plan.question, plan.as_dict() | _data(first), len(trials))
    run = partial(attempted, shelf, tuning=plan.tuning)
    resumed = (out / MANIFEST).exists()

    def check(left: list[Trial]) -> None:
        if resumed:
            _refuse_drawn_again(out, left)

    def work(left: list[Trial], store: Store, advance: engine.Advance) -> None:
        with closing(unordered(run, left, jobs)) as outcomes:
            for rows in outcomes:
                store.add(rows)
                advance(engine.note(rows))

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


def _refuse_drawn_again(out: Path, left: Sequence[Trial]) -> None:
    """Refuse runs that may have drawn secure noise before they were lost: no total could count it.

    (Comparisons on grids have seeds, and so no secure noise.)
    """
    given = [trial.settings for trial in left]
    if any(settings.noise == "secure" and settings.drawn not in QUIET for settings in given):
        raise InputError(
            f"{out} has runs with secure noise to do that may have drawn it already, which nothing "
            "can make again or count: name another folder; what this one released stays released"
        )


def attempted(datasets: Datasets, trial: Trial, tuning: Tuning | None = None) -> Rows:
    """Return a run's rows; a failure becomes a row that says why."""
    row = _identity(trial)

    def run() -> Rows:
        settings, shared = trial.settings, ALONE
        dataset = datasets(trial.dataset, settings)
        if trial.candidates and tuning is not None:
            chosen = tune(dataset, trial.candidates, tuning)
            dataset, settings, shared = chosen.dataset, chosen.settings, chosen.shared
            row["tuned"] = chosen.choice
        measure = MEASURES[trial.measure](dataset, settings) if trial.measure else None
        result = learn(dataset, settings, measure or (lambda _: None), shared=shared)
        return _result_rows(row, result, measure)

    return engine.attempted(run, partial(engine.failed_rows, row))


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


def _result_rows(row: Json, result: LearnResult, measure: Measure | None) -> Rows:
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
            "certificates": [{"run": run} | one for one in result.privacy["sensitivity"]],
            "charges": engine.charge_rows(run, charges),
            "timing": [{"run": run, "process": os.getpid(), **result.timing.as_dict(), **seconds}],
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
) -> Json:
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
    trial = Trial(0, name, settings.algorithm, settings)
    given = {key: value for key, value in settings.as_given().items() if key != "seed"}
    plan_document = {
        "dataset": dataset.name,
        **_data(dataset),
        "settings": as_written(given),
        "seeds": [settings.seed],
    }
    title = f"A run of {settings.algorithm} on {dataset.name}"
    question = "How well does this run learn, and what does it protect?"
    manifest = engine.header(engine.LEARNING_RUN, title, question, plan_document, 1) | {
        "repeat": repeat
    }
    if public:
        manifest = publish_manifest(manifest)
    with open_store(out, manifest, resume=resume) as store:
        if not store.stored():
            keeper = make_keeper(out, dataset, settings, resume=resume)
            result, row = run(keeper), _identity(trial) | {"run": "0"}  # a digest covers the seed
            rows = _result_rows(row, result, None)
            rounds = publish_table(result.rounds, LearnRound.table) if public else result.rounds
            store.text(RUN_FILE, sealed(result.as_dict(public=public), indent=2))
            store.text("rounds.csv", frame_csv(rounds))
            (result.public_model if public else result.model).save(out / MODEL_FILE)
            store.add(publish_rows(rows) if public else rows)
            keeper.done()
        store.finish(engine.told_totals)
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
    error = "test_error_pct" if result.dataset["classes"] else "test_mse"
    local = "local_error_pct" if result.dataset["classes"] else "local_mse"
    share = 100.0 if result.dataset["classes"] else 1.0
    return [
        {
            "round": row["round"],
            "noise_magnitude": row["noise_magnitude"],
            error: share * row["test_error"],
            local: share * row["local_error"],
            "mean_objective": row["objective"],
            "local_loss": row["local_loss"],
            "consensus_residual_max": row["consensus_residual"],
        }
        | ({} if measure is None else {measure.name: row[measure.name]})
        for row in table[table["objective"].notna()].to_dict("records")
    ]
