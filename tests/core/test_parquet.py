"""Memory and processor time of reading a Parquet file, measured from outside."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mutations import in_a_process

from gridpriv.core.errors import InputError
from gridpriv.core.files import read_parquet


def numbers(path: Path) -> None:
    schema = pa.schema([("x", pa.float64())])
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(100):  # 800 MB of one number
            writer.write_table(pa.table({"x": np.zeros(10**6)}))


def texts(path: Path) -> None:
    item = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2000, np.int32)), ["a" * 10**5])
    pq.write_table(pa.table({"x": item.cast(pa.string())}), path)  # 200 MB of one text


def compressed(path: Path) -> None:
    rows = ["a" * 10**6 + str(number) for number in range(200)]
    pq.write_table(pa.table({"x": rows}), path, use_dictionary=False, compression="zstd")


@pytest.mark.parametrize("make", [numbers, texts, compressed])
def test_a_bomb_is_refused_in_little_time_and_memory(make, tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    in_a_process(lambda: make(path))
    content = path.read_bytes()
    assert len(content) < 10**6

    def read() -> tuple[str, float, int]:
        before = resource.getrusage(resource.RUSAGE_SELF)
        with pytest.raises(InputError) as refused:
            read_parquet(path, content)
        after = resource.getrusage(resource.RUSAGE_SELF)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return str(refused.value), seconds, after.ru_maxrss - before.ru_maxrss

    completed, seconds, kilobytes = in_a_process(read)
    assert "bomb.parquet" in completed
    assert seconds < 5.0
    assert kilobytes < 500_000


def test_a_table_of_few_different_values_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plain.parquet"
    table = pa.table({"case": ["case14"] * 10**5, "mw": np.ones(10**5), "gap": [None] * 10**5})
    pq.write_table(table, path)
    assert path.stat().st_size < 10**4
    assert read_parquet(path, path.read_bytes()) == table
