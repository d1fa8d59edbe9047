"""Rows with operations of their own: cut into batches, they do to every key what they would do one by one."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from nyala.clients.spark.grouping import grouped
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.rows.operation import Operation
from tests.dose import by_night

WORDS = ["upsert", "delete_ignore", "insert_ignore", "UPDATE_IGNORE"]


def applied(state: dict, operation: Operation | str | None, row: dict, key: tuple[str, ...]) -> None:
    """Do to a dict what the store does."""
    at = tuple(row[name] for name in key)
    word = str(operation or "upsert").lower()
    if word == "delete_ignore":
        state.pop(at, None)
    elif not (word == "insert_ignore" and at in state) and not (word == "update_ignore" and at not in state):
        state[at] = state.get(at, {}) | row


@pytest.mark.parametrize("ignore_null", [False, True])
@pytest.mark.parametrize("seed", by_night(range(15), range(5)))
def test_the_result_is_that_of_one_row_after_the_other(seed: int, ignore_null: bool) -> None:
    dice = random.Random(seed)
    key = ("a", "b")[: 1 + seed % 2]
    cells = [None, 1, 2]
    rows = [
        {"a": dice.randrange(6), "b": dice.choice("xy"), "v": dice.choice(cells), "w": dice.choice(cells)}
        for _ in range(dice.choice([1, 10, 300]))
    ]
    words = [dice.choice(WORDS) for _ in rows] if seed % 3 else None
    expected, found = {}, {}
    for number, row in enumerate(rows):
        kept = {name: cell for name, cell in row.items() if cell is not None} if ignore_null else row
        applied(expected, words[number] if words else None, kept, key)
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int8()), ("w", pa.int8())])
    batch = pa.RecordBatch.from_pylist(rows, schema)
    count = 0
    for operation, part in grouped(batch, key, pa.array(words) if words else None, ignore_null):
        count += part.num_rows
        for row in part.to_pylist():
            applied(found, operation, row, key)
    assert found == expected and count == len(rows)


def test_rows_of_one_kind_are_one_batch_whatever_their_keys() -> None:
    batch = pa.record_batch({"a": [1, 1, 2, 1]})
    words = pa.array(["upsert", "upsert", "UPSERT", "upsert"])
    assert [(op, part.num_rows) for op, part in grouped(batch, ["a"], words, False)] == [("upsert", 4)]


def test_few_batches_where_kinds_rarely_change() -> None:
    """A key that comes often does not cost a batch each time."""
    batch = pa.record_batch({"a": [1] * 1000 + list(range(1000))})
    words = pa.array(["upsert"] * 1000 + ["delete"] * 1000)
    assert [part.num_rows for _, part in grouped(batch, ["a"], words, False)] == [1000, 999, 1]


def test_a_row_that_expired_is_deleted_if_it_is_there() -> None:
    batch = pa.record_batch({"a": [1, 2]})
    found = list(grouped(batch, ["a"], pa.array(["insert", "Expire"]), False))
    assert [str(operation) for operation, _ in found] == ["insert", "delete_ignore"]


@pytest.mark.parametrize("words", [["blend", "upsert"], [None, "upsert"]])
def test_words_that_are_no_operation_are_refused(words: list) -> None:
    with pytest.raises(InvalidArgumentError, match="operation column"):
        list(grouped(pa.record_batch({"a": [1, 2]}), ["a"], pa.array(words), False))
