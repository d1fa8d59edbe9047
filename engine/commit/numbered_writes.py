"""NumberedWrites: the answers to numbered writes, so that a write that is sent again is answered, not applied again.

The log record of a write with ``writer`` and ``seq`` contains its answer: both are durable, or neither. The newest
answers of each writer are in memory. Before a part of the log with some of them is freed, all answers of those writers
are logged again, as one note at the end of the log. So the log alone restores them after a restart. The log from a
writer's ``logged_from`` on has all its answers.

A server that knows its users gives each names of its own (``schemas/rows/writer_name``). Answers from before that,
without a user, are found by their number, too. The versions of applications that a tablet has are kept in the same way,
each application's newest only (`transaction/tablet_versions`).

Three constants bound what is kept. A number below a writer's kept answers is rejected. A writer that was forgotten,
because many others have written since, counts as new.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from pydantic import ValidationError

from ...schemas.errors import CorruptionError, InvalidArgumentError
from ...schemas.message import Message
from ...schemas.rows.write import SEQ_MAX, Durability, WriteResult
from ...schemas.rows.writer_name import is_of_application, shown, unowned, user_of
from ...schemas.store.moving import MovedAnswers
from .. import threads
from ..record.log_note import Note, NoteKind
from ..record.parts import Parts
from .logged_answers import AnswersOfWriter, LoggedAnswers, runs_of_kind

ANSWERS_KEPT = 64
"""For each writer: the most writes it may have in flight."""
WRITERS_KEPT = 4096
"""In a store; of the user with the most, the writer whose last write is oldest is forgotten first."""
ANSWER_BYTES_KEPT = 16 << 20
"""In a store, as JSON; only answers with many row errors come near it."""

_RECHECK_SECONDS = 1.0
"""Who is interrupted after a write may tell nobody that it has ended."""
_NOWHERE = 1 << 63
"""A log position that is never freed."""
_KEPT_PARTS = {"rows", "applied", "ignored", "error_count", "errors", "truncated", "replaced", "stale"}
"""The fields of an answer that are logged; the record or the request supplies the others."""


class Number(NamedTuple):
    """The identity of a numbered write: its table, its writer and the writer's own count."""

    table_id: int
    writer: str
    seq: int


def number_of(table_id: int, writer: str, seq: int) -> Number:
    """Return the identity of a numbered write. Raises InvalidArgumentError if ``seq`` is out of range."""
    if not 0 <= seq <= SEQ_MAX:
        raise InvalidArgumentError(f"seq must be from 0 to {SEQ_MAX}, not {seq}")
    return Number(table_id, writer, seq)


@dataclass(frozen=True, slots=True)
class Answered:
    """A numbered write in the log, and the JSON of its answer without the timestamp."""

    lsn: int
    timestamp: int
    body: bytes

    def result(self, durability: Durability) -> WriteResult:
        """Return the answer as the client gets it."""
        kept = _Answer.model_validate_json(self.body)
        return WriteResult(**{**dict(kept), "timestamp": self.timestamp, "durability": durability})

    def check(self, rows: int) -> None:
        """Raise InvalidArgumentError if a batch of ``rows`` cannot be the one that was answered."""
        if (first := _Answer.model_validate_json(self.body).rows) != rows:
            raise InvalidArgumentError(
                f"seq was already used for a batch of {first:,} rows, and this batch has {rows:,}: resend the same "
                "batch, or give a new batch the next seq"
            )


class _Answer(WriteResult, frozen=True):
    """An answer as logged, without the fields that the record or the request supplies."""

    timestamp: int = 0


class _AnswerNote(Message):
    writer: str
    seq: int
    answer: _Answer


class _LoggedAnswer(Message):
    seq: int
    lsn: int
    timestamp: int
    answer: _Answer


class _LoggedWriter(Message):
    table: int
    writer: str
    floor: int
    answers: list[_LoggedAnswer]


class _WritersNote(Message):
    writers: list[_LoggedWriter]


@dataclass(slots=True)
class _WriterAnswers:
    user: str
    floor: int = 0
    """Answers to lower numbers are no longer kept."""
    logged_from: int = _NOWHERE
    answers: dict[int, Answered] = field(default_factory=dict)

    @property
    def last_write(self) -> int:
        """The timestamp of the newest answer; 0 if none is kept."""
        return max((each.timestamp for each in self.answers.values()), default=0)


Written = TypeVar("Written")


class NumberedWrites:
    """The kept answers to the numbered writes of all writers of a store. Thread safe."""

    def __init__(
        self,
        answers_kept: int = ANSWERS_KEPT,
        writers_kept: int = WRITERS_KEPT,
        answer_bytes_kept: int = ANSWER_BYTES_KEPT,
    ) -> None:
        self._answers_kept = answers_kept
        self._writers_kept = writers_kept
        self._answer_bytes_kept = answer_bytes_kept
        self._writers: OrderedDict[tuple[int, str], _WriterAnswers] = OrderedDict()
        self._of_users: Counter[str] = Counter()
        """The number of writers of each user."""
        self._answer_bytes = 0
        self._restored: Collection[int] | None = None
        """The tables whose answers are restored; None: all."""
        self._begun: dict[Number, None] = {}
        self._waiting = 0
        """Threads that wait until others have made a write."""
        self._changed = threads.Lock()
        self._ended = threads.Condition(self._changed)

    def once(self, number: Number, write: Callable[[Ticket], Written]) -> Answered | Written:
        """Return the earlier write, or what ``write`` makes of the ticket for it.

        If two clients send the same write at once, the second waits until the first is in the log or has failed.

        Raises:
            InvalidArgumentError: the number is older than the kept answers.
        """
        begun, is_mine = self._begun, False
        try:
            with self._changed:
                if number in begun:
                    self._wait_for_end(number)
                if known := self._find(number):
                    return known
                begun[number] = None
                is_mine = True  # no call is between the two: nothing interrupts them
            return write(Ticket(self, number))
        finally:
            if is_mine:
                begun.pop(number)  # in one step: an interruption leaves nothing begun for ever
                if self._waiting:
                    with self._changed:
                        self._ended.notify_all()

    @contextmanager
    def beginning(self, numbers: Sequence[Number]) -> Iterator[list[bool]]:
        """Yield which of some writes are made in the body: those that are new, and that nobody makes. Who sends one of
        them meanwhile waits, as in ``once``. Not for a thread that is interrupted."""
        begun, mine = self._begun, list[Number]()
        try:
            with self._changed:
                are_new: list[bool] = []
                for number in numbers:
                    if is_new := number not in begun and not self._is_known(number):
                        mine.append(number)  # before it is begun: it may not stay so for ever
                        begun[number] = None
                    are_new.append(is_new)
            yield are_new
        finally:
            for number in mine:
                begun.pop(number, None)
            if self._waiting:
                with self._changed:
                    self._ended.notify_all()

    def _is_known(self, number: Number) -> bool:
        """Whether a write has an answer already, or is too old to tell."""
        try:
            return self._find(number) is not None
        except InvalidArgumentError:
            return True

    def _wait_for_end(self, number: Number) -> None:
        """Wait until nobody makes a write; under the lock."""
        self._waiting += 1
        try:
            while number in self._begun:
                self._ended.wait(_RECHECK_SECONDS)
        finally:
            self._waiting -= 1

    def keep(self, number: Number, answered: Answered) -> None:
        """Remember an answer. The caller holds the lock under which it was logged."""
        with self._changed:
            self._put(number, answered, answered.lsn)
            self._trim()

    def newest(self, table_id: int, writer: str) -> int:
        """Return the greatest number that a writer has used; -1 if none is remembered."""
        with self._changed:
            kept = self._writers.get((table_id, writer))
            return -1 if kept is None else max(kept.answers, default=kept.floor - 1)

    def forget(self, is_gone: Callable[[int], bool]) -> None:
        """Forget all writers on tables that ``is_gone`` reports as removed."""
        with self._changed:
            for key in [key for key in self._writers if is_gone(key[0])]:
                self._drop(key)

    # The log

    @contextmanager
    def restoring(self, tables: Collection[int]) -> Iterator[None]:
        """Let the body restore what the log has of tables with these ids, as if nobody had written to others. Then the
        writers are in the order of their last writes, as they were when the log was written."""
        self._restored = tables
        try:
            yield
        finally:
            self._restored = None
        with self._changed:
            self._writers = OrderedDict(sorted(self._writers.items(), key=lambda item: item[1].last_write))

    def restore_all(self, notes: Parts, timestamps: np.ndarray) -> None:
        """Apply notes of log records, in their order. ``timestamps`` (int64) are those of the records.

        Raises:
            CorruptionError: one cannot be decoded.
        """
        for kind, run in runs_of_kind(self._of_restored(notes)):
            answers = LoggedAnswers.of(run) if kind == NoteKind.ANSWER else None
            if answers is None or not self._restore_answers(answers, timestamps):
                for record, note in run.notes():
                    self.restore(note, run.first_lsn + record, int(timestamps[record]))

    def _of_restored(self, notes: Parts) -> Parts:
        """Return notes without the answers of tables that are not restored."""
        if self._restored is None:
            return notes
        gone = [table_id for table_id in {*notes.owners.tolist()} if table_id not in self._restored]
        if not gone:
            return notes
        return notes.taken(~np.isin(notes.owners, gone) | (notes.kinds != NoteKind.ANSWER))

    def _restore_answers(self, answers: LoggedAnswers, timestamps: np.ndarray) -> bool:
        """Keep what would remain of answers that are kept one after the other; False, with nothing done, if writers or
        answers would be forgotten in between."""
        notes, writers = answers.notes, answers.by_writer(self._answers_kept)
        most_bytes = answers.largest_bytes * self._answers_kept * len(writers)
        with self._changed:
            new = [writer for writer in writers if (writer.table_id, writer.name) not in self._writers]
            if len(self._writers) + len(new) > self._writers_kept:
                return False
            if self._answer_bytes + most_bytes > self._answer_bytes_kept:
                return False
            for writer in writers:
                self._keep_all(writer, notes, timestamps)
        return True

    def _keep_all(self, writer: AnswersOfWriter, notes: Parts, timestamps: np.ndarray) -> None:
        first_lsn = notes.lsn_of(writer.first)
        for note, seq, body in writer.kept:
            lsn, timestamp = notes.lsn_of(note), int(timestamps[notes.records[note]])
            try:
                number = Number(writer.table_id, writer.name, seq)
                answered = Answered(lsn, timestamp, _checked_body(body))
            except ValueError as error:
                raise CorruptionError("wal", 0, f"log record {lsn}: {error}") from error
            self._put(number, answered, first_lsn)
        kept = self._writer((writer.table_id, writer.name))
        kept.floor = max(kept.floor, writer.floor)

    def restore(self, note: Note, lsn: int, timestamp: int) -> None:
        """Apply a note of log record ``lsn``. Raises CorruptionError if it cannot be decoded."""
        try:
            if note.kind is NoteKind.ANSWER:
                told = _AnswerNote.model_validate_json(note.body)
                number = Number(note.table_id, told.writer, told.seq)
                self.keep(number, Answered(lsn, timestamp, _body(told.answer)))
            else:
                self._restore_writers(_WritersNote.model_validate_json(note.body), lsn)
        except ValidationError as error:
            raise CorruptionError("wal", 0, f"log record {lsn}: {error}") from error

    def _restore_writers(self, told: _WritersNote, lsn: int) -> None:
        with self._changed:
            for writer in told.writers:
                if self._restored is not None and writer.table not in self._restored:
                    continue
                for logged in writer.answers:
                    number = Number(writer.table, writer.writer, logged.seq)
                    self._put(number, Answered(logged.lsn, logged.timestamp, _body(logged.answer)), lsn)
                kept = self._writer((writer.table, writer.writer))
                kept.floor = max(kept.floor, writer.floor)
                kept.logged_from = min(kept.logged_from, lsn)
            self._trim()

    def by_timestamp(self, table_id: int) -> dict[int, str]:
        """Return the writers of the remembered writes to a table, by commit timestamp. Applications are none."""
        with self._changed:
            return {
                answered.timestamp: name
                for (number, name), writer in self._writers.items()
                if number == table_id and not is_of_application(name)
                for answered in writer.answers.values()
            }

    def of_tablet(self, table_id: int, suffix: str) -> tuple[MovedAnswers, ...]:
        """Return the answers to the writers of a table whose names end with ``suffix``: those of one tablet."""
        with self._changed:
            return tuple(
                MovedAnswers(
                    writer=name,
                    floor=writer.floor,
                    answers=tuple(
                        {"seq": seq, "timestamp": each.timestamp, "answer": json.loads(each.body)}
                        for seq, each in writer.answers.items()
                    ),
                )
                for (number, name), writer in self._writers.items()
                if number == table_id and name.endswith(suffix)
            )

    @contextmanager
    def saved_before(self, lsn: int) -> Iterator[tuple[Note | None, list[int]]]:
        """Yield a note of all that the log before ``lsn`` holds, None if nothing; the body logs it.

        Every answer logged before ``lsn`` must have been kept. The body appends the position of the note to the list,
        once it is durable; without it, nothing counts as saved.
        """
        with self._changed:
            saved = {key: writer for key, writer in self._writers.items() if writer.logged_from < lsn}
            before = {key: writer.logged_from for key, writer in saved.items()}
            for writer in saved.values():
                writer.logged_from = _NOWHERE
            text = b'{"writers":[%s]}' % b",".join(_logged(*key, writer) for key, writer in saved.items())
        positions: list[int] = []
        try:
            yield (Note(0, NoteKind.WRITERS, text) if saved else None), positions
        finally:
            with self._changed:
                for key, writer in saved.items():
                    writer.logged_from = min(writer.logged_from, *positions, *(() if positions else (before[key],)))

    # Under the lock

    def _find(self, number: Number) -> Answered | None:
        writer = self._writers.get((number.table_id, number.writer))
        if writer is not None and (found := writer.answers.get(number.seq)):
            return found
        if writer is not None and number.seq < writer.floor:
            raise InvalidArgumentError(
                f"it is unknown whether write {number.seq} of writer {shown(number.writer)!r} was applied: results "
                f"are kept only from write {writer.floor} on"
            )
        return self._find_unowned(number)

    def _find_unowned(self, number: Number) -> Answered | None:
        """Return an answer from before the server knew its users. Numbers below the kept ones are new: else no user
        could begin at 0."""
        name = unowned(number.writer)
        writer = None if name is None else self._writers.get((number.table_id, name))
        return None if writer is None else writer.answers.get(number.seq)

    def _writer(self, key: tuple[int, str]) -> _WriterAnswers:
        """Return what is kept of a writer."""
        if (writer := self._writers.get(key)) is None:
            writer = self._writers[key] = _WriterAnswers(user_of(key[1]))
            self._of_users[writer.user] += 1
        return writer

    def _put(self, number: Number, answered: Answered, logged_at: int) -> None:
        key = (number.table_id, number.writer)
        writer = self._writer(key)
        self._writers.move_to_end(key)
        writer.logged_from = min(writer.logged_from, logged_at)
        if number.seq < writer.floor or number.seq in writer.answers:
            return
        writer.answers[number.seq] = answered
        self._answer_bytes += len(answered.body)
        while len(writer.answers) > (1 if is_of_application(number.writer) else self._answers_kept):
            self._drop_oldest(writer)

    def _drop_oldest(self, writer: _WriterAnswers) -> None:
        oldest = min(writer.answers)
        self._answer_bytes -= len(writer.answers.pop(oldest).body)
        writer.floor = max(writer.floor, oldest + 1)

    def _trim(self) -> None:
        while len(self._writers) > self._writers_kept:
            most = max(self._of_users.values())
            self._drop(next(key for key, writer in self._writers.items() if self._of_users[writer.user] == most))
        if self._answer_bytes > self._answer_bytes_kept:
            for writer in self._writers.values():
                while writer.answers and self._answer_bytes > self._answer_bytes_kept // 4 * 3:
                    self._drop_oldest(writer)

    def _drop(self, key: tuple[int, str]) -> None:
        writer = self._writers.pop(key)
        self._answer_bytes -= sum(len(answered.body) for answered in writer.answers.values())
        self._of_users[writer.user] -= 1
        if not self._of_users[writer.user]:
            del self._of_users[writer.user]


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right of one thread to make a numbered write: log ``note``, then ``keep``."""

    writers: NumberedWrites
    number: Number

    def note(self, answer: WriteResult) -> Note:
        """Return the note with the answer, for the log record."""
        body = b'{"writer":%s,"seq":%d,"answer":%s}' % (
            _quoted(self.number.writer),
            self.number.seq,
            _body(answer),
        )
        return Note(self.number.table_id, NoteKind.ANSWER, body)

    def keep(self, answer: WriteResult, lsn: int, timestamp: int) -> None:
        """Remember the answer, under the lock under which it was logged."""
        self.writers.keep(self.number, Answered(lsn, timestamp, _body(answer)))


@lru_cache(WRITERS_KEPT)
def _quoted(name: str) -> bytes:
    return json.dumps(name).encode()


def moved_note(table_id: int, moved: Sequence[MovedAnswers]) -> Note:
    """Return a note with another server's answers to numbered writes, which are durable there."""
    writers = [
        _LoggedWriter(
            table=table_id,
            writer=each.writer,
            floor=each.floor,
            answers=[_LoggedAnswer.model_validate({"lsn": 0, **answer}) for answer in each.answers],
        )
        for each in moved
    ]
    return Note(0, NoteKind.WRITERS, _WritersNote(writers=writers).model_dump_json(exclude_defaults=True).encode())


def _body(answer: WriteResult) -> bytes:
    others = answer.ignored or answer.error_count or answer.errors or answer.truncated or answer.replaced
    if answer.rows == answer.applied and not others:
        return b'{"rows":%d,"applied":%d}' % (answer.rows, answer.applied)
    return answer.model_dump_json(include=_KEPT_PARTS, exclude_defaults=True).encode()


@lru_cache(256)
def _checked_body(body: bytes) -> bytes:
    """Return an answer as it is kept. Raises ValidationError if it is none; nearly all of them are alike."""
    return _body(_Answer.model_validate_json(body))


def _logged(table_id: int, name: str, writer: _WriterAnswers) -> bytes:
    answers = b",".join(
        b'{"seq":%d,"lsn":%d,"timestamp":%d,"answer":%s}' % (seq, answered.lsn, answered.timestamp, answered.body)
        for seq, answered in writer.answers.items()
    )
    head = _LoggedWriter(table=table_id, writer=name, floor=writer.floor, answers=[]).model_dump_json().encode()
    return head.removesuffix(b"[]}") + b"[%s]}" % answers
