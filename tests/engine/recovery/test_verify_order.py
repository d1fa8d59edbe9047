"""Tables with an order: a delete of a row that is not there is a row that is born and dies in one commit."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.recovery.verify import verify_store
from nyala.schemas.rows.changes import ChangeSpec
from nyala.schemas.rows.write import WriteCommand
from tests.engine.offload.merge.merging import compact
from tests.engine.subject import Subject, batch

UPSERT = WriteCommand(table="t")


@pytest.mark.parametrize("work", ["flush", "compact", "outside"])
def test_deletes_that_leave_their_place_behind_are_sound(work: str) -> None:
    subject = Subject(table_options={"order_by": "v"})
    table = Database(subject.store).table("t")

    def delete(*keys: int, v: int) -> None:
        table.write(pa.table({"k": list(keys), "v": pa.array([v] * len(keys), pa.int32())}), "delete_ignore")

    for number in range(3):
        subject.store.write(UPSERT, batch([(key, 3, "s") for key in range(number, 20, 3)]))
        delete(*range(number, 40, 4), v=5)
        subject.store.write(UPSERT, batch([(key, 5 + key % 2, "t") for key in range(number, 40, 8)]))
        subject.flush()
    rows, feed = subject.scan(ordered=True), ChangeSpec(since=subject.history[0][0], every=True)
    changes = sorted(subject.scan(changes=feed), key=repr)
    if work == "compact":
        subject.store.maintain("t", "compact")
    elif work == "outside":
        compact(subject)
    subject.crash(Random(0))
    assert subject.scan(ordered=True) == rows
    assert sorted(subject.scan(changes=feed), key=repr) == changes
    subject.store.close()
    report = verify_store(subject.fs)
    assert report.is_sound, report.problems
