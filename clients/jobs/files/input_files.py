"""Files of rows to load or apply: Parquet, CSV, Arrow and JSON, on any of pyarrow's file systems."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from ....schemas.errors import InvalidArgumentError, NotFoundError
from ....schemas.table.column import ColumnSchema
from ...convert.cells import python_rows
from ...convert.hidden_names import is_hidden
from ...convert.int96 import opened_twice, with_cut_rows
from ..folder import Folder, Place
from .file_format import ReadOptions, format_of, is_note
from .json_text import schema_of_text, with_json_text
from .pieces import BadRow, Piece

Made = TypeVar("Made")

_TEXT = ("csv", "tsv", "jsonl", "json")


@dataclass(frozen=True)
class InputFile:
    """One file that a job loads: CSV, JSON, Parquet or another format. Can be pickled."""

    files: pafs.FileSystem
    path: str
    size: int
    mtime: int
    """Modification time, in nanoseconds since 1970."""
    format: str
    """One of ``file_format.FORMATS``."""
    compression: str | None
    options: ReadOptions
    name: str = ""
    """The name to show, if not the path."""

    @property
    def digest(self) -> str:
        """Identifies the file, its content (by size and time) and how it is read."""
        said = f"{self.files.type_name}:{self.path}:{self.size}:{self.mtime}"
        if self.options != ReadOptions():
            said += f":{self.options.said}"
        return hashlib.blake2b(said.encode(), digest_size=12).hexdigest()

    @property
    def is_text(self) -> bool:
        """Whether cells are text whose types the table decides."""
        return self.format in _TEXT

    def row_groups(self) -> list[tuple[int, int]]:
        """Return (rows, bytes before compression) of each row group of a Parquet file."""
        import pyarrow.parquet as pq

        with self._open() as file:
            about = _readable(self, lambda: pq.ParquetFile(file).metadata)
        groups = (about.row_group(number) for number in range(about.num_row_groups))
        return [(group.num_rows, group.total_byte_size) for group in groups]

    def schema(self) -> pa.Schema:
        """Return the columns; text columns get the types that the first rows suggest."""
        schema = _readable(self, lambda: _SCHEMAS[self.format](self))
        return schema_of_text(schema) if self.options.as_json else schema

    def pieces(
        self,
        columns: Sequence[ColumnSchema],
        row_groups: Sequence[int] | None = None,
        batch_rows: int = 65_536,
        overlooked: Callable[[str], bool] = is_note,
        tells_absent: bool = False,
    ) -> Iterator[Piece]:
        """Yield the rows, in the same pieces on each read.

        ``columns`` are the table's columns, to which text is cast; the file need not have all. Other formats keep their
        own types. ``row_groups`` selects row groups of a Parquet file, None all. Columns that are ``overlooked`` are
        left out, unless the table has them. With ``tells_absent`` pieces tell which rows lack a column.

        Raises:
            InvalidArgumentError: the file does not have its format, or has text in a column that the table lacks.
        """
        known = {column.name: column for column in columns}
        wanted = _Wanted(known, overlooked, row_groups, batch_rows, tells_absent)
        return _told(self, wanted)

    def _open(self) -> pa.NativeFile:
        return self.files.open_input_file(self.path)

    def _stream(self) -> pa.NativeFile:
        return self.files.open_input_stream(self.path, compression=self.compression)

    def __str__(self) -> str:
        return self.name or self.path


def input_files(
    places: Place | InputFile | Sequence[Place | InputFile], options: ReadOptions | None = None
) -> list[InputFile]:
    """Return the files to load at paths or URIs, those of folders in path order. Files and folders in them whose
    names begin with ``_`` or ``.`` are ignored.

    Raises:
        NotFoundError: there are no files.
        InvalidArgumentError: neither a file's suffix nor the options name a format.
    """
    chosen = options or ReadOptions()
    given = [places] if isinstance(places, str | Path | InputFile) else places
    found = [
        file for place in given for file in ([place] if isinstance(place, InputFile) else _at(Folder.at(place), chosen))
    ]
    if not found:
        raise NotFoundError("there are no files to read")
    return found


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file that a job may load, before anybody looks into it."""

    folder: Folder
    info: pafs.FileInfo

    @property
    def path(self) -> str:
        return self.info.path

    @property
    def name(self) -> str:
        """Its path with the kind of its file system, which identifies it."""
        return f"{self.folder.files.type_name}:{self.info.path}"

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.info.size

    @property
    def mtime(self) -> int:
        """Its modification time, in nanoseconds since 1970."""
        return self.info.mtime_ns or 0

    def is_same(self) -> bool:
        """Whether it is still there, as it was."""
        now = self.folder.files.get_file_info(self.info.path)
        return now.is_file and (now.size, now.mtime_ns) == (self.info.size, self.info.mtime_ns)

    def input_file(self, options: ReadOptions) -> InputFile:
        """Return the file to load. Raises InvalidArgumentError: neither its suffix nor the options name a format."""
        return _file(self.folder, self.info, options)


def seen_files(folder: Folder) -> list[SeenFile]:
    """Return the files that a job may load: those in a folder and below it, none if it does not exist. Files
    and folders whose names begin with ``_`` or ``.`` are ignored."""
    return [SeenFile(folder, info) for info in _files_in(folder, allow_not_found=True)]


def _files_in(folder: Folder, allow_not_found: bool = False) -> list[pafs.FileInfo]:
    infos = folder.files.get_file_info(pafs.FileSelector(folder.path, allow_not_found, recursive=True))
    return [each for each in infos if each.is_file and not is_hidden(each.path.removeprefix(folder.path))]


def _at(place: Folder, options: ReadOptions) -> list[InputFile]:
    info = place.files.get_file_info(place.path)
    if info.type == pafs.FileType.NotFound:
        raise NotFoundError(f"there is no file or folder {place}")
    if info.is_file:
        return [_file(place, info, options)]
    return [_file(place, each, options) for each in sorted(_files_in(place), key=lambda each: each.path)]


def _file(place: Folder, info: pafs.FileInfo, options: ReadOptions) -> InputFile:
    name, compression = format_of(info.path, options)
    if compression and name == "parquet":
        raise InvalidArgumentError(f"{info.path}: a Parquet file cannot be compressed as a whole; decompress it first")
    file = InputFile(place.files, info.path, info.size, info.mtime_ns or 0, name, compression, options)
    if name == "tsv":
        return replace(file, options=options.model_copy(update={"delimiter": options.delimiter or "\t"}))
    if name == "json" and not _readable(file, lambda: _is_array(file)):
        return replace(file, format="jsonl")
    return file


def _is_array(file: InputFile) -> bool:
    from .json_file import starts_an_array

    with file._stream() as stream:
        return starts_an_array(stream)


def _readable(file: InputFile, read: Callable[[], Made]) -> Made:
    try:
        return read()
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: InputFile, error: Exception) -> InvalidArgumentError:
    return InvalidArgumentError(f"{file} cannot be read: {str(error).partition(chr(10))[0]}")


def _told(file: InputFile, wanted: _Wanted) -> Iterator[Piece]:
    """Yield pieces; add the file's name to errors."""
    try:
        yield from _PIECES[file.format](file, wanted)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise _unreadable(file, error) from error
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{file}: {error.message}") from None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What to read of a file."""

    known: Mapping[str, ColumnSchema]
    overlooked: Callable[[str], bool]
    row_groups: Sequence[int] | None
    batch_rows: int
    tells_absent: bool

    def columns(self, names: Sequence[str]) -> list[ColumnSchema]:
        """Return the target columns for the columns of a text file.

        Raises:
            InvalidArgumentError: some have none.
        """
        if unknown := [name for name in names if name not in self.known and not self.overlooked(name)]:
            listed = ", ".join(list(self.known)[:20])
            raise InvalidArgumentError(f"the table has no column {', '.join(map(repr, unknown[:5]))}; it has {listed}")
        if twice := sorted({name for name in names if list(names).count(name) > 1}):
            raise InvalidArgumentError(f"columns must have different names; repeated: {', '.join(map(repr, twice))}")
        return [self.known[name] for name in names if name in self.known]


def _parquet(file: InputFile, wanted: _Wanted) -> Iterator[Piece]:
    import pyarrow.parquet as pq

    plain = pq.ParquetFile(file._open())
    groups = None if wanted.row_groups is None else list(wanted.row_groups)
    opened, names = opened_twice(plain, file._open, wanted.known)
    batches = opened.iter_batches(wanted.batch_rows, row_groups=groups)
    if not names:
        return _counted(file, batches, wanted)
    return _counted_with_bad(
        file, with_cut_rows(batches, plain.iter_batches(wanted.batch_rows, row_groups=groups, columns=names)), wanted
    )


def _csv(file: InputFile, wanted: _Wanted) -> Iterator[Piece]:
    from .csv_file import csv_names, csv_pieces

    with file._stream() as stream:
        columns = wanted.columns(csv_names(stream, file.options))
    return csv_pieces(file._stream(), file.options, columns)


def _json_lines(file: InputFile, wanted: _Wanted) -> Iterator[Piece]:
    from .json_file import line_pieces

    names = _columns_in(file, wanted)
    return line_pieces(file._stream(), wanted.known, wanted.overlooked, names, file.options.as_json)


def _json_array(file: InputFile, wanted: _Wanted) -> Iterator[Piece]:
    from .json_file import array_pieces

    names = _columns_in(file, wanted)
    return array_pieces(file._stream(), wanted.known, wanted.overlooked, names, file.options.as_json)


def _columns_in(file: InputFile, wanted: _Wanted) -> list[str] | None:
    """Return the columns of a JSON file; None if its pieces tell which rows lack one."""
    from .json_file import columns_in

    if wanted.tells_absent:
        return None
    with file._stream() as stream:
        return columns_in(stream, wanted.known, file.format == "json")


def _arrow(file: InputFile, wanted: _Wanted) -> Iterator[Piece]:
    return _counted(file, _arrow_batches(file), wanted)


def _arrow_batches(file: InputFile) -> pa.RecordBatchReader:
    """Return the batches of an Arrow file or stream; a compressed file is read into memory."""
    source = _stream_or_file(file)
    try:
        opened = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)
    batches = (opened.get_batch(number) for number in range(opened.num_record_batches))
    return pa.RecordBatchReader.from_batches(opened.schema, batches)


def _stream_or_file(file: InputFile) -> pa.NativeFile:
    if file.compression is None:
        return file._open()
    with file._stream() as stream:
        return pa.BufferReader(stream.read())


def _counted(file: InputFile, batches: Iterable[pa.RecordBatch], wanted: _Wanted) -> Iterator[Piece]:
    return _counted_with_bad(file, ((batch, {}) for batch in batches), wanted)


def _counted_with_bad(
    file: InputFile, batches: Iterable[tuple[pa.RecordBatch, Mapping[int, str]]], wanted: _Wanted
) -> Iterator[Piece]:
    """Yield batches as pieces; some rows of a batch are wrong, by position."""
    row = 0
    for batch, wrong in batches:
        left_out = [name for name in batch.schema.names if name not in wanted.known and wanted.overlooked(name)]
        rows = batch.drop_columns(left_out) if left_out else batch
        bad = [BadRow(row + at, None, why, python_rows(rows.slice(at, 1))[0]) for at, why in sorted(wrong.items())]
        if wrong:
            rows = rows.filter(pa.array([at not in wrong for at in range(batch.num_rows)]))
        yield Piece(with_json_text(rows) if file.options.as_json else rows, row, bad)
        row += batch.num_rows


def _parquet_schema(file: InputFile) -> pa.Schema:
    import pyarrow.parquet as pq

    with file._open() as opened:
        return pq.ParquetFile(opened).schema_arrow


def _csv_schema(file: InputFile) -> pa.Schema:
    from .csv_file import csv_schema

    with file._stream() as stream:
        return csv_schema(stream, file.options)


def _json_schema(file: InputFile) -> pa.Schema:
    from .json_file import json_schema

    with file._stream() as stream:
        return json_schema(stream, file.format == "json")


_PIECES: Mapping[str, Callable[..., Iterator[Piece]]] = {
    "parquet": _parquet,
    "csv": _csv,
    "tsv": _csv,
    "arrow": _arrow,
    "jsonl": _json_lines,
    "json": _json_array,
}
_SCHEMAS: Mapping[str, Callable[[InputFile], pa.Schema]] = {
    "parquet": _parquet_schema,
    "csv": _csv_schema,
    "tsv": _csv_schema,
    "arrow": lambda file: _arrow_batches(file).schema,
    "jsonl": _json_schema,
    "json": _json_schema,
}
