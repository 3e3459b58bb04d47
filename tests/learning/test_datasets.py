"""Loaders on files that the tests write, and splits."""

from __future__ import annotations

from dataclasses import replace

import made
import numpy as np
import pytest

from gridpriv.errors import InputError
from gridpriv.learning.datasets import files, load_dataset
from gridpriv.learning.datasets.adult import load_adult
from gridpriv.learning.datasets.femnist import load_femnist
from gridpriv.learning.datasets.mnist import load_mnist, read_idx
from gridpriv.learning.datasets.split import split


def test_idx_files_give_pixels_in_the_unit_interval(tmp_path):
    made.write_mnist(tmp_path)
    data = load_mnist(tmp_path)
    raw = read_idx(tmp_path / "train-images-idx3-ubyte.gz").reshape(40, 784)
    assert np.allclose(data.x_train, raw / 255.0, atol=1e-7)
    assert data.x_train.dtype == np.float32 and data.norm == 28.0
    assert np.linalg.norm(data.x_train, axis=1).max() <= data.norm


def test_truncated_idx_file_is_refused(tmp_path):
    made.write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match="train-images-idx3-ubyte"):
        load_mnist(tmp_path)


def test_idx_with_too_few_bytes_names_the_shape(tmp_path):
    made.write_mnist(tmp_path)
    import gzip

    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[:-3]))
    with pytest.raises(InputError, match=r"incomplete: 7 bytes for an array of \(10,\)"):
        load_mnist(tmp_path)


def test_other_file_type_is_refused(tmp_path):
    (tmp_path / "x.gz").write_bytes(b"not gzip")
    with pytest.raises(InputError, match="cannot read"):
        read_idx(tmp_path / "x.gz")


def test_published_checksum_is_named_when_a_file_differs(tmp_path):
    made.write_mnist(tmp_path)
    (tmp_path / "SHA256SUMS").unlink()
    published = files.packaged_sums()["mnist/train-images-idx3-ubyte.gz"]
    with pytest.raises(InputError, match=published):
        load_mnist(tmp_path)


def test_own_checksum_file_is_checked(tmp_path):
    made.write_mnist(tmp_path)
    name = "t10k-labels-idx1-ubyte.gz"
    good = files.sha256(tmp_path / name)
    (tmp_path / "SHA256SUMS").write_text(f"{good}  {name}\n")
    load_mnist(tmp_path)
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  {name}\n")
    with pytest.raises(InputError, match=good):
        load_mnist(tmp_path)


def test_missing_files_are_named_with_their_origin(tmp_path):
    made.write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(
        InputError, match=r"lacks t10k-labels-idx1-ubyte.gz: put them there, from http"
    ):
        load_mnist(tmp_path)


def test_folder_comes_from_argument_or_environment(tmp_path, monkeypatch):
    (tmp_path / "mnist").mkdir()
    made.write_mnist(tmp_path / "mnist")
    monkeypatch.delenv("GRIDPRIV_DATA", raising=False)
    with pytest.raises(InputError, match="--data DIR or set GRIDPRIV_DATA"):
        load_dataset("mnist")
    monkeypatch.setenv("GRIDPRIV_DATA", str(tmp_path))
    assert len(load_dataset("mnist").y_train) == 40
    assert len(load_dataset(str(tmp_path / "mnist")).y_train) == 40
    with pytest.raises(InputError, match="did you mean 'mnist'"):
        load_dataset("mnst")


def test_leaf_files_keep_writers(tmp_path):
    made.write_leaf(tmp_path)
    data = load_femnist(tmp_path)
    assert np.bincount(data.writer_of).tolist() == [4, 5, 6]
    assert [len(part) for part in split(data, "writer", None, 0)] == [4, 5, 6]
    assert [len(part) for part in split(data, "writer", 2, 0)] == [4, 5]


def test_label_outside_the_classes_is_refused(tmp_path):
    made.write_mnist(tmp_path)
    made.write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.array([0] * 39 + [10]))
    with pytest.raises(InputError, match=r"label of row 39 = 10 .* 0 to 9"):
        load_mnist(tmp_path)


def test_adult_columns_are_those_of_the_paper(tmp_path):
    made.write_adult(tmp_path)
    dropped = load_adult(tmp_path)
    assert dropped.features == 104  # Huang et al., section VI
    assert len(dropped.y_train) + len(dropped.y_test) == 10  # rows without a missing value
    filled = load_adult(tmp_path, missing="mode")
    assert filled.features == 105 and len(filled.y_train) == 12 and len(filled.y_test) == 3
    for data in (dropped, filled):
        assert np.linalg.norm(data.x_train, axis=1).max() <= 1.0
        assert set(np.unique(data.y_train)) == {-1, 1}


def test_adult_line_with_a_wrong_field_is_named(tmp_path):
    made.write_adult(tmp_path)
    path = tmp_path / "adult.data"
    path.write_text(path.read_text() + "39, State-gov\n")
    with pytest.raises(InputError, match="line 14: 2 fields, 15 expected"):
        load_adult(tmp_path)
    path.write_text(made.ADULT_ROWS[0].replace("State-gov", "Pirate") + "\n")
    with pytest.raises(InputError, match="'Pirate'"):
        load_adult(tmp_path)


def test_features_outside_the_norm_are_clipped_and_counted():
    data = made.multiclass()
    long = int((np.linalg.norm(data.x_train, axis=1) > 1.2).sum())
    clipped = data.clip_to(1.2)
    assert 0 < long < 300 and clipped.clipped == long and clipped.norm == 1.2
    assert np.linalg.norm(clipped.x_train, axis=1).max() <= 1.2
    kept = np.linalg.norm(data.x_train, axis=1) <= 1.2
    assert np.array_equal(clipped.x_train[kept], data.x_train[kept])


@pytest.mark.parametrize("how", ["iid", "contiguous", "dirichlet:0.5"])
def test_splits_give_every_row_to_one_client(how):
    data = made.multiclass()
    parts = split(data, how, 5, 3)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(300))
    assert len(parts) == 5 and min(len(p) for p in parts) > 0
    again = split(data, how, 5, 3)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_dirichlet_shares_follow_the_concentration():
    data = made.multiclass(samples=3000)

    def unevenness(concentration: str) -> float:
        parts = split(data, f"dirichlet:{concentration}", 5, 0)
        shares = [np.bincount(data.y_train[p], minlength=3) / len(p) for p in parts]
        return float(np.std(shares, axis=0).mean())

    assert unevenness("0.2") > 3.0 * unevenness("100")


@pytest.mark.parametrize(
    ("how", "clients", "message"),
    [
        ("iid", 301, "no client may be empty"),
        ("writer", 8, "the number of writers"),
        ("dirichlet:0.0001", 60, "client with no samples"),
        ("dirichlet:-1", 5, "A a positive number"),
        ("random", 5, "iid, contiguous, writer or dirichlet:A"),
    ],
)
def test_splits_that_leave_a_client_empty_are_refused(how, clients, message):
    with pytest.raises(InputError, match=message):
        split(made.multiclass(), how, clients, 0)


def test_data_set_without_writers_has_no_writer_split():
    with pytest.raises(InputError, match="names no writers"):
        split(replace(made.multiclass(), writer_of=None), "writer", None, 0)
