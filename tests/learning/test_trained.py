"""Models that a run writes: predictions, content, and refused input."""

from __future__ import annotations

import json

import made
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.learning import LearnSettings, features, learn, load_dataset
from gridpriv.learning.features import transform
from gridpriv.learning.stored import load_model

FREE = {"algorithm": "centralized", "mechanism": "none", "clients": 5}


def offset(folder, samples=3000):
    """Classes whose border is far from the origin; half of the rows are test rows."""
    random = np.random.default_rng(5)
    table = pd.DataFrame(5.0 + random.normal(size=(samples, 2)), columns=["load", "sun"])
    border = table["load"] - 5.0 + 0.5 * (table["sun"] - 5.0) + 0.01 * random.normal(size=samples)
    table["y"] = np.where(border > 0, "high", "low")
    table["split"] = np.where(np.arange(samples) % 2, "test", "train")
    table.to_csv(folder / "offset.csv", index=False)
    return table


def test_offset_data_are_learned_as_scikit_learn_learns_them(tmp_path):
    table = offset(tmp_path)
    data = load_dataset(str(tmp_path / "offset.csv"), norm=12.0)
    result = learn(data, LearnSettings(**FREE))
    x, y, test = table[["load", "sun"]], table["y"], table["split"] == "test"
    reference = LogisticRegression(C=1e4, max_iter=2000).fit(x[~test], y[~test])
    own = (result.model.predict(x[test].to_numpy()) == y[test]).mean()
    assert own == result.final["test_accuracy"] >= 0.99
    assert own >= reference.score(x[test], y[test]) - 0.005
    without = learn(data, LearnSettings(**FREE, intercept="off"))
    assert without.final["test_accuracy"] < 0.9


def test_a_written_model_predicts_as_the_result_does(tmp_path, capsys):
    table = offset(tmp_path, 400)
    out = tmp_path / "out"
    data = str(tmp_path / "offset.csv")
    run = ["learn", "run", data, "--norm", "12", "--algorithm", "centralized", "--quiet"]
    assert main([*run, "--out", str(out)]) == 0
    # columns are taken by name, in any order, and labels are optional
    rows = table[["sun", "load"]].assign(other=1.0)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    given = ["learn", "predict", str(out / "model.npz"), str(tmp_path / "rows.csv"), "--json"]
    assert main(given) == 0
    document = json.loads(capsys.readouterr().out)
    result = learn(
        load_dataset(data, norm=12.0), LearnSettings(algorithm="centralized", mechanism="none")
    )
    assert (
        document["predictions"] == result.model.predict(table[["load", "sun"]].to_numpy()).tolist()
    )
    assert document["accuracy"] is None
    assert (out / "model.npz").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("mnist", "a model of mnist"),
        ("few.csv", "has no column 'sun'"),
        ("wide.npz", "shape (N, 2)"),
        ("words.csv", "numbers only"),
        ("missing.csv", "a file or folder that exists"),
    ],
)
def test_rows_of_other_data_are_refused(tmp_path, capsys, data, words):
    offset(tmp_path, 100)
    result = learn(load_dataset(str(tmp_path / "offset.csv"), norm=12.0), LearnSettings(**FREE))
    result.model.save(tmp_path / "model.npz")
    pd.DataFrame({"load": [1.0]}).to_csv(tmp_path / "few.csv", index=False)
    pd.DataFrame({"load": [1.0], "sun": ["much"]}).to_csv(tmp_path / "words.csv", index=False)
    np.savez(tmp_path / "wide.npz", x=np.ones((3, 4)))
    given = data if data == "mnist" else str(tmp_path / data)
    assert main(["learn", "predict", str(tmp_path / "model.npz"), given]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"text", "archive"])
def test_a_file_that_is_no_model_is_refused(tmp_path, content):
    path = tmp_path / "model.npz"
    if content == "archive":
        np.savez(path, weights=np.ones((2, 1)))
    else:
        path.write_bytes(content)
    with pytest.raises(InputError, match="is no model of gridpriv"):
        load_model(path)


def test_a_public_model_is_a_function_of_releases_and_public_data(tmp_path):
    data = made.multiclass()
    result = learn(data, LearnSettings(algorithm="dpsgd", rounds=2, clients=3))
    model = result.public_model
    model.save(tmp_path / "model.npz")
    trained = load_model(tmp_path / "model.npz")
    assert trained.description.public
    assert (trained.weights == result.w).all()
    text = json.dumps(trained.description.certificate)
    assert trained.description.certificate["total"]["epsilon"] == result.privacy["total"]["epsilon"]
    assert "seed" not in text
    assert (trained.classify(data.x_test) == result.model.classify(data.x_test)).all()


@pytest.fixture
def fewer_strokes(monkeypatch):
    """Kernel components of fewer images; those of all take 5 s."""
    for constant, number in {"SYNTHETIC_IMAGES": 600, "LANDMARKS": 200, "COMPONENTS": 40}.items():
        monkeypatch.setattr(features, constant, number)
    features._components.cache_clear()
    yield
    features._components.cache_clear()


@pytest.mark.parametrize("name", ["hog", "strokes"])
@pytest.mark.usefixtures("fewer_strokes")
def test_a_transform_acts_on_one_row_and_bounds_it(name):
    random = np.random.default_rng(1)
    images = random.random((7, 256)).astype(np.float32)
    rows = transform(name, images)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(7), abs=1e-5)
    for k in range(7):
        assert np.allclose(rows[k], transform(name, images[k : k + 1])[0], atol=1e-6)
    assert np.abs(transform(name, np.zeros((1, 256), np.float32))).max() <= 1.0
    with pytest.raises(InputError, match="no square image"):
        transform(name, np.ones((2, 10), np.float32))


def test_a_module_from_the_command_line_predicts_with_its_own_code_only(tmp_path, capsys):
    pytest.importorskip("torch")
    offset(tmp_path, 300)
    code = tmp_path / "net.py"
    code.write_text(
        "import torch\n\nclass Net(torch.nn.Linear):\n"
        "    def __init__(self):\n        super().__init__(2, 1)\n"
    )
    out, model = tmp_path / "out", f"module:{code}:Net"
    run = [
        "learn",
        "run",
        str(tmp_path / "offset.csv"),
        "--norm",
        "12",
        "--model",
        model,
        "--algorithm",
        "dpsgd",
        "--clip",
        "1",
        "--rounds",
        "2",
        "--quiet",
    ]
    assert main([*run, "--out", str(out)]) == 0
    given = ["learn", "predict", str(out / "model.npz"), str(tmp_path / "offset.csv"), "--json"]
    assert main(given) == 0
    assert 0.0 <= json.loads(capsys.readouterr().out)["accuracy"] <= 1.0
    code.write_text(code.read_text() + "# changed\n")
    assert main(given) == 2
    assert "was trained with other code" in capsys.readouterr().err
