"""The rules of the eight operations, against a model that takes the rows of a batch one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.tablet.outcome import (
    ALREADY_PRESENT,
    APPLIED,
    CONFLICT,
    IGNORED,
    IMMUTABLE,
    INCOMPLETE,
    NOT_FOUND,
    Shape,
    decide,
)
from nyala.schemas.rows.operation import Operation

ABSENT, DEAD, LIVE = "absent", "dead", "live"
KEYS = 5


def one_by_one(operation: Operation, keys: list[int], states: list[str], shape: Shape, late: set[int]) -> list[int]:
    """Return each row's status; rows of one key are taken in order."""
    lives = {key: state == LIVE for key, state in enumerate(states)}
    statuses = [CONFLICT if key in late else _one(operation, key, lives, shape) for key in keys]
    unwanted = {ALREADY_PRESENT, NOT_FOUND, CONFLICT} if operation.ignores else set()
    return [IGNORED if status in unwanted else status for status in statuses]


def _one(operation: Operation, key: int, lives: dict[int, bool], shape: Shape) -> int:
    base = operation.base
    if base in (Operation.UPDATE, Operation.DELETE):
        if not lives[key]:
            return NOT_FOUND
        lives[key] = base is Operation.UPDATE
        return APPLIED if base is Operation.DELETE else _change(operation, shape)
    if lives[key]:
        return _change(operation, shape) if base is Operation.UPSERT else ALREADY_PRESENT
    if not shape.is_complete:
        return INCOMPLETE
    lives[key] = True
    return APPLIED


def _change(operation: Operation, shape: Shape) -> int:
    """A live row meets a batch that may have immutable columns."""
    if not shape.has_immutable:
        return APPLIED
    if not operation.ignores:
        return IMMUTABLE
    return APPLIED if shape.has_values else IGNORED


@pytest.mark.parametrize("operation", Operation)
@given(
    keys=st.lists(st.integers(0, KEYS - 1), max_size=12),
    states=st.lists(st.sampled_from([ABSENT, DEAD, LIVE]), min_size=KEYS, max_size=KEYS),
    is_complete=st.booleans(),
    has_values=st.booleans(),
    has_immutable=st.booleans(),
    late=st.sets(st.integers(0, KEYS - 1), max_size=2),
)
def test_a_batch_is_decided_as_its_rows_one_by_one(
    operation, keys, states, is_complete, has_values, has_immutable, late
):
    shape = Shape(is_complete, has_values, has_immutable and operation.base is not Operation.DELETE)
    late = {key for key in late if states[key] != ABSENT}  # what is nowhere has not changed
    batch = np.array(keys, np.int64)
    first = np.array([keys.index(key) for key in keys], np.int64)
    known = np.array([-1 if state == ABSENT else key for key, state in enumerate(states)], np.int64)
    alive = np.array([state == LIVE for state in states])

    def find(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return known[batch[rows]], alive[batch[rows]]

    outcome = decide(
        operation, first, find, shape, (lambda locations: np.isin(locations, list(late))) if late else None
    )
    assert outcome.status.tolist() == one_by_one(operation, keys, states, shape, late)
    acted = {
        "store": batch[outcome.stores].tolist(),
        "update": batch[outcome.updates].tolist(),
        "delete": batch[outcome.deletes].tolist(),
    }
    for keys_acted in acted.values():
        assert len(set(keys_acted)) == len(keys_acted), "a key is acted on once"
    stored = {key for key in keys if states[key] != LIVE and is_complete and key not in late}
    changed = {key for key in keys if states[key] == LIVE and key not in late}
    base = operation.base
    assert set(acted["store"]) == (stored if base in (Operation.INSERT, Operation.UPSERT) else set())
    takes_values = has_values and (operation.ignores or not shape.has_immutable)
    assert set(acted["update"]) == (changed if base in (Operation.UPSERT, Operation.UPDATE) and takes_values else set())
    assert set(acted["delete"]) == (changed if base is Operation.DELETE else set())
    assert outcome.store_locations.tolist() == known[acted["store"]].tolist()
    assert outcome.store_leaders.tolist() == [keys.index(key) for key in acted["store"]]


@pytest.mark.parametrize(("operation", "winner"), [("insert", 0), ("upsert", 2), ("update", 2), ("delete", 0)])
def test_of_rows_with_one_key_the_right_one_is_carried_out(operation, winner):
    lives = operation in ("update", "delete")

    def find(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(rows), 7), np.full(len(rows), lives)

    outcome = decide(Operation(operation), np.zeros(3, np.int64), find, Shape(is_complete=True, has_values=True))
    acted = np.concatenate([outcome.stores, outcome.updates, outcome.deletes])
    assert acted.tolist() == [winner]
