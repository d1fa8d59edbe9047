"""Answers name rows by their position in the batch as it was sent, and can always be given: the commit stands."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.engine.store import Store
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import ROW_ERRORS_MAX, WriteCommand, WriteResult
from nyala.schemas.table.table import TableDefinition
from tests.engine.subject import Subject

FAR = 1 << 62
"""Microseconds: a moment in the year 148,108, which Python has no word for."""


def keyed(store: Store, type_: pa.DataType, *values: pa.Field) -> None:
    schema = pa.schema([pa.field("k", type_, False), *(values or [pa.field("v", pa.int64())])])
    store.create_table(TableDefinition.from_arrow("keyed", schema, ["k"]))


def insert(store: Store, keys: pa.Array, **columns: Any) -> WriteResult:
    columns = columns or {"v": pa.array(range(len(keys)))}
    return store.write(WriteCommand(table="keyed", op=Operation.INSERT), pa.record_batch({"k": keys, **columns}))


@pytest.fixture
def store() -> Any:
    subject = Subject()
    yield subject.store
    subject.store.close()


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (pa.array([FAR], pa.timestamp("us")), f"k={FAR}"),
        (pa.array([0], pa.timestamp("us", tz="Nowhere/Atlantis")), "k=1970-01-01 00:00:00"),
        (pa.array([b"\xff\x00"]), r"k=b'\xff\x00'"),
        (pa.array(["{key} {missing}"]), "k={key} {missing}"),
        (pa.array(["x" * 10_000]), "k=" + "x" * 200 + "..."),
        (pa.array(["one"]).dictionary_encode(), "k=one"),
    ],
    ids=["beyond Python's years", "in an unknown zone", "bytes", "braces", "long", "dictionary"],
)
def test_every_key_can_be_shown(store: Store, cells: pa.Array, shown: str) -> None:
    kind = cells.type.value_type if pa.types.is_dictionary(cells.type) else cells.type
    keyed(store, pa.timestamp("us") if pa.types.is_timestamp(kind) else kind)
    assert insert(store, cells).applied == 1
    (error,) = insert(store, cells).errors
    assert (error.row, error.code) == (0, "ALREADY_PRESENT")
    assert error.message == f"a row with the key ({shown}) is already present"


def test_positions_are_those_of_the_batch_as_it_was_sent(store: Store) -> None:
    keyed(store, pa.int64(), pa.field("v", pa.int64(), False))
    insert(store, pa.array([5]))
    result = insert(store, pa.array([None, 5, 6, 7, 6]), v=pa.array([0, 0, None, 0, 0]))
    assert [(error.row, error.code) for error in result.errors] == [
        (0, "INVALID_ARGUMENT"),
        (1, "ALREADY_PRESENT"),
        (2, "INVALID_ARGUMENT"),
    ]
    assert (result.rows, result.applied, result.error_count) == (5, 2, 3)


def test_a_key_that_is_too_large_is_refused_for_writing_and_not_found_for_deleting(store: Store) -> None:
    keyed(store, pa.string())
    long = "k" * 20_000
    result = insert(store, pa.array(["a", long, None, "b"]))
    assert [(error.row, error.code) for error in result.errors] == [(1, "TOO_LARGE"), (2, "INVALID_ARGUMENT")]
    assert result.applied == 2
    delete = WriteCommand(table="keyed", op=Operation.DELETE)
    (error,) = store.write(delete, pa.record_batch({"k": [long, "a"]})).errors
    assert (error.row, error.code) == (0, "NOT_FOUND")
    assert store.get("keyed", pa.record_batch({"k": [long, "b"]})).num_rows == 1


def test_a_new_row_that_lacks_a_column_is_told_which(store: Store) -> None:
    keyed(store, pa.int64(), pa.field("v", pa.int64(), False), pa.field("w", pa.int64(), False))
    upsert = WriteCommand(table="keyed", op=Operation.UPSERT)
    (error,) = store.write(upsert, pa.record_batch({"k": [1], "v": [1]})).errors
    assert error.message == "a new row needs 'w': NULL is not allowed, and there is no default"


def test_a_thousand_errors_are_spelled_out_and_all_are_counted(store: Store) -> None:
    keyed(store, pa.int64())
    keys = pa.array(np.arange(3000))
    insert(store, keys)
    result = insert(store, keys)
    assert (result.error_count, len(result.errors)) == (3000, ROW_ERRORS_MAX)
    assert [error.row for error in result.errors] == list(range(ROW_ERRORS_MAX))


def test_a_batch_without_rows_has_a_timestamp_all_the_same(store: Store) -> None:
    keyed(store, pa.int64())
    before = store.now()
    result = insert(store, pa.array([], pa.int64()))
    assert (result.rows, result.applied, result.errors) == (0, 0, [])
    assert before < result.timestamp <= store.now()


def test_a_look_up_refuses_keys_that_cannot_be(store: Store) -> None:
    keyed(store, pa.int64())
    with pytest.raises(InvalidArgumentError, match="NULL"):
        store.get("keyed", pa.record_batch({"k": pa.array([1, None])}))
    assert store.get("keyed", pa.record_batch({"k": pa.array([], pa.int64())})).num_rows == 0
