"""Pages that do not mix with other rowsets' are copied byte for byte, and every snapshot reads the same."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import nyala
from nyala.engine.cfile.footer import PageEntry
from nyala.engine.cfile.stream import StreamReader
from nyala.engine.codecs.codec import PAGE_ROWS
from nyala.engine.compaction import merge_rows
from nyala.engine.compaction.merge import compact
from nyala.engine.compaction.outputs import OutputWriter
from nyala.engine.fs import LocalFileSystem
from nyala.engine.recovery.verify import verify_store
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.vectors.keys.keys import hash_keys, slice_keys
from nyala.engine.vectors.vector import FixedVector
from nyala.schemas.errors import CorruptionError

MIXED = 3_000
ROWS = 3 * PAGE_ROWS + 7_000
COPIED = 3 + 2
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        ("v", pa.int32()),
        ("s", pa.string()),
        ("t", pa.string()),
        ("f", pa.float64()),
        ("n", pa.string()),
    ]
)


def rows(keys: np.ndarray) -> pa.Table:
    """Return rows with NULLs, strings that repeat, strings that do not, noise, and a column of NULLs alone."""
    mixed = keys * 2_654_435_761 % 1_000_003
    numbers = pa.array(mixed)
    return pa.table(
        [
            pa.array(keys),
            pa.array((mixed % 1_000).astype(np.int32), mask=mixed % 7 == 0),
            pc.binary_join_element_wise(pa.scalar("word"), pa.array(mixed % 50 + keys // 400_000).cast("string"), "-"),
            pc.binary_join_element_wise(pa.array(keys).cast("string"), numbers.cast("string"), "/"),
            pa.array(mixed / 7),
            pa.nulls(len(keys), pa.string()),
        ],
        schema=SCHEMA,
    )


def two_series(database: Any, **options: Any) -> Any:
    """Return a table of two rowsets that overlap at their ends, by ``MIXED`` keys on either side."""
    table = database.create_table("t", SCHEMA, primary_key=["k"], **options)
    keys = np.arange(2 * ROWS, dtype=np.int64) * 3
    is_late = (np.abs(np.arange(2 * ROWS) - ROWS) < MIXED) & (np.arange(2 * ROWS) % 2 == 0)
    is_first = (np.arange(2 * ROWS) < ROWS) ^ is_late
    for chosen in (is_first, ~is_first):
        table.insert(rows(keys[chosen]))
        table.maintain("flush")
    return table


def tablet_of(database: Any) -> Any:
    (tablet,) = database._store._catalog.table("t").tablets
    return tablet


def disk(database: Any) -> list[DiskRowSet]:
    return sorted(tablet_of(database).version.disk, key=lambda rowset: rowset.min_key)


def column_ids(database: Any) -> list[int]:
    return [column.id for column in tablet_of(database).schema.columns]


def merge(database: Any, target_rows: int = ROWS, **how: Any) -> None:
    """Merge into rowsets that may hold a little more than ``target_rows``."""
    tablet = tablet_of(database)
    with tablet.maintenance_lock:
        assert compact(tablet, database._store._environment, target_rows=2 * target_rows, **how)


@contextmanager
def counted_copies() -> Iterator[Counter[int]]:
    """Count the pages of each column that are copied."""
    counts: Counter[int] = Counter()
    copy = OutputWriter.copy_rows

    def counting(self: OutputWriter, column_id: int, stream: StreamReader, first: int) -> bool:
        is_copied = copy(self, column_id, stream, first)
        counts.update([column_id] if is_copied else [])
        return is_copied

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OutputWriter, "copy_rows", counting)
        yield counts


def pages(rowsets: Sequence[DiskRowSet], column_id: int) -> list[tuple[bytes, PageEntry]]:
    """Return a column's full pages, checksums left out, each with what the directory says of it but its place."""
    found: list[tuple[bytes, PageEntry]] = []
    for rowset in rowsets:
        stream, file = rowset.base_stream(column_id), rowset.reader.image.file
        for page in stream.entry.pages[: len(rowset) // PAGE_ROWS]:
            found.append((file.pread(page.offset + 4, page.length - 4), page.model_copy(update={"offset": 0})))
    return found


def copied(before: Sequence[DiskRowSet], after: Sequence[DiskRowSet], column_id: int) -> int:
    """Return how many full pages of a column are the same before and after, byte for byte and in the directory."""
    old = pages(before, column_id)
    return sum(page in old for page in pages(after, column_id))


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_rows, "LONG_RUN_PAGES", 2)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Any]:
    with nyala.open(str(tmp_path / "store"), maintenance="off") as database:
        yield database
    report = verify_store(LocalFileSystem(str(tmp_path / "store")))
    assert report.is_sound, report.problems


def test_pages_that_do_not_mix_are_copied(database: Any) -> None:
    table = two_series(database)
    expected, before = table.scan(ordered=True).to_arrow(), disk(database)
    with counted_copies() as copies:
        merge(database)
    after = disk(database)
    cut = len(before[0]) + PAGE_ROWS
    assert [len(rowset) for rowset in after] == [cut, 2 * ROWS - cut], "cut where pages can be copied"
    *with_cells, _ = column_ids(database)
    assert copies == Counter(dict.fromkeys(with_cells, COPIED)), "a page of NULLs alone has nothing to copy"
    for column_id in with_cells:
        assert copied(before, after, column_id) == COPIED
        assert {entry.zone is not None for _, entry in pages(after, column_id)} == {True}
    assert table.scan(ordered=True).to_arrow() == expected
    assert table.scan(where="s = 'word-7'").count() == expected.filter(pc.equal(expected["s"], "word-7")).num_rows
    some = expected.slice(ROWS - 50, 100)
    assert table.scan(where=pc.field("k").isin(some["k"])).to_arrow().sort_by("k") == some
    for rowset in after:
        assert rowset.key_filter is not None
        keys = rowset.keys_in(0, len(rowset))
        assert rowset.key_filter.may_hold(hash_keys(keys)).all()
        assert (rowset.find(slice_keys(keys, 60_000, 140_000), hash_keys(slice_keys(keys, 60_000, 140_000))) >= 0).all()


def test_small_outputs_are_not_cut_and_pages_out_of_step_not_copied(database: Any) -> None:
    table = two_series(database)
    expected = table.scan(ordered=True).to_arrow()
    with counted_copies() as copies:
        merge(database, target_rows=1 << 22, target_bytes=1 << 30)
    assert [len(rowset) for rowset in disk(database)] == [2 * ROWS]
    assert set(copies.values()) == {3}
    assert table.scan(ordered=True).to_arrow() == expected


def test_deltas_and_dead_rows_at_the_borders_of_pages(database: Any) -> None:
    table = two_series(database)
    moments = [database.now()]
    first, second = disk(database)
    edges = [0, PAGE_ROWS - 1, PAGE_ROWS]
    keys = [key for rowset in (first, second) for key in keys_at(rowset, edges)]
    table.update(pa.table({"k": keys, "v": pa.array(range(len(keys)), pa.int32())}))
    moments.append(database.now())
    table.maintain("flush_deltas")
    table.update(pa.table({"k": keys[2:4], "s": ["new", None]}))
    table.delete(pa.table({"k": keys_at(first, [2 * PAGE_ROWS]) + keys_at(second, [3 * PAGE_ROWS])}))
    moments.append(database.now())
    table.insert(rows(np.array(keys_at(first, [2 * PAGE_ROWS]))))
    expected = [snapshot(table, moment) for moment in [*moments, None]]
    with counted_copies() as copies:
        merge(database)
    names = {column.name: column.id for column in tablet_of(database).schema.columns}
    assert [snapshot(table, moment) for moment in [*moments, None]] == expected
    assert copies[names["k"]] == COPIED, "a row that only died, and a key, have no deltas of columns"
    assert copies[names["t"]] == copies[names["f"]] == COPIED - 1, "all of a row that was inserted again"
    assert copies[names["s"]] == COPIED - 2 and copies[names["v"]] == COPIED - 4
    merge(database, ancient_history_mark=database.now())
    assert snapshot(table, None) == expected[-1]


def test_rows_that_are_left_out_keep_their_page_from_being_copied(database: Any) -> None:
    table = two_series(database)
    first, _ = disk(database)
    table.delete(pa.table({"k": keys_at(first, [PAGE_ROWS + 5])}))
    expected = table.scan(ordered=True).to_arrow()
    with counted_copies() as copies:
        merge(database, ancient_history_mark=database.now())
    assert set(copies.values()) == {1 + 2}, "what comes after is out of step, up to the next output"
    assert sum(map(len, disk(database))) == 2 * ROWS - 1
    assert table.scan(ordered=True).to_arrow() == expected


def test_pages_of_another_schema_are_written_anew(database: Any) -> None:
    table = two_series(database)
    expected = table.scan(ordered=True).to_arrow()
    table.alter().set_compression("t", "lz4").apply()
    with counted_copies() as copies:
        merge(database)
    assert not copies
    with counted_copies() as copies:
        merge(database)
    assert copies
    assert table.scan(ordered=True).to_arrow() == expected


def test_a_damaged_page_is_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with nyala.open(str(path), maintenance="off") as database:
        two_series(database)
        rowset, names = disk(database)[0], {column.name: column.id for column in tablet_of(database).schema.columns}
        entry = rowset.base_stream(names["f"]).entry.pages[2]
        file = path / rowset.path
    data = bytearray(file.read_bytes())
    data[entry.offset + 1_000] ^= 4
    file.write_bytes(data)
    with nyala.open(str(path), maintenance="off") as database:
        with pytest.raises(CorruptionError, match="checksum"):
            merge(database)
        assert len(disk(database)) == 2, "nothing was replaced"


def keys_at(rowset: DiskRowSet, places: Sequence[int]) -> list[int]:
    """Return the keys of rows of a rowset."""
    cells = rowset.base_at(rowset._key_columns[0], np.array(places))
    assert isinstance(cells, FixedVector)
    return cells.values.tolist()


def snapshot(table: Any, moment: int | None) -> pa.Table:
    """Return all rows at a moment, in key order."""
    return table.scan(ordered=True, as_of=moment).to_arrow()
