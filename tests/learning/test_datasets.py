"""Loaders on files that the tests write, and splits."""

from __future__ import annotations

import gzip
import json
import math
import random
import re
from dataclasses import replace

import made
import numpy as np
import pytest

from gridpriv.core.errors import InputError
from gridpriv.learning.datasets import base, dataset_name, load_dataset, public
from gridpriv.learning.datasets.base import make_lasso, split
from gridpriv.learning.datasets.public import load_adult, load_femnist, load_mnist, read_idx


def test_idx_files_give_pixels_in_the_unit_interval(tmp_path):
    made.write_mnist(tmp_path)
    data = load_mnist(tmp_path)
    raw = read_idx(tmp_path / "train-images-idx3-ubyte.gz", 3).reshape(40, 784)
    assert np.allclose(data.x_train, raw / 255.0, atol=1e-7)
    assert data.x_train.dtype == np.float32 and data.norm == 28.0
    assert np.linalg.norm(data.x_train, axis=1).max() <= data.norm


def test_rows_that_rounding_left_too_long_are_scaled_into_the_bound():
    x = np.full((3, 4), 0.5 * (1.0 + 4e-6), np.float32)
    y = np.array([1, -1, 1])
    data = base.Dataset("a", "binary", x, y, x[:0], y[:0], 2, 1.0)
    for item in (data, data.in_double()):
        assert (np.linalg.norm(item.x_train.astype(np.float64), axis=1) <= 1.0).all()
    assert data.in_double().x_train.dtype == np.float64
    with pytest.raises(InputError, match="2-norm of train row 0"):
        base.Dataset("a", "binary", x * np.float32(1.001), y, x[:0], y[:0], 2, 1.0)


def test_truncated_idx_file_is_refused(tmp_path):
    made.write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match="train-images-idx3-ubyte"):
        load_mnist(tmp_path)


def test_idx_with_too_few_bytes_names_the_shape(tmp_path):
    made.write_mnist(tmp_path)
    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[:-3]))
    with pytest.raises(InputError, match=r"incomplete: 7 bytes for an array of \(10,\)"):
        load_mnist(tmp_path)


def test_other_file_type_is_refused(tmp_path):
    (tmp_path / "x.gz").write_bytes(b"not gzip")
    with pytest.raises(InputError, match="is no gzip file"):
        read_idx(tmp_path / "x.gz", 3)


def test_published_checksum_is_named_when_a_file_differs(tmp_path):
    made.write_mnist(tmp_path)
    (tmp_path / "SHA256SUMS").unlink()
    published = base.packaged_sums()["mnist/train-images-idx3-ubyte.gz"]
    with pytest.raises(InputError, match=published):
        load_mnist(tmp_path)


def test_own_checksum_file_is_checked(tmp_path):
    made.write_mnist(tmp_path)
    name = "t10k-labels-idx1-ubyte.gz"
    good = base.sha256(tmp_path / name)
    (tmp_path / "SHA256SUMS").write_text(f"{good}  {name}\n")
    load_mnist(tmp_path)
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  {name}\n")
    with pytest.raises(InputError, match=good):
        load_mnist(tmp_path)


def test_own_checksums_are_read_as_sha256sum_writes_them(tmp_path):
    made.write_mnist(tmp_path)
    name, own = "t10k-labels-idx1-ubyte.gz", tmp_path / "SHA256SUMS"
    for line in (f"{'0' * 64} *./{name}", f"{'A' * 64}  {name}", f"{'a' * 64}  {name}\r"):
        own.write_text(line + "\n\n")
        with pytest.raises(InputError, match=f"{name} is corrupted"):
            load_mnist(tmp_path)
    own.write_text(f"{base.sha256(tmp_path / name).upper()}  {name}\n")
    load_mnist(tmp_path)
    own.write_text(f"\n{'0' * 63}  {name}\n")
    with pytest.raises(InputError, match="SHA256SUMS line 2 = '000"):
        load_mnist(tmp_path)
    own.write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"SHA256SUMS, line 1: not UTF-8"):
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
    (tmp_path / "here" / "mnist").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")  # a folder of the same name does not hide DIR
    assert len(load_dataset("mnist").y_train) == 40
    assert len(load_dataset("mnist", tmp_path).y_train) == 40
    with pytest.raises(InputError, match="here/mnist lacks"):
        load_dataset("./mnist", tmp_path)
    monkeypatch.delenv("GRIDPRIV_DATA")
    with pytest.raises(InputError, match="mnist lacks"):
        load_dataset("mnist")
    with pytest.raises(InputError, match="did you mean 'mnist'"):
        load_dataset("mnst")


def test_leaf_files_keep_writers(tmp_path):
    made.write_leaf(tmp_path)
    data = load_femnist(tmp_path)
    assert np.bincount(data.writer_of).tolist() == [4, 5, 6]
    assert [len(part) for part in split(data, "writer", None, 0)] == [4, 5, 6]
    assert [len(part) for part in split(data, "writer", 2, 0)] == [4, 5]


IMAGE = [0.0, 1.0, 0.5]
GOOD = {"x": [IMAGE, IMAGE], "y": [0, 61]}


def write_leaf(folder, train, test=None):
    made.write_writers(folder / "train" / "a.json.gz", train)
    made.write_writers(folder / "test" / "a.json.gz", {"t": GOOD} if test is None else test)


def test_leaf_writers_may_be_in_one_part_only(tmp_path):
    write_leaf(tmp_path, {"a": GOOD, "b": GOOD}, {"b": GOOD, "c": GOOD, "d": {"x": [], "y": []}})
    data = load_femnist(tmp_path)
    assert data.writer_of.tolist() == [0, 0, 1, 1] and data.norm == math.sqrt(3)
    assert data.y_test.tolist() == [0, 61, 0, 61]
    assert "2 writers with training data, 2 with test data" in data.source


NO_WRITER = r"writer 'b' = .*must be an object of 'x', images of equally many pixels, and 'y'"
LEAF_MISTAKES = {
    "no writer": ({}, "train: the .json files have no writer with a sample"),
    "no sample": ({"a": GOOD, "b": {"x": [], "y": []}}, "a.json.gz: writer 'b' has no sample"),
    "list of writers": ([GOOD], "train/a.json.gz is not a LEAF file:.*user_data"),
    "other writers' pixels": (
        {"a": GOOD, "b": {"x": [[0.5]], "y": [1]}},
        r"has images of 1 and of 3 pixels",
    ),
}
for name, user in {
    "no labels": {"x": [IMAGE]},
    "no images": {"y": [1]},
    "labels none": {"x": [IMAGE], "y": None},
    "labels a text": {"x": [IMAGE], "y": "1"},
    "fewer labels": {"x": [IMAGE] * 2, "y": [1]},
    "writer a list": [GOOD],
    "no pixel": {"x": [[], []], "y": [1, 1]},
    "a flat image": {"x": [0.5], "y": [1]},
    "ragged": {"x": [IMAGE, IMAGE[:2]], "y": [1, 1]},
}.items():
    LEAF_MISTAKES[name] = ({"b": user}, NO_WRITER)
for shown in (1.7, -1, 62, 10**30, "3", None, math.nan, math.inf, [1]):
    LEAF_MISTAKES[f"label {shown!r}"] = (
        {"a": GOOD, "b": {"x": [IMAGE, IMAGE], "y": [1, shown]}},
        rf"writer 'b', label of row 1 = {shown}: must be a class number 0 to 61"
        if shown in (-1, 62)
        else NO_WRITER,
    )
for shown in (math.nan, math.inf, -math.inf, 1.01, -0.5, 255, 10**30, "0.5", None, [0.5]):
    LEAF_MISTAKES[f"pixel {shown!r}"] = (
        {"a": GOOD, "b": {"x": [IMAGE, [0.5, shown, 0.5]], "y": [1, 1]}},
        r"train/a.json.gz: writer 'b', sample 1, pixel 1 = .*: must be a number 0 to 1"
        if isinstance(shown, float) or shown == 255
        else NO_WRITER,
    )


@pytest.mark.parametrize("mistake", LEAF_MISTAKES)
def test_leaf_writers_that_are_no_samples_are_named(tmp_path, mistake):
    users, message = LEAF_MISTAKES[mistake]
    write_leaf(tmp_path, users)
    with pytest.raises(InputError, match=message) as error:
        load_femnist(tmp_path)
    assert len(str(error.value).splitlines()) == 1 and len(str(error.value)) < 500


def test_leaf_test_files_are_checked_as_well(tmp_path):
    write_leaf(tmp_path, {"a": GOOD}, {"b": {"x": [[0.5]], "y": [1]}})
    with pytest.raises(InputError, match=r"has images of 1 and of 3 pixels"):
        load_femnist(tmp_path)
    write_leaf(tmp_path, {"a": GOOD}, {"b": {"x": [IMAGE], "y": [62]}})
    with pytest.raises(InputError, match=r"test/a.json.gz: writer 'b', label of row 0 = 62"):
        load_femnist(tmp_path)
    write_leaf(tmp_path, {"a": GOOD}, {"b": {"x": [], "y": []}})
    with pytest.raises(InputError, match=r"test: the .json files have no writer with a sample"):
        load_femnist(tmp_path)


def test_leaf_writer_that_comes_twice_is_refused(tmp_path):
    write_leaf(tmp_path, {"a": GOOD})
    again = tmp_path / "train" / "b.json"
    again.write_text(json.dumps({"user_data": {"a": GOOD}}))
    with pytest.raises(InputError, match=r"b.json: writer 'a' is in two files"):
        load_femnist(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'"user_data"', b"[" * 100_000, b"\xff" * 9999, b'{"user_data":']
)
def test_file_that_is_not_leafs_is_named(tmp_path, content):
    write_leaf(tmp_path, {"a": GOOD})
    (tmp_path / "train" / "b.json").write_bytes(content)
    with pytest.raises(InputError, match=r"train/b.json") as refusal:
        load_femnist(tmp_path)
    assert len(str(refusal.value)) < 500


def test_norm_is_that_of_the_images_that_are_read(tmp_path):
    made.write_mnist(tmp_path, size=(32, 30))
    white = np.full((40, 32, 30), 255)
    made.write_idx(tmp_path / "train-images-idx3-ubyte.gz", white)
    for dtype in (np.float32, np.float64):
        data = load_mnist(tmp_path, dtype)
        assert data.norm == math.sqrt(960)
        assert np.linalg.norm(data.x_train.astype(float), axis=1).max() == pytest.approx(data.norm)
        assert data.x_train.max() <= 1.0


MNIST_MISTAKES = {
    "test images of another size": (
        {"t10k-images-idx3": np.zeros((10, 14, 56))},
        r"t10k-images.* images of 14 x 56 pixels,.*train-images.* of 28 x 28",
    ),
    "images without a height": (
        {"train-images-idx3": np.zeros((40, 784))},
        r"train-images.* array of 2 dimensions, 3 expected",
    ),
    "images in place of labels": (
        {"t10k-labels-idx1": np.zeros((10, 28, 28))},
        r"t10k-labels.* array of 3 dimensions, 1 expected",
    ),
    "one number": ({"train-labels-idx1": np.array(3)}, r"train-labels.* 0 dimensions, 1 expected"),
    "more dimensions than numpy has": (
        {"train-images-idx3": b"\0\0\x08\xff" + b"\0\0\0\x01" * 255 + b"\0"},
        r"train-images.* 255 dimensions, 3 expected",
    ),
    "no training image": (
        {"train-images-idx3": np.zeros((0, 28, 28)), "train-labels-idx1": np.zeros(0)},
        r"train-images.* \(0, 28, 28\): it holds no sample",
    ),
    "no test image": (
        {"t10k-images-idx3": np.zeros((0, 28, 28)), "t10k-labels-idx1": np.zeros(0)},
        r"t10k-images.* it holds no sample",
    ),
    "images without a pixel": (
        {"train-images-idx3": np.zeros((40, 0, 28))},
        r"train-images.* \(40, 0, 28\): it holds no sample",
    ),
    "labels missing": (
        {"train-labels-idx1": np.zeros(39)},
        r"train-images\S* has 40 images, but \S*train-labels\S* has 39 labels",
    ),
    "a header cut off": (
        {"train-images-idx3": b"\0\0\x08\x03\0\0\0"},
        r"train-images.* ends within its header",
    ),
    "a size that overflows 64 bits": (
        {"train-images-idx3": b"\0\0\x08\x03" + b"\x80\0\0\0" * 3},
        r"train-images.* incomplete: 0 bytes for an array of \(2147483648, ",
    ),
    "bytes after the array": (
        {"t10k-labels-idx1": b"\0\0\x08\x01\0\0\0\x01\0\0"},
        r"t10k-labels.* longer than its array: 2 bytes",
    ),
    "shorts": ({"train-labels-idx1": b"\0\0\x0b\x01"}, r"train-labels.*\(magic 00000b01\)"),
}


@pytest.mark.parametrize("mistake", MNIST_MISTAKES)
def test_idx_files_that_are_no_samples_are_named(tmp_path, mistake):
    made.write_mnist(tmp_path)
    contents, message = MNIST_MISTAKES[mistake]
    for name, content in contents.items():
        path = tmp_path / f"{name}-ubyte.gz"
        if isinstance(content, bytes):
            path.write_bytes(gzip.compress(content))
        else:
            made.write_idx(path, content)
    with pytest.raises(InputError, match=message):
        load_mnist(tmp_path)


def test_label_outside_the_classes_is_refused(tmp_path):
    made.write_mnist(tmp_path)
    made.write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.array([0] * 39 + [10]))
    with pytest.raises(InputError, match=r"train-labels.*: label of row 39 = 10.* 0 to 9"):
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


def test_adult_standardized_reads_nothing_off_its_rows(tmp_path):
    """The features of a row do not depend on other rows; the bound holds."""
    made.write_adult(tmp_path)
    before = load_adult(tmp_path, missing="mode", scaling="standard")
    assert before.norm == pytest.approx(np.sqrt(8 + 6 * 9))
    assert np.linalg.norm(before.x_train, axis=1).max() <= before.norm
    path = tmp_path / "adult.data"
    lines = path.read_text().split("\n")
    old = lines[1].split(", ")
    lines[1] = ", ".join(["90", old[1], "1400000", *old[3:10], "99999", "4356", "99", *old[13:]])
    path.write_text("\n".join(lines))
    after = load_adult(tmp_path, missing="mode", scaling="standard")
    changed = (before.x_train != after.x_train).any(axis=1)
    assert np.flatnonzero(changed).tolist() == [1]
    assert np.abs(after.x_train).max() == pytest.approx(3.0)  # 1.4 million is clipped


def test_adult_line_with_a_wrong_field_is_named(tmp_path):
    made.write_adult(tmp_path)
    path = tmp_path / "adult.data"
    path.write_text(path.read_text() + "39, State-gov\n")
    with pytest.raises(InputError, match="line 14: 2 fields, 15 expected"):
        load_adult(tmp_path)
    path.write_text(made.ADULT_ROWS[0].replace("State-gov", "Pirate") + "\n")
    with pytest.raises(InputError, match=r"adult.data line 1: column 2 \(workclass\) = 'Pirate'"):
        load_adult(tmp_path)


@pytest.mark.parametrize("missing", ["drop", "mode"])
@pytest.mark.parametrize("value", ["abc", "", "nan", "inf", "1e999", "1_000", "0x10", "٣"])
def test_adult_number_that_is_none_is_named(tmp_path, missing, value):
    made.write_adult(tmp_path)
    path = tmp_path / "adult.test"
    path.write_text(path.read_text().replace(" 13,", f" {value},", 1))
    with pytest.raises(
        InputError, match=r"adult.test line 2: column 5 \(education-num\) = "
    ) as refusal:
        load_adult(tmp_path, missing=missing)
    assert f"= {value!r}: must be a finite number" in str(refusal.value)


@pytest.mark.parametrize(
    ("missing", "old", "new", "message"),
    [
        ("mode", "Adm-clerical", "Pilot", r"line 1: column 7 \(occupation\) = 'Pilot'.*Sales"),
        (
            "drop",
            "<=50K",
            "=50K",
            r"line 1: column 15 \(income\) = '=50K': must be one of <=50K, >50K",
        ),
        ("mode", "<=50K", "?", r"line 1: column 15 \(income\) = '\?'"),
        ("mode", "White", "?", r"line 1: column 9 \(race\) = '\?'"),
        ("mode", "39", "?", r"line 1: column 1 \(age\) = '\?'"),
        ("drop", "State-gov", "Never-worked", r"line 1: column 2 \(workclass\) = 'Never-worked'"),
        ("drop", "39", "4" * 5000, r"line 1: column 1 \(age\) = '4{99}\.\.\.'"),
    ],
)
def test_adult_unknown_value_is_named_with_its_line(tmp_path, missing, old, new, message):
    made.write_adult(tmp_path)
    path = tmp_path / "adult.data"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InputError, match="adult.data " + message):
        load_adult(tmp_path, missing=missing)


def test_adult_of_which_every_row_lacks_a_value_is_refused(tmp_path):
    made.write_adult(tmp_path)
    for name in ("adult.data", "adult.test"):
        (tmp_path / name).write_text(made.ADULT_ROWS[2])
    with pytest.raises(InputError, match=r"adult.data and.*adult.test have 0 rows without"):
        load_adult(tmp_path)
    assert len(load_adult(tmp_path, missing="mode").y_train) == 1


@pytest.mark.parametrize("missing", ["drop", "mode"])
def test_adult_rows_outside_the_public_bounds_are_counted(tmp_path, missing):
    made.write_adult(tmp_path)
    assert load_adult(tmp_path, missing=missing).clipped == 0
    path = tmp_path / "adult.data"
    age, hours, gain = "39, State-gov", " 45, United-States", " 2174,"
    path.write_text(
        path.read_text()
        .replace(age, "1e9, State-gov")  # four rows, each twice outside
        .replace(gain, " 100001,")
        .replace(hours, " -5, United-States", 2)
    )
    data = load_adult(tmp_path, missing=missing)
    actual = [data.x_train[:, 0].max(), *data.x_train.min(axis=0)]
    assert max(actual) <= 1.0 and min(actual) >= 0.0
    if missing == "mode":
        assert data.clipped == 6 and data.clip_to(2.0).clipped == 6
        assert data.clip_to(0.5).clipped == len(data.y_train)
        assert data.clip_to(1.0 - 1e-9).clipped == 6  # no row is that long
        assert "numbers of 6 training and 0 test rows moved" in data.source
    else:  # rows of both files are drawn for training
        counts = re.search(r"numbers of (\d) training and (\d) test rows moved", data.source)
        assert int(counts[1]) == data.clipped and int(counts[1]) + int(counts[2]) == 6


def test_features_outside_the_norm_are_clipped_and_counted():
    data = made.multiclass()
    long = int((np.linalg.norm(data.x_train, axis=1) > 1.2).sum())
    clipped = data.clip_to(1.2)
    assert 0 < long < 300 and clipped.clipped == long and clipped.norm == 1.2
    assert np.linalg.norm(clipped.x_train, axis=1).max() <= 1.2
    remaining = np.linalg.norm(data.x_train, axis=1) <= 1.2
    assert np.array_equal(clipped.x_train[remaining], data.x_train[remaining])


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


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("part", "row"), [("train", 299), ("test", 0)])
def test_feature_that_is_not_finite_is_named(monkeypatch, part, row, value):
    monkeypatch.setattr(base, "BLOCK", 128)
    data = made.multiclass()
    x = getattr(data, f"x_{part}").copy()
    x[row, 4] = value
    message = f"made {part} feature of row {row}, column 4 = {value!r}.* a finite number"
    with pytest.raises(InputError, match=message.replace("np.", "")):
        replace(data, **{f"x_{part}": x})


@pytest.mark.parametrize("value", [np.nan, 1.5, 3.0, -1.0])
def test_class_number_that_is_none_is_named(value):
    data = made.multiclass()
    y = data.y_train.astype(float)
    replace(data, y_train=y)
    y[7] = value
    with pytest.raises(InputError, match=rf"train label of row 7 = {value}.* 0 to 2"):
        replace(data, y_train=y)


def test_target_that_is_not_finite_is_named():
    data = make_lasso()
    y = data.y_test.copy()
    y[5] = np.inf
    with pytest.raises(InputError, match="lasso test label of row 5 = inf"):
        replace(data, y_test=y)


def test_row_longer_than_the_public_norm_is_named():
    data = made.multiclass()
    x = data.x_train.copy()
    x[11] *= 1.001 * data.norm / np.linalg.norm(x[11])
    with pytest.raises(InputError, match=r"made 2-norm of train row 11 = 2\.45\d+.*2\.4494897"):
        replace(data, x_train=x)
    x[11] *= (1.0 + 1e-7) / 1.001  # what rounding to float32 leaves
    replace(data, x_train=x)
    for norm in (np.nan, np.inf, 0.0, -1.0):
        with pytest.raises(InputError, match=r"made norm =.* a positive number"):
            replace(data, norm=norm)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: {"x_test": d.x_test[:, :5]}, "test features have 5 columns,.* training 6"),
        (lambda d: {"x_test": d.x_test[0]}, r"test features are float32 of shape \(6,\)"),
        (lambda d: {"x_train": d.x_train[:, :0]}, r"train features are.* \(300, 0\)"),
        (lambda d: {"x_train": d.x_train.astype(int)}, "train features are int64"),
        (lambda d: {"y_test": d.y_test[:9]}, r"100 rows of test features but labels.*\(9,\)"),
        (lambda d: {"writer_of": d.writer_of[:9]}, r"300 rows.* but writers of shape \(9,\)"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(change, message):
    data = made.multiclass()
    with pytest.raises(InputError, match="made: " + message):
        replace(data, **change(data))


def test_fingerprint_changes_with_any_number(monkeypatch):
    data = made.multiclass()
    assert re.fullmatch("[0-9a-f]{16}", data.fingerprint)
    copies = {part: getattr(data, part).copy() for part in ("x_train", "y_train")}
    assert replace(data, **copies, source="a copy", clipped=3).fingerprint == data.fingerprint
    monkeypatch.setattr(base, "BLOCK", 7)
    columns = np.asfortranarray(data.x_train)
    assert replace(data, x_train=columns).fingerprint == data.fingerprint
    changes = [
        {"norm": np.nextafter(data.norm, 9.0)},
        {"writer_of": None},
        {"x_train": data.x_train.astype(float)},
        {"y_test": data.y_test.astype(float)},
        {
            "x_train": data.x_train[:-1],
            "y_train": data.y_train[:-1],
            "writer_of": data.writer_of[:-1],
        },
        {
            "x_train": data.x_test,
            "y_train": data.y_test,
            "x_test": data.x_train,
            "y_test": data.y_train,
            "writer_of": None,
        },
    ]
    for part in ("x_train", "y_train", "x_test", "y_test", "writer_of"):
        array = getattr(data, part).copy()
        array[-1] = np.where(array[-1] == 0, 1, 0)
        changes.append({part: array})
    changes += [{"y_test": np.zeros(100, dtype)} for dtype in (np.int64, float)]  # equal bytes
    computed = {replace(data, **change).fingerprint for change in changes}
    assert len(computed | {data.fingerprint}) == len(changes) + 1


@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_seed_of_drawn_data_is_checked(tmp_path, seed):
    made.write_adult(tmp_path)
    with pytest.raises(InputError, match=f"seed = {seed}: must be"):
        make_lasso(seed)
    with pytest.raises(InputError, match=f"seed = {seed}: must be"):
        load_adult(tmp_path, seed=seed)


def damaged(content, draw):
    """Return content with a few bytes changed, cut out or put in, or its end cut off."""
    actual = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 8])):
        place = draw.randrange(len(actual) + 1)
        how = draw.randrange(4)
        if how == 0:
            del actual[place : place + draw.choice([1, 2, 40])]
        elif how == 1:
            actual[place:place] = draw.choice([b"0", b"-", b"?", b"[]", b",", b"\n", b"e9", b"\0"])
        elif how == 2 and draw.random() < 0.2:
            del actual[place:]
        elif place < len(actual):
            actual[place] = draw.randrange(256)
    return bytes(actual)


@pytest.mark.parametrize(("name", "tries"), [("mnist", 150), ("adult", 100), ("femnist", 100)])
def test_damaged_files_are_read_or_refused(tmp_path, name, tries):
    draw = random.Random(5)
    if name == "mnist":
        made.write_mnist(tmp_path, samples=3, size=(2, 2))
    elif name == "adult":
        made.write_adult(tmp_path)
    else:
        write_leaf(tmp_path, {"a": GOOD, "b": GOOD})
    paths = [path for path in sorted(tmp_path.rglob("*.*")) if path.is_file()]
    refused = 0
    for k in range(tries):
        path = paths[k % len(paths)]
        whole = path.read_bytes()
        zipped = path.suffix == ".gz" and draw.random() < 0.9
        content = damaged(gzip.decompress(whole) if zipped else whole, draw)
        path.write_bytes(gzip.compress(content, 1) if zipped else content)
        try:
            load_dataset(name, tmp_path, missing=draw.choice(["drop", "mode"]))
        except InputError as error:
            refused += 1
            assert str(tmp_path) in str(error) and len(str(error).splitlines()) == 1
        path.write_bytes(whole)
    assert refused > tries / 4


def test_a_linked_folder_is_called_as_its_link(tmp_path):
    """Only the link is called mnist; where it leads to may be called anything."""
    target = tmp_path / "images-2026"
    target.mkdir()
    made.write_mnist(target)
    (tmp_path / "mnist").symlink_to(target)
    assert load_dataset(str(tmp_path / "mnist")).name == "mnist"
    assert dataset_name(str(tmp_path / "mnist") + "/") == "mnist"


def test_an_unknown_name_lists_files_of_ones_own() -> None:
    with pytest.raises(InputError, match=r"FILE\.csv.*did you mean 'adult'"):
        load_dataset("adullt")


def test_a_writer_named_twice_in_a_file_is_refused(tmp_path):
    (tmp_path / "train").mkdir()
    user = '{"x": [[0.5]], "y": [1]}'
    (tmp_path / "train" / "a.json").write_text(f'{{"user_data": {{"w": {user}, "w": {user}}}}}')
    with pytest.raises(InputError, match="twice"):
        public._read(tmp_path / "train", np.float64)
