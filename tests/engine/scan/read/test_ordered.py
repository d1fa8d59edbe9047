"""Ordered and pruned scans over overlapping rowsets of several pages each, in several chunks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from nyala.engine.codecs.codec import BLOCK_ROWS
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.scan.read import runs
from nyala.engine.store import Store
from nyala.engine.vectors.keys.keys import KeyEncoder
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition
from tests.engine.subject import SCHEMA, Subject

FAR = 1_000_000
ROWS = 70_000


def load(store: Store, keys: np.ndarray) -> None:
    """Write rows in an order that is not theirs: v is the key modulo 1,000, s its digits or NULL."""
    keys = np.random.default_rng(1).permutation(keys)
    texts = pa.array(keys).cast(pa.string())
    nulls = pa.array(keys % 7 == 0)
    cells = [pa.array(keys), pa.array(keys % 1000, pa.int32()), pc.if_else(nulls, None, texts)]
    store.write(WriteCommand(table="t"), pa.RecordBatch.from_arrays(cells, schema=SCHEMA))


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """Two rowsets whose keys interleave, a third far behind them, and rows in memory between all."""
    subject = Subject(scan_batch_bytes=1 << 16, wal_segment_bytes=1 << 22)
    store = subject.store
    for keys in (np.arange(ROWS) * 3, np.arange(ROWS) * 3 + 1, np.arange(ROWS) + FAR):
        load(store, keys)
        store.maintain("t", "flush")
    load(store, np.arange(0, ROWS, 10) * 3 + 2)
    yield store
    store.close()


ALL_KEYS = np.sort(
    np.concatenate(
        [np.arange(ROWS) * 3, np.arange(ROWS) * 3 + 1, np.arange(ROWS) + FAR, np.arange(0, ROWS, 10) * 3 + 2]
    )
)


def scan(store: Store, **spec: Any) -> pa.Table:
    return store.scan(ScanSpec(table="t", ordered=True, **spec)).to_reader().read_all()


def keys_of(table: pa.Table) -> list[int]:
    return table["k"].to_pylist()


def test_everything_comes_once_in_order(store: Store) -> None:
    rows = scan(store)
    assert np.array_equal(rows["k"].to_numpy(), ALL_KEYS)
    assert np.array_equal(rows["v"].to_numpy(), ALL_KEYS % 1000)
    texts = [None if key % 7 == 0 else str(key) for key in ALL_KEYS.tolist()]
    assert rows["s"].to_pylist() == texts


def test_an_unordered_scan_has_the_same_rows(store: Store) -> None:
    rows = store.scan(ScanSpec(table="t")).to_reader().read_all()
    assert np.array_equal(np.sort(rows["k"].to_numpy()), ALL_KEYS)


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ("k >= 65534 and k < 65540", lambda k: (k >= 65534) & (k < 65540)),
        ("k between 196607 and 196609", lambda k: (k >= 196607) & (k <= 196609)),
        ("k > 209990 and k < 1000003", lambda k: (k > 209990) & (k < FAR + 3)),
        ("k = 0", lambda k: k == 0),
        ("k > 1069998", lambda k: k > FAR + ROWS - 2),
        ("v = 999 and k < 6000", lambda k: (k % 1000 == 999) & (k < 6000)),
        ("s is null and k between 100 and 130", lambda k: (k % 7 == 0) & (k >= 100) & (k <= 130)),
        ("k < 0", lambda k: k < 0),
        ("k in (3, 4, 5, 65536, 1000000, 7777777)", lambda k: np.isin(k, [3, 4, 5, 65536, FAR])),
    ],
)
def test_ranges_across_the_ends_of_blocks_pages_and_rowsets(store: Store, where: str, chosen: Any) -> None:
    expected = ALL_KEYS[chosen(ALL_KEYS)].tolist()
    assert keys_of(scan(store, where=where)) == expected
    unordered = store.scan(ScanSpec(table="t", where=where)).to_reader().read_all()
    assert sorted(unordered["k"].to_pylist()) == expected


@pytest.mark.parametrize("limit", [0, 1, 1024, 65_536, 65_537, len(ALL_KEYS), len(ALL_KEYS) + 1])
def test_a_limit_takes_the_first(store: Store, limit: int) -> None:
    assert keys_of(scan(store, limit=limit, columns=["k"])) == ALL_KEYS[:limit].tolist()
    assert store.scan(ScanSpec(table="t", limit=limit, columns=[])).to_reader().read_all().num_rows == min(
        limit, len(ALL_KEYS)
    )


@pytest.mark.parametrize("first", [0, 1, 65_535, 65_536 * 3 - 1, 209_999, FAR - 1, FAR + 65_530])
@pytest.mark.parametrize("limit", [1, 50, 2_000])
def test_a_limit_takes_the_first_of_a_range(store: Store, first: int, limit: int) -> None:
    expected = ALL_KEYS[first <= ALL_KEYS][:limit]
    assert scan(store, where=f"k >= {first}", limit=limit)["v"].to_pylist() == (expected % 1000).tolist()
    some = ALL_KEYS[(first <= ALL_KEYS) & (ALL_KEYS % 1000 == 7)][:limit].tolist()
    assert keys_of(scan(store, where=f"k >= {first} AND v = 7", limit=limit)) == some
    spec = ScanSpec(table="t", where=f"k >= {first} AND v = 7", limit=limit)
    assert store.scan(spec).to_reader().read_all().num_rows == len(some)


def test_a_few_rows_from_a_key_on_decode_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Subject(wal_segment_bytes=1 << 22).store
    load(store, np.arange(ROWS))
    store.maintain("t", "flush")
    read: list[int] = []
    read_many = DiskRowSet.read_many

    def counted(self: DiskRowSet, columns: Any, first: int, last: int, *more: Any) -> Any:
        read.append(last - first)
        return read_many(self, columns, first, last, *more)

    monkeypatch.setattr(DiskRowSet, "read_many", counted)
    assert keys_of(scan(store, where="k >= 30000", limit=500)) == list(range(30_000, 30_500))
    assert read and sum(read) <= 4 * BLOCK_ROWS, read
    store.close()


def test_no_columns_still_count(store: Store) -> None:
    batches = store.scan(ScanSpec(table="t", ordered=True, columns=[])).batches
    assert sum(batch.num_rows for batch in batches) == len(ALL_KEYS)


def test_a_rowset_is_not_read_before_its_keys_are_due(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read, seen = runs.wanted_rows, set()

    def noted(chunk: Any, request: Any, cells: Any) -> Any:
        if isinstance(chunk.rowset, DiskRowSet):
            seen.add(chunk.rowset.min_key)
        return read(chunk, request, cells)

    monkeypatch.setattr(runs, "wanted_rows", noted)
    batches = store.scan(ScanSpec(table="t", ordered=True, columns=["v"])).batches
    next(batches)
    assert len(seen) == 2
    batches.close()  # pyright: ignore[reportAttributeAccessIssue]


def subject_of(*parts: np.ndarray, in_memory: np.ndarray | None = None) -> Subject:
    """Return a store whose table has a rowset on disk of each part, and rows in memory."""
    subject = Subject(scan_batch_bytes=1 << 12)
    for keys in parts:
        load(subject.store, keys)
        subject.store.maintain("t", "flush")
    if in_memory is not None:
        load(subject.store, in_memory)
    return subject


def keys_asked_for(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many keys scans have encoded, call by call."""
    encode, asked = KeyEncoder.encode, list[int]()

    def noted(self: KeyEncoder, columns: Any, overwrite: bool = False) -> Any:
        asked.append(len(columns[0]))
        return encode(self, columns, overwrite)

    monkeypatch.setattr(KeyEncoder, "encode", noted)
    return asked


THOUSAND = np.arange(1_000)


@pytest.mark.parametrize("in_memory", [None, THOUSAND + 9_000, THOUSAND + 3_500], ids=["none", "above", "between"])
def test_rowsets_that_overlap_no_other_are_read_without_their_keys(
    monkeypatch: pytest.MonkeyPatch, in_memory: np.ndarray | None
) -> None:
    parts = [THOUSAND + 5_000, THOUSAND + 1_000, THOUSAND + 2_500, THOUSAND * 2 + 7_000]
    subject = subject_of(*parts, in_memory=in_memory)
    expected = np.sort(np.concatenate([*parts, THOUSAND[:0] if in_memory is None else in_memory]))
    asked = keys_asked_for(monkeypatch)
    for columns in (["k", "v"], ["v"]):
        rows = scan(subject.store, columns=columns)
        assert rows["v"].to_pylist() == (expected % 1000).tolist()
    assert sum(asked) == (0 if in_memory is None else 2 * len(in_memory)), "rows in memory stand in no order"
    subject.store.close()


def test_rowsets_that_share_no_more_than_their_ends_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [THOUSAND * 2, THOUSAND * 2 + 1_997, THOUSAND * 2 + 3_994, THOUSAND + 50_000]
    subject = subject_of(*parts)
    asked = keys_asked_for(monkeypatch)
    expected = np.sort(np.concatenate(parts))
    assert keys_of(scan(subject.store)) == expected.tolist()
    assert sum(asked) == 3 * len(THOUSAND)
    subject.store.close()


def test_rowsets_outside_the_scanned_keys_overlap_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of(THOUSAND, THOUSAND * 5 + 500, THOUSAND + 7_000)
    asked = keys_asked_for(monkeypatch)
    rows = scan(subject.store, columns=["v"], where="k >= 4000")
    assert rows["v"].to_pylist() == [key % 1000 for key in [*range(4_000, 5_500, 5), *range(7_000, 8_000)]]
    assert not asked
    subject.store.close()


def test_a_scan_that_leaves_the_key_out_leaves_the_cells_alone() -> None:
    """Keys take the memory of cells that nobody puts out, and of no others: the filter, later scans, the cache."""
    subject = subject_of(THOUSAND * 2, THOUSAND * 2 + 1)
    keys = np.arange(100, 1_900)
    for columns in (["v"], ["k", "v"], ["s"]):
        for _ in range(2):
            rows = scan(subject.store, columns=columns, where="k >= 100 and k < 1900")
            assert rows.num_rows == len(keys)
            if "v" in columns:
                assert rows["v"].to_pylist() == (keys % 1000).tolist()
            if "k" in columns:
                assert keys_of(rows) == keys.tolist()
    subject.store.close()


def explained(store: Store, **spec: Any) -> dict[str, Any]:
    return store.plan(ScanSpec(table="t", **spec)).explain


def test_explain_counts_what_is_left_out(store: Store) -> None:
    whole = explained(store)
    assert (whole["rowsets"], whole["rows"], whole["rows_to_read"]) == (4, len(ALL_KEYS), len(ALL_KEYS))
    assert whole["chunks_pruned_by_zone_map"] == whole["rowsets_pruned_by_key_range"] == 0
    by_key = explained(store, where="k >= 1000000")
    assert by_key["rowsets_pruned_by_key_range"] == 2
    assert by_key["rows_to_read"] == ROWS + ROWS // 10
    by_value = explained(store, where="v > 5000")
    assert by_value["chunks_pruned_by_zone_map"] > 25
    assert by_value["rows_to_read"] == ROWS // 10, "the rows in memory have no zone maps"
    narrow = explained(store, where="k between 1000 and 1001")
    assert narrow["rows_to_read"] <= 2 * 1024 + ROWS // 10


def test_zone_maps_prune_until_a_delta_may_have_moved_the_cells() -> None:
    subject = Subject()
    keys = np.arange(2000)
    load(subject.store, keys)
    subject.store.maintain("t", "flush")
    before = subject.store.now()
    where = "v = 7777"
    assert explained(subject.store, where=where)["rows_to_read"] == 0
    subject.store.write(WriteCommand(table="t"), pa.record_batch({"k": [5], "v": pa.array([7777], pa.int32())}))
    for _ in range(2):
        assert explained(subject.store, where=where)["rows_to_read"] == 2000
        assert keys_of(scan(subject.store, where=where)) == [5]
        assert explained(subject.store, where="s = 'zzz'")["rows_to_read"] == 0, "another column is as it was"
        assert scan(subject.store, where=where, as_of=before).num_rows == 0
        subject.flush_deltas()
    subject.store.close()


def test_rows_of_bytes_keys_merge_in_the_order_of_their_bytes() -> None:
    subject = Subject(scan_batch_bytes=1 << 12)
    arrow = pa.schema([pa.field("a", pa.string(), False), pa.field("b", pa.int16(), False), ("v", pa.int64())])
    subject.store.create_table(TableDefinition.from_arrow("pairs", arrow, ["a", "b"]))
    random = np.random.default_rng(3)
    pairs = {("x" * int(n) + chr(int(c)), int(b)) for n, c, b in random.integers((0, 0, -9), (9, 300, 9), (9000, 3))}
    rows = list(pairs)
    for first in range(0, len(rows), 2500):
        part = rows[first : first + 2500]
        cells = [pa.array([row[0] for row in part]), pa.array([row[1] for row in part], pa.int16())]
        batch = pa.RecordBatch.from_arrays([*cells, pa.array(range(len(part)))], schema=arrow)
        subject.store.write(WriteCommand(table="pairs"), batch)
        if first < 5000:
            subject.store.maintain("pairs", "flush")
    found = subject.store.scan(ScanSpec(table="pairs", ordered=True, columns=["b", "a"])).to_reader().read_all()
    keys = list(zip(found["a"].to_pylist(), found["b"].to_pylist(), strict=True))
    assert keys == sorted(pairs, key=lambda pair: (pair[0].encode(), pair[1]))
    subject.store.close()
