"""DiskRowSet: rows in a base file, sorted by encoded key, and the deltas made since."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy

import numpy as np

from ...schemas.errors import CorruptionError
from ...schemas.table.column import ColumnSchema
from ..aggregate.slot_pool import SlotPool
from ..cfile.cache import PageCache
from ..cfile.format import StreamKey
from ..cfile.reader import CFileReader
from ..cfile.stream import StreamReader
from ..cfile.zone_map import ZoneMap
from ..codecs.codec import BLOCK_ROWS
from ..delta import LIVE
from ..delta.run import DeltaRun
from ..delta.tracker import DeltaTracker
from ..filter.bound import BoundFilter
from ..filter.steps import has_steps
from ..fs.filesystem import FileSystem
from ..vectors.keys.key_bounds import KeyBounds
from ..vectors.keys.key_search import keys_from_bytes
from ..vectors.keys.keys import KeyEncoder, KeyVector, U64Keys, key_bytes, keys_less_equal, lower_bound, take_keys
from ..vectors.physical import PhysicalType, physical_of
from ..vectors.raw_cell import RawCell
from ..vectors.vector import FixedVector, Vector, as_bytes, conformed, zeros
from .base_file import KEY_INDEX, ROWS, ColumnsFile, RowsetMetadata
from .block_keys import place_in_block
from .key_filter import KEY_FILTER, SPLIT_BLOCK, KeyFilter, is_whole
from .key_search import search
from .liveness import LiveRows
from .location import ROWS_MAX
from .native.absent import absent_cells
from .native.cell_table import CellTable
from .native.morsel import read_morsel
from .native.morsel_column import ColumnBase
from .native.morsel_filter import Chosen, choose_rows
from .native.morsel_groups import fold_rows
from .native.page_rows import PageRows
from .native.row_columns import RowColumns
from .row_run import RowRun
from .rowset import RowSet

NEWEST = (1 << 63) - 1
"""A snapshot that sees everything."""
_PAGE_ROWS_MAX = 8


class DiskRowSet(RowSet):
    """An open base file with its deltas, and the files of columns that were rewritten since.

    Its files never change: a rewrite replaces it by a new DiskRowSet with the same rows in the same slot, which shares
    ``live`` and the memory stores.
    """

    base_is_own = True

    def __init__(
        self,
        rowset_id: int,
        slot: int,
        reader: CFileReader,
        path: str,
        key_columns: tuple[ColumnSchema, ...],
        encoder: KeyEncoder,
        born: int | None = None,
    ) -> None:
        self.rowset_id = rowset_id
        self.slot = slot
        self.path = path
        self.metadata = RowsetMetadata.model_validate(reader.metadata)
        self.min_key = bytes.fromhex(self.metadata.min_key)
        self.max_key = bytes.fromhex(self.metadata.max_key)
        self.born = born
        """The commit that inserted all rows; None if the deltas have each row's."""
        self.deltas = DeltaTracker(self.base_timestamp)
        self.live = LiveRows(self.metadata.row_count)
        self.durable_lsn = 0
        """Changes up to this log position are in files."""
        self._reader = reader
        self.is_far = reader.is_far
        """Whether its files are far away, so that it helps to `fetch` them."""
        self._columns: Mapping[int, ColumnsFile] = {}
        self._key_columns = key_columns
        self._encoder = encoder
        self._block_keys: KeyVector | None = None
        self._key_filter: KeyFilter | None = None
        self._page_rows: dict[RowColumns, PageRows] = {}
        self._has_live_stream = StreamKey(LIVE, "base") in reader.streams()
        self._check_row_counts()

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: str,
        rowset_id: int,
        slot: int,
        key_columns: tuple[ColumnSchema, ...],
        encoder: KeyEncoder,
        cache: PageCache,
        born: int | None = None,
        written_as: int | None = None,
    ) -> DiskRowSet:
        """Open the base file at ``path``; see CFileReader for ``written_as``. Raises CorruptionError when it is not
        what was written there."""
        reader = CFileReader.open(fs, path, rowset_id, cache, written_as)
        return cls(rowset_id, slot, reader, path, key_columns, encoder, born)

    def __len__(self) -> int:
        return self.metadata.row_count

    @property
    def base_timestamp(self) -> int:
        """The timestamp that the base shows, except for columns that were rewritten since."""
        return self.metadata.base_timestamp if self.born is None else self.born

    def bear(self, timestamp: int, lsn: int) -> None:
        """Set the commit that inserts all rows, before anybody reads them. The log has it at ``lsn``."""
        self.born, self.durable_lsn = timestamp, lsn
        self.deltas = DeltaTracker(timestamp)

    @property
    def reader(self) -> CFileReader:
        """The base file."""
        return self._reader

    @property
    def columns(self) -> Mapping[int, ColumnsFile]:
        """The base files of the columns that were rewritten since, by column id."""
        return self._columns

    @property
    def columns_files(self) -> list[ColumnsFile]:
        """The base files of the columns that were rewritten since, each once."""
        return list({file.file_id: file for file in self._columns.values()}.values())

    @property
    def column_ids(self) -> set[int]:
        """The columns with a base; others were added after the rows were written."""
        return {key.column_id for key in self._reader.streams() if key.role == "base"}.union(self._columns)

    @property
    def base_bytes(self) -> dict[int, int]:
        """Bytes of each column's base on disk, by column id."""
        return {column_id: self.base_stream(column_id).compressed_bytes for column_id in self.column_ids}

    def bytes_beside(self, column_ids: Collection[int]) -> int:
        """Return the bytes on disk, bases and deltas, of columns that are not among ``column_ids``: dropped ones."""
        readers = [*self._base_readers, *(file.reader for file in self.deltas.files)]
        streams = [reader.stream(key) for reader in readers for key in reader.streams()]
        kept = {LIVE, *column_ids}
        return sum(stream.compressed_bytes for stream in streams if stream.key.column_id not in kept)

    def superseded_bytes(self, column_ids: Collection[int]) -> int:
        """Return the bytes on disk of base cells, of columns among ``column_ids``, that were rewritten since."""
        current = {column_id: file.reader for column_id, file in self._columns.items() if column_id in column_ids}
        return sum(
            reader.stream(StreamKey(column_id, "base")).compressed_bytes
            for reader in (self._base_readers if current else [])
            for column_id, newest in current.items()
            if reader is not newest and StreamKey(column_id, "base") in reader
        )

    @property
    def _base_readers(self) -> list[CFileReader]:
        return [self._reader, *(file.reader for file in self.columns_files)]

    @property
    def size_bytes(self) -> int:
        """Bytes of the base files on disk."""
        return self._reader.size_bytes + sum(file.size_bytes for file in self.columns_files)

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all files: base and deltas."""
        return self.size_bytes + sum(file.size_bytes for file in self.deltas.files)

    def load_columns(self, columns: Mapping[int, ColumnsFile]) -> None:
        """Take over the base files of rewritten columns, before delta files, while the rowset opens."""
        for file in columns.values():
            is_of_another = file.metadata.rowset_id != self.rowset_id and file.reader.image.written_as is None
            if is_of_another or file.metadata.row_count != len(self):
                raise CorruptionError(file.path, 0, f"the file does not have columns of rowset {self.rowset_id}")
        self._columns = columns
        self.deltas = DeltaTracker(self.base_timestamp, base_timestamps(columns))

    def with_files(self, deltas: DeltaTracker, columns: Mapping[int, ColumnsFile] | None = None) -> DiskRowSet:
        """Return a rowset of the same rows with other files; ``deltas`` is a successor of this one's."""
        rowset = copy(self)
        rowset.deltas = deltas
        rowset._columns = self._columns if columns is None else columns
        rowset._page_rows = {}
        return rowset

    def without_birth(self) -> DiskRowSet:
        """Return a rowset with the same rows, as if they had always existed: for snapshots that see them all."""
        rowset = copy(self)
        rowset._page_rows = {}
        rowset.born = None
        return rowset

    def without_memory(self) -> DiskRowSet:
        """Return a rowset with the same files and no deltas in memory."""
        return self.with_files(self.deltas.without_memory())

    def has_base(self, column_id: int) -> bool:
        """Whether a column has base cells: not if it was added after the rows were written."""
        return column_id in self._columns or StreamKey(column_id, "base") in self._reader

    def base_stream(self, column_id: int) -> StreamReader:
        """Return the stream of a column's base cells, which must exist."""
        file = self._columns.get(column_id)
        return (file.reader if file else self._reader).stream(StreamKey(column_id, "base"))

    def row_count(self, snapshot: int) -> int:
        return 0 if self.born is not None and snapshot < self.born else self.metadata.row_count

    def key_bounds(self, snapshot: int) -> KeyBounds | None:
        return (self.min_key, self.max_key) if self.row_count(snapshot) else None

    def births(self, first: int, last: int) -> DeltaRun | None:
        if self.born is None:
            return None
        rowids = np.arange(first, last, dtype=np.int32)
        return DeltaRun(rowids, np.full(last - first, self.born, np.int64), zeros(PhysicalType.BOOL, last - first))

    def is_changed(self, after: int, until: int) -> bool:
        return (self.born is not None and after < self.born <= until) or super().is_changed(after, until)

    def base(self, column: ColumnSchema, first: int, last: int) -> Vector:
        if not self.has_base(column.id):
            return absent_cells(column, last - first)
        return conformed(self.base_stream(column.id).read(first, last), physical_of(column.logical.arrow))

    def base_at(self, column: ColumnSchema, rows: np.ndarray) -> Vector:
        if not self.has_base(column.id):
            return absent_cells(column, len(rows))
        return conformed(self.base_stream(column.id).gather(rows), physical_of(column.logical.arrow))

    def read_many(
        self, columns: Sequence[ColumnSchema], first: int, last: int, snapshot: int, as_strings: bool = False
    ) -> list[Vector]:
        if first == last:
            return super().read_many(columns, first, last, snapshot)
        if self.is_far:
            self.fetch([column.id for column in columns], [(first, last)])
        wanted = self._bases(columns, first, last, snapshot)
        return read_morsel(wanted, first, last, as_strings, lambda column: self.read(column, first, last, snapshot))

    def choose(
        self,
        bound: BoundFilter,
        columns: Sequence[ColumnSchema],
        first: int,
        last: int,
        snapshot: int,
        among: np.ndarray | None,
    ) -> Chosen | None:
        if not has_steps(bound):
            return None
        if self.is_far:
            self.fetch([column.id for column in columns], [(first, last)])
        return choose_rows(bound, self._bases(columns, first, last, snapshot), first, last, among)

    def fold(
        self,
        pool: SlotPool,
        where: BoundFilter | None,
        columns: Sequence[ColumnSchema],
        first: int,
        last: int,
        snapshot: int,
        among: np.ndarray | None,
    ) -> int | None:
        def zones_of(column_id: int) -> list[ZoneMap]:
            return self.zone_maps(column_id, first, last)

        wanted = {column.id: column for column in (*pool.plan.columns, *columns)}
        if self.is_far:
            self.fetch(wanted, [(first, last)])
        bases = self._bases(wanted.values(), first, last, snapshot)
        return fold_rows(pool, where, bases, zones_of, first, last, among)

    def fetch(self, column_ids: Collection[int], spans: Collection[tuple[int, int]], as_stored: bool = False) -> None:
        """Begin to fetch the base cells of columns in rows [first, last), at least one, of each of ``spans``, as far as
        the page cache does not have them; with ``as_stored`` all pages. What is fetched together takes fewer
        requests."""
        by_file: dict[CFileReader, list[tuple[int, int]]] = {}
        for column_id in (*column_ids, LIVE) if self._has_live_stream else column_ids:
            if self.has_base(column_id):
                file, stream = self._columns.get(column_id), self.base_stream(column_id)
                ranges = by_file.setdefault(file.reader if file else self._reader, [])
                ranges.extend(place for first, last in spans for place in stream.ranges(first, last, as_stored))
        for reader, ranges in by_file.items():
            reader.fetch(ranges)

    def _bases(self, columns: Iterable[ColumnSchema], first: int, last: int, snapshot: int) -> list[ColumnBase]:
        """Return columns with their bases and what brings these to a snapshot."""
        return [
            (
                column,
                self.base_stream(column.id) if self.has_base(column.id) else None,
                self.deltas.patches(column.id, first, last, snapshot),
            )
            for column in columns
        ]

    def base_live(self, first: int, last: int) -> np.ndarray | None:
        if not self._has_live_stream:
            return None
        cells = self.base_stream(LIVE).read(first, last)
        assert isinstance(cells, FixedVector)
        return cells.values.astype(np.bool_)

    def base_live_at(self, rows: np.ndarray) -> np.ndarray | None:
        if not self._has_live_stream:
            return None
        cells = self.base_stream(LIVE).gather(rows)
        assert isinstance(cells, FixedVector)
        return cells.values.astype(np.bool_)

    def raw_cells(self, row: int, snapshot: int, columns: RowColumns) -> list[RawCell] | None:
        reader = self._page_rows_of(columns)
        return None if snapshot < reader.newest_base else reader.read(row)

    def read_base(self, table: CellTable, rows: np.ndarray, positions: np.ndarray, snapshot: int) -> set[int]:
        left = self._page_rows_of(table.columns).read_into(table, rows, positions)
        if self.born is not None and snapshot < self.born:
            left.add(len(table.columns.ids))
        return left

    def _page_rows_of(self, columns: RowColumns) -> PageRows:
        reader = self._page_rows.get(columns)
        if reader is None:
            if len(self._page_rows) >= _PAGE_ROWS_MAX:
                self._page_rows.clear()
            reader = self._page_rows[columns] = self._new_page_rows(columns)
        return reader

    def key_cells(self, row: int, key: RowColumns, may_wait: bool = True) -> list[RawCell]:
        """Return the raw cells of the ``key`` columns of a row. Raises as ``PageRows.read``."""
        return self._page_rows_of(key).read(row, may_wait)[:-1]

    def _new_page_rows(self, columns: RowColumns) -> PageRows:
        streams = [self.base_stream(number) if self.has_base(number) else None for number in columns.ids]
        live = self.base_stream(LIVE) if self._has_live_stream else None
        bases = [self.deltas.base_timestamp(number) for number in (*columns.ids, LIVE)]
        rows = None
        if ROWS in self._reader and self._columns.keys().isdisjoint(columns.ids):
            rows = self._reader.stream(ROWS)
        return PageRows(columns, [*streams, live], max(*bases, self.born or 0), self.reader, rows)

    def keys_at(self, rows: np.ndarray) -> KeyVector:
        if not (rows % BLOCK_ROWS).any():
            return take_keys(self._first_keys(), rows // BLOCK_ROWS)
        return self._encoder.encode([self.base_at(column, rows) for column in self._key_columns])

    def keys_in(self, first: int, last: int) -> KeyVector:
        return self._encoder.encode([self.base(column, first, last) for column in self._key_columns])

    def find(self, keys: KeyVector, hashes: np.ndarray) -> np.ndarray:
        # Needs no index in memory. Most absent keys cost only a look into the Bloom filter.
        rows = np.full(len(keys), -1, np.int64)
        may_be_here = np.flatnonzero(self._may_hold(keys, hashes))
        if len(may_be_here):
            part = keys if len(may_be_here) == len(keys) else take_keys(keys, may_be_here)
            rows[may_be_here] = search(self, self._first_keys(), part)
        return rows

    def _may_hold(self, keys: KeyVector, hashes: np.ndarray) -> np.ndarray:
        """Return for each key whether it may be here: by its place in the key order, then by the filter."""
        near = keys_less_equal(keys, self.max_key)
        if isinstance(keys, U64Keys):
            near &= keys.values >= np.uint64(int.from_bytes(self.min_key, "big"))
        key_filter = self.key_filter
        if key_filter is None or not near.any():
            return near
        return near & key_filter.may_hold(hashes)

    @property
    def key_filter(self) -> KeyFilter | None:
        """The Bloom filter of the keys; None if the file has none, or one of an unknown kind."""
        if self._key_filter is None and self.metadata.key_filter == SPLIT_BLOCK:
            self._key_filter = KeyFilter(self._reader.stream(KEY_FILTER))
        return self._key_filter

    def key_order(self, first: int, last: int) -> np.ndarray | None:
        return None

    def row_range(self, lower: bytes | None, upper: bytes | None) -> tuple[int, int]:
        rows = self.metadata.row_count
        if (lower is not None and lower > self.max_key) or (upper is not None and upper <= self.min_key):
            return 0, 0
        blocks = self._first_keys()
        # A key followed by a zero byte is the least one after it.
        first = 0 if lower is None else max(lower_bound(blocks, lower + b"\0") - 1, 0) * BLOCK_ROWS
        last = rows if upper is None else min(lower_bound(blocks, upper) * BLOCK_ROWS, rows)
        return first, last

    def exact_range(self, lower: bytes | None, upper: bytes | None) -> tuple[int, int]:
        """Return the range of exactly the rows with keys in [lower, upper)."""
        first, last = self.row_range(lower, upper)
        if lower is not None and lower > self.min_key and first < last:
            first = place_in_block(self, first // BLOCK_ROWS, lower, self._reader)
        if upper is not None and upper <= self.max_key and first < last:
            last = max(first, place_in_block(self, (last - 1) // BLOCK_ROWS, upper, self._reader))
        return first, last

    def runs(self, lower: bytes | None, upper: bytes | None) -> list[RowRun]:
        first, last = self.exact_range(lower, upper)
        if first >= last:
            return []
        return [RowRun(self, first, last, max(self.min_key, lower or b""), above=self._key_above)]

    def _key_above(self, row: int) -> bytes:
        block = -(-row // BLOCK_ROWS)
        return self.first_key(block) if block < self._block_count else self.max_key + b"\0"

    def first_key(self, block: int) -> bytes:
        """Return the key of the first row of a mini-block."""
        return key_bytes(self._first_keys(), block)

    def rows_below(self, key: bytes) -> int:
        """Return how many rows surely have keys below ``key``, in whole mini-blocks unless all have."""
        if key > self.max_key:
            return len(self)
        return max(lower_bound(self._first_keys(), key) - 1, 0) * BLOCK_ROWS

    def zone_maps(self, column_id: int, first: int, last: int) -> list[ZoneMap]:
        if not self.has_base(column_id):
            return []
        stream = self.base_stream(column_id)
        return stream.zone_maps[stream.page_of(first) : stream.page_of(last - 1) + 1] if first < last else []

    @property
    def row_bytes(self) -> dict[int, float]:
        rows = self.metadata.row_count
        return {column_id: self.base_stream(column_id).raw_bytes / rows for column_id in self.column_ids}

    def load_liveness(self) -> None:
        """Bring ``live`` to the newest state of the files and memory stores."""
        alive = self.live_in(0, len(self), NEWEST)
        if alive is not None:
            self.live.load(alive)

    def check_files(self, seconds: float = 0) -> None:
        """Check that all files still exist with their full size. A file is not asked twice within ``seconds``.

        Raises:
            CorruptionError: one is gone, or was cut short.
            UnreadableFileError: the disk reports an error.
        """
        self._reader.check(seconds)
        for file in (*self.columns_files, *self.deltas.files):
            file.reader.check(seconds)

    def close(self) -> None:
        """Close the files; memory that views still use stays until they are dropped."""
        self._reader.close()
        for file in self.columns_files:
            file.close()
        self.deltas.close()

    def _first_keys(self) -> KeyVector:
        """Return the first key of each mini-block."""
        if self._block_keys is None:
            cells = as_bytes(self._reader.stream(KEY_INDEX).read(0, self._block_count))
            try:
                self._block_keys = keys_from_bytes(cells, self._encoder.width)
            except ValueError as error:
                raise CorruptionError(self.path, 0, f"stream {KEY_INDEX}: {error}") from error
        return self._block_keys

    @property
    def _block_count(self) -> int:
        return -(-self.metadata.row_count // BLOCK_ROWS)

    def _check_row_counts(self) -> None:
        if len(self) > ROWS_MAX:
            raise CorruptionError(self.path, 0, f"it has {len(self):,} rows, and at most {ROWS_MAX:,} are possible")
        for key in self._reader.streams():
            if key == KEY_FILTER:
                continue
            rows = self._block_count if key == KEY_INDEX else self.metadata.row_count
            if self._reader.stream(key).row_count != rows:
                raise CorruptionError(self.path, 0, f"stream {key} does not hold {rows} rows")
        found = self._reader.stream(KEY_FILTER) if KEY_FILTER in self._reader else None
        if self.metadata.key_filter == SPLIT_BLOCK and (found is None or not is_whole(found)):
            raise CorruptionError(self.path, 0, f"stream {KEY_FILTER} is not the key filter that the footer names")


def base_timestamps(columns: Mapping[int, ColumnsFile]) -> dict[int, int]:
    """Return the timestamp that the base of each rewritten column of a rowset shows."""
    return {column_id: file.metadata.base_timestamp for column_id, file in columns.items()}
