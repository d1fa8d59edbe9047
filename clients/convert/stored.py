"""Rows in files and datasets, read as they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...schemas.errors import InvalidArgumentError, NotFoundError
from .int96 import UNIT, coarser_names, may_be_int96, uncut

_FORMATS = {"": "parquet", ".parquet": "parquet", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc"}
"""Formats by suffix; without one it is a folder of Parquet files."""
_BATCH_ROWS = 65_536
_BATCHES_AHEAD = 4


def is_stored(data: Any) -> bool:
    """Return whether the ``data`` that a user gives to a write is a path, a ``pyarrow.dataset`` or a scanner of one."""
    return isinstance(data, str | PathLike) or _is_dataset(data) or hasattr(data, "projected_schema")


def stored_rows(data: Any) -> pa.RecordBatchReader:
    """Convert stored data that a user names to record batches: a Parquet or Arrow file, a folder of Parquet files, a
    dataset or its scanner.

    Raises:
        NotFoundError: there is no such file or folder.
        InvalidArgumentError: it is no Parquet or Arrow file.
    """
    if isinstance(data, str | PathLike):
        path = str(fspath(data))
        rows = _rows_at(path)
        return pa.RecordBatchReader.from_batches(rows.schema, _named(path, rows))
    return _rows_of(data) if _is_dataset(data) else data.to_reader()


def _rows_of(dataset: Any, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
    """Return the rows of a dataset, few ahead: they may be as wide as they like."""
    scanner = dataset.scanner(
        columns=columns, batch_size=_BATCH_ROWS, batch_readahead=_BATCHES_AHEAD, fragment_readahead=1
    )
    return scanner.to_reader()


def _rows_at(path: str) -> pa.RecordBatchReader:
    suffix = "" if Path(path).is_dir() else Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise InvalidArgumentError(
            f"data can be a Parquet or Arrow file, not {path}: load it with nyala.jobs.load, or with `nyala "
            "load TABLE FILE --create --key COLUMNS`, which also creates the table"
        )
    plain = _dataset(path, _FORMATS[suffix])
    if _FORMATS[suffix] == "parquet" and may_be_int96(plain.schema):
        import pyarrow.dataset as ds

        options = ds.ParquetReadOptions(coerce_int96_timestamp_unit=UNIT)
        coarse = _dataset(path, ds.ParquetFileFormat(read_options=options))
        if names := coarser_names(plain.schema, coarse.schema):
            rows = _rows_of(coarse)
            return pa.RecordBatchReader.from_batches(rows.schema, uncut(rows, _rows_of(plain, names)))
    return _rows_of(plain)


def _named(path: str, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: Exception) -> InvalidArgumentError:
    return InvalidArgumentError(f"{path} cannot be read: {str(error).partition(chr(10))[0]}")


def _is_dataset(data: Any) -> bool:
    """Recognise datasets without importing them."""
    return hasattr(data, "scanner") and hasattr(data, "get_fragments")


def _dataset(path: str, form: Any) -> Any:
    import pyarrow.dataset as ds

    try:
        return ds.dataset(path, format=form)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file or folder {path}") from None
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None
