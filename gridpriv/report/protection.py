"""Messages on the protected change and on the total of several runs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from gridpriv.core.reading import MissingFileError
from gridpriv.core.sealed import DamagedError
from gridpriv.core.stored import Study
from gridpriv.core.text import Message, figure
from gridpriv.learning.interrupted import DRAWN, released
from gridpriv.learning.releases import protected
from gridpriv.privacy.settings import NO_NOISE, QUIET
from gridpriv.privacy.statement import noise_caveat
from gridpriv.report.messages import message
from gridpriv.report.summary import short
from gridpriv.study.engine import LEARNING_RUN, differing, study_totals
from gridpriv.study.rows import StudyTotal
from gridpriv.zonal.summary import protection


def simulation_caveat(study: Study) -> str:
    """Return the caveat of simulated noise; empty where no noise of a study is simulated."""
    runs = study.runs
    noisy = runs[~runs["budget"].isin(QUIET)] if len(runs) else runs
    if noisy.empty or ("noise" in noisy and (noisy["noise"] == "secure").all()):
        return ""
    mechanisms = noisy.get("mechanism", ())
    return noise_caveat(noisy["budget"].iloc[0], "simulated", *mechanisms)


def composition(study: Study) -> Iterator[Message]:
    """Yield what the runs on each data set cost together, where there are several."""
    kind = "steps" if "steps" in study.tables else "noisy runs"
    for total in study_totals(study):
        values = {"runs": total.runs, "kind": kind, "case": short(total.case)}
        if total.runs < 2:
            continue
        if total.epsilon is None:
            noisy = (study.runs["case"] == total.case) & ~study.runs["budget"].isin(QUIET)
            names = " and ".join(differing(study.runs[noisy]))
            yield message("composition-differs", values | {"names": names})
        elif math.isinf(total.epsilon):
            yield message("composition-uncertified", values)
        else:
            yield message("composition", values | _at_most(total))


def released_by_unfinished(study: Study) -> Iterator[Message]:
    """Yield what was released although no run finished."""
    if study.manifest.get("kind") == LEARNING_RUN:
        yield from _learning_released(study)
        return
    for total in study_totals(study):
        if total.epsilon is not None and math.isfinite(total.epsilon):
            values = {"case": short(total.case)} | _at_most(total)
            yield message("released-by-unfinished", values)


def _learning_released(study: Study) -> Iterator[Message]:
    settings = study.manifest["study"]["settings"]
    if settings["mechanism"] == NO_NOISE:
        return
    if settings["noise"] != "secure":
        values = {"rounds": settings["rounds"], "budget": settings["budget"]}
        yield message("released-simulated", values)
    else:
        try:
            yield message("released-by-learning", {"released": released(study.folder)})
        except MissingFileError:
            yield message("released-nothing", {"file": DRAWN})
            return
        except DamagedError as error:
            yield message("released-unknown", {"error": error})
            return
    adjacency = protected(settings["algorithm"], settings["adjacency"])
    yield message("protected", {"adjacency": adjacency})


def _at_most(total: StudyTotal) -> dict[str, str]:
    unknown = f", and what {total.unknown} failed runs released" if total.unknown else ""
    assert total.epsilon is not None
    return {
        "epsilon": epsilon_text(total.epsilon),
        "delta": f"{total.delta:g}",
        "unknown": unknown,
    }


def epsilon_text(value: float) -> str:
    """Return an epsilon with three digits."""
    return f"{value:.3g}" if value < 1000.0 else figure(value)


def protections(study: Study) -> list[Message]:
    """Return the protected change of noisy runs, by case or method where it differs."""
    noisy = study.runs[~study.runs["budget"].isin(QUIET)]
    column = "adjacency" if "adjacency" in noisy else "protection"
    if column not in noisy:
        return []
    noisy = noisy[noisy[column].notna()]
    steps = " (every step; of the demand that a factor scales)" if "steps" in study.tables else ""
    kinds = {f"{what}{steps}": rows for what, rows in noisy.groupby(column, sort=False)}
    if len(kinds) == 1:
        messages = [message("protected", {"adjacency": what}) for what in kinds]
    else:
        by_case = noisy.groupby("case")[column].nunique().max() == 1
        messages = [
            message("protected-by", {"by": _named(rows, by_case=by_case), "adjacency": what})
            for what, rows in kinds.items()
        ]
    limits = noisy.reindex(columns=["protects", "power_factor"]).drop_duplicates().fillna("")
    for protects, factors in limits.itertuples(index=False):
        messages += protection("", protects, factors or None)[1:]
    return messages


def _named(rows: pd.DataFrame, *, by_case: bool) -> str:
    """Return the cases or the methods of some runs."""
    if by_case:
        return f"in {' and '.join(map(short, rows['case'].unique()))}"
    return f"by {' and '.join(map(quoted, rows['method'].unique()))}"


def quoted(name: str) -> str:
    """Return a method's name as messages show it."""
    return f'"{name}"'
