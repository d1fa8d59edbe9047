"""Files of rows that are loaded or applied: Parquet, CSV, Arrow and JSON lines, on any file system of pyarrow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from ...schemas.errors import InvalidArgumentError, NotFoundError
from .folder import Folder, Place

SUFFIXES = (".parquet", ".csv", ".arrow", ".feather", ".jsonl", ".ndjson")
_CSV_BLOCK = 4 * 1024 * 1024
_NULLS = ["", "NULL", "null", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA"]


@dataclass(frozen=True)
class InputFile:
    """One file. Can be pickled."""

    files: pafs.FileSystem
    path: str
    size: int
    mtime: int
    """When it was written last, in nanoseconds since 1970."""

    @property
    def digest(self) -> str:
        """What tells it from other files, and from itself when it has been written anew."""
        said = f"{self.files.type_name}:{self.path}:{self.size}:{self.mtime}"
        return hashlib.blake2b(said.encode(), digest_size=12).hexdigest()

    @property
    def suffix(self) -> str:
        """What the format goes by."""
        return Path(self.path).suffix

    def row_groups(self) -> list[tuple[int, int]]:
        """Return (rows, bytes before compression) of each row group of a Parquet file."""
        import pyarrow.parquet as pq

        with self._open() as file:
            about = _readable(self, lambda: pq.ParquetFile(file).metadata)
        groups = (about.row_group(number) for number in range(about.num_row_groups))
        return [(group.num_rows, group.total_byte_size) for group in groups]

    def schema(self, types: pa.Schema | None = None) -> pa.Schema:
        """Return the columns."""
        return self.read(types).schema

    def read(
        self, types: pa.Schema | None = None, row_groups: Sequence[int] | None = None, batch_rows: int = 65_536
    ) -> pa.RecordBatchReader:
        """Return a reader of the rows, in batches that are the same each time.

        ``types`` tells formats that carry no types what a table's columns are. ``row_groups`` are some of a Parquet
        file's, None all.

        Raises:
            InvalidArgumentError: the file is not of the format that its suffix names.
        """
        return _readable(self, lambda: _READERS[self.suffix](self, types, row_groups, batch_rows))

    def _open(self) -> pa.NativeFile:
        return self.files.open_input_file(self.path)

    def __str__(self) -> str:
        return self.path


def input_files(places: Place | Sequence[Place]) -> list[InputFile]:
    """Return the files at paths or URIs, those of folders sorted by their paths. Names that begin with ``_`` or ``.``
    are overlooked.

    Raises:
        NotFoundError: there is nothing.
        InvalidArgumentError: the suffix of a file names no format.
    """
    found = [
        file for place in ([places] if isinstance(places, str | Path) else places) for file in _at(Folder.at(place))
    ]
    for file in found:
        if file.suffix not in SUFFIXES:
            raise InvalidArgumentError(f"{file}: the suffix names no format; there are {', '.join(SUFFIXES)}")
    if not found:
        raise NotFoundError("there are no files to read")
    return found


def _at(place: Folder) -> list[InputFile]:
    info = place.files.get_file_info(place.path)
    if info.type == pafs.FileType.NotFound:
        raise NotFoundError(f"there is no file or folder {place}")
    if info.is_file:
        return [_file(place, info)]
    inside = place.files.get_file_info(pafs.FileSelector(place.path, recursive=True))
    wanted = [each for each in inside if each.is_file and not each.base_name.startswith(("_", "."))]
    return [_file(place, each) for each in sorted(wanted, key=lambda each: each.path)]


def _file(place: Folder, info: pafs.FileInfo) -> InputFile:
    return InputFile(place.files, info.path, info.size, info.mtime_ns or 0)


def _readable(file: InputFile, read: Any) -> Any:
    try:
        return read()
    except (pa.ArrowException, OSError) as error:
        raise InvalidArgumentError(f"{file} cannot be read: {str(error).partition(chr(10))[0]}") from None


def _parquet(file: InputFile, _: Any, row_groups: Sequence[int] | None, batch_rows: int) -> pa.RecordBatchReader:
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(file._open())
    batches = opened.iter_batches(batch_rows, row_groups=None if row_groups is None else list(row_groups))
    return pa.RecordBatchReader.from_batches(opened.schema_arrow, batches)


def _csv(file: InputFile, types: pa.Schema | None, _: Any, __: int) -> pa.RecordBatchReader:
    import pyarrow.csv as csv

    # As the command ``table load`` reads it: nothing between two commas is NULL, nothing between quotes is empty.
    convert = csv.ConvertOptions(
        column_types=types, null_values=_NULLS, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    blocks = csv.ReadOptions(block_size=_CSV_BLOCK, use_threads=False)
    return csv.open_csv(file._open(), read_options=blocks, convert_options=convert)


def _json_lines(file: InputFile, types: pa.Schema | None, _: Any, __: int) -> pa.RecordBatchReader:
    import pyarrow.json as json

    if types:  # dates are ISO text, which the table makes dates of: Arrow's reader wants numbers for them
        types = pa.schema([each.with_type(pa.string()) if pa.types.is_date(each.type) else each for each in types])
    return json.open_json(file._open(), parse_options=json.ParseOptions(explicit_schema=types))


def _arrow(file: InputFile, _: Any, __: Any, ___: int) -> pa.RecordBatchReader:
    source = file._open()
    try:
        opened = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)
    return pa.RecordBatchReader.from_batches(opened.schema, _ipc_batches(opened))


def _ipc_batches(opened: pa.ipc.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    for number in range(opened.num_record_batches):
        yield opened.get_batch(number)


_READERS = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".arrow": _arrow,
    ".feather": _arrow,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
}
