"""Reads by keys whose rows are far larger than the keys: they come in pieces, and repeated keys count."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.table.key_reads import PIECE_BYTES_MAX
from nyala.engine.tablet import lookup
from nyala.partition import hash as by_hash
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.table.column import ColumnOptions
from tests.doubles.clock import ManualClock

KIB = 1 << 10
LONG = 60 * KIB
MEMORY = StoreOptions(maintenance="off", wal_segment_bytes=1 << 20)
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("text", pa.string()), ("number", pa.int32())])
WAYS = ("natively", "located", "gathered")


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(MemoryFileSystem(), MEMORY) as store:
        yield store


def texts(number: int) -> str | None:
    """Rows 0 to 9 are long, of the others each ninth has no text, and the rest are short."""
    if number < 10:
        return chr(97 + number) * (LONG + number)
    return None if number % 9 == 0 else f"text {number}"


def filled(store: Store, encoding: str = "plain", buckets: int = 1, rows: int = 3_000) -> Table:
    parts = [by_hash("id", buckets=buckets)] if buckets > 1 else []
    options = {"text": ColumnOptions(encoding=encoding)}
    table = Database(store).create_table("t", SCHEMA, ["id"], parts, options)
    table.insert({"id": list(range(rows)), "text": [texts(n) for n in range(rows)], "number": list(range(rows))})
    return table


def keys_of(numbers: list[int]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64())], names=["id"])


def sizes(batches: Iterator[pa.RecordBatch]) -> list[tuple[int, int]]:
    return [(batch.num_rows, batch.nbytes) for batch in batches]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", ["memory", "plain", "dictionary", "fsst", "prefix"])
def test_a_key_given_a_thousand_times_is_answered_in_small_pieces(
    store: Store, way: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(store, "plain" if place == "memory" else place)
    if place != "memory":
        table.maintain("flush")
    take(monkeypatch, way)
    pieces = sizes(store.look_up("t", keys_of([3] * 1_000)).batches)
    assert sum(rows for rows, _ in pieces) == 1_000
    assert sum(size for _, size in pieces) > 1_000 * LONG
    assert max(size for _, size in pieces) <= PIECE_BYTES_MAX
    assert len(pieces) < 60, "pieces are not much smaller than they may be"


def take(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Let keys be read in one way only."""
    if way == "located":
        monkeypatch.setattr(lookup, "rows_of_keys", lambda *_: None)
    elif way == "gathered":
        monkeypatch.setattr(lookup, "KEYS_MAX", 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("buckets", [1, 3])
def test_pieces_have_the_rows_of_the_keys_in_their_order(
    store: Store, way: str, buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short rows, then long ones, then short ones; repeats and absent keys among them."""
    table = filled(store, buckets=buckets)
    table.maintain("flush")
    table.update({"id": [5, 700], "number": [-5, -700]})
    numbers = [*range(2_000), *[n % 10 for n in range(300)], 99_999, *range(2_999, 1_000, -1), 5, 5, 700]
    take(monkeypatch, way)
    batches = list(store.look_up("t", keys_of(numbers)).batches)
    assert max(batch.nbytes for batch in batches) <= PIECE_BYTES_MAX
    rows = pa.Table.from_batches(batches).to_pylist()
    changed = {5: -5, 700: -700}
    assert rows == [{"id": n, "text": texts(n), "number": changed.get(n, n)} for n in numbers if n < 3_000]
    assert table.get_many(pa.array(numbers)).to_pylist() == rows
    assert pa.Table.from_batches(table.get_batches(numbers)).to_pylist() == rows


def test_a_row_larger_than_a_piece_comes_alone(store: Store) -> None:
    fields = [pa.field("id", pa.int64(), False), *[pa.field(f"c{i}", pa.string()) for i in range(50)]]
    table = Database(store).create_table("t", pa.schema(fields), ["id"])
    table.insert({"id": [1, 2]} | {f"c{i}": ["x" * LONG, "short"] for i in range(50)})
    pieces = sizes(store.look_up("t", keys_of([2, 1, 1, 2])).batches)
    assert sum(rows for rows, _ in pieces) == 4
    assert [rows for rows, size in pieces if size > PIECE_BYTES_MAX] == [1, 1]


def test_keys_without_rows_are_one_empty_piece_or_more(store: Store) -> None:
    filled(store)
    for numbers in ([], [99_999], [-1] * 50_000):
        stream = store.look_up("t", keys_of(numbers))
        assert stream.schema == SCHEMA
        assert all(rows == 0 for rows, _ in sizes(stream.batches))
    assert store.get("t", keys_of([])).schema == SCHEMA


def test_all_pieces_are_of_one_snapshot_even_when_history_is_short() -> None:
    time = ManualClock()
    with Store.open(MemoryFileSystem(), MEMORY, time) as store:
        table = filled(store)
        table.alter().set_option("history_max_age_seconds", 1).apply()
        stream = store.look_up("t", keys_of([1] * 200))
        first = next(stream.batches)
        table.update({"id": [1], "text": ["new"]})
        table.delete({"id": [1]})
        time.advance(60_000_000)
        for op in ("flush", "flush_deltas", "major_compact", "compact", "gc"):
            table.maintain(op)
        rest = list(stream.batches)
        assert first.num_rows + sum(batch.num_rows for batch in rest) == 200
        assert {text for batch in rest for text in batch["text"].to_pylist()} == {texts(1)}
        assert store.get("t", keys_of([1])).num_rows == 0


@pytest.mark.parametrize("alter", [lambda t: t.drop_column("number"), lambda t: t.add_column("more", pa.int8())])
def test_an_alteration_between_pieces_ends_the_read(store: Store, alter: Callable[..., object]) -> None:
    table = filled(store)
    stream = store.look_up("t", keys_of([1] * 200))
    next(stream.batches)
    alter(table.alter()).apply()  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UnavailableError, match="table 't' was altered during the read; repeat it"):
        list(stream.batches)


def test_options_and_names_may_change_between_pieces(store: Store) -> None:
    table = filled(store)
    stream = store.look_up("t", keys_of([1] * 200))
    first = next(stream.batches)
    table.alter().set_option("history_max_age_seconds", 60).rename("u").apply()
    assert first.num_rows + sum(batch.num_rows for batch in stream.batches) == 200


def test_what_is_wrong_is_told_before_the_first_piece(store: Store) -> None:
    filled(store)
    with pytest.raises(InvalidArgumentError):
        store.look_up("t", pa.record_batch([pa.array([1, None], pa.int64())], names=["id"]))


def test_a_read_that_is_dropped_lets_history_go(store: Store) -> None:
    filled(store)
    held = store._snapshots._held
    for read in (lambda stream: stream.close(), lambda stream: next(stream.batches) and stream.close(), id):
        stream = store.look_up("t", keys_of([1] * 200))
        assert held
        read(stream)
        del stream
        assert not held


def test_scans_of_long_rows_are_cut_too(store: Store) -> None:
    columns = {f"c{i}": pa.string() for i in range(20)}
    fields = [pa.field("id", pa.int64(), False), *[pa.field(name, kind) for name, kind in columns.items()]]
    table = Database(store).create_table("t", pa.schema(fields), ["id"])
    for first in range(0, 64, 16):
        ids = list(range(first, first + 16))
        table.insert({"id": ids} | {name: ["x" * LONG] * 16 for name in columns})
    table.maintain("flush")
    for where in (None, f"id IN ({', '.join(map(str, range(64)))})"):
        sizes_of_all = sizes(store.scan(ScanSpec(table="t", where=where)).batches)
        assert sum(rows for rows, _ in sizes_of_all) == 64
        assert max(size for _, size in sizes_of_all) <= 5 * MEMORY.scan_batch_bytes
