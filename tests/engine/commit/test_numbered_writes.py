"""A numbered write that is sent again is answered again and not applied again, whatever happened in between."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from random import Random
from types import CodeType, FrameType
from typing import Any

import pytest

from nyala.engine.commit import numbered_writes
from nyala.engine.commit.numbered_writes import Answered, Number, NumberedWrites
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.record.log_note import Note, NoteKind
from nyala.engine.recovery.verify import verify_store
from nyala.engine.table.small.writes import Writes
from nyala.engine.wal.writer import LogWriter
from nyala.schemas.errors import CorruptionError, InvalidArgumentError, StorageFullError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import Durability, WriteCommand, WriteResult
from nyala.schemas.rows.writer_name import owned
from tests.engine.subject import Subject, batch

Rows = list[tuple[int, int | None, str | None]]


def numbered(subject: Subject, seq: int, rows: Rows, op: str = "insert", writer: str = "w", **more: Any) -> WriteResult:
    return subject.store.write(WriteCommand(table="t", op=Operation(op), writer=writer, **more), batch(rows), seq)


def forget_nothing_but_the_log(subject: Subject, segments: int = 3) -> None:
    """Write and flush until the part of the log that holds what was written so far is gone."""
    first = subject.store._wal.writer.last_lsn
    key = 1_000_000
    while subject.store._wal.first_lsn <= first or segments:
        segments -= subject.store._wal.first_lsn > first and segments > 0
        subject.store.write(WriteCommand(table="t"), batch([(key, 0, "x" * 1000)]))
        key += 1
        subject.flush()


@pytest.mark.parametrize("between", ["nothing", "restart", "crash", "log freed", "log freed twice", "freed, crash"])
def test_a_write_sent_again_is_answered_as_the_first_time(between: str) -> None:
    subject = Subject()
    subject.upsert(7)
    first = numbered(subject, 0, [(1, 1, "a"), (7, 7, "b")])
    nothing = numbered(subject, 1, [(1, 2, "c")])
    ignored = numbered(subject, 5, [(1, 2, "c"), (2, 2, "d")], "insert_ignore")
    assert (first.applied, nothing.applied, ignored.applied, ignored.ignored) == (1, 0, 1, 1)
    assert [error.code for error in (*first.errors, *nothing.errors)] == ["ALREADY_PRESENT"] * 2
    if between == "restart":
        subject.restart()
    if between == "crash":
        assert isinstance(subject.fs, MemoryFileSystem)
        subject.crash(Random(1))
    if "freed" in between:
        forget_nothing_but_the_log(subject)
    if between == "log freed twice":
        subject.restart()
        forget_nothing_but_the_log(subject)
        subject.restart()
    if between == "freed, crash":
        subject.crash(Random(2))
    last = subject.store.now()
    assert numbered(subject, 0, [(1, 1, "a"), (7, 7, "b")]) == first
    assert numbered(subject, 1, [(1, 2, "c")]) == nothing
    assert numbered(subject, 5, [(1, 2, "c"), (2, 2, "d")], "insert_ignore") == ignored
    assert subject.scan(as_of=last, ordered=True) == subject.scan(ordered=True)
    assert [row for row in subject.scan(ordered=True) if row[0] < 10] == [(1, 1, "a"), (2, 2, "d"), (7, 0, "s")]
    subject.store.close()
    report = verify_store(subject.fs)
    assert report.is_sound, report.problems


def test_a_number_means_something_only_with_its_writer_and_table() -> None:
    subject = Subject()
    assert numbered(subject, 0, [(1, 1, "")]).applied == 1
    assert numbered(subject, 0, [(1, 1, "")], writer="other").error_count == 1
    plain = WriteCommand(table="t", op=Operation.INSERT)
    assert subject.store.write(plain, batch([(1, 1, "")]), 0).error_count == 1
    assert subject.store.write(plain.model_copy(update={"writer": "w"}), batch([(1, 1, "")])).error_count == 1
    subject.store.close()


def test_a_number_that_is_reused_for_other_rows_is_refused() -> None:
    subject = Subject()
    numbered(subject, 0, [(1, 1, "")])
    with pytest.raises(InvalidArgumentError, match="batch of 1 rows, and this batch has 2"):
        numbered(subject, 0, [(1, 1, ""), (2, 2, "")])
    with pytest.raises(InvalidArgumentError, match="-1"):
        numbered(subject, -1, [(1, 1, "")])
    subject.store.close()


def test_a_number_older_than_what_is_kept_is_refused_also_after_a_restart() -> None:
    subject = Subject()
    for seq in range(70):
        numbered(subject, seq, [(seq, 0, "")])
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="unknown whether write 5 of writer 'w' was applied"):
            numbered(subject, 5, [(5, 0, "")])
        assert numbered(subject, 6, [(6, 0, "")]).applied == 1
        forget_nothing_but_the_log(subject)
        subject.restart()
    assert numbered(subject, 70, [(70, 0, "")]).applied == 1
    subject.store.close()


def test_a_write_that_failed_as_a_whole_may_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    with pytest.raises(InvalidArgumentError):
        subject.store.write(WriteCommand(table="t", writer="w"), batch([(1, 1, "")]).select(["v"]), 0)

    def full(log: LogWriter[Any], nbytes: int) -> None:
        raise StorageFullError("full")

    with monkeypatch.context() as patch:
        patch.setattr(LogWriter, "reserve", full)
        with pytest.raises(StorageFullError):
            numbered(subject, 0, [(1, 1, "")])
    assert numbered(subject, 0, [(1, 1, "")]).applied == 1
    subject.store.close()


def test_an_atomic_batch_that_was_rejected_stays_rejected() -> None:
    subject = Subject()
    subject.upsert(1)
    first = numbered(subject, 0, [(1, 1, ""), (2, 2, "")], atomic=True)
    subject.delete(1)
    assert first.applied == 0 and numbered(subject, 0, [(1, 1, ""), (2, 2, "")], atomic=True) == first
    assert subject.scan() == []
    subject.store.close()


def test_one_write_sent_by_many_at_once_is_applied_once() -> None:
    subject = Subject()
    results: list[WriteResult] = []
    rows: Rows = [(key, 0, "") for key in range(2000)]
    threads = [threading.Thread(target=lambda: results.append(numbered(subject, 3, rows))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(results) == 8 and len({result.timestamp for result in results}) == 1
    assert all(result.applied == 2000 and not result.error_count for result in results)
    subject.store.close()


def test_a_number_can_come_again_wherever_an_interruption_ended_it() -> None:
    """Python looks for signals when it enters a function, and when one in C returns."""
    subject = Subject()
    numbered(subject, 0, [(0, 0, "")])
    places, codes = list[str](), {NumberedWrites.once.__code__, Writes._once.__code__}
    for seq in range(1, 100):
        place = interrupted(lambda seq=seq: numbered(subject, seq, [(seq, 0, "")]), codes, seq)
        if place is None:
            break
        places.append(place)
        results: list[WriteResult] = []
        other = threading.Thread(target=lambda seq=seq, to=results: to.append(numbered(subject, seq, [(seq, 0, "")])))
        other.daemon = True
        other.start()
        other.join(10)
        assert [(each.applied, each.errors) for each in results] == [(1, [])], places
    assert {place.split()[0] for place in places} == {"once", "_once"} and len(places) > 5
    subject.store.close()


def interrupted(write: Callable[[], object], codes: set[CodeType], number: int) -> str | None:
    """Write with an interruption at that place, counted from 1, where these functions call others; return where."""
    places: list[str] = []

    def profile(frame: FrameType | None, event: str, what: Any) -> None:
        caller = frame and (frame.f_back if event == "call" else frame)
        if event in ("call", "c_return") and caller is not None and caller.f_code in codes and len(places) < number:
            places.append(f"{caller.f_code.co_name} {event} {caller.f_lineno}")
            if len(places) == number:
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        write()
    except KeyboardInterrupt:
        return places[-1]
    finally:
        sys.setprofile(None)
    return None


def test_a_repeated_write_waits_until_the_first_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    command = WriteCommand(table="t", writer="w")
    waited: list[int] = []
    wait = LogWriter.wait
    monkeypatch.setattr(LogWriter, "wait", lambda log, lsn: (waited.append(lsn), wait(log, lsn))[1])
    first = subject.store.begin_write(command, batch([(1, 1, "")]), 0)
    again = subject.store.begin_write(command, batch([(1, 1, "")]), 0)
    answer = first.result()
    assert again.result() == answer and waited == [waited[0]] * 2
    subject.store.close()


def test_answers_of_a_dropped_table_are_forgotten() -> None:
    subject = Subject()
    numbered(subject, 0, [(1, 1, "")])
    subject.store.drop_table("t")
    assert not subject.store._writers._writers
    subject.restart()
    assert not subject.store._writers._writers
    subject.store.close()


# The bounds


def kept(writers: NumberedWrites, writer: str, seq: int, lsn: int, errors: int = 0) -> None:
    from nyala.schemas.rows.write import RowError

    refused = [RowError(row=row, code="NOT_FOUND", message="x" * 80) for row in range(errors)]
    answer = WriteResult(timestamp=0, rows=1, applied=1, errors=refused)
    assert writers.once(Number(1, writer, seq), lambda ticket: ticket.keep(answer, lsn, lsn)) is None


def is_kept(writers: NumberedWrites, writer: str, seq: int) -> bool:
    return isinstance(writers.once(Number(1, writer, seq), lambda ticket: None), Answered)


def test_the_writers_that_wrote_last_are_kept() -> None:
    writers = NumberedWrites(writers_kept=2)
    for lsn, writer in enumerate(["a", "b", "a", "c"], start=1):
        kept(writers, writer, lsn, lsn)
    assert [is_kept(writers, writer, seq) for writer, seq in (("a", 1), ("a", 3), ("b", 2), ("c", 4))] == [
        True,
        True,
        False,
        True,
    ]


def test_the_writers_of_one_user_push_out_none_of_others() -> None:
    writers, bob = NumberedWrites(writers_kept=4), owned("bob", "etl")
    kept(writers, bob, 1, 1)
    kept(writers, "no user", 1, 2)
    for lsn in range(3, 50):
        kept(writers, owned("mallory", str(lsn)), 1, lsn)
    assert is_kept(writers, bob, 1) and is_kept(writers, "no user", 1)
    assert [is_kept(writers, owned("mallory", str(lsn)), 1) for lsn in (47, 48, 49)] == [False, True, True]
    for lsn in range(50, 90):
        kept(writers, owned("mallory", str(lsn) * 99), 1, lsn)  # a hash
    assert is_kept(writers, bob, 1) and len(writers._writers) == 4
    writers.forget(lambda _: True)
    assert not writers._of_users


def test_new_users_may_begin_where_an_older_writer_without_one_was() -> None:
    writers = NumberedWrites(answers_kept=2)
    for seq in range(10):
        kept(writers, "etl", seq, seq)
    assert [is_kept(writers, owned("bob", "etl"), seq) for seq in (0, 7, 8, 9, 10)] == [False, False, True, True, False]
    with pytest.raises(InvalidArgumentError, match="it is unknown whether"):
        is_kept(writers, "etl", 0)


def test_long_answers_are_bounded_together_and_their_numbers_refused() -> None:
    writers = NumberedWrites(answer_bytes_kept=100_000)
    for lsn in range(1, 40):
        kept(writers, "a", lsn, lsn, errors=100)
    assert writers._answer_bytes <= 100_000
    assert is_kept(writers, "a", 39)
    with pytest.raises(InvalidArgumentError, match="it is unknown whether"):
        is_kept(writers, "a", 1)


def test_what_is_answered_while_others_are_saved_is_saved_next() -> None:
    writers = NumberedWrites()
    kept(writers, "a", 1, 1)
    with writers.saved_before(5) as (note, positions):
        assert note and b'"seq":1' in note.body
        kept(writers, "a", 2, 6)
        positions.append(7)
    with writers.saved_before(6) as (note, _):
        assert note is None
    with writers.saved_before(7) as (note, _):
        assert note and b'"seq":1' in note.body and b'"seq":2' in note.body
    with writers.saved_before(7) as (note, _):
        assert note, "the body logged nothing the time before"


def test_a_note_of_answers_says_them_all_again() -> None:
    writers = NumberedWrites(answers_kept=2)
    for seq in (1, 2, 3):
        kept(writers, 'odd "writer" \u00e9', seq, seq, errors=seq)
    with writers.saved_before(9) as (note, positions):
        assert note
        positions.append(9)
    again = NumberedWrites()
    again.restore(note, 9, 9)
    with pytest.raises(InvalidArgumentError):
        is_kept(again, 'odd "writer" \u00e9', 1)
    for seq in (2, 3):
        found = again.once(Number(1, 'odd "writer" \u00e9', seq), lambda ticket: None)
        assert isinstance(found, Answered) and (found.lsn, found.timestamp) == (seq, seq)
        assert len(found.result(Durability.OS).errors) == seq


def test_a_note_that_is_damaged_is_corruption() -> None:
    for kind in NoteKind:
        with pytest.raises(CorruptionError, match="log record 8"):
            NumberedWrites().restore(Note(1, kind, b'{"writers":[{}]}'), 8, 8)


def test_an_answer_without_errors_is_logged_as_any_other() -> None:
    for rows in (0, 1, 1_000_000):
        answer = WriteResult(timestamp=5, rows=rows, applied=rows, durability=Durability.OS)
        kept = {"rows", "applied", "ignored", "error_count", "errors"}
        assert numbered_writes._body(answer) == answer.model_dump_json(include=kept, exclude_defaults=True).encode()
