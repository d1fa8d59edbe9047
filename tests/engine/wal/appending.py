"""Single records for a log."""

from collections.abc import Iterable
from typing import Any

from nyala.engine.wal.store_log import StoreLog


def append_record(log: StoreLog, timestamp: int, payload: Iterable[Any]) -> int:
    """Append one record, the concatenation of these pieces, and return its lsn."""
    return log.writer.append([list(payload)], lambda _: [timestamp])
