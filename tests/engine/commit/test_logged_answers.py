"""Answers that are restored many at once are those that are restored one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from nyala.engine.commit.logged_answers import LoggedAnswers
from nyala.engine.commit.numbered_writes import Answered, Number, NumberedWrites, Ticket
from nyala.engine.record.change import pack_record
from nyala.engine.record.log_note import Note, NoteKind
from nyala.engine.record.parts import Parts, parts_of_payload
from nyala.schemas.errors import CorruptionError
from nyala.schemas.rows.write import Durability, RowError, WriteResult

FIRST_LSN = 500


def parts_of(notes: list[Note]) -> Parts:
    """Return notes as they are in records, one each."""
    parts = parts_of_payload(memoryview(b"".join(bytes(piece) for piece in pack_record([], notes))), FIRST_LSN)
    parts.table[:, 0] = np.arange(len(notes))
    return parts


def answer_to(number: Number, errors: int = 0) -> Note:
    rows = 3 + errors
    told = [RowError(row=row, code="NOT_FOUND", message="no") for row in range(errors)]
    result = WriteResult(timestamp=0, rows=rows, applied=3, error_count=errors, errors=told, durability=Durability.OS)
    return Ticket(NumberedWrites(), number).note(result)


def state(writers: NumberedWrites) -> Any:
    kept = {key: (each.floor, each.logged_from, each.answers) for key, each in writers._writers.items()}
    return list(writers._writers), kept, writers._answer_bytes, dict(writers._of_users)


def some_notes(random: Random, count: int, writers: int) -> list[Note]:
    seqs = [0] * writers
    notes: list[Note] = []
    for _ in range(count):
        writer = random.randrange(writers)
        seqs[writer] += random.choice([1, 1, 1, 2, -1, 0])
        seq = max(seqs[writer] + random.choice([0, 0, 0, -5, -80]), 0)
        notes.append(answer_to(Number(random.choice([7, 8]), f"writer {writer}", seq), random.choice([0, 0, 0, 0, 1])))
    return notes


@pytest.mark.parametrize("seed", range(20))
def test_many_at_once_leave_what_one_by_one_leaves(seed: int) -> None:
    random = Random(seed)
    limits = random.choice([(64, 4096, 1 << 24), (5, 4096, 1 << 24), (5, 6, 1 << 24), (8, 4096, 900)])
    at_once, alone = NumberedWrites(*limits), NumberedWrites(*limits)
    for _ in range(3):
        notes = some_notes(random, 200, random.choice([1, 3, 12]))
        if random.random() < 0.3:
            notes.insert(
                100,
                Note(
                    3,
                    NoteKind.ANSWER,
                    b'{ "writer": "by \\u0041nother", "seq": 4, "answer": {"rows": 1, "applied": 1} }',
                ),
            )
        if random.random() < 0.5:
            with alone.saved_before(1 << 40) as (saved, positions):
                positions.append(FIRST_LSN)
            with at_once.saved_before(1 << 40) as (_, positions):
                positions.append(FIRST_LSN)
            notes += [saved] if saved else []
        timestamps = np.arange(len(notes)) * 4096
        at_once.restore_all(parts_of(notes), timestamps)
        for place, note in enumerate(notes):
            alone.restore(note, FIRST_LSN + place, int(timestamps[place]))
        assert state(at_once) == state(alone)


def is_known(writers: NumberedWrites, number: Number) -> bool:
    return isinstance(writers.once(number, lambda _: None), Answered)


def test_dropped_tables_push_out_no_answers_of_others() -> None:
    first = Number(7, "w", 0)
    notes = [answer_to(first), *(answer_to(Number(8, f"writer {number}", 0)) for number in range(5))]
    saved = NumberedWrites()
    saved.restore_all(parts_of(notes[1:]), np.arange(5))
    with saved.saved_before(1 << 40) as (note, _):
        assert note
    writers = NumberedWrites(writers_kept=2)
    with writers.restoring({7}):
        writers.restore_all(parts_of([*notes, note]), np.arange(len(notes) + 1))
    assert is_known(writers, first)
    assert list(writers._writers) == [(7, "w")]


def test_a_restart_keeps_the_order_in_which_writers_wrote() -> None:
    living, notes = NumberedWrites(writers_kept=2), list[Note]()

    def write(name: str, moment: int) -> None:
        notes.append(answer_to(Number(7, name, 0)))
        living.restore(notes[-1], FIRST_LSN + moment, moment)

    write("old", 1)
    with living.saved_before(FIRST_LSN + 2) as (saved, positions):
        assert saved
        positions.append(FIRST_LSN + 3)
    write("new", 2)
    notes = [notes[1], saved]  # the log from there on
    again = NumberedWrites(writers_kept=2)
    with again.restoring({7}):
        again.restore_all(parts_of(notes), np.arange(2, 4))
    write("newest", 4)
    again.restore(notes[-1], FIRST_LSN + 4, 4)
    assert is_known(living, Number(7, "new", 0)) and is_known(again, Number(7, "new", 0))
    assert list(again._writers) == list(living._writers)


def test_few_of_many_answers_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    writers, put = NumberedWrites(), []
    monkeypatch.setattr(NumberedWrites, "_put", lambda _, number, *__: put.append(number))
    notes = [answer_to(Number(7, "loader", seq)) for seq in range(5_000)]
    writers.restore_all(parts_of(notes), np.zeros(len(notes), np.int64))
    assert [number.seq for number in put] == list(range(5_000 - 64, 5_000))


@pytest.mark.parametrize(
    "body",
    [
        b'{"writer":"a","seq":1,"answer":{"rows":1,"applied":2x}}',
        b'{"writer":"a","seq":-1x,"answer":{"rows":1,"applied":1}}',
        b'{"writer":"a\xff","seq":1,"answer":{"rows":1,"applied":1}}',
        b'{"writer":"a","seq":1,"answer":{"rows":1,"applied":1}',
        b'{"writer":"a","seq":01,"answer":{"rows":1,"applied":1}}',
        b'{"writer":"a',
        b"",
        b"{}",
    ],
)
def test_an_answer_that_is_none_is_corruption(body: bytes) -> None:
    notes = parts_of([answer_to(Number(7, "a", 0)), Note(7, NoteKind.ANSWER, body)])
    with pytest.raises(CorruptionError, match=f"log record {FIRST_LSN + 1}"):
        NumberedWrites().restore_all(notes, np.zeros(2, np.int64))


def test_names_that_need_escapes_are_read_the_general_way() -> None:
    plain = parts_of([answer_to(Number(7, "a b-c.d/e", 10**17))])
    assert LoggedAnswers.of(plain) is not None
    for name in ('say "x"', "back\\slash", "caf\u00e9", "line\nbreak"):
        assert LoggedAnswers.of(parts_of([answer_to(Number(7, name, 1))])) is None
    assert LoggedAnswers.of(parts_of([answer_to(Number(7, "a", 10**18))])) is None
