"""Own data: reading, and refusals with the place in the file."""

from __future__ import annotations

import io
import os
import pickle
import resource
import zipfile

import numpy as np
import pandas as pd
import pytest
from mutations import in_a_process

from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.learning import LearnSettings, learn, load_dataset

ROWS = 60


@pytest.fixture
def samples():
    random = np.random.default_rng(3)
    x = random.normal(size=(ROWS, 4))
    return x, (x @ [1.0, -1.0, 0.5, 0.0] > 0).astype(int), np.arange(ROWS) % 3


def archive(folder, **arrays):
    path = folder / "mine.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    "shape", ["(1000000000000000,)", "(20, 4)", "(9, 4)", "(1000000, 1000000000)"]
)
def test_a_header_that_states_other_numbers_than_follow_is_refused(tmp_path, shape):
    """numpy allocates the size that the header states: 1e15 numbers were "out of memory"."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (118 - len(head) - 1) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(8 * 40)
    buffer = io.BytesIO()
    np.save(buffer, np.resize((-1, 1), 10))
    path = tmp_path / "mine.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x.npy", content)
        file.writestr("y.npy", buffer.getvalue())
    with pytest.raises(InputError, match=r"array x = .* what the archive holds of it, 448 bytes"):
        load_dataset(str(path), norm=1.0)


@pytest.mark.parametrize("column", ["a", "y", "client"])
def test_a_column_of_lists_is_refused(tmp_path, samples, column):
    x, y, client = samples
    table = pd.DataFrame(x, columns=list("abcd")).assign(y=y, client=client)
    table[column] = [[1.0, 2.0]] * len(table)
    table.to_parquet(tmp_path / "mine.parquet")
    with pytest.raises(InputError, match=rf"must be a table without lists \(column {column}\)"):
        load_dataset(str(tmp_path / "mine.parquet"), norm=1.0)


def test_an_archive_a_csv_and_a_parquet_file_are_the_same_data(tmp_path, samples):
    x, y, client = samples
    table = pd.DataFrame(x, columns=list("abcd")).assign(y=y, client=client)
    table.to_csv(tmp_path / "mine.csv", index=False)
    table.to_parquet(tmp_path / "mine.parquet")
    npz = archive(tmp_path, x=x, y=y, client=client)
    read = [
        load_dataset(str(p), norm=1.0)
        for p in (npz, tmp_path / "mine.csv", tmp_path / "mine.parquet")
    ]
    assert len({data.fingerprint for data in read}) == 1
    data = read[0]
    assert (data.task, data.name, data.norm) == ("binary", "mine", 1.0)
    long = np.linalg.norm(x, axis=1) > 1.0
    assert data.clipped == long.sum()
    assert np.allclose(data.x_train[~long], x[~long])
    assert np.linalg.norm(data.x_train, axis=1).max() <= 1.0
    assert (data.y_train == np.where(y == 1, 1, -1)).all()
    assert (data.writer_of == client).all()


def test_it_trains_by_client(tmp_path, samples):
    x, y, client = samples
    data = load_dataset(str(archive(tmp_path, x=x, y=y, client=client)), norm=2.0)
    settings = LearnSettings(algorithm="dp-admm", split="writer", rounds=3, budget="total:1,1e-5")
    result = learn(data, settings)
    assert list(result.clients.samples) == [20, 20, 20]
    assert result.privacy["total"]["epsilon"] <= 1.0


def test_texts_are_classes_and_fractions_are_targets(tmp_path, samples):
    x, _, _ = samples
    words = np.array(["cat", "dog", "eel"])[np.arange(ROWS) % 3]
    table = pd.DataFrame(x).assign(y=words, split=["test"] * 6 + ["train"] * (ROWS - 6))
    table.to_csv(tmp_path / "a.csv", index=False)
    data = load_dataset(str(tmp_path / "a.csv"), norm=9.0)
    assert (data.task, data.classes, len(data.y_test)) == ("multiclass", 3, 6)
    pd.DataFrame(x, columns=list("abcd")).assign(y=x[:, 0]).to_parquet(tmp_path / "b.parquet")
    assert load_dataset(str(tmp_path / "b.parquet"), norm=9.0).task == "regression"


def test_images(tmp_path):
    from PIL import Image

    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (8, 5, 4), dtype=np.uint8)
    for k, item in enumerate(pixels):
        folder = tmp_path / "set" / ("train" if k < 6 else "test") / "ab"[k % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(item).save(folder / f"{k}.png")
    data = load_dataset(str(tmp_path / "set"))
    assert data.norm == pytest.approx(np.sqrt(20))  # a public bound, not the data's
    order = [0, 2, 4, 1, 3, 5]  # class a, then class b
    assert np.allclose(data.x_train, pixels[order].reshape(6, -1) / 255.0)
    assert data.y_train.tolist() == [-1, -1, -1, 1, 1, 1]
    assert len(data.y_test) == 2


class Bomb:
    """Code that unpickling would run."""

    def __reduce__(self):
        return (pytest.fail, ("an object was unpickled",))


def test_objects_are_refused_and_nothing_is_unpickled(tmp_path):
    path = archive(tmp_path, x=np.array([[Bomb()]], dtype=object), y=np.arange(1))
    with pytest.raises(InputError, match="no archive of plain arrays"):
        load_dataset(str(path), norm=1.0)
    (tmp_path / "raw.npz").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match="no archive of plain arrays"):
        load_dataset(str(tmp_path / "raw.npz"), norm=1.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": None}, "no array x"),
        ({"y": np.zeros(ROWS, int)}, "two classes"),
        ({"x": np.ones((0, 4)), "y": np.zeros(0)}, "no training sample|two classes"),
        ({"client": np.full(ROWS, np.nan)}, "client of row 0"),
        ({"y": np.zeros((ROWS, 2))}, "one label a row"),
        ({"y": np.arange(ROWS - 1) % 2}, "labels of shape"),
        ({"x": np.full((ROWS, 4), np.nan)}, "feature of row 0, column 0"),
        ({"x": np.array([["a"] * 4] * ROWS)}, "rows of numbers"),
        ({"weights": np.ones(3)}, "one of x, y, client"),
        ({"x_test": np.ones((2, 4))}, "both, or neither"),
        ({"client": np.arange(ROWS + 1)}, "writers of shape"),
        ({"x_test": np.ones((2, 4)), "y_test": np.array([1, 7])}, "row 1 = 7: must be a class of"),
    ],
)
def test_what_an_archive_lacks_is_named(tmp_path, samples, change, words):
    x, y, _ = samples
    arrays = {k: v for k, v in ({"x": x, "y": y} | change).items() if v is not None}
    with pytest.raises(InputError, match=words):
        load_dataset(str(archive(tmp_path, **arrays)), norm=1.0)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"y": None}, "no column y"),
        ({"y": [0.0, None]}, "line 3, column 'y' = '': must be a label"),
        ({"a": ["x", "y"]}, "line 2, column 'a' = 'x': must be numbers only"),
        ({"split": ["train", "other"]}, "line 3, column 'split' = 'other': must be train or test"),
        ({"a": [1.0, None]}, "t.csv, line 3, column 'a' = '': must be a finite number"),
        ({"a": [1.0, "-inf"]}, "t.csv, line 3, column 'a' = '-inf': must be a finite number"),
        ({"client": ["x", None]}, "line 3, column 'client' = '': must be a name"),
    ],
)
def test_what_a_table_lacks_is_named(tmp_path, columns, words):
    table = {k: v for k, v in ({"a": [1.0, 2.0], "y": [0, 1]} | columns).items() if v is not None}
    pd.DataFrame(table).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match=words):
        load_dataset(str(tmp_path / "t.csv"), norm=1.0)


def test_a_bad_cell_is_named_by_the_line_and_the_text_of_the_file(tmp_path):
    """Also after blank lines, and a cell of several lines; of Parquet by its row."""
    path = tmp_path / "t.csv"
    cells = ("a", "b c", "y"), (1, 2, 0), (3, 4, 1), (5, "n/a", 0)
    path.write_text("\ufeff" + "\n  \n".join(",".join(map(str, row)) for row in cells))
    with pytest.raises(InputError, match=r"t\.csv, line 7, column 'b c' = 'n/a': must be a finite"):
        load_dataset(str(path), norm=1.0)
    path.write_text('a,y,client\n1,0,"of two\nlines"\n2,NA,z\n')
    with pytest.raises(InputError, match=r"t\.csv, line 4, column 'y' = 'NA': must be a label"):
        load_dataset(str(path), norm=1.0)
    pd.DataFrame({"a": [1.0, None], "y": [0, 1]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"t\.parquet, row 1, column 'a' = nan: must be a finite"):
        load_dataset(str(tmp_path / "t.parquet"), norm=1.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,y\n0.1,0.2,0\n0.3,0.4,1\n", "rows of more values than its 2 columns"),
        ("a,a,y\n0.1,0.2,0\n0.3,0.4,1\n", "column = 'a': must be a name once"),
        ("a,y\n", "has no row"),
    ],
)
def test_a_table_whose_columns_are_not_its_header_is_refused(tmp_path, text, words):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=words):
        load_dataset(str(tmp_path / "t.csv"), norm=1.0)


def test_the_bound_of_rows_is_never_read_off_the_data(tmp_path, samples, capsys):
    path = archive(tmp_path, x=samples[0], y=samples[1])
    assert main(["learn", "run", str(path), "--algorithm", "dp-admm"]) == 2
    assert "--norm: must be a public bound" in capsys.readouterr().err
    given = ["--norm", "1", "--clients", "2", "--rounds", "2", "--quiet"]
    assert main(["learn", "run", str(path), "--algorithm", "dp-admm", *given]) == 0


def packed_zeros(folder):
    path = folder / "zeros.npz"
    np.savez_compressed(path, x=np.zeros((10**5, 75)), y=np.zeros(10**5))
    return path


def claimed_zeros(folder):
    """An archive whose directory states less than the size of its members."""
    path = packed_zeros(folder).rename(folder / "nominal.npz")
    content = path.read_bytes()
    size = (6 * 10**7 + 128).to_bytes(4, "little")
    assert content.count(size) == 2
    path.write_bytes(content.replace(size, (128).to_bytes(4, "little")))
    return path


def repeated_rows(folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = pa.array(np.zeros(10**7))
    pq.write_table(pa.table({"x": column, "y": column}), folder / "rows.parquet")
    return folder / "rows.parquet"


def repeated_text(folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    each = pa.array(["a" * 10**5]).dictionary_encode()
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10**4, np.int32)), each.dictionary)
    pq.write_table(pa.table({"y": column, "x": np.zeros(10**4)}), folder / "text.parquet")
    return folder / "text.parquet"


def many_columns(folder):
    path = folder / "columns.csv"
    path.write_text("y" + ",a" * 500_000)
    return path


def large_image(folder):
    from PIL import Image

    path = folder / "images" / "train" / "a" / "large.png"
    path.parent.mkdir(parents=True)
    Image.new("L", (12_000, 12_000)).save(path)
    return folder / "images"


def gzipped_digits(folder):
    import gzip

    (folder / "mnist").mkdir()
    (folder / "mnist" / "SHA256SUMS").touch()
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        path = folder / "mnist" / f"{name}-ubyte.gz"
        path.write_bytes(gzip.compress(bytes(10**8), compresslevel=1))
    return folder / "mnist"


def endless(folder):
    (folder / "zero.csv").symlink_to("/dev/zero")
    return folder / "zero.csv"


def pipe(folder):
    os.mkfifo(folder / "pipe.npz")
    return folder / "pipe.npz"


BOMBS = [
    packed_zeros,
    claimed_zeros,
    repeated_rows,
    repeated_text,
    many_columns,
    large_image,
    gzipped_digits,
    endless,
    pipe,
]


@pytest.mark.parametrize("make", BOMBS)
def test_a_bomb_is_refused_in_little_time_and_memory(make, tmp_path):
    path = make(tmp_path)

    def read():
        before = resource.getrusage(resource.RUSAGE_SELF)
        completed = ""
        try:
            load_dataset(str(path), norm=1.0)
        except InputError as error:
            completed = str(error)
        after = resource.getrusage(resource.RUSAGE_SELF)
        return completed, after.ru_utime - before.ru_utime, after.ru_maxrss - before.ru_maxrss

    completed, seconds, kilobytes = in_a_process(read)
    assert path.name in completed or "large.png" in completed
    assert seconds < 5.0
    assert kilobytes < 500_000
