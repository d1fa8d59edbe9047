"""Commits become visible when they are applied and durable, whether or not anybody waits for them."""

import errno
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.memory import MemoryWritableFile
from nyala.engine.table.small.writes import _WRITES_AHEAD
from nyala.engine.tablet.tablet import Tablet
from nyala.engine.wal.writer import LogWriter
from nyala.schemas.errors import InternalError, InvalidArgumentError, UnavailableError
from nyala.schemas.rows.write import Durability, WriteCommand
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.doubles.waiting import until
from tests.engine.phases import at
from tests.engine.subject import Subject, batch

UPSERT = WriteCommand(table="t")


def within_seconds(work: Any) -> None:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it hangs"


class HeldSync:
    """The log's syncs wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.reached = threading.Event(), threading.Event()
        sync = MemoryWritableFile.sync

        def held(file: MemoryWritableFile) -> None:
            if file._path.startswith("wal/"):
                self.reached.set()
                assert self.go.wait(20)
            sync(file)

        monkeypatch.setattr(MemoryWritableFile, "sync", held)


def test_a_write_whose_answer_nobody_asks_for_becomes_visible() -> None:
    subject = Subject()
    subject.store.begin_write(UPSERT, batch([(1, 1, "")]))
    within_seconds(lambda: subject.store.write(UPSERT, batch([(2, 2, "")])))
    subject.store.begin_write(UPSERT, batch([(3, 3, "")]))
    until(lambda: len(subject.scan()) == 3)
    assert subject.store._mvcc.in_flight_count == 0
    subject.store.close()


def test_nothing_is_visible_before_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    subject.upsert(0)  # with it the segment is begun, which is a sync of its own
    held = HeldSync(monkeypatch)
    pending = subject.store.begin_write(UPSERT, batch([(1, 1, "")]))
    assert held.reached.wait(20)
    assert len(subject.scan()) == 1
    held.go.set()
    assert pending.result().applied == 1 and pending.result().applied == 1
    assert len(subject.scan()) == 2
    subject.store.close()


def test_a_write_for_the_operating_system_is_visible_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    subject.upsert(0)
    held = HeldSync(monkeypatch)
    command = WriteCommand(table="t", durability=Durability.OS)
    subject.store.begin_write(command, batch([(1, 1, "")]))
    until(lambda: len(subject.scan()) == 2)
    assert subject.store._wal.writer.durable_lsn == 1
    held.go.set()
    subject.store.close()


def test_a_commit_that_is_durable_before_it_is_applied_is_finished_when_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    apply = Tablet.apply

    def late(tablet: Tablet, *args: Any) -> None:
        until(lambda: subject.store._wal.writer.durable_lsn == 1)
        assert subject.scan() == []
        apply(tablet, *args)

    monkeypatch.setattr(Tablet, "apply", late)
    subject.store.begin_write(UPSERT, batch([(1, 1, "")]))
    assert len(subject.scan()) == 1
    subject.store.close()


def test_a_log_that_fails_leaves_nobody_waiting_for_a_write_that_nobody_asks_for() -> None:
    rule = FaultRule(calls=frozenset({"sync"}), path="wal/*", error=errno.EIO, sticky=True)
    fs = FaultyFileSystem(MemoryFileSystem())
    subject = Subject(fs)
    fs.rules.append(rule)
    fs._matched.append(0)
    pending = subject.store.begin_write(UPSERT, batch([(1, 1, "")]))

    def flushed() -> None:
        with pytest.raises(UnavailableError):
            subject.flush()

    within_seconds(flushed)
    assert subject.scan() == []
    with pytest.raises(UnavailableError, match="cannot be written"):
        pending.result()
    subject.store.close()


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
    answers = subject.store.write_all(UPSERT, (batch([(key, 0, "")]) for key in range(40)))
    next(answers)
    answers.close()  # pyright: ignore[reportAttributeAccessIssue]
    within_seconds(lambda: subject.store.write(UPSERT, batch([(99, 0, "")])))
    assert len(subject.scan()) == 1 + _WRITES_AHEAD + 1
    subject.store.close()


def test_an_interrupted_wait_does_not_hold_up_later_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    wait, waits = LogWriter.wait, []

    def interrupted_once(log: LogWriter[Any], lsn: int) -> None:
        waits.append(lsn)
        if len(waits) == 1:
            raise KeyboardInterrupt
        wait(log, lsn)

    monkeypatch.setattr(LogWriter, "wait", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        subject.store.write(UPSERT, batch([(1, 1, "")]))
    within_seconds(lambda: subject.store.write(UPSERT, batch([(2, 2, "")])))
    assert [row[0] for row in subject.scan(ordered=True)] == [1, 2]
    subject.store.close()


def interrupt_after(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Raise KeyboardInterrupt when such a method of the log has returned something, once."""
    interrupts = iter([KeyboardInterrupt])

    def interrupted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            found = real(*arguments)
            if found is not None or real.__name__ == "reserve":
                for interrupt in interrupts:
                    raise interrupt
            return found

        return call

    for name in names:
        monkeypatch.setattr(LogWriter, name, interrupted(getattr(LogWriter, name)))


def interrupt_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nyala.engine.commit.commit_log.Commit", interrupted)


@pytest.mark.parametrize("keys", [(1,), (1, 2), tuple(range(1, 40))], ids=["row", "rows", "batch"])
@pytest.mark.parametrize(
    "interrupt",
    [lambda patch: interrupt_after(patch, "append", "append_at_once"), interrupt_commit],
    ids=["enqueued", "stamped"],
)
def test_an_interrupt_between_the_log_and_memory_stops_the_store(
    monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[pytest.MonkeyPatch], None], keys: tuple[int, ...]
) -> None:
    subject = Subject()
    subject.upsert(0)
    rows = batch([(key, key, "") for key in keys])
    with monkeypatch.context() as patch:
        interrupt(patch)
        with pytest.raises((InternalError, KeyboardInterrupt)) as caught:
            subject.store.write(UPSERT, rows)
    assert str(caught.value) == "a commit was logged but could not be applied; restart the store"

    def refused() -> None:
        with pytest.raises(UnavailableError, match="restart"):
            subject.store.write(UPSERT, rows)
        with pytest.raises(UnavailableError, match="could not be applied"):
            subject.store._log.settle()
        ended.append(True)

    ended: list[bool] = []
    within_seconds(refused)
    assert ended
    assert [row[0] for row in subject.scan()] == [0]
    subject.restart()
    assert [row[0] for row in subject.scan(ordered=True)] == [0, *keys]
    assert subject.store._wal.writer.last_lsn == 2
    subject.store.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("phase", [(LogWriter, "append"), (Tablet, "apply")], ids=lambda phase: phase[1])
def test_ctrl_c_at_the_commit_of_a_batch_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, phase: tuple[Any, str], after: bool
) -> None:
    subject = Subject()
    subject.upsert(*range(50))
    at(monkeypatch, phase, not after, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        subject.store.write(UPSERT, batch([(key, 1, "") for key in range(100)]))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    within_seconds(lambda: subject.store.write(UPSERT, batch([(key, 2, "") for key in range(1, 100)])))
    assert subject.scan(ordered=True) == [(key, 2 if key else 1, "") for key in range(100)]
    subject.restart()
    assert len(subject.scan()) == 100
    subject.store.close()


@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.OS])
def test_an_interrupt_before_the_log_changes_nothing(monkeypatch: pytest.MonkeyPatch, durability: Durability) -> None:
    subject = Subject()
    subject.upsert(0)
    writer = subject.store._wal.writer
    with monkeypatch.context() as patch:
        interrupt_after(patch, "reserve")
        with pytest.raises(KeyboardInterrupt):
            subject.store.write(WriteCommand(table="t", durability=durability), batch([(1, 1, ""), (1, 2, "")]))
    assert not writer._reserved and subject.store._mvcc.in_flight_count == 0
    subject.upsert(3)
    until(lambda: writer._admitted == 0 == writer._claimed)
    assert [row[0] for row in subject.scan(ordered=True)] == [0, 3]
    subject.store.close()
