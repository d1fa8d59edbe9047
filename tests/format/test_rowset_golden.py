"""Golden bytes of a flushed rowset: its base, UNDO and REDO file and a record of the log, each also in words.

A change here is a change of the format: files of released versions must open all the same.
"""

import hashlib
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.cfile.describe import describe
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.record.change import ROW_FORM_MAX, Change, ChangeKind, pack_record
from nyala.engine.record.logged_rows import unpack_changes
from nyala.engine.record.parts import parts_of_payload
from nyala.engine.store import Store
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition
from tests.doubles.clock import ManualClock

SCHEMA = pa.schema([pa.field("k", pa.int32(), False), ("v", pa.int64()), ("s", pa.string())])
ENCODINGS = {"k": {"encoding": "bitshuffle"}, "v": {"encoding": "bitshuffle"}, "s": {"encoding": "dictionary"}}
OPTIONS = StoreOptions(maintenance="off")


@pytest.fixture(scope="module")
def disk() -> MemoryFileSystem:
    """Rows 1 to 3 are stored, row 3 dies, row 2 changes; flush; row 1 changes; flush of the deltas."""
    fs, clock = MemoryFileSystem(), ManualClock(microseconds=1_000_000)
    store = Store.open(fs, OPTIONS, clock=clock)
    store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"], ENCODINGS))
    write(store, "insert", k=[3, 1, 2], v=[30, None, 20], s=["c", "a", None])
    write(store, "delete", k=[3])
    write(store, "upsert", k=[2], v=[21])
    store.maintain("t", "flush")
    clock.advance(1_000_000)
    write(store, "upsert", k=[1], v=[11], s=["aa"])
    store.maintain("t", "flush_deltas")
    store.close()
    return fs


def write(store: Store, op: str, **columns: list[Any]) -> None:
    arrays = [pa.array(cells, SCHEMA.field(name).type) for name, cells in columns.items()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    assert store.write(WriteCommand(table="t", op=Operation(op)), batch).applied == batch.num_rows


def in_words(disk: MemoryFileSystem, path: str) -> list[str]:
    """Return one line a stream: column, role, type, cells, encoding, bounds."""
    streams = describe(disk, path)["streams"]
    return [
        f"{stream['column_id']} {stream['role']}: {stream['physical']} {stream['row_count']} "
        f"{'/'.join(stream['encodings'])} {_bounds(stream['pages'][0]['zone'])}"
        for stream in streams
    ]


def _bounds(zone: dict[str, Any] | None) -> str:
    return "-" if zone is None else f"{zone['min']}..{zone['max']}"


FILES = {
    "tablets/2/3.base": (
        "9e182fc2b59ee21a0328f460c1da6756995fbe8b0c9e9a79a438347b2bf83bea",
        [  # as of the flush: row 2 (key 3) is dead, row 1 (key 2) has its new v
            "1 base: int32 3 bitshuffle 1..3",
            "2 base: int64 3 bitshuffle 21..30",
            "3 base: bytes 3 dictionary a..c",
            "0 base: bool 3 run_length 0..1",
            "0 key_index: bytes 1 plain -",
            "0 key_filter: int64 4 plain -",  # one block of 256 bits
        ],
    ),
    "tablets/2/4.undo": (
        "644be672f77512221c4a8e1ce1047f9afad19de612dc054c4b5af36b303c3683",
        [  # three births and a death, and what v was before
            "0 value: bool 4 run_length -",
            "0 rowid: int32 4 plain 0..2",
            "0 timestamp: int64 4 run_length 4096000000..4096000001",
            "2 value: int64 1 bitshuffle -",
            "2 rowid: int32 1 plain 1..1",
            "2 timestamp: int64 1 plain 4096000002..4096000002",
        ],
    ),
    "tablets/2/5.redo": (
        "119106786490d6eafd556d655ead11a72a6bcfb5b61e7c5996e747b150863eb0",
        [
            "2 value: int64 1 bitshuffle -",
            "2 rowid: int32 1 plain 0..0",
            "2 timestamp: int64 1 plain 8192000000..8192000000",
            "3 value: bytes 1 dictionary -",
            "3 rowid: int32 1 plain 0..0",
            "3 timestamp: int64 1 plain 8192000000..8192000000",
        ],
    ),
}
METADATA = [
    {"row_count": 3, "min_key": "80000001", "max_key": "80000003", "base_timestamp": 4096000002, "schema_version": 1}
    | {"key_filter": 1},
    {"rowset_id": 3, "first_timestamp": 4096000000, "last_timestamp": 4096000002, "deltas": {"0": 4, "2": 1}},
    {"rowset_id": 3, "first_timestamp": 8192000000, "last_timestamp": 8192000000, "deltas": {"2": 1, "3": 1}},
]
"""Timestamps: 1,000,000 microseconds << 12, and one more for each commit; the last one a second later."""


@pytest.mark.parametrize("path", FILES)
def test_files_hold_these_bytes(disk: MemoryFileSystem, path: str) -> None:
    digest, words = FILES[path]
    assert in_words(disk, path) == words
    footer = describe(disk, path)["footer"]["offset"]  # a long footer is compressed, by any version of zstd
    content = bytes(disk.open(path).view())[:footer]
    assert hashlib.sha256(content).hexdigest() == digest


def test_metadata_says_when_and_where(disk: MemoryFileSystem) -> None:
    for path, expected in zip(FILES, METADATA, strict=True):
        assert expected.items() <= describe(disk, path)["metadata"].items()


def test_the_files_read_as_every_snapshot_saw_them(disk: MemoryFileSystem) -> None:
    with Store.open(disk.crash_image(Random(0)), OPTIONS, clock=ManualClock(microseconds=3_000_000)) as store:
        rows = store.scan(ScanSpec(table="t", ordered=True)).to_reader().read_all().to_pylist()
    assert rows == [{"k": 1, "v": 11, "s": "aa"}, {"k": 2, "v": 21, "s": None}]


ROWS = pa.record_batch({"1": pa.array([1], pa.int32()), "2": pa.array([None], pa.int64())})


def test_a_change_of_few_rows_in_the_log_is_these_bytes() -> None:
    header, rows = pack_record([Change(2, ChangeKind.UPDATE, ROWS)])
    #                              tablet     kind, form, filling  bytes of the rows that follow
    assert bytes(header) == bytes.fromhex("02000000 02 01 0000          2000000000000000")
    #                            columns  rows     ids               types end      row            filling
    assert bytes(rows) == bytes.fromhex("02000000 01000000 01000000 02000000 04 05 07000000 85010101000000 000000")


def test_a_change_of_many_rows_in_the_log_is_an_arrow_stream() -> None:
    (many,) = pa.Table.from_batches([ROWS] * (ROW_FORM_MAX + 1)).combine_chunks().to_batches()
    header, *parts = pack_record([Change(2, ChangeKind.UPDATE, many)])
    stream = b"".join(bytes(part) for part in parts)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, many.schema) as writer:
        writer.write_batch(many)
    assert stream == sink.getvalue().to_pybytes()
    assert bytes(header) == bytes.fromhex("02000000 02 00 0000") + len(stream).to_bytes(8, "little")
    assert pa.ipc.open_stream(stream).read_all().to_batches() == [many]


def test_an_arrow_stream_of_few_rows_is_read_too() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS.schema) as writer:
        writer.write_batch(ROWS)
    payload = bytes.fromhex("02000000 02 00 0000 9001000000000000") + sink.getvalue().to_pybytes()
    (change,) = unpack_changes(parts_of_payload(memoryview(payload), 1))
    assert change.rows == ROWS
