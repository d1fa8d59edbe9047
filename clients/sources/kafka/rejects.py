"""The table of rejects: messages that could not be applied, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from ....schemas.store.description import TableDescription
from ...api.database import Database

REJECTS = "nyala_rejects"
_KEPT_BYTES = 32 << 10
"""What is kept of a long key or value; a cell of a store may have 64 KiB."""
_EPOCH = datetime(1970, 1, 1)
_SCHEMA = pa.schema(
    [
        pa.field("group", pa.string(), False),
        pa.field("topic", pa.string(), False),
        pa.field("partition", pa.int32(), False),
        pa.field("offset", pa.int64(), False),
        ("table", pa.string()),
        ("reason", pa.string()),
        ("timestamp", pa.timestamp("us")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("value_bytes", pa.int64()),
        ("at", pa.timestamp("us")),
    ]
)


@dataclass(frozen=True)
class Reject:
    """A message of Kafka that could not be applied."""

    topic: str
    partition: int
    offset: int
    table: str
    reason: str
    time: int
    """When it was written, in milliseconds since 1970; negative if Kafka does not know."""
    key: bytes | None
    value: bytes | None


def rejects_table(database: Database) -> TableDescription:
    """Return the table of rejects; create it if there is none."""
    database.create_table(
        REJECTS,
        _SCHEMA,
        ["group", "topic", "partition", "offset"],
        if_not_exists=True,
        comment="Messages of Kafka that could not be applied: docs/kafka.md",
    )
    return database._store.describe_table(REJECTS)


def rows_of_rejects(group: str, rejects: list[Reject]) -> pa.RecordBatch:
    """Return rejects as rows of their table."""
    at = datetime.now(UTC).replace(tzinfo=None)
    rows = [
        {
            "group": group,
            "topic": each.topic,
            "partition": each.partition,
            "offset": each.offset,
            "table": each.table,
            "reason": each.reason.encode("utf-8", "backslashreplace").decode()[:2000],
            "timestamp": _EPOCH + timedelta(milliseconds=each.time) if each.time >= 0 else None,
            "key": None if each.key is None else each.key[:_KEPT_BYTES],
            "value": None if each.value is None else each.value[:_KEPT_BYTES],
            "value_bytes": None if each.value is None else len(each.value),
            "at": at,
        }
        for each in rejects
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)
