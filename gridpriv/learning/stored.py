"""Files of a learning run: the trained model, and the state of an interrupted run.

A model has its weights, the preparation of its rows, and its privacy certificate. The file is
a numpy archive with two arrays: ``weights``, and ``description``, a JSON text. Nothing in it is
pickled. Under ``--public`` it contains only functions of releases and public data.

An interrupted run continues where it stopped. The file has the start of the next round and the
values of all rounds; the manifest of the folder has the identity of the run. Noise streams are
keyed by round, so the interruption does not change the result of a simulated run; its charges are
computed again from the settings. The file is private. Secure noise differs in every draw, so the
file of such a run is written before every round. It records how often each round may have been
drawn: a lost round counts again.
"""

from __future__ import annotations

import io
import json
import math
import time
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.files import make_folder, read_bytes, remove, write_bytes
from gridpriv.core.text import Json, json_ready
from gridpriv.learning.algorithms import LINEAR, load_module, source_digest
from gridpriv.learning.algorithms.base import Checkpoint, Round
from gridpriv.learning.clients import Array, to_numpy
from gridpriv.learning.datasets.base import Dataset, Features, clip_rows
from gridpriv.learning.features import RAW, TRANSFORMED_NORM, transform
from gridpriv.learning.settings import LearnSettings


def prepare_dataset(dataset: Dataset, settings: LearnSettings, *, linear: bool) -> Dataset:
    """Return the training rows: clipped, transformed and with an intercept.

    Every step is public and acts on a single row, so adjacent data stay adjacent. A torch module
    has its own biases and gets no intercept.
    """
    if settings.norm is not None:
        dataset = dataset.clip_to(settings.norm)
    if settings.features != RAW:
        x, x_test = (transform(settings.features, x) for x in (dataset.x_train, dataset.x_test))
        dataset = replace(
            dataset,
            x_train=clip_rows(x, TRANSFORMED_NORM)[0],
            x_test=x_test,
            norm=TRANSFORMED_NORM,
            columns=(),
        )
    if linear and settings.intercept == "on":
        # as large as the public bound of the rows' norm: smaller is learned slowly, larger costs
        # noise (docs/decisions/0070-models.md)
        intercept = dataset.norm
        dataset = replace(
            dataset,
            x_train=with_intercept(dataset.x_train, intercept),
            x_test=with_intercept(dataset.x_test, intercept),
            norm=math.hypot(dataset.norm, intercept) * (1.0 + 1e-6),
        )
    return dataset.in_double() if settings.noise == "secure" else dataset


def with_intercept(x: Features, intercept: float) -> Features:
    """Return rows with a constant last feature."""
    return np.hstack([x, np.full((len(x), 1), intercept, x.dtype)])


MODEL_FILE = "model.npz"
FORMAT = 1
LARGEST_MODEL = 2**31


@dataclass(frozen=True)
class ModelDescription:
    """Everything of a model but its weights.

    Attributes
    ----------
    dataset : str
        Name of the training data set.
    task : {'binary', 'multiclass', 'regression'}
    classes : int
        Number of classes; 0 for a regression.
    labels : tuple of str
        Names of the classes in the order of their numbers; empty where they are the numbers.
    columns : tuple of str
        Names of the input columns in their order; empty where they have none.
    features : int
        Number of input columns.
    transform : str
        Public transform of the input rows (:mod:`gridpriv.learning.features`).
    norm : float
        Public bound to which the input rows of training were clipped; rows are predicted as given.
    intercept : float
        Constant last feature; 0 for none.
    kind : str
        ``linear``, or the torch module as ``module:FILE.py:CLASS``.
    source : str
        SHA-256 of the module's file; empty for a linear model.
    certificate : dict
        The privacy block of the run.
    public : bool
        Whether the model follows from releases and public data alone.
    """

    dataset: str
    task: str
    classes: int
    labels: tuple[str, ...]
    columns: tuple[str, ...]
    features: int
    transform: str
    norm: float
    intercept: float
    kind: str = LINEAR
    source: str = ""
    certificate: Json = field(default_factory=dict)
    public: bool = False


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model that predicts rows of the form of its training data.

    Attributes
    ----------
    weights : (J, K)
        Of the transformed features and the intercept; (d, 1) parameters of a torch module.
    description : ModelDescription
    module : torch.nn.Module or None
    """

    weights: Floats
    description: ModelDescription
    module: Any = None

    def scores(self, x: Features) -> Floats:
        """Return scores (N, K) of rows (N, J): K = 1 for two classes and for a regression.

        Raises
        ------
        InputError
            If the rows have another number of columns, or a number that is not finite.
        """
        known = self.description
        rows = np.asarray(x)
        if rows.dtype.kind not in "fiub" or rows.ndim != 2 or rows.shape[1] != known.features:
            raise not_allowed(
                "rows",
                f"{rows.dtype} of shape {rows.shape}",
                f"numbers of shape (N, {known.features}): the model was trained on "
                f"{known.dataset}, whose rows have {known.features} columns",
            )
        if not np.isfinite(rows).all():
            row = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
            raise not_allowed(f"row {row}", rows[row].tolist()[:4], "finite numbers")
        if self.module is not None:
            return _module_scores(self.module, self.weights, rows)
        features = transform(known.transform, rows.astype(np.float64))
        if known.intercept:
            last = self.weights[-1] * known.intercept
            return np.asarray(features @ self.weights[:-1] + last)
        return np.asarray(features @ self.weights)

    def classify(self, x: Features) -> Array:
        """Return numbers of classes (-1 and +1 of two), or predicted targets, (N,)."""
        scores = self.scores(x)
        if self.description.task == "multiclass":
            return scores.argmax(axis=1)
        if self.description.task == "binary":
            return np.where(scores[:, 0] > 0, 1, -1)
        return scores[:, 0]

    def predict(self, x: Features) -> Array:
        """Return a label for every row: the names of classes, their numbers, or targets.

        Parameters
        ----------
        x : (N, J)
            Rows as they were before training: without transform and intercept.

        Raises
        ------
        InputError
            See :meth:`scores`.
        """
        result, labels = self.classify(x), self.description.labels
        if not labels:
            return result
        place = (result + 1) // 2 if self.description.task == "binary" else result
        return np.asarray(labels)[place]

    def errors(self, predictions: Array, y: Array | None) -> Json:
        """Return the accuracy or the mean squared error of predictions; None without labels."""
        errors: Json = {"accuracy": None, "mean_squared_error": None}
        if y is not None and len(y) and self.description.task == "regression":
            errors["mean_squared_error"] = float(((predictions - y) ** 2).mean())
        elif y is not None and len(y):
            right = [str(guess) == str(label) for guess, label in zip(predictions, y, strict=True)]
            errors["accuracy"] = sum(right) / len(right)
        return errors

    def save(self, path: str | Path) -> None:
        """Write the model; readable by its owner alone unless it is public."""
        described = asdict(self.description) | {"format": FORMAT, "version": version("gridpriv")}
        content = _archive(json_ready(described), {"weights": self.weights})
        write_bytes(Path(path), content, private=not self.description.public)


def load_model(path: str | Path) -> TrainedModel:
    """Read a model; the file of a torch module must be as it was in training.

    Raises
    ------
    InputError
        If the file is not a model, has another format, or its module's code has changed.
    """
    path = Path(path)
    content = read_bytes(path, "model", LARGEST_MODEL)
    try:
        document, arrays = _read_archive(content)
        weights = arrays["weights"]
        if document.pop("format") != FORMAT:
            raise ValueError(f"format {document.get('format')}, {FORMAT} expected")
        document.pop("version")
        for name in ("labels", "columns"):
            document[name] = tuple(document[name])
        description = ModelDescription(**document)
        if weights.ndim != 2 or weights.dtype.kind != "f" or not np.isfinite(weights).all():
            raise ValueError("weights that are no matrix of finite numbers")
    except UNREADABLE as error:
        raise InputError(
            f"{path} is no model of gridpriv ({error}): give the model.npz of learn run --out"
        ) from error
    if description.kind == LINEAR:
        return TrainedModel(weights, description)
    if source_digest(description.kind) != description.source:
        raise InputError(
            f"{path} was trained with other code than {description.kind} has now: restore the file"
        )
    return TrainedModel(weights, description, load_module(description.kind, 0))


def trained_model(
    dataset: Dataset, prepared: Dataset, w: Array, settings: Any, privacy: Json, module: Any
) -> TrainedModel:
    """Return the model of a finished run.

    Parameters
    ----------
    dataset, prepared : Dataset
        As given, and as trained on.
    settings : LearnSettings
    """
    norm = dataset.norm if settings.norm is None else min(settings.norm, dataset.norm)
    linear, is_file_module = module is None, settings.model != LINEAR
    constant = linear and settings.intercept == "on"
    description = ModelDescription(
        dataset=dataset.name,
        task=dataset.task,
        classes=dataset.classes,
        labels=dataset.labels,
        columns=dataset.columns,
        features=dataset.features,
        transform=settings.features,
        norm=norm,
        intercept=float(prepared.x_train[0, -1]) if constant else 0.0,
        kind=settings.model if is_file_module else (LINEAR if linear else "module"),
        source=source_digest(settings.model) if is_file_module else "",
        certificate=privacy,
    )
    return TrainedModel(to_numpy(w), description, module)


def _module_scores(module: Any, weights: Floats, x: Features) -> Floats:
    """Return a module's scores at a flat vector of its parameters."""
    import torch
    from torch.nn.utils import vector_to_parameters

    first = next(module.parameters())
    flat = torch.as_tensor(weights[:, 0]).to(first)
    vector_to_parameters(flat, module.parameters())
    with torch.no_grad():
        result = module.eval()(torch.as_tensor(np.ascontiguousarray(x)).to(first))
    return np.asarray(result.double().cpu().numpy())


INTERRUPTED_FILE = "interrupted.npz"
EVERY_SECONDS = 15.0


@dataclass(eq=False)
class CheckpointWriter:
    """Writes a run's state to a folder at intervals.

    Attributes
    ----------
    every : float
        Seconds between two writes; 0 writes every round.
    checkpoint : Checkpoint
        State to continue from.
    rows : list of dict
        Values of the finished rounds.
    draws : list of int or None
        Number of possible draws of each round; None where a repeated draw is the same and is not
        charged again.
    """

    folder: Path
    every: float = EVERY_SECONDS
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    rows: list[Json] = field(default_factory=list)
    draws: list[int] | None = None

    def __post_init__(self) -> None:
        self._last = time.perf_counter()

    def start(self) -> None:
        """Record before a round that it may be drawn."""
        if self.draws is not None:
            self._write(self.checkpoint.rounds, self.checkpoint.state, self.rows)

    def keep(self, done: Round, rows: list[Json]) -> None:
        """Write the state after a round if it is time."""
        if time.perf_counter() - self._last >= self.every:
            self._write(done.number, done.state(), rows)

    def _write(self, rounds: int, state: Sequence[Array], rows: list[Json]) -> None:
        if self.draws is not None:
            self.draws += [0] * (rounds + 1 - len(self.draws))
            self.draws[rounds] += 1
        entries = {"rounds": rounds, "rows": rows, "drawn": self.draws}
        arrays = {f"state_{k}": to_numpy(array) for k, array in enumerate(state)}
        make_folder(self.folder)
        content = _archive(entries, arrays, save=np.savez)
        write_bytes(self.folder / INTERRUPTED_FILE, content, private=True)
        self._last = time.perf_counter()

    def done(self) -> None:
        """Remove the stored state of a finished run."""
        remove(self.folder / INTERRUPTED_FILE)


def make_checkpoint_writer(
    folder: Path, settings: LearnSettings, *, charged: bool = False
) -> CheckpointWriter:
    """Return the checkpoint writer of a run; it continues the interrupted run of the folder.

    As in a run on a grid, every draw counts that may have been seen. A repeated draw of simulated
    noise is the same and counts once, unless a ledger is charged for it (``charged``).

    Raises
    ------
    InputError
        If the state of the interrupted run is damaged.
    """
    counted = (settings.noise == "secure" or charged) and settings.mechanism != "none"
    every, path = 0.0 if counted else EVERY_SECONDS, folder / INTERRUPTED_FILE
    checkpoints = CheckpointWriter(folder, every, draws=[] if counted else None)
    if not path.exists():
        return checkpoints
    try:
        document, arrays = _read_archive(read_bytes(path))
        state = tuple(arrays[f"state_{k}"] for k in range(len(arrays)))
        checkpoint = Checkpoint(int(document["rounds"]), state)
        rows, draws = list(document["rows"]), document["drawn"]
    except UNREADABLE as error:
        raise InputError(
            f"{path} is damaged ({error}): put back a copy of it, or start again in another folder"
        ) from error
    return replace(checkpoints, checkpoint=checkpoint, rows=rows, draws=draws)


UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile)


def _archive(description: Json, arrays: Json, save: Any = np.savez_compressed) -> bytes:
    """Return a numpy archive of arrays and a description."""
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(description).encode(), np.uint8)
    save(buffer, description=text, **arrays)
    return buffer.getvalue()


def _read_archive(content: bytes) -> tuple[Json, Json]:
    """Return the description and the arrays of a numpy archive; nothing is unpickled."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = dict(archive)
    return json.loads(arrays.pop("description").tobytes()), arrays
