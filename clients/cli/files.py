"""Files that tables are made from and loaded with: Parquet, CSV, Arrow and JSON lines, read batch by batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ...schemas.errors import NotFoundError


def read_file(path: Path, types: pa.Schema | None = None) -> pa.RecordBatchReader:
    """Return a reader of a file in the format that its suffix names.

    ``types`` tells formats that carry no types (CSV, JSON) what a table's columns are; it need not name all.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: its suffix names no format, or it is not in it.
    """
    from ..pipeline.input_files import input_files

    if not path.is_file():
        raise NotFoundError(f"there is no file {path}")
    return input_files(path)[0].read(types)
