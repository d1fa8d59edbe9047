"""What PostgreSQL's catalog says of tables: columns, types, keys, sizes, and what speaks against a mirror."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....schemas.errors import InvalidArgumentError, NotFoundError
from ..source import SourceColumn, SourceTable
from .types import refusal, word_of

_KEY = """(SELECT array_agg(a.attname::text ORDER BY k.place) FROM pg_index i,
     unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place), pg_attribute a
   WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid AND a.attnum = k.number
     AND k.place <= i.indnkeyatts),
  (SELECT NOT i.indimmediate FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)"""
"""The columns of the primary key, and whether it is deferrable."""
_TABLE = f"""
SELECT c.oid, c.relfilenode, c.relnatts, n.nspname, c.relname, c.relkind, c.relreplident, c.relpersistence,
  (SELECT i.indisprimary FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident),
  {_KEY}
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)"""
_BASES = """
WITH RECURSIVE bases(oid, base, modifier) AS (
  SELECT t.oid, CASE t.typtype WHEN 'e' THEN 25 ELSE t.oid END, -1 FROM pg_type t WHERE t.typtype <> 'd'
  UNION ALL SELECT t.oid, b.base, CASE WHEN b.modifier >= 0 THEN b.modifier ELSE t.typtypmod END
  FROM pg_type t JOIN bases b ON t.typbasetype = b.oid WHERE t.typtype = 'd')"""
"""For each type the one that its text is read as: of a domain its base, of an enumeration text."""
_COLUMNS = f"""{_BASES}
SELECT a.attname, a.attnum, b.base, greatest(a.atttypmod, b.modifier), format_type(a.atttypid, a.atttypmod),
  a.atthasdef OR a.attidentity <> '' OR (SELECT t.typdefault IS NOT NULL FROM pg_type t WHERE t.oid = a.atttypid),
  CASE WHEN a.atthasmissing THEN a.attmissingval::text END
FROM pg_attribute a JOIN bases b ON b.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum"""
_XIDS = 1 << 32
_FROZEN = 2
"""Stands for all transactions from long ago."""
_SIZE = "SELECT pg_relation_size({0}), pg_table_size({0}), current_setting('block_size')::int8"
_BASE = f"{_BASES} SELECT base, greatest(modifier, %s), format_type(%s::oid, %s) FROM bases WHERE oid = %s"


@dataclass(frozen=True)
class CatalogColumn:
    """A column of a PostgreSQL table."""

    name: str
    number: int
    """Never used again, also when the column is dropped."""
    oid: int
    """Of its type; of a domain, that of its base; of an enumeration, that of text."""
    modifier: int
    type_name: str
    has_default: bool
    """Of its own, or of the domain that is its type."""
    missing: str | None
    """What rows have that are older than the column, as an array of one; None: NULL, or they were written again."""

    def described(self, table: str) -> SourceColumn:
        """Return the column as the store has it. Raises InvalidArgumentError: its type cannot be mirrored."""
        word = word_of(self.oid, self.modifier)
        if word is None:
            raise refusal(table, self.name, self.type_name)
        detail = {"number": self.number, "oid": self.oid, "modifier": self.modifier}
        return SourceColumn(name=self.name, type=word, detail=detail)


@dataclass(frozen=True)
class CatalogTable:
    """A PostgreSQL table that can be mirrored."""

    oid: int
    file: int
    """Another one once the table was truncated, or written anew."""
    last: int
    """The highest number that a column has had, dropped and generated ones included."""
    quoted: str
    """Its name as SQL writes it."""
    columns: Mapping[str, CatalogColumn]
    key: list[str]


def read_table(cursor: Any, name: str) -> CatalogTable:
    """Return a table of PostgreSQL's catalog, ``schema.table`` as SQL writes it.

    Raises:
        NotFoundError: there is no such table.
        InvalidArgumentError: it cannot be mirrored: no table, no key, or changes without keys.
    """
    cursor.execute(_TABLE, (name,))
    row = cursor.fetchone()
    if row is None:
        raise NotFoundError(
            f"PostgreSQL has no table {name}: give schema.table, names with capital letters in double quotes"
        )
    oid, file, last, schema, table, kind, identity, persistence, is_key_identity, key, is_deferrable = row
    why = None
    if kind != "r":
        why = "is not a plain table: name plain tables; instead of a partitioned table, name its partitions"
    elif persistence != "p":
        why = "is not written to the WAL: run ALTER TABLE ... SET LOGGED first"
    elif not key:
        why = f"has no primary key: ALTER TABLE {name} ADD PRIMARY KEY (...) first"
    elif is_deferrable:  # rows of one statement may share a key for a moment, or changes are refused once published
        why = "has a DEFERRABLE primary key, whose changes cannot be followed: make it NOT DEFERRABLE first"
    elif identity == "n" or (identity == "i" and not is_key_identity):
        why = f"does not report the keys of changed rows: ALTER TABLE {name} REPLICA IDENTITY DEFAULT first"
    if why:
        raise InvalidArgumentError(f"the table {name} {why}")
    return CatalogTable(oid, file, last, f"{_quoted(schema)}.{_quoted(table)}", read_columns(cursor, oid), key)


def read_columns(cursor: Any, oid: int) -> dict[str, CatalogColumn]:
    """Return the columns of a PostgreSQL table, by name; without generated ones, which are not in the stream."""
    cursor.execute(_COLUMNS, (oid,))
    columns: dict[str, CatalogColumn] = {}
    for row in cursor:
        columns[row[0]] = CatalogColumn(*row)
    return columns


def read_dropped(cursor: Any, oid: int, xid: int) -> set[int]:
    """Return the numbers of the columns that a PostgreSQL table once had, and that no transaction before the one of
    number ``xid`` has dropped.

    Transactions are numbered in the order of their first changes, and these numbers begin anew after 32 bits.
    """
    cursor.execute("SELECT attnum, xmin::text::int8 FROM pg_attribute WHERE attrelid = %s AND attisdropped", (oid,))
    return {number for number, dropped in cursor if dropped > _FROZEN and (dropped - xid) % _XIDS < _XIDS // 2}


def read_key(cursor: Any, oid: int) -> tuple[list[str], bool] | None:
    """Return the primary key of a PostgreSQL table, and whether it is deferrable; None if the table is gone."""
    cursor.execute(f"SELECT {_KEY} FROM pg_class c WHERE c.oid = %s", (oid,))
    row = cursor.fetchone()
    return None if row is None else (row[0] or [], bool(row[1]))


def read_type(cursor: Any, oid: int, modifier: int) -> tuple[int, int, str] | None:
    """Return the type and modifier as which the text of a PostgreSQL type is read, and its name; None if there is none
    now."""
    cursor.execute(_BASE, (modifier, oid, modifier, oid))
    return cursor.fetchone()


def source_table(name: str, target: str, there: CatalogTable) -> SourceTable:
    """Return a PostgreSQL table as the runner of a source sees it, with the key first. Raises InvalidArgumentError: a
    type has no place."""
    described = [column.described(name) for column in there.columns.values()]
    order = {column: place for place, column in enumerate(there.key)}
    described.sort(key=lambda each: order.get(each.name, len(order)))
    _check_key(name, described[: len(order)])
    detail = {"oid": there.oid, "last": there.last}
    return SourceTable(name=name, target=target, columns=described, key=there.key, detail=detail)


def _check_key(name: str, columns: list[SourceColumn]) -> None:
    for column in columns:
        if column.type.startswith(("list", "bool", "float", "double", "time64")):
            raise InvalidArgumentError(
                f"{name}: the column {column.name!r} of the primary key has the type {column.type}, which keys of "
                "the store do not have: mirror a table with another key"
            )


def part_ranges(cursor: Any, oid: int, part_bytes: int) -> list[tuple[int, int | None]]:
    """Return ranges of blocks of a PostgreSQL table that have about ``part_bytes`` each, large values included; the
    last one has no end."""
    cursor.execute(_SIZE.format(oid))
    main, whole, block = cursor.fetchone()
    blocks = max(main // block, 1)
    share = max(int(blocks * part_bytes / max(whole, 1)), 1)
    starts = range(0, blocks, share)
    return [(start, start + share if start + share < blocks else None) for start in starts]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
