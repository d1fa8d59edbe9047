"""What the log holds of a change comes back as it was, and damage is named."""

import pyarrow as pa
import pytest

from nyala.engine.tablet.change import Change, ChangeKind, pack_record, unpack_changes, unpack_notes
from nyala.engine.tablet.note import Note, NoteKind
from nyala.schemas.errors import CorruptionError

ROWS = pa.record_batch({"1": pa.array([1, 2]), "3": pa.array(["a", None]), "12": pa.array([b"\0", b""])})


def payload(*changes: Change) -> memoryview:
    return memoryview(b"".join(bytes(piece) for piece in pack_record(changes)))


def test_changes_come_back_in_their_order() -> None:
    changes = [Change(7, ChangeKind.STORE, ROWS), Change(8, ChangeKind.DELETE, ROWS.select(["1"]))]
    found = list(unpack_changes(payload(*changes), lsn=5))
    assert found == changes
    assert found[0].column_ids == [1, 3, 12]


def test_an_empty_record_holds_no_change() -> None:
    assert list(unpack_changes(memoryview(b""), lsn=1)) == []


@pytest.mark.parametrize("end", [1, 15, 17, 200, -1])
def test_a_record_that_is_cut_short_is_corrupt(end: int) -> None:
    with pytest.raises(CorruptionError, match="log record 9"):
        list(unpack_changes(payload(Change(7, ChangeKind.UPDATE, ROWS))[:end], lsn=9))


def test_an_unknown_kind_is_corrupt() -> None:
    damaged = bytearray(payload(Change(7, ChangeKind.UPDATE, ROWS)))
    damaged[4] = 200
    with pytest.raises(CorruptionError, match="log record 9"):
        list(unpack_changes(memoryview(damaged), lsn=9))


def test_a_length_beyond_the_record_is_corrupt() -> None:
    damaged = bytearray(payload(Change(7, ChangeKind.UPDATE, ROWS)))
    damaged[15] = 1
    with pytest.raises(CorruptionError, match="log record 9"):
        list(unpack_changes(memoryview(damaged), lsn=9))


def test_notes_and_changes_of_a_record_do_not_get_in_each_others_way() -> None:
    change, note = Change(7, ChangeKind.UPDATE, ROWS), Note(3, NoteKind.ANSWER, b'{"seq":1}')
    record = memoryview(b"".join(bytes(piece) for piece in pack_record([change], [note])))
    assert list(unpack_changes(record, lsn=1)) == [change]
    (found,) = unpack_notes(record, lsn=1)
    assert (found.table_id, found.kind, found.body.rstrip()) == (3, NoteKind.ANSWER, note.body)
