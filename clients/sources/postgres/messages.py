"""The messages of `pgoutput` that are not rows: begin, commit, relation, truncate."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_BEGIN = struct.Struct(">qqI")
_COMMIT = struct.Struct(">bqqq")
_RELATION = struct.Struct(">i")
_COLUMN = struct.Struct(">ii")
_TRUNCATE = struct.Struct(">ib")


@dataclass(frozen=True)
class Begin:
    """A message of PostgreSQL's stream: a transaction begins."""

    commit_lsn: int
    """Where its commit is in the WAL."""
    xid: int
    """Its number, in 32 bits."""

    @classmethod
    def read(cls, message: bytes) -> Begin:
        """Read the message."""
        lsn, _, xid = _BEGIN.unpack_from(message, 1)
        return cls(lsn, xid)


@dataclass(frozen=True)
class Commit:
    """A message of PostgreSQL's stream: a transaction ends."""

    end_lsn: int
    """The first position behind it."""
    time: datetime
    """When it was committed, in UTC."""

    @classmethod
    def read(cls, message: bytes) -> Commit:
        """Read the message."""
        _, _, end, microseconds = _COMMIT.unpack_from(message, 1)
        return cls(end, _EPOCH + timedelta(microseconds=microseconds))


@dataclass(frozen=True)
class RelationColumn:
    """A column as PostgreSQL's stream describes it."""

    name: str
    is_key: bool
    """Whether it is of the replica identity."""
    oid: int
    modifier: int


@dataclass(frozen=True)
class Relation:
    """A message of PostgreSQL's stream: a table as it is described, before its rows come, and when it has changed."""

    oid: int
    schema: str
    name: str
    identity: str
    """d: the primary key; f: all columns; n: nothing; i: an index."""
    columns: list[RelationColumn]

    @classmethod
    def read(cls, message: bytes) -> Relation:
        """Read the message."""
        (oid,) = _RELATION.unpack_from(message, 1)
        schema, at = _text(message, 5)
        name, at = _text(message, at)
        identity = chr(message[at])
        count = int.from_bytes(message[at + 1 : at + 3], "big")
        at += 3
        columns = []
        for _ in range(count):
            is_key = bool(message[at] & 1)
            column, at = _text(message, at + 1)
            kind, modifier = _COLUMN.unpack_from(message, at)
            at += _COLUMN.size
            columns.append(RelationColumn(column, is_key, kind, modifier))
        return cls(oid, schema or "pg_catalog", name, identity, columns)


def truncated(message: bytes) -> list[int]:
    """Return the numbers of the tables that a message of PostgreSQL truncates."""
    count, _ = _TRUNCATE.unpack_from(message, 1)
    return list(struct.unpack_from(f">{count}i", message, 1 + _TRUNCATE.size))


def lsn_text(lsn: int) -> str:
    """Return a position in PostgreSQL's WAL as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """Return a position in PostgreSQL's WAL from its text."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1
