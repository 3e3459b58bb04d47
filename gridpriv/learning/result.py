"""Result of a learning run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

import pandas as pd

from gridpriv.core.arrays import Floats
from gridpriv.core.tables import publish
from gridpriv.core.text import Json, Table, counted, html_page, json_ready, shown
from gridpriv.learning.rows import Evaluated, LearnDocument, LearnTiming
from gridpriv.learning.settings import LearnSettings
from gridpriv.learning.trained import TrainedModel
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.statement import noise_caveat


def title(document: Json) -> str:
    """Return the title of a run."""
    settings = document["settings"]
    noise = "no noise"
    if settings["mechanism"] != "none":
        noise = f"{settings['mechanism']} noise on the {settings['perturbation']}"
        noise += f", {settings['sensitivity']} sensitivity"
    rounds = "one solve" if _one_solve(document) else counted(settings["rounds"], "round")
    return (
        f"{document['dataset']['name']}: {settings['algorithm']}, "
        f"{counted(len(document['clients']), 'client')}, {rounds}, {noise}"
    )


def figures(document: Json) -> Table:
    """Return the table of results."""
    dataset, final = document["dataset"], document["final"]
    rows: list[list[object]] = [
        ["objective at the global model", final["objective"]],
        ["training loss", final["train_loss"]],
        ["test accuracy", final["test_accuracy"]],
        ["test error", final["test_error"]],
        ["consensus residual", final["consensus_residual"]],
        ["rows clipped to public bounds", dataset["clipped"]],
        ["norm bound", dataset["norm"]],
    ]
    if not _one_solve(document):
        rows.append(["seconds per round", document["solver"]["seconds_per_solve"]])
    rows.append(["seconds in total", document["timing"]["total"]])
    # a public document leaves out what is private
    return title(document), ["result", "value"], [row for row in rows if row[1] is not None]


def privacy_figures(privacy: Json) -> Table:
    """Return the table of nominal and certified epsilon."""
    release, total, paper = privacy["per_release"], privacy["total"], privacy["published_total"]
    rho = privacy["zcdp"]
    at = f" at delta {release['delta']:g}"
    return (
        "Privacy (worst client)",
        ["figure", "nominal", "certified"],
        [
            [
                "epsilon of one release" + at * (release["delta"] > 0.0),
                release["nominal"],
                release["certified"],
            ],
            [
                f"total epsilon at delta {total['delta']:g}, "
                f"{counted(privacy['releases_per_client'], 'release')}",
                paper["epsilon"] if paper else total["nominal"],
                "none" if total["epsilon"] is None else total["epsilon"],
            ],
            *([] if rho is None else [["total rho of zero-concentrated privacy", None, rho]]),
        ],
    )


def sentences(document: Json) -> list[str]:
    """Return the messages beside the figures."""
    settings, privacy, text = document["settings"], document["privacy"], []
    if settings["mechanism"] != "none":
        text.append(f"Protected: {privacy['adjacency']}.")
        text += [f"Note: {note}." for note in privacy["notes"]]
        worst = max(privacy["sensitivity"], key=lambda row: row["ratio"] or 0.0, default=None)
        if worst and worst["ratio"] and worst["ratio"] > 1.0 + 1e-9:
            text.append(
                f"The noise is calibrated to sensitivity {shown(worst['assumed'])}, but client "
                f"{worst['client']} has {shown(worst['sensitivity'])}: "
                f"{worst['bound_source'].rstrip('.')}."
            )
    sampled = "dvp" if settings["algorithm"] == "dvp" else settings["mechanism"]  # dvp has none
    caveat = noise_caveat(settings["mechanism"], settings["noise"], sampled)
    parts = [caveat.removesuffix(": no seed"), document["dataset"]["source"]]
    if document["seed"] is not None:
        of = " of splits and samples" * (settings["noise"] == "secure")
        parts.insert(1, f"seed {document['seed']}{of}")
    text.append("; ".join(parts))
    return text


def _one_solve(document: Json) -> bool:
    return bool(document["settings"]["algorithm"] == "centralized")


@dataclass(frozen=True, eq=False, repr=False)
class LearnResult:
    """A finished learning run.

    Attributes
    ----------
    dataset : dict
        Name, samples, features, classes, norm, clipped rows and source.
    settings : LearnSettings
    clients : DataFrame
        One row per client: samples, and its loss at the global model.
    rounds : DataFrame
        One row per round; loss and test figures are NaN where they were not evaluated.
    w : (J, K)
        Global model.
    local : (P, J, K)
        Local models.
    privacy : dict
        See :func:`gridpriv.learning.accounting.privacy_statement`.
    model : TrainedModel
        The global model, ready to predict and to be written to a file.
    timing : LearnTiming
        Seconds.
    charges : mapping
        Of every client.
    """

    dataset: Json
    settings: LearnSettings
    clients: pd.DataFrame
    rounds: pd.DataFrame
    w: Floats
    local: Floats
    privacy: Json
    model: TrainedModel
    timing: LearnTiming
    charges: Mapping[int, Mapping[Charge, int]] = field(default_factory=dict)

    def __repr__(self) -> str:
        error = self.final["test_error"]
        return f"LearnResult({title(self.as_dict())}, test error {shown(error)})"

    def _repr_html_(self) -> str:
        document = self.as_dict()
        return html_page(
            [figures(document), privacy_figures(document["privacy"])],
            sentences(document),
        )

    @property
    def final(self) -> dict[str, float]:
        """Figures after the last round."""
        last = self.rounds.iloc[-1]
        return {name: float(last[name]) for name in Evaluated.table.names}

    def as_dict(self, *, public: bool = False) -> Json:
        """Return the run as JSON can hold it; with ``public`` what follows from releases alone."""
        if public:
            published: Json = publish(self.as_dict(), LearnDocument.table, protected=True)
            return published
        document = {
            "case": self.dataset["name"],
            "dataset": self.dataset,
            "clients": self.clients.to_dict("records"),
            "settings": self.settings.as_dict(),
            "rounds": self.rounds.to_dict("records"),
            "final": self.final,
            "privacy": self.privacy,
            "solver": {
                "name": self.settings.algorithm,
                "version": version("gridpriv"),
                "solves": len(self.rounds),
                "failures": 0,
                "seconds_per_solve": float(self.rounds["seconds"].mean()),
            },
            "timing": self.timing.as_dict(),
            "seed": self.settings.seed,
            "version": version("gridpriv"),
        }
        cleaned: Json = json_ready(document)
        return cleaned
