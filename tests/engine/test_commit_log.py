"""Commits that nobody waits for any more are finished all the same: every later one waits for them."""

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.wal.log import WriteAheadLog
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.write import WriteCommand
from tests.engine.subject import Subject, batch

UPSERT = WriteCommand(table="t")


def within_seconds(work: Any) -> None:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it hangs"


def test_batches_before_a_refused_one_do_not_hold_up_later_writes() -> None:
    subject = Subject()

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch([(1, 1, "")])
        yield batch([(2, 2, "")])
        yield pa.record_batch({"unknown": [1]})

    with pytest.raises(InvalidArgumentError):
        list(subject.store.write_all(UPSERT, batches()))
    within_seconds(lambda: subject.store.write(UPSERT, batch([(3, 3, "")])))
    assert [row[0] for row in subject.scan(ordered=True)] == [1, 2, 3]
    subject.store.close()


def test_answers_that_nobody_fetches_do_not_hold_up_later_writes() -> None:
    subject = Subject()
    answers = subject.store.write_all(UPSERT, (batch([(key, 0, "")]) for key in range(20)))
    next(answers)
    answers.close()  # pyright: ignore[reportAttributeAccessIssue]
    within_seconds(lambda: subject.store.write(UPSERT, batch([(99, 0, "")])))
    assert len(subject.scan()) == 6
    subject.store.close()


def test_an_interrupted_wait_does_not_hold_up_later_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    wait, waits = WriteAheadLog.wait, []

    def interrupted_once(log: WriteAheadLog, lsn: int) -> None:
        waits.append(lsn)
        if len(waits) == 1:
            raise KeyboardInterrupt
        wait(log, lsn)

    monkeypatch.setattr(WriteAheadLog, "wait", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        subject.store.write(UPSERT, batch([(1, 1, "")]))
    within_seconds(lambda: subject.store.write(UPSERT, batch([(2, 2, "")])))
    assert [row[0] for row in subject.scan(ordered=True)] == [1, 2]
    subject.store.close()
