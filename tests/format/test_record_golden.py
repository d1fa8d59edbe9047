"""The bytes of a log record's payload, pinned: a change that moves one of them is a new format version."""

import pyarrow as pa
import pytest

from nyala.engine.commit.numbered_writes import Answered, Number, NumberedWrites, Ticket
from nyala.engine.commit.transaction_memory import CommittedTransaction, CommittedVersion, TransactionMemory, note_of
from nyala.engine.record.change import Attachment, Change, ChangeKind, pack_record
from nyala.engine.record.log_note import Note, NoteKind
from nyala.engine.record.logged_rows import unpack_changes
from nyala.engine.record.parts import Parts, parts_of_payload
from nyala.schemas.errors import CorruptionError
from nyala.schemas.rows.write import Durability, RowError, WriteResult

ANSWER = WriteResult(
    timestamp=0, rows=3, applied=2, error_count=1, errors=[RowError(row=1, code="NOT_FOUND", message="no")]
)
ANSWER_NOTE = (
    b"\x07\x00\x00\x00\x04\x00\x00\x00\x88\x00\x00\x00\x00\x00\x00\x00"
    b'{"writer":"load \\u00e9","seq":5,"answer":{"rows":3,"applied":2,"error_count":1,"errors":'
    b'[{"row":1,"code":"NOT_FOUND","message":"no"}]}}'
)
WRITERS_NOTE = (
    b"\x00\x00\x00\x00\x05\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00"
    b'{"writers":[{"table":7,"writer":"w","floor":4,"answers":'
    b'[{"seq":4,"lsn":9,"timestamp":4096,"answer":{"rows":1,"applied":1}}]}]}'
)
ATTACHED = b'\x03\x00\x00\x00\x06\x00\x00\x00\x20\x00\x00\x00\x00\x00\x00\x00{"rowset":17,"rows":1000000}'
ATTACHED_NUMBERED = (
    b'\x04\x00\x00\x00\x06\x00\x00\x00\x28\x00\x00\x00\x00\x00\x00\x00{"rowset":18,"rows":2,"last_auto_id":9}'
)
ROWS = pa.record_batch({"1": pa.array([1, 2], pa.int64())})


def parts_of(payload: bytes, lsn: int) -> Parts:
    return parts_of_payload(memoryview(payload), lsn)


def notes_of(payload: bytes, lsn: int) -> list[Note]:
    return [note for _, note in parts_of(payload, lsn).notes()]


def packed(*notes: Note) -> bytes:
    return b"".join(bytes(piece) for piece in pack_record([], notes))


def padded(pinned: bytes) -> bytes:
    return pinned + b" " * (-len(pinned) % 8)


def test_the_answer_to_a_write() -> None:
    ticket = Ticket(NumberedWrites(), Number(7, "load \u00e9", 5))
    assert packed(ticket.note(ANSWER)) == padded(ANSWER_NOTE)
    writers = NumberedWrites()
    (note,) = notes_of(padded(ANSWER_NOTE), 3)
    writers.restore(note, 3, 4096)
    found = writers.once(Number(7, "load \u00e9", 5), lambda ticket: None)
    assert isinstance(found, Answered)
    assert found.result(Durability.FSYNC) == ANSWER.model_copy(update={"timestamp": 4096})


def test_answers_logged_again() -> None:
    writers = NumberedWrites(answers_kept=1)
    for seq in (3, 4):
        Ticket(writers, Number(7, "w", seq)).keep(WriteResult(timestamp=0, rows=1, applied=1), 5 + seq, 1024 * seq)
    with writers.saved_before(99) as (note, _):
        assert note and packed(note) == padded(WRITERS_NOTE)
    again = NumberedWrites()
    (note,) = notes_of(padded(WRITERS_NOTE), 12)
    again.restore(note, 12, 8192)
    found = again.once(Number(7, "w", 4), lambda ticket: None)
    assert isinstance(found, Answered) and (found.lsn, found.timestamp) == (9, 4096)


def test_changes_and_notes_stand_side_by_side() -> None:
    payload = b"".join(
        bytes(piece) for piece in pack_record([Change(3, ChangeKind.DELETE, ROWS)], [Note(7, NoteKind.ANSWER, b"{}")])
    )
    header = b"\x03\x00\x00\x00\x03\x01\x00\x00" + (len(payload) - 40).to_bytes(8, "little")
    assert payload[:24] == b"\x07\x00\x00\x00\x04\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00{}      "
    assert payload[24:40] == header
    (change,) = unpack_changes(parts_of(payload, 1))
    assert (change.tablet_id, change.kind) == (3, ChangeKind.DELETE) and change.rows.equals(ROWS)
    assert [note.table_id for note in notes_of(payload, 1)] == [7]


def test_a_rowset_that_is_attached() -> None:
    plain = Attachment(tablet_id=3, rowset=17, rows=1_000_000)
    numbered = Attachment(tablet_id=4, rowset=18, rows=2, last_auto_id=9)
    payload = b"".join(bytes(piece) for piece in pack_record([], [], [plain, numbered]))
    assert payload == padded(ATTACHED) + padded(ATTACHED_NUMBERED)
    parts = parts_of(payload, 5)
    assert list(parts.attachments()) == [(0, plain), (0, numbered)]
    assert not list(unpack_changes(parts)) and not list(parts.notes())
    for body in (b"{}      ", b"[1]     ", b'{"rowset":0,"rows":1}   '):
        header = b"\x03\x00\x00\x00\x06\x00\x00\x00" + len(body).to_bytes(8, "little")
        with pytest.raises(CorruptionError, match="log record 5"):
            list(parts_of(header + body, 5).attachments())


TRANSACTION = (
    b"\x00\x00\x00\x00\x07\x00\x00\x00\x88\x00\x00\x00\x00\x00\x00\x00"
    b'{"transactions":[{"transaction":"load 1","rows":3,"applied":2,"ignored":1}],'
    b'"applications":[{"app_id":"query","app_version":12}]}'
)
TRANSACTIONS = (
    b"\x00\x00\x00\x00\x07\x00\x00\x00\xa8\x00\x00\x00\x00\x00\x00\x00"
    b'{"transactions":[{"transaction":"load 1","timestamp":4096,"rows":3,"applied":2,"ignored":1}],'
    b'"applications":[{"app_id":"query","app_version":12,"timestamp":4096}]}'
)


def test_a_transaction_and_transactions_logged_again() -> None:
    done = CommittedTransaction(transaction="load 1", rows=3, applied=2, ignored=1)
    assert packed(note_of(done, CommittedVersion(app_id="query", app_version=12))) == padded(TRANSACTION)
    for pinned in (padded(TRANSACTION), padded(TRANSACTIONS)):
        committed = TransactionMemory()
        (note,) = notes_of(pinned, 3)
        committed.restore(note, 3, 4096)
        assert committed.transaction("load 1") == done.model_copy(update={"timestamp": 4096})
        version = committed.version("query")
        assert version is not None and (version.app_version, version.timestamp) == (12, 4096)
        with committed.saved_before(3) as (nothing, _):
            assert nothing is None
        with committed.saved_before(4) as (again, positions):
            assert again is not None and packed(again) == padded(TRANSACTIONS)
            positions.append(9)
        with committed.saved_before(9) as (nothing, _):
            assert nothing is None


@pytest.mark.parametrize(
    "payload",
    [
        b"\x07\x00\x00\x00\x04\x00\x00",
        b"\x07\x00\x00\x00\x04\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00{}      ",
        b"\x07\x00\x00\x00\x63\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00{}      ",
    ],
    ids=["header cut", "too long", "unknown kind"],
)
def test_a_payload_that_was_never_written_is_corruption(payload: bytes) -> None:
    with pytest.raises(CorruptionError, match="log record 8"):
        list(unpack_changes(parts_of(payload, 8)))
