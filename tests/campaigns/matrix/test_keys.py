"""Keys of one to five columns of every type that a key may have: order, look-ups, duplicates and ranges."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.table import Table
from nyala.schemas.table.table import TableDefinition
from tests.campaigns.matrix.kinds import KINDS, Kind

KEYS = [kind for kind in KINDS if kind.logical.may_be_key]
Key = tuple[Any, ...]
ROWS = 240


def _mixtures() -> list[tuple[Kind, ...]]:
    """Every type by itself, and three mixtures of each number of columns in which every type comes early and late."""
    random = Random(5)
    found = [(kind,) for kind in KEYS]
    for width in (2, 3, 4, 5):
        pool = itertools.cycle(random.sample(KEYS, len(KEYS)))
        found += [tuple(itertools.islice(pool, width)) for _ in range(3)]
    texts = [kind for kind in KEYS if kind.logical.is_variable]
    return [*found, (texts[0], texts[2], texts[0]), (texts[2], texts[1])]


def comparable(key: Key) -> Key:
    """Return a key as Python orders what the store does: text by its bytes."""
    return tuple(cell.encode() if isinstance(cell, str) else cell for cell in key)


class Keyed:
    """A table whose rows are keys with a number, and the same as a dict."""

    def __init__(self, directory: Path, kinds: tuple[Kind, ...]) -> None:
        self.directory, self.kinds = directory, kinds
        self.names = [f"k{place}" for place in range(len(kinds))]
        self.random = Random(repr([kind.word for kind in kinds]))
        self.db = nyala.open(directory, maintenance="off")
        columns = [
            {"name": name, "type": kind.word, "nullable": False} for name, kind in zip(self.names, kinds, strict=True)
        ]
        definition = {"name": "t", "columns": [*columns, {"name": "v", "type": "int64"}], "primary_key": self.names}
        self.table: Table = self.db.create_table_as(TableDefinition.model_validate(definition))
        self.rows: dict[Key, int] = {}

    def reopen(self) -> None:
        self.db.close()
        self.db = nyala.open(self.directory, maintenance="off")
        self.table = self.db.table("t")

    def draw(self, count: int) -> list[Key]:
        """Return different keys, as they are kept: extreme cells, often with the same first ones."""
        pools = [
            list(
                dict.fromkeys(
                    kind.array(list(kind.cells)).to_pylist() if kind.word.startswith("varchar") else kind.cells
                )
            )
            for kind in self.kinds
        ]
        return list({tuple(map(self.random.choice, pools)): None for _ in range(count)})

    def columns(self, keys: list[Key]) -> dict[str, pa.Array]:
        cells = [list(column) for column in zip(*keys, strict=True)] or [[] for _ in self.kinds]
        return {name: kind.array(part) for name, kind, part in zip(self.names, self.kinds, cells, strict=True)}

    def write(self, op: str, keys: list[Key]) -> nyala.WriteResult:
        data: dict[str, pa.Array] = self.columns(keys)
        if op != "delete":
            data["v"] = pa.array([self.random.randrange(1 << 40) for _ in keys], pa.int64())
        return self.table.write(pa.table(data), op, on_error="return")

    def put(self, op: str, keys: list[Key]) -> None:
        state = self.random.getstate()
        result = self.write(op, keys)
        assert result.error_count == 0 and result.applied == len(keys)
        self.random.setstate(state)
        for key in keys:
            if op == "delete":
                del self.rows[key]
            else:
                self.rows[key] = self.random.randrange(1 << 40)

    def keys_of(self, rows: pa.Table) -> list[Key]:
        """Return the keys of rows as this file has them: dates and timestamps are integers."""
        columns = []
        for name in self.names:
            cells = rows[name].combine_chunks()
            integers = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64()}.get(cells.type)
            columns.append((cells.view(integers) if integers else cells).to_pylist())
        return list(zip(*columns, strict=True))

    def check(self) -> None:
        self._check_order()
        self._check_look_ups()
        self._check_ranges()

    def _check_order(self) -> None:
        expected = sorted(self.rows, key=comparable)
        found = self.table.scan(ordered=True).to_arrow()
        assert self.keys_of(found) == expected
        assert found["v"].to_pylist() == [self.rows[key] for key in expected]
        first = self.table.scan(ordered=True, limit=7).to_arrow()
        assert self.keys_of(first) == expected[:7]

    def _check_look_ups(self) -> None:
        there = self.random.sample(list(self.rows), min(len(self.rows), 8))
        absent = [key for key in self.draw(30) if key not in self.rows][:8]
        for key in there + absent:
            row = self.table.get(key)
            assert (row["v"] if row else None) == self.rows.get(key)
        again = self.write("insert", there)
        assert [(error.row, error.code) for error in again.errors] == [
            (row, "ALREADY_PRESENT") for row in range(len(there))
        ]
        for op in ("update", "delete"):
            missing = self.write(op, absent) if absent else None
            assert missing is None or {error.code for error in missing.errors} == {"NOT_FOUND"}

    def _check_ranges(self) -> None:
        """Filters on the first columns, equal but for the last of them: they bound the keys that are read."""
        for _ in range(12):
            key = self.random.choice(self.draw(5) + list(self.rows)[:5])
            width = self.random.randint(1, len(self.kinds))
            op, compare = self.random.choice(COMPARISONS)
            parts = [
                {"op": op if place == width - 1 else "=", "column": name, "value": kind.literal(cell)}
                for place, (name, kind, cell) in enumerate(zip(self.names, self.kinds, key, strict=True))
                if place < width
            ]
            found = self.table.scan(where={"op": "and", "args": parts}, ordered=True).to_arrow()
            bound = comparable(key)
            expected = [
                row
                for row in sorted(map(comparable, self.rows))
                if row[: width - 1] == bound[: width - 1] and compare(row[width - 1], bound[width - 1])
            ]
            assert [comparable(row) for row in self.keys_of(found)] == expected, parts


COMPARISONS: list[tuple[str, Callable[[Any, Any], bool]]] = [
    ("=", operator.eq),
    ("<", operator.lt),
    ("<=", operator.le),
    (">", operator.gt),
    (">=", operator.ge),
]


@pytest.mark.parametrize("kinds", _mixtures(), ids=lambda kinds: "-".join(kind.word for kind in kinds))
def test_keys_are_ordered_found_and_told_apart_in_every_state(tmp_path: Path, kinds: tuple[Kind, ...]) -> None:
    keyed = Keyed(tmp_path, kinds)
    keys = keyed.draw(ROWS)
    third = len(keys) // 3
    keyed.put("insert", keys[:third])
    keyed.check()
    keyed.table.maintain("flush")
    keyed.put("insert", keys[third : 2 * third])
    keyed.put("update", keys[::2][: third // 2])
    keyed.put("delete", keys[: third // 3])
    keyed.check()
    keyed.table.maintain("flush")
    keyed.put("upsert", keys[2 * third :] + keys[: third // 4])
    keyed.check()
    keyed.reopen()
    keyed.check()
    keyed.table.maintain("flush")
    keyed.table.maintain("compact")
    keyed.check()
    keyed.db.close()
