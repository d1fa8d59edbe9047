"""Debezium's envelope: the row before and after each change, and what it makes of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .....schemas import compute as pc
from .....schemas.store.description import TableDescription
from .decoded import Decoded, joined

_WRITES = ("c", "r", "u")
"""Operations with a new row: create, read by a snapshot, update."""
_DELETE, _TRUNCATE, _MESSAGE = "d", "t", "m"
SHARED = (
    "it truncates the table, but its topic has several partitions, which have no common order: truncate the table "
    "yourself, and let the connector skip truncations (skipped.operations=t)"
)
ABSENT = "it is a row with a new key, but lacks the large value of the field"
FULL = "let the database send whole rows (REPLICA IDENTITY FULL in PostgreSQL)"


@dataclass(frozen=True)
class Envelopes:
    """Messages of Debezium, read: columns of their operations and rows."""

    numbers: np.ndarray
    """The number of each message."""
    op: pa.Array
    before: pa.StructArray
    after: pa.StructArray

    @property
    def deletes(self) -> frozenset[int]:
        """The numbers of the messages that delete."""
        return frozenset(
            self.numbers[pc.equal(self.op, _DELETE).fill_null(False).to_numpy(zero_copy_only=False)].tolist()
        )


ToRows = Callable[[pa.StructArray, np.ndarray, dict[int, str]], Decoded]
"""Converts raw rows of the messages with these numbers to rows of the table; adds the wrong ones to the rejects."""


def changes_of(
    read: Envelopes,
    about: TableDescription,
    to_rows: ToRows,
    by_key: Callable[[Sequence[int], dict[int, str]], Decoded],
    partitions: Callable[[], int],
) -> list[Decoded]:
    """Return what Debezium's messages make of a table. ``by_key`` returns deletes by the keys of messages,
    ``partitions`` the number of partitions of their topic."""
    rejects: dict[int, str] = {}
    numbers, op = read.numbers, read.op.to_pylist()
    has_after = read.after.is_valid().to_numpy(zero_copy_only=False)
    has_before = read.before.is_valid().to_numpy(zero_copy_only=False)
    words = np.array([each or "" for each in op], object)
    is_write, is_delete = np.isin(words, _WRITES), words == _DELETE
    truncated = np.flatnonzero(words == _TRUNCATE)
    if len(truncated) and partitions() != 1:
        rejects |= {int(numbers[at]): SHARED for at in truncated}
        truncated = truncated[:0]
    for at in np.flatnonzero(~np.isin(words, (*_WRITES, _DELETE, _TRUNCATE, _MESSAGE))):
        rejects[int(numbers[at])] = f"its operation is {op[at]!r}; Debezium has only c, r, u, d, t, m"
    for at in np.flatnonzero(is_write & ~has_after):
        rejects[int(numbers[at])] = f"its operation is {op[at]!r}, but it has no row: after is null"
    moved = _moved(read, about.primary_key, (words == "u") & has_after & has_before)
    deletes = np.flatnonzero((is_delete & has_before) | moved)
    writes = np.flatnonzero(is_write & has_after)
    old = to_rows(read.before.take(pa.array(deletes)), numbers[deletes], rejects)
    old = Decoded(old.rows.select(key_names(about, old.rows)), old.numbers, np.ones(old.rows.num_rows, np.bool_))
    new = to_rows(read.after.take(pa.array(writes)), numbers[writes], rejects)
    is_new = np.isin(new.numbers, numbers[(words != "u") | moved])
    for name, mask in new.absent.items():
        rejects |= {int(number): f"{ABSENT} {name!r}: {FULL}" for number in new.numbers[mask & is_new]}
    keyed = by_key([int(each) for each in numbers[is_delete & ~has_before]], rejects)
    whole = joined([old, keyed, new], new.rows.schema, rejects)
    return _truncated(whole, int(numbers[truncated[-1]])) if len(truncated) else [whole]


def key_names(about: TableDescription, rows: pa.RecordBatch) -> list[str]:
    """Return the columns that a delete of Debezium needs, of those that there are: the key, and the one that orders
    writes."""
    order = about.options.order_by
    is_more = order is not None and order in rows.schema.names and order not in about.primary_key
    return [*about.primary_key, *([str(order)] if is_more else [])]


def _moved(read: Envelopes, key: Sequence[str], which: np.ndarray) -> np.ndarray:
    """Return which updates move a row to another key."""
    moved = np.zeros(len(which), np.bool_)
    at = pa.array(np.flatnonzero(which))
    names = {each.name for each in read.before.type}
    if not len(at) or not set(key) <= names:
        return moved
    before, after = read.before.take(at), read.after.take(at)
    for name in key:
        same = pc.equal(before.field(name), after.field(name)).fill_null(True)
        moved[at.to_numpy()] |= ~same.to_numpy(zero_copy_only=False)
    return moved


def _truncated(whole: Decoded, at: int) -> list[Decoded]:
    """Return what is left behind the last truncation."""
    kept = whole.numbers > at
    rows = whole.rows.filter(pa.array(kept))
    absent = {name: mask[kept] for name, mask in whole.absent.items()}
    return [Decoded(rows, whole.numbers[kept], whole.is_delete[kept], whole.rejects, absent, truncates=True)]
