"""The tables of the histories, and how their rows are read as lists and registers.

A key is (p, k). Rows of one p are in one tablet, and on one server. Clients work on a window of keys that moves along:
lists stay short, and there are always new ones. Lists that statements change, and registers, have all of their rows
from the beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import count
from threading import Lock
from typing import Any

import pyarrow as pa

import nyala
from tests.campaigns import options as drawn
from tests.campaigns.isolation.history import GONE, INITIAL, Key, State

PLACES = 3
"""So many values of p."""
WIDTH = 4
"""So many keys of each p are in the window."""
_WRITES = 50
"""After so many written values the window moves by one."""
_WINDOWS = 4_000
LISTS = pa.schema([pa.field("p", pa.int64(), False), pa.field("k", pa.int64(), False), ("v", pa.string())])
REGISTERS = pa.schema([*[*LISTS][:2], pa.field("v", pa.int64())])


class Keys:
    """The window of keys, and the values that are written to them. Threads may share it."""

    def __init__(self) -> None:
        self._values = count(1)
        self.newest = 0
        self._dropped = 0
        self._mutex = Lock()

    def value(self) -> int:
        """Return a value that nobody has written."""
        self.newest = next(self._values)
        return self.newest

    @property
    def first(self) -> int:
        """The first k of the window."""
        return min(self.newest // _WRITES, _WINDOWS - 2 * WIDTH)

    def window(self, places: Collection[int] = range(PLACES)) -> list[Key]:
        """Return the keys of the window."""
        first = self.first
        return [(p, first + k) for p in places for k in range(WIDTH)]

    def doomed(self, places: Collection[int] = range(PLACES)) -> list[Key]:
        """Return keys of which some were deleted a moment ago, and the others are next."""
        return [(p, k) for p in places for k in range(-self._dropped - 2, -max(self._dropped - 2, 0))]

    def to_drop(self) -> int:
        """Return the k whose rows are deleted next: nobody has been given it."""
        with self._mutex:
            self._dropped += 1
            return -self._dropped


def create(database: nyala.Database, name: str, are_lists: bool, has_rows: bool) -> None:
    """Create a table, over all servers."""
    schema = LISTS if are_lists else REGISTERS
    parts = [nyala.range("p", bounds=[(p, p + 1) for p in range(PLACES)])]
    columns = drawn.columns(schema, {"v": {"merge": "append"}} if are_lists else {})
    table = database.create_table(name, schema, ["p", "k"], parts, columns, **drawn.table())
    if has_rows:
        keys = [(p, k) for p in range(PLACES) for k in range(0 if are_lists else -_WINDOWS, _WINDOWS)]
        table.insert(rows(dict.fromkeys(keys, () if are_lists else INITIAL)))


def rows(states: Mapping[Key, State]) -> list[dict[str, Any]]:
    """Return the rows that hold states."""
    return [{"p": p, "k": k, "v": text_of(state)} for (p, k), state in states.items()]


def text_of(state: State) -> str | int:
    """Return the cell of a state."""
    return "".join(f"{value}," for value in state) if isinstance(state, tuple) else state


def states_of(keys: Iterable[Key], found: pa.Table, are_lists: bool) -> dict[Key, State]:
    """Return what keys hold by the rows that were read. Without a row, a list is empty and a register is gone."""
    cells = {(row["p"], row["k"]): row["v"] for row in found.to_pylist()}
    if are_lists:
        return {key: tuple(map(int, cells.get(key, "").split(",")[:-1])) for key in keys}
    return {key: cells.get(key, GONE) for key in keys}


def filter_of(keys: Iterable[Key]) -> str:
    """Return a filter for rows of these keys."""
    return " OR ".join(f"(p = {p} AND k = {k})" for p, k in keys)
