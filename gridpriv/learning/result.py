"""The result of a learning run: its values, documents and tables.

Every value has a unit, and a statement of who may see it.

The number of training samples of a client is public: noise is calibrated to it. Under sensitivity
``proven`` models are functions of releases. Measurements of models on samples are private: on
training samples, which a certificate covers, and on test samples, which it does not cover.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from gridpriv.core.arrays import Floats
from gridpriv.core.tables import (
    Number,
    Row,
    TableSchema,
    Text,
    key,
    known,
    like,
    part,
    private,
    publish,
    released,
    setting_columns,
)
from gridpriv.core.text import Json, Table, counted, html_page, json_ready, shown
from gridpriv.learning.algorithms import PERTURBED
from gridpriv.learning.settings import LearnSettings
from gridpriv.privacy.certificate import Bound, NoiseBlock, PerRelease, TotalEpsilon, noise_caveat
from gridpriv.privacy.mechanism import Charge

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.learning.stored import TrainedModel


class Evaluated(Row):
    """The global model after a round."""

    objective: Number = private("Objective: mean loss plus regularizer")
    consensus_residual: Number = released(
        "Distance of local models: 2-norm of local models less the global one"
    )
    train_loss: Number = private(
        "Training loss: loss of the global model: mean of the clients' mean losses (ryu-kim: "
        "mean over all samples)"
    )
    test_accuracy: Number = private("Test accuracy: accuracy of the global model on test samples")
    test_error: Number = private(
        "Test error: error of the global model on test samples: share of wrong classes, or "
        "mean squared error"
    )


class OfRound(Row):
    """One round."""

    round: Number = key("Round: number of the round, from 1")
    noise_magnitude: Number = private("Noise magnitude: sum of |noise| over coordinates")


class LearnRound(OfRound, Evaluated, name="rounds"):
    """One round of one learning run."""

    local_loss: Number = private("Local loss: mean loss of the clients' own models")
    local_error: Number = private("Local test error: mean test error of the clients' own models")
    seconds: Number = private("Time: wall-clock time", "s")


class OfClient(Row):
    """One client."""

    client: Any = key("Client: number of the client, from 1")


class Client(OfClient, name="clients"):
    """One client."""

    samples: Number = known("Samples: training samples of the client")
    variables: Number = known("Variables: number of parameters of the model")
    train_loss: Number = like(Evaluated, "train_loss")


class Compared(Row):
    """A run of a comparison, whose tables are compared with those of grids."""

    test_error_pct: Number = private("Test error: error of the global model on test samples", "%")
    test_mse: Number = private(
        "Test mean squared error: mean squared error of the global model on test samples"
    )
    local_error_pct: Number = private(
        "Test error of local models: mean test error of the clients' own models", "%"
    )
    local_mse: Number = private(
        "Squared error of local models: mean squared error of the clients' own models"
    )
    mean_objective: Number = private(
        ("Objective: objective of the training: mean loss plus regularizer"), "mean loss"
    )
    local_loss: Number = private(
        "Loss of local models: mean training loss of the clients' own models"
    )
    consensus_residual_max: Number = private(
        "Distance of local models: 2-norm of local models less the global one"
    )
    normalized_error: Number = private(
        "Normalized error: sum of squared distances to the centralized solution over its squared "
        "norm"
    )
    augmented_objective: Number = private(
        "Augmented objective: augmented objective of Huang et al."
    )


class ComparedRound(OfRound, Compared, name="rounds"):
    """One evaluated round of one learning run."""


class LearnValues(Compared):
    """Values of a learning run in the table of runs."""

    adjacency: Text = like(NoiseBlock, "adjacency")
    client_rounds: Any = known("Client-rounds: rounds times clients per round")
    tuned: Any = released("Tuned: values chosen from the declared grid")
    noise_magnitude: Number = like(OfRound, "noise_magnitude")


class Calibration(Bound, OfClient, name="certificates"):
    """The privacy of one client in one run."""

    sensitivity: float = released("Sensitivity: proven sensitivity of the last release")
    scale: float = released("Noise scale: noise scale of the last release")


class DatasetRow(Row, name="dataset"):
    """The data set."""

    name: Text = known("Name: name of the data set")
    train_samples: Number = known("Training samples: number of training samples")
    test_samples: Number = known("Test samples: number of test samples")
    features: Number = known("Features: number of features of a sample")
    classes: Number = known("Classes: number of classes, 0 for a regression")
    norm: Any = known("Norm bound: public bound on the norm of a sample's features")
    clipped: Number = private("Clipped: rows clipped to public bounds")
    source: Text = known("Source: source of the data")


class LearnTotal(TotalEpsilon, name="total"):
    """All releases of the worst client."""

    nominal: Number = known("Nominal total: total epsilon according to the settings")


class LearnPrivacy(NoiseBlock):
    """Protection and certified totals of a learning run."""

    releases_per_client: Number = released(
        "Releases per client: largest number of releases of one client"
    )
    per_release: PerRelease = part(PerRelease)
    noise_multiplier: Number = released("Noise multiplier: least noise scale over sensitivity")
    total_pure: Number = released("Pure total epsilon: largest total epsilon (pure DP) of a client")
    total: LearnTotal = part(LearnTotal)
    zcdp: Number = released("Total rho: total rho (zero-concentrated DP)")
    published_total: Number = known(
        "The paper's total: total epsilon stated by the paper, without a certificate"
    )
    sensitivity: list[Calibration] = part(Calibration)
    notes: Any = released("Notes: remarks on the certificate")


class AlgorithmSummary(Row, name="solver"):
    """The algorithm."""

    name: Text = known("Algorithm: name of the algorithm")
    version: Text = known("Version: version of gridpriv")
    solves: Number = released("Rounds: number of finished rounds")
    failures: Number = private("Failures: number of failed rounds, always 0")
    seconds_per_solve: Number = private("Time of a round: wall-clock time of a round", "s")


class LearnTiming(Row, name="timing"):
    """Seconds of a run's parts; ``solve`` excludes evaluation."""

    load: float = private("Load: wall-clock time of loading", "s")
    build: float = private("Build: wall-clock time of building", "s")
    solve: float = private("Solve: wall-clock time of solving", "s")
    total: float = private("Total: wall-clock time in total", "s")


class RoundTime(Row, name="timing"):
    """Time of one learning run."""

    round_seconds: Number = private("Median round: median wall-clock time of a round", "s")


SETTINGS = TableSchema(
    "settings", "the settings of a learning run", (), setting_columns(LearnSettings)
)


class LearnDocument(Row, name="learn"):
    """A learning run."""

    case: Text = known("Data set: name of the data set")
    dataset: DatasetRow = part(DatasetRow)
    clients: list[Client] = part(Client)
    settings: Any = part(SETTINGS)
    rounds: list[LearnRound] = part(LearnRound)
    final: Evaluated = part(Evaluated)
    privacy: LearnPrivacy = part(LearnPrivacy)
    solver: AlgorithmSummary = part(AlgorithmSummary)
    timing: LearnTiming = part(LearnTiming)
    seed: Any = private("Seed: seed of splits, samples and simulated noise")
    checksum: Text = private("Checksum: checksum of the stored document")
    version: Text = known("Version: version of gridpriv")


TABLES = tuple(row.table for row in (ComparedRound, Calibration, Client, RoundTime))


def title(document: Json) -> str:
    """Return the title of a run."""
    settings = document["settings"]
    noise = "no noise"
    if settings["mechanism"] != "none":
        quantity = "the gradient" if settings["perturbation"] == "objective" else "the local model"
        _, quantity = PERTURBED.get(settings["algorithm"], ("", quantity))  # else ryu-kim's
        noise = f"{settings['mechanism']} noise on {quantity}"
        noise += f", {settings['sensitivity']} sensitivity"
    rounds = "one solve" if _is_centralized(document) else counted(settings["rounds"], "round")
    return (
        f"{document['dataset']['name']}: {settings['algorithm']}, "
        f"{counted(len(document['clients']), 'client')}, {rounds}, {noise}"
    )


def results_table(document: Json) -> Table:
    """Return the table of results."""
    dataset, final = document["dataset"], document["final"]
    squared = final["test_accuracy"] is None
    rows: list[list[object]] = [
        ["objective at the global model", final["objective"]],
        ["training loss", final["train_loss"]],
        ["test accuracy", final["test_accuracy"]],
        ["mean squared test error" if squared else "test error", final["test_error"]],
        ["consensus residual", final["consensus_residual"]],
        ["rows clipped to public bounds", dataset["clipped"]],
        ["norm bound", dataset["norm"]],
    ]
    if not _is_centralized(document):
        rows.append(["seconds per round", document["solver"]["seconds_per_solve"]])
    rows.append(["seconds in total", document["timing"]["total"]])
    # a public document leaves out private values
    return title(document), ["result", "value"], [row for row in rows if row[1] is not None]


def privacy_table(privacy: Json) -> Table:
    """Return the table of nominal and certified epsilon."""
    release, total, paper = privacy["per_release"], privacy["total"], privacy["published_total"]
    rho, pure = privacy["zcdp"], privacy["total_pure"]
    at = f" at delta {release['delta']:g}"
    releases = counted(privacy["releases_per_client"], "release")
    # a pure total of at most the stated epsilon is the stated one; a larger one is left out
    meets = pure is not None and pure <= (total["nominal"] or 0.0) * (1.0 + 1e-9)
    label = "epsilon of one release" + at * (release["delta"] > 0.0)
    rows: list[list[object]] = [[label, _stated(release["nominal"]), release["certified"]]]
    if pure is not None:
        stated = _stated(total["nominal"] if meets else None)
        rows.append([f"total epsilon (pure DP), {releases}", stated, pure])
    label = f"total epsilon at delta {total['delta']:g}, {releases}"
    stated = _stated(paper["epsilon"] if paper else total["nominal"])
    rows.append([label, stated, "none" if total["epsilon"] is None else total["epsilon"]])
    if rho is not None:
        rows.append(["total rho (zCDP)", _stated(None), rho])
    return "Privacy", ["figure", "nominal", "certified"], rows


def _stated(nominal: float | None) -> object:
    """Return a nominal epsilon; the settings have that of one release or the total, not both."""
    return "not stated" if nominal is None else nominal


def sentences(document: Json) -> list[str]:
    """Return the messages shown with the values."""
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
    run = f"This run: {caveat.removesuffix(': no seed')}"
    if document["seed"] is not None:
        of = (
            "splits and data"
            if settings["noise"] == "secure"
            else "noise, batches, splits and data"
        )
        run += f"; seed {document['seed']} of {of}"
    return [*text, f"{run}.", f"Data: {document['dataset']['source']}."]


def _is_centralized(document: Json) -> bool:
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
        See :func:`gridpriv.learning.accounting.privacy_certificate`.
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
            [results_table(document), privacy_table(document["privacy"])], sentences(document)
        )

    @property
    def final(self) -> dict[str, float]:
        """Values after the last round."""
        last = self.rounds.iloc[-1]
        return {name: float(last[name]) for name in Evaluated.table.names}

    @property
    def public_model(self) -> TrainedModel:
        """The model without the private parts of its certificate."""
        shown = publish(self.privacy, LearnPrivacy.table, protected=True)
        described = replace(self.model.description, certificate=shown, public=True)
        return replace(self.model, description=described)

    def as_dict(self, *, public: bool = False) -> Json:
        """Return the run as JSON can hold it; with ``public`` functions of releases only."""
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
