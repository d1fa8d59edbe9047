"""A failure between the commit of new files and their installation makes the store read-only. A restart repairs it."""

import signal
from typing import Any

import pytest

from nyala.engine.compaction import file_transaction as rewrite
from nyala.engine.compaction import flush as flushing
from nyala.engine.compaction import switch_over as swapping
from nyala.engine.delta.memstore import DeltaMemStore
from nyala.engine.manifest.manifest import ManifestFile
from nyala.engine.recovery.verify import verify_store
from nyala.engine.tablet import key_lookup
from nyala.engine.tablet.key_lookup import KeyLookup
from nyala.engine.tablet.tablet import Tablet
from nyala.schemas.errors import InternalError, StorageFullError, UnavailableError
from nyala.schemas.rows.write import WriteCommand
from tests.engine.faults import assert_no_orphans
from tests.engine.phases import at
from tests.engine.subject import Subject, batch

WORKS = ["flush", "flush_deltas", "minor_compact", "major_compact", "compact"]


def subject_with_work() -> Subject:
    """Return a store in which every kind of maintenance has something to do."""
    subject = Subject()
    subject.upsert(1, 2, 3)
    subject.flush()
    for value in (1, 2):
        subject.upsert(2, 3, v=value)
        subject.flush_deltas()
    subject.delete(3)
    subject.upsert(4, 5)
    return subject


def failing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: BaseException, after: bool = False) -> None:
    call = getattr(owner, name)

    def fails(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(owner, name, call)
        if after:
            call(*args, **kwargs)
        raise error

    monkeypatch.setattr(owner, name, fails)


def assert_halted(subject: Subject, why: str) -> None:
    health = subject.store.health()
    assert health.status == "read_only" and why in health.reason and "restart" in health.reason
    with pytest.raises(UnavailableError, match=why):
        subject.store.write(*_write(9))
    for work in WORKS:
        with pytest.raises(UnavailableError, match=why):
            subject.store.maintain("t", work)
    assert subject.store.run_maintenance_once() is None
    subject.check()


def _write(key: int) -> tuple[Any, Any]:
    return WriteCommand(table="t"), batch([(key, 0, "")])


def assert_whole_after_a_restart(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    subject.store.close()
    report = verify_store(subject.fs)
    assert report.is_sound, report.problems
    subject.store = subject._open()
    subject.check()
    subject.upsert(5, 6, v=6)
    for work in WORKS:
        subject.store.maintain("t", work)
        subject.check()
    subject.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()], ids=["interrupted", "out of memory"])
@pytest.mark.parametrize("work", WORKS)
def test_a_failure_right_after_the_commit(monkeypatch: pytest.MonkeyPatch, work: str, error: BaseException) -> None:
    subject = subject_with_work()
    failing(monkeypatch, ManifestFile, "commit", error, after=True)
    with pytest.raises(type(error)):
        subject.store.maintain("t", work)
    assert_halted(subject, "could not be installed")
    assert_whole_after_a_restart(subject, monkeypatch)


@pytest.mark.parametrize("work", ["flush_deltas", "minor_compact", "major_compact"])
def test_a_failure_while_a_rowset_is_replaced(monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    subject = subject_with_work()
    failing(monkeypatch, Tablet, "replace_diskrowset", MemoryError())
    with pytest.raises(MemoryError):
        subject.store.maintain("t", work)
    assert_halted(subject, "could not be installed")
    assert_whole_after_a_restart(subject, monkeypatch)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "phase",
    [
        (swapping.SwitchOver, "put"),
        (swapping.SwitchOver, "_carry_over"),
        (KeyLookup, "forward"),
    ],
    ids=lambda phase: phase[1],
)
@pytest.mark.parametrize("work", ["flush", "compact"])
def test_a_failure_in_the_swap(monkeypatch: pytest.MonkeyPatch, work: str, phase: tuple[Any, str], after: bool) -> None:
    subject = subject_with_work()
    commit = rewrite._commit

    def commit_and_fail_next(*args: Any) -> None:
        commit(*args)
        failing(monkeypatch, *phase, KeyboardInterrupt(), after=after)

    monkeypatch.setattr(rewrite, "_commit", commit_and_fail_next)
    with pytest.raises(KeyboardInterrupt):
        subject.store.maintain("t", work)
    assert_halted(subject, "could not be")
    assert_whole_after_a_restart(subject, monkeypatch)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "phase",
    [(KeyLookup, "follow"), (KeyLookup, "relocate"), (key_lookup, "hash_keys")],
    ids=lambda phase: phase[1],
)
@pytest.mark.parametrize("work", ["flush", "compact"])
def test_who_is_interrupted_while_keys_follow_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, work: str, phase: tuple[Any, str], after: bool
) -> None:
    subject = subject_with_work()
    subject.check()
    commit = rewrite._commit

    def commit_and_fail_next(*args: Any) -> None:
        commit(*args)
        failing(monkeypatch, *phase, KeyboardInterrupt(), after=after)

    monkeypatch.setattr(rewrite, "_commit", commit_and_fail_next)
    with pytest.raises(KeyboardInterrupt):
        subject.store.maintain("t", work)
    assert subject.environment.latch.reason is None
    assert_no_orphans(subject, subject.fs)
    subject.check()
    assert_whole_after_a_restart(subject, monkeypatch)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("work", WORKS)
def test_ctrl_c_at_the_commit_stops_nothing(monkeypatch: pytest.MonkeyPatch, work: str, after: bool) -> None:
    subject = subject_with_work()
    at(monkeypatch, (ManifestFile, "commit"), not after, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        subject.store.maintain("t", work)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert subject.environment.latch.reason is None
    assert_no_orphans(subject, subject.fs)
    subject.check()
    assert_whole_after_a_restart(subject, monkeypatch)


def test_the_second_ctrl_c_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may hang."""
    subject = subject_with_work()
    put = swapping.SwitchOver.put

    def never_returns(*args: Any) -> None:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        put(*args)

    monkeypatch.setattr(swapping.SwitchOver, "put", never_returns)
    with pytest.raises(KeyboardInterrupt):
        subject.flush()
    assert_halted(subject, "could not be installed")
    assert_whole_after_a_restart(subject, monkeypatch)


def test_no_writer_meets_a_swap_that_failed_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_with_work()
    forward = KeyLookup.forward

    def fails(lookup: KeyLookup, *args: Any) -> None:
        forward(lookup, *args)
        raise MemoryError

    monkeypatch.setattr(KeyLookup, "forward", fails)
    seen: list[bool] = []
    stop = type(subject.environment.latch).stop
    monkeypatch.setattr(
        type(subject.environment.latch),
        "stop",
        lambda latch, reason: (seen.append(subject.tablet.write_lock.locked()), stop(latch, reason))[1],
    )
    with pytest.raises(MemoryError):
        subject.flush()
    assert seen[0], "the store was halted before the lock was let go"
    monkeypatch.undo()
    subject.store.close()


def test_a_failure_before_the_commit_halts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_with_work()
    for error in (KeyboardInterrupt(), StorageFullError("the disk is full")):
        for work in WORKS:
            failing(monkeypatch, ManifestFile, "commit", error)
            with pytest.raises(type(error)):
                subject.store.maintain("t", work)
            assert subject.store.health().status == "ok"
    subject.upsert(7)
    for work in WORKS:
        subject.store.maintain("t", work)
        subject.check()
    subject.close()


def test_what_others_say_of_the_tablet_is_not_taken_for_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log is freed while a flush is under way: the manifest's entry is another object then, of the same files."""
    subject = Subject()
    subject.upsert(1)
    subject.flush()
    subject.upsert(2)

    def meanwhile() -> None:
        subject.environment.manifest.assume(lambda manifest: manifest.with_in_files({subject.tablet.tablet_id: 2}))
        raise StorageFullError("the disk is full")

    at(monkeypatch, (flushing, "write_rows"), True, meanwhile)
    with pytest.raises(StorageFullError):
        subject.flush()
    assert subject.environment.latch.reason is None
    subject.flush()
    subject.close()


@pytest.mark.parametrize("keys", [[1], [1, 2]], ids=["a single row", "rows"])
def test_nothing_is_flushed_after_a_commit_that_could_not_be_applied(
    monkeypatch: pytest.MonkeyPatch, keys: list[int]
) -> None:
    subject = subject_with_work()
    owner, name = (DeltaMemStore, "append_row") if len(keys) == 1 else (Tablet, "_append_deltas")
    append = getattr(owner, name)

    def half(*args: Any) -> None:
        append(*args)
        raise MemoryError

    monkeypatch.setattr(owner, name, half)
    with pytest.raises(InternalError, match="could not be applied"):
        subject.store.write(WriteCommand(table="t"), batch([(key, 0, "") for key in keys]))
    monkeypatch.undo()
    assert_halted(subject, "could not be applied")
    subject.store.close()
    subject.store = subject._open()
    found = {row[0]: row for row in subject.scan()}
    assert found[1] == (1, 0, ""), "it is in the log, so it is there after the restart"
    subject.store.close()
