"""What the log holds of a change comes back as it was, and damage is named."""

import datetime
import struct
from collections.abc import Iterator
from decimal import Decimal
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from nyala.engine.record import logged_rows
from nyala.engine.record.change import ROW_FORM_MAX, Change, ChangeKind, pack_record
from nyala.engine.record.log_note import Note, NoteKind
from nyala.engine.record.parts import parts_of_payload
from nyala.engine.vectors.arrow import to_arrow
from nyala.schemas.errors import CorruptionError

ROWS = pa.record_batch({"1": pa.array([1, 2]), "3": pa.array(["a", None]), "12": pa.array([b"\0", b""])})


MANY = pa.Table.from_batches([ROWS] * ROW_FORM_MAX).combine_chunks().to_batches()[0]
SIZES = pytest.mark.parametrize("rows", [ROWS, MANY], ids=["few", "many"])


def unpack_changes(payload: memoryview, lsn: int) -> Iterator[Change]:
    return logged_rows.unpack_changes(parts_of_payload(payload, lsn))


def payload(*changes: Change) -> memoryview:
    return memoryview(b"".join(bytes(piece) for piece in pack_record(changes)))


@SIZES
def test_changes_come_back_in_their_order(rows: pa.RecordBatch) -> None:
    changes = [Change(7, ChangeKind.STORE, rows), Change(8, ChangeKind.DELETE, rows.select(["1"]))]
    found = list(unpack_changes(payload(*changes), lsn=5))
    assert [(each.tablet_id, each.kind) for each in found] == [(7, ChangeKind.STORE), (8, ChangeKind.DELETE)]
    assert [each.rows.cast(change.rows.schema) for each, change in zip(found, changes, strict=True)] == [
        each.rows for each in changes
    ]
    assert found[0].column_ids == [1, 3, 12]


def test_few_rows_of_every_type_come_back_in_row_encoding() -> None:
    day, moment = datetime.date(1969, 1, 2), datetime.datetime(9999, 1, 1, 1, 2, 3, 4)
    columns = [
        pa.array([True, None, False]),
        pa.array([-128, None, 127], pa.int8()),
        pa.array([-(1 << 15), 7, None], pa.int16()),
        pa.array([day, None, day], pa.date32()),
        pa.array([moment, None, moment], pa.timestamp("us")),
        pa.array([Decimal("-1.25"), None, Decimal("9999999.99")], pa.decimal128(9, 2)),
        pa.array([Decimal("1.5"), None, Decimal(10**15)], pa.decimal128(18, 1)),
        pa.array([Decimal(-(10**37)), None, Decimal(7)], pa.decimal128(38, 0)),
        pa.array([1.5, None, -0.0], pa.float32()),
        pa.array([float("inf"), None, -0.0]),
        pa.array(["", None, "Zeb\0ra"]),
        pa.array([b"", None, b"\xff\0"]),
        pa.array([None, None, None], pa.string()),
    ]
    rows = pa.record_batch({str(300 + place): column for place, column in enumerate(columns)})
    (found,) = unpack_changes(payload(Change(7, ChangeKind.UPDATE, rows)), lsn=5)
    for column, cells in zip(columns, found.cells.values(), strict=True):
        assert to_arrow(cells, column.type).equals(column)
    assert found.column_ids == [int(name) for name in rows.schema.names]


def test_a_row_takes_a_fraction_of_an_arrow_stream() -> None:
    one = pa.record_batch({str(place): pa.array([place]) for place in range(1, 9)})
    assert len(payload(Change(1, ChangeKind.STORE, one))) < 160


@SIZES
def test_flipped_bits_in_a_change_are_told_or_harmless(rows: pa.RecordBatch) -> None:
    """The log's checksum finds them before; what comes here all the same must not end the process."""
    good, random, told = payload(Change(7, ChangeKind.UPDATE, rows)), Random(5), 0
    for _ in range(500):
        damaged = bytearray(good)
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        try:
            list(unpack_changes(memoryview(damaged), lsn=9))
        except CorruptionError as error:
            told += "log record 9" in str(error)
    assert told > 50


def test_an_empty_record_holds_no_change() -> None:
    assert list(unpack_changes(memoryview(b""), lsn=1)) == []


@pytest.mark.parametrize("end", [1, 15, 17, 60, -1])
def test_a_record_that_is_cut_short_is_corrupt(end: int) -> None:
    with pytest.raises(CorruptionError, match="log record 9"):
        list(unpack_changes(payload(Change(7, ChangeKind.UPDATE, ROWS))[:end], lsn=9))


def test_an_unknown_kind_is_corrupt() -> None:
    damaged = bytearray(payload(Change(7, ChangeKind.UPDATE, ROWS)))
    damaged[4] = 200
    with pytest.raises(CorruptionError, match="log record 9"):
        list(unpack_changes(memoryview(damaged), lsn=9))


def test_an_unknown_form_is_corrupt() -> None:
    damaged = bytearray(payload(Change(7, ChangeKind.UPDATE, ROWS)))
    damaged[5] = 2
    with pytest.raises(CorruptionError, match="form of a change is unknown: 2"):
        list(unpack_changes(memoryview(damaged), lsn=9))


def test_counts_of_cells_that_take_no_bytes_are_corrupt_and_not_allocated() -> None:
    """Nothing but NULLs: all of it is there and adds up, and the cells would take terabytes."""
    count = 1 << 20
    ids, types = np.arange(count, dtype="<u4").tobytes(), bytes([5]) * count
    ends = np.arange(2, 2 * count + 2, 2, dtype="<u4").tobytes()
    body = struct.pack("<II", count, count) + ids + types + ends + b"\x85\0" * count
    record = struct.pack("<IBBxxQ", 7, ChangeKind.STORE, 1, len(body)) + body
    with pytest.raises(CorruptionError, match="1048576 columns of 1048576 rows"):
        list(unpack_changes(memoryview(record), lsn=9))


def test_a_length_beyond_the_record_is_corrupt() -> None:
    damaged = bytearray(payload(Change(7, ChangeKind.UPDATE, ROWS)))
    damaged[15] = 1
    with pytest.raises(CorruptionError, match="log record 9"):
        list(unpack_changes(memoryview(damaged), lsn=9))


def test_notes_and_changes_of_a_record_do_not_get_in_each_others_way() -> None:
    change, note = Change(7, ChangeKind.UPDATE, ROWS), Note(3, NoteKind.ANSWER, b'{"seq":1}')
    record = memoryview(b"".join(bytes(piece) for piece in pack_record([change], [note])))
    (unpacked,) = unpack_changes(record, lsn=1)
    assert unpacked.rows.cast(ROWS.schema) == ROWS
    ((_, found),) = parts_of_payload(record, lsn=1).notes()
    assert (found.table_id, found.kind, found.body.rstrip()) == (3, NoteKind.ANSWER, note.body)
