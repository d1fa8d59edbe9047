"""The mirror of a table that is altered: rows by column id, as they were written, and the columns as they are now.

What a row shows of a column is what was written into it, else the column's read default. So nothing of the mirror is
rewritten by an alteration, and nothing of it can come back.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from decimal import Decimal
from random import Random
from typing import Any

from nyala.schemas.cells.encoding import encodings_for
from nyala.schemas.cells.types import LogicalType

from .ranges import Ends, Key, within

Cells = dict[int, Any]
"""What was written into a row, by column id."""

WIDER = {
    "int8": "int16",
    "int16": "int32",
    "int32": "int64",
    "float": "double",
    "decimal(4,2)": "decimal(12,2)",
    "decimal(12,2)": "decimal(18,2)",
    "decimal(18,2)": "decimal(38,2)",
    "varchar(3)": "varchar(8)",
    "varchar(8)": "string",
}
CELLS: dict[str, tuple[Any, ...]] = {
    "int8": (-128, 0, 1, 127),
    "int16": (-(1 << 15), 3, 300),
    "int32": (-(1 << 31), 5, 70_000),
    "int64": (-(1 << 63), 7, 1 << 40),
    "float": (0.0, -1.5, 16777216.0),
    "double": (0.1, -1e300, 2.5),
    "decimal(4,2)": (Decimal("99.99"), Decimal("-1.50"), Decimal("0.00")),
    "decimal(12,2)": (Decimal("1234567890.12"), Decimal("-0.01")),
    "decimal(18,2)": (Decimal("9" * 16 + ".99"), Decimal("-" + "9" * 16 + ".99"), Decimal("0.01")),
    "decimal(38,2)": (Decimal("9" * 36 + ".99"), Decimal("-18446744073709551616.25")),
    "varchar(3)": ("", "abc", "\u00e4\u00f6"),
    "varchar(8)": ("abcdefgh", "\U0001f98c"),
    "string": ("", "a longer text than those", "abc"),
    "binary": (b"", b"\0\xff", b"bytes"),
    "bool": (True, False),
    "date": (0, -719_162, 2_932_896),
    "timestamp[us]": (-1, -62_135_596_800_000_000, -(1 << 63), 253_402_300_800_000_000, (1 << 63) - 1),
}
"""Dates are days, and timestamps microseconds: Python lacks some."""


@dataclass(frozen=True)
class MirrorColumn:
    """A column beside the key."""

    id: int
    name: str
    kind: str
    nullable: bool = True
    read_default: Any = None
    write_default: Any = None

    @property
    def is_required(self) -> bool:
        return not self.nullable and self.write_default is None

    def cell(self, random: Random) -> Any:
        return None if self.nullable and random.random() < 0.2 else random.choice(CELLS[self.kind])


@dataclass(frozen=True)
class MirrorSchema:
    """What an alteration changes."""

    name: str
    key: tuple[str, ...]
    columns: tuple[MirrorColumn, ...]
    next_id: int
    version: int = 1

    @property
    def names(self) -> list[str]:
        return [*self.key, *(column.name for column in self.columns)]

    def with_column(self, changed: MirrorColumn) -> MirrorSchema:
        columns = tuple(changed if column.id == changed.id else column for column in self.columns)
        return replace(self, columns=columns)


@dataclass(frozen=True)
class Commit:
    """What one commit made of a row: None is dead. ``touched`` are the columns of an update, None for births and
    deaths."""

    timestamp: int
    cells: Cells | None
    touched: frozenset[int] | None


@dataclass
class Mirror:
    """The table."""

    schema: MirrorSchema
    commits: dict[Key, list[Commit]] = field(default_factory=dict)

    def row(self, key: Key, moment: int) -> Cells | None:
        """Return what was written into a row up to ``moment``."""
        return next((one.cells for one in reversed(self.commits.get(key, [])) if one.timestamp <= moment), None)

    def shown(self, key: Key, cells: Cells) -> tuple:
        """Return a row as a scan shows it now."""
        return (*key, *(cells.get(column.id, column.read_default) for column in self.schema.columns))

    def as_of(self, moment: int) -> list[tuple]:
        """Return all rows at a moment, in the order of their keys."""
        rows = ((key, self.row(key, moment)) for key in sorted(self.commits))
        return [self.shown(key, cells) for key, cells in rows if cells is not None]

    def write(self, op: str, names: list[str], rows: dict[Key, Cells], timestamp: int, now: int) -> None:
        """Commit rows, by column id, of an ``op`` that refuses none of them."""
        del names
        for key, given in rows.items():
            old = self.row(key, now)
            if op == "delete_ignore":
                if old is not None:
                    self._add(key, Commit(timestamp, None, None))
            elif old is None and op != "update_ignore":
                defaults = {column.id: column.write_default for column in self.schema.columns}
                self._add(key, Commit(timestamp, defaults | given, None))
            elif old is not None and op != "insert_ignore" and given:
                self._add(key, Commit(timestamp, old | given, frozenset(given)))

    def drop_range(self, ends: Ends) -> None:
        """Forget the rows of a range, at every moment."""
        for key in [key for key in self.commits if within(key, ends)]:
            del self.commits[key]

    def changes(self, since: int, until: int) -> list[tuple]:
        """Return (op, timestamp, row, row before or None) of each key that changed, in key order.

        The row is the one after the change, for a delete the one that it deleted.
        """
        known = {column.id for column in self.schema.columns}
        found = []
        for key in sorted(self.commits):
            inside = [one for one in self.commits[key] if since < one.timestamp <= until]
            seen = [one for one in inside if one.touched is None or one.touched & known]
            before, after = self.row(key, since), self.row(key, until)
            if not seen or (before is None and after is None):
                continue
            op = "insert" if before is None else "delete" if after is None else "update"
            last = seen[-1].timestamp
            row = self.row(key, last - 1) if after is None else after
            assert row is not None, "a key dies once"
            found.append((op, last, self.shown(key, row), None if before is None else self.shown(key, before)))
        return found

    def _add(self, key: Key, commit: Commit) -> None:
        self.commits.setdefault(key, []).append(commit)


def single(value: float) -> float:
    """Return a number as a float column holds it."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


Step = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A method of the alteration, its arguments and its keywords."""


class Steps:
    """Draws steps that are right, one after the other, and keeps the schema that they lead to."""

    def __init__(self, schema: MirrorSchema, random: Random) -> None:
        self.schema = replace(schema, version=schema.version + 1)
        self._random = random

    def draw(self) -> Step:
        kinds = [self._add_column, self._add_column, self._rename_column, self._rename_key, self._storage, self._rename]
        if self.schema.columns:
            kinds += [self._drop_column, self._set_default, self._widen, self._widen, self._drop_not_null]
        return self._drop_column() if len(self.schema.columns) > 8 else self._random.choice(kinds)()

    def wrong(self) -> Step:
        """Return a step that is wrong whatever the table is."""
        key = self.schema.key[0]
        return self._random.choice(
            [
                ("drop_column", (key,), {}),
                ("drop_column", ("nothing",), {}),
                ("add_column", (key, "int8"), {}),
                ("add_column", ("must", "int8"), {"nullable": False}),
                ("rename_column", (key, "_op"), {}),
                ("widen_column", (key, "int64"), {}),
                ("set_option", ("maintenance", "sometimes"), {}),
                ("set_encoding", (key, "no"), {}),
            ]
        )

    def _new_name(self) -> str:
        taken = set(self.schema.names)
        return self._random.choice([name for name in "abcdefghijklmnopqrst" if name not in taken])

    def _column(self) -> MirrorColumn:
        return self._random.choice(self.schema.columns)

    def _add_column(self) -> Step:
        random, kind = self._random, self._random.choice(list(CELLS))
        cell = random.choice((*CELLS[kind], *((0.1,) if kind == "float" else ())))
        nullable = random.random() < 0.7
        read_default = cell if not nullable or random.random() < 0.5 else None
        write_default = random.choice((None, *CELLS[kind]))
        column = MirrorColumn(
            self.schema.next_id,
            self._new_name(),
            kind,
            nullable,
            single(read_default) if kind == "float" and read_default is not None else read_default,
            write_default,
        )
        self.schema = replace(self.schema, columns=(*self.schema.columns, column), next_id=self.schema.next_id + 1)
        encoding = random.choice([None, *encodings_for(LogicalType.parse(kind))])
        words = {"nullable": nullable, "read_default": read_default, "write_default": write_default}
        return ("add_column", (column.name, kind), words | {"encoding": encoding})

    def _drop_column(self) -> Step:
        column = self._column()
        kept = tuple(other for other in self.schema.columns if other.id != column.id)
        self.schema = replace(self.schema, columns=kept)
        return ("drop_column", (column.name,), {})

    def _rename_column(self) -> Step:
        if not self.schema.columns:
            return self._rename_key()
        column, name = self._column(), self._new_name()
        self.schema = self.schema.with_column(replace(column, name=name))
        return ("rename_column", (column.name, name), {})

    def _rename_key(self) -> Step:
        at, name = self._random.randrange(len(self.schema.key)), self._new_name()
        old = self.schema.key[at]
        key = (*self.schema.key[:at], name, *self.schema.key[at + 1 :])
        self.schema = replace(self.schema, key=key)
        return ("rename_column", (old, name), {})

    def _rename(self) -> Step:
        name = self._random.choice(["t", "u", "v"])
        self.schema = replace(self.schema, name=name)
        return ("rename", (name,), {})

    def _set_default(self) -> Step:
        column = self._column()
        value = self._random.choice((None, *CELLS[column.kind]))
        self.schema = self.schema.with_column(replace(column, write_default=value))
        return ("set_default", (column.name, value), {})

    def _widen(self) -> Step:
        column = self._column()
        if column.kind not in WIDER:
            return self._add_column()
        self.schema = self.schema.with_column(replace(column, kind=WIDER[column.kind]))
        return ("widen_column", (column.name, WIDER[column.kind]), {})

    def _drop_not_null(self) -> Step:
        column = self._column()
        self.schema = self.schema.with_column(replace(column, nullable=True))
        return ("drop_not_null", (column.name,), {})

    def _storage(self) -> Step:
        name = self._random.choice(self.schema.names)
        kinds = [column.kind for column in self.schema.columns if column.name == name]
        encodings = encodings_for(LogicalType.parse(kinds[0])) if kinds else ("plain", None)
        return self._random.choice(
            [
                ("set_encoding", (name, self._random.choice(encodings)), {}),
                ("set_encoding", (name, self._random.choice([*encodings, None])), {}),
                ("set_compression", (name, self._random.choice(["lz4", "zstd", None])), {}),
                ("set_comment", (self._random.choice([name, None]), "words"), {}),
            ]
        )
