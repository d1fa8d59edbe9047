"""Errors, timestamps, filters and write answers: the small words of the wire."""

import datetime as dt
import pickle

import pytest

from nyala.schemas import errors
from nyala.schemas.cells.timestamp import datetime_of, last_of, parse_moment
from nyala.schemas.limits.limits import Limits
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.predicate import from_tuples, parse_tree
from nyala.schemas.rows.write import RowError, WriteResult, combine

CODES = [
    "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_PRESENT", "CONFLICT", "WRONG_SERVER", "SNAPSHOT_TOO_OLD",
    "UNAUTHENTICATED", "PERMISSION_DENIED", "UNAVAILABLE", "STORAGE_FULL", "CORRUPTION", "INTERNAL",
]  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_every_code_of_the_contract_has_its_error(code):
    error = errors.error_of(code, "what happened")
    assert (error.code, error.message) == (code, "what happened")
    assert isinstance(error, errors.StoreError)


def test_an_unknown_code_is_not_lost():
    assert "TEAPOT" in errors.error_of("TEAPOT", "short and stout").message


def test_row_errors_say_the_first_and_count_the_rest():
    row = RowError(row=4, code="NOT_FOUND", message="there is no row")
    error = errors.RowErrors(WriteResult(timestamp=1, rows=9, applied=7, error_count=2, errors=[row, row]))
    assert error.code == "NOT_FOUND"
    assert "2 of 9 rows rejected: row 4" in str(error)
    assert pickle.loads(pickle.dumps(error)).result == error.result, "Spark sends errors between processes"


def test_answers_of_batches_add_up_with_positions_in_the_whole():
    first = WriteResult(timestamp=5, rows=10, applied=10)
    second = WriteResult(
        timestamp=6, rows=4, applied=2, ignored=1, error_count=1, errors=[RowError(row=3, code="X", message="")]
    )
    both = combine([first, second.shifted(10)])
    assert (both.timestamp, both.rows, both.applied, both.ignored, both.error_count) == (6, 14, 12, 1, 1)
    assert both.errors[0].row == 13


def test_moments():
    moment = dt.datetime(2026, 1, 31, 12, 0, 0, 7, tzinfo=dt.UTC)
    assert parse_moment(moment) == parse_moment("2026-01-31T12:00:00.000007Z") == parse_moment(parse_moment(moment))
    assert datetime_of(parse_moment(moment)) == moment
    assert parse_moment(moment) == last_of(parse_moment(moment) >> 12)


@pytest.mark.parametrize(
    "wrong", [-1, 1 << 64, True, "noon", dt.datetime(2026, 1, 1), "2026-01-01T00:00:00", "1969-01-01T00:00Z"]
)
def test_moments_that_mean_nothing_are_refused(wrong):
    with pytest.raises(errors.InvalidArgumentError):
        parse_moment(wrong)


def test_the_ignore_forms_know_their_base():
    assert Operation("upsert_ignore").base is Operation.UPSERT
    assert Operation.DELETE_IGNORE.ignores and not Operation.DELETE.ignores


def test_tuples_become_a_tree():
    tree = from_tuples([[("a", "=", 1), ("b", "in", [1, 2])], [("c", "!=", None)]])
    assert parse_tree(tree.model_dump(), Limits()) == tree


@pytest.mark.parametrize(
    "wrong", [{"op": "xor"}, {"op": "=", "column": "a"}, {"op": "and"}, [], "a = 1", {"op": "not", "arg": {"op": "?"}}]
)
def test_a_tree_that_is_none_is_refused(wrong):
    with pytest.raises(errors.InvalidArgumentError, match="filter tree"):
        parse_tree(wrong, Limits())


def test_a_tree_beyond_the_limits_is_refused():
    with pytest.raises(errors.InvalidArgumentError, match="at most 3"):
        parse_tree({"op": "in", "column": "a", "values": [1, 2, 3, 4]}, Limits(in_list_values=3))
    with pytest.raises(errors.InvalidArgumentError, match="more than 2 parts"):
        parse_tree({"op": "and", "args": [{"op": "is_null", "column": "a"}] * 3}, Limits(predicate_nodes=2))
