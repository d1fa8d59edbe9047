"""A batch becomes the changes that are logged: only what is stored is made whole."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from nyala.schemas.errors import SnapshotTooOldError
from nyala.schemas.rows.write import WriteCommand
from tests.engine.subject import Subject, batch


def test_defaults_are_filled_in_for_rows_that_are_stored_only(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    subject.upsert(*range(1000), v=1, s="old")
    repeat, sizes = pa.repeat, []

    def counted(cell: Any, size: int) -> pa.Array:
        sizes.append(size)
        return repeat(cell, size)

    monkeypatch.setattr(pa, "repeat", counted)
    keys = pa.array([*range(1000), 2000, 5, 2000], pa.int64())
    rows = pa.record_batch(
        [keys, pa.array(range(1003), pa.int32())], schema=pa.schema([("k", pa.int64()), ("v", "int32")])
    )
    assert subject.store.write(WriteCommand(table="t"), rows).applied == 1003
    assert {*sizes} == {1}
    found = {row[0]: row for row in subject.scan()}
    assert found[2000] == (2000, 1002, None) and found[5] == (5, 1001, "old") and found[999] == (999, 999, "old")
    subject.store.close()


def test_a_condition_older_than_the_history_that_is_left_is_refused() -> None:
    subject = Subject()
    moment = subject.upsert(1).timestamp
    tablet = subject.tablet
    tablet.version = replace(tablet.version, history_floor=moment + 1)
    command = WriteCommand(table="t", if_timestamp=moment)
    with pytest.raises(SnapshotTooOldError, match="if_timestamp"):
        subject.store.write(command, batch([(1, 7, "")]))
    assert subject.scan() == [(1, 0, "s")]
    tablet.version = replace(tablet.version, history_floor=moment)
    assert subject.store.write(command, batch([(1, 7, "")])).applied == 1
    subject.store.close()
