"""Kept answers: given while they are right, never to others, and none that was overwritten."""

from __future__ import annotations

import ctypes
import pickle
import threading
from collections.abc import Callable, Iterator
from random import Random

import pyarrow as pa
import pytest

import nyala
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.kernels.reads.kept_answers import FIELDS, LOCK, find_answer
from nyala.engine.options import StoreOptions
from nyala.engine.scan.plan.kept_answers import StoreAnswers
from nyala.engine.store import Store
from nyala.schemas.protocol.service import RowStamp
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand
from tests.doubles.kept_reader import KeptReader

_SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("n", pa.int64())])
_ROWS = 40


@pytest.fixture
def database() -> Iterator[nyala.Database]:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        database = nyala.Database(store)
        database.create_table("t", _SCHEMA, primary_key=["id"])
        database.table("t").insert(_rows(range(_ROWS), "old"))
        yield database


def _store(database: nyala.Database) -> Store:
    store = database._store
    assert isinstance(store, Store)
    return store


def _rows(ids: range, name: str) -> pa.RecordBatch:
    return pa.record_batch({"id": list(ids), "name": [name] * len(ids), "n": [0] * len(ids)}, _SCHEMA)


class _Cells:
    """Three timestamps, and a stamp by them."""

    def __init__(self) -> None:
        self.values = (ctypes.c_uint64 * 3)()

    def stamp(self, moment: int) -> RowStamp:
        first = ctypes.addressof(self.values)
        return RowStamp(moment, first, first + 8, first + 16)


def _find(answers: StoreAnswers, question: bytes, asker: int = 1, room: int = 1 << 12) -> bytes | None:
    text, target = ctypes.create_string_buffer(question, len(question)), ctypes.create_string_buffer(room)
    size = find_answer(answers.address, asker, ctypes.addressof(text), len(question), ctypes.addressof(target), room)
    return None if size < 0 else target.raw[:size]


def test_an_answer_is_given_as_long_as_no_source_is_later() -> None:
    answers, cells = StoreAnswers(1 << 20), _Cells()
    answers.keep(1, cells.stamp(7), b"question", b"answer")
    for source in range(3):
        cells.values[source] = 7
        assert _find(answers, b"question") == b"answer"
        cells.values[source] = 8
        assert _find(answers, b"question") is None
        cells.values[source] = 0
    assert answers.hits == 3


def test_others_and_other_questions_get_nothing() -> None:
    answers, cells = StoreAnswers(1 << 20), _Cells()
    answers.keep(1, cells.stamp(7), b"question", b"answer")
    assert _find(answers, b"question", asker=2) is None
    assert _find(answers, b"questiom") is None
    assert _find(answers, b"question ") is None
    assert _find(answers, b"question", room=5) is None
    assert _find(answers, b"question", room=6) == b"answer"


def test_a_later_answer_takes_the_place_of_an_earlier_one() -> None:
    answers, cells = StoreAnswers(1 << 20), _Cells()
    answers.keep(1, cells.stamp(7), b"question", b"answer")
    answers.keep(1, cells.stamp(9), b"question", b"longer answer")
    assert _find(answers, b"question") == b"longer answer"


def test_what_is_too_large_is_not_kept() -> None:
    answers, cells = StoreAnswers(1 << 16), _Cells()
    answers.keep(1, cells.stamp(7), b"q", b"x" * (1 << 13))
    assert _find(answers, b"q", room=1 << 16) is None
    assert answers.used_bytes == 0


def test_nothing_is_given_after_the_end() -> None:
    answers, cells = StoreAnswers(1 << 16), _Cells()
    answers.keep(1, cells.stamp(7), b"q", b"a")
    answers.close()
    assert _find(answers, b"q") is None
    answers.keep(1, cells.stamp(7), b"r", b"a")
    assert _find(answers, b"r") is None


def test_who_finds_the_lock_taken_does_not_wait() -> None:
    answers, cells = StoreAnswers(1 << 16), _Cells()
    answers.keep(1, cells.stamp(7), b"q", b"a")
    fields = (ctypes.c_uint64 * FIELDS).from_address(answers.address)
    fields[LOCK] = 1
    assert _find(answers, b"q") is None
    answers.keep(1, cells.stamp(7), b"r", b"a")
    fields[LOCK] = 0
    assert _find(answers, b"q") == b"a"
    assert _find(answers, b"r") is None


@pytest.mark.parametrize("seed", range(4))
def test_answers_are_those_of_a_dictionary_or_missing(seed: int) -> None:
    random, answers, cells = Random(seed), StoreAnswers(1 << 14), _Cells()
    model: dict[tuple[int, bytes], bytes] = {}
    found = 0
    for _ in range(6_000):
        asker, question = random.randrange(1, 3), b"question %d" % random.randrange(60)
        if random.random() < 0.4:
            model[asker, question] = random.randbytes(random.randrange(400))
            answers.keep(asker, cells.stamp(1), question, model[asker, question])
        answer = _find(answers, question, asker)
        assert answer is None or answer == model[asker, question]
        found += answer is not None
    assert 1_000 < found < 5_500, "some are overwritten, and many are there"
    assert answers.used_bytes <= (1 << 14) * 9 // 8


def test_threads_get_whole_answers() -> None:
    answers, cells, wrong = StoreAnswers(1 << 15), _Cells(), list[bytes]()

    def work(number: int) -> None:
        random = Random(number)
        for _ in range(3_000):
            question = b"question %d" % random.randrange(30)
            if random.random() < 0.5:
                answers.keep(1, cells.stamp(1), question, question * random.randrange(1, 20))
            answer = _find(answers, question)
            if answer is not None and answer != question * (len(answer) // len(question)):
                wrong.append(answer)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert answers.hits > 100


def test_numbers_of_askers_are_not_used_again() -> None:
    answers = StoreAnswers(1 << 16)
    numbers = [answers.number_of(("user", place)) for place in range(5_000)]
    assert len(set(numbers)) == 5_000
    assert answers.number_of(("user", 4_999)) == numbers[-1]
    assert answers.number_of(("user", 0)) not in numbers


def _statement(database: nyala.Database) -> None:
    database.table("t").update_where({"name": "'new'"}, "id = 7")


def _transaction(database: nyala.Database) -> None:
    store = _store(database)
    command = WriteCommand(table="t", stage=Stage(transaction="x", part="1"))
    store.stage(command, [StagedBatch(_rows(range(7, 8), "new"), Operation.UPSERT)])
    store.commit_transaction(TransactionCommit(transaction="x", parts=["1"]))


_CHANGES: dict[str, Callable[[nyala.Database], object]] = {
    "row": lambda database: database.table("t").upsert([{"id": 7, "name": "new", "n": 1}]),
    "update of a row": lambda database: database.table("t").update([{"id": 7, "n": 1}]),
    "deletion of a row": lambda database: database.table("t").delete([{"id": 7}]),
    "rows": lambda database: database.table("t").upsert([{"id": i, "name": "new", "n": 1} for i in (7, 8, 9)]),
    "batch": lambda database: database.table("t").upsert(_rows(range(7, 9), "new")),
    "deletion": lambda database: database.table("t").delete(pa.record_batch({"id": [7]})),
    "statement": _statement,
}
_EXACT = set(_CHANGES)
_CHANGES |= {
    "large batch": lambda database: database.table("t").upsert(_rows(range(70_000), "new")),
    "transaction": _transaction,
    "new column": lambda database: database.table("t").alter().add_column("more", pa.int64()).apply(),
    "rename": lambda database: database.table("t").alter().rename("u").apply(),
    "drop": lambda database: database.drop_table("t"),
    "set aside": lambda database: database.drop_table("t", keep_seconds=1000),
}


@pytest.mark.parametrize("change", _CHANGES)
@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_change_ends_the_answers_that_it_changes(database: nyala.Database, change: str, is_flushed: bool) -> None:
    if is_flushed:
        database.table("t").maintain("flush")
    reader = KeptReader(_store(database))
    for key in range(_ROWS):
        assert reader.get("t", [key])
        assert reader.is_kept("t", [key])
    _CHANGES[change](database)
    assert not reader.is_kept("t", [7])
    if change in _EXACT:
        assert sum(reader.is_kept("t", [key]) for key in range(10, _ROWS)) >= _ROWS - 12, "others stay"
        assert reader.get("t", [7]) == database.table("t").get({"id": 7})
        assert reader.is_kept("t", [7]) == ("deletion" not in change)


def test_answers_of_a_table_that_was_replaced_end(database: nyala.Database) -> None:
    database.create_table("next", _SCHEMA, primary_key=["id"])
    database.table("next").insert(_rows(range(_ROWS), "next"))
    reader = KeptReader(_store(database))
    assert reader.get("t", [7]) == {"id": 7, "name": "old", "n": 0}
    assert reader.get("next", [7]) == {"id": 7, "name": "next", "n": 0}
    replaced = _store(database).describe_table("t").table_id
    database.table("next").alter().rename("t", replaces=replaced).apply()
    assert not reader.is_kept("t", [7])
    assert not reader.is_kept("next", [7])
    assert reader.get("t", [7]) == {"id": 7, "name": "next", "n": 0}


def test_a_recalled_table_gives_answers_anew(database: nyala.Database) -> None:
    reader = KeptReader(_store(database))
    assert reader.get("t", [7])
    database.drop_table("t", keep_seconds=1000)
    assert not reader.is_kept("t", [7])
    database.recall_table("t")
    assert not reader.is_kept("t", [7])
    assert reader.get("t", [7])
    assert reader.is_kept("t", [7])


def test_rows_that_expire_are_not_kept(database: nyala.Database) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC"))])
    database.create_table("short", schema, primary_key=["id"], ttl="at + 1d")
    database.table("short").upsert([{"id": 1, "at": None}])
    reader = KeptReader(_store(database))
    assert reader.get("short", [1])
    assert not reader.is_kept("short", [1])


def test_a_commit_in_flight_ends_an_answer_before_it_is_seen(database: nyala.Database) -> None:
    store, table = _store(database), database.table("t")
    reader = KeptReader(store)
    assert reader.get("t", [7])
    started, go_on = threading.Event(), threading.Event()
    finish = store._mvcc.finish

    def later(*timestamps: int) -> None:
        started.set()
        assert go_on.wait(20)
        finish(*timestamps)

    store._mvcc.finish = later
    writing = threading.Thread(target=lambda: table.upsert([{"id": 7, "name": "new", "n": 1}]))
    writing.start()
    try:
        assert started.wait(20)
        assert not reader.is_kept("t", [7])
        assert reader.get("t", [7]) == {"id": 7, "name": "old", "n": 0}, "it is not visible yet"
        assert not reader.is_kept("t", [7])
    finally:
        store._mvcc.finish = finish
        go_on.set()
        writing.join()
    assert reader.get("t", [7]) == {"id": 7, "name": "new", "n": 1}
    assert reader.is_kept("t", [7])


def test_a_commit_in_flight_at_the_first_read_ends_its_answer(database: nyala.Database) -> None:
    store, table = _store(database), database.table("t")
    started, go_on = threading.Event(), threading.Event()
    finish = store._mvcc.finish

    def later(*timestamps: int) -> None:
        started.set()
        assert go_on.wait(20)
        finish(*timestamps)

    store._mvcc.finish = later
    writing = threading.Thread(target=lambda: table.upsert([{"id": 7, "name": "new", "n": 1}]))
    writing.start()
    try:
        assert started.wait(20)
        reader = KeptReader(store)
        assert reader.get("t", [7]) == {"id": 7, "name": "old", "n": 0}
        assert not reader.is_kept("t", [7])
    finally:
        store._mvcc.finish = finish
        go_on.set()
        writing.join()
    assert reader.get("t", [7]) == {"id": 7, "name": "new", "n": 1}


def test_a_grant_ends_all_answers(database: nyala.Database) -> None:
    reader = KeptReader(_store(database))
    assert reader.get("t", [7])
    database.grant("read", on="t", to="ada")
    assert not reader.is_kept("t", [7])


def test_a_closed_store_answers_nothing() -> None:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        database = nyala.Database(store)
        database.create_table("t", _SCHEMA, primary_key=["id"])
        database.table("t").insert(_rows(range(2), "old"))
        reader = KeptReader(store)
        assert reader.get("t", [1])
        question = pickle.dumps(("t", [1]))
        assert reader.find(question)
    assert reader.find(question) is None


def test_text_keys_have_stamps_of_their_own(database: nyala.Database) -> None:
    columns = [pa.field("a", pa.string(), nullable=False), pa.field("b", pa.int32(), nullable=False), ("v", pa.int64())]
    database.create_table(
        "words", pa.schema(columns), primary_key=["a", "b"], partition_by=[nyala.hash("a", buckets=3)]
    )
    words = database.table("words")
    words.insert(pa.table({"a": ["x", "y", ""], "b": pa.array([1, 2, 3], pa.int32()), "v": [1, 2, 3]}))
    reader = KeptReader(_store(database))
    for key in (["x", 1], ["y", 2], ["", 3]):
        assert reader.get("words", key)
    words.upsert(pa.table({"a": ["y"], "b": pa.array([2], pa.int32()), "v": [9]}))
    assert [reader.is_kept("words", key) for key in (["x", 1], ["y", 2], ["", 3])] == [True, False, True]
    words.upsert([{"a": "", "b": 3, "v": 9}])
    assert [reader.is_kept("words", key) for key in (["x", 1], ["y", 2], ["", 3])] == [True, False, False]
