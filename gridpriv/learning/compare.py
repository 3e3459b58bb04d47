"""Algorithms side by side at equal certified totals: a study in the shared store.

Its tables have the columns of a study of grids where they mean the same, so that summary,
answer and report are the shared ones; ``scheme`` is the algorithm.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gridpriv.core.errors import GridprivError, not_allowed, one_of, whole
from gridpriv.core.store import TABLES, Rows, Study, open_store, read_study
from gridpriv.learning.algorithms.names import ALGORITHMS, NON_PRIVATE, READS, SPECIFIC
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.result import LearnResult, finite
from gridpriv.learning.run import learn, split_for
from gridpriv.learning.settings import SET_BY_COMPARISON, LearnSettings, make_learn_settings
from gridpriv.learning.stored import Progress, StepCounter, silent, steps
from gridpriv.study.manifest import machine, versions
from gridpriv.study.record import privacy_figures
from gridpriv.study.total import charge_rows

DELTA = 1e-5
NO_NOISE = "none"
QUESTION = "Which algorithm errs least at equal certified privacy?"

Datasets = Callable[[int], Dataset]


@dataclass(frozen=True)
class Trial:
    """One run of a comparison.

    Attributes
    ----------
    number : int
        Position in the tables.
    way : str
        The algorithm; ``ryu-kim:output`` names its output perturbation.
    budget : str
        ``total:E,D``, or none.
    settings : LearnSettings
    """

    number: int
    way: str
    budget: str
    settings: LearnSettings

    @property
    def id(self) -> str:
        """Identity: the same settings have the same name in every session."""
        told = json.dumps([self.way, self.budget, self.settings.as_given()], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]


def compare(
    datasets: Datasets,
    preset: str | None,
    algorithms: list[str],
    totals: list[float],
    seeds: int,
    folder: Path,
    given: dict[str, Any],
    *,
    resume: bool = False,
    progress: Progress = silent,
) -> Study:
    """Run every algorithm at every total with every seed; return the study.

    Every private run is calibrated soundly to ``total:E,1e-5`` and states what was certified. A
    run that fails is stored with its reason.

    Parameters
    ----------
    datasets : callable
        From a seed to the data set that ``learn run --seed`` has.
    algorithms : list of str
        Names; ``ryu-kim:output`` names its output perturbation.
    given : dict
        Settings over the preset's; an algorithm gets those that it reads.
    folder : path
        New or empty unless ``resume``, which runs what it does not hold yet.
    progress : callable
        Given the number of local updates, returns a context that yields ``advance(note, steps)``.

    Raises
    ------
    InputError
        For settings that no run can have, or a folder that holds something else.
    """
    whole("seeds", seeds)
    dataset = datasets(0)
    trials = plan(dataset, preset, algorithms, totals, seeds, given)
    told = {
        "dataset": dataset.name, "samples": len(dataset.y_train),
        "fingerprint": dataset.fingerprint, "preset": preset or "none",
        "algorithms": algorithms, "totals": totals, "seeds": list(range(seeds)),
        "settings": {k.replace("_", "-"): v for k, v in given.items()},
    }  # fmt: skip
    with open_store(folder, _manifest(dataset, told, len(trials)), resume=resume) as store:
        stored = store.stored()
        left = [trial for trial in trials if trial.id not in stored]
        with progress(sum(steps(trial.settings) for trial in left)) as advance:
            for trial in left:
                store.add(attempted(datasets(trial.settings.seed), trial, advance))
        store.finish()
    return read_study(folder)


def plan(
    dataset: Dataset,
    preset: str | None,
    algorithms: list[str],
    totals: list[float],
    seeds: int,
    given: dict[str, Any],
) -> list[Trial]:
    """Return every run once; raises on the first bad setting."""
    trials: list[Trial] = []
    _check_given(algorithms, given)
    for way in algorithms:
        algorithm, _, perturbation = way.partition(":")
        chosen = {k: v for k, v in given.items() if k not in SPECIFIC - READS[algorithm]}
        chosen["algorithm"] = algorithm
        if perturbation:
            chosen["perturbation"] = perturbation
        free = algorithm in NON_PRIVATE or given.get("mechanism") == "none"
        for budget in [NO_NOISE] if free else [f"total:{total!r},{DELTA:g}" for total in totals]:
            noise = (
                {"mechanism": "none"}
                if budget == NO_NOISE
                else {"calibration": "sound", "budget": budget, "target_delta": DELTA}
            )
            for seed in range(seeds):
                settings = make_learn_settings(
                    dataset.name, preset, **(chosen | noise | {"seed": seed})
                )
                trials.append(Trial(len(trials), way, budget, settings))
        split_for(dataset, trials[-1].settings)
    return trials


def _check_given(algorithms: list[str], given: dict[str, Any]) -> None:
    """Refuse what a comparison sets itself and what none of its algorithms reads."""
    names = [way.partition(":")[0] for way in algorithms]
    for name in names:
        one_of("algorithm", name, ALGORITHMS)
        if name == "dp-fedavg":
            raise not_allowed(
                "algorithms", name,
                "left out: it protects a client from those who see the models and trusts the "
                "server, so its totals do not compare with those of samples",
            )  # fmt: skip
    read = frozenset().union(*(READS[name] for name in names))
    for name, value in given.items():
        if name in SET_BY_COMPARISON:
            raise not_allowed(name, value, "left out: a comparison sets it itself")
        if name in SPECIFIC - read:
            raise not_allowed(name, value, f"left out with {', '.join(names)}: none reads it")


def attempted(
    dataset: Dataset, trial: Trial, advance: Callable[[str, int], None] = lambda *_: None
) -> Rows:
    """Return a run's rows; a failure becomes a row that says why."""
    rows: Rows = {name: [] for name in TABLES}
    settings = trial.settings
    row = {
        "run": trial.id, "number": trial.number, "case": dataset.name, "zoning": "",
        "load_scale": 1.0, "scheme": trial.way, "budget": trial.budget, "seed": settings.seed,
        "mechanism": settings.mechanism, "calibration": settings.calibration,
        "adjacency": settings.adjacency,
        "local_updates": settings.local_updates,
    }  # fmt: skip
    counter = StepCounter(settings, f"{trial.way}, {trial.budget}", advance)
    try:
        result = learn(dataset, settings, counter)
    except GridprivError as error:
        counter.finish()
        rows["runs"] = [row | {"status": "failed", "reason": str(error), "finished_rounds": 0}]
        return rows
    notes = "; ".join(result.privacy["notes"])
    rows["runs"] = [row | _finals(result) | {"status": "done", "reason": notes}]
    rows["rounds"] = [{"run": trial.id} | one for one in _rounds(result)]
    rows["statements"] = [{"run": trial.id} | one for one in result.privacy["sensitivity"]]
    rows["charges"] = charge_rows(
        trial.id, {client + 1: spent for client, spent in result.charges.items()}
    )
    rows["timing"] = [{"run": trial.id, "process": os.getpid(), **vars(result.timing)}]
    cleaned: Rows = finite(rows)
    return cleaned


def _finals(result: LearnResult) -> dict[str, Any]:
    privacy = result.privacy
    return (
        _figures(result, result.final)
        | privacy_figures(privacy)
        | {
            "noise_magnitude": float(result.rounds["noise_magnitude"].mean()),
            "finished_rounds": len(result.rounds),
            "releases_per_client": privacy["releases_per_client"],
        }
    )


def _rounds(result: LearnResult) -> list[dict[str, Any]]:
    """Return the rounds that were evaluated."""
    seen = result.rounds[result.rounds["objective"].notna()]
    return [
        {"round": row["round"], "noise_magnitude": row["noise_magnitude"]} | _figures(result, row)
        for row in seen.to_dict("records")
    ]


def _figures(result: LearnResult, row: dict[str, Any]) -> dict[str, float]:
    error = row["test_error"]
    measured = {"mean_objective": row["objective"], "disagreement": row["consensus_residual"]}
    if result.dataset["classes"]:
        return {"test_error_pct": 100.0 * error, **measured}
    return {"test_mse": error, **measured}


def _manifest(dataset: Dataset, told: dict[str, Any], planned: int) -> dict[str, Any]:
    flags = {"preset": told["preset"]} if told["preset"] != "none" else {}
    flags |= {k: ",".join(map(str, told[k])) for k in ("algorithms", "totals")}
    flags |= {"seeds": len(told["seeds"])} | told["settings"]
    words = " ".join(f"--{name} {value}" for name, value in flags.items())
    return {
        "kind": "comparison of algorithms",
        "public": False,
        "title": f"{dataset.name}: algorithms at equal certified totals",
        "question": QUESTION,
        "study": told,
        "seeds": told["seeds"],
        "cases": [],
        "planned": planned,
        "version": version("gridpriv"),
        "versions": versions(),
        "machine": machine(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "repeat": f"gridpriv learn compare {dataset.name} {words}",
    }
