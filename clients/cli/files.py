"""Files that tables are made from and loaded with: Parquet, CSV, Arrow and JSON lines, read batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from ...schemas.errors import InvalidArgumentError, NotFoundError


def read_file(path: Path, types: pa.Schema | None = None) -> pa.RecordBatchReader:
    """Return a reader of a file in the format that its suffix names.

    ``types`` tells formats that carry no types (CSV, JSON) what a table's columns are; it need not name all.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: its suffix names no format, or it is not in it.
    """
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}")
    read = _READERS.get(path.suffix)
    if read is None:
        raise InvalidArgumentError(f"{path.name}: the suffix names no format; there are {', '.join(_READERS)}")
    try:
        return read(path, types)
    except (pa.ArrowException, OSError) as error:
        raise InvalidArgumentError(f"{path.name} cannot be read: {str(error).partition(chr(10))[0]}") from None


def _parquet(path: Path, _: pa.Schema | None) -> pa.RecordBatchReader:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())


def _csv(path: Path, types: pa.Schema | None) -> pa.RecordBatchReader:
    import pyarrow.csv as csv

    # What is written comes back: nothing between two commas is NULL, nothing between quotes is empty, nan is a number.
    options = csv.ConvertOptions(
        column_types=types, null_values=_CSV_NULLS, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return csv.open_csv(path, convert_options=options)


def _json_lines(path: Path, types: pa.Schema | None) -> pa.RecordBatchReader:
    import pyarrow.json as json

    if types:  # dates are ISO text, which the table makes dates of: Arrow's reader wants numbers for them
        fields = (field.with_type(pa.string()) if pa.types.is_date(field.type) else field for field in types)
        types = pa.schema(fields)
    return json.open_json(path, parse_options=json.ParseOptions(explicit_schema=types))


def _arrow(path: Path, _: pa.Schema | None) -> pa.RecordBatchReader:
    source = pa.memory_map(str(path))
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)
    batches = (file.get_batch(number) for number in range(file.num_record_batches))
    return pa.RecordBatchReader.from_batches(file.schema, batches)


_CSV_NULLS = ["", "NULL", "null", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA"]
_READERS: dict[str, Callable[[Path, pa.Schema | None], pa.RecordBatchReader]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".arrow": _arrow,
    ".feather": _arrow,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
}
