"""Parquet files that somebody else wrote, read within a stated memory.

A Parquet file of a few bytes can say a column of a billion equal numbers, or a million rows that
all name one text of a megabyte. What a table would take is therefore known before it is made:
numbers from the file's own account, texts from their dictionary, in which each stands once.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from gridpriv.core.errors import InputError
from gridpriv.core.reading import MIB, unpacked_bound

LEAST_UNPACKED = 64 * MIB
"""Bytes that any file may unpack to: tables of few different values pack a thousand to one."""


def read_parquet(path: Path, content: bytes) -> Any:
    """Return the Arrow table of a Parquet file.

    Parameters
    ----------
    path : Path
        The file, for the errors.

    Raises
    ------
    InputError
        If a column holds lists, or if it unpacks to more than 64 MiB and to more than fifty times
        its own bytes.
    ValueError, OSError
        If it is no Parquet file.
    """
    import pyarrow.parquet as pq

    most = max(LEAST_UNPACKED, unpacked_bound(len(content)))
    file = pq.ParquetFile(io.BytesIO(content))
    for column in file.schema_arrow:
        if column.type.num_fields:
            raise InputError(f"{path}: must be a table without lists (column {column.name})")
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    parts = [group.column(number) for group in groups for number in range(group.num_columns)]
    numbers = sum(max(part.total_uncompressed_size, 8 * part.num_values) for part in parts)
    texts = [field.name for field in file.schema_arrow if _is_text(field.type)]
    if numbers > most or _text_bytes(content, texts) > most:
        raise InputError(f"{path}: must be a file that unpacks to at most {most} bytes")
    return pq.read_table(io.BytesIO(content))


def _is_text(kind: Any) -> bool:
    import pyarrow.types as of

    kind = kind.value_type if of.is_dictionary(kind) else kind
    return any(test(kind) for test in (of.is_string, of.is_large_string, of.is_binary))


def _text_bytes(content: bytes, columns: list[str]) -> int:
    """Return the unpacked size of the text columns of a table, bytes."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if not columns:
        return 0
    table = pq.read_table(io.BytesIO(content), columns=columns, read_dictionary=columns)
    return sum(
        pc.sum(pc.take(pc.binary_length(part.dictionary), part.indices)).as_py() or 0
        for column in table.columns
        for part in column.chunks
    )
