"""``gridpriv learn predict``: rows through a model that a run has written."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridpriv.cli.flags import add_output
from gridpriv.cli.output import tell
from gridpriv.core.display import shown
from gridpriv.core.document import Json
from gridpriv.core.errors import not_allowed
from gridpriv.core.files import write_text
from gridpriv.core.text import frame_csv, json_ready

if TYPE_CHECKING:
    from gridpriv.learning.trained import TrainedModel


def predict_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``learn predict``."""
    parser.add_argument("model", metavar="MODEL", help="model.npz of learn run --out")
    parser.add_argument(
        "dataset",
        metavar="DATA",
        help="FILE.npz (x), FILE.csv or FILE.parquet (the columns of training), a folder of "
        "images, or a named data set, of which the test rows are predicted; labels y are optional",
    )
    parser.add_argument(
        "--data", metavar="DIR", help="folder of data sets (default: $GRIDPRIV_DATA)"
    )
    add_output(parser, "CSV file of row and prediction", "F.csv")


def predict(args: argparse.Namespace) -> int:
    """Predict every row, and state the error where the data have labels."""
    import pandas as pd

    from gridpriv.learning.trained import load_model

    model = load_model(args.model)
    x, y = _rows(args, model)
    predictions = model.predict(x)
    figures = _figures(model, predictions, y)
    document = json_ready(
        {"model": args.model, "dataset": Path(args.dataset).stem, "rows": len(predictions)}
        | figures
        | {"certificate": model.description.certificate, "predictions": predictions.tolist()}
    )
    if args.out is not None:
        table = pd.DataFrame({"row": range(len(predictions)), "prediction": predictions})
        write_text(Path(args.out), frame_csv(table), private=True)
    tell(args, document, lambda: _print(document, model), args.out)
    return 0


def _rows(args: argparse.Namespace, model: TrainedModel) -> tuple[Any, Any]:
    """Return rows, and labels named as the model names them, or None."""
    from gridpriv.learning.datasets.library import DATASETS, dataset_name, load_dataset
    from gridpriv.learning.datasets.own import is_own, read_rows

    known, path = model.description, Path(args.dataset)
    if is_own(path):
        x, y = read_rows(path, known.columns)
        return x.reshape(len(x), -1), y
    name = dataset_name(args.dataset)
    if name in DATASETS and name != known.dataset:
        raise not_allowed("model", args.model, f"a model of {name}; it is one of {known.dataset}")
    dataset = load_dataset(args.dataset, args.data)
    return dataset.x_test, dataset.y_test


def _figures(model: TrainedModel, predictions: Any, y: Any) -> Json:
    """Return accuracy or mean squared error; None without labels."""
    if y is None or not len(y):
        return {"accuracy": None, "mean_squared_error": None}
    if model.description.task == "regression":
        return {"accuracy": None, "mean_squared_error": float(((predictions - y) ** 2).mean())}
    right = [str(guess) == str(label) for guess, label in zip(predictions, y, strict=True)]
    return {"accuracy": sum(right) / len(right), "mean_squared_error": None}


def _print(document: Json, model: TrainedModel) -> None:
    total = model.description.certificate["total"]
    print(f"{document['rows']} rows predicted with a model of {model.description.dataset}")
    for name in ("accuracy", "mean_squared_error"):
        if document[name] is not None:
            print(f"{name.replace('_', ' ').capitalize()}: {shown(document[name])}")
    if total["epsilon"] is None:
        print("The model was trained without noise: it protects no training row.")
    else:
        print(
            f"Privacy of the training rows: epsilon {shown(total['epsilon'])} at delta "
            f"{total['delta']:g}; {model.description.certificate['adjacency']}"
        )
